/*
 * The executable graph that turns the ring: when it is made, anew or not at all, and what it takes account of
 * (graph.h). What it is made of: graph_weave.h.
 */
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "graph.h"
#include "graph_weave.h"
#include "hash.h"
#include "log.h"

/* Nodes of all graphs that turn a ring, at most: the driver holds some hundred bytes of host and device memory for
 * each. Above that, the one that was launched longest ago goes, and is made anew when it is launched again. */
#define NODES_MOST ((size_t)1 << 18)

static _Atomic uint64_t turns, launches;
static _Atomic size_t nodes_held;

/* Adds all that a copy of the unit rests on, now. */
static uint64_t add_unit(uint64_t digest, const struct ov_engine *engine, uint32_t index)
{
    digest = ov_hash_add(digest, index);
    if (index >= engine->ring.unit_count) {
        return digest;
    }
    const struct ov_unit *unit = &engine->ring.unit[index];
    digest = ov_hash_add(digest, (uint64_t)unit->first << 32 | unit->pages);
    digest = ov_hash_add(digest, (uint64_t)unit->tier << 32 | unit->ring_page);
    for (uint32_t done = 0; done < unit->pages;) {
        struct ov_piece piece = ov_master_piece(&engine->arena, unit->first + done, unit->pages - done);
        digest = ov_hash_add(digest, piece.address);
        done += piece.pages > 0 ? piece.pages : unit->pages;
    }
    return digest;
}

/* Of all that the copies for the graph's own nodes rest on. */
static uint64_t digest_of(const struct ov_graph *graph)
{
    uint64_t digest = graph->engine->ring.window;
    for (uint32_t n = 0; n < graph->model.count; n++) {
        const struct ov_graph_node *node = &graph->model.node[n];
        digest = ov_hash_add(digest, node->units);
        for (uint32_t i = 0; i < node->units; i++) {
            digest = add_unit(digest, graph->engine, graph->unit[node->unit + i]);
        }
    }
    return digest != 0 ? digest : 1;
}

/* The same for what it brings in for the next launch, which may be units of others only. */
static uint64_t digest_of_tail(const struct ov_graph *graph)
{
    const struct ov_graph_schedule *schedule = &graph->turn.schedule;
    uint64_t digest = 1;
    for (uint32_t i = schedule->tail; i < schedule->loads; i++) {
        digest = add_unit(digest, graph->engine, schedule->load[i].unit);
    }
    return digest;
}

static bool update(struct ov_graph_turn *turn, CUgraph work)
{
    CUgraphExecUpdateResultInfo info;
    return turn->graph != NULL && ov_cu->cuGraphExecUpdate_v2 != NULL &&
           ov_cu->cuGraphExecUpdate_v2(turn->exec, work, &info) == CUDA_SUCCESS;
}

/* Of what was instantiated; an update leaves it as it is. */
static bool set_enabled(const struct ov_graph *graph)
{
    for (uint32_t i = 0; i < graph->model.count; i++) {
        if (!graph->model.node[i].enabled &&
            (ov_cu->cuGraphNodeSetEnabled == NULL ||
             ov_cu->cuGraphNodeSetEnabled(graph->turn.exec, graph->turn.node[i], 0) != CUDA_SUCCESS)) {
            return false;
        }
    }
    return true;
}

static void drop_exec(struct ov_graph_turn *turn)
{
    nodes_held -= turn->nodes;
    turn->nodes = 0;
    if (turn->graph != NULL) {
        (void)ov_cu->cuGraphExecDestroy(turn->exec);
        (void)ov_cu->cuGraphDestroy(turn->graph);
    }
    free(turn->node);
    turn->exec = NULL;
    turn->graph = NULL;
    turn->node = NULL;
}

/* What was made becomes executable: in place of what there was if the driver takes it for an update of that. */
static bool finish(struct ov_weave *m)
{
    struct ov_graph *graph = m->graph;
    struct ov_graph_turn *turn = &graph->turn;
    if (update(turn, m->work)) {
        return true;
    }
    drop_exec(turn);
    if (ov_cu->cuGraphInstantiateWithFlags(
            &turn->exec, m->work, graph->flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) != CUDA_SUCCESS) {
        turn->exec = NULL;
        return false;
    }
    turn->graph = m->work;
    turn->node = m->node;
    turn->nodes = graph->model.count + m->copies;
    nodes_held += turn->nodes;
    m->work = NULL;
    m->node = NULL;
    return set_enabled(graph);
}

/* A graph that loads nothing needs nothing but the ring. */
static bool take_own(struct ov_weave *m)
{
    drop_exec(&m->graph->turn);
    m->graph->turn.exec = m->graph->exec;
    return true;
}

#define COUNTED 4096u

/* Pages that one launch copies more often than others, since their places were taken in between. (A graph of several
 * passes copies everything again.) */
static size_t count_again(const struct ov_weave *m, size_t *all)
{
    const struct ov_graph_schedule *schedule = &m->schedule;
    size_t again = 0;
    uint32_t least = UINT32_MAX;
    if (schedule->loads > COUNTED) {
        return 0; /* comparing each with each would take too long */
    }
    for (int round = 0; round < 2; round++) { /* how often the others are, then those that are more often */
        for (uint32_t i = 0; i < schedule->loads; i++) {
            uint32_t times = 0, before = 0;
            for (uint32_t j = 0; j < schedule->loads; j++) {
                bool same = schedule->load[j].unit == schedule->load[i].unit;
                times += same;
                before += same && j < i;
            }
            least = times < least ? times : least;
            size_t pages = m->engine->ring.unit[schedule->load[i].unit].pages;
            *all += round == 0 ? pages : 0;
            again += round == 1 && before >= least ? pages : 0;
        }
    }
    return again;
}

/* A plan that was made of another order than the graph's is not the best for it: units that a pass uses in several
 * places are best resident. Then discovery begins again, this time with the graph in its log; once for each plan, and
 * not for ever. */
#define WORTH_PERCENT 2u
#define TRIES         4u

static void doubt_plan(struct ov_engine *engine, size_t again, size_t all)
{
    struct ov_ring *ring = &engine->ring;
    if (again * 100 > all * WORTH_PERCENT && ring->doubted_plan != engine->plans && ring->doubts < TRIES) {
        ring->doubted_plan = engine->plans;
        ring->doubts++;
        ov_engine_learn(engine);
    }
}

static void adopt(struct ov_weave *m)
{
    struct ov_graph_turn *turn = &m->graph->turn;
    size_t all = 0, again = count_again(m, &all);
    doubt_plan(m->engine, again, all);
    ov_graph_schedule_free(&turn->schedule);
    turn->schedule = m->schedule;
    memset(&m->schedule, 0, sizeof m->schedule);
    turn->outdated = false;
    turn->plan = m->engine->plans;
    turn->ring = (struct ov_turn){.id = ++turns,
                                  .need = turn->schedule.need,
                                  .left = turn->schedule.left,
                                  .kept = turn->schedule.kept,
                                  .needs = turn->schedule.needs,
                                  .lefts = turn->schedule.lefts,
                                  .keeps = turn->schedule.keeps,
                                  .copies = (uint32_t)m->copies};
    ov_log(OV_LOG_INFO,
           "graph of %u nodes: %zu copies in it, %zu MiB, %zu MiB of them again, %u for the next; %u units awaited, %u "
           "left",
           m->graph->model.count, m->copies, m->bytes >> 20, again * (OV_PAGE_BYTES >> 20),
           turn->schedule.loads - turn->schedule.tail, turn->schedule.needs, turn->schedule.lefts);
}

struct oldest {
    const struct ov_graph *except;
    struct ov_graph *graph;
};

static void find_oldest(struct ov_graph *graph, void *context)
{
    struct oldest *oldest = context;
    if (graph != oldest->except && graph->engine == oldest->except->engine && graph->turn.nodes > 0 &&
        (oldest->graph == NULL || graph->turn.launched < oldest->graph->turn.launched)) {
        oldest->graph = graph;
    }
}

static void keep_within_limit(struct ov_graph *graph)
{
    struct oldest oldest = {graph, graph};
    /* Not while another thread launches one of them. */
    while (!graph->engine->ring.turning && nodes_held + graph->model.count > NODES_MOST && oldest.graph != NULL) {
        oldest.graph = NULL;
        ov_graphs_each(find_oldest, &oldest);
        if (oldest.graph != NULL) {
            ov_log_once(OV_LOG_INFO, "graphs with copies in them hold %zu nodes: the oldest are given up", nodes_held);
            ov_graph_turn_drop(oldest.graph);
        }
    }
}

static bool make(struct ov_weave *m)
{
    keep_within_limit(m->graph);
    bool done = m->schedule.loads == 0 ? take_own(m) : ov_weave_make(m) && finish(m);
    if (done) {
        adopt(m);
    }
    return done;
}

/* ---- neighbours ---- */

/* Times that a neighbour must have been seen in a row, and that a graph is made anew for its neighbours' sake. */
#define SURE     2u
#define RESHAPES 8u

static void see(struct ov_graph_beside *beside, struct ov_graph *graph)
{
    beside->times = beside->graph == graph ? beside->times + (beside->times < SURE) : 1;
    beside->graph = graph;
    if (graph != NULL && beside->times >= SURE) {
        beside->sure = graph;
    }
}

void ov_graph_turn_notice(struct ov_graph *graph)
{
    struct ov_ring *ring = &graph->engine->ring;
    struct ov_graph *before = ring->last_turn != 0 ? ring->turned_by : NULL;
    graph->turn.launched = ++launches;
    see(&graph->before, before);
    if (before != NULL) {
        see(&before->after, graph);
    }
}

enum position {
    ALONE,
    BETWEEN,   /* others; who they are is known */
    UNSETTLED, /* between others that may be made anew at their next launch */
};

static enum position find_neighbours(struct ov_graph *graph, struct ov_graph_neighbours *out)
{
    /* As long as nothing else is sure, it is taken to follow itself. */
    const struct ov_graph *before = graph->before.sure != NULL ? graph->before.sure : graph;
    const struct ov_graph *after = graph->after.sure != NULL ? graph->after.sure : graph;
    *out = (struct ov_graph_neighbours){NULL, NULL};
    if (before == graph && after == graph) {
        return ALONE;
    }
    bool old_before = before->turn.version != graph->decided, old_after = after->turn.version != graph->decided;
    out->before = before->turn.exec != NULL && !old_before ? &before->turn.schedule : NULL;
    out->after = after->turn.exec != NULL && !old_after ? &after->turn.schedule : NULL;
    return (before != graph && old_before) || (after != graph && old_after) ? UNSETTLED : BETWEEN;
}

/* ---- the whole ---- */

/* `right`: there is one, made of the same, for other neighbours. */
static bool make_anew(struct ov_graph *graph, const struct ov_graph_neighbours *beside, bool right)
{
    struct ov_graph_turn *turn = &graph->turn;
    struct ov_weave m = {.graph = graph, .engine = graph->engine};
    bool done = graph->clone != NULL && ov_weave_open(&m) &&
                ov_graph_schedule_make(&m.engine->ring, m.step, m.steps, beside, &m.schedule);
    if (done && !(right && ov_graph_schedule_same(&m.schedule, &turn->schedule))) {
        turn->reshaped = right ? turn->reshaped + 1 : 0;
        done = make(&m);
    }
    ov_weave_close(&m);
    return done;
}

bool ov_graph_turn_make(struct ov_graph *graph)
{
    struct ov_graph_turn *turn = &graph->turn;
    struct ov_graph_neighbours beside;
    enum position position = find_neighbours(graph, &beside);
    uint64_t begins = beside.after != NULL ? beside.after->begins : 0;
    uint64_t ends = beside.before != NULL ? beside.before->ends : 0;
    bool right = turn->exec != NULL && !turn->outdated;
    if (right && !turn->unchecked && turn->version == graph->decided && turn->begins == begins && turn->ends == ends) {
        return true;
    }
    uint64_t made_of = digest_of(graph);
    right = right && turn->made_of == made_of && turn->made_for == digest_of_tail(graph);
    if (turn->plan != graph->engine->plans) { /* these are not among what it was made of */
        turn->ring.keeps = turn->schedule.keeps = 0;
    }
    bool captures = atomic_load(&ov_captures) != 0; /* nothing is made while somebody captures */
    if (!right && (captures || (turn->refused == made_of && !turn->outdated))) {
        return false;
    }
    if (!right || !(captures || position == UNSETTLED || turn->reshaped >= RESHAPES)) {
        if (!make_anew(graph, position == ALONE ? NULL : &beside, right)) {
            ov_graph_turn_drop(graph);
            turn->refused = made_of;
            return false;
        }
        turn->begins = begins;
        turn->ends = ends;
    }
    turn->version = graph->decided;
    turn->unchecked = false;
    turn->made_of = made_of;
    turn->made_for = digest_of_tail(graph);
    turn->plan = graph->engine->plans;
    return true;
}

void ov_graph_turn_forget(struct ov_graph *graph, const struct ov_graph *gone)
{
    struct ov_graph_beside *const both[] = {&graph->before, &graph->after};
    for (int i = 0; i < 2; i++) {
        both[i]->graph = both[i]->graph == gone ? NULL : both[i]->graph;
        both[i]->sure = both[i]->sure == gone ? NULL : both[i]->sure;
    }
}

void ov_graph_turn_drop(struct ov_graph *graph)
{
    drop_exec(&graph->turn);
    ov_graph_schedule_free(&graph->turn.schedule);
    memset(&graph->turn, 0, sizeof graph->turn);
}

void ov_graph_turn_end(struct ov_graph *graph)
{
    struct ov_engine *engine = graph->engine;
    if (engine != NULL) {
        pthread_mutex_lock(&engine->lock);
    }
    ov_graph_turn_drop(graph);
    if (engine != NULL) {
        pthread_mutex_unlock(&engine->lock);
    }
}
