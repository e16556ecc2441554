/* The log: its lines, levels, file, and that it neither allocates nor disturbs its caller. */
#include "check_runner.h"
#include "runtime/log.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char captured[1 << 18];

/* Runs body with standard error in a file and gives what was written. */
static const char *capture(void (*body)(void))
{
    FILE *file = tmpfile();
    int kept = dup(STDERR_FILENO);
    ck_assert(file && kept >= 0);
    ck_assert_int_ge(dup2(fileno(file), STDERR_FILENO), 0);
    body();
    ck_assert_int_ge(dup2(kept, STDERR_FILENO), 0);
    close(kept);
    rewind(file);
    captured[fread(captured, 1, sizeof(captured) - 1, file)] = '\0';
    fclose(file);
    return captured;
}

static void log_levels(void)
{
    ov_log(OV_LOG_ERROR, "error %d", 1);
    ov_log(OV_LOG_WARN, "warn %s", "two");
    ov_log(OV_LOG_INFO, "info");
    ov_log(OV_LOG_DEBUG, "debug");
}

START_TEST(warn_is_the_level_at_first)
{
    ck_assert_str_eq(capture(log_levels), "overshot: error 1\novershot: warn two\n");
    ck_assert(ov_log_enabled(OV_LOG_WARN) && !ov_log_enabled(OV_LOG_INFO));
}
END_TEST

START_TEST(level_can_be_changed)
{
    ov_log_open(OV_LOG_DEBUG, NULL);
    ck_assert_str_eq(capture(log_levels), "overshot: error 1\novershot: warn two\novershot: info\novershot: debug\n");
    ov_log_open(OV_LOG_ERROR, "");
    ck_assert_str_eq(capture(log_levels), "overshot: error 1\n");
}
END_TEST

static void log_lines(void)
{
    ov_log(OV_LOG_WARN, "one\ntwo\n");
    ov_log(OV_LOG_WARN, "%s", "");
}

START_TEST(each_line_has_the_prefix)
{
    ck_assert_str_eq(capture(log_lines), "overshot: one\novershot: two\n");
}
END_TEST

static size_t long_length;

static void log_long(void)
{
    char *message = malloc(long_length + 1);
    memset(message, 'm', long_length);
    message[long_length] = '\0';
    ov_log(OV_LOG_WARN, "%s", message);
    free(message);
}

START_TEST(long_messages_are_cut)
{
    for (long_length = 1900; long_length < 2200; long_length++) {
        const char *text = capture(log_long);
        size_t length = strlen(text);
        ck_assert_uint_le(length, 2048);
        ck_assert_int_eq(text[length - 1], '\n');
        if (length != long_length + sizeof("overshot: \n") - 1) {
            ck_assert_str_eq(text + length - 4, "...\n");
            ck_assert_uint_gt(length, 2040);
        }
    }
}
END_TEST

static void log_many_lines(void)
{
    char message[1500];
    memset(message, '\n', sizeof(message) - 1);
    message[sizeof(message) - 1] = '\0';
    ov_log(OV_LOG_WARN, "%s", message);
}

START_TEST(prefixes_that_do_not_fit_are_cut)
{
    const char *text = capture(log_many_lines);
    ck_assert_uint_le(strlen(text), 2048);
    ck_assert_str_eq(text + strlen(text) - 4, "...\n");
}
END_TEST

static void log_in_loop(void)
{
    for (int i = 0; i < 5; i++) {
        ov_log_once(OV_LOG_WARN, "first %d", i);
        ov_log_once(OV_LOG_WARN, "second");
    }
}

START_TEST(once_is_once_for_each_place)
{
    ck_assert_str_eq(capture(log_in_loop), "overshot: first 0\novershot: second\n");
    ck_assert_str_eq(capture(log_in_loop), "");
}
END_TEST

static void log_with_errno(void)
{
    errno = EXDEV;
    ov_log(OV_LOG_WARN, "x");
    ck_assert_int_eq(errno, EXDEV);
}

START_TEST(errno_is_kept)
{
    capture(log_with_errno);
    close(STDERR_FILENO); /* nowhere to write to is no reason to fail, or to change errno */
    log_with_errno();
}
END_TEST

START_TEST(a_file_takes_the_lines)
{
    char path[] = "/tmp/ov_log_XXXXXX", text[200];
    close(mkstemp(path));
    ck_assert(ov_log_open(OV_LOG_INFO, path));
    ck_assert_str_eq(capture(log_levels), "");
    ck_assert(ov_log_open(OV_LOG_INFO, path)); /* again: appended to */
    ov_log(OV_LOG_WARN, "more");
    ck_assert(ov_log_open(OV_LOG_WARN, NULL));
    ck_assert_str_eq(capture(log_levels), "overshot: error 1\novershot: warn two\n");
    FILE *file = fopen(path, "r");
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    unlink(path);
    ck_assert_str_eq(text, "overshot: error 1\novershot: warn two\novershot: info\novershot: more\n");
}
END_TEST

static void open_bad_file(void)
{
    ck_assert(!ov_log_open(OV_LOG_INFO, "/no/such/folder/log"));
    ov_log(OV_LOG_INFO, "still here");
}

START_TEST(a_file_that_cannot_be_opened_is_reported)
{
    const char *text = capture(open_bad_file);
    ck_assert_ptr_nonnull(strstr(text, "overshot: log file /no/such/folder/log cannot be opened"));
    ck_assert_ptr_nonnull(strstr(text, "overshot: still here\n"));
}
END_TEST

static void *log_from_thread(void *context)
{
    for (int i = 0; i < 200; i++) {
        ov_log(OV_LOG_WARN, "%s", (const char *)context);
    }
    return NULL;
}

static void log_from_threads(void)
{
    static char words[4][101];
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++) {
        memset(words[i], 'a' + (int)i, 100);
        ck_assert_int_eq(pthread_create(&threads[i], NULL, log_from_thread, words[i]), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
}

START_TEST(lines_of_threads_do_not_mix)
{
    const char *text = capture(log_from_threads);
    size_t lines = 0;
    for (; *text; text += 111, lines++) {
        ck_assert_int_eq(strncmp(text, "overshot: ", 10), 0);
        for (int i = 11; i < 110; i++) {
            ck_assert_int_eq(text[i], text[10]);
        }
        ck_assert_int_eq(text[110], '\n');
    }
    ck_assert_uint_eq(lines, 800);
}
END_TEST

static void log_numbers(void)
{
    ov_log(OV_LOG_WARN, "%zu %.3f %s %p", (size_t)5, 2.5, "text", (void *)captured);
}

START_TEST(nothing_is_allocated)
{
    capture(log_numbers);
    FILE *file = tmpfile();
    int kept = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    size_t before_bytes = mallinfo2().uordblks;
    for (int i = 0; i < 100; i++) {
        log_numbers();
    }
    size_t after_bytes = mallinfo2().uordblks;
    dup2(kept, STDERR_FILENO);
    close(kept);
    fclose(file);
    ck_assert_uint_eq(before_bytes, after_bytes);
}
END_TEST

Suite *log_suite(void);
Suite *log_suite(void)
{
    Suite *suite = suite_create("log");
    TCase *tc = tcase_create("log");
    tcase_add_test(tc, warn_is_the_level_at_first);
    tcase_add_test(tc, level_can_be_changed);
    tcase_add_test(tc, each_line_has_the_prefix);
    tcase_add_test(tc, long_messages_are_cut);
    tcase_add_test(tc, prefixes_that_do_not_fit_are_cut);
    tcase_add_test(tc, once_is_once_for_each_place);
    tcase_add_test(tc, errno_is_kept);
    tcase_add_test(tc, a_file_takes_the_lines);
    tcase_add_test(tc, a_file_that_cannot_be_opened_is_reported);
    tcase_add_test(tc, lines_of_threads_do_not_mix);
    tcase_add_test(tc, nothing_is_allocated);
    suite_add_tcase(suite, tc);
    return suite;
}
