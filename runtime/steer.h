/*
 * steer.h - `overshot ctl PID`: what the user asks of a running program, and when it is done.
 *
 * The service (service.h) is named after the process, and started when an engine is armed: before that there is nothing
 * to steer. Its thread answers `status` and `timing` at once, from under the engines' locks. Anything else is put down,
 * and done at the next quiet point, by the thread of the program that has just waited for the GPU; the thread of the
 * service waits a while for that and tells what came of it.
 *
 *   budget=BYTES  each device's budget from now on; weights give way, or come back
 *   restore       the budget becomes what it takes to have everything on the device, if the device has that
 *   replan        the plan is made anew
 *   pause         no plan is made or changed, and nothing is looked for, until resume
 *   resume
 *   suspend-profile   nothing is timed for profiles, and none is written, until resume-profile
 *   resume-profile
 *
 * Requests are done one after the other, in the order in which they came; a few may wait. A lock of its own, a leaf;
 * engines are changed with it not held.
 */
#ifndef OV_STEER_H
#define OV_STEER_H

#include <stdatomic.h>
#include <stdbool.h>

enum { OV_STEER_NAME_BYTES = 40, OV_STEER_LINE_BYTES = 2048, OV_STEER_WAIT_SECONDS = 5 };

/* A request waits for a quiet point. */
extern _Atomic bool ov_steer_waiting;

/* The service's name for a process; also for the tool. */
void ov_steer_name(long pid, char name[OV_STEER_NAME_BYTES]);
/* Starts the service, once. */
void ov_steer_start(void);
/* At a quiet point, outside of all locks: does what was asked. */
void ov_steer_serve(void);
/* In the child of a fork; at exit. */
void ov_steer_forked(void);
void ov_steer_exit(void);

#endif
