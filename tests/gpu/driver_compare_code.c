/* Programs about entry points, images, libraries and launches. */
#define _GNU_SOURCE
#include "driver_compare.h"

#include <dlfcn.h>
#include <stdio.h>

static void look_up(const char *base, int version, unsigned long long flags, const char *symbol)
{
    void *one = NULL, *two = NULL;
    char step[160];
    CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)77;
    union {
        void *pointer;
        CUresult (*get)(const char *, void **, int, cuuint64_t);
    } old = {dlsym(library, "cuGetProcAddress")};
    CUresult first = old.get(base, &one, version, flags),
             second = d.cuGetProcAddress_(base, &two, version, flags, &status);
    void *wanted = symbol != NULL ? dlsym(library, symbol) : NULL;
    snprintf(step, sizeof step, "'%s' at %d flags %llu: status, v1 and v2 give %s", base, version, flags,
             symbol != NULL ? symbol : "NULL");
    printf("%s: %s: %d, %d (%d), %d (%d)\n", program_name, step, (int)status, one == wanted, (int)first, two == wanted,
           (int)second);
}

void run_getproc(void)
{
    void *pointer = NULL;
    CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)77;
    look_up("cuMemAlloc", 3010, 0, "cuMemAlloc");
    look_up("cuMemAlloc", 3020, 0, "cuMemAlloc_v2");
    look_up("cuMemAlloc", 12000, 2, "cuMemAlloc_v2");
    look_up("cuMemcpyHtoD", 12000, 2, "cuMemcpyHtoD_v2_ptds");
    look_up("cuMemcpyHtoDAsync", 12000, 2, "cuMemcpyHtoDAsync_v2_ptsz");
    look_up("cuMemcpyHtoDAsync", 12000, 1, "cuMemcpyHtoDAsync_v2");
    look_up("cuLaunchKernel", 6000, 2, "cuLaunchKernel");
    look_up("cuLaunchKernel", 12000, 2, "cuLaunchKernel_ptsz");
    look_up("cuCtxCreate", 3020, 0, "cuCtxCreate_v2");
    look_up("cuCtxCreate", 11040, 0, "cuCtxCreate_v3");
    look_up("cuCtxCreate", 13000, 0, "cuCtxCreate_v4");
    look_up("cuGetProcAddress", 11030, 0, "cuGetProcAddress");
    look_up("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2");
    look_up("cuStreamBeginCapture", 10000, 0, "cuStreamBeginCapture");
    look_up("cuStreamBeginCapture", 10010, 0, "cuStreamBeginCapture_v2");
    look_up("cuGraphInstantiate", 10000, 0, "cuGraphInstantiate");
    look_up("cuGraphInstantiate", 11000, 0, "cuGraphInstantiate_v2");
    look_up("cuGraphInstantiate", 12000, 0, "cuGraphInstantiateWithFlags");
    look_up("cuGraphExecUpdate", 10020, 0, "cuGraphExecUpdate");
    look_up("cuGraphExecUpdate", 12000, 0, "cuGraphExecUpdate_v2");
    look_up("cuEventElapsedTime", 12000, 0, "cuEventElapsedTime");
    look_up("cuEventElapsedTime", 12080, 0, "cuEventElapsedTime_v2");
    look_up("cuStreamGetCaptureInfo", 12030, 0, "cuStreamGetCaptureInfo_v3");
    look_up("cuMemAlloc_v2", 13000, 0, NULL);
    look_up("cuLaunchKernel_ptsz", 13000, 0, NULL);
    look_up("cuLaunchKernelEx", 11000, 0, NULL);
    look_up("cuNoSuchFunction", 13000, 0, NULL);
    look_up("", 12000, 0, NULL);
    say("version above every driver", d.cuGetProcAddress_("cuInit", &pointer, 99000, 0, &status));
    tell("version above: found", pointer != NULL);
    say("version 0", d.cuGetProcAddress_("cuInit", &pointer, 0, 0, &status));
    say("unknown flag", d.cuGetProcAddress_("cuInit", &pointer, 12000, 64, &status));
    say("NULL status", d.cuGetProcAddress_("cuInit", &pointer, 12000, 0, NULL));
    say("empty name, NULL status", d.cuGetProcAddress_("", &pointer, 12000, 0, NULL));
}

static void tell_params(CUmodule from, const char *name)
{
    CUfunction f;
    size_t offset, size;
    char step[128];
    if (d.cuModuleGetFunction_(&f, from, name) != CUDA_SUCCESS)
        return;
    for (size_t i = 0; i < 6; i++) {
        CUresult result = d.cuFuncGetParamInfo_(f, i, &offset, &size);
        snprintf(step, sizeof step, "%s parameter %zu", name, i);
        if (result != CUDA_SUCCESS) {
            say(step, result);
            return;
        }
        tell(step, (long long)(offset << 16 | size));
    }
}

void run_module(void)
{
    static const char *const good[] = {"odd.ptx", "odd_none.fatbin", "odd_size.fatbin", "odd_speed.fatbin",
                                       "odd_ptx.fatbin"};
    static const char *const kernels[] = {"odd_none", "odd_mixed", "odd_large", "odd_bound"};
    char nonsense[256] = {1, 2, 3};
    CUmodule loaded;
    CUfunction f;
    CUdeviceptr address;
    size_t bytes;
    unsigned count;
    int value;
    start();
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        say(good[i], d.cuModuleLoadData_(&loaded, bytes_of(good[i])));
        for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++)
            tell_params(loaded, kernels[k]);
        say("function count", d.cuModuleGetFunctionCount_(&count, loaded));
        tell("functions", count);
        say("global", d.cuModuleGetGlobal_(&address, &bytes, loaded, "odd_counter"));
        tell("its size", (long long)bytes);
        tell_word("its value", address);
        say("constant", d.cuModuleGetGlobal_(&address, &bytes, loaded, "odd_factors"));
        tell("its size", (long long)bytes);
        tell_word("its third value", address + 8);
        say("unknown global", d.cuModuleGetGlobal_(&address, &bytes, loaded, "odd_missing"));
        say("unknown function", d.cuModuleGetFunction_(&f, loaded, "odd_missing"));
    }
    say("bounded function", d.cuModuleGetFunction_(&f, loaded, "odd_bound"));
    say("its most threads", d.cuFuncGetAttribute_(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f));
    tell("threads", value);
    say("launch above the bound", d.cuLaunchKernel_(f, 1, 1, 1, 256, 1, 1, 0, NULL, (void *[]){&a}, NULL));
    say("set registers", d.cuFuncSetAttribute_(f, CU_FUNC_ATTRIBUTE_NUM_REGS, 1));
    say("set dynamic shared", d.cuFuncSetAttribute_(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000));
    say("set too much", d.cuFuncSetAttribute_(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 300000));
    say("cubin of another architecture", d.cuModuleLoadData_(&loaded, bytes_of("odd_75.cubin")));
    say("nonsense", d.cuModuleLoadData_(&loaded, nonsense));
    say("nonsense text", d.cuModuleLoadData_(&loaded, "This is no program at all."));
    say("missing file", d.cuModuleLoad_(&loaded, "/nonexistent.cubin"));
    say("NULL image", d.cuModuleLoadData_(&loaded, NULL));
    CUfunctionLoadingState state;
    say("is loaded", d.cuFuncIsLoaded_(&state, function("probe_fill")));
}

void run_library(void)
{
    CUlibrary loaded;
    CUkernel kernel;
    CUfunction f;
    CUmodule owner;
    size_t offset = 0, size = 0;
    unsigned count = 0;
    const char *name = NULL;
    uint32_t value = 5;
    NEED(CALL(cuInit, 0));
    say("load without context",
        d.cuLibraryLoadFromFile_(&loaded, path_of(images, "probe.fatbin"), NULL, NULL, 0, NULL, NULL, 0));
    say("kernel", d.cuLibraryGetKernel_(&kernel, loaded, "probe_fill"));
    say("unknown kernel", d.cuLibraryGetKernel_((CUkernel *)&f, loaded, "missing"));
    say("count", d.cuLibraryGetKernelCount_(&count, loaded));
    say("parameter 1 of a kernel", d.cuKernelGetParamInfo_(kernel, 1, &offset, &size));
    tell("offset and size", (long long)(offset << 16 | size));
    say("parameter 3 of three", d.cuKernelGetParamInfo_(kernel, 3, &offset, &size));
    say("function without context", d.cuKernelGetFunction_(&f, kernel));
    start();
    say("function of the kernel", d.cuKernelGetFunction_(&f, kernel));
    say("cuFuncGetParamInfo of it", d.cuFuncGetParamInfo_(f, 1, &offset, &size));
    say("cuFuncGetParamInfo of the kernel", d.cuFuncGetParamInfo_((CUfunction)kernel, 0, &offset, &size));
    say("cuFuncGetName of the kernel", d.cuFuncGetName_(&name, (CUfunction)kernel));
    say("cuFuncGetModule of the kernel", d.cuFuncGetModule_(&owner, (CUfunction)kernel));
    int attribute = 0;
    say("cuFuncGetAttribute of the kernel",
        d.cuFuncGetAttribute_(&attribute, CU_FUNC_ATTRIBUTE_NUM_REGS, (CUfunction)kernel));
    say("launch of the kernel",
        d.cuLaunchKernel_((CUfunction)kernel, 1, 1, 1, 32, 1, 1, 0, NULL, (void *[]){&a, &value, &words}, NULL));
    tell_word("what it wrote", a);
    say("unload of a library's module", d.cuFuncGetModule_(&owner, f));
    say("  answers", d.cuModuleUnload_(owner));
}

void run_launch(void)
{
    uint32_t value = 7;
    start();
    CUfunction f = function("probe_fill");
    void *list[] = {&a, &value, &words};
    struct {
        CUdeviceptr out;
        uint32_t value;
        uint64_t words;
        char more[16];
    } block = {a, 9, WORDS, {0}};
    size_t bytes = 24;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &block, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    static const unsigned shapes[][7] = {
        {0, 1, 1, 32, 1, 1, 0},      {1, 0, 1, 32, 1, 1, 0},    {1, 1, 1, 0, 1, 1, 0},
        {1, 1, 1, 2048, 1, 1, 0},    {1, 1, 1, 1, 1, 65, 0},    {1, 1, 1, 64, 32, 1, 0},
        {1, 65536, 1, 1, 1, 1, 0},   {1, 1, 65536, 1, 1, 1, 0}, {0x80000000, 1, 1, 1, 1, 1, 0},
        {1, 1, 1, 1, 1, 1, 1 << 20}, {1, 1, 1, 1, 1, 1, 49153}, {1, 1, 1, 1, 1, 1, 49152},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        char step[32];
        const unsigned *x = shapes[i];
        snprintf(step, sizeof step, "shape %zu", i);
        say(step, d.cuLaunchKernel_(f, x[0], x[1], x[2], x[3], x[4], x[5], x[6], NULL, list, NULL));
    }
    say("NULL function", d.cuLaunchKernel_(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, list, NULL));
    say("extra", d.cuLaunchKernel_(f, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, extra));
    tell_word("it wrote", a);
    bytes = 23;
    say("extra one byte short", d.cuLaunchKernel_(f, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, extra));
    bytes = 32;
    say("extra eight bytes long", d.cuLaunchKernel_(f, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, extra));
    bytes = 24;
    say("both", d.cuLaunchKernel_(f, 1, 1, 1, 32, 1, 1, 0, NULL, list, extra));
    say("neither", d.cuLaunchKernel_(f, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
    CUlaunchAttribute attribute[2] = {{.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value = {.clusterDim = {2, 1, 1}}},
                                      {.id = CU_LAUNCH_ATTRIBUTE_IGNORE}};
    CUlaunchConfig config = {.gridDimX = 4,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 32,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .attrs = attribute,
                             .numAttrs = 2};
    say("cluster of 2", d.cuLaunchKernelEx_(&config, f, list, NULL));
    attribute[0].value.clusterDim.x = 3;
    say("cluster of 3 in a grid of 4", d.cuLaunchKernelEx_(&config, f, list, NULL));
    attribute[0].value.clusterDim.x = 0;
    say("cluster of 0", d.cuLaunchKernelEx_(&config, f, list, NULL));
    attribute[0].value.clusterDim.x = 16;
    config.gridDimX = 16;
    say("cluster of 16", d.cuLaunchKernelEx_(&config, f, list, NULL));
    say("allow large clusters", d.cuFuncSetAttribute_(f, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
    say("cluster of 16", d.cuLaunchKernelEx_(&config, f, list, NULL));
    attribute[0].id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
    attribute[0].value.launchCompletionEvent.event = event_of(CU_EVENT_DEFAULT);
    attribute[0].value.launchCompletionEvent.flags = 0;
    say("completion event with timing", d.cuLaunchKernelEx_(&config, f, list, NULL));
    attribute[0].value.launchCompletionEvent.event = event_of(CU_EVENT_DISABLE_TIMING);
    say("completion event without timing", d.cuLaunchKernelEx_(&config, f, list, NULL));
    attribute[0].id = (CUlaunchAttributeID)999;
    say("unknown attribute", d.cuLaunchKernelEx_(&config, f, list, NULL));
    say("cooperative", d.cuLaunchCooperativeKernel_(f, 8, 1, 1, 32, 1, 1, 0, NULL, list));
    say("cooperative too large", d.cuLaunchCooperativeKernel_(f, 1000000, 1, 1, 256, 1, 1, 0, NULL, list));
    int blocks = 0;
    say("occupancy", d.cuOccupancyMaxActiveBlocksPerMultiprocessor_(&blocks, f, 256, 0));
    tell("blocks", blocks);
    say("block shape", d.cuFuncSetBlockShape_(f, 32, 1, 1));
    say("parameters", d.cuParamSetv_(f, 0, &block, 24));
    say("their size", d.cuParamSetSize_(f, 24));
    say("cuLaunchGrid", d.cuLaunchGrid_(f, 2, 1));
    tell_word("it wrote", a);
    say("end", d.cuCtxSynchronize_());
}
