/*
 * What the two files of stream capture share: sim_capture.c has the model and turns operations into nodes,
 * sim_capture_api.c begins, ends and asks.
 *
 * A capture begins on its origin stream and spreads to a stream that waits for an event recorded in it. Each member
 * stream keeps its frontier: the nodes that its next node will depend on. A captured event keeps a copy of the frontier
 * of its record. A capture is broken ("invalidated") by what must not happen during it; its streams then answer
 * INVALIDATED until its end.
 *
 * Rules of the modes (cuStreamBeginCapture): a call that might disturb a capture is refused to a thread which has a
 * capture of its own that is not RELAXED, and, while its own mode is GLOBAL, whenever any thread has a GLOBAL capture.
 * The refusal breaks those captures. A thread whose own mode is RELAXED is never refused.
 */
#ifndef SIM_CAPTURE_H
#define SIM_CAPTURE_H

#include "sim_program.h"

struct capture {
    struct capture *next;
    struct sim_graph *graph;
    struct sim_thread *thread;
    struct sim_stream *origin;
    CUstreamCaptureMode mode;
    uint64_t id;
    int broken, to_graph; /* to_graph: the graph is the program's own */
    unsigned references;  /* streams and events that point here, and the list of captures */
    int ended;
};

/* A set of nodes with the data of the edges that will start at them. */
struct frontier {
    struct capture *capture;
    struct sim_node **node;
    CUgraphEdgeData *data;
    size_t count, room;
};

extern struct capture *sim_captures; /* those that have begun and not ended */

struct frontier *sim_frontier_make(struct capture *capture);
void sim_frontier_free(struct frontier *frontier);
void sim_frontier_add(struct frontier *frontier, struct sim_node *node, const CUgraphEdgeData *data);
void sim_frontier_join(struct frontier *into, const struct frontier *from);
void sim_capture_put(struct capture *capture);
/* The stream is no longer part of a capture. */
void sim_capture_leave(struct sim_stream *stream);
CUresult sim_capture_broken(const struct sim_stream *stream);
/* Breaks the capture and hands `result` through. */
CUresult sim_capture_break(struct capture *capture, CUresult result);

static inline struct frontier *frontier_of(const struct sim_stream *stream)
{
    return stream->capture;
}

#endif
