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
    EXPECT("zerocopy_removed 0x10", "mem_free 0x10", "driver cuMemFree_v2");
}

static void other_memory(void)
{
    CUdeviceptr address;
    attach();
    CHECK(elf_cuMemAllocManaged(&address, 50, 1) == 0 && address == 0x4000);
    EXPECT("foreign_coming device=50", "driver cuMemAllocManaged", "foreign_added 0x4000 bytes=50 device=50",
           "zerocopy_added 0x4000 bytes=50 managed=1");
    CHECK(elf_cuMemAllocAsync(&address, 60, STREAM) == 0 && address == 0x5000);
    EXPECT(line("mem_alloc_async bytes=60 pool=(nil) stream=%p", (void *)STREAM), "driver cuMemAllocAsync",
           "driver cuStreamIsCapturing", "pool_added 0x5000 bytes=60 device=60");
    CHECK(elf_cuMemAllocAsync_ptsz(&address, 60, (CUstream)0xca) == 0); /* captured */
    EXPECT("mem_alloc_async bytes=60 pool=(nil) stream=0xca", "driver cuMemAllocAsync_ptsz",
           "driver cuStreamIsCapturing", "pool_added 0x5000 bytes=60 device=0");
    CHECK(elf_cuMemAllocFromPoolAsync(&address, 70, NULL, STREAM) == 0 && address == 0x6000);
    EXPECT("driver cuMemAllocFromPoolAsync", "driver cuStreamIsCapturing", "pool_added 0x6000 bytes=70 device=70");
    CHECK(elf_cuMemFreeAsync(0x5000, NULL) == 0);
    EXPECT(line("mem_free_async 0x5000 stream=%p", (void *)CU_STREAM_LEGACY), "driver cuMemFreeAsync");
    CHECK(elf_cuMemFreeAsync_ptsz(0x5000, NULL) == 0);
    EXPECT(line("mem_free_async 0x5000 stream=%p", (void *)CU_STREAM_PER_THREAD), "driver cuMemFreeAsync_ptsz");
    CHECK(elf_cuMemFreeAsync(0x0f00000000000000, STREAM) == CUDA_ERROR_ALREADY_MAPPED); /* the engine's answer */
    EXPECT(line("mem_free_async 0xf00000000000000 stream=%p", (void *)STREAM));
}

/* Host memory that kernels may read in place, for as long as it is pinned. */
static void pinned_memory(void)
{
    void *host = NULL;
    attach();
    CHECK(elf_cuMemHostAlloc(&host, 80, 0) == 0 && host == (void *)0x7000);
    EXPECT("driver cuMemHostAlloc", "zerocopy_added 0x7000 bytes=80 managed=0");
    CHECK(elf_cuMemAllocHost_v2(&host, 90) == 0 && host == (void *)0x7100);
    EXPECT("driver cuMemAllocHost_v2", "zerocopy_added 0x7100 bytes=90 managed=0");
    CHECK(elf_cuMemHostRegister_v2((void *)0x7200, 70, 0) == 0);
    EXPECT("driver cuMemHostRegister_v2", "zerocopy_added 0x7200 bytes=70 managed=0");
    CHECK(elf_cuMemHostRegister_v2((void *)0x7300, 70, CU_MEMHOSTREGISTER_IOMEMORY) == 0);
    EXPECT("driver cuMemHostRegister_v2");
    CHECK(elf_cuMemHostUnregister((void *)0x7200) == 0);
    EXPECT("zerocopy_removed 0x7200", "driver cuMemHostUnregister");
    CHECK(elf_cuMemFreeHost((void *)0x7000) == 0);
    EXPECT("zerocopy_removed 0x7000", "driver cuMemFreeHost");
}

/* Descriptors are told when they are made, and again when their address changes. */
static void tensor_maps(void)
{
    static CUtensorMap map;
    void *const memory = (void *)0x4000;
    const char *const told = line("address_encoded %p bytes=%zu 0x4000", (void *)&map, sizeof map);
    attach();
    CHECK(elf_cuTensorMapEncodeTiled(&map, 0, 1, memory, NULL, NULL, NULL, NULL, 0, 0, 0, 0) == 0);
    EXPECT("driver cuTensorMapEncodeTiled", told);
    CHECK(elf_cuTensorMapEncodeIm2col(&map, 0, 3, memory, NULL, NULL, NULL, NULL, 0, 0, NULL, 0, 0, 0, 0) == 0);
    EXPECT("driver cuTensorMapEncodeIm2col", told);
    CHECK(elf_cuTensorMapEncodeIm2colWide(&map, 0, 3, memory, NULL, NULL, 0, 0, 0, 0, NULL, 0, 0, 0, 0, 0) == 0);
    EXPECT("driver cuTensorMapEncodeIm2colWide", told);
    CHECK(elf_cuTensorMapReplaceAddress(&map, memory) == 0);
    EXPECT("driver cuTensorMapReplaceAddress", told);
}

static void pools(void)
{
    const CUmemPoolProps props = {.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    const CUmemoryPool ours = (CUmemoryPool)0x0f, other = (CUmemoryPool)0x0e;
    CUmemoryPool made = other;
    CUdeviceptr address;
    cuuint64_t value = 0;
    attach();
    CHECK(elf_cuMemPoolCreate(&made, &props) == 0);
    EXPECT("driver cuMemPoolCreate", "pool_made 0xe types=1");
    CHECK(elf_cuMemAllocFromPoolAsync(&address, 80, ours, NULL) == CUDA_ERROR_ALREADY_MAPPED); /* the engine's answer */
    EXPECT(line("mem_alloc_async bytes=80 pool=0xf stream=%p", (void *)CU_STREAM_LEGACY));
    CHECK(elf_cuMemAllocFromPoolAsync_ptsz(&address, 80, ours, NULL) == CUDA_ERROR_ALREADY_MAPPED);
    EXPECT(line("mem_alloc_async bytes=80 pool=0xf stream=%p", (void *)CU_STREAM_PER_THREAD));
    CHECK(elf_cuMemPoolTrimTo(ours, 5) == 0);
    EXPECT("pool_trim 0xf keep=5", "driver cuMemPoolTrimTo");
    CHECK(elf_cuMemPoolGetAttribute(ours, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value) == 0);
    EXPECT(line("pool_get_attribute 0xf %d", (int)CU_MEMPOOL_ATTR_USED_MEM_CURRENT), "driver cuMemPoolGetAttribute");
    CHECK(elf_cuMemPoolSetAttribute(ours, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value) == 0);
    EXPECT(line("pool_set_attribute 0xf %d", (int)CU_MEMPOOL_ATTR_USED_MEM_HIGH), "driver cuMemPoolSetAttribute");
    CHECK(elf_cuMemPoolSetAccess(ours, NULL, 3) == 0);
    EXPECT("pool_set_access 0xf count=3", "driver cuMemPoolSetAccess");
    CHECK(elf_cuMemPoolDestroy(ours) == 0);
    EXPECT("pool_gone 0xf", "driver cuMemPoolDestroy");
}

static void own_mappings(void)
{
    const CUmemAllocationProp prop = {.location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA}};
    CUmemAllocationProp got;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    unsigned long long flags;
    attach();
    CHECK(elf_cuMemCreate(&handle, 4 << 20, &prop, 0) == 0 && handle == 0x77);
    EXPECT(line("mem_create bytes=4194304 location=%d flags=0", (int)CU_MEM_LOCATION_TYPE_HOST_NUMA),
           "driver cuMemCreate");
    CHECK(elf_cuMemAddressReserve(&address, 4 << 20, 7, 8, 9) == 0);
    EXPECT("mem_address_reserve bytes=4194304 alignment=7 hint=0x8 flags=9", "driver cuMemAddressReserve");
    CHECK(elf_cuMemMap(0x40000000, 4 << 20, 3, handle, 5) == 0);
    EXPECT("mem_map 0x40000000 bytes=4194304 offset=3 handle=0x77 flags=5", "driver cuMemMap");
    CHECK(elf_cuMemSetAccess(0x40000000, 4 << 20, NULL, 6) == 0);
    EXPECT("mem_set_access 0x40000000 bytes=4194304 count=6", "driver cuMemSetAccess");
    CHECK(elf_cuMemGetAccess(&flags, NULL, 0x40000000) == 0);
    EXPECT("mem_get_access 0x40000000", "driver cuMemGetAccess");
    CHECK(elf_cuMemRetainAllocationHandle(&handle, (void *)0x40000000) == 0);
    EXPECT("mem_retain 0x40000000", "driver cuMemRetainAllocationHandle");
    CHECK(elf_cuMemGetAllocationPropertiesFromHandle(&got, 0x77) == 0);
    EXPECT("mem_handle_properties 0x77", "driver cuMemGetAllocationPropertiesFromHandle");
    CHECK(elf_cuMemExportToShareableHandle(&flags, 0x77, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 4) == 0);
    EXPECT("mem_export 0x77 type=1 flags=4", "driver cuMemExportToShareableHandle");
    CHECK(elf_cuMemRelease(0x77) == 0);
    EXPECT("mem_release 0x77", "driver cuMemRelease");
    CHECK(elf_cuMemUnmap(0x40000000, 4 << 20) == 0);
    EXPECT("mem_unmap 0x40000000 bytes=4194304", "driver cuMemUnmap");
    CHECK(elf_cuMemAddressFree(0x40000000, 4 << 20) == 0);
    EXPECT("mem_address_free 0x40000000 bytes=4194304", "driver cuMemAddressFree");
}

/* Handles and addresses that go to the driver for other ends than mapping and launches. */
static void memory_reached_otherwise(void)
{
    CUtexObject texture;
    size_t offset;
    attach();
    CHECK(elf_cuMulticastBindMem(1, 2, 0x77, 3, 4, 5) == 0);
    EXPECT("mem_real_handle 0x77", "driver cuMulticastBindMem");
    CHECK(elf_cuMulticastBindMem(1, 2, 0x79, 3, 4, 5) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT("mem_real_handle 0x79");
    CHECK(elf_cuMulticastBindAddr(1, 2, 0x1000, 4, 5) == 0);
    EXPECT("mem_given_away 0x1000 bytes=4", "driver cuMulticastBindAddr");
    CHECK(elf_cuMulticastBindAddr(1, 2, 0x0f00000000000000, 4, 5) == CUDA_ERROR_NOT_SUPPORTED);
    EXPECT("mem_given_away 0xf00000000000000 bytes=4");
    CHECK(elf_cuMemGetHandleForAddressRange(&offset, 0x1000, 8, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0) == 0);
    EXPECT("mem_given_away 0x1000 bytes=8", "driver cuMemGetHandleForAddressRange");
    CUarrayMapInfo list[2] = {{.memOperationType = CU_MEM_OPERATION_TYPE_MAP,
                               .memHandleType = CU_MEM_HANDLE_TYPE_GENERIC,
                               .memHandle = {.memHandle = 0x77}},
                              {.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP}};
    CHECK(elf_cuMemMapArrayAsync(list, 2, STREAM) == 0 && list[0].memHandle.memHandle == 0x77);
    EXPECT("mem_real_handle 0x77", "driver cuMemMapArrayAsync");
    CHECK(elf_cuMemMapArrayAsync_ptsz(list, 2, STREAM) == 0);
    EXPECT("mem_real_handle 0x77", "driver cuMemMapArrayAsync_ptsz");
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_LINEAR,
                                   .res.linear = {.devPtr = 0x1000, .sizeInBytes = 6}};
    CHECK(elf_cuTexObjectCreate(&texture, &resource, NULL, NULL) == 0);
    EXPECT("mem_reached 0x1000 bytes=6", "driver cuTexObjectCreate");
    resource.res.linear.devPtr = 0x0f00000000000000;
    CHECK(elf_cuTexObjectCreate(&texture, &resource, NULL, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT("mem_reached 0xf00000000000000 bytes=6");
    resource = (CUDA_RESOURCE_DESC){.resType = CU_RESOURCE_TYPE_PITCH2D,
                                    .res.pitch2D = {.devPtr = 0x2000, .pitchInBytes = 512, .height = 3}};
    CHECK(elf_cuTexObjectCreate(&texture, &resource, NULL, NULL) == 0);
    EXPECT("mem_reached 0x2000 bytes=1536", "driver cuTexObjectCreate");
    resource = (CUDA_RESOURCE_DESC){.resType = CU_RESOURCE_TYPE_ARRAY};
    CHECK(elf_cuTexObjectCreate(&texture, &resource, NULL, NULL) == 0);
    EXPECT("driver cuTexObjectCreate");
    CHECK(elf_cuTexRefSetAddress_v2(&offset, NULL, 0x1000, 7) == 0);
    EXPECT("mem_reached 0x1000 bytes=7", "driver cuTexRefSetAddress_v2");
    const CUDA_ARRAY_DESCRIPTOR desc = {.Height = 2};
    CHECK(elf_cuTexRefSetAddress2D_v2(NULL, &desc, 0x1000, 512) == 0);
    EXPECT("mem_reached 0x1000 bytes=1024", "driver cuTexRefSetAddress2D_v2");
    CHECK(elf_cuTexRefSetAddress2D_v3(NULL, &desc, 0x1000, 512) == 0);
    EXPECT("mem_reached 0x1000 bytes=1024", "driver cuTexRefSetAddress2D_v3");
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
    void *host = (void *)0xdead;
    CHECK(elf_cuMemHostAlloc(&host, 1, 0) == 2 && elf_cuMemAllocHost_v2(&host, 1) == 2);
    CHECK(elf_cuMemHostRegister_v2(host, 1, 0) == 2 && host == (void *)0xdead);
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
    static const char *const told[] = {"foreign_added",  "pool_added",   "module_loaded", "library_loaded",
                                       "function_found", "kernel_found", "peer_enabled",  "quiet_point",
                                       "zerocopy_added", "global_added"};
    for (size_t i = 0; i < sizeof told / sizeof told[0]; i++) {
        CHECK(recorded(told[i]) == 0);
    }
    CHECK(recorded("foreign_coming device=50") == 1 && recorded("foreign_missed device=50") == 1);
    CHECK(recorded("capture_began 0x57 result=2") == 1);
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
    EXPECT("driver cuModuleGetGlobal_v2", "driver cuPointerGetAttribute", "global_added 0x9000 bytes=24");
    CHECK(elf_cuModuleGetGlobal_v2(&address, NULL, NULL, "g") == 0);
    EXPECT("driver cuModuleGetGlobal_v2", "driver cuPointerGetAttribute", "global_added 0x9000 bytes=24");
    CHECK(elf_cuLibraryGetGlobal(NULL, &bytes, NULL, "g") == 0);
    EXPECT("driver cuLibraryGetGlobal", "driver cuPointerGetAttribute", "global_added 0x9000 bytes=24");
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
    /* Managed variables are the CPU's as well. */
    CHECK(elf_cuLibraryGetManaged(&address, &bytes, (CUlibrary)0xb7, "m") == 0 && address == 0x9800);
    EXPECT("driver cuLibraryGetManaged", "driver cuPointerGetAttribute", "global_added 0x9800 bytes=24",
           "zerocopy_added 0x9800 bytes=24 managed=1");
    CHECK(elf_cuLibraryUnload((CUlibrary)0xb7) == 0);
    EXPECT("foreign_removed 0x9800", "zerocopy_removed 0x9800", "library_unloading 0xb7", "driver cuLibraryUnload");
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
    EXPECT("context_closing 0xc1 device=1", "driver cuDevicePrimaryCtxRelease_v2");
    CHECK(elf_cuDevicePrimaryCtxRelease_v2(1) == 0); /* one too many */
    EXPECT("driver cuDevicePrimaryCtxRelease_v2");
    CHECK(elf_cuDevicePrimaryCtxRetain(&context, 2) == 0);
    record_forget();
    CHECK(elf_cuDevicePrimaryCtxReset_v2(2) == 0);
    EXPECT("context_closing 0xc1 device=2", "driver cuDevicePrimaryCtxReset_v2");
    CHECK(elf_cuDevicePrimaryCtxRelease(2) == 0);
    EXPECT("driver cuDevicePrimaryCtxRelease");
}

static void captures(void)
{
    CUgraph graph;
    attach();
    CHECK(elf_cuStreamBeginCapture(STREAM) == 0);
#define BEGINS(driver, stream)                                               \
    EXPECT(line("capture_beginning %p", (void *)(stream)), "driver " driver, \
           line("capture_began %p result=0", (void *)(stream)))
    BEGINS("cuStreamBeginCapture", STREAM);
    CHECK(elf_cuStreamBeginCapture_v2_ptsz(NULL, 0) == 0);
    BEGINS("cuStreamBeginCapture_v2_ptsz", CU_STREAM_PER_THREAD);
    CHECK(elf_cuStreamBeginCaptureToGraph(STREAM, GRAPH, NULL, NULL, 0, 0) == 0);
    BEGINS("cuStreamBeginCaptureToGraph", STREAM);
    CHECK(elf_cuStreamEndCapture_ptsz(NULL, &graph) == 0);
    EXPECT("driver cuStreamEndCapture_ptsz", line("capture_ended %p", (void *)CU_STREAM_PER_THREAD));
}

static void instantiations(void)
{
    CUgraphExec exec = EXEC; /* the driver of these tests writes none */
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = 8};
    attach();
#define TAKES_IN(name, args, flags) \
    CHECK(elf_##name args == 0);    \
    EXPECT("driver " #name, line("graph_instantiated %p graph=%p flags=" #flags, (void *)exec, (void *)GRAPH))
    TAKES_IN(cuGraphInstantiate, (&exec, GRAPH, NULL, NULL, 0), 0);
    TAKES_IN(cuGraphInstantiate_v2, (&exec, GRAPH, NULL, NULL, 0), 0);
    TAKES_IN(cuGraphInstantiateWithFlags, (&exec, GRAPH, 1), 1);
    TAKES_IN(cuGraphInstantiateWithParams, (&exec, GRAPH, &params), 8);
    TAKES_IN(cuGraphInstantiateWithParams_ptsz, (&exec, GRAPH, &params), 8);
#define UPDATES(name, args)      \
    CHECK(elf_##name args == 0); \
    EXPECT("driver " #name, line("graph_updated %p graph=%p", (void *)EXEC, (void *)GRAPH))
    UPDATES(cuGraphExecUpdate, (EXEC, GRAPH, NULL, NULL));
    UPDATES(cuGraphExecUpdate_v2, (EXEC, GRAPH, NULL));
    CHECK(elf_cuGraphLaunch(EXEC, NULL) == 0);
    EXPECT(line("graph_launch_begin %p stream=%p", (void *)EXEC, (void *)CU_STREAM_LEGACY), "driver cuGraphLaunch",
           line("graph_launch_end %p result=0", (void *)EXEC));
    CHECK(elf_cuGraphLaunch_ptsz(EXEC, STREAM) == 0);
    EXPECT(line("graph_launch_begin %p stream=%p", (void *)EXEC, (void *)STREAM), "driver cuGraphLaunch_ptsz",
           line("graph_launch_end %p result=0", (void *)EXEC));
    CHECK(elf_cuGraphExecDestroy(EXEC) == 0);
    EXPECT(line("graph_destroying %p", (void *)EXEC), "driver cuGraphExecDestroy");
}

static const char *node_set(int type, const char *what)
{
    return line("graph_node_set %p node=%p type=%d%s", (void *)EXEC, (void *)NODE, type, what);
}

static void node_params(void)
{
    void *arguments[1];
    char what[256];
    const CUDA_KERNEL_NODE_PARAMS_v1 v1 = {.func = (CUfunction)0xf1, .gridDimX = 3, .kernelParams = arguments};
    const CUDA_KERNEL_NODE_PARAMS v2 = {.kern = (CUkernel)0xf2, .gridDimX = 4, .sharedMemBytes = 9, .extra = arguments};
    attach();
    CHECK(elf_cuGraphExecKernelNodeSetParams(EXEC, NODE, &v1) == 0);
    snprintf(what, sizeof what, " func=0xf1 kern=(nil) grid=3 shared=0 params=%p extra=(nil)", (void *)arguments);
    EXPECT("driver cuGraphExecKernelNodeSetParams", node_set(CU_GRAPH_NODE_TYPE_KERNEL, what));
    CHECK(elf_cuGraphExecKernelNodeSetParams_v2(EXEC, NODE, &v2) == 0);
    snprintf(what, sizeof what, " func=(nil) kern=0xf2 grid=4 shared=9 params=(nil) extra=%p", (void *)arguments);
    EXPECT("driver cuGraphExecKernelNodeSetParams_v2", node_set(CU_GRAPH_NODE_TYPE_KERNEL, what));
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = 0x1000,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = 0x2000,
                          .WidthInBytes = 8,
                          .Height = 1,
                          .Depth = 1};
    CHECK(elf_cuGraphExecMemcpyNodeSetParams(EXEC, NODE, &copy, NULL) == 0);
    EXPECT("driver cuGraphExecMemcpyNodeSetParams",
           node_set(CU_GRAPH_NODE_TYPE_MEMCPY, " dst=0x2000 src=0x1000 width=8"));
    const CUDA_MEMSET_NODE_PARAMS fill = {.dst = 0x3000, .pitch = 64, .elementSize = 4, .width = 5, .height = 2};
    CHECK(elf_cuGraphExecMemsetNodeSetParams(EXEC, NODE, &fill, NULL) == 0);
    EXPECT("driver cuGraphExecMemsetNodeSetParams",
           node_set(CU_GRAPH_NODE_TYPE_MEMSET, " dst=0x3000 width=5x4 height=2 pitch=64"));
    CHECK(elf_cuGraphExecChildGraphNodeSetParams(EXEC, NODE, GRAPH) == 0);
    snprintf(what, sizeof what, " graph=%p", (void *)GRAPH);
    EXPECT("driver cuGraphExecChildGraphNodeSetParams", node_set(CU_GRAPH_NODE_TYPE_GRAPH, what));
    const CUDA_HOST_NODE_PARAMS host = {NULL, NULL};
    CHECK(elf_cuGraphExecHostNodeSetParams(EXEC, NODE, &host) == 0);
    EXPECT("driver cuGraphExecHostNodeSetParams", node_set(CU_GRAPH_NODE_TYPE_HOST, ""));
    CHECK(elf_cuGraphExecEventRecordNodeSetEvent(EXEC, NODE, NULL) == 0);
    EXPECT("driver cuGraphExecEventRecordNodeSetEvent", node_set(CU_GRAPH_NODE_TYPE_EVENT_RECORD, ""));
    CHECK(elf_cuGraphExecEventWaitNodeSetEvent(EXEC, NODE, NULL) == 0);
    EXPECT("driver cuGraphExecEventWaitNodeSetEvent", node_set(CU_GRAPH_NODE_TYPE_WAIT_EVENT, ""));
    CHECK(elf_cuGraphExecExternalSemaphoresSignalNodeSetParams(EXEC, NODE, NULL) == 0);
    EXPECT("driver cuGraphExecExternalSemaphoresSignalNodeSetParams",
           node_set(CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL, ""));
    CHECK(elf_cuGraphExecExternalSemaphoresWaitNodeSetParams(EXEC, NODE, NULL) == 0);
    EXPECT("driver cuGraphExecExternalSemaphoresWaitNodeSetParams", node_set(CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT, ""));
    CHECK(elf_cuGraphExecBatchMemOpNodeSetParams(EXEC, NODE, NULL) == 0);
    EXPECT("driver cuGraphExecBatchMemOpNodeSetParams", node_set(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, ""));
    CUgraphNode node = NODE; /* the driver of these tests writes none */
    CUgraphNodeParams added = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    CHECK(elf_cuGraphAddNode(&node, GRAPH, NULL, 0, &added) == 0);
    EXPECT("driver cuGraphAddNode", line("graph_node_added %p type=13", (void *)NODE));
    CHECK(elf_cuGraphAddNode_v2(&node, GRAPH, NULL, NULL, 0, &added) == 0);
    EXPECT("driver cuGraphAddNode_v2", line("graph_node_added %p type=13", (void *)NODE));
    CHECK(elf_cuGraphNodeSetEnabled(EXEC, NODE, 0) == 0);
    EXPECT("driver cuGraphNodeSetEnabled", line("graph_node_enabled %p node=%p 0", (void *)EXEC, (void *)NODE));
}

static void any_node_params(void)
{
    void *arguments[1];
    char what[256];
    CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_KERNEL,
                             .kernel = {.kern = (CUkernel)0xf2, .gridDimX = 6, .kernelParams = arguments}};
    attach();
    CHECK(elf_cuGraphExecNodeSetParams(EXEC, NODE, &any) == 0);
    snprintf(what, sizeof what, " func=(nil) kern=0xf2 grid=6 shared=0 params=%p extra=(nil)", (void *)arguments);
    EXPECT("driver cuGraphExecNodeSetParams", node_set(CU_GRAPH_NODE_TYPE_KERNEL, what));
    any = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    CHECK(elf_cuGraphExecNodeSetParams(EXEC, NODE, &any) == 0);
    EXPECT("driver cuGraphExecNodeSetParams", node_set(CU_GRAPH_NODE_TYPE_MEM_ALLOC, ""));
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

TEST_CASES(CASE(engine_answers), CASE(other_memory), CASE(pinned_memory), CASE(tensor_maps), CASE(pools),
           CASE(own_mappings), CASE(memory_reached_otherwise), CASE(failures), CASE(modules), CASE(libraries),
           CASE(enumerations), CASE(globals), CASE(quiet_points), CASE(contexts), CASE(captures), CASE(instantiations),
           CASE(node_params), CASE(any_node_params), CASE(ipc))
