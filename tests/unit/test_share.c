/* Shared spaces: election, takeover, publication, ownership, clearing up. Each process of a test is a fork. */
#define _GNU_SOURCE

#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hash.h"
#include "share.h"

#define BYTES ((size_t)2 << 20)

static char name[64], folder[128], key[OV_SHARE_KEY];
static const char *why;

static void set_up(void)
{
    struct ov_hash hash[2] = {{1, 2}, {3, 4}};
    snprintf(name, sizeof name, "unit-%ld", (long)getpid());
    snprintf(folder, sizeof folder, "/dev/shm/overshot-%u/%s", (unsigned)geteuid(), name);
    ov_share_key(hash, 2, key);
    why = "";
}

static void tear_down(void)
{
    char command[192];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

static void enter(struct ov_share *share)
{
    ck_assert_msg(ov_share_enter(share, name, &why), "%s", why);
}

static enum ov_share_role take(struct ov_share *share, struct ov_share_piece *piece, unsigned wait_ms)
{
    return ov_share_take(share, key, BYTES, wait_ms, piece, &why);
}

static bool exists(const char *file)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return access(path, F_OK) == 0;
}

/* Runs what() in a child and returns its wait status. */
static int in_child(void (*what)(void))
{
    int status;
    const pid_t child = fork();
    if (child == 0) {
        what();
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return status;
}

START_TEST(keys_depend_on_every_page_and_its_place)
{
    const struct ov_hash a[2] = {{1, 2}, {3, 4}}, b[2] = {{3, 4}, {1, 2}}, c[2] = {{1, 2}, {3, 5}};
    char of_a[OV_SHARE_KEY], other[OV_SHARE_KEY];
    ov_share_key(a, 2, of_a);
    ck_assert_uint_eq(strlen(of_a), 32);
    ov_share_key(b, 2, other);
    ck_assert_str_ne(of_a, other);
    ov_share_key(c, 2, other);
    ck_assert_str_ne(of_a, other);
    ov_share_key(a, 1, other);
    ck_assert_str_ne(of_a, other);
    ov_share_key(a, 2, other);
    ck_assert_str_eq(of_a, other);
}
END_TEST

START_TEST(names_are_plain)
{
    struct ov_share share;
    const char *bad[] = {"",    ".",   "..", ".x",
                         "a/b", "a b", "ä",  "0123456789012345678901234567890123456789012345678901234567890123456789"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert(!ov_share_enter(&share, bad[i], &why));
    }
}
END_TEST

/* The first creates, the second finds its bytes; the last to leave removes everything. */
START_TEST(one_creates_and_the_other_follows)
{
    struct ov_share one, two;
    struct ov_share_piece made, found;
    enter(&one);
    enter(&two);
    ck_assert_int_eq(take(&one, &made, 0), OV_SHARE_CREATOR);
    ck_assert_str_eq(made.before, "");
    memset(made.memory, 0x5A, BYTES);
    ck_assert_int_eq(take(&two, &found, 20), OV_SHARE_NOBODY); /* its creator is at work */
    ck_assert(ov_share_publish(&one, &made));
    ck_assert_int_eq(take(&two, &found, 0), OV_SHARE_FOLLOWER);
    ck_assert(found.memory[0] == 0x5A && found.memory[BYTES - 1] == 0x5A);
    ov_share_leave(&one);
    ck_assert(exists(key));
    ov_share_leave(&two);
    ck_assert(!exists("."));
    ck_assert(found.memory[BYTES / 2] == 0x5A); /* what is mapped stays */
    ov_share_unmap(made.memory, BYTES);
    ov_share_unmap(found.memory, BYTES);
}
END_TEST

static void begin_and_die(void)
{
    struct ov_share share;
    struct ov_share_piece piece;
    (void)ov_share_enter(&share, name, &why);
    if (take(&share, &piece, 0) == OV_SHARE_CREATOR) {
        memset(piece.memory, 1, BYTES / 2);
        (void)kill(getpid(), SIGKILL);
    }
}

START_TEST(a_creator_that_dies_is_succeeded_at_once)
{
    struct ov_share share;
    struct ov_share_piece piece;
    enter(&share);
    ck_assert(WIFSIGNALED(in_child(begin_and_die)));
    ck_assert_int_eq(take(&share, &piece, 0), OV_SHARE_CREATOR);
    ck_assert_ptr_nonnull(strstr(piece.before, "ended while it filled it"));
    ck_assert_int_eq(piece.memory[0], 0);
    ck_assert(ov_share_publish(&share, &piece));
    ov_share_unmap(piece.memory, BYTES);
    ov_share_leave(&share);
}
END_TEST

enum { LEAVERS = 3, LEAVING_ROUNDS = 100 };
static pthread_barrier_t at_once;

static void *leave_with_others(void *share)
{
    pthread_barrier_wait(&at_once);
    ov_share_leave(share);
    return NULL;
}

START_TEST(of_several_that_leave_at_once_one_clears_up)
{
    struct ov_share share[LEAVERS];
    pthread_t thread[LEAVERS];
    ck_assert_int_eq(pthread_barrier_init(&at_once, NULL, LEAVERS), 0);
    for (int round = 0; round < LEAVING_ROUNDS; round++) {
        for (int i = 0; i < LEAVERS; i++) {
            enter(&share[i]);
        }
        for (int i = 0; i < LEAVERS; i++) {
            ck_assert_int_eq(pthread_create(&thread[i], NULL, leave_with_others, &share[i]), 0);
        }
        for (int i = 0; i < LEAVERS; i++) {
            pthread_join(thread[i], NULL);
        }
        ck_assert(!exists("."));
    }
    pthread_barrier_destroy(&at_once);
}
END_TEST

START_TEST(a_creator_that_fails_says_why)
{
    struct ov_share one, two;
    struct ov_share_piece piece;
    enter(&one);
    enter(&two);
    ck_assert_int_eq(take(&one, &piece, 0), OV_SHARE_CREATOR);
    ov_share_fail(&piece, "the copy was refused");
    ov_share_unmap(piece.memory, BYTES);
    ck_assert_int_eq(take(&two, &piece, 0), OV_SHARE_CREATOR);
    ck_assert_ptr_nonnull(strstr(piece.before, "could not fill it: the copy was refused"));
    ov_share_fail(&piece, "");
    ov_share_unmap(piece.memory, BYTES);
    ov_share_leave(&one);
    ov_share_leave(&two);
}
END_TEST

static void publish_and_die(void)
{
    struct ov_share share;
    struct ov_share_piece piece;
    (void)ov_share_enter(&share, name, &why);
    if (take(&share, &piece, 0) == OV_SHARE_CREATOR && ov_share_publish(&share, &piece)) {
        (void)kill(getpid(), SIGKILL);
    }
}

START_TEST(what_the_dead_left_is_cleared_by_the_next)
{
    struct ov_share share;
    ck_assert(WIFSIGNALED(in_child(publish_and_die)));
    ck_assert(exists(key));
    enter(&share);
    ck_assert(!exists(key));
    ov_share_leave(&share);
}
END_TEST

static unsigned removed_spaces, left_spaces;
static void count(const char *space, bool removed, size_t bytes)
{
    (void)bytes;
    if (strcmp(space, name) == 0) {
        removed_spaces += removed;
        left_spaces += !removed;
    }
}

START_TEST(cleaning_up_leaves_what_is_in_use)
{
    struct ov_share share;
    enter(&share);
    ck_assert_int_eq(ov_share_cleanup(NULL, name, count), 1);
    ck_assert(exists("lock"));
    ov_share_leave(&share);
    ck_assert(WIFSIGNALED(in_child(publish_and_die)));
    ck_assert_int_eq(ov_share_cleanup(NULL, name, count), 0);
    ck_assert(!exists("."));
    ck_assert_uint_eq(removed_spaces, 1);
    ck_assert_uint_eq(left_spaces, 1);
}
END_TEST

START_TEST(what_is_open_to_others_is_refused)
{
    struct ov_share share;
    enter(&share);
    ck_assert_int_eq(chmod(folder, 0755), 0);
    struct ov_share other;
    ck_assert(!ov_share_enter(&other, name, &why));
    ck_assert_int_eq(chmod(folder, 0700), 0);
    ov_share_leave(&share);
}
END_TEST

START_TEST(another_layout_is_refused)
{
    struct ov_share one, two;
    char path[192];
    const unsigned layout = 77;
    enter(&one);
    snprintf(path, sizeof path, "%s/lock", folder);
    const int file = open(path, O_WRONLY);
    ck_assert_int_eq(pwrite(file, &layout, sizeof layout, 8), sizeof layout);
    close(file);
    ck_assert(!ov_share_enter(&two, name, &why));
    ck_assert_ptr_nonnull(strstr(why, "another version"));
    ov_share_leave(&one);
}
END_TEST

START_TEST(a_piece_that_is_not_whole_is_not_used)
{
    struct ov_share share;
    struct ov_share_piece piece;
    char path[256];
    enter(&share);
    ck_assert_int_eq(take(&share, &piece, 0), OV_SHARE_CREATOR);
    ck_assert(ov_share_publish(&share, &piece));
    ov_share_unmap(piece.memory, BYTES);
    snprintf(path, sizeof path, "%s/%s", folder, key);
    ck_assert_int_eq(truncate(path, BYTES), 0);
    ck_assert_int_eq(take(&share, &piece, 0), OV_SHARE_NOBODY);
    ck_assert_int_eq(ov_share_take(&share, key, BYTES / 2, 0, &piece, &why), OV_SHARE_NOBODY);
    ov_share_leave(&share);
}
END_TEST

/* Many at once: one creates, all others follow, and all see its bytes. */
static void one_of_many(void)
{
    struct ov_share share;
    struct ov_share_piece piece;
    if (!ov_share_enter(&share, name, &why)) {
        _exit(3);
    }
    const enum ov_share_role role = take(&share, &piece, 20000);
    if (role == OV_SHARE_CREATOR) {
        memset(piece.memory, 0x33, BYTES);
        if (!ov_share_publish(&share, &piece)) {
            _exit(4);
        }
    } else if (role != OV_SHARE_FOLLOWER) {
        _exit(5);
    }
    for (size_t i = 0; i < BYTES; i++) {
        if (piece.memory[i] != 0x33) {
            _exit(6);
        }
    }
    _exit(role == OV_SHARE_CREATOR ? 1 : 0);
}

START_TEST(of_many_one_creates)
{
    struct ov_share share;
    pid_t child[8];
    int creators = 0;
    enter(&share);
    for (int i = 0; i < 8; i++) {
        child[i] = fork();
        if (child[i] == 0) {
            one_of_many();
        }
    }
    for (int i = 0; i < 8; i++) {
        int status;
        ck_assert_int_eq(waitpid(child[i], &status, 0), child[i]);
        ck_assert(WIFEXITED(status) && WEXITSTATUS(status) <= 1);
        creators += WEXITSTATUS(status);
    }
    ck_assert_int_eq(creators, 1);
    ov_share_leave(&share);
    ck_assert(!exists("."));
}
END_TEST

Suite *share_suite(void)
{
    Suite *suite = suite_create("share");
    TCase *tc = tcase_create("share");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, keys_depend_on_every_page_and_its_place);
    tcase_add_test(tc, names_are_plain);
    tcase_add_test(tc, one_creates_and_the_other_follows);
    tcase_add_test(tc, a_creator_that_dies_is_succeeded_at_once);
    tcase_add_test(tc, of_several_that_leave_at_once_one_clears_up);
    tcase_add_test(tc, a_creator_that_fails_says_why);
    tcase_add_test(tc, what_the_dead_left_is_cleared_by_the_next);
    tcase_add_test(tc, cleaning_up_leaves_what_is_in_use);
    tcase_add_test(tc, what_is_open_to_others_is_refused);
    tcase_add_test(tc, another_layout_is_refused);
    tcase_add_test(tc, a_piece_that_is_not_whole_is_not_used);
    tcase_add_test(tc, of_many_one_creates);
    suite_add_tcase(suite, tc);
    return suite;
}
