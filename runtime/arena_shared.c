/* Device memory that other processes may have mapped: see ipc.h. */
#include "arena.h"
#include "engine.h"

CUresult ov_make_shared(struct ov_arena *arena, uint32_t pages, CUmemGenericAllocationHandle *handle)
{
    size_t bytes = (size_t)pages << OV_PAGE_SHIFT;
    CUmemAllocationProp prop = ov_arena_prop(CU_MEM_LOCATION_TYPE_DEVICE, arena->device);
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (pages > UINT16_MAX) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (!ov_ledger_take(arena->ledger, OV_FOR_FOREIGN, bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = ov_cu->cuMemCreate(handle, bytes, &prop, 0);
    if (result != CUDA_SUCCESS) {
        ov_ledger_give(arena->ledger, OV_FOR_FOREIGN, bytes);
    }
    return result;
}

void ov_drop_shared(struct ov_arena *arena, uint32_t pages, CUmemGenericAllocationHandle handle)
{
    (void)ov_cu->cuMemRelease(handle);
    ov_ledger_give(arena->ledger, OV_FOR_FOREIGN, (size_t)pages << OV_PAGE_SHIFT);
}

CUresult ov_back_shared(struct ov_arena *arena, uint32_t first, uint32_t pages, CUmemGenericAllocationHandle handle)
{
    CUdeviceptr address = ov_page_address(arena, first);
    size_t bytes = (size_t)pages << OV_PAGE_SHIFT;
    CUresult result = ov_cu->cuMemMap(address, bytes, 0, handle, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = ov_arena_access(arena, address, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (result != CUDA_SUCCESS) {
        (void)ov_cu->cuMemUnmap(address, bytes);
        return result;
    }
    arena->page[first].device = handle;
    for (uint32_t p = first; p < first + pages; p++) {
        arena->page[p].backing = OV_SHARED;
        arena->page[p].chunk_first = first;
        arena->page[p].chunk_pages = (uint16_t)pages;
    }
    return CUDA_SUCCESS;
}

CUresult ov_window_open(struct ov_arena *arena, uint32_t pages, CUmemGenericAllocationHandle handle,
                        CUdeviceptr *address)
{
    size_t bytes = (size_t)pages << OV_PAGE_SHIFT;
    CUresult result = ov_cu->cuMemAddressReserve(address, bytes, OV_PAGE_BYTES, 0, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = ov_cu->cuMemMap(*address, bytes, 0, handle, 0);
    if (result != CUDA_SUCCESS) {
        (void)ov_cu->cuMemAddressFree(*address, bytes);
        return result;
    }
    result = ov_arena_access(arena, *address, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (result != CUDA_SUCCESS) {
        ov_window_close(pages, *address);
    }
    return result;
}

void ov_window_close(uint32_t pages, CUdeviceptr address)
{
    size_t bytes = (size_t)pages << OV_PAGE_SHIFT;
    if (ov_cu->cuMemUnmap(address, bytes) == CUDA_SUCCESS) {
        (void)ov_cu->cuMemAddressFree(address, bytes);
    }
}
