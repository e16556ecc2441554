/*
 * What the tests of the simulated driver share. Check runs every test in a process of its own, so each starts with an
 * untouched driver and may set SIM_ knobs (knob()) before its first call. What must end in an abort runs in a further
 * child (outcome()).
 */
#ifndef SIM_HARNESS_H
#define SIM_HARNESS_H

#include <check.h>
#include <cuda.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define PAGE ((size_t)2 << 20)

/* The call must answer this; a failure names the call and both codes. */
#define ANSWERS(expected_, call_)                                                                                   \
    do {                                                                                                            \
        CUresult got_ = (call_);                                                                                    \
        ck_assert_msg(got_ == (expected_), "%s: %s, expected %s", #call_, error_name(got_), error_name(expected_)); \
    } while (0)
#define OK(call_) ANSWERS(CUDA_SUCCESS, call_)

const char *error_name(CUresult result);
void knob(const char *name, const char *value);

/* cuInit, primary context of the device made current. */
CUcontext start(int device);

/* The kernels of tests/kernels/probe.cu, loaded as a module into the current context once a process. */
CUmodule probe_module(void);
CUfunction probe(const char *name);
extern void *harness_kept[64]; /* all that read_file() gave out; never freed */
void *read_file(const char *path, size_t *bytes);
void *read_fixture(const char *name, size_t *bytes);

CUdeviceptr device_words(size_t words);
uint32_t *pinned_words(size_t words);
CUstream new_stream(void);
CUevent new_event(void);

/* Launch with parameters given by their addresses. */
CUresult launch_params(CUfunction function, CUstream stream, void **params);
#define LAUNCH(stream_, name_, ...) launch_params(probe(name_), stream_, (void *[]){__VA_ARGS__})

/* Frequent launches. */
CUresult fill(CUstream stream, CUdeviceptr out, uint32_t value, uint64_t words);
CUresult copy(CUstream stream, CUdeviceptr in, CUdeviceptr out, uint64_t words);
CUresult slow_copy(CUstream stream, CUdeviceptr in, CUdeviceptr out, uint64_t words, double microseconds);
CUresult increment(CUstream stream, CUdeviceptr words, uint32_t value, uint64_t count);
uint32_t word_at(CUdeviceptr address);

/* VMM in one step: a handle of `bytes` on device 0 mapped read-write at a fresh address. */
struct mapped {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    size_t bytes;
};
struct mapped map_new(size_t bytes);
CUresult map_at(CUdeviceptr address, size_t bytes, CUmemGenericAllocationHandle handle, CUmemAccess_flags flags);
CUresult set_access(CUdeviceptr address, size_t bytes, CUmemAccess_flags flags);
CUmemAllocationProp device_prop(void);

/* Runs a program in a child process. */
struct outcome {
    int signal; /* 0: it ended by itself */
    int status;
    char text[8192]; /* its stderr */
};
struct outcome outcome(void (*program)(void));
#define NO_RACE(program_)                                                                                       \
    do {                                                                                                        \
        struct outcome outcome_ = outcome(program_);                                                            \
        ck_assert_msg(outcome_.signal == 0 && outcome_.status == 0, "signal %d status %d: %s", outcome_.signal, \
                      outcome_.status, outcome_.text);                                                          \
    } while (0)
/* Must abort with a race report that names both sites. */
#define RACE(program_, first_, second_)                                                                       \
    do {                                                                                                      \
        struct outcome outcome_ = outcome(program_);                                                          \
        ck_assert_msg(outcome_.signal == 6, "signal %d status %d: %s", outcome_.signal, outcome_.status,      \
                      outcome_.text);                                                                         \
        ck_assert_msg(strstr(outcome_.text, "sim: race:") != NULL && strstr(outcome_.text, first_) != NULL && \
                          strstr(outcome_.text, second_) != NULL,                                             \
                      "%s", outcome_.text);                                                                   \
    } while (0)

/* One suite a file: SUITE(name, test, test, ...). */
#define SUITE(name_, ...)                                         \
    Suite *name_##_suite(void);                                   \
    Suite *name_##_suite(void)                                    \
    {                                                             \
        const TTest *const tests[] = {__VA_ARGS__};               \
        Suite *suite = suite_create(#name_);                      \
        TCase *tcase = tcase_create("all");                       \
        for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) \
            tcase_add_test(tcase, tests[i]);                      \
        suite_add_tcase(suite, tcase);                            \
        return suite;                                             \
    }

#endif
