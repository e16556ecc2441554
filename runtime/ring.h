/*
 * ring.h - steady state: the units, and the device pages that streamed ones take turns in.
 *
 * A streamed unit has a fixed place in the ring; its arena pages are aliases of those ring pages, mapped read-only. The
 * ring's own window is the writable view that copies go through. A unit is *loaded* from the moment the copy of its
 * master is enqueued until another unit's copy into one of its pages is.
 *
 * Order. Copies go on one side stream, in program order. A copy waits, on the device, for the events that were recorded
 * after the last launches that read the units it overwrites. A launch waits, on the device, for the event recorded
 * after the copy of each unit it reads, unless its stream has waited for that copy or a later one before (the side
 * stream is in order). A unit that a launch holds between begin and end is not overwritten by anybody.
 *
 * What comes next is the trace's business (trace.h). After each launch that used units, copies of expected units are
 * enqueued as far ahead as they do not overwrite a unit that is in use or expected earlier (the *window*).
 *
 * Launches in a row that touch one unit are a *visit* (ring_ahead.c). Its place is free when another unit is touched;
 * or sooner, when as many launches have touched it as ever did in a visit: what the program does next, with resident
 * weights or with none, is time in which the link would wait for a place.
 *
 * A touch that finds its unit not loaded is a miss: the copy is enqueued at once. So is what a graph that turns the
 * ring (below) expects there and does not find. In a hushed pass (profiler.h) nothing is enqueued ahead, and what is
 * missing is copied when the stream has done all that came before: that is no miss.
 *
 * A graph that holds copies of its own turns the ring inside (graph_turn.c). It is handed the ring as a whole: the
 * graph's stream waits for all copies and readers so far, nobody else uses the ring between hand-over and take-over,
 * which are on either side of the driver's launch, and the side stream waits for the graph before any later copy. What
 * the graph expects in the ring and what it leaves there is known beforehand. When nothing came between two launches of
 * a graph, the hand-over asks for nothing, and the second follows the first as closely as the driver lets it.
 *
 * Guarded by the engine's lock, except ov_unit_at, which reads atomics, and `holds`. Events and the stream belong to
 * the engine's context. Nothing here allocates in steady state: events come from a pool that is filled when a plan is
 * made.
 */
#ifndef OV_RING_H
#define OV_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena.h"
#include "event_pool.h"
#include "meter.h"
#include "pace.h"
#include "plan.h"
#include "runtime.h"
#include "timetable.h"
#include "trace.h"

#define OV_READERS 4
#define OV_LANES   64
#define OV_WINDOW  4096u
#define OV_RATES   8u

/* A stream that launches have used. */
struct ov_lane {
    CUstream stream;
    uint64_t thread; /* of a per-thread stream, else 0 */
    uint64_t seen;   /* number of the latest copy that it has waited for */
    uint64_t id;     /* never reused, unlike handles and entries */
};

struct ov_unit {
    uint32_t first, pages; /* of the arena */
    size_t bytes;
    uint64_t begin, end; /* addresses that touch it */
    uint32_t ring_page;
    CUdeviceptr source; /* of its master, when one copy can take all of it; else 0 */
    uint8_t tier;       /* enum ov_tier as it stands, not as planned */
    bool loaded;
    bool on_trial; /* a launch that may write it has it: mapped writable, held until that is judged (watch.h) */
    bool stuck;    /* ... and cannot be given back, because the driver refuses: whoever needs its place gets an error */
    uint8_t paced; /* enum ov_paced */
    bool timed;    /* asked and got were recorded for this load */
    bool copied;   /* sent and came were recorded for this load, and no touch has taken them yet */
    bool by_graph; /* brought by the graph that had the ring last: ring->turned stands for `ready` */
    bool sparse;   /* read in part (density.h): */
    float share;   /* so much of it in a cycle, */
    float reads;   /* by so many launches, */
    uint32_t tests;  /* of which so many were timed after the plan, */
    double tested_s; /* and took so long together */
    _Atomic uint32_t holds;
    uint32_t pending;   /* touches in the window, and the visit under way */
    uint32_t visits;    /* so far, and launches in a row that touched it: */
    uint32_t launches;  /* in this visit, */
    uint32_t most;      /* in one of those before, at most, */
    uint32_t shorter;   /* than which so many in a row were shorter */
    uint64_t load;      /* number of the copy */
    CUevent ready;      /* after the copy */
    CUevent asked, got; /* around the first wait for it, on the stream that waited */
    CUevent sent, came; /* around the copy, when all are timed (timetable.h) */
    uint32_t missed;    /* in steady state (stall.h) */
    uint32_t reader_count;
    struct {
        uint64_t lane;
        CUevent event;
    } reader[OV_READERS]; /* lane: its id */
};

/* Part of a unit on a page that it shares with others. */
struct ov_edge {
    uint64_t begin, end;
    _Atomic uint32_t unit; /* 1 + index, 0: not streamed now */
    uint32_t next;         /* 1 + index, 0: last */
};
/* Special values of ov_arena.unit[]. */
#define OV_UNIT_EDGE 0x80000000u /* bit: the rest is 1 + index of an edge */
#define OV_UNIT_NEAR 0x7ffffffdu /* no unit, but streamed ones may follow in the same allocation (reach.h) */
/* No unit, but host memory that nobody was expected to touch: the plan is outdated. */
#define OV_UNIT_COLD 0x7ffffffeu
/* A host-mapped unit whose readers are timed (density.h). */
#define OV_UNIT_TIMED 0x7fffffffu

struct ov_ring_counts {
    uint64_t timed_bytes, timed_ns; /* of the copies that were timed */
    uint64_t copies, misses, stall_ns, waits;
    uint64_t graphs;         /* launches that turned the ring themselves; their copies are among `copies` */
    uint64_t touches, jumps; /* of earlier plans' traces */
};

/* What a graph that turns the ring expects in it, and leaves. */
struct ov_turn {
    uint64_t id;                        /* of the graph and this very turn; never reused */
    const uint32_t *need, *left, *kept; /* units; kept: there afterwards if they were before. The graph's */
    uint32_t needs, lefts, keeps;
    uint32_t copies;
};

struct ov_graph;

struct ov_ring {
    struct ov_unit *unit; /* and one more, which stands for graphs that turn the ring */
    uint32_t unit_count, streamed_count;
    struct ov_edge *edge;
    uint32_t edge_count;
    uint32_t pages;
    CUmemGenericAllocationHandle *handle;
    CUdeviceptr window; /* a reservation of its own, as long as the ring */
    uint32_t *owner;    /* per ring page: 1 + unit */
    CUstream side;
    struct ov_trace trace;     /* of one unit more, too */
    uint32_t newest;           /* 1 + unit touched last */
    bool left;                 /* its visit is over, as far as it is known */
    uint32_t ahead[OV_WINDOW]; /* the window: circular */
    uint32_t ahead_first, ahead_count;
    uint64_t loads;
    struct ov_lane lane[OV_LANES];
    uint64_t last_lane;
    struct ov_event_pool plain, timed;
    struct ov_meter meter;
    struct ov_timetable timetable;
    struct ov_pace pace;
    double link_bytes_per_s;            /* measured when the first plan was made, */
    struct ov_plan_rate rate[OV_RATES]; /* ... and by size of the copy, ascending */
    unsigned rate_count;
    double rate_share;    /* so much of that copies have while the program computes; 0: not measured */
    bool turning;         /* handed over: a graph is being launched */
    uint64_t last_turn;   /* the turn that left the ring as it is now, 0: something has been done with it since */
    uint64_t turned_lane; /* id of the stream that it ran in */
    struct ov_graph *turned_by;
    unsigned doubted_plan, doubts; /* the plan that a graph found to be of another order, and how often that was so */
    CUevent handed, turned;        /* before and after the last graph that had it */
    CUevent hushed;                /* of a hushed pass: what comes next waits for it */
    struct ov_ring_counts counts;
};

struct ov_engine;

static inline bool ov_units_overlap(const struct ov_unit *a, const struct ov_unit *b)
{
    return a->ring_page < b->ring_page + b->pages && b->ring_page < a->ring_page + a->pages;
}

/* Whether a value of ov_arena.unit[], or what ov_unit_at returned, names a unit. */
static inline bool ov_is_unit(uint32_t unit)
{
    return unit - 1 < OV_UNIT_NEAR - 1;
}

/* 1 + index of the streamed unit that an arena address touches, 0: none; or OV_UNIT_NEAR, _COLD, _TIMED. */
static inline uint32_t ov_unit_at(const struct ov_arena *arena, const struct ov_ring *ring, uint64_t address)
{
    uint32_t unit = atomic_load_explicit(&arena->unit[ov_arena_page(arena, address)], memory_order_relaxed);
    if (__builtin_expect(unit & OV_UNIT_EDGE, 0)) {
        uint32_t at = unit & ~OV_UNIT_EDGE;
        for (unit = 0; at != 0 && unit == 0; at = ring->edge[at - 1].next) {
            const struct ov_edge *edge = &ring->edge[at - 1];
            if (address >= edge->begin && address < edge->end) {
                unit = atomic_load_explicit(&edge->unit, memory_order_relaxed);
            }
        }
        unit = unit != 0 ? unit : OV_UNIT_NEAR;
    }
    return unit;
}

/* Makes the side stream. */
CUresult ov_ring_open(struct ov_engine *engine);
/* Makes the ring `pages` long. Pages that it had and keeps stay what they are, so units in them may stay; units in
 * others may not be there. Nothing on the device may use the window. On failure the ring is as it was. */
CUresult ov_ring_resize(struct ov_engine *engine, uint32_t pages);
/* Looks where the unit's master stands; after it was made or moved. */
void ov_ring_find_master(struct ov_engine *engine, uint32_t unit);
/* Fills the event pools for the units that there are. */
CUresult ov_ring_provide(struct ov_engine *engine);
/* Takes the unit's events back into the pools. */
void ov_ring_recycle(struct ov_ring *ring, struct ov_unit *unit);
/* ring_ahead.c. Copies of what is expected first, after a plan was brought about; and of what is expected next, after a
 * launch that used units. */
void ov_ring_warm(struct ov_engine *engine);
void ov_ring_launched(struct ov_engine *engine);

/* For a launch that may write the unit: brings it into the ring, holds it there, maps it writable. In an exclusive
 * section with an idle device. Not CUDA_SUCCESS: it is as it was. */
CUresult ov_ring_lend(struct ov_engine *engine, uint32_t unit);
/* Afterwards, when it was not written: as before. */
CUresult ov_ring_take_back(struct ov_engine *engine, uint32_t unit);
/* What was written goes to the master. */
CUresult ov_ring_write_back(struct ov_engine *engine, const struct ov_unit *unit);

enum ov_acquire {
    OV_ACQUIRED, /* launch->unit[] are held and visible on the stream */
    OV_BUSY,     /* another thread's launch is in the way: unlock, yield, look again */
    OV_CONFLICT, /* these units cannot be in the ring together */
    OV_REFUSED,  /* the driver refused */
    OV_STALLED,  /* something was missing and is on its way now, and the user wants such launches refused (stall.h) */
};
enum ov_acquire ov_ring_acquire(struct ov_engine *engine, struct ov_launch *launch);
/* What the stream is given from now on comes after all copies so far. */
CUresult ov_ring_hush(struct ov_ring *ring, CUstream stream);
void ov_ring_release(struct ov_engine *engine, struct ov_launch *launch);

/* ring_turn.c. Before and after the driver is given a graph that turns the ring. OV_ACQUIRED: take_over follows.
 * launched false: the driver refused the graph. */
enum ov_acquire ov_ring_hand_over(struct ov_engine *engine, const struct ov_turn *turn, CUstream stream);
void ov_ring_take_over(struct ov_engine *engine, const struct ov_turn *turn, CUstream stream, bool launched);

/* For ring_turn.c and ring_ahead.c: the copy of a unit, after all who read what it replaces; that wait alone; the trace
 * moves on by a unit; nothing is expected any more; the entry of a stream; the host waits for the stream, since no
 * event could be recorded there. */
CUresult ov_ring_load(struct ov_engine *engine, uint32_t index);
/* The same in a hushed pass, which ends if that cannot be waited for. */
CUresult ov_ring_load_alone(struct ov_engine *engine, uint32_t index, CUstream stream);
CUresult ov_ring_wait_for_readers(struct ov_ring *ring, struct ov_unit *owner);
void ov_ring_step(struct ov_ring *ring, uint32_t index);
void ov_ring_drop_window(struct ov_ring *ring);
struct ov_lane *ov_ring_lane(struct ov_ring *ring, CUstream stream);
void ov_ring_wait_instead(CUstream stream);

/* Waits on the host until nobody on the device reads or writes the unit's ring pages. */
CUresult ov_ring_settle(struct ov_engine *engine, struct ov_unit *unit);
/* The unit is streamed from now on: touches find it. */
void ov_ring_add(struct ov_engine *engine, uint32_t unit);
/* The unit is not streamed any more: touches do not find it, the ring forgets it. */
void ov_ring_remove(struct ov_engine *engine, uint32_t unit);
void ov_ring_forget_stream(struct ov_engine *engine, CUstream stream);
/* Frees units, pool and trace; the ring's memory, too. */
void ov_ring_close(struct ov_engine *engine);

#endif
