/*
 * profiler.h - how long the program computes from one touch of the cycle to the next.
 *
 * After a plan was brought about, launches are followed through the cycle that was learned (learn.h), those on resident
 * and host-mapped units, too. An *interval* is what lies between two touches: it begins when the launch has what it
 * waits for, and ends where the next one begins to wait. So copies are not in it, whatever the plan, but what they take
 * of the device's memory bandwidth meanwhile, and the pauses that the program makes itself.
 *
 *     ... wait | interval i: launches of the touch, and others | wait | interval i + 1 ...
 *           from                                               to   from
 *
 * Both ends are events that take the time, recorded on the launch's stream; where there is nothing to wait for, one is
 * both. A launch that touches several units at once waits for all of them: all its intervals but the last are empty. An
 * interval that begins on one stream and ends on another, or has a trial in it, tells nothing and is left out.
 *
 * A *slot* holds the samples of one pass through the cycle. A touch that is not the next one drops the pass that is
 * under way, and the cycle's first touch begins another. When that happens too often the program has no such cycle, and
 * profiling ends without a result. Samples are read when their events are over, at quiet points and where a pass could
 * begin for which there is no slot otherwise; nobody waits for them.
 *
 *   off > seeking > following > done > off
 *
 * The first `beside` passes are as they are, with copies beside kernels. Then, since copies take of the memory
 * bandwidth that kernels could have, come some *hushed* passes: a copy is made only when a launch waits for it, and
 * after all that the launch's stream was given before, so no kernel runs beside one. Such a pass takes no longer than
 * its copies and its computation together. What both differ in is interference (interference.h). What is waited for
 * then is no miss, and counts nowhere. A hushed pass begins when all copies so far are waited for; there is none where
 * a miss may refuse a launch (OVERSHOT_STALL=error).
 *
 * A graph is launched without coming here node by node. For a pass that is timed a clone is launched in its place, with
 * the same nodes, the same copies, and event nodes around the touches (graph_timed.c); it is used once. What a driver
 * says of such an event before its node ran, nobody knows: such passes are read when an event is over that was recorded
 * after the last clone. And none of a clone that never runs: what ended in it is dropped.
 *
 * What comes of it is judged in retime.h. Guarded by the engine's lock; memory and events are made when profiling
 * begins, in an exclusive section, and given back at the quiet point at which it ends. The events belong to the
 * engine's context.
 */
#ifndef OV_PROFILER_H
#define OV_PROFILER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"
#include "scan.h"

/* Longer cycles are not timed: an interval has up to two events. */
#define OV_PROFILER_EVENTS 16384u
/* And passes, at most (options.def), without those that are hushed. */
#define OV_PROFILER_PASSES 16u
/* Of those, so many: in one of two something else may be in the way, and each costs the program the overlap of a pass.
 */
#define OV_PROFILER_HUSHED 2u

enum ov_profiler_phase {
    OV_PROFILER_OFF,
    OV_PROFILER_SEEKING,   /* the beginning of the cycle */
    OV_PROFILER_FOLLOWING, /* in the cycle */
    OV_PROFILER_DONE,      /* the samples that there are will be all: enough, or it was given up */
};

/* Clones of graphs that are kept until their events were read; a pass of more is not timed, and none begins that would
 * not find room for as many as those before it took. */
#define OV_PROFILER_GRAPHS 64u

struct ov_sample {
    CUevent from, to; /* NULL: empty, or left out */
    struct {
        CUevent begin, end;
    } skip[2]; /* what is not counted: ov_profiler_pause, ov_profiler_end_graph; NULL: nothing */
    bool empty;
};

struct ov_profiler {
    enum ov_profiler_phase phase;
    uint32_t *cycle; /* as it was learned */
    uint32_t length;
    unsigned plan;    /* and under which plan */
    uint64_t studied; /* and from what */
    /* Where the program is. */
    uint32_t at;   /* entry of the cycle, when following */
    uint32_t last; /* 1 + unit that was touched last, 0: none */
    CUstream stream;
    uint32_t step[OV_TOUCHES]; /* of the launch under way: the touches that it brings */
    uint32_t steps;
    uint64_t waits; /* of the ring, when the launch began */
    CUevent ended;  /* the end of the interval before */
    /* Passes. */
    uint32_t slots;
    uint32_t slot;            /* being filled; those from `oldest` on are waited for */
    uint32_t oldest, full;    /* full: how many of them */
    struct ov_sample *sample; /* slots x length */
    CUevent *event;           /* slots x events_per_slot */
    uint32_t events_per_slot, used;
    uint32_t wanted, passes; /* passes that are to be timed, and that were */
    uint32_t beside;         /* of the wanted ones, with copies beside kernels: the first ones */
    bool hushed;             /* the one under way is */
    bool may_hush;           /* whoever moves on lets a hushed one begin there */
    uint32_t unhushed;       /* hushed ones that were broken off */
    float *seconds;          /* wanted x length; negative: not known */
    uint32_t late_at;        /* 1 + interval that the launch under way ends late, 0: none */
    uint8_t *late; /* per interval: passes beside copies in which the stream had nothing left to do at its end */
    uint32_t surprises;
    uint64_t sought; /* touches while seeking */
    struct {
        CUgraphExec exec;
        CUgraph graph;
    } graph[OV_PROFILER_GRAPHS];
    uint32_t graphs;
    uint32_t launching; /* clones that are being made, or that the driver has not been given yet */
    uint32_t sound;     /* of the full passes: those that end in none of these */
    CUevent launched;   /* after the last one that it was */
    bool any_launched;
    struct ov_sample *pausing; /* the interval under way, from ov_profiler_pause on */
};

struct ov_engine;
struct ov_launch;

/* Begins, if it is wanted and there is a cycle that can be timed; else ends. In an exclusive section. */
void ov_profiler_begin(struct ov_engine *engine, bool wanted);
/* Ends, and gives back what it holds. */
void ov_profiler_end(struct ov_engine *engine);
void ov_profiler_close(struct ov_engine *engine);
static inline bool ov_profiler_on(const struct ov_profiler *profiler)
{
    return profiler->phase == OV_PROFILER_SEEKING || profiler->phase == OV_PROFILER_FOLLOWING;
}

/* Passes that were timed with copies beside kernels; the other ones were hushed. */
static inline uint32_t ov_profiler_beside(const struct ov_profiler *profiler)
{
    return profiler->passes < profiler->beside ? profiler->passes : profiler->beside;
}

/* Around what the launch waits for: before its units are acquired, and after they were. Only if ov_profiler_on. */
void ov_profiler_arrive(struct ov_engine *engine, const struct ov_launch *launch, const struct ov_touches *touches);
void ov_profiler_depart(struct ov_engine *engine, const struct ov_launch *launch);

/* For graph_timed.c. Whether a graph that reads `touches` is to be hushed: the pass under way is, or begins with it. */
bool ov_profiler_hushes(struct ov_engine *engine, const struct ov_touches *touches);
/* In this order, for each node that touches units. The touches that a node brings, false: none.
 * Moves on by them; `ended` was before what the node waits for, NULL: not known. If it then follows: `from` is after
 * that. */
bool ov_profiler_meet(struct ov_engine *engine, const struct ov_touches *touches);
/* Whether the cycle's first touch may be one of them. */
bool ov_profiler_begins(struct ov_engine *engine, const struct ov_touches *touches);
void ov_profiler_advance(struct ov_profiler *profiler, CUevent ended);
void ov_profiler_start(struct ov_profiler *profiler, CUevent from, CUstream stream);
/* If a hushed pass began with that: before `from`, the stream waits for all copies so far. */
void ov_profiler_hush(struct ov_engine *engine, CUstream stream);
/* An event for one of both; NULL: there are no more. */
CUevent ov_profiler_event(struct ov_profiler *profiler);
/* A clone is being made; it belongs to the profiler from now on, and is about to be launched; it has been, on the
 * stream; or it could not be made, or was refused; or what happens now is not known. */
void ov_profiler_launching(struct ov_profiler *profiler);
void ov_profiler_keep(struct ov_profiler *profiler, CUgraphExec exec, CUgraph graph);
void ov_profiler_launched(struct ov_profiler *profiler, CUstream stream);
void ov_profiler_refused(struct ov_profiler *profiler);
void ov_profiler_lose(struct ov_profiler *profiler);

/* Whether a pass may begin: there is a slot, and room for clones. Reads what is over if there is not. */
bool ov_profiler_has_room(struct ov_profiler *profiler);

/* Around all that is done before the driver is given a graph: copies that are waited for, and making the clone. The
 * interval under way gets no longer by that. Only if ov_profiler_on. */
void ov_profiler_pause(struct ov_profiler *profiler, CUstream stream);
void ov_profiler_resume(struct ov_profiler *profiler, CUstream stream);

/* After the last node: copies for who comes next keep the graph from being over until `copied`, while its own nodes are
 * done at `ended`. */
void ov_profiler_end_graph(struct ov_profiler *profiler, CUevent ended, CUevent copied);

/* At a quiet point: reads the samples that are over. True: all there will be are read, and `seconds` holds `passes` of
 * them; ov_profiler_end follows. */
bool ov_profiler_collect(struct ov_engine *engine);
/* Of an interval in passes from `first` to before `end`; negative: it could not be timed. */
double ov_profiler_median(const struct ov_profiler *profiler, uint32_t at, uint32_t first, uint32_t end);

#endif
