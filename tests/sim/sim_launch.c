/* Launches: checking, copying, running. The exported forms are in sim_launch_forms.c. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "sim_program.h"
#include "sim_trace.h"

enum {
    GRID_X_MAX = 0x7fffffff,
    GRID_YZ_MAX = 65535,
    BLOCK_MAX = 1024,
    BLOCK_Z_MAX = 64,
    PORTABLE_CLUSTER = 8,
    CLUSTER_MAX = 16
};

const CUlaunchAttribute *sim_launch_attribute(const struct sim_launch *launch, CUlaunchAttributeID id)
{
    for (unsigned i = 0; i < launch->attribute_count; i++)
        if (launch->attribute[i].id == id)
            return &launch->attribute[i];
    return NULL;
}

static CUresult check_shape(const struct sim_launch *launch)
{
    const unsigned *grid = launch->grid, *block = launch->block;
    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || block[0] == 0 || block[1] == 0 || block[2] == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (grid[0] > GRID_X_MAX || grid[1] > GRID_YZ_MAX || grid[2] > GRID_YZ_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (block[0] > BLOCK_MAX || block[1] > BLOCK_MAX || block[2] > BLOCK_Z_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if ((uint64_t)block[0] * block[1] * block[2] > launch->func->kernel->max_threads)
        return CUDA_ERROR_INVALID_VALUE;
    if (launch->shared_bytes > (unsigned)launch->func->max_dynamic_shared)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static CUresult check_cluster(const struct sim_launch *launch, unsigned x, unsigned y, unsigned z)
{
    if (x == 0 || y == 0 || z == 0)
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    uint64_t blocks = (uint64_t)x * y * z;
    if (blocks > (launch->func->nonportable_cluster ? CLUSTER_MAX : PORTABLE_CLUSTER))
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    if (launch->grid[0] % x != 0 || launch->grid[1] % y != 0 || launch->grid[2] % z != 0)
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    return CUDA_SUCCESS;
}

static CUresult check_cooperative(const struct sim_launch *launch)
{
    uint64_t blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    int threads = (int)(launch->block[0] * launch->block[1] * launch->block[2]);
    uint64_t room = (uint64_t)sim_blocks_per_sm(launch->func, threads, launch->shared_bytes) * (uint64_t)sim_sm_count();
    return blocks > room ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_SUCCESS;
}

CUresult sim_launch_check_attribute(const struct sim_launch *launch, const CUlaunchAttribute *attribute)
{
    const CUlaunchAttributeValue *value = &attribute->value;
    struct sim_event *event;
    switch ((int)attribute->id) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        return value->cooperative ? check_cooperative(launch) : CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        return check_cluster(launch, value->clusterDim.x, value->clusterDim.y, value->clusterDim.z);
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        SIM_TRY(sim_event_get(value->programmaticEvent.event, &event));
        return event->flags & CU_EVENT_DISABLE_TIMING ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        SIM_TRY(sim_event_get(value->launchCompletionEvent.event, &event));
        return event->flags & CU_EVENT_DISABLE_TIMING ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* The parameter buffer of `extra`: pairs of key and value up to CU_LAUNCH_PARAM_END. */
static CUresult read_extra(void **extra, const void **buffer, size_t *bytes)
{
    *buffer = NULL;
    *bytes = 0;
    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
            *buffer = extra[1];
        else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[1] != NULL)
            *bytes = *(const size_t *)extra[1];
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

/* Driver 580 takes any buffer that is not longer than the parameters; what is missing is zero here. */
static CUresult check_buffer(const void *buffer, size_t bytes, size_t needed)
{
    if (buffer == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return bytes > needed ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES : CUDA_SUCCESS;
}

static CUresult gather(struct sim_launch *launch, void **params, void **extra)
{
    const struct sim_image_kernel *kernel = launch->func->kernel;
    if (kernel->param_count == 0)
        return CUDA_SUCCESS;
    if ((params == NULL) == (extra == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    if (extra != NULL) {
        const void *buffer;
        size_t bytes;
        SIM_TRY(read_extra(extra, &buffer, &bytes));
        SIM_TRY(check_buffer(buffer, bytes, kernel->param_bytes));
        memcpy(launch->bytes, buffer, bytes < kernel->param_bytes ? bytes : kernel->param_bytes);
        launch->from_extra = 1;
        return CUDA_SUCCESS;
    }
    for (uint32_t i = 0; i < kernel->param_count; i++) {
        if (params[i] == NULL)
            return CUDA_ERROR_INVALID_VALUE;
        memcpy(launch->param[i], params[i], kernel->param[i].size);
    }
    return CUDA_SUCCESS;
}

/* Room for the parameters, with the pointers set; alignment 16 suits every parameter type. */
static CUresult make_room(struct sim_launch *launch)
{
    const struct sim_image_kernel *kernel = launch->func->kernel;
    launch->bytes = aligned_alloc(16, (kernel->param_bytes + 16) & ~(size_t)15);
    launch->param = malloc((kernel->param_count + 1) * sizeof *launch->param);
    if (launch->bytes == NULL || launch->param == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memset(launch->bytes, 0, kernel->param_bytes);
    for (uint32_t i = 0; i < kernel->param_count; i++)
        launch->param[i] = launch->bytes + kernel->param[i].offset;
    return CUDA_SUCCESS;
}

static CUresult check_attributes(struct sim_launch *launch, const struct sim_launch_request *request)
{
    if (request->attribute_count > SIM_MAX_ATTRIBUTES || (request->attribute_count != 0 && request->attribute == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < request->attribute_count; i++) {
        SIM_TRY(sim_launch_check_attribute(launch, &request->attribute[i]));
        launch->attribute[launch->attribute_count++] = request->attribute[i];
    }
    const uint32_t *cluster = launch->func->kernel->cluster;
    if (cluster[0] != 0 && sim_launch_attribute(launch, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) == NULL)
        return check_cluster(launch, cluster[0], cluster[1], cluster[2]);
    return CUDA_SUCCESS;
}

CUresult sim_launch_make(struct sim_context *context, const struct sim_launch_request *request, struct sim_launch *out)
{
    memset(out, 0, sizeof *out);
    SIM_TRY(sim_func_get(request->function, context, &out->func));
    if (out->func->module->context != context)
        return CUDA_ERROR_INVALID_HANDLE;
    if (sim_handle_is(request->function, SIM_IS_KERNEL))
        out->kernel = (CUkernel)request->function;
    memcpy(out->grid, request->grid, sizeof out->grid);
    memcpy(out->block, request->block, sizeof out->block);
    out->shared_bytes = request->shared_bytes;
    out->form = request->form;
    SIM_TRY(check_shape(out));
    SIM_TRY(check_attributes(out, request));
    CUresult result = make_room(out);
    if (result == CUDA_SUCCESS)
        result = gather(out, request->params, request->extra);
    if (result != CUDA_SUCCESS)
        sim_launch_drop(out);
    return result;
}

CUresult sim_launch_copy(struct sim_launch *to, const struct sim_launch *from)
{
    if (!sim_handle_is(from->func, SIM_IS_FUNCTION))
        return CUDA_ERROR_INVALID_HANDLE;
    *to = *from;
    CUresult result = make_room(to);
    if (result != CUDA_SUCCESS) {
        sim_launch_drop(to);
        return result;
    }
    memcpy(to->bytes, from->bytes, from->func->kernel->param_bytes);
    return CUDA_SUCCESS;
}

void sim_launch_drop(struct sim_launch *launch)
{
    free(launch->bytes);
    free(launch->param);
    launch->bytes = NULL;
    launch->param = NULL;
}

static void run_host(void *argument)
{
    const struct sim_launch *launch = argument;
    launch->func->host->run(launch->param);
}

/* These events complete before the kernel does, so who waits for them is not ordered after what it writes. */
static void record_early_events(struct sim_call *call, const struct sim_lane *lane, const struct sim_launch *launch)
{
    for (unsigned i = 0; i < launch->attribute_count; i++) {
        const CUlaunchAttribute *attribute = &launch->attribute[i];
        CUevent handle = attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT
                             ? attribute->value.programmaticEvent.event
                         : attribute->id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT
                             ? attribute->value.launchCompletionEvent.event
                             : NULL;
        struct sim_event *event;
        if (handle != NULL && sim_event_get(handle, &event) == CUDA_SUCCESS)
            sim_event_record_on(event, call, lane);
    }
}

CUresult sim_launch_run(struct sim_call *call, struct sim_lane *lane, const struct sim_launch *launch,
                        const struct sim_node *node)
{
    if (!sim_handle_is(launch->func, SIM_IS_FUNCTION)) /* its module was unloaded since the node was made */
        return CUDA_ERROR_INVALID_HANDLE;
    sim_trace_launch(launch, lane);
    launch->func->loaded = 1;
    if (launch->func->host == NULL) {
        sim_say("kernel %s has no host implementation", launch->func->site);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    sim_host_globals(launch->func->module);
    const struct sim_accesses *list;
    if (sim_host_accesses(launch->func->host, launch->param, lane->context->device, &list)) {
        sim_programmatic_check(lane, launch, node, list);
        sim_programmatic_note(lane);
    }
    record_early_events(call, lane, launch);
    const struct sim_op op = {
        .site = launch->func->site,
        .engine = SIM_ENGINE_KERNEL,
        .access = list->item,
        .access_count = list->count,
        .operations = list->operations,
        .run = run_host,
        .argument = (void *)launch,
    };
    return sim_submit(call, lane, &op);
}
