/*
 * rig_graph.h - graphs of the rig's kernels: for tests that build, instantiate and replay them.
 */
#ifndef ENGINE_RIG_GRAPH_H
#define ENGINE_RIG_GRAPH_H

#include "rig.h"

/* A node that launches `name` with one block of 32 threads, as rig_launch does. */
CUDA_KERNEL_NODE_PARAMS rig_kernel_node(const struct rig *rig, const char *name, void **params);
/* What was captured on the rig's stream, instantiated. */
CUgraphExec rig_end_capture(const struct rig *rig, CUgraph *graph);
CUgraphExec rig_instantiate(CUgraph graph);
/* Destroys both. */
void rig_drop_graph(CUgraphExec exec, CUgraph graph);

#endif
