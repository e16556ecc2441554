/* Memory that is reached by other ways than parameters of launches: see "Memory" in runtime.h. */
#include "convert.h"
#include "engine.h"
#include "log.h"
#include "runtime.h"
#include "vmm.h"

CUresult ov_mem_reached(CUdeviceptr address, size_t bytes)
{
    struct ov_engine *engine = ov_engine_of(address);
    if (engine == NULL || bytes == 0) {
        return CUDA_SUCCESS;
    }
    uint32_t first = ov_arena_page(&engine->arena, address);
    uint32_t end = ov_arena_page(&engine->arena, address + bytes - 1) + 1;
    pthread_mutex_lock(&engine->lock);
    end = end < engine->arena.high_page ? end : engine->arena.high_page;
    bool unit = first < end && ov_units_at(engine, first, end - first);
    for (uint32_t p = first; p < end; p++) {
        engine->learn.memo[p].marks |= OV_MARK_HIDDEN;
    }
    pthread_mutex_unlock(&engine->lock);
    if (!unit) {
        return CUDA_SUCCESS;
    }
    struct ov_exclusive section;
    CUresult result = ov_exclusive_begin(engine, &section);
    if (result == CUDA_SUCCESS) {
        result = ov_units_leave(engine, first, end - first);
    }
    ov_exclusive_end(engine, &section);
    return result;
}

CUresult ov_mem_given_away(CUdeviceptr address, size_t bytes)
{
    struct ov_engine *engine = ov_engine_of(address);
    if (engine == NULL || bytes == 0) {
        return CUDA_SUCCESS;
    }
    uint32_t page = ov_arena_page(&engine->arena, address);
    uint32_t end = ov_arena_page(&engine->arena, address + bytes - 1) + 1;
    CUresult result = CUDA_SUCCESS;
    while (page < end && result == CUDA_SUCCESS) {
        pthread_mutex_lock(&engine->lock);
        const struct ov_mapping *mapping = ov_mapping_of(engine, page);
        CUmemGenericAllocationHandle id = mapping != NULL && !mapping->fixed ? mapping->handle->id : 0;
        uint32_t next = mapping != NULL ? mapping->first + mapping->pages : end;
        pthread_mutex_unlock(&engine->lock);
        if (mapping == NULL) {
            /* What cuMemAlloc gave has no handle that could stay where it is. */
            ov_log_once(OV_LOG_WARN,
                        "memory that overshot manages is not given to network cards or storage (dma-buf), or to "
                        "multicast objects; OVERSHOT_EXCLUDE leaves allocations of given sizes to the driver");
            return CUDA_ERROR_NOT_SUPPORTED;
        }
        result = id != 0 ? ov_mem_real_handle(&id) : CUDA_SUCCESS;
        page = next;
    }
    return result;
}
