/* The program's reservations and mappings: see vmm.h. */
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "engine.h"
#include "other.h"
#include "reach.h"
#include "runtime.h"
#include "vmm.h"

struct ov_mapping *ov_mapping_of(struct ov_engine *engine, uint32_t page)
{
    if (page >= engine->arena.high_page || engine->arena.page[page].mapping == 0) {
        return NULL;
    }
    return &engine->vmm.item[engine->arena.page[page].mapping - 1];
}

/* The reservation that holds the page, NULL if none. */
static struct ov_alloc *reservation_of(struct ov_engine *engine, uint32_t page)
{
    struct ov_alloc *alloc = ov_alloc_of(engine, page);
    return alloc != NULL && alloc->reserved ? alloc : NULL;
}

static bool aligned(uint64_t value)
{
    return value % OV_PAGE_BYTES == 0;
}

/* ---- reservations ---- */

/* Where the program wants it if that is free, else anywhere. Half of what was never used stays for everything else. */
static uint32_t take(struct ov_arena *arena, uint32_t pages, size_t alignment, CUdeviceptr hint)
{
    uint32_t align = alignment > OV_PAGE_BYTES ? (uint32_t)(alignment >> OV_PAGE_SHIFT) : 1;
    if (pages > (arena->page_count - arena->high_page) / 2) {
        return UINT32_MAX;
    }
    if (hint != 0 && aligned(hint)) {
        uint32_t first = ov_arena_page(arena, hint);
        if (first % align == 0 && pages <= arena->page_count - first && ov_arena_take_at(arena, first, pages)) {
            return first;
        }
    }
    return ov_arena_take_aligned(arena, pages, align);
}

CUresult ov_mem_address_reserve(CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr hint,
                                unsigned long long flags)
{
    bool plain = out != NULL && bytes > 0 && aligned(bytes) && flags == 0 && (alignment & (alignment - 1)) == 0 &&
                 alignment <= OV_ARENA_ALIGN;
    struct ov_engine *engine = plain ? ov_engine_for_memory() : NULL; /* which may make the arena */
    /* An address outside of the arena is the driver's to give. */
    if (engine == NULL || bytes > ov_arena_bytes || (hint != 0 && ov_engine_of(hint) != engine)) {
        return ov_cu->cuMemAddressReserve(out, bytes, alignment, hint, flags);
    }
    pthread_mutex_lock(&engine->lock);
    uint32_t pages = ov_pages(bytes), first = take(&engine->arena, pages, alignment, hint);
    struct ov_alloc *alloc = first != UINT32_MAX ? ov_alloc_new(engine, first, pages, bytes) : NULL;
    if (alloc != NULL) {
        alloc->reserved = true;
        alloc->held = 0;
        *out = ov_page_address(&engine->arena, first);
    } else if (first != UINT32_MAX) {
        ov_arena_give(&engine->arena, first, pages);
    }
    pthread_mutex_unlock(&engine->lock);
    return alloc != NULL ? CUDA_SUCCESS : ov_cu->cuMemAddressReserve(out, bytes, alignment, hint, flags);
}

CUresult ov_mem_address_free(CUdeviceptr address, size_t bytes)
{
    struct ov_engine *engine = ov_engine_of(address);
    if (engine == NULL) {
        /* Of a device whose context went away, and our reservation with it. */
        return ov_arena_has(address) ? CUDA_SUCCESS : ov_cu->cuMemAddressFree(address, bytes);
    }
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&engine->lock);
    struct ov_alloc *alloc = reservation_of(engine, ov_arena_page(&engine->arena, address));
    if (alloc != NULL && alloc->held == 0 && bytes == alloc->bytes &&
        address == ov_page_address(&engine->arena, alloc->first)) {
        uint32_t first = alloc->first, pages = alloc->pages;
        ov_learn_forget(engine, first, pages);
        ov_alloc_drop(engine, alloc);
        ov_arena_give(&engine->arena, first, pages);
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&engine->lock);
    return result;
}

/* ---- the table ---- */

static uint32_t new_mapping(struct ov_engine *engine)
{
    struct ov_vmm *vmm = &engine->vmm;
    uint32_t index = vmm->first_free;
    if (index != 0) {
        vmm->first_free = vmm->item[index - 1].next_free;
    } else {
        if (vmm->count == vmm->room) {
            uint32_t room = vmm->room ? vmm->room * 2 : 256;
            struct ov_mapping *item = realloc(vmm->item, room * sizeof *item);
            if (item == NULL) {
                return 0;
            }
            vmm->item = item;
            vmm->room = room;
        }
        index = ++vmm->count;
    }
    memset(&vmm->item[index - 1], 0, sizeof vmm->item[index - 1]);
    return index;
}

static void drop_mapping(struct ov_engine *engine, uint32_t index)
{
    struct ov_mapping *mapping = &engine->vmm.item[index - 1];
    for (uint32_t p = mapping->first; p < mapping->first + mapping->pages; p++) {
        engine->arena.page[p].mapping = 0;
    }
    memset(mapping, 0, sizeof *mapping);
    mapping->next_free = engine->vmm.first_free;
    engine->vmm.first_free = index;
}

static void set_mapping(struct ov_engine *engine, uint32_t index, uint32_t first, uint32_t pages, bool fixed)
{
    struct ov_mapping *mapping = &engine->vmm.item[index - 1];
    struct ov_alloc *alloc = reservation_of(engine, first);
    mapping->first = first;
    mapping->pages = pages;
    mapping->fixed = fixed;
    /* What begins in here may be written on into streamed units behind it (reach.h). */
    bool near = ov_reach_next(engine, ov_page_address(&engine->arena, first + pages - 1)) != UINT32_MAX;
    for (uint32_t p = first; p < first + pages; p++) {
        atomic_store_explicit(&engine->arena.unit[p], near ? OV_UNIT_NEAR : 0, memory_order_relaxed);
        engine->arena.page[p].mapping = index;
        if (fixed) {
            engine->arena.page[p].backing = OV_FIXED;
        }
    }
    ov_learn_forget(engine, first, pages);
    alloc->held += pages;
    alloc->dirty = alloc->unseen = true;
}

/* ---- map ---- */

/* Whether [address, address + bytes) lies in one reservation, nothing mapped there. */
static bool is_vacant(struct ov_engine *engine, CUdeviceptr address, size_t bytes)
{
    uint32_t first = ov_arena_page(&engine->arena, address), pages = ov_pages(bytes);
    const struct ov_alloc *alloc = reservation_of(engine, first);
    if (alloc == NULL || pages > alloc->first + alloc->pages - first) {
        return false;
    }
    for (uint32_t p = first; p < first + pages; p++) {
        if (engine->arena.page[p].mapping != 0) {
            return false;
        }
    }
    return true;
}

/* What begins right behind a new mapping may from now on be the end of something that begins in it. */
static CUresult open_boundary(struct ov_engine *engine, uint32_t page)
{
    if (page >= engine->arena.high_page || engine->arena.page[page].mapping == 0) {
        return CUDA_SUCCESS;
    }
    pthread_mutex_lock(&engine->lock);
    bool unit = ov_units_at(engine, page, 1);
    pthread_mutex_unlock(&engine->lock);
    if (!unit) {
        return CUDA_SUCCESS;
    }
    struct ov_exclusive section;
    CUresult result = ov_exclusive_begin(engine, &section);
    if (result == CUDA_SUCCESS) {
        result = ov_units_leave(engine, page, 1);
    }
    ov_exclusive_end(engine, &section);
    return result;
}

/* Memory of a virtual handle, mapped for the first time or after it was unmapped. *again: it has to be fixed first. */
static CUresult map_virtual(struct ov_engine *engine, CUdeviceptr address, CUmemGenericAllocationHandle id, bool *again)
{
    uint32_t first = ov_arena_page(&engine->arena, address);
    bool entered = ov_context_enter(engine);
    struct ov_handle *handle = ov_handle_lock(id);
    *again = handle != NULL && (handle->engine != engine || handle->mapping != 0 || handle->real != 0);
    CUresult result = handle == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS && !*again) {
        uint32_t index = is_vacant(engine, address, handle->bytes) ? new_mapping(engine) : 0;
        bool there = handle->loose.pages == handle->pages; /* not, if all memory ran out when it was to be fixed */
        result = index == 0 ? CUDA_ERROR_INVALID_VALUE
                 : there    ? ov_loose_attach(&engine->arena, first, &handle->loose)
                            : CUDA_ERROR_OUT_OF_MEMORY;
        if (result == CUDA_SUCCESS) {
            set_mapping(engine, index, first, handle->pages, false);
            engine->vmm.item[index - 1].handle = handle;
            handle->mapping = index;
            handle->mappings = 1;
            handle->written = true;
        } else if (index != 0) {
            drop_mapping(engine, index);
        }
    }
    if (handle != NULL) {
        pthread_mutex_unlock(&handle->engine->lock);
    }
    ov_context_leave(entered);
    return result;
}

/* The driver's handle `real`, known to the program as `id`, at an address of ours. */
static CUresult map_fixed(struct ov_engine *engine, CUdeviceptr address, size_t bytes, size_t offset,
                          CUmemGenericAllocationHandle id, CUmemGenericAllocationHandle real, unsigned long long flags)
{
    struct ov_handle *handle = ov_handle_lock(id);
    if (handle != NULL) {
        handle->mappings++; /* of another engine, perhaps: counted before, so that it stays */
        pthread_mutex_unlock(&handle->engine->lock);
    }
    pthread_mutex_lock(&engine->lock);
    uint32_t index = is_vacant(engine, address, bytes) ? new_mapping(engine) : 0;
    CUresult result = index != 0 ? ov_cu->cuMemMap(address, bytes, offset, real, flags) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        set_mapping(engine, index, ov_arena_page(&engine->arena, address), ov_pages(bytes), true);
        engine->vmm.item[index - 1].handle = handle;
    } else if (index != 0) {
        drop_mapping(engine, index);
    }
    pthread_mutex_unlock(&engine->lock);
    if (result == CUDA_SUCCESS) {
        ov_foreign_added(address, bytes, 0); /* searched for addresses */
    } else if (handle != NULL) {
        pthread_mutex_lock(&handle->engine->lock);
        ov_handle_unmapped(handle);
        pthread_mutex_unlock(&handle->engine->lock);
    }
    return result;
}

/* Addresses of the driver's. */
static CUresult map_outside(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle id,
                            CUmemGenericAllocationHandle real, unsigned long long flags)
{
    CUresult result = ov_cu->cuMemMap(address, bytes, offset, real, flags);
    if (result == CUDA_SUCCESS) {
        ov_foreign_mapped(address, bytes, id);
    }
    return result;
}

/* What the driver says of a virtual handle's mapping, in its order. */
static CUresult check_virtual(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle id,
                              unsigned long long flags)
{
    struct ov_handle *handle = ov_handle_lock(id);
    if (handle == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    size_t all = handle->bytes;
    pthread_mutex_unlock(&handle->engine->lock);
    if (flags != 0 || bytes == 0 || !aligned(address) || !aligned(bytes) || !aligned(offset)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return offset != 0 || bytes != all ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult ov_mem_map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle id,
                    unsigned long long flags)
{
    struct ov_engine *engine = ov_engine_of(address);
    CUmemGenericAllocationHandle real = id;
    bool ours = ov_handle_is_virtual(id), again = false;
    CUresult result = ours ? check_virtual(address, bytes, offset, id, flags) : CUDA_SUCCESS;
    if (engine != NULL && result == CUDA_SUCCESS) {
        pthread_mutex_lock(&engine->lock);
        result = !aligned(address) || !is_vacant(engine, address, bytes) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
        pthread_mutex_unlock(&engine->lock);
        if (result == CUDA_SUCCESS) {
            result = open_boundary(engine, ov_arena_page(&engine->arena, address) + ov_pages(bytes));
        }
    }
    if (result == CUDA_SUCCESS && ours) {
        if (engine != NULL) {
            result = map_virtual(engine, address, id, &again);
        }
        if (result == CUDA_SUCCESS && (engine == NULL || again)) {
            result = ov_handle_fix(id, &real);
        }
        if (result != CUDA_SUCCESS || real == id) {
            return result;
        }
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return engine != NULL ? map_fixed(engine, address, bytes, offset, id, real, flags)
                          : map_outside(address, bytes, offset, id, real, flags);
}

/* ---- unmap ---- */

/* Holes do not matter, a mapping that is cut does. *any: there is something to unmap. */
static CUresult check_unmap(struct ov_engine *engine, uint32_t first, uint32_t end, bool *any)
{
    *any = false;
    for (uint32_t p = first; p < end;) {
        const struct ov_mapping *mapping = ov_mapping_of(engine, p);
        if (mapping != NULL && (mapping->first != p || mapping->pages > end - p)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *any = *any || mapping != NULL;
        p += mapping != NULL ? mapping->pages : 1;
    }
    return CUDA_SUCCESS;
}

/* Under the lock, in an exclusive section. *stray: a handle of another engine, that has lost a mapping. */
static CUresult unmap_one(struct ov_engine *engine, uint32_t index, struct ov_handle **stray)
{
    struct ov_mapping *mapping = &engine->vmm.item[index - 1];
    struct ov_handle *handle = mapping->handle;
    uint32_t first = mapping->first, pages = mapping->pages;
    *stray = NULL;
    CUresult result = ov_units_leave(engine, first, pages);
    if (result == CUDA_SUCCESS && mapping->fixed) {
        result = ov_cu->cuMemUnmap(ov_page_address(&engine->arena, first), (size_t)pages << OV_PAGE_SHIFT);
    } else if (result == CUDA_SUCCESS) {
        result = ov_loose_detach(&engine->arena, first, pages, &handle->loose);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    for (uint32_t p = first; p < first + pages; p++) {
        engine->arena.page[p].backing = OV_NONE;
        atomic_store_explicit(&engine->arena.unit[p], 0, memory_order_relaxed);
    }
    struct ov_alloc *alloc = reservation_of(engine, first);
    alloc->held -= pages;
    ov_learn_forget(engine, first, pages);
    ov_alloc_forget_edges(alloc, first, pages);
    if (!mapping->fixed) {
        handle->mapping = 0;
    }
    drop_mapping(engine, index);
    if (handle != NULL && handle->engine == engine) {
        ov_handle_unmapped(handle);
    } else {
        *stray = handle;
    }
    engine->replan_soon = engine->replan_soon || atomic_load(&engine->planned);
    return CUDA_SUCCESS;
}

/* What is fixed is not searched for addresses any more. */
static void forget_fixed(struct ov_engine *engine, uint32_t first, uint32_t end)
{
    for (uint32_t p = first; p < end;) {
        pthread_mutex_lock(&engine->lock);
        const struct ov_mapping *mapping = ov_mapping_of(engine, p);
        bool fixed = mapping != NULL && mapping->fixed;
        uint32_t pages = mapping != NULL ? mapping->pages : 1;
        pthread_mutex_unlock(&engine->lock);
        if (fixed) {
            ov_foreign_removed(ov_page_address(&engine->arena, p));
        }
        p += pages;
    }
}

/* One exclusive section, up to the first handle of another engine. *from: where to go on. */
static CUresult unmap_some(struct ov_engine *engine, uint32_t *from, uint32_t end)
{
    struct ov_exclusive section;
    struct ov_handle *stray = NULL;
    CUresult result = ov_exclusive_begin(engine, &section);
    while (*from < end && stray == NULL && result == CUDA_SUCCESS) {
        const struct ov_mapping *mapping = ov_mapping_of(engine, *from);
        uint32_t pages = mapping != NULL ? mapping->pages : 1;
        if (mapping != NULL) {
            result = unmap_one(engine, engine->arena.page[*from].mapping, &stray);
        }
        *from += result == CUDA_SUCCESS ? pages : 0;
    }
    ov_exclusive_end(engine, &section);
    if (stray != NULL) {
        pthread_mutex_lock(&stray->engine->lock);
        struct ov_engine *owner = stray->engine;
        ov_handle_unmapped(stray);
        pthread_mutex_unlock(&owner->lock);
    }
    return result;
}

CUresult ov_mem_unmap(CUdeviceptr address, size_t bytes)
{
    struct ov_engine *engine = ov_engine_of(address);
    if (engine == NULL) {
        for (size_t offset = 0; offset < bytes; offset += OV_PAGE_BYTES) { /* one call may unmap several mappings */
            ov_foreign_removed(address + offset);
        }
        return ov_cu->cuMemUnmap(address, bytes);
    }
    if (bytes == 0 || !aligned(address) || !aligned(bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint32_t first = ov_arena_page(&engine->arena, address), end = first;
    bool any = false;
    pthread_mutex_lock(&engine->lock);
    const struct ov_alloc *alloc = reservation_of(engine, first);
    CUresult result = alloc != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (alloc != NULL) { /* as the driver: what lies behind the reservation does not matter */
        uint32_t limit = alloc->first + alloc->pages;
        end = bytes >> OV_PAGE_SHIFT < limit - first ? first + ov_pages(bytes) : limit;
        result = check_unmap(engine, first, end, &any);
    }
    pthread_mutex_unlock(&engine->lock);
    if (result == CUDA_SUCCESS && any) {
        forget_fixed(engine, first, end);
        while (first < end && result == CUDA_SUCCESS) {
            result = unmap_some(engine, &first, end);
        }
    }
    return result;
}

void ov_vmm_drop(struct ov_engine *engine)
{
    struct ov_handle *handle, *next;
    HASH_ITER(hh, engine->vmm.handle, handle, next)
    {
        HASH_DEL(engine->vmm.handle, handle);
        handle->listed = false;
        if (handle->real == 0) {
            ov_loose_drop(&engine->arena, &handle->loose);
            free(handle);
        } /* of the others, mappings elsewhere may know */
    }
    free(engine->vmm.item);
    memset(&engine->vmm, 0, sizeof engine->vmm);
}
