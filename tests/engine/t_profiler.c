/*
 * Passes are timed, and timed anew when they take another time than was planned for; but not when they are of several
 * kinds, not because the host is late, and not for ever.
 */
#include "rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 10 };
static const size_t weight_bytes = 4 * MIB;
static const char told[] = "a pass computes", anew[] = "they are timed anew", slower[] = "more beside copies";
static const double kernel_us = 2; /* what a kernel takes that does nothing (tests/sim/sim_submit.c) */

/* The host is busy for a while: SIM_QUERY_NS a query, and with LATE of them longer than a kernel. */
enum { LATE = 10 };
static void dawdle(unsigned queries)
{
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    while (queries-- > 0) {
        OK(cuEventQuery(event));
    }
    OK(cuEventDestroy(event));
}

/* A pass in which each weight's kernel computes so long, before each of which the host takes its time. */
static void pass(struct rig *rig, double microseconds, unsigned queries)
{
    uint64_t words = 256;
    for (unsigned i = 0; i < rig->count; i++) {
        CUdeviceptr in = rig->weight[i].address, out = rig->out;
        void *params[] = {&in, &out, &words, &microseconds};
        dawdle(queries);
        rig_launch(rig, "probe_slow_copy", rig->stream, params);
    }
    OK(cuStreamSynchronize(rig->stream));
}

static void passes(struct rig *rig, unsigned count, double microseconds)
{
    while (count-- > 0) {
        pass(rig, microseconds, 0);
    }
}

/* Lines of the log with `text`; *last gets what follows it in the last one. */
static unsigned lines_with(const char *text, double *last)
{
    char line[512];
    unsigned count = 0;
    FILE *file = fopen(getenv("OVERSHOT_LOG_FILE"), "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *at = strstr(line, text);
        if (at != NULL) {
            count++;
            *last = strtod(at + strlen(text), NULL);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return count;
}

static unsigned times_anew(void)
{
    double ignored;
    return lines_with(anew, &ignored);
}

static void computes(double microseconds)
{
    double ms = 0;
    HOLDS(lines_with(told, &ms) > 0);
    const double expected_ms = COUNT * (microseconds + kernel_us) / 1e3;
    if (ms < 0.97 * expected_ms || ms > 1.03 * expected_ms) {
        rig_fail(RIG_EXIT_SELF, "%.3f ms instead of %.3f", ms, expected_ms);
    }
}

/* All bytes are right, too. */
static void close_rig(struct rig *rig)
{
    rig_pass(rig, NULL, 0);
    rig_close(rig);
}

static void times_are_told(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    passes(&rig, 16, 100);
    computes(100);
    HOLDS(rig_streamed_mib() > 0 && times_anew() == 0);
    close_rig(&rig);
}

/* Launches that are tried out tell nothing: that is no reason to doubt what the others told. */
static void trials_are_no_spread(void)
{
    struct rig rig;
    double percent = 100;
    rig_open_with(&rig, COUNT, weight_bytes);
    passes(&rig, 16, 100);
    HOLDS(lines_with("(spread", &percent) > 0);
    if (percent > 3) {
        rig_fail(RIG_EXIT_SELF, "passes that are alike differ by %.1f %%", percent);
    }
    close_rig(&rig);
}

static void change_is_noticed(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    passes(&rig, 16, 100);
    passes(&rig, 24, 400);
    HOLDS(times_anew() == 1);
    computes(400);
    passes(&rig, 40, 100);
    HOLDS(times_anew() == 2);
    computes(100);
    close_rig(&rig);
}

static void steady_is_left_alone(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    passes(&rig, 100, 60);
    HOLDS(rig_logged(told) && times_anew() == 0 && rig_plans() <= 2);
    close_rig(&rig);
}

static void kinds_that_take_turns(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    for (unsigned i = 0; i < 100; i++) {
        passes(&rig, 1, 60);
        passes(&rig, 1, 300);
    }
    HOLDS(rig_logged(told) && times_anew() == 0 && rig_plans() <= 2);
    close_rig(&rig);
}

/* Long enough for each to be noticed: less and less often. */
static void kinds_that_come_in_rows(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    for (unsigned i = 0; i < 25; i++) {
        passes(&rig, 6, 60);
        passes(&rig, 6, 300);
    }
    HOLDS(rig_logged(told) && times_anew() <= 5 && rig_plans() <= 7);
    close_rig(&rig);
}

static void host_that_is_late(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    passes(&rig, 20, 100);
    for (unsigned i = 0; i < 40; i++) {
        pass(&rig, 100, LATE);
    }
    HOLDS(rig_logged(told) && times_anew() == 0);
    close_rig(&rig);
}

static void pauses_between_passes(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    passes(&rig, 20, 100);
    for (unsigned i = 0; i < 40; i++) {
        passes(&rig, 1, 100);
        dawdle(10 * LATE);
    }
    HOLDS(rig_logged(told) && times_anew() == 0);
    close_rig(&rig);
}

/* Passes in every order: there is nothing to time. */
static void no_order(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    for (unsigned i = 0; i < 60; i++) {
        unsigned order[COUNT];
        for (unsigned k = 0; k < COUNT; k++) {
            order[k] = k;
        }
        for (unsigned k = COUNT - 1; k > 0; k--) {
            const unsigned other = (i * 2654435761u >> (k % 16)) % (k + 1), there = order[k];
            order[k] = order[other];
            order[other] = there;
        }
        rig_pass(&rig, order, COUNT);
    }
    HOLDS(!rig_logged(told));
    rig_close(&rig);
}

/* The order changes while passes are timed: what was measured belongs to the pass before. */
static void order_changes_meanwhile(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    unsigned reverse[COUNT];
    for (unsigned k = 0; k < COUNT; k++) {
        reverse[k] = COUNT - 1 - k;
    }
    for (unsigned i = 0; i < 40 && rig_plans() == 0; i++) {
        passes(&rig, 1, 100);
    }
    passes(&rig, 1, 100);
    for (unsigned i = 0; i < 40; i++) {
        rig_pass(&rig, reverse, COUNT);
    }
    HOLDS(!rig_logged(told));
    passes(&rig, 8, 100); /* in order again */
    close_rig(&rig);
}

/* A host that is late has less to wait for in hushed passes, and no copy is to blame for it. */
static void host_that_is_always_late(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    for (unsigned i = 0; i < 20; i++) {
        pass(&rig, 100, LATE);
    }
    HOLDS(rig_logged(told) && !rig_logged(slower));
    close_rig(&rig);
}

/* Copies slow kernels by two fifths; the last one's interval is not counted, since the program waits behind it. */
static void copies_that_slow_kernels(void)
{
    struct rig rig;
    double percent = 0;
    rig_open_with(&rig, COUNT, weight_bytes);
    passes(&rig, 16, 100);
    HOLDS(rig_logged(slower) && lines_with("%), ", &percent) > 0);
    HOLDS(percent > 25 && percent < 42);
    close_rig(&rig);
}

/* The order is another in the second half of each pass that is hushed: not more than two are tried. */
static void order_changes_while_hushed(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    unsigned order[COUNT];
    for (unsigned k = 0; k < COUNT; k++) {
        order[k] = k < COUNT / 2 ? k : COUNT - 1 - (k - COUNT / 2);
    }
    for (unsigned i = 0; i < 40 && rig_plans() == 0; i++) {
        passes(&rig, 1, 100);
    }
    passes(&rig, 3, 100);
    HOLDS(!rig_logged(told));
    for (unsigned i = 0; i < 3; i++) {
        rig_pass(&rig, order, COUNT);
    }
    HOLDS(rig_logged(told) && !rig_logged(slower));
    close_rig(&rig);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(trials_are_no_spread),
    CASE(times_are_told),
    CASE(change_is_noticed),
    CASE(steady_is_left_alone),
    CASE(kinds_that_take_turns),
    CASE(kinds_that_come_in_rows),
    CASE(host_that_is_late),
    CASE(pauses_between_passes),
    CASE(no_order),
    CASE(order_changes_meanwhile),
    CASE(order_changes_while_hushed),
    CASE(copies_that_slow_kernels),
    CASE(host_that_is_always_late),
};
RIG_MAIN(cases)
