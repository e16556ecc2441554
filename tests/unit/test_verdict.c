/* What was proven of kernels in an earlier run: for the same code, and for no other. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "kernel.h"
#include "profile.h"
#include "verdict.h"
#include "watch.h"

/* A kernel of three slots, which nobody has looked at. */
struct fresh {
    struct ov_kernel kernel;
    _Atomic uint8_t slot[3];
};

static void make(struct fresh *fresh, uint64_t code)
{
    memset(fresh, 0, sizeof *fresh);
    fresh->kernel.slot = fresh->slot;
    fresh->kernel.slot_count = 3;
    fresh->kernel.code = (struct ov_code){{code, 1}};
}

static const struct ov_profile_kernel known[] = {
    {.name = "reads", .slots = "rw-", .code = {11, 1}, .watched = true, .output = true},
    {.name = "emits", .slots = "r--", .code = {12, 1}, .emits = true},
    {.name = "of more slots", .slots = "rrrr", .code = {13, 1}, .watched = true},
    {.name = "unknown", .slots = "rrr", .code = {0, 0}, .watched = true},
};

START_TEST(same_code_has_the_same_verdict)
{
    struct fresh fresh;
    ov_verdicts_take(known, 4);
    make(&fresh, 11);
    ov_verdict_give(&fresh.kernel);
    ck_assert_int_eq(ov_slot(&fresh.kernel, 0), OV_SLOT_READER);
    ck_assert_int_eq(ov_slot(&fresh.kernel, 1), OV_SLOT_WRITER);
    ck_assert_int_eq(ov_slot(&fresh.kernel, 2), OV_SLOT_UNKNOWN);
    ck_assert(fresh.kernel.has_output && !fresh.kernel.emits && fresh.kernel.watched == OV_WATCH_LAUNCHES);
    make(&fresh, 12);
    ov_verdict_give(&fresh.kernel);
    ck_assert(fresh.kernel.emits && !fresh.kernel.has_output && fresh.kernel.watched == 0);
}
END_TEST

START_TEST(other_code_has_none)
{
    struct fresh fresh;
    const uint64_t other[] = {0, 10, 13}; /* the last has other slots than were seen */
    ov_verdicts_take(known, 4);
    for (int i = 0; i < 3; i++) {
        make(&fresh, other[i]);
        fresh.kernel.code.hash[1] = other[i] != 0;
        ov_verdict_give(&fresh.kernel);
        ck_assert_int_eq(ov_slot(&fresh.kernel, 0), OV_SLOT_UNKNOWN);
        ck_assert(fresh.kernel.watched == 0 && !fresh.kernel.emits);
    }
}
END_TEST

START_TEST(nothing_is_given_before_it_is_taken)
{
    struct fresh fresh;
    make(&fresh, 11);
    ov_verdict_give(&fresh.kernel);
    ck_assert_int_eq(ov_slot(&fresh.kernel, 0), OV_SLOT_UNKNOWN);
}
END_TEST

/* What this run saw of a kernel stays, where it is the safer one. */
START_TEST(writers_stay_writers)
{
    struct fresh fresh;
    ov_verdicts_take(known, 4);
    make(&fresh, 11);
    ov_slot_set(&fresh.kernel, 0, OV_SLOT_WRITER);
    ov_slot_set(&fresh.kernel, 1, OV_SLOT_READER);
    ov_verdict_give(&fresh.kernel);
    ck_assert_int_eq(ov_slot(&fresh.kernel, 0), OV_SLOT_WRITER);
    ck_assert_int_eq(ov_slot(&fresh.kernel, 1), OV_SLOT_WRITER);
}
END_TEST

START_TEST(what_was_taken_is_kept)
{
    struct ov_profile_kernel *list;
    char *strings;
    ov_verdicts_take(known, 4);
    ck_assert_uint_eq(ov_verdicts_list(&list, &strings), 3); /* without the unknown one */
    ck_assert_str_eq(list[0].name, "reads");
    ck_assert_str_eq(list[0].slots, "rw-");
    ck_assert(list[0].watched && list[0].output && !list[0].emits && list[0].code[0] == 11);
    ck_assert(list[1].emits && list[1].code[0] == 12);
    free(list);
    free(strings);
}
END_TEST

START_TEST(unknown_code_that_computes_addresses_is_warned_of)
{
    const struct ov_profile_kernel emitter = {.slots = "", .emits = true};
    ck_assert(!ov_verdicts_warn(known, 4));
    ck_assert(ov_verdicts_warn(&emitter, 1));
}
END_TEST

Suite *verdict_suite(void);
Suite *verdict_suite(void)
{
    Suite *suite = suite_create("verdict");
    TCase *tcase = tcase_create("verdict");
    tcase_add_test(tcase, same_code_has_the_same_verdict);
    tcase_add_test(tcase, other_code_has_none);
    tcase_add_test(tcase, nothing_is_given_before_it_is_taken);
    tcase_add_test(tcase, writers_stay_writers);
    tcase_add_test(tcase, what_was_taken_is_kept);
    tcase_add_test(tcase, unknown_code_that_computes_addresses_is_warned_of);
    suite_add_tcase(suite, tcase);
    return suite;
}
