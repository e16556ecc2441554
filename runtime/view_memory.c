/* What the program may see of its memory: see "Memory" in runtime.h. */
#include <string.h>

#include "engine.h"
#include "runtime.h"

/* Most of what was uploaded has been used by a launch, and not everything is on the device: what the program loads, it
 * has loaded. */
static bool arrived(const struct ov_engine *engine)
{
    size_t uploaded = 0, unused = 0;
    if (engine->ledger.host_bytes == 0) {
        return false;
    }
    for (uint32_t i = 0; i < engine->allocs.count; i++) {
        const struct ov_alloc *alloc = &engine->allocs.item[i];
        size_t bytes = 0;
        for (uint32_t p = alloc->first; alloc->ordinal != 0 && p < alloc->first + alloc->pages; p++) {
            bytes += engine->learn.memo[p].uploaded;
        }
        uploaded += bytes;
        unused += alloc->visits == 0 ? bytes : 0;
    }
    return uploaded > 0 && unused <= uploaded / 16;
}

static bool mostly_uploaded(const struct ov_engine *engine, uint32_t page)
{
    return engine->learn.memo[page].uploaded >= OV_PAGE_BYTES / 2;
}

/* Pages that are written, or may be: those that belong to no weight. Before there is a plan, weights that kernels have
 * made look like them, so they are taken for a quarter of the budget at most. */
static size_t written_pages(const struct ov_engine *engine)
{
    size_t pages = 0, most = (engine->ledger.budget_bytes / 4) >> OV_PAGE_SHIFT;
    for (uint32_t p = 0; p < engine->arena.high_page; p++) {
        pages += engine->arena.page[p].alloc != 0 && !mostly_uploaded(engine, p);
    }
    for (uint32_t i = 0; i < engine->ring.unit_count; i++) {
        const struct ov_unit *unit = &engine->ring.unit[i];
        for (uint32_t p = unit->first; p < unit->first + unit->pages; p++) {
            pages -= !mostly_uploaded(engine, p);
        }
    }
    return engine->plans > 0 || pages < most ? pages : most;
}

/* What the budget cannot give to further memory that is written. Weights give way. */
static size_t written_bytes(const struct ov_engine *engine)
{
    const struct ov_ledger *ledger = &engine->ledger;
    size_t ring = engine->plans > 0 ? (size_t)engine->ring.pages << OV_PAGE_SHIFT : ledger->budget_bytes / 8;
    return ring + (written_pages(engine) << OV_PAGE_SHIFT) + ledger->held_bytes[OV_FOR_SMALL] +
           ledger->held_bytes[OV_FOR_FOREIGN] + ledger->held_bytes[OV_FOR_SCRATCH] +
           ledger->set_aside_bytes[OV_FOR_SMALL] + ledger->set_aside_bytes[OV_FOR_SCRATCH];
}

struct ov_report_answer ov_memory_told(struct ov_engine *engine, size_t device_free_bytes, size_t device_total_bytes)
{
    struct ov_report_facts facts = {
        .total_bytes = device_total_bytes,
        .device_free_bytes = device_free_bytes,
        .host_backed = ov_host_backed(engine),
        .stage = !arrived(engine)     ? OV_REPORT_LOADING
                 : engine->plans == 0 ? OV_REPORT_IN_USE
                                      : OV_REPORT_PLANNED,
    };
    facts.written_bytes = facts.stage != OV_REPORT_LOADING ? written_bytes(engine) : 0;
    return ov_report_ask(&engine->report, &ov_opt, &engine->ledger, &facts);
}

CUresult ov_mem_get_info(size_t *free_bytes, size_t *total_bytes)
{
    struct ov_report_answer answer = {0, 0};
    CUresult result = ov_cu->cuMemGetInfo_v2(&answer.free_bytes, &answer.total_bytes);
    struct ov_engine *engine = result == CUDA_SUCCESS ? ov_engine_here() : NULL;
    if (engine != NULL) {
        pthread_mutex_lock(&engine->lock);
        answer = ov_memory_told(engine, answer.free_bytes, answer.total_bytes);
        pthread_mutex_unlock(&engine->lock);
    }
    if (result == CUDA_SUCCESS) {
        if (free_bytes != NULL) {
            *free_bytes = answer.free_bytes;
        }
        if (total_bytes != NULL) {
            *total_bytes = answer.total_bytes;
        }
    }
    return result;
}

CUresult ov_device_total_mem(size_t *bytes, CUdevice device)
{
    size_t total = 0;
    CUresult result = ov_cu->cuDeviceTotalMem_v2(&total, device);
    if (result == CUDA_SUCCESS && bytes != NULL) {
        *bytes = ov_device_managed(device) ? ov_report_total(&ov_opt, total) : total;
    }
    return bytes != NULL ? result : CUDA_ERROR_INVALID_VALUE;
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
