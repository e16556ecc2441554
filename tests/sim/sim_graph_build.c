/* Graphs by hand: making and asking about nodes and edges. */
#define _GNU_SOURCE
#include <stdio.h>
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

/* ---- questions: every list is filled up to the caller's room, the rest of the room is cleared ---- */

struct list {
    CUgraphNode *node, *to;
    CUgraphEdgeData *data;
    size_t room, count;
    int lossy; /* edge data was met that the caller has no room for */
};

static const CUgraphEdgeData plain;

static void list_add(struct list *list, const struct sim_node *from, const struct sim_node *to,
                     const CUgraphEdgeData *data)
{
    if (list->node != NULL && list->count < list->room) {
        list->node[list->count] = (CUgraphNode)from;
        if (list->to != NULL)
            list->to[list->count] = (CUgraphNode)to;
        if (list->data != NULL)
            list->data[list->count] = *data;
    }
    if (list->data == NULL && memcmp(data, &plain, sizeof plain) != 0)
        list->lossy = 1;
    list->count++;
}

static CUresult list_end(struct list *list, size_t *count)
{
    if (list->lossy && list->node != NULL)
        return CUDA_ERROR_LOSSY_QUERY;
    for (size_t i = list->count; list->node != NULL && i < list->room; i++) {
        list->node[i] = NULL;
        if (list->to != NULL)
            list->to[i] = NULL;
    }
    *count = list->node != NULL && list->room < list->count ? list->room : list->count;
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuGraphGetNodes, (CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes), hGraph, nodes, numNodes)
{
    (void)call;
    struct sim_graph *graph;
    if (numNodes == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_graph_get(hGraph, &graph));
    struct list list = {.node = nodes, .room = *numNodes};
    for (size_t i = 0; i < graph->count; i++)
        list_add(&list, graph->node[i], NULL, &plain);
    return list_end(&list, numNodes);
}

SIM_API(SIM_INIT, cuGraphGetRootNodes, (CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes), hGraph,
        rootNodes, numRootNodes)
{
    (void)call;
    struct sim_graph *graph;
    if (numRootNodes == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_graph_get(hGraph, &graph));
    struct list list = {.node = rootNodes, .room = *numRootNodes};
    for (size_t i = 0; i < graph->count; i++)
        if (graph->node[i]->edge_count == 0)
            list_add(&list, graph->node[i], NULL, &plain);
    return list_end(&list, numRootNodes);
}

static CUresult edges(CUgraph handle, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data, size_t *count)
{
    struct sim_graph *graph;
    if (count == NULL || (from == NULL) != (to == NULL) || (from == NULL && data != NULL))
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_graph_get(handle, &graph));
    struct list list = {.node = from, .to = to, .data = data, .room = *count};
    for (size_t i = 0; i < graph->count; i++)
        for (size_t e = 0; e < graph->node[i]->edge_count; e++)
            list_add(&list, graph->node[i]->edge[e].from, graph->node[i], &graph->node[i]->edge[e].data);
    return list_end(&list, count);
}

SIM_API(SIM_INIT, cuGraphGetEdges, (CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges), hGraph, from,
        to, numEdges)
{
    (void)call;
    return edges(hGraph, from, to, NULL, numEdges);
}

SIM_API(SIM_INIT, cuGraphGetEdges_v2,
        (CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edgeData, size_t *numEdges), hGraph, from,
        to, edgeData, numEdges)
{
    (void)call;
    return edges(hGraph, from, to, edgeData, numEdges);
}

static CUresult dependencies_of(CUgraphNode handle, CUgraphNode *out, CUgraphEdgeData *data, size_t *count)
{
    struct sim_node *node;
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_node_get(handle, &node));
    struct list list = {.node = out, .data = data, .room = *count};
    for (size_t e = 0; e < node->edge_count; e++)
        list_add(&list, node->edge[e].from, NULL, &node->edge[e].data);
    return list_end(&list, count);
}

static CUresult dependents_of(CUgraphNode handle, CUgraphNode *out, CUgraphEdgeData *data, size_t *count)
{
    struct sim_node *node;
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_node_get(handle, &node));
    struct list list = {.node = out, .data = data, .room = *count};
    for (size_t i = 0; i < node->graph->count; i++) {
        int edge = sim_edge_find(node->graph->node[i], node);
        if (edge >= 0)
            list_add(&list, node->graph->node[i], NULL, &node->graph->node[i]->edge[edge].data);
    }
    return list_end(&list, count);
}

SIM_API(SIM_INIT, cuGraphNodeGetDependencies, (CUgraphNode hNode, CUgraphNode *dependencies, size_t *numDependencies),
        hNode, dependencies, numDependencies)
{
    (void)call;
    return dependencies_of(hNode, dependencies, NULL, numDependencies);
}

SIM_API(SIM_INIT, cuGraphNodeGetDependencies_v2,
        (CUgraphNode hNode, CUgraphNode *dependencies, CUgraphEdgeData *edgeData, size_t *numDependencies), hNode,
        dependencies, edgeData, numDependencies)
{
    (void)call;
    return dependencies_of(hNode, dependencies, edgeData, numDependencies);
}

SIM_API(SIM_INIT, cuGraphNodeGetDependentNodes,
        (CUgraphNode hNode, CUgraphNode *dependentNodes, size_t *numDependentNodes), hNode, dependentNodes,
        numDependentNodes)
{
    (void)call;
    return dependents_of(hNode, dependentNodes, NULL, numDependentNodes);
}

SIM_API(SIM_INIT, cuGraphNodeGetDependentNodes_v2,
        (CUgraphNode hNode, CUgraphNode *dependentNodes, CUgraphEdgeData *edgeData, size_t *numDependentNodes), hNode,
        dependentNodes, edgeData, numDependentNodes)
{
    (void)call;
    return dependents_of(hNode, dependentNodes, edgeData, numDependentNodes);
}

SIM_API(SIM_INIT, cuGraphNodeGetType, (CUgraphNode hNode, CUgraphNodeType *type), hNode, type)
{
    (void)call;
    struct sim_node *node;
    if (type == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_node_get(hNode, &node));
    *type = node->type;
    return CUDA_SUCCESS;
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

static const char *dot_label(const struct sim_node *node)
{
    static const char *const label[] = {[CU_GRAPH_NODE_TYPE_MEMCPY] = "MEMCPY",
                                        [CU_GRAPH_NODE_TYPE_MEMSET] = "MEMSET",
                                        [CU_GRAPH_NODE_TYPE_HOST] = "HOST",
                                        [CU_GRAPH_NODE_TYPE_GRAPH] = "GRAPH",
                                        [CU_GRAPH_NODE_TYPE_EMPTY] = "EMPTY",
                                        [CU_GRAPH_NODE_TYPE_WAIT_EVENT] = "WAIT_EVENT",
                                        [CU_GRAPH_NODE_TYPE_EVENT_RECORD] = "EVENT_RECORD",
                                        [CU_GRAPH_NODE_TYPE_MEM_ALLOC] = "MEM_ALLOC",
                                        [CU_GRAPH_NODE_TYPE_MEM_FREE] = "MEM_FREE",
                                        [CU_GRAPH_NODE_TYPE_CONDITIONAL] = "CONDITIONAL"};
    return node->type == CU_GRAPH_NODE_TYPE_KERNEL ? node->launch.func->site : label[node->type];
}

SIM_API(SIM_INIT, cuGraphDebugDotPrint, (CUgraph hGraph, const char *path, unsigned int flags), hGraph, path, flags)
{
    (void)call;
    (void)flags;
    struct sim_graph *graph;
    SIM_TRY(sim_graph_get(hGraph, &graph));
    FILE *file = path != NULL ? fopen(path, "we") : NULL;
    if (file == NULL)
        return CUDA_ERROR_OPERATING_SYSTEM;
    fprintf(file, "digraph graph_%llu {\n", (unsigned long long)graph->serial);
    for (size_t i = 0; i < graph->count; i++) {
        const struct sim_node *node = graph->node[i];
        fprintf(file, "  n%llu [label=\"%s\"];\n", (unsigned long long)node->serial, dot_label(node));
        for (size_t e = 0; e < node->edge_count; e++)
            fprintf(file, "  n%llu -> n%llu;\n", (unsigned long long)node->edge[e].from->serial,
                    (unsigned long long)node->serial);
    }
    fprintf(file, "}\n");
    fclose(file);
    return CUDA_SUCCESS;
}
