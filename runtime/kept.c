#include "kept.h"

#include "engine.h"
#include "other.h"

static uint32_t find(const struct ov_kept *kept, CUmemoryPool pool)
{
    uint32_t i = 0;
    while (i < kept->count && kept->keeper[i].pool != pool) {
        i++;
    }
    return i;
}

bool ov_kept_by(struct ov_engine *engine, CUmemoryPool pool, size_t bytes)
{
    struct ov_kept *kept = &engine->kept;
    const uint32_t i = find(kept, pool);
    if (i == OV_KEEPERS) {
        return false;
    }
    if (i == kept->count) {
        kept->keeper[i].pool = pool;
        kept->keeper[i].live_bytes = 0;
        kept->count++;
    }
    kept->keeper[i].live_bytes += bytes;
    return true;
}

void ov_kept_add(struct ov_engine *engine, const struct ov_other *other)
{
    struct ov_kept *kept = &engine->kept;
    const size_t bytes = other->small ? OV_SMALL_BYTES(other->bytes) : other->device_bytes;
    const uint32_t i = other->pool != NULL ? find(kept, other->pool) : kept->count;
    if (i < kept->count) {
        size_t *live = &kept->keeper[i].live_bytes;
        *live -= bytes < *live ? bytes : *live;
    }
    ov_ledger_keep(&engine->ledger, other->small ? OV_FOR_SMALL : OV_FOR_FOREIGN, bytes);
    atomic_store(&kept->some, true);
}

/* Pools are asked in relaxed mode: another thread may begin a capture, which asking would break. */
static CUresult held_by(CUmemoryPool pool, cuuint64_t *held)
{
    const CUstreamCaptureMode mode = ov_relax();
    const CUresult result = ov_cu->cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, held);
    ov_relax_end(mode);
    return result;
}

void ov_kept_ask(struct ov_engine *engine)
{
    struct ov_kept *kept = &engine->kept;
    const struct ov_ledger *ledger = &engine->ledger;
    size_t sum = 0;
    if (!atomic_load(&kept->some)) {
        return;
    }
    for (uint32_t i = 0; i < kept->count;) {
        const size_t live = kept->keeper[i].live_bytes;
        cuuint64_t held = 0;
        const CUresult result = held_by(kept->keeper[i].pool, &held);
        if (result == CUDA_ERROR_INVALID_VALUE) { /* it is no more */
            kept->keeper[i] = kept->keeper[--kept->count];
            continue;
        }
        if (result != CUDA_SUCCESS) {
            return;
        }
        sum += held > live ? held - live : 0;
        i++;
    }
    ov_ledger_kept(&engine->ledger, sum);
    atomic_store(&kept->some, ledger->kept_bytes[OV_FOR_SMALL] + ledger->kept_bytes[OV_FOR_FOREIGN] > 0);
}

void ov_kept_trim(struct ov_engine *engine)
{
    if (atomic_load(&engine->kept.some)) {
        const CUstreamCaptureMode mode = ov_relax();
        for (uint32_t i = 0; i < engine->kept.count; i++) {
            (void)ov_cu->cuMemPoolTrimTo(engine->kept.keeper[i].pool, 0);
        }
        ov_relax_end(mode);
        ov_kept_ask(engine);
    }
}

static void forget(struct ov_engine *engine, CUmemoryPool pool)
{
    struct ov_kept *kept = &engine->kept;
    uint32_t i = find(kept, pool);
    CUmemoryPool heir = NULL;
    if (i == kept->count) {
        return;
    }
    kept->keeper[i] = kept->keeper[--kept->count];
    if (ov_cu->cuDeviceGetDefaultMemPool(&heir, engine->device) == CUDA_SUCCESS) {
        (void)ov_kept_by(engine, heir, 0);
    }
    ov_others_orphan(engine, pool);
}

void ov_kept_pool_gone(CUmemoryPool pool)
{
    for (int slice = 0; slice < OV_DEVICES; slice++) {
        struct ov_engine *engine = ov_engine_at(slice);
        if (engine != NULL) {
            pthread_mutex_lock(&engine->lock);
            forget(engine, pool);
            pthread_mutex_unlock(&engine->lock);
        }
    }
}
