/*
 * graph_weave.h - copies from the masters to the ring become nodes of a clone of the program's graph. Which unit is
 * copied when is graph_schedule.c's business.
 *
 *   - All copies are one chain: the link serves one after the other, in the order of their use.
 *   - A copy depends on all nodes that read what it replaces. These are ordinary edges, which wait for the end of a
 *     kernel, also where the program's own edges are programmatic.
 *   - A node that reads a unit depends on the unit's copy. A kernel that starts before its predecessor ends, by a
 *     programmatic edge, does not start before its weights are there.
 *
 * A graph that is launched in a hushed pass (profiler.h) is made so that no node runs beside a copy, as far as the
 * program's own edges order its nodes.
 *
 * A copy is a node of the graph that holds the first reader, which may be a child graph. Nodes of different graphs
 * cannot depend on each other; then what holds them does, up to the graph that they have in common. In the order of the
 * model the nodes of a child stand together, so such an edge never turns back.
 *
 * Under the engine's lock, inside the gate. Errors: false, and the clone is of no use.
 */
#ifndef OV_GRAPH_WEAVE_H
#define OV_GRAPH_WEAVE_H

#include "graph.h"

/* A node while the graph is made: the model's, or a copy. */
struct ov_element {
    CUgraphNode node;
    uint32_t parent; /* 1 + index of the node that holds its graph */
    uint32_t index;  /* in the model, UINT32_MAX: a copy */
};

struct ov_elements {
    struct ov_element *item;
    uint32_t count, room;
};

struct ov_weave {
    struct ov_graph *graph;
    struct ov_engine *engine;
    struct ov_graph_step *step;
    uint32_t *at; /* of each step: its node */
    uint32_t steps;
    struct ov_graph_schedule schedule;
    CUgraph work;
    CUgraphNode *node;          /* of work, as in the model */
    struct ov_element chain;    /* the last copy; node NULL: none yet */
    struct ov_element *copy;    /* per unit: its copy in this pass; node NULL: none */
    struct ov_element *brought; /* of each entry of graph->unit[]: its copy; node NULL: it is there before */
    struct ov_elements *reader; /* per unit: that read what is in its place now */
    uint32_t *owner;            /* per ring page: 1 + unit */
    struct ov_elements before;  /* of the copy that is being made */
    struct ov_element
        edge[64]; /* pairs that were made between nodes of the model, so that none is made twice: a ring */
    uint32_t edges;
    size_t copies, bytes;
    bool hushed; /* a copy also comes after all that its node follows, and the tail after all nodes */
};

/* Fills step, at, steps; allocates. graph and engine are set, all else is zero. To be closed whatever it returns. */
bool ov_weave_open(struct ov_weave *m);
/* Makes work and node[], with the copies that `schedule` asks for. */
bool ov_weave_make(struct ov_weave *m);
/* Nodes of the model, in no other's graph, that none follows. SIZE_MAX: memory ran out. */
size_t ov_weave_last(const struct ov_weave *m, uint32_t *index);
/* One more dependency, between nodes of any of its graphs. */
bool ov_weave_connect(struct ov_weave *m, struct ov_element from, struct ov_element to);
/* Frees what is left; who takes work or node[] over sets them to NULL. */
void ov_weave_close(struct ov_weave *m);

#endif
