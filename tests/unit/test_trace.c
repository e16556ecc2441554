/* The predictor of touches, against sequences whose future is known and against a slow model of itself. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "draw.h"
#include "runtime/trace.h"

static struct ov_trace trace;

static void begin(size_t unit_count, unsigned log2_history)
{
    ov_trace_destroy(&trace);
    seed = 0x9e3779b97f4a7c15u;
    ck_assert(ov_trace_init(&trace, unit_count, log2_history));
}

/* Touches the letters of a text; returns the number of jumps among them. */
static uint64_t touch(const char *text)
{
    const uint64_t before = trace.jumps;

    for (; *text; text++) {
        ov_trace_touch(&trace, (uint32_t)(*text - 'A'));
    }
    return trace.jumps - before;
}

/* What is expected from here on, as a text. */
static const char *expected(size_t count)
{
    static char text[256];

    for (size_t i = 0; i < count; i++) {
        const uint32_t unit = ov_trace_peek(&trace, i + 1);
        text[i] = unit == OV_TRACE_NONE ? '?' : (char)('A' + unit);
    }
    text[count] = '\0';
    return text;
}

static void preload(const char *text)
{
    uint32_t seq[256];
    const size_t n = strlen(text);

    for (size_t i = 0; i < n; i++) {
        seq[i] = (uint32_t)(text[i] - 'A');
    }
    ov_trace_preload(&trace, seq, n);
}

START_TEST(knows_nothing_at_first)
{
    begin(26, 0);
    ck_assert_uint_eq(ov_trace_peek(&trace, 1), OV_TRACE_NONE);
    ck_assert_uint_eq(ov_trace_period(&trace), 0);
    ck_assert_int_eq(ov_trace_touch(&trace, 3), OV_TRACE_JUMP);
    ck_assert_uint_eq(ov_trace_peek(&trace, 1), OV_TRACE_NONE);
    ck_assert_uint_eq(ov_trace_period(&trace), 0);
}
END_TEST

START_TEST(repeated_touch_is_dropped)
{
    begin(26, 0);
    touch("AB");
    ck_assert_int_eq(ov_trace_touch(&trace, 1), OV_TRACE_SAME);
    touch("BBBCAAA");
    ck_assert_uint_eq(trace.touches, 4);
    ck_assert_str_eq(expected(4), "BCAB");
}
END_TEST

START_TEST(cycle_is_known_after_one_pass)
{
    begin(26, 0);
    ck_assert_uint_eq(touch("ABCDE"), 5);
    ck_assert_uint_eq(touch("A"), 1);
    ck_assert_uint_eq(touch("BCDEABCDEABCDE"), 0);
    ck_assert_uint_eq(ov_trace_period(&trace), 5);
}
END_TEST

START_TEST(steps_say_what_peek_said)
{
    begin(26, 0);
    touch("ABCABC");
    ck_assert_int_eq(ov_trace_touch(&trace, 0), OV_TRACE_EXPECTED);
    ck_assert_int_eq(ov_trace_touch(&trace, 2), OV_TRACE_JUMP);
    ck_assert_int_eq(ov_trace_touch(&trace, 2), OV_TRACE_SAME);
    ck_assert_int_eq(ov_trace_touch(&trace, 0), OV_TRACE_EXPECTED);
}
END_TEST

START_TEST(looks_ahead_beyond_the_period)
{
    begin(26, 0);
    touch("ABCDABCDAB");
    ck_assert_str_eq(expected(11), "CDABCDABCDA");
    ck_assert_uint_eq(ov_trace_peek(&trace, 4 * 1000000 + 1), 2);
}
END_TEST

START_TEST(unit_used_twice_is_told_apart_by_context)
{
    begin(26, 0);
    touch("EABECDEABECD");
    ck_assert_uint_eq(touch("EABECDEABECDEABECD"), 0);
    ck_assert_str_eq(expected(6), "EABECD");
}
END_TEST

START_TEST(hub_between_all_others)
{
    begin(26, 0);
    touch("HAHBHCHDHAHBHCHD");
    ck_assert_uint_eq(touch("HAHBHCHDHAHBHCHD"), 0);
}
END_TEST

START_TEST(two_programs_take_turns)
{
    begin(26, 0);
    touch("ABCABCABCXYZXYZABCABCABCXYZXYZ");
    ck_assert_uint_eq(touch("ABCABCABCXYZXYZABCABCABCXYZXYZ"), 0);
    ck_assert_uint_eq(ov_trace_period(&trace), 15);
}
END_TEST

static void request(unsigned steps)
{
    touch("EFG");
    for (unsigned i = 0; i < steps; i++) {
        touch("ABCDHI");
    }
    touch("VW");
}

START_TEST(nested_cycles_are_replayed)
{
    begin(26, 0);
    request(50);
    request(50);
    const uint64_t before = trace.jumps;
    request(50);
    request(50);
    ck_assert_uint_eq(trace.jumps, before);
    ck_assert_uint_eq(ov_trace_period(&trace), 305);
}
END_TEST

START_TEST(nest_of_another_length_costs_one_jump_a_change)
{
    begin(26, 0);
    request(50);
    request(50);
    uint64_t before = trace.jumps;
    request(30);
    ck_assert_uint_le(trace.jumps - before, 1);
    request(30);
    before = trace.jumps;
    request(50);
    ck_assert_uint_le(trace.jumps - before, 2);
}
END_TEST

START_TEST(extra_touch_costs_four_jumps)
{
    begin(26, 0);
    touch("ABCDEABCDEABCDE");
    uint64_t jumps = touch("ABXCDE");
    for (unsigned i = 0; i < 50; i++) {
        jumps += touch("ABCDE");
    }
    ck_assert_uint_ge(jumps, 2);
    ck_assert_uint_le(jumps, 4);
}
END_TEST

START_TEST(skipped_touches_cost_at_most_four_jumps)
{
    begin(26, 0);
    touch("ABCDEFGHABCDEFGHABCDEFGH");
    uint64_t jumps = touch("ABCFGH");
    for (unsigned i = 0; i < 50; i++) {
        jumps += touch("ABCDEFGH");
    }
    ck_assert_uint_ge(jumps, 1);
    ck_assert_uint_le(jumps, 4);
}
END_TEST

START_TEST(after_a_jump_the_future_is_that_of_the_new_place)
{
    begin(26, 0);
    touch("ABCDEFGHABCDEFGHAB");
    touch("F");
    ck_assert_str_eq(expected(3), "GHA");
}
END_TEST

START_TEST(unknown_unit_leaves_the_future_open)
{
    begin(26, 0);
    touch("ABCABC");
    touch("Q");
    ck_assert_str_eq(expected(2), "??");
    touch("A");
    ck_assert_str_eq(expected(2), "BC");
}
END_TEST

START_TEST(new_cycle_replaces_the_old_one)
{
    begin(26, 0);
    touch("ABCDABCDABCD");
    touch("DCBADCBADCBA");
    ck_assert_uint_eq(touch("DCBADCBADCBA"), 0);
}
END_TEST

START_TEST(history_may_wrap_for_ever)
{
    begin(26, 4);
    touch("ABCDEFGABCDEFG");
    for (unsigned i = 0; i < 10000; i++) {
        CHECK(touch("ABCDEFG") == 0);
    }
    ck_assert_str_eq(expected(8), "ABCDEFGA");
}
END_TEST

static uint64_t jumps_of_period(size_t period, unsigned log2_history)
{
    begin(period, log2_history);
    for (size_t i = 0; i < 3 * period; i++) {
        ov_trace_touch(&trace, (uint32_t)(i % period));
    }
    const uint64_t before = trace.jumps;
    for (size_t i = 0; i < 20 * period; i++) {
        ov_trace_touch(&trace, (uint32_t)(i % period));
    }
    return trace.jumps - before;
}

START_TEST(longest_period_fills_the_history)
{
    ck_assert_uint_eq(jumps_of_period(63, 6), 0);
    ov_trace_destroy(&trace);
    ck_assert_uint_eq(jumps_of_period(64, 6), 20 * 64);
    ck_assert_uint_eq(ov_trace_peek(&trace, 1), OV_TRACE_NONE);
}
END_TEST

START_TEST(automatic_history_holds_many_passes)
{
    ck_assert_uint_eq(jumps_of_period(5000, 0), 0);
    ck_assert_uint_ge(trace.mask + 1, 20 * 5000);
}
END_TEST

START_TEST(preloaded_cycle_is_expected_at_once)
{
    begin(26, 0);
    preload("ABCDE");
    ck_assert_str_eq(expected(7), "ABCDEAB");
    ck_assert_uint_eq(touch("ABCDEABCDE"), 0);
    ck_assert_uint_eq(trace.touches, 10);
}
END_TEST

START_TEST(preloaded_history_goes_on_where_it_stopped)
{
    begin(26, 0);
    preload("ABCDEABCDEABC");
    ck_assert_str_eq(expected(5), "DEABC");
    ck_assert_uint_eq(ov_trace_period(&trace), 5);
}
END_TEST

START_TEST(preloaded_cycle_that_ends_with_its_first_unit)
{
    begin(26, 0);
    preload("EABCE");
    ck_assert_str_eq(expected(5), "ABCEA");
    ck_assert_uint_eq(touch("EABCEEABCE"), 0);
}
END_TEST

START_TEST(preloaded_cycle_that_ends_with_a_unit_of_its_middle)
{
    begin(26, 0);
    preload("ABECDE");
    ck_assert_str_eq(expected(7), "ABECDEA");
    ck_assert_uint_eq(touch("ABECDEABECDE"), 0);
}
END_TEST

START_TEST(preload_longer_than_the_history_keeps_its_end)
{
    uint32_t seq[1000];

    begin(26, 4);
    for (size_t i = 0; i < 1000; i++) {
        seq[i] = (uint32_t)(i < 900 ? i % 3 : 10 + i % 5);
    }
    ov_trace_preload(&trace, seq, 1000);
    for (uint32_t i = 0; i < 5; i++) {
        ck_assert_uint_eq(ov_trace_peek(&trace, i + 1), 10 + i);
    }
    ck_assert_uint_eq(touch("A"), 1);
    ck_assert_uint_eq(ov_trace_peek(&trace, 1), OV_TRACE_NONE);
}
END_TEST

START_TEST(preload_and_reset_forget_what_was)
{
    begin(26, 0);
    touch("ABCABCABC");
    preload("XYZ");
    ck_assert_uint_eq(trace.touches + trace.jumps, 0);
    touch("XYZA");
    ck_assert_str_eq(expected(1), "?");
    ov_trace_reset(&trace);
    touch("XYZ");
    ck_assert_str_eq(expected(1), "?");
    ck_assert_uint_eq(trace.jumps, 3);
}
END_TEST

START_TEST(preload_of_nothing_and_of_one)
{
    begin(26, 0);
    preload("");
    ck_assert_uint_eq(ov_trace_period(&trace), 0);
    preload("AAAA");
    ck_assert_uint_eq(ov_trace_period(&trace), 0);
    ck_assert_int_eq(ov_trace_touch(&trace, 0), OV_TRACE_SAME);
    preload("AB");
    ck_assert_str_eq(expected(3), "ABA");
}
END_TEST

START_TEST(odd_sizes_are_put_right)
{
    begin(0, 0);
    ck_assert_uint_eq(ov_trace_peek(&trace, 1), OV_TRACE_NONE);
    ov_trace_destroy(&trace);
    ck_assert_ptr_null(trace.history);
    begin(2, 1);
    ck_assert_uint_eq(trace.mask, 15);
    touch("ABABAB");
    ck_assert_str_eq(expected(3), "ABA");
    ck_assert_uint_eq(ov_trace_peek(&trace, 0), OV_TRACE_NONE);
}
END_TEST

/* The rule in its plainest form: of the last 64 earlier touches of the same unit that are remembered, the one with the
 * longest common context of at most 4 touches, the latest of equals. */
struct model {
    uint32_t touch[20000];
    size_t count, here; /* here: index + 1, 0 unknown */
    size_t slots;
};

static uint32_t model_peek(const struct model *model, size_t ahead)
{
    if (model->here == 0) {
        return OV_TRACE_NONE;
    }
    const size_t period = model->count - model->here;
    return model->touch[model->here + (ahead - 1) % period];
}

static void model_touch(struct model *model, uint32_t unit)
{
    const bool right = model_peek(model, 1) == unit;
    const size_t newest = model->count;
    /* One slot fewer is remembered before the first wrap, where position 0 is taken. */
    const size_t oldest = newest + 1 >= model->slots ? newest + 1 - model->slots : 0;
    size_t best = 0, seen = 0;

    model->touch[model->count++] = unit;
    if (right) {
        model->here++;
        return;
    }
    model->here = 0;
    for (size_t i = newest; i-- > oldest && seen < 64;) {
        size_t length = 0;
        if (model->touch[i] != unit) {
            continue;
        }
        seen++;
        while (length < 4 && i >= oldest + length && model->touch[i - length] == model->touch[newest - length]) {
            length++;
        }
        if (length > best) {
            best = length;
            model->here = i + 1;
        }
    }
}

static void compare_with_model(uint32_t units, unsigned log2_history, unsigned touches)
{
    static struct model model;
    uint32_t phrase[4][12], last = OV_TRACE_NONE;
    size_t length[4];

    ov_trace_destroy(&trace);
    model = (struct model){.slots = (size_t)1 << log2_history};
    ck_assert(ov_trace_init(&trace, units, log2_history));
    for (unsigned p = 0; p < 4; p++) {
        length[p] = 1 + below(12);
        for (size_t i = 0; i < length[p]; i++) {
            phrase[p][i] = below(units);
        }
    }
    while (model.count + 20 < touches) {
        const unsigned p = below(4);
        for (size_t i = 0; i < length[p]; i++) {
            const uint32_t unit = below(30) ? phrase[p][i] : below(units);
            const uint32_t said = ov_trace_peek(&trace, 1);
            const enum ov_trace_step step = ov_trace_touch(&trace, unit);
            CHECK(step == (unit == last ? OV_TRACE_SAME : unit == said ? OV_TRACE_EXPECTED : OV_TRACE_JUMP));
            if (unit == last) {
                continue;
            }
            last = unit;
            model_touch(&model, unit);
            for (size_t ahead = 1; ahead < 25; ahead++) {
                CHECK(ov_trace_peek(&trace, ahead) == model_peek(&model, ahead));
            }
        }
    }
    CHECK(trace.touches == model.count);
    ov_trace_destroy(&trace);
}

START_TEST(agrees_with_a_slow_model)
{
    seed = 1;
    for (unsigned i = 0; i < 60; i++) {
        compare_with_model(2 + below(20), 4 + below(8), 1500);
    }
    compare_with_model(12, 12, 20000);
}
END_TEST

START_TEST(neighbours_in_the_future_differ)
{
    begin(6, 5);
    for (unsigned i = 0; i < 20000; i++) {
        const uint32_t unit = below(6);
        ov_trace_touch(&trace, unit);
        uint32_t before = unit;
        for (size_t ahead = 1; ahead < 40 && ov_trace_period(&trace) > 0; ahead++) {
            CHECK(ov_trace_peek(&trace, ahead) != before);
            before = ov_trace_peek(&trace, ahead);
        }
    }
}
END_TEST

Suite *trace_suite(void)
{
    Suite *suite = suite_create("trace");
    TCase *tc = tcase_create("trace");

    tcase_add_test(tc, knows_nothing_at_first);
    tcase_add_test(tc, repeated_touch_is_dropped);
    tcase_add_test(tc, cycle_is_known_after_one_pass);
    tcase_add_test(tc, steps_say_what_peek_said);
    tcase_add_test(tc, looks_ahead_beyond_the_period);
    tcase_add_test(tc, unit_used_twice_is_told_apart_by_context);
    tcase_add_test(tc, hub_between_all_others);
    tcase_add_test(tc, two_programs_take_turns);
    tcase_add_test(tc, nested_cycles_are_replayed);
    tcase_add_test(tc, nest_of_another_length_costs_one_jump_a_change);
    tcase_add_test(tc, extra_touch_costs_four_jumps);
    tcase_add_test(tc, skipped_touches_cost_at_most_four_jumps);
    tcase_add_test(tc, after_a_jump_the_future_is_that_of_the_new_place);
    tcase_add_test(tc, unknown_unit_leaves_the_future_open);
    tcase_add_test(tc, new_cycle_replaces_the_old_one);
    tcase_add_test(tc, history_may_wrap_for_ever);
    tcase_add_test(tc, longest_period_fills_the_history);
    tcase_add_test(tc, automatic_history_holds_many_passes);
    tcase_add_test(tc, preloaded_cycle_is_expected_at_once);
    tcase_add_test(tc, preloaded_history_goes_on_where_it_stopped);
    tcase_add_test(tc, preloaded_cycle_that_ends_with_its_first_unit);
    tcase_add_test(tc, preloaded_cycle_that_ends_with_a_unit_of_its_middle);
    tcase_add_test(tc, preload_longer_than_the_history_keeps_its_end);
    tcase_add_test(tc, preload_and_reset_forget_what_was);
    tcase_add_test(tc, preload_of_nothing_and_of_one);
    tcase_add_test(tc, odd_sizes_are_put_right);
    tcase_add_test(tc, agrees_with_a_slow_model);
    tcase_add_test(tc, neighbours_in_the_future_differ);
    suite_add_tcase(suite, tc);
    return suite;
}
