/*
 * A graph that is launched while passes are timed (profiler.h): a clone for this one launch, with the copies that its
 * turn has (graph_weave.h), if it has one, and event nodes around each touch.
 *
 *     what the node follows -> [ended] -> [from] -> node
 *                        its copies ---------^
 *
 * It is uploaded before its launch, between what ov_profiler_pause and resume record.
 *
 * At its end two more tell how long copies for the next launch keep it from being over. Without copies one event is
 * both. Nodes that do not touch units are left as they are; those that touch the same unit as the one before bring no
 * touch. What is measured is the graph as it runs, but for the events; in a hushed pass, with no copy beside its nodes.
 */
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "graph.h"
#include "graph_weave.h"

struct timed {
    struct ov_weave m;
    CUstream stream;
    CUgraphNode *before; /* scratch: what a node follows */
};

static bool graph_of(const struct timed *t, const struct ov_graph_node *node, CUgraph *graph)
{
    *graph = t->m.work;
    return node->parent == 0 ||
           ov_cu->cuGraphChildGraphNodeGetGraph(t->m.node[node->parent - 1], graph) == CUDA_SUCCESS;
}

/* Edges stand by what they lead to. */
static size_t list_before(struct timed *t, uint32_t index)
{
    const struct ov_graph_model *model = &t->m.graph->model;
    uint32_t low = 0, high = model->edge_count;
    size_t count = 0;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (model->edge[middle].to < index) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (; low < model->edge_count && model->edge[low].to == index; low++) {
        t->before[count++] = t->m.node[model->edge[low].from];
    }
    return count;
}

static bool add_event(struct timed *t, CUgraph graph, const CUgraphNode *before, size_t count, CUevent *event,
                      CUgraphNode *node)
{
    *event = ov_profiler_event(&t->m.engine->profiler);
    return *event != NULL && ov_cu->cuGraphAddEventRecordNode(node, graph, before, count, *event) == CUDA_SUCCESS;
}

/* The node begins when `from` is over, which is when its copies are. */
static bool hold_back(struct timed *t, CUgraph graph, const struct ov_graph_node *node, uint32_t index,
                      CUgraphNode from)
{
    const struct ov_element event = {from, node->parent, UINT32_MAX};
    bool done = ov_cu->cuGraphAddDependencies(graph, &from, &t->m.node[index], 1) == CUDA_SUCCESS;
    for (uint32_t i = 0; i < node->units && done; i++) {
        const struct ov_element *copy = &t->m.brought[node->unit + i];
        done = copy->node == NULL || ov_weave_connect(&t->m, *copy, event);
    }
    return done;
}

static bool awaits_copies(const struct timed *t, const struct ov_graph_node *node)
{
    bool awaits = false;
    for (uint32_t i = 0; i < node->units && !awaits; i++) {
        awaits = t->m.brought[node->unit + i].node != NULL;
    }
    return awaits;
}

/* A node that brings touches. */
static bool time_node(struct timed *t, const struct ov_graph_node *node, uint32_t index)
{
    struct ov_profiler *profiler = &t->m.engine->profiler;
    CUgraph graph;
    CUevent ended = NULL, from;
    CUgraphNode end = NULL;
    const size_t count = list_before(t, index);
    if (!graph_of(t, node, &graph)) {
        return false;
    }
    const bool follows = profiler->phase == OV_PROFILER_FOLLOWING && profiler->stream == t->stream;
    if (follows && !add_event(t, graph, t->before, count, &ended, &end)) {
        return false;
    }
    ov_profiler_advance(profiler, ended);
    ov_profiler_hush(t->m.engine, t->stream);
    if (profiler->phase != OV_PROFILER_FOLLOWING) {
        return true;
    }
    CUgraphNode start = end;
    from = ended;
    if (end == NULL || awaits_copies(t, node)) {
        const bool added = end != NULL ? add_event(t, graph, &end, 1, &from, &start)
                                       : add_event(t, graph, t->before, count, &from, &start);
        if (!added) {
            return false;
        }
    }
    ov_profiler_start(profiler, from, t->stream);
    return hold_back(t, graph, node, index, start);
}

/* False: it touches nothing. */
static bool touches_of(const struct ov_graph_node *node, struct ov_touches *touches)
{
    *touches = (struct ov_touches){.count = node->enabled ? node->touches : 0};
    if (touches->count > 0) {
        memcpy(touches->item, node->touch, touches->count * sizeof *node->touch);
    }
    return touches->count > 0;
}

static bool is_hushed(const struct ov_graph *graph)
{
    bool hushed = false;
    for (uint32_t i = 0; i < graph->model.count && !hushed; i++) {
        struct ov_touches touches;
        hushed = touches_of(&graph->model.node[i], &touches) && ov_profiler_hushes(graph->engine, &touches);
    }
    return hushed;
}

static bool time_nodes(struct timed *t)
{
    const struct ov_graph_model *model = &t->m.graph->model;
    bool done = true;
    for (uint32_t i = 0; i < model->count && done; i++) {
        const uint32_t index = model->order[i];
        const struct ov_graph_node *node = &model->node[index];
        struct ov_touches touches;
        if (touches_of(node, &touches)) {
            done = !ov_profiler_meet(t->m.engine, &touches) || time_node(t, node, index);
        }
    }
    return done;
}

/* As long as a pass has not begun, a graph in which none begins needs no clone: what it brings is passed over. */
static bool pass_over(const struct ov_graph *graph)
{
    const struct ov_graph_model *model = &graph->model;
    struct ov_touches touches;
    bool begins = graph->engine->profiler.phase != OV_PROFILER_SEEKING;
    for (uint32_t i = 0; i < model->count && !begins; i++) {
        begins = touches_of(&model->node[i], &touches) && ov_profiler_begins(graph->engine, &touches);
    }
    for (uint32_t i = 0; i < model->count && !begins; i++) {
        if (touches_of(&model->node[model->order[i]], &touches) && ov_profiler_meet(graph->engine, &touches)) {
            ov_profiler_advance(&graph->engine->profiler, NULL);
        }
    }
    return !begins;
}

/* Nodes that none follows; SIZE_MAX: memory ran out. */
static size_t list_last(struct timed *t)
{
    uint32_t *last = calloc((size_t)t->m.graph->model.count + 1, sizeof *last);
    const size_t count = last != NULL ? ov_weave_last(&t->m, last) : SIZE_MAX;
    for (size_t i = 0; count != SIZE_MAX && i < count; i++) {
        t->before[i] = t->m.node[last[i]];
    }
    free(last);
    return count;
}

static bool time_end(struct timed *t)
{
    const struct ov_graph_model *model = &t->m.graph->model;
    struct ov_element copy = t->m.chain;
    CUevent ended, copied;
    CUgraphNode node;
    if (copy.node == NULL || t->m.engine->profiler.phase != OV_PROFILER_FOLLOWING) {
        return true;
    }
    const size_t count = list_last(t);
    for (; copy.parent != 0; copy.parent = model->node[copy.parent - 1].parent) {
        copy.node = t->m.node[copy.parent - 1];
    }
    if (count == SIZE_MAX || !add_event(t, t->m.work, t->before, count, &ended, &node) ||
        !add_event(t, t->m.work, &copy.node, 1, &copied, &node)) {
        return false;
    }
    ov_profiler_end_graph(&t->m.engine->profiler, ended, copied);
    return true;
}

static bool instantiate(struct timed *t, CUgraphExec *exec)
{
    const struct ov_graph *graph = t->m.graph;
    if (ov_cu->cuGraphInstantiateWithFlags(
            exec, t->m.work, graph->flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) != CUDA_SUCCESS) {
        return false;
    }
    bool done = true;
    for (uint32_t i = 0; i < graph->model.count && done; i++) {
        done = graph->model.node[i].enabled || (ov_cu->cuGraphNodeSetEnabled != NULL &&
                                                ov_cu->cuGraphNodeSetEnabled(*exec, t->m.node[i], 0) == CUDA_SUCCESS);
    }
    if (!done) {
        (void)ov_cu->cuGraphExecDestroy(*exec);
    }
    return done;
}

/* Else its first launch would, and what that takes would count as computation. Refused: then so it is. */
static void upload(CUgraphExec exec, CUstream stream)
{
    if (ov_cu->cuGraphUpload != NULL && atomic_load(&ov_captures) == 0) {
        const CUstreamCaptureMode mode = ov_relax(); /* another thread may begin a capture now */
        (void)ov_cu->cuGraphUpload(exec, stream);
        ov_relax_end(mode);
    }
}

CUgraphExec ov_graph_timed(struct ov_graph *graph, CUstream stream)
{
    struct ov_profiler *profiler = &graph->engine->profiler;
    struct timed t = {.m = {.graph = graph, .engine = graph->engine}, .stream = stream};
    CUgraphExec exec = NULL;
    if (graph->clone == NULL || graph->pinned || ov_cu->cuGraphAddEventRecordNode == NULL ||
        atomic_load(&ov_captures) != 0) {
        return NULL;
    }
    if (profiler->phase == OV_PROFILER_SEEKING && !ov_profiler_has_room(profiler)) {
        return NULL; /* no pass begins before those before it were read */
    }
    if (pass_over(graph) || profiler->graphs == OV_PROFILER_GRAPHS) {
        return NULL;
    }
    ov_profiler_launching(profiler);
    t.before = calloc((size_t)graph->model.count + 1, sizeof(CUgraphNode));
    bool done = t.before != NULL && ov_weave_open(&t.m);
    if (graph->way == OV_GRAPH_TURN) {
        t.m.schedule = graph->turn.schedule; /* the ring was handed over for it */
    }
    t.m.hushed = profiler->may_hush = is_hushed(graph);
    done = done && ov_weave_make(&t.m) && time_nodes(&t) && time_end(&t) && instantiate(&t, &exec);
    memset(&t.m.schedule, 0, sizeof t.m.schedule);
    if (done && t.m.hushed) {
        ov_timetable_lose(&graph->engine->ring);
    }
    if (done) {
        upload(exec, stream);
        ov_profiler_keep(profiler, exec, t.m.work);
        t.m.work = NULL;
    } else {
        ov_profiler_refused(profiler);
    }
    ov_weave_close(&t.m);
    free(t.before);
    return done ? exec : NULL;
}
