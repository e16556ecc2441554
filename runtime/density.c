#include "density.h"

#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "graph.h"
#include "log.h"

/* Of what copying it would take, reading a unit in place may take so much in a cycle. In between stays as it is. */
#define SPARSE_BELOW 0.33
#define DENSE_ABOVE  0.5
/* A launch on the device that takes less than so much of the least time for all bytes has not read them all; not 1,
 * since caches are faster than memory. */
#define PROOF 0.75
/* What a launch takes between two events when it does nothing. */
#define LAUNCH_S 6e-6
/* Kernels of one unit that are told apart; with more of them it counts as read whole. */
#define KERNELS 8u
/* Launches that a unit is put to the test with. */
#define TESTS 8u
/* Quiet points until the second test, and at most between two. */
#define FIRST_WAIT 64u
#define LAST_WAIT  1024u

/* ---- timing ---- */

static bool make_events(struct ov_timing *timing)
{
    if (ov_cu->cuEventCreate(&timing->begin, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
        return false;
    }
    if (ov_cu->cuEventCreate(&timing->end, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
        (void)ov_cu->cuEventDestroy_v2(timing->begin);
        return false;
    }
    return true;
}

void ov_density_open(struct ov_engine *engine)
{
    struct ov_density *density = &engine->density;
    int clock_khz = 0, bus_bits = 0;
    density->timing = calloc(OV_DENSITY_ROOM, sizeof *density->timing);
    while (density->timing != NULL && density->room < OV_DENSITY_ROOM && make_events(&density->timing[density->room])) {
        density->room++;
    }
    if (ov_cu->cuDeviceGetAttribute(&clock_khz, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, engine->device) ==
            CUDA_SUCCESS &&
        ov_cu->cuDeviceGetAttribute(&bus_bits, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, engine->device) ==
            CUDA_SUCCESS) {
        density->device_bytes_per_s = 2e3 * clock_khz * bus_bits / 8; /* two transfers a clock */
    }
}

/* The events go with the context. */
void ov_density_close(struct ov_engine *engine)
{
    free(engine->density.timing);
    memset(&engine->density, 0, sizeof engine->density);
}

static double link_bytes_per_s(const struct ov_engine *engine)
{
    const double known[] = {engine->ring.link_bytes_per_s, engine->density.link_bytes_per_s};
    return known[0] > 0 ? known[0] : known[1] > 0 ? known[1] : OV_PLAN_LINK * (double)OV_PAGE_BYTES;
}

/* Copies most of a page that stands in the host, some times. In an exclusive section, with nothing under way. */
static void measure_link(struct ov_engine *engine)
{
    enum { COPIES = 8 };
    struct ov_density *density = &engine->density;
    const struct ov_arena *arena = &engine->arena;
    uint32_t page = 0, high = arena->high_page;
    while (page < high && (arena->page[page].backing != OV_HOST || arena->page[page].host == 0)) {
        page++;
    }
    if (density->link_bytes_per_s > 0 || page == high || density->count == density->room) {
        return;
    }
    const struct ov_timing *timing = &density->timing[(density->first + density->count) % density->room];
    size_t bytes;
    CUdeviceptr to = ov_inspect_spare(&engine->inspect, &bytes), from = ov_mirror_address(arena, page);
    CUstream side = engine->ring.side;
    CUresult result = CUDA_SUCCESS;
    for (int copy = 0; copy <= COPIES && result == CUDA_SUCCESS; copy++) {
        result = ov_cu->cuMemcpyAsync(to, from, bytes, side);
        if (copy == 0 && result == CUDA_SUCCESS) { /* the first hides that the host needs time to queue the others */
            result = ov_cu->cuEventRecord(timing->begin, side);
        }
    }
    result = result == CUDA_SUCCESS ? ov_cu->cuEventRecord(timing->end, side) : result;
    float ms = 0;
    if (ov_finish(engine, side, result) == CUDA_SUCCESS &&
        ov_cu->cuEventElapsedTime(&ms, timing->begin, timing->end) == CUDA_SUCCESS && ms > 0) {
        density->link_bytes_per_s = COPIES * (double)bytes / (ms * 1e-3);
    }
}

void ov_density_sum_up(struct ov_engine *engine)
{
    size_t pages = 0;
    double read_pages = 0;
    for (uint32_t i = 0; i < engine->ring.unit_count; i++) {
        const struct ov_unit *unit = &engine->ring.unit[i];
        if (unit->tier == OV_TIER_HOST && unit->sparse) {
            pages += unit->pages;
            read_pages += (double)unit->share * unit->pages;
        }
    }
    engine->last_plan.in_part = pages;
    engine->last_plan.share = pages > 0 ? read_pages / (double)pages : 0;
}

/* The unit is not looked at any more. */
static void end_test(struct ov_engine *engine, const struct ov_unit *unit)
{
    bool near = ov_reach_next(engine, ov_page_address(&engine->arena, unit->first)) != UINT32_MAX;
    for (uint32_t p = unit->first; p < unit->first + unit->pages; p++) {
        uint32_t timed = OV_UNIT_TIMED;
        (void)atomic_compare_exchange_strong(&engine->arena.unit[p], &timed, near ? OV_UNIT_NEAR : 0);
    }
    ov_graphs_stale();
    engine->density.tests--;
}

static void note_test(struct ov_engine *engine, const struct ov_timing *timing, double seconds)
{
    struct ov_unit *unit = &engine->ring.unit[timing->unit - 1];
    if (timing->plan != engine->plans || unit->pages == 0 || unit->tests == TESTS) {
        return;
    }
    unit->tested_s += seconds;
    if (++unit->tests < TESTS) {
        return;
    }
    double whole_s = (double)unit->bytes / link_bytes_per_s(engine);
    unit->share = (float)(unit->tested_s / TESTS * unit->reads / whole_s);
    if (unit->share > DENSE_ABOVE) {
        engine->learn.memo[unit->first].refuted = true;
        engine->replan_soon = true;
        ov_log(OV_LOG_INFO, "device %d: %u MiB in host memory are read as a whole after all: not left there",
               engine->device, unit->pages * 2);
    }
    ov_density_sum_up(engine);
    end_test(engine, unit);
}

static void note_time(struct ov_engine *engine, const struct ov_timing *timing, double seconds)
{
    struct ov_learn *learn = &engine->learn;
    uint32_t took_ns = seconds < 4 ? (uint32_t)(seconds * 1e9) : UINT32_MAX;
    for (uint64_t at = timing->place; at < timing->place + timing->entries; at++) {
        if (at + OV_LOG_ENTRIES > learn->head) {
            learn->log[at % OV_LOG_ENTRIES].took_ns = took_ns > 0 ? took_ns : 1;
        }
    }
    if (timing->unit != 0) {
        note_test(engine, timing, seconds);
    }
}

/* Of the oldest launch. False: it is not over yet. */
static bool collect_one(struct ov_engine *engine)
{
    struct ov_density *density = &engine->density;
    struct ov_timing *timing = &density->timing[density->first];
    float ms = 0;
    if (!timing->ended) {
        return false;
    }
    CUresult result =
        timing->dropped ? CUDA_ERROR_INVALID_VALUE : ov_cu->cuEventElapsedTime(&ms, timing->begin, timing->end);
    if (result == CUDA_ERROR_NOT_READY) {
        return false;
    }
    density->first = (density->first + 1) % density->room;
    density->count--;
    if (result == CUDA_SUCCESS && ms >= 0) {
        note_time(engine, timing, ms * 1e-3);
    }
    return true;
}

void ov_density_collect(struct ov_engine *engine)
{
    while (engine->density.count > 0 && atomic_load(&ov_captures) == 0 && collect_one(engine)) {
    }
}

void ov_density_moved(struct ov_engine *engine, uint32_t first, uint32_t pages)
{
    for (uint32_t p = first; p < first + pages; p++) {
        engine->learn.memo[p].moved = engine->learn.head;
    }
}

static bool touches_large(struct ov_engine *engine, uint64_t place, uint32_t entries)
{
    for (uint64_t at = place; at < place + entries; at++) {
        uint64_t address = engine->learn.log[at % OV_LOG_ENTRIES].address;
        const struct ov_alloc *alloc = ov_alloc_of(engine, ov_arena_page(&engine->arena, address));
        if (alloc != NULL && alloc->held >= OV_DENSITY_PAGES) {
            return true;
        }
    }
    return false;
}

void ov_density_begin(struct ov_engine *engine, struct ov_launch *launch, uint64_t place, uint32_t entries,
                      uint32_t unit)
{
    struct ov_density *density = &engine->density;
    if (density->room == 0 || atomic_load(&ov_captures) != 0 || (unit == 0 && !touches_large(engine, place, entries)) ||
        (density->count == density->room && !collect_one(engine))) {
        return;
    }
    uint32_t index = (density->first + density->count) % density->room;
    struct ov_timing *timing = &density->timing[index];
    if (ov_cu->cuEventRecord(timing->begin, launch->stream) != CUDA_SUCCESS) {
        return;
    }
    timing->place = place;
    timing->entries = entries;
    timing->unit = unit;
    timing->plan = engine->plans;
    timing->ended = timing->dropped = false;
    density->count++;
    launch->timing = 1 + index;
}

void ov_density_end(struct ov_engine *engine, struct ov_launch *launch)
{
    if (engine->density.timing == NULL) {
        return; /* the context went away meanwhile */
    }
    struct ov_timing *timing = &engine->density.timing[launch->timing - 1];
    timing->dropped =
        atomic_load(&ov_captures) != 0 || ov_cu->cuEventRecord(timing->end, launch->stream) != CUDA_SUCCESS;
    timing->ended = true;
}

uint32_t ov_density_unit(const struct ov_engine *engine, uint64_t address)
{
    const struct ov_ring *ring = &engine->ring;
    uint32_t low = 0, high = ring->unit_count;
    while (low < high) { /* units are sorted by address; those that were freed keep their place */
        uint32_t middle = (low + high) / 2;
        if (ring->unit[middle].end <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < ring->unit_count && ring->unit[low].begin <= address && ring->unit[low].pages > 0 ? low + 1 : 0;
}

/* ---- judging ---- */

/* What was seen of the kernels that touch a run. */
struct readers {
    const struct ov_kernel *kernel[KERNELS];
    uint32_t touches[KERNELS], timed[KERNELS];
    double timed_s[KERNELS];
    uint32_t count, launch, launches; /* launch: the last one counted */
    uint64_t moved;                   /* times from before that place in the log do not count */
    bool crowded;
};

static void add_reader(struct readers *readers, const struct ov_log_entry *entry, bool valid)
{
    uint32_t i = 0;
    if (readers->launch == entry->launch) {
        return; /* it passes several addresses of it */
    }
    readers->launch = entry->launch;
    readers->launches++;
    while (i < readers->count && readers->kernel[i] != entry->kernel) {
        i++;
    }
    if (i == KERNELS) {
        readers->crowded = true;
        return;
    }
    readers->kernel[i] = entry->kernel;
    readers->count = i == readers->count ? i + 1 : readers->count;
    readers->touches[i]++;
    if (valid && entry->took_ns > 0) {
        readers->timed[i]++;
        readers->timed_s[i] += entry->took_ns * 1e-9;
    }
}

/* Whether the time of an entry still says something: what stood behind its address then still does, and nothing else of
 * the run has moved since. */
static bool still_valid(const struct ov_engine *engine, const struct ov_log_entry *entry, uint64_t place,
                        const struct readers *readers)
{
    bool host = engine->arena.page[ov_arena_page(&engine->arena, entry->address)].backing == OV_HOST;
    return entry->on_host == host && place >= readers->moved;
}

/* When a page of the run moved last, as a place in the log. */
static uint64_t last_moved(const struct ov_engine *engine, const struct ov_run *run)
{
    uint64_t moved = 0;
    for (uint32_t p = run->first; p < run->first + run->pages; p++) {
        moved = engine->learn.memo[p].moved > moved ? engine->learn.memo[p].moved : moved;
    }
    return moved;
}

/* What reading all of the run takes at least, as it stands. */
static double whole_time_s(const struct ov_engine *engine, const struct ov_run *run, bool *on_host)
{
    double host_bytes = 0, device_bytes = 0;
    for (uint32_t p = run->first; p < run->first + run->pages; p++) {
        *(engine->arena.page[p].backing == OV_HOST ? &host_bytes : &device_bytes) += (double)OV_PAGE_BYTES;
    }
    *on_host = host_bytes > device_bytes;
    double rate = engine->density.device_bytes_per_s;
    return *on_host ? host_bytes / link_bytes_per_s(engine) : rate > 0 ? device_bytes / rate : 0;
}

/* What the launches of a cycle read of the run, in parts of it, at most; 1 and more: all, or not known. */
static double share_of(const struct ov_engine *engine, const struct ov_run *run, const struct readers *readers,
                       double cycles)
{
    bool on_host;
    double whole_s = whole_time_s(engine, run, &on_host), sum = 0;
    for (uint32_t i = 0; i < readers->count; i++) {
        if (readers->timed[i] == 0) {
            return 1;
        }
        double mean_s = readers->timed_s[i] / readers->timed[i];
        if (!on_host) {
            if (mean_s >= PROOF * whole_s) {
                return 1;
            }
            mean_s = mean_s > LAUNCH_S ? mean_s - LAUNCH_S : 0;
        }
        sum += mean_s * readers->touches[i];
    }
    return readers->crowded || readers->count == 0 || whole_s <= 0 ? 1 : sum / cycles / whole_s;
}

/* It has moved, and since then not all who read it were timed. */
static bool is_open(const struct readers *readers)
{
    uint32_t timed = 0;
    while (timed < readers->count && readers->timed[timed] > 0) {
        timed++;
    }
    return readers->moved > 0 && timed < readers->count;
}

static void judge_run(struct ov_engine *engine, struct ov_run *run, const struct readers *readers, double cycles)
{
    struct ov_memo *memo = &engine->learn.memo[run->first];
    if (readers->launches > 0) {
        run->share = (float)share_of(engine, run, readers, cycles);
        run->reads = (float)(readers->launches / cycles);
    }
    if (readers->launches > 0 && !is_open(readers)) { /* else what was known before stands */
        bool sparse = run->share < (memo->sparse ? DENSE_ABOVE : SPARSE_BELOW);
        memo->refuted = memo->refuted || (memo->sparse && !sparse);
        memo->sparse = sparse;
    }
    run->sparse = memo->sparse && !memo->refuted;
    if (run->sparse) {
        ov_log(OV_LOG_DEBUG, "device %d: %u MiB at page %u are read in part: %.1f launches a cycle read %.2f %% of it",
               engine->device, run->pages * 2, run->first, (double)run->reads, 100.0 * (double)run->share);
    }
}

void ov_density_judge(struct ov_engine *engine, struct ov_runs *runs, const struct ov_density_log *log)
{
    struct readers *readers = calloc((size_t)runs->count + 1, sizeof *readers);
    measure_link(engine);
    for (uint32_t i = 0; readers != NULL && i < runs->count; i++) {
        readers[i].moved = last_moved(engine, &runs->item[i]);
    }
    for (size_t i = 0; readers != NULL && i < log->count; i++) {
        if (log->run[i] != 0) {
            struct readers *of_run = &readers[log->run[i] - 1];
            add_reader(of_run, &log->entry[i], still_valid(engine, &log->entry[i], log->place[i], of_run));
        }
    }
    for (uint32_t i = 0; i < runs->count; i++) {
        runs->item[i].sparse = false;
        if (readers != NULL && runs->item[i].pages >= OV_DENSITY_PAGES) {
            judge_run(engine, &runs->item[i], &readers[i], log->cycles > 1 ? log->cycles : 1);
        }
    }
    free(readers);
}

/* ---- after a plan ---- */

static void begin_tests(struct ov_engine *engine)
{
    engine->density.tests = engine->density.quiet = 0;
    for (uint32_t i = 0; i < engine->ring.unit_count; i++) {
        struct ov_unit *unit = &engine->ring.unit[i];
        if (unit->tier != OV_TIER_HOST || !unit->sparse || unit->pages == 0 || engine->density.room == 0) {
            continue;
        }
        engine->density.tests++;
        unit->tests = 0;
        unit->tested_s = 0;
        for (uint32_t p = unit->first; p < unit->first + unit->pages; p++) {
            atomic_store_explicit(&engine->arena.unit[p], OV_UNIT_TIMED, memory_order_relaxed);
        }
    }
    ov_graphs_stale();
}

bool ov_density_meet(struct ov_engine *engine, uint64_t address)
{
    uint32_t unit = ov_density_unit(engine, address);
    if (unit == 0 || engine->ring.unit[unit - 1].tier != OV_TIER_HOST || !engine->ring.unit[unit - 1].sparse) {
        return false;
    }
    uint32_t met = ++engine->density.met;
    if ((met & (met - 1)) == 0) {
        begin_tests(engine);
    }
    return true;
}

void ov_density_test(struct ov_engine *engine)
{
    engine->density.wait = FIRST_WAIT;
    measure_link(engine);
    begin_tests(engine);
}

void ov_density_quiet(struct ov_engine *engine)
{
    struct ov_density *density = &engine->density;
    ov_density_collect(engine);
    if (density->wait > 0 && ++density->quiet >= density->wait) {
        density->wait = density->wait < LAST_WAIT ? 2 * density->wait : LAST_WAIT;
        begin_tests(engine);
    }
}
