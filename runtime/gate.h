/*
 * gate.h - lets one thread stop all others at the door of the driver for a moment.
 *
 * Every launch and every copy on arena memory passes the gate from before its parameters are looked at until the driver
 * has taken it. A thread that wants to change what stands behind addresses closes the gate: when ov_gate_close()
 * returns, nobody is between looking and launching, and nobody will be until ov_gate_open().
 *
 * Passing is on the way of every launch, closing is rare; so the closer pays for both. Each thread says that it is
 * inside in a place of its own, by a plain store, and then looks whether the gate is closed. That the store is visible
 * before the look is the closer's business: it has the kernel put a barrier into all running threads (membarrier(2),
 * private expedited: Linux 4.14). Where that is not to be had, the store itself is the barrier. A locked instruction
 * behind a launch would wait until the device's doorbell was written.
 *
 * A thread may pass again while it is inside (a callback of the driver that copies); only the outermost passage counts.
 * The closer must not be inside: it leaves first (ov_gate_step_out) and looks at everything anew after ov_gate_step_in.
 *
 * Lock order: gate before any engine's lock.
 */
#ifndef OV_GATE_H
#define OV_GATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "thread.h"

/* Places, for that many threads at a time that launch or copy. Threads beyond share a counter, and pay for it. */
#define OV_GATE_SLOTS 4096

/* A thread's place. The line is its own. */
struct ov_gate_slot {
    _Alignas(64) _Atomic bool inside;
    _Atomic bool taken;
};

struct ov_gate {
    _Alignas(64) _Atomic bool closed;
    _Atomic bool light; /* the closer brings the barrier */
};
extern struct ov_gate ov_gate;

/* Once, before the first passage that matters. Without it everything works, and passing costs a barrier. */
void ov_gate_set_up(void);

/* The parts that are not on everybody's way: a thread's first passage, a closed gate. */
void ov_gate_pass_slowly(void);
void ov_gate_leave_without_slot(void);

static inline void ov_gate_pass(void)
{
    struct ov_gate_slot *slot = ov_self.gate_slot;
    if (__builtin_expect(slot == NULL, 0)) {
        ov_gate_pass_slowly();
        return;
    }
    if (__builtin_expect(atomic_load_explicit(&ov_gate.light, memory_order_relaxed), 1)) {
        atomic_store_explicit(&slot->inside, true, memory_order_relaxed);
        atomic_signal_fence(memory_order_seq_cst);
    } else {
        atomic_store_explicit(&slot->inside, true, memory_order_seq_cst);
    }
    if (__builtin_expect(atomic_load_explicit(&ov_gate.closed, memory_order_seq_cst), 0)) {
        ov_gate_pass_slowly();
    }
}

static inline void ov_gate_enter(void)
{
    if (ov_self.gate_depth++ == 0) {
        ov_gate_pass();
    }
}

static inline void ov_gate_unpass(void)
{
    if (__builtin_expect(ov_self.gate_slot == NULL, 0)) {
        ov_gate_leave_without_slot();
    } else {
        atomic_store_explicit(&ov_self.gate_slot->inside, false, memory_order_release);
    }
}

static inline void ov_gate_leave(void)
{
    if (--ov_self.gate_depth == 0) {
        ov_gate_unpass();
    }
}

/* Closes; waits for those inside. One closer at a time, others wait for their turn. */
void ov_gate_close(void);
void ov_gate_open(void);

/* For a thread inside that wants to close: leaves completely / comes back to the same depth. */
int ov_gate_step_out(void);
void ov_gate_step_in(int depth);

#endif
