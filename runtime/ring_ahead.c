/* What the ring does ahead of launches: visits, the window, and copies of what is expected; see "Order" and what
 * follows it in ring.h. */
#include "engine.h"
#include "ring.h"
#include "trace.h"

void ov_ring_drop_window(struct ov_ring *ring)
{
    while (ring->ahead_count > 0) {
        ring->unit[ring->ahead[ring->ahead_first]].pending--;
        ring->ahead_first = (ring->ahead_first + 1) % OV_WINDOW;
        ring->ahead_count--;
    }
}

/* Visits by which it is known how long they are, and after so many shorter ones a long one counts no more. */
#define VISITS_KNOWN   2u
#define VISITS_SHORTER 8u

/* One more launch touches the unit that was touched last. If its place was given away already, that was too soon: what
 * is ahead has to be looked at anew, and how long its visits are is not known any more. */
static void stay(struct ov_ring *ring, struct ov_unit *unit)
{
    unit->launches++;
    if (ring->left) {
        ring->left = false;
        unit->pending++;
        unit->visits = 0;
        if (!unit->loaded) {
            ov_ring_drop_window(ring);
        }
    }
}

static void leave_newest(struct ov_ring *ring)
{
    if (ring->newest != 0) {
        struct ov_unit *unit = &ring->unit[ring->newest - 1];
        unit->pending -= !ring->left;
        unit->shorter = unit->launches < unit->most ? unit->shorter + 1 : 0;
        if (unit->launches > unit->most || unit->shorter == VISITS_SHORTER) {
            unit->most = unit->launches;
            unit->shorter = 0;
        }
        unit->visits++;
    }
}

/* The launch that mostly is the last one of the visit was made. Not where a copy that would not be needed otherwise has
 * its launch refused. */
static void leave_early(struct ov_ring *ring)
{
    if (ring->newest != 0 && !ring->left && ov_opt.stall != OV_OPT_STALL_ERROR) {
        struct ov_unit *unit = &ring->unit[ring->newest - 1];
        ring->left = unit->visits >= VISITS_KNOWN && unit->launches >= unit->most;
        unit->pending -= ring->left;
    }
}

/* Moves the trace on. The newest unit counts as pending until it is left. */
void ov_ring_step(struct ov_ring *ring, uint32_t index)
{
    enum ov_trace_step kind = ov_trace_touch(&ring->trace, index);
    if (kind == OV_TRACE_SAME) {
        stay(ring, &ring->unit[index]);
        return;
    }
    bool expected = kind == OV_TRACE_EXPECTED && ring->ahead_count > 0 && ring->ahead[ring->ahead_first] == index;
    if (expected) {
        ring->ahead_first = (ring->ahead_first + 1) % OV_WINDOW;
        ring->ahead_count--; /* its pending touch is now that of being the newest */
    } else {
        ov_ring_drop_window(ring);
        ring->unit[index].pending++;
    }
    leave_newest(ring);
    ring->newest = index + 1;
    ring->left = false;
    ring->unit[index].launches = 1;
}

static bool may_overwrite(const struct ov_ring *ring, const struct ov_unit *unit, uint32_t index)
{
    for (uint32_t p = unit->ring_page; p < unit->ring_page + unit->pages; p++) {
        if (ring->owner[p] != 0 && ring->owner[p] != index + 1) {
            const struct ov_unit *owner = &ring->unit[ring->owner[p] - 1];
            if (owner->pending > 0 || atomic_load_explicit(&owner->holds, memory_order_acquire) > 0) {
                return false;
            }
        }
    }
    return true;
}

static void prefetch(struct ov_engine *engine)
{
    struct ov_ring *ring = &engine->ring;
    /* More than all units ahead would only repeat what is there. */
    while (!ring->turning && !engine->profiler.hushed && ring->ahead_count < OV_WINDOW - 1 &&
           ring->ahead_count < ring->unit_count) {
        uint32_t index = ov_trace_peek(&ring->trace, ring->ahead_count + 1);
        if (index == OV_TRACE_NONE || index == ring->unit_count) {
            return; /* nobody knows; or a graph is expected, which turns the ring itself from there on */
        }
        struct ov_unit *unit = &ring->unit[index];
        if (unit->tier == OV_TIER_STREAMED && !unit->loaded) {
            if (!may_overwrite(ring, unit, index) || ov_ring_load(engine, index) != CUDA_SUCCESS) {
                return;
            }
        }
        unit->pending++;
        ring->ahead[(ring->ahead_first + ring->ahead_count++) % OV_WINDOW] = index;
    }
}

void ov_ring_warm(struct ov_engine *engine)
{
    prefetch(engine);
}

void ov_ring_launched(struct ov_engine *engine)
{
    leave_early(&engine->ring);
    prefetch(engine);
}
