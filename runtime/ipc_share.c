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

/* In an exclusive section. */
static CUresult share(struct ov_engine *engine, struct ov_alloc *alloc)
{
    CUmemGenericAllocationHandle handle;
    int file = -1;
    CUresult result = ov_share_pages(engine, alloc->first, alloc->pages, &handle);
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
    if (alloc == NULL || alloc->doomed || address - ov_page_address(&engine->arena, alloc->first) >= alloc->bytes) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        *bytes = alloc->bytes;
        if (!alloc->offered) {
            result = atomic_load(&ov_captures) == 0 ? share(engine, alloc) : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
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
