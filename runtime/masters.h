/*
 * masters.h - the host masters of what does not stand on the device.
 *
 * A page that is streamed, host-mapped, or on its way has a *master*: the bytes that count. Two kinds coexist:
 *
 *   mapped   a handle of host memory, visible in the arena's mirror (arena.h). It can be mapped at the page's own
 *            address too, which is what the host-mapped tier is; it is slow to make. What was allocated beyond the
 *            budget has such masters from the start, and keeps them when it becomes streamed: no second copy.
 *   pinned   a part of a pin (pin.h). Fast to make, and all that streaming needs, but it cannot be mapped at the page's
 *            address. Made when units are moved from the device to the host.
 *
 * While a page has both, which is only so inside ov_master_evacuate, the mapped one counts.
 *
 * A unit leaves the ring at any moment, and what stands behind its address then must be mapped: ov_master_evacuate
 * turns pinned masters into mapped ones, one pin after the other, so that it never holds more than one pin's pages
 * twice. That much host memory is set aside in the ledger (host_aside_bytes) for as long as there are pins; nobody else
 * gets it. docs/design.md has the whole argument.
 *
 * Guarded by the engine's lock; functions that copy need the context, and an exclusive section where they free.
 */
#ifndef OV_MASTERS_H
#define OV_MASTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena.h"
#include "pin.h"
#include "share.h"

/* Pages of one pin at most: what is held twice for a moment when masters are turned into mapped ones. 64 MiB: from here
 * on neither copies nor registrations get faster. */
#define OV_PIN_PAGES 32u

#define OV_BOUNCE_SLOTS 4u

/* A small pinned buffer that copies from unpinned masters go through. */
struct ov_bounce {
    char *memory; /* OV_BOUNCE_SLOTS pages; NULL: not there (yet) */
    CUevent free[OV_BOUNCE_SLOTS];
    unsigned next;
    bool failed;
};

struct ov_masters {
    struct ov_pins pins;
    struct ov_bounce bounce;
    struct ov_share share;
    size_t largest_bytes; /* of the pins there are */
};

struct ov_engine;

void ov_masters_open(struct ov_engine *engine);
/* Releases all pins. Returns how many could not be. */
size_t ov_masters_close(struct ov_engine *engine);

static inline bool ov_page_has_master(const struct ov_page *page)
{
    return page->host != 0 || page->pin != NULL;
}

/* The pin becomes the masters of pages [first, first + pages). */
void ov_master_attach(struct ov_engine *engine, uint32_t first, uint32_t pages, struct ov_pin *pin);
/* Pages give up their pinned masters; a pin goes when its last page did. */
void ov_master_detach(struct ov_arena *arena, uint32_t first, uint32_t pages);
/* Releases what could not be released when it was dropped. In an exclusive section without captures. */
void ov_masters_reap(struct ov_engine *engine);

struct ov_piece {
    CUdeviceptr address; /* of the first page's master */
    uint32_t pages;
    bool pageable; /* not known to the driver */
};
/* The masters from `page` on, at most `limit` pages, as far as they stand in one piece that one copy may cover. pages
 * is 0 when the page has none. */
struct ov_piece ov_master_piece(const struct ov_arena *arena, uint32_t page, uint32_t limit);
/* Enqueues copies of the masters of [first, first + pages) to `to`. */
CUresult ov_master_fetch(struct ov_engine *engine, CUdeviceptr to, uint32_t first, uint32_t pages, CUstream stream);
/* The other way: enqueues copies from `from` into the masters, which are private. */
CUresult ov_master_store(struct ov_engine *engine, uint32_t first, uint32_t pages, CUdeviceptr from, CUstream stream);
/* Whether no other process reads any of these masters. */
bool ov_master_is_private(const struct ov_arena *arena, uint32_t first, uint32_t pages);
/* Turns pinned masters of [first, first + pages) into mapped ones; waits. On failure every page has the master that it
 * had, or its new one. */
CUresult ov_master_evacuate(struct ov_engine *engine, uint32_t first, uint32_t pages);
/* OVERSHOT_SHARE: the masters of streamed units become pieces of the shared space (masters_share.c). In an exclusive
 * section, after units were aliased and before any is loaded. */
void ov_masters_share(struct ov_engine *engine);

#endif
