/*
 * Kinds of nodes and of launches, each with weights that are streamed: children, conditions, memory of the graph, nodes
 * that kernels update, programmatic edges, priorities, several streams, launches inside captures. What graphs cannot be
 * made to stream with must still read the right bytes.
 */
#include "graphs.h"

#include <string.h>

enum { COUNT = 6 };

static struct rig rig;

static void prepare(void)
{
    open_streaming(&rig, COUNT, 2 * MIB);
}

/* Replays between eager passes; everything is freed. */
static void replay_and_close(CUgraph graph, CUgraphExec exec)
{
    for (int round = 0; round < 4; round++) {
        replay(&rig, exec, 2);
        rig_pass(&rig, NULL, 0);
    }
    graphs_streamed();
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    rig_close(&rig);
}

static CUgraph new_graph(void)
{
    CUgraph graph;
    OK(cuGraphCreate(&graph, 0));
    return graph;
}

/* ---- graphs inside graphs */

static CUgraphNode add_child(CUgraph graph, const CUgraphNode *from, CUgraph child)
{
    CUgraphNode node;
    OK(cuGraphAddChildGraphNode(&node, graph, from, from != NULL, child));
    OK(cuGraphDestroy(child));
    return node;
}

static void child(void)
{
    prepare();
    CUgraph graph = new_graph();
    (void)add_child(graph, NULL, chain_of_reads(&rig));
    replay_and_close(graph, make_exec(graph));
}

/* Three deep, with reads before and after. */
static void nested_children(void)
{
    prepare();
    CUgraph graph = NULL;
    for (unsigned depth = 0; depth < 3; depth++) {
        CUgraph outer = new_graph();
        CUgraphNode before = add_read(&rig, outer, NULL, 0, 2 * depth, 2 * depth);
        CUgraphNode inner = graph != NULL ? add_child(outer, &before, graph) : before;
        (void)add_read(&rig, outer, &inner, 1, 2 * depth + 1, 2 * depth + 1);
        graph = outer;
    }
    replay_and_close(graph, make_exec(graph));
}

/* A node of the child is set by its handle there, then the child is replaced as a whole. */
static void child_changed(void)
{
    prepare();
    CUgraph graph = new_graph(), inside, other = new_graph();
    CUgraphNode holder = add_child(graph, NULL, chain_of_reads(&rig)), node[COUNT], last = NULL;
    size_t count = COUNT;
    CUgraphExec exec = make_exec(graph);
    OK(cuGraphChildGraphNodeGetGraph(holder, &inside));
    OK(cuGraphGetNodes(inside, node, &count));
    for (unsigned i = 0; i < COUNT; i++) { /* the other way round */
        CUdeviceptr in = rig.weight[COUNT - 1 - i].address, out = rig.out + 4 * (COUNT - 1 - i);
        uint64_t words = rig.weight[i].bytes / 4;
        CUDA_KERNEL_NODE_PARAMS params = read_params(&rig, (void *[]){&in, &out, &words});
        say("set", cuGraphExecKernelNodeSetParams(exec, node[i], &params));
    }
    replay(&rig, exec, 2);
    for (unsigned i = 0; i < COUNT; i++) {
        last = add_read(&rig, other, &last, i > 0, (i + 3) % COUNT, (i + 3) % COUNT);
    }
    say("replace", cuGraphExecChildGraphNodeSetParams(exec, holder, other));
    OK(cuGraphDestroy(other));
    replay_and_close(graph, exec);
}

/* An executable graph launched in a capture becomes a child of the captured one. */
static void launched_in_a_capture(void)
{
    CUgraph graph, inner;
    size_t count = 0;
    prepare();
    inner = chain_of_reads(&rig);
    CUgraphExec exec = make_exec(inner);
    replay(&rig, exec, 2);
    OK(cuStreamBeginCapture(rig.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemsetD32Async(rig.out, 0, COUNT, rig.stream));
    say("launch into the capture", cuGraphLaunch(exec, rig.stream));
    OK(cuStreamEndCapture(rig.stream, &graph));
    OK(cuGraphGetNodes(graph, NULL, &count));
    tell("nodes", (long long)count);
    CUgraphNode node[8];
    CUgraph embedded;
    size_t inside = 0;
    OK(cuGraphGetNodes(graph, node, &count));
    OK(cuGraphChildGraphNodeGetGraph(node[1], &embedded));
    OK(cuGraphGetNodes(embedded, NULL, &inside));
    tell("nodes inside", (long long)inside);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(inner));
    replay_and_close(graph, make_exec(graph));
}

/* ---- conditional nodes */

static CUgraphConditionalHandle new_condition(CUgraph graph, unsigned initial)
{
    CUgraphConditionalHandle handle;
    OK(cuGraphConditionalHandleCreate(&handle, graph, rig.context, initial, CU_GRAPH_COND_ASSIGN_DEFAULT));
    return handle;
}

static CUgraph *add_conditional(CUgraph graph, const CUgraphNode *from, CUgraphConditionalHandle handle,
                                CUgraphConditionalNodeType type, unsigned size, CUgraphNode *node)
{
    CUgraphNodeParams params;
    memset(&params, 0, sizeof params);
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = size;
    params.conditional.ctx = rig.context;
    OK(cuGraphAddNode(node, graph, from, NULL, from != NULL, &params));
    return params.conditional.phGraph_out;
}

static void add_reads(CUgraph graph, unsigned from, unsigned to)
{
    CUgraphNode last = NULL;
    for (unsigned i = from; i < to; i++) {
        last = add_read(&rig, graph, &last, i > from, i, i);
    }
}

/* The condition is set by a kernel node, whose parameter changes between replays. */
static void if_else(void)
{
    CUgraphNode node;
    uint32_t value = 1;
    prepare();
    CUgraph graph = new_graph();
    CUgraphConditionalHandle handle = new_condition(graph, 0);
    CUgraphNode set = add_control(&rig, graph, NULL, 0, "graph_set_condition", (void *[]){&handle, &value});
    CUgraph *body = add_conditional(graph, &set, handle, CU_GRAPH_COND_TYPE_IF, 2, &node);
    add_reads(body[0], 0, COUNT);
    CUgraphNode last = NULL; /* the same in the other order */
    for (unsigned i = COUNT; i-- > 0;) {
        last = add_read(&rig, body[1], &last, i + 1 < COUNT, i, i);
    }
    CUgraphExec exec = make_exec(graph);
    for (int round = 0; round < 6; round++) {
        CUDA_KERNEL_NODE_PARAMS params;
        value = round % 2 == 0;
        OK(cuGraphKernelNodeGetParams(set, &params));
        params.kernelParams = (void *[]){&handle, &value};
        OK(cuGraphExecKernelNodeSetParams(exec, set, &params));
        replay(&rig, exec, 2);
        rig_pass(&rig, NULL, 0);
    }
    replay_and_close(graph, exec);
}

/* The body goes round three times, reading everything each time. */
static void while_loop(void)
{
    CUgraphNode node;
    CUdeviceptr counter = 0;
    prepare();
    counter = rig.out + 8192;
    CUgraph graph = new_graph();
    CUgraphConditionalHandle handle = new_condition(graph, 1);
    CUDA_MEMSET_NODE_PARAMS set = {.dst = counter, .value = 3, .elementSize = 4, .width = 1, .height = 1};
    CUgraphNode start, last = NULL;
    OK(cuGraphAddMemsetNode(&start, graph, NULL, 0, &set, rig.context));
    CUgraph *body = add_conditional(graph, &start, handle, CU_GRAPH_COND_TYPE_WHILE, 1, &node);
    for (unsigned i = 0; i < COUNT; i++) {
        last = add_read(&rig, body[0], &last, i > 0, i, i);
    }
    (void)add_control(&rig, body[0], &last, 1, "graph_count_down", (void *[]){&handle, &counter});
    replay_and_close(graph, make_exec(graph));
}

/* Each body reads a part; what a replay leaves out is read eagerly. */
static void switch_bodies(void)
{
    prepare();
    for (unsigned value = 0; value < 4; value++) {
        CUgraphNode node;
        CUgraph graph = new_graph();
        CUgraphConditionalHandle handle = new_condition(graph, value);
        CUgraph *body = add_conditional(graph, NULL, handle, CU_GRAPH_COND_TYPE_SWITCH, 3, &node);
        for (unsigned b = 0; b < 3; b++) {
            add_reads(body[b], 2 * b, 2 * b + 2);
        }
        CUgraphExec exec = make_exec(graph);
        for (int round = 0; round < 3; round++) {
            uint32_t got[4096];
            clear_out(&rig, rig.stream);
            OK(cuGraphLaunch(exec, rig.stream));
            OK(cuStreamSynchronize(rig.stream));
            OK(cuMemcpyDtoH(got, rig.out, sizeof got));
            tell("of the body", rig_digest(got, COUNT));
            if (value < 3) {
                rig_compare(&rig, got, (unsigned[]){2 * value, 2 * value + 1}, 2);
            }
            rig_pass(&rig, NULL, 0);
        }
        OK(cuGraphExecDestroy(exec));
        OK(cuGraphDestroy(graph));
    }
    rig_close(&rig);
}

static void nested_conditions(void)
{
    CUgraphNode outer_node, inner_node;
    prepare();
    CUgraph graph = new_graph();
    CUgraphConditionalHandle outer = new_condition(graph, 1), inner = new_condition(graph, 1);
    CUgraph *body = add_conditional(graph, NULL, outer, CU_GRAPH_COND_TYPE_IF, 1, &outer_node);
    CUgraphNode first = add_read(&rig, body[0], NULL, 0, 0, 0);
    CUgraph *inside = add_conditional(body[0], &first, inner, CU_GRAPH_COND_TYPE_SWITCH, 2, &inner_node);
    add_reads(inside[0], 1, 3);
    add_reads(inside[1], 1, COUNT - 1);
    (void)add_read(&rig, graph, &outer_node, 1, COUNT - 1, COUNT - 1);
    replay_and_close(graph, make_exec(graph));
}

/* Only one executable graph of it may exist: made again and again. */
static void condition_made_again(void)
{
    CUgraphNode node;
    CUgraphExec exec, second;
    prepare();
    CUgraph graph = new_graph();
    CUgraphConditionalHandle handle = new_condition(graph, 1);
    add_reads(add_conditional(graph, NULL, handle, CU_GRAPH_COND_TYPE_IF, 1, &node)[0], 0, COUNT);
    for (int round = 0; round < 4; round++) {
        exec = make_exec(graph);
        say("a second one", cuGraphInstantiate(&second, graph, 0));
        replay(&rig, exec, 2);
        rig_pass(&rig, NULL, 0);
        OK(cuGraphExecDestroy(exec));
    }
    replay_and_close(graph, make_exec(graph));
}

/* ---- memory of the graph */

/* A weight is copied to memory of the graph and read there; the others directly. */
static void memory_nodes(void)
{
    CUgraphNode alloc, copied, read, release;
    prepare();
    CUgraph graph = new_graph();
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
        .bytesize = 65536};
    OK(cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &params));
    const CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = rig.weight[2].address,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = params.dptr,
                                .WidthInBytes = 65536,
                                .Height = 1,
                                .Depth = 1};
    OK(cuGraphAddMemcpyNode(&copied, graph, &alloc, 1, &copy, rig.context));
    CUdeviceptr out = rig.out + 8192;
    uint64_t words = 16384;
    CUDA_KERNEL_NODE_PARAMS kernel = read_params(&rig, (void *[]){&params.dptr, &out, &words});
    OK(cuGraphAddKernelNode(&read, graph, &copied, 1, &kernel));
    OK(cuGraphAddMemFreeNode(&release, graph, &read, 1, params.dptr));
    add_reads(graph, 0, COUNT);
    CUgraphExec exec = make_exec(graph);
    for (int round = 0; round < 3; round++) {
        uint32_t got;
        replay(&rig, exec, 1);
        OK(cuMemcpyDtoH(&got, out, 4));
        HOLDS(got == rig_digest(rig.weight[2].host, 16384));
    }
    replay_and_close(graph, exec);
}

static void memory_captured(void)
{
    CUgraph graph;
    CUdeviceptr scratch;
    prepare();
    OK(cuStreamBeginCapture(rig.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemAllocAsync(&scratch, 2 * MIB, rig.stream));
    OK(cuMemcpyDtoDAsync(scratch, rig.weight[1].address, 2 * MIB, rig.stream));
    for (unsigned i = 0; i < COUNT; i++) {
        CUdeviceptr in = i == 1 ? scratch : rig.weight[i].address, out = rig.out + 4 * i;
        uint64_t words = rig.weight[i].bytes / 4;
        rig_launch(&rig, "probe_digest", rig.stream, (void *[]){&in, &out, &words});
    }
    OK(cuMemFreeAsync(scratch, rig.stream));
    OK(cuStreamEndCapture(rig.stream, &graph));
    replay_and_close(graph, make_exec(graph));
}

/* What a launch allocates stays until the next one, or until the program frees it. */
static void memory_that_stays(void)
{
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr kept;
    prepare();
    OK(cuStreamBeginCapture(rig.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuMemAllocAsync(&kept, 4096, rig.stream));
    OK(cuMemcpyDtoDAsync(kept, rig.weight[3].address, 4096, rig.stream));
    for (unsigned i = 0; i < COUNT; i++) {
        rig_read(&rig, i, i, rig.stream);
    }
    OK(cuStreamEndCapture(rig.stream, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 4; round++) {
        uint32_t words[1024];
        replay(&rig, exec, 1);
        say("again before it is freed", cuGraphLaunch(exec, rig.stream));
        OK(cuMemcpyDtoH(words, kept, sizeof words));
        HOLDS(memcmp(words, rig.weight[3].host, sizeof words) == 0);
        say("free", round % 2 ? cuMemFree(kept) : cuMemFreeAsync(kept, rig.stream));
        rig_pass(&rig, NULL, 0);
    }
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphInstantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    replay(&rig, exec, 3);
    OK(cuMemFree(kept));
    replay_and_close(graph, exec);
}

/* ---- nodes that kernels update */

/* A kernel of the graph makes the last node read another weight than the host ever named for it. */
static void updated_on_the_device(void)
{
    CUkernelNodeAttrValue value = {.deviceUpdatableKernelNode = {.deviceUpdatable = 1}};
    CUgraphExec second;
    prepare();
    CUgraph graph = new_graph();
    add_reads(graph, 0, COUNT);
    CUgraphNode last = add_read(&rig, graph, NULL, 0, 0, 2048);
    OK(cuGraphKernelNodeSetAttribute(last, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value));
    uint64_t handle = (uint64_t)(uintptr_t)value.deviceUpdatableKernelNode.devNode, offset = 0;
    tell("a handle", handle != 0);
    CUdeviceptr other = rig.weight[4].address;
    CUgraphNode update = add_control(&rig, graph, NULL, 0, "graph_update_node", (void *[]){&handle, &offset, &other});
    OK(cuGraphAddDependencies(graph, &update, &last, NULL, 1));
    CUgraphExec exec = make_exec(graph);
    say("a second one", cuGraphInstantiate(&second, graph, 0));
    OK(cuGraphUpload(exec, rig.stream));
    for (int round = 0; round < 3; round++) {
        uint32_t got;
        replay(&rig, exec, 1);
        OK(cuMemcpyDtoH(&got, rig.out + 8192, 4));
        HOLDS(got == rig_digest(rig.weight[4].host, rig.weight[4].bytes / 4));
        rig_pass(&rig, NULL, 0);
    }
    CUgraphExecUpdateResultInfo info;
    say("update", cuGraphExecUpdate(exec, graph, &info));
    tell("result", info.result);
    replay_and_close(graph, exec);
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
    replay_and_close(graph, make_exec(graph));
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
    replay_and_close(graph, make_exec(graph));
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
    replay_and_close(graph, make_exec(graph));
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
    replay_and_close(graph, exec);
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
    replay_and_close(graph, exec);
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
    replay_and_close(graph[0], exec[0]);
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
    replay_and_close(graph, exec);
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
    replay_and_close(graph, exec);
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
    replay_and_close(graph, exec);
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
    replay_and_close(graph, make_exec(graph));
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
    add_reads(graph, 0, COUNT);
    CUgraphExec exec = make_exec(graph);
    for (int round = 0; round < 4; round++) {
        replay(&rig, exec, 1);
        OK(cuMemcpyDtoH(got, out, sizeof got));
        for (unsigned i = 0; i < COUNT; i++) {
            HOLDS(memcmp(got + 64 * i, rig.weight[i].host, 256) == 0);
        }
        rig_pass(&rig, NULL, 0);
    }
    replay_and_close(graph, exec);
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
    CASE(child),
    CASE(nested_children),
    CASE(child_changed),
    CASE(launched_in_a_capture),
    CASE(if_else),
    CASE(while_loop),
    CASE(switch_bodies),
    CASE(nested_conditions),
    CASE(condition_made_again),
    CASE(memory_nodes),
    CASE(memory_captured),
    CASE(memory_that_stays),
    CASE(updated_on_the_device),
    CASE(programmatic_chain),
    CASE(programmatic_edges),
    CASE(launch_order_edges),
    CASE(priorities),
    CASE(several_streams),
    CASE(side_by_side),
    CASE(host_and_event_nodes),
    CASE(written_by_nodes),
    CASE(disabled_nodes),
    CASE(forms_of_launches),
    CASE(table_of_addresses),
    CASE(empty),
};
RIG_MAIN(cases)
