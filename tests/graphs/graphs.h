/*
 * graphs.h - what the tests of CUDA graphs under the shim share.
 *
 * A test program is an ordinary program on the driver API (engine/rig.h). It runs twice, without the shim and with it,
 * and must print the same both times (transcript.sh); so whatever a program can see of a graph is printed: result
 * codes, counts, the order of nodes, digests of what kernels read. Beside that the rig compares those digests with what
 * the host knows each weight to hold.
 *
 * With the shim, open_streaming() comes back when weights are streamed.
 */
#ifndef GRAPHS_GRAPHS_H
#define GRAPHS_GRAPHS_H

#include "rig.h"

/* Prints one line. Codes are printed by number; a handle never is. */
void say(const char *step, CUresult result);
void tell(const char *what, long long value);
bool with_shim(void);

/* A rig with weights, and passes until they are streamed. */
void open_streaming(struct rig *rig, unsigned count, size_t bytes);
/* The case fails unless weights are streamed at this moment. */
void graphs_streamed(void);

/* Captures one read of every weight in order, weight i to out[i]. */
CUgraph capture_pass(struct rig *rig, CUstream stream, CUstreamCaptureMode mode);
CUgraphExec make_exec(CUgraph graph);
/* What the graphs of this rig have put into out: compared with the copies, and printed as one digest. */
void check_out(struct rig *rig, const char *step);
void clear_out(struct rig *rig, CUstream stream);
/* Clears out, launches on the rig's stream, waits, compares. Prints one line for all. */
void replay(struct rig *rig, CUgraphExec exec, int times);
/* Replays between eager passes; then everything is freed. */
void replay_and_close(struct rig *rig, CUgraph graph, CUgraphExec exec);

/* A kernel node that reads weight `index` to out[slot]. */
CUDA_KERNEL_NODE_PARAMS read_params(const struct rig *rig, void **params);
CUgraphNode add_read(struct rig *rig, CUgraph graph, const CUgraphNode *from, size_t count, unsigned index,
                     unsigned slot);
CUgraph new_graph(void);
/* A chain of such nodes for weights from..to-1, weight i to out[i]; a graph of one for all. */
void add_reads(struct rig *rig, CUgraph graph, unsigned from, unsigned to);
CUgraph chain_of_reads(struct rig *rig);
/* Launches the graph's read of one weight by hand: probe_digest through cuLaunchKernelEx. */
CUresult launch_with(const struct rig *rig, unsigned index, unsigned slot, CUstream stream,
                     CUlaunchAttribute *attribute, unsigned attributes);
/* Kernels of kernels/graph_control.c, which steer the graph they are in. */
CUgraphNode add_control(struct rig *rig, CUgraph graph, const CUgraphNode *from, size_t count, const char *name,
                        void **params);

#endif
