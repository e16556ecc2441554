/* cuIpcGetMemHandle: see ipc.h. */
#include <string.h>
#include <unistd.h>

#include "convert.h"
#include "engine.h"
#include "ipc.h"
#include "log.h"
#include "runtime.h"

static bool exportable(const struct ov_engine *engine)
{
    int supported = 0;
    return ov_cu->cuMemExportToShareableHandle != NULL &&
           ov_cu->cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                                       engine->device) == CUDA_SUCCESS &&
           supported != 0;
}

bool ov_ipc_capable(const struct ov_engine *engine)
{
    return exportable(engine);
}

/* A program that tries again and again is told a few times. */
#define ADVICES 8u

static void advise(const struct ov_engine *engine, size_t bytes, const char *what)
{
    static _Atomic unsigned given;
    if (atomic_fetch_add(&given, 1) >= ADVICES) {
        return;
    }
    ov_log(OV_LOG_WARN,
           "device %d: cuIpcGetMemHandle, %zu bytes: %s; OVERSHOT_EXCLUDE=%zu leaves such memory to the driver",
           engine->device, bytes, what, bytes);
}

/* ---- other memory behind the same addresses ---- */

/* The units of these pages are none any more; their entries stay until the next plan. */
static CUresult disband(struct ov_engine *engine, uint32_t first, uint32_t pages)
{
    for (uint32_t i = 0; i < engine->ring.unit_count; i++) {
        struct ov_unit *unit = &engine->ring.unit[i];
        if (unit->first < first || unit->first >= first + pages) {
            continue;
        }
        CUresult result = ov_unit_revoke(engine, i, OV_MARK_FOREIGN);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        unit->pages = 0;
    }
    return CUDA_SUCCESS;
}

/* The contents are in the window; the pages stand on nothing. */
static CUresult exchange(struct ov_engine *engine, uint32_t first, uint32_t pages, CUmemGenericAllocationHandle handle,
                         CUdeviceptr window)
{
    struct ov_arena *arena = &engine->arena;
    CUresult result = ov_back_shared(arena, first, pages, handle);
    if (result == CUDA_SUCCESS) {
        ov_drop_masters(arena, first, pages);
        return CUDA_SUCCESS;
    }
    CUresult back = ov_back_device(arena, first, pages);
    if (back != CUDA_SUCCESS) {
        back = ov_back_host(arena, first, pages);
    }
    if (back == CUDA_SUCCESS) {
        back = ov_copy_pages(engine, ov_page_address(arena, first), window, pages);
    }
    if (back != CUDA_SUCCESS) {
        ov_log(OV_LOG_ERROR, "the contents of %u MiB were lost when they were to be shared (error %d)", pages * 2,
               (int)back);
        (void)ov_unback(arena, first, pages); /* whoever reads them is stopped */
    }
    return result;
}

/* Until the next plan. Not while units are on trial: they go back to their places. */
static void give_up_ring(struct ov_engine *engine)
{
    ov_revoke_all(engine, 0);
    if (engine->ring.streamed_count == 0) {
        (void)ov_ring_resize(engine, 0);
    }
}

/* Gives the pages of an allocation memory that other processes can map, with the same contents, and takes them out of
 * all plans. Other memory goes to the host for it. CUDA_ERROR_OUT_OF_MEMORY: there is no room; nothing has changed. In
 * an exclusive section. */
static CUresult share_pages(struct ov_engine *engine, uint32_t first, uint32_t pages,
                            CUmemGenericAllocationHandle *handle)
{
    struct ov_arena *arena = &engine->arena;
    CUdeviceptr window;
    if (arena->page[first].backing == OV_SHARED) {
        *handle = arena->page[first].device;
        return CUDA_SUCCESS;
    }
    CUresult result = ov_ring_open(engine);
    if (result == CUDA_SUCCESS) {
        result = disband(engine, first, pages);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (ov_host_backed(engine)) {
        ov_demote_some(engine, pages);
        if (ov_ledger_left(&engine->ledger) < (size_t)pages << OV_PAGE_SHIFT && engine->watches == 0) {
            give_up_ring(engine);
        }
    }
    result = ov_make_shared(arena, pages, handle);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = ov_window_open(arena, pages, *handle, &window);
    if (result == CUDA_SUCCESS) {
        result = ov_copy_pages(engine, window, ov_page_address(arena, first), pages);
        if (result == CUDA_SUCCESS) {
            result = ov_unback(arena, first, pages);
        }
        if (result == CUDA_SUCCESS) {
            result = exchange(engine, first, pages, *handle, window);
        }
        ov_window_close(pages, window);
    }
    if (result != CUDA_SUCCESS) {
        ov_drop_shared(arena, pages, *handle);
    }
    engine->replan_soon = engine->replan_soon || atomic_load(&engine->planned);
    engine->quiet_points = engine->replan_wait; /* at the next quiet point */
    return result;
}

/* ---- the program's call ---- */

/* In an exclusive section. */
static CUresult share(struct ov_engine *engine, struct ov_alloc *alloc)
{
    CUmemGenericAllocationHandle handle;
    int file = -1;
    CUresult result = share_pages(engine, alloc->first, alloc->pages, &handle);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = ov_cu->cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!ov_ipc_offer(file, alloc->bytes, (size_t)alloc->pages << OV_PAGE_SHIFT, &alloc->ticket)) {
        close(file);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    alloc->offered = true;
    return CUDA_SUCCESS;
}

static CUresult get_ticket(struct ov_engine *engine, CUdeviceptr address, struct ov_ticket *ticket, size_t *bytes)
{
    struct ov_exclusive section;
    CUresult result = ov_exclusive_begin(engine, &section);
    struct ov_alloc *alloc = ov_alloc_of(engine, ov_arena_page(&engine->arena, address));
    if (alloc == NULL || alloc->doomed || alloc->reserved || alloc->idle || alloc->pool != NULL ||
        address - ov_page_address(&engine->arena, alloc->first) >= alloc->bytes) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        *bytes = alloc->bytes;
        if (!alloc->offered) {
            result = section.idle ? share(engine, alloc) : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
        *ticket = alloc->ticket;
    }
    ov_exclusive_end(engine, &section);
    return result;
}

CUresult ov_ipc_get_mem_handle(CUipcMemHandle *out, CUdeviceptr address)
{
    static _Atomic bool said;
    struct ov_engine *engine = ov_engine_of(address);
    struct ov_ticket ticket;
    size_t bytes = 0;
    if (engine == NULL || out == NULL) {
        return ov_cu->cuIpcGetMemHandle(out, address);
    }
    if (!exportable(engine) || !ov_ipc_serve()) {
        (void)ov_mem_get_address_range(NULL, &bytes, address);
        advise(engine, bytes, "memory that overshot manages cannot be shared here");
        return CUDA_ERROR_INVALID_VALUE;
    }
    const CUresult result = get_ticket(engine, address, &ticket, &bytes);
    if (result == CUDA_SUCCESS) {
        memset(out, 0, sizeof *out);
        memcpy(out, &ticket, sizeof ticket);
        if (!atomic_exchange(&said, true)) {
            advise(engine, bytes, "it stays on the GPU from now on, and who opens it has to run overshot, too");
        }
    } else if (bytes > 0) {
        advise(engine, bytes, "it could not be given memory that can be shared");
    }
    return result;
}
