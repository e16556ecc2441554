/*
 * Changes of single nodes of executable graphs: see graph.h. The driver has accepted each of them for the program's own
 * executable graph; here the clone and what is known of the node follow, and the graph that turns the ring, if there is
 * one. What the latter does not take is made anew before the next launch.
 */
#include <string.h>

#include "engine.h"
#include "graph.h"
#include "graph_source.h"
#include "log.h"
#include "runtime.h"

/* Nobody can tell any more what the clone should be. What is known of the graph from here on is a superset of what it
 * does, which is enough to keep all of that out of the ring. */
static void give_up_clone(struct ov_graph *graph, const char *why)
{
    ov_graph_turn_end(graph);
    if (graph->clone != NULL) {
        (void)ov_cu->cuGraphDestroy(graph->clone);
        graph->clone = NULL;
    }
    ov_graph_pin(graph, why);
}

static CUDA_KERNEL_NODE_PARAMS kernel_of(const CUgraphNodeParams *params)
{
    const CUDA_KERNEL_NODE_PARAMS_v3 *p = &params->kernel;
    return (CUDA_KERNEL_NODE_PARAMS){
        .func = p->func,
        .gridDimX = p->gridDimX,
        .gridDimY = p->gridDimY,
        .gridDimZ = p->gridDimZ,
        .blockDimX = p->blockDimX,
        .blockDimY = p->blockDimY,
        .blockDimZ = p->blockDimZ,
        .sharedMemBytes = p->sharedMemBytes,
        .kernelParams = p->kernelParams,
        .extra = p->extra,
        .kern = p->kern,
        .ctx = p->ctx,
    };
}

static CUDA_MEMSET_NODE_PARAMS fill_of(const CUgraphNodeParams *params)
{
    const CUDA_MEMSET_NODE_PARAMS_v2 *p = &params->memset;
    return (CUDA_MEMSET_NODE_PARAMS){.dst = p->dst,
                                     .pitch = p->pitch,
                                     .value = p->value,
                                     .elementSize = p->elementSize,
                                     .width = p->width,
                                     .height = p->height};
}

/* The same change for the clone's node. */
static CUresult change_clone(CUgraphNode node, const CUgraphNodeParams *params)
{
    const CUDA_KERNEL_NODE_PARAMS kernel = kernel_of(params);
    const CUDA_MEMSET_NODE_PARAMS fill = fill_of(params);
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return ov_cu->cuGraphKernelNodeSetParams_v2 != NULL ? ov_cu->cuGraphKernelNodeSetParams_v2(node, &kernel)
                                                            : CUDA_ERROR_NOT_SUPPORTED;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return ov_cu->cuGraphMemcpyNodeSetParams(node, &params->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return ov_cu->cuGraphMemsetNodeSetParams(node, &fill);
    case CU_GRAPH_NODE_TYPE_HOST:
        return ov_cu->cuGraphHostNodeSetParams(node, &(CUDA_HOST_NODE_PARAMS){params->host.fn, params->host.userData});
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return ov_cu->cuGraphEventRecordNodeSetEvent(node, params->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return ov_cu->cuGraphEventWaitNodeSetEvent(node, params->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

/* And for the executable graph that turns the ring. */
static CUresult change_turn(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams *params)
{
    const CUDA_KERNEL_NODE_PARAMS kernel = kernel_of(params);
    const CUDA_MEMSET_NODE_PARAMS fill = fill_of(params);
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return ov_cu->cuGraphExecKernelNodeSetParams_v2 != NULL
                   ? ov_cu->cuGraphExecKernelNodeSetParams_v2(exec, node, &kernel)
                   : CUDA_ERROR_NOT_SUPPORTED;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return ov_cu->cuGraphExecMemcpyNodeSetParams != NULL
                   ? ov_cu->cuGraphExecMemcpyNodeSetParams(exec, node, &params->memcpy.copyParams,
                                                           params->memcpy.copyCtx)
                   : CUDA_ERROR_NOT_SUPPORTED;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return ov_cu->cuGraphExecMemsetNodeSetParams != NULL
                   ? ov_cu->cuGraphExecMemsetNodeSetParams(exec, node, &fill, params->memset.ctx)
                   : CUDA_ERROR_NOT_SUPPORTED;
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

/* The graph that turns the ring, if there is one, gets the change, too, or goes. params NULL: enabled or not. Another
 * thread may be about to drop it, to make room for one of its own. */
static void keep_up(struct ov_graph *graph, uint32_t index, const CUgraphNodeParams *params, bool enabled)
{
    struct ov_engine *engine = graph->engine;
    if (engine == NULL) {
        return; /* then there is none */
    }
    pthread_mutex_lock(&engine->lock);
    struct ov_graph_turn *turn = &graph->turn;
    if (turn->graph != NULL &&
        (params != NULL ? change_turn(turn->exec, turn->node[index], params)
                        : ov_cu->cuGraphNodeSetEnabled(turn->exec, turn->node[index], enabled)) != CUDA_SUCCESS) {
        ov_graph_turn_drop(graph);
    }
    pthread_mutex_unlock(&engine->lock);
}

/* What is known of the node. False: no memory. */
static bool change_node(struct ov_graph_node *node, const CUgraphNodeParams *params)
{
    const CUDA_KERNEL_NODE_PARAMS kernel = kernel_of(params);
    const CUDA_MEMSET_NODE_PARAMS fill = fill_of(params);
    struct ov_copy copy;
    node->type = params->type;
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return ov_graph_node_scan(node, &kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        copy = ov_graph_copy_of(&params->memcpy.copyParams);
        return ov_graph_node_copies(node, &copy);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        copy = ov_graph_fill_of(&fill);
        return ov_graph_node_copies(node, &copy);
    default:
        return true;
    }
}

/* The node as far as it is known by name; else one more, which has its name from now on. */
static struct ov_graph_node *named_node(struct ov_graph_model *model, CUgraphNode program, CUgraphNodeType type)
{
    uint32_t index = ov_graph_model_find(model, program);
    if (index < model->count && model->node[index].type == type) {
        return &model->node[index];
    }
    struct ov_graph_node *node = ov_graph_model_append(model);
    if (node != NULL) {
        node->program = program;
    }
    return node;
}

/* What graphs may do beyond what was known of them. */
static void add_to_pinned(struct ov_graph *graph, CUgraphNode program, const CUgraphNodeParams *params)
{
    struct ov_graph_model inner;
    bool done = true;
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        struct ov_graph_node *node = named_node(&graph->model, program, params->type);
        done = node != NULL && change_node(node, params);
        break;
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
        done = ov_graph_model_read(&inner, params->graph.graph, params->graph.graph) &&
               ov_graph_model_absorb(&graph->model, program, &inner);
        break;
    case CU_GRAPH_NODE_TYPE_HOST:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
        break; /* no device memory */
    default:
        done = false;
    }
    graph->model.opaque = graph->model.opaque || !done;
}

static void tell_source(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams *params)
{
    if (params->type == CU_GRAPH_NODE_TYPE_KERNEL) {
        const CUDA_KERNEL_NODE_PARAMS kernel = kernel_of(params);
        ov_graph_source_kernel(exec, node, &kernel);
    } else if (params->type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        const struct ov_copy copy = ov_graph_copy_of(&params->memcpy.copyParams);
        ov_graph_source_copy(exec, node, &copy);
    } else if (params->type == CU_GRAPH_NODE_TYPE_GRAPH) {
        ov_graph_source_taken_in(exec, params->graph.graph, false);
    }
}

void ov_graph_node_set(CUgraphExec exec, CUgraphNode program, const CUgraphNodeParams *params)
{
    struct ov_graph *graph = ov_graph_find(exec);
    tell_source(exec, program, params);
    if (graph == NULL) {
        return;
    }
    uint32_t index = ov_graph_model_find(&graph->model, program);
    struct ov_graph_node *node = index < graph->model.count ? &graph->model.node[index] : NULL;
    if (graph->clone != NULL &&
        (node == NULL || node->type != params->type || change_clone(node->node, params) != CUDA_SUCCESS)) {
        give_up_clone(graph, "a node was changed in a way that cannot be followed");
    }
    if (graph->clone == NULL) {
        add_to_pinned(graph, program, params);
    } else {
        graph->model.opaque = !change_node(node, params) || graph->model.opaque;
        keep_up(graph, index, params, false);
    }
    graph->unsettled = true;
    ov_graph_undecided(graph);
}

void ov_graph_node_enabled(CUgraphExec exec, CUgraphNode program, bool enabled)
{
    struct ov_graph *graph = ov_graph_find(exec);
    uint32_t index = graph != NULL ? ov_graph_model_find(&graph->model, program) : 0;
    if (graph == NULL || index == graph->model.count) {
        return; /* then it is pinned, and all nodes count as enabled */
    }
    graph->model.node[index].enabled = enabled || graph->clone == NULL;
    ov_graph_undecided(graph);
    keep_up(graph, index, NULL, enabled);
}
