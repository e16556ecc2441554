/*
 * hooks_memory.c - allocation, release, and questions about memory.
 *
 * cuMemAlloc, cuMemFree and the questions are the engine's to answer (hooks_vmm.c: what the program maps itself). All
 * other memory is the driver's; the engine hears of it after it was made and before it is given back, because
 * afterwards the address may already be somebody else's.
 */
#include "hook.h"
#include "standdown.h"

CUresult ov_body_cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    ov_standdown_look(false);
    return ov_mem_alloc(address, bytes);
}

CUresult ov_body_cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width_bytes, size_t height,
                                    unsigned element_bytes)
{
    return ov_mem_alloc_pitch(address, pitch, width_bytes, height, element_bytes);
}

CUresult ov_body_cuMemFree_v2(CUdeviceptr address)
{
    ov_zerocopy_removed((const void *)(uintptr_t)address); /* managed memory */
    return ov_mem_free(address);
}

CUresult ov_body_cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    ov_standdown_look(false);
    return ov_mem_get_info(free_bytes, total_bytes);
}

CUresult ov_body_cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    return ov_device_total_mem(bytes, device);
}

CUresult ov_body_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    return ov_mem_get_address_range(base, bytes, address);
}

CUresult ov_body_cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    return ov_pointer_get_attribute(value, attribute, address);
}

CUresult ov_body_cuPointerGetAttributes(unsigned count, CUpointer_attribute *attribute, void **value,
                                        CUdeviceptr address)
{
    return ov_pointer_get_attributes(count, attribute, value, address);
}

/* Managed memory may be on the device with all its bytes, so all are counted. */
CUresult ov_body_cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags)
{
    ov_foreign_coming(bytes);
    const CUresult result = OV_REAL(cuMemAllocManaged, (address, bytes, flags));
    if (result == CUDA_SUCCESS) {
        ov_foreign_added(*address, bytes, bytes);
        ov_zerocopy_added((void *)(uintptr_t)*address, bytes, true);
    } else {
        ov_foreign_missed(bytes);
    }
    return result;
}

/* Host memory that kernels may read in place. */
#define PINNED_BODY(name, params, args)              \
    CUresult ov_body_##name params                   \
    {                                                \
        const CUresult result = OV_REAL(name, args); \
        if (result == CUDA_SUCCESS) {                \
            ov_zerocopy_added(*out, bytes, false);   \
        }                                            \
        return result;                               \
    }
#define UNPINNED_BODY(name)             \
    CUresult ov_body_##name(void *host) \
    {                                   \
        ov_zerocopy_removed(host);      \
        return OV_REAL(name, (host));   \
    }

PINNED_BODY(cuMemHostAlloc, (void **out, size_t bytes, unsigned flags), (out, bytes, flags))
PINNED_BODY(cuMemAllocHost_v2, (void **out, size_t bytes), (out, bytes))
UNPINNED_BODY(cuMemFreeHost)
UNPINNED_BODY(cuMemHostUnregister)

/* Registers of another device are no memory that anybody stores addresses in, and reading them may do anything. */
CUresult ov_body_cuMemHostRegister_v2(void *host, size_t bytes, unsigned flags)
{
    const CUresult result = OV_REAL(cuMemHostRegister_v2, (host, bytes, flags));
    if (result == CUDA_SUCCESS && (flags & CU_MEMHOSTREGISTER_IOMEMORY) == 0) {
        ov_zerocopy_added(host, bytes, false);
    }
    return result;
}

/* An allocation that is captured costs memory only when its graph is launched. */
static size_t pool_bytes(CUstream stream, size_t bytes)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult result = OV_REAL(cuStreamIsCapturing, (stream, &status));
    return result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE ? 0 : bytes;
}

#define POOL_BODIES(suffix)                                                                                 \
    CUresult ov_body_cuMemAllocAsync##suffix(CUdeviceptr *address, size_t bytes, CUstream stream)           \
    {                                                                                                       \
        CUresult result;                                                                                    \
        if (ov_mem_alloc_async(address, bytes, NULL, OV_STREAM(suffix, stream), &result)) {                 \
            return result;                                                                                  \
        }                                                                                                   \
        result = OV_REAL(cuMemAllocAsync##suffix, (address, bytes, stream));                                \
        if (result == CUDA_SUCCESS) {                                                                       \
            ov_pool_added(*address, bytes, pool_bytes(OV_STREAM(suffix, stream), bytes));                   \
        }                                                                                                   \
        return result;                                                                                      \
    }                                                                                                       \
    CUresult ov_body_cuMemAllocFromPoolAsync##suffix(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, \
                                                     CUstream stream)                                       \
    {                                                                                                       \
        CUresult result;                                                                                    \
        if (pool != NULL && ov_mem_alloc_async(address, bytes, pool, OV_STREAM(suffix, stream), &result)) { \
            return result;                                                                                  \
        }                                                                                                   \
        result = OV_REAL(cuMemAllocFromPoolAsync##suffix, (address, bytes, pool, stream));                  \
        if (result == CUDA_SUCCESS) {                                                                       \
            ov_pool_added(*address, bytes, pool_bytes(OV_STREAM(suffix, stream), bytes));                   \
        }                                                                                                   \
        return result;                                                                                      \
    }                                                                                                       \
    CUresult ov_body_cuMemFreeAsync##suffix(CUdeviceptr address, CUstream stream)                           \
    {                                                                                                       \
        CUresult result;                                                                                    \
        if (ov_mem_free_async(address, OV_STREAM(suffix, stream), &result)) {                               \
            return result;                                                                                  \
        }                                                                                                   \
        return OV_REAL(cuMemFreeAsync##suffix, (address, stream));                                          \
    }

POOL_BODIES()
POOL_BODIES(_ptsz)

CUresult ov_body_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
    const CUresult result = OV_REAL(cuMemPoolCreate, (pool, props));
    if (result == CUDA_SUCCESS) {
        ov_pool_made(*pool, props);
    }
    return result;
}

CUresult ov_body_cuMemPoolDestroy(CUmemoryPool pool)
{
    ov_pool_gone(pool);
    return OV_REAL(cuMemPoolDestroy, (pool));
}

CUresult ov_body_cuMemPoolTrimTo(CUmemoryPool pool, size_t keep_bytes)
{
    return ov_pool_trim(pool, keep_bytes);
}

CUresult ov_body_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    return ov_pool_get_attribute(pool, attribute, value);
}

CUresult ov_body_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    return ov_pool_set_attribute(pool, attribute, value);
}

CUresult ov_body_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *desc, size_t count)
{
    return ov_pool_set_access(pool, desc, count);
}

CUresult ov_body_cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    return ov_ipc_get_mem_handle(handle, address);
}

#define OPEN_BODY(name)                                                                                            \
    CUresult ov_body_##name(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags)                           \
    {                                                                                                              \
        CUresult result;                                                                                           \
        return ov_ipc_open_mem_handle(address, &handle, flags, &result) ? result                                   \
                                                                        : OV_REAL(name, (address, handle, flags)); \
    }

OPEN_BODY(cuIpcOpenMemHandle)
OPEN_BODY(cuIpcOpenMemHandle_v2)

CUresult ov_body_cuIpcCloseMemHandle(CUdeviceptr address)
{
    CUresult result;
    return ov_ipc_close_mem_handle(address, &result) ? result : OV_REAL(cuIpcCloseMemHandle, (address));
}
