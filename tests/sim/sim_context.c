/* Contexts: primary and created ones, the stack of each thread, loss, destruction. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

#define LIMIT_COUNT ((int)(sizeof((struct sim_context *)0)->limit / sizeof(size_t)))

static uint64_t last_id;

void sim_context_lose(struct sim_context *context, CUresult error)
{
    if (context->sticky == CUDA_SUCCESS) {
        context->sticky = error;
    }
}

int sim_context_valid(CUcontext context, struct sim_context **out)
{
    *out = (struct sim_context *)context;
    return sim_handle_is(context, 'C');
}

static struct sim_context *context_make(struct sim_device *device, unsigned flags, int is_primary, unsigned version)
{
    struct sim_context *context = calloc(1, sizeof *context);
    if (context == NULL) {
        sim_die("out of host memory");
    }
    context->device = device;
    context->id = ++last_id;
    context->flags = flags;
    context->api_version = version;
    context->is_primary = is_primary;
    context->limit[CU_LIMIT_STACK_SIZE] = 1024;
    context->limit[CU_LIMIT_PRINTF_FIFO_SIZE] = 7 << 20;
    context->limit[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
    context->limit[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
    context->limit[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    context->limit[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
    context->next_of_device = device->contexts;
    device->contexts = context;
    sim_handle_add(context, 'C');
    context->legacy = sim_stream_make(context, SIM_STREAM_LEGACY, 0);
    return context;
}

static void stacks_remove(const struct sim_context *context)
{
    for (struct sim_thread *thread = sim_threads; thread != NULL; thread = thread->next) {
        for (unsigned i = 0; i < thread->depth; i++) {
            if (thread->stack[i] == context) {
                thread->stack[i] = NULL;
            }
        }
    }
}

/* What is in flight is waited for, then all that belongs to the context goes. */
static void context_destroy(struct sim_call *call, struct sim_context *context)
{
    sim_context_synchronise(call, context);
    sim_modules_drop(context);
    sim_memory_drop_context(context);
    while (context->streams != NULL) {
        sim_stream_drop(context->streams);
    }
    while (context->events != NULL) {
        sim_event_drop(context->events);
    }
    for (struct sim_context **at = &context->device->contexts; *at != NULL; at = &(*at)->next_of_device) {
        if (*at == context) {
            *at = context->next_of_device;
            break;
        }
    }
    stacks_remove(context);
    sim_vector_free(&context->gone);
    sim_vector_free(&context->gone_blocking);
    sim_handle_drop(context);
    free(context);
}

CUresult sim_context_synchronise(struct sim_call *call, struct sim_context *context)
{
    int64_t latest_ns = 0;
    for (const struct sim_stream *stream = context->streams; stream != NULL; stream = stream->next) {
        sim_host_join(&stream->lane.clock);
        latest_ns = stream->lane.tail_ns > latest_ns ? stream->lane.tail_ns : latest_ns;
    }
    sim_host_join(&context->gone);
    latest_ns = context->gone_ns > latest_ns ? context->gone_ns : latest_ns;
    sim_wait_until(call, latest_ns);
    sim_pool_settle();
    return context->sticky;
}

/* ---- primary contexts */

SIM_API(SIM_INIT, cuDevicePrimaryCtxRetain, (CUcontext * pctx, CUdevice dev), pctx, dev)
{
    (void)call;
    struct sim_device *device = sim_device_get(dev);
    if (pctx == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (device == NULL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (device->primary == NULL) {
        device->primary = context_make(device, device->primary_flags, 1, (unsigned)sim_knobs.driver_version);
    }
    device->primary_references++;
    *pctx = (CUcontext)device->primary;
    return CUDA_SUCCESS;
}

static void primary_end(struct sim_call *call, struct sim_device *device)
{
    if (device->primary != NULL) {
        context_destroy(call, device->primary);
        device->primary = NULL;
    }
}

SIM_API(SIM_INIT, cuDevicePrimaryCtxRelease_v2, (CUdevice dev), dev)
{
    struct sim_device *device = sim_device_get(dev);
    if (device == NULL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (device->primary_references == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (--device->primary_references == 0) {
        primary_end(call, device);
    }
    return CUDA_SUCCESS;
}
SIM_API_ALIAS(SIM_INIT, cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (CUdevice dev), dev)

SIM_API(SIM_INIT, cuDevicePrimaryCtxReset_v2, (CUdevice dev), dev)
{
    struct sim_device *device = sim_device_get(dev);
    if (device == NULL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    unsigned references = device->primary_references;
    primary_end(call, device);
    device->primary_references = references;
    return CUDA_SUCCESS;
}
SIM_API_ALIAS(SIM_INIT, cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, (CUdevice dev), dev)

SIM_API(SIM_INIT, cuDevicePrimaryCtxSetFlags_v2, (CUdevice dev, unsigned int flags), dev, flags)
{
    (void)call;
    struct sim_device *device = sim_device_get(dev);
    if (device == NULL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    device->primary_flags = flags;
    if (device->primary != NULL) {
        device->primary->flags = flags;
    }
    return CUDA_SUCCESS;
}
SIM_API_ALIAS(SIM_INIT, cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2, (CUdevice dev, unsigned int flags),
              dev, flags)

SIM_API(SIM_INIT, cuDevicePrimaryCtxGetState, (CUdevice dev, unsigned int *flags, int *active), dev, flags, active)
{
    (void)call;
    const struct sim_device *device = sim_device_get(dev);
    if (device == NULL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (flags == NULL || active == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = device->primary_flags;
    *active = device->primary != NULL;
    return CUDA_SUCCESS;
}

/* ---- the thread's stack */

static CUresult push(struct sim_call *call, struct sim_context *context)
{
    struct sim_thread *thread = call->thread;
    if (thread->depth == sizeof thread->stack / sizeof thread->stack[0]) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    thread->stack[thread->depth++] = context;
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuCtxSetCurrent, (CUcontext ctx), ctx)
{
    struct sim_context *context;
    if (ctx == NULL) {
        call->thread->depth -= call->thread->depth > 0;
        return CUDA_SUCCESS;
    }
    if (!sim_context_valid(ctx, &context)) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (call->thread->depth == 0) {
        return push(call, context);
    }
    call->thread->stack[call->thread->depth - 1] = context;
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuCtxGetCurrent, (CUcontext * pctx), pctx)
{
    if (pctx == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pctx = (CUcontext)call->context;
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuCtxPushCurrent_v2, (CUcontext ctx), ctx)
{
    struct sim_context *context;
    return sim_context_valid(ctx, &context) ? push(call, context) : CUDA_ERROR_INVALID_CONTEXT;
}
SIM_API_ALIAS(SIM_INIT, cuCtxPushCurrent, cuCtxPushCurrent_v2, (CUcontext ctx), ctx)

SIM_API(SIM_INIT, cuCtxPopCurrent_v2, (CUcontext * pctx), pctx)
{
    if (call->thread->depth == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    call->thread->depth--;
    if (pctx != NULL) {
        *pctx = (CUcontext)call->context;
    }
    return CUDA_SUCCESS;
}
SIM_API_ALIAS(SIM_INIT, cuCtxPopCurrent, cuCtxPopCurrent_v2, (CUcontext * pctx), pctx)

/* ---- created contexts */

static CUresult create(struct sim_call *call, CUcontext *out, unsigned flags, CUdevice dev, unsigned version)
{
    struct sim_device *device = sim_device_get(dev);
    if (out == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (device == NULL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    struct sim_context *context = context_make(device, flags, 0, version);
    CUresult result = push(call, context);
    if (result != CUDA_SUCCESS) {
        context_destroy(call, context);
        return result;
    }
    *out = (CUcontext)context;
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuCtxCreate, (CUcontext * pctx, unsigned int flags, CUdevice dev), pctx, flags, dev)
{
    return create(call, pctx, flags, dev, 3010);
}

SIM_API(SIM_INIT, cuCtxCreate_v2, (CUcontext * pctx, unsigned int flags, CUdevice dev), pctx, flags, dev)
{
    return create(call, pctx, flags, dev, 3020);
}

SIM_API(SIM_INIT, cuCtxCreate_v3,
        (CUcontext * pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned int flags, CUdevice dev), pctx,
        paramsArray, numParams, flags, dev)
{
    if (numParams < 0 || (numParams > 0) != (paramsArray != NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return numParams > 0 ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : create(call, pctx, flags, dev, 3020);
}

#if CUDA_VERSION >= 12050
SIM_API(SIM_INIT, cuCtxCreate_v4, (CUcontext * pctx, CUctxCreateParams *params, unsigned int flags, CUdevice dev), pctx,
        params, flags, dev)
{
    if (params != NULL && (params->numExecAffinityParams > 0 || params->cigParams != NULL)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return create(call, pctx, flags, dev, 3020);
}
#endif

SIM_API(SIM_INIT, cuCtxDestroy_v2, (CUcontext ctx), ctx)
{
    struct sim_context *context;
    if (!sim_context_valid(ctx, &context) || context->is_primary) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (call->context == context) {
        call->thread->depth--;
    }
    context_destroy(call, context);
    return CUDA_SUCCESS;
}
SIM_API_ALIAS(SIM_INIT, cuCtxDestroy, cuCtxDestroy_v2, (CUcontext ctx), ctx)

/* ---- questions about the current context */

SIM_API(SIM_CONTEXT, cuCtxGetDevice, (CUdevice * device), device)
{
    if (device == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *device = call->context->device->ordinal;
    return CUDA_SUCCESS;
}

SIM_API_VOID(SIM_CONTEXT, cuCtxSynchronize)
{
    SIM_TRY(sim_capture_unsafe(call));
    return sim_context_synchronise(call, call->context);
}

/* The forms that name a context take the current one for NULL. */
static CUresult context_or_current(struct sim_call *call, CUcontext handle, struct sim_context **out)
{
    if (handle == NULL) {
        *out = call->context;
        return call->context != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    }
    return sim_context_valid(handle, out) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

SIM_API(SIM_INIT, cuCtxSynchronize_v2, (CUcontext ctx), ctx)
{
    struct sim_context *context;
    SIM_TRY(context_or_current(call, ctx, &context));
    SIM_TRY(sim_capture_unsafe(call));
    return sim_context_synchronise(call, context);
}

SIM_API(SIM_INIT, cuCtxGetDevice_v2, (CUdevice * device, CUcontext ctx), device, ctx)
{
    struct sim_context *context;
    if (device == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    SIM_TRY(context_or_current(call, ctx, &context));
    *device = context->device->ordinal;
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuCtxGetFlags, (unsigned int *flags), flags)
{
    if (flags == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = call->context->flags;
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuCtxSetFlags, (unsigned int flags), flags)
{
    call->context->flags = flags;
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuCtxGetId, (CUcontext ctx, unsigned long long *ctxId), ctx, ctxId)
{
    struct sim_context *context;
    if (ctxId == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    SIM_TRY(context_or_current(call, ctx, &context));
    *ctxId = context->id;
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuCtxGetApiVersion, (CUcontext ctx, unsigned int *version), ctx, version)
{
    struct sim_context *context;
    if (version == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    SIM_TRY(context_or_current(call, ctx, &context));
    *version = context->api_version;
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuCtxGetLimit, (size_t * pvalue, CUlimit limit), pvalue, limit)
{
    if (pvalue == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if ((int)limit < 0 || (int)limit >= LIMIT_COUNT) {
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    }
    *pvalue = call->context->limit[limit];
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuCtxSetLimit, (CUlimit limit, size_t value), limit, value)
{
    if ((int)limit < 0 || (int)limit >= LIMIT_COUNT) {
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    }
    call->context->limit[limit] = value;
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuCtxGetStreamPriorityRange, (int *least, int *greatest), least, greatest)
{
    (void)call;
    if (least != NULL) {
        *least = 0;
    }
    if (greatest != NULL) {
        *greatest = SIM_PRIORITY_GREATEST;
    }
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuCtxGetCacheConfig, (CUfunc_cache * config), config)
{
    (void)call;
    if (config == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *config = CU_FUNC_CACHE_PREFER_NONE;
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuCtxSetCacheConfig, (CUfunc_cache config), config)
{
    (void)call, (void)config;
    return CUDA_SUCCESS;
}

SIM_API_VOID(SIM_CONTEXT, cuCtxResetPersistingL2Cache)
{
    (void)call;
    return CUDA_SUCCESS;
}

/* Shared memory banks have one width; the setting is taken and means nothing. */
SIM_API(SIM_CONTEXT, cuCtxGetSharedMemConfig, (CUsharedconfig * config), config)
{
    (void)call;
    if (config == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuCtxSetSharedMemConfig, (CUsharedconfig config), config)
{
    (void)call, (void)config;
    return CUDA_SUCCESS;
}

/* ---- profiling: nothing records, so starting and stopping is all there is to it */

SIM_API_VOID(SIM_CONTEXT, cuProfilerStart)
{
    (void)call;
    return CUDA_SUCCESS;
}

SIM_API_VOID(SIM_CONTEXT, cuProfilerStop)
{
    (void)call;
    return CUDA_SUCCESS;
}
