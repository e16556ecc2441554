/*
 * SIM_TRACE=path: one JSON line for each kernel that runs, with the form it came by, its whole configuration and its
 * parameter bytes in hex. Written as launches run, so a graph launch writes a line for each of its kernel nodes.
 */
#ifndef SIM_TRACE_H
#define SIM_TRACE_H

#include "sim_program.h"

void sim_trace_launch(const struct sim_launch *launch, const struct sim_lane *lane);

#endif
