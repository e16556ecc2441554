/* Rights of the program's mappings: see vmm.h. */
#include <string.h>

#include "engine.h"
#include "runtime.h"
#include "vmm.h"

static bool flags_known(CUmemAccess_flags flags)
{
    return flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
           flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

/* Whether [first, end) is a row of whole mappings. *virtuals: there are some that the driver does not know. */
static bool is_row(struct ov_engine *engine, uint32_t first, uint32_t end, bool *virtuals)
{
    *virtuals = false;
    for (uint32_t p = first; p < end;) {
        const struct ov_mapping *mapping = ov_mapping_of(engine, p);
        if (mapping == NULL || mapping->first != p || mapping->pages > end - p) {
            return false;
        }
        *virtuals = *virtuals || !mapping->fixed;
        p += mapping->pages;
    }
    return true;
}

static CUresult check(const CUmemAccessDesc *desc, size_t count, bool virtuals)
{
    int devices = 0;
    if (ov_cu->cuDeviceGetCount(&devices) != CUDA_SUCCESS) {
        devices = OV_DEVICES;
    }
    for (size_t i = 0; i < count && virtuals; i++) {
        if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
            return CUDA_ERROR_NOT_SUPPORTED; /* device memory, seen by the host */
        }
        if (desc[i].location.id < 0 || desc[i].location.id >= devices || desc[i].location.id >= OV_DEVICES ||
            !flags_known(desc[i].flags)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

/* Peers that are named are admitted to the arena as a whole. */
static CUresult admit(struct ov_engine *engine, const CUmemAccessDesc *desc, size_t count)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        if (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) {
            result = ov_arena_admit(&engine->arena, desc[i].location.id);
        }
    }
    return result;
}

static CUresult set_row(struct ov_engine *engine, uint32_t first, uint32_t end, const CUmemAccessDesc *desc,
                        size_t count)
{
    CUresult result = CUDA_SUCCESS;
    for (uint32_t p = first; p < end && result == CUDA_SUCCESS;) {
        struct ov_mapping *mapping = ov_mapping_of(engine, p);
        if (mapping->fixed) {
            result = ov_cu->cuMemSetAccess(ov_page_address(&engine->arena, p), (size_t)mapping->pages << OV_PAGE_SHIFT,
                                           desc, count);
        }
        for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
            if (desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE && desc[i].location.id < OV_DEVICES) {
                mapping->access[desc[i].location.id] = (uint8_t)desc[i].flags;
            }
        }
        p += mapping->pages;
    }
    return result;
}

CUresult ov_mem_set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *desc, size_t count)
{
    struct ov_engine *engine = ov_engine_of(address);
    if (engine == NULL) {
        return ov_cu->cuMemSetAccess(address, bytes, desc, count);
    }
    const uint64_t offset = address - engine->arena.base;
    bool whole = bytes > 0 && offset % OV_PAGE_BYTES == 0 && bytes % OV_PAGE_BYTES == 0 &&
                 bytes <= ((uint64_t)engine->arena.page_count << OV_PAGE_SHIFT) - offset;
    if (desc == NULL || count == 0 || !whole) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    bool virtuals = false, entered = ov_context_enter(engine);
    pthread_mutex_lock(&engine->lock);
    uint32_t first = ov_arena_page(&engine->arena, address), end = first + ov_pages(bytes);
    CUresult result = is_row(engine, first, end, &virtuals) ? check(desc, count, virtuals) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && virtuals) {
        result = admit(engine, desc, count);
    }
    if (result == CUDA_SUCCESS) {
        result = set_row(engine, first, end, desc, count);
    }
    pthread_mutex_unlock(&engine->lock);
    ov_context_leave(entered);
    return result;
}

CUresult ov_mem_get_access(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address)
{
    struct ov_engine *engine = ov_engine_of(address);
    if (engine == NULL) {
        return ov_cu->cuMemGetAccess(flags, location, address);
    }
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&engine->lock);
    const struct ov_mapping *mapping = ov_mapping_of(engine, ov_arena_page(&engine->arena, address));
    bool fixed = mapping != NULL && mapping->fixed;
    if (mapping != NULL && !fixed && flags != NULL && location != NULL) {
        if (location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id >= 0 && location->id < OV_DEVICES) {
            *flags = mapping->access[location->id];
            result = CUDA_SUCCESS;
        } else if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) {
            *flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
            result = CUDA_SUCCESS;
        }
    }
    pthread_mutex_unlock(&engine->lock);
    return fixed ? ov_cu->cuMemGetAccess(flags, location, address) : result;
}

CUresult ov_mapping_grant(struct ov_engine *engine, const struct ov_mapping *mapping)
{
    CUmemAccessDesc desc[OV_DEVICES];
    size_t count = 0;
    for (int device = 0; device < OV_DEVICES; device++) {
        if (mapping->access[device] != CU_MEM_ACCESS_FLAGS_PROT_NONE) {
            memset(&desc[count], 0, sizeof desc[count]);
            desc[count].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
            desc[count].location.id = device;
            desc[count++].flags = (CUmemAccess_flags)mapping->access[device];
        }
    }
    if (count == 0) {
        return CUDA_SUCCESS;
    }
    return ov_cu->cuMemSetAccess(ov_page_address(&engine->arena, mapping->first),
                                 (size_t)mapping->pages << OV_PAGE_SHIFT, desc, count);
}
