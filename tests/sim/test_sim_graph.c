/* Graphs: building, asking, instantiating, running, updating. */
#include "harness_graph.h"

#include <string.h>

static int host_calls;

static void CUDA_CB count_call(void *data)
{
    host_calls += *(int *)data;
}

START_TEST(every_node_type_runs)
{
    CUgraph graph;
    CUgraphNode node[6];
    CUevent event;
    int step = 3;
    graph_prepare();
    OK(cuEventCreate(&event, 0));
    OK(cuGraphCreate(&graph, 0));
    const CUDA_MEMSET_NODE_PARAMS set = {.dst = a, .value = 20, .elementSize = 4, .width = WORDS, .height = 1};
    const CUDA_HOST_NODE_PARAMS host = {count_call, &step};
    OK(cuGraphAddMemsetNode(&node[0], graph, NULL, 0, &set, context));
    node[1] = add_increment(graph, &node[0], 1, a, 2);
    node[2] = add_copy(graph, &node[1], 1, a, b);
    OK(cuGraphAddHostNode(&node[3], graph, &node[2], 1, &host));
    OK(cuGraphAddEmptyNode(&node[4], graph, &node[3], 1));
    OK(cuGraphAddEventRecordNode(&node[5], graph, &node[4], 1, event));
    run(instantiate(graph));
    ck_assert_uint_eq(word_at(b), 22);
    ck_assert_int_eq(host_calls, 3);
    OK(cuEventQuery(event));
    ck_assert_uint_eq(word_at(b + 4 * (WORDS - 1)), 22);
}
END_TEST

START_TEST(nodes_and_edges_are_told)
{
    CUgraph graph;
    CUgraphNode first, second, third, list[5], from[5], to[5];
    CUgraphEdgeData data[5];
    CUgraphNodeType type;
    size_t count = 5;
    graph_prepare();
    OK(cuGraphCreate(&graph, 0));
    first = add_increment(graph, NULL, 0, a, 1);
    second = add_increment(graph, NULL, 0, b, 1);
    third = add_copy(graph, (CUgraphNode[]){first, second}, 2, a, b);
    OK(cuGraphGetNodes(graph, list, &count));
    ck_assert_uint_eq(count, 3);
    ck_assert_ptr_eq(list[2], third);
    ck_assert_ptr_null(list[4]);
    count = 5;
    OK(cuGraphGetRootNodes(graph, list, &count));
    ck_assert_uint_eq(count, 2);
    count = 5;
    OK(cuGraphGetEdges(graph, from, to, data, &count));
    ck_assert_uint_eq(count, 2);
    ck_assert_ptr_eq(from[1], second);
    ck_assert_ptr_eq(to[1], third);
    count = 1; /* less room than there is */
    OK(cuGraphNodeGetDependencies(third, list, data, &count));
    ck_assert_uint_eq(count, 1);
    count = 0;
    OK(cuGraphNodeGetDependentNodes(first, NULL, NULL, &count));
    ck_assert_uint_eq(count, 1);
    OK(cuGraphNodeGetType(third, &type));
    ck_assert_int_eq(type, CU_GRAPH_NODE_TYPE_MEMCPY);
    OK(cuGraphRemoveDependencies(graph, &second, &third, NULL, 1));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphRemoveDependencies(graph, &second, &third, NULL, 1));
    OK(cuGraphAddDependencies(graph, &second, &third, NULL, 1));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, &second, &third, NULL, 1));
    OK(cuGraphDestroyNode(first));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphNodeGetType(first, &type));
    count = 5;
    OK(cuGraphNodeGetDependencies(third, list, data, &count));
    ck_assert_uint_eq(count, 1);
}
END_TEST

START_TEST(cycles_are_refused)
{
    CUgraph graph;
    CUgraphExec exec;
    graph_prepare();
    OK(cuGraphCreate(&graph, 0));
    CUgraphNode first = add_increment(graph, NULL, 0, a, 1), second = add_increment(graph, &first, 1, a, 1);
    OK(cuGraphAddDependencies(graph, &second, &first, NULL, 1));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&exec, graph, 0));
}
END_TEST

START_TEST(foreign_and_stale_handles_are_refused)
{
    CUgraph graph, other;
    CUgraphNode node, foreign;
    CUgraphExec exec;
    graph_prepare();
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphCreate(&other, 0));
    OK(cuGraphAddEmptyNode(&foreign, other, NULL, 0));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphAddEmptyNode(&node, graph, &foreign, 1));
    exec = instantiate(graph);
    OK(cuGraphDestroy(graph));
    OK(cuGraphExecDestroy(exec));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, s));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(graph));
}
END_TEST

START_TEST(parameters_are_owned_by_the_node)
{
    CUgraph graph;
    CUDA_KERNEL_NODE_PARAMS params;
    CUdeviceptr target = 0;
    graph_prepare();
    OK(cuGraphCreate(&graph, 0));
    CUgraphNode node = add_increment(graph, NULL, 0, a, 5);
    OK(cuGraphKernelNodeGetParams(node, &params));
    ck_assert_ptr_eq(params.func, probe("probe_increment"));
    ck_assert_uint_eq(params.gridDimX, 2);
    memcpy(&target, params.kernelParams[0], sizeof target);
    ck_assert_uint_eq(target, a);
    *(uint32_t *)params.kernelParams[1] = 7; /* what ExLlama does: write through what was returned */
    run(instantiate(graph));
    ck_assert_uint_eq(word_at(a), 8);
    params.gridDimX = 1;
    uint32_t value = 100;
    params.kernelParams = (void *[]){&b, &value, &words};
    OK(cuGraphKernelNodeSetParams(node, &params));
    run(instantiate(graph));
    ck_assert_uint_eq(word_at(b), 102);
    ck_assert_uint_eq(word_at(a), 8);
}
END_TEST

START_TEST(parameters_come_back_in_their_form)
{
    CUgraph graph;
    CUgraphNode node;
    CUDA_KERNEL_NODE_PARAMS params;
    size_t count = 1;
    graph_prepare();
    struct {
        CUdeviceptr words;
        uint32_t value;
        uint64_t count;
    } block = {a, 5, WORDS};
    size_t bytes = sizeof block;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &block, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    CUfunction function = probe("probe_increment");
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, s, NULL, extra));
    OK(cuStreamEndCapture(s, &graph));
    OK(cuGraphGetNodes(graph, &node, &count));
    OK(cuGraphKernelNodeGetParams(node, &params));
    ck_assert_ptr_null(params.kernelParams);
    ck_assert_ptr_nonnull(params.extra);
    ck_assert_ptr_ne(params.extra[1], &block);     /* the node's own copy */
    OK(cuGraphKernelNodeSetParams(node, &params)); /* may be given back as it is */
    run(instantiate(graph));
    ck_assert_uint_eq(word_at(a), 6);
}
END_TEST

START_TEST(clone_keeps_the_original)
{
    CUgraph graph, clone, child, parent;
    CUgraphNode found, holder, inside;
    graph_prepare();
    OK(cuGraphCreate(&graph, 0));
    CUgraphNode node = add_increment(graph, NULL, 0, a, 5);
    OK(cuGraphClone(&clone, graph));
    OK(cuGraphNodeFindInClone(&found, node, clone));
    ck_assert_ptr_ne(found, node);
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphNodeFindInClone(&found, found, graph));
    uint32_t value = 50;
    CUDA_KERNEL_NODE_PARAMS params = kernel_params("probe_increment", (void *[]){&a, &value, &words});
    OK(cuGraphNodeFindInClone(&found, node, clone));
    OK(cuGraphKernelNodeSetParams(found, &params));
    run(instantiate(graph));
    ck_assert_uint_eq(word_at(a), 6);
    run(instantiate(clone));
    ck_assert_uint_eq(word_at(a), 56);
    /* also inside child graphs */
    OK(cuGraphCreate(&parent, 0));
    OK(cuGraphAddChildGraphNode(&holder, parent, NULL, 0, graph));
    OK(cuGraphChildGraphNodeGetGraph(holder, &child));
    ck_assert_ptr_ne(child, graph);
    OK(cuGraphNodeFindInClone(&inside, node, child));
    OK(cuGraphClone(&clone, parent));
    OK(cuGraphNodeFindInClone(&found, inside, clone));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(child));
}
END_TEST

START_TEST(child_graphs_run_in_their_place)
{
    CUgraph child, parent;
    CUgraphNode first, holder;
    graph_prepare();
    OK(cuGraphCreate(&child, 0));
    CUgraphNode inner = add_increment(child, NULL, 0, a, 10);
    add_copy(child, &inner, 1, a, b);
    OK(cuGraphCreate(&parent, 0));
    first = add_increment(parent, NULL, 0, a, 1);
    OK(cuGraphAddChildGraphNode(&holder, parent, &first, 1, child));
    add_increment(parent, &holder, 1, b, 100);
    CUgraphExec exec = instantiate(parent);
    run(exec);
    ck_assert_uint_eq(word_at(b), 112);
    run(exec);
    ck_assert_uint_eq(word_at(b), 123);
}
END_TEST

START_TEST(captured_launch_of_a_graph_is_a_child)
{
    CUgraph graph, outer;
    CUgraphNode node;
    CUgraphNodeType type;
    size_t count = 1;
    graph_prepare();
    OK(cuGraphCreate(&graph, 0));
    add_increment(graph, NULL, 0, a, 3);
    CUgraphExec exec = instantiate(graph);
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamEndCapture(s, &outer));
    OK(cuGraphGetNodes(outer, &node, &count));
    OK(cuGraphNodeGetType(node, &type));
    ck_assert_int_eq(type, CU_GRAPH_NODE_TYPE_GRAPH);
    run(instantiate(outer));
    ck_assert_uint_eq(word_at(a), 4);
}
END_TEST

START_TEST(generic_nodes)
{
    CUgraph graph;
    CUgraphNode node;
    uint32_t value = 9;
    CUgraphNodeParams params;
    graph_prepare();
    OK(cuGraphCreate(&graph, 0));
    memset(&params, 0, sizeof params);
    params.type = CU_GRAPH_NODE_TYPE_KERNEL;
    params.kernel.func = probe("probe_increment");
    params.kernel.gridDimX = params.kernel.gridDimY = params.kernel.gridDimZ = 1;
    params.kernel.blockDimX = params.kernel.blockDimY = params.kernel.blockDimZ = 1;
    params.kernel.kernelParams = (void *[]){&a, &value, &words};
    OK(cuGraphAddNode(&node, graph, NULL, NULL, 0, &params));
    CUgraphExec exec = instantiate(graph);
    value = 90;
    OK(cuGraphExecNodeSetParams(exec, node, &params));
    run(exec);
    ck_assert_uint_eq(word_at(a), 91);
    OK(cuGraphNodeSetParams(node, &params));
    params.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    ANSWERS(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddNode(&node, graph, NULL, NULL, 0, &params));
}
END_TEST

START_TEST(generic_copies_sets_and_children)
{
    CUgraphNode copied, set, holder;
    CUgraphNodeParams params;
    graph_prepare();
    uint32_t *pinned = pinned_words(WORDS);
    pinned[0] = 70;
    CUgraph graph = new_graph(), child = new_graph();
    add_increment(child, NULL, 0, b, 5);
    memset(&params, 0, sizeof params);
    params.type = CU_GRAPH_NODE_TYPE_MEMCPY;
    params.memcpy.copyCtx = context;
    params.memcpy.copyParams = copy_params(0, a);
    params.memcpy.copyParams.srcMemoryType = CU_MEMORYTYPE_HOST;
    params.memcpy.copyParams.srcHost = pinned;
    OK(cuGraphAddNode(&copied, graph, NULL, NULL, 0, &params));
    memset(&params, 0, sizeof params);
    params.type = CU_GRAPH_NODE_TYPE_MEMSET;
    params.memset.ctx = context;
    params.memset.dst = b;
    params.memset.value = 30;
    params.memset.elementSize = 4;
    params.memset.width = WORDS;
    params.memset.height = 1;
    OK(cuGraphAddNode(&set, graph, NULL, NULL, 0, &params));
    memset(&params, 0, sizeof params);
    params.type = CU_GRAPH_NODE_TYPE_GRAPH;
    params.graph.graph = child;
    OK(cuGraphAddNode(&holder, graph, &set, NULL, 1, &params));
    run(instantiate(graph));
    ck_assert_uint_eq(word_at(a), 70);
    ck_assert_uint_eq(word_at(b), 35);
}
END_TEST

/* A copy runs on the link of the device whose context it names, whatever is current. */
START_TEST(copies_name_their_context)
{
    enum { COPIES = 4 };
    static const size_t bytes = (size_t)16 << 20;
    CUcontext contexts[2];
    CUdeviceptr target[2];
    void *pinned;
    knob("SIM_DEVICES", "2");
    graph_prepare();
    OK(cuMemHostAlloc(&pinned, bytes, 0));
    for (int d = 1; d >= 0; d--) {
        OK(cuDevicePrimaryCtxRetain(&contexts[d], d));
        OK(cuCtxSetCurrent(contexts[d]));
        OK(cuMemAlloc(&target[d], bytes));
    }
    float one_link = 0;
    for (int links = 1; links <= 2; links++) {
        CUevent begin, end;
        float milliseconds;
        CUgraph graph = new_graph();
        for (int i = 0; i < COPIES; i++) { /* half of them on each, the second time */
            CUgraphNode node;
            const int d = links == 2 ? i % 2 : 0;
            CUDA_MEMCPY3D params = copy_params(0, target[d] + bytes / COPIES * (size_t)i);
            params.srcMemoryType = CU_MEMORYTYPE_HOST;
            params.srcHost = pinned;
            params.WidthInBytes = bytes / COPIES;
            OK(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &params, contexts[d]));
        }
        CUgraphExec exec = instantiate(graph);
        OK(cuEventCreate(&begin, 0));
        OK(cuEventCreate(&end, 0));
        OK(cuEventRecord(begin, s));
        OK(cuGraphLaunch(exec, s));
        OK(cuEventRecord(end, s));
        OK(cuStreamSynchronize(s));
        OK(cuEventElapsedTime(&milliseconds, begin, end));
        if (links == 1)
            one_link = milliseconds;
        else
            ck_assert_msg(milliseconds < one_link * 0.6F, "%f ms, %f on one link", (double)milliseconds,
                          (double)one_link);
    }
}
END_TEST

START_TEST(all_ways_to_instantiate)
{
    CUgraph graph;
    CUgraphExec exec;
    cuuint64_t flags;
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                                                     CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY,
                                            .result_out = CUDA_GRAPH_INSTANTIATE_ERROR};
    graph_prepare();
    OK(cuGraphCreate(&graph, 0));
    add_increment(graph, NULL, 0, a, 1);
    params.hUploadStream = s;
    OK(cuGraphInstantiateWithParams(&exec, graph, &params));
    ck_assert_int_eq(params.result_out, CUDA_GRAPH_INSTANTIATE_SUCCESS);
    OK(cuGraphExecGetFlags(exec, &flags));
    ck_assert_uint_eq(flags, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY);
    OK(cuGraphUpload(exec, s));
    run(exec);
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&exec, graph, 1 << 20));
    ck_assert_uint_eq(word_at(a), 2);
}
END_TEST

static double us_of_launch(CUgraphExec exec)
{
    CUevent event[2];
    float ms = -1;
    for (int i = 0; i < 2; i++)
        OK(cuEventCreate(&event[i], CU_EVENT_DEFAULT));
    OK(cuStreamSynchronize(s));
    OK(cuEventRecord(event[0], s));
    OK(cuGraphLaunch(exec, s));
    OK(cuEventRecord(event[1], s));
    OK(cuStreamSynchronize(s));
    OK(cuEventElapsedTime(&ms, event[0], event[1]));
    return (double)ms * 1e3;
}

/* It is once, by the first launch if not before, and again after the host has changed it. */
START_TEST(a_graph_is_uploaded)
{
    CUgraph graph;
    knob("SIM_UPLOAD_NS", "500000");
    graph_prepare();
    OK(cuGraphCreate(&graph, 0));
    CUgraphNode node = add_increment(graph, NULL, 0, a, 1);
    add_increment(graph, &node, 1, a, 1);
    CUgraphExec exec = instantiate(graph), other = instantiate(graph);
    ck_assert_double_gt(us_of_launch(exec), 1000);
    const double launch_us = us_of_launch(exec);
    ck_assert_double_lt(launch_us, 100);
    OK(cuGraphNodeSetEnabled(exec, node, 1));
    ck_assert_double_eq_tol(us_of_launch(exec), launch_us + 1000, 100);
    OK(cuGraphUpload(other, s));
    ck_assert_double_eq_tol(us_of_launch(other), launch_us, 100);
}
END_TEST

START_TEST(node_attributes)
{
    CUgraph graph;
    CUkernelNodeAttrValue value = {.priority = -3}, got;
    graph_prepare();
    OK(cuGraphCreate(&graph, 0));
    CUgraphNode node = add_increment(graph, NULL, 0, a, 1), other = add_increment(graph, NULL, 0, b, 1);
    OK(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
    OK(cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &got));
    ck_assert_int_eq(got.priority, -3);
    OK(cuGraphKernelNodeCopyAttributes(other, node));
    OK(cuGraphKernelNodeGetAttribute(other, CU_LAUNCH_ATTRIBUTE_PRIORITY, &got));
    ck_assert_int_eq(got.priority, -3);
}
END_TEST

static int destroyed;

static void CUDA_CB destroy(void *data)
{
    destroyed += *(int *)data;
}

START_TEST(user_objects_live_as_long_as_their_graphs)
{
    CUuserObject object;
    CUgraph graph;
    int one = 1;
    graph_prepare();
    OK(cuGraphCreate(&graph, 0));
    OK(cuUserObjectCreate(&object, &one, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    CUgraphExec exec = instantiate(graph);
    OK(cuGraphDestroy(graph));
    ck_assert_int_eq(destroyed, 0);
    OK(cuGraphExecDestroy(exec));
    ck_assert_int_eq(destroyed, 1);
}
END_TEST

SUITE(sim_graph, every_node_type_runs, nodes_and_edges_are_told, cycles_are_refused,
      foreign_and_stale_handles_are_refused, parameters_are_owned_by_the_node, parameters_come_back_in_their_form,
      clone_keeps_the_original, child_graphs_run_in_their_place, captured_launch_of_a_graph_is_a_child, generic_nodes,
      generic_copies_sets_and_children, copies_name_their_context, all_ways_to_instantiate, a_graph_is_uploaded,
      node_attributes, user_objects_live_as_long_as_their_graphs)
