/*
 * Edges, streams, priorities, forms of launches, and nodes that are no kernels, in graphs that read streamed weights.
 */
#include "graphs.h"

#include <string.h>

enum { COUNT = 6 };

static struct rig rig;

static void prepare(void)
{
    open_streaming(&rig, COUNT, 2 * MIB);
}

/* ---- edges, priorities, streams */

/* Each kernel may read its weight before it waits for the one in front of it. */
static void programmatic_chain(void)
{
    CUgraph graph;
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                   .value = {.programmaticStreamSerializationAllowed = 1}};
    prepare();
    OK(cuStreamBeginCapture(rig.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (unsigned i = 0; i < COUNT; i++) {
        OK(launch_with(&rig, i, i, rig.stream, &attribute, 1));
    }
    OK(cuStreamEndCapture(rig.stream, &graph));
    replay_and_close(&rig, graph, make_exec(graph));
}

/* Programmatic edges given by hand, every other one. */
static void programmatic_edges(void)
{
    const CUgraphEdgeData data = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                  .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
    CUgraphNode node[COUNT];
    prepare();
    CUgraph graph = new_graph();
    for (unsigned i = 0; i < COUNT; i++) {
        node[i] = add_read(&rig, graph, NULL, 0, i, i);
        if (i > 0) {
            OK(cuGraphAddDependencies(graph, &node[i - 1], &node[i], i % 2 ? &data : NULL, 1));
        }
    }
    replay_and_close(&rig, graph, make_exec(graph));
}

/* Kernels that only start in order and run beside each other. */
static void launch_order_edges(void)
{
    const CUgraphEdgeData data = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER};
    CUgraphNode node[COUNT];
    prepare();
    CUgraph graph = new_graph();
    for (unsigned i = 0; i < COUNT; i++) {
        node[i] = add_read(&rig, graph, NULL, 0, i, i);
        if (i > 0) {
            OK(cuGraphAddDependencies(graph, &node[i - 1], &node[i], &data, 1));
        }
    }
    replay_and_close(&rig, graph, make_exec(graph));
}

static void priorities(void)
{
    CUgraph graph;
    CUgraphExec exec;
    CUstream urgent;
    prepare();
    OK(cuStreamCreateWithPriority(&urgent, CU_STREAM_NON_BLOCKING, -4));
    graph = capture_pass(&rig, urgent, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuGraphInstantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY));
    replay_and_close(&rig, graph, exec);
}

/* Launches of one executable graph in three streams in turn: the driver puts them in order. */
static void several_streams(void)
{
    CUstream stream[3];
    prepare();
    CUgraph graph = chain_of_reads(&rig);
    CUgraphExec exec = make_exec(graph);
    for (int i = 0; i < 3; i++) {
        OK(cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
    }
    for (int round = 0; round < 12; round++) {
        say("launch", cuGraphLaunch(exec, stream[round % 3]));
        if (round % 4 == 3) {
            OK(cuCtxSynchronize());
            check_out(&rig, "read");
            rig_pass(&rig, NULL, 0);
        }
    }
    for (int i = 0; i < 3; i++) {
        OK(cuStreamDestroy(stream[i]));
    }
    replay_and_close(&rig, graph, exec);
}

/* Two executable graphs of one graph, each in its stream, at the same time, writing apart. */
static void side_by_side(void)
{
    CUstream other;
    prepare();
    CUgraph graph[2] = {new_graph(), new_graph()};
    CUgraphExec exec[2];
    for (unsigned g = 0; g < 2; g++) {
        CUgraphNode last = NULL;
        for (unsigned i = 0; i < COUNT; i++) {
            last = add_read(&rig, graph[g], &last, i > 0, i, i + 1024 * g);
        }
        exec[g] = make_exec(graph[g]);
    }
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    for (int round = 0; round < 6; round++) {
        uint32_t got[4096];
        clear_out(&rig, rig.stream);
        OK(cuGraphLaunch(exec[0], rig.stream));
        OK(cuGraphLaunch(exec[1], other));
        OK(cuCtxSynchronize());
        check_out(&rig, "one");
        OK(cuMemcpyDtoH(got, rig.out + 4096, 4 * COUNT));
        rig_compare(&rig, got, NULL, COUNT);
        rig_pass(&rig, NULL, 0);
    }
    OK(cuStreamDestroy(other));
    OK(cuGraphExecDestroy(exec[1]));
    OK(cuGraphDestroy(graph[1]));
    replay_and_close(&rig, graph[0], exec[0]);
}

/* ---- other nodes */

static int calls;

static void CUDA_CB count_call(void *data)
{
    calls += *(int *)data;
}

/* Host functions, events of the program and empty nodes between reads. */
static void host_and_event_nodes(void)
{
    int one = 1;
    const CUDA_HOST_NODE_PARAMS host = {count_call, &one};
    CUevent done, before;
    CUgraphNode last, node;
    prepare();
    OK(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&before, CU_EVENT_DISABLE_TIMING));
    OK(cuEventRecord(before, rig.stream));
    CUgraph graph = new_graph();
    OK(cuGraphAddEventWaitNode(&last, graph, NULL, 0, before));
    for (unsigned i = 0; i < COUNT; i++) {
        last = add_read(&rig, graph, &last, 1, i, i);
        OK(cuGraphAddHostNode(&node, graph, &last, 1, &host));
        last = node;
        OK(cuGraphAddEmptyNode(&node, graph, &last, 1));
        last = node;
    }
    OK(cuGraphAddEventRecordNode(&node, graph, &last, 1, done));
    CUgraphExec exec = make_exec(graph);
    replay(&rig, exec, 3);
    tell("calls", calls);
    say("event", cuEventSynchronize(done));
    OK(cuEventDestroy(done));
    OK(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
    say("another event", cuGraphExecEventRecordNodeSetEvent(exec, node, done));
    replay_and_close(&rig, graph, exec);
}

/* Weights are copied and filled by nodes; readers in the same graph and eager ones see it. */
static void written_by_nodes(void)
{
    CUgraphNode fill, copied, last;
    prepare();
    struct rig_weight *filled = &rig.weight[1], *target = &rig.weight[2];
    CUgraph graph = new_graph();
    const CUDA_MEMSET_NODE_PARAMS set = {
        .dst = filled->address, .value = 5, .elementSize = 4, .width = 1000, .height = 1};
    const CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = rig.weight[4].address,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = target->address,
                                .WidthInBytes = target->bytes,
                                .Height = 1,
                                .Depth = 1};
    OK(cuGraphAddMemsetNode(&fill, graph, NULL, 0, &set, rig.context));
    OK(cuGraphAddMemcpyNode(&copied, graph, &fill, 1, &copy, rig.context));
    last = copied;
    for (unsigned i = 0; i < COUNT; i++) {
        last = add_read(&rig, graph, &last, 1, i, i);
    }
    CUgraphExec exec = make_exec(graph);
    for (int i = 0; i < 1000; i++) {
        filled->host[i] = 5;
    }
    memcpy(target->host, rig.weight[4].host, target->bytes);
    OK(cuGraphLaunch(exec, rig.stream));
    OK(cuStreamSynchronize(rig.stream));
    rig_changed(filled);
    rig_changed(target);
    check_out(&rig, "written");
    say("disable the fill", cuGraphNodeSetEnabled(exec, fill, 0));
    rig_refill(filled);
    OK(cuMemcpyHtoD(filled->address, filled->host, filled->bytes));
    replay_and_close(&rig, graph, exec);
}

/* Every other read switched off and on. */
static void disabled_nodes(void)
{
    CUgraphNode node[COUNT];
    size_t count = COUNT;
    prepare();
    CUgraph graph = chain_of_reads(&rig);
    CUgraphExec exec = make_exec(graph);
    OK(cuGraphGetNodes(graph, node, &count));
    for (unsigned round = 0; round < 4; round++) {
        uint32_t got[4096];
        for (unsigned i = 0; i < COUNT; i++) {
            unsigned enabled = 77;
            say("switch", cuGraphNodeSetEnabled(exec, node[i], i % 2 == round % 2));
            OK(cuGraphNodeGetEnabled(exec, node[i], &enabled));
            tell("is", enabled);
        }
        clear_out(&rig, rig.stream);
        OK(cuGraphLaunch(exec, rig.stream));
        OK(cuStreamSynchronize(rig.stream));
        OK(cuMemcpyDtoH(got, rig.out, sizeof got));
        for (unsigned i = 0; i < COUNT; i++) {
            HOLDS(i % 2 == round % 2 || got[i] == 0);
        }
        tell("half", rig_digest(got, COUNT));
        rig_compare(&rig, got, (unsigned[]){round % 2, 2 + round % 2, 4 + round % 2}, 3);
        rig_pass(&rig, NULL, 0);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        OK(cuGraphNodeSetEnabled(exec, node[i], 1));
    }
    replay_and_close(&rig, graph, exec);
}

/* Addresses in a buffer (extra), in a library's kernel, in a cooperative launch. */
static void forms_of_launches(void)
{
    CUgraph graph;
    CUlaunchAttribute cooperative = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value = {.cooperative = 1}};
    prepare();
    struct gpu_image library = gpu_image_load("probe", GPU_LOAD_LIBRARY);
    CUfunction kernel = gpu_image_kernel(&library, "probe_digest");
    OK(cuStreamBeginCapture(rig.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (unsigned i = 0; i < COUNT; i++) {
        struct {
            CUdeviceptr in, out;
            uint64_t words;
        } block = {rig.weight[i].address, rig.out + 4 * i, rig.weight[i].bytes / 4};
        size_t bytes = sizeof block;
        void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &block, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                         CU_LAUNCH_PARAM_END};
        void *params[] = {&block.in, &block.out, &block.words};
        if (i % 3 == 0) {
            OK(cuLaunchKernel(rig_kernel(&rig, "probe_digest"), 1, 1, 1, 32, 1, 1, 0, rig.stream, NULL, extra));
        } else if (i % 3 == 1) {
            OK(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, rig.stream, params, NULL));
        } else {
            OK(launch_with(&rig, i, i, rig.stream, &cooperative, 1));
        }
    }
    OK(cuStreamEndCapture(rig.stream, &graph));
    CUgraphExec exec = make_exec(graph);
    replay(&rig, exec, 2);
    rig_pass(&rig, NULL, 0);
    replay(&rig, exec, 2);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    gpu_image_unload(&library);
    rig_close(&rig);
}

/* Weights named in a table in memory, which the graph's kernel reads. */
static void table_of_addresses(void)
{
    CUdeviceptr table, out;
    CUgraphNode node;
    CUdeviceptr address[COUNT];
    uint32_t got[COUNT * 64];
    prepare();
    OK(cuMemAlloc(&table, sizeof address));
    out = rig.out + 8192;
    for (unsigned i = 0; i < COUNT; i++) {
        address[i] = rig.weight[i].address;
    }
    OK(cuMemcpyHtoD(table, address, sizeof address));
    CUgraph graph = new_graph();
    uint64_t entries = COUNT, words = 64;
    CUDA_KERNEL_NODE_PARAMS params = read_params(&rig, (void *[]){&table, &entries, &out, &words});
    params.func = rig_kernel(&rig, "probe_read_table");
    OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &params));
    add_reads(&rig, graph, 0, COUNT);
    CUgraphExec exec = make_exec(graph);
    for (int round = 0; round < 4; round++) {
        replay(&rig, exec, 1);
        OK(cuMemcpyDtoH(got, out, sizeof got));
        for (unsigned i = 0; i < COUNT; i++) {
            HOLDS(memcmp(got + 64 * i, rig.weight[i].host, 256) == 0);
        }
        rig_pass(&rig, NULL, 0);
    }
    replay_and_close(&rig, graph, exec);
}

static void empty(void)
{
    prepare();
    CUgraph graph = new_graph();
    CUgraphExec exec = make_exec(graph);
    for (int round = 0; round < 3; round++) {
        say("launch", cuGraphLaunch(exec, rig.stream));
        rig_pass(&rig, NULL, 0);
        check_out(&rig, "eager");
    }
    OK(cuGraphExecDestroy(exec));
    rig_close(&rig);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(programmatic_chain), CASE(programmatic_edges), CASE(launch_order_edges),   CASE(priorities),
    CASE(several_streams),    CASE(side_by_side),       CASE(host_and_event_nodes), CASE(written_by_nodes),
    CASE(disabled_nodes),     CASE(forms_of_launches),  CASE(table_of_addresses),   CASE(empty),
};
RIG_MAIN(cases)
