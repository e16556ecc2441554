/*
 * Launches of graphs: how each is served (graph.h, "How a launch is served").
 *
 * Inside the gate from the decision to the driver's call, so that nothing the decision rests on changes in between. A
 * replay leaves the gate as any launch does that needs a trial; each of its nodes is looked at anew.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "copy.h"
#include "engine.h"
#include "gate.h"
#include "graph.h"
#include "graph_source.h"
#include "launch.h"
#include "log.h"
#include "search.h"

_Atomic uint64_t ov_graphs_version = 1;
_Atomic uint64_t ov_graphs_unseen;

/* Decisions about one launch. Each but the last made something leave the ring, or found another thread in the way. */
#define ROUNDS 64

static void prepare(const struct ov_graph_node *node, struct ov_launch *launch, struct ov_touches *touches)
{
    memset(launch, 0, sizeof *launch);
    launch->function = node->function;
    launch->kernel = node->kernel;
    touches->count = node->touches;
    touches->incomplete = touches->exposed = false;
    memcpy(touches->item, node->touch, node->touches * sizeof *node->touch);
}

static bool is_foreign(const struct ov_engine *engine, const struct ov_graph_node *node, bool here)
{
    return node->context != NULL ? node->context != engine->context : here;
}

static bool add_units(struct ov_graph *graph, struct ov_graph_node *node, const struct ov_launch *launch)
{
    if (graph->unit_room - graph->units < launch->units) {
        uint32_t room = 2 * graph->unit_room + OV_LAUNCH_UNITS;
        uint32_t *grown = realloc(graph->unit, room * sizeof *grown);
        if (grown == NULL) {
            return false;
        }
        graph->unit = grown;
        graph->unit_room = room;
    }
    node->unit = graph->units;
    node->units = launch->units;
    for (unsigned i = 0; i < launch->units; i++) { /* there may be none, and no room either */
        graph->unit[graph->units++] = launch->unit[i];
    }
    return true;
}

/* Under the engine's lock. */
static enum ov_graph_way judge(struct ov_graph *graph, bool foreign)
{
    struct ov_engine *engine = graph->engine;
    bool fits = true, watch = false;
    graph->units = 0;
    for (uint32_t i = 0; i < graph->model.count; i++) {
        struct ov_graph_node *node = &graph->model.node[i];
        struct ov_launch launch;
        struct ov_touches touches;
        node->units = 0;
        if (node->touches == 0 || !node->enabled) {
            continue;
        }
        prepare(node, &launch, &touches);
        bool timed;
        fits = ov_launch_fits(engine, &launch, &touches, is_foreign(engine, node, foreign), &timed) && fits;
        fits = add_units(graph, node, &launch) && fits;
        watch = watch || timed || (engine->over_budget && ov_launch_wants_watch(engine, &launch));
    }
    bool replays = !graph->pinned && graph->replayable;
    return !fits || (watch && replays) ? OV_GRAPH_REPLAY : graph->units > 0 ? OV_GRAPH_TURN : OV_GRAPH_PLAIN;
}

/* What was only read in part so far may be read whole from now on. */
static void meet(struct ov_graph *graph)
{
    bool met = graph->met;
    graph->met = true;
    for (uint32_t i = 0; i < graph->model.count && !met; i++) {
        for (uint32_t t = 0; t < graph->model.node[i].touches && !met; t++) {
            met = ov_density_meet(graph->engine, graph->model.node[i].touch[t].address);
        }
    }
}

static void decide(struct ov_graph *graph)
{
    struct ov_engine *engine = graph->engine;
    uint64_t version = atomic_load_explicit(&ov_graphs_version, memory_order_relaxed);
    bool looking = engine != NULL && atomic_load(&engine->looking);
    if (graph->decided == version && !looking) {
        return;
    }
    graph->way = OV_GRAPH_PLAIN;
    graph->decided = version;
    if (engine == NULL || (!looking && !atomic_load_explicit(&engine->planned, memory_order_relaxed))) {
        return;
    }
    bool foreign = ov_launch_is_foreign(engine);
    pthread_mutex_lock(&engine->lock);
    meet(graph);
    graph->decided = atomic_load_explicit(&ov_graphs_version, memory_order_relaxed);
    graph->way = judge(graph, foreign);
    if (engine->learning && graph->way != OV_GRAPH_REPLAY) {
        ov_graph_log(graph);
    }
    pthread_mutex_unlock(&engine->lock);
}

/* Whether something of it is in this ring. Inside the gate. */
static bool is_streamed(const struct ov_graph *graph, struct ov_engine *engine)
{
    bool streamed = false, timed;
    pthread_mutex_lock(&engine->lock);
    for (uint32_t i = 0; i < graph->model.count && !streamed; i++) {
        const struct ov_graph_node *node = &graph->model.node[i];
        struct ov_launch launch;
        struct ov_touches touches;
        if (node->touches > 0) {
            prepare(node, &launch, &touches);
            streamed =
                !ov_launch_fits(engine, &launch, &touches, is_foreign(engine, node, false), &timed) || launch.units > 0;
        }
    }
    pthread_mutex_unlock(&engine->lock);
    return streamed;
}

static CUresult clear_one(const struct ov_graph *graph, struct ov_engine *engine)
{
    struct ov_exclusive section;
    CUresult result = ov_exclusive_begin(engine, &section);
    for (uint32_t i = 0; i < graph->model.count && result == CUDA_SUCCESS; i++) {
        const struct ov_graph_node *node = &graph->model.node[i];
        struct ov_launch launch;
        struct ov_touches touches;
        if (node->touches > 0) {
            prepare(node, &launch, &touches);
            result = ov_launch_clear(engine, &launch, &touches, is_foreign(engine, node, false));
        }
    }
    ov_exclusive_end(engine, &section);
    return result;
}

/* All that it touches leaves the ring, on every device. Where there is nothing, nothing is waited for: graphs that use
 * several devices would else keep each other waiting. */
static CUresult clear(const struct ov_graph *graph)
{
    CUresult result = CUDA_SUCCESS;
    for (int slice = 0; slice < OV_DEVICES; slice++) {
        struct ov_engine *engine = ov_engine_at(slice);
        if (engine != NULL && atomic_load(&engine->planned) && is_streamed(graph, engine)) {
            CUresult cleared = clear_one(graph, engine);
            result = result != CUDA_SUCCESS ? result : cleared;
        }
    }
    return result;
}

static bool anything_planned(void)
{
    bool planned = false;
    for (int slice = 0; slice < OV_DEVICES; slice++) {
        const struct ov_engine *engine = ov_engine_at(slice);
        planned = planned || (engine != NULL && atomic_load(&engine->planned));
    }
    return planned;
}

/* Copies and fills inside the graph meet memory that is theirs, and kernels that cannot be seen nothing that is
 * streamed. */
static CUresult settle(const struct ov_graph *graph, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    if (graph->unseen) {
        result = anything_planned() ? ov_bar_streaming("a graph was changed again and again while everything fitted, "
                                                       "and launched as it was then")
                                    : CUDA_SUCCESS;
    } else if (graph->model.opaque) {
        result = ov_bar_streaming("a graph holds a node of a kind that cannot be looked into");
    }
    for (uint32_t i = 0; i < graph->model.count && result == CUDA_SUCCESS; i++) {
        const struct ov_graph_node *node = &graph->model.node[i];
        if (node->incomplete) {
            result = ov_launch_is_opaque(node->kernel);
        } else if (node->copy != NULL && node->enabled) {
            ov_copy_note(node->copy, stream);
            result = ov_copy_settle(node->copy, false);
        }
    }
    return result;
}

/* Launches of one handle follow each other, whatever stands for it. Of those that were not looked at no event tells:
 * if there were any since the graph was made, the device is waited for, once. */
static CUresult follow(struct ov_graph *graph, CUstream stream)
{
    uint64_t unseen = atomic_load_explicit(&ov_graphs_unseen, memory_order_relaxed);
    if (graph->followed != unseen) {
        struct ov_exclusive section;
        (void)ov_exclusive_begin(graph->engine, &section);
        graph->followed = section.idle ? unseen : graph->followed;
        ov_exclusive_end(graph->engine, &section);
    }
    return graph->recorded ? ov_cu->cuStreamWaitEvent(stream, graph->done, 0) : CUDA_SUCCESS;
}

/* An event of the stream's context, in place of another's, which the driver refuses to record there. */
static bool make_done(struct ov_graph *graph, CUstream stream)
{
    CUcontext popped;
    const bool of_current = stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
    if (graph->done != NULL) {
        (void)ov_cu->cuEventDestroy_v2(graph->done);
        graph->done = NULL;
    }
    CUresult result =
        of_current ? ov_cu->cuCtxGetCurrent(&graph->done_in) : ov_cu->cuStreamGetCtx(stream, &graph->done_in);
    if (result != CUDA_SUCCESS || ov_cu->cuCtxPushCurrent_v2(graph->done_in) != CUDA_SUCCESS) {
        return false;
    }
    if (ov_cu->cuEventCreate(&graph->done, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        graph->done = NULL;
    }
    (void)ov_cu->cuCtxPopCurrent_v2(&popped);
    return graph->done != NULL;
}

static void record(struct ov_graph *graph, CUstream stream)
{
    graph->recorded = graph->done != NULL && ov_cu->cuEventRecord(graph->done, stream) == CUDA_SUCCESS;
    if (!graph->recorded && make_done(graph, stream)) {
        graph->recorded = ov_cu->cuEventRecord(graph->done, stream) == CUDA_SUCCESS;
    }
    if (!graph->recorded) {
        ov_ring_wait_instead(stream);
    }
}

/* While passes are timed, a clone with events in it may run in place of what would. Under the engine's lock. */
static void use_timed(struct ov_graph_launch *launch)
{
    struct ov_profiler *profiler = &launch->graph->engine->profiler;
    CUgraphExec timed = NULL;
    if (ov_profiler_on(profiler)) {
        timed = launch->again ? NULL : ov_graph_timed(launch->graph, launch->stream);
        if (timed == NULL) {
            ov_profiler_lose(profiler);
        }
    }
    launch->timed = timed != NULL;
    launch->used = timed != NULL ? timed : launch->used;
}

static void use_own(struct ov_graph_launch *launch)
{
    struct ov_engine *engine = launch->graph->engine;
    pthread_mutex_lock(&engine->lock);
    if (ov_profiler_on(&engine->profiler)) {
        ov_profiler_pause(&engine->profiler, launch->stream);
        use_timed(launch);
        ov_profiler_resume(&engine->profiler, launch->stream);
    }
    pthread_mutex_unlock(&engine->lock);
}

/* It gets the ring. OV_REFUSED: it cannot turn it, not now or not at all. OV_STALLED: *result is what the launch
 * returns. */
static enum ov_acquire use_turn(struct ov_graph_launch *launch, CUresult *result)
{
    struct ov_graph *graph = launch->graph;
    struct ov_engine *engine = graph->engine;
    pthread_mutex_lock(&engine->lock);
    const bool profiled = ov_profiler_on(&engine->profiler);
    if (profiled) {
        ov_profiler_pause(&engine->profiler, launch->stream);
    }
    ov_graph_turn_notice(graph);
    bool made = ov_graph_turn_make(graph);
    enum ov_acquire acquired = made ? ov_ring_hand_over(engine, &graph->turn.ring, launch->stream) : OV_REFUSED;
    if (acquired == OV_ACQUIRED) {
        launch->turning = true;
        launch->used = graph->turn.exec;
        use_timed(launch);
        launch->paced = !profiled && ov_pace_graph_begins(&engine->ring.pace, graph->turn.made_of,
                                                          graph->turn.ring.copies, launch->stream);
    } else if (acquired == OV_STALLED) {
        ov_stall_say(engine);
        *result = OV_STALL_ERROR;
    }
    if (profiled) {
        ov_profiler_resume(&engine->profiler, launch->stream);
    }
    pthread_mutex_unlock(&engine->lock);
    return acquired;
}

enum served { SERVED, AGAIN, BUSY };

/* SERVED: the driver is to be called, or has been, or *result says why not. */
static enum served serve(struct ov_graph_launch *launch, CUresult *result)
{
    struct ov_graph *graph = launch->graph;
    struct ov_engine *engine = graph->engine;
    *result = settle(graph, launch->stream);
    if (*result != CUDA_SUCCESS) {
        return SERVED;
    }
    decide(graph);
    bool cannot = graph->pinned || (graph->way == OV_GRAPH_REPLAY && !graph->replayable);
    if (cannot && (graph->way != OV_GRAPH_PLAIN || (graph->spans && graph->cleared != graph->decided))) {
        *result = clear(graph);
        decide(graph);
        graph->cleared = graph->decided;
        return *result != CUDA_SUCCESS || graph->way == OV_GRAPH_PLAIN ? SERVED : AGAIN;
    }
    enum ov_graph_way way = graph->way;
    if (way == OV_GRAPH_PLAIN && engine != NULL && atomic_load(&engine->looking)) {
        use_own(launch);
    }
    if (way == OV_GRAPH_TURN) {
        enum ov_acquire acquired = use_turn(launch, result);
        if (acquired != OV_REFUSED) {
            return acquired == OV_BUSY ? BUSY : SERVED;
        }
        if (!graph->replayable) {
            *result = clear(graph);
            return *result != CUDA_SUCCESS ? SERVED : AGAIN;
        }
        way = OV_GRAPH_REPLAY; /* this time: it may only be that somebody captures */
    }
    if (way == OV_GRAPH_REPLAY) {
        *result = ov_graph_replay(graph, launch->stream);
        launch->served = true;
    }
    return SERVED;
}

CUresult ov_graph_launch_begin(struct ov_graph_launch *launch)
{
    ov_launch_on(launch->stream);
    ov_gate_enter();
    launch->used = launch->exec;
    launch->served = launch->turning = launch->timed = launch->paced = false;
    launch->graph = NULL;
    if (atomic_load_explicit(&ov_state, memory_order_relaxed) != OV_ARMED) {
        atomic_fetch_add_explicit(&ov_graphs_unseen, 1, memory_order_relaxed);
        return CUDA_SUCCESS;
    }
    CUresult result = ov_search_needed() ? ov_graph_source_search(launch->exec) : CUDA_SUCCESS;
    struct ov_graph *graph = ov_graph_find(launch->exec);
    if (graph == NULL || result != CUDA_SUCCESS || ov_capturing(launch->stream)) {
        return result;
    }
    launch->graph = graph;
    if (graph->unsettled) {
        ov_graph_settle(graph);
    }
    if (graph->engine != NULL) {
        result = follow(graph, launch->stream);
    } else {
        graph->followed = UINT64_MAX; /* no event is recorded, either, and it may be changed to use ours */
    }
    for (int round = 0; round < ROUNDS && result == CUDA_SUCCESS; round++) {
        enum served served = serve(launch, &result);
        if (served == SERVED) {
            return result;
        }
        round -= served == BUSY; /* the other thread is about to launch, or waits for the gate to be closed */
        int depth = ov_gate_step_out();
        sched_yield();
        ov_gate_step_in(depth);
    }
    return result != CUDA_SUCCESS ? result : CUDA_ERROR_LAUNCH_FAILED;
}

/* The program's own graph may have room where ours has not: what does not fit is not tried again, and this launch is
 * replayed. Under the engine's lock. */
static void give_way(struct ov_graph *graph)
{
    uint64_t made_of = graph->turn.made_of;
    ov_graph_turn_drop(graph);
    graph->turn.refused = made_of;
}

/* The driver was given what stands for it. Under the engine's lock. */
static void close_turn(const struct ov_graph_launch *launch, bool launched)
{
    struct ov_graph *graph = launch->graph;
    struct ov_engine *engine = graph->engine;
    if (launch->timed && launched) {
        ov_profiler_launched(&engine->profiler, launch->stream);
    } else if (launch->timed) {
        ov_profiler_refused(&engine->profiler);
    }
    if (launch->paced) {
        ov_pace_graph_ends(&engine->ring.pace, launch->stream, launched);
    }
    if (launch->turning) {
        ov_ring_take_over(engine, &graph->turn.ring, launch->stream, launched);
        engine->ring.turned_by = launched ? graph : engine->ring.turned_by;
    }
}

bool ov_graph_launch_end(struct ov_graph_launch *launch, CUresult result)
{
    struct ov_graph *graph = launch->graph;
    struct ov_engine *engine = graph != NULL ? graph->engine : NULL;
    bool again = (launch->turning || launch->timed) && result == CUDA_ERROR_OUT_OF_MEMORY &&
                 launch->used != launch->exec && !launch->again;
    if (launch->turning || launch->timed) {
        pthread_mutex_lock(&engine->lock);
        close_turn(launch, result == CUDA_SUCCESS);
        if (again && !launch->timed) {
            give_way(graph);
        }
        pthread_mutex_unlock(&engine->lock);
    }
    if (engine != NULL && result == CUDA_SUCCESS) {
        record(graph, launch->stream);
    }
    ov_gate_leave();
    if (engine != NULL && ov_self.gate_depth == 0) {
        ov_launch_counted(engine, graph->model.count);
    }
    launch->again = again;
    return again;
}
