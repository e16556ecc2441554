/*
 * Graphs that upload addresses: what a copy node reads is decided when the graph is launched, not when it is made.
 */
#include "rig_graph.h"
#include "tables.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Another pair of weights each round: stored in host memory, uploaded by the graph, read from the table. */
static void launch_round(struct rig *rig, CUgraphExec exec, uint64_t *host, CUdeviceptr table, unsigned round)
{
    unsigned index[2];
    tables_pair(round, index);
    tables_fill(rig, index, 2, host);
    OK(cuGraphLaunch(exec, rig->stream));
    tables_read(rig, table, index, 2);
    rig_pass(rig, NULL, 0);
    tables_read(rig, table, index, 2);
}

static void rounds(struct rig *rig, CUgraphExec exec, uint64_t *host, CUdeviceptr table)
{
    for (unsigned round = 0; round < COUNT; round++) {
        launch_round(rig, exec, host, table, round);
    }
}

static CUdeviceptr small_memory(void)
{
    CUdeviceptr address;
    OK(cuMemAlloc(&address, 4096));
    return address;
}

static void captured(uint64_t *host)
{
    struct rig rig;
    CUgraph graph;
    tables_open(&rig);
    CUdeviceptr table = small_memory();
    void *pinned = NULL;
    if (host == NULL) {
        OK(cuMemHostAlloc(&pinned, 4096, 0));
        host = pinned;
    }
    memset(host, 0, 16);
    rig_until_streamed(&rig);
    OK(cuStreamBeginCapture(rig.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemcpyHtoDAsync(table, host, 16, rig.stream));
    CUgraphExec exec = rig_end_capture(&rig, &graph);
    HOLDS(rig_streamed_mib() > 0);
    rounds(&rig, exec, host, table);
    rig_drop_graph(exec, graph);
    OK(cuMemFree(table));
    if (pinned != NULL) {
        OK(cuMemFreeHost(pinned));
    }
    rig_close(&rig);
}

static void captured_from_pinned(void)
{
    captured(NULL);
}

static void captured_from_pageable(void)
{
    uint64_t *host = calloc(2, 8);
    HOLDS(host != NULL);
    captured(host);
    free(host);
}

static CUDA_MEMCPY3D upload(CUdeviceptr table, const void *host)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_HOST,
                           .srcHost = host,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = table,
                           .WidthInBytes = 16,
                           .Height = 1,
                           .Depth = 1};
}

/* A graph of one upload. */
static CUgraph build(const struct rig *rig, CUdeviceptr table, const void *host, CUgraphNode *node)
{
    CUgraph graph;
    CUDA_MEMCPY3D copy = upload(table, host);
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemcpyNode(node, graph, NULL, 0, &copy, rig->context));
    return graph;
}

static void built_from_pageable(void)
{
    struct rig rig;
    CUgraphNode node;
    static uint64_t host[2];
    tables_open(&rig);
    CUdeviceptr table = small_memory();
    rig_until_streamed(&rig);
    CUgraph graph = build(&rig, table, host, &node);
    CUgraphExec exec = rig_instantiate(graph);
    OK(cuGraphDestroy(graph)); /* the executable one lives on */
    rounds(&rig, exec, host, table);
    OK(cuGraphExecDestroy(exec));
    OK(cuMemFree(table));
    rig_close(&rig);
}

/* The node is set to another source, and that one to the next. Freed ones are not looked at. */
static void set_parameters(bool any)
{
    struct rig rig;
    CUgraphNode node;
    tables_open(&rig);
    CUdeviceptr table = small_memory();
    uint64_t *host = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    rig_until_streamed(&rig);
    CUgraph graph = build(&rig, table, host, &node);
    CUgraphExec exec = rig_instantiate(graph);
    for (unsigned round = 0; round < COUNT; round++) {
        uint64_t *next = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CUDA_MEMCPY3D copy = upload(table, next);
        if (any) {
            CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
            params.memcpy.copyCtx = rig.context;
            params.memcpy.copyParams = copy;
            OK(cuGraphExecNodeSetParams(exec, node, &params));
        } else {
            OK(cuGraphExecMemcpyNodeSetParams(exec, node, &copy, rig.context));
        }
        munmap(host, 4096);
        host = next;
        launch_round(&rig, exec, host, table, round);
    }
    munmap(host, 4096);
    rig_drop_graph(exec, graph);
    OK(cuMemFree(table));
    rig_close(&rig);
}
static void node_parameters(void)
{
    set_parameters(false);
}
static void any_node_parameters(void)
{
    set_parameters(true);
}

static void updated(void)
{
    struct rig rig;
    CUgraphNode node;
    static uint64_t first[2], host[2];
    tables_open(&rig);
    CUdeviceptr table = small_memory();
    rig_until_streamed(&rig);
    CUgraph graph = build(&rig, table, first, &node), other = build(&rig, table, host, &node);
    CUgraphExec exec = rig_instantiate(graph);
    CUgraphExecUpdateResultInfo info;
    OK(cuGraphExecUpdate(exec, other, &info));
    rounds(&rig, exec, host, table);
    rig_drop_graph(exec, graph);
    OK(cuGraphDestroy(other));
    OK(cuMemFree(table));
    rig_close(&rig);
}

static void in_child(bool set)
{
    struct rig rig;
    CUgraph graph;
    CUgraphNode node, parent;
    static uint64_t first[2], host[2];
    tables_open(&rig);
    CUdeviceptr table = small_memory();
    rig_until_streamed(&rig);
    CUgraph child = build(&rig, table, set ? first : host, &node), other = build(&rig, table, host, &node);
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddChildGraphNode(&parent, graph, NULL, 0, child));
    CUgraphExec exec = rig_instantiate(graph);
    if (set) {
        OK(cuGraphExecChildGraphNodeSetParams(exec, parent, other));
    }
    rounds(&rig, exec, host, table);
    rig_drop_graph(exec, graph);
    OK(cuGraphDestroy(child));
    OK(cuGraphDestroy(other));
    OK(cuMemFree(table));
    rig_close(&rig);
}
static void child_graph(void)
{
    in_child(false);
}
static void child_set(void)
{
    in_child(true);
}

/* The graph's kernel takes the table where the CPU stores it. */
static void kernel_in_graph(bool set)
{
    struct rig rig;
    CUgraph graph;
    CUgraphNode node;
    uint64_t *host, *first;
    tables_open(&rig);
    OK(cuMemHostAlloc((void **)&first, 4096, 0));
    OK(cuMemHostAlloc((void **)&host, 4096, 0));
    CUdeviceptr table, out = tables_out();
    OK(cuMemHostGetDevicePointer(&table, set ? first : host, 0));
    rig_until_streamed(&rig);
    unsigned index[2];
    uint64_t entries = 2, words = WORDS;
    void *params[] = {&table, &entries, &out, &words};
    CUDA_KERNEL_NODE_PARAMS kernel = rig_kernel_node(&rig, "probe_read_table", params);
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &kernel));
    CUgraphExec exec = rig_instantiate(graph);
    if (set) {
        OK(cuMemHostGetDevicePointer(&table, host, 0));
        OK(cuGraphExecKernelNodeSetParams(exec, node, &kernel));
        OK(cuMemFreeHost(first));
    }
    for (unsigned round = 0; round < COUNT; round++) {
        tables_pair(round, index);
        tables_fill(&rig, index, 2, host);
        OK(cuGraphLaunch(exec, rig.stream));
        tables_compare(&rig, index, 2);
        rig_pass(&rig, NULL, 0);
    }
    rig_drop_graph(exec, graph);
    OK(cuMemFreeHost(host));
    if (!set) {
        OK(cuMemFreeHost(first));
    }
    rig_close(&rig);
}
static void kernel_takes_pinned(void)
{
    kernel_in_graph(false);
}
static void kernel_node_set(void)
{
    kernel_in_graph(true);
}

/* The graph writes to a large allocation that was looked at before and that no launch names. */
static void into_the_arena_before_the_plan(void)
{
    struct rig rig;
    CUgraphNode node;
    static uint64_t host[2];
    CUdeviceptr table;
    tables_open(&rig);
    OK(cuMemAlloc(&table, 2 * MIB));
    OK(cuMemsetD32(table, 0, 2 * MIB / 4));
    OK(cuCtxSynchronize());
    CUgraph graph = build(&rig, table, host, &node);
    CUgraphExec exec = rig_instantiate(graph);
    rig_pass(&rig, NULL, 0);
    static const unsigned two[2] = {2, 5};
    tables_fill(&rig, two, 2, host);
    OK(cuGraphLaunch(exec, rig.stream));
    OK(cuStreamSynchronize(rig.stream));
    memset(host, 0, sizeof host);
    rig_until_streamed(&rig);
    tables_read_often(&rig, table, two, 2);
    rig_drop_graph(exec, graph);
    OK(cuMemFree(table));
    rig_close(&rig);
}

/* The graph is gone, then its source; another graph may get its handle. */
static void source_goes_with_the_graph(void)
{
    struct rig rig;
    CUgraphNode node;
    static uint64_t stays[2];
    tables_open(&rig);
    CUdeviceptr table = small_memory();
    rig_until_streamed(&rig);
    for (unsigned round = 0; round < COUNT; round++) {
        uint64_t *host = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CUgraph graph = build(&rig, table, host, &node);
        CUgraphExec exec = rig_instantiate(graph);
        launch_round(&rig, exec, host, table, round);
        rig_drop_graph(exec, graph);
        munmap(host, 4096);
        graph = build(&rig, table, stays, &node);
        exec = rig_instantiate(graph);
        launch_round(&rig, exec, stays, table, round + 3);
        rig_drop_graph(exec, graph);
    }
    OK(cuMemFree(table));
    rig_close(&rig);
}

/* The update renames the nodes; then the node is set by its old name, and the update's source goes away. */
static void source_gone_after_update(void)
{
    struct rig rig;
    CUgraphNode node, renamed;
    static uint64_t first[2], last[2];
    tables_open(&rig);
    CUdeviceptr table = small_memory();
    uint64_t *middle = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    rig_until_streamed(&rig);
    CUgraph graph = build(&rig, table, first, &node), other = build(&rig, table, middle, &renamed);
    CUgraphExec exec = rig_instantiate(graph);
    CUgraphExecUpdateResultInfo info;
    OK(cuGraphExecUpdate(exec, other, &info));
    launch_round(&rig, exec, middle, table, 0);
    CUDA_MEMCPY3D copy = upload(table, last);
    OK(cuGraphExecMemcpyNodeSetParams(exec, node, &copy, rig.context));
    munmap(middle, 4096);
    rounds(&rig, exec, last, table);
    rig_drop_graph(exec, graph);
    OK(cuGraphDestroy(other));
    OK(cuMemFree(table));
    rig_close(&rig);
}

/* A graph that uploads what is no address changes nothing: what is streamed stays streamed. */
static void graph_without_addresses(void)
{
    struct rig rig;
    CUgraphNode node;
    static uint64_t host[2];
    uint64_t got[2];
    tables_open(&rig);
    CUdeviceptr table = small_memory();
    rig_until_streamed(&rig);
    CUgraph graph = build(&rig, table, host, &node);
    CUgraphExec exec = rig_instantiate(graph);
    for (unsigned round = 0; round < 12; round++) {
        host[0] = round;
        OK(cuGraphLaunch(exec, rig.stream));
        OK(cuStreamSynchronize(rig.stream));
        OK(cuMemcpyDtoH(got, table, sizeof got));
        HOLDS(got[0] == round);
        rig_pass(&rig, NULL, 0);
    }
    HOLDS(rig_plans() == 1);
    rig_drop_graph(exec, graph);
    OK(cuMemFree(table));
    rig_close(&rig);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(captured_from_pinned),
    CASE(captured_from_pageable),
    CASE(built_from_pageable),
    CASE(node_parameters),
    CASE(any_node_parameters),
    CASE(updated),
    CASE(child_graph),
    CASE(child_set),
    CASE(kernel_takes_pinned),
    CASE(kernel_node_set),
    CASE(into_the_arena_before_the_plan),
    CASE(source_goes_with_the_graph),
    CASE(source_gone_after_update),
    CASE(graph_without_addresses),
};
RIG_MAIN(cases)
