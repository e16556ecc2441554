/* Stream capture: which calls of which threads each mode refuses, and what that does to the capture. */
#include "harness.h"

#include <pthread.h>

enum { WORDS = 256 };

static CUdeviceptr a, b;
static CUstream s, t;

static void prepare(void)
{
    start(0);
    a = device_words(WORDS);
    b = device_words(WORDS);
    OK(cuMemsetD32(a, 1, WORDS));
    OK(cuMemsetD32(b, 2, WORDS));
    OK(cuCtxSynchronize());
    s = new_stream();
    t = new_stream();
    probe_module();
}

static size_t node_count(CUgraph graph)
{
    size_t count = 0;
    OK(cuGraphGetNodes(graph, NULL, &count));
    return count;
}

/* One row: does this call break a capture of this mode that its own thread has begun? */
struct unsafe_call {
    const char *name;
    CUresult (*call)(void);
};

static CUevent plain_event;

static CUresult call_alloc(void)
{
    CUdeviceptr address;
    return cuMemAlloc(&address, 4096);
}

static CUresult call_free(void)
{
    return cuMemFree(b);
}

static CUresult call_query(void)
{
    return cuEventQuery(plain_event);
}

static CUresult call_event_synchronise(void)
{
    return cuEventSynchronize(plain_event);
}

static CUresult call_stream_synchronise(void)
{
    return cuStreamSynchronize(t);
}

static CUresult call_stream_query(void)
{
    return cuStreamQuery(t);
}

static CUresult call_pin(void)
{
    void *pinned;
    return cuMemHostAlloc(&pinned, 4096, 0);
}

static CUresult call_context_synchronise(void)
{
    return cuCtxSynchronize();
}

static CUresult call_load(void)
{
    CUmodule module;
    return cuModuleLoad(&module, SIM_KERNEL_IMAGES "/probe.fatbin");
}

static CUresult call_info(void)
{
    size_t free, total;
    return cuMemGetInfo(&free, &total);
}

static const struct unsafe_call unsafe_calls[] = {
    {"cuMemAlloc", call_alloc},
    {"cuMemFree", call_free},
    {"cuEventQuery", call_query},
    {"cuEventSynchronize", call_event_synchronise},
    {"cuStreamSynchronize", call_stream_synchronise},
    {"cuStreamQuery", call_stream_query},
    {"cuMemHostAlloc", call_pin},
};
/* Waiting for the context is refused in every mode, loading code and asking for free memory in none. */
static const struct unsafe_call context_call = {"cuCtxSynchronize", call_context_synchronise};
static const struct unsafe_call safe_calls[] = {{"cuModuleLoad", call_load}, {"cuMemGetInfo", call_info}};
enum { UNSAFE_CALLS = sizeof unsafe_calls / sizeof *unsafe_calls };

static void *run_call(void *argument)
{
    const struct unsafe_call *row = argument;
    CUcontext context;
    CUresult result = cuDevicePrimaryCtxRetain(&context, 0);
    if (result == CUDA_SUCCESS)
        result = cuCtxSetCurrent(context);
    return (void *)(intptr_t)(result == CUDA_SUCCESS ? row->call() : result);
}

static CUresult from_other_thread(const struct unsafe_call *row)
{
    pthread_t thread;
    void *result;
    ck_assert_int_eq(pthread_create(&thread, NULL, run_call, (void *)row), 0);
    ck_assert_int_eq(pthread_join(thread, &result), 0);
    return (CUresult)(intptr_t)result;
}

static void check_mode(CUstreamCaptureMode mode, const struct unsafe_call *row, int other_thread, int breaks)
{
    CUgraph graph = NULL;
    OK(cuStreamBeginCapture(s, mode));
    OK(increment(s, a, 1, WORDS));
    CUresult result = other_thread ? from_other_thread(row) : row->call();
    CUresult end = cuStreamEndCapture(s, &graph);
    ck_assert_msg(result == (breaks ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS), "%s in mode %d: %s",
                  row->name, (int)mode, error_name(result));
    ck_assert_msg(end == (breaks ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS), "end after %s in mode %d: %s",
                  row->name, (int)mode, error_name(end));
    ck_assert_msg((graph == NULL) == breaks, "%s", row->name);
}

static void check_common(CUstreamCaptureMode mode)
{
    for (int other = 0; other < 2; other++) {
        check_mode(mode, &context_call, other, 1);
        for (size_t i = 0; i < sizeof safe_calls / sizeof *safe_calls; i++)
            check_mode(mode, &safe_calls[i], other, 0);
    }
}

START_TEST(global_mode_refuses_unsafe_calls)
{
    prepare();
    plain_event = new_event();
    for (int i = 0; i < UNSAFE_CALLS; i++)
        for (int other = 0; other < 2; other++)
            check_mode(CU_STREAM_CAPTURE_MODE_GLOBAL, &unsafe_calls[i], other, 1);
    check_common(CU_STREAM_CAPTURE_MODE_GLOBAL);
}
END_TEST

/* cuMemFree is in the list once: what it frees is gone when it works. */
START_TEST(thread_local_mode_refuses_own_calls_only)
{
    prepare();
    plain_event = new_event();
    for (int i = 0; i < UNSAFE_CALLS; i++)
        check_mode(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, &unsafe_calls[i], 0, 1);
    for (int i = 0; i < UNSAFE_CALLS; i++)
        check_mode(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, &unsafe_calls[i], 1, 0);
    check_common(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}
END_TEST

START_TEST(relaxed_mode_refuses_nothing)
{
    prepare();
    plain_event = new_event();
    for (int i = 0; i < UNSAFE_CALLS; i++)
        check_mode(CU_STREAM_CAPTURE_MODE_RELAXED, &unsafe_calls[i], i % 2, 0);
    check_common(CU_STREAM_CAPTURE_MODE_RELAXED);
}
END_TEST

START_TEST(exchanged_mode_protects_the_capture)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUgraph graph;
    prepare();
    plain_event = new_event();
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(increment(s, a, 1, WORDS));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    ck_assert_int_eq(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(call_query());
    OK(call_alloc());
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    ck_assert_int_eq(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuStreamEndCapture(s, &graph));
}
END_TEST

START_TEST(safe_calls_stay_safe)
{
    /* What a shim does on its own stream while the program captures. */
    CUgraph graph;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = device_prop();
    CUdeviceptr address;
    prepare();
    uint32_t *host = pinned_words(WORDS);
    CUevent event = new_event();
    OK(cuMemAddressReserve(&address, PAGE, 0, 0, 0));
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemcpyHtoDAsync(b, host, 4 * WORDS, t));
    OK(cuEventRecord(event, t));
    OK(cuStreamWaitEvent(t, event, 0));
    OK(cuMemCreate(&handle, PAGE, &prop, 0));
    OK(map_at(address, PAGE, handle, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(increment(s, a, 1, WORDS));
    OK(cuStreamEndCapture(s, &graph));
    ck_assert_uint_eq(node_count(graph), 1);
}
END_TEST

SUITE(sim_modes, global_mode_refuses_unsafe_calls, thread_local_mode_refuses_own_calls_only,
      relaxed_mode_refuses_nothing, exchanged_mode_protects_the_capture, safe_calls_stay_safe)
