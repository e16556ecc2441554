/* The table of executable graphs, and their changes: see graph.h. */
#include "graph.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "graph_source.h"
#include "log.h"
#include "runtime.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the table */
static struct ov_graph *graphs;

struct ov_graph *ov_graph_find(CUgraphExec exec)
{
    struct ov_graph *graph = NULL;
    pthread_mutex_lock(&lock);
    HASH_FIND_PTR(graphs, &exec, graph);
    pthread_mutex_unlock(&lock);
    return graph;
}

void ov_graphs_each(void (*each)(struct ov_graph *graph, void *context), void *context)
{
    pthread_mutex_lock(&lock);
    for (struct ov_graph *graph = graphs; graph != NULL; graph = graph->hh.next) {
        each(graph, context);
    }
    pthread_mutex_unlock(&lock);
}

static void drop_contents(struct ov_graph *graph)
{
    ov_graph_turn_end(graph);
    ov_graph_model_free(&graph->model);
    if (graph->clone != NULL) {
        (void)ov_cu->cuGraphDestroy(graph->clone);
        graph->clone = NULL;
    }
    ov_graph_undecided(graph);
}

static void forget_neighbour(struct ov_graph *graph, void *gone)
{
    ov_graph_turn_forget(graph, gone);
}

/* Nobody knows it as a neighbour any more, on any device: it may have been changed to use another's memory, or none.
 * It is not in the table. */
static void leave_neighbours(struct ov_graph *gone)
{
    for (int slice = 0; slice < OV_DEVICES; slice++) {
        struct ov_engine *engine = ov_engine_at(slice);
        if (engine == NULL) {
            continue;
        }
        pthread_mutex_lock(&engine->lock);
        if (engine->ring.turned_by == gone) {
            engine->ring.turned_by = NULL;
        }
        ov_graphs_each(forget_neighbour, gone);
        pthread_mutex_unlock(&engine->lock);
    }
}

static void free_graph(struct ov_graph *graph)
{
    leave_neighbours(graph);
    drop_contents(graph);
    if (graph->done != NULL) {
        (void)ov_cu->cuEventDestroy_v2(graph->done);
    }
    free(graph->unit);
    free(graph);
}

/* ---- what a graph is ---- */

void ov_graph_pin(struct ov_graph *graph, const char *why)
{
    if (!graph->pinned) {
        ov_log(OV_LOG_INFO, "a graph of %u nodes is launched as it is, the weights that it uses are not streamed: %s",
               graph->model.count, why);
    }
    graph->pinned = true;
    for (uint32_t i = 0; i < graph->model.count; i++) {
        const struct ov_graph_node *node = &graph->model.node[i];
        for (uint32_t t = 0; t < node->touches; t++) {
            struct ov_engine *engine = ov_engine_of(node->touch[t].address);
            if (engine != NULL) {
                pthread_mutex_lock(&engine->lock);
                ov_learn_mark(engine, node->touch[t].address, OV_MARK_GRAPH);
                pthread_mutex_unlock(&engine->lock);
            }
        }
    }
}

/* After a change of the model: whose memory it touches, and how it can be launched. */
void ov_graph_settle(struct ov_graph *graph)
{
    graph->engine = NULL;
    graph->spans = graph->unsettled = false;
    ov_graph_undecided(graph);
    for (uint32_t i = 0; i < graph->model.count; i++) {
        const struct ov_graph_node *node = &graph->model.node[i];
        for (uint32_t t = 0; t < node->touches; t++) {
            struct ov_engine *engine = ov_engine_of(node->touch[t].address);
            graph->spans = graph->spans || (graph->engine != NULL && engine != NULL && engine != graph->engine);
            graph->engine = graph->engine != NULL ? graph->engine : engine;
        }
    }
    graph->replayable = ov_graph_replayable(graph);
    if (graph->clone == NULL) {
        ov_graph_pin(graph, "the driver does not clone it");
    } else if (graph->model.opaque) {
        ov_graph_pin(graph, "a node in it cannot be looked into");
    } else if (graph->spans) {
        ov_graph_pin(graph, "it uses the memory of several devices");
    } else if ((graph->flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) {
        ov_graph_pin(graph, "it may be launched on the device");
    }
}

/* A clone and what is in it; without a clone, what is in the program's own graph. Enabled nodes stay so. */
static void take_in(struct ov_graph *graph, CUgraph source)
{
    struct ov_graph_model old = graph->model;
    memset(&graph->model, 0, sizeof graph->model);
    graph->turn.outdated = true;
    if (graph->clone != NULL) {
        (void)ov_cu->cuGraphDestroy(graph->clone);
        graph->clone = NULL;
    }
    if (ov_cu->cuGraphClone(&graph->clone, source) != CUDA_SUCCESS) {
        graph->clone = NULL;
    } else if (!ov_graph_model_read(&graph->model, graph->clone, source)) {
        (void)ov_cu->cuGraphDestroy(graph->clone);
        graph->clone = NULL;
    }
    if (graph->clone == NULL && !ov_graph_model_read(&graph->model, source, source)) {
        graph->model.opaque = true;
    }
    if (old.count > 0) {
        bool same = ov_graph_model_same_shape(&old, &graph->model);
        for (uint32_t i = 0; same && i < old.count; i++) { /* the program goes on to use its old names */
            graph->model.node[i].program = old.node[i].program;
            graph->model.node[i].enabled = old.node[i].enabled;
        }
        for (uint32_t i = 0; !same && i < graph->model.count; i++) {
            graph->model.node[i].program = NULL; /* nodes that are changed later cannot be told apart */
        }
    }
    ov_graph_model_free(&old);
    ov_graph_settle(graph);
}

static struct ov_graph *add(CUgraphExec exec)
{
    struct ov_graph *graph = calloc(1, sizeof *graph), *old = NULL;
    if (graph == NULL) {
        return NULL;
    }
    graph->exec = exec;
    graph->followed = atomic_load_explicit(&ov_graphs_unseen, memory_order_relaxed);
    pthread_mutex_lock(&lock);
    HASH_FIND_PTR(graphs, &exec, old);
    if (old != NULL) { /* destroyed by its context, unseen */
        HASH_DEL(graphs, old);
    }
    HASH_ADD_PTR(graphs, exec, graph);
    pthread_mutex_unlock(&lock);
    if (old != NULL) {
        free_graph(old);
    }
    return graph;
}

/* ---- the hooks' functions ---- */

void ov_graph_instantiated(CUgraphExec exec, CUgraph source, unsigned long long flags)
{
    ov_graph_source_taken_in(exec, source, true);
    struct ov_graph *graph = add(exec);
    if (graph == NULL) {
        (void)ov_bar_streaming("no memory to remember what a graph uses");
        return;
    }
    graph->flags = flags;
    take_in(graph, source);
}

/* Programs that change a graph before each of its launches are not to pay for that as long as everything fits: to look
 * at a graph takes longer than to change it. After so many changes that were looked at, later ones are not. */
#define IDLE_UPDATES 4

static bool passes_unseen(struct ov_graph *graph)
{
    if (atomic_load_explicit(&ov_state, memory_order_relaxed) == OV_ARMED || graph->looked < IDLE_UPDATES) {
        graph->looked = (uint8_t)(graph->looked + (graph->looked < IDLE_UPDATES));
        return false;
    }
    return true;
}

/* What it does is not known until it is changed again. If it is launched before, and there is something to stream by
 * then, nothing can be (graph_launch.c). */
static void lose_sight(struct ov_graph *graph)
{
    if (!graph->unseen) {
        drop_contents(graph);
        graph->unseen = true;
        graph->model.opaque = true;
        graph->engine = NULL;
        ov_graph_source_forget(graph->exec);
    }
}

void ov_graph_updated(CUgraphExec exec, CUgraph source)
{
    struct ov_graph *graph = ov_graph_find(exec);
    if (graph != NULL && passes_unseen(graph)) {
        lose_sight(graph);
        return;
    }
    ov_graph_source_taken_in(exec, source, true);
    if (graph != NULL) {
        graph->unseen = false;
        take_in(graph, source);
    }
}

void ov_graph_destroying(CUgraphExec exec)
{
    struct ov_graph *graph = NULL;
    ov_graph_source_forget(exec);
    pthread_mutex_lock(&lock);
    HASH_FIND_PTR(graphs, &exec, graph);
    if (graph != NULL) {
        HASH_DEL(graphs, graph);
    }
    pthread_mutex_unlock(&lock);
    if (graph != NULL) {
        free_graph(graph);
    }
}

static void forget_engine(struct ov_graph *graph, void *engine)
{
    if (graph->engine == engine) {
        ov_graph_turn_drop(graph);
        ov_graph_undecided(graph);
        graph->engine = NULL;
        graph->done = NULL; /* went with its context */
        graph->recorded = false;
    }
}

static void forget_event(struct ov_graph *graph, void *context)
{
    if (graph->done != NULL && graph->done_in == context) {
        graph->done = NULL;
        graph->recorded = false;
    }
}

void ov_graphs_context_closing(CUcontext context)
{
    ov_graphs_each(forget_event, context);
}

void ov_graphs_forget(struct ov_engine *engine)
{
    ov_graphs_each(forget_engine, engine);
}
