#include "reach.h"

#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "watch.h"

#define ROOM ((size_t)1 << 14)
/* So many harmless launches, and a pair is trusted. One is not enough: the next one may write more. */
#define ENOUGH 4u
/* The lowest bits of an entry count. */
#define COUNT_MASK ((uint64_t)7)

static uint64_t key_of(const struct ov_kernel *kernel, uint64_t address)
{
    uint64_t key = (address ^ (uint64_t)(uintptr_t)kernel << 20) * 0x9E3779B97F4A7C15ull;
    return (key ^ key >> 32) & ~COUNT_MASK;
}

/* Where the key is, or belongs. */
static size_t place_of(const struct ov_reach *reach, uint64_t key)
{
    size_t at = key * 0xD6E8FEB86659FD93ull >> 50; /* 14 bits */
    while (reach->known[at] != 0 && (reach->known[at] & ~COUNT_MASK) != key) {
        at = (at + 1) % ROOM;
    }
    return at;
}

bool ov_reach_known(const struct ov_engine *engine, const struct ov_kernel *kernel, uint64_t address)
{
    const struct ov_reach *reach = &engine->reach;
    return reach->known != NULL && (reach->known[place_of(reach, key_of(kernel, address))] & COUNT_MASK) >= ENOUGH;
}

void ov_reach_note(struct ov_engine *engine, const struct ov_kernel *kernel, uint64_t address)
{
    struct ov_reach *reach = &engine->reach;
    if (reach->known == NULL) {
        return;
    }
    if (reach->count > ROOM / 4 * 3) { /* found out again where it matters */
        memset(reach->known, 0, ROOM * sizeof *reach->known);
        reach->count = 0;
    }
    uint64_t key = key_of(kernel, address);
    size_t at = place_of(reach, key);
    reach->count += reach->known[at] == 0;
    uint64_t times = reach->known[at] & COUNT_MASK;
    reach->known[at] = key | (times < ENOUGH ? times + 1 : times);
}

uint32_t ov_reach_next(const struct ov_engine *engine, uint64_t address)
{
    const struct ov_ring *ring = &engine->ring;
    uint32_t page = ov_arena_page(&engine->arena, address), low = 0, high = ring->unit_count;
    uint32_t alloc = engine->arena.page[page].alloc;
    while (low < high) { /* units are sorted by address; those that were freed keep their place */
        uint32_t middle = (low + high) / 2;
        if (ring->unit[middle].first <= page) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    while (low < ring->unit_count && ring->unit[low].tier != OV_TIER_STREAMED &&
           engine->arena.page[ring->unit[low].first].alloc == alloc) {
        low++;
    }
    bool found = low < ring->unit_count && alloc != 0 && engine->arena.page[ring->unit[low].first].alloc == alloc &&
                 ring->unit[low].tier == OV_TIER_STREAMED;
    return found ? low : UINT32_MAX;
}

static void mark_near(struct ov_engine *engine, const struct ov_unit *unit)
{
    const struct ov_arena *arena = &engine->arena;
    for (uint32_t p = unit->first; p > 0 && arena->page[p - 1].alloc == arena->page[unit->first].alloc; p--) {
        uint32_t none = 0;
        (void)atomic_compare_exchange_strong(&arena->unit[p - 1], &none, OV_UNIT_NEAR);
        if (none != 0 && none < OV_UNIT_NEAR) {
            return; /* another unit: it marks what is in front of it */
        }
    }
}

/* A launch that came after the units got the bytes that they still have did not write there. */
static void note_logged(struct ov_engine *engine, uint64_t place)
{
    const struct ov_log_entry *entry = &engine->learn.log[place % OV_LOG_ENTRIES];
    const struct ov_alloc *alloc = ov_alloc_of(engine, ov_arena_page(&engine->arena, entry->address));
    uint32_t unit = alloc != NULL && alloc->ordinal == entry->ordinal && entry->kernel != NULL
                        ? ov_reach_next(engine, entry->address)
                        : UINT32_MAX;
    if (unit == UINT32_MAX || ov_watch_reads_only(entry->kernel, entry->slot)) {
        return;
    }
    for (uint32_t p = engine->ring.unit[unit].first; p < alloc->first + alloc->pages; p++) {
        if (engine->arena.page[p].backing == OV_RING && engine->learn.memo[p].since > place) {
            return;
        }
    }
    ov_reach_note(engine, entry->kernel, entry->address);
}

void ov_reach_renew(struct ov_engine *engine)
{
    struct ov_reach *reach = &engine->reach;
    bool shared = false;
    for (uint32_t i = 0; i < engine->ring.unit_count; i++) {
        const struct ov_unit *unit = &engine->ring.unit[i];
        if (unit->tier == OV_TIER_STREAMED) {
            mark_near(engine, unit);
            shared = shared || (unit->first > 0 &&
                                engine->arena.page[unit->first - 1].alloc == engine->arena.page[unit->first].alloc);
        }
    }
    if (!shared) {
        return;
    }
    free(reach->known);
    reach->known = calloc(ROOM, sizeof *reach->known); /* none: everything near is tried each time */
    reach->count = 0;
    const struct ov_learn *learn = &engine->learn;
    uint64_t from = learn->head > OV_LOG_ENTRIES ? learn->head - OV_LOG_ENTRIES : 1;
    for (uint64_t place = from; place < learn->head && reach->count < ROOM / 2; place++) {
        note_logged(engine, place);
    }
}

void ov_reach_close(struct ov_engine *engine)
{
    free(engine->reach.known);
    memset(&engine->reach, 0, sizeof engine->reach);
}
