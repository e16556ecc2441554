/*
 * kept.h - what pools of the driver's keep.
 *
 * Small allocations in stream order, and all of pools that are not served (pool.h), are the driver's. What is freed
 * there goes back to its pool and not to the device: until the work in front of the free is done, and below the pool's
 * release threshold for longer. So it stays counted (ledger.h, kept_bytes), until the pools themselves say that they
 * hold less than that beyond what is allocated there. They are asked when the program has waited for the GPU, when a
 * small request would cost another block, and when memory is short; then they are trimmed first. Meanwhile bytes may be
 * counted twice, as kept and as in use again, but none are left out.
 *
 * What is allocated is counted here and not asked for: whether a pool calls memory used whose free is still to come is
 * the driver's business. It counts from when the driver has given it until the driver has taken it back, as little as
 * can be; what is under way is in the ledger in full.
 *
 * Guarded by the engine's lock, except `some`, which is also read without.
 */
#ifndef OV_KEPT_H
#define OV_KEPT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"

/* What is taken from more pools is not counted once it was freed. */
#define OV_KEEPERS 64

struct ov_engine;
struct ov_other;

struct ov_kept {
    struct {
        CUmemoryPool pool;
        size_t live_bytes; /* allocated there, of what we count */
    } keeper[OV_KEEPERS];
    uint32_t count;
    _Atomic bool some;
};

/* So much that we count was taken from that pool; 0: it was freed into it. False: it is one too many. Under the lock,
 * as the next three. */
bool ov_kept_by(struct ov_engine *engine, CUmemoryPool pool, size_t bytes);
/* It was freed into a pool. */
void ov_kept_add(struct ov_engine *engine, const struct ov_other *other);
/* Asks the pools how much they keep. */
void ov_kept_ask(struct ov_engine *engine);
/* Has them give back what is done, and asks. In the engine's context; no capture may be under way. */
void ov_kept_trim(struct ov_engine *engine);
/* Before a pool is destroyed. What it keeps may go to the device's default pool. */
void ov_kept_pool_gone(CUmemoryPool pool);

#endif
