/* Device memory that is the driver's altogether: see other.h. */
#include <stdlib.h>

#include "engine.h"
#include "log.h"
#include "other.h"
#include "runtime.h"

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
    ov_other_settle(engine, ov_other_take(engine, address));
    pthread_mutex_lock(&engine->lock);
    ov_other_add(engine, other);
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
    add_foreign(address, bytes, 0, handle, false);
}

CUresult ov_foreign_alloc(struct ov_engine *engine, CUdeviceptr *out, size_t bytes)
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
        ov_other_add(engine, other);
        engine->ledger.program_bytes += held;
        *out = address;
    } else if (fits) {
        ov_ledger_give(&engine->ledger, OV_FOR_FOREIGN, held);
    }
    pthread_mutex_unlock(&engine->lock);
    return result;
}
