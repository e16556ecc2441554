/*
 * hooks_vmm.c - memory that the program maps itself, and ways to reach memory without naming its address.
 *
 * The engine answers. Handles that go to the driver for other ends than mapping are replaced by real ones first.
 */
#include <string.h>

#include "hook.h"
#include "standdown.h"

/* Same arguments, the engine's answer. */
#define ANSWERED(name, engine_name, params, args) \
    CUresult ov_body_##name params                \
    {                                             \
        return engine_name args;                  \
    }

CUresult ov_body_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
                             unsigned long long flags)
{
    ov_standdown_look(false);
    return ov_mem_create(handle, bytes, prop, flags);
}

ANSWERED(cuMemRelease, ov_mem_release, (CUmemGenericAllocationHandle handle), (handle))
ANSWERED(cuMemRetainAllocationHandle, ov_mem_retain, (CUmemGenericAllocationHandle * handle, void *address),
         (handle, address))
ANSWERED(cuMemGetAllocationPropertiesFromHandle, ov_mem_handle_properties,
         (CUmemAllocationProp * prop, CUmemGenericAllocationHandle handle), (prop, handle))
ANSWERED(cuMemExportToShareableHandle, ov_mem_export,
         (void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags),
         (out, handle, type, flags))
ANSWERED(cuMemAddressReserve, ov_mem_address_reserve,
         (CUdeviceptr * address, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags),
         (address, bytes, alignment, hint, flags))
ANSWERED(cuMemAddressFree, ov_mem_address_free, (CUdeviceptr address, size_t bytes), (address, bytes))
ANSWERED(cuMemMap, ov_mem_map,
         (CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
          unsigned long long flags),
         (address, bytes, offset, handle, flags))
ANSWERED(cuMemUnmap, ov_mem_unmap, (CUdeviceptr address, size_t bytes), (address, bytes))
ANSWERED(cuMemSetAccess, ov_mem_set_access,
         (CUdeviceptr address, size_t bytes, const CUmemAccessDesc *desc, size_t count), (address, bytes, desc, count))
ANSWERED(cuMemGetAccess, ov_mem_get_access,
         (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address), (flags, location, address))

CUresult ov_body_cuMulticastBindMem(CUmemGenericAllocationHandle multicast, size_t offset,
                                    CUmemGenericAllocationHandle handle, size_t handle_offset, size_t bytes,
                                    unsigned long long flags)
{
    const CUresult result = ov_mem_real_handle(&handle);
    return result != CUDA_SUCCESS
               ? result
               : OV_REAL(cuMulticastBindMem, (multicast, offset, handle, handle_offset, bytes, flags));
}

CUresult ov_body_cuMulticastBindAddr(CUmemGenericAllocationHandle multicast, size_t offset, CUdeviceptr address,
                                     size_t bytes, unsigned long long flags)
{
    const CUresult result = ov_mem_given_away(address, bytes);
    return result != CUDA_SUCCESS ? result : OV_REAL(cuMulticastBindAddr, (multicast, offset, address, bytes, flags));
}

CUresult ov_body_cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address, size_t bytes,
                                               CUmemRangeHandleType type, unsigned long long flags)
{
    const CUresult result = ov_mem_given_away(address, bytes);
    return result != CUDA_SUCCESS ? result
                                  : OV_REAL(cuMemGetHandleForAddressRange, (handle, address, bytes, type, flags));
}

/* The list is the caller's, so its handles are replaced for the call only. */
enum { LIST_MOST = 256 };

static CUresult replace_handles(CUarrayMapInfo *list, unsigned count, CUmemGenericAllocationHandle *old)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++) {
        old[i] = list[i].memHandle.memHandle;
        if (list[i].memHandleType == CU_MEM_HANDLE_TYPE_GENERIC &&
            list[i].memOperationType == CU_MEM_OPERATION_TYPE_MAP) {
            result = ov_mem_real_handle(&list[i].memHandle.memHandle);
        }
    }
    return result;
}

#define MAP_ARRAY_BODY(suffix)                                                                         \
    CUresult ov_body_cuMemMapArrayAsync##suffix(CUarrayMapInfo *list, unsigned count, CUstream stream) \
    {                                                                                                  \
        CUmemGenericAllocationHandle old[LIST_MOST];                                                   \
        if (list == NULL || count > LIST_MOST) {                                                       \
            return OV_REAL(cuMemMapArrayAsync##suffix, (list, count, stream));                         \
        }                                                                                              \
        memset(old, 0, sizeof old);                                                                    \
        CUresult result = replace_handles(list, count, old);                                           \
        if (result == CUDA_SUCCESS) {                                                                  \
            result = OV_REAL(cuMemMapArrayAsync##suffix, (list, count, stream));                       \
        }                                                                                              \
        for (unsigned i = 0; i < count; i++) {                                                         \
            if (old[i] != 0) {                                                                         \
                list[i].memHandle.memHandle = old[i];                                                  \
            }                                                                                          \
        }                                                                                              \
        return result;                                                                                 \
    }

MAP_ARRAY_BODY()
MAP_ARRAY_BODY(_ptsz)

/* ---- textures on linear memory: from now on a kernel reads it and no launch names it */

CUresult ov_body_cuTexObjectCreate(CUtexObject *texture, const CUDA_RESOURCE_DESC *resource,
                                   const CUDA_TEXTURE_DESC *desc, const CUDA_RESOURCE_VIEW_DESC *view)
{
    CUresult result = CUDA_SUCCESS;
    if (resource != NULL && resource->resType == CU_RESOURCE_TYPE_LINEAR) {
        result = ov_mem_reached(resource->res.linear.devPtr, resource->res.linear.sizeInBytes);
    } else if (resource != NULL && resource->resType == CU_RESOURCE_TYPE_PITCH2D) {
        result = ov_mem_reached(resource->res.pitch2D.devPtr,
                                resource->res.pitch2D.pitchInBytes * resource->res.pitch2D.height);
    }
    return result != CUDA_SUCCESS ? result : OV_REAL(cuTexObjectCreate, (texture, resource, desc, view));
}

CUresult ov_body_cuTexRefSetAddress_v2(size_t *offset, CUtexref reference, CUdeviceptr address, size_t bytes)
{
    const CUresult result = ov_mem_reached(address, bytes);
    return result != CUDA_SUCCESS ? result : OV_REAL(cuTexRefSetAddress_v2, (offset, reference, address, bytes));
}

#define REFERENCE_BODY(name)                                                                                          \
    CUresult ov_body_##name(CUtexref reference, const CUDA_ARRAY_DESCRIPTOR *desc, CUdeviceptr address, size_t pitch) \
    {                                                                                                                 \
        const CUresult result = desc != NULL ? ov_mem_reached(address, desc->Height * pitch) : CUDA_SUCCESS;          \
        return result != CUDA_SUCCESS ? result : OV_REAL(name, (reference, desc, address, pitch));                    \
    }

REFERENCE_BODY(cuTexRefSetAddress2D_v3)
REFERENCE_BODY(cuTexRefSetAddress2D_v2)
