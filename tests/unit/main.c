/*
 * Runner of Check suites. Every test function is a case of its own, named <suite>.<function>:
 *
 *     unit_tests                  all cases
 *     unit_tests --list           their names, one a line
 *     unit_tests --case PATTERN   those that match (fnmatch); none at all is an error
 *
 * Check lists and filters no finer than a TCase, so the linker sends each registration here (--wrap) and only the
 * chosen ones reach Check.
 */
#include "check_runner.h"

#include <fnmatch.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TCase *__real__tcase_add_test(TCase *tc, const TTest *test, int signal, int exit_value, int start, int end);
TCase *__wrap__tcase_add_test(TCase *tc, const TTest *test, int signal, int exit_value, int start, int end);

static const char *building; /* name of the suite whose make() runs */
static const char *pattern;  /* of --case, or NULL */
static bool listing;
static size_t chosen;

TCase *__wrap__tcase_add_test(TCase *tc, const TTest *test, int signal, int exit_value, int start, int end)
{
    char name[256];
    snprintf(name, sizeof(name), "%s.%s", building, test->name);
    if (pattern && fnmatch(pattern, name, 0) != 0) {
        return tc;
    }
    chosen++;
    if (listing) {
        puts(name);
        return tc;
    }
    return __real__tcase_add_test(tc, test, signal, exit_value, start, end);
}

static int usage(const char *program)
{
    fprintf(stderr, "usage: %s [--list | --case PATTERN]\n", program);
    return 2;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        listing = true;
    } else if (argc == 3 && strcmp(argv[1], "--case") == 0) {
        pattern = argv[2];
    } else if (argc != 1) {
        return usage(argv[0]);
    }
    setenv("CK_DEFAULT_TIMEOUT", "100", 0); /* Check's 4 s are too few for a sanitizer on a busy machine */

    SRunner *runner = srunner_create(NULL);
    for (const struct ov_suite *suite = ov_suites; suite->name; suite++) {
        building = suite->name;
        srunner_add_suite(runner, suite->make());
    }
    int failed = 0;
    if (!listing) {
        srunner_run_all(runner, CK_NORMAL);
        failed = srunner_ntests_failed(runner);
    }
    srunner_free(runner);
    if (chosen == 0) {
        fprintf(stderr, "%s: no case matches\n", argv[0]);
        return 2;
    }
    return failed ? 1 : 0;
}
