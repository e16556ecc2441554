/*
 * interference.h - how much copies slow the program's kernels that run beside them.
 *
 * Both take of the device's memory bandwidth, so a kernel that is bound by it takes longer while a copy writes to the
 * device. The profiler (profiler.h) times passes with copies beside kernels, and hushed ones without. What the first
 * take longer is interference if it is more than what most passes of a kind differ in, and more than 1 %. Then an
 * interval computes what it took in hushed passes, and its *stretch* (plan.h) is what copies add while they run: where
 * the link was busy all the time, what the interval took longer; elsewhere by what all of them took longer together,
 * since when exactly a copy ran is known from the planner's simulation only.
 *
 * Intervals at whose end the stream had nothing left to do waited for the host. Kernels that get faster make it wait
 * longer, and in a hushed pass the host gets ahead: nothing can be told of those, and they stay as they were.
 */
#ifndef OV_INTERFERENCE_H
#define OV_INTERFERENCE_H

struct ov_engine;
struct ov_runs;

/* After runs.compute_s was taken from the profiler's passes with copies: if there is interference, changes it and makes
 * runs.stretch, which is NULL before. If memory runs out there is none. */
void ov_interference_take(struct ov_engine *engine);

/* What copies that run all the time would add to a cycle's computation, as a share; 0: nothing, or not measured. */
double ov_interference(const struct ov_runs *runs);

#endif
