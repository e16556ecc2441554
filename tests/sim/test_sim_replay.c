/* Graphs that run: order inside and between launches as the checker sees it, edge data, instantiation, time. */
#include "harness_graph.h"

#include <stdio.h>
#include <string.h>

static const CUgraphEdgeData programmatic = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                             .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
static const CUgraphEdgeData launch_order = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER};

/* ---- order */

static void without_edge(void)
{
    graph_prepare();
    CUgraph graph = new_graph();
    add_increment(graph, NULL, 0, a, 1);
    add_copy(graph, NULL, 0, a, b);
    run(instantiate(graph));
}

START_TEST(nodes_without_an_edge_race)
{
    RACE(without_edge, "probe_increment", "memcpy node");
}
END_TEST

/* Orders nothing but the starts. */
static void by_launch_order(void)
{
    graph_prepare();
    CUgraph graph = new_graph();
    CUgraphNode first = add_increment(graph, NULL, 0, a, 1), second = add_increment(graph, NULL, 0, a, 1);
    OK(cuGraphAddDependencies(graph, &first, &second, &launch_order, 1));
    run(instantiate(graph));
}

static void start_after_what_came_before(void)
{
    graph_prepare();
    CUgraph graph = new_graph();
    CUgraphNode before = add_increment(graph, NULL, 0, a, 1), first = add_increment(graph, &before, 1, b, 1),
                second = add_increment(graph, NULL, 0, a, 1);
    OK(cuGraphAddDependencies(graph, &first, &second, &launch_order, 1));
    run(instantiate(graph));
}

START_TEST(launch_order_orders_starts)
{
    RACE(by_launch_order, "probe_increment", "probe_increment");
    NO_RACE(start_after_what_came_before);
}
END_TEST

/* A copy that refills what the second kernel reads, while the first may still run. */
static void refill(int after_leader)
{
    graph_prepare();
    CUDA_KERNEL_NODE_PARAMS params = kernel_params("probe_copy", (void *[]){&b, &a, &words});
    CUgraph graph = new_graph();
    CUgraphNode second, early = add_copy(graph, NULL, 0, a, b), leader, late;
    leader = add_increment(graph, &early, 1, a, 1);
    OK(cuGraphAddKernelNode(&second, graph, NULL, 0, &params));
    OK(cuGraphAddDependencies(graph, &leader, &second, &programmatic, 1));
    if (after_leader) {
        CUdeviceptr spare = device_words(WORDS);
        late = add_copy(graph, &leader, 1, spare, b);
        OK(cuGraphAddDependencies(graph, &late, &second, NULL, 1));
    }
    run(instantiate(graph));
}

static void refill_before_the_leader(void)
{
    refill(0);
}

static void refill_after_the_leader(void)
{
    refill(1);
}

START_TEST(refills_come_before_the_leader_of_a_programmatic_launch)
{
    NO_RACE(refill_before_the_leader);
    NO_RACE(refill_after_the_leader); /* a full edge from the copy: the second kernel starts after it */
}
END_TEST

/* The copy runs beside the leader and its reader is only programmatically after the leader. */
static void refill_beside_the_leader(void)
{
    graph_prepare();
    CUdeviceptr spare = device_words(WORDS);
    CUDA_KERNEL_NODE_PARAMS params = kernel_params("probe_copy", (void *[]){&b, &a, &words});
    CUgraph graph = new_graph();
    CUgraphNode second, copy_node, leader, end;
    copy_node = add_copy(graph, NULL, 0, spare, b);
    leader = add_increment(graph, NULL, 0, a, 1);
    OK(cuGraphAddDependencies(graph, &copy_node, &leader, NULL, 1));
    OK(cuGraphAddKernelNode(&second, graph, NULL, 0, &params));
    OK(cuGraphAddDependencies(graph, &leader, &second, &programmatic, 1));
    end = add_copy(graph, &second, 1, spare, b);
    (void)end;
    CUgraphExec exec = instantiate(graph);
    run(exec);
    run(exec);
}

/* The reads of a programmatic kernel before its wait are not behind work of another branch that only the leader
 * follows. */
static void refill_unordered(void)
{
    graph_prepare();
    CUdeviceptr spare = device_words(WORDS);
    CUDA_KERNEL_NODE_PARAMS params = kernel_params("probe_copy", (void *[]){&b, &spare, &words});
    CUgraph graph = new_graph();
    CUgraphNode second, leader;
    add_copy(graph, NULL, 0, a, b);
    leader = add_increment(graph, NULL, 0, spare, 1);
    OK(cuGraphAddKernelNode(&second, graph, NULL, 0, &params));
    OK(cuGraphAddDependencies(graph, &leader, &second, &programmatic, 1));
    run(instantiate(graph));
}

START_TEST(refills_are_ordered_by_the_leaders_start)
{
    NO_RACE(refill_beside_the_leader);
    RACE(refill_unordered, "memcpy node", "probe_copy");
}
END_TEST

START_TEST(edge_data_is_checked)
{
    CUgraphEdgeData data = programmatic, port = {.to_port = 1}, reserved = {.reserved = {1}};
    CUgraphNodeParams params;
    CUgraphNode node;
    memset(&params, 0, sizeof params);
    params.type = CU_GRAPH_NODE_TYPE_EMPTY;
    graph_prepare();
    CUgraph graph = new_graph();
    CUgraphNode kernel = add_increment(graph, NULL, 0, a, 1), other = add_increment(graph, NULL, 0, b, 1),
                copied = add_copy(graph, &kernel, 1, a, b);
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, &copied, &other, &data, 1)); /* not from a copy */
    data.from_port = 0;
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, &kernel, &other, &data, 1)); /* needs a port */
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, &kernel, &other, &port, 1));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, &kernel, &other, &reserved, 1));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode(&node, graph, &kernel, &programmatic, 1, &params));
    OK(cuGraphAddNode(&node, graph, &kernel, &launch_order, 1, &params));
    OK(cuGraphAddDependencies(graph, &kernel, &other, &programmatic, 1));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphRemoveDependencies(graph, &kernel, &other, NULL, 1)); /* other data */
    OK(cuGraphRemoveDependencies(graph, &kernel, &other, &programmatic, 1));
}
END_TEST

/* Events of a launch, waited for in the capture: edges from the kernel's other ports. */
START_TEST(captured_launch_events_are_ports)
{
    CUgraph graph;
    CUgraphNode from[4], to[4];
    CUgraphEdgeData data[4];
    size_t count = 4;
    graph_prepare();
    CUevent started = new_event(), join = new_event();
    CUstream t = new_stream();
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT,
                                   .value = {.launchCompletionEvent = {.event = started}}};
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 32,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = s,
                             .attrs = &attribute,
                             .numAttrs = 1};
    uint32_t value = 1;
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuLaunchKernelEx(&config, probe("probe_increment"), (void *[]){&a, &value, &words}, NULL));
    OK(cuStreamWaitEvent(t, started, 0));
    OK(increment(t, b, 1, WORDS));
    OK(cuEventRecord(join, t));
    OK(cuStreamWaitEvent(s, join, 0));
    OK(cuStreamEndCapture(s, &graph));
    OK(cuGraphGetEdges(graph, from, to, data, &count));
    ck_assert_uint_eq(count, 1);
    ck_assert_uint_eq(data[0].from_port, CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER);
    run(instantiate(graph));
    ck_assert_uint_eq(word_at(b), 3);
}
END_TEST

START_TEST(clones_keep_edge_data)
{
    CUgraph clone;
    CUgraphNode from[2], to[2], found;
    CUgraphEdgeData data[2];
    size_t count = 2;
    graph_prepare();
    CUgraph graph = new_graph();
    CUgraphNode first = add_increment(graph, NULL, 0, a, 1), second = add_increment(graph, NULL, 0, a, 1);
    OK(cuGraphAddDependencies(graph, &first, &second, &programmatic, 1));
    OK(cuGraphClone(&clone, graph));
    OK(cuGraphGetEdges(clone, from, to, data, &count));
    ck_assert_uint_eq(count, 1);
    ck_assert_uint_eq(data[0].type, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
    OK(cuGraphNodeFindInClone(&found, second, clone));
    ck_assert_ptr_eq(to[0], found);
}
END_TEST

/* ---- launches */

/* One stream has no order with the other, but the launches of one executable graph have. */
static void one_exec_in_two_streams(void)
{
    graph_prepare();
    CUstream t = new_stream();
    CUgraph graph = new_graph();
    add_increment(graph, NULL, 0, a, 1);
    CUgraphExec exec = instantiate(graph);
    for (int i = 0; i < 10; i++)
        OK(cuGraphLaunch(exec, i % 2 ? s : t));
    OK(cuCtxSynchronize());
    if (word_at(a) != 11)
        abort();
}

static void two_execs_in_two_streams(void)
{
    graph_prepare();
    CUstream t = new_stream();
    CUgraph graph = new_graph();
    add_increment(graph, NULL, 0, a, 1);
    CUgraphExec exec = instantiate(graph), other = instantiate(graph);
    OK(cuGraphLaunch(exec, s));
    OK(cuGraphLaunch(other, t));
}

START_TEST(launches_of_one_exec_are_in_order)
{
    NO_RACE(one_exec_in_two_streams);
    RACE(two_execs_in_two_streams, "probe_increment", "probe_increment");
}
END_TEST

/* What the stream does afterwards comes after the whole graph, also after a branch that nothing else depends on. */
static void work_after_a_graph(void)
{
    graph_prepare();
    probe_module();
    CUgraph graph = new_graph();
    add_increment(graph, NULL, 0, a, 1);
    add_increment(graph, NULL, 0, b, 1);
    OK(increment(s, b, 1, WORDS));
    OK(cuGraphLaunch(instantiate(graph), s));
    OK(copy(s, a, b, WORDS));
    OK(cuStreamSynchronize(s));
}

START_TEST(streams_order_graphs_with_other_work)
{
    NO_RACE(work_after_a_graph);
}
END_TEST

START_TEST(graphs_and_execs_are_independent)
{
    CUgraphExec exec[2];
    graph_prepare();
    CUgraph graph = new_graph();
    add_increment(graph, NULL, 0, a, 1);
    for (int i = 0; i < 2; i++)
        exec[i] = instantiate(graph);
    add_increment(graph, NULL, 0, b, 1); /* too late for them */
    OK(cuGraphDestroy(graph));
    run(exec[0]);
    OK(cuGraphLaunch(exec[0], s));
    OK(cuGraphExecDestroy(exec[0])); /* while it is under way */
    OK(cuStreamSynchronize(s));
    run(exec[1]);
    ck_assert_uint_eq(word_at(a), 4);
    ck_assert_uint_eq(word_at(b), 2);
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec[0], s));
}
END_TEST

START_TEST(instantiation_says_what_is_wrong)
{
    CUgraphExec exec;
    CUgraphNode empty;
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = 0};
    graph_prepare();
    CUgraph cyclic = new_graph(), device = new_graph();
    CUgraphNode first = add_increment(cyclic, NULL, 0, a, 1), second = add_increment(cyclic, &first, 1, a, 1);
    OK(cuGraphAddDependencies(cyclic, &second, &first, NULL, 1));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithParams(&exec, cyclic, &params));
    ck_assert_int_eq(params.result_out, CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE);
    ck_assert_ptr_nonnull(params.hErrNode_out);
    params.flags = CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithParams(&exec, device, &params)); /* empty */
    add_increment(device, NULL, 0, a, 1);
    OK(cuGraphInstantiateWithParams(&exec, device, &params));
    OK(cuGraphAddEmptyNode(&empty, device, NULL, 0));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithParams(&exec, device, &params));
    ck_assert_int_eq(params.result_out, CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED);
    ck_assert_ptr_eq(params.hErrNode_out, empty);
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&exec, device,
                                                         CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH |
                                                             CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
}
END_TEST

START_TEST(dot_names_every_node_and_edge)
{
    char line[256], path[] = "/tmp/sim_graph_dot_XXXXXX";
    int nodes = 0, edges = 0;
    graph_prepare();
    int file = mkstemp(path);
    ck_assert_int_ge(file, 0);
    CUgraph graph = new_graph();
    CUgraphNode first = add_increment(graph, NULL, 0, a, 1);
    add_copy(graph, &first, 1, a, b);
    OK(cuGraphDebugDotPrint(graph, path, 0));
    FILE *dot = fdopen(file, "r");
    while (fgets(line, sizeof line, dot) != NULL) {
        nodes += strstr(line, "probe_increment") != NULL || strstr(line, "MEMCPY") != NULL;
        edges += strstr(line, "->") != NULL;
    }
    fclose(dot);
    remove(path);
    ck_assert_int_eq(nodes, 2);
    ck_assert_int_eq(edges, 1);
}
END_TEST

/* ---- time: weights that stream through a ring inside a graph */

enum { UNITS = 12, SLOTS = 3 };
static const size_t unit_bytes = (size_t)32 << 20;

/* A kernel a unit, each after its copy, each copy after the one before and after the last reader of its slot. */
static CUgraph streaming_graph(CUdeviceptr ring, void *host, double microseconds)
{
    CUgraph graph = new_graph();
    CUgraphNode copied[UNITS], kernel[UNITS];
    for (int i = 0; i < UNITS; i++) {
        CUdeviceptr slot = ring + unit_bytes * (size_t)(i % SLOTS);
        CUDA_MEMCPY3D params = copy_params(0, slot);
        params.srcMemoryType = CU_MEMORYTYPE_HOST;
        params.srcHost = host;
        params.WidthInBytes = unit_bytes;
        CUgraphNode from[2] = {i > 0 ? copied[i - 1] : NULL, i >= SLOTS ? kernel[i - SLOTS] : NULL};
        size_t count = (size_t)(i > 0) + (size_t)(i >= SLOTS);
        OK(cuGraphAddMemcpyNode(&copied[i], graph, from, count, &params, context));
        CUDA_KERNEL_NODE_PARAMS work = kernel_params("probe_slow_copy", (void *[]){&slot, &b, &words, &microseconds});
        CUgraphNode before[2] = {copied[i], i > 0 ? kernel[i - 1] : NULL};
        OK(cuGraphAddKernelNode(&kernel[i], graph, before, 1 + (size_t)(i > 0), &work));
    }
    return graph;
}

static float milliseconds_of(CUgraphExec exec)
{
    CUevent begin, end;
    float milliseconds;
    OK(cuEventCreate(&begin, 0));
    OK(cuEventCreate(&end, 0));
    OK(cuEventRecord(begin, s));
    OK(cuGraphLaunch(exec, s));
    OK(cuEventRecord(end, s));
    OK(cuStreamSynchronize(s));
    OK(cuEventElapsedTime(&milliseconds, begin, end));
    return milliseconds;
}

START_TEST(copies_run_beside_kernels)
{
    void *host;
    graph_prepare();
    CUdeviceptr ring = device_words(unit_bytes / 4 * SLOTS);
    OK(cuMemHostAlloc(&host, unit_bytes, 0));
    double copy_ms = (double)(UNITS * unit_bytes) / 55.2e6; /* all of it at the link's peak */
    float bound_by_link = milliseconds_of(instantiate(streaming_graph(ring, host, 100)));
    ck_assert_msg(bound_by_link > copy_ms && bound_by_link < copy_ms / 0.97, "%f ms, %f at the peak",
                  (double)bound_by_link, copy_ms);
    float bound_by_kernels = milliseconds_of(instantiate(streaming_graph(ring, host, 2000)));
    ck_assert_msg(bound_by_kernels > UNITS * 2 && bound_by_kernels < UNITS * 2 + 1, "%f ms", (double)bound_by_kernels);
}
END_TEST

/* A graph that works for a while, and records an event then, which was recorded before. */
static CUevent event_of_graph_in_flight(void)
{
    double microseconds = 500;
    CUgraphNode work, node;
    CUevent event;
    CUgraph graph = new_graph();
    OK(cuEventCreate(&event, 0));
    OK(cuEventRecord(event, s));
    CUDA_KERNEL_NODE_PARAMS params = kernel_params("probe_spin", (void *[]){&microseconds});
    OK(cuGraphAddKernelNode(&work, graph, NULL, 0, &params));
    OK(cuGraphAddEventRecordNode(&node, graph, &work, 1, event));
    OK(cuGraphLaunch(instantiate(graph), s));
    return event;
}

START_TEST(events_of_nodes_are_pending_from_the_launch_on)
{
    float ms;
    graph_prepare();
    CUevent event = event_of_graph_in_flight();
    ANSWERS(CUDA_ERROR_NOT_READY, cuEventElapsedTime(&ms, event, event));
    ANSWERS(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    OK(cuStreamSynchronize(s));
    OK(cuEventElapsedTime(&ms, event, event));
}
END_TEST

START_TEST(events_of_nodes_can_be_old_until_they_run)
{
    CUevent before;
    float ms;
    knob("SIM_NODE_EVENTS", "run");
    graph_prepare();
    OK(cuEventCreate(&before, 0));
    OK(cuEventRecord(before, s));
    CUevent event = event_of_graph_in_flight();
    OK(cuEventElapsedTime(&ms, before, event));
    ck_assert_float_lt(ms, 0.1f);
    OK(cuEventQuery(event));
    OK(cuStreamSynchronize(s));
    OK(cuEventElapsedTime(&ms, before, event));
    ck_assert_float_gt(ms, 0.4f);
}
END_TEST

START_TEST(large_graphs_are_quick)
{
    enum { NODES = 2000 };
    CUgraph clone;
    CUgraphNode found;
    graph_prepare();
    CUgraph graph = new_graph();
    CUgraphNode node[NODES];
    for (int i = 0; i < NODES; i++)
        node[i] = add_increment(graph, i > 0 ? &node[i - 1] : NULL, i > 0, a, 1);
    OK(cuGraphClone(&clone, graph));
    for (int i = 0; i < NODES; i++)
        OK(cuGraphNodeFindInClone(&found, node[i], clone));
    CUgraphExec exec = instantiate(clone);
    run(exec);
    ck_assert_uint_eq(word_at(a), 1 + NODES);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(clone));
}
END_TEST

SUITE(sim_replay, nodes_without_an_edge_race, launch_order_orders_starts,
      refills_come_before_the_leader_of_a_programmatic_launch, refills_are_ordered_by_the_leaders_start,
      edge_data_is_checked, captured_launch_events_are_ports, clones_keep_edge_data, launches_of_one_exec_are_in_order,
      streams_order_graphs_with_other_work, graphs_and_execs_are_independent, instantiation_says_what_is_wrong,
      dot_names_every_node_and_edge, copies_run_beside_kernels, events_of_nodes_are_pending_from_the_launch_on,
      events_of_nodes_can_be_old_until_they_run, large_graphs_are_quick)
