#include "span.h"

const void *ov_host_side(CUdeviceptr address)
{
    CUmemorytype type = 0;
    const CUresult result = OV_REAL(cuPointerGetAttribute, (&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    /* The driver does not know ordinary host memory. Any other failure says nothing about the address. */
    const bool is_host = result == CUDA_ERROR_INVALID_VALUE || (result == CUDA_SUCCESS && type == CU_MEMORYTYPE_HOST);
    return is_host ? (const void *)(uintptr_t)address : NULL;
}

/* One side of a pitched copy, host or device or array. */
struct side {
    CUmemorytype type;
    const void *host;
    CUdeviceptr device;
    size_t x_bytes, y, z;
    size_t pitch_bytes, rows_per_slice;
};

struct extent {
    size_t width_bytes, height, depth;
};

static CUdeviceptr start_of(const struct side *side, const struct extent *extent)
{
    const CUdeviceptr base = side->type == CU_MEMORYTYPE_HOST ? (CUdeviceptr)(uintptr_t)side->host : side->device;
    const size_t pitch_bytes = side->pitch_bytes ? side->pitch_bytes : extent->width_bytes;
    return base + (side->z * side->rows_per_slice + side->y) * pitch_bytes + side->x_bytes;
}

static struct ov_span span_of(const struct side *side, const struct extent *extent)
{
    if (side->type == CU_MEMORYTYPE_ARRAY || extent->height == 0 || extent->depth == 0) {
        return (struct ov_span){0};
    }
    const size_t slice = side->rows_per_slice > extent->height ? side->rows_per_slice : extent->height;
    return (struct ov_span){
        .address = start_of(side, extent),
        .bytes = extent->width_bytes,
        .rows = (extent->depth - 1) * slice + extent->height,
        .pitch_bytes = side->pitch_bytes ? side->pitch_bytes : extent->width_bytes,
    };
}

static const void *host_of(const struct side *side, CUdeviceptr start)
{
    switch (side->type) {
    case CU_MEMORYTYPE_HOST:
        return (const void *)(uintptr_t)start;
    case CU_MEMORYTYPE_UNIFIED:
        return ov_host_side(start);
    default:
        return NULL;
    }
}

static bool describe(struct ov_copy *copy, const struct side *dst, const struct side *src, const struct extent *extent)
{
    copy->dst = span_of(dst, extent);
    copy->src = span_of(src, extent);
    copy->host_source = host_of(src, copy->src.address);
    return host_of(dst, copy->dst.address) != NULL;
}

#define SIDE_2D(call, which)                                                                       \
    {                                                                                              \
        .type = call->which##MemoryType, .host = call->which##Host, .device = call->which##Device, \
        .x_bytes = call->which##XInBytes, .y = call->which##Y, .pitch_bytes = call->which##Pitch,  \
    }
#define SIDE_3D(call, which)                                                                                           \
    {                                                                                                                  \
        .type = call->which##MemoryType, .host = call->which##Host, .device = call->which##Device,                     \
        .x_bytes = call->which##XInBytes, .y = call->which##Y, .z = call->which##Z, .pitch_bytes = call->which##Pitch, \
        .rows_per_slice = call->which##Height,                                                                         \
    }

bool ov_describe_2d(struct ov_copy *copy, const CUDA_MEMCPY2D *call)
{
    const struct side dst = SIDE_2D(call, dst), src = SIDE_2D(call, src);
    const struct extent extent = {call->WidthInBytes, call->Height, 1};
    return describe(copy, &dst, &src, &extent);
}

bool ov_describe_3d(struct ov_copy *copy, const CUDA_MEMCPY3D *call)
{
    const struct side dst = SIDE_3D(call, dst), src = SIDE_3D(call, src);
    const struct extent extent = {call->WidthInBytes, call->Height, call->Depth};
    return describe(copy, &dst, &src, &extent);
}

bool ov_describe_3d_peer(struct ov_copy *copy, const CUDA_MEMCPY3D_PEER *call)
{
    const struct side dst = SIDE_3D(call, dst), src = SIDE_3D(call, src);
    const struct extent extent = {call->WidthInBytes, call->Height, call->Depth};
    return describe(copy, &dst, &src, &extent);
}
