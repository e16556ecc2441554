/*
 * Kinds of nodes and of launches, each with weights that are streamed: children, conditions, memory of the graph, nodes
 * that kernels update, programmatic edges, priorities, several streams, launches inside captures. What graphs cannot be
 * made to stream with must still read the right bytes.
 */
#include "graphs.h"

#include <stdlib.h>
#include <string.h>

enum { COUNT = 6 };

static struct rig rig;

static void prepare(void)
{
    open_streaming(&rig, COUNT, 2 * MIB);
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
    replay_and_close(&rig, graph, make_exec(graph));
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
    replay_and_close(&rig, graph, make_exec(graph));
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
    replay_and_close(&rig, graph, exec);
}

/* Often enough for its passes to be timed, with copies beside kernels and without (SIM_CONTENTION tells them apart). */
static void replay_timed(CUgraph graph)
{
    CUgraphExec exec = make_exec(graph);
    replay(&rig, exec, 40);
    HOLDS(getenv("LD_PRELOAD") == NULL || rig_logged("more beside copies"));
    replay_and_close(&rig, graph, exec);
}

/* In the order of the passes before it. */
static void nested_children_timed(void)
{
    prepare();
    CUgraph graph = NULL;
    for (unsigned depth = 0; depth < 3; depth++) {
        CUgraph outer = new_graph();
        CUgraphNode before = add_read(&rig, outer, NULL, 0, 2 - depth, 2 - depth);
        CUgraphNode inner = graph != NULL ? add_child(outer, &before, graph) : before;
        (void)add_read(&rig, outer, &inner, 1, 3 + depth, 3 + depth);
        graph = outer;
    }
    replay_timed(graph);
}

/* Four beside each other, between a first and a last one. */
static void branches_timed(void)
{
    CUgraphNode branch[COUNT - 2];
    prepare();
    CUgraph graph = new_graph();
    CUgraphNode first = add_read(&rig, graph, NULL, 0, 0, 0);
    for (unsigned i = 0; i < COUNT - 2; i++) {
        branch[i] = add_read(&rig, graph, &first, 1, i + 1, i + 1);
    }
    (void)add_read(&rig, graph, branch, COUNT - 2, COUNT - 1, COUNT - 1);
    replay_timed(graph);
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
    replay_and_close(&rig, graph, make_exec(graph));
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
    add_reads(&rig, body[0], 0, COUNT);
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
    replay_and_close(&rig, graph, exec);
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
    replay_and_close(&rig, graph, make_exec(graph));
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
            add_reads(&rig, body[b], 2 * b, 2 * b + 2);
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
    add_reads(&rig, inside[0], 1, 3);
    add_reads(&rig, inside[1], 1, COUNT - 1);
    (void)add_read(&rig, graph, &outer_node, 1, COUNT - 1, COUNT - 1);
    replay_and_close(&rig, graph, make_exec(graph));
}

/* Only one executable graph of it may exist: made again and again. */
static void condition_made_again(void)
{
    CUgraphNode node;
    CUgraphExec exec, second;
    prepare();
    CUgraph graph = new_graph();
    CUgraphConditionalHandle handle = new_condition(graph, 1);
    add_reads(&rig, add_conditional(graph, NULL, handle, CU_GRAPH_COND_TYPE_IF, 1, &node)[0], 0, COUNT);
    for (int round = 0; round < 4; round++) {
        exec = make_exec(graph);
        say("a second one", cuGraphInstantiate(&second, graph, 0));
        replay(&rig, exec, 2);
        rig_pass(&rig, NULL, 0);
        OK(cuGraphExecDestroy(exec));
    }
    replay_and_close(&rig, graph, make_exec(graph));
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
    add_reads(&rig, graph, 0, COUNT);
    CUgraphExec exec = make_exec(graph);
    for (int round = 0; round < 3; round++) {
        uint32_t got;
        replay(&rig, exec, 1);
        OK(cuMemcpyDtoH(&got, out, 4));
        HOLDS(got == rig_digest(rig.weight[2].host, 16384));
    }
    replay_and_close(&rig, graph, exec);
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
    replay_and_close(&rig, graph, make_exec(graph));
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
    replay_and_close(&rig, graph, exec);
}

/* ---- nodes that kernels update */

/* A kernel of the graph makes the last node read another weight than the host ever named for it. */
static void updated_on_the_device(void)
{
    CUkernelNodeAttrValue value = {.deviceUpdatableKernelNode = {.deviceUpdatable = 1}};
    CUgraphExec second;
    prepare();
    CUgraph graph = new_graph();
    add_reads(&rig, graph, 0, COUNT);
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
    replay_and_close(&rig, graph, exec);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(child),
    CASE(nested_children),
    CASE(child_changed),
    CASE(nested_children_timed),
    CASE(branches_timed),
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
};
RIG_MAIN(cases)
