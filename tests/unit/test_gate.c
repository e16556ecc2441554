/* The gate: while it is closed nobody is inside, and nobody is kept out for ever. */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "gate.h"
#include "thread.h"

enum { WALKERS = 6, CLOSERS = 3, ROUNDS = 2000 };

/* Changed only while the gate is closed, looked at twice inside: any difference is a closer that did not wait. */
static _Atomic unsigned world, seen_to_change;
static _Atomic int walkers_done;

static void look(int depth)
{
    ov_gate_enter();
    const unsigned before = atomic_load_explicit(&world, memory_order_relaxed);
    if (depth > 0) {
        look(depth - 1);
    }
    sched_yield();
    if (atomic_load_explicit(&world, memory_order_relaxed) != before) {
        atomic_fetch_add(&seen_to_change, 1);
    }
    ov_gate_leave();
}

static void *walk(void *argument)
{
    (void)argument;
    for (int round = 0; round < ROUNDS; round++) {
        look(round % 3);
    }
    atomic_fetch_add(&walkers_done, 1);
    return NULL;
}

static void change_world(void)
{
    ov_gate_close();
    atomic_fetch_add_explicit(&world, 1, memory_order_relaxed);
    sched_yield();
    atomic_fetch_add_explicit(&world, 1, memory_order_relaxed);
    ov_gate_open();
}

static void *close_often(void *argument)
{
    (void)argument;
    while (atomic_load(&walkers_done) < WALKERS) {
        change_world();
    }
    return NULL;
}

/* Closes from inside, at some depth: comes back at the same depth. */
static void *close_from_inside(void *argument)
{
    (void)argument;
    for (int round = 0; round < ROUNDS / 4; round++) {
        ov_gate_enter();
        ov_gate_enter();
        const int depth = ov_gate_step_out();
        change_world();
        ov_gate_step_in(depth);
        look(1);
        ov_gate_leave();
        ov_gate_leave();
    }
    return NULL;
}

START_TEST(nobody_is_inside_while_it_is_closed)
{
    pthread_t thread[WALKERS + CLOSERS + 1];

    if (_i == 1) {
        ov_gate_set_up();
    }
    atomic_store(&walkers_done, 0);
    atomic_store(&seen_to_change, 0);
    for (int i = 0; i < WALKERS; i++) {
        ck_assert_int_eq(pthread_create(&thread[i], NULL, walk, NULL), 0);
    }
    for (int i = 0; i < CLOSERS; i++) {
        ck_assert_int_eq(pthread_create(&thread[WALKERS + i], NULL, close_often, NULL), 0);
    }
    ck_assert_int_eq(pthread_create(&thread[WALKERS + CLOSERS], NULL, close_from_inside, NULL), 0);
    for (int i = 0; i < WALKERS + CLOSERS + 1; i++) {
        pthread_join(thread[i], NULL);
    }
    ck_assert_uint_eq(atomic_load(&seen_to_change), 0);
    ck_assert_uint_gt(atomic_load(&world), 0);
}
END_TEST

static _Atomic int passed;

static void *pass_once(void *argument)
{
    (void)argument;
    ov_gate_enter();
    atomic_store(&passed, 1);
    ov_gate_leave();
    return NULL;
}

START_TEST(a_closed_gate_keeps_others_out_until_it_opens)
{
    pthread_t thread;

    atomic_store(&passed, 0);
    ov_gate_close();
    ck_assert_int_eq(pthread_create(&thread, NULL, pass_once, NULL), 0);
    for (int i = 0; i < 200; i++) {
        sched_yield();
        ck_assert_int_eq(atomic_load(&passed), 0);
    }
    ov_gate_open();
    pthread_join(thread, NULL);
    ck_assert_int_eq(atomic_load(&passed), 1);
}
END_TEST

/* ---- more threads than places ---- */

enum { MANY = OV_GATE_SLOTS + 3 };
static _Atomic int inside, closed;
static pthread_mutex_t may_leave = PTHREAD_MUTEX_INITIALIZER;

static void *stay_inside(void *argument)
{
    (void)argument;
    ov_gate_enter();
    atomic_fetch_add(&inside, 1);
    pthread_mutex_lock(&may_leave);
    pthread_mutex_unlock(&may_leave);
    const int depth = ov_gate_step_out();
    ov_gate_step_in(depth);
    atomic_fetch_sub(&inside, 1);
    ov_gate_leave();
    return NULL;
}

static void *close_once(void *argument)
{
    (void)argument;
    ov_gate_close();
    atomic_store(&closed, 1);
    ov_gate_open();
    return NULL;
}

START_TEST(threads_without_a_place_count_too)
{
    static pthread_t thread[MANY];
    pthread_attr_t small;
    pthread_t other;
    int made = 0;

    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    pthread_mutex_lock(&may_leave);
    while (made < MANY && pthread_create(&thread[made], &small, stay_inside, NULL) == 0) {
        made++;
    }
    while (atomic_load(&inside) < made) {
        usleep(1000);
    }
    ck_assert_int_eq(pthread_create(&other, NULL, close_once, NULL), 0);
    usleep(20000);
    ck_assert_int_eq(atomic_load(&closed), 0);
    pthread_mutex_unlock(&may_leave);
    for (int i = 0; i < made; i++) {
        pthread_join(thread[i], NULL);
    }
    pthread_join(other, NULL);
    ck_assert_int_eq(atomic_load(&closed), 1);
    ov_gate_enter(); /* places were given back */
    ck_assert_ptr_nonnull(ov_self.gate_slot);
    ov_gate_leave();
}
END_TEST

START_TEST(stepping_out_of_no_gate_changes_nothing)
{
    ck_assert_int_eq(ov_gate_step_out(), 0);
    ov_gate_step_in(0);
    ck_assert_int_eq(ov_self.gate_depth, 0);
    ov_gate_close();
    ov_gate_open();
}
END_TEST

Suite *gate_suite(void);
Suite *gate_suite(void)
{
    Suite *suite = suite_create("gate");
    TCase *tcase = tcase_create("gate");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, nobody_is_inside_while_it_is_closed, 0, 2);
    tcase_add_test(tcase, a_closed_gate_keeps_others_out_until_it_opens);
    tcase_add_test(tcase, threads_without_a_place_count_too);
    tcase_add_test(tcase, stepping_out_of_no_gate_changes_nothing);
    suite_add_tcase(suite, tcase);
    return suite;
}
