/*
 * span.h - the driver's descriptions of copies, turned into what the engine is told (struct ov_copy).
 *
 * A span covers at least the bytes that the call reads or writes. It covers more in one case: a block of several slices
 * whose slices are further apart than their rows fill is described as all rows from the first to the last.
 *
 * All functions are pure but for one question to the driver: what kind of memory a unified address is in. It is asked
 * before the copy begins, never between ov_copy_begin() and ov_copy_end().
 */
#ifndef OV_SPAN_H
#define OV_SPAN_H

#include "hook.h"

static inline struct ov_span ov_linear(CUdeviceptr address, size_t bytes)
{
    return (struct ov_span){.address = address, .bytes = bytes, .rows = 1, .pitch_bytes = bytes};
}
static inline struct ov_span ov_linear_host(const void *host, size_t bytes)
{
    return ov_linear((CUdeviceptr)(uintptr_t)host, bytes);
}

/* The address as host memory, if it is that, else NULL. */
OV_HIDDEN const void *ov_host_side(CUdeviceptr address);

/* They fill dst, src and host_source; the result says whether the bytes end up in host memory. */
OV_HIDDEN bool ov_describe_2d(struct ov_copy *copy, const CUDA_MEMCPY2D *call);
OV_HIDDEN bool ov_describe_3d(struct ov_copy *copy, const CUDA_MEMCPY3D *call);
OV_HIDDEN bool ov_describe_3d_peer(struct ov_copy *copy, const CUDA_MEMCPY3D_PEER *call);

#endif
