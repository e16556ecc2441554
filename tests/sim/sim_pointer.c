/* What an address is: pointer attributes, and the IPC handles that plain allocations have. */
#include "sim.h"

#include <string.h>

/* An address of the device's world, looked up once. `mapping` only inside reservations. */
struct pointer {
    uint64_t address;
    const struct sim_range *range;
    const struct sim_mapping *mapping;
    int on_host; /* the bytes lie in host memory */
};

static int pointer_find(uint64_t address, struct pointer *out)
{
    memset(out, 0, sizeof *out);
    out->address = address;
    out->range = sim_range_find(address);
    if (out->range == NULL) {
        return 0;
    }
    if (out->range->kind == SIM_RANGE_RESERVED) {
        out->mapping = sim_vmm_find(out->range, address);
        out->on_host = out->mapping != NULL && sim_vmm_backing(out->mapping)->pool == SIM_POOL_HOST_VMM;
        return out->mapping != NULL;
    }
    out->on_host = out->range->kind == SIM_RANGE_PINNED || out->range->kind == SIM_RANGE_REGISTERED;
    return !out->range->freed;
}

static int ordinal(const struct pointer *p)
{
    if (p->mapping == NULL) {
        return p->range->device->ordinal;
    }
    unsigned pool = sim_vmm_backing(p->mapping)->pool;
    return pool < SIM_MAX_DEVICES ? (int)pool : -1;
}

static CUresult attribute(struct sim_call *call, const struct pointer *p, void *data, CUpointer_attribute which)
{
    const struct sim_range *range = p->range;
    const struct sim_mapping *mapping = p->mapping;
    switch ((int)which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        if (mapping != NULL) {
            *(CUcontext *)data = NULL; /* mappings belong to no context */
            return CUDA_SUCCESS;
        }
        *(CUcontext *)data = (CUcontext)range->context;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data = p->on_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)data = p->address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!p->on_host && range->kind != SIM_RANGE_MANAGED) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *(void **)data = (void *)(uintptr_t)p->address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(int *)data = range->sync_memops;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)data = range->id;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(int *)data = range->kind == SIM_RANGE_MANAGED;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = ordinal(p);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(int *)data = range->kind == SIM_RANGE_DEVICE && range->pool == NULL;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = range->address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = range->bytes;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(int *)data = 1;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned long long *)data =
            mapping != NULL ? (unsigned long long)sim_vmm_prop(mapping)->requestedHandleTypes : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *(int *)data = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(unsigned long long *)data = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        if (mapping != NULL && call->context != NULL) {
            *(unsigned long long *)data = mapping->access[call->context->device->ordinal];
        }
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = (CUmemoryPool)range->pool;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)data = mapping != NULL ? mapping->bytes : range->bytes;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *(CUdeviceptr *)data = mapping != NULL ? mapping->address : range->address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *(unsigned long long *)data =
            mapping != NULL ? (unsigned long long)(uintptr_t)sim_vmm_backing(mapping) : range->id;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

SIM_API(SIM_CONTEXT, cuPointerGetAttribute, (void *data, CUpointer_attribute attribute_, CUdeviceptr ptr), data,
        attribute_, ptr)
{
    struct pointer p;
    if (data == NULL || (int)attribute_ < CU_POINTER_ATTRIBUTE_CONTEXT) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!pointer_find(ptr, &p)) {
        if (attribute_ == CU_POINTER_ATTRIBUTE_MAPPED) {
            *(int *)data = 0;
            return CUDA_SUCCESS;
        }
        return CUDA_ERROR_INVALID_VALUE;
    }
    return attribute(call, &p, data, attribute_);
}

/* How many bytes the plural form clears for an address that is not known. */
static size_t attribute_bytes(CUpointer_attribute which)
{
    switch ((int)which) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        return 4;
    default:
        return 8;
    }
}

/* Unlike the singular form this one answers zeros for an address that is not known. */
SIM_API(SIM_CONTEXT, cuPointerGetAttributes,
        (unsigned int numAttributes, CUpointer_attribute *attributes, void **data, CUdeviceptr ptr), numAttributes,
        attributes, data, ptr)
{
    struct pointer p;
    if (numAttributes == 0 || attributes == NULL || data == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    int known = pointer_find(ptr, &p);
    for (unsigned i = 0; i < numAttributes; i++) {
        if (data[i] == NULL || (int)attributes[i] < 1 || (int)attributes[i] > CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (!known || attribute(call, &p, data[i], attributes[i]) != CUDA_SUCCESS) {
            memset(data[i], 0, attribute_bytes(attributes[i]));
            if (!known && attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
                *(int *)data[i] = -2;
            }
        }
    }
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuPointerSetAttribute, (const void *value, CUpointer_attribute attribute_, CUdeviceptr ptr), value,
        attribute_, ptr)
{
    struct sim_range *range = sim_range_find(ptr);
    (void)call;
    if (value == NULL || attribute_ != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || range == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (range->kind == SIM_RANGE_RESERVED) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    range->sync_memops = *(const int *)value != 0;
    return CUDA_SUCCESS;
}

/* ---- IPC: a handle names the allocation inside this process; another process has a simulator of its own */

SIM_API(SIM_CONTEXT, cuIpcGetMemHandle, (CUipcMemHandle * pHandle, CUdeviceptr dptr), pHandle, dptr)
{
    const struct sim_range *range = sim_range_find(dptr);
    (void)call;
    if (pHandle == NULL || range == NULL || range->kind != SIM_RANGE_DEVICE || range->pool != NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memset(pHandle, 0, sizeof *pHandle);
    memcpy(pHandle->reserved, &range->address, sizeof range->address);
    return CUDA_SUCCESS;
}

/* The process that exported an allocation cannot open it. */
SIM_API(SIM_CONTEXT, cuIpcOpenMemHandle_v2, (CUdeviceptr * pdptr, CUipcMemHandle handle, unsigned int Flags), pdptr,
        handle, Flags)
{
    (void)call, (void)handle, (void)Flags;
    return pdptr == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_CONTEXT;
}
SIM_API_ALIAS(SIM_CONTEXT, cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2,
              (CUdeviceptr * pdptr, CUipcMemHandle handle, unsigned int Flags), pdptr, handle, Flags)

SIM_API(SIM_CONTEXT, cuIpcCloseMemHandle, (CUdeviceptr dptr), dptr)
{
    (void)call, (void)dptr;
    return CUDA_ERROR_INVALID_VALUE;
}
