/* What an address of the arena is, as far as the program may see: see "Memory" in runtime.h. */
#include <string.h>

#include "engine.h"
#include "log.h"
#include "runtime.h"

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

static CUresult give_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr base_of_it, size_t bytes_of_it)
{
    if (base != NULL) {
        *base = base_of_it;
    }
    if (bytes != NULL) {
        *bytes = bytes_of_it;
    }
    return CUDA_SUCCESS;
}

CUresult ov_mem_get_address_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    struct ov_engine *engine;
    struct ov_alloc alloc;
    if (!find(address, &engine, &alloc)) {
        CUdeviceptr opened_base;
        size_t opened_bytes;
        if (engine == NULL && ov_ipc_opened(address, &opened_base, &opened_bytes)) {
            return give_range(base, bytes, opened_base, opened_bytes);
        }
        return engine == NULL ? ov_cu->cuMemGetAddressRange_v2(base, bytes, address) : CUDA_ERROR_NOT_FOUND;
    }
    return give_range(base, bytes, ov_page_address(&engine->arena, alloc.first), alloc.bytes);
}

/*
 * Mapped memory answers some questions otherwise than allocated memory would: its kind and rights follow the page
 * behind it, its range is one mapping, it has no context. Those are answered here, as the driver would for allocated
 * memory; all others by the driver.
 */
enum by { BY_DRIVER, BY_US, BY_NOBODY };

static enum by answer(const struct ov_engine *engine, const struct ov_alloc *alloc, CUpointer_attribute attribute,
                      void *value)
{
    const CUdeviceptr base = ov_page_address(&engine->arena, alloc->first);
    const unsigned long long id = (unsigned long long)1 << 48 | (unsigned long long)alloc->ordinal;
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)value = engine->context;
        return BY_US;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)value = CU_MEMORYTYPE_DEVICE;
        return BY_US;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        return BY_NOBODY;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)value = engine->device;
        return BY_US;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *(unsigned long long *)value = id;
        return BY_US;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *(CUdeviceptr *)value = base;
        return BY_US;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)value = alloc->bytes;
        return BY_US;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(int *)value = ov_ipc_capable(engine);
        return BY_US;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned long long *)value = 0;
        return BY_US;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(unsigned long long *)value = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
        return BY_US;
    default:
        return BY_DRIVER;
    }
}

CUresult ov_pointer_get_attribute(void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    struct ov_engine *engine;
    struct ov_alloc alloc;
    enum by by = value != NULL && find(address, &engine, &alloc) ? answer(engine, &alloc, attribute, value) : BY_DRIVER;
    return by == BY_DRIVER ? ov_cu->cuPointerGetAttribute(value, attribute, address)
           : by == BY_US   ? CUDA_SUCCESS
                           : CUDA_ERROR_INVALID_VALUE;
}

/* The driver's plural form answers zeros where its singular form refuses. */
CUresult ov_pointer_get_attributes(unsigned count, CUpointer_attribute *attribute, void **values, CUdeviceptr address)
{
    struct ov_engine *engine;
    struct ov_alloc alloc;
    CUresult result = ov_cu->cuPointerGetAttributes(count, attribute, values, address);
    if (result == CUDA_SUCCESS && find(address, &engine, &alloc)) {
        for (unsigned i = 0; i < count; i++) {
            if (values[i] != NULL && answer(engine, &alloc, attribute[i], values[i]) == BY_NOBODY) {
                *(void **)values[i] = NULL;
            }
        }
    }
    return result;
}

/* A handle to the physical memory of now: what stands behind the address may be other memory tomorrow. */
CUresult ov_mem_get_handle_for_range(void *handle, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type,
                                     unsigned long long flags)
{
    if (ov_engine_of(address) == NULL) {
        return ov_cu->cuMemGetHandleForAddressRange(handle, address, bytes, type, flags);
    }
    ov_log_once(OV_LOG_WARN,
                "cuMemGetHandleForAddressRange (a dma-buf, for network cards and storage) is refused for memory that "
                "overshot manages; OVERSHOT_EXCLUDE leaves allocations of given sizes to the driver");
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult ov_mem_retain_handle(CUmemGenericAllocationHandle *handle, void *address)
{
    if (ov_engine_of((CUdeviceptr)(uintptr_t)address) == NULL) {
        return ov_cu->cuMemRetainAllocationHandle(handle, address);
    }
    return CUDA_ERROR_INVALID_VALUE; /* as for memory of cuMemAlloc */
}
