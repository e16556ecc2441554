/*
 * graph_model.h - what a graph does, read node by node through the driver's queries.
 *
 * Nodes stand in the order in which the driver lists them, those of a child graph right behind the node that holds it.
 * So two graphs that are clones of each other, or that the driver accepts as an update of each other, have the same
 * nodes at the same places; that is how nodes of one are found in the other.
 *
 *     [0] kernel  [1] child graph  [2] kernel (parent 1)  [3] kernel (parent 1)  [4] copy
 *
 * `order` is an order in which they may run: after all that they depend on, children at the place of their parent, and
 * else as listed, which for captured graphs is the order of the capture.
 *
 * Not thread-safe; no locks. The driver's handles in it belong to the caller.
 */
#ifndef OV_GRAPH_MODEL_H
#define OV_GRAPH_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"
#include "kernel.h"
#include "runtime.h"
#include "scan.h"

struct ov_graph_node {
    CUgraphNode program; /* the program's name for it */
    CUgraphNode node;    /* in the graph that was read */
    CUgraph graph;       /* that holds it */
    CUgraph child;       /* of a child graph node */
    uint32_t parent;     /* 1 + index, 0: top level */
    CUgraphNode within;  /* appended as part of this node of the program, of which no more is known; else NULL */
    CUgraphNodeType type;
    bool enabled;
    bool incomplete;   /* kernel: parameters that cannot be seen; others: what it does cannot be seen */
    CUcontext context; /* kernel: the one it was given, or NULL */
    CUfunction function;
    struct ov_kernel *kernel;
    struct ov_touch *touch; /* kernel: addresses inside the arena */
    uint32_t touches;
    bool exposed;         /* ... and perhaps some of zero-copy memory */
    struct ov_copy *copy; /* copies and fills: what they move; else NULL */
    /* Belongs to graph_launch.c: streamed units of this node, in ov_graph.unit[]. */
    uint32_t unit, units;
};

struct ov_graph_edge {
    uint32_t from, to;
};

struct ov_graph_model {
    struct ov_graph_node *node;
    uint32_t count, room;
    uint32_t next;              /* where a search begins: changes often come in order */
    struct ov_graph_edge *edge; /* by `to`, then by `from` */
    uint32_t edge_count, edge_room;
    uint32_t *order;
    bool opaque; /* a node of a kind that may do anything */
};

/* Reads `graph`. names: the graph that the program knows its nodes by and that `graph` is a clone of, or itself. False:
 * memory ran out, the driver refused, or the two do not match; the model is empty then. */
bool ov_graph_model_read(struct ov_graph_model *model, CUgraph graph, CUgraph names);
void ov_graph_model_free(struct ov_graph_model *model);
/* Index of the node that the program calls `program`, or count. */
uint32_t ov_graph_model_find(struct ov_graph_model *model, CUgraphNode program);
/* Whether both have the same kinds of nodes and the same edges, place by place. */
bool ov_graph_model_same_shape(const struct ov_graph_model *a, const struct ov_graph_model *b);
/* The nodes of a clone of the model's graph, place by place, into node[]. False: they do not match. */
bool ov_graph_model_match(const struct ov_graph_model *model, CUgraph clone, CUgraphNode *node);
bool ov_graph_has_edge(const struct ov_graph_model *model, uint32_t from, uint32_t to);

/* For what is only known as a whole: one more node, in front of none; all nodes of another model, which is empty then,
 * in place of those that were within the same node before. NULL, false: memory ran out. */
struct ov_graph_node *ov_graph_model_append(struct ov_graph_model *model);
bool ov_graph_model_absorb(struct ov_graph_model *model, CUgraphNode within, struct ov_graph_model *other);

/* graph_node.c. What a node does from now on. False: memory ran out. */
bool ov_graph_node_scan(struct ov_graph_node *node, const CUDA_KERNEL_NODE_PARAMS *params);
bool ov_graph_node_copies(struct ov_graph_node *node, const struct ov_copy *copy);
/* The driver's descriptions as spans. */
struct ov_copy ov_graph_copy_of(const CUDA_MEMCPY3D *params);
struct ov_copy ov_graph_fill_of(const CUDA_MEMSET_NODE_PARAMS *params);

#endif
