/* Where kernels began to write: what a study believes of its log, rule by rule. */
#include <check.h>
#include <stdlib.h>

#include "runtime/engine.h"
#include "runtime/study.h"

enum { PAGES = 64, SINCE = 100 };

static struct ov_engine *engine;
static struct ov_page page[PAGES];
static struct ov_memo memo[PAGES];
static struct ov_alloc reservation;
static struct ov_birth birth[8];
static struct ov_study study;

static uint64_t at(uint32_t first_page)
{
    return ov_page_address(&engine->arena, first_page);
}

/* All was hashed, and found to be what it is at place SINCE. */
static void begin(void)
{
    engine = calloc(1, sizeof *engine);
    ck_assert(engine != NULL);
    engine->arena.base = (uint64_t)1 << 40;
    engine->arena.page = page;
    engine->arena.high_page = PAGES;
    engine->learn.memo = memo;
    for (uint32_t p = 0; p < PAGES; p++) {
        memo[p] = (struct ov_memo){.hashed = true, .since = SINCE};
    }
    reservation = (struct ov_alloc){.pages = PAGES, .ordinal = 1, .reserved = true};
    study = (struct ov_study){.engine = engine, .birth = birth};
    ov_opt.boundaries = OV_OPT_BOUNDARIES_WRITES;
}

static void end(void)
{
    ov_opt.boundaries = OV_OPT_BOUNDARIES_COPIES;
    free(reservation.edge);
    free(engine);
}

/* By address, then place. */
static void add(uint32_t first_page, uint64_t place, bool surely)
{
    birth[study.births++] = (struct ov_birth){at(first_page), place, surely};
}

static void edges(uint32_t begin_page, uint32_t end_page)
{
    reservation.edge = calloc(2, sizeof *reservation.edge);
    ck_assert(reservation.edge != NULL);
    reservation.edge[0] = ((uint64_t)begin_page << OV_PAGE_SHIFT) * 2 + 1;
    reservation.edge[1] = ((uint64_t)end_page << OV_PAGE_SHIFT) * 2;
    reservation.edge_count = 2;
}

static bool born_at(uint32_t first_page)
{
    return ov_study_born_at(&study, &reservation, at(first_page));
}

START_TEST(what_a_kernel_wrote_begins_there)
{
    add(4, 10, true);
    add(8, 20, true);
    ck_assert(born_at(4) && born_at(8) && !born_at(6));
}
END_TEST

START_TEST(a_slot_that_may_write_proves_nothing)
{
    add(8, 20, false);
    ck_assert(!born_at(8));
}
END_TEST

START_TEST(what_was_written_later_from_in_front_may_have_gone_on)
{
    add(4, 30, false);
    add(8, 20, true);
    ck_assert(!born_at(8));
}
END_TEST

START_TEST(what_is_written_in_front_while_it_stays_does_not_reach)
{
    add(4, SINCE + 5, true);
    add(8, 20, true);
    ck_assert(born_at(8));
}
END_TEST

START_TEST(a_write_that_changed_nothing_is_no_beginning)
{
    add(8, SINCE + 5, true);
    ck_assert(!born_at(8));
}
END_TEST

START_TEST(a_copy_since_then_ends_it)
{
    add(8, 20, true);
    memo[8].filled = 21;
    ck_assert(!born_at(8));
}
END_TEST

START_TEST(inside_of_what_one_copy_filled_nothing_begins)
{
    add(8, 20, true);
    edges(6, 10);
    ck_assert(!born_at(8));
}
END_TEST

START_TEST(behind_what_a_copy_filled_something_may)
{
    add(8, 20, true);
    edges(6, 8);
    ck_assert(born_at(8));
}
END_TEST

START_TEST(it_is_remembered_when_the_log_has_gone)
{
    add(8, 20, true);
    ck_assert(born_at(8));
    study.births = 0;
    ck_assert(born_at(8));
    memo[8].born = 0; /* as when its bytes have changed */
    ck_assert(!born_at(8));
}
END_TEST

Suite *born_suite(void);
Suite *born_suite(void)
{
    Suite *suite = suite_create("born");
    TCase *tc = tcase_create("born");
    tcase_add_checked_fixture(tc, begin, end);
    tcase_add_test(tc, what_a_kernel_wrote_begins_there);
    tcase_add_test(tc, a_slot_that_may_write_proves_nothing);
    tcase_add_test(tc, what_was_written_later_from_in_front_may_have_gone_on);
    tcase_add_test(tc, what_is_written_in_front_while_it_stays_does_not_reach);
    tcase_add_test(tc, a_write_that_changed_nothing_is_no_beginning);
    tcase_add_test(tc, a_copy_since_then_ends_it);
    tcase_add_test(tc, inside_of_what_one_copy_filled_nothing_begins);
    tcase_add_test(tc, behind_what_a_copy_filled_something_may);
    tcase_add_test(tc, it_is_remembered_when_the_log_has_gone);
    suite_add_tcase(suite, tc);
    return suite;
}
