#include "other.h"

#include <stdlib.h>

#include "engine.h"

void ov_other_add(struct ov_engine *engine, struct ov_other *other)
{
    HASH_ADD(hh, engine->allocs.other, address, sizeof other->address, other);
}

struct ov_other *ov_other_take(struct ov_engine *engine, uint64_t address)
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

void ov_other_settle(struct ov_engine *engine, struct ov_other *other)
{
    if (other == NULL) {
        return;
    }
    pthread_mutex_lock(&engine->lock);
    if (other->pooled) {
        ov_kept_add(engine, other);
    } else if (other->small) {
        ov_ledger_small(&engine->ledger, 0, OV_SMALL_BYTES(other->bytes));
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

void ov_other_restore(struct ov_engine *engine, struct ov_other *other)
{
    pthread_mutex_lock(&engine->lock);
    ov_other_add(engine, other);
    pthread_mutex_unlock(&engine->lock);
}

bool ov_others_take(uint64_t address, struct ov_other **other)
{
    bool any = false;
    for (int slice = 0; slice < OV_DEVICES; slice++) {
        struct ov_engine *engine = address != 0 ? ov_engine_at(slice) : NULL;
        other[slice] = engine != NULL ? ov_other_take(engine, address) : NULL;
        any = any || other[slice] != NULL;
    }
    return any;
}

void ov_others_end(struct ov_other **other, CUresult result)
{
    for (int slice = 0; slice < OV_DEVICES; slice++) {
        if (other[slice] != NULL && result == CUDA_SUCCESS) {
            ov_other_settle(ov_engine_at(slice), other[slice]);
        } else if (other[slice] != NULL) {
            ov_other_restore(ov_engine_at(slice), other[slice]);
        }
    }
}

void ov_others_drop(struct ov_engine *engine)
{
    struct ov_other *other, *next;
    HASH_ITER(hh, engine->allocs.other, other, next)
    {
        HASH_DEL(engine->allocs.other, other);
        free(other);
    }
}

void ov_others_orphan(struct ov_engine *engine, CUmemoryPool pool)
{
    for (struct ov_other *other = engine->allocs.other; other != NULL; other = other->hh.next) {
        other->pool = other->pool == pool ? NULL : other->pool;
    }
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
