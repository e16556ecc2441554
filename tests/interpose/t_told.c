/* Proves: what the engine is told of memory, modules, contexts, captures and graphs, before or after the driver's call
 * as the contract says (HAMi-core#187, #169 for host-located handles). */
#include "interpose.h"
#include "rows.h"

#define STREAM ((CUstream)0x57)
#define GRAPH  ((CUgraph)0x60)
#define EXEC   ((CUgraphExec)0x61)
#define NODE   ((CUgraphNode)0x62)

static void attach(void)
{
    CHECK(elf_cuFuncGetModule(NULL, NULL) == CUDA_SUCCESS); /* not hooked */
    CHECK(elf_cuStreamQuery(NULL) == CUDA_SUCCESS);
    record_forget();
}

static void engine_answers(void)
{
    CUdeviceptr address = 0, base;
    size_t pitch, bytes, total;
    int value;
    CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_DEVICE_POINTER;
    void *values[] = {&value};
    attach();
    CHECK(elf_cuMemAlloc_v2(&address, 100) == 0 && address != 0);
    EXPECT("mem_alloc bytes=100", "driver cuMemAlloc_v2");
    CHECK(elf_cuMemAllocPitch_v2(&address, &pitch, 10, 20, 4) == 0);
    EXPECT("mem_alloc_pitch width=10 height=20 element=4", "driver cuMemAllocPitch_v2");
    CHECK(elf_cuMemGetInfo_v2(&bytes, &total) == 0 && bytes == 3 && total == 4);
    EXPECT("mem_get_info", "driver cuMemGetInfo_v2");
    CHECK(elf_cuMemGetAddressRange_v2(&base, &bytes, 0x10) == 0);
    EXPECT("mem_get_address_range 0x10", "driver cuMemGetAddressRange_v2");
    CHECK(elf_cuPointerGetAttribute(&value, attribute, 0x10) == 0);
    EXPECT("pointer_get_attribute 3 0x10", "driver cuPointerGetAttribute");
    CHECK(elf_cuPointerGetAttributes(1, &attribute, values, 0x10) == 0);
    EXPECT("pointer_get_attributes 1 0x10", "driver cuPointerGetAttributes");
    CHECK(elf_cuMemFree_v2(0x10) == 0);
    EXPECT("mem_free 0x10", "driver cuMemFree_v2");
}

static void other_memory(void)
{
    CUdeviceptr address;
    attach();
    CHECK(elf_cuMemAllocManaged(&address, 50, 1) == 0 && address == 0x4000);
    EXPECT("driver cuMemAllocManaged", "foreign_added 0x4000 bytes=50 device=50");
    CHECK(elf_cuMemAllocAsync(&address, 60, STREAM) == 0 && address == 0x5000);
    EXPECT("driver cuMemAllocAsync", "driver cuStreamIsCapturing", "foreign_added 0x5000 bytes=60 device=60");
    CHECK(elf_cuMemAllocAsync_ptsz(&address, 60, (CUstream)0xca) == 0); /* captured */
    EXPECT("driver cuMemAllocAsync_ptsz", "driver cuStreamIsCapturing", "foreign_added 0x5000 bytes=60 device=0");
    CHECK(elf_cuMemAllocFromPoolAsync(&address, 70, NULL, STREAM) == 0 && address == 0x6000);
    EXPECT("driver cuMemAllocFromPoolAsync", "driver cuStreamIsCapturing", "foreign_added 0x6000 bytes=70 device=70");
    CHECK(elf_cuMemFreeAsync(0x5000, NULL) == 0);
    EXPECT(line("mem_free_async 0x5000 stream=%p", (void *)CU_STREAM_LEGACY), "foreign_removed 0x5000",
           "driver cuMemFreeAsync");
    CHECK(elf_cuMemFreeAsync_ptsz(0x5000, NULL) == 0);
    EXPECT(line("mem_free_async 0x5000 stream=%p", (void *)CU_STREAM_PER_THREAD), "foreign_removed 0x5000",
           "driver cuMemFreeAsync_ptsz");
    CHECK(elf_cuMemFreeAsync(0x0f00000000000000, STREAM) == CUDA_ERROR_ALREADY_MAPPED); /* the engine's answer */
    EXPECT(line("mem_free_async 0xf00000000000000 stream=%p", (void *)STREAM));
}

static void own_mappings(void)
{
    const CUmemAllocationProp prop = {.location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA}};
    CUmemGenericAllocationHandle handle;
    attach();
    CHECK(elf_cuMemCreate(&handle, 4 << 20, &prop, 0) == 0 && handle == 0x77);
    EXPECT("driver cuMemCreate",
           line("handle_added 0x77 bytes=4194304 location=%d", (int)CU_MEM_LOCATION_TYPE_HOST_NUMA));
    CHECK(elf_cuMemMap(0x40000000, 4 << 20, 0, handle, 0) == 0);
    EXPECT("driver cuMemMap", "foreign_added 0x40000000 bytes=4194304 device=0");
    CHECK(elf_cuMemRelease(handle) == 0);
    EXPECT("handle_removed 0x77", "driver cuMemRelease");
    CHECK(elf_cuMemUnmap(0x40000000, 4 << 20) == 0);
    EXPECT("foreign_removed 0x40000000", "foreign_removed 0x40200000", "driver cuMemUnmap");
}

/* Nothing is told of what failed, and no out-parameter is read or written. */
static void failures(void)
{
    CUdeviceptr address = 0xdead;
    size_t bytes = 0xdead;
    CUmemGenericAllocationHandle handle = 0xdead;
    CUmodule module = (CUmodule)0xdead;
    CUlibrary library = (CUlibrary)0xdead;
    CUfunction function = (CUfunction)0xdead;
    CUkernel kernel = (CUkernel)0xdead;
    CUcontext context = (CUcontext)0xdead;
    CUgraph graph = (CUgraph)0xdead;
    attach();
    setenv("FAKE_FAIL", "*:2", 1);
    CHECK(elf_cuMemAllocManaged(&address, 50, 1) == 2 && elf_cuMemAllocAsync(&address, 1, NULL) == 2);
    CHECK(elf_cuMemAllocFromPoolAsync(&address, 1, NULL, NULL) == 2 && elf_cuMemAlloc_v2(&address, 1) == 2);
    CHECK(elf_cuMemCreate(&handle, 1, &(CUmemAllocationProp){0}, 0) == 2 && elf_cuMemMap(0, 1, 0, 0, 0) == 2);
    CHECK(elf_cuModuleLoadData(&module, "x") == 2 && elf_cuModuleLoad(&module, "x") == 2);
    CHECK(elf_cuModuleLoadDataEx(&module, "x", 0, NULL, NULL) == 2 && elf_cuModuleLoadFatBinary(&module, "x") == 2);
    CHECK(elf_cuLibraryLoadData(&library, "x", NULL, NULL, 0, NULL, NULL, 0) == 2);
    CHECK(elf_cuLibraryLoadFromFile(&library, "x", NULL, NULL, 0, NULL, NULL, 0) == 2);
    CHECK(elf_cuModuleGetFunction(&function, NULL, "f") == 2 && elf_cuLibraryGetKernel(&kernel, NULL, "f") == 2);
    CHECK(elf_cuModuleEnumerateFunctions(&function, 1, NULL) == 2);
    CHECK(elf_cuLibraryEnumerateKernels(&kernel, 1, NULL) == 2);
    CHECK(elf_cuModuleGetGlobal_v2(&address, &bytes, NULL, "g") == 2);
    CHECK(elf_cuLibraryGetGlobal(&address, NULL, NULL, "g") == 2);
    CHECK(elf_cuDevicePrimaryCtxRetain(&context, 0) == 2 && elf_cuCtxEnablePeerAccess(NULL, 0) == 2);
    CHECK(elf_cuStreamBeginCapture_v2(STREAM, CU_STREAM_CAPTURE_MODE_RELAXED) == 2);
    CHECK(elf_cuCtxSynchronize() == 2 && elf_cuEventQuery(NULL) == 2 && elf_cuStreamQuery_ptsz(NULL) == 2);
    CHECK(address == 0xdead && bytes == 0xdead && handle == 0xdead && module == (CUmodule)0xdead);
    CHECK(library == (CUlibrary)0xdead && function == (CUfunction)0xdead && kernel == (CUkernel)0xdead);
    CHECK(context == (CUcontext)0xdead);
    static const char *const told[] = {"foreign_added",  "handle_added",   "module_loaded",
                                       "library_loaded", "function_found", "kernel_found",
                                       "peer_enabled",   "capture_began",  "quiet_point"};
    for (size_t i = 0; i < sizeof told / sizeof told[0]; i++) {
        CHECK(recorded(told[i]) == 0);
    }
    record_forget();
    /* The end of a capture is told whatever came of it. */
    CHECK(elf_cuStreamEndCapture(STREAM, &graph) == 2 && graph == (CUgraph)0xdead);
    EXPECT("driver cuStreamEndCapture", line("capture_ended %p", (void *)STREAM));
}

static void modules(void)
{
    static const char image[] = "image";
    CUmodule module;
    CUfunction function;
    attach();
    CHECK(elf_cuModuleLoad(&module, "file") == 0);
    EXPECT("driver cuModuleLoad", "module_loaded 0xa1 image=(nil)");
    CHECK(elf_cuModuleLoadData(&module, image) == 0);
    EXPECT("driver cuModuleLoadData", line("module_loaded 0xa2 image=%p", (const void *)image));
    CHECK(elf_cuModuleLoadDataEx(&module, image, 0, NULL, NULL) == 0);
    EXPECT("driver cuModuleLoadDataEx", line("module_loaded 0xa3 image=%p", (const void *)image));
    CHECK(elf_cuModuleLoadFatBinary(&module, image) == 0 && module == (CUmodule)0xa4);
    EXPECT("driver cuModuleLoadFatBinary", line("module_loaded 0xa4 image=%p", (const void *)image));
    CHECK(elf_cuModuleGetFunction(&function, module, "gemm") == 0 && function == (CUfunction)0xf1);
    EXPECT("driver cuModuleGetFunction", "function_found 0xf1 module=0xa4 name=gemm");
    CHECK(elf_cuModuleUnload(module) == 0);
    EXPECT("module_unloading 0xa4", "driver cuModuleUnload");
}

static void libraries(void)
{
    static const char image[] = "image";
    CUlibrary library;
    CUkernel kernel;
    attach();
    CHECK(elf_cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0) == 0);
    EXPECT("driver cuLibraryLoadData", line("library_loaded 0xb1 image=%p", (const void *)image));
    CHECK(elf_cuLibraryLoadFromFile(&library, "file", NULL, NULL, 0, NULL, NULL, 0) == 0);
    EXPECT("driver cuLibraryLoadFromFile", "library_loaded 0xb2 image=(nil)");
    CHECK(elf_cuLibraryGetKernel(&kernel, library, "gemm") == 0 && kernel == (CUkernel)0xf2);
    EXPECT("driver cuLibraryGetKernel", "kernel_found 0xf2 library=0xb2 name=gemm");
    CHECK(elf_cuLibraryUnload(library) == 0);
    EXPECT("library_unloading 0xb2", "driver cuLibraryUnload");
}

/* The arrays have more room than there are functions; what lies behind them is not touched. */
static void enumerations(void)
{
    CUfunction function[4] = {NULL, NULL, (CUfunction)0xdead, (CUfunction)0xdead};
    CUkernel kernel[1];
    attach();
    CHECK(elf_cuModuleEnumerateFunctions(function, 4, (CUmodule)0xa1) == 0);
    CHECK(recorded("function_found") == 2);
    CHECK(recorded("function_found 0xe1 module=0xa1 name=a_function") == 1);
    CHECK(recorded("function_found 0xe2 module=0xa1 name=a_function") == 1 && function[2] == (CUfunction)0xdead);
    CHECK(elf_cuLibraryEnumerateKernels(kernel, 1, (CUlibrary)0xb1) == 0);
    CHECK(recorded("kernel_found") == 1 && recorded("kernel_found 0xd1 library=0xb1 name=a_kernel") == 1);
}

static void globals(void)
{
    CUdeviceptr address = 0;
    size_t bytes = 0;
    attach();
    CHECK(elf_cuModuleGetGlobal_v2(&address, &bytes, NULL, "g") == 0 && address == 0x9000 && bytes == 24);
    EXPECT("driver cuModuleGetGlobal_v2", "foreign_added 0x9000 bytes=24 device=0");
    CHECK(elf_cuModuleGetGlobal_v2(&address, NULL, NULL, "g") == 0);
    EXPECT("driver cuModuleGetGlobal_v2", "foreign_added 0x9000 bytes=24 device=0");
    CHECK(elf_cuLibraryGetGlobal(NULL, &bytes, NULL, "g") == 0);
    EXPECT("driver cuLibraryGetGlobal", "foreign_added 0x9000 bytes=24 device=0");
    CHECK(elf_cuLibraryGetGlobal(NULL, NULL, NULL, "g") == CUDA_ERROR_INVALID_VALUE);
    EXPECT("driver cuLibraryGetGlobal");
    /* They go with their owner, each once; those of others stay. */
    CHECK(elf_cuModuleGetGlobal_v2(&address, NULL, (CUmodule)0xa7, "g") == 0);
    record_forget();
    CHECK(elf_cuModuleUnload((CUmodule)0xa8) == 0);
    EXPECT("module_unloading 0xa8", "driver cuModuleUnload");
    CHECK(elf_cuModuleUnload((CUmodule)0xa7) == 0);
    EXPECT("foreign_removed 0x9000", "module_unloading 0xa7", "driver cuModuleUnload");
    CHECK(elf_cuModuleUnload((CUmodule)0xa7) == 0);
    EXPECT("module_unloading 0xa7", "driver cuModuleUnload");
    CHECK(elf_cuLibraryGetGlobal(&address, NULL, (CUlibrary)0xb7, "g") == 0);
    CHECK(elf_cuLibraryGetGlobal(&address, NULL, (CUlibrary)0xb7, "g") == 0);
    record_forget();
    CHECK(elf_cuLibraryUnload((CUlibrary)0xb7) == 0);
    EXPECT("foreign_removed 0x9000", "library_unloading 0xb7", "driver cuLibraryUnload");
}

static void quiet_points(void)
{
    attach();
    CHECK(elf_cuCtxSynchronize() == 0 && elf_cuCtxSynchronize_v2(NULL) == 0 && elf_cuStreamSynchronize(STREAM) == 0);
    CHECK(elf_cuStreamSynchronize_ptsz(NULL) == 0 && elf_cuEventSynchronize(NULL) == 0 && elf_cuEventQuery(NULL) == 0);
    CHECK(elf_cuStreamQuery(STREAM) == 0 && elf_cuStreamQuery_ptsz(STREAM) == 0);
    CHECK(recorded("quiet_point") == 8);
    record_forget();
    setenv("FAKE_FAIL", "cuStreamQuery:600", 1);
    CHECK(elf_cuStreamQuery(STREAM) == CUDA_ERROR_NOT_READY);
    EXPECT("driver cuStreamQuery");
}

static void contexts(void)
{
    CUcontext context;
    attach();
    CHECK(elf_cuStreamDestroy_v2(STREAM) == 0);
    EXPECT(line("stream_closing %p", (void *)STREAM), "driver cuStreamDestroy_v2");
    CHECK(elf_cuCtxDestroy_v2((CUcontext)0xc7) == 0);
    EXPECT("driver cuCtxPushCurrent_v2", "driver cuCtxGetDevice", "driver cuCtxPopCurrent_v2",
           "context_closing 0xc7 device=5", "driver cuCtxDestroy_v2");
    CHECK(elf_cuCtxEnablePeerAccess((CUcontext)0xc8, 0) == 0);
    EXPECT("driver cuCtxEnablePeerAccess", "peer_enabled 0xc8");
    /* Two retains: the second release is the end. */
    CHECK(elf_cuDevicePrimaryCtxRetain(&context, 1) == 0 && elf_cuDevicePrimaryCtxRetain(&context, 1) == 0);
    CHECK(elf_cuDevicePrimaryCtxRelease_v2(1) == 0);
    CHECK(recorded("context_closing") == 0);
    record_forget();
    CHECK(elf_cuDevicePrimaryCtxRelease_v2(1) == 0);
    EXPECT("context_closing (nil) device=1", "driver cuDevicePrimaryCtxRelease_v2");
    CHECK(elf_cuDevicePrimaryCtxRelease_v2(1) == 0); /* one too many */
    EXPECT("driver cuDevicePrimaryCtxRelease_v2");
    CHECK(elf_cuDevicePrimaryCtxRetain(&context, 2) == 0);
    record_forget();
    CHECK(elf_cuDevicePrimaryCtxReset_v2(2) == 0);
    EXPECT("context_closing (nil) device=2", "driver cuDevicePrimaryCtxReset_v2");
    CHECK(elf_cuDevicePrimaryCtxRelease(2) == 0);
    EXPECT("driver cuDevicePrimaryCtxRelease");
}

static void captures(void)
{
    CUgraph graph;
    attach();
    CHECK(elf_cuStreamBeginCapture(STREAM) == 0);
    EXPECT("driver cuStreamBeginCapture", line("capture_began %p", (void *)STREAM));
    CHECK(elf_cuStreamBeginCapture_v2_ptsz(NULL, 0) == 0);
    EXPECT("driver cuStreamBeginCapture_v2_ptsz", line("capture_began %p", (void *)CU_STREAM_PER_THREAD));
    CHECK(elf_cuStreamBeginCaptureToGraph(STREAM, GRAPH, NULL, NULL, 0, 0) == 0);
    EXPECT("driver cuStreamBeginCaptureToGraph", line("capture_began %p", (void *)STREAM));
    CHECK(elf_cuStreamEndCapture_ptsz(NULL, &graph) == 0);
    EXPECT("driver cuStreamEndCapture_ptsz", line("capture_ended %p", (void *)CU_STREAM_PER_THREAD));
}

static void instantiations(void)
{
    CUgraphExec exec;
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {0};
    attach();
#define TAKES_IN(name, args)     \
    CHECK(elf_##name args == 0); \
    EXPECT(line("graph_instantiating %p", (void *)GRAPH), "driver " #name)
    TAKES_IN(cuGraphInstantiate, (&exec, GRAPH, NULL, NULL, 0));
    TAKES_IN(cuGraphInstantiate_v2, (&exec, GRAPH, NULL, NULL, 0));
    TAKES_IN(cuGraphInstantiateWithFlags, (&exec, GRAPH, 0));
    TAKES_IN(cuGraphInstantiateWithParams, (&exec, GRAPH, &params));
    TAKES_IN(cuGraphInstantiateWithParams_ptsz, (&exec, GRAPH, &params));
    TAKES_IN(cuGraphExecUpdate, (EXEC, GRAPH, NULL, NULL));
    TAKES_IN(cuGraphExecUpdate_v2, (EXEC, GRAPH, NULL));
    TAKES_IN(cuGraphExecChildGraphNodeSetParams, (EXEC, NODE, GRAPH));
    CHECK(elf_cuGraphLaunch(EXEC, NULL) == 0);
    EXPECT(line("graph_launching %p stream=%p", (void *)EXEC, (void *)CU_STREAM_LEGACY), "driver cuGraphLaunch");
    CHECK(elf_cuGraphLaunch_ptsz(EXEC, STREAM) == 0);
    EXPECT(line("graph_launching %p stream=%p", (void *)EXEC, (void *)STREAM), "driver cuGraphLaunch_ptsz");
}

static void node_params(void)
{
    void *arguments[1];
    const CUDA_KERNEL_NODE_PARAMS_v1 v1 = {.func = (CUfunction)0xf1, .gridDimX = 3, .kernelParams = arguments};
    const CUDA_KERNEL_NODE_PARAMS v2 = {.kern = (CUkernel)0xf2, .gridDimX = 4, .sharedMemBytes = 9, .extra = arguments};
    attach();
    CHECK(elf_cuGraphExecKernelNodeSetParams(EXEC, NODE, &v1) == 0);
    EXPECT(line("graph_node_params func=0xf1 kern=(nil) grid=3 shared=0 params=%p extra=(nil)", (void *)arguments),
           "driver cuGraphExecKernelNodeSetParams");
    CHECK(elf_cuGraphExecKernelNodeSetParams_v2(EXEC, NODE, &v2) == 0);
    EXPECT(line("graph_node_params func=(nil) kern=0xf2 grid=4 shared=9 params=(nil) extra=%p", (void *)arguments),
           "driver cuGraphExecKernelNodeSetParams_v2");
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = 0x1000,
                          .srcPitch = 8,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = 0x2000,
                          .dstPitch = 8,
                          .WidthInBytes = 8,
                          .Height = 1,
                          .Depth = 1};
    CHECK(elf_cuGraphExecMemcpyNodeSetParams(EXEC, NODE, &copy, NULL) == 0);
    EXPECT("graph_copy_params dst=0x2000:8x1/8 src=0x1000:8x1/8 host=(nil) stream=(nil)",
           "driver cuGraphExecMemcpyNodeSetParams");
    const CUDA_MEMSET_NODE_PARAMS fill = {.dst = 0x3000, .pitch = 64, .elementSize = 4, .width = 5, .height = 2};
    CHECK(elf_cuGraphExecMemsetNodeSetParams(EXEC, NODE, &fill, NULL) == 0);
    EXPECT("graph_copy_params dst=0x3000:20x2/64 src=0:0x0/0 host=(nil) stream=(nil)",
           "driver cuGraphExecMemsetNodeSetParams");
}

static void any_node_params(void)
{
    void *arguments[1];
    CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_KERNEL,
                             .kernel = {.kern = (CUkernel)0xf2, .gridDimX = 6, .kernelParams = arguments}};
    static const char done[] = "driver cuGraphExecNodeSetParams";
    attach();
    CHECK(elf_cuGraphExecNodeSetParams(EXEC, NODE, &any) == 0);
    EXPECT(line("graph_node_params func=(nil) kern=0xf2 grid=6 shared=0 params=%p extra=(nil)", (void *)arguments),
           done);
    any = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_MEMCPY,
                              .memcpy = {.copyParams = {.dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                                        .dstDevice = 0x2000,
                                                        .srcMemoryType = CU_MEMORYTYPE_ARRAY,
                                                        .WidthInBytes = 8,
                                                        .Height = 1,
                                                        .Depth = 1}}};
    CHECK(elf_cuGraphExecNodeSetParams(EXEC, NODE, &any) == 0);
    EXPECT("graph_copy_params dst=0x2000:8x1/8 src=0:0x0/0 host=(nil) stream=(nil)", done);
    any = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_MEMSET,
                              .memset = {.dst = 0x3000, .elementSize = 2, .width = 5, .height = 1}};
    CHECK(elf_cuGraphExecNodeSetParams(EXEC, NODE, &any) == 0);
    EXPECT("graph_copy_params dst=0x3000:10x1/10 src=0:0x0/0 host=(nil) stream=(nil)", done);
    any = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = {.graph = GRAPH}};
    CHECK(elf_cuGraphExecNodeSetParams(EXEC, NODE, &any) == 0);
    EXPECT(line("graph_instantiating %p", (void *)GRAPH), done);
    any = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_HOST};
    CHECK(elf_cuGraphExecNodeSetParams(EXEC, NODE, &any) == 0);
    EXPECT(done);
    any = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    CHECK(elf_cuGraphExecNodeSetParams(EXEC, NODE, &any) == 0);
    CHECK(recorded("graph_opaque") == 1);
}

/* Handles of ours and of the driver's. */
static void ipc(void)
{
    CUipcMemHandle handle = {{0}};
    CUdeviceptr address;
    attach();
    CHECK(elf_cuIpcGetMemHandle(&handle, 0x10) == 0);
    EXPECT("ipc_get 0x10", "driver cuIpcGetMemHandle");
    CHECK(elf_cuIpcOpenMemHandle_v2(&address, handle, 1) == 0);
    EXPECT("ipc_open 0 flags=1", "driver cuIpcOpenMemHandle_v2");
    handle.reserved[0] = 0x0f;
    CHECK(elf_cuIpcOpenMemHandle_v2(&address, handle, 1) == CUDA_ERROR_ALREADY_MAPPED);
    EXPECT("ipc_open 15 flags=1");
    CHECK(elf_cuIpcOpenMemHandle(&address, handle, 1) == CUDA_ERROR_ALREADY_MAPPED);
    EXPECT("ipc_open 15 flags=1");
    CHECK(elf_cuIpcCloseMemHandle(0x10) == 0);
    EXPECT("ipc_close 0x10", "driver cuIpcCloseMemHandle");
    CHECK(elf_cuIpcCloseMemHandle(0x0f00000000000000) == CUDA_ERROR_ALREADY_MAPPED);
    EXPECT("ipc_close 0xf00000000000000");
}

TEST_CASES(CASE(engine_answers), CASE(other_memory), CASE(own_mappings), CASE(failures), CASE(modules), CASE(libraries),
           CASE(enumerations), CASE(globals), CASE(quiet_points), CASE(contexts), CASE(captures), CASE(instantiations),
           CASE(node_params), CASE(any_node_params), CASE(ipc))
