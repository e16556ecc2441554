/*
 * runtime.h - everything the shim tells the engine, and nothing else. shim/ includes only this, and what it includes.
 *
 * The house
 *   arena.h      one reserved address range; pages of 2 MiB; what stands behind each page
 *   ledger.h     bytes of device and host memory held, by whom; the budget
 *   report.h     what the program is told of a device's memory
 *   alloc.h      what the program asked for; other.h, what of it is not in the arena
 *   ipc.h        memory that is handed to other processes
 *   pool.h       what it allocates and frees in stream order; kept.h, what the driver's pools keep of it
 *   vmm.h        what the program maps itself: reservations, physical handles, mappings; loose.h, memory not mapped
 *   kernel.h     kernels: parameter layout, and what was learned of each (kernel, slot)
 *   image.h      parameter layouts from code images, for drivers that cannot tell
 *   scan.h       launch parameters -> addresses inside the arena
 *   learn.h      discovery: the log of touches, what stayed unchanged, runs with trusted boundaries, who only reads
 *   reach.h      launches that may write into streamed units from in front of them
 *   watch.h      launches of kernels not known well enough: compared before and after
 *   inspect.h    hashing and address search on the device
 *   density.h    how much of a unit is read
 *   giveway.h    before the first plan: what was loaded gives way to what is computed
 *   search.h     addresses of streamed units in host memory
 *   graph.h      executable graphs: how each is launched; graph_model.h, what is in one
 *   graph_source.h   what graphs read from host memory
 *   zerocopy.h   pinned, registered and managed memory, where the CPU may store addresses unseen
 *   trace.h      the sequence of touches and what comes next (pure: no CUDA)
 *   plan.h       tier and ring place of every unit (pure: no CUDA)
 *   propose.h    where every page should stand
 *   convert.h    bringing a plan about at a quiet point; taking single units out of it
 *   outcome.h    what a plan came to: told and verified
 *   profiler.h   what passes compute between touches; retime.h, the plan for that; pace.h, whether it stays so
 *   ring.h       steady state: units in the ring, copies, misses
 *   event_pool.h, meter.h    its events; the times of the link, of copies and waits
 *   stall.h      misses that the user wants to hear of, or launches refused for them
 *   timetable.h  what copies, waits and computation of the last passes took
 *   launch.c, copy.c, graph.c, graph_launch.c, capture.c, quiet.c, runtime.c    the functions below
 *   summary.h, hostlimit.h   the line at exit; how much host memory there is
 *   engine.h     one per device: owns all of the above, phases, lock
 *   gate.h       lets one thread stop all launches for a moment
 *   options.h, log.h    what the user sets, what the user is told; clock.h, how long things take
 *
 * Contract of the hooks
 *   - A wrapper first asks ov_bypass() (thread.h); if true it calls the real function and nothing here.
 *   - "begin" functions are called before the real function, "end" after it, always in pairs, on the same thread, with
 *     the same object, which lives on the wrapper's stack. Between them the wrapper makes exactly one driver call.
 *   - Functions named ov_mem_* replace the real call: they call the driver themselves and return what the program gets.
 *   - Streams are given in canonical form: a NULL stream of a `_ptsz`/`_ptds` entry is CU_STREAM_PER_THREAD, of any
 * other entry CU_STREAM_LEGACY. Blocking copies name the stream their ABI implies.
 *   - Out-parameters are written on success only. Error codes are the driver's.
 *   - All functions are thread-safe and may be called on threads without a current context.
 */
#ifndef OV_RUNTIME_H
#define OV_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"
#include "gate.h"
#include "thread.h"

/* Life. attach: called once by the resolver, when the driver's table is complete; reads the options; sets ov_state.
 * When `missing` is not NULL a required function was not found (its name): the engine logs it once and stays inert. */
void ov_runtime_attach(const struct ov_driver *driver, const char *missing);
/* `library`, which pages GPU memory itself, is loaded: unless OVERSHOT_STANDDOWN=off, memory that is allocated from now
 * on is the driver's, all questions about memory are answered by the driver, and nothing is streamed any more.
 * starting: no other thread has used the engine yet. */
void ov_stand_down(const char *library, bool starting);
/* In the child of a fork: pass through for ever. Async-signal-safe. */
void ov_runtime_forked(void);
/* At exit or unload, from a destructor: prints the summary if asked. Makes no CUDA call. */
void ov_runtime_exit(void);

/* Memory (alloc.c, view_memory.c). */
CUresult ov_mem_alloc(CUdeviceptr *out, size_t bytes);
CUresult ov_mem_alloc_pitch(CUdeviceptr *out, size_t *pitch, size_t width_bytes, size_t height, unsigned element_bytes);
CUresult ov_mem_free(CUdeviceptr address);
CUresult ov_mem_get_info(size_t *free_bytes, size_t *total_bytes);
CUresult ov_device_total_mem(size_t *bytes, CUdevice device);
/* For interfaces other than CUDA: the device by its UUID ("GPU-...") or its place on the PCI bus, -1 if CUDA does not
 * know it; and what is told of its memory. False, and nothing is changed, if it is not managed. */
int ov_device_of_uuid(const char *uuid);
int ov_device_of_pci(unsigned domain, unsigned bus, unsigned device);
bool ov_device_memory_told(CUdevice device, size_t *free_bytes, size_t *total_bytes);
CUresult ov_mem_get_address_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr address);
CUresult ov_pointer_get_attribute(void *value, CUpointer_attribute attribute, CUdeviceptr address);
CUresult ov_pointer_get_attributes(unsigned count, CUpointer_attribute *attribute, void **values, CUdeviceptr address);

/* Memory between processes (ipc.h). open and close return true when the handle or address is ours and was dealt with.
 */
CUresult ov_ipc_get_mem_handle(CUipcMemHandle *out, CUdeviceptr address);
bool ov_ipc_open_mem_handle(CUdeviceptr *out, const CUipcMemHandle *handle, unsigned flags, CUresult *result);
bool ov_ipc_close_mem_handle(CUdeviceptr address, CUresult *result);
/* Stream-ordered memory (pool.h). The first two return true when they have dealt with it (*result is then the answer),
 * perhaps by calling the driver, and nothing is told of it then; pool NULL: the device's current one. A pool is told of
 * after it was made and before it is destroyed. */
bool ov_mem_alloc_async(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream, CUresult *result);
bool ov_mem_free_async(CUdeviceptr address, CUstream stream, CUresult *result);
void ov_pool_made(CUmemoryPool pool, const CUmemPoolProps *props);
void ov_pool_gone(CUmemoryPool pool);
CUresult ov_pool_trim(CUmemoryPool pool, size_t keep_bytes);
CUresult ov_pool_get_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value);
CUresult ov_pool_set_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value);
CUresult ov_pool_set_access(CUmemoryPool pool, const CUmemAccessDesc *desc, size_t count);

/* Device memory that the program holds and that is not ours to place, counted against the budget and searched for
 * hidden addresses. coming: before the driver is asked; then missed, when it refuses, or added. bytes_on_device is 0
 * for memory that costs no device memory: such is only added. */
void ov_foreign_coming(size_t bytes_on_device);
void ov_foreign_missed(size_t bytes_on_device);
void ov_foreign_added(CUdeviceptr address, size_t bytes, size_t bytes_on_device);
/* After success: what the driver gave from a pool since ov_mem_alloc_async left it to it. */
void ov_pool_added(CUdeviceptr address, size_t bytes, size_t bytes_on_device);
void ov_foreign_removed(CUdeviceptr address);
/* A module global: device memory that its module is counted for, searched all the same. Goes as ov_foreign_removed. */
void ov_global_added(CUdeviceptr address, size_t bytes);
/* Host memory that kernels read in place (zerocopy.h). added: after success. removed: before the real call, for any
 * address that is freed or unregistered. */
void ov_zerocopy_added(void *host, size_t bytes, bool managed);
void ov_zerocopy_removed(const void *host);
/* An address was made part of an object of `bytes` bytes (a tensor map), after success. The object is found by the
 * address in it; where it cannot be seen, the memory is not streamed. Not CUDA_SUCCESS: it could not be taken out of
 * the ring, and the wrapper returns that. */
CUresult ov_address_encoded(const void *object, size_t bytes, CUdeviceptr address);

/* Memory that the program maps itself (vmm.h). */
CUresult ov_mem_create(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *prop,
                       unsigned long long flags);
CUresult ov_mem_release(CUmemGenericAllocationHandle handle);
CUresult ov_mem_retain(CUmemGenericAllocationHandle *out, void *address);
CUresult ov_mem_handle_properties(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle);
CUresult ov_mem_export(void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                       unsigned long long flags);
CUresult ov_mem_address_reserve(CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr hint,
                                unsigned long long flags);
CUresult ov_mem_address_free(CUdeviceptr address, size_t bytes);
CUresult ov_mem_map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long flags);
CUresult ov_mem_unmap(CUdeviceptr address, size_t bytes);
CUresult ov_mem_set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *desc, size_t count);
CUresult ov_mem_get_access(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address);
/* Before a handle is given to the driver for anything else: replaces it by one that the driver knows. Not CUDA_SUCCESS:
 * the wrapper returns it. */
CUresult ov_mem_real_handle(CUmemGenericAllocationHandle *handle);
/* The memory at [address, address + bytes) can be reached without its address being named from now on (a texture). */
CUresult ov_mem_reached(CUdeviceptr address, size_t bytes);
/* The physical memory behind [address, address + bytes) is given away: a device of another maker reads and writes it.
 * Not CUDA_SUCCESS: it cannot be. */
CUresult ov_mem_given_away(CUdeviceptr address, size_t bytes);

/* Copies and fills. A span is a range of addresses, device or host; rows > 1 is a pitched block. */
struct ov_span {
    CUdeviceptr address; /* 0: no device side (arrays), nothing to do */
    size_t bytes;        /* of one row */
    size_t rows, pitch_bytes;
};
struct ov_copy {
    struct ov_span dst, src; /* src.address 0 for fills */
    const void *host_source; /* payload when the source is host memory, else NULL */
    CUstream stream;         /* canonical */
    bool gated;              /* private to the engine: end has to leave the gate */
    CUresult refused; /* set by begin: not CUDA_SUCCESS, and the wrapper returns it in place of the driver's call */
};
void ov_copy_begin(struct ov_copy *copy);
void ov_copy_end(struct ov_copy *copy, CUresult result);

#define OV_LAUNCH_UNITS 32

struct ov_engine;
struct ov_kernel;
struct ov_watch;

/* Launches. `extra` as in cuLaunchKernel; cooperative and Ex forms come here too. begin: CUDA_SUCCESS, or an error that
 * the wrapper returns without launching (end is then not called). */
struct ov_launch {
    CUfunction function; /* may be a CUkernel */
    CUstream stream;     /* canonical */
    void **params, **extra;
    bool opaque;       /* parameters cannot be seen (legacy cuParamSet launches) */
    bool programmatic; /* may start before its predecessor ends (programmatic stream serialization attribute) */
    /* Private to the engine; filled by begin. A launch that touches more units than fit here gets none of them
     * streamed. */
    struct ov_engine *engine; /* NULL: end has nothing to do but leave the gate */
    struct ov_kernel *kernel;
    struct ov_watch *watch; /* what is compared after the launch (watch.h), mostly NULL */
    unsigned timing;        /* 1 + its entry when it is timed (density.h), mostly 0 */
    unsigned units;
    uint32_t unit[OV_LAUNCH_UNITS]; /* held in the ring until end */
};
/* Fields that have another value in few forms are left at the usual one; those of the engine are set by begin. */
static inline void ov_launch_describe(struct ov_launch *launch, CUfunction function, CUstream stream, void **params,
                                      void **extra)
{
    launch->function = function;
    launch->stream = stream;
    launch->params = params;
    launch->extra = extra;
    launch->opaque = launch->programmatic = false;
}
/* True: nothing is or will be streamed while this thread is where it is: it launches at once, without begin and end,
 * and calls ov_gate_leave. What all launches cost while everything fits. */
static inline bool ov_launch_is_idle(void)
{
    if (atomic_load_explicit(&ov_state, memory_order_relaxed) == OV_ARMED) {
        return false;
    }
    ov_gate_enter();
    if (__builtin_expect(atomic_load_explicit(&ov_state, memory_order_relaxed) != OV_ARMED, 1)) {
        return true;
    }
    ov_gate_leave();
    return false;
}
CUresult ov_launch_begin(struct ov_launch *launch);
void ov_launch_end(struct ov_launch *launch, CUresult result);

/* Kernels, modules. image may be NULL (loaded from a file by name). *_unloading: before the real call. */
void ov_module_loaded(CUmodule module, const void *image);
void ov_library_loaded(CUlibrary library, const void *image);
void ov_function_found(CUfunction function, CUmodule module, const char *name);
void ov_kernel_found(CUkernel kernel, CUlibrary library, const char *name);
void ov_module_unloading(CUmodule module);
void ov_library_unloading(CUlibrary library);

/* Streams, contexts, quiet points. */
void ov_stream_closing(CUstream stream); /* before cuStreamDestroy */
void ov_context_closing(CUcontext context,
                        CUdevice device); /* before destroy/reset; context NULL: the device's primary */
void ov_peer_enabled(CUcontext peer);     /* after cuCtxEnablePeerAccess succeeded */
void ov_quiet_point(
    void); /* after a call in which the program waited for the GPU: sync functions, blocking D2H copies */

/* Captures and graphs (graph.h). */
void ov_capture_beginning(CUstream stream);              /* before any form of cuStreamBeginCapture */
void ov_capture_began(CUstream stream, CUresult result); /* after it, on the same thread */
void ov_capture_ended(CUstream stream);                  /* after cuStreamEndCapture, whatever its result */
/* After the driver has taken a graph in: made an executable graph of it, or updated one. flags: of the instantiation.
 */
void ov_graph_instantiated(CUgraphExec exec, CUgraph graph, unsigned long long flags);
void ov_graph_updated(CUgraphExec exec, CUgraph graph);
/* After a node of an executable graph was changed. params: as far as cuGraphNodeSetParams knows the kind of node. */
void ov_graph_node_set(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams *params);
/* After a node was added by cuGraphAddNode (graph_condition.h). */
void ov_graph_node_added(CUgraphNode node, const CUgraphNodeParams *params);
void ov_graph_node_enabled(CUgraphExec exec, CUgraphNode node, bool enabled);
void ov_graph_destroying(CUgraphExec exec); /* before cuGraphExecDestroy */
/* Around cuGraphLaunch. begin: CUDA_SUCCESS, or an error that the wrapper returns without launching; end is called all
 * the same. `used` is what the driver is given; with `served` nothing is, the work is done. end: true when the driver
 * had no memory for what was ours: the launch is to be begun again, and served in another way. */
struct ov_graph;
struct ov_graph_launch {
    CUgraphExec exec;
    CUstream stream; /* canonical */
    CUgraphExec used;
    bool served;
    /* Private to the engine. */
    struct ov_graph *graph; /* NULL: not looked at */
    bool turning;           /* it has the ring */
    bool timed;             /* what is used is a clone for one launch (graph_timed.c) */
    bool paced;             /* it is one of those whose time is taken (pace.h) */
    bool again;             /* begun a second time */
};
CUresult ov_graph_launch_begin(struct ov_graph_launch *launch);
bool ov_graph_launch_end(struct ov_graph_launch *launch, CUresult result);

#endif
