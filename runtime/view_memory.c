/* What the program may see of its memory: see "Memory" in runtime.h. */
#include <string.h>

#include "engine.h"
#include "runtime.h"

/*
 * The device looks as large as what may be allocated: the budget and the host memory that may stand in for it, at most
 * the real total. What the program has allocated, wherever it is, is used. So free never rises without a free, shrinks
 * to zero as memory is filled, and free + used is never more than the total.
 */
CUresult ov_mem_get_info(size_t *free_bytes, size_t *total_bytes)
{
    size_t real_free = 0, real_total = 0;
    CUresult result = ov_cu->cuMemGetInfo_v2(&real_free, &real_total);
    struct ov_engine *engine = result == CUDA_SUCCESS ? ov_engine_here() : NULL;
    if (engine != NULL) {
        pthread_mutex_lock(&engine->lock);
        const struct ov_ledger *ledger = &engine->ledger;
        size_t room = ledger->budget_bytes;
        if (engine->arena.host_capable && ov_opt.mode == OV_OPT_MODE_AUTO) {
            room = ledger->host_limit_bytes < real_total && room < real_total - ledger->host_limit_bytes
                       ? room + ledger->host_limit_bytes
                       : real_total;
        }
        room = room < real_total ? room : real_total;
        real_free = ledger->program_bytes < room ? room - ledger->program_bytes : 0;
        pthread_mutex_unlock(&engine->lock);
    }
    if (result == CUDA_SUCCESS) {
        if (free_bytes != NULL) {
            *free_bytes = real_free;
        }
        if (total_bytes != NULL) {
            *total_bytes = real_total;
        }
    }
    return result;
}

/* What the program knows an address as: memory that it allocated, or mapped. */
struct memory {
    CUdeviceptr base; /* of the allocation or mapping, ... */
    size_t bytes;
    CUdeviceptr range; /* ... and of what was reserved */
    size_t range_bytes;
    bool fixed;        /* the driver knows it, but for the range */
    CUcontext context; /* mappings belong to none */
    CUdevice device;
    unsigned long long id, types, access; /* access: of the current device */
    CUmemoryPool pool;
    int rdma;
};

static void describe_mapping(struct ov_engine *engine, const struct ov_mapping *mapping, struct memory *memory)
{
    CUdevice here = engine->device;
    const struct ov_alloc *alloc = ov_alloc_of(engine, mapping->first);
    memory->range = ov_page_address(&engine->arena, alloc->first);
    memory->range_bytes = alloc->bytes;
    memory->fixed = mapping->fixed;
    if (mapping->fixed) {
        return;
    }
    (void)ov_cu->cuCtxGetDevice(&here);
    memory->base = ov_page_address(&engine->arena, mapping->first);
    memory->bytes = mapping->handle->bytes;
    memory->context = NULL;
    memory->pool = NULL;
    memory->rdma = mapping->handle->prop.allocFlags.gpuDirectRDMACapable;
    memory->device = mapping->handle->prop.location.id;
    memory->id = mapping->handle->id;
    memory->types = (unsigned long long)mapping->handle->prop.requestedHandleTypes;
    memory->access = here >= 0 && here < OV_DEVICES ? mapping->access[here] : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

/* False, if the driver knows better. */
static bool find(CUdeviceptr address, struct memory *memory)
{
    bool found = false;
    struct ov_engine *engine = ov_engine_of(address);
    if (engine != NULL) {
        pthread_mutex_lock(&engine->lock);
        uint32_t page = ov_arena_page(&engine->arena, address);
        const struct ov_alloc *alloc = ov_alloc_of(engine, page);
        const struct ov_mapping *mapping = ov_mapping_of(engine, page);
        if (mapping != NULL) {
            describe_mapping(engine, mapping, memory);
            found = true;
        } else if (alloc != NULL && !alloc->reserved && !alloc->idle &&
                   address - ov_page_address(&engine->arena, alloc->first) < alloc->bytes) {
            CUdeviceptr base = ov_page_address(&engine->arena, alloc->first);
            *memory = (struct memory){.base = base,
                                      .bytes = alloc->bytes,
                                      .range = base,
                                      .range_bytes = alloc->bytes,
                                      .context = engine->context,
                                      .device = engine->device,
                                      .pool = alloc->pool,
                                      .id = (unsigned long long)1 << 48 | (unsigned long long)alloc->ordinal,
                                      .access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
            found = true;
        }
        pthread_mutex_unlock(&engine->lock);
    }
    return found;
}

CUresult ov_mem_get_address_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    struct memory memory;
    if (!find(address, &memory) || memory.fixed) {
        return ov_cu->cuMemGetAddressRange_v2(base, bytes, address);
    }
    if (base != NULL) {
        *base = memory.base;
    }
    if (bytes != NULL) {
        *bytes = memory.bytes;
    }
    return CUDA_SUCCESS;
}

/*
 * Mapped memory answers some questions otherwise than allocated memory would: its kind follows the page behind it, its
 * range is one mapping, it has no context. Those are answered here, in place of the driver, all others by the driver.
 */
static bool answer_own(const struct memory *memory, CUpointer_attribute attribute, void *value)
{
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)value = memory->context;
        return true;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)value = CU_MEMORYTYPE_DEVICE;
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)value = memory->device;
        return true;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *(unsigned long long *)value = memory->id;
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *(CUdeviceptr *)value = memory->base;
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)value = memory->bytes;
        return true;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)value = memory->pool;
        return true;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *(int *)value = memory->rdma; /* it will be, when it is asked for (ov_mem_given_away) */
        return true;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned long long *)value = memory->types;
        return true;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(unsigned long long *)value = memory->access;
        return true;
    default:
        return false;
    }
}

/* Whether it was answered here. */
static bool answer(const struct memory *memory, CUpointer_attribute attribute, void *value)
{
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)value = memory->range;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)value = memory->range_bytes;
        return true;
    default:
        return !memory->fixed && answer_own(memory, attribute, value);
    }
}

CUresult ov_pointer_get_attribute(void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    struct memory memory;
    if (value != NULL && find(address, &memory) && answer(&memory, attribute, value)) {
        return CUDA_SUCCESS;
    }
    return ov_cu->cuPointerGetAttribute(value, attribute, address);
}

CUresult ov_pointer_get_attributes(unsigned count, CUpointer_attribute *attribute, void **values, CUdeviceptr address)
{
    struct memory memory;
    CUresult result = ov_cu->cuPointerGetAttributes(count, attribute, values, address);
    if (result == CUDA_SUCCESS && find(address, &memory)) {
        for (unsigned i = 0; i < count; i++) {
            if (values[i] != NULL) {
                (void)answer(&memory, attribute[i], values[i]);
            }
        }
    }
    return result;
}
