/* Small traces, of which every plan there is can be tried: the planner meets the best, and the bound is no higher. */
#include "plan_rig.h"

static struct rig rig;

/* Where the search stops. */
#define AS_GOOD 0.002

/* The best cycle of all tiers and places from unit `next` on, the budget less `used`. */
struct all {
    struct ov_plan plan;
    struct ov_plan_place place[16];
    double best_s;
};

static bool groups_lie_apart(const struct ov_plan *plan)
{
    for (size_t g = 0; g < rig.input.group_count; g++) {
        if (ov_plan_overlap(plan, rig.member[2 * g], rig.member[2 * g + 1])) {
            return false;
        }
    }
    return true;
}

static void try_places(struct all *all, size_t next)
{
    if (next == rig.input.unit_count) {
        if (groups_lie_apart(&all->plan)) {
            const double cycle_s = rig_cycle(&rig, &all->plan);
            all->best_s = cycle_s < all->best_s ? cycle_s : all->best_s;
        }
        return;
    }
    struct ov_plan_place *place = &all->place[next];
    if (place->tier != OV_TIER_STREAMED) {
        try_places(all, next + 1);
        return;
    }
    for (size_t page = 0; page + place->pages <= all->plan.ring_pages; page++) {
        place->ring_page = (uint32_t)page;
        try_places(all, next + 1);
    }
}

static double best_of_all(void)
{
    struct all all = {.best_s = 1e9};
    const size_t count = rig.input.unit_count;

    all.plan = (struct ov_plan){.place = all.place, .unit_count = count};
    for (unsigned set = 0; set < 1u << count; set++) {
        size_t resident = 0;
        bool allowed = true;
        for (size_t i = 0; i < count; i++) {
            const bool stays = set >> i & 1;
            all.place[i] =
                (struct ov_plan_place){.pages = rig.unit[i].pages, .tier = stays ? OV_TIER_RESIDENT : OV_TIER_STREAMED};
            resident += stays ? rig.unit[i].pages : 0;
            allowed = allowed && (rig.unit[i].may & (stays ? R : S));
        }
        if (allowed && resident <= rig.input.budget_pages) {
            all.plan.ring_pages = rig.input.budget_pages - resident;
            try_places(&all, 0);
        }
    }
    return all.best_s;
}

/* `slack`: of the planner, which does not try everything, to the best. */
static void check_against_all(double slack)
{
    rig.input.worth = 1e-9;
    struct ov_plan plan = rig_plan(&rig);
    const double best_s = best_of_all();
    ck_assert_msg(plan.bound_s <= best_s * (1 + 1e-9), "the bound %.6f s is above the best there is, %.6f s",
                  plan.bound_s, best_s);
    ck_assert_msg(plan.cycle_s <= best_s * (1 + slack), "%.6f s, and the best there is takes %.6f s", plan.cycle_s,
                  best_s);
    ov_plan_free(&plan);
}

START_TEST(equal_units)
{
    for (size_t budget = 3; budget < 15; budget += 2) {
        rig_begin(&rig, budget);
        for (int i = 0; i < 5; i++) {
            rig_add(&rig, 3, 1);
        }
        check_against_all(AS_GOOD);
    }
}
END_TEST

START_TEST(equal_units_that_compute_as_long_as_their_copies)
{
    for (size_t budget = 3; budget < 15; budget++) {
        rig_begin(&rig, budget);
        for (int i = 0; i < 5; i++) {
            rig_add(&rig, 3, 3);
        }
        check_against_all(AS_GOOD);
    }
}
END_TEST

START_TEST(equal_units_that_compute_longer_than_their_copies)
{
    for (size_t budget = 2; budget < 10; budget++) {
        rig_begin(&rig, budget);
        for (int i = 0; i < 5; i++) {
            rig_add(&rig, 2, 5);
        }
        check_against_all(AS_GOOD);
    }
}
END_TEST

START_TEST(two_sizes)
{
    for (size_t budget = 4; budget < 14; budget++) {
        rig_begin(&rig, budget);
        for (int i = 0; i < 5; i++) {
            rig_add(&rig, i % 2 ? 4 : 2, 0.2);
        }
        check_against_all(AS_GOOD);
    }
}
END_TEST

START_TEST(two_sizes_that_compute)
{
    for (size_t budget = 4; budget < 14; budget++) {
        rig_begin(&rig, budget);
        for (int i = 0; i < 5; i++) {
            rig_add(&rig, i % 2 ? 4 : 2, i % 2 ? 2.5 : 1);
        }
        check_against_all(0.01);
    }
}
END_TEST

START_TEST(one_long_computation)
{
    for (size_t budget = 2; budget < 10; budget++) {
        rig_begin(&rig, budget);
        for (int i = 0; i < 5; i++) {
            rig_add(&rig, 2, i == 2 ? 6 : 0.5);
        }
        check_against_all(AS_GOOD);
    }
}
END_TEST

START_TEST(one_huge_unit)
{
    for (size_t budget = 6; budget < 12; budget++) {
        rig_begin(&rig, budget);
        for (int i = 0; i < 5; i++) {
            rig_add(&rig, i == 3 ? 6 : 1, 0.3);
        }
        check_against_all(AS_GOOD);
    }
}
END_TEST

START_TEST(a_unit_read_twice)
{
    for (size_t budget = 3; budget < 10; budget++) {
        rig_begin(&rig, budget);
        const uint32_t twice = rig_add(&rig, 3, 0.5);
        rig_add(&rig, 2, 0.5);
        rig_add(&rig, 2, 0.5);
        rig_touch(&rig, twice, 0.5);
        rig_add(&rig, 3, 0.5);
        rig_add(&rig, 2, 0.5);
        check_against_all(AS_GOOD);
    }
}
END_TEST

START_TEST(two_parts_one_of_them_repeated)
{
    for (size_t budget = 2; budget < 9; budget++) {
        rig_begin(&rig, budget);
        rig_add(&rig, 2, 0.3);
        rig_add(&rig, 2, 0.3);
        rig_part(&rig, 1);
        rig_add(&rig, 2, 0.3);
        rig_add(&rig, 2, 0.3);
        rig_add(&rig, 1, 0.3);
        rig_part(&rig, 6);
        check_against_all(0.01);
    }
}
END_TEST

START_TEST(two_parts_that_take_turns)
{
    for (size_t budget = 4; budget < 9; budget++) {
        rig_begin(&rig, budget);
        rig_add(&rig, 2, 0.3);
        rig_add(&rig, 2, 0.3);
        rig_part(&rig, 8);
        rig_add(&rig, 2, 0.3);
        rig_add(&rig, 2, 0.3);
        rig_part(&rig, 8);
        check_against_all(0.01);
    }
}
END_TEST

START_TEST(launches_of_two)
{
    for (size_t budget = 4; budget < 10; budget++) {
        rig_begin(&rig, budget);
        for (int i = 0; i < 5; i++) {
            rig_add(&rig, 2, 0.4);
        }
        rig_group(&rig, 1, 2);
        check_against_all(AS_GOOD);
    }
}
END_TEST

START_TEST(units_that_may_not_stay)
{
    for (size_t budget = 3; budget < 10; budget++) {
        rig_begin(&rig, budget);
        for (int i = 0; i < 5; i++) {
            rig_touch(&rig, rig_unit(&rig, 3, i == 1 ? S : ANY), 0.7);
        }
        check_against_all(AS_GOOD);
    }
}
END_TEST

START_TEST(random_traces)
{
    double sum = 0;
    for (unsigned round = 0; round < 60; round++) {
        rig_begin(&rig, 0);
        rig.seed += round * 7919;
        size_t pages = 0, largest = 0;
        for (int i = 0; i < 4; i++) {
            const uint32_t size = 1 + rig_below(&rig, 4);
            rig_add(&rig, size, rig_below(&rig, 40) / 10.0);
            pages += size;
            largest = size > largest ? size : largest;
        }
        rig.input.budget_pages = largest + rig_below(&rig, (uint32_t)(pages - largest + 1));
        rig.input.worth = 1e-9;
        struct ov_plan plan = rig_plan(&rig);
        const double best_s = best_of_all();
        ck_assert_msg(plan.bound_s <= best_s * (1 + 1e-9), "round %u: bound %.6f, best %.6f", round, plan.bound_s,
                      best_s);
        ck_assert_msg(plan.cycle_s <= best_s * 1.1, "round %u: %.6f, best %.6f", round, plan.cycle_s, best_s);
        sum += plan.cycle_s / best_s;
        ov_plan_free(&plan);
    }
    ck_assert_msg(sum / 60 <= 1.005, "on average %.4f times the best", sum / 60);
}
END_TEST

Suite *plan_optimum_suite(void)
{
    Suite *suite = suite_create("plan_optimum");
    TCase *tc = tcase_create("plan_optimum");

    tcase_add_test(tc, equal_units);
    tcase_add_test(tc, equal_units_that_compute_as_long_as_their_copies);
    tcase_add_test(tc, equal_units_that_compute_longer_than_their_copies);
    tcase_add_test(tc, two_sizes);
    tcase_add_test(tc, two_sizes_that_compute);
    tcase_add_test(tc, one_long_computation);
    tcase_add_test(tc, one_huge_unit);
    tcase_add_test(tc, a_unit_read_twice);
    tcase_add_test(tc, two_parts_one_of_them_repeated);
    tcase_add_test(tc, two_parts_that_take_turns);
    tcase_add_test(tc, launches_of_two);
    tcase_add_test(tc, units_that_may_not_stay);
    tcase_add_test(tc, random_traces);
    suite_add_tcase(suite, tc);
    return suite;
}
