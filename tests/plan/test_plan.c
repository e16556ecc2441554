/* The planner: tiers and launches, on inputs that show what it aims for. */
#include <math.h>

#include "plan_kept.h"

START_TEST(what_fits_is_resident)
{
    begin(100);
    for (unsigned i = 0; i < 10; i++) {
        add(10, ANY);
    }
    make();
    ck_assert_uint_eq(plan.resident_units, 10);
    ck_assert_uint_eq(plan.ring_pages, 0);
    ck_assert_uint_eq(plan.cycle_pages, 0);
    ck_assert_int_eq(plan.place[3].reason, OV_PLAN_ALL_FITS);
    input.budget_pages = SIZE_MAX;
    make();
    ck_assert_uint_eq(plan.resident_units, 10);
}
END_TEST

START_TEST(one_page_short_streams_little)
{
    begin(99);
    for (unsigned i = 0; i < 10; i++) {
        add(10, ANY);
    }
    make();
    ck_assert_uint_eq(plan.ring_pages, 20);
    ck_assert_uint_eq(plan.resident_units, 7);
    ck_assert_uint_eq(plan.streamed_units, 3);
}
END_TEST

START_TEST(nothing_to_plan)
{
    begin(100);
    make();
    ck_assert_uint_eq(plan.ring_pages, 0);
    ck_assert(plan.cycle_s == 0);
}
END_TEST

START_TEST(no_budget_means_host_memory)
{
    begin(0);
    add(5, ANY);
    add(7, ANY);
    add(1, S | R);
    make();
    ck_assert_uint_eq(plan.host_units, 3);
    ck_assert_uint_eq(plan.unplaced_pages, 1);
    ck_assert_uint_eq(plan.cycle_host_pages, 13);
}
END_TEST

START_TEST(equal_units_use_the_budget_up)
{
    for (size_t budget = 32; budget < 1600; budget += 7) {
        begin(budget);
        for (unsigned i = 0; i < 100; i++) {
            add(16, ANY);
        }
        make();
        CHECK(plan.ring_pages <= 48);
        CHECK(plan.resident_units == (budget - plan.ring_pages) / 16);
        /* Of few, one may have its place to itself. */
        CHECK(plan.cycle_pages == 16 * plan.streamed_units || plan.streamed_units < 6);
        CHECK(plan.cycle_pages <= 16 * plan.streamed_units);
        CHECK(plan.host_units == 0);
    }
}
END_TEST

/* The resident part of any stretch of the cycle from its start differs from its share by so many of the largest units.
 */
static double worst_deviation(void)
{
    size_t all = 0, resident = 0, largest = 0;
    double worst = 0;
    const double part = (double)plan.resident_pages / (double)(plan.resident_pages + plan.streamed_pages);

    for (size_t i = 0; i < plan.unit_count; i++) {
        const struct ov_plan_place *place = &plan.place[i];
        all += place->pages;
        resident += place->tier == OV_TIER_RESIDENT ? place->pages : 0;
        largest = place->pages > largest ? place->pages : largest;
        const double deviation = fabs((double)resident - part * (double)all);
        worst = deviation > worst ? deviation : worst;
    }
    return worst / (double)largest;
}

START_TEST(residency_is_spread_evenly)
{
    for (size_t percent = 10; percent < 100; percent += 10) {
        begin(16 * percent * 4);
        for (unsigned i = 0; i < 400; i++) {
            add(16, ANY);
        }
        make();
        CHECK(worst_deviation() <= 1.5);
    }
}
END_TEST

START_TEST(residency_is_spread_evenly_by_bytes)
{
    for (unsigned round = 0; round < 100; round++) {
        begin(0);
        size_t all = 0;
        seed += round * 977;
        for (unsigned i = 0; i < 300; i++) {
            unit[add(20 + below(30), ANY)].sparse = false;
            all += unit[i].pages;
        }
        input.budget_pages = 200 + all * (10 + round % 80) / 100;
        input.ring_request_pages = 150;
        input.strategy = OV_PLAN_EVEN;
        make();
        CHECK(plan.streamed_units == 0 || worst_deviation() <= 3);
    }
}
END_TEST

START_TEST(ring_is_filled_in_order_of_first_use)
{
    begin(60);
    for (unsigned i = 0; i < 6; i++) {
        add_idle(10, S | H);
    }
    const uint32_t order[] = {3, 0, 5, 1, 4, 2};
    for (unsigned i = 0; i < 6; i++) {
        touch(order[i]);
    }
    input.ring_request_pages = 30;
    make();
    ck_assert_uint_eq(plan.ring_pages, 30);
    for (unsigned i = 0; i < 6; i++) {
        ck_assert_uint_eq(plan.place[order[i]].ring_page, i % 3 * 10);
    }
}
END_TEST

START_TEST(units_used_often_stay)
{
    begin(100);
    const uint32_t often = add(10, ANY);
    for (unsigned i = 0; i < 20; i++) {
        add(10, ANY);
        if (i % 5 == 4) {
            touch(often);
        }
    }
    make(); /* or it keeps its place in the ring all the while */
    ck_assert_uint_le(plan.cycle_pages, 130);
    input.strategy = OV_PLAN_EVEN;
    make();
    ck_assert_int_eq(plan.place[often].tier, OV_TIER_RESIDENT);
    ck_assert_int_eq(plan.place[often].reason, OV_PLAN_OFTEN);
}
END_TEST

START_TEST(a_second_use_right_after_the_first_is_free)
{
    begin(100);
    const uint32_t twice = add(10, ANY);
    const uint32_t between = add(10, ANY);
    touch(twice);
    for (unsigned i = 0; i < 40; i++) {
        add(10, ANY);
    }
    input.tiers = S | H;
    make();
    ck_assert_int_eq(plan.place[twice].tier, OV_TIER_STREAMED);
    ck_assert(!ov_plan_overlap(&plan, twice, between));
    ck_assert_uint_eq(plan.cycle_pages, 42 * 10);
}
END_TEST

START_TEST(weights_of_a_launch_lie_apart)
{
    begin(64);
    uint32_t number[9];
    for (unsigned i = 0; i < 9; i++) {
        number[i] = add(8, S | H);
    }
    pair(number[0], number[4]);
    add_group(3, (const uint32_t[]){number[1], number[5], number[8]});
    pair(number[8], number[0]);
    input.ring_request_pages = 24;
    make();
    ck_assert_uint_eq(plan.streamed_units, 9);
    ck_assert_uint_eq(plan.ring_pages, 24);
}
END_TEST

START_TEST(largest_launch_sets_the_ring)
{
    begin(200);
    uint32_t number[20];
    for (unsigned i = 0; i < 20; i++) {
        number[i] = add(20, S | H);
    }
    add_group(5, number + 7);
    make();
    ck_assert_uint_eq(plan.streamed_units, 20);
    ck_assert_uint_ge(plan.ring_pages, 100);
    input.budget_pages = 100;
    make();
    ck_assert_uint_eq(plan.streamed_units, 20);
    ck_assert_uint_eq(plan.ring_pages, 100);
}
END_TEST

START_TEST(launch_larger_than_the_budget_gives_units_up)
{
    begin(90);
    uint32_t number[20];
    for (unsigned i = 0; i < 20; i++) {
        number[i] = add(20, S | H);
    }
    add_group(5, number + 7);
    make();
    ck_assert_uint_eq(plan.host_units, 1);
    unsigned reasons = 0;
    for (unsigned i = 7; i < 12; i++) {
        reasons += plan.place[i].reason == OV_PLAN_GROUP;
    }
    ck_assert_uint_eq(reasons, 1);
}
END_TEST

START_TEST(members_that_cannot_lie_apart_give_way)
{
    begin(25);
    const uint32_t a = add(10, S | H), b = add(10, S | H), c = add(10, S | H);
    add(10, S | H);
    pair(a, b);
    pair(b, c);
    pair(c, a);
    make();
    ck_assert_uint_eq(plan.host_units, 1);
    ck_assert_uint_eq(plan.streamed_units, 3);
    size_t collisions = 0;
    for (size_t i = 0; i < 4; i++) {
        collisions += plan.place[i].reason == OV_PLAN_COLLISION;
    }
    ck_assert_uint_eq(collisions, 1);
}
END_TEST

START_TEST(launch_places_are_found_behind_fragments)
{
    begin(25);
    /* In order of use 3 and 12 leave only 10 pages behind them for the partner of both. */
    const uint32_t a = add(3, S | H), b = add(12, S | H), c = add(10, S | H);
    const uint32_t d = add(4, S | H), e = add(11, S | H), f = add(10, S | H);
    add_group(3, (const uint32_t[]){a, b, c});
    add_group(3, (const uint32_t[]){d, e, f});
    add_group(3, (const uint32_t[]){c, a, e});
    make();
    ck_assert_uint_eq(plan.streamed_units, 6);
}
END_TEST

START_TEST(repeated_groups_and_members_do_no_harm)
{
    uint32_t number[12];

    begin(40);
    for (unsigned i = 0; i < 12; i++) {
        number[i] = add(10, S | H);
    }
    make();
    const size_t ring_pages = plan.ring_pages;
    for (unsigned i = 0; i < 50; i++) {
        add_group(4, (const uint32_t[]){number[0], number[0], number[1], number[0]});
        add_group(3, (const uint32_t[]){number[2], number[2], number[2]});
    }
    pair(number[7], number[8]);
    make();
    ck_assert_uint_eq(plan.streamed_units, 12);
    ck_assert_uint_eq(ring_pages, 20);
    ck_assert_uint_eq(plan.ring_pages, 30);
}
END_TEST

START_TEST(few_large_units_are_better_resident)
{
    begin(300);
    for (unsigned i = 0; i < 100; i++) {
        add(4, ANY);
        if (i % 50 == 25) {
            add(100, ANY);
        }
    }
    make();
    for (size_t i = 0; i < plan.unit_count; i++) {
        if (unit[i].pages == 100) {
            ck_assert_int_eq(plan.place[i].tier, OV_TIER_RESIDENT);
            ck_assert_int_eq(plan.place[i].reason, OV_PLAN_LARGE);
        }
    }
    ck_assert_uint_le(plan.ring_pages, 16);
    ck_assert_uint_eq(plan.cycle_pages, 600 - plan.resident_pages);
}
END_TEST

START_TEST(unit_larger_than_the_budget_is_read_in_place)
{
    begin(50);
    const uint32_t large = add(60, ANY);
    for (unsigned i = 0; i < 20; i++) {
        add(5, ANY);
    }
    make();
    ck_assert_int_eq(plan.place[large].tier, OV_TIER_HOST);
    ck_assert_int_eq(plan.place[large].reason, OV_PLAN_LARGE);
    ck_assert_uint_eq(plan.host_units, 1);
}
END_TEST

START_TEST(ring_shrinks_to_a_single_unit)
{
    begin(11);
    for (unsigned i = 0; i < 20; i++) {
        add(10, ANY);
    }
    make();
    ck_assert_uint_eq(plan.streamed_units, 20);
    ck_assert_uint_le(plan.ring_pages, 11);
    ck_assert_uint_eq(plan.cycle_pages, 200);
}
END_TEST

START_TEST(units_outside_the_cycle)
{
    begin(100);
    const uint32_t any = add_idle(10, ANY), device = add_idle(10, R | S), large = add_idle(90, R | S);
    for (unsigned i = 0; i < 20; i++) {
        add(10, ANY);
    }
    make();
    ck_assert_int_eq(plan.place[any].tier, OV_TIER_HOST);
    ck_assert_int_eq(plan.place[any].reason, OV_PLAN_OUTSIDE);
    ck_assert_int_eq(plan.place[device].tier, OV_TIER_STREAMED);
    ck_assert_int_eq(plan.place[device].reason, OV_PLAN_OUTSIDE);
    ck_assert(plan.place[large].tier == OV_TIER_STREAMED || plan.place[large].tier == OV_TIER_RESIDENT);
    ck_assert_uint_eq(plan.unplaced_pages, 0);
}
END_TEST

START_TEST(room_that_the_cycle_leaves_serves_the_rest)
{
    begin(100);
    const uint32_t first = add_idle(30, ANY), second = add_idle(30, ANY);
    for (unsigned i = 0; i < 6; i++) {
        add(10, ANY);
    }
    make();
    ck_assert_uint_eq(plan.streamed_units, 0);
    ck_assert_uint_eq(plan.resident_units, 7);
    ck_assert(plan.place[first].tier != plan.place[second].tier);
    ck_assert_int_eq(plan.place[plan.place[first].tier == OV_TIER_RESIDENT ? first : second].reason, OV_PLAN_LEFT_OVER);
}
END_TEST

START_TEST(sparse_readers_read_in_place)
{
    begin(100);
    const uint32_t table = add(60, ANY);
    unit[table].sparse = true;
    for (unsigned i = 0; i < 20; i++) {
        add(10, ANY);
        touch(table);
    }
    make();
    ck_assert_int_eq(plan.place[table].tier, OV_TIER_HOST);
    ck_assert_int_eq(plan.place[table].reason, OV_PLAN_SPARSE);
    ck_assert_uint_eq(plan.cycle_host_pages, 0);
}
END_TEST

START_TEST(what_may_not_be_streamed_is_resident_first)
{
    begin(100);
    for (unsigned i = 0; i < 20; i++) {
        add(10, i % 4 == 0 ? R | H : ANY);
    }
    make();
    for (unsigned i = 0; i < 20; i += 4) {
        ck_assert_int_eq(plan.place[i].tier, OV_TIER_RESIDENT);
        ck_assert_int_eq(plan.place[i].reason, OV_PLAN_UNSTREAMABLE);
    }
    ck_assert_uint_eq(plan.host_units, 0);
}
END_TEST

START_TEST(single_tiers_are_respected)
{
    begin(60);
    const uint32_t resident = add(10, R), streamed = add(10, S), host = add(10, H);
    for (unsigned i = 0; i < 20; i++) {
        add(10, ANY);
    }
    make();
    ck_assert_int_eq(plan.place[resident].tier, OV_TIER_RESIDENT);
    ck_assert_int_eq(plan.place[streamed].tier, OV_TIER_STREAMED);
    ck_assert_int_eq(plan.place[host].tier, OV_TIER_HOST);
    ck_assert_int_eq(plan.place[resident].reason, OV_PLAN_ONLY_TIER);
    ck_assert_int_eq(plan.place[streamed].reason, OV_PLAN_ONLY_TIER);
    ck_assert_int_eq(plan.place[host].reason, OV_PLAN_ONLY_TIER);
}
END_TEST

START_TEST(what_finds_no_room_is_said)
{
    begin(25);
    add(10, R);
    add(10, R);
    add(10, R);
    add(10, 0);
    make();
    ck_assert_uint_eq(plan.resident_units, 2);
    ck_assert_uint_eq(plan.unplaced_pages, 20);
    ck_assert_int_eq(plan.place[3].reason, OV_PLAN_NO_ROOM);
}
END_TEST

START_TEST(without_resident_all_is_streamed)
{
    begin(1000);
    add_decoder(4);
    const uint32_t fixed = add(10, R | H);
    input.tiers = S | H;
    make();
    ck_assert_uint_eq(plan.streamed_units, 28);
    ck_assert_int_eq(plan.place[fixed].tier, OV_TIER_RESIDENT);
    input.tiers = S;
    make();
    ck_assert_uint_eq(plan.streamed_units, 28);
}
END_TEST

START_TEST(without_streamed_there_is_no_ring)
{
    begin(300);
    add_decoder(4);
    input.tiers = R | H;
    make();
    ck_assert_uint_eq(plan.ring_pages, 0);
    ck_assert_uint_eq(plan.streamed_units, 0);
    ck_assert_uint_ge(plan.resident_pages, 300 - 15);
    input.tiers = R;
    make();
    ck_assert_uint_eq(plan.streamed_units, 0);
    ck_assert_uint_ge(plan.resident_pages, 300 - 15);
}
END_TEST

START_TEST(without_host_memory_only_what_must)
{
    begin(300);
    add_decoder(4);
    const uint32_t idle = add_idle(10, ANY), only = add(10, H), large = add(301, ANY);
    input.tiers = R | S;
    make();
    ck_assert_int_ne(plan.place[idle].tier, OV_TIER_HOST);
    ck_assert_int_eq(plan.place[only].tier, OV_TIER_HOST);
    ck_assert_int_eq(plan.place[large].tier, OV_TIER_HOST);
    ck_assert_uint_eq(plan.host_units, 2);
}
END_TEST

START_TEST(host_alone)
{
    begin(10000);
    add_decoder(2);
    input.tiers = H;
    make();
    ck_assert_uint_eq(plan.host_units, 14);
}
END_TEST

Suite *plan_suite(void);
Suite *plan_suite(void)
{
    Suite *suite = suite_create("plan");
    TCase *tc = tcase_create("plan");

    tcase_add_test(tc, what_fits_is_resident);
    tcase_add_test(tc, one_page_short_streams_little);
    tcase_add_test(tc, nothing_to_plan);
    tcase_add_test(tc, no_budget_means_host_memory);
    tcase_add_test(tc, equal_units_use_the_budget_up);
    tcase_add_test(tc, residency_is_spread_evenly);
    tcase_add_test(tc, residency_is_spread_evenly_by_bytes);
    tcase_add_test(tc, ring_is_filled_in_order_of_first_use);
    tcase_add_test(tc, units_used_often_stay);
    tcase_add_test(tc, a_second_use_right_after_the_first_is_free);
    tcase_add_test(tc, weights_of_a_launch_lie_apart);
    tcase_add_test(tc, largest_launch_sets_the_ring);
    tcase_add_test(tc, launch_larger_than_the_budget_gives_units_up);
    tcase_add_test(tc, members_that_cannot_lie_apart_give_way);
    tcase_add_test(tc, launch_places_are_found_behind_fragments);
    tcase_add_test(tc, repeated_groups_and_members_do_no_harm);
    tcase_add_test(tc, few_large_units_are_better_resident);
    tcase_add_test(tc, unit_larger_than_the_budget_is_read_in_place);
    tcase_add_test(tc, ring_shrinks_to_a_single_unit);
    tcase_add_test(tc, units_outside_the_cycle);
    tcase_add_test(tc, room_that_the_cycle_leaves_serves_the_rest);
    tcase_add_test(tc, sparse_readers_read_in_place);
    tcase_add_test(tc, what_may_not_be_streamed_is_resident_first);
    tcase_add_test(tc, single_tiers_are_respected);
    tcase_add_test(tc, what_finds_no_room_is_said);
    tcase_add_test(tc, without_resident_all_is_streamed);
    tcase_add_test(tc, without_streamed_there_is_no_ring);
    tcase_add_test(tc, without_host_memory_only_what_must);
    tcase_add_test(tc, host_alone);
    suite_add_tcase(suite, tc);
    return suite;
}
