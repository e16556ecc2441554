/* Stream capture: begin, end, questions. See sim_capture.h. */
#define _GNU_SOURCE
#include "sim_capture.h"

#include <stdlib.h>
#include <string.h>

static uint64_t last_id;

/* ---- begin ---- */

static CUresult begin(struct sim_call *call, CUstream handle, struct sim_graph *graph, CUstreamCaptureMode mode,
                      struct sim_stream **out)
{
    struct sim_stream *stream;
    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_stream_get(call, handle, &stream));
    if (stream->kind == SIM_STREAM_LEGACY)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture != NULL)
        return CUDA_ERROR_ILLEGAL_STATE;
    struct capture *capture = calloc(1, sizeof *capture);
    if (capture == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *capture = (struct capture){.next = sim_captures,
                                .graph = graph,
                                .thread = call->thread,
                                .origin = stream,
                                .mode = mode,
                                .id = ++last_id,
                                .to_graph = graph != NULL,
                                .references = 1};
    if (graph == NULL) {
        CUresult result = sim_graph_make(&capture->graph);
        if (result != CUDA_SUCCESS) {
            free(capture);
            return result;
        }
        capture->graph->borrowed = 1;
    }
    sim_captures = capture;
    stream->capture = sim_frontier_make(capture);
    *out = stream;
    return CUDA_SUCCESS;
}

SIM_API_PTSZ(SIM_CONTEXT, cuStreamBeginCapture, (CUstream hStream), hStream)
{
    struct sim_stream *stream;
    return begin(call, hStream, NULL, CU_STREAM_CAPTURE_MODE_GLOBAL, &stream);
}

SIM_API_PTSZ(SIM_CONTEXT, cuStreamBeginCapture_v2, (CUstream hStream, CUstreamCaptureMode mode), hStream, mode)
{
    struct sim_stream *stream;
    return begin(call, hStream, NULL, mode, &stream);
}

SIM_API_PTSZ(SIM_CONTEXT, cuStreamBeginCaptureToGraph,
             (CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
              size_t numDependencies, CUstreamCaptureMode mode),
             hStream, hGraph, dependencies, dependencyData, numDependencies, mode)
{
    struct sim_graph *graph;
    struct sim_stream *stream;
    struct sim_node *node;
    SIM_TRY(sim_graph_get(hGraph, &graph));
    if (numDependencies != 0 && dependencies == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < numDependencies; i++) {
        SIM_TRY(sim_node_get(dependencies[i], &node));
        if (node->graph != graph)
            return CUDA_ERROR_INVALID_VALUE;
    }
    SIM_TRY(begin(call, hStream, graph, mode, &stream));
    for (size_t i = 0; i < numDependencies; i++)
        sim_frontier_add(frontier_of(stream), (struct sim_node *)dependencies[i],
                         dependencyData != NULL ? &dependencyData[i] : NULL);
    return CUDA_SUCCESS;
}

/* ---- end ---- */

/* What other streams captured must have come back to the origin. */
static int unjoined(struct capture *capture, const struct sim_stream *stream)
{
    const struct frontier *other = frontier_of(stream), *end = frontier_of(capture->origin);
    for (size_t i = 0; i < other->count; i++) {
        int joined = 0;
        for (size_t k = 0; k < end->count && !joined; k++)
            joined = sim_node_reaches(capture->graph, other->node[i], end->node[k]);
        if (!joined)
            return 1;
    }
    return 0;
}

/* Visits every stream of the process that belongs to the capture. */
static int for_members(struct capture *capture, int leaving)
{
    int open = 0;
    for (int d = 0; d < sim_knobs.devices; d++) {
        for (struct sim_context *context = sim_devices[d].contexts; context != NULL;
             context = context->next_of_device) {
            for (struct sim_stream *stream = context->streams; stream != NULL; stream = stream->next) {
                if (stream->capture == NULL || frontier_of(stream)->capture != capture)
                    continue;
                if (leaving)
                    sim_capture_leave(stream);
                else if (stream != capture->origin)
                    open |= unjoined(capture, stream);
            }
        }
    }
    return open;
}

static void finish(struct capture *capture)
{
    for (struct capture **at = &sim_captures; *at != NULL; at = &(*at)->next) {
        if (*at == capture) {
            *at = capture->next;
            break;
        }
    }
    for_members(capture, 1);
    capture->ended = 1;
    sim_capture_put(capture);
}

SIM_API_PTSZ(SIM_CONTEXT, cuStreamEndCapture, (CUstream hStream, CUgraph *phGraph), hStream, phGraph)
{
    struct sim_stream *stream;
    SIM_TRY(sim_stream_get(call, hStream, &stream));
    if (phGraph == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture == NULL)
        return CUDA_ERROR_ILLEGAL_STATE;
    struct capture *capture = frontier_of(stream)->capture;
    if (capture->origin != stream)
        return sim_capture_break(capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != call->thread)
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    CUresult result = sim_capture_broken(stream);
    if (result != CUDA_SUCCESS)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (for_members(capture, 0))
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    struct sim_graph *graph = capture->graph;
    int own = !capture->to_graph;
    finish(capture);
    if (result == CUDA_SUCCESS) {
        graph->borrowed = own ? 0 : graph->borrowed;
        *phGraph = (CUgraph)graph;
        return CUDA_SUCCESS;
    }
    if (own)
        sim_graph_free(graph);
    *phGraph = NULL; /* the real driver clears it on a failed end */
    return result;
}

/* ---- questions ---- */

static CUstreamCaptureStatus status_of(const struct sim_stream *stream)
{
    if (stream->capture == NULL)
        return CU_STREAM_CAPTURE_STATUS_NONE;
    return frontier_of(stream)->capture->broken ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                                : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

SIM_API_PTSZ(SIM_CONTEXT, cuStreamIsCapturing, (CUstream hStream, CUstreamCaptureStatus *captureStatus), hStream,
             captureStatus)
{
    struct sim_stream *stream;
    SIM_TRY(sim_stream_get(call, hStream, &stream));
    if (captureStatus == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->kind == SIM_STREAM_LEGACY)
        SIM_TRY(sim_capture_legacy(call, stream->lane.context));
    *captureStatus = status_of(stream);
    return CUDA_SUCCESS;
}

struct capture_info {
    CUstreamCaptureStatus *status;
    cuuint64_t *id;
    CUgraph *graph;
    const CUgraphNode **nodes;
    const CUgraphEdgeData **data;
    size_t *count;
};

static CUresult tell(struct sim_call *call, CUstream handle, const struct capture_info *out)
{
    struct sim_stream *stream;
    SIM_TRY(sim_stream_get(call, handle, &stream));
    if (out->status == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->kind == SIM_STREAM_LEGACY)
        SIM_TRY(sim_capture_legacy(call, stream->lane.context));
    *out->status = status_of(stream);
    if (*out->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return CUDA_SUCCESS;
    const struct frontier *frontier = frontier_of(stream);
    static const CUgraphEdgeData plain;
    for (size_t i = 0; out->nodes != NULL && out->data == NULL && i < frontier->count; i++)
        if (memcmp(&frontier->data[i], &plain, sizeof plain) != 0)
            return CUDA_ERROR_LOSSY_QUERY;
    if (out->id != NULL)
        *out->id = frontier->capture->id;
    if (out->graph != NULL)
        *out->graph = (CUgraph)frontier->capture->graph;
    if (out->nodes != NULL)
        *out->nodes = (const CUgraphNode *)frontier->node;
    if (out->data != NULL)
        *out->data = frontier->data;
    if (out->count != NULL)
        *out->count = frontier->count;
    return CUDA_SUCCESS;
}

SIM_API_PTSZ(SIM_CONTEXT, cuStreamGetCaptureInfo,
             (CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out), hStream,
             captureStatus_out, id_out)
{
    return tell(call, hStream, &(const struct capture_info){.status = captureStatus_out, .id = id_out});
}

SIM_API_PTSZ(SIM_CONTEXT, cuStreamGetCaptureInfo_v2,
             (CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out, CUgraph *graph_out,
              const CUgraphNode **dependencies_out, size_t *numDependencies_out),
             hStream, captureStatus_out, id_out, graph_out, dependencies_out, numDependencies_out)
{
    return tell(call, hStream,
                &(const struct capture_info){captureStatus_out, id_out, graph_out, dependencies_out, NULL,
                                             numDependencies_out});
}

SIM_API_PTSZ(SIM_CONTEXT, cuStreamGetCaptureInfo_v3,
             (CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out, CUgraph *graph_out,
              const CUgraphNode **dependencies_out, const CUgraphEdgeData **edgeData_out, size_t *numDependencies_out),
             hStream, captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out, numDependencies_out)
{
    return tell(call, hStream,
                &(const struct capture_info){captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out,
                                             numDependencies_out});
}

static CUresult change_frontier(struct sim_call *call, CUstream handle, CUgraphNode *nodes, const CUgraphEdgeData *data,
                                size_t count, unsigned flags)
{
    struct sim_stream *stream;
    struct sim_node *node;
    SIM_TRY(sim_stream_get(call, handle, &stream));
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || (count != 0 && nodes == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture == NULL)
        return CUDA_ERROR_ILLEGAL_STATE;
    SIM_TRY(sim_capture_broken(stream));
    struct frontier *frontier = frontier_of(stream);
    for (size_t i = 0; i < count; i++) {
        SIM_TRY(sim_node_get(nodes[i], &node));
        if (node->graph != frontier->capture->graph)
            return CUDA_ERROR_INVALID_VALUE;
    }
    struct frontier *fresh = sim_frontier_make(frontier->capture); /* `nodes` may be the frontier itself */
    if (flags != CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        sim_frontier_join(fresh, frontier);
    for (size_t i = 0; i < count; i++)
        sim_frontier_add(fresh, (struct sim_node *)nodes[i], data != NULL ? &data[i] : NULL);
    sim_capture_leave(stream);
    stream->capture = fresh;
    return CUDA_SUCCESS;
}

SIM_API_PTSZ(SIM_CONTEXT, cuStreamUpdateCaptureDependencies,
             (CUstream hStream, CUgraphNode *dependencies, size_t numDependencies, unsigned int flags), hStream,
             dependencies, numDependencies, flags)
{
    return change_frontier(call, hStream, dependencies, NULL, numDependencies, flags);
}

SIM_API_PTSZ(SIM_CONTEXT, cuStreamUpdateCaptureDependencies_v2,
             (CUstream hStream, CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
              size_t numDependencies, unsigned int flags),
             hStream, dependencies, dependencyData, numDependencies, flags)
{
    return change_frontier(call, hStream, dependencies, dependencyData, numDependencies, flags);
}

SIM_API(SIM_INIT, cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode), mode)
{
    if (mode == NULL || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode old = call->thread->capture_mode;
    call->thread->capture_mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}
