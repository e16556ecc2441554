/* What an address of the arena is, as far as the program may see: see "Memory" in runtime.h. */
#include "engine.h"
#include "runtime.h"

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
    bool shareable; /* by cuIpcGetMemHandle */
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
    memory->shareable = false;
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
                                      .shareable = alloc->pool == NULL && ov_ipc_capable(engine),
                                      .id = (unsigned long long)1 << 48 | (unsigned long long)alloc->ordinal,
                                      .access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
            found = true;
        }
        pthread_mutex_unlock(&engine->lock);
    }
    return found;
}

/* Behind an allocation's end, on its last page: the driver would find the page's mapping. */
static bool past_an_end(CUdeviceptr address)
{
    struct ov_engine *engine = ov_engine_of(address);
    bool past = false;
    if (engine != NULL) {
        pthread_mutex_lock(&engine->lock);
        const struct ov_alloc *alloc = ov_alloc_of(engine, ov_arena_page(&engine->arena, address));
        past = alloc != NULL && !alloc->reserved;
        pthread_mutex_unlock(&engine->lock);
    }
    return past;
}

CUresult ov_mem_get_address_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    struct memory memory;
    bool known = find(address, &memory) && !memory.fixed;
    if (!known && !ov_ipc_opened(address, &memory.base, &memory.bytes)) {
        return past_an_end(address) ? CUDA_ERROR_NOT_FOUND : ov_cu->cuMemGetAddressRange_v2(base, bytes, address);
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
enum by { BY_DRIVER, BY_US, BY_NOBODY };

static enum by answer_own(const struct memory *memory, CUpointer_attribute attribute, void *value)
{
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)value = memory->context;
        return BY_US;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)value = CU_MEMORYTYPE_DEVICE;
        return BY_US;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)value = memory->device;
        return BY_US;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        return BY_NOBODY;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(int *)value = memory->shareable;
        return BY_US;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *(unsigned long long *)value = memory->id;
        return BY_US;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *(CUdeviceptr *)value = memory->base;
        return BY_US;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)value = memory->bytes;
        return BY_US;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)value = memory->pool;
        return BY_US;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *(int *)value = memory->rdma; /* it will be, when it is asked for (ov_mem_given_away) */
        return true;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned long long *)value = memory->types;
        return BY_US;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(unsigned long long *)value = memory->access;
        return BY_US;
    default:
        return BY_DRIVER;
    }
}

static enum by answer(const struct memory *memory, CUpointer_attribute attribute, void *value)
{
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)value = memory->range;
        return BY_US;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)value = memory->range_bytes;
        return BY_US;
    default:
        return memory->fixed ? BY_DRIVER : answer_own(memory, attribute, value);
    }
}

CUresult ov_pointer_get_attribute(void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    struct memory memory;
    enum by by = value != NULL && find(address, &memory) ? answer(&memory, attribute, value) : BY_DRIVER;
    return by == BY_DRIVER ? ov_cu->cuPointerGetAttribute(value, attribute, address)
           : by == BY_US   ? CUDA_SUCCESS
                           : CUDA_ERROR_INVALID_VALUE;
}

CUresult ov_pointer_get_attributes(unsigned count, CUpointer_attribute *attribute, void **values, CUdeviceptr address)
{
    struct memory memory;
    CUresult result = ov_cu->cuPointerGetAttributes(count, attribute, values, address);
    if (result == CUDA_SUCCESS && find(address, &memory)) {
        for (unsigned i = 0; i < count; i++) {
            if (values[i] != NULL && answer(&memory, attribute[i], values[i]) == BY_NOBODY) {
                *(void **)values[i] = NULL; /* where the singular form refuses */
            }
        }
    }
    return result;
}
