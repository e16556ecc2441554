/*
 * alloc.h - what the program asked for.
 *
 * Requests of OV_ARENA_LEAST bytes and more are *allocations*: whole pages of the arena. (The driver, too, rounds
 * requests above 1 MiB to 2 MiB.) Smaller ones stay the driver's and are only counted. Foreign memory (pools, managed
 * memory, the program's own mappings) is counted, too.
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
    size_t bytes;     /* as requested */
    uint32_t ordinal; /* never reused; 0: the entry is free */
    uint64_t anchor;  /* the first address touched in discovery, ... */
    uint32_t visits;  /* ... and how often it was, after another address had been */
    bool doomed;      /* freed by the program during a capture: goes in the next exclusive section without one */
    bool dirty;       /* may have changed since its pages were hashed */
    bool offered;     /* to other processes, by: */
    struct ov_ticket ticket;
    uint64_t *edge; /* offset * 2, + 1 where a copy began, + 0 where one ended; ascending, each once */
    uint32_t edge_count, edge_room;
    uint32_t next_free;
};

struct ov_other; /* an allocation that is not in the arena */

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
/* Notes that a copy covered [address, address + bytes) of an allocation. */
void ov_alloc_edges(struct ov_engine *engine, uint64_t address, size_t bytes);
/* Calls each() for every allocation outside the arena that holds device memory of a known extent. */
void ov_others_each(struct ov_engine *engine, void (*each)(void *context, CUdeviceptr address, size_t bytes),
                    void *context);
/* Whether an address lies in one of them. Slow: for discovery. */
bool ov_others_hold(const struct ov_engine *engine, uint64_t address);
/* Frees what was freed during captures. In an exclusive section without captures. */
void ov_allocs_reap(struct ov_engine *engine);
/* Frees all of the engine's memory: its context goes away. */
void ov_allocs_drop(struct ov_engine *engine);

#endif
