/* Device memory of our own: the ring, scratch. */
#include "arena.h"
#include "engine.h"

CUresult ov_make_handles(struct ov_arena *arena, enum ov_purpose purpose, uint32_t pages,
                         CUmemGenericAllocationHandle *handle)
{
    for (uint32_t i = 0; i < pages; i++) {
        CUresult result = ov_create_device(arena, purpose, OV_PAGE_BYTES, &handle[i]);
        if (result != CUDA_SUCCESS) {
            ov_release_handles(arena, purpose, i, handle);
            return result;
        }
    }
    return CUDA_SUCCESS;
}

void ov_release_handles(struct ov_arena *arena, enum ov_purpose purpose, uint32_t pages,
                        const CUmemGenericAllocationHandle *handle)
{
    for (uint32_t i = 0; i < pages; i++) {
        (void)ov_cu->cuMemRelease(handle[i]);
        ov_ledger_give(arena->ledger, purpose, OV_PAGE_BYTES);
    }
}

CUresult ov_map_handles(const struct ov_arena *arena, CUdeviceptr address, uint32_t pages,
                        const CUmemGenericAllocationHandle *handle)
{
    CUresult result = CUDA_SUCCESS;
    uint32_t done = 0;
    while (done < pages && result == CUDA_SUCCESS) {
        result = ov_cu->cuMemMap(address + ((CUdeviceptr)done << OV_PAGE_SHIFT), OV_PAGE_BYTES, 0, handle[done], 0);
        done += result == CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS) {
        result = ov_arena_access(arena, address, (size_t)pages << OV_PAGE_SHIFT, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    }
    if (result != CUDA_SUCCESS && done > 0) {
        (void)ov_cu->cuMemUnmap(address, (size_t)done << OV_PAGE_SHIFT);
    }
    return result;
}

CUresult ov_own_device(struct ov_arena *arena, enum ov_purpose purpose, uint32_t pages,
                       CUmemGenericAllocationHandle *handle, CUdeviceptr *address)
{
    size_t bytes = (size_t)pages << OV_PAGE_SHIFT;
    CUresult result = ov_cu->cuMemAddressReserve(address, bytes, OV_PAGE_BYTES, 0, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = ov_make_handles(arena, purpose, pages, handle);
    if (result == CUDA_SUCCESS) {
        result = ov_map_handles(arena, *address, pages, handle);
        if (result != CUDA_SUCCESS) {
            ov_release_handles(arena, purpose, pages, handle);
        }
    }
    if (result != CUDA_SUCCESS) {
        (void)ov_cu->cuMemAddressFree(*address, bytes);
    }
    return result;
}

void ov_disown_device(struct ov_arena *arena, enum ov_purpose purpose, uint32_t pages,
                      CUmemGenericAllocationHandle *handle, CUdeviceptr address)
{
    if (pages == 0) {
        return;
    }
    (void)ov_cu->cuMemUnmap(address, (size_t)pages << OV_PAGE_SHIFT);
    (void)ov_cu->cuMemAddressFree(address, (size_t)pages << OV_PAGE_SHIFT);
    ov_release_handles(arena, purpose, pages, handle);
}
