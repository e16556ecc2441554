/*
 * reach.h - kernels that write in front of streamed units.
 *
 * Allocators of programs hand out parts of an allocation, and other parts once those are free. A kernel that gets an
 * address in front of a unit may then write on into the unit, which is weight no more; but its parameters say nothing
 * of the unit. So pages of an allocation that streamed units follow are *near* (OV_UNIT_NEAR, ring.h). What a slot that
 * is not known to read gets there is let through if this kernel was launched with this address some times before, in
 * discovery or since, and the units behind it stayed as they were. Otherwise those are on trial for this launch
 * (watch.h). A pair that is trusted and then writes further than ever gets an illegal address, not a wrong result.
 *
 * Forgotten with every plan. Guarded by the engine's lock.
 */
#ifndef OV_REACH_H
#define OV_REACH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ov_engine;
struct ov_kernel;

/* How far from its address on a kernel is taken to write. */
#define OV_REACH_BYTES ((uint64_t)256 << 20)

/* Hashes of (kernel, address), and how often they did no harm: open addressing, 0 is empty. */
struct ov_reach {
    uint64_t *known;
    size_t count;
};

/* After a plan was brought about: marks pages, and reads the log for what is known of them. */
void ov_reach_renew(struct ov_engine *engine);
void ov_reach_close(struct ov_engine *engine);
/* The first streamed unit behind the address in the same allocation; UINT32_MAX: none. Those that follow it have
 * higher indices. */
uint32_t ov_reach_next(const struct ov_engine *engine, uint64_t address);
bool ov_reach_known(const struct ov_engine *engine, const struct ov_kernel *kernel, uint64_t address);
void ov_reach_note(struct ov_engine *engine, const struct ov_kernel *kernel, uint64_t address);

#endif
