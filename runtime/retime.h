/*
 * retime.h - from the times of passes (profiler.h) to the plan: what was measured takes the place of what was guessed.
 *
 * Of each interval the median of its passes counts, of those without copies beside kernels if copies slow these
 * (interference.h); the few that could not be timed are taken to compute as the others do for their bytes. The plan
 * that stands is changed only if another, simulated with the same times, would be faster by 3 % and by half of what
 * passes differ in, or in mode latency smaller by 3 %: a conversion costs some passes.
 */
#ifndef OV_RETIME_H
#define OV_RETIME_H

#include <stdbool.h>
#include <stdint.h>

struct ov_engine;

/* Takes the profiler's times, which are complete, and ends it; what a pass takes by them is told. In an exclusive
 * section. True: another plan is worth it, to be made with up to `spare_pages` left free. False: the one that stands
 * stays, at least until ov_planning_done. */
bool ov_retime(struct ov_engine *engine, uint32_t spare_pages);
/* When that is so. True: as above. */
bool ov_retime_answered(struct ov_engine *engine, uint32_t spare_pages);

#endif
