/*
 * graph_source.h - what an executable graph reads from host memory whenever it is launched: the sources of its copies,
 * and the zero-copy memory that its kernels take. The program may store other bytes there before each launch, addresses
 * among them, so both are searched at each launch (search.h, zerocopy.h).
 *
 * One list for each executable graph, made when it is instantiated or updated. Entries carry the node they come from,
 * so that setting a node's parameters replaces its own and nothing else. A source may outlive its memory, when nodes
 * are renamed by an update and set by their old names: then it is left out by what reads it, not an error.
 *
 * One table for the process; its lock is a leaf. Without memory for an entry nothing is streamed any more.
 */
#ifndef OV_GRAPH_SOURCE_H
#define OV_GRAPH_SOURCE_H

#include <stdbool.h>

#include "driver.h"
#include "runtime.h"

/* The driver has taken the graph in. whole: it is now what the executable graph is; else a child of it. */
void ov_graph_source_taken_in(CUgraphExec exec, CUgraph graph, bool whole);
/* A node was given other parameters. */
void ov_graph_source_copy(CUgraphExec exec, CUgraphNode node, const struct ov_copy *copy);
void ov_graph_source_kernel(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params);
void ov_graph_source_forget(CUgraphExec exec);
/* Searches what the graph will read. Inside the gate; as ov_search. */
CUresult ov_graph_source_search(CUgraphExec exec);

#endif
