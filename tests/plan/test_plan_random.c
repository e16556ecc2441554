/* The planner: what every plan keeps, on thousands of random inputs and on large ones. */

#include "plan_kept.h"

START_TEST(counts_that_do_not_divide_evenly)
{
    for (unsigned count = 1; count <= 17; count++) {
        for (size_t budget = 1; budget <= 60; budget++) {
            begin(budget);
            for (unsigned i = 0; i < count; i++) {
                add(1 + i % 5, ANY);
                if (i > 1 && i % 3 == 0) {
                    pair(i, i - 2);
                }
            }
            make();
            input.tiers = S | H;
            make();
        }
    }
}
END_TEST

static void randomise(uint32_t units, uint32_t largest)
{
    static const uint8_t mays[] = {ANY, ANY, ANY, ANY, ANY, S | H, R | H, R | S, R, S, H, 0};
    const unsigned plain = below(2);
    size_t all = 0;

    for (uint32_t i = 0; i < units; i++) {
        add_idle(1 + below(below(3) ? largest : 2), plain ? ANY : mays[below(sizeof(mays))]);
        unit[i].sparse = below(20) == 0;
        all += unit[i].pages;
    }
    const uint32_t touches = below(2 * units);
    for (uint32_t i = 0, number = 0; i < touches; i++) {
        number = below(8) ? (number + 1) % units : below(units);
        if (i == 0 || cycle[i - 1] != number) {
            touch(number);
        }
        compute_s[i] = below(100) / 1000.0;
    }
    for (uint32_t i = below(units); i > 0; i--) {
        uint32_t member[4];
        const uint32_t length = 1 + below(4), first = below(units);
        for (uint32_t m = 0; m < length; m++) {
            member[m] = below(4) ? (first + m) % units : below(units);
        }
        add_group(length, member);
    }
    input.budget_pages = below((uint32_t)all + 10);
    input.ring_request_pages = below(3) ? 0 : below(4 * largest);
    input.tiers = below(2) ? OV_TIERS_ALL : below(8);
    input.compute_s = below(2) ? compute_s : NULL;
    input.link_pages_per_s = below(4) ? 1 + below(1000) : 0;
    input.effort = 1 + below(4) * 5000;
}

START_TEST(thousands_of_small_plans)
{
    for (unsigned round = 0; round < 5000; round++) {
        begin(0);
        seed += round * 2654435761u;
        below(2);
        randomise(1 + below(25), 1 + below(12));
        make();
    }
}
END_TEST

START_TEST(hundreds_of_larger_plans)
{
    for (unsigned round = 0; round < 400; round++) {
        begin(0);
        seed += round * 40503u;
        below(2);
        randomise(50 + below(250), 1 + below(100));
        make();
    }
}
END_TEST

/* How long that takes is plan.time_ms of bench.sh, in instructions. */
START_TEST(five_thousand_units)
{
    begin(0);
    size_t all = 0;
    for (unsigned i = 0; i < 5000; i++) {
        all += unit[add(1 + below(60), ANY)].pages;
        if (i % 7 == 6) {
            add_group(3, (const uint32_t[]){i, i - 1, i - 2});
        }
    }
    input.budget_pages = all / 3;
    make();
    ck_assert_uint_eq(plan.host_units, 0);
    ck_assert_uint_ge(plan.resident_pages + plan.ring_pages, input.budget_pages - 60);
}
END_TEST

Suite *plan_random_suite(void);
Suite *plan_random_suite(void)
{
    Suite *suite = suite_create("plan_random");
    TCase *tc = tcase_create("plan_random");

    tcase_add_test(tc, counts_that_do_not_divide_evenly);
    tcase_add_test(tc, thousands_of_small_plans);
    tcase_add_test(tc, hundreds_of_larger_plans);
    tcase_add_test(tc, five_thousand_units);
    suite_add_tcase(suite, tc);
    return suite;
}
