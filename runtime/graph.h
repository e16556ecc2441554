/*
 * graph.h - executable graphs of the program: what each one does, and how it is launched when weights are streamed.
 *
 * The program holds a CUgraphExec that the driver made of the program's own graph. Neither is ever changed by us;
 * result codes of every call on them are the driver's. Beside it stands one struct ov_graph, made when the driver has
 * taken a graph in and kept up with every change of the executable graph (graph_update.c). It has
 *
 *   - a *model*: the nodes in an order in which they may run, with what each kernel takes and each copy moves
 *     (graph_model.h). It is read from a private clone, so it stays what the executable graph is when the program
 *     goes on to change or destroy its own graph.
 *   - a *turn*, when weights that it reads are streamed: a second executable graph, made of an augmented clone, which
 *     turns the ring inside. Copies from the masters to the ring are nodes of it, each after the last readers of its
 *     place and before its own first reader (graph_turn.c; which copies and when: graph_schedule.c).
 *
 * How a launch is served is decided at the launch, from what is streamed at that moment (graph_launch.c):
 *
 *   - OV_GRAPH_PLAIN: nothing it uses is streamed. The program's own executable graph.
 *   - OV_GRAPH_TURN: everything it uses is known to be only read. The augmented one.
 *   - OV_GRAPH_REPLAY: a kernel in it is not known well enough, or the ring cannot be turned inside. Its nodes one
 *     after the other, as if the program had launched each (graph_replay.c). Discovery, trials and units that have to
 *     leave the ring are then what they are for any launch.
 *
 * A graph that cannot be cloned, or holds what cannot be replayed, is *pinned*: what it touches leaves the ring before
 * it runs. The decision is kept until anything may have changed that it rests on (ov_graphs_stale).
 *
 * The driver lets launches of one executable graph follow each other, whatever their streams. Since one handle of the
 * program may stand for three things here, each launch waits for the event recorded after the one before.
 *
 * One table for the process, by the program's handle; its lock is a leaf and guards the table alone. A graph's own
 * members belong to whoever works with the executable graph, which the driver leaves to the program to serialise; what
 * is marked "gate" is only read and written inside the gate or in an exclusive section.
 */
#ifndef OV_GRAPH_H
#define OV_GRAPH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <uthash.h>

#include "driver.h"
#include "graph_model.h"
#include "ring.h"

struct ov_engine;

enum ov_graph_way { OV_GRAPH_PLAIN, OV_GRAPH_TURN, OV_GRAPH_REPLAY };

/* The copies of a graph (graph_schedule.c). A step is a node that reads units. */
struct ov_graph_load {
    uint32_t step, unit; /* made for this step; for none of this launch: the number of steps */
};
struct ov_graph_read {
    uint32_t unit, first; /* step */
};
struct ov_graph_schedule {
    struct ov_graph_load *load; /* in the order in which they are made */
    uint32_t loads, tail;       /* from load[tail] on they are for the next launch */
    uint32_t *need, *left;      /* units expected in the ring, and left there */
    uint32_t *kept;             /* units that are not touched: there afterwards if they were before */
    uint32_t needs, lefts, keeps;
    struct ov_graph_read *read;
    uint32_t reads;
    uint64_t begins, ends; /* hashes of what graphs before and after it take account of */
};
struct ov_graph_step {
    const uint32_t *unit;
    uint32_t units;
};
/* What is launched before and after; NULL: not known. */
struct ov_graph_neighbours {
    const struct ov_graph_schedule *before, *after;
};
/* neighbours NULL: it follows itself. False: memory ran out, or a step reads units that are in each other's place. */
bool ov_graph_schedule_make(const struct ov_ring *ring, const struct ov_graph_step *step, uint32_t steps,
                            const struct ov_graph_neighbours *neighbours, struct ov_graph_schedule *out);
bool ov_graph_schedule_same(const struct ov_graph_schedule *a, const struct ov_graph_schedule *b);
void ov_graph_schedule_free(struct ov_graph_schedule *schedule);

/* The executable graph that turns the ring (graph_turn.c). Guarded by the engine's lock. */
struct ov_graph_turn {
    CUgraphExec exec;      /* NULL: none. Without copies the program's own */
    CUgraph graph;         /* what it was made of, NULL: it is the program's own */
    CUgraphNode *node;     /* of that graph, place by place as in the model: names for those of exec */
    bool outdated;         /* parameters were changed that it does not have */
    bool unchecked;        /* the graph may read other units by now */
    uint64_t version;      /* ov_graphs_version when it was last found to be right */
    uint64_t made_of;      /* digest of the units, their places and their masters */
    uint64_t made_for;     /* the same for what it brings in for the next launch */
    uint64_t refused;      /* the same, when it could not be made */
    uint64_t begins, ends; /* of its neighbours, as they were then */
    struct ov_graph_schedule schedule;
    struct ov_turn ring;
    unsigned plan;     /* what stayed in the ring untouched is known by its index in this plan */
    size_t nodes;      /* of exec, if it is not the program's own */
    uint64_t launched; /* number of its last launch */
    unsigned reshaped; /* times it was made anew for its neighbours' sake */
};

/* What a graph is launched beside, as far as nothing used the ring in between. Guarded by the engine's lock. */
struct ov_graph_beside {
    struct ov_graph *graph; /* the last time; NULL: not known */
    unsigned times;         /* in a row */
    struct ov_graph *sure;  /* often enough in a row, and none other since; NULL: itself */
};

struct ov_graph {
    CUgraphExec exec; /* the program's */
    CUgraph clone;    /* NULL: pinned */
    bool pinned;      /* to be launched as it is, or not at all */
    bool unseen;      /* changed while everything fitted, and not looked at since (ov_graph_updated); see there */
    uint8_t looked;   /* how many such changes were looked at */
    bool replayable;  /* all nodes are of kinds that can be launched one by one */
    unsigned long long flags;
    struct ov_graph_model model;
    struct ov_engine *engine; /* whose memory it touches; NULL: nobody's */
    bool spans;               /* it touches the memory of several */
    bool unsettled;           /* nodes were changed since these were found out, which is done at the next launch */
    CUevent done;             /* recorded after each launch that was looked at; */
    CUcontext done_in;        /* of this context, as the stream of the last one */
    bool recorded;
    uint64_t followed; /* ov_graphs_unseen when the last launch that was not looked at was known to be done */
    /* gate: */
    uint64_t decided; /* ov_graphs_version when `way` was decided; 0: never */
    uint64_t cleared; /* the same, when all that it touches was taken out of the ring */
    enum ov_graph_way way;
    bool met;       /* it was launched while a plan stood */
    uint32_t *unit; /* of all nodes; see ov_graph_node.unit */
    uint32_t units, unit_room;
    struct ov_graph_turn turn;
    struct ov_graph_beside before, after;
    UT_hash_handle hh;
};

/* The graph was changed: how it is launched is decided anew. */
static inline void ov_graph_undecided(struct ov_graph *graph)
{
    graph->decided = 0;
    graph->turn.unchecked = true;
}

/* What decisions rest on may have changed: units, their places, masters, what is known of kernels. Raised by whoever
 * changes one of these, while no launch is between its decision and the driver's call. */
extern _Atomic uint64_t ov_graphs_version;
static inline void ov_graphs_stale(void)
{
    atomic_fetch_add_explicit(&ov_graphs_version, 1, memory_order_relaxed);
}

/* Launches of graphs that were not looked at, since nothing was streamed. */
extern _Atomic uint64_t ov_graphs_unseen;

/* ---- graph.c ---- */
/* The graph behind a handle of the program, NULL: not known. */
struct ov_graph *ov_graph_find(CUgraphExec exec);
/* Calls each() for every graph, with the table locked. */
void ov_graphs_each(void (*each)(struct ov_graph *graph, void *context), void *context);
/* The engine is about to be closed: its graphs forget it, and what was made of its ring. */
void ov_graphs_forget(struct ov_engine *engine);
/* The context goes away, and events with it. */
void ov_graphs_context_closing(CUcontext context);
/* After a change of its model: finds out again whose memory it touches, and how it can be launched. */
void ov_graph_settle(struct ov_graph *graph);
/* It is launched as it is from now on. */
void ov_graph_pin(struct ov_graph *graph, const char *why);

/* ---- graph_replay.c ---- */
bool ov_graph_replayable(const struct ov_graph *graph);
CUresult ov_graph_replay(struct ov_graph *graph, CUstream stream);
/* Logs what its kernels touch, for discovery, as if they had been launched. Under the engine's lock. */
void ov_graph_log(const struct ov_graph *graph);

/* ---- graph_turn.c; under the engine's lock ---- */
/* Makes graph->turn for the units that were found, if it is not what it should be. Inside the gate. False: it cannot be
 * made. */
bool ov_graph_turn_make(struct ov_graph *graph);
void ov_graph_turn_drop(struct ov_graph *graph);
/* The same from outside of the lock. */
void ov_graph_turn_end(struct ov_graph *graph);
/* graph_timed.c: a clone with event nodes around its touches, to be launched once in place of what would be, if a pass
 * is being timed; with the copies of its turn or without. NULL: none. */
CUgraphExec ov_graph_timed(struct ov_graph *graph, CUstream stream);
/* Another graph is about to be freed. */
void ov_graph_turn_forget(struct ov_graph *graph, const struct ov_graph *gone);
/* It is about to be launched, and what had the ring last is known. */
void ov_graph_turn_notice(struct ov_graph *graph);

#endif
