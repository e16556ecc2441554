/* The program's physical handles: see vmm.h. */
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "engine.h"
#include "runtime.h"
#include "vmm.h"

/*
 * The driver's handles are addresses of its own objects or small numbers. These are neither: no address of user space
 * has such upper bits. Below them are the device and a serial number that is never used again.
 */
#define VIRTUAL_TAG   ((uint64_t)0x4F56 << 48)
#define TAG_MASK      ((uint64_t)0xFFFF << 48)
#define DEVICE_SHIFT  40
#define SERIAL_MASK   (((uint64_t)1 << DEVICE_SHIFT) - 1)
#define ID_DEVICE(id) ((int)((id) >> DEVICE_SHIFT & 0xFF))

bool ov_handle_is_virtual(CUmemGenericAllocationHandle id)
{
    return (id & TAG_MASK) == VIRTUAL_TAG;
}

/* With its engine locked; also one without references if `nameless`. */
static struct ov_handle *find(CUmemGenericAllocationHandle id, bool nameless)
{
    bool ours = ov_handle_is_virtual(id);
    for (int slice = ours ? ID_DEVICE(id) : 0; slice < OV_DEVICES; slice++) {
        struct ov_engine *engine = ov_engine_at(slice);
        struct ov_handle *handle = NULL;
        if (engine != NULL) {
            pthread_mutex_lock(&engine->lock);
            HASH_FIND(hh, engine->vmm.handle, &id, sizeof id, handle);
            if (handle != NULL && (nameless || handle->references > 0)) {
                return handle;
            }
            pthread_mutex_unlock(&engine->lock);
        }
        if (ours) {
            break;
        }
    }
    return NULL;
}

struct ov_handle *ov_handle_lock(CUmemGenericAllocationHandle id)
{
    return find(id, false);
}

static void unlock(const struct ov_handle *handle)
{
    pthread_mutex_unlock(&handle->engine->lock);
}

/* A number that is there already is that of memory which is only mapped any more. */
static void list(struct ov_handle *handle)
{
    struct ov_handle *older = NULL;
    HASH_FIND(hh, handle->engine->vmm.handle, &handle->id, sizeof handle->id, older);
    if (older != NULL) {
        HASH_DEL(handle->engine->vmm.handle, older);
        older->listed = false;
    }
    HASH_ADD(hh, handle->engine->vmm.handle, id, sizeof handle->id, handle);
    handle->listed = true;
}

/* ---- making ---- */

/* Device memory without anything special about it. A descriptor may be asked for in time: then the handle is fixed. */
static bool is_plain(size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags)
{
    if (prop == NULL || flags != 0 || bytes == 0 || bytes % OV_PAGE_BYTES != 0 || bytes >> OV_PAGE_SHIFT > UINT32_MAX) {
        return false;
    }
    const unsigned types = (unsigned)prop->requestedHandleTypes;
    return prop->type == CU_MEM_ALLOCATION_TYPE_PINNED && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
           (types == CU_MEM_HANDLE_TYPE_NONE || types == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) &&
           prop->win32HandleMetaData == NULL && prop->allocFlags.compressionType == 0 && prop->allocFlags.usage == 0;
}

/* The engine of the device that the memory is to be on. */
static struct ov_engine *engine_for(const CUmemAllocationProp *prop)
{
    struct ov_engine *here = ov_engine_for_memory();
    if (atomic_load_explicit(&ov_stood_down, memory_order_relaxed)) {
        return NULL;
    }
    return here != NULL && here->device == prop->location.id ? here : ov_engine_at(prop->location.id);
}

static struct ov_handle *new_handle(struct ov_engine *engine, size_t bytes, const CUmemAllocationProp *prop)
{
    struct ov_handle *handle = calloc(1, sizeof *handle);
    if (handle != NULL) {
        handle->engine = engine;
        handle->prop = *prop;
        handle->bytes = bytes;
        handle->pages = ov_pages(bytes);
        handle->references = 1;
    }
    return handle;
}

static CUresult create_virtual(struct ov_engine *engine, CUmemGenericAllocationHandle *out, size_t bytes,
                               const CUmemAllocationProp *prop)
{
    struct ov_handle *handle = new_handle(engine, bytes, prop);
    if (handle == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    ov_make_room(engine, handle->pages, false);
    bool entered = ov_context_enter(engine);
    pthread_mutex_lock(&engine->lock);
    bool host = ov_mode_moves() && engine->arena.host_capable;
    CUresult result = ov_loose_make(&engine->arena, handle->pages, host, &handle->loose);
    bool on_host = result == CUDA_SUCCESS && ov_loose_host_pages(&handle->loose) > 0;
    if (result == CUDA_SUCCESS) {
        handle->id = VIRTUAL_TAG | (uint64_t)engine->slice << DEVICE_SHIFT | (++engine->vmm.last_serial & SERIAL_MASK);
        list(handle);
        ov_alloc_grown(engine, bytes, on_host);
        *out = handle->id;
    }
    pthread_mutex_unlock(&engine->lock);
    ov_context_leave(entered);
    if (result != CUDA_SUCCESS) {
        free(handle);
        return result;
    }
    ov_alloc_grew(engine, on_host);
    return CUDA_SUCCESS;
}

/* The driver is to make it: counted from here on, whether it fits or not. Only device memory costs anything; NULL: none
 * that we count. */
static struct ov_handle *expect_real(size_t bytes, const CUmemAllocationProp *prop)
{
    struct ov_engine *engine =
        prop != NULL && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? engine_for(prop) : NULL;
    struct ov_handle *handle = engine != NULL ? new_handle(engine, bytes, prop) : NULL;
    if (handle != NULL) {
        pthread_mutex_lock(&engine->lock);
        engine->ledger.held_bytes[OV_FOR_FOREIGN] += bytes; /* no peak yet: there may be no such memory */
        engine->ledger.program_bytes += bytes;
        pthread_mutex_unlock(&engine->lock);
    }
    return handle;
}

static void note_real(struct ov_handle *handle, CUmemGenericAllocationHandle id)
{
    struct ov_engine *engine = handle->engine;
    handle->id = handle->real = id;
    pthread_mutex_lock(&engine->lock);
    list(handle);
    ov_ledger_add(&engine->ledger, OV_FOR_FOREIGN, 0); /* a peak, perhaps */
    bool over = ov_ledger_held(&engine->ledger) > engine->ledger.budget_bytes;
    engine->replan_soon = engine->replan_soon || (over && atomic_load(&engine->planned));
    pthread_mutex_unlock(&engine->lock);
}

static void miss_real(struct ov_handle *handle)
{
    struct ov_engine *engine = handle->engine;
    pthread_mutex_lock(&engine->lock);
    ov_ledger_give(&engine->ledger, OV_FOR_FOREIGN, handle->bytes);
    engine->ledger.program_bytes -= handle->bytes;
    pthread_mutex_unlock(&engine->lock);
    free(handle);
}

CUresult ov_mem_create(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *prop,
                       unsigned long long flags)
{
    struct ov_engine *engine = out != NULL && is_plain(bytes, prop, flags) ? engine_for(prop) : NULL;
    if (engine != NULL) {
        return create_virtual(engine, out, bytes, prop);
    }
    struct ov_handle *handle = expect_real(bytes, prop);
    CUresult result = ov_cu->cuMemCreate(out, bytes, prop, flags);
    if (handle != NULL && result == CUDA_SUCCESS) {
        note_real(handle, *out);
    } else if (handle != NULL) {
        miss_real(handle);
    }
    return result;
}

/* ---- letting go ---- */

void ov_handle_settle(struct ov_handle *handle)
{
    struct ov_engine *engine = handle->engine;
    if (handle->references > 0 || handle->mappings > 0) {
        return;
    }
    if (handle->real != 0) {
        if (handle->real != handle->id) {
            (void)ov_cu->cuMemRelease(handle->real); /* of a fixed one we hold the driver's only reference */
        }
        ov_ledger_give(&engine->ledger, OV_FOR_FOREIGN, handle->bytes);
    } else {
        ov_loose_drop(&engine->arena, &handle->loose); /* it is mapped nowhere, so nothing can be using it */
    }
    engine->ledger.program_bytes -= handle->bytes;
    engine->replan_soon = engine->replan_soon || atomic_load(&engine->planned);
    if (handle->listed) {
        HASH_DEL(engine->vmm.handle, handle);
    }
    free(handle);
}

void ov_handle_unmapped(struct ov_handle *handle)
{
    handle->mappings--;
    ov_handle_settle(handle);
}

CUresult ov_mem_release(CUmemGenericAllocationHandle id)
{
    struct ov_handle *handle = ov_handle_lock(id);
    if (handle == NULL && ov_handle_is_virtual(id)) {
        /* With its context, the memory of a device is given back. */
        return ov_engine_at(ID_DEVICE(id)) == NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    if (handle == NULL) {
        return ov_cu->cuMemRelease(id);
    }
    struct ov_engine *engine = handle->engine;
    CUresult result = handle->real == id ? ov_cu->cuMemRelease(id) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) {
        handle->references--;
        ov_handle_settle(handle);
    }
    pthread_mutex_unlock(&engine->lock);
    return result;
}

/* ---- questions ---- */

/* The virtual number behind an address of ours; 0: there is none. *known: whether the driver has nothing to say. */
static CUmemGenericAllocationHandle virtual_at(CUdeviceptr address, bool *known)
{
    struct ov_engine *engine = ov_engine_of(address);
    CUmemGenericAllocationHandle id = 0;
    *known = engine != NULL;
    if (engine != NULL) {
        pthread_mutex_lock(&engine->lock);
        const struct ov_mapping *mapping = ov_mapping_of(engine, ov_arena_page(&engine->arena, address));
        if (mapping != NULL && mapping->handle != NULL && ov_handle_is_virtual(mapping->handle->id)) {
            id = mapping->handle->id;
        } else if (mapping != NULL) {
            *known = false;
        }
        pthread_mutex_unlock(&engine->lock);
    }
    return id;
}

CUresult ov_mem_retain(CUmemGenericAllocationHandle *out, void *address)
{
    bool known;
    const CUmemGenericAllocationHandle id = virtual_at((CUdeviceptr)(uintptr_t)address, &known);
    if (known) {
        struct ov_handle *handle = out != NULL && id != 0 ? find(id, true) : NULL;
        if (handle == NULL) {
            return CUDA_ERROR_INVALID_VALUE; /* memory of cuMemAlloc has no handle */
        }
        handle->references++;
        *out = id;
        unlock(handle);
        return CUDA_SUCCESS;
    }
    CUresult result = ov_cu->cuMemRetainAllocationHandle(out, address);
    struct ov_handle *handle = result == CUDA_SUCCESS ? find(*out, true) : NULL;
    if (handle != NULL) {
        handle->references++;
        unlock(handle);
    }
    return result;
}

CUresult ov_mem_handle_properties(CUmemAllocationProp *prop, CUmemGenericAllocationHandle id)
{
    if (!ov_handle_is_virtual(id)) {
        return ov_cu->cuMemGetAllocationPropertiesFromHandle(prop, id);
    }
    struct ov_handle *handle = prop != NULL ? ov_handle_lock(id) : NULL;
    if (handle == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *prop = handle->prop;
    unlock(handle);
    return CUDA_SUCCESS;
}

CUresult ov_mem_export(void *out, CUmemGenericAllocationHandle id, CUmemAllocationHandleType type,
                       unsigned long long flags)
{
    if (ov_handle_is_virtual(id)) {
        struct ov_handle *handle = ov_handle_lock(id);
        if (handle == NULL) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        bool asked_for = type != CU_MEM_HANDLE_TYPE_NONE && handle->prop.requestedHandleTypes == type;
        unlock(handle);
        if (out == NULL || !asked_for || flags != 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        CUresult result = ov_handle_fix(id, &id);
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    return ov_cu->cuMemExportToShareableHandle(out, id, type, flags);
}

CUresult ov_mem_real_handle(CUmemGenericAllocationHandle *id)
{
    return ov_handle_is_virtual(*id) ? ov_handle_fix(*id, id) : CUDA_SUCCESS;
}
