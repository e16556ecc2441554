#include "ipc.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine.h"
#include "log.h"
#include "runtime.h"

struct opening {
    struct ov_ticket ticket;
    CUdeviceptr address;
    CUmemGenericAllocationHandle handle;
    CUcontext context;
    CUdevice device;
    unsigned references; /* 0: closed while somebody captured; goes with the next call */
    struct opening *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct opening *openings;
static _Atomic unsigned opening_count; /* read without the lock: mostly there are none */

static bool is_ticket(const CUipcMemHandle *handle, struct ov_ticket *ticket)
{
    _Static_assert(sizeof *ticket <= sizeof *handle, "a ticket has to fit the driver's handle");
    memcpy(ticket, handle, sizeof *ticket);
    return memcmp(ticket->magic, OV_IPC_MAGIC, sizeof ticket->magic) == 0;
}

/* ---- mappings */

static CUresult map(struct opening *opening, CUdevice device)
{
    const size_t bytes = opening->ticket.mapped_bytes;
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = ov_cu->cuMemAddressReserve(&opening->address, bytes, OV_PAGE_BYTES, 0, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = ov_cu->cuMemMap(opening->address, bytes, 0, opening->handle, 0);
    if (result == CUDA_SUCCESS) {
        result = ov_cu->cuMemSetAccess(opening->address, bytes, &access, 1);
        if (result != CUDA_SUCCESS) {
            (void)ov_cu->cuMemUnmap(opening->address, bytes);
        }
    }
    if (result != CUDA_SUCCESS) {
        (void)ov_cu->cuMemAddressFree(opening->address, bytes);
    }
    return result;
}

static CUresult import(struct opening *opening, CUdevice device)
{
    if (ov_cu->cuMemImportFromShareableHandle == NULL) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    const int file = ov_ipc_fetch(&opening->ticket);
    if (file < 0) {
        ov_log(OV_LOG_WARN,
               "cuIpcOpenMemHandle: the process that shared the memory has ended or has freed it, or is of "
               "another user");
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = ov_cu->cuMemImportFromShareableHandle(&opening->handle, (void *)(intptr_t)file,
                                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    close(file);
    if (result == CUDA_SUCCESS) {
        result = map(opening, device);
        if (result != CUDA_SUCCESS) {
            (void)ov_cu->cuMemRelease(opening->handle);
        }
    }
    return result;
}

/* When nothing on the device uses it any more. Under the lock. */
static void drop(struct opening **at)
{
    struct opening *opening = *at;
    const size_t bytes = opening->ticket.mapped_bytes;
    *at = opening->next;
    atomic_fetch_sub(&opening_count, 1);
    ov_foreign_removed(opening->address);
    if (ov_cu->cuMemUnmap(opening->address, bytes) == CUDA_SUCCESS) {
        (void)ov_cu->cuMemAddressFree(opening->address, bytes);
    }
    (void)ov_cu->cuMemRelease(opening->handle);
    free(opening);
}

/* The device cannot be waited for while somebody captures. */
static void reap(CUcontext context)
{
    for (struct opening **at = &openings; *at != NULL;) {
        if ((*at)->references == 0 && (*at)->context == context && atomic_load(&ov_captures) == 0 &&
            ov_cu->cuCtxSynchronize() == CUDA_SUCCESS) {
            drop(at);
        } else {
            at = &(*at)->next;
        }
    }
}

/* ---- the program's calls */

static CUresult open_ticket(CUdeviceptr *out, const struct ov_ticket *ticket)
{
    CUcontext context = NULL;
    CUdevice device;
    if (ov_cu->cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == NULL ||
        ov_cu->cuCtxGetDevice(&device) != CUDA_SUCCESS) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    pthread_mutex_lock(&lock);
    reap(context);
    struct opening *opening = openings;
    while (opening != NULL && (opening->context != context || opening->references == 0 ||
                               memcmp(&opening->ticket, ticket, sizeof *ticket) != 0)) {
        opening = opening->next;
    }
    CUresult result = CUDA_SUCCESS;
    if (opening == NULL && (opening = calloc(1, sizeof *opening)) != NULL) {
        opening->ticket = *ticket;
        opening->context = context;
        opening->device = device;
        result = import(opening, device);
        if (result == CUDA_SUCCESS) {
            opening->next = openings;
            openings = opening;
            atomic_fetch_add(&opening_count, 1);
            ov_foreign_added(opening->address, ticket->mapped_bytes, 0);
        } else {
            free(opening);
        }
    } else if (opening == NULL) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS) {
        opening->references++;
        *out = opening->address;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

bool ov_ipc_open_mem_handle(CUdeviceptr *out, const CUipcMemHandle *handle, unsigned flags, CUresult *result)
{
    struct ov_ticket ticket;
    if (!is_ticket(handle, &ticket)) {
        return false;
    }
    if (out == NULL || (flags & ~(unsigned)CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) != 0 || ticket.mapped_bytes == 0 ||
        ticket.mapped_bytes % OV_PAGE_BYTES != 0 || ticket.bytes > ticket.mapped_bytes) {
        *result = CUDA_ERROR_INVALID_VALUE;
    } else if (ov_ipc_is_own(&ticket)) {
        *result = CUDA_ERROR_INVALID_CONTEXT; /* as the driver */
    } else {
        *result = open_ticket(out, &ticket);
    }
    return true;
}

bool ov_ipc_close_mem_handle(CUdeviceptr address, CUresult *result)
{
    CUcontext context = NULL;
    if (atomic_load(&opening_count) == 0) {
        return false;
    }
    pthread_mutex_lock(&lock);
    struct opening *opening = openings;
    while (opening != NULL && (opening->address != address || opening->references == 0)) {
        opening = opening->next;
    }
    if (opening != NULL) {
        opening->references--;
        *result = CUDA_SUCCESS;
        if (ov_cu->cuCtxGetCurrent(&context) == CUDA_SUCCESS) {
            reap(context);
        }
    }
    pthread_mutex_unlock(&lock);
    return opening != NULL;
}

bool ov_ipc_opened(CUdeviceptr address, CUdeviceptr *base, size_t *bytes)
{
    bool found = false;
    if (atomic_load(&opening_count) == 0) {
        return false;
    }
    pthread_mutex_lock(&lock);
    for (const struct opening *opening = openings; opening != NULL && !found; opening = opening->next) {
        if (address - opening->address < opening->ticket.bytes) {
            found = true;
            *base = opening->address;
            *bytes = opening->ticket.bytes;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

void ov_ipc_context_closing(CUcontext context, CUdevice device)
{
    pthread_mutex_lock(&lock);
    for (struct opening **at = &openings; *at != NULL;) {
        CUcontext popped;
        const bool goes = context != NULL ? (*at)->context == context : (*at)->device == device;
        if (goes && ov_cu->cuCtxPushCurrent_v2((*at)->context) == CUDA_SUCCESS) {
            (void)ov_cu->cuCtxSynchronize();
            drop(at);
            (void)ov_cu->cuCtxPopCurrent_v2(&popped);
        } else {
            at = &(*at)->next;
        }
    }
    pthread_mutex_unlock(&lock);
}
