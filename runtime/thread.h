/*
 * thread.h - what the shim keeps per thread, and the two guards every wrapper passes.
 *
 * ov_self.inside counts how deep this thread is in the driver on our behalf. While it is not zero, a wrapper that is
 * entered (the driver resolving its own symbols, or a library the driver calls) goes straight to the real function.
 *
 * ov_state says what wrappers have to do at all:
 *   - OV_INERT: pass through untouched: not configured, switched off, failed closed, or a forked child. Never leaves
 * it.
 *   - OV_IDLE: everything fits: allocations are placed in the arena, launches are not looked at.
 *   - OV_ARMED: the budget was exceeded, or is planned to be: launches are scanned.
 *
 * It is read relaxed in every wrapper and changed only under the engine's lock (or in the child after fork).
 */
#ifndef OV_THREAD_H
#define OV_THREAD_H

#include <stdatomic.h>
#include <stdbool.h>

enum ov_state { OV_INERT = 0, OV_IDLE, OV_ARMED };

struct ov_self {
    int inside;                     /* depth inside the driver */
    int gate_depth;                 /* how often this thread holds the gate (gate.h) */
    struct ov_gate_slot *gate_slot; /* this thread's place at the gate, NULL before its first passage */
};

extern _Thread_local struct ov_self ov_self;
extern _Atomic int ov_state;

static inline bool ov_bypass(void)
{
    return ov_self.inside != 0 || atomic_load_explicit(&ov_state, memory_order_relaxed) == OV_INERT;
}
static inline void ov_inside_enter(void)
{
    ov_self.inside++;
}
static inline void ov_inside_leave(void)
{
    ov_self.inside--;
}

#endif
