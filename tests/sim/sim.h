/*
 * A simulated CUDA driver (libcuda.so.1) for machines without a GPU: what every source file of it shares.
 *
 * Model. Every operation is executed at once, on the thread that submits it and under one lock (`sim_lock`); what
 * would run later on a GPU only costs *virtual* time. Three things are kept apart:
 *   - data: device memory is a memfd per device. A device address is a host address at which pages of that memfd are
 *     mapped, so kernels compiled for the host dereference it. Every byte has a physical identity (pool, offset), which
 *     is the same through all its aliases.                                        [sim_page, sim_memory, sim_vmm,
 * sim_pool]
 *   - time: each stream (its *lane*) has a tail, each engine of a device has busy intervals, each host thread a clock.
 *     They decide what queries answer and what event times are, never what the bytes are. [sim_clock]
 *   - order: each lane has a vector clock. Two conflicting accesses to the same physical bytes that streams, events and
 *     host synchronisation leave unordered are a race, whatever their times were. [sim_race]
 *
 * An exported function is written with one of the SIM_API macros below. They take the lock, find the calling thread's
 * state, count the call, inject a failure (SIM_FAIL), check initialisation, context and the sticky error, and charge
 * the host time of the call. The body runs with the lock held and gets `struct sim_call *call`. Bodies never call an
 * exported function; they call the sim_ functions below. Host functions of the program run with the lock released.
 *
 * To put work on a stream: sim_stream_get(), then, when sim_stream_is_capturing(), give it to the capture (functions
 * at the end, owned by sim_graph.c); otherwise fill a `struct sim_op` and call sim_stream_submit(). Graph replay has
 * one lane per node: sim_lane_init(), sim_lane_follow() to fork and join, sim_submit() to run.
 *
 * Errors are CUresult; out-parameters are written on success only. An access that the device may not make marks the
 * context lost: CUDA_ERROR_ILLEGAL_ADDRESS is answered by every later call in it (sim_submit() itself answers
 * CUDA_SUCCESS then, as the real one does for work that faults later).
 *
 * Everything in this header is called with `sim_lock` held unless it says otherwise.
 */
#ifndef SIM_H
#define SIM_H

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL 1 /* exact exported names: no renaming macros, and the v1 prototypes */
#endif
#include <cuda.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sim_kernel.h" /* struct sim_access, of tests/kernels */

#define SIM_PAGE_BYTES  ((uint64_t)2 << 20) /* granularity of device memory and of VMM */
#define SIM_PAGE_SHIFT  21
#define SIM_MAX_DEVICES 8
/* By number: older headers lack the names. */
#define SIM_ATTRIBUTE_HOST_NUMA_VMM 141
#define SIM_ATTRIBUTE_HOST_VMM      145
#define SIM_POOL_HOST_VMM           SIM_MAX_DEVICES       /* pool number of host-located VMM handles */
#define SIM_POOL_HOST               (SIM_MAX_DEVICES + 1) /* pool number of ordinary host memory; offset = host address */

/* ---- vector clocks and lanes (sim_race.c) */

/* One counter per lane ever used; missing entries are zero. */
struct sim_vector {
    uint64_t *tick;
    uint32_t count, room;
};

/* A sequence of operations that run in order: a stream, or a node of an instantiated graph. */
struct sim_lane {
    struct sim_context *context;
    uint32_t index;          /* its component in every vector clock */
    uint64_t id;             /* for people: cuStreamGetId, reports */
    struct sim_vector clock; /* what has happened before the next operation of this lane */
    int64_t tail_ns;         /* virtual end of its last operation */
};

void sim_vector_join(struct sim_vector *into, const struct sim_vector *from);
void sim_vector_copy(struct sim_vector *into, const struct sim_vector *from);
void sim_vector_free(struct sim_vector *vector);
int sim_vector_covers(const struct sim_vector *vector, uint32_t index, uint64_t tick);

void sim_lane_init(struct sim_lane *lane, struct sim_context *context, uint64_t id);
/* The index is used again only when the host has synchronised with the lane's last operation. */
void sim_lane_retire(struct sim_lane *lane);
/* `lane` waits for all that `other` has done so far (order and time). */
void sim_lane_follow(struct sim_lane *lane, const struct sim_lane *other);
/* `lane` waits for a recorded point (an event). */
void sim_lane_wait(struct sim_lane *lane, const struct sim_vector *clock, int64_t time_ns);
/* Begin an operation: what the host knows is joined in, the lane's own counter goes up and is returned. */
uint64_t sim_lane_tick(struct sim_lane *lane);
/* The host has waited for this point: what is submitted from now on, by any thread, comes after it. */
void sim_host_join(const struct sim_vector *clock);
/* Does the host know that (index, tick) is over? */
int sim_host_covers(uint32_t index, uint64_t tick);

/* ---- the parts of the machine */

struct sim_gap {
    int64_t start_ns, end_ns;
};

/* A serial resource. Work is placed in the earliest gap that holds it, so submission order does not decide. */
struct sim_engine_state {
    struct sim_gap gap[64];
    unsigned gap_count;
    int64_t tail_ns, busy_ns;
};

struct sim_device {
    int ordinal;
    struct sim_engine_state h2d, d2h;
    int64_t kernel_busy_ns;
    uint64_t h2d_bytes, d2h_bytes;
    struct sim_context *primary; /* NULL while inactive */
    unsigned primary_references, primary_flags;
    struct sim_context *contexts; /* list of all live contexts of the device, through next_of_device */
    struct sim_mempool *default_pool, *current_pool;
};

struct sim_context {
    struct sim_context *next_of_device;
    struct sim_device *device;
    uint64_t id;
    unsigned flags, api_version;
    int is_primary;
    CUresult sticky;            /* CUDA_SUCCESS, or what every call answers from now on */
    struct sim_stream *legacy;  /* the NULL stream */
    struct sim_stream *streams; /* all streams, legacy and per-thread ones included, through next */
    struct sim_event *events;
    struct sim_module *modules;            /* owned by sim_module.c, which frees them in sim_modules_drop() */
    struct sim_vector gone, gone_blocking; /* what streams destroyed meanwhile have done; the blocking ones of them */
    int64_t gone_ns;
    uint64_t peers; /* bit d: may reach plain allocations of device d */
    size_t limit[16];
};

enum sim_stream_kind { SIM_STREAM_LEGACY, SIM_STREAM_PER_THREAD, SIM_STREAM_BLOCKING, SIM_STREAM_NONBLOCKING };

struct sim_stream {
    struct sim_lane lane; /* lane.context is its context */
    struct sim_stream *next;
    enum sim_stream_kind kind;
    struct sim_thread *owner; /* per-thread streams only */
    int priority;
    void *capture; /* owned by sim_graph.c: non-NULL while the stream is part of a capture */
};

struct sim_event {
    struct sim_event *next; /* of its context */
    struct sim_context *context;
    unsigned flags; /* CU_EVENT_* */
    int recorded;
    struct sim_vector clock; /* of the last record */
    int64_t time_ns;
    const struct sim_lane *lane; /* that it was recorded on; only to be compared */
    int by_node; /* with SIM_NODE_EVENTS=run: until the node's time has come, the event is what it was: */
    int before_recorded;
    int64_t before_ns;
    void *capture; /* owned by sim_graph.c: non-NULL when the last record was in a capture */
};

/* State of one host thread; made on its first call, kept until the process ends. */
struct sim_thread {
    struct sim_thread *next;
    struct sim_context *stack[64];
    unsigned depth;
    int64_t host_ns;                  /* its virtual clock */
    CUstreamCaptureMode capture_mode; /* cuThreadExchangeStreamCaptureMode, owned by sim_graph.c */
};

/* ---- calls (sim_call.c) */

enum sim_need {
    SIM_ANY,    /* works before cuInit */
    SIM_INIT,   /* needs cuInit */
    SIM_SOUND,  /* needs cuInit; fails while the current context, if there is one, is lost */
    SIM_CONTEXT /* needs cuInit and a current context that is not lost */
};

/* One per exported name; linked on its first call. */
struct sim_function {
    const char *name;
    enum sim_need need;
    int linked;
    int64_t cost_ns;
    uint64_t calls;
    struct sim_function *next;
};

struct sim_call {
    struct sim_function *function;
    struct sim_thread *thread;
    struct sim_context *context; /* current one; may be NULL unless SIM_CONTEXT */
    int per_thread;              /* entered through _ptsz/_ptds: stream NULL means the per-thread stream */
};

CUresult sim_call_begin(struct sim_call *call, struct sim_function *function, int per_thread); /* takes the lock */
CUresult sim_call_end(struct sim_call *call, CUresult result);                                 /* gives it back */

#define SIM_EXPORT      __attribute__((visibility("default")))
#define SIM_UNWRAP(...) __VA_ARGS__
#define SIM_ENTRY(need_, name_, per_thread_, body_, params_, ...)              \
    SIM_EXPORT CUresult CUDAAPI name_ params_;                                 \
    SIM_EXPORT CUresult CUDAAPI name_ params_                                  \
    {                                                                          \
        static struct sim_function function = {.name = #name_, .need = need_}; \
        struct sim_call call;                                                  \
        CUresult result = sim_call_begin(&call, &function, per_thread_);       \
        if (result == CUDA_SUCCESS) {                                          \
            result = body_(__VA_ARGS__);                                       \
        }                                                                      \
        return sim_call_end(&call, result);                                    \
    }
/* SIM_API(SIM_CONTEXT, cuFoo, (int a, int b), a, b) { ... uses call, a, b ...; return CUDA_SUCCESS; } */
#define SIM_API(need_, name_, params_, ...)                                  \
    static CUresult name_##_body(struct sim_call *call, SIM_UNWRAP params_); \
    SIM_ENTRY(need_, name_, 0, name_##_body, params_, &call, __VA_ARGS__)    \
    static CUresult name_##_body(struct sim_call *call, SIM_UNWRAP params_)
#define SIM_API_VOID(need_, name_)                          \
    static CUresult name_##_body(struct sim_call *call);    \
    SIM_ENTRY(need_, name_, 0, name_##_body, (void), &call) \
    static CUresult name_##_body(struct sim_call *call)
/* The same and a twin for the per-thread default stream: _ptsz for asynchronous functions, _ptds for synchronous. */
#define SIM_API_TWIN(need_, name_, suffix_, params_, ...)                          \
    static CUresult name_##_body(struct sim_call *call, SIM_UNWRAP params_);       \
    SIM_ENTRY(need_, name_, 0, name_##_body, params_, &call, __VA_ARGS__)          \
    SIM_ENTRY(need_, name_##suffix_, 1, name_##_body, params_, &call, __VA_ARGS__) \
    static CUresult name_##_body(struct sim_call *call, SIM_UNWRAP params_)
#define SIM_API_PTSZ(need_, name_, params_, ...) SIM_API_TWIN(need_, name_, _ptsz, params_, __VA_ARGS__)
#define SIM_API_PTDS(need_, name_, params_, ...) SIM_API_TWIN(need_, name_, _ptds, params_, __VA_ARGS__)
/* Another exported name with the same signature and meaning (cuCtxDestroy and cuCtxDestroy_v2). */
#define SIM_API_ALIAS(need_, alias_, name_, params_, ...) \
    SIM_ENTRY(need_, alias_, 0, name_##_body, params_, &call, __VA_ARGS__)

#define SIM_TRY(expression_)                  \
    do {                                      \
        CUresult try_result_ = (expression_); \
        if (try_result_ != CUDA_SUCCESS) {    \
            return try_result_;               \
        }                                     \
    } while (0)

int sim_forked(void); /* are we in a child of the process that used the driver first? */
/* Run a function of the program with the lock released. */
void sim_run_unlocked(void (*function)(void *), void *argument);
/* One line on stderr, "sim: ...". */
void sim_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same and abort(): for what a test must never survive. */
_Noreturn void sim_die(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A copy of `text` that lives as long as the process, the same pointer for equal texts. */
const char *sim_intern(const char *text);
void sim_charge(struct sim_call *call, double ns); /* host time of this call, beyond the table's fixed cost */

/* Live handles, so that a stale or foreign pointer is an error and not a crash. Kinds are one letter each:
   C context, S stream, E event, H VMM handle, P pool, A array; sim_program.h adds its own. */
void sim_handle_add(const void *handle, char kind);
void sim_handle_drop(const void *handle);
int sim_handle_is(const void *handle, char kind);

/* ---- knobs (sim_knobs.c): the SIM_ environment, read once */

struct sim_knobs {
    int devices;
    uint64_t device_bytes, pin_limit_bytes, va_limit_bytes, limit_bytes, poison_bytes;
    double link_gbps, hbm_gbps, peer_gbps, tflops;
    double query_ns, upload_ns, contention;
    int driver_version;
    int real_time, race_abort, opaque_maps, late_node_events;
    const char *report, *kernels, *trace;
};
extern struct sim_knobs sim_knobs;
void sim_knobs_read(void);                                      /* idempotent; called by sim_call_begin() */
int sim_knob_attribute_off(int attribute);                      /* SIM_ATTR_OFF */
int sim_knob_missing(const char *symbol);                       /* SIM_MISSING */
CUresult sim_knob_failure(const char *function, uint64_t call); /* SIM_FAIL: CUDA_SUCCESS = let it work */
unsigned sim_knob_delay(const char *function);                  /* SIM_DELAY: microseconds, mostly 0 */

/* ---- devices and contexts (sim_device.c) */

extern struct sim_device sim_devices[SIM_MAX_DEVICES];
extern int sim_initialised;
struct sim_device *sim_device_get(CUdevice device); /* NULL: no such device */
void sim_context_lose(struct sim_context *context, CUresult error);
int sim_context_valid(CUcontext context, struct sim_context **out);
/* Wait for everything in the context (order and host time), as cuCtxSynchronize. */
CUresult sim_context_synchronise(struct sim_call *call, struct sim_context *context);

/* ---- clock (sim_clock.c) */

enum sim_engine { SIM_ENGINE_NONE, SIM_ENGINE_KERNEL, SIM_ENGINE_H2D, SIM_ENGINE_D2H, SIM_ENGINE_D2D };

int64_t sim_now(struct sim_call *call);                      /* host time of the calling thread */
void sim_wait_until(struct sim_call *call, int64_t time_ns); /* the host blocks until then */
double sim_copy_ns(uint64_t bytes);                          /* one pinned copy over the link */
int64_t sim_function_cost(const char *name);
/* Place work on a serial engine; returns when it starts. */
int64_t sim_engine_place(struct sim_engine_state *engine, int64_t ready_ns, int64_t duration_ns);
void sim_clock_note(int64_t time_ns); /* a lane reached this time */
int64_t sim_makespan(void);           /* latest virtual time seen anywhere */

/* ---- kernels beside copies (sim_contention.c) */

/* Returns when a kernel of this lane is over that begins then. */
int64_t sim_contention_kernel(struct sim_lane *lane, int64_t start_ns, int64_t work_ns);
/* A copy to the device was placed there: kernels that run meanwhile get longer. */
void sim_contention_copy(const struct sim_device *device, int64_t start_ns, int64_t end_ns);
void sim_contention_forget(const struct sim_lane *lane);

/* ---- physical pages (sim_page.c) */

/* A run of bytes inside one pool. */
struct sim_extent {
    uint64_t offset, bytes;
};

/* Physical memory, in whole pages; not necessarily contiguous. Freed when the last reference goes. */
struct sim_backing {
    unsigned pool; /* device ordinal or SIM_POOL_HOST_VMM */
    unsigned references;
    uint64_t bytes;
    size_t extent_count;
    struct sim_extent *extent; /* places in the pool: what the bytes are called, and where they are, but for: */
    int file;                  /* exportable memory is in a file of its own, from its start on; else -1 */
    int imported;              /* made by another process, and counted there */
};

CUresult sim_backing_make(unsigned pool, uint64_t bytes, struct sim_backing **out);
/* Fresh memory in a file that other processes may map. */
CUresult sim_backing_make_shared(unsigned pool, uint64_t bytes, struct sim_backing **out);
/* The memory in a file that another process has made; takes a descriptor of its own. NULL: it is no such file. */
struct sim_backing *sim_backing_import(int file);
/* Last reference: what is still in flight there is a race with `site`; the pages are punched out. */
void sim_backing_put(struct sim_backing *backing, const char *site);
int sim_backing_map(const struct sim_backing *backing, uint64_t address, int protection);
/* Fill the first bytes (at most SIM_POISON) with a pattern, so that reading what was never written shows. */
void sim_backing_poison(const struct sim_backing *backing, uint64_t offset, uint64_t bytes);
/* The extent that holds `offset` of the backing: its place in the pool, and how much of the extent is left from there.
 */
struct sim_extent sim_backing_extent(const struct sim_backing *backing, uint64_t offset);
uint64_t sim_pool_used(unsigned pool);
uint64_t sim_pool_peak(unsigned pool);
/* Address space without anything behind it. Zero: none left. `low` asks for an address below 4 GiB (the v1 ABI). */
uint64_t sim_space_reserve(uint64_t bytes, uint64_t alignment, uint64_t hint, int low);
void sim_space_free(uint64_t address, uint64_t bytes);
void sim_space_clear(uint64_t address, uint64_t bytes); /* unmapped again, still reserved */
/* Pinned host memory and host-located handles share SIM_PIN_LIMIT. */
int sim_pin_add(uint64_t bytes); /* 0 = over the limit */
void sim_pin_drop(uint64_t bytes);
uint64_t sim_pin_used(void);
uint64_t sim_pin_peak(void);

/* ---- memory seen by address (sim_range.c, sim_memory.c, sim_vmm.c) */

enum sim_range_kind {
    SIM_RANGE_DEVICE,     /* cuMemAlloc, module globals, pool allocations */
    SIM_RANGE_RESERVED,   /* cuMemAddressReserve; mappings inside */
    SIM_RANGE_PINNED,     /* cuMemHostAlloc */
    SIM_RANGE_REGISTERED, /* cuMemHostRegister */
    SIM_RANGE_MANAGED     /* cuMemAllocManaged */
};

/* One mapping of a VMM handle. `last` are the accesses made through this very mapping: the latest of each lane. */
struct sim_mapping {
    uint64_t address, bytes;
    struct sim_handle *handle;
    struct sim_mapping *next, **link;          /* of the handle's mappings; link points at what points here */
    unsigned char access[SIM_MAX_DEVICES + 1]; /* CUmemAccess_flags per device; last entry: the host */
    struct sim_use *last;
    size_t last_count, last_room;
};

struct sim_range {
    uint64_t address, bytes;
    enum sim_range_kind kind;
    struct sim_context *context;
    struct sim_device *device;
    unsigned flags; /* of the call that made it */
    uint64_t id;    /* CU_POINTER_ATTRIBUTE_BUFFER_ID */
    int sync_memops;
    struct sim_backing *backing;           /* device ranges; may be shared with neighbours of one 2 MiB block */
    uint64_t backing_offset;               /* of address inside backing */
    struct sim_block *block;               /* small allocation inside this block, else NULL */
    struct sim_mapping **map;              /* reserved ranges: one pointer per 2 MiB page */
    uint64_t mapped_count;                 /* reserved ranges: mappings inside */
    struct sim_mempool *pool;              /* stream-ordered allocations */
    struct sim_graph_memory *graph_memory; /* allocations of a graph */
    int freed;                             /* stream-ordered allocations: freed, kept by the pool */
    uint64_t reserved_bytes;               /* device ranges: address space held */
};

/* A run of physical bytes of one access. */
struct sim_piece {
    unsigned pool;
    uint64_t offset, bytes;
    struct sim_mapping *mapping; /* NULL: not reached through a VMM mapping */
};

struct sim_range *sim_range_find(uint64_t address); /* the range that contains address, or NULL (plain host memory) */
struct sim_range *sim_range_add(const struct sim_range *value);
void sim_range_drop(struct sim_range *range);
struct sim_range *sim_range_next(uint64_t address); /* the first range that starts after address */
/* Device memory on a device, as cuMemAlloc gives it. */
CUresult sim_memory_allocate(struct sim_context *context, uint64_t bytes, int low, struct sim_range **out);
void sim_memory_free(struct sim_range *range, const char *site); /* no synchronisation */
CUresult sim_host_make(struct sim_call *call, uint64_t bytes, unsigned flags, enum sim_range_kind kind, void **out);
void sim_host_release(struct sim_range *range, const char *site);    /* pinned, registered, managed */
void sim_mempool_release(struct sim_range *range, const char *site); /* a stream-ordered allocation, at once */
void sim_memory_drop_context(struct sim_context *context);
struct sim_backing *sim_vmm_backing(const struct sim_mapping *mapping);
const CUmemAllocationProp *sim_vmm_prop(const struct sim_mapping *mapping);
int sim_mempool_reaches(const struct sim_mempool *pool, const struct sim_device *device);
struct sim_mapping *sim_vmm_find(const struct sim_range *range, uint64_t address);

enum sim_access_state {
    SIM_ACCESS_OK,
    SIM_ACCESS_UNKNOWN,  /* no device-visible memory there (plain host memory, or nothing) */
    SIM_ACCESS_UNMAPPED, /* reserved, nothing behind, or past the end */
    SIM_ACCESS_DENIED    /* mapped without this right, or another device's memory */
};
/* May `device` access these bytes? */
enum sim_access_state sim_memory_check(uint64_t address, uint64_t bytes, int writes, const struct sim_device *device);
/* The physical pieces of a range that was checked, in a grown buffer that the next call reuses. Pageable host memory
   gives none: copies with it are staged, so nothing about it is left in flight. */
size_t sim_memory_pieces(uint64_t address, uint64_t bytes, const struct sim_piece **out);

/* ---- happens-before (sim_race.c) */

/* One access of one operation, as remembered. */
struct sim_use {
    uint32_t lane;
    uint64_t tick, sequence, lane_id;
    const char *site;
};

extern uint64_t sim_race_count;
/* Check the pieces of one access of the operation (lane, tick of lane->clock) and remember it. */
void sim_race_access(const struct sim_lane *lane, const char *site, uint64_t sequence, const struct sim_piece *piece,
                     size_t count, int writes);
/* The host takes these bytes away (free, release): everything in flight there is a race (unless site is NULL: the
   caller has ordered it); then forget them. */
void sim_race_forget(const char *site, unsigned pool, uint64_t offset, uint64_t bytes);
/* The host takes this mapping, or rights of it, away. */
void sim_race_mapping(const char *site, const struct sim_mapping *mapping);

/* ---- submission (sim_submit.c) */

/* One operation. `access` addresses are device addresses, or host addresses of a copy. `run` executes it, at once. */
struct sim_op {
    const char *site; /* permanent string: exported function or kernel name (sim_intern()) */
    enum sim_engine engine;
    const struct sim_access *access;
    size_t access_count;
    double operations; /* kernels: floating point operations */
    uint64_t bytes;    /* copies: bytes moved */
    int pageable;      /* copies: one side is pageable host memory */
    int64_t fixed_ns;  /* duration when engine is SIM_ENGINE_NONE */
    void (*run)(void *argument);
    void *argument;
};

/* Check, order, time and execute. On a fault the context is lost, nothing runs, CUDA_SUCCESS is returned. */
CUresult sim_submit(struct sim_call *call, struct sim_lane *lane, const struct sim_op *op);

/* ---- streams and events (sim_stream.c, sim_event.c) */

#define SIM_PRIORITY_GREATEST (-5)
struct sim_stream *sim_stream_make(struct sim_context *context, enum sim_stream_kind kind, int priority);
void sim_stream_drop(struct sim_stream *stream);
void sim_event_drop(struct sim_event *event);
/* Resolve a handle: NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD or one of ours. */
CUresult sim_stream_get(struct sim_call *call, CUstream handle, struct sim_stream **out);
/* Implicit order before an operation: legacy stream against blocking streams. Refuses what a capture forbids. */
CUresult sim_stream_begin(struct sim_call *call, struct sim_stream *stream);
/* sim_stream_begin() and sim_submit(). Never for a stream that is capturing. */
CUresult sim_stream_submit(struct sim_call *call, struct sim_stream *stream, const struct sim_op *op);
/* The host waits for all of the stream. */
CUresult sim_stream_synchronise(struct sim_call *call, struct sim_stream *stream);
static inline int sim_stream_is_capturing(const struct sim_stream *stream)
{
    return stream->capture != NULL;
}
CUresult sim_event_get(CUevent handle, struct sim_event **out);
/* Record now on a lane; the same for a node of a graph (SIM_NODE_EVENTS). */
void sim_event_record_on(struct sim_event *event, struct sim_call *call, const struct sim_lane *lane);
void sim_event_record_by_node(struct sim_event *event, struct sim_call *call, const struct sim_lane *lane);
/* The host has seen completion up to here: release what stream-ordered frees left behind (sim_pool.c). */
void sim_pool_settle(void);

/* ---- copies (sim_copy.c): used by the exported functions and by graph nodes */

/* Check the descriptor as cuMemcpy3D does. */
CUresult sim_copy_check(struct sim_call *call, const struct sim_lane *lane, const CUDA_MEMCPY3D *copy);
CUresult sim_copy_run(struct sim_call *call, struct sim_lane *lane, const char *site, const CUDA_MEMCPY3D *copy);
CUresult sim_memset_check(struct sim_call *call, const struct sim_lane *lane, const CUDA_MEMSET_NODE_PARAMS *set);
CUresult sim_memset_run(struct sim_call *call, struct sim_lane *lane, const char *site,
                        const CUDA_MEMSET_NODE_PARAMS *set);
CUresult sim_host_function_run(struct sim_call *call, struct sim_lane *lane, CUhostFn function, void *data);

/* ---- report (sim_report.c) */

void sim_report_write(void);               /* the file of SIM_REPORT, from what is known now */
void sim_report_at_exit(void);             /* takes the lock itself */
extern struct sim_function *sim_functions; /* all functions called so far */
extern struct sim_thread *sim_threads;

/* ---- owned by sim_graph.c and sim_module.c, called by the files above */

/* The stream is capturing (or, for a wait, the event was recorded in a capture): make a node instead. */
CUresult sim_capture_memcpy(struct sim_call *call, struct sim_stream *stream, const CUDA_MEMCPY3D *copy);
CUresult sim_capture_memset(struct sim_call *call, struct sim_stream *stream, const CUDA_MEMSET_NODE_PARAMS *set);
CUresult sim_capture_host(struct sim_call *call, struct sim_stream *stream, CUhostFn function, void *data);
CUresult sim_capture_event_record(struct sim_call *call, struct sim_stream *stream, struct sim_event *event,
                                  unsigned flags);
CUresult sim_capture_event_wait(struct sim_call *call, struct sim_stream *stream, struct sim_event *event,
                                unsigned flags);
/* Stream-ordered allocation and free become memory nodes; and what the program may free of a graph's memory. */
CUresult sim_capture_allocate(struct sim_stream *stream, uint64_t bytes, const CUmemPoolProps *props, CUdeviceptr *out);
CUresult sim_capture_free(struct sim_stream *stream, uint64_t address);
CUresult sim_graph_memory_freed(struct sim_call *call, struct sim_graph_memory *memory, struct sim_lane *lane);
/* A function that captures forbid (cuMemAlloc, cuEventQuery, ...): what it must answer; may invalidate captures. */
CUresult sim_capture_unsafe(struct sim_call *call);
/* A stream or an event that is part of a capture is asked (query, synchronise): what it must answer. */
CUresult sim_capture_forbids(struct sim_call *call, struct sim_stream *stream, struct sim_event *event);
/* The legacy stream is used while blocking streams of the context may be capturing. */
CUresult sim_capture_legacy(struct sim_call *call, struct sim_context *context);
void sim_capture_stream_gone(struct sim_stream *stream);
void sim_capture_event_gone(struct sim_event *event);
/* The context goes away: free its modules. */
void sim_modules_drop(struct sim_context *context);
/* cuInit asks for this once, without the lock (SIM_SELF_LOOKUP). */
void sim_self_lookup(void);

#endif
