#include "pool.h"

#include <string.h>

#include "convert.h"
#include "engine.h"
#include "gate.h"
#include "other.h"
#include "runtime.h"

static _Atomic uint64_t threads;
static _Thread_local uint64_t this_thread;

static uint64_t thread_of(CUstream stream)
{
    if (stream != CU_STREAM_PER_THREAD) {
        return 0;
    }
    if (this_thread == 0) {
        this_thread = atomic_fetch_add(&threads, 1) + 1;
    }
    return this_thread;
}

/* ---- pools */

static struct ov_pool *pool_of(struct ov_engine *engine, CUmemoryPool handle)
{
    struct ov_pool *vacant = NULL;
    for (int i = 0; i < OV_POOLS; i++) {
        struct ov_pool *pool = &engine->pools.item[i];
        if (pool->handle == handle) {
            return pool;
        }
        vacant = vacant == NULL && pool->handle == NULL ? pool : vacant;
    }
    return handle == NULL ? NULL : vacant;
}

/* Only for pools that are served. */
static struct ov_pool *enter_pool(struct ov_engine *engine, CUmemoryPool handle)
{
    struct ov_pool *pool = pool_of(engine, handle);
    if (pool != NULL && pool->handle == NULL) {
        memset(pool, 0, sizeof *pool);
        pool->handle = handle;
    }
    return pool;
}

/* The device's default pool is served; others are entered when they are made (ov_pool_made). NULL: not served. */
static struct ov_pool *served_pool(struct ov_engine *engine, CUmemoryPool handle)
{
    CUmemoryPool plain = NULL;
    struct ov_pool *pool = pool_of(engine, handle);
    if (pool != NULL && pool->handle != NULL) {
        return pool;
    }
    if (ov_cu->cuDeviceGetDefaultMemPool(&plain, engine->device) != CUDA_SUCCESS || plain != handle) {
        return NULL;
    }
    return enter_pool(engine, handle);
}

void ov_pool_made(CUmemoryPool handle, const CUmemPoolProps *props)
{
    struct ov_engine *engine = ov_engine_at(props->location.id);
    if (engine == NULL) {
        engine = ov_engine_here();
    }
    if (engine == NULL || props->location.type != CU_MEM_LOCATION_TYPE_DEVICE || props->location.id != engine->device ||
        props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED || props->handleTypes != CU_MEM_HANDLE_TYPE_NONE) {
        return;
    }
    pthread_mutex_lock(&engine->lock);
    (void)enter_pool(engine, handle);
    pthread_mutex_unlock(&engine->lock);
}

static void count_used(struct ov_pool *pool, uint64_t bytes)
{
    pool->used += bytes;
    pool->used_high = pool->used > pool->used_high ? pool->used : pool->used_high;
}

static void count_reserved(struct ov_pool *pool, uint64_t bytes)
{
    pool->reserved += bytes;
    pool->reserved_high = pool->reserved > pool->reserved_high ? pool->reserved : pool->reserved_high;
}

static uint64_t held_bytes(const struct ov_alloc *alloc)
{
    return (uint64_t)alloc->pages << OV_PAGE_SHIFT;
}

void ov_pool_released(struct ov_engine *engine, const struct ov_alloc *alloc)
{
    struct ov_pool *pool = alloc->pool != NULL ? pool_of(engine, alloc->pool) : NULL;
    if (pool != NULL && pool->handle != NULL) {
        pool->used -= alloc->idle ? 0 : held_bytes(alloc);
        pool->reserved -= held_bytes(alloc);
    }
}

/* ---- idle memory */

static struct ov_alloc *alloc_at(struct ov_engine *engine, uint32_t i)
{
    return &engine->allocs.item[engine->pools.idle[i].alloc - 1];
}

/* The entry goes, its allocation is the caller's. */
static void take_idle(struct ov_engine *engine, uint32_t i)
{
    struct ov_pools *pools = &engine->pools;
    uint32_t count = atomic_load(&pools->idle_count);
    pools->idle_pages -= alloc_at(engine, i)->pages;
    if (pools->spare_count < OV_IDLE_MOST) {
        pools->spare[pools->spare_count++] = pools->idle[i].event;
    } else {
        (void)ov_cu->cuEventDestroy_v2(pools->idle[i].event);
    }
    memmove(&pools->idle[i], &pools->idle[i + 1], (count - 1 - i) * sizeof pools->idle[i]);
    atomic_store(&pools->idle_count, count - 1);
}

static bool has_come(const struct ov_idle *idle)
{
    const CUstreamCaptureMode mode = ov_relax();
    bool come = ov_cu->cuEventQuery(idle->event) == CUDA_SUCCESS;
    ov_relax_end(mode);
    return come;
}

static void give_back(struct ov_engine *engine, uint32_t i)
{
    struct ov_alloc *alloc = alloc_at(engine, i);
    uint32_t first = alloc->first, pages = alloc->pages;
    if (ov_unback(&engine->arena, first, pages) != CUDA_SUCCESS) {
        return;
    }
    ov_drop_masters(&engine->arena, first, pages);
    ov_pool_released(engine, alloc);
    take_idle(engine, i);
    ov_alloc_drop(engine, alloc);
    ov_arena_give(&engine->arena, first, pages);
    engine->replan_soon = engine->replan_soon || atomic_load(&engine->planned);
}

void ov_idle_drop(struct ov_engine *engine, uint32_t keep_pages, bool done)
{
    struct ov_pools *pools = &engine->pools;
    for (uint32_t i = 0; i < atomic_load(&pools->idle_count) && pools->idle_pages > keep_pages;) {
        uint32_t before = atomic_load(&pools->idle_count);
        if (done || has_come(&pools->idle[i])) {
            give_back(engine, i);
        }
        i += atomic_load(&pools->idle_count) == before;
    }
}

/* Down to `keep_bytes` of one pool, with the lock. */
static void trim(struct ov_engine *engine, struct ov_pool *pool, uint64_t keep_bytes)
{
    struct ov_pools *pools = &engine->pools;
    for (uint32_t i = 0; i < atomic_load(&pools->idle_count) && pool->reserved > keep_bytes;) {
        uint32_t before = atomic_load(&pools->idle_count);
        if (alloc_at(engine, i)->pool == pool->handle && has_come(&pools->idle[i])) {
            give_back(engine, i);
        }
        i += atomic_load(&pools->idle_count) == before;
    }
}

/* In relaxed mode: another thread may begin a capture, which asking would break. */
static bool ask_threshold(const struct ov_pool *pool, cuuint64_t *threshold)
{
    const CUstreamCaptureMode mode = ov_relax();
    const CUresult result = ov_cu->cuMemPoolGetAttribute(pool->handle, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, threshold);
    ov_relax_end(mode);
    return result == CUDA_SUCCESS;
}

void ov_pools_synchronized(struct ov_engine *engine)
{
    if ((atomic_load_explicit(&engine->pools.idle_count, memory_order_relaxed) == 0 &&
         !atomic_load_explicit(&engine->kept.some, memory_order_relaxed)) ||
        atomic_load(&ov_captures) != 0) {
        return;
    }
    bool entered = ov_context_enter(engine);
    pthread_mutex_lock(&engine->lock);
    ov_kept_ask(engine);
    for (int i = 0; i < OV_POOLS; i++) {
        struct ov_pool *pool = &engine->pools.item[i];
        cuuint64_t threshold = 0;
        if (pool->handle != NULL && pool->reserved > pool->used && ask_threshold(pool, &threshold)) {
            trim(engine, pool, threshold);
        }
    }
    pthread_mutex_unlock(&engine->lock);
    ov_context_leave(entered);
}

void ov_pools_forget_stream(struct ov_engine *engine, CUstream stream)
{
    for (uint32_t i = 0; i < atomic_load(&engine->pools.idle_count); i++) {
        if (engine->pools.idle[i].stream == stream) {
            engine->pools.idle[i].stream = NULL;
        }
    }
}

void ov_pools_drop(struct ov_engine *engine)
{
    memset(&engine->pools, 0, sizeof engine->pools); /* events go with the context, memory with the allocations */
}

/* ---- allocation */

/* The smallest that holds the pages and wastes little, and may be used on the stream now. */
static bool find_idle(struct ov_engine *engine, const struct ov_pool *pool, uint32_t pages, CUstream stream,
                      uint32_t *found)
{
    struct ov_pools *pools = &engine->pools;
    const uint64_t thread = thread_of(stream);
    uint32_t best = pages + pages / 8 + 1;
    for (uint32_t i = 0; i < atomic_load(&pools->idle_count); i++) {
        const struct ov_idle *idle = &pools->idle[i];
        const struct ov_alloc *alloc = alloc_at(engine, i);
        bool same = idle->stream == stream && idle->thread == thread;
        if (alloc->pages >= pages && alloc->pages < best && alloc->pool == pool->handle &&
            (same || (atomic_load(&ov_captures) == 0 && has_come(idle)))) {
            best = alloc->pages;
            *found = i;
        }
    }
    return best <= pages + pages / 8;
}

/* What is idle starts a new life. */
static CUdeviceptr revive(struct ov_engine *engine, struct ov_pool *pool, uint32_t i, size_t bytes)
{
    struct ov_alloc *alloc = alloc_at(engine, i);
    take_idle(engine, i);
    alloc->idle = false;
    alloc->bytes = bytes;
    alloc->dirty = alloc->unseen = true;
    alloc->visits = 0;
    count_used(pool, held_bytes(alloc));
    engine->ledger.program_bytes += bytes;
    return ov_page_address(&engine->arena, alloc->first);
}

static bool streams_own_context(CUstream stream)
{
    CUcontext of_stream = NULL, current = NULL;
    if (stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) {
        return true;
    }
    return ov_cu->cuStreamGetCtx(stream, &of_stream) == CUDA_SUCCESS &&
           ov_cu->cuCtxGetCurrent(&current) == CUDA_SUCCESS && of_stream == current;
}

bool ov_mem_alloc_async(CUdeviceptr *out, size_t bytes, CUmemoryPool handle, CUstream stream, CUresult *result)
{
    struct ov_engine *engine = out != NULL && bytes > 0 ? ov_engine_for_memory() : NULL; /* which may make the arena */
    if (engine == NULL || bytes > ov_arena_bytes || ov_capturing(stream) || !streams_own_context(stream) ||
        (handle == NULL && ov_cu->cuDeviceGetMemPool(&handle, engine->device) != CUDA_SUCCESS)) {
        return false;
    }
    if (bytes < OV_ARENA_LEAST && ov_small_reserve(engine, bytes)) {
        *result = ov_small_alloc(engine, out, bytes, handle, stream); /* the driver packs small ones closer */
        return true;
    }
    uint32_t i = 0;
    pthread_mutex_lock(&engine->lock);
    struct ov_pool *pool = served_pool(engine, handle);
    bool served = pool != NULL;
    if (served && find_idle(engine, pool, ov_pages(bytes), stream, &i)) {
        *out = revive(engine, pool, i, bytes);
        *result = CUDA_SUCCESS;
        pthread_mutex_unlock(&engine->lock);
        return true;
    }
    pthread_mutex_unlock(&engine->lock);
    if (!served) {
        *result = ov_foreign_alloc_async(engine, out, bytes, handle, stream);
        return true;
    }
    CUdeviceptr address;
    *result = ov_alloc_pages(engine, &address, bytes);
    if (*result == CUDA_SUCCESS) {
        pthread_mutex_lock(&engine->lock);
        struct ov_alloc *alloc = ov_alloc_of(engine, ov_arena_page(&engine->arena, address));
        alloc->pool = handle;
        pool = served_pool(engine, handle); /* another thread may have destroyed it */
        if (pool != NULL) {
            count_reserved(pool, held_bytes(alloc));
            count_used(pool, held_bytes(alloc));
        }
        *out = address;
        pthread_mutex_unlock(&engine->lock);
    }
    return true;
}

/* ---- free */

static CUresult record(struct ov_engine *engine, CUstream stream, CUevent *event)
{
    struct ov_pools *pools = &engine->pools;
    CUresult result = CUDA_SUCCESS;
    *event = NULL;
    if (pools->spare_count > 0) {
        *event = pools->spare[--pools->spare_count];
    } else {
        result = ov_cu->cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
    }
    if (result == CUDA_SUCCESS) {
        result = ov_cu->cuEventRecord(*event, stream);
        if (result != CUDA_SUCCESS) {
            pools->spare[pools->spare_count++] = *event;
        }
    }
    return result;
}

/* Under the lock. False: not like that, the whole device has to be waited for. */
static bool lay_down(struct ov_engine *engine, struct ov_alloc *alloc, CUstream stream)
{
    struct ov_pools *pools = &engine->pools;
    const uint32_t most = ov_pages(engine->ledger.budget_bytes / 4);
    CUevent event;
    if (alloc->pages > most || ov_units_at(engine, alloc->first, alloc->pages)) {
        return false;
    }
    ov_idle_drop(engine, most - alloc->pages, false);
    uint32_t count = atomic_load(&pools->idle_count);
    if (count == OV_IDLE_MOST || record(engine, stream, &event) != CUDA_SUCCESS) {
        return false;
    }
    pools->idle[count] =
        (struct ov_idle){(uint32_t)(alloc - engine->allocs.item) + 1, stream, thread_of(stream), event};
    atomic_store(&pools->idle_count, count + 1);
    pools->idle_pages += alloc->pages;
    engine->ledger.program_bytes -= alloc->bytes;
    if (alloc->pool == NULL) { /* from cuMemAlloc: it joins the pool that it is freed into */
        (void)ov_cu->cuDeviceGetMemPool(&alloc->pool, engine->device);
        struct ov_pool *pool = served_pool(engine, alloc->pool);
        if (pool != NULL) {
            count_reserved(pool, held_bytes(alloc));
            count_used(pool, held_bytes(alloc));
        }
    }
    struct ov_pool *pool = pool_of(engine, alloc->pool);
    if (pool != NULL && pool->handle != NULL) {
        pool->used -= held_bytes(alloc);
    }
    alloc->idle = true;
    ov_alloc_forget(engine, alloc);
    return true;
}

/* What cuMemAlloc gave joins the device's current pool; what costs nothing by itself is a graph's. */
static void join_pool(struct ov_engine *engine, struct ov_other *other)
{
    CUmemoryPool pool = NULL;
    const bool costs = other->small || other->device_bytes > 0;
    if (costs && !other->pooled && ov_cu->cuDeviceGetMemPool(&pool, engine->device) == CUDA_SUCCESS) {
        pthread_mutex_lock(&engine->lock);
        other->pooled = ov_kept_by(engine, pool, 0);
        pthread_mutex_unlock(&engine->lock);
    }
}

/* False: not ours to count. */
static bool free_other(CUdeviceptr address, CUstream stream, CUresult *result)
{
    struct ov_other *other[OV_DEVICES];
    if (!ov_others_take(address, other)) {
        return false;
    }
    ov_inside_enter();
    *result = ov_cu->cuMemFreeAsync(address, stream);
    ov_inside_leave();
    for (int slice = 0; slice < OV_DEVICES && *result == CUDA_SUCCESS; slice++) {
        if (other[slice] != NULL) {
            join_pool(ov_engine_at(slice), other[slice]);
        }
    }
    ov_others_end(other, *result);
    return true;
}

bool ov_mem_free_async(CUdeviceptr address, CUstream stream, CUresult *result)
{
    struct ov_engine *engine = ov_engine_of(address);
    CUcontext current = NULL;
    if (engine == NULL) {
        return free_other(address, stream, result);
    }
    bool laid = false;
    if (atomic_load(&ov_captures) == 0 && ov_cu->cuCtxGetCurrent(&current) == CUDA_SUCCESS &&
        current == engine->context && streams_own_context(stream)) {
        pthread_mutex_lock(&engine->lock);
        struct ov_alloc *alloc = ov_alloc_of(engine, ov_arena_page(&engine->arena, address));
        if (alloc != NULL && ov_alloc_is_at(engine, alloc, address)) {
            laid = lay_down(engine, alloc, stream);
        }
        pthread_mutex_unlock(&engine->lock);
    }
    *result = laid ? CUDA_SUCCESS : ov_alloc_free(engine, address);
    return true;
}

/* ---- questions and wishes */

CUresult ov_pool_trim(CUmemoryPool handle, size_t keep_bytes)
{
    for (int slice = 0; slice < OV_DEVICES && handle != NULL; slice++) {
        struct ov_engine *engine = ov_engine_at(slice);
        if (engine == NULL || atomic_load(&ov_captures) != 0) {
            continue;
        }
        bool entered = ov_context_enter(engine);
        pthread_mutex_lock(&engine->lock);
        struct ov_pool *pool = pool_of(engine, handle);
        if (pool != NULL && pool->handle != NULL) {
            trim(engine, pool, keep_bytes);
            keep_bytes = keep_bytes > pool->reserved ? keep_bytes - pool->reserved : 0;
        }
        pthread_mutex_unlock(&engine->lock);
        ov_context_leave(entered);
    }
    return ov_cu->cuMemPoolTrimTo(handle, keep_bytes);
}

/* The pool of whichever engine serves it, its engine locked; NULL: of none. */
static struct ov_pool *lock_pool(CUmemoryPool handle, struct ov_engine **engine)
{
    for (int slice = 0; slice < OV_DEVICES && handle != NULL; slice++) {
        *engine = ov_engine_at(slice);
        if (*engine != NULL) {
            pthread_mutex_lock(&(*engine)->lock);
            struct ov_pool *pool = pool_of(*engine, handle);
            if (pool != NULL && pool->handle != NULL) {
                return pool;
            }
            pthread_mutex_unlock(&(*engine)->lock);
        }
    }
    return NULL;
}

static uint64_t *number(struct ov_pool *pool, CUmemPool_attribute attribute)
{
    switch ((int)attribute) {
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return &pool->used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return &pool->used_high;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return &pool->reserved;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return &pool->reserved_high;
    default:
        return NULL;
    }
}

CUresult ov_pool_get_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
    struct ov_engine *engine;
    CUresult result = ov_cu->cuMemPoolGetAttribute(handle, attribute, value);
    struct ov_pool *pool = result == CUDA_SUCCESS ? lock_pool(handle, &engine) : NULL;
    if (pool != NULL) {
        const uint64_t *ours = number(pool, attribute);
        *(cuuint64_t *)value += ours != NULL ? *ours : 0;
        pthread_mutex_unlock(&engine->lock);
    }
    return result;
}

CUresult ov_pool_set_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
    struct ov_engine *engine;
    CUresult result = ov_cu->cuMemPoolSetAttribute(handle, attribute, value);
    struct ov_pool *pool = result == CUDA_SUCCESS ? lock_pool(handle, &engine) : NULL;
    if (pool != NULL) { /* high-water marks can only be set to 0: to what there is now */
        pool->used_high = attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH ? pool->used : pool->used_high;
        pool->reserved_high = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH ? pool->reserved : pool->reserved_high;
        pthread_mutex_unlock(&engine->lock);
    }
    return result;
}

CUresult ov_pool_set_access(CUmemoryPool handle, const CUmemAccessDesc *desc, size_t count)
{
    struct ov_engine *engine;
    CUresult result = ov_cu->cuMemPoolSetAccess(handle, desc, count);
    struct ov_pool *pool = result == CUDA_SUCCESS ? lock_pool(handle, &engine) : NULL;
    if (pool != NULL) {
        for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
            if (desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE && desc[i].location.id >= 0 &&
                desc[i].location.id < OV_DEVICES) {
                result = ov_arena_admit(&engine->arena, desc[i].location.id);
            }
        }
        pthread_mutex_unlock(&engine->lock);
    }
    return result;
}

void ov_pool_gone(CUmemoryPool handle)
{
    struct ov_engine *engine;
    ov_kept_pool_gone(handle);
    struct ov_pool *pool = lock_pool(handle, &engine);
    CUmemoryPool heir = NULL;
    if (pool == NULL) {
        return;
    }
    /* What is still allocated lives on in the default pool. */
    const struct ov_pool old = *pool;
    memset(pool, 0, sizeof *pool);
    if (ov_cu->cuDeviceGetDefaultMemPool(&heir, engine->device) == CUDA_SUCCESS &&
        (pool = enter_pool(engine, heir)) != NULL) {
        count_used(pool, old.used);
        count_reserved(pool, old.reserved);
    }
    for (uint32_t i = 0; i < engine->allocs.count; i++) {
        struct ov_alloc *alloc = &engine->allocs.item[i];
        alloc->pool = alloc->ordinal != 0 && alloc->pool == handle ? heir : alloc->pool;
    }
    pthread_mutex_unlock(&engine->lock);
}
