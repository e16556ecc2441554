/* Device memory that is the driver's altogether: see other.h. */
#include <stdlib.h>

#include "engine.h"
#include "log.h"
#include "other.h"
#include "runtime.h"

/* As the driver rounds large requests. */
static size_t whole_pages(size_t bytes)
{
    return (size_t)ov_pages(bytes) << OV_PAGE_SHIFT;
}

/* Before the driver is asked: nobody else is promised these bytes meanwhile. */
static void expect(struct ov_engine *engine, size_t device_bytes)
{
    pthread_mutex_lock(&engine->lock);
    engine->ledger.held_bytes[OV_FOR_FOREIGN] += device_bytes; /* no peak yet: there may be no such memory */
    engine->ledger.program_bytes += device_bytes; /* what is mapped, or a graph's, costs nothing by itself */
    pthread_mutex_unlock(&engine->lock);
}

static void miss(struct ov_engine *engine, size_t device_bytes)
{
    pthread_mutex_lock(&engine->lock);
    ov_ledger_give(&engine->ledger, OV_FOR_FOREIGN, device_bytes);
    engine->ledger.program_bytes -= device_bytes;
    pthread_mutex_unlock(&engine->lock);
}

static void say_excess(struct ov_engine *engine, size_t held, size_t foreign, size_t movable)
{
    if (!atomic_exchange(&engine->excess_said, true)) {
        ov_log(
            OV_LOG_WARN,
            "device %d: %zu MiB are held, more than the budget of %zu MiB: the program has %zu MiB in pools, managed "
            "memory and mappings of its own, which overshot cannot move; %zu MiB of its memory can give way",
            engine->device, held >> 20, engine->ledger.budget_bytes >> 20, foreign >> 20, movable >> 20);
    }
}

/* What was expected is there. */
static void add(struct ov_engine *engine, const struct ov_other *added)
{
    struct ov_other *other = calloc(1, sizeof *other);
    if (other == NULL) {
        return; /* counted for ever */
    }
    *other = *added;
    ov_other_settle(engine, ov_other_take(engine, other->address));
    pthread_mutex_lock(&engine->lock);
    ov_other_add(engine, other);
    ov_ledger_add(&engine->ledger, OV_FOR_FOREIGN, 0); /* a peak, perhaps */
    engine->ledger.program_bytes += added->small ? added->bytes : 0;
    size_t held = ov_ledger_held(&engine->ledger);
    size_t foreign = engine->ledger.held_bytes[OV_FOR_FOREIGN], movable = engine->ledger.held_bytes[OV_FOR_PAGES];
    bool over = added->device_bytes > 0 && held > engine->ledger.budget_bytes;
    engine->replan_soon = engine->replan_soon || (over && atomic_load(&engine->planned));
    pthread_mutex_unlock(&engine->lock);
    if (over) {
        say_excess(engine, held, foreign, movable);
    }
}

void ov_foreign_coming(size_t bytes_on_device)
{
    struct ov_engine *engine = ov_engine_for_memory();
    if (engine != NULL) {
        expect(engine, bytes_on_device);
    }
}

void ov_foreign_missed(size_t bytes_on_device)
{
    struct ov_engine *engine = ov_engine_for_memory();
    if (engine != NULL) {
        miss(engine, bytes_on_device);
    }
}

void ov_foreign_added(CUdeviceptr address, size_t bytes, size_t bytes_on_device)
{
    struct ov_engine *engine = ov_engine_for_memory();
    if (engine != NULL) {
        add(engine, &(struct ov_other){.address = address, .bytes = bytes, .device_bytes = bytes_on_device});
    }
}

void ov_global_added(CUdeviceptr address, size_t bytes)
{
    struct ov_engine *engine = ov_engine_for_memory();
    if (engine != NULL) {
        add(engine, &(struct ov_other){.address = address, .bytes = bytes, .global = true});
    }
}

void ov_foreign_removed(CUdeviceptr address)
{
    for (int slice = 0; slice < OV_DEVICES; slice++) {
        struct ov_engine *engine = ov_engine_at(slice);
        if (engine != NULL) {
            ov_other_settle(engine, ov_other_take(engine, address));
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
    struct ov_engine *engine = ov_engine_for_memory();
    if (engine != NULL) {
        add(engine, &(struct ov_other){.address = address, .bytes = bytes, .handle = handle});
    }
}

void ov_pool_added(CUdeviceptr address, size_t bytes, size_t bytes_on_device)
{
    struct ov_engine *engine = ov_engine_for_memory();
    struct ov_other other = {.address = address, .bytes = bytes};
    if (engine == NULL) {
        return;
    }
    if (bytes_on_device > 0 && bytes < OV_ARENA_LEAST) {
        other.small = true;
        ov_small_take(engine, bytes);
    } else if (bytes_on_device > 0) {
        other.device_bytes = whole_pages(bytes_on_device);
        expect(engine, other.device_bytes);
    }
    add(engine, &other);
}

CUresult ov_foreign_alloc_async(struct ov_engine *engine, CUdeviceptr *out, size_t bytes, CUmemoryPool pool,
                                CUstream stream)
{
    const size_t held = whole_pages(bytes);
    CUdeviceptr address;
    if (bytes < OV_ARENA_LEAST) {
        ov_small_take(engine, bytes);
        return ov_small_alloc(engine, out, bytes, pool, stream);
    }
    expect(engine, held);
    ov_inside_enter();
    CUresult result = ov_cu->cuMemAllocFromPoolAsync(&address, bytes, pool, stream);
    ov_inside_leave();
    if (result != CUDA_SUCCESS) {
        miss(engine, held);
        return result;
    }
    pthread_mutex_lock(&engine->lock);
    const bool pooled = ov_kept_by(engine, pool, held);
    pthread_mutex_unlock(&engine->lock);
    add(engine,
        &(struct ov_other){.address = address, .bytes = bytes, .device_bytes = held, .pooled = pooled, .pool = pool});
    *out = address;
    return CUDA_SUCCESS;
}

CUresult ov_foreign_alloc(struct ov_engine *engine, CUdeviceptr *out, size_t bytes)
{
    struct ov_other *other = calloc(1, sizeof *other);
    size_t held = whole_pages(bytes);
    CUdeviceptr address = 0;
    ov_make_room(engine, ov_pages(bytes), ov_host_backed(engine));
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
        ov_other_add(engine, other);
        engine->ledger.program_bytes += held;
        *out = address;
    } else if (fits) {
        ov_ledger_give(&engine->ledger, OV_FOR_FOREIGN, held);
    }
    pthread_mutex_unlock(&engine->lock);
    return result;
}
