#include "loose.h"

#include <stdlib.h>
#include <string.h>

#include "engine.h"

/* As in the arena: larger handles are hardly faster, and cost more to take apart. */
#define CHUNK_PAGES 16u

static bool open_loose(struct ov_loose *loose, uint32_t pages)
{
    loose->page = calloc(pages, sizeof *loose->page);
    loose->pages = loose->page != NULL ? pages : 0;
    return loose->page != NULL;
}

static void close_loose(struct ov_loose *loose)
{
    free(loose->page);
    *loose = (struct ov_loose){NULL, 0};
}

/* A chunk of what is granted, at most `pages`; 0: no device memory. */
static uint32_t make_chunk(struct ov_arena *arena, uint32_t pages, struct ov_loose_page *loose_page)
{
    size_t left = ov_ledger_left(arena->ledger) >> OV_PAGE_SHIFT;
    pages = pages < CHUNK_PAGES ? pages : CHUNK_PAGES;
    pages = pages < left ? pages : (uint32_t)left;
    if (pages == 0 ||
        ov_create_device(arena, OV_FOR_PAGES, (size_t)pages << OV_PAGE_SHIFT, &loose_page->device) != CUDA_SUCCESS) {
        return 0;
    }
    loose_page->chunk_pages = (uint16_t)pages;
    return pages;
}

CUresult ov_loose_make(struct ov_arena *arena, uint32_t pages, bool host, struct ov_loose *loose)
{
    const struct ov_ledger *ledger = arena->ledger;
    size_t host_left = host ? ov_ledger_host_left(ledger) >> OV_PAGE_SHIFT : 0;
    /* What can only fail late, after much work, fails at once. */
    if (pages > (ov_ledger_left(ledger) >> OV_PAGE_SHIFT) + host_left || !open_loose(loose, pages)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = CUDA_SUCCESS;
    bool device = true;
    for (uint32_t p = 0; p < pages && result == CUDA_SUCCESS;) {
        uint32_t chunk = device ? make_chunk(arena, pages - p, &loose->page[p]) : 0;
        device = chunk > 0;
        if (!device) {
            result = host ? ov_create_host(arena, &loose->page[p].host) : CUDA_ERROR_OUT_OF_MEMORY;
        }
        p += chunk > 0 ? chunk : 1;
    }
    if (result != CUDA_SUCCESS) {
        ov_loose_drop(arena, loose);
    }
    return result;
}

uint32_t ov_loose_host_pages(const struct ov_loose *loose)
{
    uint32_t pages = 0;
    for (uint32_t p = 0; p < loose->pages; p++) {
        pages += loose->page[p].host != 0;
    }
    return pages;
}

void ov_loose_drop(struct ov_arena *arena, struct ov_loose *loose)
{
    for (uint32_t p = 0; p < loose->pages; p++) {
        const struct ov_loose_page *loose_page = &loose->page[p];
        if (loose_page->device != 0) {
            (void)ov_cu->cuMemRelease(loose_page->device);
            ov_ledger_give(arena->ledger, OV_FOR_PAGES, (size_t)loose_page->chunk_pages << OV_PAGE_SHIFT);
        }
        if (loose_page->host != 0) {
            (void)ov_cu->cuMemRelease(loose_page->host);
            ov_ledger_give_host(arena->ledger, OV_PAGE_BYTES);
        }
    }
    close_loose(loose);
}

/* ---- attach ---- */

/* Takes away what map_loose() has mapped. The driver's refusals cannot be helped. */
static void unmap_loose(struct ov_arena *arena, uint32_t first, uint32_t pages)
{
    for (uint32_t p = first; p < first + pages; p++) {
        struct ov_page *page = &arena->page[p];
        if (page->backing == OV_DEVICE && page->chunk_first == p) {
            (void)ov_cu->cuMemUnmap(ov_page_address(arena, p), (size_t)page->chunk_pages << OV_PAGE_SHIFT);
        } else if (page->backing == OV_HOST) {
            (void)ov_cu->cuMemUnmap(ov_page_address(arena, p), OV_PAGE_BYTES);
            (void)ov_cu->cuMemUnmap(ov_mirror_address(arena, p), OV_PAGE_BYTES);
        }
        page->backing = OV_NONE;
        page->device = page->host = 0;
    }
}

static CUresult map_chunk(struct ov_arena *arena, uint32_t first, const struct ov_loose_page *loose_page)
{
    uint32_t pages = loose_page->chunk_pages;
    CUresult result =
        ov_cu->cuMemMap(ov_page_address(arena, first), (size_t)pages << OV_PAGE_SHIFT, 0, loose_page->device, 0);
    for (uint32_t p = first; p < first + pages && result == CUDA_SUCCESS; p++) {
        arena->page[p].backing = OV_DEVICE;
        arena->page[p].chunk_first = first;
        arena->page[p].chunk_pages = (uint16_t)pages;
    }
    arena->page[first].device = result == CUDA_SUCCESS ? loose_page->device : 0;
    return result;
}

static CUresult map_host(struct ov_arena *arena, uint32_t page, const struct ov_loose_page *loose_page)
{
    CUresult result = ov_cu->cuMemMap(ov_mirror_address(arena, page), OV_PAGE_BYTES, 0, loose_page->host, 0);
    if (result == CUDA_SUCCESS) {
        result = ov_cu->cuMemMap(ov_page_address(arena, page), OV_PAGE_BYTES, 0, loose_page->host, 0);
        if (result != CUDA_SUCCESS) {
            (void)ov_cu->cuMemUnmap(ov_mirror_address(arena, page), OV_PAGE_BYTES);
        }
    }
    if (result == CUDA_SUCCESS) {
        arena->page[page].backing = OV_HOST;
        arena->page[page].host = loose_page->host;
    }
    return result;
}

/* Access to the mirror of each stretch of host pages. */
static CUresult open_mirror(struct ov_arena *arena, uint32_t first, uint32_t pages)
{
    CUresult result = CUDA_SUCCESS;
    for (uint32_t p = first; p < first + pages && result == CUDA_SUCCESS; p++) {
        uint32_t begin = p;
        while (p < first + pages && arena->page[p].backing == OV_HOST) {
            p++;
        }
        if (p > begin) {
            result = ov_arena_access(arena, ov_mirror_address(arena, begin), (size_t)(p - begin) << OV_PAGE_SHIFT,
                                     CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        }
    }
    return result;
}

CUresult ov_loose_attach(struct ov_arena *arena, uint32_t first, struct ov_loose *loose)
{
    CUresult result = CUDA_SUCCESS;
    uint32_t done = 0;
    while (done < loose->pages && result == CUDA_SUCCESS) {
        const struct ov_loose_page *loose_page = &loose->page[done];
        bool chunk = loose_page->device != 0;
        result = chunk ? map_chunk(arena, first + done, loose_page) : map_host(arena, first + done, loose_page);
        done += result != CUDA_SUCCESS ? 0 : chunk ? loose_page->chunk_pages : 1;
    }
    if (result == CUDA_SUCCESS) {
        result = ov_arena_access(arena, ov_page_address(arena, first), (size_t)loose->pages << OV_PAGE_SHIFT,
                                 CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    }
    if (result == CUDA_SUCCESS) {
        result = open_mirror(arena, first, loose->pages);
    }
    if (result != CUDA_SUCCESS) {
        unmap_loose(arena, first, done);
        return result;
    }
    close_loose(loose);
    return CUDA_SUCCESS;
}

CUresult ov_loose_detach(struct ov_arena *arena, uint32_t first, uint32_t pages, struct ov_loose *loose)
{
    if (arena->frozen != CUDA_SUCCESS) {
        return arena->frozen;
    }
    if (!open_loose(loose, pages)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = ov_cu->cuMemUnmap(ov_page_address(arena, first), (size_t)pages << OV_PAGE_SHIFT);
    if (result != CUDA_SUCCESS) {
        close_loose(loose);
        return result;
    }
    for (uint32_t p = first; p < first + pages; p++) {
        struct ov_page *page = &arena->page[p];
        struct ov_loose_page *loose_page = &loose->page[p - first];
        if (page->backing == OV_DEVICE && page->chunk_first == p) {
            loose_page->device = page->device;
            loose_page->chunk_pages = page->chunk_pages;
        } else if (page->backing == OV_HOST) {
            (void)ov_cu->cuMemUnmap(ov_mirror_address(arena, p), OV_PAGE_BYTES);
            loose_page->host = page->host;
        } else if (page->host != 0) { /* a master that its page did not need */
            ov_drop_masters(arena, p, 1);
        }
        page->backing = OV_NONE;
        page->device = page->host = 0;
    }
    return CUDA_SUCCESS;
}
