/* Which pages of a slice are taken: see "Addresses" in arena.h. */
#include <stdlib.h>
#include <string.h>

#include "arena.h"

uint32_t ov_arena_take(struct ov_arena *arena, uint32_t pages)
{
    for (size_t i = 0; i < arena->hole_count; i++) {
        struct ov_extent *hole = &arena->hole[i];
        if (hole->pages >= pages) {
            uint32_t first = hole->first;
            hole->first += pages;
            hole->pages -= pages;
            if (hole->pages == 0) {
                memmove(hole, hole + 1, (--arena->hole_count - i) * sizeof *hole);
            }
            return first;
        }
    }
    if (pages > arena->page_count - arena->high_page) {
        return UINT32_MAX;
    }
    uint32_t first = arena->high_page;
    arena->high_page += pages;
    return first;
}

uint32_t ov_arena_take_aligned(struct ov_arena *arena, uint32_t pages, uint32_t align)
{
    if (align <= 1) {
        return ov_arena_take(arena, pages);
    }
    if (align > arena->page_count || pages > arena->page_count - align) {
        return UINT32_MAX;
    }
    uint32_t first = ov_arena_take(arena, pages + align - 1);
    if (first == UINT32_MAX) {
        return first;
    }
    uint32_t skip = (align - first % align) % align;
    if (skip > 0) {
        ov_arena_give(arena, first, skip);
    }
    if (skip < align - 1) {
        ov_arena_give(arena, first + skip + pages, align - 1 - skip);
    }
    return first + skip;
}

bool ov_arena_take_at(struct ov_arena *arena, uint32_t first, uint32_t pages)
{
    if (first >= arena->high_page) {
        if (pages > arena->page_count - first) {
            return false;
        }
        uint32_t gap = arena->high_page;
        arena->high_page = first + pages;
        if (first > gap) {
            ov_arena_give(arena, gap, first - gap);
        }
        return true;
    }
    for (size_t i = 0; i < arena->hole_count; i++) {
        struct ov_extent hole = arena->hole[i];
        if (first >= hole.first && first - hole.first < hole.pages) {
            uint32_t before = first - hole.first;
            if (pages > hole.pages - before) {
                return false;
            }
            memmove(&arena->hole[i], &arena->hole[i + 1], (--arena->hole_count - i) * sizeof hole);
            if (before > 0) {
                ov_arena_give(arena, hole.first, before);
            }
            if (hole.pages - before > pages) {
                ov_arena_give(arena, first + pages, hole.pages - before - pages);
            }
            return true;
        }
    }
    return false;
}

void ov_arena_give(struct ov_arena *arena, uint32_t first, uint32_t pages)
{
    size_t at = 0;
    while (at < arena->hole_count && arena->hole[at].first < first) {
        at++;
    }
    struct ov_extent *before = at > 0 ? &arena->hole[at - 1] : NULL;
    struct ov_extent *after = at < arena->hole_count ? &arena->hole[at] : NULL;
    bool joins_before = before != NULL && before->first + before->pages == first;
    bool joins_after = after != NULL && first + pages == after->first;
    if (joins_before && joins_after) {
        before->pages += pages + after->pages;
        memmove(after, after + 1, (--arena->hole_count - at) * sizeof *after);
    } else if (joins_before) {
        before->pages += pages;
    } else if (joins_after) {
        after->first = first;
        after->pages += pages;
    } else {
        if (arena->hole_count == arena->hole_room) {
            size_t room = arena->hole_room ? arena->hole_room * 2 : 64;
            struct ov_extent *hole = realloc(arena->hole, room * sizeof *hole);
            if (hole == NULL) {
                return; /* these addresses are not used again: there are plenty */
            }
            arena->hole = hole;
            arena->hole_room = room;
        }
        memmove(&arena->hole[at + 1], &arena->hole[at], (arena->hole_count++ - at) * sizeof *arena->hole);
        arena->hole[at] = (struct ov_extent){first, pages};
    }
}
