#include "graph_model.h"

#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "graph_condition.h"

#define CHILD_DEPTH 16

/* ---- reading ---- */

static bool read_kernel(struct ov_graph_node *node)
{
    CUDA_KERNEL_NODE_PARAMS params;
    memset(&params, 0, sizeof params);
    node->incomplete = true;
    return ov_cu->cuGraphKernelNodeGetParams_v2 == NULL ||
           ov_cu->cuGraphKernelNodeGetParams_v2(node->node, &params) != CUDA_SUCCESS ||
           ov_graph_node_scan(node, &params);
}

static bool read_copy(struct ov_graph_node *node)
{
    CUDA_MEMCPY3D params;
    node->incomplete = true;
    if (ov_cu->cuGraphMemcpyNodeGetParams(node->node, &params) != CUDA_SUCCESS) {
        return true;
    }
    const struct ov_copy copy = ov_graph_copy_of(&params);
    return ov_graph_node_copies(node, &copy);
}

static bool read_fill(struct ov_graph_node *node)
{
    CUDA_MEMSET_NODE_PARAMS params;
    node->incomplete = true;
    if (ov_cu->cuGraphMemsetNodeGetParams(node->node, &params) != CUDA_SUCCESS) {
        return true;
    }
    const struct ov_copy copy = ov_graph_fill_of(&params);
    return ov_graph_node_copies(node, &copy);
}

/* False: no memory. */
static bool read_node(struct ov_graph_model *model, struct ov_graph_node *node)
{
    switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return read_kernel(node);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return read_copy(node);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return read_fill(node);
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
    case CU_GRAPH_NODE_TYPE_HOST:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return true;
    default:
        model->opaque = true;
        return true;
    }
}

/* Code on the device may change what the node does: not the clone's, and to whatever. */
static bool is_device_updatable(CUgraphNode node)
{
    CUlaunchAttributeValue value;
    memset(&value, 0, sizeof value);
    return ov_cu->cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value) ==
               CUDA_SUCCESS &&
           value.deviceUpdatableKernelNode.deviceUpdatable != 0;
}

/* The nodes of one graph as the driver lists them; *count 0 with NULL for an empty one. */
static bool list_nodes(CUgraph graph, CUgraphNode **list, size_t *count)
{
    *list = NULL;
    *count = 0;
    if (ov_cu->cuGraphGetNodes(graph, NULL, count) != CUDA_SUCCESS) {
        return false;
    }
    *list = calloc(*count + 1, sizeof **list);
    if (*list == NULL || (*count > 0 && ov_cu->cuGraphGetNodes(graph, *list, count) != CUDA_SUCCESS)) {
        free(*list);
        *list = NULL;
        return false;
    }
    return true;
}

static uint32_t add_node(struct ov_graph_model *model)
{
    if (model->count == model->room) {
        uint32_t room = model->room ? model->room * 2 : 64;
        struct ov_graph_node *grown = realloc(model->node, room * sizeof *grown);
        if (grown == NULL) {
            return UINT32_MAX;
        }
        model->node = grown;
        model->room = room;
    }
    memset(&model->node[model->count], 0, sizeof *model->node);
    return model->count++;
}

static bool add_edge(struct ov_graph_model *model, uint32_t from, uint32_t to)
{
    if (model->edge_count == model->edge_room) {
        uint32_t room = model->edge_room ? model->edge_room * 2 : 64;
        struct ov_graph_edge *grown = realloc(model->edge, room * sizeof *grown);
        if (grown == NULL) {
            return false;
        }
        model->edge = grown;
        model->edge_room = room;
    }
    model->edge[model->edge_count++] = (struct ov_graph_edge){from, to};
    return true;
}

struct place {
    CUgraphNode node;
    uint32_t at;
};

static int compare_places(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return x->node < y->node ? -1 : x->node > y->node;
}

static uint32_t place_of(const struct place *place, size_t count, CUgraphNode node)
{
    const struct place wanted = {node, 0};
    const struct place *found = bsearch(&wanted, place, count, sizeof *place, compare_places);
    return found != NULL ? found->at : UINT32_MAX;
}

/* The plain form fails on graphs whose edges carry data; drivers before 12.3 have only that one. */
static CUresult get_edges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data, size_t *count)
{
    return ov_cu->cuGraphGetEdges_v2 != NULL ? ov_cu->cuGraphGetEdges_v2(graph, from, to, data, count)
                                             : ov_cu->cuGraphGetEdges(graph, from, to, count);
}

static bool read_edges(struct ov_graph_model *model, CUgraph graph, struct place *place, size_t nodes)
{
    size_t count = 0;
    if (get_edges(graph, NULL, NULL, NULL, &count) != CUDA_SUCCESS) {
        return false;
    }
    if (count == 0) {
        return true;
    }
    CUgraphNode *from = calloc(count, sizeof *from), *to = calloc(count, sizeof *to);
    CUgraphEdgeData *data = calloc(count, sizeof *data);
    bool done = from != NULL && to != NULL && data != NULL && get_edges(graph, from, to, data, &count) == CUDA_SUCCESS;
    qsort(place, nodes, sizeof *place, compare_places);
    for (size_t i = 0; done && i < count; i++) {
        uint32_t a = place_of(place, nodes, from[i]), b = place_of(place, nodes, to[i]);
        done = a != UINT32_MAX && b != UINT32_MAX && add_edge(model, a, b);
    }
    free(from);
    free(to);
    free(data);
    return done;
}

static bool read_level(struct ov_graph_model *model, CUgraph graph, CUgraph names, uint32_t parent, int depth);

/* What may run in place of a conditional node: the nodes of all bodies. */
static bool read_bodies(struct ov_graph_model *model, CUgraphNode node, uint32_t at, int depth)
{
    CUgraph body;
    bool known = false, done = true;
    for (unsigned i = 0; done && ov_graph_body(node, i, &body, &known); i++) {
        done = read_level(model, body, body, at + 1, depth + 1);
    }
    model->opaque = model->opaque || !known;
    return done;
}

/* What a node holds. entry is not valid afterwards. */
static bool read_inside(struct ov_graph_model *model, uint32_t at, int depth, bool cloned)
{
    struct ov_graph_node *entry = &model->node[at];
    CUgraph named;
    if (entry->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) { /* a clone's bodies are not known */
        return !cloned && read_bodies(model, entry->program, at, depth);
    }
    return entry->type != CU_GRAPH_NODE_TYPE_GRAPH ||
           (ov_cu->cuGraphChildGraphNodeGetGraph(entry->node, &entry->child) == CUDA_SUCCESS &&
            ov_cu->cuGraphChildGraphNodeGetGraph(entry->program, &named) == CUDA_SUCCESS &&
            read_level(model, entry->child, named, at + 1, depth + 1));
}

/* One graph and those inside it. `named`: what the program calls its nodes, in the same order. */
static bool read_level(struct ov_graph_model *model, CUgraph graph, CUgraph names, uint32_t parent, int depth)
{
    CUgraphNode *node, *named;
    size_t count, named_count;
    if (depth == CHILD_DEPTH || !list_nodes(graph, &node, &count)) {
        return false;
    }
    if (!list_nodes(names, &named, &named_count)) {
        free(node);
        return false;
    }
    struct place *place = calloc(count + 1, sizeof *place);
    bool done = place != NULL && count == named_count;
    for (size_t i = 0; done && i < count; i++) {
        uint32_t at = add_node(model);
        done = at != UINT32_MAX;
        if (!done) {
            break;
        }
        place[i] = (struct place){node[i], at};
        struct ov_graph_node *entry = &model->node[at];
        *entry = (struct ov_graph_node){
            .program = named[i], .node = node[i], .graph = graph, .parent = parent, .enabled = true};
        CUgraphNodeType type;
        done = ov_cu->cuGraphNodeGetType(node[i], &entry->type) == CUDA_SUCCESS &&
               ov_cu->cuGraphNodeGetType(named[i], &type) == CUDA_SUCCESS && type == entry->type &&
               read_node(model, entry);
        if (done && type == CU_GRAPH_NODE_TYPE_KERNEL && is_device_updatable(named[i])) {
            model->opaque = true;
        }
        done = done && read_inside(model, at, depth, graph != names); /* entry is stale from here on */
    }
    done = done && read_edges(model, graph, place, count);
    free(place);
    free(node);
    free(named);
    return done;
}

/* ---- order ---- */

static int compare_edges(const void *a, const void *b)
{
    const struct ov_graph_edge *x = a, *y = b;
    return x->to != y->to ? (x->to < y->to ? -1 : 1) : x->from < y->from ? -1 : x->from > y->from;
}

/* Index of the first edge that ends in `to`, or in a later node. */
static uint32_t first_edge(const struct ov_graph_model *model, uint32_t to)
{
    uint32_t low = 0, high = model->edge_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (model->edge[middle].to < to) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

bool ov_graph_has_edge(const struct ov_graph_model *model, uint32_t from, uint32_t to)
{
    for (uint32_t i = first_edge(model, to); i < model->edge_count && model->edge[i].to == to; i++) {
        if (model->edge[i].from == from) {
            return true;
        }
    }
    return false;
}

static uint32_t place_level(struct ov_graph_model *model, bool *placed, uint32_t parent, uint32_t first, uint32_t done);

/* Where the entries of this level and of those inside it end. */
static uint32_t end_of(const struct ov_graph_model *model, uint32_t index)
{
    uint32_t end = index + 1;
    while (end < model->count && model->node[end].parent > index) {
        end++;
    }
    return end;
}

static bool is_ready(const struct ov_graph_model *model, const bool *placed, uint32_t index)
{
    for (uint32_t e = first_edge(model, index); e < model->edge_count && model->edge[e].to == index; e++) {
        if (!placed[model->edge[e].from]) {
            return false;
        }
    }
    return true;
}

/* Sweeps in listed order: one is enough if nodes were added after what they depend on, as almost always. */
static uint32_t place_level(struct ov_graph_model *model, bool *placed, uint32_t parent, uint32_t first, uint32_t done)
{
    uint32_t before;
    do {
        before = done;
        for (uint32_t i = first; i < model->count && (parent == 0 || model->node[i].parent >= parent);
             i = end_of(model, i)) {
            if (!placed[i] && is_ready(model, placed, i)) {
                placed[i] = true;
                model->order[done++] = i;
                if (i + 1 < model->count && model->node[i + 1].parent == i + 1) {
                    done = place_level(model, placed, i + 1, i + 1, done);
                }
            }
        }
    } while (done != before);
    return done;
}

static bool find_order(struct ov_graph_model *model)
{
    bool *placed = calloc(model->count + 1, sizeof *placed);
    model->order = calloc(model->count + 1, sizeof *model->order);
    bool done = placed != NULL && model->order != NULL;
    if (done) {
        if (model->edge_count > 1) {
            qsort(model->edge, model->edge_count, sizeof *model->edge, compare_edges);
        }
        done = place_level(model, placed, 0, 0, 0) == model->count;
    }
    free(placed);
    return done;
}

/* Nodes of a clone need not be listed as those of its original: the driver says which is which. */
static bool name_nodes(struct ov_graph_model *model, CUgraph clone, CUgraph names)
{
    if (clone == names) {
        return true;
    }
    CUgraphNode *named;
    size_t count;
    if (!list_nodes(names, &named, &count)) {
        return false;
    }
    bool done = true;
    for (uint32_t i = 0, n = 0; done && i < model->count; i = end_of(model, i), n++) {
        CUgraphNode found;
        done = n < count && ov_cu->cuGraphNodeFindInClone(&found, named[n], clone) == CUDA_SUCCESS;
        if (done && found != model->node[i].node) {
            done = false; /* listed in another order: not seen so far, and children could not be told apart */
        }
    }
    free(named);
    return done;
}

bool ov_graph_model_read(struct ov_graph_model *model, CUgraph graph, CUgraph names)
{
    memset(model, 0, sizeof *model);
    if (read_level(model, graph, names, 0, 0) && find_order(model) && name_nodes(model, graph, names)) {
        return true;
    }
    ov_graph_model_free(model);
    return false;
}

void ov_graph_model_free(struct ov_graph_model *model)
{
    for (uint32_t i = 0; i < model->count; i++) {
        free(model->node[i].touch);
        free(model->node[i].copy);
    }
    free(model->node);
    free(model->edge);
    free(model->order);
    memset(model, 0, sizeof *model);
}

uint32_t ov_graph_model_find(struct ov_graph_model *model, CUgraphNode program)
{
    for (uint32_t i = 0; i < model->count; i++) {
        uint32_t at = (uint32_t)(((uint64_t)model->next + i) % model->count);
        if (model->node[at].program == program) {
            model->next = at + 1;
            return at;
        }
    }
    return model->count;
}

bool ov_graph_model_same_shape(const struct ov_graph_model *a, const struct ov_graph_model *b)
{
    bool same = a->count == b->count && a->edge_count == b->edge_count;
    for (uint32_t i = 0; same && i < a->count; i++) {
        same = a->node[i].type == b->node[i].type && a->node[i].parent == b->node[i].parent;
    }
    for (uint32_t i = 0; same && i < a->edge_count; i++) {
        same = a->edge[i].from == b->edge[i].from && a->edge[i].to == b->edge[i].to;
    }
    return same;
}

static bool match_level(const struct ov_graph_model *model, CUgraph clone, CUgraphNode *out, uint32_t *at,
                        uint32_t parent)
{
    CUgraphNode *node;
    size_t count;
    if (!list_nodes(clone, &node, &count)) {
        return false;
    }
    bool done = true;
    for (size_t i = 0; done && i < count; i++) {
        CUgraphNodeType type;
        CUgraph inner;
        done = *at < model->count && model->node[*at].parent == parent &&
               ov_cu->cuGraphNodeGetType(node[i], &type) == CUDA_SUCCESS && type == model->node[*at].type;
        if (done) {
            uint32_t own = (*at)++;
            out[own] = node[i];
            done = type != CU_GRAPH_NODE_TYPE_GRAPH ||
                   (ov_cu->cuGraphChildGraphNodeGetGraph(node[i], &inner) == CUDA_SUCCESS &&
                    match_level(model, inner, out, at, own + 1));
        }
    }
    free(node);
    return done;
}

bool ov_graph_model_match(const struct ov_graph_model *model, CUgraph clone, CUgraphNode *node)
{
    uint32_t at = 0;
    return match_level(model, clone, node, &at, 0) && at == model->count;
}

struct ov_graph_node *ov_graph_model_append(struct ov_graph_model *model)
{
    uint32_t *order = realloc(model->order, ((size_t)model->count + 2) * sizeof *order);
    if (order == NULL) {
        return NULL;
    }
    model->order = order;
    uint32_t at = add_node(model);
    if (at == UINT32_MAX) {
        return NULL;
    }
    model->order[at] = at;
    model->node[at].enabled = true;
    return &model->node[at];
}

/* Appended nodes stand behind all others, and no edge names them. */
static void drop_within(struct ov_graph_model *model, CUgraphNode within)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < model->count; i++) {
        if (model->node[i].within == within) {
            free(model->node[i].touch);
            free(model->node[i].copy);
            continue;
        }
        if (kept != i) {
            model->node[kept] = model->node[i];
            model->order[kept] = kept;
        }
        kept++;
    }
    model->count = kept;
}

bool ov_graph_model_absorb(struct ov_graph_model *model, CUgraphNode within, struct ov_graph_model *other)
{
    drop_within(model, within);
    bool done = true;
    for (uint32_t i = 0; i < other->count && done; i++) {
        struct ov_graph_node *node = ov_graph_model_append(model);
        done = node != NULL;
        if (done) {
            *node = other->node[i];
            node->parent = 0;
            node->program = NULL;
            node->within = within;
            other->node[i].touch = NULL;
            other->node[i].copy = NULL;
        }
    }
    model->opaque = model->opaque || other->opaque;
    ov_graph_model_free(other);
    return done;
}
