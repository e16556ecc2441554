/*
 * What a Check runner binary is made of: main.c and a table of suites, which CMake writes from the names of the test
 * sources (ov_add_check_runner in cmake/OvTest.cmake). test_<name>.c defines `Suite *<name>_suite(void)`.
 */
#ifndef OV_CHECK_RUNNER_H
#define OV_CHECK_RUNNER_H

#include <check.h>

struct ov_suite {
    const char *name;
    Suite *(*make)(void);
};

extern const struct ov_suite ov_suites[]; /* ends with a row whose name is NULL */

#endif
