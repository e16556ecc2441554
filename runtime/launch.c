/*
 * The launch path: see "Launches" in runtime.h.
 *
 * Most launches touch no unit: they pass the gate, are scanned, and go. Those that touch streamed units take the
 * engine's lock once before and once after the driver's call. Everything else (trials, units in the wrong tier,
 * captures) leaves the path through an exclusive section and starts over.
 */
#include <sched.h>
#include <string.h>

#include "convert.h"
#include "engine.h"
#include "gate.h"
#include "launch.h"
#include "log.h"
#include "runtime.h"
#include "scan.h"
#include "search.h"
#include "watch.h"
#include "zerocopy.h"

/* Rounds of taking units out of the ring before a launch is given up: each round takes out at least one unit, so this
 * is only reached when the driver refuses everything. */
#define ROUNDS 64

/* Rounds in which a unit could not be taken out, after which the driver's error is the launch's. */
#define FAILURES 3u

/* Launches without a quiet point after which one is made; and after which one is found where a stream has nothing left
 * to do. Programs that are told by host functions what is over, as JAX is, wait without asking the driver. Where one
 * was found so, it is looked for sooner, as long as the program never waits in a way that is seen. */
#define OVERDUE_LAUNCHES 4096u
#define IDLE_LAUNCHES    512u
#define IDLE_AGAIN       64u

static _Atomic bool seeks_idle;

/* What has to be done to a unit before the launch. */
struct verdict {
    uint32_t take_out[OV_TOUCHES], on_trial[OV_LAUNCH_UNITS];
    uint8_t mark[OV_TOUCHES];
    unsigned take_outs, trials;
    bool unknown;   /* a trial is about what the kernel does with the unit, not only about how far it writes */
    uint32_t timed; /* 1 + a host-mapped unit whose readers are timed, 0: none */
};

static void take_out(struct verdict *verdict, uint32_t unit, unsigned mark)
{
    if (verdict->take_outs == OV_TOUCHES) {
        return; /* the launch is looked at again when these are out */
    }
    for (unsigned i = 0; i < verdict->take_outs; i++) {
        if (verdict->take_out[i] == unit) {
            return;
        }
    }
    verdict->take_out[verdict->take_outs] = unit;
    verdict->mark[verdict->take_outs++] = (uint8_t)mark;
}

static void add_unit(struct ov_launch *launch, struct verdict *verdict, uint32_t unit)
{
    for (unsigned i = 0; i < launch->units; i++) {
        if (launch->unit[i] == unit) {
            return;
        }
    }
    if (launch->units < OV_LAUNCH_UNITS) {
        launch->unit[launch->units++] = unit;
    } else {
        take_out(verdict, unit, OV_MARK_CROWDED);
    }
}

static void try_unit(struct verdict *verdict, uint32_t unit)
{
    for (unsigned i = 0; i < verdict->trials; i++) {
        if (verdict->on_trial[i] == unit) {
            return;
        }
    }
    if (verdict->trials < OV_LAUNCH_UNITS) {
        verdict->on_trial[verdict->trials++] = unit;
    } else {
        take_out(verdict, unit, OV_MARK_CROWDED);
    }
}

/* Units from `first` on, to the end of the allocation or to `limit`: what an address in front of them, or in the first,
 * may reach. As many as can be tried. (Units are in the order of their addresses.) */
static void try_from(struct ov_engine *engine, const struct ov_launch *launch, struct verdict *verdict, uint32_t first,
                     uint64_t limit)
{
    const struct ov_ring *ring = &engine->ring;
    uint32_t alloc = engine->arena.page[ring->unit[first].first].alloc;
    for (uint32_t i = first; i < ring->unit_count && verdict->trials < OV_LAUNCH_UNITS; i++) {
        const struct ov_unit *unit = &ring->unit[i];
        if (unit->pages > 0 && (engine->arena.page[unit->first].alloc != alloc || unit->begin >= limit)) {
            return;
        }
        if (unit->pages == 0 || unit->tier != OV_TIER_STREAMED || ov_watch_tries(launch->watch, i)) {
            continue;
        }
        if (unit->on_trial) {
            take_out(verdict, i, 0); /* by another thread's launch: its judgement then is about both */
        } else {
            try_unit(verdict, i);
        }
    }
}

/* What is written from this address on may reach the units behind it. */
static void try_behind(struct ov_engine *engine, const struct ov_launch *launch, struct verdict *verdict,
                       uint64_t address)
{
    uint32_t next = ov_reach_next(engine, address);
    if (next != UINT32_MAX) {
        try_from(engine, launch, verdict, next, address + OV_REACH_BYTES);
    }
}

/* Host memory that nobody was expected to touch is touched: it counts from now on. */
static void warm_up(struct ov_engine *engine, uint32_t page)
{
    struct ov_alloc *alloc = ov_alloc_of(engine, page);
    if (alloc == NULL) {
        return;
    }
    alloc->visits++;
    for (uint32_t p = page; p < alloc->first + alloc->pages &&
                            atomic_load_explicit(&engine->arena.unit[p], memory_order_relaxed) == OV_UNIT_COLD;
         p++) {
        engine->learn.memo[p].used = true;
    }
    for (uint32_t p = alloc->first; p < alloc->first + alloc->pages; p++) {
        uint32_t cold = OV_UNIT_COLD;
        (void)atomic_compare_exchange_strong(&engine->arena.unit[p], &cold, OV_UNIT_NEAR);
    }
    ov_engine_learn(engine);
}

/* Under the engine's lock: which units the launch uses, and which of them it may not find in the ring. */
static void judge(struct ov_engine *engine, struct ov_launch *launch, const struct ov_touches *touches, bool foreign,
                  struct verdict *verdict)
{
    launch->units = 0;
    verdict->take_outs = verdict->trials = 0;
    verdict->unknown = false;
    verdict->timed = 0;
    for (unsigned i = 0; launch->watch != NULL && i < launch->watch->units; i++) {
        if (engine->ring.unit[launch->watch->unit[i]].on_trial) {
            add_unit(launch, verdict, launch->watch->unit[i]); /* the launch may reach it, named or not */
        }
    }
    for (unsigned i = 0; i < touches->count; i++) {
        if (ov_engine_of(touches->item[i].address) != engine) {
            continue;
        }
        uint32_t unit = ov_unit_at(&engine->arena, &engine->ring, touches->item[i].address);
        if (unit == OV_UNIT_COLD) {
            warm_up(engine, ov_arena_page(&engine->arena, touches->item[i].address));
            unit = OV_UNIT_NEAR;
        }
        if (unit == OV_UNIT_TIMED) {
            verdict->timed = foreign ? 0 : ov_density_unit(engine, touches->item[i].address);
            unit = OV_UNIT_NEAR;
        }
        if (unit == OV_UNIT_NEAR && !ov_watch_reads_only(launch->kernel, touches->item[i].slot) &&
            !ov_reach_known(engine, launch->kernel, touches->item[i].address)) {
            try_behind(engine, launch, verdict, touches->item[i].address);
        }
        if (!ov_is_unit(unit)) {
            continue;
        }
        unit--;
        enum ov_slot_state state =
            launch->kernel != NULL ? ov_slot(launch->kernel, touches->item[i].slot) : OV_SLOT_UNKNOWN;
        if (foreign) {
            take_out(verdict, unit, OV_MARK_FOREIGN);
        } else if (launch->kernel != NULL && ov_kernel_emits(launch->kernel)) {
            take_out(verdict, unit, OV_MARK_HIDDEN);
        } else if (state == OV_SLOT_WRITER) {
            take_out(verdict, unit, OV_MARK_WRITTEN);
            try_behind(engine, launch, verdict, touches->item[i].address);
        } else if (state != OV_SLOT_READER && !ov_watch_tries(launch->watch, unit)) {
            /* It may use its address as the base of more than the unit it points into. */
            verdict->unknown = true;
            try_from(engine, launch, verdict, unit, UINT64_MAX);
        } else {
            add_unit(launch, verdict, unit);
        }
    }
}

bool ov_launch_fits(struct ov_engine *engine, struct ov_launch *launch, const struct ov_touches *touches, bool foreign,
                    bool *timed)
{
    struct verdict verdict;
    judge(engine, launch, touches, foreign, &verdict);
    *timed = verdict.timed != 0;
    return verdict.take_outs == 0 && verdict.trials == 0;
}

/* Not while somebody captures: the device cannot be waited for. */
bool ov_launch_wants_watch(const struct ov_engine *engine, const struct ov_launch *launch)
{
    return engine->learning && engine->inspect.ready && atomic_load(&ov_captures) == 0 && launch->kernel != NULL &&
           launch->watch == NULL &&
           atomic_load_explicit(&launch->kernel->watched, memory_order_relaxed) < OV_WATCH_LAUNCHES;
}

/* Takes out and tries what judge() said; looks at it again first, since others may have been faster. Not CUDA_SUCCESS:
 * a unit could not be taken out. */
static CUresult leave_path(struct ov_engine *engine, struct ov_launch *launch, const struct ov_touches *touches,
                           bool foreign)
{
    struct ov_exclusive section;
    struct verdict verdict;
    (void)ov_exclusive_begin(engine, &section);
    CUresult result = CUDA_SUCCESS;
    judge(engine, launch, touches, foreign, &verdict);
    for (unsigned i = 0; i < verdict.take_outs; i++) {
        CUresult revoked = ov_unit_revoke(engine, verdict.take_out[i], verdict.mark[i]);
        result = result != CUDA_SUCCESS ? result : revoked;
    }
    bool outputs = verdict.unknown || ov_launch_wants_watch(engine, launch);
    if ((verdict.trials > 0 || outputs) && section.idle && launch->watch == NULL) {
        launch->watch = ov_watch_begin(engine, launch, touches, verdict.on_trial, verdict.trials, outputs);
        if (launch->kernel != NULL && outputs) {
            atomic_fetch_add(&launch->kernel->watched, 1);
        }
    } else {
        for (unsigned i = 0; i < verdict.trials; i++) {
            CUresult revoked = ov_unit_revoke(engine, verdict.on_trial[i], OV_MARK_WRITTEN);
            result = result != CUDA_SUCCESS ? result : revoked;
        }
    }
    ov_exclusive_end(engine, &section);
    return result;
}

CUresult ov_launch_clear(struct ov_engine *engine, struct ov_launch *launch, const struct ov_touches *touches,
                         bool foreign)
{
    CUresult result = CUDA_SUCCESS;
    struct verdict verdict;
    do {
        judge(engine, launch, touches, foreign, &verdict);
        for (unsigned i = 0; i < launch->units && result == CUDA_SUCCESS; i++) {
            result = ov_unit_revoke(engine, launch->unit[i], OV_MARK_GRAPH);
        }
        for (unsigned i = 0; i < verdict.take_outs && result == CUDA_SUCCESS; i++) {
            result = ov_unit_revoke(engine, verdict.take_out[i], OV_MARK_GRAPH);
        }
        for (unsigned i = 0; i < verdict.trials && result == CUDA_SUCCESS; i++) {
            result = ov_unit_revoke(engine, verdict.on_trial[i], OV_MARK_GRAPH);
        }
    } while (result == CUDA_SUCCESS && launch->units + verdict.take_outs + verdict.trials > 0);
    return result;
}

/* The other devices' units that this launch names are not streamed any more. */
static CUresult serve_other_engines(const struct ov_engine *engine, const struct ov_touches *touches)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < touches->count; i++) {
        struct ov_engine *other = ov_engine_of(touches->item[i].address);
        if (other == NULL || other == engine) {
            continue;
        }
        uint32_t unit = ov_unit_at(&other->arena, &other->ring, touches->item[i].address);
        if (ov_is_unit(unit)) {
            struct ov_exclusive section;
            (void)ov_exclusive_begin(other, &section);
            unit = ov_unit_at(&other->arena, &other->ring, touches->item[i].address);
            if (ov_is_unit(unit)) {
                CUresult revoked = ov_unit_revoke(other, unit - 1, OV_MARK_FOREIGN);
                result = result != CUDA_SUCCESS ? result : revoked;
            }
            ov_exclusive_end(other, &section);
        }
    }
    return result;
}

bool ov_launch_is_foreign(struct ov_engine *engine)
{
    CUcontext current = NULL;
    if (ov_cu->cuCtxGetCurrent(&current) != CUDA_SUCCESS || current == NULL) {
        return true;
    }
    if (current == engine->context) {
        return false;
    }
    ov_note_foreign(engine, current);
    return true;
}

static CUresult serve(struct ov_engine *engine, struct ov_launch *launch, const struct ov_touches *touches)
{
    bool capturing = ov_capturing(launch->stream);
    bool logged = false;
    uint64_t place = 0; /* in the log */
    uint32_t entries = 0;
    CUresult failed = CUDA_SUCCESS;
    unsigned failures = 0;
    launch->engine = engine;
    CUresult elsewhere = serve_other_engines(engine, touches);
    if (elsewhere != CUDA_SUCCESS) {
        return elsewhere;
    }
    for (int round = 0; round < ROUNDS && failures < FAILURES; round++) {
        struct verdict verdict;
        bool foreign = ov_launch_is_foreign(engine);
        pthread_mutex_lock(&engine->lock);
        judge(engine, launch, touches, foreign, &verdict);
        if (engine->learning && !logged && !capturing) {
            place = engine->learn.head;
            ov_learn_log(engine, launch, touches);
            entries = (uint32_t)(engine->learn.head - place);
            logged = true;
        }
        if (capturing) {
            launch->units = 0; /* nothing runs now; what the graph touches is seen when it is instantiated (graph.c) */
            pthread_mutex_unlock(&engine->lock);
            return CUDA_SUCCESS;
        }
        if (verdict.take_outs > 0 || verdict.trials > 0 || ov_launch_wants_watch(engine, launch)) {
            pthread_mutex_unlock(&engine->lock);
            CUresult left = leave_path(engine, launch, touches, foreign);
            failed = left != CUDA_SUCCESS ? left : failed;
            failures += left != CUDA_SUCCESS;
            continue;
        }
        bool profiled = ov_profiler_on(&engine->profiler) && !foreign;
        if (__builtin_expect(profiled, 0)) {
            ov_profiler_arrive(engine, launch, touches);
        }
        enum ov_acquire acquired = launch->units == 0 ? OV_ACQUIRED : ov_ring_acquire(engine, launch);
        if (__builtin_expect(profiled, 0) && acquired == OV_ACQUIRED) {
            ov_profiler_depart(engine, launch);
        }
        if (acquired == OV_ACQUIRED && (verdict.timed != 0 || entries > 0) && !foreign) {
            ov_density_begin(engine, launch, place, entries, verdict.timed);
        }
        if (acquired == OV_STALLED) {
            ov_stall_say(engine);
            pthread_mutex_unlock(&engine->lock);
            launch->units = 0;
            return OV_STALL_ERROR;
        }
        if (acquired == OV_CONFLICT || acquired == OV_REFUSED) {
            pthread_mutex_unlock(&engine->lock);
            struct ov_exclusive section;
            (void)ov_exclusive_begin(engine, &section);
            for (unsigned i = 0; i < launch->units; i++) {
                CUresult left = ov_unit_revoke(engine, launch->unit[i], OV_MARK_CROWDED);
                failed = left != CUDA_SUCCESS ? left : failed;
                failures += left != CUDA_SUCCESS;
            }
            ov_exclusive_end(engine, &section);
            continue;
        }
        pthread_mutex_unlock(&engine->lock);
        if (acquired == OV_ACQUIRED) {
            return CUDA_SUCCESS;
        }
        round--; /* busy: the other thread is between begin and end of its launch, and may have to close the gate */
        int depth = ov_gate_step_out();
        sched_yield();
        ov_gate_step_in(depth);
    }
    ov_log_once(OV_LOG_ERROR, "a launch was given up: its weights could not be brought to the device");
    launch->units = 0;
    return failed != CUDA_SUCCESS ? failed : CUDA_ERROR_LAUNCH_FAILED;
}

/* The engine whose units or discovery the launch concerns; the current device's when there are several. */
static struct ov_engine *concerned(const struct ov_touches *touches)
{
    struct ov_engine *found = NULL;
    for (unsigned i = 0; i < touches->count; i++) {
        struct ov_engine *engine = ov_engine_of(touches->item[i].address);
        if (engine != NULL &&
            (engine->looking || (atomic_load_explicit(&engine->planned, memory_order_relaxed) &&
                                 ov_unit_at(&engine->arena, &engine->ring, touches->item[i].address) != 0))) {
            if (found != NULL && found != engine) {
                struct ov_engine *here = ov_engine_here();
                return here != NULL ? here : found;
            }
            found = engine;
        }
    }
    return found;
}

/* Parameters that cannot be seen may hold any address. */
CUresult ov_launch_is_opaque(const struct ov_kernel *kernel)
{
    for (int slice = 0; slice < OV_DEVICES; slice++) {
        const struct ov_engine *engine = ov_engine_at(slice);
        if (engine != NULL && engine->armed && (!engine->streaming_barred || engine->ring.streamed_count > 0)) {
            ov_log_once(OV_LOG_INFO, "kernel %s: its parameters cannot be seen", kernel != NULL ? kernel->name : "?");
            return ov_bar_streaming("a kernel was launched whose parameters cannot be seen");
        }
    }
    return CUDA_SUCCESS;
}

static void search_word(void *context, uint64_t word, uint32_t slot)
{
    CUresult *result = context, found = ov_zerocopy_exposed(word);
    (void)slot;
    *result = *result != CUDA_SUCCESS ? *result : found;
}

/* The launch passes memory that the CPU may have stored addresses in. What a captured one does is seen when its graph
 * is launched (graph_source.h). */
__attribute__((noinline, cold)) static CUresult serve_exposed(const struct ov_launch *launch)
{
    CUresult result = CUDA_SUCCESS;
    if (ov_search_needed() && !ov_capturing(launch->stream)) {
        ov_scan_words(launch->kernel, launch, search_word, &result);
    }
    return result;
}

__attribute__((noinline, cold)) static void look_for_idle(CUstream stream)
{
    struct ov_engine *engine = ov_engine_here();
    if (engine == NULL || !engine->looking) {
        atomic_store(&seeks_idle, false);
    } else if (ov_self.gate_depth == 0 && atomic_load(&ov_captures) == 0) {
        const CUstreamCaptureMode mode = ov_relax(); /* another thread may begin a capture now */
        const bool idle = ov_cu->cuStreamQuery(stream) == CUDA_SUCCESS;
        ov_relax_end(mode);
        if (idle) {
            atomic_store(&seeks_idle, false);
            ov_quiet_point();
            atomic_store(&engine->called_back, true);
        }
    }
}

void ov_launch_on(CUstream stream)
{
    if (__builtin_expect(atomic_load_explicit(&seeks_idle, memory_order_relaxed), 0)) {
        look_for_idle(stream);
    }
}

CUresult ov_launch_begin(struct ov_launch *launch)
{
    ov_launch_on(launch->stream);
    ov_gate_enter();
    launch->engine = NULL;
    launch->watch = NULL;
    launch->kernel = NULL;
    launch->timing = 0;
    launch->units = 0;
    if (atomic_load_explicit(&ov_state, memory_order_relaxed) != OV_ARMED) {
        return CUDA_SUCCESS;
    }
    struct ov_touches touches;
    launch->kernel = ov_kernel_of(launch->function);
    ov_scan(launch->kernel, launch, &touches);
    CUresult result = __builtin_expect(touches.incomplete, 0) ? ov_launch_is_opaque(launch->kernel) : CUDA_SUCCESS;
    if (__builtin_expect(touches.exposed, 0) && result == CUDA_SUCCESS) {
        result = serve_exposed(launch);
    }
    struct ov_engine *engine = touches.count > 0 ? concerned(&touches) : NULL;
    result = engine == NULL || result != CUDA_SUCCESS ? result : serve(engine, launch, &touches);
    if (__builtin_expect(result != CUDA_SUCCESS, 0)) {
        ov_launch_end(launch, result);
    }
    return result;
}

void ov_launch_end(struct ov_launch *launch, CUresult result)
{
    (void)result; /* a launch that failed has read nothing; what is recorded for it does no harm */
    struct ov_engine *engine = launch->engine;
    if (engine != NULL && (launch->units > 0 || launch->timing != 0)) {
        pthread_mutex_lock(&engine->lock);
        if (launch->timing != 0) {
            ov_density_end(engine, launch);
        }
        if (launch->units > 0) {
            ov_ring_release(engine, launch);
        }
        pthread_mutex_unlock(&engine->lock);
    }
    if (engine != NULL && launch->watch != NULL) {
        ov_watch_end(engine, launch->kernel, launch->watch);
    }
    ov_gate_leave();
    if (engine != NULL && ov_self.gate_depth == 0) {
        ov_launch_counted(engine, 1);
    }
}

void ov_launch_counted(struct ov_engine *engine, unsigned launches)
{
    if (engine->looking) {
        unsigned before = atomic_fetch_add_explicit(&engine->overdue, launches, memory_order_relaxed);
        unsigned most = atomic_load_explicit(&engine->called_back, memory_order_relaxed) ? IDLE_AGAIN : IDLE_LAUNCHES;
        if (before <= most && before + launches > most) {
            atomic_store(&seeks_idle, true);
        }
        if (before <= OVERDUE_LAUNCHES && before + launches > OVERDUE_LAUNCHES) {
            ov_quiet_point();
        }
    }
}
