/* Fresh memory is touched by a team of threads, range by range; and the line that tells how far it is. */
#include <check.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "populate.h"
#include "progress.h"

#define MIB ((size_t)1 << 20)

static char *fresh(size_t bytes)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ck_assert_ptr_ne(memory, MAP_FAILED);
    return memory;
}

static size_t resident_pages(char *memory, size_t bytes)
{
    static unsigned char in[64 * MIB / 4096];
    size_t pages = 0;
    ck_assert_int_eq(mincore(memory, bytes, in), 0);
    for (size_t i = 0; i < bytes / 4096; i++) {
        pages += in[i] & 1;
    }
    return pages;
}

/* Ranges that are no multiple of a slice, one empty. */
static void populate(unsigned threads)
{
    const size_t sizes[] = {20 * MIB + 4096, 0, 2 * MIB, 8 * MIB, 9 * MIB};
    struct ov_populate_range range[5];
    for (int i = 0; i < 5; i++) {
        range[i] = (struct ov_populate_range){sizes[i] > 0 ? fresh(sizes[i]) : NULL, sizes[i]};
    }
    struct ov_populate *team = ov_populate_start(range, 5, threads, 0);
    ck_assert_ptr_nonnull(team);
    for (size_t i = 0; i < 5; i++) {
        ck_assert(ov_populate_wait(team, i));
        ck_assert(sizes[i] == 0 || resident_pages(range[i].begin, sizes[i]) == sizes[i] / 4096);
    }
    ov_populate_end(team);
    for (int i = 0; i < 5; i++) {
        if (sizes[i] > 0) {
            munmap(range[i].begin, sizes[i]);
        }
    }
}

START_TEST(all_ranges_are_there_when_they_were_waited_for)
{
    populate(0);
    populate(1);
    populate(5);
    populate(1000);
}
END_TEST

START_TEST(memory_that_cannot_be_had_is_told)
{
    /* An address that no program can have: the system refuses as when it is out of memory. */
    struct ov_populate_range range[2] = {{fresh(MIB), MIB}, {(char *)((uintptr_t)1 << 62), MIB}};
    struct ov_populate *team = ov_populate_start(range, 2, 2, -1);
    ck_assert(ov_populate_wait(team, 0));
    ck_assert(!ov_populate_wait(team, 1));
    ov_populate_end(team);
    munmap(range[0].begin, MIB);
}
END_TEST

START_TEST(a_team_may_be_ended_before_it_is_done)
{
    struct ov_populate_range range = {fresh(64 * MIB), 64 * MIB};
    for (int i = 0; i < 20; i++) {
        struct ov_populate *team = ov_populate_start(&range, 1, 4, 0);
        ov_populate_end(team);
    }
    ov_populate_end(NULL);
    munmap(range.begin, range.bytes);
}
END_TEST

START_TEST(progress_is_quiet_for_two_seconds)
{
    struct ov_progress progress = {.what = "work", .total_bytes = 8000000000u, .done_bytes = 2000000000u};
    char text[160];
    ck_assert(!ov_progress_line(&progress, 1999999999u, text, sizeof text));
    ck_assert(ov_progress_line(&progress, 2000000000u, text, sizeof text));
    ck_assert_str_eq(text, "overshot: work: 2.0 of 8.0 GB, 1.0 GB/s, 6 s left");
    progress.done_bytes = 0;
    ck_assert(!ov_progress_line(&progress, 9000000000u, text, sizeof text));
}
END_TEST

Suite *populate_suite(void)
{
    Suite *suite = suite_create("populate");
    TCase *tc = tcase_create("populate");
    tcase_add_test(tc, all_ranges_are_there_when_they_were_waited_for);
    tcase_add_test(tc, memory_that_cannot_be_had_is_told);
    tcase_add_test(tc, a_team_may_be_ended_before_it_is_done);
    tcase_add_test(tc, progress_is_quiet_for_two_seconds);
    suite_add_tcase(suite, tc);
    return suite;
}
