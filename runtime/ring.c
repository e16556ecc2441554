#include "ring.h"

#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "graph.h"
#include "log.h"

static _Atomic uint64_t thread_numbers;
static _Thread_local uint64_t thread_number;

CUresult ov_ring_open(struct ov_engine *engine)
{
    if (engine->ring.side != NULL) {
        return CUDA_SUCCESS;
    }
    int least = 0, greatest = 0;
    (void)ov_cu->cuCtxGetStreamPriorityRange(&least, &greatest);
    return ov_cu->cuStreamCreateWithPriority(&engine->ring.side, CU_STREAM_NON_BLOCKING, greatest);
}

/* A window of `pages` onto the handles. */
static CUresult open_window(const struct ov_arena *arena, const CUmemGenericAllocationHandle *handle, uint32_t pages,
                            CUdeviceptr *window)
{
    size_t bytes = (size_t)pages << OV_PAGE_SHIFT;
    CUresult result = ov_cu->cuMemAddressReserve(window, bytes, OV_PAGE_BYTES, 0, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = ov_map_handles(arena, *window, pages, handle);
    if (result != CUDA_SUCCESS) {
        (void)ov_cu->cuMemAddressFree(*window, bytes);
    }
    return result;
}

static void close_window(struct ov_ring *ring)
{
    if (ring->pages > 0) {
        (void)ov_cu->cuMemUnmap(ring->window, (size_t)ring->pages << OV_PAGE_SHIFT);
        (void)ov_cu->cuMemAddressFree(ring->window, (size_t)ring->pages << OV_PAGE_SHIFT);
    }
}

CUresult ov_ring_resize(struct ov_engine *engine, uint32_t pages)
{
    struct ov_ring *ring = &engine->ring;
    uint32_t kept = pages < ring->pages ? pages : ring->pages;
    if (pages == ring->pages) {
        return CUDA_SUCCESS;
    }
    /* Copies of a plan that was just made may be under way through the window. */
    CUresult idle = ring->pages > 0 ? ov_finish(engine, ring->side, CUDA_SUCCESS) : CUDA_SUCCESS;
    if (idle != CUDA_SUCCESS) {
        return idle;
    }
    CUmemGenericAllocationHandle *handle = calloc((size_t)pages + 1, sizeof *handle);
    uint32_t *owner = calloc((size_t)pages + 1, sizeof *owner);
    CUdeviceptr window = 0;
    CUresult result = handle != NULL && owner != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        if (kept > 0) {
            memcpy(handle, ring->handle, kept * sizeof *handle);
            memcpy(owner, ring->owner, kept * sizeof *owner);
        }
        result = ov_make_handles(&engine->arena, OV_FOR_RING, pages - kept, handle + kept);
    }
    if (result == CUDA_SUCCESS && pages > 0) {
        result = open_window(&engine->arena, handle, pages, &window);
        if (result != CUDA_SUCCESS) {
            ov_release_handles(&engine->arena, OV_FOR_RING, pages - kept, handle + kept);
        }
    }
    if (result != CUDA_SUCCESS) {
        free(handle);
        free(owner);
        return result;
    }
    close_window(ring);
    ov_release_handles(&engine->arena, OV_FOR_RING, ring->pages - kept, ring->handle + kept);
    free(ring->handle);
    free(ring->owner);
    ring->handle = handle;
    ring->owner = owner;
    ring->window = window;
    ring->pages = pages;
    return CUDA_SUCCESS;
}

CUresult ov_ring_provide(struct ov_engine *engine)
{
    struct ov_ring *ring = &engine->ring;
    CUresult result = ov_events_fill(&ring->plain, 2 * (size_t)ring->unit_count + 64, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS && (ov_opt.summary || ov_opt.profile_cycles > 0)) {
        size_t waits = ov_opt.summary ? 2 * (size_t)ring->unit_count : 0;
        result = ov_events_fill(&ring->timed, waits + 2, CU_EVENT_DEFAULT);
    }
    return result;
}

void ov_ring_recycle(struct ov_ring *ring, struct ov_unit *unit)
{
    ov_event_give(&ring->plain, unit->ready);
    for (int r = 0; r < OV_READERS; r++) {
        ov_event_give(&ring->plain, unit->reader[r].event);
    }
    ov_event_give(&ring->timed, unit->asked);
    ov_event_give(&ring->timed, unit->got);
    ov_event_give(&ring->timed, unit->sent);
    ov_event_give(&ring->timed, unit->came);
}

/* ---- streams ---- */

struct ov_lane *ov_ring_lane(struct ov_ring *ring, CUstream stream)
{
    uint64_t thread = 0;
    if (stream == CU_STREAM_PER_THREAD) {
        if (thread_number == 0) {
            thread_number = atomic_fetch_add(&thread_numbers, 1) + 1;
        }
        thread = thread_number;
    }
    uint64_t key = (uint64_t)(uintptr_t)stream ^ thread << 48;
    uint32_t home = (uint32_t)(key * 0x9E3779B97F4A7C15ull >> 58), victim = home;
    for (uint32_t i = 0; i < OV_LANES; i++) {
        struct ov_lane *lane = &ring->lane[(home + i) % OV_LANES];
        if (lane->stream == stream && lane->thread == thread) {
            return lane;
        }
        if (lane->stream == NULL) {
            victim = (home + i) % OV_LANES;
            break;
        }
    }
    /* New, or the table is full: then an old stream is forgotten, which only makes it wait again. */
    ring->lane[victim] = (struct ov_lane){.stream = stream, .thread = thread, .id = ++ring->last_lane};
    return &ring->lane[victim];
}

void ov_ring_forget_stream(struct ov_engine *engine, CUstream stream)
{
    /* The entry is kept, so that others are found behind it, but its handle may come back as another stream. */
    for (uint32_t i = 0; i < OV_LANES; i++) {
        if (engine->ring.lane[i].stream == stream) {
            engine->ring.lane[i].seen = 0;
            engine->ring.lane[i].id = ++engine->ring.last_lane;
        }
    }
}

/* ---- copies ---- */

CUresult ov_ring_wait_for_readers(struct ov_ring *ring, struct ov_unit *owner)
{
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < owner->reader_count && result == CUDA_SUCCESS; i++) {
        result = ov_cu->cuStreamWaitEvent(ring->side, owner->reader[i].event, 0);
        if (result != CUDA_SUCCESS) {
            const CUstreamCaptureMode mode = ov_relax();
            result = ov_cu->cuEventSynchronize(owner->reader[i].event);
            ov_relax_end(mode);
        }
    }
    if (result == CUDA_SUCCESS) {
        owner->reader_count = 0;
    }
    return result;
}

CUresult ov_ring_load(struct ov_engine *engine, uint32_t index)
{
    struct ov_ring *ring = &engine->ring;
    struct ov_unit *unit = &ring->unit[index];
    CUresult result = CUDA_SUCCESS;
    for (uint32_t p = unit->ring_page; p < unit->ring_page + unit->pages; p++) {
        if (ring->owner[p] != 0) {
            struct ov_unit *owner = &ring->unit[ring->owner[p] - 1];
            result = ov_ring_wait_for_readers(ring, owner);
            if (result != CUDA_SUCCESS) {
                return result; /* nothing was overwritten, those in the pages still are their owners */
            }
            owner->loaded = false;
        }
    }
    for (uint32_t p = unit->ring_page; p < unit->ring_page + unit->pages; p++) {
        ring->owner[p] = index + 1;
    }
    ring->last_turn = 0;
    unit->by_graph = false;
    ov_meter_account(ring, unit);
    unit->copied = false;
    bool metered = !engine->profiler.hushed && ov_meter_begin(ring, unit);
    result = ov_event_take(&ring->plain, &unit->ready);
    if (result == CUDA_SUCCESS) {
        CUdeviceptr to = ring->window + ((CUdeviceptr)unit->ring_page << OV_PAGE_SHIFT);
        result = unit->source != 0 ? ov_cu->cuMemcpyAsync(to, unit->source, unit->bytes, ring->side)
                                   : ov_master_fetch(engine, to, unit->first, unit->pages, ring->side);
    }
    if (metered) {
        ov_meter_end(ring, unit);
    }
    if (result == CUDA_SUCCESS) {
        result = ov_cu->cuEventRecord(unit->ready, ring->side);
    }
    unit->loaded = result == CUDA_SUCCESS;
    unit->load = ++ring->loads;
    ring->counts.copies++;
    return result;
}

/* `after` waits for all that `before` was given so far. */
static CUresult follow(struct ov_ring *ring, CUstream before, CUstream after)
{
    CUresult result = ov_event_take(&ring->plain, &ring->hushed);
    result = result == CUDA_SUCCESS ? ov_cu->cuEventRecord(ring->hushed, before) : result;
    return result == CUDA_SUCCESS ? ov_cu->cuStreamWaitEvent(after, ring->hushed, 0) : result;
}

CUresult ov_ring_hush(struct ov_ring *ring, CUstream stream)
{
    const CUresult result = follow(ring, ring->side, stream);
    ring->counts.waits += result == CUDA_SUCCESS;
    return result;
}

CUresult ov_ring_load_alone(struct ov_engine *engine, uint32_t index, CUstream stream)
{
    if (follow(&engine->ring, stream, engine->ring.side) != CUDA_SUCCESS) {
        ov_profiler_lose(&engine->profiler); /* the stream is another context's, whose events ours are not */
    }
    return ov_ring_load(engine, index);
}

/* ---- launches ---- */

static bool held_by_others(const struct ov_ring *ring, const struct ov_unit *unit, uint32_t index)
{
    for (uint32_t p = unit->ring_page; p < unit->ring_page + unit->pages; p++) {
        if (ring->owner[p] != 0 && ring->owner[p] != index + 1 &&
            atomic_load_explicit(&ring->unit[ring->owner[p] - 1].holds, memory_order_acquire) > 0) {
            return true;
        }
    }
    return false;
}

static bool stuck_in_place(const struct ov_ring *ring, const struct ov_unit *unit)
{
    for (uint32_t p = unit->ring_page; p < unit->ring_page + unit->pages; p++) {
        if (ring->owner[p] != 0 && ring->unit[ring->owner[p] - 1].stuck) {
            return true;
        }
    }
    return false;
}

/* In a hushed pass, as nobody sees it. */
static CUresult wait_alone(struct ov_ring *ring, const struct ov_unit *unit, CUstream stream, struct ov_lane *lane)
{
    CUresult result = ov_cu->cuStreamWaitEvent(stream, unit->by_graph ? ring->turned : unit->ready, 0);
    if (result == CUDA_SUCCESS) {
        lane->seen = unit->load;
        ring->counts.waits++;
    }
    ov_pace_lose(&ring->pace);
    return result;
}

static CUresult make_visible(struct ov_engine *engine, uint32_t index, CUstream stream, struct ov_lane *lane)
{
    struct ov_ring *ring = &engine->ring;
    struct ov_unit *unit = &ring->unit[index];
    const bool hushed = engine->profiler.hushed;
    bool touched = ring->timetable.passes > 0 && ov_timetable_touch(ring, index, stream, hushed);
    if (lane->seen >= unit->load) {
        return CUDA_SUCCESS;
    }
    if (__builtin_expect(hushed, 0)) {
        return wait_alone(ring, unit, stream, lane);
    }
    bool timed = ov_meter_wait_begin(ring, unit, stream);
    CUresult result = ov_cu->cuStreamWaitEvent(stream, unit->by_graph ? ring->turned : unit->ready, 0);
    if (result == CUDA_SUCCESS) {
        if (timed) {
            ov_meter_wait_end(unit, stream);
        }
        if (touched) {
            ov_timetable_got(ring, stream);
        }
        lane->seen = unit->load;
        ring->counts.waits++;
        if (__builtin_expect(unit->paced != OV_PACED_NOT, 0)) {
            ov_pace_pass(&ring->pace, unit, stream);
        }
    }
    return result;
}

/* The touch comes as expected, and the plan gave the unit the place of the one touched just before: no copy of it could
 * begin any earlier. */
static bool follows_its_neighbour(const struct ov_ring *ring, uint32_t index)
{
    return ring->newest != 0 && ov_trace_peek(&ring->trace, 1) == index &&
           ov_units_overlap(&ring->unit[ring->newest - 1], &ring->unit[index]);
}

enum ov_acquire ov_ring_acquire(struct ov_engine *engine, struct ov_launch *launch)
{
    struct ov_ring *ring = &engine->ring;
    if (ring->turning) {
        return OV_BUSY;
    }
    for (unsigned i = 0; i < launch->units; i++) {
        for (unsigned j = 0; j < i; j++) {
            if (ov_units_overlap(&ring->unit[launch->unit[i]], &ring->unit[launch->unit[j]])) {
                return OV_CONFLICT;
            }
        }
    }
    for (unsigned i = 0; i < launch->units; i++) { /* then they hold none of each other's places */
        const struct ov_unit *unit = &ring->unit[launch->unit[i]];
        if (unit->stuck || (!unit->loaded && stuck_in_place(ring, unit))) {
            return OV_REFUSED;
        }
        if (!unit->loaded && held_by_others(ring, unit, launch->unit[i])) {
            return OV_BUSY;
        }
    }
    struct ov_lane *lane = ov_ring_lane(ring, launch->stream);
    bool stalled = false;
    ring->last_turn = 0;
    for (unsigned i = 0; i < launch->units; i++) {
        const bool foreseen = follows_its_neighbour(ring, launch->unit[i]);
        ov_ring_step(ring, launch->unit[i]);
        if (!ring->unit[launch->unit[i]].loaded && engine->profiler.hushed) {
            if (ov_ring_load_alone(engine, launch->unit[i], launch->stream) != CUDA_SUCCESS) {
                return OV_REFUSED;
            }
        } else if (!ring->unit[launch->unit[i]].loaded) {
            ring->counts.misses++;
            if (ov_ring_load(engine, launch->unit[i]) != CUDA_SUCCESS) {
                return OV_REFUSED;
            }
            stalled |= !foreseen && ov_stall_miss(engine, launch, launch->unit[i]);
        }
    }
    if (stalled) {
        return OV_STALLED;
    }
    for (unsigned i = 0; i < launch->units; i++) {
        if (make_visible(engine, launch->unit[i], launch->stream, lane) != CUDA_SUCCESS) {
            return OV_REFUSED;
        }
    }
    for (unsigned i = 0; i < launch->units; i++) {
        atomic_fetch_add_explicit(&ring->unit[launch->unit[i]].holds, 1, memory_order_relaxed);
    }
    return OV_ACQUIRED;
}

/* ---- trials ---- */

CUresult ov_ring_lend(struct ov_engine *engine, uint32_t index)
{
    struct ov_ring *ring = &engine->ring;
    struct ov_unit *unit = &ring->unit[index];
    if (unit->tier != OV_TIER_STREAMED || unit->on_trial || held_by_others(ring, unit, index) ||
        !ov_master_is_private(&engine->arena, unit->first, unit->pages)) {
        return CUDA_ERROR_NOT_READY;
    }
    CUresult result = ov_finish(engine, ring->side, unit->loaded ? CUDA_SUCCESS : ov_ring_load(engine, index));
    if (result == CUDA_SUCCESS) {
        result = ov_arena_access(&engine->arena, ov_page_address(&engine->arena, unit->first), unit->bytes,
                                 CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    }
    if (result == CUDA_SUCCESS) {
        unit->on_trial = true;
        atomic_fetch_add_explicit(&unit->holds, 1, memory_order_relaxed);
    }
    return result;
}

static void end_trial(struct ov_unit *unit)
{
    if (unit->on_trial) {
        unit->on_trial = unit->stuck = false;
        atomic_fetch_sub_explicit(&unit->holds, 1, memory_order_release);
    }
}

CUresult ov_ring_take_back(struct ov_engine *engine, uint32_t index)
{
    struct ov_unit *unit = &engine->ring.unit[index];
    CUresult result = ov_arena_access(&engine->arena, ov_page_address(&engine->arena, unit->first), unit->bytes,
                                      CU_MEM_ACCESS_FLAGS_PROT_READ);
    if (result == CUDA_SUCCESS) {
        end_trial(unit);
    }
    return result;
}

CUresult ov_ring_write_back(struct ov_engine *engine, const struct ov_unit *unit)
{
    struct ov_ring *ring = &engine->ring;
    CUdeviceptr from = ring->window + ((CUdeviceptr)unit->ring_page << OV_PAGE_SHIFT);
    CUresult result = ov_master_store(engine, unit->first, unit->pages, from, ring->side);
    return ov_finish(engine, ring->side, result);
}

void ov_ring_wait_instead(CUstream stream)
{
    const CUstreamCaptureMode mode = ov_relax();
    ov_log_once(OV_LOG_ERROR, "an event could not be recorded: the device is waited for instead");
    (void)ov_cu->cuStreamSynchronize(stream);
    ov_relax_end(mode);
}

/* Remembers that the stream reads the unit up to this point. */
static CUresult note_reader(struct ov_ring *ring, struct ov_unit *unit, uint64_t lane, CUstream stream)
{
    uint32_t i = 0;
    while (i < unit->reader_count && unit->reader[i].lane != lane) {
        i++;
    }
    if (i == OV_READERS) {
        /* Too many streams to remember: all further copies wait for this one. */
        CUevent *event = &unit->reader[0].event;
        CUresult result = ov_cu->cuStreamWaitEvent(ring->side, *event, 0);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        i = 0;
    }
    CUresult result = ov_event_take(&ring->plain, &unit->reader[i].event);
    if (result == CUDA_SUCCESS) {
        result = ov_cu->cuEventRecord(unit->reader[i].event, stream);
    }
    if (result == CUDA_SUCCESS) {
        unit->reader[i].lane = lane;
        unit->reader_count = unit->reader_count > i + 1 ? unit->reader_count : i + 1;
    }
    return result;
}

void ov_ring_release(struct ov_engine *engine, struct ov_launch *launch)
{
    struct ov_ring *ring = &engine->ring;
    struct ov_lane *lane = ov_ring_lane(ring, launch->stream);
    for (unsigned i = 0; i < launch->units; i++) {
        struct ov_unit *unit = &ring->unit[launch->unit[i]];
        if (note_reader(ring, unit, lane->id, launch->stream) != CUDA_SUCCESS) {
            ov_ring_wait_instead(launch->stream);
        }
        atomic_fetch_sub_explicit(&unit->holds, 1, memory_order_release);
    }
    ov_ring_launched(engine);
}

/* ---- leaving ---- */

CUresult ov_ring_settle(struct ov_engine *engine, struct ov_unit *unit)
{
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < unit->reader_count && result == CUDA_SUCCESS; i++) {
        result = ov_cu->cuEventSynchronize(unit->reader[i].event);
    }
    if (result == CUDA_SUCCESS &&
        engine->ring.loads != 0) { /* a graph may have read it that left another in its place */
        result = ov_finish(engine, engine->ring.side, CUDA_SUCCESS);
    }
    return result;
}

static void set_edges(struct ov_ring *ring, const struct ov_unit *unit, uint32_t value)
{
    for (uint32_t i = 0; i < ring->edge_count; i++) {
        if (ring->edge[i].begin >= unit->begin && ring->edge[i].end <= unit->end) {
            atomic_store_explicit(&ring->edge[i].unit, value, memory_order_relaxed);
        }
    }
}

void ov_ring_find_master(struct ov_engine *engine, uint32_t index)
{
    struct ov_unit *unit = &engine->ring.unit[index];
    struct ov_piece piece = ov_master_piece(&engine->arena, unit->first, unit->pages);
    unit->source = piece.pages == unit->pages && !piece.pageable ? piece.address : 0;
}

void ov_ring_add(struct ov_engine *engine, uint32_t index)
{
    struct ov_ring *ring = &engine->ring;
    struct ov_unit *unit = &ring->unit[index];
    for (uint32_t p = unit->first; p < unit->first + unit->pages; p++) {
        atomic_store_explicit(&engine->arena.unit[p], index + 1, memory_order_relaxed);
    }
    set_edges(ring, unit, index + 1);
    int idle = OV_IDLE; /* from now on every launch has to be looked at; none is under way, the gate is closed */
    (void)atomic_compare_exchange_strong(&ov_state, &idle, OV_ARMED);
    ov_ring_find_master(engine, index);
    unit->tier = OV_TIER_STREAMED;
    unit->loaded = false;
    ring->streamed_count++;
    ring->last_turn = 0;
    ov_graphs_stale();
}

void ov_ring_remove(struct ov_engine *engine, uint32_t index)
{
    struct ov_ring *ring = &engine->ring;
    struct ov_unit *unit = &ring->unit[index];
    for (uint32_t p = unit->first; p < unit->first + unit->pages; p++) {
        atomic_store_explicit(&engine->arena.unit[p], OV_UNIT_NEAR, memory_order_relaxed);
    }
    set_edges(ring, unit, 0);
    for (uint32_t p = 0; p < ring->pages; p++) {
        if (ring->owner[p] == index + 1) {
            ring->owner[p] = 0;
        }
    }
    end_trial(unit);
    unit->loaded = false;
    unit->reader_count = 0;
    ring->streamed_count--;
    ring->last_turn = 0;
    ov_graphs_stale();
}

void ov_ring_close(struct ov_engine *engine)
{
    struct ov_ring *ring = &engine->ring;
    (void)ov_ring_resize(engine, 0);
    ov_timetable_close(ring);
    ov_trace_destroy(&ring->trace);
    free(ring->handle);
    free(ring->owner);
    free(ring->unit);
    free(ring->edge);
    free(ring->plain.item);
    free(ring->timed.item);
    memset(ring, 0, sizeof *ring);
}
