/* Where copies from the host began and ended: see alloc.h. */
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "engine.h"

/* Index of the first edge that is not below. */
static uint32_t edge_from(const struct ov_alloc *alloc, uint64_t edge)
{
    uint32_t low = 0, high = alloc->edge_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (alloc->edge[middle] < edge) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Takes out all edges from one on and below another. */
static void cut_edges(struct ov_alloc *alloc, uint64_t from, uint64_t below)
{
    uint32_t begin = edge_from(alloc, from), end = edge_from(alloc, below);
    if (end > begin) {
        memmove(&alloc->edge[begin], &alloc->edge[end], (alloc->edge_count - end) * sizeof *alloc->edge);
        alloc->edge_count -= end - begin;
    }
}

static void add_edge(struct ov_alloc *alloc, uint64_t edge)
{
    uint32_t at = edge_from(alloc, edge);
    if (at < alloc->edge_count && alloc->edge[at] == edge) {
        return;
    }
    if (alloc->edge_count == alloc->edge_room) {
        uint32_t room = alloc->edge_room ? alloc->edge_room * 2 : 8;
        uint64_t *grown = realloc(alloc->edge, room * sizeof *grown);
        if (grown == NULL) {
            return; /* an edge less: runs are longer than need be */
        }
        alloc->edge = grown;
        alloc->edge_room = room;
    }
    memmove(&alloc->edge[at + 1], &alloc->edge[at], (alloc->edge_count++ - at) * sizeof *alloc->edge);
    alloc->edge[at] = edge;
}

void ov_alloc_edges(struct ov_engine *engine, uint64_t address, size_t bytes)
{
    struct ov_alloc *alloc = ov_alloc_of(engine, ov_arena_page(&engine->arena, address));
    if (alloc == NULL) {
        return;
    }
    uint64_t offset = address - ov_page_address(&engine->arena, alloc->first);
    /* What lay there before ended somewhere inside: that is past. A caching allocator gives memory out again. */
    cut_edges(alloc, (offset + 1) * 2, (offset + bytes) * 2);
    if (alloc->edge_count < 65536) { /* a buffer that is filled by ever other pieces holds no weights */
        add_edge(alloc, offset * 2 + 1);
        add_edge(alloc, (offset + bytes) * 2);
    }
    alloc->dirty = true;
}

uint64_t ov_alloc_next_upload(const struct ov_engine *engine, const struct ov_alloc *alloc, uint64_t address)
{
    uint64_t base = ov_page_address(&engine->arena, alloc->first);
    for (uint32_t at = edge_from(alloc, (address - base) * 2); at < alloc->edge_count; at++) {
        if ((alloc->edge[at] & 1) != 0) {
            return base + alloc->edge[at] / 2;
        }
    }
    return UINT64_MAX;
}

void ov_alloc_forget_edges(struct ov_alloc *alloc, uint32_t first, uint32_t pages)
{
    uint64_t offset = (uint64_t)(first - alloc->first) << OV_PAGE_SHIFT;
    cut_edges(alloc, offset * 2, (offset + ((uint64_t)pages << OV_PAGE_SHIFT)) * 2 + 2);
}
