/* Services: found by their names, however many start at the same moment. */
#define _GNU_SOURCE

#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "service.h"

static char folder[32];
static void (*before_listening)(void);

/* In the place of libc's: what another process does between the two halves of a start is done here. */
int listen(int socket, int backlog)
{
    int (*real)(int, int);
    void (*first)(void) = before_listening;
    *(void **)&real = dlsym(RTLD_NEXT, "listen");
    before_listening = NULL;
    if (first != NULL) {
        first();
    }
    return real(socket, backlog);
}

static void greet(int connection)
{
    (void)send(connection, "hello", 5, MSG_NOSIGNAL);
}

static struct ov_service one = {.answer = greet}, two = {.answer = greet};

static void set_up(void)
{
    strcpy(folder, "/tmp/overshot-unit-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(setenv("XDG_RUNTIME_DIR", folder, 1), 0);
}

static void tear_down(void)
{
    char command[64];
    ov_service_exit(&one);
    ov_service_exit(&two);
    snprintf(command, sizeof command, "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
}

static bool answers(const char *name)
{
    char text[8] = "";
    const int connection = ov_service_connect(name);
    const bool heard = connection >= 0 && recv(connection, text, 5, MSG_WAITALL) == 5 && strcmp(text, "hello") == 0;
    if (connection >= 0) {
        close(connection);
    }
    return heard;
}

START_TEST(is_found_by_its_name)
{
    ck_assert(!answers("unit-1"));
    ck_assert(ov_service_start(&one, "unit-1"));
    ck_assert(answers("unit-1"));
    ck_assert(!answers("unit-2"));
}
END_TEST

static void start_two(void)
{
    ck_assert(ov_service_start(&two, "unit-2"));
}

/* The second removes what killed processes left: sockets that nobody listens at. The first is not one of those. */
START_TEST(one_that_starts_meanwhile_is_not_swept_away)
{
    before_listening = start_two;
    ck_assert(ov_service_start(&one, "unit-1"));
    ck_assert(answers("unit-2"));
    ck_assert(answers("unit-1"));
}
END_TEST

/* Processes of two containers may have the same number and one folder. */
START_TEST(a_name_that_is_taken_stays_whose_it_is)
{
    ck_assert(ov_service_start(&one, "unit-1"));
    char path[OV_SERVICE_PATH_BYTES];
    memcpy(path, one.path, sizeof path);
    (void)ov_service_start(&two, "unit-1");
    ck_assert_str_ne(two.path, path);
    ov_service_exit(&two);
    two.path[0] = 0;
    ck_assert_int_eq(access(path, F_OK), 0);
    ck_assert(answers("unit-1"));
}
END_TEST

Suite *service_suite(void)
{
    Suite *suite = suite_create("service");
    TCase *tc = tcase_create("service");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, is_found_by_its_name);
    tcase_add_test(tc, one_that_starts_meanwhile_is_not_swept_away);
    tcase_add_test(tc, a_name_that_is_taken_stays_whose_it_is);
    suite_add_tcase(suite, tc);
    return suite;
}
