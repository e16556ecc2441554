/* Profiles as text: what is written is read back, what is no profile is refused by name. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/json.h"
#include "runtime/profile.h"

static char error[OV_PROFILE_ERROR_ROOM];

static const char whole[] =
    "{\"schema\": \"overshot profile\", \"version\": 1, \"program\": {\"name\": \"p\", \"key\": "
    "\"0123456789abcdef0011223344556677\"},\n"
    " \"device\": {\"name\": \"GPU\", \"bytes\": 1000000000, \"driver\": 13000}, \"budget\": 41943040, \"host_limit\": "
    "0,\n"
    " \"link\": [[2097152, 51], [16777216, 53.8]], \"unknown\": {\"later\": [1, 2, {}]},\n"
    " \"weights\": [{\"name\": \"a \\\"b\\\" \\u00e9\", \"bytes\": 8388608, \"sparse\": true, \"may\": [\"resident\", "
    "\"host\"]},\n  {\"bytes\": 3000000, \"hash\": \"00000000000000010000000000000002\", \"allocation\": 7, "
    "\"offset\": 512}],\n"
    " \"launches\": [[0, 1]],\n"
    " \"cycles\": [{\"touches\": [0, 1]}, {\"name\": \"again\", \"repeats\": 12, \"touches\": [1, 0, 1]}]}";

static void check_whole(const struct ov_profile *profile)
{
    ck_assert_str_eq(profile->program, "p");
    ck_assert_uint_eq(profile->key[0], 0x0123456789abcdefu);
    ck_assert_uint_eq(profile->key[1], 0x0011223344556677u);
    ck_assert_uint_eq(profile->driver, 13000);
    ck_assert_uint_eq(profile->budget_bytes, 41943040);
    ck_assert_uint_eq(profile->rate_count, 2);
    ck_assert(profile->rate[1].gb_per_s == 53.8);
    ck_assert_uint_eq(profile->weight_count, 2);
    ck_assert_str_eq(profile->weight[0].name, "a \"b\" \xc3\xa9");
    ck_assert(profile->weight[0].sparse && !profile->weight[1].sparse);
    ck_assert_uint_eq(profile->weight[0].may, OV_TIER_BIT(OV_TIER_RESIDENT) | OV_TIER_BIT(OV_TIER_HOST));
    ck_assert_uint_eq(profile->weight[1].may, OV_TIERS_ALL);
    ck_assert_uint_eq(profile->weight[1].hash[1], 2);
    ck_assert_uint_eq(profile->weight[1].offset, 512);
    ck_assert_uint_eq(profile->cycle_count, 2);
    ck_assert_uint_eq(profile->cycle[0].repeats, 1);
    ck_assert_uint_eq(profile->cycle[1].repeats, 12);
    ck_assert_uint_eq(profile->touch_count, 5);
    ck_assert_uint_eq(profile->touch[2], 1);
    ck_assert_ptr_null(profile->compute_s);
    ck_assert_uint_eq(profile->group_count, 1);
}

START_TEST(a_profile_is_read)
{
    struct ov_profile profile;
    ck_assert_msg(ov_profile_read(whole, strlen(whole), &profile, error), "%s", error);
    check_whole(&profile);
    ov_profile_free(&profile);
}
END_TEST

START_TEST(what_is_written_is_read_back)
{
    struct ov_profile profile, again;
    double compute_s[5] = {1e-6, 0.25, 3.5e-5, 0, 1e-3}, stretch[5] = {0, 0.5, 1, 0, 0.125};
    ck_assert(ov_profile_read(whole, strlen(whole), &profile, error));
    profile.compute_s = compute_s;
    profile.stretch = stretch;
    char *text = ov_profile_write(&profile);
    ck_assert_ptr_nonnull(text);
    ck_assert_msg(ov_profile_read(text, strlen(text), &again, error), "%s in %s", error, text);
    for (int i = 0; i < 5; i++) {
        ck_assert_double_eq_tol(again.compute_s[i], compute_s[i], 1e-12);
        ck_assert_double_eq_tol(again.stretch[i], stretch[i], 1e-12);
    }
    free(again.compute_s);
    again.compute_s = profile.compute_s = profile.stretch = NULL;
    check_whole(&again);
    free(text);
    ov_profile_free(&profile);
    ov_profile_free(&again);
}
END_TEST

/* What only the run time asks for. */
START_TEST(what_a_next_start_needs_is_kept)
{
    static const char text[] =
        "{\"schema\": \"overshot profile\", \"version\": 1, \"weights\": [{\"bytes\": 4194304, \"hash\": "
        "\"00000000000000010000000000000002\", \"allocation\": 7, \"offset\": 512, \"allocation_bytes\": 8388608, "
        "\"span\": 5000000, \"filled\": true, \"sparse\": true, \"share\": 0.125, \"reads\": 3}],\n"
        " \"unused\": [[9, 1048576]], \"cycles\": [{\"touches\": [0]}], \"kernels\": [{\"name\": \"k\", \"code\": "
        "\"000000000000000a000000000000000b\", \"slots\": \"r-w\", \"watched\": true, \"output\": true}, "
        "{\"slots\": \"\", \"emits\": true, \"unseen\": true}]}";
    struct ov_profile profile, again;
    ck_assert_msg(ov_profile_read(text, strlen(text), &profile, error), "%s", error);
    char *written = ov_profile_write(&profile);
    ck_assert_ptr_nonnull(written);
    ck_assert_msg(ov_profile_read(written, strlen(written), &again, error), "%s in %s", error, written);
    ck_assert_uint_eq(again.version, 1);
    ck_assert_uint_eq(again.weight[0].allocation_bytes, 8388608);
    ck_assert_uint_eq(again.weight[0].span, 5000000);
    ck_assert(again.weight[0].filled && again.weight[0].share == 0.125 && again.weight[0].reads == 3);
    ck_assert_uint_eq(again.unused_count, 1);
    ck_assert(again.unused[0].allocation == 9 && again.unused[0].bytes == 1048576);
    ck_assert_uint_eq(again.kernel_count, 2);
    ck_assert_str_eq(again.kernel[0].name, "k");
    ck_assert_str_eq(again.kernel[0].slots, "r-w");
    ck_assert(again.kernel[0].code[0] == 10 && again.kernel[0].code[1] == 11);
    ck_assert(again.kernel[0].watched && again.kernel[0].output && !again.kernel[0].emits && !again.kernel[0].unseen);
    ck_assert(again.kernel[1].emits && again.kernel[1].unseen && again.kernel[1].code[0] == 0);
    free(written);
    ov_profile_free(&profile);
    ov_profile_free(&again);
}
END_TEST

/* Who is told of a refusal wants to know whether it was damage. */
START_TEST(the_version_of_a_refused_profile_is_known)
{
    struct ov_profile profile;
    const char later[] = "{\"schema\": \"overshot profile\", \"version\": 7}";
    ck_assert(!ov_profile_read(later, strlen(later), &profile, error));
    ck_assert_uint_eq(profile.version, 7);
    ck_assert(!ov_profile_read("{", 1, &profile, error));
    ck_assert_uint_eq(profile.version, 0);
}
END_TEST

START_TEST(the_planner_takes_a_profile)
{
    struct ov_profile profile;
    struct ov_profile_input input;
    ck_assert(ov_profile_read(whole, strlen(whole), &profile, error));
    ck_assert(ov_profile_plan_input(&profile, &input));
    ck_assert_uint_eq(input.input.budget_pages, 20);
    ck_assert_uint_eq(input.unit[0].pages, 4);
    ck_assert_uint_eq(input.unit[1].pages, 2); /* of 2 MiB, whole */
    ck_assert_uint_eq(input.part[1].length, 3);
    ck_assert_double_eq_tol(ov_plan_copy_time(&input.input, 8), 16777216 / 53.8e9, 1e-12);
    ov_profile_free_input(&input);
    ov_profile_free(&profile);
}
END_TEST

/* The text with `from` replaced; what is said has to name `about`. */
static const struct {
    const char *from, *to, *about;
} damage[] = {
    {"overshot profile", "overshot plan", "schema"},
    {"\"version\": 1", "\"version\": 2", "version 2"},
    {"0123456789abcdef", "0123456789abcdeg", "key"},
    {"\"bytes\": 8388608", "\"bytes\": -1", "weight 0"},
    {"\"bytes\": 8388608", "\"bytes\": 0", "weight 0"},
    {"\"bytes\": 3000000", "\"bites\": 3000000", "weight 1"},
    {"\"host\"]", "\"hast\"]", "weight 0"},
    {"\"weights\": [", "\"weight\": [", "weights"},
    {"[0, 1]]", "[0, 2]]", "launches"},
    {"[1, 0, 1]", "[1, 0, 2]", "touches"},
    {"[1, 0, 1]", "[1, 0.5, 1]", "touches"},
    {"[1, 0, 1]", "[]", "touches"},
    {"\"repeats\": 12", "\"repeats\": 0", "repeats"},
    {"\"cycles\": [", "\"cycle\": [", "cycles"},
    {"{\"touches\": [0, 1]}", "{\"touches\": [0, 1], \"compute_us\": [1, 2]}", "compute_us"},
    {"[2097152, 51]", "[2097152, 0]", "link"},
    {"[2097152, 51]", "[99999999, 51]", "link"},
    {"\"host_limit\": 0", "\"host_limit\": \"0\"", "host_limit"},
    {"\"host_limit\": 0", "\"host_limit\": 0,,", "line 2"},
    {"]}]}", "]}]", "line 7"},
};

START_TEST(damage_is_named)
{
    char text[2048];
    struct ov_profile profile;
    const char *at = strstr(whole, damage[_i].from);
    ck_assert_ptr_nonnull(at);
    snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - whole), whole, damage[_i].to, at + strlen(damage[_i].from));
    ck_assert(!ov_profile_read(text, strlen(text), &profile, error));
    ck_assert_msg(strstr(error, damage[_i].about) != NULL, "%s", error);
    ck_assert_ptr_null(profile.weight);
}
END_TEST

START_TEST(cut_short_anywhere)
{
    struct ov_profile profile;
    for (size_t length = 0; length < strlen(whole); length++) {
        ck_assert_msg(!ov_profile_read(whole, length, &profile, error), "%zu", length);
        ck_assert_uint_gt(strlen(error), 0);
    }
}
END_TEST

/* No byte of it, whatever it becomes, makes the reader go astray (sanitizers watch). */
START_TEST(any_byte_changed)
{
    char text[sizeof(whole)];
    struct ov_profile profile;
    for (size_t at = 0; at + 1 < sizeof(whole); at++) {
        for (unsigned byte = 0; byte < 256; byte += 7) {
            memcpy(text, whole, sizeof(whole));
            text[at] = (char)byte;
            if (ov_profile_read(text, sizeof(whole) - 1, &profile, error)) {
                ov_profile_free(&profile);
            }
        }
    }
}
END_TEST

START_TEST(files_that_cannot_be_read)
{
    struct ov_profile profile;
    ck_assert(!ov_profile_load("/nonexistent/profile.json", &profile, error));
    ck_assert_msg(strstr(error, "No such file") != NULL, "%s", error);
    ck_assert(!ov_profile_load("/", &profile, error));
    ck_assert_msg(strstr(error, "directory") != NULL, "%s", error);
}
END_TEST

static double value_of(const char *text)
{
    struct ov_json_document document;
    const char *message;
    unsigned line;
    double value = -1;
    if (ov_json_read(text, strlen(text), &document, &line, &message)) {
        value = document.node[0].type == OV_JSON_NUMBER ? document.node[0].number : -2;
        ov_json_free(&document);
    }
    return value;
}

START_TEST(numbers)
{
    ck_assert(value_of("0") == 0);
    ck_assert(value_of("12345678901") == 12345678901);
    ck_assert_double_eq_tol(value_of(" 1.5e3 "), 1500, 1e-9);
    ck_assert_double_eq_tol(value_of("2.5E-3"), 0.0025, 1e-15);
    ck_assert(value_of("1e400") == -1);
    ck_assert(value_of("1e99999999999") == -1);
    ck_assert(value_of(".") == -1);
    ck_assert(value_of("1e") == -1);
    ck_assert(value_of("1 2") == -1);
    ck_assert(value_of("nan") == -1);
    ck_assert(value_of("null") == -2);
    ck_assert(value_of("\"a") == -1);
    ck_assert(value_of("\"\\ud800\"") == -1);
    ck_assert(value_of("") == -1);
}
END_TEST

START_TEST(nesting_ends)
{
    char text[201] = {0};
    memset(text, '[', 100);
    memset(text + 100, ']', 100);
    ck_assert(value_of(text) == -1);
}
END_TEST

Suite *profile_suite(void)
{
    Suite *suite = suite_create("profile");
    TCase *tc = tcase_create("profile");

    tcase_add_test(tc, a_profile_is_read);
    tcase_add_test(tc, what_is_written_is_read_back);
    tcase_add_test(tc, what_a_next_start_needs_is_kept);
    tcase_add_test(tc, the_version_of_a_refused_profile_is_known);
    tcase_add_test(tc, the_planner_takes_a_profile);
    tcase_add_loop_test(tc, damage_is_named, 0, sizeof(damage) / sizeof(damage[0]));
    tcase_add_test(tc, cut_short_anywhere);
    tcase_add_test(tc, any_byte_changed);
    tcase_add_test(tc, files_that_cannot_be_read);
    tcase_add_test(tc, numbers);
    tcase_add_test(tc, nesting_ends);
    suite_add_tcase(suite, tc);
    return suite;
}
