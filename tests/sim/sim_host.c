/* Host memory the device can reach: pinned and registered. Its device address is its host address. */
#include "sim.h"

#include <sys/mman.h>

#define ALLOC_BYTES_PER_NS    1.8  /* cuMemHostAlloc: page by page */
#define REGISTER_BYTES_PER_NS 35.0 /* cuMemHostRegister of memory that was touched before */

static uint64_t page_round(uint64_t bytes)
{
    return (bytes + 4095) & ~(uint64_t)4095;
}

void sim_host_release(struct sim_range *range, const char *site)
{
    sim_race_forget(site, SIM_POOL_HOST, range->address, range->bytes);
    if (range->kind != SIM_RANGE_MANAGED) {
        sim_pin_drop(page_round(range->bytes));
    }
    if (range->kind != SIM_RANGE_REGISTERED) {
        munmap((void *)(uintptr_t)range->address, page_round(range->bytes));
    }
    sim_range_drop(range);
}

CUresult sim_host_make(struct sim_call *call, uint64_t bytes, unsigned flags, enum sim_range_kind kind, void **out)
{
    if (out == NULL || bytes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    SIM_TRY(sim_capture_unsafe(call));
    if (kind == SIM_RANGE_PINNED && !sim_pin_add(page_round(bytes))) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    void *memory =
        mmap(NULL, page_round(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        if (kind == SIM_RANGE_PINNED) {
            sim_pin_drop(page_round(bytes));
        }
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_charge(call, (double)bytes / ALLOC_BYTES_PER_NS);
    sim_range_add(&(struct sim_range){.kind = kind,
                                      .address = (uint64_t)(uintptr_t)memory,
                                      .bytes = bytes,
                                      .context = call->context,
                                      .device = call->context->device,
                                      .flags = flags});
    *out = memory;
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuMemHostAlloc, (void **pp, size_t bytesize, unsigned int Flags), pp, bytesize, Flags)
{
    if ((Flags & ~7u) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return sim_host_make(call, bytesize, Flags | CU_MEMHOSTALLOC_DEVICEMAP, SIM_RANGE_PINNED, pp);
}

SIM_API(SIM_CONTEXT, cuMemAllocHost_v2, (void **pp, size_t bytesize), pp, bytesize)
{
    return sim_host_make(call, bytesize, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP, SIM_RANGE_PINNED, pp);
}

SIM_API(SIM_CONTEXT, cuMemAllocHost, (void **pp, unsigned int bytesize), pp, bytesize)
{
    return sim_host_make(call, bytesize, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP, SIM_RANGE_PINNED, pp);
}

SIM_API(SIM_CONTEXT, cuMemFreeHost, (void *p), p)
{
    struct sim_range *range = sim_range_find((uint64_t)(uintptr_t)p);
    if (range == NULL || range->kind != SIM_RANGE_PINNED || range->address != (uint64_t)(uintptr_t)p) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    SIM_TRY(sim_capture_unsafe(call));
    SIM_TRY(sim_context_synchronise(call, range->context));
    sim_host_release(range, call->function->name);
    return CUDA_SUCCESS;
}

static CUresult host_register(struct sim_call *call, void *p, size_t bytes, unsigned flags)
{
    uint64_t address = (uint64_t)(uintptr_t)p;
    if (p == NULL || bytes == 0 || (flags & ~15u) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const struct sim_range *next = sim_range_next(address);
    if (sim_range_find(address) != NULL || (next != NULL && next->address < address + bytes)) {
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
    if (!sim_pin_add(page_round(bytes))) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_charge(call, (double)bytes / REGISTER_BYTES_PER_NS);
    sim_range_add(&(struct sim_range){.kind = SIM_RANGE_REGISTERED,
                                      .address = address,
                                      .bytes = bytes,
                                      .context = call->context,
                                      .device = call->context->device,
                                      .flags = flags});
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuMemHostRegister_v2, (void *p, size_t bytesize, unsigned int Flags), p, bytesize, Flags)
{
    return host_register(call, p, bytesize, Flags);
}

SIM_API(SIM_CONTEXT, cuMemHostRegister, (void *p, size_t bytesize, unsigned int Flags), p, bytesize, Flags)
{
    return host_register(call, p, bytesize, Flags);
}

SIM_API(SIM_CONTEXT, cuMemHostUnregister, (void *p), p)
{
    struct sim_range *range = sim_range_find((uint64_t)(uintptr_t)p);
    if (range == NULL || range->kind != SIM_RANGE_REGISTERED || range->address != (uint64_t)(uintptr_t)p) {
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    }
    SIM_TRY(sim_context_synchronise(call, range->context));
    sim_host_release(range, call->function->name);
    return CUDA_SUCCESS;
}

static const struct sim_range *host_find(const void *p)
{
    const struct sim_range *range = sim_range_find((uint64_t)(uintptr_t)p);
    return range != NULL && (range->kind == SIM_RANGE_PINNED || range->kind == SIM_RANGE_REGISTERED) ? range : NULL;
}

SIM_API(SIM_CONTEXT, cuMemHostGetDevicePointer_v2, (CUdeviceptr * pdptr, void *p, unsigned int Flags), pdptr, p, Flags)
{
    (void)call;
    if (pdptr == NULL || Flags != 0 || host_find(p) == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pdptr = (CUdeviceptr)(uintptr_t)p;
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuMemHostGetDevicePointer, (CUdeviceptr_v1 * pdptr, void *p, unsigned int Flags), pdptr, p, Flags)
{
    (void)call;
    if (pdptr == NULL || Flags != 0 || host_find(p) == NULL || (uint64_t)(uintptr_t)p > UINT32_MAX) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pdptr = (CUdeviceptr_v1)(uintptr_t)p;
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuMemHostGetFlags, (unsigned int *pFlags, void *p), pFlags, p)
{
    (void)call;
    const struct sim_range *range = host_find(p);
    if (pFlags == NULL || range == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pFlags = range->flags;
    return CUDA_SUCCESS;
}
