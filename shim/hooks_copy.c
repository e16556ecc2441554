/*
 * hooks_copy.c - copies and fills: where the bytes come from and go to, on which stream; batches are in batch_copy.c.
 *
 * A blocking copy belongs to the stream its entry point implies. One that ends in host memory has waited for the GPU.
 */
#include "span.h"

static void quiet_after(CUresult result, bool waited)
{
    if (waited && result == CUDA_SUCCESS) {
        ov_quiet_point();
    }
}

/* `...` initialises struct ov_copy; waited: the call returns only when the bytes are in host memory. */
#define COPY_BODY(name, params, args, stream_, waited, ...)                        \
    CUresult ov_body_##name params                                                 \
    {                                                                              \
        struct ov_copy copy = {.stream = stream_, __VA_ARGS__};                    \
        ov_copy_begin(&copy);                                                      \
        const CUresult result = copy.refused ? copy.refused : OV_REAL(name, args); \
        ov_copy_end(&copy, result);                                                \
        quiet_after(result, waited);                                               \
        return result;                                                             \
    }

/* A blocking entry point and its twin; an asynchronous one and its twin. `none` is empty. */
#define BLOCKING(base, none, params, args, waited, ...)                        \
    COPY_BODY(base##none, params, args, CU_STREAM_LEGACY, waited, __VA_ARGS__) \
    COPY_BODY(base##_ptds, params, args, CU_STREAM_PER_THREAD, waited, __VA_ARGS__)
#define ASYNC(base, none, params, args, ...)                                         \
    COPY_BODY(base##none, params, args, OV_STREAM(none, stream), false, __VA_ARGS__) \
    COPY_BODY(base##_ptsz, params, args, OV_STREAM(_ptsz, stream), false, __VA_ARGS__)

/* The same parameters, with a stream. */
#define WITH_STREAM(...) (__VA_ARGS__, CUstream stream)
#define AND_STREAM(...)  (__VA_ARGS__, stream)

#define ANY_TO_ANY  .dst = ov_linear(dst, bytes), .src = ov_linear(src, bytes), .host_source = ov_host_side(src)
#define FROM_HOST   .dst = ov_linear(dst, bytes), .src = ov_linear_host(src, bytes), .host_source = src
#define TO_HOST     .dst = ov_linear_host(dst, bytes), .src = ov_linear(src, bytes)
#define DEVICE_ONLY .dst = ov_linear(dst, bytes), .src = ov_linear(src, bytes)

BLOCKING(cuMemcpy, , (CUdeviceptr dst, CUdeviceptr src, size_t bytes), (dst, src, bytes),
         copy.host_source == NULL && ov_host_side(dst) != NULL, ANY_TO_ANY)
ASYNC(cuMemcpyAsync, , WITH_STREAM(CUdeviceptr dst, CUdeviceptr src, size_t bytes), AND_STREAM(dst, src, bytes),
      ANY_TO_ANY)
BLOCKING(cuMemcpyHtoD_v2, , (CUdeviceptr dst, const void *src, size_t bytes), (dst, src, bytes), false, FROM_HOST)
ASYNC(cuMemcpyHtoDAsync_v2, , WITH_STREAM(CUdeviceptr dst, const void *src, size_t bytes), AND_STREAM(dst, src, bytes),
      FROM_HOST)
BLOCKING(cuMemcpyDtoH_v2, , (void *dst, CUdeviceptr src, size_t bytes), (dst, src, bytes), true, TO_HOST)
ASYNC(cuMemcpyDtoHAsync_v2, , WITH_STREAM(void *dst, CUdeviceptr src, size_t bytes), AND_STREAM(dst, src, bytes),
      TO_HOST)
BLOCKING(cuMemcpyDtoD_v2, , (CUdeviceptr dst, CUdeviceptr src, size_t bytes), (dst, src, bytes), false, DEVICE_ONLY)
ASYNC(cuMemcpyDtoDAsync_v2, , WITH_STREAM(CUdeviceptr dst, CUdeviceptr src, size_t bytes), AND_STREAM(dst, src, bytes),
      DEVICE_ONLY)

/* Arrays are opaque memory of the driver's: only the other side matters. */
BLOCKING(cuMemcpyAtoD_v2, , (CUdeviceptr dst, CUarray src_array, size_t src_offset, size_t bytes),
         (dst, src_array, src_offset, bytes), false, .dst = ov_linear(dst, bytes))
BLOCKING(cuMemcpyDtoA_v2, , (CUarray dst_array, size_t dst_offset, CUdeviceptr src, size_t bytes),
         (dst_array, dst_offset, src, bytes), false, .src = ov_linear(src, bytes))

#define PEER_PARAMS CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t bytes
#define PEER_ARGS   dst, dst_context, src, src_context, bytes
BLOCKING(cuMemcpyPeer, , (PEER_PARAMS), (PEER_ARGS), false, DEVICE_ONLY)
ASYNC(cuMemcpyPeerAsync, , WITH_STREAM(PEER_PARAMS), AND_STREAM(PEER_ARGS), DEVICE_ONLY)

/* Fills. */
#define FILL(dst, bytes)                     .dst = ov_linear(dst, bytes)
#define FILL_ROWS(dst, width, height, pitch) .dst = {dst, width, height, (pitch) ? (pitch) : (width)}

#define FILL_BODIES(bits, type)                                                                                      \
    BLOCKING(cuMemsetD##bits##_v2, , (CUdeviceptr dst, type value, size_t count), (dst, value, count), false,        \
             FILL(dst, count * sizeof(type)))                                                                        \
    ASYNC(cuMemsetD##bits##Async, , (CUdeviceptr dst, type value, size_t count, CUstream stream),                    \
          (dst, value, count, stream), FILL(dst, count * sizeof(type)))                                              \
    BLOCKING(cuMemsetD2D##bits##_v2, , (CUdeviceptr dst, size_t dst_pitch, type value, size_t width, size_t height), \
             (dst, dst_pitch, value, width, height), false, FILL_ROWS(dst, width * sizeof(type), height, dst_pitch)) \
    ASYNC(cuMemsetD2D##bits##Async, ,                                                                                \
          (CUdeviceptr dst, size_t dst_pitch, type value, size_t width, size_t height, CUstream stream),             \
          (dst, dst_pitch, value, width, height, stream), FILL_ROWS(dst, width * sizeof(type), height, dst_pitch))

FILL_BODIES(8, unsigned char)
FILL_BODIES(16, unsigned short)
FILL_BODIES(32, unsigned)

/* Copies described by a structure. A NULL one is the driver's to refuse. */
#define DESCRIBED_BODY(name, params, args, stream_, describe, blocking)            \
    CUresult ov_body_##name params                                                 \
    {                                                                              \
        if (copy == NULL) {                                                        \
            return OV_REAL(name, args);                                            \
        }                                                                          \
        struct ov_copy told = {.stream = stream_};                                 \
        const bool to_host = describe(&told, copy);                                \
        ov_copy_begin(&told);                                                      \
        const CUresult result = told.refused ? told.refused : OV_REAL(name, args); \
        ov_copy_end(&told, result);                                                \
        quiet_after(result, to_host &&blocking);                                   \
        return result;                                                             \
    }
#define DESCRIBED(base, none, type, describe)                                                \
    DESCRIBED_BODY(base##none, (const type *copy), (copy), CU_STREAM_LEGACY, describe, true) \
    DESCRIBED_BODY(base##_ptds, (const type *copy), (copy), CU_STREAM_PER_THREAD, describe, true)
#define DESCRIBED_ASYNC(base, none, type, describe)                                                                    \
    DESCRIBED_BODY(base##none, (const type *copy, CUstream stream), (copy, stream), OV_STREAM(none, stream), describe, \
                   false)                                                                                              \
    DESCRIBED_BODY(base##_ptsz, (const type *copy, CUstream stream), (copy, stream), OV_STREAM(_ptsz, stream),         \
                   describe, false)

DESCRIBED(cuMemcpy2D_v2, , CUDA_MEMCPY2D, ov_describe_2d)
DESCRIBED(cuMemcpy2DUnaligned_v2, , CUDA_MEMCPY2D, ov_describe_2d)
DESCRIBED_ASYNC(cuMemcpy2DAsync_v2, , CUDA_MEMCPY2D, ov_describe_2d)
DESCRIBED(cuMemcpy3D_v2, , CUDA_MEMCPY3D, ov_describe_3d)
DESCRIBED_ASYNC(cuMemcpy3DAsync_v2, , CUDA_MEMCPY3D, ov_describe_3d)
DESCRIBED(cuMemcpy3DPeer, , CUDA_MEMCPY3D_PEER, ov_describe_3d_peer)
DESCRIBED_ASYNC(cuMemcpy3DPeerAsync, , CUDA_MEMCPY3D_PEER, ov_describe_3d_peer)

/* A value is a payload of one word. */
static void begin_value(struct ov_copy *copy, CUdeviceptr address, const cuuint64_t *value, CUstream stream)
{
    *copy = (struct ov_copy){.dst = ov_linear(address, sizeof *value), .host_source = value, .stream = stream};
    ov_copy_begin(copy);
}

/* All values of a batch are told before the first is written, and the gate is held by the first until the last is. */
static CUresult begin_values(struct ov_copy *copy, unsigned count, const CUstreamBatchMemOpParams *operation,
                             CUstream stream)
{
    bool held = false;
    CUresult refused = CUDA_SUCCESS;
    for (unsigned i = 0; i < count; i++) {
        struct ov_copy other;
        struct ov_copy *const told = held ? &other : copy;
        if (operation[i].operation != CU_STREAM_MEM_OP_WRITE_VALUE_64) {
            continue;
        }
        const cuuint64_t value = operation[i].writeValue.value64;
        begin_value(told, operation[i].writeValue.address, &value, stream);
        told->host_source = NULL;
        refused = refused != CUDA_SUCCESS ? refused : told->refused;
        if (held) {
            ov_copy_end(told, refused);
        }
        held = true;
    }
    return refused;
}

#define VALUE_BODY(name, stream_)                                                                             \
    CUresult ov_body_##name(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags)           \
    {                                                                                                         \
        struct ov_copy copy;                                                                                  \
        begin_value(&copy, address, &value, stream_);                                                         \
        const CUresult result = copy.refused ? copy.refused : OV_REAL(name, (stream, address, value, flags)); \
        ov_copy_end(&copy, result);                                                                           \
        return result;                                                                                        \
    }
#define BATCH_BODY(name, stream_)                                                                                   \
    CUresult ov_body_##name(CUstream stream, unsigned count, CUstreamBatchMemOpParams *operation, unsigned flags)   \
    {                                                                                                               \
        struct ov_copy copy = {0};                                                                                  \
        const CUresult refused = operation != NULL ? begin_values(&copy, count, operation, stream_) : CUDA_SUCCESS; \
        const CUresult result = refused ? refused : OV_REAL(name, (stream, count, operation, flags));               \
        if (copy.dst.address != 0) {                                                                                \
            ov_copy_end(&copy, result);                                                                             \
        }                                                                                                           \
        return result;                                                                                              \
    }
#define VALUE_BODIES(none, suffix)                                         \
    VALUE_BODY(cuStreamWriteValue64##suffix, OV_STREAM(suffix, stream))    \
    VALUE_BODY(cuStreamWriteValue64_v2##suffix, OV_STREAM(suffix, stream)) \
    BATCH_BODY(cuStreamBatchMemOp##suffix, OV_STREAM(suffix, stream))      \
    BATCH_BODY(cuStreamBatchMemOp_v2##suffix, OV_STREAM(suffix, stream))

VALUE_BODIES(, )
VALUE_BODIES(, _ptsz)
