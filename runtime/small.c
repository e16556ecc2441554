/* Requests that are the driver's to place, but ours to grant: see other.h. */
#include <stdlib.h>

#include "engine.h"
#include "other.h"
#include "runtime.h"

static bool reserve(struct ov_engine *engine, size_t bytes, bool anyway)
{
    pthread_mutex_lock(&engine->lock);
    bool fits = anyway || ov_ledger_small_fits(&engine->ledger, OV_SMALL_BYTES(bytes));
    if (fits) {
        ov_ledger_small(&engine->ledger, OV_SMALL_BYTES(bytes), 0);
    }
    pthread_mutex_unlock(&engine->lock);
    return fits;
}

bool ov_small_reserve(struct ov_engine *engine, size_t bytes)
{
    if (reserve(engine, bytes, false)) {
        return true;
    }
    if (ov_host_backed(engine)) {
        ov_make_room(engine, 2, true); /* small ones are what kernels write to, mostly */
    }
    return reserve(engine, bytes, !engine->arena.host_capable);
}

bool ov_small_fits(struct ov_engine *engine, size_t bytes)
{
    for (int round = 0; round < 2; round++) {
        pthread_mutex_lock(&engine->lock);
        bool fits = ov_ledger_small_fits(&engine->ledger, OV_SMALL_BYTES(bytes));
        pthread_mutex_unlock(&engine->lock);
        if (fits || round > 0 || !engine->arena.host_capable || !ov_mode_moves()) {
            return fits || !engine->arena.host_capable;
        }
        ov_make_room(engine, 2, true);
    }
    return false;
}

CUresult ov_small_alloc(struct ov_engine *engine, CUdeviceptr *out, size_t bytes)
{
    struct ov_other *other = calloc(1, sizeof *other);
    CUdeviceptr address = 0;
    CUresult result = other != NULL ? ov_cu->cuMemAlloc_v2(&address, bytes) : CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&engine->lock);
    if (result == CUDA_SUCCESS) {
        *other = (struct ov_other){.address = address, .bytes = bytes, .small = true};
        ov_other_add(engine, other);
        engine->ledger.program_bytes += bytes;
        *out = address;
    } else {
        ov_ledger_small(&engine->ledger, 0, OV_SMALL_BYTES(bytes));
    }
    pthread_mutex_unlock(&engine->lock);
    if (result != CUDA_SUCCESS) {
        free(other);
    }
    return result;
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
    ov_other_add(engine, other);
    ov_ledger_small(&engine->ledger, OV_SMALL_BYTES(bytes), 0);
    engine->ledger.program_bytes += bytes;
    pthread_mutex_unlock(&engine->lock);
}
