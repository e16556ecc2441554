/*
 * loose.h - memory that stands behind no address at the moment.
 *
 * A program that manages its mappings itself makes memory first and maps it later, unmaps it, and maps it again
 * elsewhere: its contents go with it. Loose memory is that, page by page: device memory and host masters as an arena
 * has them, counted in the arena's ledger all the time. Attaching moves it behind pages of the arena, detaching takes
 * it from there; nothing is copied.
 *
 * Owned by whoever holds it (vmm.h). Engine's lock, a current context of the device; detach, like ov_unback, needs that
 * no work on the device uses the pages. Errors: the driver's; what was done is undone unless stated.
 */
#ifndef OV_LOOSE_H
#define OV_LOOSE_H

#include <stdbool.h>
#include <stdint.h>

#include "arena.h"

struct ov_loose_page {
    CUmemGenericAllocationHandle device; /* of a chunk, at its first page */
    CUmemGenericAllocationHandle host;   /* of one page */
    uint16_t chunk_pages;                /* at the first page of a chunk */
};

struct ov_loose {
    struct ov_loose_page *page; /* NULL: there is none */
    uint32_t pages;
};

/* Device memory as far as the ledger grants it, from the first page on; the rest from the host if `host`, else
 * CUDA_ERROR_OUT_OF_MEMORY. */
CUresult ov_loose_make(struct ov_arena *arena, uint32_t pages, bool host, struct ov_loose *loose);
/* Pages of it that are in host memory. */
uint32_t ov_loose_host_pages(const struct ov_loose *loose);
/* The pages must be OV_NONE; *loose is empty afterwards. */
CUresult ov_loose_attach(struct ov_arena *arena, uint32_t first, struct ov_loose *loose);
/* Whole chunks, none of them OV_RING. */
CUresult ov_loose_detach(struct ov_arena *arena, uint32_t first, uint32_t pages, struct ov_loose *loose);
/* Gives all of it back. */
void ov_loose_drop(struct ov_arena *arena, struct ov_loose *loose);

#endif
