/* Streams: the legacy and per-thread default streams, created ones, and what the host asks of them. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

static uint64_t last_id;

struct sim_stream *sim_stream_make(struct sim_context *context, enum sim_stream_kind kind, int priority)
{
    struct sim_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL) {
        sim_die("out of host memory");
    }
    sim_lane_init(&stream->lane, context, ++last_id);
    stream->kind = kind;
    stream->priority = priority;
    stream->next = context->streams;
    context->streams = stream;
    sim_handle_add(stream, 'S');
    return stream;
}

void sim_stream_drop(struct sim_stream *stream)
{
    struct sim_context *context = stream->lane.context;
    for (struct sim_stream **at = &context->streams; *at != NULL; at = &(*at)->next) {
        if (*at == stream) {
            *at = stream->next;
            break;
        }
    }
    sim_capture_stream_gone(stream);
    sim_vector_join(&context->gone, &stream->lane.clock);
    if (stream->kind != SIM_STREAM_NONBLOCKING) {
        sim_vector_join(&context->gone_blocking, &stream->lane.clock);
    }
    context->gone_ns = context->gone_ns > stream->lane.tail_ns ? context->gone_ns : stream->lane.tail_ns;
    sim_handle_drop(stream);
    sim_lane_retire(&stream->lane);
    free(stream);
}

static struct sim_stream *per_thread_stream(struct sim_call *call)
{
    for (struct sim_stream *stream = call->context->streams; stream != NULL; stream = stream->next) {
        if (stream->kind == SIM_STREAM_PER_THREAD && stream->owner == call->thread) {
            return stream;
        }
    }
    struct sim_stream *stream = sim_stream_make(call->context, SIM_STREAM_PER_THREAD, 0);
    stream->owner = call->thread;
    return stream;
}

CUresult sim_stream_get(struct sim_call *call, CUstream handle, struct sim_stream **out)
{
    if (handle == NULL) {
        handle = call->per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
    }
    if (handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        if (call->context == NULL) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        *out = handle == CU_STREAM_LEGACY ? call->context->legacy : per_thread_stream(call);
        return CUDA_SUCCESS;
    }
    if (!sim_handle_is(handle, 'S')) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *out = (struct sim_stream *)handle;
    return (*out)->lane.context->sticky;
}

CUresult sim_stream_begin(struct sim_call *call, struct sim_stream *stream)
{
    struct sim_context *context = stream->lane.context;
    if (stream->kind == SIM_STREAM_NONBLOCKING) {
        return CUDA_SUCCESS;
    }
    if (stream->kind != SIM_STREAM_LEGACY) {
        sim_lane_follow(&stream->lane, &context->legacy->lane);
        return CUDA_SUCCESS;
    }
    SIM_TRY(sim_capture_legacy(call, context));
    sim_vector_join(&stream->lane.clock, &context->gone_blocking);
    for (struct sim_stream *other = context->streams; other != NULL; other = other->next) {
        if (other != stream && other->kind != SIM_STREAM_NONBLOCKING) {
            sim_lane_follow(&stream->lane, &other->lane);
        }
    }
    return CUDA_SUCCESS;
}

CUresult sim_stream_submit(struct sim_call *call, struct sim_stream *stream, const struct sim_op *op)
{
    SIM_TRY(sim_stream_begin(call, stream));
    return sim_submit(call, &stream->lane, op);
}

CUresult sim_stream_synchronise(struct sim_call *call, struct sim_stream *stream)
{
    if (stream->kind == SIM_STREAM_LEGACY) {
        SIM_TRY(sim_stream_begin(call, stream));
    }
    sim_host_join(&stream->lane.clock);
    sim_wait_until(call, stream->lane.tail_ns);
    sim_pool_settle();
    return stream->lane.context->sticky;
}

/* ---- exported */

static CUresult create(struct sim_call *call, CUstream *out, unsigned flags, int priority)
{
    if (out == NULL || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    priority = priority < SIM_PRIORITY_GREATEST ? SIM_PRIORITY_GREATEST : priority > 0 ? 0 : priority;
    enum sim_stream_kind kind = flags & CU_STREAM_NON_BLOCKING ? SIM_STREAM_NONBLOCKING : SIM_STREAM_BLOCKING;
    *out = (CUstream)sim_stream_make(call->context, kind, priority);
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuStreamCreate, (CUstream * phStream, unsigned int Flags), phStream, Flags)
{
    return create(call, phStream, Flags, 0);
}

SIM_API(SIM_CONTEXT, cuStreamCreateWithPriority, (CUstream * phStream, unsigned int flags, int priority), phStream,
        flags, priority)
{
    return create(call, phStream, flags, priority);
}

SIM_API(SIM_INIT, cuStreamDestroy_v2, (CUstream hStream), hStream)
{
    (void)call;
    if (!sim_handle_is(hStream, 'S')) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    struct sim_stream *stream = (struct sim_stream *)hStream;
    CUresult result = stream->lane.context->sticky;
    sim_stream_drop(stream);
    return result;
}
SIM_API_ALIAS(SIM_INIT, cuStreamDestroy, cuStreamDestroy_v2, (CUstream hStream), hStream)

SIM_API_PTSZ(SIM_CONTEXT, cuStreamSynchronize, (CUstream hStream), hStream)
{
    struct sim_stream *stream;
    SIM_TRY(sim_stream_get(call, hStream, &stream));
    SIM_TRY(sim_capture_forbids(call, stream, NULL));
    return sim_stream_synchronise(call, stream);
}

SIM_API_PTSZ(SIM_CONTEXT, cuStreamQuery, (CUstream hStream), hStream)
{
    struct sim_stream *stream;
    SIM_TRY(sim_stream_get(call, hStream, &stream));
    SIM_TRY(sim_capture_forbids(call, stream, NULL));
    if (stream->kind == SIM_STREAM_LEGACY) {
        SIM_TRY(sim_stream_begin(call, stream));
    }
    sim_charge(call, sim_knobs.query_ns);
    if (stream->lane.tail_ns > sim_now(call)) {
        return CUDA_ERROR_NOT_READY;
    }
    sim_host_join(&stream->lane.clock);
    return CUDA_SUCCESS;
}

SIM_API_PTSZ(SIM_CONTEXT, cuStreamGetFlags, (CUstream hStream, unsigned int *flags), hStream, flags)
{
    struct sim_stream *stream;
    SIM_TRY(sim_stream_get(call, hStream, &stream));
    if (flags == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = stream->kind == SIM_STREAM_NONBLOCKING ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT;
    return CUDA_SUCCESS;
}

SIM_API_PTSZ(SIM_CONTEXT, cuStreamGetPriority, (CUstream hStream, int *priority), hStream, priority)
{
    struct sim_stream *stream;
    SIM_TRY(sim_stream_get(call, hStream, &stream));
    if (priority == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *priority = stream->priority;
    return CUDA_SUCCESS;
}

SIM_API_PTSZ(SIM_CONTEXT, cuStreamGetId, (CUstream hStream, unsigned long long *streamId), hStream, streamId)
{
    struct sim_stream *stream;
    SIM_TRY(sim_stream_get(call, hStream, &stream));
    if (streamId == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *streamId = stream->lane.id;
    return CUDA_SUCCESS;
}

SIM_API_PTSZ(SIM_CONTEXT, cuStreamGetCtx, (CUstream hStream, CUcontext *pctx), hStream, pctx)
{
    struct sim_stream *stream;
    SIM_TRY(sim_stream_get(call, hStream, &stream));
    if (pctx == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pctx = (CUcontext)stream->lane.context;
    return CUDA_SUCCESS;
}

#if CUDA_VERSION >= 12050
SIM_API_PTSZ(SIM_CONTEXT, cuStreamGetCtx_v2, (CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx), hStream, pCtx,
             pGreenCtx)
{
    struct sim_stream *stream;
    SIM_TRY(sim_stream_get(call, hStream, &stream));
    if (pCtx == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pCtx = (CUcontext)stream->lane.context;
    if (pGreenCtx != NULL) {
        *pGreenCtx = NULL;
    }
    return CUDA_SUCCESS;
}
#endif

SIM_API_PTSZ(SIM_CONTEXT, cuStreamGetDevice, (CUstream hStream, CUdevice *device), hStream, device)
{
    struct sim_stream *stream;
    SIM_TRY(sim_stream_get(call, hStream, &stream));
    if (device == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *device = stream->lane.context->device->ordinal;
    return CUDA_SUCCESS;
}

SIM_API_PTSZ(SIM_CONTEXT, cuStreamSetAttribute, (CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue *value),
             hStream, attr, value)
{
    struct sim_stream *stream;
    (void)attr;
    SIM_TRY(sim_stream_get(call, hStream, &stream));
    return value != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API_PTSZ(SIM_CONTEXT, cuStreamGetAttribute, (CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue *value),
             hStream, attr, value)
{
    struct sim_stream *stream;
    SIM_TRY(sim_stream_get(call, hStream, &stream));
    if (value == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memset(value, 0, sizeof *value);
    if (attr == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
        value->priority = stream->priority;
    }
    return CUDA_SUCCESS;
}

SIM_API_PTSZ(SIM_CONTEXT, cuStreamCopyAttributes, (CUstream dst, CUstream src), dst, src)
{
    struct sim_stream *first, *second;
    SIM_TRY(sim_stream_get(call, dst, &first));
    return sim_stream_get(call, src, &second);
}

SIM_API_PTSZ(SIM_CONTEXT, cuStreamAttachMemAsync,
             (CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags), hStream, dptr, length, flags)
{
    struct sim_stream *stream;
    (void)length;
    SIM_TRY(sim_stream_get(call, hStream, &stream));
    const struct sim_range *range = sim_range_find(dptr);
    if (range == NULL || range->kind != SIM_RANGE_MANAGED || flags == 0 || flags > 7) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}
