/* The ring in the hands of a graph that turns it: see "A graph that holds copies of its own" in ring.h. */
#include "engine.h"
#include "event_pool.h"
#include "ring.h"

/* Units that are remembered to have stayed through a graph that does not touch them; others are loaded again. */
#define KEPT 64u

/* Whatever was in the ring and may be read now is read before the stream goes on, and what the graph needs is there. */
static CUresult bring_about(struct ov_engine *engine, const struct ov_turn *turn, CUstream stream)
{
    struct ov_ring *ring = &engine->ring;
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < turn->needs && result == CUDA_SUCCESS; i++) {
        if (!ring->unit[turn->need[i]].loaded) {
            result = engine->profiler.hushed ? ov_ring_load_alone(engine, turn->need[i], stream)
                                             : ov_ring_load(engine, turn->need[i]);
        }
    }
    for (uint32_t p = 0; p < ring->pages && result == CUDA_SUCCESS; p++) {
        if (ring->owner[p] != 0) {
            result = ov_ring_wait_for_readers(ring, &ring->unit[ring->owner[p] - 1]);
        }
    }
    if (result == CUDA_SUCCESS) {
        result = ov_event_take(&ring->plain, &ring->handed);
    }
    if (result == CUDA_SUCCESS) {
        result = ov_cu->cuEventRecord(ring->handed, ring->side);
    }
    return result == CUDA_SUCCESS ? ov_cu->cuStreamWaitEvent(stream, ring->handed, 0) : result;
}

/* What it needs and has to be waited for. True: it is to be refused. */
static bool count_missing(struct ov_engine *engine, const struct ov_turn *turn)
{
    struct ov_ring *ring = &engine->ring;
    bool stalled = false;
    for (uint32_t i = 0; i < turn->needs && !engine->profiler.hushed; i++) {
        if (!ring->unit[turn->need[i]].loaded) {
            ring->counts.misses++;
            stalled |= ov_stall_miss_graph(engine, turn->need[i]);
        }
    }
    return stalled;
}

/* Nothing was done since the last graph, in the same stream, or it was this one, whose launches follow each other
 * anyway; and it left what this one needs, which not even the same graph always does. */
static bool follows(struct ov_ring *ring, const struct ov_turn *turn, CUstream stream)
{
    bool ready =
        ring->last_turn != 0 && (ring->last_turn == turn->id || ring->turned_lane == ov_ring_lane(ring, stream)->id);
    for (uint32_t i = 0; i < turn->needs && ready; i++) {
        ready = ring->unit[turn->need[i]].loaded;
    }
    return ready;
}

enum ov_acquire ov_ring_hand_over(struct ov_engine *engine, const struct ov_turn *turn, CUstream stream)
{
    struct ov_ring *ring = &engine->ring;
    if (ring->turning) {
        return OV_BUSY;
    }
    for (uint32_t p = 0; p < ring->pages; p++) {
        const struct ov_unit *owner = ring->owner[p] != 0 ? &ring->unit[ring->owner[p] - 1] : NULL;
        if (owner != NULL && owner->stuck) {
            return OV_REFUSED;
        }
        if (owner != NULL && atomic_load_explicit(&owner->holds, memory_order_acquire) > 0) {
            return OV_BUSY;
        }
    }
    const bool stalled = count_missing(engine, turn);
    if (!stalled && ring->timetable.passes > 0) {
        ov_timetable_graph(ring, turn, stream);
    }
    if (ov_event_take(&ring->plain, &ring->turned) != CUDA_SUCCESS ||
        (!follows(ring, turn, stream) && bring_about(engine, turn, stream) != CUDA_SUCCESS)) {
        return OV_REFUSED;
    }
    if (stalled) {
        return OV_STALLED; /* it is all on its way now, and nothing else has happened */
    }
    if (ring->timetable.passes > 0) {
        ov_timetable_graph_begins(ring, stream);
    }
    /* The trace has what the graph needs, and then the graph as if it were one more unit. */
    for (uint32_t i = 0; i < turn->needs; i++) {
        ov_ring_step(ring, turn->need[i]);
    }
    ov_ring_step(ring, ring->unit_count);
    ring->turning = true;
    return OV_ACQUIRED;
}

/* The graph came after all who read what was there. */
static void forget_contents(struct ov_ring *ring)
{
    for (uint32_t p = 0; p < ring->pages; p++) {
        if (ring->owner[p] != 0) {
            ring->unit[ring->owner[p] - 1].loaded = false;
            ring->unit[ring->owner[p] - 1].reader_count = 0;
            ring->owner[p] = 0;
        }
    }
}

static void set_content(struct ov_ring *ring, uint32_t index)
{
    struct ov_unit *unit = &ring->unit[index];
    unit->loaded = unit->by_graph = true;
    unit->timed = unit->copied = false;
    unit->load = ring->loads;
    for (uint32_t p = unit->ring_page; p < unit->ring_page + unit->pages; p++) {
        ring->owner[p] = index + 1;
    }
}

static void set_contents(struct ov_ring *ring, const struct ov_turn *turn)
{
    uint32_t kept[KEPT], keeps = 0;
    for (uint32_t i = 0; i < turn->keeps && keeps < KEPT; i++) {
        if (ring->unit[turn->kept[i]].loaded) {
            kept[keeps++] = turn->kept[i];
        }
    }
    forget_contents(ring);
    ring->loads++;
    for (uint32_t i = 0; i < keeps; i++) {
        set_content(ring, kept[i]);
    }
    for (uint32_t i = 0; i < turn->lefts; i++) {
        set_content(ring, turn->left[i]);
    }
}

void ov_ring_take_over(struct ov_engine *engine, const struct ov_turn *turn, CUstream stream, bool launched)
{
    struct ov_ring *ring = &engine->ring;
    ring->turning = false;
    if (!launched) {
        return; /* then the ring is as it was */
    }
    if (ring->timetable.passes > 0) {
        ov_timetable_graph_ends(ring, stream);
    }
    CUresult result = ov_cu->cuEventRecord(ring->turned, stream);
    result = result == CUDA_SUCCESS ? ov_cu->cuStreamWaitEvent(ring->side, ring->turned, 0) : result;
    if (result != CUDA_SUCCESS) {
        ov_ring_wait_instead(stream);
    }
    set_contents(ring, turn);
    struct ov_lane *lane = ov_ring_lane(ring, stream);
    lane->seen = ring->loads;
    ring->turned_lane = lane->id;
    ov_ring_drop_window(ring);
    ring->last_turn = turn->id;
    ring->counts.copies += turn->copies;
    ring->counts.graphs++; /* nothing is loaded ahead now: another graph may follow, and expect what this one left */
}
