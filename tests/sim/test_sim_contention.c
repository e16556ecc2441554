/* SIM_CONTENTION: what copies beside kernels add to them, whichever was submitted first. */
#include "harness.h"

#include <string.h>

#define COPY_BYTES ((size_t)16 << 20)

static CUstream compute, side;
static CUdeviceptr to;
static void *from;

static CUevent timed_event(void)
{
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    return event;
}

static double us_between(CUevent first, CUevent second)
{
    float ms = -1;
    OK(cuEventElapsedTime(&ms, first, second));
    return ms * 1e3;
}

static void prepare(const char *percent)
{
    if (percent != NULL)
        knob("SIM_CONTENTION", percent);
    start(0);
    compute = new_stream();
    side = new_stream();
    OK(cuMemAlloc(&to, COPY_BYTES));
    OK(cuMemHostAlloc(&from, COPY_BYTES, 0));
    probe_module();
    OK(cuCtxSynchronize());
}

/* Two kernels of 1000 us, a copy beside the first; before or after it is submitted. */
struct times {
    double copy_us, first_us, second_us;
};

static struct times run_beside(int copy_first)
{
    double spin_us = 1000;
    CUevent event[3], begin = timed_event(), end = timed_event();
    struct times times;
    for (int i = 0; i < 3; i++)
        event[i] = timed_event();
    for (int call = 0; call < 2; call++) {
        if (call == !copy_first) {
            OK(cuEventRecord(begin, side));
            OK(cuMemcpyHtoDAsync(to, from, COPY_BYTES, side));
            OK(cuEventRecord(end, side));
        } else {
            OK(cuEventRecord(event[0], compute));
            OK(LAUNCH(compute, "probe_spin", &spin_us));
            OK(cuEventRecord(event[1], compute));
            OK(LAUNCH(compute, "probe_spin", &spin_us));
            OK(cuEventRecord(event[2], compute));
        }
    }
    OK(cuCtxSynchronize());
    times.copy_us = us_between(begin, end);
    times.first_us = us_between(event[0], event[1]);
    times.second_us = us_between(event[1], event[2]);
    return times;
}

/* While the copy runs, 2/3 of it are computed: a third of its time is lost. */
static void check(struct times times, double lost)
{
    ck_assert_double_gt(times.copy_us, 300);
    ck_assert_double_lt(times.copy_us, 330);
    ck_assert_double_eq_tol(times.first_us, 1002 + lost * times.copy_us, 8);
    ck_assert_double_eq_tol(times.second_us, 1002, 3);
}

START_TEST(a_copy_slows_kernels_behind_it)
{
    prepare("50");
    check(run_beside(1), 1.0 / 3);
}
END_TEST

START_TEST(a_copy_slows_kernels_before_it)
{
    prepare("50");
    check(run_beside(0), 1.0 / 3);
}
END_TEST

START_TEST(without_the_knob_it_does_not)
{
    prepare(NULL);
    check(run_beside(1), 0);
    check(run_beside(0), 0);
}
END_TEST

START_TEST(a_copy_from_the_device_does_not)
{
    double spin_us = 1000;
    prepare("50");
    CUevent begin = timed_event(), end = timed_event();
    OK(cuMemcpyDtoHAsync(from, to, COPY_BYTES, side));
    OK(cuEventRecord(begin, compute));
    OK(LAUNCH(compute, "probe_spin", &spin_us));
    OK(cuEventRecord(end, compute));
    OK(cuCtxSynchronize());
    ck_assert_double_eq_tol(us_between(begin, end), 1002, 8);
}
END_TEST

/* Kernel, kernel; a copy beside the first, and one that comes after it and is beside the second. */
START_TEST(copies_in_graphs_slow_their_kernels)
{
    double spin_us = 1000;
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode kernel[2], copy[2], event_node;
    CUevent event[3], copied[2];
    prepare("50");
    OK(cuGraphCreate(&graph, 0));
    CUDA_KERNEL_NODE_PARAMS params = {.func = probe("probe_spin"),
                                      .gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 1,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = (void *[]){&spin_us}};
    const CUDA_MEMCPY3D what = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                                .srcHost = from,
                                .srcPitch = COPY_BYTES,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = to,
                                .dstPitch = COPY_BYTES,
                                .WidthInBytes = COPY_BYTES,
                                .Height = 1,
                                .Depth = 1};
    CUcontext context;
    OK(cuCtxGetCurrent(&context));
    for (int i = 0; i < 3; i++)
        event[i] = timed_event();
    OK(cuGraphAddEventRecordNode(&event_node, graph, NULL, 0, event[0]));
    for (int i = 0; i < 2; i++) {
        OK(cuGraphAddKernelNode(&kernel[i], graph, &event_node, 1, &params));
        OK(cuGraphAddEventRecordNode(&event_node, graph, &kernel[i], 1, event[i + 1]));
    }
    OK(cuGraphAddMemcpyNode(&copy[0], graph, NULL, 0, &what, context));
    OK(cuGraphAddMemcpyNode(&copy[1], graph, (CUgraphNode[]){copy[0], kernel[0]}, 2, &what, context));
    for (int i = 0; i < 2; i++) {
        copied[i] = timed_event();
        OK(cuGraphAddEventRecordNode(&event_node, graph, &copy[i], 1, copied[i]));
    }
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, compute));
    OK(cuCtxSynchronize());
    const double copy_us = us_between(event[1], copied[1]);
    ck_assert_double_gt(copy_us, 300);
    ck_assert_double_eq_tol(us_between(event[0], copied[0]), copy_us, 1);
    ck_assert_double_eq_tol(us_between(event[0], event[1]), 1002 + copy_us / 3, 3);
    ck_assert_double_eq_tol(us_between(event[1], event[2]), 1002 + copy_us / 3, 3);
}
END_TEST

static void negative(void)
{
    knob("SIM_CONTENTION", "-1");
    cuInit(0);
}

START_TEST(less_than_none_is_refused)
{
    struct outcome result = outcome(negative);
    ck_assert_int_eq(result.status, 2);
    ck_assert_ptr_nonnull(strstr(result.text, "SIM_CONTENTION"));
}
END_TEST

SUITE(sim_contention, a_copy_slows_kernels_behind_it, a_copy_slows_kernels_before_it, without_the_knob_it_does_not,
      a_copy_from_the_device_does_not, copies_in_graphs_slow_their_kernels, less_than_none_is_refused)
