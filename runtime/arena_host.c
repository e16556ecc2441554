/* Host memory that can be mapped at the pages' own addresses: mapped masters, see masters.h. */
#include <pthread.h>
#include <stdlib.h>

#include "arena.h"
#include "engine.h"
#include "masters.h"
#include "populate.h"
#include "worker.h"

/* Threads that make handles of host memory. */
#define MAKERS 4u

CUresult ov_create_host(struct ov_arena *arena, CUmemGenericAllocationHandle *handle)
{
    if (!ov_ledger_take_host(arena->ledger, OV_PAGE_BYTES)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUmemAllocationProp prop = ov_arena_prop(CU_MEM_LOCATION_TYPE_HOST_NUMA, arena->numa_node);
    CUresult result = ov_cu->cuMemCreate(handle, OV_PAGE_BYTES, &prop, 0);
    if (result != CUDA_SUCCESS) {
        ov_ledger_give_host(arena->ledger, OV_PAGE_BYTES);
    }
    return result;
}

/* Handles of host memory, one a page, made by several threads: one alone makes 2.2 GB/s, several up to 4. */
struct making {
    const struct ov_arena *arena;
    CUmemGenericAllocationHandle *handle; /* 0: not made */
    uint32_t pages;
    _Atomic int result;
};

/* What one thread makes: the same pages whoever is faster, so that the order of calls does not change from run to run
 * more than it must. */
struct share {
    struct making *making;
    uint32_t from, to;
};

static void *make_handles(void *context)
{
    const struct share *share = context;
    struct making *making = share->making;
    CUmemAllocationProp prop = ov_arena_prop(CU_MEM_LOCATION_TYPE_HOST_NUMA, making->arena->numa_node);
    ov_inside_enter();
    for (uint32_t at = share->from; at < share->to && atomic_load(&making->result) == CUDA_SUCCESS; at++) {
        CUmemGenericAllocationHandle handle;
        CUresult result = ov_cu->cuMemCreate(&handle, OV_PAGE_BYTES, &prop, 0);
        if (result == CUDA_SUCCESS) {
            making->handle[at] = handle;
        } else {
            atomic_store(&making->result, (int)result);
        }
    }
    ov_inside_leave();
    return NULL;
}

static CUresult make_many(struct making *making)
{
    pthread_t thread[MAKERS];
    struct share share[MAKERS];
    unsigned shares = ov_populate_threads(), started = 0;
    shares = making->pages < 2 * MAKERS ? 1 : shares < MAKERS ? shares : MAKERS;
    for (unsigned i = 0; i < shares; i++) {
        share[i] = (struct share){making, making->pages * i / shares, making->pages * (i + 1) / shares};
    }
    while (started + 1 < shares && ov_worker_start(&thread[started], make_handles, &share[started])) {
        started++;
    }
    for (unsigned i = started; i < shares; i++) {
        (void)make_handles(&share[i]);
    }
    for (unsigned i = 0; i < started; i++) {
        (void)pthread_join(thread[i], NULL);
    }
    return (CUresult)atomic_load(&making->result);
}

static void release_handles(struct making *making, uint32_t from)
{
    for (uint32_t i = from; i < making->pages; i++) {
        if (making->handle[i] != 0) {
            (void)ov_cu->cuMemRelease(making->handle[i]);
        }
    }
}

/* [first, first + pages) has no masters. */
static CUresult make_stretch(struct ov_arena *arena, uint32_t first, uint32_t pages)
{
    size_t bytes = (size_t)pages << OV_PAGE_SHIFT;
    if (!ov_ledger_take_host(arena->ledger, bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct making making = {.arena = arena, .pages = pages, .handle = calloc(pages, sizeof *making.handle)};
    CUresult result = making.handle != NULL ? make_many(&making) : CUDA_ERROR_OUT_OF_MEMORY;
    uint32_t mapped = 0;
    while (result == CUDA_SUCCESS && mapped < pages) {
        result = ov_cu->cuMemMap(ov_mirror_address(arena, first + mapped), OV_PAGE_BYTES, 0, making.handle[mapped], 0);
        if (result == CUDA_SUCCESS) {
            arena->page[first + mapped].host = making.handle[mapped];
            mapped++;
        }
    }
    if (result == CUDA_SUCCESS) {
        result = ov_arena_access(arena, ov_mirror_address(arena, first), bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    }
    if (result != CUDA_SUCCESS) {
        if (making.handle != NULL) {
            release_handles(&making, mapped);
        }
        ov_ledger_give_host(arena->ledger, (size_t)(pages - mapped) << OV_PAGE_SHIFT);
        ov_drop_mapped(arena, first, mapped);
    }
    free(making.handle);
    return result;
}

CUresult ov_make_masters(struct ov_arena *arena, uint32_t first, uint32_t pages)
{
    if (!arena->host_capable) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = CUDA_SUCCESS;
    uint32_t p = first;
    while (p < first + pages && result == CUDA_SUCCESS) {
        uint32_t begin = p; /* of a stretch that lacks masters */
        while (p < first + pages && arena->page[p].host == 0) {
            p++;
        }
        result = p > begin ? make_stretch(arena, begin, p - begin) : CUDA_SUCCESS;
        while (p < first + pages && arena->page[p].host != 0) {
            p++;
        }
    }
    return result;
}

void ov_drop_masters(struct ov_arena *arena, uint32_t first, uint32_t pages)
{
    ov_master_detach(arena, first, pages);
    ov_drop_mapped(arena, first, pages);
}

/* OVERSHOT_WIPE. Without success nobody else sees the bytes all the same: the system clears what it gives out. */
static void wipe(const struct ov_arena *arena, uint32_t first, uint32_t pages)
{
    for (uint32_t p = first; p < first + pages; p++) {
        if (arena->page[p].host != 0) {
            (void)ov_cu->cuMemsetD8_v2(ov_mirror_address(arena, p), 0, OV_PAGE_BYTES);
        }
    }
    if (pages > 0) {
        (void)ov_cu->cuCtxSynchronize();
    }
}

void ov_drop_mapped(struct ov_arena *arena, uint32_t first, uint32_t pages)
{
    if (ov_opt.wipe && arena->frozen == CUDA_SUCCESS && atomic_load(&ov_captures) == 0) {
        wipe(arena, first, pages);
    }
    for (uint32_t p = first; p < first + pages; p++) {
        if (arena->page[p].host != 0) {
            (void)ov_cu->cuMemUnmap(ov_mirror_address(arena, p), OV_PAGE_BYTES);
            (void)ov_cu->cuMemRelease(arena->page[p].host);
            arena->page[p].host = 0;
            ov_ledger_give_host(arena->ledger, OV_PAGE_BYTES);
        }
    }
}
