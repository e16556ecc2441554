/*
 * stall.h - OVERSHOT_STALL: copies that land on the critical path although the plan did not foresee them.
 *
 * A *miss* is a touch that finds its unit neither in the ring nor on its way (ring.h). It counts here in steady state:
 * after the first whole cycle under the current plan, and not while weights are looked for, since then the plan is in
 * doubt anyway. A copy that was foreseen and is late is no miss; the times of those are the timetable's business. Nor
 * is one that the plan lets begin only with its touch, since its unit has the place of the one touched before.
 *
 *   warn    a line for the first, and whenever their number has doubled. The launch path only makes a note; the line is
 *           said at the next quiet point, or at exit.
 *   error   the launch is refused before it runs, each time, with OV_STALL_ERROR, and a line says which and why. What
 *           is missing is copied all the same, as by a miss that is let through: whoever makes the same launch again
 *           will find it, and what comes next is predicted from there.
 *
 * The error is one that is not kept by the context and that frameworks neither retry nor take for a lost device:
 * PyTorch raises "operation not permitted" for it.
 *
 * Graphs that turn the ring: what such a graph expects in the ring and does not find counts like a miss, for the graph
 * as a whole, which is refused before it runs. Copies inside it are its own and foreseen: nothing of them is seen here.
 * Nodes of a graph that is replayed one by one are told and never refused, since part of the graph has run by then; nor
 * are launches that are watched (watch.h).
 *
 * Guarded by the engine's lock, except that `notes` is also read without it.
 */
#ifndef OV_STALL_H
#define OV_STALL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"

#define OV_STALL_ERROR CUDA_ERROR_NOT_PERMITTED
#define OV_STALL_NOTES 8u

struct ov_engine;
struct ov_kernel;
struct ov_launch;

struct ov_stall_note {
    uint32_t unit, ordinal;         /* of its allocation */
    size_t bytes, offset;           /* in its allocation */
    const struct ov_kernel *kernel; /* NULL: a graph */
    uint64_t times_unit, times;     /* so far: under this plan; since the start */
    bool refused;
};

struct ov_stall {
    uint64_t cycle; /* touches that make a whole one under the current plan */
    uint64_t times;
    struct ov_stall_note note[OV_STALL_NOTES]; /* those not said yet; when it is full, the newest replaces the last */
    _Atomic unsigned notes;
};

/* A plan was brought about, and the ring's trace is that of its cycle. */
void ov_stall_begin(struct ov_engine *engine);
/* A launch finds the unit missing. True: it is to be refused. */
bool ov_stall_miss(struct ov_engine *engine, const struct ov_launch *launch, uint32_t unit);
/* The same for a graph. */
bool ov_stall_miss_graph(struct ov_engine *engine, uint32_t unit);
/* Says what was noted. At a quiet point, after a launch was refused; or at exit, without the lock. */
void ov_stall_say(struct ov_engine *engine);

#endif
