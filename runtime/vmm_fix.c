/*
 * Virtual handles that become real: see vmm.h. From then on their memory is the driver's, stays on the device, and is
 * reached by us only through the program's own mapping.
 */
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "engine.h"
#include "log.h"
#include "runtime.h"
#include "vmm.h"

/* Device memory for all of the handle beside what it has now; the ring goes last. In an exclusive section; idle: the
 * device is known to be. */
static CUresult find_room(struct ov_engine *engine, const struct ov_handle *handle, bool idle)
{
    bool may = idle;
    if (may && handle->bytes > ov_ledger_left(&engine->ledger)) {
        ov_idle_drop(engine, 0, true);
    }
    may = may && engine->arena.host_capable && ov_mode_moves();
    if (may && handle->bytes > ov_ledger_left(&engine->ledger) && ov_ring_open(engine) == CUDA_SUCCESS) {
        ov_demote_some(engine, handle->pages);
    }
    if (may && handle->bytes > ov_ledger_left(&engine->ledger) && engine->ring.pages > 0) {
        ov_revoke_all(engine, 0);
        if (engine->ring.streamed_count == 0) {
            (void)ov_ring_resize(engine, 0);
        }
        engine->replan_soon = true;
    }
    return ov_ledger_take(&engine->ledger, OV_FOR_FOREIGN, handle->bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult make_real(struct ov_engine *engine, const struct ov_handle *handle, bool idle,
                          CUmemGenericAllocationHandle *real)
{
    CUresult result = find_room(engine, handle, idle);
    if (result == CUDA_SUCCESS) {
        result = ov_cu->cuMemCreate(real, handle->bytes, &handle->prop, 0);
        if (result != CUDA_SUCCESS) {
            ov_ledger_give(&engine->ledger, OV_FOR_FOREIGN, handle->bytes);
        }
    }
    return result;
}

static void unmake_real(struct ov_engine *engine, const struct ov_handle *handle, CUmemGenericAllocationHandle real)
{
    (void)ov_cu->cuMemRelease(real);
    ov_ledger_give(&engine->ledger, OV_FOR_FOREIGN, handle->bytes);
}

/* Copies [first, first + pages) of the arena into the real handle, by a mapping of its own. */
static CUresult fill_real(struct ov_engine *engine, uint32_t first, uint32_t pages, CUmemGenericAllocationHandle real)
{
    size_t bytes = (size_t)pages << OV_PAGE_SHIFT;
    CUdeviceptr window;
    CUresult result = ov_ring_open(engine); /* its stream is what copies */
    if (result == CUDA_SUCCESS) {
        result = ov_cu->cuMemAddressReserve(&window, bytes, 0, 0, 0);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = ov_cu->cuMemMap(window, bytes, 0, real, 0);
    if (result == CUDA_SUCCESS) {
        result = ov_arena_access(&engine->arena, window, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        if (result == CUDA_SUCCESS) {
            result = ov_copy_pages(engine, window, ov_page_address(&engine->arena, first), pages);
        }
        (void)ov_cu->cuMemUnmap(window, bytes);
    }
    (void)ov_cu->cuMemAddressFree(window, bytes);
    return result;
}

/* The mapping shows the real memory from now on. */
static CUresult swap_mapping(struct ov_engine *engine, struct ov_mapping *mapping, CUmemGenericAllocationHandle real)
{
    struct ov_arena *arena = &engine->arena;
    CUresult result = ov_unback(arena, mapping->first, mapping->pages);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    ov_drop_masters(arena, mapping->first, mapping->pages);
    result =
        ov_cu->cuMemMap(ov_page_address(arena, mapping->first), (size_t)mapping->pages << OV_PAGE_SHIFT, 0, real, 0);
    if (result == CUDA_SUCCESS) {
        result = ov_mapping_grant(engine, mapping);
    }
    mapping->fixed = true;
    for (uint32_t p = mapping->first; p < mapping->first + mapping->pages; p++) {
        arena->page[p].backing = OV_FIXED;
    }
    ov_learn_forget(engine, mapping->first, mapping->pages);
    return result;
}

static CUresult fix_mapped(struct ov_engine *engine, struct ov_handle *handle, bool idle)
{
    CUmemGenericAllocationHandle real;
    struct ov_mapping *mapping = &engine->vmm.item[handle->mapping - 1];
    if (!idle) {
        return CUDA_ERROR_NOT_PERMITTED; /* the device cannot be asked whether it still uses the pages */
    }
    CUresult result = ov_units_leave(engine, mapping->first, mapping->pages);
    if (result == CUDA_SUCCESS) {
        result = make_real(engine, handle, idle, &real);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = fill_real(engine, mapping->first, mapping->pages, real);
    if (result != CUDA_SUCCESS) {
        unmake_real(engine, handle, real);
        return result;
    }
    handle->real = real;
    result = swap_mapping(engine, mapping, real);
    if (result != CUDA_SUCCESS) {
        ov_log_once(OV_LOG_ERROR, "memory that the program maps twice could not be shown to it (error %d)",
                    (int)result);
    }
    handle->mapping = 0;
    return result;
}

/* Nothing was ever written: there is nothing to copy, and its memory may be given back first. */
static CUresult fix_unwritten(struct ov_engine *engine, struct ov_handle *handle, bool idle)
{
    ov_loose_drop(&engine->arena, &handle->loose);
    CUresult result = make_real(engine, handle, idle, &handle->real);
    if (result != CUDA_SUCCESS) {
        bool host = ov_mode_moves() && engine->arena.host_capable;
        (void)ov_loose_make(&engine->arena, handle->pages, host, &handle->loose);
    }
    return result;
}

static CUresult fix_loose(struct ov_engine *engine, struct ov_handle *handle, bool idle)
{
    struct ov_arena *arena = &engine->arena;
    CUmemGenericAllocationHandle real;
    uint32_t first = ov_arena_take(arena, handle->pages);
    if (first == UINT32_MAX) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = ov_loose_attach(arena, first, &handle->loose);
    if (result == CUDA_SUCCESS) {
        result = make_real(engine, handle, idle, &real);
        if (result == CUDA_SUCCESS) {
            result = fill_real(engine, first, handle->pages, real);
            if (result != CUDA_SUCCESS) {
                unmake_real(engine, handle, real);
            }
        }
        CUresult detached = ov_loose_detach(arena, first, handle->pages, &handle->loose);
        if (result == CUDA_SUCCESS) {
            handle->real = real;
            ov_loose_drop(arena, &handle->loose);
        }
        if (detached != CUDA_SUCCESS) {
            return detached; /* its addresses are lost with it */
        }
    }
    ov_arena_give(arena, first, handle->pages);
    return result;
}

CUresult ov_handle_fix(CUmemGenericAllocationHandle id, CUmemGenericAllocationHandle *real)
{
    struct ov_handle *handle = ov_handle_lock(id);
    if (handle == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct ov_engine *engine = handle->engine;
    bool fixed = handle->real != 0;
    handle->references++; /* it stays, whatever other threads do */
    pthread_mutex_unlock(&engine->lock);
    CUresult result = CUDA_SUCCESS;
    CUdeviceptr shown = 0;
    if (!fixed) {
        struct ov_exclusive section;
        result = ov_exclusive_begin(engine, &section);
        if (result == CUDA_SUCCESS && handle->real == 0) { /* else another thread was faster */
            shown =
                handle->mapping != 0 ? ov_page_address(&engine->arena, engine->vmm.item[handle->mapping - 1].first) : 0;
            result = shown != 0         ? fix_mapped(engine, handle, section.idle)
                     : !handle->written ? fix_unwritten(engine, handle, section.idle)
                                        : fix_loose(engine, handle, section.idle);
        }
        ov_exclusive_end(engine, &section);
        if (shown != 0 && result == CUDA_SUCCESS) {
            ov_foreign_added(shown, handle->bytes, 0); /* searched for addresses */
        }
        if (result == CUDA_SUCCESS) {
            ov_log(OV_LOG_INFO, "device %d: %zu MiB of the program's own memory are shared: they stay on the device",
                   engine->device, handle->bytes >> 20);
        }
    }
    pthread_mutex_lock(&engine->lock);
    if (result == CUDA_SUCCESS) {
        *real = handle->real;
    }
    handle->references--;
    ov_handle_settle(handle);
    pthread_mutex_unlock(&engine->lock);
    return result;
}
