/* Managed memory: one copy in host memory, reached by the host and the devices alike. Advice changes nothing here. */
#include "sim.h"

#include <string.h>

SIM_API(SIM_CONTEXT, cuMemAllocManaged, (CUdeviceptr * dptr, size_t bytesize, unsigned int flags), dptr, bytesize,
        flags)
{
    void *memory;
    if (dptr == NULL || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    SIM_TRY(sim_host_make(call, bytesize, flags, SIM_RANGE_MANAGED, &memory));
    *dptr = (CUdeviceptr)(uintptr_t)memory;
    return CUDA_SUCCESS;
}

static CUresult managed_check(uint64_t address, uint64_t bytes)
{
    const struct sim_range *range = sim_range_find(address);
    if (range == NULL || range->kind != SIM_RANGE_MANAGED || bytes == 0 ||
        bytes > range->address + range->bytes - address) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuMemAdvise, (CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device), devPtr,
        count, advice, device)
{
    (void)call, (void)advice, (void)device;
    return managed_check(devPtr, count);
}

SIM_API(SIM_CONTEXT, cuMemAdvise_v2, (CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location),
        devPtr, count, advice, location)
{
    (void)call, (void)advice, (void)location;
    return managed_check(devPtr, count);
}

SIM_API_PTSZ(SIM_CONTEXT, cuMemPrefetchAsync, (CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream),
             devPtr, count, dstDevice, hStream)
{
    struct sim_stream *stream;
    (void)dstDevice;
    SIM_TRY(sim_stream_get(call, hStream, &stream));
    return managed_check(devPtr, count);
}

SIM_API_PTSZ(SIM_CONTEXT, cuMemPrefetchAsync_v2,
             (CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags, CUstream hStream), devPtr,
             count, location, flags, hStream)
{
    struct sim_stream *stream;
    (void)location, (void)flags;
    SIM_TRY(sim_stream_get(call, hStream, &stream));
    return managed_check(devPtr, count);
}

/* A location that advice or a prefetch named is not kept, so every question is answered as for fresh memory. */
static CUresult range_attribute(void *data, size_t bytes, CUmem_range_attribute attribute, uint64_t address,
                                uint64_t count)
{
    SIM_TRY(managed_check(address, count));
    if (data == NULL || bytes == 0 || bytes % 4 != 0 || (int)attribute < 1) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memset(data, 0, bytes);
    if (attribute == CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION ||
        attribute == CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION || attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY) {
        const int none = CU_DEVICE_INVALID;
        for (size_t i = 0; i < bytes / sizeof none; i++) {
            memcpy((char *)data + i * sizeof none, &none, sizeof none);
        }
    }
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuMemRangeGetAttribute,
        (void *data, size_t dataSize, CUmem_range_attribute attribute, CUdeviceptr devPtr, size_t count), data,
        dataSize, attribute, devPtr, count)
{
    (void)call;
    return range_attribute(data, dataSize, attribute, devPtr, count);
}

SIM_API(SIM_CONTEXT, cuMemRangeGetAttributes,
        (void **data, size_t *dataSizes, CUmem_range_attribute *attributes, size_t numAttributes, CUdeviceptr devPtr,
         size_t count),
        data, dataSizes, attributes, numAttributes, devPtr, count)
{
    (void)call;
    if (data == NULL || dataSizes == NULL || attributes == NULL || numAttributes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < numAttributes; i++) {
        SIM_TRY(range_attribute(data[i], dataSizes[i], attributes[i], devPtr, count));
    }
    return CUDA_SUCCESS;
}
