/*
 * gate.h - lets one thread stop all others at the door of the driver for a moment.
 *
 * Every launch and every copy on arena memory passes the gate from before its parameters are looked at until the driver
 * has taken it. A thread that wants to change what stands behind addresses closes the gate: when ov_gate_close()
 * returns, nobody is between looking and launching, and nobody will be until ov_gate_open().
 *
 * Passing costs two atomic additions on a cache line that threads rarely share. A thread may pass again while it is
 * inside (a callback of the driver that copies); only the outermost passage counts. The closer must not be inside: it
 * leaves first (ov_gate_step_out) and looks at everything anew after ov_gate_step_in.
 *
 * Lock order: gate before any engine's lock.
 */
#ifndef OV_GATE_H
#define OV_GATE_H

#include <stdbool.h>

void ov_gate_enter(void);
void ov_gate_leave(void);

/* Closes; waits for those inside. One closer at a time, others wait for their turn. */
void ov_gate_close(void);
void ov_gate_open(void);

/* For a thread inside that wants to close: leaves completely / comes back to the same depth. */
int ov_gate_step_out(void);
void ov_gate_step_in(int depth);

#endif
