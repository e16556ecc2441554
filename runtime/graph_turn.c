/*
 * The executable graph that turns the ring: a clone of the program's graph with copies from the masters to the ring in
 * it (graph.h). When which unit is copied is graph_schedule.c's business; here copies become nodes.
 *
 *   - All copies are one chain: the link serves one after the other, in the order of their use.
 *   - A copy depends on all nodes that read what it replaces; in a programmatic edge's place that would be too early,
 * so these are ordinary edges, which wait for the end of a kernel.
 *   - A node that reads a unit depends on the unit's copy. A kernel that starts before its predecessor ends, by a
 *     programmatic edge, does not start before its weights are there.
 *
 * A copy is a node of the graph that holds the first reader, which may be a child graph. Nodes of different graphs
 * cannot depend on each other; then what holds them does, up to the graph that they have in common. In the order of the
 * model the nodes of a child stand together, so such an edge never turns back.
 */
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "graph.h"
#include "log.h"

/* Bytes of one copy node at most. */
#define PIECE_BYTES ((size_t)1 << 30)

/* Nodes of all graphs that turn a ring, at most: the driver holds some hundred bytes of host and device memory for
 * each. Above that, the one that was launched longest ago goes, and is made anew when it is launched again. */
#define NODES_MOST ((size_t)1 << 18)

static _Atomic uint64_t turns, launches;
static _Atomic size_t nodes_held;

/* A node while the graph is made: the model's, or a copy. */
struct element {
    CUgraphNode node;
    uint32_t parent; /* 1 + index of the node that holds its graph */
    uint32_t index;  /* in the model, UINT32_MAX: a copy */
};

struct elements {
    struct element *item;
    uint32_t count, room;
};

struct making {
    struct ov_graph *graph;
    struct ov_engine *engine;
    struct ov_graph_step *step;
    uint32_t *at; /* of each step: its node */
    uint32_t steps;
    struct ov_graph_schedule schedule;
    CUgraph work;
    CUgraphNode *node;       /* of work, as in the model */
    struct element chain;    /* the last copy; node NULL: none yet */
    struct element *copy;    /* per unit: its copy in this pass; node NULL: none */
    struct elements *reader; /* per unit: that read what is in its place now */
    uint32_t *owner;         /* per ring page: 1 + unit */
    struct elements before;  /* of the copy that is being made */
    struct element edge[64]; /* pairs that were made between nodes of the model, so that none is made twice: a ring */
    uint32_t edges;
    size_t copies, bytes;
};

/* ---- dependencies ---- */

static bool push(struct elements *list, struct element element)
{
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->item[i].node == element.node) {
            return true;
        }
    }
    if (list->count == list->room) {
        uint32_t room = list->room ? list->room * 2 : 4;
        struct element *grown = realloc(list->item, room * sizeof *grown);
        if (grown == NULL) {
            return false;
        }
        list->item = grown;
        list->room = room;
    }
    list->item[list->count++] = element;
    return true;
}

static unsigned depth_of(const struct making *m, uint32_t parent)
{
    unsigned depth = 0;
    for (; parent != 0; parent = m->graph->model.node[parent - 1].parent) {
        depth++;
    }
    return depth;
}

static struct element holder_of(const struct making *m, struct element element)
{
    uint32_t index = element.parent - 1;
    return (struct element){m->node[index], m->graph->model.node[index].parent, index};
}

/* Takes both to the graph that they have in common. */
static void lift(const struct making *m, struct element *a, struct element *b)
{
    unsigned da = depth_of(m, a->parent), db = depth_of(m, b->parent);
    while (a->parent != b->parent) {
        bool first = da >= db, second = db >= da;
        if (first) {
            *a = holder_of(m, *a);
            da--;
        }
        if (second) {
            *b = holder_of(m, *b);
            db--;
        }
    }
}

/* Whether the edge is known to be there already. */
static bool is_there(const struct making *m, const struct element *from, const struct element *to)
{
    if (from->index != UINT32_MAX && to->index != UINT32_MAX &&
        ov_graph_has_edge(&m->graph->model, from->index, to->index)) {
        return true;
    }
    uint32_t kept = m->edges < 32 ? m->edges : 32;
    for (uint32_t i = 0; i < kept; i++) {
        if (m->edge[2 * i].node == from->node && m->edge[2 * i + 1].node == to->node) {
            return true;
        }
    }
    return false;
}

/* Both exist. The driver refuses an edge that is there already, which an edge between what holds them may be. */
static bool connect(struct making *m, struct element from, struct element to)
{
    uint32_t parent = from.parent;
    lift(m, &from, &to);
    if (from.node == to.node || is_there(m, &from, &to)) {
        return true;
    }
    CUgraph graph = m->work;
    if (from.parent != 0 && ov_cu->cuGraphChildGraphNodeGetGraph(m->node[from.parent - 1], &graph) != CUDA_SUCCESS) {
        return false;
    }
    m->edge[2 * (m->edges % 32)] = from;
    m->edge[2 * (m->edges++ % 32) + 1] = to;
    CUresult result = ov_cu->cuGraphAddDependencies(graph, &from.node, &to.node, 1);
    return result == CUDA_SUCCESS || (parent != from.parent && result == CUDA_ERROR_INVALID_VALUE);
}

/* The copy, not made yet, will be in the graph that `parent` holds. */
static bool depend(struct making *m, struct element from, uint32_t parent)
{
    struct element copy = {NULL, parent, UINT32_MAX};
    lift(m, &from, &copy);
    return copy.node == NULL && copy.index == UINT32_MAX ? push(&m->before, from) : connect(m, from, copy);
}

/* ---- copies ---- */

static CUresult add_copy(struct making *m, CUgraph graph, CUdeviceptr to, CUdeviceptr from, size_t bytes,
                         CUgraphNode *out)
{
    CUgraphNode before[64] = {NULL}, *list = m->before.count <= 64 ? before : calloc(m->before.count, sizeof *list);
    const CUDA_MEMCPY3D copy = {
        .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
        .srcDevice = from,
        .srcPitch = bytes,
        .srcHeight = 1,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = to,
        .dstPitch = bytes,
        .dstHeight = 1,
        .WidthInBytes = bytes,
        .Height = 1,
        .Depth = 1,
    };
    if (list == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < m->before.count; i++) {
        list[i] = m->before.item[i].node;
    }
    CUresult result = ov_cu->cuGraphAddMemcpyNode(out, graph, list, m->before.count, &copy, m->engine->context);
    if (list != before) {
        free(list);
    }
    return result;
}

/* The unit's copy, in as many nodes as its master has pieces; what it depends on is in m->before. */
static bool add_copies(struct making *m, uint32_t unit, uint32_t parent)
{
    const struct ov_ring *ring = &m->engine->ring;
    const struct ov_unit *of = &ring->unit[unit];
    CUgraph graph = m->work;
    if (parent != 0 && ov_cu->cuGraphChildGraphNodeGetGraph(m->node[parent - 1], &graph) != CUDA_SUCCESS) {
        return false;
    }
    for (uint32_t done = 0; done < of->pages;) {
        uint32_t limit = of->pages - done, most = (uint32_t)(PIECE_BYTES >> OV_PAGE_SHIFT);
        struct ov_piece piece = ov_master_piece(&m->engine->arena, of->first + done, limit < most ? limit : most);
        CUdeviceptr to = ring->window + ((CUdeviceptr)(of->ring_page + done) << OV_PAGE_SHIFT);
        struct element made = {NULL, parent, UINT32_MAX};
        if (piece.pages == 0 || piece.pageable ||
            add_copy(m, graph, to, piece.address, (size_t)piece.pages << OV_PAGE_SHIFT, &made.node) != CUDA_SUCCESS) {
            return false;
        }
        m->chain = m->copy[unit] = made;
        m->before.count = 0;
        if (!push(&m->before, made)) {
            return false;
        }
        m->copies++;
        m->bytes += (size_t)piece.pages << OV_PAGE_SHIFT;
        done += piece.pages;
    }
    return true;
}

static bool load(struct making *m, uint32_t unit, uint32_t parent)
{
    const struct ov_unit *of = &m->engine->ring.unit[unit];
    bool done = true;
    m->before.count = 0;
    if (m->chain.node != NULL) {
        done = depend(m, m->chain, parent);
    }
    for (uint32_t p = of->ring_page; p < of->ring_page + of->pages && done; p++) {
        struct elements *reader = m->owner[p] != 0 ? &m->reader[m->owner[p] - 1] : NULL;
        for (uint32_t i = 0; reader != NULL && i < reader->count && done; i++) {
            done = depend(m, reader->item[i], parent);
        }
        m->owner[p] = unit + 1;
    }
    m->reader[unit].count = 0;
    return done && add_copies(m, unit, parent);
}

static bool read(struct making *m, uint32_t unit, struct element by)
{
    return (m->copy[unit].node == NULL || connect(m, m->copy[unit], by)) && push(&m->reader[unit], by);
}

/* What is in the ring when the graph starts, as far as it is read. Nobody in this launch has read it yet. */
static void place_first(struct making *m)
{
    for (uint32_t i = 0; i < m->schedule.needs; i++) {
        const struct ov_unit *unit = &m->engine->ring.unit[m->schedule.need[i]];
        for (uint32_t p = unit->ring_page; p < unit->ring_page + unit->pages; p++) {
            m->owner[p] = m->schedule.need[i] + 1;
        }
    }
}

static bool add_all(struct making *m)
{
    const struct ov_graph_schedule *schedule = &m->schedule;
    uint32_t next = 0;
    bool done = true;
    place_first(m);
    for (uint32_t s = 0; s < m->steps && done; s++) {
        const struct ov_graph_node *node = &m->graph->model.node[m->at[s]];
        struct element reader = {m->node[m->at[s]], node->parent, m->at[s]};
        for (; next < schedule->loads && schedule->load[next].step == s && done; next++) {
            done = load(m, schedule->load[next].unit, node->parent);
        }
        for (uint32_t i = 0; i < m->step[s].units && done; i++) {
            done = read(m, m->step[s].unit[i], reader);
        }
    }
    for (; next < schedule->loads && done; next++) {
        done = load(m, schedule->load[next].unit, 0);
    }
    return done;
}

/* ---- the whole ---- */

static bool open_making(struct making *m)
{
    const struct ov_ring *ring = &m->engine->ring;
    const struct ov_graph_model *model = &m->graph->model;
    m->step = calloc((size_t)model->count + 1, sizeof *m->step);
    m->at = calloc((size_t)model->count + 1, sizeof *m->at);
    m->node = calloc((size_t)model->count + 1, sizeof *m->node);
    m->copy = calloc((size_t)ring->unit_count + 1, sizeof *m->copy);
    m->reader = calloc((size_t)ring->unit_count + 1, sizeof *m->reader);
    m->owner = calloc((size_t)ring->pages + 1, sizeof *m->owner);
    if (m->step == NULL || m->at == NULL || m->node == NULL || m->copy == NULL || m->reader == NULL ||
        m->owner == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < model->count; i++) {
        const struct ov_graph_node *node = &model->node[model->order[i]];
        if (node->units > 0) {
            m->at[m->steps] = model->order[i];
            m->step[m->steps++] = (struct ov_graph_step){&m->graph->unit[node->unit], node->units};
        }
    }
    return true;
}

static void close_making(struct making *m)
{
    for (uint32_t i = 0; m->reader != NULL && i < m->engine->ring.unit_count; i++) {
        free(m->reader[i].item);
    }
    free(m->reader);
    free(m->step);
    free(m->at);
    free(m->node);
    free(m->copy);
    free(m->owner);
    free(m->before.item);
    ov_graph_schedule_free(&m->schedule);
    if (m->work != NULL) {
        (void)ov_cu->cuGraphDestroy(m->work);
    }
}

static void mix(uint64_t *digest, uint64_t value)
{
    *digest = (*digest ^ value) * 0x9E3779B97F4A7C15ull;
    *digest ^= *digest >> 29;
}

/* Of all that the copies rest on. */
static uint64_t digest_of(const struct ov_graph *graph)
{
    const struct ov_ring *ring = &graph->engine->ring;
    uint64_t digest = ring->window;
    for (uint32_t n = 0; n < graph->model.count; n++) {
        const struct ov_graph_node *node = &graph->model.node[n];
        mix(&digest, node->units);
        for (uint32_t i = 0; i < node->units; i++) {
            const struct ov_unit *unit = &ring->unit[graph->unit[node->unit + i]];
            mix(&digest, graph->unit[node->unit + i]);
            mix(&digest, (uint64_t)unit->first << 32 | unit->pages);
            mix(&digest, unit->ring_page);
            for (uint32_t done = 0; done < unit->pages;) {
                struct ov_piece piece = ov_master_piece(&graph->engine->arena, unit->first + done, unit->pages - done);
                mix(&digest, piece.address);
                done += piece.pages > 0 ? piece.pages : unit->pages;
            }
        }
    }
    return digest != 0 ? digest : 1;
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
static bool finish(struct making *m)
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
static bool take_own(struct making *m)
{
    drop_exec(&m->graph->turn);
    m->graph->turn.exec = m->graph->exec;
    return true;
}

#define COUNTED 4096u

/* Pages that one launch copies more often than others, since their places were taken in between. (A graph of several
 * passes copies everything again.) */
static size_t count_again(const struct making *m, size_t *all)
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

static void adopt(struct making *m)
{
    struct ov_graph_turn *turn = &m->graph->turn;
    size_t all = 0, again = count_again(m, &all);
    doubt_plan(m->engine, again, all);
    ov_graph_schedule_free(&turn->schedule);
    turn->schedule = m->schedule;
    memset(&m->schedule, 0, sizeof m->schedule);
    turn->outdated = false;
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

static bool make(struct making *m)
{
    keep_within_limit(m->graph);
    bool done = m->schedule.loads == 0
                    ? take_own(m)
                    : ov_cu->cuGraphClone(&m->work, m->graph->clone) == CUDA_SUCCESS &&
                          ov_graph_model_match(&m->graph->model, m->work, m->node) && add_all(m) && finish(m);
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

/* As long as nothing else is sure, a graph is taken to follow itself. */
static struct ov_graph *surely(const struct ov_graph_beside *beside, struct ov_graph *graph)
{
    return beside->times >= SURE && beside->graph != NULL ? beside->graph : graph;
}

enum position {
    ALONE,
    BETWEEN,   /* others; who they are is known */
    UNSETTLED, /* between others that may be made anew at their next launch */
};

static enum position find_neighbours(struct ov_graph *graph, struct ov_graph_neighbours *out)
{
    const struct ov_graph *before = surely(&graph->before, graph), *after = surely(&graph->after, graph);
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
    struct making m = {.graph = graph, .engine = graph->engine};
    bool done = graph->clone != NULL && open_making(&m) &&
                ov_graph_schedule_make(&m.engine->ring, m.step, m.steps, beside, &m.schedule);
    if (done && !(right && ov_graph_schedule_same(&m.schedule, &turn->schedule))) {
        turn->reshaped = right ? turn->reshaped + 1 : 0;
        done = make(&m);
    }
    close_making(&m);
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
    right = right && turn->made_of == made_of;
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
    return true;
}

void ov_graph_turn_forget(struct ov_graph *graph, const struct ov_graph *gone)
{
    const struct ov_graph_beside nobody = {NULL, 0};
    graph->before = graph->before.graph == gone ? nobody : graph->before;
    graph->after = graph->after.graph == gone ? nobody : graph->after;
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
