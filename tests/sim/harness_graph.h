/*
 * What the tests of graphs share: two arrays of words, a stream, and graphs of increments and copies of them.
 */
#ifndef SIM_HARNESS_GRAPH_H
#define SIM_HARNESS_GRAPH_H

#include "harness.h"

enum { WORDS = 256 };

extern CUdeviceptr a, b;  /* WORDS words each: ones, twos */
extern CUstream s;        /* not blocking */
extern CUcontext context; /* the primary one of device 0 */
extern uint64_t words;    /* WORDS, as a parameter */

void graph_prepare(void);
CUgraph new_graph(void);
CUDA_KERNEL_NODE_PARAMS kernel_params(const char *name, void **params);
CUgraphNode add_increment(CUgraph graph, const CUgraphNode *from, size_t count, CUdeviceptr target, uint32_t value);
CUDA_MEMCPY3D copy_params(CUdeviceptr in, CUdeviceptr out);
CUgraphNode add_copy(CUgraph graph, const CUgraphNode *from, size_t count, CUdeviceptr in, CUdeviceptr out);
CUgraphExec instantiate(CUgraph graph);
/* Launches and waits. */
void run(CUgraphExec exec);

#endif
