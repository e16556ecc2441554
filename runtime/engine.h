/*
 * engine.h - one engine per device: owns everything that overshot knows and holds of it.
 *
 * An engine comes into being with the first allocation on its device and takes the context that is current then as its
 * own: its stream and events live there. (Launches from other contexts of the device are served, but what they touch is
 * not streamed.)
 *
 * Phases. Idle: at most half of the budget is used, nothing is looked at. Armed: more is used; while `learning`,
 * launches are scanned and logged. Planned: units are known, so that an allocation that does not fit finds a plan at
 * hand; some may be streamed. Learning starts again whenever the plan no longer fits what the program does. While an
 * engine neither learns nor streams, its launches pass unlooked at (ov_state_settle).
 *
 * Locks, in this order: gate (gate.h) > engine.lock > kernel registry > verdicts > log. Everything in struct ov_engine
 * is guarded by engine.lock unless a comment says otherwise. No driver call that may wait for the device is made under
 * engine.lock, except inside an exclusive section.
 *
 * Exclusive section: the gate is closed and the device idle, so backing may change. Entered from inside or outside the
 * gate; whoever was inside looks at everything anew afterwards. While a capture is active anywhere, the device cannot
 * be asked whether it is idle; then only the recorded readers of streamed units are waited for, which is what taking
 * units out of the ring needs, and no plan is made or changed.
 */
#ifndef OV_ENGINE_H
#define OV_ENGINE_H

#include <pthread.h>

#include "alloc.h"
#include "arena.h"
#include "density.h"
#include "driver.h"
#include "giveway.h"
#include "inspect.h"
#include "kept.h"
#include "learn.h"
#include "ledger.h"
#include "masters.h"
#include "options.h"
#include "planning.h"
#include "pool.h"
#include "profiler.h"
#include "reach.h"
#include "recall.h"
#include "report.h"
#include "ring.h"
#include "stall.h"
#include "vmm.h"

#define OV_FOREIGN_CONTEXTS 64

struct ov_engine {
    pthread_mutex_t lock;
    struct ov_engine *next_closed;
    CUdevice device;
    int slice;
    CUcontext context;
    CUcontext foreign[OV_FOREIGN_CONTEXTS]; /* others that have launched on our memory; they are waited for, too */
    struct ov_ledger ledger;
    struct ov_report report;
    _Atomic bool excess_said; /* that the program's own memory exceeds the budget */
    struct ov_arena arena;
    struct ov_allocs allocs;
    struct ov_vmm vmm;
    struct ov_pools pools;
    struct ov_kept kept; /* by the driver's pools */
    struct ov_learn learn;
    struct ov_inspect inspect;
    struct ov_density density; /* of units' reads */
    struct ov_giveway giveway; /* before the first plan */
    struct ov_ring ring;       /* units and their places */
    struct ov_stall stall;     /* misses that are told */
    struct ov_masters masters; /* pinned host memory */
    struct ov_reach reach;
    struct ov_recall recall; /* profiles of earlier starts */
    struct {
        unsigned points, wait; /* quiet points since the profile was last written, and how many there have to be */
        uint64_t key;          /* of the weights, then, ... */
        unsigned keys;         /* ... and how many others there have been */
    } record;
    _Atomic bool armed; /* read without the lock; written under it */
    bool learning;
    _Atomic bool looking; /* it learns, times passes, or awaits a plan; read without the lock in the launch path */
    _Atomic bool streaming_barred; /* something was met that may reach any unit (an opaque kernel); as armed */
    _Atomic unsigned plans;        /* made so far; the last one's pages, for the summary: */
    struct {
        size_t resident, streamed, host, ring, units;
        size_t in_part;               /* of host: because they are read in part, ... */
        double share;                 /* ... so much of them in a cycle, at most */
        double copies_s, predicted_s; /* of a pass: the link's time, and all of it; 0: computation was not timed */
    } last_plan;
    size_t plan_effort; /* what a search for a plan may cost (plan.h), 0: as usual */
    struct ov_planning planning;
    struct ov_profiler profiler;
    struct {
        double compute_s, spread; /* what a pass computes; between the passes that were timed, as a share of it */
    } timed;
    unsigned watches;               /* launches being watched; no plan meanwhile */
    _Atomic unsigned overdue;       /* launches since a study has been due without a quiet point */
    _Atomic bool called_back;       /* when its work is over, as it seems: it does not wait (launch.c) */
    bool closed;                    /* its context went away: an exclusive section of it is never idle */
    _Atomic bool planned;           /* read without the lock in the launch path: streamed units may exist */
    _Atomic bool paused;            /* by the user (steer.h): no plan is made or changed, nothing is looked for */
    _Atomic bool profile_suspended; /* by the user: nothing is timed for profiles, and none is written */
    bool timing_broken_off;         /* by one of both, while passes were timed */
    bool replan_soon;               /* memory or units changed: try at the next quiet point */
    uint64_t revoked_pages;         /* since the last plan */
    size_t room_made_bytes; /* what the program held when the last plan was made, if for its growth (room.c); else 0 */
    bool slack;             /* room was made for more than was asked for: it may come back */
    uint32_t largest_pages; /* asked for in one go since the first plan */
    bool grown;             /* that is new: room for another one was not made yet */
    _Atomic bool over_budget;            /* something had to go to the host: learning goes on until a plan is made */
    unsigned quiet_points, replan_wait;  /* since the last plan for changed memory, and how many there have to be */
    uint64_t looked_at_ns, look_took_ns; /* last work at a quiet point: when, how long */
};

extern const struct ov_driver *ov_cu; /* constant after attach */
extern struct ov_options ov_opt;      /* constant after attach */
extern _Atomic int ov_captures;       /* stream captures under way in the process (capture.c) */

/* Whether memory is moved at all: in all modes but `off` and `resident`. */
static inline bool ov_mode_moves(void)
{
    return ov_opt.mode != OV_OPT_MODE_OFF && ov_opt.mode != OV_OPT_MODE_RESIDENT;
}

/* The engine of the current context's device, made if need be; NULL: no current context, or a device that is not
 * managed (then the caller passes through). */
struct ov_engine *ov_engine_here(void);
/* The engine that owns an arena address; NULL if there is none any more. */
struct ov_engine *ov_engine_of(uint64_t address);
struct ov_engine *ov_engine_at(int slice);
/* Whether memory is left to a library that pages it (ov_stand_down): no allocation is placed, nothing new is counted.
 */
extern _Atomic bool ov_stood_down;
/* The engine that new memory of the current context is for; as ov_engine_here, and NULL when memory is left alone. */
struct ov_engine *ov_engine_for_memory(void);
/* Whether the device has an engine, or will have one. */
bool ov_device_managed(CUdevice device);
/* Forgets the engine and gives back its memory: its context is going away. */
void ov_engine_close(struct ov_engine *engine);

/* Whether arena memory can be shared with other processes. (ipc_share.c) */
bool ov_ipc_capable(const struct ov_engine *engine);
/* Whether host memory stands in for device memory. */
bool ov_host_backed(const struct ov_engine *engine);
/* What the program is told of the device's memory. Under the lock. device_free_bytes: what the driver says, SIZE_MAX:
 * it was not asked. (view_memory.c) */
struct ov_report_answer ov_memory_told(struct ov_engine *engine, size_t device_free_bytes, size_t device_total_bytes);

/* Sets ov_state by what the engines need: launches are looked at while anything is streamed or learned. */
void ov_state_settle(void);
/* Launches are to be looked at from now on. */
void ov_engine_arm(struct ov_engine *engine, const char *why);
/* Sets `looking`. */
void ov_engine_look(struct ov_engine *engine);
/* Starts (again) to log touches. */
void ov_engine_learn(struct ov_engine *engine);
/* From now on nothing is streamed on any device: `why` is logged once. Call outside of locks. Not CUDA_SUCCESS: a unit
 * could not be taken out of the ring, and what may reach any unit must not run. */
CUresult ov_bar_streaming(const char *why);

/* Makes the engine's context current if it is not; returns whether ov_context_leave has to undo that. */
bool ov_context_enter(struct ov_engine *engine);
void ov_context_leave(bool entered);

struct ov_exclusive {
    int gate_depth;
    bool entered;
    bool idle; /* the device was waited for, and stays idle: no capture is active, and none begins meanwhile */
    CUstreamCaptureMode mode;
    CUresult result;
    const char *by;               /* who asked for it */
    uint64_t begin_ns, waited_ns; /* when, and how long the device took to become idle */
};
/* Locks the engine, too. Not CUDA_SUCCESS: the device could not be waited for (a lost context, mostly). The section is
 * entered and has to be ended all the same, but backing is frozen: nothing can be taken out of the ring, and whoever
 * needs that gets the error. */
CUresult ov_exclusive_begin_by(struct ov_engine *engine, struct ov_exclusive *section, const char *by);
#define ov_exclusive_begin(engine, section) ov_exclusive_begin_by(engine, section, __func__)
void ov_exclusive_end(struct ov_engine *engine, struct ov_exclusive *section);

/* In an exclusive section: waits for one of our own streams, whatever became of the work on it, which `result` says; it
 * is returned, or the wait's error. If the wait fails, the work may be under way: no mapping is taken away any more in
 * this section, not even to undo what was begun. */
CUresult ov_finish(struct ov_engine *engine, CUstream stream, CUresult result);

/* A context that is not the engine's works with its memory. */
void ov_note_foreign(struct ov_engine *engine, CUcontext context);
/* Work on the engine's memory is about to be enqueued in the stream: its context is noted when it is another one. */
void ov_note_stream(struct ov_engine *engine, CUstream stream);

/* Whether the stream is being captured right now (false without a driver call while nobody captures). */
bool ov_capturing(CUstream stream);
/* Between these two the thread may ask and wait: such a call is neither refused because somebody captures, be it
 * another thread that began just now, nor does it break the capture. Not for the context as a whole, which never may be
 * waited for then. */
CUstreamCaptureMode ov_relax(void);
void ov_relax_end(CUstreamCaptureMode before);
/* Captures that began in it, or in a stream of the context, are over (capture.c). */
void ov_capture_stream_closing(CUstream stream);
void ov_capture_context_closing(CUcontext context, CUdevice device); /* NULL: the device's */
/* Memory that the driver gives by cuMemAlloc and takes by cuMemFree is not to be had while the caller's thread, or in
 * global mode any thread, captures: such a call fails and breaks the capture. What the driver would say to one, and
 * what it would do to the capture. Free of a driver call while nobody captures. */
CUresult ov_capture_refuses(void);

#endif
