#include "alloc.h"

#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "other.h"
#include "runtime.h"

struct ov_alloc *ov_alloc_of(struct ov_engine *engine, uint32_t page)
{
    if (page >= engine->arena.high_page || engine->arena.page[page].alloc == 0) {
        return NULL;
    }
    return &engine->allocs.item[engine->arena.page[page].alloc - 1];
}

/* ---- the table ---- */

struct ov_alloc *ov_alloc_new(struct ov_engine *engine, uint32_t first, uint32_t pages, size_t bytes)
{
    struct ov_allocs *allocs = &engine->allocs;
    uint32_t index = allocs->first_free;
    if (index != 0) {
        allocs->first_free = allocs->item[index - 1].next_free;
    } else {
        if (allocs->count == allocs->room) {
            uint32_t room = allocs->room ? allocs->room * 2 : 256;
            struct ov_alloc *item = realloc(allocs->item, room * sizeof *item);
            if (item == NULL) {
                return NULL;
            }
            allocs->item = item;
            allocs->room = room;
        }
        index = ++allocs->count;
    }
    struct ov_alloc *alloc = &allocs->item[index - 1];
    memset(alloc, 0, sizeof *alloc);
    alloc->first = first;
    alloc->pages = pages;
    alloc->bytes = bytes;
    alloc->ordinal = ++allocs->last_ordinal;
    alloc->dirty = alloc->unseen = true;
    alloc->held = pages;
    for (uint32_t p = first; p < first + pages; p++) {
        engine->arena.page[p].alloc = index;
    }
    return alloc;
}

void ov_alloc_drop(struct ov_engine *engine, struct ov_alloc *alloc)
{
    struct ov_allocs *allocs = &engine->allocs;
    for (uint32_t p = alloc->first; p < alloc->first + alloc->pages; p++) {
        engine->arena.page[p].alloc = 0;
        atomic_store_explicit(&engine->arena.unit[p], 0, memory_order_relaxed);
    }
    if (alloc->offered) {
        ov_ipc_withdraw(&alloc->ticket);
    }
    free(alloc->edge);
    memset(alloc, 0, sizeof *alloc);
    alloc->next_free = allocs->first_free;
    allocs->first_free = (uint32_t)(alloc - allocs->item) + 1;
}

/* ---- the program's calls ---- */

/* Device memory while the budget lasts, then host memory; both, when neither holds all of it. Under the lock, in the
 * engine's context. */
static CUresult back(struct ov_engine *engine, uint32_t first, uint32_t pages)
{
    CUresult result = ov_back_device(&engine->arena, first, pages);
    if (result != CUDA_ERROR_OUT_OF_MEMORY || !ov_host_backed(engine)) {
        return result;
    }
    size_t host = ov_ledger_host_left(&engine->ledger) >> OV_PAGE_SHIFT;
    size_t device = host < pages ? pages - host : 0;
    if (device > ov_ledger_left(&engine->ledger) >> OV_PAGE_SHIFT) {
        return result;
    }
    if (device > 0) {
        result = ov_back_device(&engine->arena, first, (uint32_t)device);
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    result = ov_back_host(&engine->arena, first + (uint32_t)device, pages - (uint32_t)device);
    if (result != CUDA_SUCCESS && device > 0) {
        (void)ov_unback(&engine->arena, first, (uint32_t)device);
    }
    return result;
}

CUresult ov_alloc_pages(struct ov_engine *engine, CUdeviceptr *out, size_t bytes)
{
    uint32_t pages = ov_pages(bytes);
    ov_make_room(engine, pages, false);
    bool entered = ov_context_enter(engine);
    pthread_mutex_lock(&engine->lock);
    uint32_t first = ov_arena_take(&engine->arena, pages);
    CUresult result = first != UINT32_MAX ? back(engine, first, pages) : CUDA_ERROR_OUT_OF_MEMORY;
    bool on_host = result == CUDA_SUCCESS && engine->arena.page[first + pages - 1].backing == OV_HOST;
    if (result == CUDA_SUCCESS && ov_alloc_new(engine, first, pages, bytes) == NULL) {
        (void)ov_unback(&engine->arena, first, pages);
        ov_drop_masters(&engine->arena, first, pages);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS) {
        *out = ov_page_address(&engine->arena, first);
        ov_alloc_grown(engine, bytes, on_host);
    } else if (first != UINT32_MAX) {
        ov_arena_give(&engine->arena, first, pages);
    }
    pthread_mutex_unlock(&engine->lock);
    ov_context_leave(entered);
    if (result == CUDA_SUCCESS) {
        ov_alloc_grew(engine, on_host);
    }
    return result;
}

CUresult ov_mem_alloc(CUdeviceptr *out, size_t bytes)
{
    struct ov_engine *engine = out != NULL && bytes > 0 ? ov_engine_for_memory() : NULL;
    if (engine == NULL || bytes > ov_arena_bytes) {
        return ov_cu->cuMemAlloc_v2(out, bytes);
    }
    CUresult refused = ov_capture_refuses();
    if (refused != CUDA_SUCCESS) {
        return refused;
    }
    if (bytes >= OV_ARENA_LEAST && ov_sizes_hold(&ov_opt.exclude, bytes)) {
        return ov_foreign_alloc(engine, out, bytes);
    }
    if (bytes < OV_ARENA_LEAST && ov_small_reserve(engine, bytes)) {
        return ov_small_alloc(engine, out, bytes, NULL, NULL);
    }
    return ov_alloc_pages(engine, out, bytes);
}

CUresult ov_mem_alloc_pitch(CUdeviceptr *out, size_t *pitch, size_t width_bytes, size_t height, unsigned element_bytes)
{
    const size_t align = 512; /* what the driver uses */
    size_t row = (width_bytes + align - 1) & ~(align - 1);
    bool plain = out != NULL && pitch != NULL && width_bytes > 0 && row >= width_bytes && height > 0 &&
                 height <= SIZE_MAX / 2 / row && (element_bytes == 4 || element_bytes == 8 || element_bytes == 16);
    if (!plain || ov_engine_for_memory() == NULL) {
        return ov_cu->cuMemAllocPitch_v2(out, pitch, width_bytes, height, element_bytes);
    }
    CUresult result = ov_mem_alloc(out, row * height);
    if (result == CUDA_SUCCESS) {
        *pitch = row;
    }
    return result;
}

bool ov_alloc_is_at(const struct ov_engine *engine, const struct ov_alloc *alloc, CUdeviceptr address)
{
    return address == ov_page_address(&engine->arena, alloc->first) && !alloc->doomed && !alloc->reserved &&
           !alloc->idle;
}

void ov_alloc_forget(struct ov_engine *engine, struct ov_alloc *alloc)
{
    ov_learn_forget(engine, alloc->first, alloc->pages);
    for (uint32_t p = alloc->first; p < alloc->first + alloc->pages; p++) {
        atomic_store_explicit(&engine->arena.unit[p], 0, memory_order_relaxed);
    }
    alloc->ordinal = ++engine->allocs.last_ordinal;
    alloc->edge_count = 0;
    alloc->visits = 0;
    alloc->dirty = alloc->unseen = alloc->presumed = false;
}

/* In an exclusive section without captures. */
static CUresult release(struct ov_engine *engine, struct ov_alloc *alloc)
{
    uint32_t first = alloc->first, pages = alloc->pages;
    for (uint32_t i = 0; i < engine->ring.unit_count; i++) {
        struct ov_unit *unit = &engine->ring.unit[i];
        if (unit->first < first || unit->first >= first + pages) {
            continue;
        }
        if (unit->tier == OV_TIER_STREAMED) {
            (void)ov_ring_settle(engine, unit);
            ov_ring_remove(engine, i);
            unit->tier = OV_TIER_HOST;
        }
        unit->pages = 0; /* gone; the entry stays until the next plan */
    }
    CUresult result = ov_unback(&engine->arena, first, pages);
    ov_drop_masters(&engine->arena, first, pages);
    ov_learn_forget(engine, first, pages);
    engine->ledger.program_bytes -= alloc->bytes;
    ov_report_freed(&engine->report, &engine->ledger);
    engine->allocs.doomed -= alloc->doomed;
    ov_pool_released(engine, alloc);
    ov_alloc_drop(engine, alloc);
    if (result == CUDA_SUCCESS) {
        ov_arena_give(&engine->arena, first, pages);
    }
    engine->replan_soon = engine->replan_soon || atomic_load(&engine->planned);
    return result;
}

void ov_allocs_reap(struct ov_engine *engine)
{
    for (uint32_t i = 0; i < engine->allocs.count && engine->allocs.doomed > 0; i++) {
        if (engine->allocs.item[i].doomed) {
            (void)release(engine, &engine->allocs.item[i]);
        }
    }
}

CUresult ov_alloc_free(struct ov_engine *engine, CUdeviceptr address)
{
    struct ov_exclusive section;
    CUresult result = ov_exclusive_begin(engine, &section);
    uint32_t page = ov_arena_page(&engine->arena, address);
    struct ov_alloc *alloc = ov_alloc_of(engine, page);
    if (result == CUDA_SUCCESS && (alloc == NULL || !ov_alloc_is_at(engine, alloc, address))) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS && !section.idle) {
        alloc->doomed = true; /* the device cannot be waited for while somebody captures */
        engine->allocs.doomed++;
    } else if (result == CUDA_SUCCESS) {
        result = release(engine, alloc);
    }
    ov_exclusive_end(engine, &section);
    return result;
}

CUresult ov_mem_free(CUdeviceptr address)
{
    struct ov_engine *engine = ov_engine_of(address);
    if (engine != NULL) {
        CUresult refused = ov_capture_refuses();
        return refused != CUDA_SUCCESS ? refused : ov_alloc_free(engine, address);
    }
    struct ov_other *other[OV_DEVICES];
    (void)ov_others_take(address, other);
    CUresult result = ov_cu->cuMemFree_v2(address);
    ov_others_end(other, result);
    return result;
}

void ov_allocs_drop(struct ov_engine *engine)
{
    struct ov_allocs *allocs = &engine->allocs;
    for (uint32_t i = 0; i < allocs->count; i++) {
        struct ov_alloc *alloc = &allocs->item[i];
        if (alloc->ordinal != 0) {
            (void)ov_unback(&engine->arena, alloc->first, alloc->pages);
            ov_drop_masters(&engine->arena, alloc->first, alloc->pages);
            ov_arena_give(&engine->arena, alloc->first, alloc->pages);
            ov_alloc_drop(engine, alloc);
        }
    }
    ov_others_drop(engine);
    free(allocs->item);
    memset(allocs, 0, sizeof *allocs);
    ov_vmm_drop(engine);
    ov_pools_drop(engine);
}
