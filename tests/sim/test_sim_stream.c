/* Streams, events and the virtual clock. */
#include "harness.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

static double seconds_between(CUevent first, CUevent second)
{
    float ms = -1;
    OK(cuEventElapsedTime(&ms, first, second));
    return ms / 1e3;
}

static CUevent timed_event(void)
{
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    return event;
}

/* GB/s of one pinned copy of this size, as events see it. */
static double copy_speed(size_t bytes, int pinned)
{
    CUstream s = new_stream();
    CUevent begin = timed_event(), end = timed_event();
    CUdeviceptr device;
    void *host;
    OK(cuMemAlloc(&device, bytes));
    if (pinned)
        OK(cuMemHostAlloc(&host, bytes, 0));
    else
        ck_assert_ptr_nonnull(host = malloc(bytes));
    double spin_us = 100; /* so that the stream, not the calls, sets the pace */
    OK(LAUNCH(s, "probe_spin", &spin_us));
    OK(cuEventRecord(begin, s));
    OK(cuMemcpyHtoDAsync(device, host, bytes, s));
    OK(cuEventRecord(end, s));
    OK(cuEventSynchronize(end));
    if (!pinned)
        free(host);
    return (double)bytes / seconds_between(begin, end) / 1e9;
}

START_TEST(copies_follow_the_size_curve)
{
    static const struct {
        size_t bytes;
        double gbps;
    } curve[] = {
        {(size_t)64 << 10, 17}, {(size_t)256 << 10, 35},  {(size_t)1 << 20, 48},
        {(size_t)2 << 20, 51},  {(size_t)16 << 20, 53.8}, {(size_t)64 << 20, 54.9},
    };
    start(0);
    for (size_t i = 0; i < sizeof curve / sizeof *curve; i++) {
        double got = copy_speed(curve[i].bytes, 1);
        ck_assert_msg(fabs(got / curve[i].gbps - 1) < 0.06, "%zu bytes: %.1f GB/s", curve[i].bytes, got);
    }
    ck_assert_double_lt(copy_speed((size_t)16 << 20, 0), 30); /* pageable */
}
END_TEST

START_TEST(link_speed_is_a_knob)
{
    knob("SIM_LINK_GBPS", "27.6");
    start(0);
    double got = copy_speed((size_t)16 << 20, 1);
    ck_assert_msg(fabs(got / 26.9 - 1) < 0.06, "%.1f GB/s", got);
}
END_TEST

START_TEST(kernels_take_the_longer_of_operations_and_bytes)
{
    double spin_us = 5000;
    start(0);
    CUstream s = new_stream();
    CUevent begin = timed_event(), middle = timed_event(), end = timed_event();
    CUdeviceptr big;
    OK(cuMemAlloc(&big, (size_t)64 << 20));
    uint64_t words = (size_t)16 << 20;
    uint32_t value = 0;
    OK(cuEventRecord(begin, s));
    OK(LAUNCH(s, "probe_spin", &spin_us));
    OK(cuEventRecord(middle, s));
    OK(LAUNCH(s, "probe_fill", &big, &value, &words));
    OK(cuEventRecord(end, s));
    OK(cuStreamSynchronize(s));
    ck_assert_double_eq_tol(seconds_between(begin, middle), 5e-3, 1e-4);
    ck_assert_double_eq_tol(seconds_between(middle, end), 67.1e6 / 4000e9, 5e-6);
}
END_TEST

START_TEST(copies_overlap_kernels_but_not_each_other)
{
    double spin_us = 5000;
    start(0);
    CUstream s = new_stream(), t = new_stream(), u = new_stream();
    CUevent begin = timed_event(), end = timed_event();
    size_t bytes = (size_t)64 << 20;
    CUdeviceptr a, b;
    void *host;
    OK(cuMemAlloc(&a, bytes));
    OK(cuMemAlloc(&b, bytes));
    OK(cuMemHostAlloc(&host, 2 * bytes, 0));
    double one = (double)bytes / 54.9e9;
    OK(cuEventRecord(begin, s));
    OK(LAUNCH(s, "probe_spin", &spin_us));
    OK(cuMemcpyHtoDAsync(a, host, bytes, t));
    OK(cuMemcpyHtoDAsync(b, (char *)host + bytes, bytes, u));
    CUevent copied[2] = {timed_event(), timed_event()};
    OK(cuEventRecord(copied[0], t));
    OK(cuEventRecord(copied[1], u));
    OK(cuStreamWaitEvent(s, copied[0], 0));
    OK(cuStreamWaitEvent(s, copied[1], 0));
    OK(cuEventRecord(end, s));
    OK(cuStreamSynchronize(s));
    /* both copies in a row, 2.4 ms, hidden behind the kernel of 5 ms */
    ck_assert_double_eq_tol(seconds_between(begin, end), 5e-3, 0.1e-3);
    ck_assert_double_eq_tol(seconds_between(begin, copied[0]), one, 0.1e-3);
    ck_assert_double_eq_tol(seconds_between(begin, copied[1]), 2 * one, 0.1e-3);
}
END_TEST

START_TEST(queries_become_ready_with_host_time)
{
    double spin_us = 200;
    start(0);
    CUstream s = new_stream();
    CUevent event = new_event();
    OK(cuStreamQuery(s));
    OK(cuEventQuery(event)); /* never recorded: ready */
    OK(LAUNCH(s, "probe_spin", &spin_us));
    OK(cuEventRecord(event, s));
    ANSWERS(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    ANSWERS(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
    int polls = 0;
    while (cuEventQuery(event) == CUDA_ERROR_NOT_READY)
        ck_assert_int_lt(polls++, 2000);
    ck_assert_int_gt(polls, 100); /* each costs the host 0.35 us and more */
    OK(cuStreamQuery(s));
}
END_TEST

START_TEST(elapsed_time_needs_timing_and_a_record)
{
    float ms;
    start(0);
    CUevent plain = timed_event(), untimed = new_event(), other = timed_event();
    OK(cuEventRecord(other, NULL));
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, plain, other));
    OK(cuEventRecord(untimed, NULL));
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, untimed, other));
    OK(cuEventDestroy(plain));
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(plain, NULL));
}
END_TEST

START_TEST(legacy_stream_waits_for_blocking_streams)
{
    double spin_us = 1000;
    CUstream blocking;
    start(0);
    CUstream free_running = new_stream();
    CUevent begin = timed_event(), on_legacy = timed_event(), on_free = timed_event(), on_blocking = timed_event();
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuEventRecord(begin, blocking));
    OK(LAUNCH(blocking, "probe_spin", &spin_us));
    OK(LAUNCH(NULL, "probe_spin", &spin_us));
    OK(cuEventRecord(on_legacy, NULL));
    OK(LAUNCH(blocking, "probe_spin", &spin_us));
    OK(cuEventRecord(on_blocking, blocking));
    OK(LAUNCH(free_running, "probe_spin", &spin_us));
    OK(cuEventRecord(on_free, free_running));
    OK(cuCtxSynchronize());
    ck_assert_double_eq_tol(seconds_between(begin, on_legacy), 2e-3, 0.1e-3);
    ck_assert_double_eq_tol(seconds_between(begin, on_blocking), 3e-3, 0.1e-3);
    ck_assert_double_eq_tol(seconds_between(begin, on_free), 1e-3, 0.1e-3);
}
END_TEST

START_TEST(properties_of_streams)
{
    CUstream stream;
    CUcontext context;
    unsigned flags;
    int least, greatest, priority;
    unsigned long long first, second;
    CUcontext mine = start(0);
    OK(cuCtxGetStreamPriorityRange(&least, &greatest));
    ck_assert_int_lt(greatest, least);
    OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest));
    OK(cuStreamGetPriority(stream, &priority));
    ck_assert_int_eq(priority, greatest);
    OK(cuStreamGetFlags(stream, &flags));
    ck_assert_uint_eq(flags, CU_STREAM_NON_BLOCKING);
    OK(cuStreamGetCtx(stream, &context));
    ck_assert_ptr_eq(context, mine);
    OK(cuStreamGetId(stream, &first));
    OK(cuStreamGetId(new_stream(), &second));
    ck_assert_uint_ne(first, second);
    OK(cuStreamDestroy(stream));
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(stream));
}
END_TEST

static void CUDA_CB note(void *data)
{
    *(int *)data += 1;
}

START_TEST(host_functions_and_stream_values)
{
    int calls = 0;
    start(0);
    CUstream s = new_stream();
    CUdeviceptr flag = device_words(4);
    OK(cuMemsetD32(flag, 0, 4));
    OK(cuCtxSynchronize());
    OK(cuLaunchHostFunc(s, note, &calls));
    OK(cuStreamWriteValue32(s, flag, 12, 0));
    OK(cuStreamWaitValue32(s, flag, 12, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuStreamSynchronize(s));
    ck_assert_int_eq(calls, 1);
    ck_assert_uint_eq(word_at(flag), 12);
}
END_TEST

static void *bare_thread(void *argument)
{
    CUcontext current = (CUcontext)1;
    CUdeviceptr address;
    CUresult *result = argument;
    result[0] = cuCtxGetCurrent(&current);
    result[1] = current == NULL ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
    result[2] = cuMemAlloc(&address, 4096);
    return NULL;
}

START_TEST(a_new_thread_has_no_context)
{
    pthread_t thread;
    CUresult result[3];
    start(0);
    ck_assert_int_eq(pthread_create(&thread, NULL, bare_thread, result), 0);
    pthread_join(thread, NULL);
    OK(result[0]);
    OK(result[1]);
    ANSWERS(CUDA_ERROR_INVALID_CONTEXT, result[2]);
}
END_TEST

START_TEST(context_stack)
{
    CUcontext first, second, current;
    CUdevice device;
    knob("SIM_DEVICES", "2");
    first = start(0);
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    OK(cuCtxPushCurrent(second));
    OK(cuCtxGetDevice(&device));
    ck_assert_int_eq(device, 1);
    OK(cuCtxPopCurrent(&current));
    ck_assert_ptr_eq(current, second);
    OK(cuCtxGetCurrent(&current));
    ck_assert_ptr_eq(current, first);
    OK(cuDevicePrimaryCtxRelease(1));
    unsigned flags;
    int active;
    OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
    ck_assert_int_eq(active, 0);
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    ck_assert_int_eq(active, 1);
}
END_TEST

START_TEST(another_device_is_not_lost_with_the_first)
{
    CUcontext first, second;
    CUdeviceptr nowhere;
    knob("SIM_DEVICES", "2");
    first = start(0);
    OK(cuMemAddressReserve(&nowhere, PAGE, 0, 0, 0));
    OK(fill(NULL, nowhere, 1, 4));
    ANSWERS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    OK(cuCtxSetCurrent(second));
    OK(cuCtxSynchronize());
    device_words(4);
    OK(cuCtxSetCurrent(first));
    ANSWERS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}
END_TEST

SUITE(sim_stream, copies_follow_the_size_curve, link_speed_is_a_knob, kernels_take_the_longer_of_operations_and_bytes,
      copies_overlap_kernels_but_not_each_other, queries_become_ready_with_host_time,
      elapsed_time_needs_timing_and_a_record, legacy_stream_waits_for_blocking_streams, properties_of_streams,
      host_functions_and_stream_values, a_new_thread_has_no_context, context_stack,
      another_device_is_not_lost_with_the_first)
