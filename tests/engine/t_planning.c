/*
 * A better plan is looked for beside the program, and brought about when it is found; nobody waits for it, and whatever
 * the program does meanwhile is right.
 *
 * The first plan is made for a guess: that all weights compute as long as the link takes. Here only the first half
 * computes at all, so a plan that streams that half is better by far.
 */
#include "rig.h"

#include <stdlib.h>
#include <time.h>

enum { COUNT = 10 };
static const size_t weight_bytes = 4 * MIB;
static const char told[] = "a pass computes";

static void enqueue(struct rig *rig)
{
    uint64_t words = 256;
    for (unsigned i = 0; i < rig->count; i++) {
        CUdeviceptr in = rig->weight[i].address, out = rig->out;
        double microseconds = i < rig->count / 2 ? 160 : 0;
        void *params[] = {&in, &out, &words, &microseconds};
        rig_launch(rig, "probe_slow_copy", rig->stream, params);
    }
}

static void pass(struct rig *rig)
{
    enqueue(rig);
    OK(cuStreamSynchronize(rig->stream));
}

/* Until passes were timed, which is when it is asked for. */
static void until_asked(struct rig *rig)
{
    for (unsigned i = 0; i < 100 && !rig_logged(told); i++) {
        pass(rig);
    }
    HOLDS(rig_logged(told));
}

/* However long the thread takes; half a minute is no matter of speed any more. */
static bool until_planned(struct rig *rig, unsigned plans)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    for (unsigned i = 0; i < 3000 && rig_plans() < plans; i++) {
        pass(rig);
        nanosleep(&pause, NULL);
    }
    return rig_plans() == plans;
}

static void close_rig(struct rig *rig)
{
    rig_pass(rig, NULL, 0);
    rig_close(rig);
}

static void better_plan_comes(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    until_asked(&rig);
    const unsigned before = rig_plans();
    HOLDS(until_planned(&rig, before + 1));
    HOLDS(rig_streamed_mib() > 0);
    rig_pass(&rig, NULL, 0);
    close_rig(&rig);
}

/* It is asked for after many launches, and its plan comes after as many again. */
static void better_plan_comes_without_waits(void)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    unsigned before = 0;
    for (unsigned i = 0; i < 60000 && (before == 0 || rig_plans() == before); i++) {
        enqueue(&rig);
        if (i % 100 == 99 && before == 0 && rig_logged(told)) {
            before = rig_plans();
        } else if (i % 1000 == 999) {
            nanosleep(&pause, NULL);
        }
    }
    HOLDS(before > 0 && rig_plans() == before + 1);
    OK(cuStreamSynchronize(rig.stream));
    close_rig(&rig);
}

/* The answer is for a plan that does not stand any more. */
static void memory_is_needed_meanwhile(void)
{
    struct rig rig;
    CUdeviceptr grown;
    rig_open_with(&rig, COUNT, weight_bytes);
    until_asked(&rig);
    const unsigned before = rig_plans();
    OK(cuMemAlloc(&grown, 6 * MIB)); /* at once: weights give way */
    OK(cuMemsetD8(grown, 7, 6 * MIB));
    HOLDS(rig_plans() > before);
    for (unsigned i = 0; i < 40; i++) {
        pass(&rig);
    }
    rig_pass(&rig, NULL, 0);
    OK(cuMemFree(grown));
    close_rig(&rig);
}

/* The thread is left to itself. */
static void program_ends_meanwhile(void)
{
    struct rig rig;
    rig_open_with(&rig, RIG_WEIGHTS, 2 * MIB);
    until_asked(&rig);
    close_rig(&rig);
}

static void context_ends_meanwhile(void)
{
    struct rig rig;
    rig_open_with(&rig, RIG_WEIGHTS, 2 * MIB);
    until_asked(&rig);
    OK(cuDevicePrimaryCtxReset(rig.device));
    rig_forget(&rig);
    rig_open_with(&rig, COUNT, weight_bytes); /* a new engine, and a new question */
    until_asked(&rig);
    close_rig(&rig);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(better_plan_comes),
    CASE(better_plan_comes_without_waits),
    CASE(memory_is_needed_meanwhile),
    CASE(program_ends_meanwhile),
    CASE(context_ends_meanwhile),
};
RIG_MAIN(cases)
