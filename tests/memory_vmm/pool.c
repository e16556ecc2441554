#include "pool.h"

#include <stdlib.h>
#include <string.h>

CUmemGenericAllocationHandle pool_handle(size_t bytes)
{
    CUmemGenericAllocationHandle handle;
    OK(cuMemCreate(&handle, bytes, &pool_prop, 0));
    return handle;
}

CUdeviceptr pool_reserve(size_t bytes)
{
    CUdeviceptr address;
    OK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    return address;
}

CUresult pool_grant(CUdeviceptr address, size_t bytes, CUmemAccess_flags flags)
{
    const CUmemAccessDesc access = {.location = pool_prop.location, .flags = flags};
    return cuMemSetAccess(address, bytes, &access, 1);
}

void pool_show(CUdeviceptr address, size_t bytes, CUmemGenericAllocationHandle handle)
{
    OK(cuMemMap(address, bytes, 0, handle, 0));
    OK(pool_grant(address, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
}

void pool_open(struct pool *pool, unsigned pieces, size_t piece_bytes)
{
    memset(pool, 0, sizeof *pool);
    HOLDS(pieces <= POOL_PIECES);
    pool->bytes = pieces * piece_bytes;
    pool->piece_bytes = piece_bytes;
    pool->base = pool_reserve(pool->bytes);
}

CUdeviceptr pool_at(const struct pool *pool, unsigned piece)
{
    return pool->base + piece * pool->piece_bytes;
}

void pool_map(struct pool *pool, unsigned first, unsigned count)
{
    for (unsigned i = first; i < first + count; i++) {
        pool->handle[i] = pool_handle(pool->piece_bytes);
        OK(cuMemMap(pool_at(pool, i), pool->piece_bytes, 0, pool->handle[i], 0));
    }
    OK(pool_grant(pool_at(pool, first), count * pool->piece_bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
}

void pool_unmap(struct pool *pool, unsigned first, unsigned count)
{
    OK(cuMemUnmap(pool_at(pool, first), count * pool->piece_bytes));
    for (unsigned i = first; i < first + count; i++) {
        if (pool->handle[i] != 0) {
            OK(cuMemRelease(pool->handle[i]));
            pool->handle[i] = 0;
        }
    }
}

void pool_close(struct pool *pool)
{
    OK(cuCtxSynchronize());
    pool_unmap(pool, 0, (unsigned)(pool->bytes / pool->piece_bytes));
    OK(cuMemAddressFree(pool->base, pool->bytes));
}

void pool_fill(CUdeviceptr address, size_t bytes, uint32_t value)
{
    OK(cuMemsetD32(address, value, bytes / 4));
    OK(cuCtxSynchronize());
}

void pool_expect(CUdeviceptr address, size_t bytes, uint32_t value)
{
    uint32_t *got = malloc(bytes);
    HOLDS(got != NULL);
    OK(cuMemcpyDtoH(got, address, bytes));
    for (size_t i = 0; i < bytes / 4; i++) {
        if (got[i] != value) {
            rig_fail(RIG_EXIT_WRONG, "word %zu is %#x and not %#x", i, got[i], value);
        }
    }
    free(got);
}

void pool_forget(struct rig *rig)
{
    for (unsigned i = 0; i < rig->count; i++) {
        free(rig->weight[i].host);
        rig->weight[i] = (struct rig_weight){0};
    }
    rig->count = 0;
}

void pool_begin(void)
{
    CUdevice device;
    CUcontext context;
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
}
