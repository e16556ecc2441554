/* How much host memory may be taken: what the machine has, less what control groups of either version leave. */
#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "hostlimit.h"

#define MIB ((size_t)1 << 20)

static char root[256], proc[300], groups[300];

/* Makes the file and the folders above it, below `root`. */
static void put(const char *name, const char *text)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *slash = strchr(path + strlen(root) + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        (void)mkdir(path, 0700);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

static void machine(void)
{
    snprintf(root, sizeof root, "/tmp/overshot_limit_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    snprintf(proc, sizeof proc, "%s/proc", root);
    snprintf(groups, sizeof groups, "%s/groups", root);
    put("proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:   8388608 kB\n");
    put("proc/self/cgroup", "");
}

static void gone(void)
{
    char command[300];
    snprintf(command, sizeof command, "rm -rf %s", root);
    ck_assert_int_eq(system(command), 0);
}

static size_t left(size_t reserve_bytes)
{
    return ov_host_left_in(proc, groups, reserve_bytes, NULL);
}

START_TEST(without_groups_it_is_what_is_available)
{
    const char *limit;
    ck_assert_uint_eq(left(0), 8192 * MIB);
    ck_assert_uint_eq(left(512 * MIB), 7680 * MIB);
    (void)ov_host_left_in(proc, groups, 0, &limit);
    ck_assert_str_eq(limit, "the machine's available memory");
}
END_TEST

START_TEST(of_little_at_most_half_is_left)
{
    ck_assert_uint_eq(left(5000 * MIB), 4096 * MIB);
}
END_TEST

START_TEST(version_2_counts_its_own_group)
{
    const char *limit;
    put("proc/self/cgroup", "0::/job/step\n");
    put("groups/job/step/memory.max", "2147483648\n");
    put("groups/job/step/memory.current", "1073741824\n");
    ck_assert_uint_eq(ov_host_left_in(proc, groups, 0, &limit), 1024 * MIB);
    ck_assert_str_eq(limit, "the control group's memory.max");
}
END_TEST

START_TEST(version_2_counts_all_groups_above)
{
    put("proc/self/cgroup", "0::/job/step\n");
    put("groups/job/step/memory.max", "max\n");
    put("groups/job/memory.max", "1073741824\n");
    put("groups/job/memory.current", "268435456\n");
    ck_assert_uint_eq(left(0), 768 * MIB);
}
END_TEST

START_TEST(version_2_counts_high)
{
    put("proc/self/cgroup", "0::/job\n");
    put("groups/job/memory.max", "2147483648\n");
    put("groups/job/memory.high", "1073741824\n");
    put("groups/job/memory.current", "0\n");
    ck_assert_uint_eq(left(0), 1024 * MIB);
}
END_TEST

START_TEST(a_container_sees_its_group_at_the_root)
{
    put("proc/self/cgroup", "0::/\n");
    put("groups/memory.max", "1073741824\n");
    put("groups/memory.current", "0\n");
    ck_assert_uint_eq(left(0), 1024 * MIB);
    put("proc/self/cgroup", "0::/outside/that/is/not/visible\n");
    ck_assert_uint_eq(left(0), 1024 * MIB);
}
END_TEST

START_TEST(files_in_memory_make_room)
{
    put("proc/self/cgroup", "0::/job\n");
    put("groups/job/memory.max", "1073741824\n");
    put("groups/job/memory.current", "1073741824\n");
    ck_assert_uint_eq(left(0), 0);
    put("groups/job/memory.stat", "anon 1\nfile 2\ninactive_file 536870912\nactive_file 3\n");
    ck_assert_uint_eq(left(0), 512 * MIB);
}
END_TEST

START_TEST(version_1_has_its_own_files)
{
    const char *limit;
    put("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/job\n1:name=systemd:/y\n");
    put("groups/memory/job/memory.limit_in_bytes", "2147483648\n");
    put("groups/memory/job/memory.usage_in_bytes", "2147483647\n");
    put("groups/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 1073741823\n");
    ck_assert_uint_eq(ov_host_left_in(proc, groups, 0, &limit), 1024 * MIB);
    ck_assert_str_eq(limit, "the control group's memory.limit_in_bytes");
}
END_TEST

START_TEST(version_1_says_unlimited_by_a_large_number)
{
    put("proc/self/cgroup", "4:hugetlb,memory:/job\n");
    put("groups/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
    put("groups/memory/job/memory.usage_in_bytes", "1\n");
    ck_assert_uint_eq(left(0), 8192 * MIB);
}
END_TEST

START_TEST(nothing_to_read_is_no_limit)
{
    ck_assert_uint_eq(ov_host_left_in("/nonexistent", "/nonexistent", MIB, NULL), SIZE_MAX);
}
END_TEST

START_TEST(odd_text_does_no_harm)
{
    put("proc/self/cgroup", "0\n::\n:\n4:memory\nmemory:/job\n0::");
    put("groups/memory.max", "no number\n");
    ck_assert_uint_eq(left(0), 8192 * MIB);
}
END_TEST

Suite *hostlimit_suite(void)
{
    Suite *suite = suite_create("hostlimit");
    TCase *tc = tcase_create("hostlimit");
    tcase_add_checked_fixture(tc, machine, gone);
    tcase_add_test(tc, without_groups_it_is_what_is_available);
    tcase_add_test(tc, of_little_at_most_half_is_left);
    tcase_add_test(tc, version_2_counts_its_own_group);
    tcase_add_test(tc, version_2_counts_all_groups_above);
    tcase_add_test(tc, version_2_counts_high);
    tcase_add_test(tc, a_container_sees_its_group_at_the_root);
    tcase_add_test(tc, files_in_memory_make_room);
    tcase_add_test(tc, version_1_has_its_own_files);
    tcase_add_test(tc, version_1_says_unlimited_by_a_large_number);
    tcase_add_test(tc, nothing_to_read_is_no_limit);
    tcase_add_test(tc, odd_text_does_no_harm);
    suite_add_tcase(suite, tc);
    return suite;
}
