#include "convert.h"

#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "log.h"
#include "move.h"
#include "outcome.h"
#include "propose.h"
#include "record.h"

/* Pages moved to the device in one go. */
#define BATCH_PAGES 128u

/* ---- moving pages ---- */

CUresult ov_copy_pages(struct ov_engine *engine, CUdeviceptr to, CUdeviceptr from, uint32_t pages)
{
    CUresult result = ov_cu->cuMemcpyAsync(to, from, (size_t)pages << OV_PAGE_SHIFT, engine->ring.side);
    return ov_finish(engine, engine->ring.side, result);
}

uint32_t ov_pages_written(const struct ov_engine *engine)
{
    uint32_t pages = 0;
    for (uint32_t p = 0; p < engine->arena.high_page; p++) {
        pages += engine->arena.page[p].backing == OV_DEVICE;
    }
    for (uint32_t i = 0; i < engine->ring.unit_count; i++) {
        pages -= engine->ring.unit[i].tier == OV_TIER_RESIDENT ? engine->ring.unit[i].pages : 0;
    }
    return pages;
}

void ov_demote_some(struct ov_engine *engine, uint32_t pages)
{
    struct ov_arena *arena = &engine->arena;
    for (uint32_t p = arena->high_page; p > 0 && ov_ledger_left(&engine->ledger) < (size_t)pages << OV_PAGE_SHIFT;
         p--) {
        if (arena->page[p - 1].backing == OV_DEVICE) {
            uint32_t first = p - 1, count = 1;
            ov_whole_chunks(arena, &first, &count);
            if (ov_move_to_host(engine, first, count) != CUDA_SUCCESS) {
                return;
            }
            engine->replan_soon = true;
        }
    }
}

/* Whether the page has a master and nothing mapped at its address. */
static bool is_afloat(const struct ov_page *page)
{
    return page->backing == OV_NONE && ov_page_has_master(page);
}

/* Whether the page has its bytes in the host and may go anywhere. */
static bool in_host(const struct ov_page *page)
{
    return page->backing == OV_HOST || is_afloat(page);
}

static void move_wanted_in(struct ov_engine *engine, const uint8_t *want)
{
    struct ov_arena *arena = &engine->arena;
    for (uint32_t p = 0; p < arena->high_page;) {
        if (want[p] != OV_WANT_DEVICE || !in_host(&arena->page[p])) {
            p++;
            continue;
        }
        uint32_t first = p;
        while (p < arena->high_page && p - first < BATCH_PAGES && want[p] == OV_WANT_DEVICE &&
               in_host(&arena->page[p]) && arena->page[p].alloc == arena->page[first].alloc &&
               arena->page[p].mapping == arena->page[first].mapping) {
            p++;
        }
        (void)ov_move_to_device(engine, first, p - first);
    }
}

/* Nothing may be left without anything behind it: the device if there is room, else the host. */
static void settle_rest(struct ov_engine *engine)
{
    struct ov_arena *arena = &engine->arena;
    for (uint32_t p = 0; p < arena->high_page;) {
        if (!is_afloat(&arena->page[p])) {
            p++;
            continue;
        }
        uint32_t first = p;
        while (p < arena->high_page && p - first < BATCH_PAGES && is_afloat(&arena->page[p]) &&
               arena->page[p].alloc == arena->page[first].alloc &&
               arena->page[p].mapping == arena->page[first].mapping) {
            p++;
        }
        if (ov_move_home(engine, first, p - first) != CUDA_SUCCESS &&
            ov_move_to_device(engine, first, p - first) != CUDA_SUCCESS) {
            ov_log_once(OV_LOG_ERROR, "%u MiB have neither device nor host memory: a kernel that uses them is stopped",
                        (p - first) * 2);
        }
    }
}

/* ---- units of the old plan and of the new ---- */

/* What a plan's units are, before they replace those of the last one. */
struct draft {
    struct ov_unit *unit;
    struct ov_edge *edge;
    struct ov_trace trace;
    bool *keep; /* streamed already, in the same place */
    uint32_t count;
};

static void free_draft(struct draft *draft)
{
    free(draft->unit);
    free(draft->edge);
    free(draft->keep);
    ov_trace_destroy(&draft->trace);
}

static bool stays(const struct ov_engine *engine, const struct ov_run *run, const struct ov_plan_place *place,
                  size_t ring_pages)
{
    const struct ov_ring *ring = &engine->ring;
    uint32_t at = atomic_load_explicit(&engine->arena.unit[run->first], memory_order_relaxed);
    if (place->tier != OV_TIER_STREAMED || at == 0 || at > ring->unit_count) {
        return false;
    }
    const struct ov_unit *old = &ring->unit[at - 1];
    return old->tier == OV_TIER_STREAMED && !old->on_trial && old->first == run->first && old->pages == run->pages &&
           old->ring_page == place->ring_page && old->ring_page + old->pages <= ring_pages;
}

static bool make_draft(struct ov_engine *engine, const struct ov_plan *plan, struct draft *draft)
{
    const struct ov_runs *runs = &engine->learn.runs;
    memset(draft, 0, sizeof *draft);
    draft->count = runs->count;
    draft->unit = calloc(runs->count + 1, sizeof *draft->unit);
    draft->edge = calloc(2 * (size_t)runs->count + 1, sizeof *draft->edge);
    draft->keep = calloc(runs->count + 1, sizeof *draft->keep);
    if (draft->unit == NULL || draft->edge == NULL || draft->keep == NULL ||
        !ov_trace_init(&draft->trace, runs->count + 1, 0)) {
        free_draft(draft);
        return false;
    }
    for (uint32_t i = 0; i < runs->count; i++) {
        const struct ov_run *run = &runs->item[i];
        const struct ov_plan_place *place = &plan->place[i];
        draft->unit[i] = (struct ov_unit){
            .first = run->first,
            .pages = run->pages,
            .begin = run->begin,
            .end = run->end,
            .bytes = (size_t)run->pages << OV_PAGE_SHIFT,
            .ring_page = place->ring_page,
            .tier = place->tier == OV_TIER_STREAMED ? OV_TIER_HOST : place->tier,
            .sparse = place->sparse,
            .share = run->share,
            .reads = run->reads,
        };
        draft->keep[i] = stays(engine, run, place, plan->ring_pages);
    }
    return true;
}

/* Takes all units but those to be kept off the ring's pages; they have their masters. On failure all are back. */
static CUresult leave_ring(struct ov_engine *engine, const struct draft *draft)
{
    struct ov_ring *ring = &engine->ring;
    struct ov_arena *arena = &engine->arena;
    CUresult result = CUDA_SUCCESS;
    bool *kept = calloc((size_t)ring->unit_count + 1, sizeof *kept);
    uint32_t done = 0;
    if (kept == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < draft->count; i++) {
        if (draft->keep[i]) {
            kept[atomic_load_explicit(&arena->unit[draft->unit[i].first], memory_order_relaxed) - 1] = true;
        }
    }
    for (; done < ring->unit_count && result == CUDA_SUCCESS; done++) {
        const struct ov_unit *unit = &ring->unit[done];
        if (unit->tier == OV_TIER_STREAMED && unit->on_trial) {
            result = ov_unit_revoke(engine, done, 0); /* one that could not be taken out before */
        } else if (unit->tier == OV_TIER_STREAMED && !kept[done]) {
            result = ov_unback(arena, unit->first, unit->pages);
        }
    }
    for (uint32_t i = 0; i < done && result != CUDA_SUCCESS; i++) {
        struct ov_unit *unit = &ring->unit[i];
        if (unit->tier == OV_TIER_STREAMED && arena->page[unit->first].backing == OV_NONE &&
            ov_back_ring(arena, unit->first, unit->pages, &ring->handle[unit->ring_page]) != CUDA_SUCCESS) {
            ov_ring_remove(engine, i);
            unit->tier = OV_TIER_HOST;
        }
    }
    free(kept);
    return result;
}

/* The draft's units take the place of the old ones. Nothing is in the ring as far as it knows; those that are kept are
 * loaded anew. */
static void set_units(struct ov_engine *engine, struct draft *draft)
{
    struct ov_ring *ring = &engine->ring;
    for (uint32_t i = 0; i < ring->unit_count; i++) {
        ov_ring_recycle(ring, &ring->unit[i]);
    }
    for (uint32_t p = 0; p < engine->arena.high_page; p++) {
        atomic_store_explicit(&engine->arena.unit[p], 0, memory_order_relaxed);
    }
    for (uint32_t p = 0; p < ring->pages; p++) {
        ring->owner[p] = 0;
    }
    ring->counts.touches += ring->trace.touches;
    ring->counts.jumps += ring->trace.jumps;
    ov_trace_destroy(&ring->trace);
    free(ring->unit);
    free(ring->edge);
    ring->unit = draft->unit;
    ring->unit_count = draft->count;
    ring->edge = draft->edge;
    ring->edge_count = 0;
    ring->trace = draft->trace;
    ring->newest = 0;
    ring->left = false;
    ring->ahead_count = ring->ahead_first = 0;
    ring->streamed_count = 0;
    ring->last_turn = 0;
}

/* A page that a streamed unit shares with others gets a list of parts. */
static void add_edge(struct ov_engine *engine, uint64_t begin, uint64_t end)
{
    struct ov_ring *ring = &engine->ring;
    uint32_t page = ov_arena_page(&engine->arena, begin);
    uint32_t there = atomic_load_explicit(&engine->arena.unit[page], memory_order_relaxed);
    struct ov_edge *edge = &ring->edge[ring->edge_count++];
    edge->begin = begin;
    edge->end = end;
    edge->next = there & OV_UNIT_EDGE ? there & ~OV_UNIT_EDGE : 0;
    atomic_store_explicit(&engine->arena.unit[page], OV_UNIT_EDGE | ring->edge_count, memory_order_relaxed);
}

static void set_edges(struct ov_engine *engine, uint32_t index)
{
    const struct ov_unit *unit = &engine->ring.unit[index];
    uint64_t inside = ov_page_address(&engine->arena, unit->first);
    uint64_t after = inside + ((uint64_t)unit->pages << OV_PAGE_SHIFT);
    if (unit->begin < inside) {
        add_edge(engine, unit->begin, inside);
    }
    if (unit->end > after) {
        add_edge(engine, after, unit->end);
    }
}

static CUresult alias(struct ov_engine *engine, uint32_t index)
{
    struct ov_ring *ring = &engine->ring;
    struct ov_unit *unit = &ring->unit[index];
    struct ov_arena *arena = &engine->arena;
    CUresult result = ov_unback(arena, unit->first, unit->pages);
    if (result == CUDA_SUCCESS) {
        result = ov_back_ring(arena, unit->first, unit->pages, &ring->handle[unit->ring_page]);
        if (result != CUDA_SUCCESS) {
            CUresult home = ov_move_home(engine, unit->first, unit->pages);
            return home != CUDA_SUCCESS ? home : result;
        }
        ov_ring_add(engine, index);
    }
    return result;
}

/* All its pages have masters and nothing else that counts behind them. */
static bool ready_for_ring(const struct ov_engine *engine, const struct ov_unit *unit)
{
    for (uint32_t p = unit->first; p < unit->first + unit->pages; p++) {
        if (!in_host(&engine->arena.page[p])) {
            return false;
        }
    }
    return unit->ring_page + unit->pages <= engine->ring.pages;
}

static void stream_units(struct ov_engine *engine, const struct ov_plan *plan, const bool *keep)
{
    struct ov_ring *ring = &engine->ring;
    for (uint32_t i = 0; i < ring->unit_count; i++) {
        const struct ov_unit *unit = &ring->unit[i];
        if (keep[i]) {
            set_edges(engine, i);
            ov_ring_add(engine, i);
        } else if (plan->place[i].tier == OV_TIER_STREAMED && ready_for_ring(engine, unit)) {
            set_edges(engine, i);
            if (alias(engine, i) != CUDA_SUCCESS) {
                ov_log(OV_LOG_WARN, "a unit of %u MiB could not be mapped to the ring: it stays in host memory",
                       unit->pages * 2);
            }
        }
    }
}

/* The streamed part of the cycle, for the trace. */
static void preload_trace(struct ov_engine *engine)
{
    struct ov_ring *ring = &engine->ring;
    const struct ov_runs *runs = &engine->learn.runs;
    uint32_t *sequence = calloc(2 * runs->cycle_length + 1, sizeof *sequence);
    size_t length = 0;
    for (int round = 0; round < 2 && sequence != NULL; round++) {
        for (size_t i = 0; i < runs->cycle_length; i++) {
            if (ring->unit[runs->cycle[i]].tier == OV_TIER_STREAMED) {
                sequence[length++] = runs->cycle[i];
            }
        }
    }
    if (sequence != NULL) {
        ov_trace_preload(&ring->trace, sequence, ov_compress(sequence, length));
    }
    free(sequence);
}

static void mark_cold(struct ov_engine *engine)
{
    for (uint32_t p = 0; p < engine->arena.high_page; p++) {
        uint32_t unit = atomic_load_explicit(&engine->arena.unit[p], memory_order_relaxed);
        const struct ov_alloc *alloc = ov_alloc_of(engine, p);
        /* What is known to be used and is there for lack of room is no surprise when it is used. */
        if (alloc != NULL && engine->arena.page[p].backing == OV_HOST && unit == 0 && ov_is_cold(engine, alloc, p)) {
            atomic_store_explicit(&engine->arena.unit[p], OV_UNIT_COLD, memory_order_relaxed);
        }
    }
    for (uint32_t i = 0; i < engine->ring.unit_count; i++) { /* host-mapped by plan: touches are expected */
        const struct ov_unit *unit = &engine->ring.unit[i];
        for (uint32_t p = unit->first; unit->tier == OV_TIER_HOST && p < unit->first + unit->pages; p++) {
            atomic_store_explicit(&engine->arena.unit[p], 0, memory_order_relaxed);
        }
    }
}

/* Only what changes is touched: units that keep their place in the ring stay mapped to it. */
static bool carry_out(struct ov_engine *engine, const struct ov_plan *plan, uint8_t *want)
{
    struct draft draft;
    uint32_t pages = (uint32_t)plan->ring_pages;
    if (!make_draft(engine, plan, &draft)) {
        return false;
    }
    if (leave_ring(engine, &draft) != CUDA_SUCCESS) {
        free_draft(&draft);
        settle_rest(engine);
        return false;
    }
    set_units(engine, &draft);
    CUresult ring = pages < engine->ring.pages ? ov_ring_resize(engine, pages) : CUDA_SUCCESS;
    ov_move_out(engine, want);
    ring = ring == CUDA_SUCCESS ? ov_ring_resize(engine, pages) : ring;
    move_wanted_in(engine, want);
    if (ring != CUDA_SUCCESS && pages > 0) {
        ov_log(OV_LOG_WARN, "no device memory for a ring of %zu MiB (error %d): weights stay in host memory",
               plan->ring_pages * 2, (int)ring);
    }
    stream_units(engine, plan, draft.keep);
    settle_rest(engine);
    CUresult events = ov_ring_provide(engine);
    if (events != CUDA_SUCCESS) {
        ov_log(OV_LOG_WARN, "no events for the ring (error %d): weights stay in host memory", (int)events);
        (void)ov_revoke_all(engine, 0); /* what stays can be loaded without them, or is refused when it is used */
    }
    free(draft.keep);
    ov_masters_share(engine);
    if (ov_opt.verify) {
        ov_outcome_verify(engine);
    }
    mark_cold(engine);
    ov_density_test(engine);
    ov_reach_renew(engine);
    ov_meter_link(engine);
    ov_recall_check_link(engine);
    preload_trace(engine);
    ov_stall_begin(engine);
    ov_timetable_begin(engine);
    engine->plans++;
    engine->revoked_pages = 0;
    atomic_store(&engine->planned, true);
    ov_outcome_report(engine, plan);
    ov_profiler_begin(engine, engine->learn.runs.compute_s == NULL);
    ov_pace_begin(engine);
    ov_ring_warm(engine);
    ov_record(engine);
    return true;
}

/* While nothing was streamed, nobody watched the units: those that changed since they were studied, or are named in
 * memory by now, are not streamed. Nor is anything when that cannot be told. */
static void drop_changed(struct ov_engine *engine)
{
    const struct ov_runs *runs = &engine->learn.runs;
    uint64_t now = engine->learn.head;
    bool known = ov_learn_look_again(engine) == CUDA_SUCCESS;
    for (uint32_t i = 0; i < runs->count; i++) {
        bool changed = !known || (runs->item[i].marks & OV_MARK_HIDDEN) != 0;
        for (uint32_t p = runs->item[i].first; p < runs->item[i].first + runs->item[i].pages; p++) {
            changed = changed || (engine->arena.page[p].backing != OV_RING && engine->learn.memo[p].since >= now &&
                                  now > engine->learn.studied);
        }
        if (changed) {
            runs->item[i].may &= (uint8_t)(~OV_TIER_BIT(OV_TIER_STREAMED) & 0xff);
        }
    }
}

/* A plan that leaves `reserve_pages`, and as many of the spare ones as send no weight of the cycle to the host that
 * would not be there anyway. */
bool ov_plan_draft(struct ov_engine *engine, uint32_t reserve_pages, uint32_t *spare_pages, uint8_t *want,
                   struct ov_plan *plan)
{
    size_t anyway = SIZE_MAX;
    while (ov_propose(engine, reserve_pages + *spare_pages, want, plan)) {
        size_t in_host = plan->cycle_host_pages;
        if (*spare_pages == 0 || in_host == 0 || (anyway != SIZE_MAX && in_host <= anyway)) {
            return true;
        }
        ov_plan_free(plan);
        if (anyway == SIZE_MAX) {
            if (!ov_propose(engine, reserve_pages, want, plan)) {
                return false;
            }
            anyway = plan->cycle_host_pages;
            ov_plan_free(plan);
        }
        if (in_host > anyway) {
            *spare_pages = *spare_pages > 64 ? *spare_pages / 2 : 0;
        }
    }
    return false;
}

bool ov_plan_and_convert(struct ov_engine *engine, uint32_t reserve_pages, uint32_t spare_pages)
{
    if (engine->watches > 0) {
        engine->replan_soon = true; /* units on trial are known by their index */
        return false;
    }
    ov_runs_prune(engine);
    if (!engine->learn.fresh) {
        drop_changed(engine);
    }
    engine->learn.fresh = false;
    uint8_t *want = calloc((size_t)engine->arena.high_page + 1, 1);
    struct ov_plan plan;
    bool made = want != NULL && ov_plan_draft(engine, reserve_pages, &spare_pages, want, &plan);
    if (made) {
        ov_log(OV_LOG_DEBUG, "device %d: plan for %zu of %zu MiB in use, %u MiB written to, %u asked for, %u spare",
               engine->device, ov_ledger_held(&engine->ledger) >> 20, engine->ledger.budget_bytes >> 20,
               2 * ov_pages_written(engine), 2 * reserve_pages, 2 * spare_pages);
        made = carry_out(engine, &plan, want);
        ov_plan_free(&plan);
        engine->room_made_bytes = 0;
    }
    free(want);
    return made;
}

/* ---- single units ---- */

/* A unit that left the ring and has nothing behind it. */
static void back_to_ring(struct ov_engine *engine, struct ov_unit *unit)
{
    if (engine->arena.page[unit->first].backing == OV_NONE &&
        ov_back_ring(&engine->arena, unit->first, unit->pages, &engine->ring.handle[unit->ring_page]) == CUDA_SUCCESS) {
        ov_ring_add(engine, (uint32_t)(unit - engine->ring.unit));
    }
}

/* Whichever fails, the unit is in the ring again if that can be. */
static CUresult leave_for(struct ov_engine *engine, struct ov_unit *unit, enum ov_tier tier)
{
    CUresult result = ov_unback(&engine->arena, unit->first, unit->pages);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    ov_ring_remove(engine, (uint32_t)(unit - engine->ring.unit));
    unit->tier = (uint8_t)tier;
    result = tier == OV_TIER_HOST ? ov_back_host(&engine->arena, unit->first, unit->pages)
                                  : ov_move_to_device(engine, unit->first, unit->pages);
    if (result != CUDA_SUCCESS) {
        unit->tier = OV_TIER_HOST;
        back_to_ring(engine, unit);
    }
    return result;
}

/* Its masters become mapped ones first: as long as that may fail, the unit stays what it is. */
static CUresult take_out(struct ov_engine *engine, struct ov_unit *unit)
{
    if (engine->arena.frozen != CUDA_SUCCESS) {
        return engine->arena.frozen;
    }
    CUresult result = ov_ring_settle(engine, unit);
    if (result == CUDA_SUCCESS && unit->on_trial) {
        result = ov_ring_write_back(engine, unit); /* the masters are true again, whatever fails from here on */
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = ov_master_evacuate(engine, unit->first, unit->pages);
    if (result == CUDA_SUCCESS) {
        return leave_for(engine, unit, OV_TIER_HOST);
    }
    ov_ring_find_master(engine, (uint32_t)(unit - engine->ring.unit)); /* part of it has moved */
    bool fits = unit->bytes <= ov_ledger_left(&engine->ledger);
    return fits && leave_for(engine, unit, OV_TIER_RESIDENT) == CUDA_SUCCESS ? CUDA_SUCCESS : result;
}

CUresult ov_unit_revoke(struct ov_engine *engine, uint32_t index, unsigned mark)
{
    struct ov_unit *unit = &engine->ring.unit[index];
    if (unit->tier != OV_TIER_STREAMED) {
        return CUDA_SUCCESS;
    }
    CUresult result = take_out(engine, unit);
    if (result != CUDA_SUCCESS) {
        ov_log_once(OV_LOG_ERROR, "a unit could not be taken out of the ring (error %d)", (int)result);
        return result;
    }
    for (uint32_t p = unit->first; mark != 0 && p < unit->first + unit->pages; p++) {
        struct ov_memo *memo = &engine->learn.memo[p];
        memo->marks |= (uint8_t)mark;
        if (memo->strikes < UINT8_MAX) {
            memo->strikes++;
        }
    }
    if (mark != 0) {
        struct ov_alloc *alloc = ov_alloc_of(engine, unit->first);
        if (alloc != NULL) {
            alloc->dirty = true;
        }
        engine->revoked_pages += unit->pages;
        ov_engine_learn(engine);
    }
    return CUDA_SUCCESS;
}

CUresult ov_unit_restore(struct ov_engine *engine, uint32_t index)
{
    const struct ov_unit *unit = &engine->ring.unit[index];
    if (unit->pages == 0) {
        return CUDA_ERROR_INVALID_VALUE; /* freed meanwhile */
    }
    return unit->tier == OV_TIER_HOST ? alias(engine, index) : CUDA_SUCCESS;
}

CUresult ov_revoke_all(struct ov_engine *engine, unsigned mark)
{
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < engine->ring.unit_count; i++) {
        CUresult revoked = ov_unit_revoke(engine, i, mark);
        result = result != CUDA_SUCCESS ? result : revoked;
    }
    return result;
}
