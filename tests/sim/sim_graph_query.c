/* Questions about graphs: their nodes, edges and picture. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "sim_program.h"

/* Every list is filled up to the caller's room; the rest of the room is cleared. */

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
