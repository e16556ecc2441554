/*
 * pool.h - stream-ordered allocations of OV_ARENA_LEAST bytes and more (cuMemAllocAsync and its kin).
 *
 * They are allocations of the arena like any other. What is freed in the order of a stream stays behind its addresses
 * for a while, as *idle*: making and mapping memory takes about 60 us for 2 MiB, and programs that allocate for every
 * operation ask for the same sizes again and again. An idle allocation is given out again
 *   - on the stream that it was freed on, at once: the order of the stream is order enough;
 *   - on any other one when its event, recorded when it was freed, has come.
 * Idle memory is given back when its event has come and: memory is short; the program trims the pool; the program has
 * waited for the GPU, and the pool holds more than its release threshold; or there is too much of it.
 *
 * Served are the device's default pool and pools that were made for nothing but device memory of this process; the
 * numbers that a pool tells are the driver's and ours together. In a capture, and for all other pools, the driver
 * serves (kept.h).
 *
 * Guarded by the engine's lock, except idle_count, which is also read without.
 */
#ifndef OV_POOL_H
#define OV_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"

#define OV_POOLS     16
#define OV_IDLE_MOST 256

struct ov_engine;
struct ov_alloc;

/* Bytes in whole pages, as the driver rounds large requests, too. */
struct ov_pool {
    CUmemoryPool handle; /* NULL: the entry is free */
    uint64_t used, used_high, reserved, reserved_high;
};

struct ov_idle {
    uint32_t alloc;  /* 1 + index */
    CUstream stream; /* NULL: destroyed since */
    uint64_t thread; /* of a per-thread stream */
    CUevent event;
};

struct ov_pools {
    struct ov_pool item[OV_POOLS];
    struct ov_idle idle[OV_IDLE_MOST]; /* oldest first */
    _Atomic uint32_t idle_count;
    uint32_t idle_pages;
    CUevent spare[OV_IDLE_MOST];
    uint32_t spare_count;
};

/* An allocation of a pool is gone for good: its numbers. */
void ov_pool_released(struct ov_engine *engine, const struct ov_alloc *alloc);
/* Gives back idle memory whose events have come, oldest first, until at most `keep_pages` are idle; `done`: the device
 * is known to be idle, so all have. In the engine's context; no capture may be under way unless `done`. */
void ov_idle_drop(struct ov_engine *engine, uint32_t keep_pages, bool done);
/* The program has waited for the GPU. Takes locks. */
void ov_pools_synchronized(struct ov_engine *engine);
/* The stream is destroyed: its handle may come back as another's. */
void ov_pools_forget_stream(struct ov_engine *engine, CUstream stream);
/* Forgets everything: the engine's context goes away. */
void ov_pools_drop(struct ov_engine *engine);

#endif
