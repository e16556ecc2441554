/*
 * graph_source.h - what an executable graph reads from host memory whenever it is launched: the sources of its copies,
 * and the zero-copy memory that its kernels take. The program may store other bytes there before each launch, addresses
 * among them, so both are searched at each launch (search.h, zerocopy.h).
 *
 * One list for each executable graph, made when it is instantiated or updated. Entries carry the node they come from,
 * so that setting a node's parameters replaces its own and nothing else. A source may outlive its memory, when nodes
 * are renamed by an update and set by their old names: then it is left out by what reads it, not an error.
 *
 * One table for the process; its lock is a leaf. The functions that the hooks call are in runtime.h: ov_graph_taken_in,
 * ov_graph_copy_set, ov_graph_kernel_set, ov_graph_destroying. Without memory for an entry nothing is streamed any
 * more.
 */
#ifndef OV_GRAPH_SOURCE_H
#define OV_GRAPH_SOURCE_H

#include "driver.h"

/* Searches what the graph will read. Inside the gate; as ov_search. */
CUresult ov_graph_source_search(CUgraphExec exec);

#endif
