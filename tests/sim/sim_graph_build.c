/* Graphs by hand: making nodes and edges. Questions about them are in sim_graph_query.c. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "sim_node_params.h"
#include "sim_program.h"

SIM_API(SIM_INIT, cuGraphCreate, (CUgraph * phGraph, unsigned int flags), phGraph, flags)
{
    (void)call;
    if (phGraph == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_graph_make((struct sim_graph **)phGraph);
}

SIM_API(SIM_INIT, cuGraphDestroy, (CUgraph hGraph), hGraph)
{
    (void)call;
    struct sim_graph *graph;
    SIM_TRY(sim_graph_get(hGraph, &graph));
    if (graph->borrowed)
        return CUDA_ERROR_INVALID_VALUE;
    sim_graph_free(graph);
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuGraphClone, (CUgraph * phGraphClone, CUgraph originalGraph), phGraphClone, originalGraph)
{
    struct sim_graph *graph;
    if (phGraphClone == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_graph_get(originalGraph, &graph));
    if (sim_graph_holds(graph) & (SIM_HOLDS_MEMORY | SIM_HOLDS_CONDITION))
        return CUDA_ERROR_NOT_SUPPORTED;
    sim_charge(call, SIM_NODE_CLONE_NS * (double)graph->count);
    return sim_graph_clone(graph, (struct sim_graph **)phGraphClone);
}

SIM_API(SIM_INIT, cuGraphNodeFindInClone, (CUgraphNode * phNode, CUgraphNode hOriginalNode, CUgraph hClonedGraph),
        phNode, hOriginalNode, hClonedGraph)
{
    (void)call;
    struct sim_node *node;
    struct sim_graph *graph;
    if (phNode == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_node_get(hOriginalNode, &node));
    SIM_TRY(sim_graph_get(hClonedGraph, &graph));
    struct sim_node *found = sim_graph_origin(graph, node->serial);
    if (found == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *phNode = (CUgraphNode)found;
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuGraphDestroyNode, (CUgraphNode hNode), hNode)
{
    (void)call;
    struct sim_node *node;
    SIM_TRY(sim_node_get(hNode, &node));
    if (node->device_node != NULL || (sim_graph_holds(node->graph) & SIM_HOLDS_MEMORY) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_node_free(node);
    return CUDA_SUCCESS;
}

/* Ports and programmatic edges are for pairs of kernels only. */
static int edge_data_suits(const CUgraphEdgeData *data, const struct sim_node *from, CUgraphNodeType to)
{
    static const CUgraphEdgeData nothing;
    if (memcmp(data, &nothing, sizeof nothing) == 0)
        return 1;
    if (data->to_port != 0 || memcmp(data->reserved, nothing.reserved, sizeof data->reserved) != 0 ||
        data->from_port > CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER || data->type > CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)
        return 0;
    if (data->type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)
        return data->from_port != 0 && from->type == CU_GRAPH_NODE_TYPE_KERNEL && to == CU_GRAPH_NODE_TYPE_KERNEL;
    return data->from_port == CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER && from->type == CU_GRAPH_NODE_TYPE_KERNEL;
}

/* The dependencies of a new node must be distinct nodes of the same graph. */
static CUresult check_dependencies(const struct sim_graph *graph, const CUgraphNode *from, const CUgraphEdgeData *data,
                                   size_t count, CUgraphNodeType type)
{
    if (count != 0 && from == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        struct sim_node *node;
        SIM_TRY(sim_node_get(from[i], &node));
        if (node->graph != graph || (data != NULL && !edge_data_suits(&data[i], node, type)))
            return CUDA_ERROR_INVALID_VALUE;
        for (size_t j = 0; j < i; j++)
            if (from[j] == from[i])
                return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

struct addition {
    CUgraphNode *out;
    CUgraph graph;
    const CUgraphNode *from;
    const CUgraphEdgeData *data;
    size_t count;
};

/* Some kinds have to belong to the graph. */
static CUresult place(struct sim_node *params, struct sim_graph *graph)
{
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return sim_branch_place(params->branch, graph);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return sim_graph_memory_place(params, graph);
    default:
        return CUDA_SUCCESS;
    }
}

/* Makes the node and moves `params` (a node in which only type, context and parameters are set) into it. */
static CUresult add(struct sim_call *call, const struct addition *add, struct sim_node *params)
{
    sim_charge(call, SIM_NODE_ADD_NS);
    struct sim_graph *graph;
    struct sim_node *node;
    CUresult result = add->out == NULL ? CUDA_ERROR_INVALID_VALUE : sim_graph_get(add->graph, &graph);
    if (result == CUDA_SUCCESS)
        result = check_dependencies(graph, add->from, add->data, add->count, params->type);
    if (result == CUDA_SUCCESS)
        result = place(params, graph);
    if (result == CUDA_SUCCESS)
        result = sim_node_make(graph, params->type, (struct sim_node *const *)add->from, add->data, add->count, &node);
    if (result != CUDA_SUCCESS) {
        sim_node_drop_params(params);
        return result;
    }
    sim_node_move_params(node, params);
    *add->out = (CUgraphNode)node;
    return CUDA_SUCCESS;
}

#define ADD_ARGUMENTS CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies
#define ADD_NAMES     phGraphNode, hGraph, dependencies, numDependencies
#define ADDITION                                                 \
    &(const struct addition)                                     \
    {                                                            \
        phGraphNode, hGraph, dependencies, NULL, numDependencies \
    }

SIM_API(SIM_INIT, cuGraphAddKernelNode, (ADD_ARGUMENTS, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams), ADD_NAMES,
        nodeParams)
{
    struct sim_node params;
    SIM_TRY(sim_params_kernel_v1(call, nodeParams, &params));
    return add(call, ADDITION, &params);
}

SIM_API(SIM_INIT, cuGraphAddKernelNode_v2, (ADD_ARGUMENTS, const CUDA_KERNEL_NODE_PARAMS *nodeParams), ADD_NAMES,
        nodeParams)
{
    struct sim_node params;
    SIM_TRY(sim_params_kernel(call, nodeParams, &params));
    return add(call, ADDITION, &params);
}

SIM_API(SIM_INIT, cuGraphAddMemcpyNode, (ADD_ARGUMENTS, const CUDA_MEMCPY3D *copyParams, CUcontext ctx), ADD_NAMES,
        copyParams, ctx)
{
    struct sim_node params;
    SIM_TRY(sim_params_copy(call, copyParams, ctx, &params));
    return add(call, ADDITION, &params);
}

SIM_API(SIM_INIT, cuGraphAddMemsetNode, (ADD_ARGUMENTS, const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx),
        ADD_NAMES, memsetParams, ctx)
{
    struct sim_node params;
    SIM_TRY(sim_params_set(call, memsetParams, ctx, &params));
    return add(call, ADDITION, &params);
}

SIM_API(SIM_INIT, cuGraphAddHostNode, (ADD_ARGUMENTS, const CUDA_HOST_NODE_PARAMS *nodeParams), ADD_NAMES, nodeParams)
{
    struct sim_node params;
    SIM_TRY(sim_params_host(nodeParams, &params));
    return add(call, ADDITION, &params);
}

SIM_API(SIM_INIT, cuGraphAddChildGraphNode, (ADD_ARGUMENTS, CUgraph childGraph), ADD_NAMES, childGraph)
{
    struct sim_node params;
    SIM_TRY(sim_params_child(childGraph, &params));
    return add(call, ADDITION, &params);
}

SIM_API(SIM_INIT, cuGraphAddEmptyNode, (ADD_ARGUMENTS), ADD_NAMES)
{
    struct sim_node params = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
    return add(call, ADDITION, &params);
}

SIM_API(SIM_INIT, cuGraphAddEventRecordNode, (ADD_ARGUMENTS, CUevent event), ADD_NAMES, event)
{
    struct sim_node params;
    SIM_TRY(sim_params_event(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, &params));
    return add(call, ADDITION, &params);
}

SIM_API(SIM_INIT, cuGraphAddEventWaitNode, (ADD_ARGUMENTS, CUevent event), ADD_NAMES, event)
{
    struct sim_node params;
    SIM_TRY(sim_params_event(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, &params));
    return add(call, ADDITION, &params);
}

SIM_API(SIM_CONTEXT, cuGraphAddMemAllocNode, (ADD_ARGUMENTS, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams), ADD_NAMES,
        nodeParams)
{
    struct sim_node params;
    SIM_TRY(sim_params_allocation(call, nodeParams, &params));
    return add(call, ADDITION, &params);
}

SIM_API(SIM_INIT, cuGraphAddMemFreeNode, (ADD_ARGUMENTS, CUdeviceptr dptr), ADD_NAMES, dptr)
{
    struct sim_node params;
    SIM_TRY(sim_params_free(dptr, &params));
    return add(call, ADDITION, &params);
}

SIM_API(SIM_INIT, cuGraphAddNode, (ADD_ARGUMENTS, CUgraphNodeParams *nodeParams), ADD_NAMES, nodeParams)
{
    struct sim_node params;
    SIM_TRY(sim_params_any(call, nodeParams, &params));
    return add(call, ADDITION, &params);
}

SIM_API(SIM_INIT, cuGraphAddNode_v2,
        (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
         const CUgraphEdgeData *dependencyData, size_t numDependencies, CUgraphNodeParams *nodeParams),
        phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams)
{
    struct sim_node params;
    SIM_TRY(sim_params_any(call, nodeParams, &params));
    return add(call, &(const struct addition){phGraphNode, hGraph, dependencies, dependencyData, numDependencies},
               &params);
}

static CUresult change_edges(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to,
                             const CUgraphEdgeData *data, size_t count, int remove)
{
    struct sim_graph *graph;
    SIM_TRY(sim_graph_get(handle, &graph));
    if (count != 0 && (from == NULL || to == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        struct sim_node *a, *b;
        SIM_TRY(sim_node_get(from[i], &a));
        SIM_TRY(sim_node_get(to[i], &b));
        static const CUgraphEdgeData nothing;
        const CUgraphEdgeData *edge_data = data != NULL ? &data[i] : &nothing;
        int found = sim_edge_find(b, a);
        if (a->graph != graph || b->graph != graph || a == b || (found >= 0) != remove ||
            !edge_data_suits(edge_data, a, b->type))
            return CUDA_ERROR_INVALID_VALUE;
        if (remove && (memcmp(&b->edge[found].data, edge_data, sizeof *edge_data) != 0 ||
                       (sim_graph_holds(graph) & SIM_HOLDS_MEMORY) != 0))
            return CUDA_ERROR_INVALID_VALUE;
        if (!remove) {
            SIM_TRY(sim_edge_add(b, a, data != NULL ? &data[i] : NULL));
            continue;
        }
        size_t edge = (size_t)found;
        memmove(&b->edge[edge], &b->edge[edge + 1], (b->edge_count - edge - 1) * sizeof *b->edge);
        b->edge_count--;
    }
    return CUDA_SUCCESS;
}

#define CHANGE(name_, remove_)                                                                                         \
    SIM_API(SIM_INIT, name_, (CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to, size_t numDependencies), \
            hGraph, from, to, numDependencies)                                                                         \
    {                                                                                                                  \
        (void)call;                                                                                                    \
        return change_edges(hGraph, from, to, NULL, numDependencies, remove_);                                         \
    }                                                                                                                  \
    SIM_API(SIM_INIT, name_##_v2,                                                                                      \
            (CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *edgeData,          \
             size_t numDependencies),                                                                                  \
            hGraph, from, to, edgeData, numDependencies)                                                               \
    {                                                                                                                  \
        (void)call;                                                                                                    \
        return change_edges(hGraph, from, to, edgeData, numDependencies, remove_);                                     \
    }
CHANGE(cuGraphAddDependencies, 0)
CHANGE(cuGraphRemoveDependencies, 1)
