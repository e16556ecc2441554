/*
 * alloc.h - what the program asked for.
 *
 * Requests of OV_ARENA_LEAST bytes and more are *allocations*: whole pages of the arena. (The driver, too, rounds
 * requests above 1 MiB to 2 MiB.) Everything else is the driver's and only counted: other.h.
 *
 * An allocation remembers its *edges*: the offsets where copies from the host began or ended. They are where one weight
 * may end and the next begin (learn.h).
 *
 * Guarded by the engine's lock.
 */
#ifndef OV_ALLOC_H
#define OV_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"
#include "ipc.h"

#define OV_ARENA_LEAST ((size_t)1 << 20)

struct ov_alloc {
    uint32_t first, pages;
    size_t bytes;                   /* as requested */
    uint32_t ordinal;               /* never reused; 0: the entry is free */
    uint64_t anchor;                /* the first address touched in discovery (0: none yet), ... */
    uint32_t visits;                /* ... and how often it was, after another address had been */
    uint32_t anchored, anchor_wait; /* launch that touched it last; launches to wait for it until another is tried */
    bool doomed;       /* freed by the program during a capture: goes in the next exclusive section without one */
    bool dirty;        /* may have changed since its pages were hashed */
    bool unseen;       /* has pages that were never hashed */
    bool presumed;     /* taken for used, though nobody has touched it yet (recall.h) */
    bool reserved;     /* the program's own reservation: pages come and go (vmm.h) */
    bool idle;         /* freed in stream order, kept for the next (pool.h) */
    CUmemoryPool pool; /* that it was taken from, NULL: none */
    bool offered;      /* to other processes, by: */
    struct ov_ticket ticket;
    uint32_t held;  /* pages that something stands behind */
    uint64_t *edge; /* offset * 2, + 1 where a copy began, + 0 where one ended; ascending, each once */
    uint32_t edge_count, edge_room;
    uint32_t next_free;
};

struct ov_other; /* other.h */

struct ov_allocs {
    struct ov_alloc *item;            /* index is ov_page.alloc - 1 */
    uint32_t count, room, first_free; /* first_free: 1 + index, 0: none */
    uint32_t last_ordinal;
    uint32_t doomed;        /* entries that are */
    struct ov_other *other; /* by address */
};

struct ov_engine;

/* The allocation that holds the page, NULL if none. */
struct ov_alloc *ov_alloc_of(struct ov_engine *engine, uint32_t page);
/* An entry for pages of the arena; NULL: no host memory. Its pages are the caller's business. */
struct ov_alloc *ov_alloc_new(struct ov_engine *engine, uint32_t first, uint32_t pages, size_t bytes);
void ov_alloc_drop(struct ov_engine *engine, struct ov_alloc *alloc);
/* Whether the program may free it by that address. */
bool ov_alloc_is_at(const struct ov_engine *engine, const struct ov_alloc *alloc, CUdeviceptr address);
/* Its contents are past: it becomes another allocation in the same place. No unit is in it. */
void ov_alloc_forget(struct ov_engine *engine, struct ov_alloc *alloc);
/* cuMemAlloc of whole pages. Takes locks. */
CUresult ov_alloc_pages(struct ov_engine *engine, CUdeviceptr *out, size_t bytes);
/* Frees the allocation of the arena that begins there. What it holds is given back later when somebody captures. */
CUresult ov_alloc_free(struct ov_engine *engine, CUdeviceptr address);
/* room.c. A plan made for less leaves room for what the program will write, and before the first one what was loaded
 * gives way (giveway.h); at any cost: other memory goes to the host for it. Without the lock. */
void ov_make_room(struct ov_engine *engine, uint32_t pages, bool at_any_cost);
/* The program got `bytes` more, some of them in host memory: grown under the lock, grew after it. */
void ov_alloc_grown(struct ov_engine *engine, size_t bytes, bool on_host);
void ov_alloc_grew(struct ov_engine *engine, bool on_host);
/* Notes that a copy covered [address, address + bytes) of an allocation. */
void ov_alloc_edges(struct ov_engine *engine, uint64_t address, size_t bytes);
/* Where the first copy at `address` or behind it began; UINT64_MAX: none did. */
uint64_t ov_alloc_next_upload(const struct ov_engine *engine, const struct ov_alloc *alloc, uint64_t address);
/* Forgets the edges in pages that the program has unmapped. */
void ov_alloc_forget_edges(struct ov_alloc *alloc, uint32_t first, uint32_t pages);
/* Frees what was freed during captures. In an exclusive section without captures. */
void ov_allocs_reap(struct ov_engine *engine);
/* Frees all of the engine's memory: its context goes away. */
void ov_allocs_drop(struct ov_engine *engine);

#endif
