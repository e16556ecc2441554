/* Periods of sequences, against brute force. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "draw.h"
#include "runtime/trace.h"

static size_t units_of(const char *text, uint32_t *seq)
{
    const size_t n = strlen(text);

    for (size_t i = 0; i < n; i++) {
        seq[i] = (uint32_t)text[i];
    }
    return n;
}

static size_t period_of(const char *text, size_t min_repeats)
{
    uint32_t seq[256];
    const size_t n = units_of(text, seq);
    return ov_find_period(seq, n, min_repeats);
}

START_TEST(compress_drops_what_repeats)
{
    uint32_t seq[] = {1, 1, 2, 2, 2, 1, 3, 3};

    ck_assert_uint_eq(ov_compress(seq, 8), 4);
    ck_assert_uint_eq(seq[0], 1);
    ck_assert_uint_eq(seq[1], 2);
    ck_assert_uint_eq(seq[2], 1);
    ck_assert_uint_eq(seq[3], 3);
    ck_assert_uint_eq(ov_compress(seq, 0), 0);
    ck_assert_uint_eq(ov_compress(seq, 1), 1);
}
END_TEST

START_TEST(period_of_plain_cycles)
{
    ck_assert_uint_eq(period_of("ABCABC", 2), 3);
    ck_assert_uint_eq(period_of("XYABCABC", 2), 3);
    ck_assert_uint_eq(period_of("ABCABCAB", 2), 3);
    ck_assert_uint_eq(period_of("ABABABAB", 2), 2);
    ck_assert_uint_eq(period_of("AAAA", 2), 1);
}
END_TEST

START_TEST(period_of_cycles_with_repeats_inside)
{
    ck_assert_uint_eq(period_of("AABAAB", 2), 3);
    ck_assert_uint_eq(period_of("AABAABAA", 2), 3);
    ck_assert_uint_eq(period_of("AABAABA", 2), 3);
    ck_assert_uint_eq(period_of("EABABABVEABABABVEABAB", 2), 8);
    ck_assert_uint_eq(period_of("EABABABVEABAB", 2), 2);
}
END_TEST

START_TEST(no_period_where_there_is_none)
{
    ck_assert_uint_eq(period_of("", 2), 0);
    ck_assert_uint_eq(period_of("A", 2), 0);
    ck_assert_uint_eq(period_of("ABCDEF", 2), 0);
    ck_assert_uint_eq(period_of("ABCABCX", 2), 0);
    ck_assert_uint_eq(period_of("ABCABC", 3), 0);
    ck_assert_uint_eq(period_of("ABCABCABC", 3), 3);
    ck_assert_uint_eq(period_of("ABCABC", 0), 3);
}
END_TEST

START_TEST(period_agrees_with_brute_force)
{
    uint32_t seq[40];

    seed = 7;
    for (unsigned round = 0; round < 20000; round++) {
        const size_t n = below(40), repeats = 2 + below(3), cycle = 1 + below(9);
        size_t best = 0, best_tail = 0;
        for (size_t i = 0; i < n; i++) {
            seq[i] = i >= cycle && below(15) ? seq[i - cycle] : below(3);
        }
        for (size_t p = 1; p * repeats <= n; p++) {
            size_t tail = n;
            for (size_t i = n - p; i-- > 0;) {
                if (seq[i] != seq[i + p]) {
                    tail = n - 1 - i;
                    break;
                }
            }
            CHECK(ov_period_tail(seq, n, p) == tail);
            if (tail >= repeats * p && tail > best_tail) {
                best = p;
                best_tail = tail;
            }
        }
        CHECK(ov_find_period(seq, n, repeats) == best);
    }
}
END_TEST

START_TEST(period_of_a_million_touches)
{
    const size_t n = 1000000;
    uint32_t *seq = malloc(n * sizeof(*seq));

    ck_assert_ptr_nonnull(seq);
    for (size_t i = 0; i < n; i++) {
        seq[i] = i % 2 ? 0 : i % 9998 == 0;
    }
    ck_assert_uint_eq(ov_find_period(seq, n, 3), 9998);
    ck_assert_uint_eq(ov_period_tail(seq, n, 9998), n);
    free(seq);
}
END_TEST

Suite *period_suite(void);
Suite *period_suite(void)
{
    Suite *suite = suite_create("period");
    TCase *tc = tcase_create("period");

    tcase_add_test(tc, compress_drops_what_repeats);
    tcase_add_test(tc, period_of_plain_cycles);
    tcase_add_test(tc, period_of_cycles_with_repeats_inside);
    tcase_add_test(tc, no_period_where_there_is_none);
    tcase_add_test(tc, period_agrees_with_brute_force);
    tcase_add_test(tc, period_of_a_million_touches);
    suite_add_tcase(suite, tc);
    return suite;
}
