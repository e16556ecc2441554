#include "alloc.h"

#include <stdlib.h>
#include <string.h>

#include <uthash.h>

#include "convert.h"
#include "engine.h"
#include "gate.h"
#include "log.h"
#include "runtime.h"

/* An allocation that is not in the arena. */
struct ov_other {
    uint64_t address;
    size_t bytes, device_bytes;
    struct ov_handle *handle; /* of which it is a mapping, NULL: none that is known */
    bool small;               /* ours to ask for, the driver's to place; else foreign */
    bool global;              /* foreign: of a module */
    UT_hash_handle hh;
};

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

/* ---- small and foreign ---- */

#define SMALL_BYTES(bytes) (((bytes) + 511) & ~(size_t)511)

/* Whether a small request may be made; its bytes are counted from here on. */
static bool reserve_small(struct ov_engine *engine, size_t bytes, bool anyway)
{
    pthread_mutex_lock(&engine->lock);
    bool fits = anyway || ov_ledger_small_fits(&engine->ledger, SMALL_BYTES(bytes));
    if (fits) {
        ov_ledger_small(&engine->ledger, SMALL_BYTES(bytes), 0);
    }
    pthread_mutex_unlock(&engine->lock);
    return fits;
}

bool ov_small_fits(struct ov_engine *engine, size_t bytes)
{
    for (int round = 0; round < 2; round++) {
        pthread_mutex_lock(&engine->lock);
        bool fits = ov_ledger_small_fits(&engine->ledger, SMALL_BYTES(bytes));
        pthread_mutex_unlock(&engine->lock);
        if (fits || round > 0 || !engine->arena.host_capable || ov_opt.mode != OV_OPT_MODE_AUTO) {
            return fits || !engine->arena.host_capable;
        }
        ov_make_room(engine, 2, true);
    }
    return false;
}

void ov_pool_added(CUdeviceptr address, size_t bytes, size_t bytes_on_device)
{
    struct ov_engine *engine = ov_engine_here();
    struct ov_other *other =
        engine != NULL && bytes_on_device > 0 && bytes < OV_ARENA_LEAST ? calloc(1, sizeof *other) : NULL;
    if (other == NULL) {
        ov_foreign_added(address, bytes, bytes_on_device);
        return;
    }
    ov_foreign_removed(address); /* of a graph, perhaps, that is no more */
    *other = (struct ov_other){.address = address, .bytes = bytes, .small = true};
    pthread_mutex_lock(&engine->lock);
    HASH_ADD(hh, engine->allocs.other, address, sizeof other->address, other);
    ov_ledger_small(&engine->ledger, SMALL_BYTES(bytes), 0);
    engine->ledger.program_bytes += bytes;
    pthread_mutex_unlock(&engine->lock);
}

/* The bytes are reserved. */
static CUresult alloc_small(struct ov_engine *engine, CUdeviceptr *out, size_t bytes)
{
    struct ov_other *other = calloc(1, sizeof *other);
    CUdeviceptr address = 0;
    CUresult result = other != NULL ? ov_cu->cuMemAlloc_v2(&address, bytes) : CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&engine->lock);
    if (result == CUDA_SUCCESS) {
        *other = (struct ov_other){.address = address, .bytes = bytes, .small = true};
        HASH_ADD(hh, engine->allocs.other, address, sizeof other->address, other);
        engine->ledger.program_bytes += bytes;
        *out = address;
    } else {
        ov_ledger_small(&engine->ledger, 0, SMALL_BYTES(bytes));
    }
    pthread_mutex_unlock(&engine->lock);
    if (result != CUDA_SUCCESS) {
        free(other);
    }
    return result;
}

/* Takes the entry out of the table; before the driver's free, after which another thread may get the same address. */
static struct ov_other *take_other(struct ov_engine *engine, uint64_t address)
{
    struct ov_other *other = NULL;
    pthread_mutex_lock(&engine->lock);
    HASH_FIND(hh, engine->allocs.other, &address, sizeof address, other);
    if (other != NULL) {
        HASH_DEL(engine->allocs.other, other);
    }
    pthread_mutex_unlock(&engine->lock);
    return other;
}

/* What of it the program has allocated: a mapping costs nothing, its handle does. */
static size_t counted(const struct ov_other *other)
{
    return other->small ? other->bytes : other->device_bytes;
}

/* Gives its bytes back to the ledger; after the driver's free. */
static void settle_other(struct ov_engine *engine, struct ov_other *other)
{
    if (other == NULL) {
        return;
    }
    pthread_mutex_lock(&engine->lock);
    if (other->small) {
        ov_ledger_small(&engine->ledger, 0, SMALL_BYTES(other->bytes));
    } else {
        ov_ledger_give(&engine->ledger, OV_FOR_FOREIGN, other->device_bytes);
    }
    engine->ledger.program_bytes -= counted(other);
    ov_report_freed(&engine->report, &engine->ledger);
    pthread_mutex_unlock(&engine->lock);
    if (other->handle != NULL) {
        engine = other->handle->engine;
        pthread_mutex_lock(&engine->lock);
        ov_handle_unmapped(other->handle);
        pthread_mutex_unlock(&engine->lock);
    }
    free(other);
}

/* The driver refused to free it. */
static void restore_other(struct ov_engine *engine, struct ov_other *other)
{
    pthread_mutex_lock(&engine->lock);
    HASH_ADD(hh, engine->allocs.other, address, sizeof other->address, other);
    pthread_mutex_unlock(&engine->lock);
}

static void add_foreign(uint64_t address, size_t bytes, size_t device_bytes, struct ov_handle *handle, bool global)
{
    struct ov_engine *engine = ov_engine_for_memory();
    struct ov_other *other = engine != NULL ? calloc(1, sizeof *other) : NULL;
    if (other == NULL) {
        return;
    }
    other->address = address;
    other->bytes = bytes;
    other->device_bytes = device_bytes;
    other->handle = handle;
    other->global = global;
    settle_other(engine, take_other(engine, address));
    pthread_mutex_lock(&engine->lock);
    HASH_ADD(hh, engine->allocs.other, address, sizeof other->address, other);
    ov_ledger_add(&engine->ledger, OV_FOR_FOREIGN, device_bytes);
    engine->ledger.program_bytes += device_bytes; /* what is mapped, or a graph's, costs nothing by itself */
    size_t held = ov_ledger_held(&engine->ledger), budget = engine->ledger.budget_bytes;
    size_t foreign = engine->ledger.held_bytes[OV_FOR_FOREIGN], movable = engine->ledger.held_bytes[OV_FOR_PAGES];
    bool over = device_bytes > 0 && held > budget;
    engine->replan_soon = engine->replan_soon || (over && atomic_load(&engine->planned));
    pthread_mutex_unlock(&engine->lock);
    if (over && !atomic_exchange(&engine->excess_said, true)) {
        ov_log(
            OV_LOG_WARN,
            "device %d: %zu MiB are held, more than the budget of %zu MiB: the program has %zu MiB in pools, managed "
            "memory and mappings of its own, which overshot cannot move; %zu MiB of its memory can give way",
            engine->device, held >> 20, budget >> 20, foreign >> 20, movable >> 20);
    }
}

void ov_foreign_added(CUdeviceptr address, size_t bytes, size_t bytes_on_device)
{
    add_foreign(address, bytes, bytes_on_device, NULL, false);
}

void ov_global_added(CUdeviceptr address, size_t bytes)
{
    add_foreign(address, bytes, 0, NULL, true);
}

void ov_foreign_removed(CUdeviceptr address)
{
    for (int slice = 0; slice < OV_DEVICES; slice++) {
        struct ov_engine *engine = ov_engine_at(slice);
        if (engine != NULL) {
            settle_other(engine, take_other(engine, address));
        }
    }
}

void ov_foreign_mapped(CUdeviceptr address, size_t bytes, CUmemGenericAllocationHandle id)
{
    struct ov_handle *handle = ov_engine_for_memory() != NULL ? ov_handle_lock(id) : NULL;
    if (handle != NULL) {
        handle->mappings++;
        pthread_mutex_unlock(&handle->engine->lock);
    }
    add_foreign(address, bytes, 0, handle, false);
}

/* A mapping of the program's own may have no access yet, or none for this device. */
static bool readable(const struct ov_engine *engine, CUdeviceptr address)
{
    unsigned long long flags = 0;
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = engine->device};
    return ov_cu->cuMemGetAccess != NULL && ov_cu->cuMemGetAccess(&flags, &location, address) == CUDA_SUCCESS &&
           flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

void ov_others_each(struct ov_engine *engine, void (*each)(void *context, CUdeviceptr address, size_t bytes),
                    void *context)
{
    struct ov_other *other, *next;
    HASH_ITER(hh, engine->allocs.other, other, next)
    {
        if (!other->global && (other->small || other->device_bytes > 0 || readable(engine, other->address))) {
            each(context, other->address, other->bytes);
        }
    }
}

void ov_globals_each(struct ov_engine *engine, void (*each)(void *context, CUdeviceptr address, size_t bytes),
                     void *context)
{
    struct ov_other *other, *next;
    HASH_ITER(hh, engine->allocs.other, other, next)
    {
        if (other->global) {
            each(context, other->address, other->bytes);
        }
    }
}

bool ov_others_hold(const struct ov_engine *engine, uint64_t address)
{
    for (const struct ov_other *other = engine->allocs.other; other != NULL; other = other->hh.next) {
        if (address - other->address < other->bytes) {
            return true;
        }
    }
    return false;
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

static size_t budget_left(struct ov_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    size_t left = ov_ledger_left(&engine->ledger);
    pthread_mutex_unlock(&engine->lock);
    return left;
}

/* What was freed in stream order goes first: what is done at once, the rest when the device is. */
static bool idle_makes_room(struct ov_engine *engine, size_t bytes)
{
    if (atomic_load(&engine->pools.idle_count) == 0) {
        return false;
    }
    bool entered = ov_context_enter(engine);
    pthread_mutex_lock(&engine->lock);
    ov_idle_drop(engine, 0, false);
    bool fits = bytes <= ov_ledger_left(&engine->ledger);
    pthread_mutex_unlock(&engine->lock);
    ov_context_leave(entered);
    return fits;
}

void ov_make_room(struct ov_engine *engine, uint32_t pages, bool at_any_cost)
{
    size_t bytes = (size_t)pages << OV_PAGE_SHIFT;
    bool planned = atomic_load(&engine->planned);
    if (bytes <= budget_left(engine) || atomic_load(&ov_captures) != 0 || idle_makes_room(engine, bytes) ||
        !(planned || at_any_cost || atomic_load(&engine->pools.idle_count) > 0)) {
        return;
    }
    struct ov_exclusive section;
    (void)ov_exclusive_begin(engine, &section);
    if (section.idle) {
        ov_idle_drop(engine, 0, true);
        bool fits = bytes <= ov_ledger_left(&engine->ledger);
        if (planned && !fits) {
            /* Programs ask for more in many steps: room for as much again as they have taken saves a conversion for
             * each step. What of it stays unused comes back after some quiet points. */
            uint32_t most = ov_pages(engine->ledger.budget_bytes / 4), written = ov_pages_written(engine);
            (void)ov_plan_and_convert(engine, pages, written < most ? written : most);
            engine->slack = true;
            engine->quiet_points = 0;
            engine->replan_wait = engine->replan_wait < 8 ? 8 : engine->replan_wait;
        }
        if (at_any_cost && !fits && ov_ring_open(engine) == CUDA_SUCCESS) {
            ov_demote_some(engine, pages);
        }
    }
    ov_exclusive_end(engine, &section);
}

static void note_growth(struct ov_engine *engine, uint32_t pages, bool on_host)
{
    if (atomic_load(&engine->planned)) {
        engine->replan_soon = engine->replan_soon || on_host;
        engine->grown = engine->grown || pages > engine->largest_pages;
        engine->largest_pages = pages > engine->largest_pages ? pages : engine->largest_pages;
    }
}

void ov_alloc_grown(struct ov_engine *engine, size_t bytes, bool on_host)
{
    engine->ledger.program_bytes += bytes;
    note_growth(engine, ov_pages(bytes), on_host);
    engine->over_budget = engine->over_budget || on_host;
    if (on_host && engine->armed) {
        ov_engine_learn(engine);
    }
}

void ov_alloc_grew(struct ov_engine *engine, bool on_host)
{
    if (on_host && !engine->armed) {
        ov_engine_arm(engine, "the budget is used up");
    } else if (!engine->armed && ov_opt.mode == OV_OPT_MODE_AUTO && engine->arena.host_capable &&
               budget_left(engine) < engine->ledger.budget_bytes / 2) {
        ov_engine_arm(engine, "half of the budget is used");
    }
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

/* OVERSHOT_EXCLUDE: the driver's, but within the budget. */
static CUresult alloc_excluded(struct ov_engine *engine, CUdeviceptr *out, size_t bytes)
{
    struct ov_other *other = calloc(1, sizeof *other);
    size_t held = (size_t)ov_pages(bytes) << OV_PAGE_SHIFT;
    CUdeviceptr address = 0;
    if (ov_host_backed(engine)) {
        ov_make_room(engine, ov_pages(bytes), true);
    }
    pthread_mutex_lock(&engine->lock);
    bool fits = other != NULL && ov_ledger_take(&engine->ledger, OV_FOR_FOREIGN, held);
    pthread_mutex_unlock(&engine->lock);
    CUresult result = fits ? ov_cu->cuMemAlloc_v2(&address, bytes) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        free(other);
    }
    pthread_mutex_lock(&engine->lock);
    if (result == CUDA_SUCCESS) {
        *other = (struct ov_other){.address = address, .bytes = bytes, .device_bytes = held};
        HASH_ADD(hh, engine->allocs.other, address, sizeof other->address, other);
        engine->ledger.program_bytes += held;
        *out = address;
    } else if (fits) {
        ov_ledger_give(&engine->ledger, OV_FOR_FOREIGN, held);
    }
    pthread_mutex_unlock(&engine->lock);
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
        return alloc_excluded(engine, out, bytes);
    }
    if (bytes < OV_ARENA_LEAST) {
        bool fits = reserve_small(engine, bytes, false);
        if (!fits && ov_host_backed(engine)) {
            ov_make_room(engine, 2, true); /* small ones are what kernels write to, mostly */
        }
        if (fits || reserve_small(engine, bytes, !engine->arena.host_capable)) {
            return alloc_small(engine, out, bytes);
        }
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
    alloc->dirty = alloc->unseen = false;
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
    struct ov_other *other[OV_DEVICES] = {NULL};
    for (int slice = 0; slice < OV_DEVICES && address != 0; slice++) {
        engine = ov_engine_at(slice);
        other[slice] = engine != NULL ? take_other(engine, address) : NULL;
    }
    CUresult result = ov_cu->cuMemFree_v2(address);
    for (int slice = 0; slice < OV_DEVICES; slice++) {
        if (other[slice] != NULL && result == CUDA_SUCCESS) {
            settle_other(ov_engine_at(slice), other[slice]);
        } else if (other[slice] != NULL) {
            restore_other(ov_engine_at(slice), other[slice]);
        }
    }
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
    struct ov_other *other, *next;
    HASH_ITER(hh, allocs->other, other, next)
    {
        HASH_DEL(allocs->other, other);
        free(other);
    }
    free(allocs->item);
    memset(allocs, 0, sizeof *allocs);
    ov_vmm_drop(engine);
    ov_pools_drop(engine);
}
