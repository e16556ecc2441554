/*
 * Passes are timed, and timed anew when they take another time than was planned for; but not when they are of several
 * kinds, not because the host is late, and not for ever. Those that are graphs: t_timed_graphs.c.
 */
#include "timed.h"

enum { COUNT = 10 };
static const size_t weight_bytes = 4 * MIB;

static void times_are_told(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    timed_passes(&rig, 16, 100);
    timed_computes(COUNT, 100);
    HOLDS(rig_streamed_mib() > 0 && timed_anew() == 0);
    timed_close(&rig);
}

/* Launches that are tried out tell nothing: that is no reason to doubt what the others told. */
static void trials_are_no_spread(void)
{
    struct rig rig;
    double percent = 100;
    rig_open_with(&rig, COUNT, weight_bytes);
    timed_passes(&rig, 16, 100);
    HOLDS(timed_lines("(spread", &percent) > 0);
    if (percent > 3) {
        rig_fail(RIG_EXIT_SELF, "passes that are alike differ by %.1f %%", percent);
    }
    timed_close(&rig);
}

/* Computation is what it was, so what passes take is what they take: that is accepted, and not timed for ever. */
static void prediction_is_off(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    timed_passes(&rig, 300, 5);
    HOLDS(rig_logged(TIMED_TOLD) && timed_anew() == 1);
    timed_close(&rig);
}

static void change_is_noticed(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    timed_passes(&rig, 16, 100);
    timed_passes(&rig, 24, 400);
    HOLDS(timed_anew() == 1);
    timed_computes(COUNT, 400);
    timed_passes(&rig, 40, 100);
    HOLDS(timed_anew() == 2);
    timed_computes(COUNT, 100);
    timed_close(&rig);
}

static void steady_is_left_alone(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    timed_passes(&rig, 100, 60);
    HOLDS(rig_logged(TIMED_TOLD) && timed_anew() == 0 && rig_plans() <= 2);
    timed_close(&rig);
}

static void kinds_that_take_turns(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    for (unsigned i = 0; i < 100; i++) {
        timed_passes(&rig, 1, 60);
        timed_passes(&rig, 1, 300);
    }
    HOLDS(rig_logged(TIMED_TOLD) && timed_anew() == 0 && rig_plans() <= 2);
    timed_close(&rig);
}

/* Long enough for each to be noticed: less and less often. */
static void kinds_that_come_in_rows(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    for (unsigned i = 0; i < 25; i++) {
        timed_passes(&rig, 6, 60);
        timed_passes(&rig, 6, 300);
    }
    HOLDS(rig_logged(TIMED_TOLD) && timed_anew() <= 5 && rig_plans() <= 7);
    timed_close(&rig);
}

static void host_that_is_late(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    timed_passes(&rig, 20, 100);
    for (unsigned i = 0; i < 40; i++) {
        timed_pass(&rig, 100, TIMED_LATE);
    }
    HOLDS(rig_logged(TIMED_TOLD) && timed_anew() == 0);
    timed_close(&rig);
}

static void pauses_between_passes(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    timed_passes(&rig, 20, 100);
    for (unsigned i = 0; i < 40; i++) {
        timed_passes(&rig, 1, 100);
        timed_dawdle(10 * TIMED_LATE);
    }
    HOLDS(rig_logged(TIMED_TOLD) && timed_anew() == 0);
    timed_close(&rig);
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
    HOLDS(!rig_logged(TIMED_TOLD));
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
        timed_passes(&rig, 1, 100);
    }
    timed_passes(&rig, 1, 100);
    for (unsigned i = 0; i < 40; i++) {
        rig_pass(&rig, reverse, COUNT);
    }
    HOLDS(!rig_logged(TIMED_TOLD));
    timed_passes(&rig, 8, 100); /* in order again */
    timed_close(&rig);
}

/* A host that is late has less to wait for in hushed passes, and no copy is to blame for it. */
static void host_that_is_always_late(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    for (unsigned i = 0; i < 20; i++) {
        timed_pass(&rig, 100, TIMED_LATE);
    }
    HOLDS(rig_logged(TIMED_TOLD) && !rig_logged(TIMED_SLOWER));
    timed_close(&rig);
}

/* Copies slow kernels by two fifths; the last one's interval is not counted, since the program waits behind it. */
static void copies_that_slow_kernels(void)
{
    struct rig rig;
    double percent = 0;
    rig_open_with(&rig, COUNT, weight_bytes);
    timed_passes(&rig, 16, 100);
    HOLDS(rig_logged(TIMED_SLOWER) && timed_lines("%), ", &percent) > 0);
    HOLDS(percent > 25 && percent < 42);
    timed_close(&rig);
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
        timed_passes(&rig, 1, 100);
    }
    timed_passes(&rig, 3, 100);
    HOLDS(!rig_logged(TIMED_TOLD));
    for (unsigned i = 0; i < 3; i++) {
        rig_pass(&rig, order, COUNT);
    }
    HOLDS(rig_logged(TIMED_TOLD) && !rig_logged(TIMED_SLOWER));
    timed_close(&rig);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(trials_are_no_spread),     CASE(prediction_is_off),
    CASE(times_are_told),           CASE(change_is_noticed),
    CASE(steady_is_left_alone),     CASE(kinds_that_take_turns),
    CASE(kinds_that_come_in_rows),  CASE(host_that_is_late),
    CASE(pauses_between_passes),    CASE(no_order),
    CASE(order_changes_meanwhile),  CASE(order_changes_while_hushed),
    CASE(copies_that_slow_kernels), CASE(host_that_is_always_late),
};
RIG_MAIN(cases)
