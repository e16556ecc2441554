#include "watch.h"

#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "engine.h"
#include "log.h"
#include "other.h"

/* How much is looked at from an address on: an output is written from its start, a table of pointers lies near it. */
#define REGION_BYTES ((uint64_t)256 << 20)
/* In memory that holds many things, so far at least and then to where the next upload began: a segment or a pool is not
 * hashed from each address on. */
#define REGION_LEAST ((uint64_t)16 << 20)

/* Nobody writes to the ring, except where a unit is on trial. */
static bool may_be_written(const struct ov_engine *engine, uint32_t page)
{
    enum ov_backing backing = (enum ov_backing)engine->arena.page[page].backing;
    uint32_t unit = atomic_load_explicit(&engine->arena.unit[page], memory_order_relaxed);
    return backing == OV_DEVICE || backing == OV_HOST ||
           (backing == OV_RING && unit - 1 < engine->ring.unit_count && engine->ring.unit[unit - 1].on_trial);
}

/* What a touch reaches, as far as it is looked at: to the next address of the same launch, to where another thing was
 * uploaded, the end of the allocation, or the first page that nobody writes. */
static uint64_t region_end(struct ov_engine *engine, const struct ov_touches *touches, uint64_t begin)
{
    uint32_t page = ov_arena_page(&engine->arena, begin);
    const struct ov_alloc *alloc = ov_alloc_of(engine, page);
    if (alloc == NULL) {
        return begin;
    }
    uint64_t end = ov_alloc_next_upload(engine, alloc, begin + REGION_LEAST);
    end = end < begin + REGION_BYTES ? end : begin + REGION_BYTES;
    uint32_t p = page;
    while (p < alloc->first + alloc->pages && ov_page_address(&engine->arena, p) < end && may_be_written(engine, p)) {
        p++;
    }
    uint64_t mapped_end = ov_page_address(&engine->arena, p);
    end = mapped_end < end ? mapped_end : end;
    for (unsigned i = 0; i < touches->count; i++) {
        uint64_t other = touches->item[i].address;
        end = other > begin && other < end ? other : end;
    }
    return end;
}

/* Before the launch: what each touch reaches. */
static CUresult look_at_touches(struct ov_engine *engine, struct ov_watch *watch)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < watch->touches.count && result == CUDA_SUCCESS; i++) {
        uint64_t begin = (watch->touches.item[i].address + 7) & ~(uint64_t)7;
        if (ov_engine_of(begin) != engine) {
            continue;
        }
        uint64_t end = region_end(engine, &watch->touches, begin);
        if (end > begin) {
            result = ov_emission_begin(engine, &watch->before[i], begin, end - begin);
        }
    }
    return result;
}

struct others_sum {
    struct ov_engine *engine;
    uint64_t sum;
};

static void digest_other(void *context, CUdeviceptr address, size_t bytes)
{
    struct others_sum *others = context;
    struct ov_page_digest digest;
    if (ov_inspect_range(others->engine, address, bytes, &digest) == CUDA_SUCCESS) {
        others->sum += digest.addresses * (2 * (address >> 8) + 1);
    }
}

static void digest_global(void *context, CUdeviceptr address, size_t bytes)
{
    struct others_sum *others = context;
    struct ov_page_digest digest;
    if (ov_inspect_copied(others->engine, address, bytes, &digest) == CUDA_SUCCESS) {
        others->sum += digest.addresses * (2 * (address >> 8) + 1);
    }
}

/* The launch's host memory, and all small memory, which a kernel may reach by addresses that are not tested. */
static uint64_t digest_others(struct ov_engine *engine, const struct ov_watch *watch)
{
    struct others_sum others = {engine, 0};
    ov_others_each(engine, digest_other, &others);
    ov_globals_each(engine, digest_global, &others);
    for (unsigned i = 0; i < watch->hosts; i++) {
        digest_other(&others, watch->host[i].address, watch->host[i].bytes);
    }
    return others.sum;
}

/* Managed memory is among the others. */
static void note_range(void *context, uint64_t word, uint32_t slot)
{
    struct ov_watch *watch = context;
    struct ov_zerocopy range;
    (void)slot;
    if (watch->hosts < OV_WATCH_RANGES && ov_zerocopy_find(word, &range) && !range.managed) {
        uint64_t begin = ((word & ~(uint64_t)7) < range.address ? range.address + 7 : word) & ~(uint64_t)7;
        uint64_t end = range.address + range.bytes;
        end = end - begin > REGION_BYTES ? begin + REGION_BYTES : end;
        watch->host[watch->hosts].address = begin;
        watch->host[watch->hosts++].bytes = (size_t)(end - begin);
    }
}

/* A slot whose memory changed writes it. */
static void judge_output(struct ov_kernel *kernel, uint32_t slot)
{
    if (kernel != NULL) {
        ov_slot_set(kernel, slot, OV_SLOT_WRITER);
        atomic_store(&kernel->has_output, true);
    }
}

static void leave_in_host(struct ov_engine *engine, uint32_t index, enum ov_mark mark)
{
    const struct ov_unit *unit = &engine->ring.unit[index];
    struct ov_alloc *alloc = ov_alloc_of(engine, unit->first);
    for (uint32_t p = unit->first; p < unit->first + unit->pages; p++) {
        engine->learn.memo[p].marks |= (uint8_t)mark;
        engine->learn.memo[p].strikes++;
    }
    if (alloc != NULL) {
        alloc->dirty = true;
    }
    engine->revoked_pages += unit->pages;
    ov_engine_learn(engine);
}

struct opening {
    struct ov_engine *engine;
    bool open;
};

/* Memory that copies filled and that a launch passes is a weight. All other memory may take a result. */
static void find_output(void *context, uint64_t word, uint32_t slot)
{
    struct opening *opening = context;
    struct ov_engine *engine = opening->engine;
    struct ov_zerocopy range;
    (void)slot;
    if (ov_engine_of(word) == engine) {
        uint32_t page = ov_arena_page(&engine->arena, word);
        opening->open = opening->open || (ov_alloc_of(engine, page) != NULL &&
                                          engine->learn.memo[page].uploaded < OV_PAGE_BYTES / 10 * 9);
    } else {
        opening->open =
            opening->open || ov_arena_has(word) || ov_others_hold(engine, word) || ov_zerocopy_find(word, &range);
    }
}

bool ov_watch_reads_only(const struct ov_kernel *kernel, uint32_t slot)
{
    if (kernel == NULL) {
        return false;
    }
    uint32_t launches = atomic_load_explicit(&kernel->launches, memory_order_relaxed);
    uint32_t wanted = launches < OV_WATCH_LAUNCHES ? launches : OV_WATCH_LAUNCHES;
    enum ov_slot_state state = ov_slot(kernel, slot);
    return state == OV_SLOT_READER || (state == OV_SLOT_UNKNOWN && kernel->has_output && kernel->watched >= wanted);
}

/* The unit goes to its master, whatever it takes. If it cannot leave the ring, it stays there as any other unit, with
 * what was written in its master. */
static void end_in_host(struct ov_engine *engine, uint32_t index, enum ov_mark mark)
{
    struct ov_unit *unit = &engine->ring.unit[index];
    if (ov_unit_revoke(engine, index, 0) != CUDA_SUCCESS && unit->on_trial) {
        unit->stuck = ov_ring_settle(engine, unit) != CUDA_SUCCESS ||
                      ov_ring_write_back(engine, unit) != CUDA_SUCCESS ||
                      ov_ring_take_back(engine, index) != CUDA_SUCCESS;
    }
    leave_in_host(engine, index, mark);
}

static void free_watch(struct ov_watch *watch)
{
    for (unsigned i = 0; watch != NULL && i < watch->touches.count; i++) {
        ov_emission_free(&watch->before[i]);
    }
    free(watch);
}

struct ov_watch *ov_watch_begin(struct ov_engine *engine, const struct ov_launch *launch,
                                const struct ov_touches *touches, const uint32_t *unit, unsigned units, bool outputs)
{
    struct ov_watch *watch = calloc(1, sizeof *watch);
    CUresult result = watch != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (watch != NULL) {
        watch->touches = *touches;
        watch->outputs = outputs;
        if (touches->exposed) {
            ov_scan_words(launch->kernel, launch, note_range, watch);
        }
        struct opening opening = {engine, launch->kernel == NULL};
        ov_scan_words(launch->kernel, launch, find_output, &opening);
        watch->open = opening.open;
    }
    for (unsigned i = 0; i < units; i++) {
        bool lent = result == CUDA_SUCCESS && ov_ring_lend(engine, unit[i]) == CUDA_SUCCESS;
        CUresult revoked =
            lent ? CUDA_SUCCESS : ov_unit_revoke(engine, unit[i], result == CUDA_SUCCESS ? 0 : OV_MARK_WRITTEN);
        if (result == CUDA_SUCCESS && revoked == CUDA_SUCCESS) {
            watch->unit[watch->units++] = unit[i];
        }
    }
    if (result == CUDA_SUCCESS && outputs) {
        watch->addresses = digest_others(engine, watch);
        result = look_at_touches(engine, watch);
    }
    if (result != CUDA_SUCCESS) {
        for (unsigned i = 0; watch != NULL && i < watch->units; i++) {
            end_in_host(engine, watch->unit[i], OV_MARK_WRITTEN);
        }
        free_watch(watch);
        return NULL;
    }
    engine->watches++;
    return watch;
}

/* Whether the unit's master still is what it was when it was taken. */
static bool unchanged(struct ov_engine *engine, const struct ov_unit *unit)
{
    struct ov_page_digest digest[64];
    bool same = true;
    for (uint32_t done = 0; done < unit->pages && same; done += 64) {
        uint32_t batch = unit->pages - done < 64 ? unit->pages - done : 64;
        same = ov_inspect_pages(engine, ov_page_address(&engine->arena, unit->first + done), batch, digest) ==
               CUDA_SUCCESS;
        for (uint32_t p = 0; p < batch && same; p++) {
            same =
                memcmp(&digest[p].hash, &engine->learn.memo[unit->first + done + p].hash, sizeof digest[p].hash) == 0;
        }
    }
    return same;
}

static void set_pairs(struct ov_engine *engine, struct ov_kernel *kernel, const struct ov_touches *touches,
                      uint32_t unit, enum ov_slot_state state)
{
    const struct ov_unit *of = &engine->ring.unit[unit];
    for (unsigned i = 0; i < touches->count && kernel != NULL; i++) {
        if (touches->item[i].address >= of->begin && touches->item[i].address < of->end &&
            ov_slot(kernel, touches->item[i].slot) != OV_SLOT_WRITER) {
            ov_slot_set(kernel, touches->item[i].slot, state);
        }
    }
}

/* Its address was uploaded or stored while it was on trial (search.c). */
static bool is_named(const struct ov_engine *engine, const struct ov_unit *unit)
{
    return unit->pages > 0 && (engine->learn.memo[unit->first].marks & OV_MARK_HIDDEN) != 0;
}

bool ov_watch_tries(const struct ov_watch *watch, uint32_t unit)
{
    for (unsigned i = 0; watch != NULL && i < watch->units; i++) {
        if (watch->unit[i] == unit) {
            return true;
        }
    }
    return false;
}

/* Back to where it was, if it was only read; else its bytes go to its master, and it stays there. Whether it is
 * unchanged. */
static bool judge_unit(struct ov_engine *engine, struct ov_kernel *kernel, const struct ov_watch *watch, uint32_t index,
                       bool emits)
{
    const struct ov_unit *unit = &engine->ring.unit[index];
    bool same = unchanged(engine, unit);
    set_pairs(engine, kernel, &watch->touches, index, same ? OV_SLOT_READER : OV_SLOT_WRITER);
    if (same && !emits && !is_named(engine, unit) &&
        (unit->on_trial ? ov_ring_take_back(engine, index) : ov_unit_restore(engine, index)) == CUDA_SUCCESS) {
        return true;
    }
    end_in_host(engine, index, same ? OV_MARK_HIDDEN : OV_MARK_WRITTEN);
    return same;
}

/* Whether it emits addresses. */
static bool judge_touches(struct ov_engine *engine, struct ov_kernel *kernel, const struct ov_watch *watch)
{
    bool emits = digest_others(engine, watch) != watch->addresses;
    for (unsigned i = 0; i < watch->touches.count; i++) {
        struct ov_page_digest after;
        bool emitted;
        if (watch->before[i].bytes == 0) {
            continue;
        }
        bool known = ov_emission_end(engine, &watch->before[i], &after, &emitted) == CUDA_SUCCESS;
        if (known && memcmp(&after.hash, &watch->before[i].digest.hash, sizeof after.hash) != 0) {
            judge_output(kernel, watch->touches.item[i].slot);
        }
        emits = emits || emitted;
    }
    if (emits && kernel != NULL) {
        atomic_store(&kernel->emits, true);
        ov_log(OV_LOG_INFO, "kernel %s writes addresses: what it takes is not streamed", kernel->name);
    }
    return emits;
}

/* A result that changed nothing may be in memory that is no weight. If there is none, it is where nobody looks. */
static bool is_unseen(struct ov_kernel *kernel, const struct ov_watch *watch)
{
    bool unseen = watch->outputs && !watch->open && kernel != NULL && !atomic_load(&kernel->has_output);
    if (unseen && !atomic_exchange(&kernel->unseen, true)) {
        ov_log(OV_LOG_INFO, "kernel %s leaves its result where nobody looks", kernel->name);
    }
    return unseen;
}

/* The addresses in front of units that were on trial: none reaches them. */
static void note_near(struct ov_engine *engine, const struct ov_kernel *kernel, const struct ov_watch *watch)
{
    for (unsigned i = 0; i < watch->touches.count; i++) {
        uint64_t address = watch->touches.item[i].address;
        if (ov_engine_of(address) == engine && ov_unit_at(&engine->arena, &engine->ring, address) == OV_UNIT_NEAR) {
            ov_reach_note(engine, kernel, address);
        }
    }
}

static void judge(struct ov_engine *engine, struct ov_kernel *kernel, const struct ov_watch *watch)
{
    bool known = kernel != NULL && atomic_load_explicit(&kernel->emits, memory_order_relaxed);
    bool emits = watch->outputs && judge_touches(engine, kernel, watch), all_same = true;
    bool unseen = is_unseen(kernel, watch);
    for (unsigned i = 0; i < watch->units; i++) {
        all_same = judge_unit(engine, kernel, watch, watch->unit[i], emits || unseen) && all_same;
    }
    if (watch->units > 0 && all_same) {
        note_near(engine, kernel, watch);
    }
    if (emits) {
        for (unsigned i = 0; i < watch->touches.count; i++) {
            if (ov_engine_of(watch->touches.item[i].address) == engine) {
                ov_learn_mark(engine, watch->touches.item[i].address, OV_MARK_HIDDEN);
            }
        }
        if (!known) {
            ov_recall_doubt(engine, kernel);
        }
    }
}

/* The launch may still be running: somebody began to capture after it was submitted. It was not looked at, then. */
static void give_up(struct ov_engine *engine, struct ov_kernel *kernel, const struct ov_watch *watch)
{
    for (unsigned i = 0; i < watch->units; i++) {
        end_in_host(engine, watch->unit[i], OV_MARK_WRITTEN); /* waits for the launch, if it is in the ring */
    }
    if (kernel != NULL && watch->outputs) {
        atomic_fetch_sub(&kernel->watched, 1);
    }
}

void ov_watch_end(struct ov_engine *engine, struct ov_kernel *kernel, struct ov_watch *watch)
{
    struct ov_exclusive section;
    (void)ov_exclusive_begin(engine, &section);
    (section.idle ? judge : give_up)(engine, kernel, watch);
    engine->watches--;
    ov_exclusive_end(engine, &section);
    free_watch(watch);
}
