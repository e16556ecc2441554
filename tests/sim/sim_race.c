/*
 * Happens-before. Per physical 2 MiB page a sorted list of disjoint segments; a segment remembers its last write and
 * the reads since then that no later read covers. An access is compared with what it overlaps:
 * the earlier one (lane l, tick t) comes before an operation with clock C when C[l] >= t.
 */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

struct segment {
    uint32_t start, end; /* bytes within the page */
    int written;
    struct sim_use write;
    struct sim_use *read;
    uint32_t read_count, read_room;
};

struct shadow_page {
    uint64_t key; /* pool and page number */
    struct segment *segment;
    size_t count, room;
    UT_hash_handle hh;
};

/* Lane numbers that nobody has; `last` = what the host must have seen before one is given out again. */
struct free_lane {
    uint32_t index;
    uint64_t last_tick;
};

uint64_t sim_race_count;
static struct shadow_page *pages;
static struct sim_vector host_clock;
static uint32_t lane_count;
static struct free_lane *free_lanes;
static size_t free_lane_count, free_lane_room;

static void *grow(void *old, size_t count, size_t item_bytes)
{
    void *grown = realloc(old, count * item_bytes);
    if (grown == NULL) {
        sim_die("out of host memory");
    }
    return grown;
}

/* ---- vector clocks */

static void vector_room(struct sim_vector *vector, uint32_t count)
{
    if (count > vector->room) {
        uint32_t room = count + count / 2 + 8;
        vector->tick = grow(vector->tick, room, sizeof *vector->tick);
        vector->room = room;
    }
    if (count > vector->count) {
        memset(vector->tick + vector->count, 0, (count - vector->count) * sizeof *vector->tick);
        vector->count = count;
    }
}

void sim_vector_join(struct sim_vector *into, const struct sim_vector *from)
{
    vector_room(into, from->count);
    for (uint32_t i = 0; i < from->count; i++) {
        if (into->tick[i] < from->tick[i]) {
            into->tick[i] = from->tick[i];
        }
    }
}

void sim_vector_copy(struct sim_vector *into, const struct sim_vector *from)
{
    into->count = 0;
    vector_room(into, from->count);
    if (from->count > 0) {
        memcpy(into->tick, from->tick, from->count * sizeof *from->tick);
    }
}

void sim_vector_free(struct sim_vector *vector)
{
    free(vector->tick);
    memset(vector, 0, sizeof *vector);
}

int sim_vector_covers(const struct sim_vector *vector, uint32_t index, uint64_t tick)
{
    return index < vector->count && vector->tick[index] >= tick;
}

/* ---- lanes */

void sim_lane_init(struct sim_lane *lane, struct sim_context *context, uint64_t id)
{
    memset(lane, 0, sizeof *lane);
    lane->context = context;
    lane->id = id;
    lane->index = UINT32_MAX;
    for (size_t i = 0; i < free_lane_count; i++) {
        if (sim_vector_covers(&host_clock, free_lanes[i].index, free_lanes[i].last_tick)) {
            lane->index = free_lanes[i].index;
            free_lanes[i] = free_lanes[--free_lane_count];
            break;
        }
    }
    if (lane->index == UINT32_MAX) {
        lane->index = lane_count++;
    }
    sim_vector_copy(&lane->clock, &host_clock);
    vector_room(&lane->clock, lane->index + 1);
}

void sim_lane_retire(struct sim_lane *lane)
{
    sim_contention_forget(lane);
    if (free_lane_count == free_lane_room) {
        free_lane_room = free_lane_room * 2 + 16;
        free_lanes = grow(free_lanes, free_lane_room, sizeof *free_lanes);
    }
    free_lanes[free_lane_count].index = lane->index;
    free_lanes[free_lane_count++].last_tick = lane->clock.tick[lane->index];
    sim_vector_free(&lane->clock);
}

void sim_lane_wait(struct sim_lane *lane, const struct sim_vector *clock, int64_t time_ns)
{
    sim_vector_join(&lane->clock, clock);
    lane->tail_ns = lane->tail_ns > time_ns ? lane->tail_ns : time_ns;
}

void sim_lane_follow(struct sim_lane *lane, const struct sim_lane *other)
{
    sim_lane_wait(lane, &other->clock, other->tail_ns);
}

uint64_t sim_lane_tick(struct sim_lane *lane)
{
    sim_vector_join(&lane->clock, &host_clock);
    return ++lane->clock.tick[lane->index];
}

void sim_host_join(const struct sim_vector *clock)
{
    sim_vector_join(&host_clock, clock);
}

int sim_host_covers(uint32_t index, uint64_t tick)
{
    return sim_vector_covers(&host_clock, index, tick);
}

/* ---- reports */

static void race(const struct sim_use *first, int first_writes, const struct sim_use *second, const char *verb,
                 const char *place)
{
    sim_race_count++;
    sim_say("race: %s (stream %llu, operation %llu) %s and %s (stream %llu, operation %llu) %s %s, without order",
            first->site, (unsigned long long)first->lane_id, (unsigned long long)first->sequence,
            first_writes ? "writes" : "reads", second->site, (unsigned long long)second->lane_id,
            (unsigned long long)second->sequence, verb, place);
    if (sim_knobs.race_abort) {
        sim_die("stopped at the first race");
    }
}

static void race_at(const struct sim_use *first, int first_writes, const struct sim_use *second, const char *verb,
                    unsigned pool, uint64_t offset)
{
    char place[96];
    if (pool < SIM_MAX_DEVICES) {
        snprintf(place, sizeof place, "device %u memory at offset 0x%llx", pool, (unsigned long long)offset);
    } else {
        snprintf(place, sizeof place, "%s memory at 0x%llx", pool == SIM_POOL_HOST ? "pinned" : "host-located",
                 (unsigned long long)offset);
    }
    race(first, first_writes, second, verb, place);
}

/* ---- shadow */

static uint64_t page_key(unsigned pool, uint64_t offset)
{
    return (uint64_t)pool << 56 | offset >> SIM_PAGE_SHIFT;
}

static struct shadow_page *page_find(uint64_t key, int make)
{
    struct shadow_page *page;
    HASH_FIND(hh, pages, &key, sizeof key, page);
    if (page == NULL && make) {
        page = calloc(1, sizeof *page);
        if (page == NULL) {
            sim_die("out of host memory");
        }
        page->key = key;
        HASH_ADD(hh, pages, key, sizeof key, page);
    }
    return page;
}

/* Index of the first segment that ends after `at`. */
static size_t segment_after(const struct shadow_page *page, uint32_t at)
{
    size_t low = 0, high = page->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (page->segment[middle].end <= at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static struct segment *segment_insert(struct shadow_page *page, size_t at, uint32_t start, uint32_t end)
{
    if (page->count == page->room) {
        page->room = page->room * 2 + 2;
        page->segment = grow(page->segment, page->room, sizeof *page->segment);
    }
    memmove(page->segment + at + 1, page->segment + at, (page->count - at) * sizeof *page->segment);
    page->count++;
    memset(page->segment + at, 0, sizeof *page->segment);
    page->segment[at].start = start;
    page->segment[at].end = end;
    return page->segment + at;
}

/* Cut the segment that contains `at` in its middle, so that `at` is a border. */
static void segment_cut(struct shadow_page *page, uint32_t at)
{
    size_t i = segment_after(page, at);
    if (i == page->count || page->segment[i].start >= at) {
        return;
    }
    struct segment *right = segment_insert(page, i + 1, at, page->segment[i].end);
    struct segment *left = page->segment + i;
    left->end = at;
    right->written = left->written;
    right->write = left->write;
    if (left->read_count > 0) {
        right->read = grow(NULL, left->read_count, sizeof *right->read);
        memcpy(right->read, left->read, left->read_count * sizeof *right->read);
        right->read_count = right->read_room = left->read_count;
    }
}

static void segments_remove(struct shadow_page *page, size_t from, size_t to)
{
    if (from == to) {
        return;
    }
    for (size_t i = from; i < to; i++) {
        free(page->segment[i].read);
    }
    memmove(page->segment + from, page->segment + to, (page->count - to) * sizeof *page->segment);
    page->count -= to - from;
}

static int use_before(const struct sim_use *use, const struct sim_lane *lane)
{
    return sim_vector_covers(&lane->clock, use->lane, use->tick);
}

/* The reads that the new one comes after say nothing that it does not say. */
static void segment_read(struct segment *segment, const struct sim_use *use, const struct sim_lane *lane)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < segment->read_count; i++) {
        if (!use_before(&segment->read[i], lane)) {
            segment->read[kept++] = segment->read[i];
        }
    }
    segment->read_count = kept;
    if (kept == segment->read_room) {
        segment->read_room = kept * 2 + 1;
        segment->read = grow(segment->read, segment->read_room, sizeof *segment->read);
    }
    segment->read[segment->read_count++] = *use;
}

static void segment_check(const struct segment *segment, const struct sim_use *use, const struct sim_lane *lane,
                          int writes, unsigned pool, uint64_t page_offset)
{
    const char *verb = writes ? "writes" : "reads";
    if (segment->written && !use_before(&segment->write, lane)) {
        race_at(&segment->write, 1, use, verb, pool, page_offset + segment->start);
    }
    for (uint32_t i = 0; writes && i < segment->read_count; i++) {
        if (!use_before(&segment->read[i], lane)) {
            race_at(&segment->read[i], 0, use, verb, pool, page_offset + segment->start);
        }
    }
}

static void page_write(struct shadow_page *page, uint32_t start, uint32_t end, const struct sim_use *use,
                       const struct sim_lane *lane, unsigned pool, uint64_t page_offset)
{
    segment_cut(page, start);
    segment_cut(page, end);
    size_t from = segment_after(page, start), to = from;
    for (; to < page->count && page->segment[to].start < end; to++) {
        segment_check(&page->segment[to], use, lane, 1, pool, page_offset);
    }
    segments_remove(page, from, to);
    struct segment *segment = segment_insert(page, from, start, end);
    segment->written = 1;
    segment->write = *use;
}

static void page_read(struct shadow_page *page, uint32_t start, uint32_t end, const struct sim_use *use,
                      const struct sim_lane *lane, unsigned pool, uint64_t page_offset)
{
    segment_cut(page, start);
    segment_cut(page, end);
    size_t i = segment_after(page, start);
    for (uint32_t at = start; at < end; i++) {
        if (i == page->count || page->segment[i].start > at) {
            uint32_t stop = i == page->count || page->segment[i].start > end ? end : page->segment[i].start;
            segment_insert(page, i, at, stop);
        }
        struct segment *segment = &page->segment[i];
        segment_check(segment, use, lane, 0, pool, page_offset);
        segment_read(segment, use, lane);
        at = segment->end;
    }
}

/* The latest use of each lane is enough: one lane's operations are in order. */
static void mapping_remember(struct sim_mapping *mapping, const struct sim_use *use)
{
    for (size_t i = 0; i < mapping->last_count; i++) {
        if (mapping->last[i].lane == use->lane) {
            mapping->last[i] = *use;
            return;
        }
    }
    if (mapping->last_count == mapping->last_room) {
        mapping->last_room = mapping->last_room * 2 + 2;
        mapping->last = grow(mapping->last, mapping->last_room, sizeof *mapping->last);
    }
    mapping->last[mapping->last_count++] = *use;
}

void sim_race_access(const struct sim_lane *lane, const char *site, uint64_t sequence, const struct sim_piece *piece,
                     size_t count, int writes)
{
    const struct sim_use use = {lane->index, lane->clock.tick[lane->index], sequence, lane->id, site};
    for (size_t i = 0; i < count; i++) {
        if (piece[i].mapping != NULL) {
            mapping_remember(piece[i].mapping, &use);
        }
        for (uint64_t done = 0; done < piece[i].bytes;) {
            uint64_t offset = piece[i].offset + done, start = offset & (SIM_PAGE_BYTES - 1);
            uint64_t end = start + (piece[i].bytes - done);
            end = end < SIM_PAGE_BYTES ? end : SIM_PAGE_BYTES;
            struct shadow_page *page = page_find(page_key(piece[i].pool, offset), 1);
            (writes ? page_write : page_read)(page, (uint32_t)start, (uint32_t)end, &use, lane, piece[i].pool,
                                              offset - start);
            done += end - start;
        }
    }
}

static void host_check(const struct sim_use *use, int writes, const char *site, unsigned pool, uint64_t offset)
{
    const struct sim_use host = {.site = site};
    if (site != NULL && !sim_host_covers(use->lane, use->tick)) {
        race_at(use, writes, &host, "on the host takes away", pool, offset);
    }
}

static void page_forget(struct shadow_page *page, uint32_t start, uint32_t end, const char *site, unsigned pool,
                        uint64_t page_offset)
{
    segment_cut(page, start);
    segment_cut(page, end);
    size_t from = segment_after(page, start), to = from;
    for (; to < page->count && page->segment[to].start < end; to++) {
        const struct segment *segment = &page->segment[to];
        if (segment->written) {
            host_check(&segment->write, 1, site, pool, page_offset + segment->start);
        }
        for (uint32_t i = 0; i < segment->read_count; i++) {
            host_check(&segment->read[i], 0, site, pool, page_offset + segment->start);
        }
    }
    segments_remove(page, from, to);
    if (page->count == 0) {
        HASH_DEL(pages, page);
        free(page->segment);
        free(page);
    }
}

void sim_race_forget(const char *site, unsigned pool, uint64_t offset, uint64_t bytes)
{
    while (bytes > 0) {
        uint64_t start = offset & (SIM_PAGE_BYTES - 1);
        uint64_t end = start + bytes < SIM_PAGE_BYTES ? start + bytes : SIM_PAGE_BYTES;
        struct shadow_page *page = page_find(page_key(pool, offset), 0);
        if (page != NULL) {
            page_forget(page, (uint32_t)start, (uint32_t)end, site, pool, offset - start);
        }
        offset += end - start;
        bytes -= end - start;
    }
}

void sim_race_mapping(const char *site, const struct sim_mapping *mapping)
{
    const struct sim_use host = {.site = site};
    for (size_t i = 0; i < mapping->last_count; i++) {
        const struct sim_use *use = &mapping->last[i];
        if (!sim_host_covers(use->lane, use->tick)) {
            char place[64];
            snprintf(place, sizeof place, "the mapping at 0x%llx", (unsigned long long)mapping->address);
            race(use, 0, &host, "on the host takes away", place);
        }
    }
}
