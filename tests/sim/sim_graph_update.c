/*
 * Updates of executable graphs: of a whole graph by another of the same shape, and of single nodes, which the program
 * names by their handles in the graph that was instantiated.
 *
 * Nodes of two graphs pair up from their exit nodes on: exit nodes in the order in which they were made, then the
 * dependencies of each pair in the order in which they were given. What differs is told by the code of
 * cuGraphExecUpdate, and nothing is changed then.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "sim_node_params.h"
#include "sim_program.h"

/* ---- which parameters may change */

int sim_operands_kept(const struct sim_node *node, const struct sim_node *params)
{
    if (node->type == CU_GRAPH_NODE_TYPE_MEMSET)
        return node->home[0] == params->home[0] && node->context == params->context;
    return node->home[0] == params->home[0] && node->home[1] == params->home[1] && node->context == params->context &&
           node->copy.srcMemoryType == params->copy.srcMemoryType &&
           node->copy.dstMemoryType == params->copy.dstMemoryType;
}

int sim_shape_kept(const CUDA_MEMSET_NODE_PARAMS *old, const CUDA_MEMSET_NODE_PARAMS *set)
{
    if (old->height <= 1 && set->height <= 1)
        return set->width != 0;
    return old->height == set->height && old->width == set->width && old->elementSize == set->elementSize &&
           old->pitch == set->pitch;
}

static int attribute_kept(const struct sim_node *old, const struct sim_node *new, CUlaunchAttributeID id)
{
    const CUlaunchAttribute *a = sim_launch_attribute(&old->launch, id), *b = sim_launch_attribute(&new->launch, id);
    static const CUlaunchAttributeValue nothing;
    const CUlaunchAttributeValue *before = a != NULL ? &a->value : &nothing, *after = b != NULL ? &b->value : &nothing;
    return before->cooperative == after->cooperative; /* the first member, an int, like the priority */
}

static CUgraphExecUpdateResult compare_kernels(const struct sim_exec *exec, const struct sim_node *old,
                                               const struct sim_node *new)
{
    if (old->device_node != NULL || new->device_node != NULL)
        return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
    if (old->launch.func->module->context != new->launch.func->module->context)
        return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
    if (!attribute_kept(old, new, CU_LAUNCH_ATTRIBUTE_COOPERATIVE) ||
        ((exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) != 0 &&
         !attribute_kept(old, new, CU_LAUNCH_ATTRIBUTE_PRIORITY)))
        return CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

static CUgraphExecUpdateResult compare_params(const struct sim_exec *exec, const struct sim_node *old,
                                              const struct sim_node *new)
{
    int kept = 1;
    switch (old->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return compare_kernels(exec, old, new);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        kept = sim_operands_kept(old, new);
        break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        kept = sim_operands_kept(old, new) && sim_shape_kept(&old->set, &new->set);
        break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        kept = old->branch->kind == new->branch->kind && old->branch->size == new->branch->size;
        break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        kept = old->memory == new->memory;
        break;
    default:
        break;
    }
    return kept ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
}

/* ---- pairing */

struct pairing {
    const struct sim_exec *exec;
    struct sim_node **pair; /* of the old graph, those paired so far; each knows its peer */
    size_t count;
    struct sim_difference *why;
};

static int differ(struct pairing *pairing, CUgraphExecUpdateResult result, struct sim_node *node, struct sim_node *from)
{
    *pairing->why = (struct sim_difference){result, node, from};
    return 0;
}

static int match(struct pairing *pairing, struct sim_node *old, struct sim_node *new)
{
    if (old->peer != NULL || new->peer != NULL)
        return old->peer == new;
    old->peer = new;
    new->peer = old;
    pairing->pair[pairing->count++] = old;
    return 1;
}

/* The graph's exit nodes, each marked 0. */
static size_t mark_exits(struct sim_graph *graph)
{
    size_t exits = graph->count;
    for (size_t i = 0; i < graph->count; i++) {
        graph->node[i]->mark = 0;
        graph->node[i]->peer = NULL;
    }
    for (size_t i = 0; i < graph->count; i++) {
        for (size_t e = 0; e < graph->node[i]->edge_count; e++) {
            struct sim_node *from = graph->node[i]->edge[e].from;
            exits -= from->mark == 0;
            from->mark = 1;
        }
    }
    return exits;
}

static struct sim_node *next_exit(const struct sim_graph *graph, size_t *at)
{
    while (*at < graph->count && graph->node[*at]->mark != 0)
        ++*at;
    return *at < graph->count ? graph->node[(*at)++] : NULL;
}

static int pair_exits(struct pairing *pairing, struct sim_graph *old, struct sim_graph *new)
{
    size_t old_exits = mark_exits(old), new_exits = mark_exits(new), a = 0, b = 0;
    struct sim_node *left, *right;
    while ((left = next_exit(old, &a)) != NULL && (right = next_exit(new, &b)) != NULL)
        (void)match(pairing, left, right);
    if (old_exits == new_exits)
        return 1;
    return differ(pairing, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED,
                  old_exits < new_exits ? next_exit(new, &b) : NULL, NULL);
}

static int pair_dependencies(struct pairing *pairing, struct sim_node *old)
{
    struct sim_node *new = old->peer;
    if (old->type != new->type)
        return differ(pairing, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, new, NULL);
    if (old->edge_count != new->edge_count)
        return differ(pairing, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, new, NULL);
    for (size_t e = 0; e < old->edge_count; e++)
        if (memcmp(&old->edge[e].data, &new->edge[e].data, sizeof old->edge[e].data) != 0 ||
            !match(pairing, old->edge[e].from, new->edge[e].from))
            return differ(pairing, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, new, new->edge[e].from);
    CUgraphExecUpdateResult result = compare_params(pairing->exec, old, new);
    return result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? 1 : differ(pairing, result, new, NULL);
}

static int compare(const struct sim_exec *exec, struct sim_graph *old, struct sim_graph *new,
                   struct sim_difference *why);

static int compare_inner(const struct sim_exec *exec, const struct sim_node *node, struct sim_difference *why)
{
    int same = 1;
    if (node->type == CU_GRAPH_NODE_TYPE_GRAPH)
        return compare(exec, node->child, node->peer->child, why);
    for (unsigned b = 0; node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL && same && b < node->branch->size; b++)
        same = compare(exec, node->branch->body[b], node->peer->branch->body[b], why);
    return same;
}

static int compare(const struct sim_exec *exec, struct sim_graph *old, struct sim_graph *new,
                   struct sim_difference *why)
{
    struct pairing pairing = {exec, calloc(old->count + 1, sizeof *pairing.pair), 0, why};
    if (pairing.pair == NULL)
        sim_die("out of host memory");
    int same = old->count == new->count || differ(&pairing, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, NULL, NULL);
    same = same && pair_exits(&pairing, old, new);
    for (size_t i = 0; same && i < pairing.count; i++)
        same = pair_dependencies(&pairing, pairing.pair[i]);
    for (size_t i = 0; same && i < pairing.count; i++)
        same = compare_inner(exec, pairing.pair[i], why);
    free(pairing.pair);
    return same;
}

/* ---- taking over */

/* Nodes stay what they are, so that handles of the original graph still find them. */
static CUresult take_params(struct sim_graph *to)
{
    for (size_t i = 0; i < to->count; i++) {
        struct sim_node *node = to->node[i], fresh = {.type = node->type};
        switch (node->type) {
        case CU_GRAPH_NODE_TYPE_GRAPH:
            SIM_TRY(take_params(node->child));
            break;
        case CU_GRAPH_NODE_TYPE_CONDITIONAL:
            node->branch->condition = node->peer->branch->condition; /* handle, flags, default */
            for (unsigned b = 0; b < node->branch->size; b++)
                SIM_TRY(take_params(node->branch->body[b]));
            break;
        case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        case CU_GRAPH_NODE_TYPE_MEM_FREE:
            break;
        default: /* attributes come along */
            SIM_TRY(sim_node_copy_params(&fresh, node->peer));
            sim_node_drop_params(node);
            sim_node_move_params(node, &fresh);
            break;
        }
    }
    return CUDA_SUCCESS;
}

CUresult sim_graph_update(const struct sim_exec *exec, struct sim_graph *old, struct sim_graph *graph,
                          struct sim_difference *why)
{
    *why = (struct sim_difference){.result = CU_GRAPH_EXEC_UPDATE_SUCCESS};
    return compare(exec, old, graph, why) ? take_params(old) : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

SIM_API(SIM_CONTEXT, cuGraphExecUpdate_v2,
        (CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *resultInfo), hGraphExec, hGraph,
        resultInfo)
{
    struct sim_exec *exec;
    struct sim_graph *graph;
    struct sim_difference why;
    if (resultInfo == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_exec_get(hGraphExec, &exec));
    SIM_TRY(sim_graph_get(hGraph, &graph));
    sim_charge(call, SIM_NODE_UPDATE_NS * (double)graph->count);
    CUresult result = sim_graph_update(exec, exec->graph, graph, &why);
    *resultInfo = (CUgraphExecUpdateResultInfo){why.result, (CUgraphNode)why.node, (CUgraphNode)why.from};
    return result;
}

SIM_API(SIM_CONTEXT, cuGraphExecUpdate,
        (CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
         CUgraphExecUpdateResult *updateResult_out),
        hGraphExec, hGraph, hErrorNode_out, updateResult_out)
{
    struct sim_exec *exec;
    struct sim_graph *graph;
    struct sim_difference why;
    if (hErrorNode_out == NULL || updateResult_out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_exec_get(hGraphExec, &exec));
    SIM_TRY(sim_graph_get(hGraph, &graph));
    sim_charge(call, SIM_NODE_UPDATE_NS * (double)graph->count);
    CUresult result = sim_graph_update(exec, exec->graph, graph, &why);
    *hErrorNode_out = (CUgraphNode)why.node;
    *updateResult_out = why.result;
    return result;
}

/* ---- single nodes */

static CUresult exec_node(CUgraphExec exec_handle, CUgraphNode node_handle, struct sim_exec **exec,
                          struct sim_node **out)
{
    struct sim_node *named;
    SIM_TRY(sim_exec_get(exec_handle, exec));
    SIM_TRY(sim_node_get(node_handle, &named));
    *out = sim_graph_origin((*exec)->graph, named->serial);
    return *out != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static int is_line(const CUDA_MEMCPY3D *copy)
{
    return copy->WidthInBytes != 0 && copy->Height == 1 && copy->Depth == 1;
}

static int may_put(const struct sim_node *node, const struct sim_node *params)
{
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return params->context == node->launch.func->module->context;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return sim_operands_kept(node, params) && is_line(&node->copy) && is_line(&params->copy);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return sim_operands_kept(node, params) && sim_shape_kept(&node->set, &params->set);
    default:
        return 1;
    }
}

static CUresult exec_put(struct sim_exec *exec, struct sim_node *node, struct sim_node *params)
{
    if (node->type != params->type || !may_put(node, params)) {
        sim_node_drop_params(params);
        return CUDA_ERROR_INVALID_VALUE;
    }
    exec->uploaded = exec->on_device = 0;
    if (node->type != CU_GRAPH_NODE_TYPE_GRAPH)
        return sim_params_put(node, params);
    struct sim_difference why;
    CUresult result = sim_graph_update(exec, node->child, params->child, &why);
    sim_node_drop_params(params);
    return result == CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
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
    exec->uploaded = exec->on_device = 0;
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
