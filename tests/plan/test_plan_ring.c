/* The planner: the ring, its places and depth, and how the simulation times it. */
#include "plan_kept.h"

START_TEST(requested_ring)
{
    begin(800);
    add_decoder(8);
    input.ring_request_pages = 300;
    make();
    ck_assert_uint_le(plan.ring_pages, 300);
    ck_assert_uint_gt(plan.ring_pages, 300 - 56);
    input.ring_request_pages = 1; /* too small for anybody: as small as works */
    make();
    ck_assert_uint_le(plan.ring_pages, 56);
    ck_assert_uint_gt(plan.streamed_units, 0);
    ck_assert_uint_eq(plan.host_units, 0);
    input.ring_request_pages = 5000; /* more than the budget */
    make();
    ck_assert_uint_le(plan.ring_pages, 800);
    ck_assert_uint_eq(plan.host_units, 0);
}
END_TEST

START_TEST(equal_neighbours_lie_apart)
{
    for (uint32_t count = 3; count < 60; count++) {
        for (size_t ring = 20; ring < 100; ring += 5) {
            begin(ring);
            for (unsigned i = 0; i < count; i++) {
                add(10, S);
            }
            input.ring_request_pages = ring;
            make();
            CHECK(plan.streamed_units == count);
            CHECK(overlapping_neighbours() == 0);
            CHECK(ring < 30 || !ov_plan_overlap(&plan, count - 1, 0)); /* from one cycle to the next */
        }
    }
}
END_TEST

START_TEST(ring_of_two_halves_keeps_neighbours_apart)
{
    begin(2000);
    add_decoder(16);
    input.tiers = S;
    input.ring_request_pages = 112;
    input.link_pages_per_s = 26300;
    all_compute(1 / 26300.0 / 2);
    make();
    ck_assert_uint_eq(plan.ring_pages, 112);
    ck_assert_uint_eq(overlapping_neighbours(), 0);
    ck_assert((double)plan.cycle_pages / 26300 / plan.cycle_s >= 0.98);
}
END_TEST

/* Where the ring is large enough for two of the largest, neighbours overlap only if the cycle is no longer for it. */
START_TEST(unequal_neighbours_lie_apart)
{
    size_t overlaps = 0, pairs = 0;

    for (unsigned round = 0; round < 500; round++) {
        begin(0);
        seed += round * 7919;
        uint32_t largest = 0;
        for (unsigned i = 0; i < 10 + round % 50; i++) {
            const uint32_t pages = 1 + below(40);
            largest = pages > largest ? pages : largest;
            add(pages, S | H);
        }
        input.budget_pages = input.ring_request_pages = 2 * largest + below(2 * largest);
        all_compute(1 / 2000.0);
        make();
        CHECK(plan.streamed_units == input.unit_count);
        overlaps += overlapping_neighbours();
        pairs += input.cycle_length;
    }
    ck_assert_msg(overlaps * 100 <= pairs, "%zu of %zu", overlaps, pairs);
}
END_TEST

START_TEST(everything_streamed_keeps_the_link_busy)
{
    begin(2000);
    add_decoder(16);
    input.tiers = S;
    input.link_pages_per_s = 26300;
    all_compute(1 / 26300.0 / 10);
    make();
    const double ratio = (double)plan.cycle_pages / 26300 / plan.cycle_s;
    ck_assert_uint_eq(plan.cycle_pages, 16 * (4 * 16 + 3 * 56));
    ck_assert_msg(ratio >= 0.98, "ratio %.4f, ring %zu", ratio, plan.ring_pages);
}
END_TEST

START_TEST(computation_hides_the_copies)
{
    begin(2000);
    add_decoder(16);
    input.tiers = S;
    input.link_pages_per_s = 26300;
    const double compute = all_compute(2 / 26300.0);
    make();
    ck_assert_msg(plan.cycle_s <= 1.01 * compute, "ratio %.4f, ring %zu", plan.cycle_s / compute, plan.ring_pages);
}
END_TEST

START_TEST(half_streamed_keeps_the_link_busy)
{
    begin(0);
    add_decoder(32);
    input.budget_pages = 32 * 232 / 2;
    input.link_pages_per_s = 26300;
    all_compute(1 / 26300.0 / 70);
    make();
    const double ratio = (double)plan.cycle_pages / 26300 / plan.cycle_s;
    ck_assert_uint_le(plan.cycle_pages, 32 * 232 / 2 + 4 * 56);
    ck_assert_msg(ratio >= 0.97, "ratio %.4f, ring %zu", ratio, plan.ring_pages);
}
END_TEST

START_TEST(ring_gets_deeper_if_it_helps)
{
    begin(4000);
    for (unsigned i = 0; i < 60; i++) {
        add(10, S);
        compute_s[i] = i % 4 == 3 ? 0.04 : 0; /* as long as four copies */
    }
    input.compute_s = compute_s;
    make();
    const double automatic = plan.cycle_s;
    const size_t automatic_ring = plan.ring_pages;
    input.ring_request_pages = 20;
    make();
    ck_assert(automatic < plan.cycle_s * 0.9);
    ck_assert_uint_gt(automatic_ring, 20);
    ck_assert_uint_le(automatic_ring, 80);
}
END_TEST

START_TEST(ring_stays_shallow_if_depth_does_not_help)
{
    begin(4000);
    for (unsigned i = 0; i < 60; i++) {
        add(10, S);
    }
    all_compute(1 / 1000.0 / 20);
    make();
    ck_assert_uint_eq(plan.ring_pages, 20);
}
END_TEST

static void place_by_hand(const uint32_t *ring_page, size_t ring_pages)
{
    make();
    for (size_t i = 0; i < plan.unit_count; i++) {
        plan.place[i].tier = OV_TIER_STREAMED;
        plan.place[i].ring_page = ring_page[i];
    }
    plan.ring_pages = ring_pages;
}

static double simulate(const double *seconds)
{
    struct ov_plan_score score;
    input.compute_s = seconds;
    ck_assert(ov_plan_simulate(&input, &plan, &score, NULL));
    ck_assert_uint_eq(score.cycle_pages, input.cycle_length * 10);
    return score.cycle_s;
}

START_TEST(simulation_of_one_place_and_of_two)
{
    const double slow[] = {0.01, 0.01, 0.01, 0.01}, fast[] = {0.001, 0.001, 0.001, 0.001};

    begin(1000);
    for (unsigned i = 0; i < 4; i++) {
        add(10, S); /* copied in 10 ms */
    }
    place_by_hand((const uint32_t[]){0, 0, 0, 0}, 10);
    ck_assert_double_eq_tol(simulate(slow), 0.08, 0.0002);
    ck_assert_double_eq_tol(simulate(fast), 0.044, 0.0002);
    place_by_hand((const uint32_t[]){0, 10, 0, 10}, 20);
    ck_assert_double_eq_tol(simulate(slow), 0.04, 0.0002);
    ck_assert_double_eq_tol(simulate(fast), 0.04, 0.0002);
}
END_TEST

static double cycle_time(size_t touches)
{
    struct ov_plan_score score;
    input.cycle_length = touches;
    ck_assert(ov_plan_simulate(&input, &plan, &score, NULL));
    return score.cycle_s;
}

START_TEST(simulation_of_other_tiers)
{
    const double seconds[] = {0.01, 0.02, 0.005};

    begin(1000);
    add(10, R);
    add(10, R);
    add(10, H);
    make();
    input.compute_s = seconds;
    ck_assert_double_eq_tol(cycle_time(2), 0.03, 1e-9);
    ck_assert_double_eq_tol(cycle_time(3), 0.11, 1e-9);
    plan.place[2].sparse = true;
    ck_assert_double_eq_tol(cycle_time(3), 0.035, 1e-9);
    ck_assert(cycle_time(0) == 0);
}
END_TEST

START_TEST(overlap_is_of_streamed_units_only)
{
    begin(1000);
    add(10, S);
    add(10, S);
    place_by_hand((const uint32_t[]){0, 9}, 19);
    ck_assert(ov_plan_overlap(&plan, 0, 1));
    plan.place[1].ring_page = 10;
    ck_assert(!ov_plan_overlap(&plan, 0, 1));
    plan.place[1] = (struct ov_plan_place){.pages = 10, .tier = OV_TIER_RESIDENT};
    ck_assert(!ov_plan_overlap(&plan, 0, 1));
}
END_TEST

START_TEST(names_and_reasons)
{
    ck_assert_str_eq(ov_tier_name(OV_TIER_STREAMED), "streamed");
    ck_assert_str_eq(ov_tier_name(OV_TIER_HOST), "host");
    for (int i = 0; i < OV_PLAN_REASON_COUNT; i++) {
        for (int j = 0; j < i; j++) {
            ck_assert_str_ne(ov_plan_reason_text((enum ov_plan_reason)i), ov_plan_reason_text((enum ov_plan_reason)j));
        }
    }
    ck_assert_str_eq(ov_plan_reason_text(OV_PLAN_REASON_COUNT), "unknown");
}
END_TEST

START_TEST(plans_are_repeatable)
{
    begin(700);
    add_decoder(8);
    make();
    struct ov_plan first = plan;
    plan = (struct ov_plan){0};
    make();
    ck_assert_mem_eq(first.place, plan.place, plan.unit_count * sizeof(*plan.place));
    ov_plan_free(&first);
    ck_assert_ptr_null(first.place);
}
END_TEST

Suite *plan_ring_suite(void);
Suite *plan_ring_suite(void)
{
    Suite *suite = suite_create("plan_ring");
    TCase *tc = tcase_create("plan_ring");

    tcase_add_test(tc, requested_ring);
    tcase_add_test(tc, equal_neighbours_lie_apart);
    tcase_add_test(tc, ring_of_two_halves_keeps_neighbours_apart);
    tcase_add_test(tc, unequal_neighbours_lie_apart);
    tcase_add_test(tc, everything_streamed_keeps_the_link_busy);
    tcase_add_test(tc, computation_hides_the_copies);
    tcase_add_test(tc, half_streamed_keeps_the_link_busy);
    tcase_add_test(tc, ring_gets_deeper_if_it_helps);
    tcase_add_test(tc, ring_stays_shallow_if_depth_does_not_help);
    tcase_add_test(tc, simulation_of_one_place_and_of_two);
    tcase_add_test(tc, simulation_of_other_tiers);
    tcase_add_test(tc, overlap_is_of_streamed_units_only);
    tcase_add_test(tc, names_and_reasons);
    tcase_add_test(tc, plans_are_repeatable);
    suite_add_tcase(suite, tc);
    return suite;
}
