/*
 * graph.h - executable graphs of the program: what each one does, and how it is launched when weights are streamed.
 *
 * The program holds a CUgraphExec that the driver made of the program's own graph. Neither is ever changed by us;
 * result codes of every call on them are the driver's. Beside it stands one struct ov_graph, made when the driver has
 * taken a graph in and kept up with every change of the executable graph:
 *
 *   model    its nodes in an order in which they may run, with what each kernel takes and each copy moves
 *            (graph_model.h). Made of a private clone, so it stays what the executable graph is when the program goes
 * on to change or destroy its own graph. turning  a second executable graph, made of an augmented clone when weights
 * that it reads are streamed: copies from the masters to the ring run inside it, each after the last readers of its
 * place and before its own first reader (graph_turn.c).
 *
 * How a launch is served is decided at the launch, from what is streamed at that moment (graph_launch.c):
 *   OV_GRAPH_PLAIN   nothing it uses is streamed: the program's own executable graph
 *   OV_GRAPH_TURN    everything it uses is known to be only read: the augmented one
 *   OV_GRAPH_REPLAY  a kernel in it is not known well enough, or the ring cannot be turned inside: its nodes one after
 *                    the other, as if the program had launched each (graph_replay.c). Discovery, trials and units that
 *                    have to leave the ring are then what they are for any launch.
 * A graph that cannot be cloned, or holds what cannot be replayed, is *pinned*: what it touches leaves the ring before
 * it runs. The decision is kept until anything may have changed what it rests on (ov_graphs_stale).
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

/* The executable graph that turns the ring (graph_turn.c). */
struct ov_graph_turn {
    CUgraphExec exec;  /* NULL: none */
    CUgraph graph;     /* what it was made of */
    CUgraphNode *node; /* of that graph, place by place as in the model: names for those of exec */
    uint64_t made_of;  /* digest of the units, their places and their masters */
    struct ov_turn ring;
    size_t copies, bytes; /* of one launch */
};

struct ov_graph {
    CUgraphExec exec; /* the program's */
    CUgraph clone;    /* NULL: pinned */
    bool pinned;      /* to be launched as it is, or not at all */
    bool replayable;  /* all nodes are of kinds that can be launched one by one */
    unsigned long long flags;
    struct ov_graph_model model;
    struct ov_engine *engine; /* whose memory it touches; NULL: nobody's */
    bool spans;               /* it touches the memory of several */
    CUevent done;             /* recorded after each launch that was looked at */
    bool recorded;
    bool followed; /* launches before the first recorded one were waited for */
    /* gate: */
    uint64_t decided; /* ov_graphs_version when `way` was decided; 0: never */
    uint64_t cleared; /* the same, when all that it touches was taken out of the ring */
    enum ov_graph_way way;
    uint32_t *unit; /* of all nodes; see ov_graph_node.unit */
    uint32_t units, unit_room;
    struct ov_graph_turn turn;
    UT_hash_handle hh;
};

/* What decisions rest on may have changed: units, their places, masters, what is known of kernels. Raised by whoever
 * changes one of these, while no launch is between its decision and the driver's call. */
extern _Atomic uint64_t ov_graphs_version;
static inline void ov_graphs_stale(void)
{
    atomic_fetch_add_explicit(&ov_graphs_version, 1, memory_order_relaxed);
}

/* ---- graph.c ---- */
/* The graph behind a handle of the program, NULL: not known. */
struct ov_graph *ov_graph_find(CUgraphExec exec);
/* The engine is about to be closed: its graphs forget it, and what was made of its ring. */
void ov_graphs_forget(const struct ov_engine *engine);
/* After a change of its model: finds out again whose memory it touches, and how it can be launched. */
void ov_graph_settle(struct ov_graph *graph);
/* It is launched as it is from now on. */
void ov_graph_pin(struct ov_graph *graph, const char *why);

/* ---- graph_replay.c ---- */
bool ov_graph_replayable(const struct ov_graph *graph);
CUresult ov_graph_replay(struct ov_graph *graph, CUstream stream);
/* Logs what its kernels touch, for discovery, as if they had been launched. Under the engine's lock. */
void ov_graph_log(const struct ov_graph *graph);

/* ---- graph_turn.c; inside the gate ---- */
/* Makes graph->turn for the units that were found. False: it cannot be. */
bool ov_graph_turn_make(struct ov_graph *graph);
void ov_graph_turn_drop(struct ov_graph *graph);

/* ---- graph_schedule.c ---- */
/* The order of copies for a sequence of steps, each of which reads units; see there. */
struct ov_graph_load {
    uint32_t step, unit; /* before this step; a tail's step is the number of steps */
};
struct ov_graph_schedule {
    struct ov_graph_load *load; /* in the order in which they are made */
    uint32_t loads;
    uint32_t *need, *left; /* see struct ov_turn */
    uint32_t needs, lefts;
};
struct ov_graph_step {
    const uint32_t *unit;
    uint32_t units;
};
/* False: memory ran out, or a step reads units that are in each other's place. */
bool ov_graph_schedule_make(const struct ov_ring *ring, const struct ov_graph_step *step, uint32_t steps,
                            struct ov_graph_schedule *out);
void ov_graph_schedule_free(struct ov_graph_schedule *schedule);

#endif
