/*
 * Programs about rules of graphs that the simulated driver takes from the documentation: what no real driver was asked
 * yet. They run when named, or with --all.
 */
#define _GNU_SOURCE
#include "driver_compare.h"

#include <stdio.h>
#include <string.h>

static CUgraph new_graph(void)
{
    CUgraph graph;
    NEED(CALL(cuGraphCreate, &graph, 0));
    return graph;
}

static CUgraphNode add_kernel(CUgraph graph, const CUgraphNode *from, size_t count, CUdeviceptr target)
{
    CUgraphNode node;
    uint32_t value = 1;
    CUDA_KERNEL_NODE_PARAMS params = {.func = function("probe_increment"),
                                      .gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 64,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = (void *[]){&target, &value, &words}};
    NEED(CALL(cuGraphAddKernelNode, &node, graph, from, count, &params));
    return node;
}

static CUDA_MEMCPY3D copy_params(CUdeviceptr in, CUdeviceptr out)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = in,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = out,
                           .WidthInBytes = 4 * WORDS,
                           .Height = 1,
                           .Depth = 1};
}

static CUgraphExec exec_of(CUgraph graph)
{
    CUgraphExec exec;
    NEED(CALL(cuGraphInstantiate, &exec, graph, 0));
    return exec;
}

static void update(const char *step, CUgraphExec exec, CUgraph graph)
{
    CUgraphExecUpdateResultInfo info;
    memset(&info, 0, sizeof info);
    say(step, d.cuGraphExecUpdate_(exec, graph, &info));
    printf("%s: %s: result %d node %d from %d\n", program_name, step, (int)info.result, info.errorNode != NULL,
           info.errorFromNode != NULL);
}

/* Shapes and parameters that an update takes or refuses. */
void run_rules_update(void)
{
    const CUgraphEdgeData programmatic = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                          .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
    const CUkernelNodeAttrValue cooperative = {.cooperative = 1}, priority = {.priority = -2};
    CUgraphNode node;
    void *pinned;
    start();
    CUgraph chain = new_graph(), backwards = new_graph(), parallel = new_graph(), data = new_graph(),
            attributes = new_graph();
    CUgraphNode first = add_kernel(chain, NULL, 0, a);
    add_kernel(chain, &first, 1, b);
    CUgraphExec exec = exec_of(chain), by_priority;
    CUgraphNode last = add_kernel(backwards, NULL, 0, b), root = add_kernel(backwards, NULL, 0, a);
    NEED(CALL(cuGraphAddDependencies, backwards, &root, &last, NULL, 1));
    update("nodes made in another order", exec, backwards);
    add_kernel(parallel, NULL, 0, a);
    add_kernel(parallel, NULL, 0, b);
    update("more exits", exec, parallel);
    update("fewer exits", exec_of(parallel), chain);
    CUgraphNode one = add_kernel(data, NULL, 0, a), two = add_kernel(data, NULL, 0, b);
    NEED(CALL(cuGraphAddDependencies, data, &one, &two, &programmatic, 1));
    update("edge data", exec, data);
    first = add_kernel(attributes, NULL, 0, a);
    node = add_kernel(attributes, &first, 1, b);
    NEED(CALL(cuGraphInstantiate, &by_priority, chain, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY));
    NEED(CALL(cuGraphKernelNodeSetAttribute, node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &priority));
    update("priority", exec, attributes);
    update("priority that counts", by_priority, attributes);
    NEED(CALL(cuGraphKernelNodeSetAttribute, node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &cooperative));
    update("cooperative", exec, attributes);

    NEED(CALL(cuMemHostAlloc, &pinned, 4 * WORDS, 0));
    CUgraph copies = new_graph(), from_host = new_graph();
    CUDA_MEMCPY3D params = copy_params(a, b);
    CUgraphNode copy_node;
    NEED(CALL(cuGraphAddMemcpyNode, &copy_node, copies, NULL, 0, &params, context));
    exec = exec_of(copies);
    params.srcMemoryType = CU_MEMORYTYPE_HOST;
    params.srcHost = pinned;
    NEED(CALL(cuGraphAddMemcpyNode, &node, from_host, NULL, 0, &params, context));
    update("copy from another place", exec, from_host);
    say("set it", d.cuGraphExecMemcpyNodeSetParams_(exec, copy_node, &params, context));
    params = copy_params(b, a);
    say("set other addresses", d.cuGraphExecMemcpyNodeSetParams_(exec, copy_node, &params, context));
    params.WidthInBytes = 64;
    say("set fewer bytes", d.cuGraphExecMemcpyNodeSetParams_(exec, copy_node, &params, context));
    params.Height = 2;
    params.srcPitch = params.dstPitch = 128;
    say("set rows", d.cuGraphExecMemcpyNodeSetParams_(exec, copy_node, &params, context));
    params = copy_params(b, a);
    params.WidthInBytes = 0;
    say("set nothing", d.cuGraphExecMemcpyNodeSetParams_(exec, copy_node, &params, context));
    /* a mapped page in the place of an allocation, then one that lies in host memory */
    CUdeviceptr local = reserve(PAGE), hosted = reserve(PAGE);
    CUmemGenericAllocationHandle in_host;
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA}};
    NEED(CALL(cuMemMap, local, PAGE, 0, handle_of(PAGE), 0));
    need("access", grant(local, PAGE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    NEED(CALL(cuMemCreate, &in_host, PAGE, &prop, 0));
    NEED(CALL(cuMemMap, hosted, PAGE, 0, in_host, 0));
    need("access", grant(hosted, PAGE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    params = copy_params(local, b);
    say("set a mapped page", d.cuGraphExecMemcpyNodeSetParams_(exec, copy_node, &params, context));
    params = copy_params(hosted, b);
    say("set a page in host memory", d.cuGraphExecMemcpyNodeSetParams_(exec, copy_node, &params, context));
    CUgraph from_hosted = new_graph();
    NEED(CALL(cuGraphAddMemcpyNode, &node, from_hosted, NULL, 0, &params, context));
    update("page in host memory", exec, from_hosted);

    CUgraph sets = new_graph();
    CUgraphNode line, plane;
    CUDA_MEMSET_NODE_PARAMS set = {.dst = a, .value = 1, .elementSize = 4, .width = WORDS, .height = 1};
    CUDA_MEMSET_NODE_PARAMS rows = {.dst = b, .value = 1, .elementSize = 4, .width = 4, .height = 4, .pitch = 64};
    NEED(CALL(cuGraphAddMemsetNode, &line, sets, NULL, 0, &set, context));
    NEED(CALL(cuGraphAddMemsetNode, &plane, sets, NULL, 0, &rows, context));
    exec = exec_of(sets);
    set.width = WORDS / 2;
    say("set a shorter line", d.cuGraphExecMemsetNodeSetParams_(exec, line, &set, context));
    set.height = 2;
    set.pitch = 4 * WORDS;
    say("set two lines", d.cuGraphExecMemsetNodeSetParams_(exec, line, &set, context));
    rows.value = 3;
    say("set another value", d.cuGraphExecMemsetNodeSetParams_(exec, plane, &rows, context));
    rows.width = 5;
    say("set wider rows", d.cuGraphExecMemsetNodeSetParams_(exec, plane, &rows, context));

    CUgraph parent = new_graph();
    CUgraphNode holder;
    NEED(CALL(cuGraphAddChildGraphNode, &holder, parent, NULL, 0, chain));
    exec = exec_of(parent);
    say("set a child of the same shape", d.cuGraphExecChildGraphNodeSetParams_(exec, holder, backwards));
    say("set a child of another shape", d.cuGraphExecChildGraphNodeSetParams_(exec, holder, parallel));
}

/* Ports and types of edges. */
void run_rules_edges(void)
{
    const CUgraphEdgeData data[] = {
        {.from_port = 1, .type = 1},
        {.from_port = 2, .type = 1},
        {.from_port = 0, .type = 1},
        {.from_port = 1, .type = 0},
        {.from_port = 2, .type = 0},
        {.from_port = 3, .type = 1},
        {.to_port = 1},
        {.reserved = {1}},
    };
    CUDA_MEMCPY3D params;
    CUgraphNode copied;
    start();
    params = copy_params(a, b);
    for (size_t i = 0; i < sizeof data / sizeof *data; i++) {
        CUgraph graph = new_graph();
        CUgraphNode one = add_kernel(graph, NULL, 0, a), two = add_kernel(graph, NULL, 0, b);
        NEED(CALL(cuGraphAddMemcpyNode, &copied, graph, NULL, 0, &params, context));
        printf("%s: ports %u %u type %u\n", program_name, data[i].from_port, data[i].to_port, data[i].type);
        say("from kernel to kernel", d.cuGraphAddDependencies_(graph, &one, &two, &data[i], 1));
        say("from kernel to copy", d.cuGraphAddDependencies_(graph, &one, &copied, &data[i], 1));
        say("from copy to kernel", d.cuGraphAddDependencies_(graph, &copied, &two, &data[i], 1));
        say("instantiate", d.cuGraphInstantiate_(&(CUgraphExec){NULL}, graph, 0));
        say("remove without data", d.cuGraphRemoveDependencies_(graph, &one, &two, NULL, 1));
    }
}

static CUresult conditional(CUgraph graph, CUgraphConditionalHandle handle, CUgraphConditionalNodeType type,
                            unsigned size, CUgraph *body)
{
    CUgraphNode node;
    CUgraphNodeParams params;
    memset(&params, 0, sizeof params);
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = size;
    params.conditional.ctx = context;
    CUresult result = d.cuGraphAddNode_(&node, graph, NULL, NULL, 0, &params);
    *body = result == CUDA_SUCCESS ? params.conditional.phGraph_out[0] : NULL;
    return result;
}

void run_rules_conditional(void)
{
    CUgraphConditionalHandle handle;
    CUgraph body, clone, ended;
    CUgraphNode node;
    CUgraphExec exec, again;
    start();
    CUgraph graph = new_graph(), other = new_graph(), parent = new_graph();
    say("handle", d.cuGraphConditionalHandleCreate_(&handle, graph, context, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
    say("in another graph", conditional(other, handle, CU_GRAPH_COND_TYPE_IF, 1, &body));
    say("three bodies of an if", conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 3, &body));
    say("two bodies of a while", conditional(graph, handle, CU_GRAPH_COND_TYPE_WHILE, 2, &body));
    say("node", conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 1, &body));
    CUgraph first = body;
    say("a second node", conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 1, &body));
    add_kernel(first, NULL, 0, a);
    say("clone", d.cuGraphClone_(&clone, graph));
    say("as a child", d.cuGraphAddChildGraphNode_(&node, parent, NULL, 0, graph));
    say("destroy a body", d.cuGraphDestroy_(first));
    say("instantiate", d.cuGraphInstantiate_(&exec, graph, 0));
    say("instantiate again", d.cuGraphInstantiate_(&again, graph, 0));
    say("launch", d.cuGraphLaunch_(exec, s));
    NEED(CALL(cuStreamSynchronize, s));
    tell_word("word", a);
    NEED(CALL(cuStreamBeginCapture, s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    say("launch in a capture", d.cuGraphLaunch_(exec, s));
    say("end", d.cuStreamEndCapture_(s, &ended));
    say("event in a body", d.cuGraphAddEventRecordNode_(&node, first, NULL, 0, event_of(CU_EVENT_DISABLE_TIMING)));
    NEED(CALL(cuGraphExecDestroy, exec));
    say("instantiate", d.cuGraphInstantiate_(&exec, graph, 0));
}

void run_rules_memory(void)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
        .bytesize = 4 * WORDS};
    CUgraphNode alloc, release, node;
    CUgraph clone, captured;
    CUgraphExec exec, again;
    CUdeviceptr address = 0;
    start();
    CUgraph graph = new_graph(), parent = new_graph();
    say("allocation", d.cuGraphAddMemAllocNode_(&alloc, graph, NULL, 0, &params));
    NEED(CALL(cuGraphAddEmptyNode, &node, graph, &alloc, 1));
    say("free of other memory", d.cuGraphAddMemFreeNode_(&release, graph, NULL, 0, a));
    say("free in another graph", d.cuGraphAddMemFreeNode_(&release, parent, NULL, 0, params.dptr));
    say("clone", d.cuGraphClone_(&clone, graph));
    say("as a child", d.cuGraphAddChildGraphNode_(&release, parent, NULL, 0, graph));
    say("destroy a node", d.cuGraphDestroyNode_(node));
    say("remove an edge", d.cuGraphRemoveDependencies_(graph, &alloc, &node, NULL, 1));
    say("instantiate", d.cuGraphInstantiate_(&exec, graph, 0));
    say("instantiate again", d.cuGraphInstantiate_(&again, graph, 0));
    say("launch", d.cuGraphLaunch_(exec, s));
    say("launch again", d.cuGraphLaunch_(exec, s));
    say("free it", d.cuMemFreeAsync_(params.dptr, s));
    say("free it again", d.cuMemFreeAsync_(params.dptr, s));
    say("launch", d.cuGraphLaunch_(exec, s));
    NEED(CALL(cuStreamSynchronize, s));
    NEED(CALL(cuStreamBeginCapture, s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    say("capture an allocation", d.cuMemAllocAsync_(&address, 4096, s));
    say("capture a set", d.cuMemsetD32Async_(address, 1, 16, s));
    say("capture its free", d.cuMemFreeAsync_(address, s));
    say("end", d.cuStreamEndCapture_(s, &captured));
    say("instantiate", d.cuGraphInstantiate_(&exec, captured, 0));
    say("launch", d.cuGraphLaunch_(exec, s));
    NEED(CALL(cuStreamSynchronize, s));
}

void run_rules_updatable(void)
{
    CUkernelNodeAttrValue value = {.deviceUpdatableKernelNode = {.deviceUpdatable = 1}}, zero = {0};
    CUgraphExec exec, again;
    CUgraph clone;
    start();
    CUgraph graph = new_graph();
    CUgraphNode node = add_kernel(graph, NULL, 0, a), other = add_kernel(graph, &node, 1, b);
    say("opt in", d.cuGraphKernelNodeSetAttribute_(node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value));
    tell("a handle", value.deviceUpdatableKernelNode.devNode != NULL);
    say("opt out", d.cuGraphKernelNodeSetAttribute_(node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &zero));
    say("copy attributes from it", d.cuGraphKernelNodeCopyAttributes_(other, node));
    say("destroy it", d.cuGraphDestroyNode_(node));
    say("clone", d.cuGraphClone_(&clone, graph));
    say("instantiate", d.cuGraphInstantiate_(&exec, graph, 0));
    say("instantiate again", d.cuGraphInstantiate_(&again, graph, 0));
    update("update", exec, graph);
    say("launch", d.cuGraphLaunch_(exec, s));
    NEED(CALL(cuStreamSynchronize, s));
    tell_word("word", a);
}
