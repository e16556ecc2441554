/* Traces of several parts, what else the planner is told, and what it says of its plan. */
#include <math.h>

#include "plan_rig.h"

static struct rig rig, written_out;

static void add_model(struct rig *to, unsigned units, uint32_t pages, double ms)
{
    for (unsigned i = 0; i < units; i++) {
        rig_add(to, pages, ms);
    }
}

/* The same trace with every repetition written out. */
static void write_out(void)
{
    size_t begin = 0;
    rig_begin(&written_out, rig.input.budget_pages);
    memcpy(written_out.unit, rig.unit, sizeof(rig.unit));
    written_out.input.unit_count = rig.input.unit_count;
    for (size_t p = 0; p < rig.input.part_count; p++) {
        for (uint32_t lap = 0; lap < rig.part[p].repeats; lap++) {
            for (size_t i = begin; i < begin + rig.part[p].length; i++) {
                rig_touch(&written_out, rig.cycle[i], rig.compute_s[i] * 1000);
            }
        }
        begin += rig.part[p].length;
    }
}

static void check_written_out(void)
{
    struct ov_plan plan = rig_plan(&rig);
    struct ov_plan_score score;
    write_out();
    ck_assert(ov_plan_simulate(&written_out.input, &plan, &score, NULL));
    ck_assert_double_eq_tol(plan.cycle_s, score.cycle_s, score.cycle_s * 2e-3);
    ck_assert_uint_eq(plan.cycle_pages, score.cycle_pages);
    ck_assert_double_eq_tol(plan.score.link_s, score.link_s, score.link_s * 2e-2 + 1e-9);
    ov_plan_free(&plan);
}

START_TEST(repetitions_are_as_if_written_out)
{
    for (size_t budget = 10; budget <= 90; budget += 10) {
        rig_begin(&rig, budget);
        add_model(&rig, 6, 5, 2);
        rig_part(&rig, 1);
        add_model(&rig, 10, 4, 1);
        rig_part(&rig, 30);
        add_model(&rig, 4, 3, 9);
        rig_part(&rig, 5);
        check_written_out();
    }
}
END_TEST

START_TEST(repetitions_that_share_weights_are_as_if_written_out)
{
    for (size_t budget = 10; budget <= 40; budget += 5) {
        rig_begin(&rig, budget);
        add_model(&rig, 10, 4, 12);
        rig_part(&rig, 2);
        for (uint32_t i = 0; i < 10; i++) {
            rig_touch(&rig, i, 0.1);
        }
        rig_part(&rig, 40);
        check_written_out();
    }
}
END_TEST

START_TEST(what_is_repeated_often_stays)
{
    rig_begin(&rig, 50);
    add_model(&rig, 20, 4, 0.1);
    rig_part(&rig, 1);
    add_model(&rig, 10, 4, 0.1);
    rig_part(&rig, 50);
    struct ov_plan plan = rig_plan(&rig);
    for (size_t i = 20; i < 30; i++) {
        ck_assert_int_eq(plan.place[i].tier, OV_TIER_RESIDENT);
    }
    ck_assert_uint_eq(plan.cycle_pages, 80 - (plan.resident_pages - 40));
    ov_plan_free(&plan);
}
END_TEST

START_TEST(draft_and_target)
{
    rig_begin(&rig, 60);
    add_model(&rig, 8, 2, 0.1);
    rig_part(&rig, 4);
    add_model(&rig, 40, 3, 0.1);
    rig_part(&rig, 1);
    struct ov_plan plan = rig_plan(&rig);
    for (size_t i = 0; i < plan.copy_count; i++) { /* none of the draft's more than once for all four */
        ck_assert(!plan.copy[i].again);
    }
    ck_assert(plan.cycle_s <= plan.bound_s * 1.05);
    ov_plan_free(&plan);
}
END_TEST

/* Each alone fits, both together do not: either is copied once when its turn comes. */
START_TEST(models_that_take_turns_share_their_memory)
{
    rig_begin(&rig, 44);
    add_model(&rig, 10, 4, 1);
    rig_part(&rig, 30);
    add_model(&rig, 10, 4, 1);
    rig_part(&rig, 30);
    struct ov_plan plan = rig_plan(&rig);
    ck_assert_uint_le(plan.cycle_pages, 80);
    ck_assert(plan.cycle_s <= plan.bound_s * 1.1);
    ov_plan_free(&plan);
}
END_TEST

/* A unit that is read twice with little between keeps its place in the ring until the second time. */
START_TEST(a_second_touch_finds_the_unit_in_the_ring)
{
    rig_begin(&rig, 30);
    for (unsigned i = 0; i < 20; i++) {
        const uint32_t twice = rig_add(&rig, 5, 1);
        rig_add(&rig, 2, 1);
        rig_touch(&rig, twice, 1);
    }
    rig.input.tiers = S;
    struct ov_plan plan = rig_plan(&rig);
    ck_assert_uint_eq(plan.cycle_pages, 20 * 7);
    ov_plan_free(&plan);
}
END_TEST

START_TEST(strategies_do_what_they_say)
{
    static const enum ov_plan_strategy strategy[] = {OV_PLAN_KNAPSACK, OV_PLAN_GREEDY, OV_PLAN_NTH, OV_PLAN_EVEN};
    rig_begin(&rig, 60);
    for (unsigned i = 0; i < 24; i++) {
        rig_add(&rig, 2 + i % 3 * 2, 0.5 + i % 5);
    }
    struct ov_plan best = rig_plan(&rig);
    for (unsigned i = 0; i < 4; i++) {
        rig.input.strategy = strategy[i];
        rig.input.nth = 2;
        struct ov_plan plan = rig_plan(&rig);
        ck_assert_int_eq(plan.strategy, strategy[i]);
        ck_assert_msg(plan.cycle_s >= best.cycle_s * (1 - 2 * OV_PLAN_WORTH), "%s", ov_plan_strategy_name(strategy[i]));
        if (strategy[i] == OV_PLAN_GREEDY) { /* what is used first stays, until nothing more fits */
            ck_assert_int_eq(plan.place[0].tier, OV_TIER_RESIDENT);
            ck_assert_int_eq(plan.place[1].tier, OV_TIER_RESIDENT);
            ck_assert_int_eq(plan.place[23].tier, OV_TIER_STREAMED);
        }
        ov_plan_free(&plan);
    }
    ov_plan_free(&best);
}
END_TEST

START_TEST(every_nth_is_streamed)
{
    rig_begin(&rig, 1000);
    for (unsigned i = 0; i < 30; i++) {
        rig_add(&rig, 40, 50);
    }
    rig.input.strategy = OV_PLAN_NTH;
    rig.input.nth = 5;
    rig.input.ring_request_pages = 40;
    struct ov_plan plan = rig_plan(&rig); /* 24 of 30 stay: 960 and a ring of 40 */
    for (size_t i = 0; i < 30; i++) {
        ck_assert_int_eq(plan.place[i].tier, i % 5 == 4 ? OV_TIER_STREAMED : OV_TIER_RESIDENT);
    }
    ov_plan_free(&plan);
}
END_TEST

START_TEST(least_memory_at_no_slowdown)
{
    rig_begin(&rig, 1000);
    add_model(&rig, 50, 4, 8); /* twice as long as a copy */
    rig.input.mode = OV_PLAN_LATENCY;
    struct ov_plan plan = rig_plan(&rig);
    ck_assert(plan.cycle_s <= plan.resident_s * 1.0002);
    ck_assert_uint_le(plan.resident_pages + plan.ring_pages, 12);
    ov_plan_free(&plan);
}
END_TEST

START_TEST(least_memory_at_a_slowdown)
{
    size_t before = SIZE_MAX;
    rig_begin(&rig, 1000);
    add_model(&rig, 50, 4, 1); /* a quarter of a copy: 50 ms in all, 200 ms of copies */
    rig.input.mode = OV_PLAN_LATENCY;
    for (int percent = 0; percent <= 300; percent += 50) {
        rig.input.slowdown = percent / 100.0;
        struct ov_plan plan = rig_plan(&rig);
        const size_t used = plan.resident_pages + plan.ring_pages;
        ck_assert(plan.cycle_s <= plan.resident_s * (1 + percent / 100.0) * 1.0002);
        /* Copies of 200 ms less what stays: nearly all that the time allows is streamed. */
        const double streamed = 50 * (1 + percent / 100.0);
        ck_assert_msg((double)used <= 200 - streamed + 4 * 4, "%d %%: %zu pages", percent, used);
        ck_assert_uint_le(used, before);
        before = used;
        ov_plan_free(&plan);
    }
}
END_TEST

START_TEST(least_memory_that_the_budget_has)
{
    rig_begin(&rig, 40);
    add_model(&rig, 50, 4, 1);
    rig.input.mode = OV_PLAN_LATENCY; /* cannot be had: then the fastest */
    struct ov_plan plan = rig_plan(&rig);
    rig.input.mode = OV_PLAN_MEMORY;
    struct ov_plan fastest = rig_plan(&rig);
    ck_assert_double_eq_tol(plan.cycle_s, fastest.cycle_s, fastest.cycle_s * 0.01);
    ov_plan_free(&plan);
    ov_plan_free(&fastest);
}
END_TEST

START_TEST(more_memory_is_never_slower)
{
    double before_s = HUGE_VAL;
    for (size_t budget = 16; budget <= 240; budget += 8) {
        rig_begin(&rig, budget);
        for (unsigned i = 0; i < 40; i++) {
            rig_add(&rig, 3 + i % 4 * 2, 0.5 + i % 7);
        }
        struct ov_plan plan = rig_plan(&rig);
        ck_assert_msg(plan.cycle_s <= before_s * 1.01, "%zu pages: %.4f after %.4f", budget, plan.cycle_s, before_s);
        before_s = plan.cycle_s;
        ov_plan_free(&plan);
    }
}
END_TEST

START_TEST(limit_of_host_memory)
{
    rig_begin(&rig, 60);
    add_model(&rig, 20, 5, 1);
    rig.input.host_limit_pages = 60;
    struct ov_plan plan = rig_plan(&rig);
    ck_assert_uint_eq(plan.host_over_pages, 0);
    ck_assert_uint_le(plan.streamed_pages, 60);
    ov_plan_free(&plan);
    rig.input.host_limit_pages = 20; /* 100 pages in 60 and 20 */
    plan = rig_plan(&rig);
    ck_assert_uint_ge(plan.host_over_pages, 20);
    ov_plan_free(&plan);
}
END_TEST

/* Copies of a size take what the link does for that size. */
START_TEST(link_by_size)
{
    const struct ov_plan_rate rate[] = {{1, 500}, {10, 1000}};
    rig_begin(&rig, 8);
    rig.input.rate = rate;
    rig.input.rate_count = 2;
    ck_assert_double_eq_tol(ov_plan_copy_time(&rig.input, 1), 0.002, 1e-12);
    ck_assert_double_eq_tol(ov_plan_copy_time(&rig.input, 10), 0.010, 1e-12);
    ck_assert_double_eq_tol(ov_plan_copy_time(&rig.input, 5.5), 0.006, 1e-12);
    ck_assert_double_eq_tol(ov_plan_copy_time(&rig.input, 0.5), 0.001, 1e-12);
    ck_assert_double_eq_tol(ov_plan_copy_time(&rig.input, 20), 0.020, 1e-12);
    add_model(&rig, 10, 1, 0);
    rig.input.tiers = S;
    struct ov_plan plan = rig_plan(&rig);
    ck_assert_double_ge(plan.cycle_s, 0.002 * 2 - 1e-9); /* eight may keep places of their own */
    ov_plan_free(&plan);
}
END_TEST

/* Copies slow touches that run meanwhile. */
START_TEST(touches_that_copies_slow)
{
    rig_begin(&rig, 10);
    add_model(&rig, 10, 5, 5);
    for (unsigned i = 0; i < 10; i++) {
        rig.stretch[i] = 0.5;
    }
    rig.input.tiers = S;
    struct ov_plan plain = rig_plan(&rig);
    rig.input.stretch = rig.stretch;
    struct ov_plan slowed = rig_plan(&rig);
    /* 50 ms of copies beside 50 ms of computation: a ms of copying costs a third of a ms. */
    ck_assert_double_eq_tol(plain.cycle_s, 0.050, 0.001);
    ck_assert_double_ge(slowed.cycle_s, 0.065);
    ck_assert_double_le(slowed.cycle_s, 0.076);
    memset(rig.stretch, 0, sizeof(rig.stretch));
    struct ov_plan same = rig_plan(&rig);
    ck_assert_double_eq_tol(same.cycle_s, plain.cycle_s, 0.0002);
    ov_plan_free(&plain);
    ov_plan_free(&slowed);
    ov_plan_free(&same);
}
END_TEST

/* A cycle is computation, waits, and what copies add while they run: of the time beside touches that they slow by half,
 * a third. Some touches are as long as several copies, and each is slowed in its own way. */
START_TEST(copies_beside_touches_are_told)
{
    double beside_s[10], more_s = 0, compute_s = 0;
    rig_begin(&rig, 25);
    for (unsigned i = 0; i < 10; i++) {
        rig_add(&rig, 5, i % 5 == 0 ? 20 : 2);
        rig.stretch[i] = 0.9 - 0.08 * i;
    }
    rig.input.tiers = S;
    rig.input.stretch = rig.stretch;
    struct ov_plan plan = rig_plan(&rig);
    ck_assert(ov_plan_beside(&rig.input, &plan, beside_s));
    for (unsigned i = 0; i < 10; i++) {
        ck_assert_double_ge(beside_s[i], 0);
        ck_assert_double_le(beside_s[i], rig.compute_s[i] * (1 + rig.stretch[i]) + 1e-9);
        more_s += beside_s[i] * rig.stretch[i] / (1 + rig.stretch[i]);
        compute_s += rig.compute_s[i];
    }
    ck_assert_double_gt(more_s, 0.010);
    ck_assert_double_eq_tol(plan.cycle_s, compute_s + plan.score.stall_s + more_s, 1e-6);
    ov_plan_free(&plan);
}
END_TEST

/* The order of copies that the plan tells, followed by hand: the same copies, none before what it waits for. */
START_TEST(copies_are_what_a_cycle_needs)
{
    rig_begin(&rig, 40);
    for (unsigned i = 0; i < 30; i++) {
        rig_add(&rig, 2 + i % 4, 1);
    }
    struct ov_plan plan = rig_plan(&rig);
    size_t pages = 0, last = 0;
    for (size_t i = 0; i < plan.copy_count; i++) {
        const struct ov_plan_copy *copy = &plan.copy[i];
        ck_assert_uint_eq(rig.cycle[copy->touch], copy->unit);
        ck_assert_uint_ge(copy->touch, last);
        ck_assert(!copy->again);
        ck_assert_uint_ne(copy->after, OV_PLAN_NO_TOUCH);
        ck_assert(ov_plan_overlap(&plan, rig.cycle[copy->after], copy->unit));
        last = copy->touch;
        pages += plan.place[copy->unit].pages;
    }
    ck_assert_uint_eq(pages, plan.cycle_pages);
    ov_plan_free(&plan);
}
END_TEST

START_TEST(copies_of_later_repetitions)
{
    rig_begin(&rig, 18);
    add_model(&rig, 4, 4, 1);
    rig_part(&rig, 1);
    add_model(&rig, 6, 4, 1);
    rig_part(&rig, 9);
    struct ov_plan plan = rig_plan(&rig);
    size_t first = 0, again = 0;
    for (size_t i = 0; i < plan.copy_count; i++) {
        *(plan.copy[i].again ? &again : &first) += plan.place[plan.copy[i].unit].pages;
        ck_assert(!plan.copy[i].again || plan.copy[i].touch >= 4);
    }
    ck_assert_uint_gt(again, 0);
    ck_assert_uint_eq(plan.cycle_pages, first + 8 * again);
    ov_plan_free(&plan);
}
END_TEST

START_TEST(waits_are_told_per_touch)
{
    double stall_s[20], sum_s = 0;
    struct ov_plan_score score;
    rig_begin(&rig, 12);
    add_model(&rig, 20, 4, 1);
    struct ov_plan plan = rig_plan(&rig);
    ck_assert(ov_plan_simulate(&rig.input, &plan, &score, stall_s));
    for (size_t i = 0; i < 20; i++) {
        sum_s += stall_s[i];
    }
    ck_assert_double_eq_tol(sum_s, score.stall_s, 1e-9);
    ck_assert_double_eq_tol(score.cycle_s, 0.020 + sum_s, 1e-4);
    ov_plan_free(&plan);
}
END_TEST

Suite *plan_parts_suite(void)
{
    Suite *suite = suite_create("plan_parts");
    TCase *tc = tcase_create("plan_parts");

    tcase_add_test(tc, repetitions_are_as_if_written_out);
    tcase_add_test(tc, repetitions_that_share_weights_are_as_if_written_out);
    tcase_add_test(tc, what_is_repeated_often_stays);
    tcase_add_test(tc, draft_and_target);
    tcase_add_test(tc, models_that_take_turns_share_their_memory);
    tcase_add_test(tc, a_second_touch_finds_the_unit_in_the_ring);
    tcase_add_test(tc, strategies_do_what_they_say);
    tcase_add_test(tc, every_nth_is_streamed);
    tcase_add_test(tc, least_memory_at_no_slowdown);
    tcase_add_test(tc, least_memory_at_a_slowdown);
    tcase_add_test(tc, least_memory_that_the_budget_has);
    tcase_add_test(tc, more_memory_is_never_slower);
    tcase_add_test(tc, limit_of_host_memory);
    tcase_add_test(tc, link_by_size);
    tcase_add_test(tc, touches_that_copies_slow);
    tcase_add_test(tc, copies_beside_touches_are_told);
    tcase_add_test(tc, copies_are_what_a_cycle_needs);
    tcase_add_test(tc, copies_of_later_repetitions);
    tcase_add_test(tc, waits_are_told_per_touch);
    suite_add_tcase(suite, tc);
    return suite;
}
