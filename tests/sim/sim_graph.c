/* Graphs as data: nodes, edges, copies, order. Nothing here is exported. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "sim_program.h"

static uint64_t serials;

CUresult sim_graph_make(struct sim_graph **out)
{
    struct sim_graph *graph = calloc(1, sizeof *graph);
    if (graph == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    graph->serial = ++serials;
    sim_handle_add(graph, SIM_IS_GRAPH);
    *out = graph;
    return CUDA_SUCCESS;
}

void sim_graph_free(struct sim_graph *graph)
{
    while (graph->count != 0)
        sim_node_free(graph->node[graph->count - 1]);
    sim_graph_users_drop(graph);
    free(graph->node);
    sim_handle_drop(graph);
    free(graph);
}

CUresult sim_graph_get(CUgraph handle, struct sim_graph **out)
{
    if (!sim_handle_is(handle, SIM_IS_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    *out = (struct sim_graph *)handle;
    return CUDA_SUCCESS;
}

CUresult sim_node_get(CUgraphNode handle, struct sim_node **out)
{
    if (!sim_handle_is(handle, SIM_IS_NODE))
        return CUDA_ERROR_INVALID_VALUE;
    *out = (struct sim_node *)handle;
    return CUDA_SUCCESS;
}

CUresult sim_edge_add(struct sim_node *to, struct sim_node *from, const CUgraphEdgeData *data)
{
    if (to->edge_count == to->edge_room) {
        size_t room = to->edge_room * 2 + 2;
        struct sim_edge *grown = realloc(to->edge, room * sizeof *grown);
        if (grown == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        to->edge = grown;
        to->edge_room = room;
    }
    struct sim_edge *edge = &to->edge[to->edge_count++];
    memset(edge, 0, sizeof *edge);
    edge->from = from;
    if (data != NULL)
        edge->data = *data;
    return CUDA_SUCCESS;
}

/* Index of the edge, or -1. */
int sim_edge_find(const struct sim_node *to, const struct sim_node *from)
{
    for (size_t i = 0; i < to->edge_count; i++)
        if (to->edge[i].from == from)
            return (int)i;
    return -1;
}

CUresult sim_node_make(struct sim_graph *graph, CUgraphNodeType type, struct sim_node *const *from,
                       const CUgraphEdgeData *data, size_t count, struct sim_node **out)
{
    if (graph->count == graph->room) {
        size_t room = graph->room * 2 + 8;
        struct sim_node **grown = realloc(graph->node, room * sizeof *grown);
        if (grown == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        graph->node = grown;
        graph->room = room;
    }
    struct sim_node *node = calloc(1, sizeof *node);
    if (node == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    node->graph = graph;
    node->type = type;
    node->serial = ++serials;
    node->enabled = 1;
    for (size_t i = 0; i < count; i++) {
        CUresult result = sim_edge_add(node, from[i], data != NULL ? &data[i] : NULL);
        if (result != CUDA_SUCCESS) {
            free(node->edge);
            free(node);
            return result;
        }
    }
    graph->node[graph->count++] = node;
    sim_handle_add(node, SIM_IS_NODE);
    *out = node;
    return CUDA_SUCCESS;
}

void sim_node_drop_params(struct sim_node *node)
{
    switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        sim_launch_drop(&node->launch);
        break;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        if (node->child != NULL)
            sim_graph_free(node->child);
        node->child = NULL;
        break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        if (node->branch != NULL)
            sim_branch_free(node->branch);
        node->branch = NULL;
        break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        if (node->memory != NULL)
            sim_graph_memory_drop(node->memory);
        node->memory = NULL;
        break;
    default:
        break;
    }
}

void sim_node_move_params(struct sim_node *to, const struct sim_node *from)
{
    to->context = from->context;
    memcpy(to->home, from->home, sizeof to->home);
    switch (from->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        to->launch = from->launch;
        break;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        to->copy = from->copy;
        break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        to->set = from->set;
        break;
    case CU_GRAPH_NODE_TYPE_HOST:
        to->host = from->host;
        break;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        to->child = from->child;
        break;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        to->event = from->event;
        break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        to->branch = from->branch;
        break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        to->memory = from->memory;
        break;
    default:
        break;
    }
}

/* The edges that start here go with the node. */
void sim_node_free(struct sim_node *node)
{
    struct sim_graph *graph = node->graph;
    size_t kept = 0;
    for (size_t i = 0; i < graph->count; i++) {
        struct sim_node *other = graph->node[i];
        if (other == node)
            continue;
        graph->node[kept++] = other;
        int edge = sim_edge_find(other, node);
        if (edge >= 0) {
            size_t rest = other->edge_count - (size_t)edge - 1;
            memmove(&other->edge[edge], &other->edge[edge + 1], rest * sizeof *other->edge);
            other->edge_count--;
        }
    }
    graph->count = kept;
    sim_node_drop_params(node);
    sim_device_node_drop(node);
    if (node->lane_ready)
        sim_lane_retire(&node->lane);
    sim_handle_drop(node);
    free(node->edge);
    free(node);
}

CUresult sim_node_copy_params(struct sim_node *to, const struct sim_node *from)
{
    switch (from->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        to->context = from->context;
        return sim_launch_copy(&to->launch, &from->launch);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        SIM_TRY(sim_graph_copy(from->child, &to->child));
        to->child->borrowed = 1;
        break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return sim_branch_copy(from->branch, &to->branch);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        sim_node_move_params(to, from);
        sim_graph_memory_hold(to->memory);
        break;
    default:
        sim_node_move_params(to, from);
        break;
    }
    return CUDA_SUCCESS;
}

static CUresult copy_node(struct sim_node *from, struct sim_graph *graph)
{
    struct sim_node *node;
    SIM_TRY(sim_node_make(graph, from->type, NULL, NULL, 0, &node));
    from->mark = graph->count - 1;
    node->origin = from->serial;
    sim_device_node_share(node, from);
    return sim_node_copy_params(node, from);
}

CUresult sim_graph_copy(const struct sim_graph *from, struct sim_graph **out)
{
    struct sim_graph *graph;
    SIM_TRY(sim_graph_make(&graph));
    graph->cloned_from = from->serial;
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < from->count && result == CUDA_SUCCESS; i++)
        result = copy_node(from->node[i], graph);
    for (size_t i = 0; i < from->count && result == CUDA_SUCCESS; i++) {
        const struct sim_node *node = from->node[i];
        for (size_t e = 0; e < node->edge_count && result == CUDA_SUCCESS; e++)
            result = sim_edge_add(graph->node[i], graph->node[node->edge[e].from->mark], &node->edge[e].data);
    }
    if (result != CUDA_SUCCESS) {
        sim_graph_free(graph);
        return result;
    }
    sim_graph_users_copy(from, graph);
    *out = graph;
    return CUDA_SUCCESS;
}

static void renew(struct sim_node *node, void *context)
{
    (void)context;
    sim_device_node_renew(node);
}

CUresult sim_graph_clone(const struct sim_graph *from, struct sim_graph **out)
{
    SIM_TRY(sim_graph_copy(from, out));
    sim_graph_visit(*out, renew, NULL);
    return CUDA_SUCCESS;
}

void sim_graph_visit(struct sim_graph *graph, void (*each)(struct sim_node *node, void *context), void *context)
{
    for (size_t i = 0; i < graph->count; i++) {
        struct sim_node *node = graph->node[i];
        each(node, context);
        if (node->type == CU_GRAPH_NODE_TYPE_GRAPH)
            sim_graph_visit(node->child, each, context);
        for (unsigned b = 0; node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL && b < node->branch->size; b++)
            sim_graph_visit(node->branch->body[b], each, context);
    }
}

struct origin_search {
    uint64_t origin;
    struct sim_node *found;
};

static void compare_origin(struct sim_node *node, void *context)
{
    struct origin_search *search = context;
    if (node->origin == search->origin)
        search->found = node;
}

struct sim_node *sim_graph_origin(const struct sim_graph *copy, uint64_t origin)
{
    struct origin_search search = {.origin = origin};
    sim_graph_visit((struct sim_graph *)copy, compare_origin, &search);
    return search.found;
}

static void note_held(struct sim_node *node, void *context)
{
    unsigned *held = context;
    if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
        *held |= SIM_HOLDS_MEMORY;
    else if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
        *held |= SIM_HOLDS_CONDITION;
    else if (node->device_node != NULL)
        *held |= SIM_HOLDS_UPDATABLE;
}

unsigned sim_graph_holds(const struct sim_graph *graph)
{
    unsigned held = 0;
    sim_graph_visit((struct sim_graph *)graph, note_held, &held);
    return held;
}

/* Repeated sweeps in creation order: one sweep when nodes were added after what they depend on, as almost always. */
struct sim_node **sim_graph_order(struct sim_graph *graph)
{
    struct sim_node **order = malloc((graph->count + 1) * sizeof *order);
    if (order == NULL)
        return NULL;
    for (size_t i = 0; i < graph->count; i++)
        graph->node[i]->mark = 0;
    size_t placed = 0, before;
    do {
        before = placed;
        for (size_t i = 0; i < graph->count; i++) {
            struct sim_node *node = graph->node[i];
            int ready = node->mark == 0;
            for (size_t e = 0; ready && e < node->edge_count; e++)
                ready = node->edge[e].from->mark != 0;
            if (ready) {
                node->mark = 1;
                order[placed++] = node;
            }
        }
    } while (placed != before && placed < graph->count);
    if (placed < graph->count) {
        free(order);
        return NULL;
    }
    order[placed] = NULL;
    return order;
}

static int reaches(const struct sim_node *from, struct sim_node *node)
{
    if (node == from)
        return 1;
    if (node->mark != 0)
        return 0;
    node->mark = 1;
    for (size_t e = 0; e < node->edge_count; e++)
        if (reaches(from, node->edge[e].from))
            return 1;
    return 0;
}

int sim_node_reaches(struct sim_graph *graph, const struct sim_node *from, struct sim_node *node)
{
    for (size_t i = 0; i < graph->count; i++)
        graph->node[i]->mark = 0;
    return reaches(from, node);
}
