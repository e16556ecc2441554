/* Executable graphs: instantiation and running. Updates are in sim_graph_update.c. */
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
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return sim_branch_run(call, node);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return sim_graph_memory_run(call, node);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        SIM_TRY(sim_event_get((CUevent)node->event, &event));
        sim_event_record_by_node(event, call, &node->lane);
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
 * full one here; what the second kernel may read before it waits for the first is checked in sim_programmatic.c. An
 * edge from the port of launch order is no more than the order of the starts.
 */
static void follow_edge(struct sim_lane *lane, const struct sim_edge *edge)
{
    if (edge->data.from_port == CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER && edge->from->enabled)
        sim_programmatic_follow_start(lane, &edge->from->lane);
    else
        sim_lane_follow(lane, &edge->from->lane);
}

/* When the node may begin; INT64_MAX: nodes that it follows were not run. */
static int64_t ready_ns(const struct sim_node *node, const struct sim_lane *entry)
{
    int64_t latest_ns = node->edge_count == 0 ? entry->tail_ns : 0;
    for (size_t e = 0; e < node->edge_count; e++) {
        if (node->edge[e].from->mark == 0)
            return INT64_MAX;
        if (node->edge[e].data.from_port != CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER &&
            node->edge[e].from->lane.tail_ns > latest_ns)
            latest_ns = node->edge[e].from->lane.tail_ns;
    }
    return latest_ns;
}

/* The node at `at` is the one of those left that begins first, a copy before others: for SIM_CONTENTION. */
static void take_earliest(struct sim_graph *graph, struct sim_node **order, size_t at, const struct sim_lane *entry)
{
    size_t best = at;
    int64_t best_ns = INT64_MAX;
    for (size_t i = 0; at == 0 && i < graph->count; i++)
        graph->node[i]->mark = 0;
    for (size_t i = at; i < graph->count; i++) {
        const int64_t at_ns = ready_ns(order[i], entry);
        const int copies = order[i]->type == CU_GRAPH_NODE_TYPE_MEMCPY && order[best]->type != order[i]->type;
        if (at_ns < best_ns || (at_ns == best_ns && at_ns != INT64_MAX && copies)) {
            best = i;
            best_ns = at_ns;
        }
    }
    struct sim_node *node = order[best];
    memmove(&order[at + 1], &order[at], (best - at) * sizeof *order);
    order[at] = node;
    node->mark = 1;
}

CUresult sim_graph_run(struct sim_call *call, struct sim_graph *graph, struct sim_lane *entry)
{
    struct sim_node **order = sim_graph_order(graph);
    if (order == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < graph->count && result == CUDA_SUCCESS; i++) {
        if (sim_knobs.contention > 0)
            take_earliest(graph, order, i, entry);
        struct sim_node *node = order[i];
        if (node->edge_count == 0)
            sim_lane_follow(&node->lane, entry);
        for (size_t e = 0; e < node->edge_count; e++)
            follow_edge(&node->lane, &node->edge[e]);
        result = run_node(call, node);
    }
    for (size_t i = 0; i < graph->count; i++)
        sim_lane_follow(entry, &graph->node[i]->lane);
    free(order);
    return result;
}

/* Every node gets its lane before the first run, in the context of its work. */
static void make_lane(struct sim_node *node, void *exec)
{
    struct sim_context *context = node->context != NULL ? node->context : ((const struct sim_exec *)exec)->context;
    sim_lane_init(&node->lane, context, node->serial);
    node->lane_ready = 1;
    sim_device_node_live(node, exec);
}

/* ---- instantiation ---- */

enum {
    KNOWN_FLAGS = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                  CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY
};

/* What keeps a graph from being instantiated. */
struct obstacle {
    CUgraphInstantiateResult result;
    CUresult error;
    struct sim_node *node;
    const struct sim_context *context; /* of the nodes so far */
    size_t work;                       /* kernels, copies, sets */
    int device_launch;
};

/* Graphs that kernels may launch hold kernels, copies, sets and children, all of one context. */
static void check_device_launch(struct sim_node *node, struct obstacle *obstacle)
{
    int works = node->type == CU_GRAPH_NODE_TYPE_KERNEL || node->type == CU_GRAPH_NODE_TYPE_MEMCPY ||
                node->type == CU_GRAPH_NODE_TYPE_MEMSET;
    if (!works && node->type != CU_GRAPH_NODE_TYPE_GRAPH) {
        obstacle->result = CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
        obstacle->node = node;
    } else if (works && obstacle->context != NULL && node->context != obstacle->context) {
        obstacle->result = CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED;
        obstacle->node = node;
    }
    obstacle->work += works != 0;
    obstacle->context = works ? node->context : obstacle->context;
}

static void check_node(struct sim_node *node, void *context)
{
    struct obstacle *obstacle = context;
    if (obstacle->result != CUDA_GRAPH_INSTANTIATE_SUCCESS)
        return;
    if (obstacle->device_launch)
        check_device_launch(node, obstacle);
    if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL && sim_branch_check(node->branch) != CUDA_SUCCESS)
        *obstacle = (struct obstacle){
            CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED, node, NULL, 0, 0};
}

static struct obstacle find_obstacle(struct sim_graph *graph, unsigned long long flags)
{
    struct obstacle obstacle = {.result = CUDA_GRAPH_INSTANTIATE_SUCCESS,
                                .error = CUDA_ERROR_INVALID_VALUE,
                                .device_launch = (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0};
    struct sim_node **order = sim_graph_order(graph);
    if (order == NULL) {
        obstacle.result = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
        obstacle.node = graph->node[0];
        return obstacle;
    }
    free(order);
    sim_graph_visit(graph, check_node, &obstacle);
    int held = obstacle.result == CUDA_GRAPH_INSTANTIATE_SUCCESS && graph->execs != 0 && sim_graph_holds(graph) != 0;
    if (held || (obstacle.device_launch && obstacle.work == 0))
        obstacle.result =
            obstacle.result == CUDA_GRAPH_INSTANTIATE_SUCCESS ? CUDA_GRAPH_INSTANTIATE_ERROR : obstacle.result;
    return obstacle;
}

static CUresult instantiate(struct sim_call *call, CUgraphExec *out, CUgraph handle, unsigned long long flags,
                            struct obstacle *obstacle)
{
    struct sim_graph *graph;
    const unsigned long long both =
        CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
    *obstacle = (struct obstacle){.result = CUDA_GRAPH_INSTANTIATE_ERROR};
    if (out == NULL || (flags & ~(unsigned long long)KNOWN_FLAGS) != 0 || (flags & both) == both)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_graph_get(handle, &graph));
    sim_charge(call, SIM_NODE_INSTANTIATE_NS * (double)graph->count);
    *obstacle = find_obstacle(graph, flags);
    if (obstacle->result != CUDA_GRAPH_INSTANTIATE_SUCCESS)
        return obstacle->error;
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
    exec->source = graph;
    exec->source_serial = graph->serial;
    exec->uploaded = exec->on_device = (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0;
    graph->execs++;
    sim_graph_visit(exec->graph, make_lane, exec);
    sim_handle_add(exec, SIM_IS_EXEC);
    *out = (CUgraphExec)exec;
    return CUDA_SUCCESS;
}

static CUresult instantiate_v1(struct sim_call *call, CUgraphExec *out, CUgraph graph, CUgraphNode *error_node,
                               char *log, size_t log_bytes)
{
    struct obstacle obstacle;
    CUresult result = instantiate(call, out, graph, 0, &obstacle);
    if (error_node != NULL)
        *error_node = (CUgraphNode)obstacle.node;
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
    struct obstacle obstacle;
    return instantiate(call, phGraphExec, hGraph, flags, &obstacle);
}

SIM_API_PTSZ(SIM_CONTEXT, cuGraphInstantiateWithParams,
             (CUgraphExec * phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams), phGraphExec,
             hGraph, instantiateParams)
{
    if (instantiateParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct obstacle obstacle;
    CUresult result = instantiate(call, phGraphExec, hGraph, instantiateParams->flags, &obstacle);
    instantiateParams->hErrNode_out = (CUgraphNode)obstacle.node;
    instantiateParams->result_out = obstacle.result;
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
    if (sim_handle_is(exec->source, SIM_IS_GRAPH) && exec->source->serial == exec->source_serial)
        exec->source->execs--;
    sim_graph_free(exec->graph);
    sim_handle_drop(exec);
    free(exec);
    return CUDA_SUCCESS;
}

/* Launches and uploads of one executable graph do not overlap. */
static void follow_launches(struct sim_stream *stream, const struct sim_exec *exec)
{
    if (exec->launches != 0)
        for (size_t i = 0; i < exec->graph->count; i++)
            sim_lane_follow(&stream->lane, &exec->graph->node[i]->lane);
}

/* What is there already takes no time. */
static CUresult upload(struct sim_call *call, struct sim_stream *stream, struct sim_exec *exec)
{
    const struct sim_op op = {.site = "upload of a graph",
                              .engine = SIM_ENGINE_NONE,
                              .fixed_ns = (int64_t)(sim_knobs.upload_ns * (double)exec->graph->count)};
    if (exec->on_device || op.fixed_ns == 0)
        return CUDA_SUCCESS;
    exec->on_device = 1;
    return sim_submit(call, &stream->lane, &op);
}

SIM_API_PTSZ(SIM_CONTEXT, cuGraphUpload, (CUgraphExec hGraphExec, CUstream hStream), hGraphExec, hStream)
{
    struct sim_exec *exec;
    struct sim_stream *stream;
    SIM_TRY(sim_exec_get(hGraphExec, &exec));
    SIM_TRY(sim_stream_get(call, hStream, &stream));
    if (sim_stream_is_capturing(stream))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    SIM_TRY(sim_stream_begin(call, stream));
    follow_launches(stream, exec);
    exec->uploaded = 1;
    return upload(call, stream, exec);
}

SIM_API_PTSZ(SIM_CONTEXT, cuGraphLaunch, (CUgraphExec hGraphExec, CUstream hStream), hGraphExec, hStream)
{
    struct sim_exec *exec;
    struct sim_stream *stream;
    SIM_TRY(sim_exec_get(hGraphExec, &exec));
    SIM_TRY(sim_stream_get(call, hStream, &stream));
    if (sim_stream_is_capturing(stream))
        return sim_capture_graph(call, stream, exec->graph);
    SIM_TRY(sim_stream_begin(call, stream));
    SIM_TRY(sim_graph_memory_begin(exec));
    follow_launches(stream, exec);
    SIM_TRY(upload(call, stream, exec));
    exec->launches++;
    sim_conditions_reset(exec->graph);
    return sim_graph_run(call, exec->graph, &stream->lane);
}
