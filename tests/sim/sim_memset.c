/* The exported memsets. None of them blocks the host: device memory is set in stream order. */
#include "sim.h"

static CUresult set(struct sim_call *call, CUstream handle, uint64_t address, uint64_t pitch, unsigned value,
                    unsigned element_bytes, uint64_t width, uint64_t height)
{
    struct sim_stream *stream;
    const CUDA_MEMSET_NODE_PARAMS params = {
        .dst = address, .pitch = pitch, .value = value, .elementSize = element_bytes, .width = width, .height = height};
    SIM_TRY(sim_stream_get(call, handle, &stream));
    SIM_TRY(sim_memset_check(call, &stream->lane, &params));
    if (sim_stream_is_capturing(stream)) {
        return sim_capture_memset(call, stream, &params);
    }
    SIM_TRY(sim_stream_begin(call, stream));
    return sim_memset_run(call, &stream->lane, call->function->name, &params);
}

#define SET_1D(name, type, element_bytes)                                                                          \
    SIM_API_PTDS(SIM_CONTEXT, name##_v2, (CUdeviceptr to, type value, size_t count), to, value, count)             \
    {                                                                                                              \
        return set(call, NULL, to, 0, value, element_bytes, count, 1);                                             \
    }                                                                                                              \
    SIM_API_PTSZ(SIM_CONTEXT, name##Async, (CUdeviceptr to, type value, size_t count, CUstream stream), to, value, \
                 count, stream)                                                                                    \
    {                                                                                                              \
        return set(call, stream, to, 0, value, element_bytes, count, 1);                                           \
    }                                                                                                              \
    SIM_API(SIM_CONTEXT, name, (CUdeviceptr_v1 to, type value, unsigned int count), to, value, count)              \
    {                                                                                                              \
        return set(call, NULL, to, 0, value, element_bytes, count, 1);                                             \
    }

#define SET_2D(name, type, element_bytes)                                                                             \
    SIM_API_PTDS(SIM_CONTEXT, name##_v2, (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height), to, \
                 pitch, value, width, height)                                                                         \
    {                                                                                                                 \
        return set(call, NULL, to, pitch, value, element_bytes, width, height);                                       \
    }                                                                                                                 \
    SIM_API_PTSZ(SIM_CONTEXT, name##Async,                                                                            \
                 (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height, CUstream stream), to, pitch, \
                 value, width, height, stream)                                                                        \
    {                                                                                                                 \
        return set(call, stream, to, pitch, value, element_bytes, width, height);                                     \
    }                                                                                                                 \
    SIM_API(SIM_CONTEXT, name,                                                                                        \
            (CUdeviceptr_v1 to, unsigned int pitch, type value, unsigned int width, unsigned int height), to, pitch,  \
            value, width, height)                                                                                     \
    {                                                                                                                 \
        return set(call, NULL, to, pitch, value, element_bytes, width, height);                                       \
    }

SET_1D(cuMemsetD8, unsigned char, 1)
SET_1D(cuMemsetD16, unsigned short, 2)
SET_1D(cuMemsetD32, unsigned int, 4)
SET_2D(cuMemsetD2D8, unsigned char, 1)
SET_2D(cuMemsetD2D16, unsigned short, 2)
SET_2D(cuMemsetD2D32, unsigned int, 4)
