/*
 * pin.h - pinned host memory: the ways to have it, and the registry of what there is.
 *
 * A *pin* is one storage of host memory that the driver copies from and to at the link's speed. There are several ways
 * to have one; they stand in the order in which they are tried, fastest first (figures of an H200, docs/measurements):
 *
 *   hugepage  anonymous memory in huge pages, touched by several threads, then registered
 *   register  the same in ordinary pages
 *   alloc     cuMemHostAlloc
 *   vmm       no pin: handles of host memory, which the arena makes itself (arena.h)
 *   none      not pinned at all: copies go through a small pinned bounce buffer (masters.h), at a fraction of the speed
 *
 *   shared    a piece that other processes use too (share.h); never fallen back to
 *
 * OVERSHOT_PIN says where to start. When a way fails, that is said once with its cause, and from then on the next one
 * is used. Running into a limit of ours (ledger.h) is no failure of a way.
 *
 * A pin goes through: reserve (address space only), populate (populate.h, where the way asks for it), commit (known to
 * the driver; in the registry from here on), release. One registration a storage. A release that the driver refuses
 * leaves the pin in the registry, to be tried again by ov_pins_reap; its memory is not given back before.
 *
 * Guarded by the engine's lock; commit and release need a current context. Memory of pins is not inherited by forked
 * children, where none of this is used, and not written to core files.
 */
#ifndef OV_PIN_H
#define OV_PIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"

enum ov_pin_kind {
    OV_PIN_HUGEPAGE,
    OV_PIN_REGISTER,
    OV_PIN_ALLOC,
    OV_PIN_VMM,
    OV_PIN_NONE,
    OV_PIN_SHARED,
    OV_PIN_KINDS
};

struct ov_pin {
    struct ov_pin *next; /* in the registry */
    char *host;
    size_t bytes;
    uint8_t kind;        /* enum ov_pin_kind */
    bool committed;      /* the driver knows it, or needs not to */
    bool dropped;        /* nobody needs it, and its release has not run yet */
    uint32_t first;      /* for masters.h: the arena page whose master stands at `host`, ... */
    uint32_t pages_used; /* ... and how many of its pages still are masters */
};

struct ov_pins {
    struct ov_pin *first;
    size_t count, bytes;   /* committed, dropped ones included */
    size_t dropped;        /* how many are, and wait for ov_pins_reap */
    enum ov_pin_kind kind; /* in use; OV_PIN_KINDS: none is left */
    int node;              /* NUMA node that memory is taken from, -1: any */
};

/* Starts at the way that `choice` (OV_OPT_PIN_*) names. */
void ov_pins_open(struct ov_pins *pins, unsigned choice, int node);
const char *ov_pin_name(enum ov_pin_kind kind);
/* The present way failed: says so once, with the cause, and goes on to the next. False: there is none. */
bool ov_pins_descend(struct ov_pins *pins, const char *cause);

/* NULL: no address space, or the way is not to be had here; *cause says why. Not for OV_PIN_VMM. */
struct ov_pin *ov_pin_reserve(const struct ov_pins *pins, enum ov_pin_kind kind, size_t bytes, const char **cause);
/* A pin of memory that is there already: a piece of a shared space. */
struct ov_pin *ov_pin_adopt(char *memory, size_t bytes);
/* Whether the way wants memory to be populated before it is committed. */
bool ov_pin_wants_populating(enum ov_pin_kind kind);
CUresult ov_pin_commit(struct ov_pins *pins, struct ov_pin *pin);
/* Gives back what was reserved and not committed. */
void ov_pin_abandon(struct ov_pin *pin);
/* True: it ran, the pin is gone. False: it stays in the registry, dropped. now false: only marks it dropped. */
bool ov_pin_release(struct ov_pins *pins, struct ov_pin *pin, bool now);
/* Tries again what was dropped. Returns the bytes that were given back. */
size_t ov_pins_reap(struct ov_pins *pins);

#endif
