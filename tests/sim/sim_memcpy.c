/* The exported copies: every form fills a CUDA_MEMCPY3D and hands it to one of two doors, synchronous or not. */
#include "sim.h"

#include <string.h>

static CUDA_MEMCPY3D linear(CUmemorytype to_type, uint64_t to, CUmemorytype from_type, uint64_t from, uint64_t bytes)
{
    CUDA_MEMCPY3D copy = {
        .WidthInBytes = bytes, .Height = 1, .Depth = 1, .dstMemoryType = to_type, .srcMemoryType = from_type};
    if (to_type == CU_MEMORYTYPE_HOST) {
        copy.dstHost = (void *)(uintptr_t)to;
    } else {
        copy.dstDevice = to;
    }
    if (from_type == CU_MEMORYTYPE_HOST) {
        copy.srcHost = (const void *)(uintptr_t)from;
    } else {
        copy.srcDevice = from;
    }
    return copy;
}

static CUresult submit(struct sim_call *call, CUstream handle, const CUDA_MEMCPY3D *copy, struct sim_stream **out)
{
    SIM_TRY(sim_stream_get(call, handle, out));
    if (sim_stream_is_capturing(*out)) {
        SIM_TRY(sim_copy_check(call, &(*out)->lane, copy));
        return sim_capture_memcpy(call, *out, copy);
    }
    SIM_TRY(sim_stream_begin(call, *out));
    return sim_copy_run(call, &(*out)->lane, call->function->name, copy);
}

static CUresult copy_async(struct sim_call *call, CUstream handle, const CUDA_MEMCPY3D *copy)
{
    struct sim_stream *stream;
    return submit(call, handle, copy, &stream);
}

static int touches_host(const CUDA_MEMCPY3D *copy)
{
    uint64_t side[2] = {
        copy->dstMemoryType == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)copy->dstHost : copy->dstDevice,
        copy->srcMemoryType == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)copy->srcHost : copy->srcDevice};
    for (int i = 0; i < 2; i++) {
        const struct sim_range *range = sim_range_find(side[i]);
        if (range == NULL || (range->kind != SIM_RANGE_DEVICE && range->kind != SIM_RANGE_RESERVED)) {
            return 1;
        }
    }
    return 0;
}

/* Copies between device memories do not block the host, whatever their name says. */
static CUresult copy_sync(struct sim_call *call, const CUDA_MEMCPY3D *copy)
{
    struct sim_stream *stream;
    SIM_TRY(sim_stream_get(call, NULL, &stream));
    SIM_TRY(sim_capture_forbids(call, stream, NULL));
    SIM_TRY(submit(call, NULL, copy, &stream));
    return touches_host(copy) ? sim_stream_synchronise(call, stream) : stream->lane.context->sticky;
}

#define HOST(pointer)    CU_MEMORYTYPE_HOST, (uint64_t)(uintptr_t)(pointer)
#define DEVICE(address)  CU_MEMORYTYPE_DEVICE, (uint64_t)(address)
#define UNIFIED(address) CU_MEMORYTYPE_UNIFIED, (uint64_t)(address)

/* The 64-bit forms and the 32-bit forms of the same copy. */
#define COPY_PAIR(name, to_kind, to_type, to_type_v1, from_kind, from_type, from_type_v1)                            \
    SIM_API_PTDS(SIM_CONTEXT, name##_v2, (to_type to, from_type from, size_t bytes), to, from, bytes)                \
    {                                                                                                                \
        CUDA_MEMCPY3D copy = linear(to_kind(to), from_kind(from), bytes);                                            \
        return copy_sync(call, &copy);                                                                               \
    }                                                                                                                \
    SIM_API_PTSZ(SIM_CONTEXT, name##Async_v2, (to_type to, from_type from, size_t bytes, CUstream stream), to, from, \
                 bytes, stream)                                                                                      \
    {                                                                                                                \
        CUDA_MEMCPY3D copy = linear(to_kind(to), from_kind(from), bytes);                                            \
        return copy_async(call, stream, &copy);                                                                      \
    }                                                                                                                \
    SIM_API(SIM_CONTEXT, name, (to_type_v1 to, from_type_v1 from, unsigned int bytes), to, from, bytes)              \
    {                                                                                                                \
        CUDA_MEMCPY3D copy = linear(to_kind(to), from_kind(from), bytes);                                            \
        return copy_sync(call, &copy);                                                                               \
    }                                                                                                                \
    SIM_API(SIM_CONTEXT, name##Async, (to_type_v1 to, from_type_v1 from, unsigned int bytes, CUstream stream), to,   \
            from, bytes, stream)                                                                                     \
    {                                                                                                                \
        CUDA_MEMCPY3D copy = linear(to_kind(to), from_kind(from), bytes);                                            \
        return copy_async(call, stream, &copy);                                                                      \
    }

COPY_PAIR(cuMemcpyHtoD, DEVICE, CUdeviceptr, CUdeviceptr_v1, HOST, const void *, const void *)
COPY_PAIR(cuMemcpyDtoH, HOST, void *, void *, DEVICE, CUdeviceptr, CUdeviceptr_v1)
COPY_PAIR(cuMemcpyDtoD, DEVICE, CUdeviceptr, CUdeviceptr_v1, DEVICE, CUdeviceptr, CUdeviceptr_v1)

SIM_API_PTDS(SIM_CONTEXT, cuMemcpy, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount), dst, src, ByteCount)
{
    CUDA_MEMCPY3D copy = linear(UNIFIED(dst), UNIFIED(src), ByteCount);
    return copy_sync(call, &copy);
}

SIM_API_PTSZ(SIM_CONTEXT, cuMemcpyAsync, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream), dst,
             src, ByteCount, hStream)
{
    CUDA_MEMCPY3D copy = linear(UNIFIED(dst), UNIFIED(src), ByteCount);
    return copy_async(call, hStream, &copy);
}

/* ---- 2D and 3D */

static CUDA_MEMCPY3D from_2d(const CUDA_MEMCPY2D *p)
{
    return (CUDA_MEMCPY3D){.srcXInBytes = p->srcXInBytes,
                           .srcY = p->srcY,
                           .srcMemoryType = p->srcMemoryType,
                           .srcHost = p->srcHost,
                           .srcDevice = p->srcDevice,
                           .srcArray = p->srcArray,
                           .srcPitch = p->srcPitch,
                           .dstXInBytes = p->dstXInBytes,
                           .dstY = p->dstY,
                           .dstMemoryType = p->dstMemoryType,
                           .dstHost = p->dstHost,
                           .dstDevice = p->dstDevice,
                           .dstArray = p->dstArray,
                           .dstPitch = p->dstPitch,
                           .WidthInBytes = p->WidthInBytes,
                           .Height = p->Height,
                           .Depth = 1};
}

static CUDA_MEMCPY3D from_2d_v1(const CUDA_MEMCPY2D_v1 *p)
{
    return (CUDA_MEMCPY3D){.srcXInBytes = p->srcXInBytes,
                           .srcY = p->srcY,
                           .srcMemoryType = p->srcMemoryType,
                           .srcHost = p->srcHost,
                           .srcDevice = p->srcDevice,
                           .srcArray = p->srcArray,
                           .srcPitch = p->srcPitch,
                           .dstXInBytes = p->dstXInBytes,
                           .dstY = p->dstY,
                           .dstMemoryType = p->dstMemoryType,
                           .dstHost = p->dstHost,
                           .dstDevice = p->dstDevice,
                           .dstArray = p->dstArray,
                           .dstPitch = p->dstPitch,
                           .WidthInBytes = p->WidthInBytes,
                           .Height = p->Height,
                           .Depth = 1};
}

static CUDA_MEMCPY3D from_3d_v1(const CUDA_MEMCPY3D_v1 *p)
{
    return (CUDA_MEMCPY3D){.srcXInBytes = p->srcXInBytes,
                           .srcY = p->srcY,
                           .srcZ = p->srcZ,
                           .srcLOD = p->srcLOD,
                           .srcMemoryType = p->srcMemoryType,
                           .srcHost = p->srcHost,
                           .srcDevice = p->srcDevice,
                           .srcArray = p->srcArray,
                           .srcPitch = p->srcPitch,
                           .srcHeight = p->srcHeight,
                           .dstXInBytes = p->dstXInBytes,
                           .dstY = p->dstY,
                           .dstZ = p->dstZ,
                           .dstLOD = p->dstLOD,
                           .dstMemoryType = p->dstMemoryType,
                           .dstHost = p->dstHost,
                           .dstDevice = p->dstDevice,
                           .dstArray = p->dstArray,
                           .dstPitch = p->dstPitch,
                           .dstHeight = p->dstHeight,
                           .WidthInBytes = p->WidthInBytes,
                           .Height = p->Height,
                           .Depth = p->Depth};
}

static CUDA_MEMCPY3D from_3d(const CUDA_MEMCPY3D *p)
{
    return *p;
}

static CUDA_MEMCPY3D from_peer(const CUDA_MEMCPY3D_PEER *p)
{
    return (CUDA_MEMCPY3D){.srcXInBytes = p->srcXInBytes,
                           .srcY = p->srcY,
                           .srcZ = p->srcZ,
                           .srcLOD = p->srcLOD,
                           .srcMemoryType = p->srcMemoryType,
                           .srcHost = p->srcHost,
                           .srcDevice = p->srcDevice,
                           .srcArray = p->srcArray,
                           .srcPitch = p->srcPitch,
                           .srcHeight = p->srcHeight,
                           .dstXInBytes = p->dstXInBytes,
                           .dstY = p->dstY,
                           .dstZ = p->dstZ,
                           .dstLOD = p->dstLOD,
                           .dstMemoryType = p->dstMemoryType,
                           .dstHost = p->dstHost,
                           .dstDevice = p->dstDevice,
                           .dstArray = p->dstArray,
                           .dstPitch = p->dstPitch,
                           .dstHeight = p->dstHeight,
                           .WidthInBytes = p->WidthInBytes,
                           .Height = p->Height,
                           .Depth = p->Depth};
}

#define COPY_SYNC(api, name, type, convert)    \
    api(SIM_CONTEXT, name, (const type *p), p) \
    {                                          \
        if (p == NULL) {                       \
            return CUDA_ERROR_INVALID_VALUE;   \
        }                                      \
        CUDA_MEMCPY3D copy = convert(p);       \
        return copy_sync(call, &copy);         \
    }
#define COPY_ASYNC(api, name, type, convert)                            \
    api(SIM_CONTEXT, name, (const type *p, CUstream stream), p, stream) \
    {                                                                   \
        if (p == NULL) {                                                \
            return CUDA_ERROR_INVALID_VALUE;                            \
        }                                                               \
        CUDA_MEMCPY3D copy = convert(p);                                \
        return copy_async(call, stream, &copy);                         \
    }

COPY_SYNC(SIM_API_PTDS, cuMemcpy2D_v2, CUDA_MEMCPY2D, from_2d)
COPY_SYNC(SIM_API_PTDS, cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, from_2d)
COPY_SYNC(SIM_API_PTDS, cuMemcpy3D_v2, CUDA_MEMCPY3D, from_3d)
COPY_SYNC(SIM_API, cuMemcpy2D, CUDA_MEMCPY2D_v1, from_2d_v1)
COPY_SYNC(SIM_API, cuMemcpy2DUnaligned, CUDA_MEMCPY2D_v1, from_2d_v1)
COPY_SYNC(SIM_API, cuMemcpy3D, CUDA_MEMCPY3D_v1, from_3d_v1)
COPY_ASYNC(SIM_API_PTSZ, cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, from_2d)
COPY_ASYNC(SIM_API_PTSZ, cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, from_3d)
COPY_ASYNC(SIM_API, cuMemcpy2DAsync, CUDA_MEMCPY2D_v1, from_2d_v1)
COPY_ASYNC(SIM_API, cuMemcpy3DAsync, CUDA_MEMCPY3D_v1, from_3d_v1)

/* ---- between devices: never blocks the host, and needs no peer access (it is staged where there is none) */

static CUresult copy_peer(struct sim_call *call, CUstream handle, CUDA_MEMCPY3D *copy, CUcontext to, CUcontext from)
{
    struct sim_context *unused;
    SIM_TRY(sim_context_valid(to, &unused) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT);
    SIM_TRY(sim_context_valid(from, &unused) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT);
    uint64_t peers = call->context->peers;
    call->context->peers = ~(uint64_t)0;
    CUresult result = copy_async(call, handle, copy);
    call->context->peers = peers;
    return result;
}

SIM_API_PTDS(SIM_CONTEXT, cuMemcpyPeer,
             (CUdeviceptr dst, CUcontext dstContext, CUdeviceptr src, CUcontext srcContext, size_t bytes), dst,
             dstContext, src, srcContext, bytes)
{
    CUDA_MEMCPY3D copy = linear(DEVICE(dst), DEVICE(src), bytes);
    return copy_peer(call, NULL, &copy, dstContext, srcContext);
}

SIM_API_PTSZ(SIM_CONTEXT, cuMemcpyPeerAsync,
             (CUdeviceptr dst, CUcontext dstContext, CUdeviceptr src, CUcontext srcContext, size_t bytes,
              CUstream stream),
             dst, dstContext, src, srcContext, bytes, stream)
{
    CUDA_MEMCPY3D copy = linear(DEVICE(dst), DEVICE(src), bytes);
    return copy_peer(call, stream, &copy, dstContext, srcContext);
}

SIM_API_PTDS(SIM_CONTEXT, cuMemcpy3DPeer, (const CUDA_MEMCPY3D_PEER *p), p)
{
    if (p == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUDA_MEMCPY3D copy = from_peer(p);
    return copy_peer(call, NULL, &copy, p->dstContext, p->srcContext);
}

SIM_API_PTSZ(SIM_CONTEXT, cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D_PEER *p, CUstream stream), p, stream)
{
    if (p == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUDA_MEMCPY3D copy = from_peer(p);
    return copy_peer(call, stream, &copy, p->dstContext, p->srcContext);
}

#if CUDA_VERSION >= 12080
/* ---- batches */

static CUresult copy_batch(struct sim_call *call, const CUdeviceptr *to, const CUdeviceptr *from, const size_t *bytes,
                           size_t count, const CUmemcpyAttributes *attrs, const size_t *index, size_t attr_count,
                           size_t *fail, CUstream stream)
{
    if (fail != NULL) {
        *fail = SIZE_MAX;
    }
    if (count == 0 || to == NULL || from == NULL || bytes == NULL || attrs == NULL || index == NULL ||
        attr_count == 0 || attr_count > count || index[0] != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (stream == NULL || stream == CU_STREAM_LEGACY) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++) {
        CUDA_MEMCPY3D copy = linear(UNIFIED(to[i]), UNIFIED(from[i]), bytes[i]);
        CUresult result = copy_async(call, stream, &copy);
        if (result != CUDA_SUCCESS) {
            if (fail != NULL) {
                *fail = i;
            }
            return result;
        }
    }
    return CUDA_SUCCESS;
}

SIM_API_PTSZ(SIM_CONTEXT, cuMemcpyBatchAsync,
             (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs,
              size_t *attrsIdxs, size_t numAttrs, size_t *failIdx, CUstream hStream),
             dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, hStream)
{
    return copy_batch(call, dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, hStream);
}

SIM_API_PTSZ(SIM_CONTEXT, cuMemcpyBatchAsync_v2,
             (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs,
              size_t *attrsIdxs, size_t numAttrs, CUstream hStream),
             dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream)
{
    return copy_batch(call, dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, NULL, hStream);
}

static CUresult operand(const CUmemcpy3DOperand *operand, CUdeviceptr *address, size_t *pitch, size_t *height)
{
    if (operand->type != CU_MEMCPY_OPERAND_TYPE_POINTER) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    *address = operand->op.ptr.ptr;
    *pitch = operand->op.ptr.rowLength;
    *height = operand->op.ptr.layerHeight;
    return CUDA_SUCCESS;
}

static CUresult copy_batch_3d(struct sim_call *call, size_t count, const CUDA_MEMCPY3D_BATCH_OP *ops, size_t *fail,
                              unsigned long long flags, CUstream stream)
{
    if (fail != NULL) {
        *fail = SIZE_MAX;
    }
    if (count == 0 || ops == NULL || flags != 0 || stream == NULL || stream == CU_STREAM_LEGACY) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++) {
        CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                              .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                              .WidthInBytes = ops[i].extent.width,
                              .Height = ops[i].extent.height,
                              .Depth = ops[i].extent.depth};
        CUresult result = operand(&ops[i].src, &copy.srcDevice, &copy.srcPitch, &copy.srcHeight);
        result =
            result == CUDA_SUCCESS ? operand(&ops[i].dst, &copy.dstDevice, &copy.dstPitch, &copy.dstHeight) : result;
        result = result == CUDA_SUCCESS ? copy_async(call, stream, &copy) : result;
        if (result != CUDA_SUCCESS) {
            if (fail != NULL) {
                *fail = i;
            }
            return result;
        }
    }
    return CUDA_SUCCESS;
}

SIM_API_PTSZ(SIM_CONTEXT, cuMemcpy3DBatchAsync,
             (size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx, unsigned long long flags,
              CUstream hStream),
             numOps, opList, failIdx, flags, hStream)
{
    return copy_batch_3d(call, numOps, opList, failIdx, flags, hStream);
}

SIM_API_PTSZ(SIM_CONTEXT, cuMemcpy3DBatchAsync_v2,
             (size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, unsigned long long flags, CUstream hStream), numOps,
             opList, flags, hStream)
{
    return copy_batch_3d(call, numOps, opList, NULL, flags, hStream);
}
#endif
