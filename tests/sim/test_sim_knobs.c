/* The SIM_ environment: failures on demand, limits, the report. */
#include "harness.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

START_TEST(the_nth_call_fails)
{
    CUdeviceptr address[3] = {0, 7, 0};
    knob("SIM_FAIL", "cuMemAlloc_v2:2:2,cuStreamCreate:*:999");
    start(0);
    OK(cuMemAlloc(&address[0], 4096));
    ANSWERS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&address[1], 4096));
    ck_assert_uint_eq(address[1], 7); /* without effect */
    OK(cuMemAlloc(&address[2], 4096));
    CUstream stream;
    for (int i = 0; i < 3; i++)
        ANSWERS(CUDA_ERROR_UNKNOWN, cuStreamCreate(&stream, 0));
}
END_TEST

START_TEST(init_can_fail)
{
    int count;
    knob("SIM_FAIL", "cuInit:1:100");
    ANSWERS(CUDA_ERROR_NO_DEVICE, cuInit(0));
    ANSWERS(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&count));
    OK(cuInit(0));
}
END_TEST

static void exceed_limit(void)
{
    CUdeviceptr address;
    knob("SIM_LIMIT", "16M");
    start(0);
    OK(cuMemAlloc(&address, (size_t)14 << 20));
    OK(cuMemAlloc(&address, (size_t)4 << 20));
}

START_TEST(a_limit_aborts)
{
    struct outcome result = outcome(exceed_limit);
    ck_assert_int_eq(result.signal, 6);
    ck_assert_ptr_nonnull(strstr(result.text, "sim: limit exceeded:"));
}
END_TEST

static char report_path[64];

static void report_program(void)
{
    CUdeviceptr address;
    knob("SIM_REPORT", report_path);
    start(0);
    OK(cuMemAlloc(&address, 4 * PAGE));
    void *host = pinned_words(PAGE / 4);
    OK(cuMemcpyHtoD(address, host, PAGE));
    OK(cuMemcpyDtoH(host, address, 1024));
    OK(cuMemFree(address));
}

static double number_of(const char *text, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(text, key);
    ck_assert_msg(at != NULL, "no %s in %s", name, text);
    return strtod(at + strlen(key), NULL);
}

START_TEST(the_report_counts)
{
    snprintf(report_path, sizeof report_path, "/tmp/sim_report_%d.json", (int)getpid());
    NO_RACE(report_program);
    char *text = read_file(report_path, NULL);
    ck_assert_double_ge(number_of(text, "peak_bytes"), 4.0 * PAGE);
    ck_assert_double_eq(number_of(text, "current_bytes"), 0);
    ck_assert_double_eq(number_of(text, "h2d_bytes"), (double)PAGE);
    ck_assert_double_eq(number_of(text, "d2h_bytes"), 1024);
    ck_assert_double_eq(number_of(text, "races"), 0);
    ck_assert_double_gt(number_of(text, "virtual_ns"), 0);
    ck_assert_double_eq(number_of(text, "cuMemAlloc_v2"), 1);
    unlink(report_path);
}
END_TEST

static void *allocate_slowly(void *context)
{
    CUdeviceptr address;
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc(&address, 4 * PAGE));
    return NULL;
}

/* The call waits before it has any effect, and others go ahead. */
START_TEST(a_function_can_be_late)
{
    pthread_t thread;
    CUcontext context;
    size_t before, meanwhile, after, total;
    knob("SIM_DELAY", "cuMemFree_v2:1,cuMemAlloc_v2:300000");
    start(0);
    OK(cuCtxGetCurrent(&context));
    OK(cuMemGetInfo(&before, &total));
    ck_assert_int_eq(pthread_create(&thread, NULL, allocate_slowly, context), 0);
    usleep(100000);
    OK(cuMemGetInfo(&meanwhile, &total));
    pthread_join(thread, NULL);
    OK(cuMemGetInfo(&after, &total));
    ck_assert_uint_eq(meanwhile, before);
    ck_assert_uint_eq(after, before - 4 * (size_t)PAGE);
}
END_TEST

START_TEST(attributes_can_be_off)
{
    int value;
    knob("SIM_ATTR_OFF", "141,115");
    start(0);
    OK(cuDeviceGetAttribute(&value, (CUdevice_attribute)141, 0));
    ck_assert_int_eq(value, 0);
    OK(cuDeviceGetAttribute(&value, (CUdevice_attribute)115, 0));
    ck_assert_int_eq(value, 0);
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    ck_assert_int_eq(value, 9);
}
END_TEST

static void malformed(void)
{
    knob("SIM_MEM", "plenty");
    cuInit(0);
}

START_TEST(malformed_values_end_the_program)
{
    struct outcome result = outcome(malformed);
    ck_assert_int_eq(result.status, 2);
    ck_assert_ptr_nonnull(strstr(result.text, "SIM_MEM=plenty"));
}
END_TEST

START_TEST(no_devices)
{
    int count;
    knob("SIM_DEVICES", "0");
    CUresult result = cuInit(0);
    ck_assert(result == CUDA_ERROR_NO_DEVICE ||
              (result == CUDA_SUCCESS && cuDeviceGetCount(&count) == CUDA_SUCCESS && count == 0));
}
END_TEST

static void child_of_a_fork(void)
{
    start(0);
    pid_t pid = fork();
    if (pid == 0) {
        CUdeviceptr address;
        _exit(cuMemAlloc(&address, 4096) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
    }
    device_words(4);
}

START_TEST(a_forked_child_has_no_driver)
{
    NO_RACE(child_of_a_fork);
}
END_TEST

START_TEST(error_texts)
{
    const char *text = NULL;
    OK(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
    ck_assert_str_eq(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
    OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
    ck_assert_ptr_nonnull(strstr(text, "memory"));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGetErrorName((CUresult)12345, &text));
}
END_TEST

SUITE(sim_knobs, the_nth_call_fails, init_can_fail, a_limit_aborts, the_report_counts, a_function_can_be_late,
      attributes_can_be_off, malformed_values_end_the_program, no_devices, a_forked_child_has_no_driver, error_texts)
