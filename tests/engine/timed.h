/*
 * timed.h - passes that compute for a known time, and what the log says of how long they took. For tests of profiling
 * (runtime/profiler.h, runtime/pace.h), with the simulated driver's virtual time. One thread.
 */
#ifndef ENGINE_TIMED_H
#define ENGINE_TIMED_H

#include "rig.h"

/* Texts of the log. */
#define TIMED_TOLD   "a pass computes"
#define TIMED_SLOWER "more beside copies"
/* What a kernel takes that does nothing, in microseconds (tests/sim/sim_submit.c). */
#define TIMED_KERNEL_US 2.0

/* With so many queries the host is busy for longer than a kernel (SIM_QUERY_NS). */
enum { TIMED_LATE = 10 };
void timed_dawdle(unsigned queries);
/* A pass in which each weight's kernel computes so long, before each of which the host makes so many queries. */
void timed_pass(struct rig *rig, double microseconds, unsigned queries);
void timed_passes(struct rig *rig, unsigned count, double microseconds);
/* Lines of the log with `text`; *last gets what follows it in the last one. */
unsigned timed_lines(const char *text, double *last);
/* How often passes were found to take another time than was planned for. */
unsigned timed_anew(void);
/* Fails if they are 3 % apart. */
void timed_is_about(double ms, double expected_ms);
/* What was told last is a pass of `count` kernels that compute so long each. */
void timed_computes(unsigned count, double microseconds);
/* All bytes are right, too. */
void timed_close(struct rig *rig);

#endif
