/* Requests that are the driver's to place, but ours to grant: see other.h. */
#include <stdlib.h>

#include "engine.h"
#include "other.h"
#include "runtime.h"

static bool reserve(struct ov_engine *engine, size_t bytes, bool anyway)
{
    pthread_mutex_lock(&engine->lock);
    if (ov_ledger_small_grows(&engine->ledger, OV_SMALL_BYTES(bytes))) {
        ov_kept_ask(engine);
    }
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

void ov_small_take(struct ov_engine *engine, size_t bytes)
{
    (void)reserve(engine, bytes, true);
}

static CUresult ask_driver(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    ov_inside_enter();
    CUresult result =
        pool != NULL ? ov_cu->cuMemAllocFromPoolAsync(out, bytes, pool, stream) : ov_cu->cuMemAlloc_v2(out, bytes);
    ov_inside_leave();
    if (pool != NULL && result == CUDA_SUCCESS) {
        ov_foreign_removed(*out); /* of a graph, perhaps, that is no more */
    }
    return result;
}

CUresult ov_small_alloc(struct ov_engine *engine, CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    struct ov_other *other = calloc(1, sizeof *other);
    CUdeviceptr address = 0;
    CUresult result = other != NULL ? ask_driver(&address, bytes, pool, stream) : CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&engine->lock);
    if (result == CUDA_SUCCESS) {
        const bool pooled = pool != NULL && ov_kept_by(engine, pool, OV_SMALL_BYTES(bytes));
        *other = (struct ov_other){.address = address, .bytes = bytes, .small = true, .pooled = pooled, .pool = pool};
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
