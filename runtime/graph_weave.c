#include "graph_weave.h"

#include <stdlib.h>
#include <string.h>

#include "engine.h"

/* Bytes of one copy node at most. */
#define PIECE_BYTES ((size_t)1 << 30)

/* ---- dependencies ---- */

static bool push(struct ov_elements *list, struct ov_element element)
{
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->item[i].node == element.node) {
            return true;
        }
    }
    if (list->count == list->room) {
        uint32_t room = list->room ? list->room * 2 : 4;
        struct ov_element *grown = realloc(list->item, room * sizeof *grown);
        if (grown == NULL) {
            return false;
        }
        list->item = grown;
        list->room = room;
    }
    list->item[list->count++] = element;
    return true;
}

static unsigned depth_of(const struct ov_weave *m, uint32_t parent)
{
    unsigned depth = 0;
    for (; parent != 0; parent = m->graph->model.node[parent - 1].parent) {
        depth++;
    }
    return depth;
}

static struct ov_element holder_of(const struct ov_weave *m, struct ov_element element)
{
    uint32_t index = element.parent - 1;
    return (struct ov_element){m->node[index], m->graph->model.node[index].parent, index};
}

/* Takes both to the graph that they have in common. */
static void lift(const struct ov_weave *m, struct ov_element *a, struct ov_element *b)
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
static bool is_there(const struct ov_weave *m, const struct ov_element *from, const struct ov_element *to)
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
bool ov_weave_connect(struct ov_weave *m, struct ov_element from, struct ov_element to)
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
static bool depend(struct ov_weave *m, struct ov_element from, uint32_t parent)
{
    struct ov_element copy = {NULL, parent, UINT32_MAX};
    lift(m, &from, &copy);
    return copy.node == NULL && copy.index == UINT32_MAX ? push(&m->before, from) : ov_weave_connect(m, from, copy);
}

/* ---- copies ---- */

static CUresult add_copy(struct ov_weave *m, CUgraph graph, CUdeviceptr to, CUdeviceptr from, size_t bytes,
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
static bool add_copies(struct ov_weave *m, uint32_t unit, uint32_t parent)
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
        struct ov_element made = {NULL, parent, UINT32_MAX};
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

size_t ov_weave_last(const struct ov_weave *m, uint32_t *index)
{
    const struct ov_graph_model *model = &m->graph->model;
    bool *followed = calloc((size_t)model->count + 1, sizeof *followed);
    size_t count = followed != NULL ? 0 : SIZE_MAX;
    for (uint32_t e = 0; followed != NULL && e < model->edge_count; e++) {
        followed[model->edge[e].from] = true;
    }
    for (uint32_t i = 0; followed != NULL && i < model->count; i++) {
        if (!followed[i] && model->node[i].parent == 0) {
            index[count++] = i;
        }
    }
    free(followed);
    return count;
}

static struct ov_element element_of(const struct ov_weave *m, uint32_t index)
{
    return (struct ov_element){m->node[index], m->graph->model.node[index].parent, index};
}

/* The copy that is being made comes after what the step's node follows; or after all there is. */
static bool hush(struct ov_weave *m, uint32_t step, uint32_t parent)
{
    const struct ov_graph_model *model = &m->graph->model;
    bool done = true;
    if (step < m->steps) {
        for (uint32_t e = 0; e < model->edge_count && done; e++) {
            done = model->edge[e].to != m->at[step] || depend(m, element_of(m, model->edge[e].from), parent);
        }
        return done;
    }
    uint32_t *last = calloc((size_t)model->count + 1, sizeof *last);
    const size_t count = last != NULL ? ov_weave_last(m, last) : SIZE_MAX;
    done = count != SIZE_MAX;
    for (size_t i = 0; done && i < count; i++) {
        done = depend(m, element_of(m, last[i]), parent);
    }
    free(last);
    return done;
}

static bool load(struct ov_weave *m, uint32_t unit, uint32_t step, uint32_t parent)
{
    const struct ov_unit *of = &m->engine->ring.unit[unit];
    m->before.count = 0;
    bool done = !m->hushed || hush(m, step, parent);
    if (done && m->chain.node != NULL) {
        done = depend(m, m->chain, parent);
    }
    for (uint32_t p = of->ring_page; p < of->ring_page + of->pages && done; p++) {
        struct ov_elements *reader = m->owner[p] != 0 ? &m->reader[m->owner[p] - 1] : NULL;
        for (uint32_t i = 0; reader != NULL && i < reader->count && done; i++) {
            done = depend(m, reader->item[i], parent);
        }
        m->owner[p] = unit + 1;
    }
    m->reader[unit].count = 0;
    return done && add_copies(m, unit, parent);
}

static bool read(struct ov_weave *m, uint32_t unit, struct ov_element by)
{
    return (m->copy[unit].node == NULL || ov_weave_connect(m, m->copy[unit], by)) && push(&m->reader[unit], by);
}

/* What is in the ring when the graph starts, as far as it is read. Nobody in this launch has read it yet. */
static void place_first(struct ov_weave *m)
{
    for (uint32_t i = 0; i < m->schedule.needs; i++) {
        const struct ov_unit *unit = &m->engine->ring.unit[m->schedule.need[i]];
        for (uint32_t p = unit->ring_page; p < unit->ring_page + unit->pages; p++) {
            m->owner[p] = m->schedule.need[i] + 1;
        }
    }
}

static bool add_all(struct ov_weave *m)
{
    const struct ov_graph_schedule *schedule = &m->schedule;
    uint32_t next = 0;
    bool done = true;
    place_first(m);
    for (uint32_t s = 0; s < m->steps && done; s++) {
        const struct ov_graph_node *node = &m->graph->model.node[m->at[s]];
        struct ov_element reader = {m->node[m->at[s]], node->parent, m->at[s]};
        for (; next < schedule->loads && schedule->load[next].step == s && done; next++) {
            done = load(m, schedule->load[next].unit, s, node->parent);
        }
        for (uint32_t i = 0; i < m->step[s].units && done; i++) {
            done = read(m, m->step[s].unit[i], reader);
            m->brought[node->unit + i] = m->copy[m->step[s].unit[i]];
        }
    }
    for (; next < schedule->loads && done; next++) {
        done = load(m, schedule->load[next].unit, m->steps, 0);
    }
    return done;
}

bool ov_weave_make(struct ov_weave *m)
{
    return ov_cu->cuGraphClone(&m->work, m->graph->clone) == CUDA_SUCCESS &&
           ov_graph_model_match(&m->graph->model, m->work, m->node) && add_all(m);
}

bool ov_weave_open(struct ov_weave *m)
{
    const struct ov_ring *ring = &m->engine->ring;
    const struct ov_graph_model *model = &m->graph->model;
    m->step = calloc((size_t)model->count + 1, sizeof *m->step);
    m->at = calloc((size_t)model->count + 1, sizeof *m->at);
    m->node = calloc((size_t)model->count + 1, sizeof *m->node);
    m->copy = calloc((size_t)ring->unit_count + 1, sizeof *m->copy);
    m->brought = calloc((size_t)m->graph->units + 1, sizeof *m->brought);
    m->reader = calloc((size_t)ring->unit_count + 1, sizeof *m->reader);
    m->owner = calloc((size_t)ring->pages + 1, sizeof *m->owner);
    if (m->step == NULL || m->at == NULL || m->node == NULL || m->copy == NULL || m->brought == NULL ||
        m->reader == NULL || m->owner == NULL) {
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

void ov_weave_close(struct ov_weave *m)
{
    for (uint32_t i = 0; m->reader != NULL && i < m->engine->ring.unit_count; i++) {
        free(m->reader[i].item);
    }
    free(m->reader);
    free(m->step);
    free(m->at);
    free(m->node);
    free(m->copy);
    free(m->brought);
    free(m->owner);
    free(m->before.item);
    ov_graph_schedule_free(&m->schedule);
    if (m->work != NULL) {
        (void)ov_cu->cuGraphDestroy(m->work);
    }
}
