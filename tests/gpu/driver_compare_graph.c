/* Programs about graphs. */
#define _GNU_SOURCE
#include "driver_compare.h"

#include <stdio.h>
#include <string.h>

static CUgraphNode add_kernel(CUgraph graph, const CUgraphNode *from, size_t count, uint32_t value)
{
    CUgraphNode node;
    CUDA_KERNEL_NODE_PARAMS params = {.func = function("probe_increment"),
                                      .gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 64,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = (void *[]){&a, &value, &words}};
    NEED(CALL(cuGraphAddKernelNode, &node, graph, from, count, &params));
    return node;
}

static void tell_node(const char *step, CUgraphNode node)
{
    CUDA_KERNEL_NODE_PARAMS params;
    memset(&params, 0, sizeof params);
    say(step, d.cuGraphKernelNodeGetParams_(node, &params));
    printf("%s: %s: func %d kern %d ctx %d params %d extra %d grid %u block %u\n", program_name, step,
           params.func != NULL, params.kern != NULL, params.ctx != NULL, params.kernelParams != NULL,
           params.extra != NULL, params.gridDimX, params.blockDimX);
}

static void capture_forms(void)
{
    CUlibrary loaded;
    CUkernel kernel;
    CUgraph graph;
    CUgraphNode node[8], to[8];
    CUgraphEdgeData data[8];
    uint32_t value = 1;
    struct {
        CUdeviceptr out;
        uint32_t value;
        uint64_t words;
    } block = {a, 9, WORDS};
    size_t bytes = sizeof block, count = 8;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &block, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    void *list[] = {&a, &value, &words};
    CUfunction f = function("probe_fill");
    NEED(CALL(cuLibraryLoadFromFile, &loaded, path_of(images, "probe.fatbin"), NULL, NULL, 0, NULL, NULL, 0));
    NEED(CALL(cuLibraryGetKernel, &kernel, loaded, "probe_fill"));
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                   .value = {.programmaticStreamSerializationAllowed = 1}};
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 32,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = s,
                             .attrs = &attribute,
                             .numAttrs = 1};
    NEED(CALL(cuStreamBeginCapture, s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    say("capture of a launch by parameters", d.cuLaunchKernel_(f, 1, 1, 1, 32, 1, 1, 0, s, list, NULL));
    say("capture of a launch by extra", d.cuLaunchKernel_(f, 1, 1, 1, 32, 1, 1, 0, s, NULL, extra));
    say("capture of a library kernel", d.cuLaunchKernel_((CUfunction)kernel, 1, 1, 1, 32, 1, 1, 0, s, list, NULL));
    say("capture of a programmatic launch", d.cuLaunchKernelEx_(&config, f, list, NULL));
    NEED(CALL(cuStreamEndCapture, s, &graph));
    say("nodes", d.cuGraphGetNodes_(graph, node, &count));
    tell("count", (long long)count);
    for (size_t i = 0; i < count; i++)
        tell_node("kernel node", node[i]);
    count = 8;
    say("edges with data", d.cuGraphGetEdges_(graph, node, to, data, &count));
    tell("count", (long long)count);
    for (size_t i = 0; i < count; i++)
        printf("%s: edge data %u %u %u\n", program_name, data[i].from_port, data[i].to_port, data[i].type);
    count = 8;
    say("edges without data", d.cuGraphGetEdges_(graph, node, to, NULL, &count));
}

/* Does a wait between two kernels keep the edge between them programmatic? */
static void capture_programmatic_after_wait(void)
{
    CUgraph graph;
    CUgraphNode from[8], to[8];
    CUgraphEdgeData data[8];
    CUgraphNodeType type;
    uint32_t value = 1;
    size_t count = 8;
    CUevent fork_event = event_of(CU_EVENT_DISABLE_TIMING), join = event_of(CU_EVENT_DISABLE_TIMING);
    void *list[] = {&a, &value, &words};
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                   .value = {.programmaticStreamSerializationAllowed = 1}};
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 32,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = s,
                             .attrs = &attribute,
                             .numAttrs = 1};
    NEED(CALL(cuStreamBeginCapture, s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    NEED(CALL(cuEventRecord, fork_event, s));
    NEED(CALL(cuStreamWaitEvent, t, fork_event, 0));
    NEED(CALL(cuMemsetD32Async, b, 1, WORDS, t));
    NEED(CALL(cuEventRecord, join, t));
    need("leader", increment(s, a, 1));
    NEED(CALL(cuStreamWaitEvent, s, join, 0));
    say("programmatic launch after a wait", d.cuLaunchKernelEx_(&config, function("probe_increment"), list, NULL));
    NEED(CALL(cuStreamEndCapture, s, &graph));
    say("its edges", d.cuGraphGetEdges_(graph, from, to, data, &count));
    tell("count", (long long)count);
    for (size_t i = 0; i < count; i++) {
        NEED(CALL(cuGraphNodeGetType, from[i], &type));
        printf("%s: edge from a node of type %d: %u %u %u\n", program_name, (int)type, data[i].from_port,
               data[i].to_port, data[i].type);
    }
}

void run_graph(void)
{
    CUgraph graph, clone, child, empty;
    CUgraphNode first, second, found = NULL, holder, alien;
    CUgraphExec exec;
    size_t count = 0;
    unsigned enabled = 77;
    uint32_t value = 100;
    start();
    NEED(CALL(cuGraphCreate, &graph, 0));
    NEED(CALL(cuGraphCreate, &empty, 0));
    first = add_kernel(graph, NULL, 0, 10);
    second = add_kernel(graph, &first, 1, 1);
    say("roots", d.cuGraphGetRootNodes_(graph, NULL, &count));
    tell("count", (long long)count);
    say("a dependency twice", d.cuGraphAddEmptyNode_(&found, graph, (CUgraphNode[]){first, first}, 2));
    say("a foreign dependency", d.cuGraphAddEmptyNode_(&found, empty, &first, 1));
    say("an edge that is there", d.cuGraphAddDependencies_(graph, &first, &second, NULL, 1));
    say("an edge to itself", d.cuGraphAddDependencies_(graph, &first, &first, NULL, 1));
    say("remove an edge that is not there", d.cuGraphRemoveDependencies_(graph, &second, &first, NULL, 1));
    say("instantiate", d.cuGraphInstantiate_(&exec, graph, 0));
    say("unknown flag", d.cuGraphInstantiate_(&exec, empty, 1 << 20));
    say("instantiate an empty graph", d.cuGraphInstantiate_(&(CUgraphExec){NULL}, empty, 0));
    say("launch", d.cuGraphLaunch_(exec, s));
    NEED(CALL(cuStreamSynchronize, s));
    tell_word("result", a);
    tell_node("by hand", first);
    CUDA_KERNEL_NODE_PARAMS params = {0};
    NEED(CALL(cuGraphKernelNodeGetParams, first, &params));
    *(uint32_t *)params.kernelParams[1] = 50;
    CUgraphExec again;
    NEED(CALL(cuGraphInstantiate, &again, graph, 0));
    NEED(CALL(cuGraphLaunch, again, s));
    NEED(CALL(cuStreamSynchronize, s));
    tell_word("after a write through the returned parameters", a);
    say("clone", d.cuGraphClone_(&clone, graph));
    say("find in clone", d.cuGraphNodeFindInClone_(&found, first, clone));
    tell("is another node", found != first);
    say("find in a graph that is no clone", d.cuGraphNodeFindInClone_(&found, first, empty));
    params.kernelParams = (void *[]){&a, &value, &words};
    say("set in the executable graph", d.cuGraphExecKernelNodeSetParams_(exec, first, &params));
    say("set by a node added later",
        (d.cuGraphAddEmptyNode_(&alien, graph, NULL, 0), d.cuGraphExecKernelNodeSetParams_(exec, alien, &params)));
    say("set by the clone's node",
        (d.cuGraphNodeFindInClone_(&found, first, clone), d.cuGraphExecKernelNodeSetParams_(exec, found, &params)));
    say("disable", d.cuGraphNodeSetEnabled_(exec, second, 0));
    say("enabled", d.cuGraphNodeGetEnabled_(exec, second, &enabled));
    tell("value", enabled);
    NEED(CALL(cuGraphLaunch, exec, s));
    NEED(CALL(cuStreamSynchronize, s));
    tell_word("result", a);
    say("child", d.cuGraphAddChildGraphNode_(&holder, empty, NULL, 0, clone));
    say("its graph", d.cuGraphChildGraphNodeGetGraph_(holder, &child));
    tell("is a copy", child != clone);
    say("destroy the graph of a child node", d.cuGraphDestroy_(child));
    say("cycle", d.cuGraphAddDependencies_(graph, &second, &first, NULL, 1));
    say("instantiate a cycle", d.cuGraphInstantiate_(&again, graph, 0));
    capture_forms();
    capture_programmatic_after_wait();
}

static CUgraph capture_two(uint32_t value, int more)
{
    CUgraph graph;
    NEED(CALL(cuStreamBeginCapture, s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    need("kernel", increment(s, a, value));
    NEED(CALL(cuMemcpyDtoDAsync, b, a, 4 * WORDS, s));
    if (more)
        need("kernel", increment(s, a, value));
    NEED(CALL(cuStreamEndCapture, s, &graph));
    return graph;
}

void run_update(void)
{
    CUgraphExec exec;
    CUgraph graph;
    CUgraphExecUpdateResultInfo info;
    memset(&info, 0, sizeof info);
    start();
    NEED(CALL(cuGraphInstantiate, &exec, capture_two(1, 0), 0));
    say("same shape", d.cuGraphExecUpdate_(exec, capture_two(30, 0), &info));
    tell("result", info.result);
    NEED(CALL(cuGraphLaunch, exec, s));
    NEED(CALL(cuStreamSynchronize, s));
    tell_word("value", b);
    say("one node more", d.cuGraphExecUpdate_(exec, capture_two(1, 1), &info));
    tell("result", info.result);
    tell("names a node", info.errorNode != NULL);
    NEED(CALL(cuGraphCreate, &graph, 0));
    CUgraphNode first = add_kernel(graph, NULL, 0, 1);
    add_kernel(graph, &first, 1, 1);
    say("another type", d.cuGraphExecUpdate_(exec, graph, &info));
    tell("result", info.result);
    tell("names a node", info.errorNode != NULL);
}
