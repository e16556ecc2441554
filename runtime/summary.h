/*
 * summary.h - what is told of each device at exit, or when its context is closed: misses that were not told yet
 * (OVERSHOT_STALL), the table of OVERSHOT_TIMING, the line of OVERSHOT_SUMMARY.
 *
 * Reads the engine without its lock: called when no launches are made any more. Makes no CUDA call.
 */
#ifndef OV_SUMMARY_H
#define OV_SUMMARY_H

struct ov_engine;

void ov_summary_print(struct ov_engine *engine);

#endif
