/* What the program is told of memory: free + used <= total, free never rises by itself, and the surplus goes. */
#include <check.h>
#include <stdint.h>

#include "report.h"

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

static const struct ov_options physical,
    budget = {.report.word = OV_OPT_REPORT_BUDGET, .budget = {OV_AMOUNT_BYTES, 8 * GIB, 0}};
static const struct ov_options automatic = {.report.word = OV_OPT_REPORT_BUDGET};
static const struct ov_options sized = {.report = {OV_SIZED_BYTES, 40 * GIB}};

static struct ov_ledger ledger_of(size_t program_bytes)
{
    return (struct ov_ledger){.budget_bytes = 8 * GIB, .host_limit_bytes = 100 * GIB, .program_bytes = program_bytes};
}

static struct ov_report fresh(void)
{
    return (struct ov_report){.room_bytes = SIZE_MAX};
}

static const struct ov_report_facts device = {
    .total_bytes = 24 * GIB, .device_free_bytes = 24 * GIB, .host_backed = true};

START_TEST(totals_do_not_depend_on_the_moment)
{
    ck_assert_uint_eq(ov_report_total(&physical, 24 * GIB), 24 * GIB);
    ck_assert_uint_eq(ov_report_total(&budget, 24 * GIB), 8 * GIB);
    ck_assert_uint_eq(ov_report_total(&budget, 4 * GIB), 4 * GIB);
    ck_assert_uint_eq(ov_report_total(&automatic, 24 * GIB), 24 * GIB);
    ck_assert_uint_eq(ov_report_total(&sized, 24 * GIB), 40 * GIB);
}
END_TEST

START_TEST(surplus_is_what_the_host_may_hold)
{
    struct ov_report report = fresh();
    struct ov_ledger ledger = ledger_of(0);
    ck_assert_uint_eq(ov_report_ask(&report, &physical, &ledger, &device).free_bytes, 24 * GIB);
    report = fresh();
    ledger.host_limit_bytes = 10 * GIB;
    ck_assert_uint_eq(ov_report_ask(&report, &physical, &ledger, &device).free_bytes, 18 * GIB);
    report = fresh();
    ck_assert_uint_eq(ov_report_ask(&report, &sized, &ledger, &device).free_bytes, 18 * GIB);
    report = fresh();
    ck_assert_uint_eq(ov_report_ask(&report, &budget, &ledger, &device).free_bytes, 8 * GIB);
}
END_TEST

START_TEST(surplus_shrinks_to_what_the_budget_leaves)
{
    struct ov_report report = fresh();
    struct ov_ledger ledger = ledger_of(20 * GIB);
    struct ov_report_facts facts = device;
    ck_assert_uint_eq(ov_report_ask(&report, &physical, &ledger, &facts).free_bytes, 4 * GIB);
    facts.stage = OV_REPORT_IN_USE;
    facts.written_bytes = 6 * GIB;
    ck_assert_uint_eq(ov_report_ask(&report, &physical, &ledger, &facts).free_bytes, 2 * GIB);
    ledger.program_bytes += GIB; /* a cache takes half of it */
    facts.written_bytes += GIB;
    ck_assert_uint_eq(ov_report_ask(&report, &physical, &ledger, &facts).free_bytes, GIB);
    facts.stage = OV_REPORT_PLANNED;
    facts.written_bytes = 9 * GIB; /* more than the budget is no negative number */
    ck_assert_uint_eq(ov_report_ask(&report, &physical, &ledger, &facts).free_bytes, 0);
}
END_TEST

START_TEST(free_rises_by_what_is_freed_only)
{
    struct ov_report report = fresh();
    struct ov_ledger ledger = ledger_of(20 * GIB);
    struct ov_report_facts facts = device;
    facts.stage = OV_REPORT_IN_USE;
    facts.written_bytes = 6 * GIB;
    ck_assert_uint_eq(ov_report_ask(&report, &physical, &ledger, &facts).free_bytes, 2 * GIB);
    facts.written_bytes = GIB; /* whatever is learned later */
    facts.stage = OV_REPORT_LOADING;
    ck_assert_uint_eq(ov_report_ask(&report, &physical, &ledger, &facts).free_bytes, 2 * GIB);
    ledger.program_bytes -= 3 * GIB;
    ov_report_freed(&report, &ledger);
    ck_assert_uint_eq(ov_report_ask(&report, &physical, &ledger, &facts).free_bytes, 5 * GIB);
    ledger.program_bytes = GIB;
    ov_report_freed(&report, &ledger);
    ck_assert_uint_eq(ov_report_ask(&report, &physical, &ledger, &facts).free_bytes, 23 * GIB);
}
END_TEST

START_TEST(memory_of_others_is_used)
{
    struct ov_report report = fresh();
    struct ov_ledger ledger = ledger_of(0);
    struct ov_report_facts facts = device;
    facts.device_free_bytes = 14 * GIB;
    ck_assert_uint_eq(ov_report_ask(&report, &physical, &ledger, &facts).free_bytes, 14 * GIB);
    facts.device_free_bytes += 100 * MIB; /* rounding of the driver's */
    ck_assert_uint_eq(ov_report_ask(&report, &physical, &ledger, &facts).free_bytes, 14 * GIB);
    facts.device_free_bytes = SIZE_MAX; /* not asked */
    ck_assert_uint_eq(ov_report_ask(&report, &physical, &ledger, &facts).free_bytes, 14 * GIB);
    facts.device_free_bytes = 20 * GIB; /* another process ended */
    ck_assert_uint_eq(ov_report_ask(&report, &physical, &ledger, &facts).free_bytes, 20 * GIB);
    ledger.program_bytes = ledger.held_bytes[OV_FOR_PAGES] = 4 * GIB; /* ours is no other's */
    facts.device_free_bytes = 16 * GIB;
    ck_assert_uint_eq(ov_report_ask(&report, &physical, &ledger, &facts).free_bytes, 16 * GIB);
}
END_TEST

/* Whatever happens in whatever order. */
START_TEST(random_histories_keep_the_rules)
{
    static const struct ov_options *const kinds[] = {&physical, &budget, &automatic, &sized};
    uint32_t seed = (uint32_t)_i * 2654435761u + 1;
    struct ov_report report = fresh();
    struct ov_ledger ledger = ledger_of(0);
    struct ov_report_facts facts = device;
    size_t last = SIZE_MAX, freed = 0;
    for (int step = 0; step < 2000; step++) {
        seed = seed * 1664525u + 1013904223u;
        size_t bytes = (size_t)(seed >> 8) % (64 * MIB);
        switch (seed >> 29) {
        case 0:
        case 1:
            ledger.program_bytes += bytes;
            break;
        case 2:
            bytes = bytes < ledger.program_bytes ? bytes : ledger.program_bytes;
            ledger.program_bytes -= bytes;
            freed += bytes;
            if (ledger.program_bytes < ledger.budget_bytes / 2) {
                freed = SIZE_MAX / 4;
            }
            ov_report_freed(&report, &ledger);
            break;
        case 3:
            ledger.held_bytes[OV_FOR_PAGES] = (size_t)(seed >> 4) % (8 * GIB);
            break;
        case 4:
            ledger.host_bytes = bytes * 1000;
            break;
        default:
            facts.stage = (enum ov_report_stage)((seed >> 20) % 3);
            facts.written_bytes = bytes * 200;
        }
        struct ov_report_answer answer = ov_report_ask(&report, kinds[_i % 4], &ledger, &facts);
        ck_assert_uint_le(answer.free_bytes, answer.total_bytes);
        ck_assert(answer.free_bytes == 0 || answer.free_bytes + ledger.program_bytes <= answer.total_bytes);
        ck_assert(last == SIZE_MAX || answer.free_bytes <= last + freed);
        last = answer.free_bytes;
        freed = 0;
    }
}
END_TEST

Suite *report_suite(void);
Suite *report_suite(void)
{
    Suite *suite = suite_create("report");
    TCase *rules = tcase_create("rules");
    tcase_add_test(rules, totals_do_not_depend_on_the_moment);
    tcase_add_test(rules, surplus_is_what_the_host_may_hold);
    tcase_add_test(rules, surplus_shrinks_to_what_the_budget_leaves);
    tcase_add_test(rules, free_rises_by_what_is_freed_only);
    tcase_add_test(rules, memory_of_others_is_used);
    tcase_add_loop_test(rules, random_histories_keep_the_rules, 0, 40);
    suite_add_tcase(suite, rules);
    return suite;
}
