/* What copies that were timed beside a program say of the link. */
#include <check.h>
#include <string.h>

#include "runtime/ring.h"

static struct ov_ring ring;

/* So many copies, which took so many seconds together and would have taken so many alone. */
static double share_of(unsigned copies, double alone_s, double beside_s)
{
    memset(&ring, 0, sizeof ring);
    ov_meter_start(&ring);
    ring.meter.copies = copies;
    ring.meter.alone_s = alone_s;
    ring.meter.beside_s = beside_s;
    return ov_meter_share(&ring);
}

START_TEST(share_is_what_was_measured)
{
    ck_assert_double_eq_tol(share_of(30, 0.095, 0.1), 0.95, 1e-9);
    ck_assert(!ring.meter.wanted);
}
END_TEST

START_TEST(link_is_no_faster_than_alone)
{
    ck_assert_double_eq(share_of(30, 0.11, 0.1), 1);
}
END_TEST

/* Something else was in the way. */
START_TEST(share_has_a_least)
{
    ck_assert_double_eq(share_of(30, 0.01, 0.1), 0.8);
}
END_TEST

START_TEST(few_copies_tell_nothing)
{
    ck_assert_double_eq(share_of(2, 0.009, 0.01), 1);
    ck_assert_double_eq(share_of(0, 0, 0), 1);
    ck_assert_double_eq(share_of(30, 0.0009, 0.001), 1);
}
END_TEST

START_TEST(what_was_before_does_not_count)
{
    (void)share_of(30, 0.09, 0.1);
    ov_meter_start(&ring);
    ck_assert(ring.meter.wanted);
    ck_assert_double_eq(ov_meter_share(&ring), 1);
}
END_TEST

Suite *meter_suite(void)
{
    Suite *suite = suite_create("meter");
    TCase *tests = tcase_create("meter");
    tcase_add_test(tests, share_is_what_was_measured);
    tcase_add_test(tests, link_is_no_faster_than_alone);
    tcase_add_test(tests, share_has_a_least);
    tcase_add_test(tests, few_copies_tell_nothing);
    tcase_add_test(tests, what_was_before_does_not_count);
    suite_add_tcase(suite, tests);
    return suite;
}
