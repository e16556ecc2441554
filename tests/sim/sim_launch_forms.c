/* Launches: the exported forms. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "sim_program.h"

static CUresult launch_on(struct sim_call *call, CUstream handle, const struct sim_launch_request *request)
{
    struct sim_stream *stream;
    struct sim_launch launch;
    if (request->function == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    SIM_TRY(sim_stream_get(call, handle, &stream));
    SIM_TRY(sim_launch_make(stream->lane.context, request, &launch));
    CUlaunchAttribute *updatable =
        (CUlaunchAttribute *)sim_launch_attribute(&launch, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE);
    if (sim_stream_is_capturing(stream)) {
        CUgraphDeviceNode device_node = NULL;
        SIM_TRY(sim_capture_launch(call, stream, &launch, &device_node));
        for (unsigned i = 0; i < request->attribute_count; i++) /* the caller's, which an answer is written to */
            if (request->attribute[i].id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE)
                ((CUlaunchAttribute *)request->attribute)[i].value.deviceUpdatableKernelNode.devNode = device_node;
        return CUDA_SUCCESS;
    }
    CUresult result = updatable != NULL ? CUDA_ERROR_INVALID_VALUE : sim_stream_begin(call, stream);
    if (result == CUDA_SUCCESS)
        result = sim_launch_run(call, &stream->lane, &launch, NULL);
    sim_launch_drop(&launch);
    return result;
}

SIM_API_PTSZ(SIM_CONTEXT, cuLaunchKernel,
             (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX,
              unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
              void **kernelParams, void **extra),
             f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams,
             extra)
{
    const struct sim_launch_request request = {
        .function = f,
        .grid = {gridDimX, gridDimY, gridDimZ},
        .block = {blockDimX, blockDimY, blockDimZ},
        .shared_bytes = sharedMemBytes,
        .params = kernelParams,
        .extra = extra,
        .form = "cuLaunchKernel",
    };
    return launch_on(call, hStream, &request);
}

SIM_API_PTSZ(SIM_CONTEXT, cuLaunchKernelEx,
             (const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra), config, f, kernelParams,
             extra)
{
    if (config == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_launch_request request = {
        .function = f,
        .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
        .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
        .shared_bytes = config->sharedMemBytes,
        .attribute = config->attrs,
        .attribute_count = config->numAttrs,
        .params = kernelParams,
        .extra = extra,
        .form = "cuLaunchKernelEx",
    };
    return launch_on(call, config->hStream, &request);
}

SIM_API_PTSZ(SIM_CONTEXT, cuLaunchCooperativeKernel,
             (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX,
              unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
              void **kernelParams),
             f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams)
{
    const CUlaunchAttribute cooperative = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value = {.cooperative = 1}};
    const struct sim_launch_request request = {
        .function = f,
        .grid = {gridDimX, gridDimY, gridDimZ},
        .block = {blockDimX, blockDimY, blockDimZ},
        .shared_bytes = sharedMemBytes,
        .attribute = &cooperative,
        .attribute_count = 1,
        .params = kernelParams,
        .form = "cuLaunchCooperativeKernel",
    };
    return launch_on(call, hStream, &request);
}

/* The forms of CUDA 3: the launch state lies in the function. */

enum { LEGACY_PARAM_MAX = 4096 };

static CUresult legacy_param(struct sim_call *call, CUfunction handle, int offset, const void *value, unsigned bytes)
{
    struct sim_func *func;
    SIM_TRY(sim_func_get(handle, call->context, &func));
    if (offset < 0 || value == NULL || bytes > LEGACY_PARAM_MAX || (unsigned)offset > LEGACY_PARAM_MAX - bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (func->param == NULL && (func->param = calloc(1, LEGACY_PARAM_MAX)) == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(func->param + offset, value, bytes);
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuParamSetSize, (CUfunction hfunc, unsigned int numbytes), hfunc, numbytes)
{
    struct sim_func *func;
    SIM_TRY(sim_func_get(hfunc, call->context, &func));
    if (numbytes > LEGACY_PARAM_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    func->param_bytes = numbytes;
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuParamSeti, (CUfunction hfunc, int offset, unsigned int value), hfunc, offset, value)
{
    return legacy_param(call, hfunc, offset, &value, sizeof value);
}

SIM_API(SIM_CONTEXT, cuParamSetf, (CUfunction hfunc, int offset, float value), hfunc, offset, value)
{
    return legacy_param(call, hfunc, offset, &value, sizeof value);
}

SIM_API(SIM_CONTEXT, cuParamSetv, (CUfunction hfunc, int offset, void *ptr, unsigned int numbytes), hfunc, offset, ptr,
        numbytes)
{
    return legacy_param(call, hfunc, offset, ptr, numbytes);
}

SIM_API(SIM_CONTEXT, cuFuncSetBlockShape, (CUfunction hfunc, int x, int y, int z), hfunc, x, y, z)
{
    struct sim_func *func;
    SIM_TRY(sim_func_get(hfunc, call->context, &func));
    if (x <= 0 || y <= 0 || z <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    func->block[0] = (unsigned)x;
    func->block[1] = (unsigned)y;
    func->block[2] = (unsigned)z;
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuFuncSetSharedSize, (CUfunction hfunc, unsigned int bytes), hfunc, bytes)
{
    struct sim_func *func;
    SIM_TRY(sim_func_get(hfunc, call->context, &func));
    func->shared_bytes = bytes;
    return CUDA_SUCCESS;
}

static CUresult launch_legacy(struct sim_call *call, CUfunction handle, int width, int height, CUstream stream,
                              const char *form)
{
    struct sim_func *func;
    SIM_TRY(sim_func_get(handle, call->context, &func));
    if (width <= 0 || height <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    size_t bytes = func->param_bytes;
    unsigned char nothing = 0;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, func->param != NULL ? func->param : &nothing,
                     CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    const struct sim_launch_request request = {
        .function = handle,
        .grid = {(unsigned)width, (unsigned)height, 1},
        .block = {func->block[0], func->block[1], func->block[2]},
        .shared_bytes = func->shared_bytes,
        .extra = extra,
        .form = form,
    };
    return launch_on(call, stream, &request);
}

SIM_API(SIM_CONTEXT, cuLaunch, (CUfunction f), f)
{
    return launch_legacy(call, f, 1, 1, NULL, "cuLaunch");
}

SIM_API(SIM_CONTEXT, cuLaunchGrid, (CUfunction f, int grid_width, int grid_height), f, grid_width, grid_height)
{
    return launch_legacy(call, f, grid_width, grid_height, NULL, "cuLaunchGrid");
}

SIM_API(SIM_CONTEXT, cuLaunchGridAsync, (CUfunction f, int grid_width, int grid_height, CUstream hStream), f,
        grid_width, grid_height, hStream)
{
    return launch_legacy(call, f, grid_width, grid_height, hStream, "cuLaunchGridAsync");
}
