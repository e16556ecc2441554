/* The ledger: nothing is promised twice, and the budget holds at every moment. */
#include <check.h>

#include "ledger.h"

#define MIB ((size_t)1 << 20)

static struct ov_ledger ledger_of(size_t budget_bytes)
{
    return (struct ov_ledger){.budget_bytes = budget_bytes, .host_limit_bytes = 10 * MIB};
}

START_TEST(takes_what_fits_and_no_byte_more)
{
    struct ov_ledger ledger = ledger_of(10 * MIB);

    ck_assert(ov_ledger_take(&ledger, OV_FOR_PAGES, 6 * MIB));
    ck_assert(!ov_ledger_take(&ledger, OV_FOR_RING, 4 * MIB + 1));
    ck_assert(ov_ledger_take(&ledger, OV_FOR_RING, 4 * MIB));
    ck_assert_uint_eq(ov_ledger_left(&ledger), 0);
    ck_assert(!ov_ledger_take(&ledger, OV_FOR_PAGES, 1));
    ov_ledger_give(&ledger, OV_FOR_PAGES, 2 * MIB);
    ck_assert_uint_eq(ov_ledger_left(&ledger), 2 * MIB);
    ck_assert_uint_eq(ov_ledger_held(&ledger), 8 * MIB);
    ck_assert_uint_eq(ledger.peak_bytes, 10 * MIB);
}
END_TEST

START_TEST(what_is_set_aside_is_there_when_it_is_wanted)
{
    struct ov_ledger ledger = ledger_of(10 * MIB);

    ledger.set_aside_bytes[OV_FOR_SCRATCH] = 2 * MIB;
    ledger.set_aside_bytes[OV_FOR_SMALL] = 2 * MIB;
    ck_assert(!ov_ledger_take(&ledger, OV_FOR_PAGES, 6 * MIB + 1));
    ck_assert(ov_ledger_take(&ledger, OV_FOR_PAGES, 6 * MIB));
    ck_assert(!ov_ledger_take(&ledger, OV_FOR_PAGES, 1));
    ck_assert(ov_ledger_take(&ledger, OV_FOR_SCRATCH, 2 * MIB));
    ck_assert(ov_ledger_small_fits(&ledger, 4096));
    ov_ledger_small(&ledger, 4096, 0);
    ck_assert_uint_le(ov_ledger_held(&ledger), ledger.budget_bytes);
    ck_assert_uint_eq(ov_ledger_left(&ledger), 0);
}
END_TEST

START_TEST(foreign_memory_may_exceed_the_budget_and_nothing_wraps)
{
    struct ov_ledger ledger = ledger_of(4 * MIB);

    ov_ledger_add(&ledger, OV_FOR_FOREIGN, 7 * MIB);
    ck_assert_uint_eq(ov_ledger_left(&ledger), 0);
    ck_assert(!ov_ledger_take(&ledger, OV_FOR_PAGES, 1));
    ck_assert(!ov_ledger_take(&ledger, OV_FOR_PAGES, SIZE_MAX));
    ck_assert(!ov_ledger_small_fits(&ledger, 1));
    ov_ledger_give(&ledger, OV_FOR_FOREIGN, 7 * MIB);
    ck_assert_uint_eq(ov_ledger_left(&ledger), 4 * MIB);
}
END_TEST

START_TEST(host_memory_that_is_set_aside_is_left_alone)
{
    struct ov_ledger ledger = ledger_of(10 * MIB);

    ledger.host_aside_bytes = 4 * MIB;
    ck_assert_uint_eq(ov_ledger_host_left(&ledger), 6 * MIB);
    ck_assert(!ov_ledger_take_host(&ledger, 6 * MIB + 1));
    ck_assert(ov_ledger_take_host(&ledger, 6 * MIB));
    ck_assert(!ov_ledger_take_host(&ledger, 1));
    ledger.host_aside_bytes = 0;
    ck_assert(ov_ledger_take_host(&ledger, 4 * MIB));
    ledger.host_aside_bytes = 4 * MIB;
    ck_assert_uint_eq(ov_ledger_host_left(&ledger), 0);
    ck_assert_uint_eq(ledger.host_peak_bytes, 10 * MIB);
}
END_TEST

/* Whatever is allocated and freed, what is counted covers it, and an empty ledger holds nothing. */
START_TEST(small_allocations_are_covered)
{
    struct ov_ledger ledger = ledger_of(64 * MIB);
    size_t held[64] = {0}, sum = 0;
    unsigned state = 1;

    for (int step = 0; step < 4000; step++) {
        state = state * 1103515245u + 12345u;
        const unsigned which = state >> 8 & 63;
        const size_t bytes = held[which] ? 0 : (state >> 14 & 0xffff) * 8 + 512;
        if (held[which] == 0 && !ov_ledger_small_fits(&ledger, bytes)) {
            continue;
        }
        ov_ledger_small(&ledger, bytes, held[which]);
        sum += bytes - held[which];
        held[which] = bytes;
        ck_assert_uint_ge(ledger.held_bytes[OV_FOR_SMALL], sum);
        ck_assert_uint_le(ov_ledger_held(&ledger), ledger.budget_bytes);
        ck_assert_uint_eq(ledger.held_bytes[OV_FOR_SMALL] % (2 * MIB), 0);
    }
    ov_ledger_small(&ledger, 0, ledger.small_bytes);
    ck_assert_uint_eq(ov_ledger_held(&ledger), 0);
}
END_TEST

/* What a pool keeps is nobody else's, however little of it is in use, until the pool has less. */
START_TEST(what_pools_keep_stays_counted)
{
    struct ov_ledger ledger = ledger_of(12 * MIB);

    ov_ledger_small(&ledger, 2 * MIB, 0);
    ov_ledger_add(&ledger, OV_FOR_FOREIGN, 6 * MIB);
    ov_ledger_keep(&ledger, OV_FOR_SMALL, 2 * MIB);
    ov_ledger_keep(&ledger, OV_FOR_FOREIGN, 4 * MIB);
    ck_assert_uint_eq(ledger.small_bytes, 0);
    ck_assert_uint_eq(ov_ledger_held(&ledger), 10 * MIB);
    ck_assert(!ov_ledger_small_grows(&ledger, MIB / 2));
    ck_assert(ov_ledger_small_grows(&ledger, MIB));
    ov_ledger_kept(&ledger, 6 * MIB);
    ck_assert_uint_eq(ov_ledger_held(&ledger), 10 * MIB);
    ov_ledger_kept(&ledger, MIB); /* of either kind; blocks go when all are empty */
    ck_assert_uint_eq(ledger.held_bytes[OV_FOR_SMALL], 4 * MIB);
    ck_assert_uint_eq(ledger.held_bytes[OV_FOR_FOREIGN], 3 * MIB);
    ov_ledger_kept(&ledger, 0);
    ck_assert_uint_eq(ledger.held_bytes[OV_FOR_SMALL], 0);
    ck_assert_uint_eq(ov_ledger_held(&ledger), 2 * MIB);
}
END_TEST

START_TEST(host_memory_has_a_limit_of_its_own)
{
    struct ov_ledger ledger = ledger_of(0);

    ck_assert(ov_ledger_take_host(&ledger, 10 * MIB));
    ck_assert(!ov_ledger_take_host(&ledger, 1));
    ck_assert(!ov_ledger_take_host(&ledger, SIZE_MAX));
    ov_ledger_give_host(&ledger, 4 * MIB);
    ck_assert(!ov_ledger_take_host(&ledger, 4 * MIB + 1));
    ck_assert(ov_ledger_take_host(&ledger, 4 * MIB));
    ck_assert_uint_eq(ledger.host_peak_bytes, 10 * MIB);
    ck_assert_uint_eq(ov_ledger_held(&ledger), 0);
}
END_TEST

Suite *ledger_suite(void);
Suite *ledger_suite(void)
{
    Suite *suite = suite_create("ledger");
    TCase *tcase = tcase_create("ledger");

    tcase_add_test(tcase, takes_what_fits_and_no_byte_more);
    tcase_add_test(tcase, what_is_set_aside_is_there_when_it_is_wanted);
    tcase_add_test(tcase, foreign_memory_may_exceed_the_budget_and_nothing_wraps);
    tcase_add_test(tcase, small_allocations_are_covered);
    tcase_add_test(tcase, what_pools_keep_stays_counted);
    tcase_add_test(tcase, host_memory_has_a_limit_of_its_own);
    tcase_add_test(tcase, host_memory_that_is_set_aside_is_left_alone);
    suite_add_tcase(suite, tcase);
    return suite;
}
