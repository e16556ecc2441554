#include "convert.h"

#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "log.h"
#include "propose.h"

/* Pages moved in one go: bounds the host memory that is briefly held twice. */
#define BATCH_PAGES 128u

/* ---- moving pages ---- */

CUresult ov_copy_pages(struct ov_engine *engine, CUdeviceptr to, CUdeviceptr from, uint32_t pages)
{
    CUresult result = ov_cu->cuMemcpyAsync(to, from, (size_t)pages << OV_PAGE_SHIFT, engine->ring.side);
    return ov_finish(engine, engine->ring.side, result);
}

static CUresult demote(struct ov_engine *engine, uint32_t first, uint32_t pages)
{
    struct ov_arena *arena = &engine->arena;
    CUresult result = ov_make_masters(arena, first, pages);
    if (result == CUDA_SUCCESS) {
        result = ov_copy_pages(engine, ov_mirror_address(arena, first), ov_page_address(arena, first), pages);
    }
    if (result == CUDA_SUCCESS) {
        result = ov_unback(arena, first, pages);
    }
    return result == CUDA_SUCCESS ? ov_back_host(arena, first, pages) : result;
}

/* The ledger may refuse: then all is as before. */
static CUresult promote(struct ov_engine *engine, uint32_t first, uint32_t pages)
{
    struct ov_arena *arena = &engine->arena;
    if (((size_t)pages << OV_PAGE_SHIFT) > ov_ledger_left(&engine->ledger)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = ov_unback(arena, first, pages);
    if (result == CUDA_SUCCESS) {
        result = ov_back_device(arena, first, pages);
        if (result != CUDA_SUCCESS) {
            CUresult back = ov_back_host(arena, first, pages);
            return back != CUDA_SUCCESS ? back : result;
        }
        result = ov_copy_pages(engine, ov_page_address(arena, first), ov_mirror_address(arena, first), pages);
        if (result != CUDA_SUCCESS && ov_unback(arena, first, pages) == CUDA_SUCCESS) {
            (void)ov_back_host(arena, first, pages); /* the masters still are the truth */
        }
    }
    if (result == CUDA_SUCCESS) {
        ov_drop_masters(arena, first, pages);
    }
    return result;
}

/* Demotes every chunk that holds a page which shall not stay on the device. Its other pages come back by promotion. */
static void demote_wanted(struct ov_engine *engine, const uint8_t *want)
{
    struct ov_arena *arena = &engine->arena;
    for (uint32_t p = 0; p < arena->high_page;) {
        if (arena->page[p].backing != OV_DEVICE || (want[p] != OV_WANT_HOST && want[p] != OV_WANT_RING)) {
            p++;
            continue;
        }
        uint32_t first = p, pages = 1;
        ov_whole_chunks(arena, &first, &pages);
        CUresult result = demote(engine, first, pages);
        if (result != CUDA_SUCCESS) {
            ov_log(OV_LOG_WARN, "%u MiB stay on the device: no host memory for them (error %d)", pages * 2,
                   (int)result);
        }
        p = first + pages;
    }
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
            if (demote(engine, first, count) != CUDA_SUCCESS) {
                return;
            }
            engine->replan_soon = true;
        }
    }
}

static void promote_wanted(struct ov_engine *engine, const uint8_t *want)
{
    struct ov_arena *arena = &engine->arena;
    for (uint32_t p = 0; p < arena->high_page;) {
        if (want[p] != OV_WANT_DEVICE || arena->page[p].backing != OV_HOST) {
            p++;
            continue;
        }
        uint32_t first = p;
        while (p < arena->high_page && p - first < BATCH_PAGES && want[p] == OV_WANT_DEVICE &&
               arena->page[p].backing == OV_HOST && arena->page[p].alloc == arena->page[first].alloc &&
               arena->page[p].mapping == arena->page[first].mapping) {
            p++;
        }
        (void)promote(engine, first, p - first);
    }
}

/* ---- bringing it about ---- */

static bool set_units(struct ov_engine *engine, const struct ov_plan *plan)
{
    struct ov_ring *ring = &engine->ring;
    const struct ov_runs *runs = &engine->learn.runs;
    struct ov_unit *unit = calloc(runs->count + 1, sizeof *unit);
    struct ov_edge *edge = calloc(2 * (size_t)runs->count + 1, sizeof *edge);
    struct ov_trace trace;
    if (unit == NULL || edge == NULL || !ov_trace_init(&trace, runs->count + 1, 0)) {
        free(unit);
        free(edge);
        return false;
    }
    for (uint32_t i = 0; i < ring->unit_count; i++) {
        ov_ring_recycle(ring, &ring->unit[i]);
    }
    ring->counts.touches += ring->trace.touches;
    ring->counts.jumps += ring->trace.jumps;
    ov_trace_destroy(&ring->trace);
    free(ring->unit);
    free(ring->edge);
    for (uint32_t i = 0; i < runs->count; i++) {
        const struct ov_run *run = &runs->item[i];
        unit[i].first = run->first;
        unit[i].pages = run->pages;
        unit[i].begin = run->begin;
        unit[i].end = run->end;
        unit[i].bytes = (size_t)run->pages << OV_PAGE_SHIFT;
        unit[i].ring_page = plan->place[i].ring_page;
        unit[i].tier = plan->place[i].tier == OV_TIER_STREAMED ? OV_TIER_HOST : plan->place[i].tier;
    }
    ring->unit = unit;
    ring->unit_count = runs->count;
    ring->edge = edge;
    ring->edge_count = 0;
    ring->trace = trace;
    ring->newest = 0;
    ring->ahead_count = ring->ahead_first = 0;
    ring->streamed_count = 0;
    return true;
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
            CUresult back = ov_back_host(arena, unit->first, unit->pages);
            return back != CUDA_SUCCESS ? back : result;
        }
        ov_ring_add(engine, index);
    }
    return result;
}

static void stream_units(struct ov_engine *engine, const struct ov_plan *plan)
{
    struct ov_ring *ring = &engine->ring;
    for (uint32_t i = 0; i < ring->unit_count; i++) {
        const struct ov_unit *unit = &ring->unit[i];
        bool at_home = true; /* all pages have masters and stand as such */
        for (uint32_t p = unit->first; p < unit->first + unit->pages; p++) {
            at_home = at_home && engine->arena.page[p].backing == OV_HOST;
        }
        if (plan->place[i].tier == OV_TIER_STREAMED && ring->pages > 0 && at_home) {
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

/* The link as copies from masters see it: the largest streamed unit, again and again, one copy queued behind the other
 * as in steady state; the first, before the clock starts, hides that the host needs time to queue them. Best of two. */
static void measure_link(struct ov_engine *engine)
{
    struct ov_ring *ring = &engine->ring;
    const struct ov_unit *largest = NULL;
    for (uint32_t i = 0; i < ring->unit_count; i++) {
        const struct ov_unit *unit = &ring->unit[i];
        if (unit->tier == OV_TIER_STREAMED && (largest == NULL || unit->bytes > largest->bytes)) {
            largest = unit;
        }
    }
    CUevent begin = NULL, end = NULL;
    if (largest == NULL || ring->link_bytes_per_s > 0 ||
        ov_cu->cuEventCreate(&begin, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
        return;
    }
    if (ov_cu->cuEventCreate(&end, CU_EVENT_DEFAULT) == CUDA_SUCCESS) {
        enum { COPIES = 4 };
        for (int round = 0; round < 2; round++) {
            float ms = 0;
            for (int copy = 0; copy <= COPIES; copy++) {
                (void)ov_cu->cuMemcpyAsync(ring->window, ov_mirror_address(&engine->arena, largest->first),
                                           largest->bytes, ring->side);
                if (copy == 0) {
                    (void)ov_cu->cuEventRecord(begin, ring->side);
                }
            }
            (void)ov_cu->cuEventRecord(end, ring->side);
            (void)ov_finish(engine, ring->side, CUDA_SUCCESS);
            if (ov_cu->cuEventElapsedTime(&ms, begin, end) == CUDA_SUCCESS && ms > 0) {
                double rate = COPIES * (double)largest->bytes / (ms * 1e-3);
                ring->link_bytes_per_s = rate > ring->link_bytes_per_s ? rate : ring->link_bytes_per_s;
            }
        }
        (void)ov_cu->cuEventDestroy_v2(end);
    }
    (void)ov_cu->cuEventDestroy_v2(begin);
}

static void mark_cold(struct ov_engine *engine)
{
    for (uint32_t p = 0; p < engine->arena.high_page; p++) {
        uint32_t unit = atomic_load_explicit(&engine->arena.unit[p], memory_order_relaxed);
        if (engine->arena.page[p].alloc != 0 && engine->arena.page[p].backing == OV_HOST && unit == 0) {
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

/* OVERSHOT_VERIFY: the masters are what was on the device when it was hashed. */
static void verify_masters(struct ov_engine *engine)
{
    size_t checked = 0, wrong = 0;
    for (uint32_t i = 0; i < engine->ring.unit_count; i++) {
        const struct ov_unit *unit = &engine->ring.unit[i];
        for (uint32_t p = unit->first; unit->tier == OV_TIER_STREAMED && p < unit->first + unit->pages; p++) {
            struct ov_page_digest digest;
            bool same = ov_inspect_pages(engine, ov_mirror_address(&engine->arena, p), 1, &digest) == CUDA_SUCCESS &&
                        memcmp(&digest.hash, &engine->learn.memo[p].hash, sizeof digest.hash) == 0;
            wrong += !same;
            checked++;
        }
    }
    ov_log(wrong == 0 ? OV_LOG_INFO : OV_LOG_ERROR, "device %d: %zu pages of host masters verified, %zu differ",
           engine->device, checked, wrong);
}

static void report(struct ov_engine *engine, const struct ov_plan *plan)
{
    size_t mib = OV_PAGE_BYTES >> 20;
    if (plan->host_pages > 0 && plan->streamed_pages == 0) {
        size_t why[OV_PLAN_REASON_COUNT] = {0}, most = 0;
        for (size_t i = 0; i < plan->unit_count; i++) {
            why[plan->place[i].reason] += plan->place[i].tier == OV_TIER_HOST ? plan->place[i].pages : 0;
        }
        for (size_t reason = 0; reason < OV_PLAN_REASON_COUNT; reason++) {
            most = why[reason] > why[most] ? reason : most;
        }
        ov_log(OV_LOG_WARN, "device %d: nothing is streamed, %zu MiB of weights are read in host memory: %s",
               engine->device, plan->host_pages * mib, ov_plan_reason_text((enum ov_plan_reason)most));
    }
    memset(&engine->last_plan, 0, sizeof engine->last_plan);
    for (uint32_t i = 0; i < engine->ring.unit_count; i++) { /* as it stands, which may be less than was planned */
        const struct ov_unit *unit = &engine->ring.unit[i];
        size_t *tier[] = {[OV_TIER_RESIDENT] = &engine->last_plan.resident,
                          [OV_TIER_STREAMED] = &engine->last_plan.streamed,
                          [OV_TIER_HOST] = &engine->last_plan.host};
        *tier[unit->tier] += unit->pages;
    }
    engine->last_plan.units = engine->ring.streamed_count;
    engine->last_plan.ring = engine->ring.pages;
    ov_log(OV_LOG_INFO,
           "device %d, plan %u: %zu MiB of weights resident, %zu streamed, %zu in host memory; ring %u MiB; "
           "%zu touches a cycle, link %.1f GB/s",
           engine->device, engine->plans, engine->last_plan.resident * mib, engine->last_plan.streamed * mib,
           engine->last_plan.host * mib, engine->ring.pages * (unsigned)mib, engine->learn.runs.cycle_length,
           engine->ring.link_bytes_per_s * 1e-9);
}

static bool carry_out(struct ov_engine *engine, const struct ov_plan *plan, uint8_t *want)
{
    ov_revoke_all(engine, 0);
    if (engine->ring.streamed_count > 0) {
        return false; /* what is still mapped to the ring needs the ring as it is */
    }
    for (uint32_t p = 0; p < engine->arena.high_page; p++) {
        atomic_store_explicit(&engine->arena.unit[p], 0, memory_order_relaxed);
    }
    (void)ov_ring_resize(engine, 0);
    if (!set_units(engine, plan)) {
        return false;
    }
    demote_wanted(engine, want);
    CUresult ring = ov_ring_resize(engine, (uint32_t)plan->ring_pages);
    promote_wanted(engine, want);
    if (ring == CUDA_SUCCESS) {
        ring = ov_ring_provide(engine);
    }
    if (ring == CUDA_SUCCESS) {
        stream_units(engine, plan);
    } else if (plan->ring_pages > 0) {
        ov_log(OV_LOG_WARN, "no device memory for a ring of %zu MiB (error %d): weights stay in host memory",
               plan->ring_pages * 2, (int)ring);
    }
    if (ov_opt.verify) {
        verify_masters(engine);
    }
    mark_cold(engine);
    ov_reach_renew(engine);
    measure_link(engine);
    preload_trace(engine);
    engine->plans++;
    engine->revoked_pages = 0;
    atomic_store(&engine->planned, true);
    report(engine, plan);
    ov_ring_warm(engine);
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
    bool made = want != NULL && ov_propose(engine, reserve_pages + spare_pages, want, &plan);
    while (made && spare_pages > 0 && plan.cycle_host_pages > 0) {
        ov_plan_free(&plan);
        spare_pages = spare_pages > 64 ? spare_pages / 2 : 0;
        made = ov_propose(engine, reserve_pages + spare_pages, want, &plan);
    }
    if (made) {
        ov_log(OV_LOG_DEBUG, "device %d: plan for %zu of %zu MiB in use, %u MiB written to, %u asked for, %u spare",
               engine->device, ov_ledger_held(&engine->ledger) >> 20, engine->ledger.budget_bytes >> 20,
               2 * ov_pages_written(engine), 2 * reserve_pages, 2 * spare_pages);
        made = carry_out(engine, &plan, want);
        ov_plan_free(&plan);
    }
    free(want);
    return made;
}

/* ---- single units ---- */

CUresult ov_unit_revoke(struct ov_engine *engine, uint32_t index, unsigned mark)
{
    struct ov_unit *unit = &engine->ring.unit[index];
    if (unit->tier != OV_TIER_STREAMED) {
        return CUDA_SUCCESS;
    }
    CUresult result = ov_ring_settle(engine, unit);
    if (result == CUDA_SUCCESS && unit->on_trial) {
        result = ov_ring_write_back(engine, unit);
    }
    if (result == CUDA_SUCCESS) {
        result = ov_unback(&engine->arena, unit->first, unit->pages);
    }
    if (result == CUDA_SUCCESS) {
        ov_ring_remove(engine, index);
        unit->tier = OV_TIER_HOST;
        result = ov_back_host(&engine->arena, unit->first, unit->pages);
    }
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

void ov_revoke_all(struct ov_engine *engine, unsigned mark)
{
    for (uint32_t i = 0; i < engine->ring.unit_count; i++) {
        (void)ov_unit_revoke(engine, i, mark);
    }
}
