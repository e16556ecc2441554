/*
 * The happens-before checker where order is not that of streams: graphs, events that complete early, programmatic
 * dependent launch. Each program runs in a child; a race aborts it.
 */
#include "harness.h"

#include <string.h>

enum { WORDS = 1024 };

static CUdeviceptr ring, out;
static uint32_t *host;
static CUstream compute, side;
static CUevent ready;

static void prepare(void)
{
    start(0);
    ring = device_words(WORDS);
    out = device_words(WORDS);
    host = pinned_words(WORDS);
    compute = new_stream();
    side = new_stream();
    ready = new_event();
    probe_module();
    OK(cuCtxSynchronize());
}

/* A graph with two branches: kernel into `ring`, and a copy out of it that does or does not depend on the kernel. */
static void graph_with(int edge)
{
    CUgraph graph;
    CUgraphNode first, second;
    CUgraphExec exec;
    uint32_t value = 1;
    uint64_t words = WORDS;
    prepare();
    OK(cuGraphCreate(&graph, 0));
    CUDA_KERNEL_NODE_PARAMS params = {.func = probe("probe_fill"),
                                      .gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 32,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = (void *[]){&ring, &value, &words}};
    OK(cuGraphAddKernelNode(&first, graph, NULL, 0, &params));
    params.func = probe("probe_copy");
    params.kernelParams = (void *[]){&ring, &out, &words};
    OK(cuGraphAddKernelNode(&second, graph, &first, edge ? 1 : 0, &params));
    OK(cuGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) {
        OK(cuGraphLaunch(exec, compute));
        OK(cuGraphLaunch(exec, side)); /* launches of one graph are in order whatever the stream */
    }
    OK(fill(side, ring, 2, WORDS)); /* and what follows in the stream comes after the graph */
    OK(cuCtxSynchronize());
}

static void graph_ordered(void)
{
    graph_with(1);
}

static void graph_unordered(void)
{
    graph_with(0);
}

START_TEST(graph_nodes_are_ordered_by_edges_only)
{
    NO_RACE(graph_ordered);
    RACE(graph_unordered, "probe_fill", "probe_copy");
}
END_TEST

static void early_event(void)
{
    /* completes when the kernel has begun, so it says nothing about what the kernel writes */
    uint32_t value = 1;
    uint64_t words = WORDS;
    prepare();
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT,
                                   .value = {.launchCompletionEvent = {ready, 0}}};
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 32,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = side,
                             .attrs = &attribute,
                             .numAttrs = 1};
    OK(cuLaunchKernelEx(&config, probe("probe_fill"), (void *[]){&ring, &value, &words}, NULL));
    OK(cuStreamWaitEvent(compute, ready, 0));
    OK(copy(compute, ring, out, WORDS));
}

START_TEST(launch_completion_event_orders_nothing_it_wrote)
{
    RACE(early_event, "probe_fill", "probe_copy");
}
END_TEST

/* Leader, refill waited for before or after it, then a programmatic kernel that reads what was refilled. */
static void programmatic(int wait_before_leader, int allowed)
{
    uint64_t words = WORDS;
    prepare();
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                   .value = {.programmaticStreamSerializationAllowed = allowed}};
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 32,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = compute,
                             .attrs = &attribute,
                             .numAttrs = 1};
    CUdeviceptr scratch = device_words(WORDS);
    OK(cuMemcpyHtoDAsync(ring, host, 4 * WORDS, side));
    OK(cuEventRecord(ready, side));
    if (wait_before_leader)
        OK(cuStreamWaitEvent(compute, ready, 0));
    OK(fill(compute, scratch, 1, WORDS));
    OK(cuStreamWaitEvent(compute, ready, 0));
    /* reads the leader's output, for which it waits, and the ring, for which it does not */
    OK(cuLaunchKernelEx(&config, probe("probe_add"), (void *[]){&scratch, &ring, &out, &words}, NULL));
    OK(cuCtxSynchronize());
}

static void programmatic_early(void)
{
    programmatic(1, 1);
}

static void programmatic_late(void)
{
    programmatic(0, 1);
}

static void programmatic_dropped(void)
{
    programmatic(0, 0);
}

static void programmatic_in_a_graph(int wait_before_leader)
{
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode refill, leader, second;
    uint32_t value = 1;
    uint64_t words = WORDS;
    prepare();
    CUdeviceptr scratch = device_words(WORDS);
    CUDA_MEMCPY3D copy_params = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                                 .srcHost = host,
                                 .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                 .dstDevice = ring,
                                 .WidthInBytes = 4 * WORDS,
                                 .Height = 1,
                                 .Depth = 1};
    CUDA_KERNEL_NODE_PARAMS params = {.func = probe("probe_fill"),
                                      .gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 32,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = (void *[]){&scratch, &value, &words}};
    CUcontext context;
    OK(cuCtxGetCurrent(&context));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemcpyNode(&refill, graph, NULL, 0, &copy_params, context));
    OK(cuGraphAddKernelNode(&leader, graph, &refill, wait_before_leader ? 1 : 0, &params));
    params.func = probe("probe_add");
    params.kernelParams = (void *[]){&scratch, &ring, &out, &words};
    OK(cuGraphAddKernelNode(&second, graph, NULL, 0, &params));
    const CUgraphEdgeData edge = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                  .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
    OK(cuGraphAddDependencies(graph, &leader, &second, &edge, 1));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, compute));
    OK(cuGraphLaunch(exec, compute));
    OK(cuCtxSynchronize());
}

static void graph_programmatic_early(void)
{
    programmatic_in_a_graph(1);
}

static void graph_programmatic_late(void)
{
    programmatic_in_a_graph(0);
}

START_TEST(programmatic_launch_reads_before_it_waits)
{
    NO_RACE(programmatic_early);
    NO_RACE(programmatic_dropped);
    RACE(programmatic_late, "cuMemcpyHtoDAsync_v2", "probe_add, programmatic");
    NO_RACE(graph_programmatic_early);
    RACE(graph_programmatic_late, "memcpy node", "probe_add");
}
END_TEST

SUITE(sim_order, graph_nodes_are_ordered_by_edges_only, launch_completion_event_orders_nothing_it_wrote,
      programmatic_launch_reads_before_it_waits)
