/* Updates of executable graphs: what may change, what is refused with which code, and that a refusal changes nothing.
 */
#include "harness_graph.h"

#include <string.h>

START_TEST(exec_nodes_are_set_by_the_original_handle)
{
    CUgraph graph;
    uint32_t value = 1000;
    CUgraphNode alien;
    graph_prepare();
    OK(cuGraphCreate(&graph, 0));
    CUgraphNode node = add_increment(graph, NULL, 0, a, 1);
    CUgraphExec exec = instantiate(graph);
    CUDA_KERNEL_NODE_PARAMS params = kernel_params("probe_increment", (void *[]){&a, &value, &words});
    OK(cuGraphExecKernelNodeSetParams(exec, node, &params));
    run(exec);
    ck_assert_uint_eq(word_at(a), 1001);
    run(instantiate(graph)); /* the graph itself is as it was */
    ck_assert_uint_eq(word_at(a), 1002);
    OK(cuGraphAddEmptyNode(&alien, graph, NULL, 0)); /* added after instantiation */
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphExecKernelNodeSetParams(exec, alien, &params));
}
END_TEST

START_TEST(nodes_can_be_disabled)
{
    CUgraph graph;
    unsigned enabled;
    graph_prepare();
    OK(cuGraphCreate(&graph, 0));
    CUgraphNode first = add_increment(graph, NULL, 0, a, 1), empty;
    add_increment(graph, &first, 1, a, 10);
    OK(cuGraphAddEmptyNode(&empty, graph, NULL, 0));
    CUgraphExec exec = instantiate(graph);
    OK(cuGraphNodeGetEnabled(exec, first, &enabled));
    ck_assert_uint_eq(enabled, 1);
    OK(cuGraphNodeSetEnabled(exec, first, 0));
    run(exec);
    ck_assert_uint_eq(word_at(a), 11);
    OK(cuGraphNodeSetEnabled(exec, first, 1));
    run(exec);
    ck_assert_uint_eq(word_at(a), 22);
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphNodeSetEnabled(exec, empty, 0));
}
END_TEST

static CUgraph capture_two(uint32_t value, int extra_node)
{
    CUgraph graph;
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(increment(s, a, value, WORDS));
    OK(cuMemcpyDtoDAsync(b, a, 4 * WORDS, s));
    if (extra_node)
        OK(increment(s, b, value, WORDS));
    OK(cuStreamEndCapture(s, &graph));
    return graph;
}

START_TEST(update_takes_new_parameters)
{
    CUgraphExecUpdateResultInfo info;
    graph_prepare();
    probe_module();
    CUgraphExec exec = instantiate(capture_two(1, 0));
    OK(cuGraphExecUpdate(exec, capture_two(40, 0), &info));
    ck_assert_int_eq(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
    run(exec);
    ck_assert_uint_eq(word_at(b), 41);
}
END_TEST

START_TEST(update_refuses_another_shape)
{
    CUgraphExecUpdateResultInfo info;
    CUgraph graph;
    CUgraphNode first;
    graph_prepare();
    probe_module();
    CUgraphExec exec = instantiate(capture_two(1, 0));
    ANSWERS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, capture_two(1, 1), &info));
    ck_assert_int_eq(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    OK(cuGraphCreate(&graph, 0)); /* same number of nodes, another type */
    first = add_copy(graph, NULL, 0, a, b);
    add_copy(graph, &first, 1, a, b);
    ANSWERS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, graph, &info));
    ck_assert_int_eq(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
    ck_assert_ptr_eq(info.errorNode, first);
    run(exec); /* and is as before */
    ck_assert_uint_eq(word_at(b), 2);
}
END_TEST

/* The update must fail with this code and name these nodes; afterwards the executable graph runs as before. */
static void refused(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResult result, CUgraphNode node, CUgraphNode from)
{
    CUgraphExecUpdateResultInfo info;
    ANSWERS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, graph, &info));
    ck_assert_int_eq(info.result, result);
    ck_assert_ptr_eq(info.errorNode, node);
    ck_assert_ptr_eq(info.errorFromNode, from);
}

START_TEST(nodes_pair_up_from_the_exits_whatever_their_order)
{
    CUgraphExecUpdateResultInfo info;
    graph_prepare();
    CUgraph graph = new_graph(), other = new_graph();
    CUgraphNode first = add_increment(graph, NULL, 0, a, 1), second = add_increment(graph, &first, 1, b, 1);
    add_copy(graph, &second, 1, a, b);
    /* The same shape, its nodes made in another order and joined afterwards. */
    CUgraphNode last = add_copy(other, NULL, 0, a, b), middle = add_increment(other, NULL, 0, b, 1),
                root = add_increment(other, NULL, 0, a, 40);
    OK(cuGraphAddDependencies(other, (CUgraphNode[]){middle, root}, (CUgraphNode[]){last, middle}, NULL, 2));
    CUgraphExec exec = instantiate(graph);
    OK(cuGraphExecUpdate(exec, other, &info));
    run(exec);
    ck_assert_uint_eq(word_at(b), 41);
}
END_TEST

START_TEST(more_exits_name_one_of_them)
{
    graph_prepare();
    CUgraph graph = new_graph(), other = new_graph();
    CUgraphNode first = add_increment(graph, NULL, 0, a, 1);
    add_increment(graph, &first, 1, b, 1);
    add_increment(other, NULL, 0, a, 1);
    CUgraphNode extra = add_increment(other, NULL, 0, b, 1);
    CUgraphExec exec = instantiate(graph);
    refused(exec, other, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, extra, NULL);
    CUgraphExec parallel = instantiate(other);
    refused(parallel, graph, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, NULL, NULL);
}
END_TEST

START_TEST(dependencies_are_compared_in_their_order)
{
    graph_prepare();
    CUgraph graph = new_graph(), fewer = new_graph(), crossed = new_graph();
    CUgraph graphs[3] = {graph, fewer, crossed};
    CUgraphNode node[3][4];
    for (int g = 0; g < 3; g++) {
        node[g][0] = add_increment(graphs[g], NULL, 0, a, 1);
        node[g][1] = add_copy(graphs[g], &node[g][0], g == 1 ? 0 : 1, a, b);
    }
    /* a diamond's end: depends on first and second; on one of them; on both in the other order */
    node[0][2] = add_increment(graph, node[0], 2, b, 1);
    node[1][2] = add_increment(fewer, &node[1][1], 1, b, 1);
    node[2][2] = add_increment(crossed, (CUgraphNode[]){node[2][1], node[2][0]}, 2, b, 1);
    CUgraphExec exec = instantiate(graph);
    /* what nothing depends on is one exit more, and exits come first */
    refused(exec, fewer, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, node[1][2], NULL);
    refused(exec, crossed, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, node[2][1], NULL);
    run(exec);
    ck_assert_uint_eq(word_at(b), 3);
}
END_TEST

START_TEST(edge_data_is_part_of_the_shape)
{
    graph_prepare();
    const CUgraphEdgeData programmatic = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                          .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
    CUgraph graph = new_graph(), other = new_graph();
    CUgraphNode first = add_increment(graph, NULL, 0, a, 1), one = add_increment(other, NULL, 0, a, 1);
    add_increment(graph, &first, 1, a, 1);
    CUgraphNode two = add_increment(other, NULL, 0, a, 1);
    OK(cuGraphAddDependencies(other, &one, &two, &programmatic, 1));
    refused(instantiate(graph), other, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, two, one);
}
END_TEST

START_TEST(kernels_stay_in_their_context)
{
    CUcontext second;
    CUmodule module;
    CUdeviceptr there;
    CUgraph graph, other;
    graph_prepare();
    graph = new_graph();
    add_increment(graph, NULL, 0, a, 1);
    CUgraphExec exec = instantiate(graph);
#if CUDA_VERSION >= 13000
    OK(cuCtxCreate(&second, NULL, 0, 0));
#else
    OK(cuCtxCreate(&second, 0, 0));
#endif
    OK(cuModuleLoad(&module, SIM_KERNEL_IMAGES "/probe.fatbin"));
    there = device_words(WORDS);
    uint32_t value = 1;
    CUDA_KERNEL_NODE_PARAMS params = kernel_params("probe_increment", (void *[]){&there, &value, &words});
    OK(cuModuleGetFunction(&params.func, module, "probe_increment"));
    other = new_graph();
    CUgraphNode node;
    OK(cuGraphAddKernelNode(&node, other, NULL, 0, &params));
    refused(exec, other, CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE, node, NULL);
}
END_TEST

START_TEST(cooperative_and_priority_are_kept)
{
    const CUkernelNodeAttrValue cooperative = {.cooperative = 1}, priority = {.priority = -2};
    CUgraphExec by_priority;
    CUgraphExecUpdateResultInfo info;
    graph_prepare();
    CUgraph graph = new_graph(), other = new_graph();
    add_increment(graph, NULL, 0, a, 1);
    CUgraphNode node = add_increment(other, NULL, 0, a, 2);
    CUgraphExec exec = instantiate(graph);
    OK(cuGraphInstantiate(&by_priority, graph, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY));
    OK(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &priority));
    OK(cuGraphExecUpdate(exec, other, &info)); /* priorities count only where they were asked for */
    refused(by_priority, other, CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED, node, NULL);
    OK(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &cooperative));
    refused(exec, other, CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED, node, NULL);
}
END_TEST

START_TEST(operands_stay_where_they_are)
{
    CUgraphNode node;
    graph_prepare();
    CUDA_MEMCPY3D params = copy_params(a, b);
    uint32_t *pinned = pinned_words(WORDS);
    CUgraph graph = new_graph(), other = new_graph();
    CUgraphNode copy_node = add_copy(graph, NULL, 0, a, b);
    CUgraphExec exec = instantiate(graph);
    params.srcMemoryType = CU_MEMORYTYPE_HOST;
    params.srcHost = pinned;
    OK(cuGraphAddMemcpyNode(&node, other, NULL, 0, &params, context));
    refused(exec, other, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, node, NULL);
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemcpyNodeSetParams(exec, copy_node, &params, context));
    params = copy_params(b, a); /* other addresses of the same device are fine */
    OK(cuGraphExecMemcpyNodeSetParams(exec, copy_node, &params, context));
    run(exec);
    ck_assert_uint_eq(word_at(a), 2);
    params.Height = 2;
    params.WidthInBytes = 64;
    params.srcPitch = params.dstPitch = 128;
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemcpyNodeSetParams(exec, copy_node, &params, context));
    params.Height = 1;
    params.WidthInBytes = 0;
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemcpyNodeSetParams(exec, copy_node, &params, context));
}
END_TEST

START_TEST(host_located_memory_counts_as_another_place)
{
    graph_prepare();
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA}};
    OK(cuMemCreate(&handle, PAGE, &prop, 0));
    OK(cuMemAddressReserve(&address, PAGE, 0, 0, 0));
    OK(map_at(address, PAGE, handle, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    CUgraph graph = new_graph();
    CUgraphNode node = add_copy(graph, NULL, 0, a, b);
    CUgraphExec exec = instantiate(graph);
    const CUDA_MEMCPY3D params = copy_params(address, b);
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemcpyNodeSetParams(exec, node, &params, context));
    struct mapped mapped = map_new(PAGE);
    OK(cuMemsetD32(mapped.address, 9, WORDS));
    OK(cuCtxSynchronize());
    const CUDA_MEMCPY3D local = copy_params(mapped.address, b);
    OK(cuGraphExecMemcpyNodeSetParams(exec, node, &local, context));
    run(exec);
    ck_assert_uint_eq(word_at(b), 9);
}
END_TEST

START_TEST(sets_keep_their_shape)
{
    graph_prepare();
    CUgraph graph = new_graph();
    CUgraphNode line, plane;
    CUDA_MEMSET_NODE_PARAMS set = {.dst = a, .value = 20, .elementSize = 4, .width = WORDS, .height = 1};
    CUDA_MEMSET_NODE_PARAMS rows = {.dst = b, .value = 30, .elementSize = 4, .width = 4, .height = 4, .pitch = 64};
    OK(cuGraphAddMemsetNode(&line, graph, NULL, 0, &set, context));
    OK(cuGraphAddMemsetNode(&plane, graph, NULL, 0, &rows, context));
    CUgraphExec exec = instantiate(graph);
    set.value = 21;
    set.width = WORDS / 2;
    OK(cuGraphExecMemsetNodeSetParams(exec, line, &set, context));
    rows.value = 31;
    OK(cuGraphExecMemsetNodeSetParams(exec, plane, &rows, context));
    run(exec);
    ck_assert_uint_eq(word_at(a), 21);
    ck_assert_uint_eq(word_at(a + 4 * (WORDS - 1)), 1);
    ck_assert_uint_eq(word_at(b + 64), 31);
    rows.width = 5;
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemsetNodeSetParams(exec, plane, &rows, context));
    set.height = 2;
    set.pitch = 4 * WORDS;
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemsetNodeSetParams(exec, line, &set, context));
}
END_TEST

START_TEST(children_take_graphs_of_their_shape)
{
    CUgraphNode holder;
    graph_prepare();
    CUgraph child = new_graph(), same = new_graph(), longer = new_graph(), parent = new_graph();
    CUgraphNode inner = add_increment(child, NULL, 0, a, 1), first = add_increment(longer, NULL, 0, a, 1);
    add_increment(same, NULL, 0, a, 100);
    add_increment(longer, &first, 1, a, 1);
    OK(cuGraphAddChildGraphNode(&holder, parent, NULL, 0, child));
    CUgraphExec exec = instantiate(parent);
    OK(cuGraphExecChildGraphNodeSetParams(exec, holder, same));
    run(exec);
    ck_assert_uint_eq(word_at(a), 101);
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphExecChildGraphNodeSetParams(exec, holder, longer));
    run(exec);
    ck_assert_uint_eq(word_at(a), 201);
    /* nodes of the embedded graph are still found by their handles there; those of its model are not */
    CUgraph embedded;
    CUgraphNode found;
    uint32_t value = 1000;
    CUDA_KERNEL_NODE_PARAMS params = kernel_params("probe_increment", (void *[]){&a, &value, &words});
    OK(cuGraphChildGraphNodeGetGraph(holder, &embedded));
    OK(cuGraphNodeFindInClone(&found, inner, embedded));
    OK(cuGraphExecKernelNodeSetParams(exec, found, &params));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphExecKernelNodeSetParams(exec, inner, &params));
    run(exec);
    ck_assert_uint_eq(word_at(a), 1201);
}
END_TEST

START_TEST(updates_reach_into_children)
{
    CUgraphExecUpdateResultInfo info;
    CUgraph parent[2];
    CUgraphNode holder;
    graph_prepare();
    for (int i = 0; i < 2; i++) {
        CUgraph child = new_graph();
        add_increment(child, NULL, 0, a, i == 0 ? 1 : 50);
        parent[i] = new_graph();
        OK(cuGraphAddChildGraphNode(&holder, parent[i], NULL, 0, child));
    }
    CUgraphExec exec = instantiate(parent[0]);
    OK(cuGraphExecUpdate(exec, parent[1], &info));
    run(exec);
    ck_assert_uint_eq(word_at(a), 51);
}
END_TEST

START_TEST(update_by_a_clone_with_more_nodes)
{
    /* What a shim does: both graphs are cloned and get the same nodes added, the handles are found in the clone. */
    CUgraphExecUpdateResultInfo info;
    CUgraph clone[2];
    CUgraphNode found[2], original[2];
    graph_prepare();
    uint32_t *pinned = pinned_words(WORDS);
    pinned[0] = 7;
    for (int i = 0; i < 2; i++) {
        CUgraph graph = new_graph();
        CUgraphNode upload;
        CUDA_MEMCPY3D params = copy_params(a, a);
        original[i] = add_increment(graph, NULL, 0, a, i == 0 ? 1 : 10);
        OK(cuGraphClone(&clone[i], graph));
        OK(cuGraphNodeFindInClone(&found[i], original[i], clone[i]));
        params.srcMemoryType = CU_MEMORYTYPE_HOST;
        params.srcHost = pinned;
        OK(cuGraphAddMemcpyNode(&upload, clone[i], NULL, 0, &params, context));
        OK(cuGraphAddDependencies(clone[i], &upload, &found[i], NULL, 1));
    }
    CUgraphExec exec = instantiate(clone[0]);
    run(exec);
    ck_assert_uint_eq(word_at(a), 8);
    OK(cuGraphExecUpdate(exec, clone[1], &info));
    run(exec);
    ck_assert_uint_eq(word_at(a), 17);
    uint32_t value = 100;
    CUDA_KERNEL_NODE_PARAMS params = kernel_params("probe_increment", (void *[]){&a, &value, &words});
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphExecKernelNodeSetParams(exec, original[0], &params));
    OK(cuGraphExecKernelNodeSetParams(exec, found[0], &params)); /* of the graph that was instantiated */
    run(exec);
    ck_assert_uint_eq(word_at(a), 107);
}
END_TEST

SUITE(sim_update, exec_nodes_are_set_by_the_original_handle, nodes_can_be_disabled, update_takes_new_parameters,
      update_refuses_another_shape, nodes_pair_up_from_the_exits_whatever_their_order, more_exits_name_one_of_them,
      dependencies_are_compared_in_their_order, edge_data_is_part_of_the_shape, kernels_stay_in_their_context,
      cooperative_and_priority_are_kept, operands_stay_where_they_are, host_located_memory_counts_as_another_place,
      sets_keep_their_shape, children_take_graphs_of_their_shape, updates_reach_into_children,
      update_by_a_clone_with_more_nodes)
