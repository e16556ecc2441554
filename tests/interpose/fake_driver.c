#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "fake.h"
#include "record.h"

static bool set(const char *option)
{
    return getenv(option) != NULL;
}

static CUresult injected(const char *name)
{
    const char *fail = getenv("FAKE_FAIL");
    const char *colon = fail != NULL ? strchr(fail, ':') : NULL;
    if (colon == NULL) {
        return CUDA_SUCCESS;
    }
    const size_t length = (size_t)(colon - fail);
    const bool hit = fail[0] == '*' || (strlen(name) == length && strncmp(name, fail, length) == 0);
    return hit ? (CUresult)atoi(colon + 1) : CUDA_SUCCESS;
}

CUresult fake_call(const char *name)
{
    record("driver %s", name);
    return injected(name);
}

/* A function of the driver under its exact name, with a body of its own. */
#define ENTRY(name, params)                     \
    CUresult fake_##name params __asm__(#name); \
    CUresult fake_##name params

/* Notes the call and answers a failure if one was asked for. */
#define CALLED(name)                              \
    do {                                          \
        const CUresult failure = fake_call(name); \
        if (failure != CUDA_SUCCESS) {            \
            return failure;                       \
        }                                         \
    } while (0)

/* The names without a version: the 32-bit interface, other signatures. */
#define OLD(name)                \
    ENTRY(name, (void))          \
    {                            \
        return fake_call(#name); \
    }
#undef cuMemAlloc
#undef cuMemFree
#undef cuMemGetInfo
#undef cuMemcpyHtoD
#undef cuMemcpyDtoH
#undef cuMemGetAddressRange
#undef cuMemsetD8
#undef cuModuleGetGlobal
OLD(cuMemAlloc)
OLD(cuMemFree)
OLD(cuMemGetInfo)
OLD(cuMemcpyHtoD)
OLD(cuMemcpyDtoH)
OLD(cuMemGetAddressRange)
OLD(cuMemsetD8)
OLD(cuModuleGetGlobal)
OLD(cuGetExportTable)

/* The driver calls its public functions through the dynamic linker, as anybody may. */
static CUresult public_alloc(CUdeviceptr *address, size_t bytes)
{
    CUresult (*function)(CUdeviceptr *, size_t);
    *(void **)&function = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
    return function(address, bytes);
}

static CUresult public_copy_and_wait(CUdeviceptr dst, const void *src, size_t bytes)
{
    CUresult (*copy)(CUdeviceptr, const void *, size_t, CUstream), (*wait)(CUstream);
    *(void **)&copy = dlsym(RTLD_DEFAULT, "cuMemcpyHtoDAsync_v2");
    *(void **)&wait = dlsym(RTLD_DEFAULT, "cuStreamSynchronize");
    const CUresult result = copy(dst, src, bytes, NULL);
    return result == CUDA_SUCCESS ? wait(NULL) : result;
}

ENTRY(cuInit, (unsigned flags))
{
    (void)flags;
    static int depth;
    CALLED("cuInit");
    if (set("FAKE_SELF") && depth++ == 0) {
        void *const handles[] = {dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), RTLD_DEFAULT};
        for (int i = 0; i < 2; i++) {
            record("self cuInit=%d cuLaunchKernel=%d", dlsym(handles[i], "cuInit") != NULL,
                   dlsym(handles[i], "cuLaunchKernel") != NULL);
        }
        CUdeviceptr address;
        return public_alloc(&address, 64);
    }
    return CUDA_SUCCESS;
}

__attribute__((constructor)) static void loaded(void)
{
    if (set("FAKE_CONSTRUCTOR")) {
        CUdeviceptr address = 0;
        record("constructor found=%d", dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") != NULL);
        record("constructor result=%d", public_alloc(&address, 64));
    }
}

ENTRY(cuMemAlloc_v2, (CUdeviceptr * out, size_t bytes))
{
    static _Atomic CUdeviceptr next = 0x700000000000;
    CALLED("cuMemAlloc_v2");
    *out = __atomic_fetch_add((CUdeviceptr *)&next, (bytes + 0xffff) & ~(CUdeviceptr)0xffff, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

ENTRY(cuMemGetInfo_v2, (size_t * free_bytes, size_t *total_bytes))
{
    CALLED("cuMemGetInfo_v2");
    *free_bytes = 3;
    *total_bytes = 4;
    return CUDA_SUCCESS;
}

ENTRY(cuMemcpyHtoD_v2, (CUdeviceptr dst, const void *src, size_t bytes))
{
    CALLED("cuMemcpyHtoD_v2");
    if (set("FAKE_NEST")) {
        return public_copy_and_wait(dst, src, bytes);
    }
    return CUDA_SUCCESS;
}

/* Addresses with a bit above 2^44 are device memory, with bit 43 set pinned host memory; the others are unknown to it.
 */
ENTRY(cuPointerGetAttribute, (void *value, CUpointer_attribute attribute, CUdeviceptr address))
{
    CALLED("cuPointerGetAttribute");
    if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) {
        if (address >> 40 == 0x08) {
            *(CUmemorytype *)value = CU_MEMORYTYPE_HOST;
        } else if (address >> 44 == 0x7 && address >> 40 <= 0x70) {
            *(CUmemorytype *)value = CU_MEMORYTYPE_DEVICE;
        } else {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    if (attribute == CU_POINTER_ATTRIBUTE_IS_MANAGED) {
        *(unsigned *)value = address == 0x9800;
    }
    return CUDA_SUCCESS;
}

ENTRY(cuMemAllocManaged, (CUdeviceptr * out, size_t bytes, unsigned flags))
{
    (void)bytes;
    (void)flags;
    CALLED("cuMemAllocManaged");
    *out = 0x4000;
    return CUDA_SUCCESS;
}

ENTRY(cuMemHostAlloc, (void **out, size_t bytes, unsigned flags))
{
    (void)bytes;
    (void)flags;
    CALLED("cuMemHostAlloc");
    *out = (void *)0x7000;
    return CUDA_SUCCESS;
}

ENTRY(cuMemAllocHost_v2, (void **out, size_t bytes))
{
    (void)bytes;
    CALLED("cuMemAllocHost_v2");
    *out = (void *)0x7100;
    return CUDA_SUCCESS;
}

#define POOL_ENTRIES(suffix)                                                                                      \
    ENTRY(cuMemAllocAsync##suffix, (CUdeviceptr * out, size_t bytes, CUstream stream))                            \
    {                                                                                                             \
        (void)bytes;                                                                                              \
        (void)stream;                                                                                             \
        CALLED("cuMemAllocAsync" #suffix);                                                                        \
        *out = 0x5000;                                                                                            \
        return CUDA_SUCCESS;                                                                                      \
    }                                                                                                             \
    ENTRY(cuMemAllocFromPoolAsync##suffix, (CUdeviceptr * out, size_t bytes, CUmemoryPool pool, CUstream stream)) \
    {                                                                                                             \
        (void)bytes;                                                                                              \
        (void)pool;                                                                                               \
        (void)stream;                                                                                             \
        CALLED("cuMemAllocFromPoolAsync" #suffix);                                                                \
        *out = 0x6000;                                                                                            \
        return CUDA_SUCCESS;                                                                                      \
    }
POOL_ENTRIES()
POOL_ENTRIES(_ptsz)

ENTRY(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus *status))
{
    CALLED("cuStreamIsCapturing");
    *status = (uintptr_t)stream == 0xca ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

ENTRY(cuMemCreate,
      (CUmemGenericAllocationHandle * handle, size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags))
{
    (void)bytes;
    (void)prop;
    (void)flags;
    CALLED("cuMemCreate");
    *handle = 0x77;
    return CUDA_SUCCESS;
}

ENTRY(cuCtxGetDevice, (CUdevice * device))
{
    CALLED("cuCtxGetDevice");
    *device = 5;
    return CUDA_SUCCESS;
}

/* Handles that are given out: any value does, as long as the test can tell them apart. */
#define GIVES(name, params, out, value) \
    ENTRY(name, params)                 \
    {                                   \
        CALLED(#name);                  \
        *out = (void *)value;           \
        return CUDA_SUCCESS;            \
    }
#pragma GCC diagnostic ignored "-Wunused-parameter"
GIVES(cuModuleLoad, (void **module, const char *path), module, 0xa1)
GIVES(cuModuleLoadData, (void **module, const void *image), module, 0xa2)
GIVES(cuModuleLoadDataEx, (void **module, const void *image, unsigned count, CUjit_option *option, void **value),
      module, 0xa3)
GIVES(cuModuleLoadFatBinary, (void **module, const void *image), module, 0xa4)
GIVES(cuLibraryLoadData,
      (void **library, const void *image, CUjit_option *jit, void **value, unsigned count, CUlibraryOption *option,
       void **option_value, unsigned option_count),
      library, 0xb1)
GIVES(cuLibraryLoadFromFile,
      (void **library, const char *path, CUjit_option *jit, void **value, unsigned count, CUlibraryOption *option,
       void **option_value, unsigned option_count),
      library, 0xb2)
GIVES(cuModuleGetFunction, (void **function, CUmodule module, const char *name), function, 0xf1)
GIVES(cuLibraryGetKernel, (void **kernel, CUlibrary library, const char *name), kernel, 0xf2)
GIVES(cuDevicePrimaryCtxRetain, (void **context, CUdevice device), context, 0xc1)

ENTRY(cuFuncGetName, (const char **name, CUfunction function))
{
    CALLED("cuFuncGetName");
    *name = "a_function";
    return CUDA_SUCCESS;
}

ENTRY(cuKernelGetName, (const char **name, CUkernel kernel))
{
    CALLED("cuKernelGetName");
    *name = "a_kernel";
    return CUDA_SUCCESS;
}

/* There are two of each. */
ENTRY(cuModuleGetFunctionCount, (unsigned *count, CUmodule module))
{
    CALLED("cuModuleGetFunctionCount");
    *count = 2;
    return CUDA_SUCCESS;
}

ENTRY(cuLibraryGetKernelCount, (unsigned *count, CUlibrary library))
{
    CALLED("cuLibraryGetKernelCount");
    *count = 2;
    return CUDA_SUCCESS;
}

ENTRY(cuModuleEnumerateFunctions, (void **function, unsigned count, CUmodule module))
{
    CALLED("cuModuleEnumerateFunctions");
    for (unsigned i = 0; i < count && i < 2; i++) {
        function[i] = (void *)(uintptr_t)(0xe1 + i);
    }
    return CUDA_SUCCESS;
}

ENTRY(cuLibraryEnumerateKernels, (void **kernel, unsigned count, CUlibrary library))
{
    CALLED("cuLibraryEnumerateKernels");
    for (unsigned i = 0; i < count && i < 2; i++) {
        kernel[i] = (void *)(uintptr_t)(0xd1 + i);
    }
    return CUDA_SUCCESS;
}

#define GLOBAL(name, owner, place)                                                       \
    ENTRY(name, (CUdeviceptr * address, size_t * bytes, owner from, const char *symbol)) \
    {                                                                                    \
        CALLED(#name);                                                                   \
        if (address == NULL && bytes == NULL) {                                          \
            return CUDA_ERROR_INVALID_VALUE;                                             \
        }                                                                                \
        if (address != NULL) {                                                           \
            *address = place;                                                            \
        }                                                                                \
        if (bytes != NULL) {                                                             \
            *bytes = 24;                                                                 \
        }                                                                                \
        return CUDA_SUCCESS;                                                             \
    }
GLOBAL(cuModuleGetGlobal_v2, CUmodule, 0x9000)
GLOBAL(cuLibraryGetGlobal, CUlibrary, 0x9000)
GLOBAL(cuLibraryGetManaged, CUlibrary, 0x9800)

/* Launches: what arrived. */
static CUresult arrived(const char *name, const unsigned *grid, unsigned shared, CUstream stream, CUfunction function,
                        void **params, void **extra)
{
    CALLED(name);
    record("arrived %s %u,%u,%u,%u,%u,%u shared=%u stream=%p function=%p params=%p extra=%p", name, grid[0], grid[1],
           grid[2], grid[3], grid[4], grid[5], shared, (void *)stream, (void *)function, (void *)params, (void *)extra);
    return CUDA_SUCCESS;
}

#define GRID                                                                                           \
    CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, \
        unsigned shared, CUstream stream, void **params
#define LAUNCH_ENTRIES(suffix)                                                                                         \
    ENTRY(cuLaunchKernel##suffix, (GRID, void **extra))                                                                \
    {                                                                                                                  \
        return arrived("cuLaunchKernel" #suffix, (unsigned[]){gx, gy, gz, bx, by, bz}, shared, stream, function,       \
                       params, extra);                                                                                 \
    }                                                                                                                  \
    ENTRY(cuLaunchCooperativeKernel##suffix, (GRID))                                                                   \
    {                                                                                                                  \
        return arrived("cuLaunchCooperativeKernel" #suffix, (unsigned[]){gx, gy, gz, bx, by, bz}, shared, stream,      \
                       function, params, NULL);                                                                        \
    }                                                                                                                  \
    ENTRY(cuLaunchKernelEx##suffix, (const CUlaunchConfig *config, CUfunction function, void **params, void **extra))  \
    {                                                                                                                  \
        uint64_t sum = 0;                                                                                              \
        CALLED("cuLaunchKernelEx" #suffix);                                                                            \
        if (config == NULL) {                                                                                          \
            return CUDA_ERROR_INVALID_VALUE;                                                                           \
        }                                                                                                              \
        const unsigned char *byte = (const unsigned char *)config->attrs;                                              \
        for (size_t i = 0; i < config->numAttrs * sizeof *config->attrs; i++) {                                        \
            sum = sum * 31 + byte[i];                                                                                  \
        }                                                                                                              \
        record("arrived cuLaunchKernelEx" #suffix " config=%p attributes=%p sum=%llx function=%p params=%p extra=%p",  \
               (const void *)config, (void *)config->attrs, (unsigned long long)sum, (void *)function, (void *)params, \
               (void *)extra);                                                                                         \
        return CUDA_SUCCESS;                                                                                           \
    }
LAUNCH_ENTRIES()
LAUNCH_ENTRIES(_ptsz)

/* Which exported function a base name means: from the version on that a row says, the last row that fits. */
static const struct {
    const char *base, *symbol, *per_thread;
    int version;
} procs[] = {
    {"cuGetProcAddress", "cuGetProcAddress", "", 11030},
    {"cuGetProcAddress", "cuGetProcAddress_v2", "", 12000},
    {"cuMemAlloc", "cuMemAlloc", "", 2000},
    {"cuMemAlloc", "cuMemAlloc_v2", "", 3020},
    {"cuMemcpy", "cuMemcpy", "_ptds", 4000},
    {"cuMemcpyAsync", "cuMemcpyAsync", "_ptsz", 4000},
    {"cuMemcpyHtoD", "cuMemcpyHtoD", "", 2000},
    {"cuMemcpyHtoD", "cuMemcpyHtoD_v2", "_ptds", 3020},
    {"cuLaunchKernel", "cuLaunchKernel", "_ptsz", 4000},
    {"cuLaunchKernelEx", "cuLaunchKernelEx", "_ptsz", 11060},
    {"cuStreamBeginCapture", "cuStreamBeginCapture", "_ptsz", 10000},
    {"cuStreamBeginCapture", "cuStreamBeginCapture_v2", "_ptsz", 10010},
    {"cuGraphExecUpdate", "cuGraphExecUpdate", "", 10020},
    {"cuGraphExecUpdate", "cuGraphExecUpdate_v2", "", 12000},
    {"cuMemcpyBatchAsync", "cuMemcpyBatchAsync", "_ptsz", 12080},
    {"cuMemcpyBatchAsync", "cuMemcpyBatchAsync_v2", "_ptsz", 13000},
    {"cuCtxSynchronize", "cuCtxSynchronize", "", 2000},
    {"cuCtxSynchronize", "cuCtxSynchronize_v2", "", 13000},
    {"cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease", "", 7000},
    {"cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2", "", 11000},
    {"cuInit", "cuInit", "", 2000},
};

static void *own(const char *symbol)
{
    static void *self;
    if (self == NULL) {
        self = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    }
    return self != NULL ? dlsym(self, symbol) : NULL;
}

static void *choose(const char *base, int version, cuuint64_t flags)
{
    char symbol[96] = "";
    for (size_t i = 0; i < sizeof procs / sizeof procs[0]; i++) {
        if (strcmp(procs[i].base, base) == 0 && version >= procs[i].version) {
            const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
            snprintf(symbol, sizeof symbol, "%s%s", procs[i].symbol, per_thread ? procs[i].per_thread : "");
        }
    }
    return symbol[0] ? own(symbol) : NULL;
}

ENTRY(cuGetProcAddress, (const char *symbol, void **out, int version, cuuint64_t flags))
{
    CALLED("cuGetProcAddress");
    void *found = choose(symbol, version, flags);
    if (found == NULL) {
        return CUDA_ERROR_NOT_FOUND;
    }
    *out = found;
    return CUDA_SUCCESS;
}

ENTRY(cuGetProcAddress_v2,
      (const char *symbol, void **out, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status))
{
    CALLED("cuGetProcAddress_v2");
    void *found = choose(symbol, version, flags);
    if (status != NULL) {
        *status = found != NULL ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    if (found == NULL) {
        return CUDA_ERROR_NOT_FOUND;
    }
    *out = found;
    return CUDA_SUCCESS;
}
