/*
 * batch_copy.c - cuMemcpyBatchAsync and cuMemcpy3DBatchAsync: many copies in one call of the driver. The engine is told
 * of every one before, and again after it, in reverse order.
 */
#include "batch_copy.h"

#include <stdlib.h>

#include "span.h"

#if CUDA_VERSION >= 12080
#define SAME_PLACE(member, theirs) \
    _Static_assert(offsetof(struct ov_batch_3d, member) == offsetof(CUDA_MEMCPY3D_BATCH_OP, theirs), #member)
_Static_assert(sizeof(struct ov_batch_3d) == sizeof(CUDA_MEMCPY3D_BATCH_OP), "size of a batch operation");
SAME_PLACE(src.type, src.type);
SAME_PLACE(src.pointer.address, src.op.ptr.ptr);
SAME_PLACE(src.pointer.row_length, src.op.ptr.rowLength);
SAME_PLACE(src.pointer.layer_height, src.op.ptr.layerHeight);
SAME_PLACE(dst.type, dst.type);
SAME_PLACE(width, extent.width);
SAME_PLACE(height, extent.height);
SAME_PLACE(depth, extent.depth);
_Static_assert((int)OV_OPERAND_POINTER == (int)CU_MEMCPY_OPERAND_TYPE_POINTER, "operand type");
#endif

/* Copies that are under way; those of small batches need no allocation. */
struct batch {
    struct ov_copy *copy, few[16];
    size_t count;
};

static bool batch_open(struct batch *batch, size_t count)
{
    const bool is_few = count <= sizeof batch->few / sizeof batch->few[0];
    batch->count = count;
    batch->copy = is_few ? batch->few : calloc(count, sizeof *batch->copy);
    return batch->copy != NULL;
}

static CUresult batch_begin(struct batch *batch)
{
    CUresult refused = CUDA_SUCCESS;
    for (size_t i = 0; i < batch->count; i++) {
        ov_copy_begin(&batch->copy[i]);
        refused = refused != CUDA_SUCCESS ? refused : batch->copy[i].refused;
    }
    return refused;
}

static void batch_end(struct batch *batch, CUresult result)
{
    for (size_t i = batch->count; i > 0; i--) {
        ov_copy_end(&batch->copy[i - 1], result);
    }
    if (batch->copy != batch->few) {
        free(batch->copy);
    }
}

static void describe_linear(struct batch *batch, const CUdeviceptr *dst, const CUdeviceptr *src, const size_t *bytes,
                            CUstream stream)
{
    for (size_t i = 0; i < batch->count; i++) {
        batch->copy[i] = (struct ov_copy){
            .dst = ov_linear(dst[i], bytes[i]),
            .src = ov_linear(src[i], bytes[i]),
            .host_source = ov_host_side(src[i]),
            .stream = stream,
        };
    }
}

/* The largest element of an array. With an array on the other side, a width is counted in elements whose size we do not
 * know: take the most it can be. */
enum { ELEMENT_BYTES_MAX = 16 };

static struct ov_span operand_span(const struct ov_operand *operand, const struct ov_batch_3d *call,
                                   size_t element_bytes)
{
    if (operand->type != OV_OPERAND_POINTER) {
        return (struct ov_span){0};
    }
    const size_t row = operand->pointer.row_length ? operand->pointer.row_length : call->width;
    const size_t layer = operand->pointer.layer_height ? operand->pointer.layer_height : call->height;
    return (struct ov_span){
        .address = operand->pointer.address,
        .bytes = call->width * element_bytes,
        .rows = call->depth ? (call->depth - 1) * layer + call->height : call->height,
        .pitch_bytes = row * element_bytes,
    };
}

static void describe_3d(struct batch *batch, const struct ov_batch_3d *call, CUstream stream)
{
    for (size_t i = 0; i < batch->count; i++) {
        const bool has_array = call[i].src.type == OV_OPERAND_ARRAY || call[i].dst.type == OV_OPERAND_ARRAY;
        const size_t element_bytes = has_array ? ELEMENT_BYTES_MAX : 1;
        const struct ov_span src = operand_span(&call[i].src, &call[i], element_bytes);
        batch->copy[i] = (struct ov_copy){
            .dst = operand_span(&call[i].dst, &call[i], element_bytes),
            .src = src,
            .host_source = src.address ? ov_host_side(src.address) : NULL,
            .stream = stream,
        };
    }
}

/* With an array missing the call is the driver's to refuse, and we look at nothing. */
static size_t readable(size_t count, const void *a, const void *b, const void *c)
{
    return a != NULL && b != NULL && c != NULL ? count : 0;
}

/* Refused before anything was done: what the driver itself answers when host memory runs out. */
#define BATCH_BODY(name, params, args, count_, describe_call)                            \
    CUresult ov_body_##name params                                                       \
    {                                                                                    \
        struct batch batch;                                                              \
        if (!batch_open(&batch, count_)) {                                               \
            return CUDA_ERROR_OUT_OF_MEMORY;                                             \
        }                                                                                \
        describe_call;                                                                   \
        const CUresult refused = batch_begin(&batch);                                    \
        const CUresult result = refused != CUDA_SUCCESS ? refused : OV_REAL(name, args); \
        batch_end(&batch, result);                                                       \
        return result;                                                                   \
    }

#define BATCH_BODIES(suffix)                                                                                          \
    BATCH_BODY(cuMemcpyBatchAsync##suffix,                                                                            \
               (CUdeviceptr * dst, CUdeviceptr * src, size_t * bytes, size_t count, void *attribute,                  \
                size_t *attribute_first, size_t attribute_count, size_t *failed, CUstream stream),                    \
               (dst, src, bytes, count, attribute, attribute_first, attribute_count, failed, stream),                 \
               readable(count, dst, src, bytes), describe_linear(&batch, dst, src, bytes, OV_STREAM(suffix, stream))) \
    BATCH_BODY(cuMemcpyBatchAsync_v2##suffix,                                                                         \
               (CUdeviceptr * dst, CUdeviceptr * src, size_t * bytes, size_t count, void *attribute,                  \
                size_t *attribute_first, size_t attribute_count, CUstream stream),                                    \
               (dst, src, bytes, count, attribute, attribute_first, attribute_count, stream),                         \
               readable(count, dst, src, bytes), describe_linear(&batch, dst, src, bytes, OV_STREAM(suffix, stream))) \
    BATCH_BODY(cuMemcpy3DBatchAsync##suffix,                                                                          \
               (size_t count, void *operation, size_t *failed, unsigned long long flags, CUstream stream),            \
               (count, operation, failed, flags, stream), readable(count, operation, operation, operation),           \
               describe_3d(&batch, operation, OV_STREAM(suffix, stream)))                                             \
    BATCH_BODY(cuMemcpy3DBatchAsync_v2##suffix,                                                                       \
               (size_t count, void *operation, unsigned long long flags, CUstream stream),                            \
               (count, operation, flags, stream), readable(count, operation, operation, operation),                   \
               describe_3d(&batch, operation, OV_STREAM(suffix, stream)))

BATCH_BODIES()
BATCH_BODIES(_ptsz)
