/* Functions: attributes, parameter layouts, occupancy. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "sim_program.h"

enum {
    SM_COUNT = 132,
    SM_THREADS = 2048,
    SM_BLOCKS = 32,
    SM_REGISTERS = 65536,
    SM_SHARED = 228 * 1024,
    BLOCK_SHARED = 227 * 1024
};

/* Functions about a CUfunction do not take a CUkernel for one; only launches and occupancy do. */
static CUresult func_get(const struct sim_call *call, CUfunction handle, struct sim_func **out)
{
    (void)call;
    if (!sim_handle_is(handle, SIM_IS_FUNCTION))
        return CUDA_ERROR_INVALID_HANDLE;
    *out = (struct sim_func *)handle;
    return CUDA_SUCCESS;
}

static CUresult get_attribute(const struct sim_func *func, CUfunction_attribute attribute, int *out)
{
    const struct sim_image_kernel *kernel = func->kernel;
    const struct sim_image *image = func->module->image;
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *out = (int)kernel->max_threads;
        break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *out = (int)kernel->shared_bytes;
        break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
        *out = 0;
        break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *out = 0;
        break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *out = kernel->registers != 0 ? (int)kernel->registers : 32;
        break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        *out = image->ptx_version;
        break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *out = image->binary_version;
        break;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
        *out = 0;
        break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *out = func->max_dynamic_shared;
        break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *out = func->carveout;
        break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
        *out = func->cluster_must_be_set;
        break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
        *out = (int)kernel->cluster[0];
        break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
        *out = (int)kernel->cluster[1];
        break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
        *out = (int)kernel->cluster[2];
        break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        *out = func->nonportable_cluster;
        break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        *out = 0;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static CUresult set_attribute(struct sim_func *func, CUfunction_attribute attribute, int value)
{
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        if (value < 0 || (unsigned)value + func->kernel->shared_bytes > BLOCK_SHARED)
            return CUDA_ERROR_INVALID_VALUE;
        func->max_dynamic_shared = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        if (value < -1 || value > 100)
            return CUDA_ERROR_INVALID_VALUE;
        func->carveout = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        func->nonportable_cluster = value != 0;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* The function of a kernel on a device: that of the current context if it is on it, else of the primary context. */
static CUresult kernel_on_device(struct sim_call *call, CUkernel kernel, CUdevice dev, struct sim_func **out)
{
    struct sim_device *device = sim_device_get(dev);
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!sim_handle_is(kernel, SIM_IS_KERNEL))
        return CUDA_ERROR_INVALID_HANDLE;
    struct sim_context *context =
        call->context != NULL && call->context->device == device ? call->context : device->primary;
    if (context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    return sim_func_get((CUfunction)kernel, context, out);
}

SIM_API(SIM_CONTEXT, cuFuncGetAttribute, (int *pi, CUfunction_attribute attrib, CUfunction hfunc), pi, attrib, hfunc)
{
    struct sim_func *func;
    if (pi == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(func_get(call, hfunc, &func));
    return get_attribute(func, attrib, pi);
}

SIM_API(SIM_CONTEXT, cuFuncSetAttribute, (CUfunction hfunc, CUfunction_attribute attrib, int value), hfunc, attrib,
        value)
{
    struct sim_func *func;
    SIM_TRY(func_get(call, hfunc, &func));
    return set_attribute(func, attrib, value);
}

SIM_API(SIM_INIT, cuKernelGetAttribute, (int *pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev), pi,
        attrib, kernel, dev)
{
    struct sim_func *func;
    if (pi == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(kernel_on_device(call, kernel, dev, &func));
    return get_attribute(func, attrib, pi);
}

SIM_API(SIM_INIT, cuKernelSetAttribute, (CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev), attrib,
        val, kernel, dev)
{
    struct sim_func *func;
    SIM_TRY(kernel_on_device(call, kernel, dev, &func));
    return set_attribute(func, attrib, val);
}

SIM_API(SIM_INIT, cuKernelSetCacheConfig, (CUkernel kernel, CUfunc_cache config, CUdevice dev), kernel, config, dev)
{
    (void)config;
    struct sim_func *func;
    return kernel_on_device(call, kernel, dev, &func);
}

SIM_API(SIM_CONTEXT, cuFuncSetCacheConfig, (CUfunction hfunc, CUfunc_cache config), hfunc, config)
{
    (void)config;
    struct sim_func *func;
    return func_get(call, hfunc, &func);
}

SIM_API(SIM_CONTEXT, cuFuncSetSharedMemConfig, (CUfunction hfunc, CUsharedconfig config), hfunc, config)
{
    (void)config;
    struct sim_func *func;
    return func_get(call, hfunc, &func);
}

SIM_API(SIM_CONTEXT, cuFuncGetModule, (CUmodule * hmod, CUfunction hfunc), hmod, hfunc)
{
    struct sim_func *func;
    if (hmod == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(func_get(call, hfunc, &func));
    *hmod = (CUmodule)func->module;
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuFuncGetName, (const char **name, CUfunction hfunc), name, hfunc)
{
    struct sim_func *func;
    if (name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(func_get(call, hfunc, &func));
    *name = func->site;
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuFuncGetParamInfo, (CUfunction handle, size_t paramIndex, size_t *paramOffset, size_t *paramSize),
        handle, paramIndex, paramOffset, paramSize)
{
    struct sim_func *func;
    SIM_TRY(func_get(call, handle, &func));
    if (paramOffset == NULL || paramIndex >= func->kernel->param_count)
        return CUDA_ERROR_INVALID_VALUE;
    *paramOffset = func->kernel->param[paramIndex].offset;
    if (paramSize != NULL)
        *paramSize = func->kernel->param[paramIndex].size;
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuFuncIsLoaded, (CUfunctionLoadingState * state, CUfunction handle), state, handle)
{
    struct sim_func *func;
    if (state == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(func_get(call, handle, &func));
    *state = func->loaded ? CU_FUNCTION_LOADING_STATE_LOADED : CU_FUNCTION_LOADING_STATE_UNLOADED;
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuFuncLoad, (CUfunction handle), handle)
{
    struct sim_func *func;
    SIM_TRY(func_get(call, handle, &func));
    func->loaded = 1;
    return CUDA_SUCCESS;
}

int sim_sm_count(void)
{
    return SM_COUNT;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

int sim_blocks_per_sm(const struct sim_func *func, int block_threads, size_t dynamic_shared_bytes)
{
    int threads = (block_threads + 31) / 32 * 32;
    size_t shared = func->kernel->shared_bytes + dynamic_shared_bytes + 1024; /* the system keeps 1 KiB of each block */
    int registers = func->kernel->registers != 0 ? (int)func->kernel->registers : 32;
    if (block_threads <= 0 || block_threads > (int)func->kernel->max_threads || shared > SM_SHARED)
        return 0;
    int blocks = least(SM_BLOCKS, SM_THREADS / threads);
    blocks = least(blocks, (int)(SM_SHARED / shared));
    return least(blocks, SM_REGISTERS / ((registers + 7) / 8 * 8 * threads));
}

static CUresult active_blocks(struct sim_call *call, int *out, CUfunction handle, int block_threads,
                              size_t dynamic_bytes)
{
    struct sim_func *func;
    if (out == NULL || block_threads <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_func_get(handle, call->context, &func));
    *out = sim_blocks_per_sm(func, block_threads, dynamic_bytes);
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuOccupancyMaxActiveBlocksPerMultiprocessor,
        (int *numBlocks, CUfunction func, int blockSize, size_t dynamicSMemSize), numBlocks, func, blockSize,
        dynamicSMemSize)
{
    return active_blocks(call, numBlocks, func, blockSize, dynamicSMemSize);
}

SIM_API(SIM_CONTEXT, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
        (int *numBlocks, CUfunction func, int blockSize, size_t dynamicSMemSize, unsigned int flags), numBlocks, func,
        blockSize, dynamicSMemSize, flags)
{
    return flags > 1 ? CUDA_ERROR_INVALID_VALUE : active_blocks(call, numBlocks, func, blockSize, dynamicSMemSize);
}

/* The largest block that reaches the most threads on a multiprocessor. */
static CUresult potential_block(struct sim_call *call, int *grid, int *block, CUfunction handle,
                                CUoccupancyB2DSize bytes_of, size_t dynamic_bytes, int limit)
{
    struct sim_func *func;
    if (grid == NULL || block == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_func_get(handle, call->context, &func));
    int most = (int)func->kernel->max_threads;
    if (limit > 0 && limit < most)
        most = limit;
    int best = 0, best_threads = 0;
    for (int threads = most; threads > 0; threads = threads > 32 ? (threads - 1) / 32 * 32 : 0) {
        int got = sim_blocks_per_sm(func, threads, bytes_of != NULL ? bytes_of(threads) : dynamic_bytes) * threads;
        if (got > best) {
            best = got;
            best_threads = threads;
        }
    }
    if (best == 0)
        return CUDA_ERROR_INVALID_VALUE;
    *block = best_threads;
    *grid = best / best_threads * SM_COUNT;
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuOccupancyMaxPotentialBlockSize,
        (int *minGridSize, int *blockSize, CUfunction func, CUoccupancyB2DSize blockSizeToDynamicSMemSize,
         size_t dynamicSMemSize, int blockSizeLimit),
        minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize, blockSizeLimit)
{
    return potential_block(call, minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize,
                           blockSizeLimit);
}

SIM_API(SIM_CONTEXT, cuOccupancyMaxPotentialBlockSizeWithFlags,
        (int *minGridSize, int *blockSize, CUfunction func, CUoccupancyB2DSize blockSizeToDynamicSMemSize,
         size_t dynamicSMemSize, int blockSizeLimit, unsigned int flags),
        minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize, blockSizeLimit, flags)
{
    if (flags > 1)
        return CUDA_ERROR_INVALID_VALUE;
    return potential_block(call, minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize,
                           blockSizeLimit);
}

SIM_API(SIM_CONTEXT, cuOccupancyAvailableDynamicSMemPerBlock,
        (size_t * dynamicSmemSize, CUfunction handle, int numBlocks, int blockSize), dynamicSmemSize, handle, numBlocks,
        blockSize)
{
    struct sim_func *func;
    if (dynamicSmemSize == NULL || numBlocks <= 0 || blockSize <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_func_get(handle, call->context, &func));
    size_t share = SM_SHARED / (size_t)numBlocks, taken = func->kernel->shared_bytes + 1024;
    size_t left = share > taken ? share - taken : 0;
    *dynamicSmemSize = left < BLOCK_SHARED ? left : BLOCK_SHARED;
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuOccupancyMaxPotentialClusterSize,
        (int *clusterSize, CUfunction handle, const CUlaunchConfig *config), clusterSize, handle, config)
{
    struct sim_func *func;
    if (clusterSize == NULL || config == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_func_get(handle, call->context, &func));
    *clusterSize = func->nonportable_cluster ? 16 : 8;
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuOccupancyMaxActiveClusters, (int *numClusters, CUfunction handle, const CUlaunchConfig *config),
        numClusters, handle, config)
{
    struct sim_func *func;
    if (numClusters == NULL || config == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_func_get(handle, call->context, &func));
    int threads = (int)(config->blockDimX * config->blockDimY * config->blockDimZ), cluster = 1;
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            cluster = (int)(config->attrs[i].value.clusterDim.x * config->attrs[i].value.clusterDim.y *
                            config->attrs[i].value.clusterDim.z);
    *numClusters = cluster > 0 ? sim_blocks_per_sm(func, threads, config->sharedMemBytes) * SM_COUNT / cluster : 0;
    return CUDA_SUCCESS;
}
