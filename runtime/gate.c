#define _GNU_SOURCE
#include "gate.h"

#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

/* linux/membarrier.h, which older headers lack. */
#define REGISTER_EXPEDITED (1 << 4)
#define EXPEDITED          (1 << 3)

_Thread_local struct ov_self ov_self;
_Atomic int ov_state = OV_INERT;
struct ov_gate ov_gate;

static struct ov_gate_slot slots[OV_GATE_SLOTS];
static _Atomic unsigned slots_used; /* the first so many: the others are never looked at, nor touched */
static _Atomic int crowd;           /* threads inside that have no place */
static pthread_key_t leaving;       /* gives the place back when a thread ends */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool key_made;
static pthread_mutex_t closer = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t door = PTHREAD_MUTEX_INITIALIZER; /* for waiting only */
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;

static long membarrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0);
}

/* The sanitizer does not know what the kernel does for us. */
#if defined(__SANITIZE_THREAD__)
#define BARRIERS_OF_OTHERS_ARE_SEEN false
#elif defined(__has_feature)
#define BARRIERS_OF_OTHERS_ARE_SEEN (!__has_feature(thread_sanitizer))
#else
#define BARRIERS_OF_OTHERS_ARE_SEEN true
#endif

void ov_gate_set_up(void)
{
    if (BARRIERS_OF_OTHERS_ARE_SEEN && membarrier(REGISTER_EXPEDITED) == 0 && membarrier(EXPEDITED) == 0) {
        atomic_store(&ov_gate.light, true);
    }
}

static void give_back(void *slot)
{
    ov_self.gate_slot = NULL;
    atomic_store_explicit(&((struct ov_gate_slot *)slot)->taken, false, memory_order_release);
}

static void make_key(void)
{
    key_made = pthread_key_create(&leaving, give_back) == 0;
}

static struct ov_gate_slot *take_slot(void)
{
    (void)pthread_once(&once, make_key);
    for (unsigned i = 0; key_made && i < OV_GATE_SLOTS; i++) {
        bool taken = false;
        if (!atomic_load_explicit(&slots[i].taken, memory_order_relaxed) &&
            atomic_compare_exchange_strong(&slots[i].taken, &taken, true)) {
            for (unsigned used = atomic_load(&slots_used); used <= i;) {
                if (atomic_compare_exchange_weak(&slots_used, &used, i + 1)) {
                    break;
                }
            }
            if (pthread_setspecific(leaving, &slots[i]) == 0) {
                return &slots[i];
            }
            give_back(&slots[i]);
            break;
        }
    }
    return NULL;
}

static void wait_until_open(void)
{
    pthread_mutex_lock(&door);
    while (atomic_load(&ov_gate.closed)) {
        pthread_cond_wait(&opened, &door);
    }
    pthread_mutex_unlock(&door);
}

static void set_inside(struct ov_gate_slot *slot, bool inside)
{
    if (slot != NULL) {
        atomic_store(&slot->inside, inside);
    } else {
        atomic_fetch_add(&crowd, inside ? 1 : -1);
    }
}

void ov_gate_pass_slowly(void)
{
    struct ov_gate_slot *slot = ov_self.gate_slot;
    if (slot == NULL) {
        slot = ov_self.gate_slot = take_slot();
    }
    set_inside(slot, true);
    /* Sequentially consistent on both sides: either we see `closed`, or the closer sees us. */
    while (atomic_load(&ov_gate.closed)) {
        set_inside(slot, false);
        wait_until_open();
        set_inside(slot, true);
    }
}

void ov_gate_leave_without_slot(void)
{
    set_inside(NULL, false);
}

void ov_gate_close(void)
{
    pthread_mutex_lock(&closer);
    atomic_store(&ov_gate.closed, true);
    while (atomic_load(&ov_gate.light) && membarrier(EXPEDITED) != 0) {
        sched_yield(); /* it may lack memory for a moment */
    }
    /* A place that is taken from now on is taken by somebody who sees that the gate is closed. */
    for (unsigned i = 0, used = atomic_load(&slots_used); i < used; i++) {
        while (atomic_load(&slots[i].inside)) {
            sched_yield();
        }
    }
    while (atomic_load(&crowd) != 0) {
        sched_yield();
    }
}

void ov_gate_open(void)
{
    pthread_mutex_lock(&door);
    atomic_store(&ov_gate.closed, false);
    pthread_cond_broadcast(&opened);
    pthread_mutex_unlock(&door);
    pthread_mutex_unlock(&closer);
}

int ov_gate_step_out(void)
{
    int depth = ov_self.gate_depth;
    if (depth > 0) {
        ov_self.gate_depth = 0;
        ov_gate_unpass();
    }
    return depth;
}

void ov_gate_step_in(int depth)
{
    if (depth > 0) {
        ov_gate_pass();
        ov_self.gate_depth = depth;
    }
}
