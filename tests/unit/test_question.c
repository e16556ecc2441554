/* What the planner is asked: a copy is the same question with the same answer, and every change makes it another. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/question.h"

enum { UNITS = 6, TOUCHES = 8 };

/* A question as the engine asks it: what it points to is somebody else's but for the units. */
static struct ov_question asked;
static uint32_t cycle[TOUCHES];
static double compute_s[TOUCHES], stretch[TOUCHES];
static struct ov_plan_group group[2];
static uint32_t group_unit[4];

static void ask(void)
{
    static const uint32_t order[TOUCHES] = {0, 1, 2, 3, 4, 5, 1, 3};
    ov_question_free(&asked);
    memset(&asked, 0, sizeof asked);
    memcpy(cycle, order, sizeof cycle);
    asked.unit = calloc(UNITS, sizeof *asked.unit);
    for (uint32_t i = 0; i < UNITS; i++) {
        asked.unit[i] = (struct ov_plan_unit){.pages = 4 + i, .may = OV_TIERS_ALL};
    }
    for (int i = 0; i < TOUCHES; i++) {
        compute_s[i] = 1e-4 * (i % 3);
        stretch[i] = 0.01 * i;
    }
    group[0] = (struct ov_plan_group){.start = 0, .length = 2};
    group[1] = (struct ov_plan_group){.start = 2, .length = 2};
    for (uint32_t i = 0; i < 4; i++) {
        group_unit[i] = i;
    }
    asked.rate[0] = (struct ov_plan_rate){1, 20000};
    asked.rate[1] = (struct ov_plan_rate){8, 26000};
    asked.input = (struct ov_plan_input){
        .unit = asked.unit,
        .unit_count = UNITS,
        .cycle = cycle,
        .cycle_length = TOUCHES,
        .compute_s = compute_s,
        .stretch = stretch,
        .group = group,
        .group_count = 2,
        .group_unit = group_unit,
        .budget_pages = 28,
        .tiers = OV_TIERS_ALL,
        .link_pages_per_s = 26000,
        .rate = asked.rate,
        .rate_count = 2,
    };
}

START_TEST(copy_is_the_same_question)
{
    struct ov_question copy;
    ask();
    ck_assert(ov_question_copy(&asked, &copy));
    ck_assert(ov_question_covers(&copy, &asked));
    ck_assert(ov_question_covers(&copy, &asked));
    ov_question_free(&copy);
}
END_TEST

/* Nothing of the copy is what was copied: the engine goes on. */
START_TEST(copy_stays_what_it_was)
{
    struct ov_question copy, again;
    struct ov_plan before, after;
    ask();
    ck_assert(ov_question_copy(&asked, &copy));
    ck_assert(ov_question_answer(&copy, &before));
    memset(asked.unit, 0xa5, UNITS * sizeof *asked.unit);
    memset(asked.rate, 0xa5, sizeof asked.rate);
    memset(cycle, 0xa5, sizeof cycle);
    memset(compute_s, 0xa5, sizeof compute_s);
    memset(stretch, 0xa5, sizeof stretch);
    memset(group, 0xa5, sizeof group);
    memset(group_unit, 0xa5, sizeof group_unit);
    ck_assert(ov_question_answer(&copy, &after));
    ask();
    ck_assert(ov_question_covers(&copy, &asked));
    ck_assert(ov_question_copy(&copy, &again)); /* of a copy, too */
    ck_assert(ov_question_covers(&again, &copy));
    ck_assert_uint_eq(before.ring_pages, after.ring_pages);
    ck_assert(before.cycle_s == after.cycle_s);
    ov_plan_free(&before);
    ov_plan_free(&after);
    ov_question_free(&copy);
    ov_question_free(&again);
}
END_TEST

/* Whether a change of one thing makes it another question; undone by the next ask(). */
#define DIFFERS(change)                                             \
    do {                                                            \
        struct ov_question copy;                                    \
        ask();                                                      \
        ck_assert(ov_question_copy(&asked, &copy));                 \
        change;                                                     \
        ck_assert_msg(!ov_question_covers(&copy, &asked), #change); \
        ov_question_free(&copy);                                    \
    } while (0)

START_TEST(every_change_makes_another)
{
    DIFFERS(asked.unit[5].pages++);
    DIFFERS(asked.unit[0].may = OV_TIER_BIT(OV_TIER_RESIDENT));
    DIFFERS(asked.unit[2].sparse = true);
    DIFFERS(asked.input.unit_count--);
    DIFFERS(cycle[TOUCHES - 1] = 0);
    DIFFERS(asked.input.cycle_length--);
    DIFFERS(compute_s[TOUCHES - 1] += 1e-9);
    DIFFERS(asked.input.compute_s = NULL);
    DIFFERS(stretch[0] = 0.5);
    DIFFERS(asked.input.stretch = NULL);
    DIFFERS(group[1].length--);
    DIFFERS(asked.input.group_count--);
    DIFFERS(group_unit[3] = 0);
    DIFFERS(asked.input.budget_pages++);
    DIFFERS(asked.input.ring_request_pages = 9);
    DIFFERS(asked.input.link_pages_per_s *= 0.9);
    DIFFERS(asked.rate[1].pages_per_s *= 0.9);
    DIFFERS(asked.input.rate_count--);
    DIFFERS(asked.share = 0.5);
    DIFFERS(asked.input.mode = OV_PLAN_LATENCY);
}
END_TEST

/* A plan for a little less is a plan for a little more, but not the other way round. */
START_TEST(a_little_more_budget_is_covered)
{
    struct ov_question copy;
    ask();
    asked.input.budget_pages = 1000;
    ck_assert(ov_question_copy(&asked, &copy));
    asked.input.budget_pages = 1010;
    ck_assert(ov_question_covers(&copy, &asked));
    asked.input.budget_pages = 1011;
    ck_assert(!ov_question_covers(&copy, &asked));
    asked.input.budget_pages = 999;
    ck_assert(!ov_question_covers(&copy, &asked));
    ov_question_free(&copy);
}
END_TEST

/* How long somebody searches is no matter of what is asked. */
START_TEST(effort_is_no_part_of_it)
{
    struct ov_question copy;
    ask();
    ck_assert(ov_question_copy(&asked, &copy));
    asked.input.effort = 1000;
    ck_assert(ov_question_covers(&copy, &asked));
    ov_question_free(&copy);
}
END_TEST

START_TEST(empty_questions)
{
    struct ov_question copy, nothing = {.unit = calloc(1, sizeof *nothing.unit)};
    ck_assert(ov_question_copy(&nothing, &copy));
    ck_assert(ov_question_covers(&nothing, &copy));
    ov_question_free(&copy);
    ov_question_free(&nothing);
}
END_TEST

START_TEST(answers_can_be_copied)
{
    struct ov_plan plan, clone;
    ask();
    ck_assert(ov_question_answer(&asked, &plan));
    ck_assert(plan.streamed_units > 0 && plan.copy_count > 0);
    ck_assert(ov_plan_clone(&plan, &clone));
    ck_assert_uint_eq(plan.copy_count, clone.copy_count);
    ck_assert(plan.place != clone.place && plan.copy != clone.copy);
    for (size_t i = 0; i < UNITS; i++) {
        ck_assert_uint_eq(plan.place[i].tier, clone.place[i].tier);
        ck_assert_uint_eq(plan.place[i].ring_page, clone.place[i].ring_page);
    }
    ov_plan_free(&plan);
    ov_plan_free(&clone);
}
END_TEST

Suite *question_suite(void)
{
    Suite *suite = suite_create("question");
    TCase *tests = tcase_create("question");
    tcase_add_test(tests, copy_is_the_same_question);
    tcase_add_test(tests, copy_stays_what_it_was);
    tcase_add_test(tests, every_change_makes_another);
    tcase_add_test(tests, a_little_more_budget_is_covered);
    tcase_add_test(tests, effort_is_no_part_of_it);
    tcase_add_test(tests, empty_questions);
    tcase_add_test(tests, answers_can_be_copied);
    suite_add_tcase(suite, tests);
    return suite;
}
