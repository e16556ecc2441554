/*
 * What a program can see of its graphs: nodes and their order, edges, parameters, attributes, flags, the picture in
 * DOT. It is the same with the shim, before and after the graph was instantiated and replayed, and while weights are
 * streamed.
 */
#include "graphs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 6, ROOM = 64 };

static struct rig rig;

static void prepare(void)
{
    open_streaming(&rig, COUNT, 2 * MIB);
}

/* ---- telling a graph, by the place of each node in the list of nodes */

static int place_of(CUgraphNode node, const CUgraphNode *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (list[i] == node) {
            return (int)i;
        }
    }
    return -1;
}

static void tell_edges(CUgraph graph, const CUgraphNode *node, size_t count)
{
    CUgraphNode from[ROOM], to[ROOM];
    CUgraphEdgeData data[ROOM];
    size_t edges = ROOM;
    say("edges", cuGraphGetEdges(graph, from, to, data, &edges));
    for (size_t i = 0; i < edges; i++) {
        printf("%d -> %d (%u %u %u)\n", place_of(from[i], node, count), place_of(to[i], node, count), data[i].from_port,
               data[i].to_port, data[i].type);
    }
    edges = ROOM;
    say("edges without data", cuGraphGetEdges(graph, from, to, NULL, &edges));
}

static void tell_neighbours(const CUgraphNode *node, size_t count, size_t i)
{
    CUgraphNode other[ROOM];
    CUgraphEdgeData data[ROOM];
    size_t others = ROOM;
    OK(cuGraphNodeGetDependencies(node[i], other, data, &others));
    for (size_t k = 0; k < others; k++) {
        printf("  after %d\n", place_of(other[k], node, count));
    }
    others = ROOM;
    OK(cuGraphNodeGetDependentNodes(node[i], other, data, &others));
    for (size_t k = 0; k < others; k++) {
        printf("  before %d\n", place_of(other[k], node, count));
    }
}

/* Offset of an address from its weight or from `out`: the addresses themselves differ from run to run. */
static void tell_address(uint64_t address)
{
    for (unsigned i = 0; i < rig.count; i++) {
        if (address - rig.weight[i].address < rig.weight[i].bytes) {
            printf("  weight %u + %llu\n", i, (unsigned long long)(address - rig.weight[i].address));
            return;
        }
    }
    printf("  %s\n", address - rig.out < 16384 ? "out" : "elsewhere");
}

static void tell_kernel(CUgraphNode node)
{
    CUDA_KERNEL_NODE_PARAMS params;
    OK(cuGraphKernelNodeGetParams(node, &params));
    printf("  grid %u block %u shared %u params %d extra %d\n", params.gridDimX, params.blockDimX,
           params.sharedMemBytes, params.kernelParams != NULL, params.extra != NULL);
    if (params.kernelParams != NULL && params.func == rig_kernel(&rig, "probe_digest")) {
        uint64_t words;
        memcpy(&words, params.kernelParams[2], sizeof words);
        tell_address(*(uint64_t *)params.kernelParams[0]);
        tell_address(*(uint64_t *)params.kernelParams[1]);
        printf("  words %llu\n", (unsigned long long)words);
    }
}

static void tell_copy(CUgraphNode node)
{
    CUDA_MEMCPY3D copy;
    OK(cuGraphMemcpyNodeGetParams(node, &copy));
    printf("  copy of %zu x %zu x %zu, %d to %d\n", copy.WidthInBytes, copy.Height, copy.Depth, (int)copy.srcMemoryType,
           (int)copy.dstMemoryType);
    tell_address(copy.srcDevice);
    tell_address(copy.dstDevice);
}

static void tell_graph(CUgraph graph)
{
    CUgraphNode node[ROOM], root[ROOM];
    size_t count = ROOM, roots = ROOM;
    say("nodes", cuGraphGetNodes(graph, node, &count));
    tell("count", (long long)count);
    for (size_t i = 0; i < count; i++) {
        CUgraphNodeType type;
        CUgraph child;
        OK(cuGraphNodeGetType(node[i], &type));
        printf("node %zu of type %d\n", i, (int)type);
        if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
            tell_kernel(node[i]);
        } else if (type == CU_GRAPH_NODE_TYPE_MEMCPY) {
            tell_copy(node[i]);
        } else if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
            OK(cuGraphChildGraphNodeGetGraph(node[i], &child));
            tell_graph(child);
        }
        tell_neighbours(node, count, i);
    }
    OK(cuGraphGetRootNodes(graph, root, &roots));
    for (size_t i = 0; i < roots; i++) {
        tell("root", place_of(root[i], node, count));
    }
    tell_edges(graph, node, count);
}

/* Told before, told when instantiated, told after replays with eager passes between. */
static void tell_through_life(CUgraph graph)
{
    tell_graph(graph);
    CUgraphExec exec = make_exec(graph);
    tell_graph(graph);
    for (int round = 0; round < 4; round++) {
        replay(&rig, exec, 1);
        rig_pass(&rig, NULL, 0);
    }
    tell_graph(graph);
    graphs_streamed();
    OK(cuGraphExecDestroy(exec));
    tell_graph(graph);
    OK(cuGraphDestroy(graph));
    rig_close(&rig);
}

/* ---- cases */

static void captured(void)
{
    prepare();
    tell_through_life(capture_pass(&rig, rig.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

static void by_hand(void)
{
    prepare();
    tell_through_life(chain_of_reads(&rig));
}

/* A fan: all reads side by side between two empty nodes. */
static void fan(void)
{
    CUgraph graph;
    CUgraphNode begin, read[COUNT], end;
    prepare();
    graph = new_graph();
    OK(cuGraphAddEmptyNode(&begin, graph, NULL, 0));
    for (unsigned i = 0; i < COUNT; i++) {
        read[i] = add_read(&rig, graph, &begin, 1, COUNT - 1 - i, COUNT - 1 - i);
    }
    OK(cuGraphAddEmptyNode(&end, graph, read, COUNT));
    tell_through_life(graph);
}

/* Made in an order that is not that of the edges. */
static void made_backwards(void)
{
    CUgraph graph;
    CUgraphNode read[COUNT];
    prepare();
    graph = new_graph();
    for (unsigned i = 0; i < COUNT; i++) {
        read[i] = add_read(&rig, graph, NULL, 0, i, i);
    }
    for (unsigned i = 1; i < COUNT; i++) {
        OK(cuGraphAddDependencies(graph, &read[i], &read[i - 1], NULL, 1));
    }
    tell_through_life(graph);
}

static void with_edge_data(void)
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
    tell_through_life(graph);
}

/* Copies and fills of weights and of other memory beside kernels. */
static void copies_and_fills(void)
{
    CUgraph graph;
    CUdeviceptr scratch;
    prepare();
    OK(cuMemAlloc(&scratch, 4096));
    OK(cuStreamBeginCapture(rig.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemcpyDtoDAsync(scratch, rig.weight[1].address, 4096, rig.stream));
    for (unsigned i = 0; i < COUNT; i++) {
        rig_read(&rig, i, i, rig.stream);
    }
    OK(cuMemsetD32Async(scratch, 3, 64, rig.stream));
    OK(cuStreamEndCapture(rig.stream, &graph));
    tell_through_life(graph);
}

static void in_a_child(void)
{
    CUgraph inner, outer;
    CUgraphNode node;
    prepare();
    inner = chain_of_reads(&rig);
    outer = new_graph();
    OK(cuGraphAddChildGraphNode(&node, outer, NULL, 0, inner));
    OK(cuGraphDestroy(inner));
    tell_through_life(outer);
}

/* A clone made before and one made after the graph was instantiated: each has its own nodes, found by the original's.
 */
static void clones(void)
{
    CUgraph graph, clone[2];
    CUgraphNode node[ROOM], found;
    size_t count = ROOM;
    prepare();
    graph = chain_of_reads(&rig);
    OK(cuGraphClone(&clone[0], graph));
    CUgraphExec exec = make_exec(graph);
    replay(&rig, exec, 2);
    OK(cuGraphClone(&clone[1], graph));
    OK(cuGraphGetNodes(graph, node, &count));
    for (int c = 0; c < 2; c++) {
        CUgraphNode list[ROOM];
        size_t listed = ROOM;
        OK(cuGraphGetNodes(clone[c], list, &listed));
        for (size_t i = 0; i < count; i++) {
            say("find", cuGraphNodeFindInClone(&found, node[i], clone[c]));
            tell("place", place_of(found, list, listed));
        }
        tell_graph(clone[c]);
        replay(&rig, make_exec(clone[c]), 2);
    }
    say("find in the original", cuGraphNodeFindInClone(&found, node[0], graph));
    tell_through_life(graph);
}

/* Numbers in the picture are counted anew. */
static void tell_dot(CUgraph graph)
{
    char path[] = "/tmp/graphs_dot_XXXXXX", line[512];
    unsigned long long seen[ROOM];
    size_t seen_count = 0;
    int file = mkstemp(path);
    HOLDS(file >= 0);
    say("dot", cuGraphDebugDotPrint(graph, path, 0));
    FILE *dot = fdopen(file, "r");
    HOLDS(dot != NULL);
    while (fgets(line, sizeof line, dot) != NULL) {
        for (const char *at = line; *at != '\0'; at++) {
            char *end;
            if (*at < '0' || *at > '9') {
                putchar(*at);
                continue;
            }
            unsigned long long number = strtoull(at, &end, 10);
            size_t i = 0;
            while (i < seen_count && seen[i] != number) {
                i++;
            }
            if (i == seen_count && seen_count < ROOM) {
                seen[seen_count++] = number;
            }
            printf("#%zu", i);
            at = end - 1;
        }
    }
    fclose(dot);
    unlink(path);
}

static void dot(void)
{
    prepare();
    CUgraph graph = capture_pass(&rig, rig.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    tell_dot(graph);
    CUgraphExec exec = make_exec(graph);
    replay(&rig, exec, 3);
    tell_dot(graph);
    rig_close(&rig);
}

/* ExLlama: parameters are changed through the pointers that the driver returned, then the graph is instantiated. */
static void written_through_pointers(void)
{
    CUgraphNode node[ROOM];
    size_t count = ROOM;
    prepare();
    CUgraph graph = capture_pass(&rig, rig.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuGraphGetNodes(graph, node, &count));
    replay(&rig, make_exec(graph), 2);
    for (unsigned i = 0; i < COUNT;
         i++) { /* each node reads another weight, to the place where that one is looked for */
        CUDA_KERNEL_NODE_PARAMS params, again;
        const unsigned other = (i + 2) % COUNT;
        OK(cuGraphKernelNodeGetParams(node[i], &params));
        *(CUdeviceptr *)params.kernelParams[0] = rig.weight[other].address;
        *(CUdeviceptr *)params.kernelParams[1] = rig.out + 4 * other;
        OK(cuGraphKernelNodeGetParams(node[i], &again));
        tell("the same pointers", again.kernelParams == params.kernelParams);
    }
    tell_through_life(graph);
}

/* Instantiates with these flags, and runs what comes of it. */
static void try_flags(CUgraph graph, unsigned flags)
{
    CUgraphExec exec;
    cuuint64_t got = 77;
    CUresult result = cuGraphInstantiate(&exec, graph, flags);
    say("instantiate", result);
    if (result == CUDA_SUCCESS) {
        say("flags", cuGraphExecGetFlags(exec, &got));
        tell("are", (long long)got);
        replay(&rig, exec, 1);
        OK(cuGraphExecDestroy(exec));
    }
}

static void attributes_and_flags(void)
{
    CUgraphNode node[ROOM];
    size_t count = ROOM;
    prepare();
    CUgraph graph = chain_of_reads(&rig);
    OK(cuGraphGetNodes(graph, node, &count));
    for (size_t i = 0; i < count; i++) {
        CUkernelNodeAttrValue value = {.priority = -(int)(i % 3)};
        OK(cuGraphKernelNodeSetAttribute(node[i], CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
    }
    for (unsigned flags = 0; flags < 32; flags++) {
        if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) == 0) {
            try_flags(graph, flags);
        }
    }
    for (size_t i = 0; i < count; i++) {
        CUkernelNodeAttrValue value;
        OK(cuGraphKernelNodeGetAttribute(node[i], CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
        tell("priority", value.priority);
    }
    tell_through_life(graph);
}

/* Graphs that kernels may launch: nobody can bring weights for them, so what they read is not streamed any more. */
static void launched_from_the_device(void)
{
    prepare();
    CUgraph graph = chain_of_reads(&rig);
    for (unsigned flags = 0; flags < 16; flags++) {
        try_flags(graph, flags | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH);
    }
    for (int pass = 0; pass < 3; pass++) {
        rig_pass(&rig, NULL, 0);
    }
    tell_graph(graph);
    OK(cuGraphDestroy(graph));
    rig_close(&rig);
}

/* The form of CUDA 11, which cuda.h no longer declares under this name. */
extern CUresult instantiate_with_log(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *text,
                                     size_t bytes) __asm__("cuGraphInstantiate_v2");

/* Every form of instantiation, with what else they return. */
static void forms_of_instantiation(void)
{
    CUgraph graph, cyclic;
    CUgraphExec exec;
    CUgraphNode error_node = (CUgraphNode)&graph;
    char text[64] = "untouched";
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD};
    prepare();
    graph = chain_of_reads(&rig);
    say("with a log", instantiate_with_log(&exec, graph, &error_node, text, sizeof text));
    tell("no error node", error_node == NULL);
    tell("no text", text[0] == '\0');
    replay(&rig, exec, 2);
    params.hUploadStream = rig.stream;
    say("with parameters", cuGraphInstantiateWithParams(&exec, graph, &params));
    tell("result", params.result_out);
    tell("no error node", params.hErrNode_out == NULL);
    replay(&rig, exec, 2);
    cyclic = new_graph();
    CUgraphNode first = add_read(&rig, cyclic, NULL, 0, 0, 0), second = add_read(&rig, cyclic, &first, 1, 1, 1);
    OK(cuGraphAddDependencies(cyclic, &second, &first, NULL, 1));
    say("a cycle", cuGraphInstantiate(&exec, cyclic, 0));
    say("a cycle", cuGraphInstantiateWithParams(&exec, cyclic, &params));
    tell("result", params.result_out);
    tell("an error node", params.hErrNode_out == first || params.hErrNode_out == second);
    say("nothing", cuGraphInstantiate(NULL, graph, 0));
    say("no graph", cuGraphInstantiate(&exec, NULL, 0));
    tell_through_life(graph);
}

static void CUDA_CB count_down(void *data)
{
    --*(int *)data;
}

/* User objects live as long as the graph and the executable graphs of it; not longer. */
static void user_objects(void)
{
    CUuserObject object;
    int alive = 1;
    prepare();
    CUgraph graph = chain_of_reads(&rig);
    OK(cuUserObjectCreate(&object, &alive, count_down, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    CUgraphExec exec = make_exec(graph);
    replay(&rig, exec, 2);
    OK(cuGraphDestroy(graph));
    tell("alive", alive);
    for (int round = 0; round < 3; round++) {
        rig_pass(&rig, NULL, 0);
        replay(&rig, exec, 2);
    }
    tell("alive", alive);
    OK(cuGraphExecDestroy(exec));
    tell("alive", alive);
    rig_close(&rig);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(captured),
    CASE(by_hand),
    CASE(fan),
    CASE(made_backwards),
    CASE(with_edge_data),
    CASE(copies_and_fills),
    CASE(in_a_child),
    CASE(clones),
    CASE(dot),
    CASE(written_through_pointers),
    CASE(attributes_and_flags),
    CASE(launched_from_the_device),
    CASE(forms_of_instantiation),
    CASE(user_objects),
};
RIG_MAIN(cases)
