/*
 * summary.h - the line that OVERSHOT_SUMMARY=1 prints for each device, at exit or when its context is closed.
 *
 * Reads the engine without its lock: called when no launches are made any more. Makes no CUDA call.
 */
#ifndef OV_SUMMARY_H
#define OV_SUMMARY_H

struct ov_engine;

void ov_summary_print(const struct ov_engine *engine);

#endif
