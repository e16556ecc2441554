#include "engine.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "convert.h"
#include "gate.h"
#include "graph.h"
#include "hostlimit.h"
#include "log.h"
#include "runtime.h"
#include "steer.h"
#include "summary.h"

const struct ov_driver *ov_cu;
struct ov_options ov_opt;
_Atomic int ov_captures;

static struct ov_engine *_Atomic engines[OV_DEVICES]; /* by slice, which is the device's ordinal */
static _Atomic bool refused[OV_DEVICES];              /* devices that cannot be managed; said once */
static int devices;
static struct ov_engine *closed; /* those whose context went away: kept, see ov_engine_close */
static bool reserved, reserve_failed;
static pthread_mutex_t birth = PTHREAD_MUTEX_INITIALIZER; /* guards the statics above against creation by two threads */

struct ov_engine *ov_engine_at(int slice)
{
    return slice >= 0 && slice < OV_DEVICES ? atomic_load_explicit(&engines[slice], memory_order_acquire) : NULL;
}

struct ov_engine *ov_engine_of(uint64_t address)
{
    return ov_arena_has(address) ? ov_engine_at((int)ov_arena_slice(address)) : NULL;
}

_Atomic bool ov_stood_down;

struct ov_engine *ov_engine_for_memory(void)
{
    return atomic_load_explicit(&ov_stood_down, memory_order_relaxed) ? NULL : ov_engine_here();
}

bool ov_device_managed(CUdevice device)
{
    int vmm = 0;
    return !atomic_load_explicit(&ov_stood_down, memory_order_relaxed) && device >= 0 && device < OV_DEVICES &&
           !refused[device] && (ov_opt.devices >> device & 1) != 0 &&
           ov_cu->cuDeviceGetAttribute(&vmm, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device) ==
               CUDA_SUCCESS &&
           vmm != 0;
}

static bool refuse(int device, const char *why)
{
    if (device >= 0 && !refused[device]) {
        refused[device] = true;
        ov_log(OV_LOG_WARN, "device %d is left alone: %s", device, why);
    }
    return false;
}

static bool reserve(int device)
{
    if (!reserved && !reserve_failed) {
        if (ov_cu->cuDeviceGetCount(&devices) != CUDA_SUCCESS || devices > OV_DEVICES) {
            devices = OV_DEVICES;
        }
        reserved = ov_arena_reserve(devices);
        reserve_failed = !reserved;
    }
    return reserved || refuse(device, "the driver does not reserve address ranges");
}

static size_t budget_of(struct ov_engine *engine, CUdevice device)
{
    size_t free_bytes = 0, total_bytes = 0;
    if (ov_cu->cuMemGetInfo_v2(&free_bytes, &total_bytes) == CUDA_SUCCESS) {
        engine->report.others_bytes = total_bytes - free_bytes;
        engine->report.others_known = true;
    }
    if (total_bytes == 0) {
        (void)ov_cu->cuDeviceTotalMem_v2(&total_bytes, device);
    }
    size_t reserve_bytes = ov_opt.gpu_reserve_bytes;
    size_t automatic = free_bytes > reserve_bytes ? free_bytes - reserve_bytes : 0;
    return ov_amount_resolve(&ov_opt.budget, total_bytes, automatic) & ~(OV_PAGE_BYTES - 1);
}

static bool open_engine(struct ov_engine *engine, CUdevice device)
{
    int vmm = 0;
    pthread_mutex_init(&engine->lock, NULL);
    engine->device = device;
    engine->slice = device;
    engine->report.room_bytes = SIZE_MAX;
    (void)ov_cu->cuDeviceGetAttribute(&vmm, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device);
    if (vmm == 0) {
        return refuse(device, "it has no virtual memory management");
    }
    if (!reserve(device) || ov_cu->cuCtxGetCurrent(&engine->context) != CUDA_SUCCESS) {
        return false;
    }
    engine->ledger.budget_bytes = budget_of(engine, device);
    engine->ledger.set_aside_bytes[OV_FOR_SCRATCH] = OV_PAGE_BYTES;
    engine->ledger.set_aside_bytes[OV_FOR_SMALL] = engine->ledger.budget_bytes >= 4 * OV_PAGE_BYTES ? OV_PAGE_BYTES : 0;
    engine->ledger.host_limit_bytes =
        ov_amount_resolve(&ov_opt.host_limit, 0, ov_host_left(ov_opt.host_reserve_bytes, NULL));
    if (ov_arena_open(&engine->arena, device, engine->slice, &engine->ledger) != CUDA_SUCCESS ||
        !ov_learn_open(engine)) {
        return refuse(device, "its memory cannot be mapped page by page");
    }
    ov_masters_open(engine);
    if (!engine->arena.host_capable) {
        const bool none = engine->ledger.host_limit_bytes < OV_PAGE_BYTES;
        ov_log(OV_LOG_WARN, "device %d: %s: what does not fit the budget is refused as out of memory", device,
               none ? "there is no room for host memory (OVERSHOT_HOST_LIMIT, OVERSHOT_HOST_RESERVE)"
                    : "the driver cannot map host memory into the device's address range");
    }
    ov_log(OV_LOG_INFO, "device %d: budget %zu MiB", device, engine->ledger.budget_bytes >> 20);
    return true;
}

struct ov_engine *ov_engine_here(void)
{
    CUdevice device;
    if (ov_cu->cuCtxGetDevice(&device) != CUDA_SUCCESS || device < 0 || device >= OV_DEVICES || refused[device] ||
        (ov_opt.devices >> device & 1) == 0) {
        return NULL;
    }
    struct ov_engine *engine = ov_engine_at(device);
    if (engine != NULL) {
        return engine;
    }
    pthread_mutex_lock(&birth);
    engine = ov_engine_at(device);
    if (engine == NULL && !refused[device] && (engine = calloc(1, sizeof *engine)) != NULL) {
        if (open_engine(engine, device)) {
            atomic_store_explicit(&engines[device], engine, memory_order_release);
        } else {
            refused[device] = true;
            free(engine);
            engine = NULL;
        }
    }
    pthread_mutex_unlock(&birth);
    if (engine != NULL && (ov_opt.tiers & OV_OPT_TIER_RESIDENT) == 0 && !engine->armed) {
        ov_engine_arm(engine, "OVERSHOT_TIERS leaves out resident");
    }
    return engine;
}

bool ov_host_backed(const struct ov_engine *engine)
{
    return engine->arena.host_capable && ov_mode_moves();
}

void ov_engine_look(struct ov_engine *engine)
{
    atomic_store(&engine->looking,
                 engine->learning || engine->profiler.phase != OV_PROFILER_OFF || engine->planning.awaited);
}

void ov_engine_learn(struct ov_engine *engine)
{
    if (!engine->learning && engine->armed && ov_mode_moves()) {
        engine->learning = true;
        ov_learn_start(engine);
        ov_engine_look(engine);
        int idle = OV_IDLE;
        (void)atomic_compare_exchange_strong(&ov_state, &idle, OV_ARMED);
    }
}

void ov_engine_arm(struct ov_engine *engine, const char *why)
{
    ov_steer_start();
    bool entered = ov_context_enter(engine);
    const CUstreamCaptureMode mode = ov_relax(); /* the program may map memory while it captures */
    pthread_mutex_lock(&engine->lock);
    if (!engine->armed) {
        CUresult result = ov_inspect_open(engine);
        if (result == CUDA_SUCCESS) {
            result = ov_ring_open(engine);
        }
        engine->armed = true;
        if (result == CUDA_SUCCESS) {
            ov_density_open(engine);
            ov_log(OV_LOG_INFO, "device %d: %s: weights will be looked for", engine->device, why);
            ov_engine_learn(engine);
            ov_recall_open(engine);
        } else {
            ov_log(OV_LOG_WARN,
                   "device %d: what does not fit stays in host memory: no room or no code for looking at "
                   "memory (error %d)",
                   engine->device, (int)result);
        }
        int idle = OV_IDLE;
        (void)atomic_compare_exchange_strong(&ov_state, &idle, OV_ARMED);
    }
    pthread_mutex_unlock(&engine->lock);
    ov_relax_end(mode);
    ov_context_leave(entered);
}

void ov_state_settle(void)
{
    bool needed = false;
    for (int slice = 0; slice < OV_DEVICES && !needed; slice++) {
        struct ov_engine *engine = ov_engine_at(slice);
        if (engine != NULL) {
            pthread_mutex_lock(&engine->lock);
            needed = engine->armed && (engine->learning || engine->over_budget || engine->ring.streamed_count > 0 ||
                                       engine->density.tests > 0);
            pthread_mutex_unlock(&engine->lock);
        }
    }
    int expected = needed ? OV_IDLE : OV_ARMED; /* never out of inert */
    (void)atomic_compare_exchange_strong(&ov_state, &expected, needed ? OV_ARMED : OV_IDLE);
}

CUresult ov_bar_streaming(const char *why)
{
    CUresult result = CUDA_SUCCESS;
    for (int slice = 0; slice < OV_DEVICES; slice++) {
        struct ov_engine *engine = ov_engine_at(slice);
        if (engine == NULL || (engine->streaming_barred && engine->ring.streamed_count == 0)) {
            continue;
        }
        struct ov_exclusive section;
        (void)ov_exclusive_begin(engine, &section);
        bool first = !engine->streaming_barred;
        engine->streaming_barred = true;
        CUresult revoked = ov_revoke_all(engine, 0);
        result = result != CUDA_SUCCESS ? result : revoked;
        engine->replan_soon = true;
        ov_exclusive_end(engine, &section);
        if (first) {
            ov_log(OV_LOG_WARN, "device %d: nothing is streamed any more: %s", engine->device, why);
        }
    }
    return result;
}

bool ov_context_enter(struct ov_engine *engine)
{
    CUcontext current = NULL;
    if (ov_cu->cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == engine->context) {
        return false;
    }
    return ov_cu->cuCtxPushCurrent_v2(engine->context) == CUDA_SUCCESS;
}

void ov_context_leave(bool entered)
{
    CUcontext popped;
    if (entered) {
        (void)ov_cu->cuCtxPopCurrent_v2(&popped);
    }
}

/* Tried twice: a context that is lost says so again. */
static CUresult synchronize(void)
{
    CUresult result = ov_cu->cuCtxSynchronize();
    return result == CUDA_SUCCESS ? result : ov_cu->cuCtxSynchronize();
}

/* With the engine's context current. Foreign contexts only come and go behind the gate, which is closed. */
static CUresult wait_for_device(const struct ov_engine *engine)
{
    CUresult result = synchronize();
    for (int i = 0; i < OV_FOREIGN_CONTEXTS && result == CUDA_SUCCESS; i++) {
        CUcontext popped;
        if (engine->foreign[i] != NULL && ov_cu->cuCtxPushCurrent_v2(engine->foreign[i]) == CUDA_SUCCESS) {
            result = synchronize();
            (void)ov_cu->cuCtxPopCurrent_v2(&popped);
        }
    }
    return result;
}

CUresult ov_finish(struct ov_engine *engine, CUstream stream, CUresult result)
{
    CUresult waited = ov_cu->cuStreamSynchronize(stream);
    if (waited != CUDA_SUCCESS && (waited = ov_cu->cuStreamSynchronize(stream)) != CUDA_SUCCESS) {
        engine->arena.frozen = waited;
    }
    return result != CUDA_SUCCESS ? result : waited;
}

void ov_note_foreign(struct ov_engine *engine, CUcontext context)
{
    pthread_mutex_lock(&engine->lock);
    int at = 0;
    while (at < OV_FOREIGN_CONTEXTS - 1 && engine->foreign[at] != NULL && engine->foreign[at] != context) {
        at++;
    }
    engine->foreign[at] = context;
    pthread_mutex_unlock(&engine->lock);
}

void ov_note_stream(struct ov_engine *engine, CUstream stream)
{
    CUcontext context = NULL;
    bool of_current = stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
    if (of_current || ov_cu->cuStreamGetCtx(stream, &context) != CUDA_SUCCESS) {
        context = NULL;
        (void)ov_cu->cuCtxGetCurrent(&context);
    }
    if (context != NULL && context != engine->context) {
        ov_note_foreign(engine, context);
    }
}

CUresult ov_exclusive_begin_by(struct ov_engine *engine, struct ov_exclusive *section, const char *by)
{
    section->by = by;
    section->begin_ns = ov_now_ns();
    section->gate_depth = ov_gate_step_out();
    ov_gate_close();
    section->entered = ov_context_enter(engine);
    section->result = CUDA_SUCCESS;
    /* Captures begin inside the gate, but may end at any time: this is the only look at their number. */
    bool captures = atomic_load(&ov_captures) != 0;
    if (!captures) {
        section->result = wait_for_device(engine);
    }
    section->waited_ns = ov_now_ns() - section->begin_ns;
    section->idle = !captures && section->result == CUDA_SUCCESS;
    /* A capture elsewhere must not be harmed by what we do; in relaxed mode it is not. */
    section->mode = ov_relax();
    pthread_mutex_lock(&engine->lock);
    section->idle = section->idle && !engine->closed; /* by another thread, while the gate was not closed yet */
    ov_graphs_stale(); /* this is where units, masters and what is known of kernels change */
    engine->ring.last_turn = 0;
    engine->arena.frozen = section->result;
    if (engine->allocs.doomed > 0 && section->idle) {
        ov_allocs_reap(engine);
    }
    if (engine->masters.pins.dropped > 0 && section->idle) {
        ov_masters_reap(engine);
    }
    return section->result;
}

/* Sections that a user may notice are told. */
#define NOTICEABLE_NS 2000000u

void ov_exclusive_end(struct ov_engine *engine, struct ov_exclusive *section)
{
    uint64_t worked_ns = ov_now_ns() - section->begin_ns - section->waited_ns;
    if (worked_ns > NOTICEABLE_NS) {
        ov_log(OV_LOG_DEBUG, "device %d: %s held everything up for %.1f ms after %.1f ms of waiting for the device",
               engine->device, section->by, (double)worked_ns * 1e-6, (double)section->waited_ns * 1e-6);
    }
    engine->arena.frozen = CUDA_SUCCESS;
    pthread_mutex_unlock(&engine->lock);
    ov_relax_end(section->mode);
    ov_context_leave(section->entered);
    ov_gate_open();
    ov_gate_step_in(section->gate_depth);
}

/* Not freed: another thread may be about to lock it. A context is closed once or twice in a life. */
static void forget_engine(struct ov_engine *engine)
{
    atomic_store_explicit(&engines[engine->slice], NULL, memory_order_release);
    pthread_mutex_lock(&birth);
    engine->next_closed = closed;
    closed = engine;
    pthread_mutex_unlock(&birth);
}

void ov_engine_close(struct ov_engine *engine)
{
    /* Streams, events and code go with the context; memory is the device's and has to be given back, when nothing uses
     * it any more. At the end of a process the driver may be gone already: then there is nothing to do. */
    bool entered = ov_context_enter(engine);
    bool gone = wait_for_device(engine) == CUDA_ERROR_DEINITIALIZED;
    pthread_mutex_lock(&engine->lock);
    if (!gone) {
        ov_timetable_collect(&engine->ring);
    }
    engine->closed = true;
    ov_planning_end(&engine->planning);
    ov_summary_print(engine);
    if (gone) {
        ov_share_leave(&engine->masters.share); /* what outlives the driver */
        pthread_mutex_unlock(&engine->lock);
        forget_engine(engine);
        return;
    }
    ov_graphs_forget(engine);
    ov_profiler_close(engine);
    ov_pace_close(engine);
    ov_ring_close(engine);
    ov_reach_close(engine);
    ov_recall_close(engine);
    ov_density_close(engine);
    ov_inspect_close(engine);
    ov_allocs_drop(engine);
    (void)ov_masters_close(engine);
    ov_learn_close(engine);
    atomic_store(&engine->planned, false);
    engine->armed = false;
    engine->learning = false;
    ov_engine_look(engine);
    pthread_mutex_unlock(&engine->lock);
    ov_context_leave(entered);
    forget_engine(engine);
}

CUstreamCaptureMode ov_relax(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    (void)ov_cu->cuThreadExchangeStreamCaptureMode(&mode);
    return mode;
}

void ov_relax_end(CUstreamCaptureMode before)
{
    (void)ov_cu->cuThreadExchangeStreamCaptureMode(&before);
}

/* The query of an event is refused exactly when an allocation is, and does nothing else. */
CUresult ov_capture_refuses(void)
{
    CUevent event;
    if (atomic_load_explicit(&ov_captures, memory_order_relaxed) == 0 ||
        ov_cu->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        return CUDA_SUCCESS;
    }
    CUresult result = ov_cu->cuEventQuery(event);
    (void)ov_cu->cuEventDestroy_v2(event);
    return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
}

bool ov_capturing(CUstream stream)
{
    if (atomic_load_explicit(&ov_captures, memory_order_relaxed) == 0) {
        return false;
    }
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (ov_cu->cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS) {
        return false;
    }
    return status != CU_STREAM_CAPTURE_STATUS_NONE;
}
