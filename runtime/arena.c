#include "arena.h"

#include <string.h>
#include <sys/mman.h>

#include "engine.h"
#include "log.h"

/* 32 MiB: from here on a larger handle is hardly faster to make and map, and costs more to take apart. */
#define CHUNK_PAGES 16u
/* The least address space worth having for a device. */
#define LEAST_SLICE_SHIFT 33

CUdeviceptr ov_arena_base;
size_t ov_arena_bytes;
unsigned ov_arena_slice_shift;
static CUdeviceptr mirror_base;

bool ov_arena_reserve(int devices)
{
    unsigned spread = 0;
    while ((1 << spread) < devices) {
        spread++;
    }
    for (unsigned shift = 42; shift >= LEAST_SLICE_SHIFT; shift--) {
        size_t bytes = (size_t)1 << (shift + spread);
        CUdeviceptr arena = 0, mirror = 0;
        if (ov_cu->cuMemAddressReserve(&arena, bytes, OV_ARENA_ALIGN, 0, 0) != CUDA_SUCCESS) {
            continue;
        }
        if (ov_cu->cuMemAddressReserve(&mirror, bytes, OV_ARENA_ALIGN, 0, 0) != CUDA_SUCCESS) {
            (void)ov_cu->cuMemAddressFree(arena, bytes);
            continue;
        }
        mirror_base = mirror;
        ov_arena_base = arena;
        ov_arena_slice_shift = shift;
        ov_arena_bytes = bytes;
        return true;
    }
    return false;
}

CUmemAllocationProp ov_arena_prop(CUmemLocationType where, int id)
{
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = where;
    prop.location.id = id;
    return prop;
}

CUresult ov_arena_access(const struct ov_arena *arena, CUdeviceptr address, size_t bytes, CUmemAccess_flags flags)
{
    CUmemAccessDesc access[OV_DEVICES];
    size_t count = 0;
    for (int device = 0; device < OV_DEVICES; device++) {
        if (arena->access_devices >> device & 1) {
            memset(&access[count], 0, sizeof access[count]);
            access[count].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
            access[count].location.id = device;
            access[count++].flags = flags;
        }
    }
    return ov_cu->cuMemSetAccess(address, bytes, access, count);
}

static void *lazy_array(size_t count, size_t size)
{
    void *memory = mmap(NULL, count * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Whether a page of host memory can be made, mapped and given to the device: attributes alone have been wrong on
 * virtual GPUs. */
static bool try_host(struct ov_arena *arena)
{
    int attribute = 0;
    if (ov_cu->cuDeviceGetAttribute(&attribute, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                    arena->device) != CUDA_SUCCESS ||
        attribute == 0) {
        return false;
    }
    if (ov_cu->cuDeviceGetAttribute(&arena->numa_node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, arena->device) !=
            CUDA_SUCCESS ||
        arena->numa_node < 0) {
        arena->numa_node = 0;
    }
    arena->host_capable = true;
    bool works = ov_back_host(arena, 0, 1) == CUDA_SUCCESS;
    if (works) {
        works = ov_unback(arena, 0, 1) == CUDA_SUCCESS;
        ov_drop_masters(arena, 0, 1);
    }
    return works;
}

CUresult ov_arena_open(struct ov_arena *arena, CUdevice device, int slice, struct ov_ledger *ledger)
{
    memset(arena, 0, sizeof *arena);
    arena->device = device;
    arena->ledger = ledger;
    arena->access_devices = 1u << device;
    arena->base = ov_arena_base + ((CUdeviceptr)slice << ov_arena_slice_shift);
    arena->mirror = mirror_base + ((CUdeviceptr)slice << ov_arena_slice_shift);
    arena->page_count = (uint32_t)1 << (ov_arena_slice_shift - OV_PAGE_SHIFT);
    arena->page = lazy_array(arena->page_count, sizeof *arena->page);
    arena->unit = lazy_array(arena->page_count, sizeof *arena->unit);
    if (arena->page == NULL || arena->unit == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = ov_back_device(arena, 0, 1);
    if (result == CUDA_SUCCESS) {
        result = ov_unback(arena, 0, 1);
    } else if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        result = CUDA_SUCCESS; /* full, or a budget below one page: that is no lack of VMM */
    }
    arena->host_capable = result == CUDA_SUCCESS && try_host(arena);
    return result;
}

/* ---- backing ---- */

CUresult ov_create_device(struct ov_arena *arena, enum ov_purpose purpose, size_t bytes,
                          CUmemGenericAllocationHandle *handle)
{
    if (!ov_ledger_take(arena->ledger, purpose, bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUmemAllocationProp prop = ov_arena_prop(CU_MEM_LOCATION_TYPE_DEVICE, arena->device);
    CUresult result = ov_cu->cuMemCreate(handle, bytes, &prop, 0);
    if (result != CUDA_SUCCESS) {
        ov_ledger_give(arena->ledger, purpose, bytes);
    }
    return result;
}

static CUresult map_chunk(struct ov_arena *arena, uint32_t first, uint32_t pages)
{
    CUmemGenericAllocationHandle handle;
    size_t bytes = (size_t)pages << OV_PAGE_SHIFT;
    CUresult result = ov_create_device(arena, OV_FOR_PAGES, bytes, &handle);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = ov_cu->cuMemMap(ov_page_address(arena, first), bytes, 0, handle, 0);
    if (result != CUDA_SUCCESS) {
        (void)ov_cu->cuMemRelease(handle);
        ov_ledger_give(arena->ledger, OV_FOR_PAGES, bytes);
        return result;
    }
    arena->page[first].device = handle;
    for (uint32_t p = first; p < first + pages; p++) {
        arena->page[p].backing = OV_DEVICE;
        arena->page[p].chunk_first = first;
        arena->page[p].chunk_pages = (uint16_t)pages;
    }
    return CUDA_SUCCESS;
}

CUresult ov_back_device(struct ov_arena *arena, uint32_t first, uint32_t pages)
{
    CUresult result = CUDA_SUCCESS;
    uint32_t done = 0;
    while (done < pages && result == CUDA_SUCCESS) {
        uint32_t chunk = pages - done < CHUNK_PAGES ? pages - done : CHUNK_PAGES;
        result = map_chunk(arena, first + done, chunk);
        done += result == CUDA_SUCCESS ? chunk : 0;
    }
    if (result == CUDA_SUCCESS) {
        result = ov_arena_access(arena, ov_page_address(arena, first), (size_t)pages << OV_PAGE_SHIFT,
                                 CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    }
    if (result != CUDA_SUCCESS && done > 0) {
        (void)ov_unback(arena, first, done);
    }
    return result;
}

/* Maps one handle of one page at each of the pages, of the ring or their masters, and gives access to all. */
static CUresult map_each(struct ov_arena *arena, uint32_t first, uint32_t pages,
                         const CUmemGenericAllocationHandle *ring, enum ov_backing backing, CUmemAccess_flags flags)
{
    CUresult result = CUDA_SUCCESS;
    uint32_t done = 0;
    while (done < pages) {
        struct ov_page *page = &arena->page[first + done];
        result = ov_cu->cuMemMap(ov_page_address(arena, first + done), OV_PAGE_BYTES, 0,
                                 ring != NULL ? ring[done] : page->host, 0);
        if (result != CUDA_SUCCESS) {
            break;
        }
        page->backing = (uint8_t)backing;
        done++;
    }
    if (result == CUDA_SUCCESS) {
        result = ov_arena_access(arena, ov_page_address(arena, first), (size_t)pages << OV_PAGE_SHIFT, flags);
    }
    if (result != CUDA_SUCCESS && done > 0) {
        (void)ov_unback(arena, first, done);
    }
    return result;
}

CUresult ov_back_host(struct ov_arena *arena, uint32_t first, uint32_t pages)
{
    for (uint32_t p = first; p < first + pages; p++) {
        if (arena->page[p].pin != NULL) {
            return CUDA_ERROR_INVALID_VALUE; /* its bytes would be lost: see ov_master_evacuate */
        }
    }
    CUresult result = ov_make_masters(arena, first, pages);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return map_each(arena, first, pages, NULL, OV_HOST, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

CUresult ov_back_ring(struct ov_arena *arena, uint32_t first, uint32_t pages, const CUmemGenericAllocationHandle *ring)
{
    return map_each(arena, first, pages, ring, OV_RING, CU_MEM_ACCESS_FLAGS_PROT_READ);
}

void ov_whole_chunks(const struct ov_arena *arena, uint32_t *first, uint32_t *pages)
{
    uint32_t begin = *first, end = *first + *pages;
    if (arena->page[begin].backing == OV_DEVICE) {
        begin = arena->page[begin].chunk_first;
    }
    const struct ov_page *last = &arena->page[end - 1];
    if (last->backing == OV_DEVICE) {
        end = last->chunk_first + last->chunk_pages;
    }
    *first = begin;
    *pages = end - begin;
}

static bool is_ours(const struct ov_page *page)
{
    return page->backing != OV_NONE && page->backing != OV_FIXED;
}

CUresult ov_unback(struct ov_arena *arena, uint32_t first, uint32_t pages)
{
    if (arena->frozen != CUDA_SUCCESS) {
        return arena->frozen;
    }
    uint32_t p = first;
    while (p < first + pages) {
        if (!is_ours(&arena->page[p])) {
            p++;
            continue;
        }
        uint32_t begin = p; /* of a stretch without gaps: one call takes several mappings */
        while (p < first + pages && is_ours(&arena->page[p])) {
            p++;
        }
        CUresult result = ov_cu->cuMemUnmap(ov_page_address(arena, begin), (size_t)(p - begin) << OV_PAGE_SHIFT);
        if (result != CUDA_SUCCESS) { /* tried twice: much depends on it */
            result = ov_cu->cuMemUnmap(ov_page_address(arena, begin), (size_t)(p - begin) << OV_PAGE_SHIFT);
        }
        if (result != CUDA_SUCCESS) {
            if (result != CUDA_ERROR_DEINITIALIZED) {
                ov_log_once(OV_LOG_ERROR,
                            "cuMemUnmap of %u pages failed with error %d: their memory is lost until the program "
                            "ends",
                            p - begin, (int)result);
            }
            return result;
        }
        for (uint32_t q = begin; q < p; q++) {
            struct ov_page *page = &arena->page[q];
            if (page->backing == OV_DEVICE && page->chunk_first == q) {
                (void)ov_cu->cuMemRelease(page->device);
                ov_ledger_give(arena->ledger, OV_FOR_PAGES, (size_t)page->chunk_pages << OV_PAGE_SHIFT);
                page->device = 0;
            } else if (page->backing == OV_SHARED && page->chunk_first == q) {
                ov_drop_shared(arena, page->chunk_pages, page->device);
                page->device = 0;
            }
            page->backing = OV_NONE;
        }
    }
    return CUDA_SUCCESS;
}

CUresult ov_arena_admit(struct ov_arena *arena, CUdevice peer)
{
    if (arena->access_devices >> peer & 1) {
        return CUDA_SUCCESS;
    }
    arena->access_devices |= 1u << peer;
    CUresult result = CUDA_SUCCESS;
    for (uint32_t p = 0; p < arena->high_page && result == CUDA_SUCCESS; p++) {
        const struct ov_page *page = &arena->page[p];
        uint32_t pages = page->backing == OV_DEVICE || page->backing == OV_SHARED ? page->chunk_pages : 1;
        if (is_ours(page)) {
            result = ov_arena_access(arena, ov_page_address(arena, p), (size_t)pages << OV_PAGE_SHIFT,
                                     page->backing == OV_RING ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                                              : CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        }
        p += pages - 1;
    }
    return result;
}
