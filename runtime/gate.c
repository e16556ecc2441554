#include "gate.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "thread.h"

/* Threads share out over these lines; more threads than lines only costs contention. */
#define LINES 64

struct ov_gate_slot {
    _Alignas(64) _Atomic int inside;
};

_Thread_local struct ov_self ov_self;
_Atomic int ov_state = OV_INERT;

static struct ov_gate_slot lines[LINES];
static _Atomic unsigned next_line;
static _Atomic bool closed;
static pthread_mutex_t closer = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t door = PTHREAD_MUTEX_INITIALIZER; /* for waiting only */
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;

static void wait_until_open(void)
{
    pthread_mutex_lock(&door);
    while (atomic_load(&closed)) {
        pthread_cond_wait(&opened, &door);
    }
    pthread_mutex_unlock(&door);
}

static void pass(void)
{
    struct ov_gate_slot *slot = ov_self.gate_slot;
    if (slot == NULL) {
        slot = ov_self.gate_slot = &lines[atomic_fetch_add(&next_line, 1) % LINES];
    }
    /* Sequentially consistent on both sides: either we see `closed`, or the closer sees us. */
    atomic_fetch_add(&slot->inside, 1);
    while (atomic_load(&closed)) {
        atomic_fetch_sub(&slot->inside, 1);
        wait_until_open();
        atomic_fetch_add(&slot->inside, 1);
    }
}

void ov_gate_enter(void)
{
    if (ov_self.gate_depth++ == 0) {
        pass();
    }
}

void ov_gate_leave(void)
{
    if (--ov_self.gate_depth == 0) {
        atomic_fetch_sub_explicit(&ov_self.gate_slot->inside, 1, memory_order_release);
    }
}

void ov_gate_close(void)
{
    pthread_mutex_lock(&closer);
    atomic_store(&closed, true);
    for (int i = 0; i < LINES; i++) {
        while (atomic_load(&lines[i].inside) != 0) {
            sched_yield();
        }
    }
}

void ov_gate_open(void)
{
    pthread_mutex_lock(&door);
    atomic_store(&closed, false);
    pthread_cond_broadcast(&opened);
    pthread_mutex_unlock(&door);
    pthread_mutex_unlock(&closer);
}

int ov_gate_step_out(void)
{
    int depth = ov_self.gate_depth;
    if (depth > 0) {
        ov_self.gate_depth = 0;
        atomic_fetch_sub_explicit(&ov_self.gate_slot->inside, 1, memory_order_release);
    }
    return depth;
}

void ov_gate_step_in(int depth)
{
    if (depth > 0) {
        pass();
        ov_self.gate_depth = depth;
    }
}
