/* Kinds of nodes with rules of their own: conditional nodes, memory nodes, nodes that kernels update; priorities. */
#include "harness_graph.h"

#include <string.h>

static CUfunction control(const char *name)
{
    static CUmodule module;
    CUfunction function;
    if (module == NULL)
        OK(cuModuleLoad(&module, SIM_GRAPH_CONTROL));
    OK(cuModuleGetFunction(&function, module, name));
    return function;
}

static CUgraphNode add_control(CUgraph graph, const CUgraphNode *from, size_t count, const char *name, void **params)
{
    CUgraphNode node;
    CUDA_KERNEL_NODE_PARAMS kernel = {.func = control(name),
                                      .gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 1,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = params};
    OK(cuGraphAddKernelNode(&node, graph, from, count, &kernel));
    return node;
}

/* ---- conditional nodes */

static CUgraphConditionalHandle new_condition(CUgraph graph, unsigned initial, unsigned flags)
{
    CUgraphConditionalHandle handle;
    OK(cuGraphConditionalHandleCreate(&handle, graph, context, initial, flags));
    return handle;
}

static CUresult try_conditional(CUgraphNode *node, CUgraph graph, const CUgraphNode *from, size_t count,
                                CUgraphConditionalHandle handle, CUgraphConditionalNodeType type, unsigned size,
                                CUgraph **bodies)
{
    CUgraphNodeParams params;
    memset(&params, 0, sizeof params);
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = size;
    params.conditional.ctx = context;
    CUresult result = cuGraphAddNode(node, graph, from, NULL, count, &params);
    *bodies = params.conditional.phGraph_out;
    return result;
}

static CUgraph *add_conditional(CUgraph graph, const CUgraphNode *from, size_t count, CUgraphConditionalHandle handle,
                                CUgraphConditionalNodeType type, unsigned size)
{
    CUgraphNode node;
    CUgraph *bodies;
    OK(try_conditional(&node, graph, from, count, handle, type, size, &bodies));
    return bodies;
}

START_TEST(if_takes_one_of_two)
{
    graph_prepare();
    CUgraph graph = new_graph();
    CUgraphConditionalHandle handle = new_condition(graph, 0, 0);
    uint32_t value = 0;
    CUgraphNode set = add_control(graph, NULL, 0, "graph_set_condition", (void *[]){&handle, &value});
    CUgraph *bodies = add_conditional(graph, &set, 1, handle, CU_GRAPH_COND_TYPE_IF, 2);
    add_increment(bodies[0], NULL, 0, a, 10);
    add_increment(bodies[1], NULL, 0, a, 100);
    CUgraphExec exec = instantiate(graph);
    run(exec);
    ck_assert_uint_eq(word_at(a), 101);
    value = 1;
    CUDA_KERNEL_NODE_PARAMS params;
    OK(cuGraphKernelNodeGetParams(set, &params));
    params.kernelParams = (void *[]){&handle, &value};
    OK(cuGraphExecKernelNodeSetParams(exec, set, &params));
    run(exec);
    ck_assert_uint_eq(word_at(a), 111);
}
END_TEST

START_TEST(while_repeats_its_body)
{
    CUdeviceptr counter;
    graph_prepare();
    counter = device_words(1);
    OK(cuMemsetD32(counter, 3, 1));
    OK(cuCtxSynchronize());
    CUgraph graph = new_graph();
    CUgraphConditionalHandle handle = new_condition(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraph body = add_conditional(graph, NULL, 0, handle, CU_GRAPH_COND_TYPE_WHILE, 1)[0];
    CUgraphNode work = add_increment(body, NULL, 0, a, 1);
    add_control(body, &work, 1, "graph_count_down", (void *[]){&handle, &counter});
    CUgraphExec exec = instantiate(graph);
    run(exec);
    ck_assert_uint_eq(word_at(a), 1 + 4);
    run(exec); /* the default again: once, as the counter is at zero */
    ck_assert_uint_eq(word_at(a), 1 + 4 + 1);
}
END_TEST

START_TEST(switch_takes_one_or_none)
{
    graph_prepare();
    for (unsigned value = 0; value < 5; value++) {
        CUgraph graph = new_graph();
        CUgraphConditionalHandle handle = new_condition(graph, value, CU_GRAPH_COND_ASSIGN_DEFAULT);
        CUgraph *bodies = add_conditional(graph, NULL, 0, handle, CU_GRAPH_COND_TYPE_SWITCH, 4);
        for (unsigned body = 0; body < 4; body++)
            add_increment(bodies[body], NULL, 0, a, body == 0 ? 1000 : body);
        run(instantiate(graph));
    }
    ck_assert_uint_eq(word_at(a), 1 + 1000 + 1 + 2 + 3);
}
END_TEST

START_TEST(conditions_nest_and_order_their_bodies)
{
    graph_prepare();
    CUgraph graph = new_graph();
    CUgraphConditionalHandle outer = new_condition(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT),
                             inner = new_condition(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraphNode before = add_increment(graph, NULL, 0, a, 1), node;
    CUgraph *body, *inside;
    OK(try_conditional(&node, graph, &before, 1, outer, CU_GRAPH_COND_TYPE_IF, 1, &body));
    inside = add_conditional(body[0], NULL, 0, inner, CU_GRAPH_COND_TYPE_IF, 1);
    add_copy(inside[0], NULL, 0, a, b); /* a race, if not after what comes before the outer node */
    add_increment(graph, &node, 1, b, 5);
    run(instantiate(graph));
    ck_assert_uint_eq(word_at(b), 7);
}
END_TEST

START_TEST(bodies_are_captured_into)
{
    CUgraph ended;
    graph_prepare();
    probe_module();
    CUgraph graph = new_graph();
    CUgraphConditionalHandle handle = new_condition(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraph *body = add_conditional(graph, NULL, 0, handle, CU_GRAPH_COND_TYPE_IF, 1);
    OK(cuStreamBeginCaptureToGraph(s, body[0], NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(increment(s, a, 5, WORDS));
    OK(cuStreamEndCapture(s, &ended));
    run(instantiate(graph));
    ck_assert_uint_eq(word_at(a), 6);
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(body[0]));
}
END_TEST

START_TEST(conditional_nodes_have_rules)
{
    CUgraphNode node;
    CUgraph *bodies, clone, parent;
    CUgraphExec exec, again;
    const CUDA_HOST_NODE_PARAMS host = {(CUhostFn)(void *)abort, NULL};
    graph_prepare();
    CUgraph graph = new_graph(), other = new_graph();
    parent = new_graph();
    CUgraphConditionalHandle handle = new_condition(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    ANSWERS(CUDA_ERROR_INVALID_VALUE,
            try_conditional(&node, other, NULL, 0, handle, CU_GRAPH_COND_TYPE_IF, 1, &bodies)); /* of another graph */
    ANSWERS(CUDA_ERROR_INVALID_VALUE,
            try_conditional(&node, graph, NULL, 0, handle, CU_GRAPH_COND_TYPE_IF, 3, &bodies));
    ANSWERS(CUDA_ERROR_INVALID_VALUE,
            try_conditional(&node, graph, NULL, 0, handle, CU_GRAPH_COND_TYPE_WHILE, 2, &bodies));
    ANSWERS(CUDA_ERROR_INVALID_VALUE,
            try_conditional(&node, graph, NULL, 0, handle + 8, CU_GRAPH_COND_TYPE_IF, 1, &bodies));
    OK(try_conditional(&node, graph, NULL, 0, handle, CU_GRAPH_COND_TYPE_IF, 1, &bodies));
    CUgraph body = bodies[0];
    ANSWERS(CUDA_ERROR_INVALID_VALUE, /* a handle belongs to one node */
            try_conditional(&node, graph, NULL, 0, handle, CU_GRAPH_COND_TYPE_IF, 1, &bodies));
    ANSWERS(CUDA_ERROR_NOT_SUPPORTED, cuGraphClone(&clone, graph));
    ANSWERS(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddChildGraphNode(&node, parent, NULL, 0, graph));
    exec = instantiate(graph);
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&again, graph, 0));
    OK(cuGraphExecDestroy(exec));
    exec = instantiate(graph);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphAddHostNode(&node, body, NULL, 0, &host));
    ANSWERS(CUDA_ERROR_NOT_SUPPORTED, cuGraphInstantiate(&exec, graph, 0));
}
END_TEST

START_TEST(update_reaches_into_bodies_and_conditions)
{
    CUgraphExecUpdateResultInfo info;
    CUgraph graph[3];
    CUgraphNode node;
    graph_prepare();
    for (unsigned i = 0; i < 3; i++) {
        graph[i] = new_graph();
        CUgraphConditionalHandle handle = new_condition(graph[i], i, CU_GRAPH_COND_ASSIGN_DEFAULT);
        CUgraph *bodies = NULL;
        OK(try_conditional(&node, graph[i], NULL, 0, handle, CU_GRAPH_COND_TYPE_SWITCH, i == 2 ? 3 : 2, &bodies));
        for (unsigned body = 0; body < 2; body++)
            add_increment(bodies[body], NULL, 0, a, 1 + body + 10 * i);
    }
    CUgraphExec exec = instantiate(graph[0]);
    run(exec);
    ck_assert_uint_eq(word_at(a), 2);
    OK(cuGraphExecUpdate(exec, graph[1], &info)); /* the second body, with its new value */
    run(exec);
    ck_assert_uint_eq(word_at(a), 14);
    ANSWERS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, graph[2], &info));
    ck_assert_int_eq(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
    ck_assert_ptr_eq(info.errorNode, node);
}
END_TEST

/* ---- memory nodes */

static CUDA_MEM_ALLOC_NODE_PARAMS allocation(size_t bytes)
{
    return (CUDA_MEM_ALLOC_NODE_PARAMS){
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
        .bytesize = bytes};
}

static uint64_t graph_bytes(CUgraphMem_attribute attribute)
{
    cuuint64_t bytes;
    OK(cuDeviceGetGraphMemAttribute(0, attribute, &bytes));
    return bytes;
}

START_TEST(graphs_allocate_and_free)
{
    CUgraphNode alloc, release;
    CUdeviceptr address;
    graph_prepare();
    CUgraph graph = new_graph();
    CUDA_MEM_ALLOC_NODE_PARAMS params = allocation(4 * WORDS), got;
    OK(cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &params));
    ck_assert_uint_ne(params.dptr, 0);
    CUgraphNode in = add_copy(graph, &alloc, 1, a, params.dptr), work = add_increment(graph, &in, 1, params.dptr, 5),
                out = add_copy(graph, &work, 1, params.dptr, b);
    OK(cuGraphAddMemFreeNode(&release, graph, &out, 1, params.dptr));
    OK(cuGraphMemAllocNodeGetParams(alloc, &got));
    ck_assert_uint_eq(got.dptr, params.dptr);
    ck_assert_uint_eq(got.bytesize, 4 * WORDS);
    OK(cuGraphMemFreeNodeGetParams(release, &address));
    ck_assert_uint_eq(address, params.dptr);
    CUgraphExec exec = instantiate(graph);
    for (int i = 0; i < 3; i++)
        run(exec);
    ck_assert_uint_eq(word_at(b), 6);
    ck_assert_uint_eq(graph_bytes(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 0);
    ck_assert_uint_eq(graph_bytes(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), 4 * WORDS);
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuMemFree(params.dptr)); /* the graph's own */
}
END_TEST

START_TEST(unfreed_memory_is_the_programs)
{
    CUgraphNode alloc;
    CUgraphExec exec, freeing;
    graph_prepare();
    CUgraph graph = new_graph();
    CUDA_MEM_ALLOC_NODE_PARAMS params = allocation(4 * WORDS);
    OK(cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &params));
    add_copy(graph, &alloc, 1, a, params.dptr);
    exec = instantiate(graph);
    run(exec);
    ck_assert_uint_eq(word_at(params.dptr), 1);
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, s)); /* still allocated */
    OK(cuMemFreeAsync(params.dptr, s));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(params.dptr, s));
    run(exec);
    OK(cuMemFree(params.dptr));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphInstantiate(&freeing, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    run(freeing);
    run(freeing);
    ck_assert_uint_eq(word_at(params.dptr), 1);
    ck_assert_uint_eq(graph_bytes(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 4 * WORDS);
    OK(cuGraphExecDestroy(freeing));
    OK(cuGraphDestroy(graph));
    ck_assert_uint_eq(word_at(params.dptr), 1); /* outlives them */
    OK(cuMemFree(params.dptr));
    ck_assert_uint_eq(graph_bytes(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 0);
}
END_TEST

START_TEST(capture_makes_memory_nodes)
{
    CUgraph graph;
    CUgraphNode node[8];
    CUgraphNodeType type;
    CUdeviceptr address;
    size_t count = 8;
    graph_prepare();
    probe_module();
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemAllocAsync(&address, 4 * WORDS, s));
    OK(copy(s, a, address, WORDS));
    OK(increment(s, address, 30, WORDS));
    OK(copy(s, address, b, WORDS));
    OK(cuMemFreeAsync(address, s));
    OK(cuStreamEndCapture(s, &graph));
    OK(cuGraphGetNodes(graph, node, &count));
    ck_assert_uint_eq(count, 5);
    OK(cuGraphNodeGetType(node[0], &type));
    ck_assert_int_eq(type, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    OK(cuGraphNodeGetType(node[4], &type));
    ck_assert_int_eq(type, CU_GRAPH_NODE_TYPE_MEM_FREE);
    run(instantiate(graph));
    ck_assert_uint_eq(word_at(b), 31);
}
END_TEST

START_TEST(memory_nodes_have_rules)
{
    CUgraphNode alloc, node, release;
    CUgraph clone;
    CUgraphExec exec, again;
    graph_prepare();
    CUgraph graph = new_graph(), parent = new_graph();
    CUDA_MEM_ALLOC_NODE_PARAMS params = allocation(64), none = allocation(0);
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &none));
    OK(cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &params));
    OK(cuGraphAddEmptyNode(&node, graph, &alloc, 1));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&release, graph, NULL, 0, a));
    OK(cuGraphAddMemFreeNode(&release, graph, &node, 1, params.dptr));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&release, graph, &node, 1, params.dptr));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&release, parent, NULL, 0, params.dptr));
    ANSWERS(CUDA_ERROR_NOT_SUPPORTED, cuGraphClone(&clone, graph));
    ANSWERS(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddChildGraphNode(&release, parent, NULL, 0, graph));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroyNode(node));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphRemoveDependencies(graph, &alloc, &node, NULL, 1));
    exec = instantiate(graph);
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&again, graph, 0));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphInstantiate(&again, graph, 0));
}
END_TEST

/* A use that no edge puts after the allocation. */
static void use_before_allocation(void)
{
    CUgraphNode alloc;
    graph_prepare();
    CUgraph graph = new_graph();
    CUDA_MEM_ALLOC_NODE_PARAMS params = allocation(4 * WORDS);
    OK(cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &params));
    add_copy(graph, NULL, 0, a, params.dptr);
    run(instantiate(graph));
}

START_TEST(uses_come_after_the_allocation)
{
    RACE(use_before_allocation, "memory allocation node", "memcpy node");
}
END_TEST

/* ---- nodes that kernels update, priorities */

START_TEST(kernels_update_nodes)
{
    CUkernelNodeAttrValue value = {.deviceUpdatableKernelNode = {.deviceUpdatable = 1}};
    graph_prepare();
    CUgraph graph = new_graph();
    CUgraphNode work = add_increment(graph, NULL, 0, a, 5);
    OK(cuGraphKernelNodeSetAttribute(work, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value));
    uint64_t handle = (uint64_t)(uintptr_t)value.deviceUpdatableKernelNode.devNode, offset = 0, address = b;
    ck_assert_uint_ne(handle, 0);
    CUgraphNode update = add_control(graph, NULL, 0, "graph_update_node", (void *[]){&handle, &offset, &address});
    OK(cuGraphAddDependencies(graph, &update, &work, NULL, 1));
    CUgraphExec exec = instantiate(graph);
    OK(cuGraphUpload(exec, s));
    run(exec);
    ck_assert_uint_eq(word_at(a), 1);
    ck_assert_uint_eq(word_at(b), 7);
}
END_TEST

static void update_without_upload(void)
{
    CUkernelNodeAttrValue value = {.deviceUpdatableKernelNode = {.deviceUpdatable = 1}};
    graph_prepare();
    CUgraph graph = new_graph();
    CUgraphNode work = add_increment(graph, NULL, 0, a, 5);
    OK(cuGraphKernelNodeSetAttribute(work, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value));
    uint64_t handle = (uint64_t)(uintptr_t)value.deviceUpdatableKernelNode.devNode, offset = 0, address = b;
    add_control(graph, &work, 1, "graph_update_node", (void *[]){&handle, &offset, &address});
    run(instantiate(graph));
}

START_TEST(updates_need_an_upload)
{
    struct outcome end = outcome(update_without_upload);
    ck_assert_msg(strstr(end.text, "not uploaded") != NULL, "%s", end.text);
}
END_TEST

START_TEST(updatable_nodes_have_rules)
{
    CUkernelNodeAttrValue value = {.deviceUpdatableKernelNode = {.deviceUpdatable = 1}}, zero = {0};
    CUgraphExecUpdateResultInfo info;
    CUgraphExec exec, again;
    CUgraph clone;
    CUgraphNode found;
    graph_prepare();
    CUgraph graph = new_graph();
    CUgraphNode node = add_increment(graph, NULL, 0, a, 5), other = add_increment(graph, &node, 1, a, 5);
    OK(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value));
    ANSWERS(CUDA_ERROR_INVALID_VALUE,
            cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &zero));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeCopyAttributes(node, other));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeCopyAttributes(other, node));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroyNode(node));
    exec = instantiate(graph);
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&again, graph, 0));
    ANSWERS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, graph, &info));
    ck_assert_int_eq(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED);
    ck_assert_ptr_eq(info.errorNode, node);
    /* a clone's node answers to another handle */
    OK(cuGraphClone(&clone, graph));
    OK(cuGraphNodeFindInClone(&found, node, clone));
    CUkernelNodeAttrValue same = value;
    OK(cuGraphKernelNodeSetAttribute(found, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &same));
    ck_assert_ptr_ne(same.deviceUpdatableKernelNode.devNode, value.deviceUpdatableKernelNode.devNode);
}
END_TEST

START_TEST(launches_ask_for_updatable_nodes)
{
    CUgraph graph;
    graph_prepare();
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE,
                                   .value = {.deviceUpdatableKernelNode = {.deviceUpdatable = 1}}};
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
    void *params[] = {&a, &value, &words};
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernelEx(&config, probe("probe_increment"), params, NULL));
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuLaunchKernelEx(&config, probe("probe_increment"), params, NULL));
    OK(cuStreamEndCapture(s, &graph));
    ck_assert_ptr_nonnull(attribute.value.deviceUpdatableKernelNode.devNode);
}
END_TEST

START_TEST(capture_keeps_priorities)
{
    CUgraph graph;
    CUgraphNode node;
    CUkernelNodeAttrValue value;
    CUstream urgent;
    size_t count = 1;
    graph_prepare();
    probe_module();
    OK(cuStreamCreateWithPriority(&urgent, CU_STREAM_NON_BLOCKING, -3));
    OK(cuStreamBeginCapture(urgent, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(increment(urgent, a, 1, WORDS));
    OK(cuStreamEndCapture(urgent, &graph));
    OK(cuGraphGetNodes(graph, &node, &count));
    OK(cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
    ck_assert_int_eq(value.priority, -3);
}
END_TEST

SUITE(sim_kinds, if_takes_one_of_two, while_repeats_its_body, switch_takes_one_or_none,
      conditions_nest_and_order_their_bodies, bodies_are_captured_into, conditional_nodes_have_rules,
      update_reaches_into_bodies_and_conditions, graphs_allocate_and_free, unfreed_memory_is_the_programs,
      capture_makes_memory_nodes, memory_nodes_have_rules, uses_come_after_the_allocation, kernels_update_nodes,
      updates_need_an_upload, updatable_nodes_have_rules, launches_ask_for_updatable_nodes, capture_keeps_priorities)
