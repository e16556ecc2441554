/* Options: what values mean, what is refused and how, and that the table agrees with itself. */
#include "check_runner.h"
#include "runtime/options.h"
#include "runtime/value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *pairs[16][2]; /* the environment of a test, ended by NULL */

static const char *lookup(const char *variable)
{
    for (int i = 0; pairs[i][0]; i++) {
        if (strcmp(pairs[i][0], variable) == 0) {
            return pairs[i][1];
        }
    }
    return NULL;
}

static char error[2048];

static bool load(struct ov_options *options, const char *variable, const char *value)
{
    memset(pairs, 0, sizeof(pairs));
    pairs[0][0] = variable;
    pairs[0][1] = value;
    memset(error, 0, sizeof(error));
    return ov_options_load(options, lookup, error, sizeof(error));
}

static void collect(void *context, const char *text)
{
    strncat(context, text, 4000 - strlen(context));
    strncat(context, "\n", 4000 - strlen(context));
}

START_TEST(defaults)
{
    struct ov_options options;
    ck_assert(load(&options, NULL, NULL));
    ck_assert_int_eq(options.budget.kind, OV_AMOUNT_AUTO);
    ck_assert_uint_eq(options.gpu_reserve_bytes, (size_t)1 << 30);
    ck_assert_int_eq(options.ring.kind, OV_AMOUNT_AUTO);
    ck_assert_uint_eq(options.tiers, OV_OPT_TIER_RESIDENT | OV_OPT_TIER_STREAMED | OV_OPT_TIER_HOST);
    ck_assert_uint_eq(options.mode, OV_OPT_MODE_AUTO);
    ck_assert_uint_eq(options.devices, UINT64_MAX);
    ck_assert_uint_eq(options.discovery_cycles, 2);
    ck_assert_uint_eq(options.min_unit_bytes, (size_t)2 << 20);
    ck_assert(!options.summary && !options.verify);
    ck_assert_uint_eq(options.log, OV_OPT_LOG_WARN);
    ck_assert_str_eq(options.log_file, "");
    ck_assert(options.link_scale >= 1 && options.link_scale <= 1);
}
END_TEST

static const struct {
    const char *text;
    size_t bytes;
} sizes[] = {
    {"2097152", 2097152},       {"2M", 2097152},       {"3m", 3145728},     {"4MiB", 4194304},
    {"5 MB", 5242880},          {"1.5G", 1610612736},  {"0.5g", 536870912}, {"2048K", 2097152},
    {"2T", 2199023255552},      {"3000000b", 3000000}, {"1.0625M", 0},      {"2.000001M", 2097153},
    {"4294967296", 4294967296}, {".5G", 536870912},    {"6.G", 6442450944}, {"80gib", 85899345920},
};

START_TEST(sizes_are_understood)
{
    struct ov_options options;
    bool taken = load(&options, "OVERSHOT_BUDGET", sizes[_i].text);
    ck_assert_msg(taken == (sizes[_i].bytes != 0), "%s: %s", sizes[_i].text, error); /* 0: below the least, 2M */
    if (taken) {
        ck_assert_int_eq(options.budget.kind, OV_AMOUNT_BYTES);
        ck_assert_uint_eq(options.budget.bytes, sizes[_i].bytes);
    }
}
END_TEST

static const char *const bad[][2] = {
    {"BUDGET", "0"},
    {"BUDGET", "-5G"},
    {"BUDGET", "5X"},
    {"BUDGET", "G"},
    {"BUDGET", "5G5"},
    {"BUDGET", "0x10000000"},
    {"BUDGET", "1e9"},
    {"BUDGET", " 5G"},
    {"BUDGET", "5GiBB"},
    {"BUDGET", "0%"},
    {"BUDGET", "101%"},
    {"BUDGET", "%"},
    {"BUDGET", "50%%"},
    {"BUDGET", "inf"},
    {"BUDGET", "nan"},
    {"BUDGET", "18446744073709551616"},
    {"BUDGET", "99999999999T"},
    {"BUDGET", "2000T"},
    {"BUDGET", "1,5G"},
    {"BUDGET", "autos"},
    {"GPU_RESERVE", "auto"},
    {"GPU_RESERVE", "10%"},
    {"RING", "50%"},
    {"RING", "1M"},
    {"TIERS", "resident,"},
    {"TIERS", "disk"},
    {"TIERS", ","},
    {"MODE", "on"},
    {"MODE", "auto,off"},
    {"DEVICES", "64"},
    {"DEVICES", "1-"},
    {"DEVICES", "3-1"},
    {"DEVICES", "0,,1"},
    {"DEVICES", "gpu0"},
    {"DEVICES", "1-2-3"},
    {"DISCOVERY_CYCLES", "0"},
    {"DISCOVERY_CYCLES", "1.5"},
    {"DISCOVERY_CYCLES", "1001"},
    {"VERIFY", "2"},
    {"SUMMARY", "maybe"},
    {"LINK_SCALE", "0"},
    {"LINK_SCALE", "1000"},
    {"LINK_SCALE", "-1"},
    {"LINK_SCALE", "1.0x"},
    {"LOG", "loud"},
    {"MIN_UNIT", "1M"},
};

START_TEST(bad_values_are_refused_and_named)
{
    struct ov_options options, before;
    char variable[64];
    memset(&options, 0x5a, sizeof(options));
    before = options;
    snprintf(variable, sizeof(variable), "OVERSHOT_%s", bad[_i][0]);
    ck_assert_msg(!load(&options, variable, bad[_i][1]), "%s=%s was accepted", variable, bad[_i][1]);
    ck_assert_mem_eq(&options, &before, sizeof(options));
    ck_assert_ptr_nonnull(strstr(error, variable));
    ck_assert_ptr_nonnull(strstr(error, bad[_i][1]));
    ck_assert_ptr_nonnull(strstr(error, "it takes"));
    ck_assert_ptr_null(strchr(error, '\n'));
}
END_TEST

START_TEST(all_bad_values_are_reported_together)
{
    struct ov_options options;
    ck_assert(load(&options, NULL, NULL));
    pairs[0][0] = "OVERSHOT_BUDGET", pairs[0][1] = "many";
    pairs[1][0] = "OVERSHOT_MODE", pairs[1][1] = "fast";
    pairs[2][0] = "OVERSHOT_SUMMARY", pairs[2][1] = "1";
    ck_assert(!ov_options_load(&options, lookup, error, sizeof(error)));
    const char *newline = strchr(error, '\n');
    ck_assert_ptr_nonnull(newline);
    ck_assert_ptr_null(strchr(newline + 1, '\n'));
    ck_assert_ptr_nonnull(strstr(error, "OVERSHOT_BUDGET=many"));
    ck_assert_ptr_nonnull(strstr(newline, "OVERSHOT_MODE=fast"));
}
END_TEST

START_TEST(messages_are_cut_at_their_room)
{
    struct ov_options options;
    char small[24];
    memset(small, 'x', sizeof(small));
    ck_assert(load(&options, NULL, NULL));
    pairs[0][0] = "OVERSHOT_BUDGET", pairs[0][1] = "many";
    ck_assert(!ov_options_load(&options, lookup, small, 16));
    ck_assert_str_eq(small, "OVERSHOT_BUDGET");
    ck_assert_int_eq(small[16], 'x');
    ck_assert(!ov_options_load(&options, lookup, NULL, 0));
}
END_TEST

START_TEST(empty_means_unset)
{
    struct ov_options options;
    ck_assert(load(&options, "OVERSHOT_GPU_RESERVE", ""));
    ck_assert_uint_eq(options.gpu_reserve_bytes, (size_t)1 << 30);
}
END_TEST

START_TEST(percentages_resolve)
{
    struct ov_options options;
    ck_assert(load(&options, "OVERSHOT_BUDGET", "37.5%"));
    ck_assert_int_eq(options.budget.kind, OV_AMOUNT_PERCENT);
    ck_assert_uint_eq(ov_amount_resolve(&options.budget, 800, 7), 300);
    ck_assert(load(&options, "OVERSHOT_BUDGET", "Auto"));
    ck_assert_uint_eq(ov_amount_resolve(&options.budget, 800, 7), 7);
    ck_assert(load(&options, "OVERSHOT_BUDGET", "3M"));
    ck_assert_uint_eq(ov_amount_resolve(&options.budget, 800, 7), 3 << 20);
}
END_TEST

START_TEST(words_lists_and_switches)
{
    struct ov_options options;
    ck_assert(load(&options, "OVERSHOT_TIERS", "host, Streamed"));
    ck_assert_uint_eq(options.tiers, OV_OPT_TIER_STREAMED | OV_OPT_TIER_HOST);
    ck_assert(load(&options, "OVERSHOT_MODE", "OFF"));
    ck_assert_uint_eq(options.mode, OV_OPT_MODE_OFF);
    ck_assert(load(&options, "OVERSHOT_DEVICES", "0,2-4,63"));
    ck_assert_uint_eq(options.devices, 1u | 4u | 8u | 16u | (uint64_t)1 << 63);
    ck_assert(load(&options, "OVERSHOT_VERIFY", "yes"));
    ck_assert(options.verify);
    ck_assert(load(&options, "OVERSHOT_VERIFY", "Off"));
    ck_assert(!options.verify);
    ck_assert(load(&options, "OVERSHOT_LOG", "debug"));
    ck_assert_uint_eq(options.log, OV_OPT_LOG_DEBUG);
}
END_TEST

START_TEST(words_or_sizes)
{
    struct ov_options options;
    ck_assert(load(&options, "OVERSHOT_REPORT", "Budget"));
    ck_assert_uint_eq(options.report.word, OV_OPT_REPORT_BUDGET);
    ck_assert(load(&options, "OVERSHOT_REPORT", "80G"));
    ck_assert_uint_eq(options.report.word, OV_SIZED_BYTES);
    ck_assert_uint_eq(options.report.bytes, (size_t)80 << 30);
    ck_assert(!load(&options, "OVERSHOT_REPORT", "1M"));
    ck_assert(!load(&options, "OVERSHOT_REPORT", "half"));
    ck_assert_ptr_nonnull(strstr(error, "physical, budget"));
}
END_TEST

START_TEST(ranges_of_sizes)
{
    struct ov_options options;
    ck_assert(load(&options, "OVERSHOT_EXCLUDE", "64M, 1G-2G"));
    ck_assert_uint_eq(options.exclude.count, 2);
    ck_assert(ov_sizes_hold(&options.exclude, (size_t)64 << 20));
    ck_assert(!ov_sizes_hold(&options.exclude, ((size_t)64 << 20) + 1));
    ck_assert(ov_sizes_hold(&options.exclude, (size_t)1 << 30));
    ck_assert(ov_sizes_hold(&options.exclude, (size_t)2 << 30));
    ck_assert(!ov_sizes_hold(&options.exclude, ((size_t)2 << 30) + 1));
    ck_assert(load(&options, "OVERSHOT_EXCLUDE", NULL));
    ck_assert(!ov_sizes_hold(&options.exclude, 1));
    ck_assert(!load(&options, "OVERSHOT_EXCLUDE", "2G-1G"));
    ck_assert(!load(&options, "OVERSHOT_EXCLUDE", "1G-"));
    ck_assert(!load(&options, "OVERSHOT_EXCLUDE", "1G,,2G"));
    ck_assert(!load(&options, "OVERSHOT_EXCLUDE", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"));
    ck_assert(load(&options, "OVERSHOT_EXCLUDE", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16"));
}
END_TEST

START_TEST(paths_have_a_limit)
{
    struct ov_options options;
    char *path = malloc(OV_PATH_BYTES + 1);
    memset(path, 'p', OV_PATH_BYTES);
    path[OV_PATH_BYTES] = '\0';
    ck_assert(!load(&options, "OVERSHOT_LOG_FILE", path));
    path[OV_PATH_BYTES - 1] = '\0';
    ck_assert(load(&options, "OVERSHOT_LOG_FILE", path));
    ck_assert_str_eq(options.log_file, path);
    free(path);
}
END_TEST

/* Printing and reading back gives the same options. */
START_TEST(printed_options_read_back)
{
    static const char *const values[][2] = {
        {"OVERSHOT_BUDGET", "12345678"},     {"OVERSHOT_GPU_RESERVE", "3.5G"}, {"OVERSHOT_RING", "64M"},
        {"OVERSHOT_TIERS", "streamed,host"}, {"OVERSHOT_MODE", "resident"},    {"OVERSHOT_DEVICES", "1,3"},
        {"OVERSHOT_DISCOVERY_CYCLES", "7"},  {"OVERSHOT_VERIFY", "1"},         {"OVERSHOT_LINK_SCALE", "0.75"},
        {"OVERSHOT_LOG_FILE", "/tmp/a b"},   {"OVERSHOT_HOST_LIMIT", "5T"},    {"OVERSHOT_REPORT", "48G"},
        {"OVERSHOT_EXCLUDE", "3K,1M-2M"},
    };
    struct ov_options options, again;
    char printed[4096] = "";
    memset(pairs, 0, sizeof(pairs));
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        pairs[i][0] = values[i][0];
        pairs[i][1] = values[i][1];
    }
    ck_assert_msg(ov_options_load(&options, lookup, error, sizeof(error)), "%s", error);
    ov_options_print(&options, collect, printed);
    ck_assert_ptr_nonnull(strstr(printed, "OVERSHOT_GPU_RESERVE=3584M\n"));
    ck_assert_ptr_nonnull(strstr(printed, "OVERSHOT_BUDGET=12345678\n"));

    for (char *line = strtok(printed, "\n"); line; line = strtok(NULL, "\n")) {
        char *value = strchr(line, '=');
        *value++ = '\0';
        ck_assert_int_eq(setenv(line, value, 1), 0);
    }
    ck_assert_msg(ov_options_load(&again, (const char *(*)(const char *))getenv, error, sizeof(error)), "%s", error);
    char first[4096] = "", second[4096] = "";
    ov_options_print(&options, collect, first);
    ov_options_print(&again, collect, second);
    ck_assert_str_eq(first, second);
    ck_assert_uint_eq(again.budget.bytes, 12345678);
    ck_assert_uint_eq(again.devices, 10);
}
END_TEST

START_TEST(misspelt_variables_are_reported)
{
    char budget[] = "OVERSHOT_BUGDET=5G", known[] = "OVERSHOT_RING=5G", other[] = "OTHER_BUDGET=1";
    char alien[] = "OVERSHOT_ZZZZQQQQ=1", lower[] = "overshot_budget=1", longer[300] = "OVERSHOT_";
    memset(longer + 9, 'L', 280);
    char *environment[] = {budget, known, other, alien, lower, longer, NULL};
    char lines[4096] = "";
    ck_assert_uint_eq(ov_options_unknown(environment, collect, lines), 3);
    ck_assert_ptr_nonnull(
        strstr(lines, "OVERSHOT_BUGDET is no option and is ignored; did you mean OVERSHOT_BUDGET?\n"));
    ck_assert_ptr_nonnull(strstr(lines, "OVERSHOT_ZZZZQQQQ is no option and is ignored\n"));
    ck_assert_ptr_null(strstr(lines, "OVERSHOT_RING"));
    ck_assert_uint_eq(ov_options_unknown(NULL, collect, lines), 0);
}
END_TEST

START_TEST(every_default_is_valid)
{
    for (size_t i = 0; i < OV_OPTION_COUNT; i++) {
        ck_assert_msg(ov_option_valid(&ov_option_table[i], ov_option_table[i].default_text), "%s",
                      ov_option_table[i].name);
    }
}
END_TEST

START_TEST(what_is_accepted_can_be_said)
{
    char text[256];
    ov_option_accepts(&ov_option_table[0], text, sizeof(text));
    ck_assert_str_eq(ov_option_table[0].name, "BUDGET");
    ck_assert_str_eq(
        text, "a size (bytes, or a number and K, M, G or T) of at least 2M, a percentage up to 100%, or \"auto\"");
    for (size_t i = 0; i < OV_OPTION_COUNT; i++) {
        ov_option_accepts(&ov_option_table[i], text, sizeof(text));
        ck_assert_uint_gt(strlen(text), 5);
        ck_assert_uint_lt(strlen(text), sizeof(text) - 1);
    }
}
END_TEST

START_TEST(values_refuse_leave_output_alone)
{
    double real = 7;
    size_t bytes = 7;
    bool flag = true;
    uint64_t devices = 7;
    ck_assert(!ov_value_real("1.5.", &real) && real > 6.9);
    ck_assert(!ov_value_bytes("12q", &bytes) && bytes == 7);
    ck_assert(!ov_value_flag("", &flag) && flag);
    ck_assert(!ov_value_devices("1,x", &devices) && devices == 7);
    ck_assert(ov_value_bytes("16383P", &bytes) == false);
    ck_assert(ov_value_bytes("18446744073709551614", &bytes) && bytes == SIZE_MAX - 1);
}
END_TEST

Suite *options_suite(void);
Suite *options_suite(void)
{
    Suite *suite = suite_create("options");
    TCase *tc = tcase_create("options");
    tcase_add_test(tc, defaults);
    tcase_add_loop_test(tc, sizes_are_understood, 0, sizeof(sizes) / sizeof(sizes[0]));
    tcase_add_loop_test(tc, bad_values_are_refused_and_named, 0, sizeof(bad) / sizeof(bad[0]));
    tcase_add_test(tc, all_bad_values_are_reported_together);
    tcase_add_test(tc, messages_are_cut_at_their_room);
    tcase_add_test(tc, empty_means_unset);
    tcase_add_test(tc, percentages_resolve);
    tcase_add_test(tc, words_lists_and_switches);
    tcase_add_test(tc, words_or_sizes);
    tcase_add_test(tc, ranges_of_sizes);
    tcase_add_test(tc, paths_have_a_limit);
    tcase_add_test(tc, printed_options_read_back);
    tcase_add_test(tc, misspelt_variables_are_reported);
    tcase_add_test(tc, every_default_is_valid);
    tcase_add_test(tc, what_is_accepted_can_be_said);
    tcase_add_test(tc, values_refuse_leave_output_alone);
    suite_add_tcase(suite, tc);
    return suite;
}
