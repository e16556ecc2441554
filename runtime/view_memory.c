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

/* The allocation that holds an address: false, if it is none of ours. */
static bool find(CUdeviceptr address, struct ov_engine **engine, struct ov_alloc *copy)
{
    bool found = false;
    *engine = ov_engine_of(address);
    if (*engine != NULL) {
        pthread_mutex_lock(&(*engine)->lock);
        const struct ov_alloc *alloc = ov_alloc_of(*engine, ov_arena_page(&(*engine)->arena, address));
        if (alloc != NULL && address - ov_page_address(&(*engine)->arena, alloc->first) < alloc->bytes) {
            *copy = *alloc;
            found = true;
        }
        pthread_mutex_unlock(&(*engine)->lock);
    }
    return found;
}

CUresult ov_mem_get_address_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    struct ov_engine *engine;
    struct ov_alloc alloc;
    if (!find(address, &engine, &alloc)) {
        return ov_cu->cuMemGetAddressRange_v2(base, bytes, address);
    }
    if (base != NULL) {
        *base = ov_page_address(&engine->arena, alloc.first);
    }
    if (bytes != NULL) {
        *bytes = alloc.bytes;
    }
    return CUDA_SUCCESS;
}

/*
 * Mapped memory answers some questions otherwise than allocated memory would: its kind follows the page behind it, its
 * range is one mapping, it has no context. Those are answered here, in place of the driver, all others by the driver.
 */
static bool answer(const struct ov_engine *engine, const struct ov_alloc *alloc, CUpointer_attribute attribute,
                   void *value)
{
    CUdeviceptr base = ov_page_address(&engine->arena, alloc->first);
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)value = engine->context;
        return true;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)value = CU_MEMORYTYPE_DEVICE;
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)value = engine->device;
        return true;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)value = (unsigned long long)1 << 48 | (unsigned long long)alloc->ordinal;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)value = base;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)value = alloc->bytes;
        return true;
    default:
        return false;
    }
}

CUresult ov_pointer_get_attribute(void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    struct ov_engine *engine;
    struct ov_alloc alloc;
    if (value != NULL && find(address, &engine, &alloc) && answer(engine, &alloc, attribute, value)) {
        return CUDA_SUCCESS;
    }
    return ov_cu->cuPointerGetAttribute(value, attribute, address);
}

CUresult ov_pointer_get_attributes(unsigned count, CUpointer_attribute *attribute, void **values, CUdeviceptr address)
{
    struct ov_engine *engine;
    struct ov_alloc alloc;
    CUresult result = ov_cu->cuPointerGetAttributes(count, attribute, values, address);
    if (result == CUDA_SUCCESS && find(address, &engine, &alloc)) {
        for (unsigned i = 0; i < count; i++) {
            if (values[i] != NULL) {
                (void)answer(engine, &alloc, attribute[i], values[i]);
            }
        }
    }
    return result;
}
