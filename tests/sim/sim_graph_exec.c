/* Executable graphs: instantiation, running, updates. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim_node_params.h"
#include "sim_program.h"

CUresult sim_exec_get(CUgraphExec handle, struct sim_exec **out)
{
    if (!sim_handle_is(handle, SIM_IS_EXEC))
        return CUDA_ERROR_INVALID_VALUE;
    *out = (struct sim_exec *)handle;
    return CUDA_SUCCESS;
}

/* ---- running ---- */

static CUresult run_node(struct sim_call *call, struct sim_node *node)
{
    struct sim_event *event;
    if (!node->enabled)
        return CUDA_SUCCESS;
    switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return sim_launch_run(call, &node->lane, &node->launch, node);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return sim_copy_run(call, &node->lane, "memcpy node", &node->copy);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return sim_memset_run(call, &node->lane, "memset node", &node->set);
    case CU_GRAPH_NODE_TYPE_HOST:
        return sim_host_function_run(call, &node->lane, node->host.fn, node->host.userData);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return sim_graph_run(call, node->child, &node->lane);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        SIM_TRY(sim_event_get((CUevent)node->event, &event));
        sim_event_record_on(event, call, &node->lane);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        SIM_TRY(sim_event_get((CUevent)node->event, &event));
        if (event->recorded)
            sim_lane_wait(&node->lane, &event->clock, event->time_ns);
        return CUDA_SUCCESS;
    default:
        return CUDA_SUCCESS;
    }
}

/*
 * `entry` is the lane that the whole graph follows and that follows the whole graph. A programmatic edge counts as a
 * full one here; what the second kernel may read before it waits for the first is checked in sim_programmatic.c.
 */
CUresult sim_graph_run(struct sim_call *call, struct sim_graph *graph, struct sim_lane *entry)
{
    struct sim_node **order = sim_graph_order(graph);
    if (order == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < graph->count && result == CUDA_SUCCESS; i++) {
        struct sim_node *node = order[i];
        if (node->edge_count == 0)
            sim_lane_follow(&node->lane, entry);
        for (size_t e = 0; e < node->edge_count; e++)
            sim_lane_follow(&node->lane, &node->edge[e].from->lane);
        result = run_node(call, node);
    }
    for (size_t i = 0; i < graph->count; i++)
        sim_lane_follow(entry, &graph->node[i]->lane);
    free(order);
    return result;
}

/* Every node gets its lane before the first run, in the context of its work. */
static void make_lanes(struct sim_graph *graph, struct sim_context *context)
{
    for (size_t i = 0; i < graph->count; i++) {
        struct sim_node *node = graph->node[i];
        if (!node->lane_ready)
            sim_lane_init(&node->lane, node->context != NULL ? node->context : context, node->serial);
        node->lane_ready = 1;
        if (node->type == CU_GRAPH_NODE_TYPE_GRAPH)
            make_lanes(node->child, context);
    }
}

/* ---- instantiation ---- */

enum {
    KNOWN_FLAGS = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                  CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY
};

static CUresult instantiate(struct sim_call *call, CUgraphExec *out, CUgraph handle, unsigned long long flags)
{
    struct sim_graph *graph;
    if (out == NULL || (flags & ~(unsigned long long)KNOWN_FLAGS) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_graph_get(handle, &graph));
    struct sim_node **order = sim_graph_order(graph);
    if (order == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    free(order);
    struct sim_exec *exec = calloc(1, sizeof *exec);
    if (exec == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = sim_graph_copy(graph, &exec->graph);
    if (result != CUDA_SUCCESS) {
        free(exec);
        return result;
    }
    exec->graph->borrowed = 1;
    exec->context = call->context;
    exec->flags = flags;
    make_lanes(exec->graph, call->context);
    sim_handle_add(exec, SIM_IS_EXEC);
    *out = (CUgraphExec)exec;
    return CUDA_SUCCESS;
}

static CUresult instantiate_v1(struct sim_call *call, CUgraphExec *out, CUgraph graph, CUgraphNode *error_node,
                               char *log, size_t log_bytes)
{
    CUresult result = instantiate(call, out, graph, 0);
    if (result == CUDA_SUCCESS && error_node != NULL)
        *error_node = NULL;
    if (log != NULL && log_bytes != 0)
        log[0] = '\0';
    return result;
}

SIM_API(SIM_CONTEXT, cuGraphInstantiate,
        (CUgraphExec * phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer, size_t bufferSize),
        phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize)
{
    return instantiate_v1(call, phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

SIM_API(SIM_CONTEXT, cuGraphInstantiate_v2,
        (CUgraphExec * phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer, size_t bufferSize),
        phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize)
{
    return instantiate_v1(call, phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

SIM_API(SIM_CONTEXT, cuGraphInstantiateWithFlags, (CUgraphExec * phGraphExec, CUgraph hGraph, unsigned long long flags),
        phGraphExec, hGraph, flags)
{
    return instantiate(call, phGraphExec, hGraph, flags);
}

SIM_API_PTSZ(SIM_CONTEXT, cuGraphInstantiateWithParams,
             (CUgraphExec * phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams), phGraphExec,
             hGraph, instantiateParams)
{
    if (instantiateParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = instantiate(call, phGraphExec, hGraph, instantiateParams->flags);
    instantiateParams->hErrNode_out = NULL;
    instantiateParams->result_out =
        result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    return result;
}

SIM_API(SIM_INIT, cuGraphExecGetFlags, (CUgraphExec hGraphExec, cuuint64_t *flags), hGraphExec, flags)
{
    (void)call;
    struct sim_exec *exec;
    if (flags == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_exec_get(hGraphExec, &exec));
    *flags = exec->flags & ~(cuuint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuGraphExecDestroy, (CUgraphExec hGraphExec), hGraphExec)
{
    (void)call;
    struct sim_exec *exec;
    SIM_TRY(sim_exec_get(hGraphExec, &exec));
    sim_graph_free(exec->graph);
    sim_handle_drop(exec);
    free(exec);
    return CUDA_SUCCESS;
}

SIM_API_PTSZ(SIM_CONTEXT, cuGraphUpload, (CUgraphExec hGraphExec, CUstream hStream), hGraphExec, hStream)
{
    struct sim_exec *exec;
    struct sim_stream *stream;
    SIM_TRY(sim_exec_get(hGraphExec, &exec));
    SIM_TRY(sim_stream_get(call, hStream, &stream));
    return sim_stream_is_capturing(stream) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : sim_stream_begin(call, stream);
}

/* Launches of one executable graph do not overlap: the stream first follows what the previous launch did. */
SIM_API_PTSZ(SIM_CONTEXT, cuGraphLaunch, (CUgraphExec hGraphExec, CUstream hStream), hGraphExec, hStream)
{
    struct sim_exec *exec;
    struct sim_stream *stream;
    SIM_TRY(sim_exec_get(hGraphExec, &exec));
    SIM_TRY(sim_stream_get(call, hStream, &stream));
    if (sim_stream_is_capturing(stream))
        return sim_capture_graph(call, stream, exec->graph);
    SIM_TRY(sim_stream_begin(call, stream));
    if (exec->launches++ != 0)
        for (size_t i = 0; i < exec->graph->count; i++)
            sim_lane_follow(&stream->lane, &exec->graph->node[i]->lane);
    return sim_graph_run(call, exec->graph, &stream->lane);
}

/* ---- updates of single nodes: the handle names a node of the graph that was instantiated ---- */

static CUresult exec_node(CUgraphExec exec_handle, CUgraphNode node_handle, struct sim_exec **exec,
                          struct sim_node **out)
{
    struct sim_node *named;
    SIM_TRY(sim_exec_get(exec_handle, exec));
    SIM_TRY(sim_node_get(node_handle, &named));
    *out = sim_graph_origin((*exec)->graph, named->serial);
    return *out != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult exec_put(struct sim_exec *exec, struct sim_node *node, struct sim_node *params)
{
    if (params->type == CU_GRAPH_NODE_TYPE_KERNEL && params->context != node->context) {
        sim_node_drop_params(params);
        return CUDA_ERROR_INVALID_VALUE;
    }
    SIM_TRY(sim_params_put(node, params));
    make_lanes(exec->graph, exec->context);
    return CUDA_SUCCESS;
}

#define EXEC_SET(name_, convert_, arguments_, ...)                          \
    SIM_API(SIM_CONTEXT, name_, arguments_, hGraphExec, hNode, __VA_ARGS__) \
    {                                                                       \
        (void)call;                                                         \
        struct sim_exec *exec;                                              \
        struct sim_node *node, params;                                      \
        SIM_TRY(exec_node(hGraphExec, hNode, &exec, &node));                \
        SIM_TRY(convert_);                                                  \
        return exec_put(exec, node, &params);                               \
    }
EXEC_SET(cuGraphExecKernelNodeSetParams, sim_params_kernel_v1(call, nodeParams, &params),
         (CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams), nodeParams)
EXEC_SET(cuGraphExecKernelNodeSetParams_v2, sim_params_kernel(call, nodeParams, &params),
         (CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams), nodeParams)
EXEC_SET(cuGraphExecMemcpyNodeSetParams, sim_params_copy(call, copyParams, ctx, &params),
         (CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMCPY3D *copyParams, CUcontext ctx), copyParams, ctx)
EXEC_SET(cuGraphExecMemsetNodeSetParams, sim_params_set(call, memsetParams, ctx, &params),
         (CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx),
         memsetParams, ctx)
EXEC_SET(cuGraphExecHostNodeSetParams, sim_params_host(nodeParams, &params),
         (CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS *nodeParams), nodeParams)
EXEC_SET(cuGraphExecChildGraphNodeSetParams, sim_params_child(childGraph, &params),
         (CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph childGraph), childGraph)
EXEC_SET(cuGraphExecEventRecordNodeSetEvent, sim_params_event(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, &params),
         (CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event), event)
EXEC_SET(cuGraphExecEventWaitNodeSetEvent, sim_params_event(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, &params),
         (CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event), event)
EXEC_SET(cuGraphExecNodeSetParams, sim_params_any(call, nodeParams, &params),
         (CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams *nodeParams), nodeParams)

static int may_disable(const struct sim_node *node)
{
    return node->type == CU_GRAPH_NODE_TYPE_KERNEL || node->type == CU_GRAPH_NODE_TYPE_MEMCPY ||
           node->type == CU_GRAPH_NODE_TYPE_MEMSET;
}

SIM_API(SIM_INIT, cuGraphNodeSetEnabled, (CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled),
        hGraphExec, hNode, isEnabled)
{
    (void)call;
    struct sim_exec *exec;
    struct sim_node *node;
    SIM_TRY(exec_node(hGraphExec, hNode, &exec, &node));
    if (!may_disable(node))
        return CUDA_ERROR_INVALID_VALUE;
    node->enabled = isEnabled != 0;
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuGraphNodeGetEnabled, (CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int *isEnabled),
        hGraphExec, hNode, isEnabled)
{
    (void)call;
    struct sim_exec *exec;
    struct sim_node *node;
    if (isEnabled == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(exec_node(hGraphExec, hNode, &exec, &node));
    if (!may_disable(node))
        return CUDA_ERROR_INVALID_VALUE;
    *isEnabled = (unsigned)node->enabled;
    return CUDA_SUCCESS;
}

/* ---- update of a whole graph: same shape, new parameters ---- */

struct difference {
    CUgraphExecUpdateResult result;
    struct sim_node *node, *from;
};

static int same_edges(const struct sim_graph *old, const struct sim_graph *new, size_t i, struct sim_node **from)
{
    const struct sim_node *a = old->node[i], *b = new->node[i];
    *from = NULL;
    if (a->edge_count != b->edge_count)
        return 0;
    for (size_t e = 0; e < a->edge_count; e++) {
        *from = b->edge[e].from;
        if (a->edge[e].from->mark != b->edge[e].from->mark)
            return 0;
    }
    return 1;
}

static void number_nodes(struct sim_graph *graph)
{
    for (size_t i = 0; i < graph->count; i++)
        graph->node[i]->mark = i;
}

/* Nodes pair up by their order of creation. 0: may not be updated, and why. */
static int compare(struct sim_graph *old, struct sim_graph *new, struct difference *why)
{
    *why = (struct difference){.result = CU_GRAPH_EXEC_UPDATE_SUCCESS};
    number_nodes(old);
    number_nodes(new);
    if (old->count != new->count)
        why->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (size_t i = 0; i < old->count && why->result == CU_GRAPH_EXEC_UPDATE_SUCCESS; i++) {
        struct sim_node *a = old->node[i], *b = new->node[i], *from;
        why->node = b;
        if (a->type != b->type)
            why->result = CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        else if (!same_edges(old, new, i, &from))
            *why = (struct difference){CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, b, from};
        else if (a->type == CU_GRAPH_NODE_TYPE_KERNEL && a->context != b->context)
            why->result = CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
    }
    for (size_t i = 0; i < old->count && why->result == CU_GRAPH_EXEC_UPDATE_SUCCESS; i++)
        if (old->node[i]->type == CU_GRAPH_NODE_TYPE_GRAPH)
            compare(old->node[i]->child, new->node[i]->child, why);
    if (why->result == CU_GRAPH_EXEC_UPDATE_SUCCESS)
        why->node = NULL;
    return why->result == CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

/* Both have the same shape. Nodes stay what they are, so that handles of the original graph still find them. */
static CUresult take_params(struct sim_graph *to, const struct sim_graph *from)
{
    for (size_t i = 0; i < to->count; i++) {
        struct sim_node *node = to->node[i];
        if (node->type == CU_GRAPH_NODE_TYPE_GRAPH) {
            SIM_TRY(take_params(node->child, from->node[i]->child));
            continue;
        }
        struct sim_node fresh = {.type = node->type};
        SIM_TRY(sim_node_copy_params(&fresh, from->node[i]));
        const struct sim_launch launch = fresh.launch;
        SIM_TRY(sim_params_put(node, &fresh));
        if (node->type == CU_GRAPH_NODE_TYPE_KERNEL)
            node->launch = launch; /* in an update the attributes come along */
    }
    return CUDA_SUCCESS;
}

static CUresult update(struct sim_exec *exec, struct sim_graph *graph, struct difference *why)
{
    if (!compare(exec->graph, graph, why))
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    return take_params(exec->graph, graph);
}

SIM_API(SIM_CONTEXT, cuGraphExecUpdate_v2,
        (CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *resultInfo), hGraphExec, hGraph,
        resultInfo)
{
    (void)call;
    struct sim_exec *exec;
    struct sim_graph *graph;
    struct difference why;
    if (resultInfo == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_exec_get(hGraphExec, &exec));
    SIM_TRY(sim_graph_get(hGraph, &graph));
    CUresult result = update(exec, graph, &why);
    *resultInfo = (CUgraphExecUpdateResultInfo){why.result, (CUgraphNode)why.node, (CUgraphNode)why.from};
    return result;
}

SIM_API(SIM_CONTEXT, cuGraphExecUpdate,
        (CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
         CUgraphExecUpdateResult *updateResult_out),
        hGraphExec, hGraph, hErrorNode_out, updateResult_out)
{
    (void)call;
    struct sim_exec *exec;
    struct sim_graph *graph;
    struct difference why;
    if (hErrorNode_out == NULL || updateResult_out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_exec_get(hGraphExec, &exec));
    SIM_TRY(sim_graph_get(hGraph, &graph));
    CUresult result = update(exec, graph, &why);
    *hErrorNode_out = (CUgraphNode)why.node;
    *updateResult_out = why.result;
    return result;
}
