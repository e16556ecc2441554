/*
 * What the programs of driver_compare share. d.cuMemAlloc_ is the function that cuda.h means by cuMemAlloc, found in
 * whatever libcuda.so.1 was loaded. Programs are single-threaded but for run_modes(); each runs in a process of its
 * own.
 */
#ifndef DRIVER_COMPARE_H
#define DRIVER_COMPARE_H

#define CUDA_ENABLE_DEPRECATED
#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#define PAGE ((size_t)2 << 20)
enum { WORDS = 256 };

#define FUNCTIONS(X)                                                                                                     \
    X(cuInit)                                                                                                            \
    X(cuDeviceGet)                                                                                                       \
    X(cuDevicePrimaryCtxRetain)                                                                                          \
    X(cuCtxSetCurrent)                                                                                                   \
    X(cuCtxGetCurrent) X(cuCtxSynchronize) X(cuCtxPopCurrent) X(cuGetErrorName) X(cuGetProcAddress) X(cuMemAlloc) X(     \
        cuMemFree) X(cuMemGetInfo) X(cuMemHostAlloc) X(cuMemFreeHost) X(cuMemHostRegister) X(cuMemHostUnregister)        \
        X(cuMemGetAddressRange) X(cuPointerGetAttribute) X(cuMemcpyHtoD) X(cuMemcpyDtoH) X(cuMemcpyHtoDAsync) X(         \
            cuMemcpyDtoDAsync) X(cuMemsetD32) X(cuMemsetD8) X(cuMemsetD32Async) X(cuMemAddressReserve)                   \
            X(cuMemAddressFree) X(cuMemCreate) X(cuMemRelease) X(cuMemMap) X(cuMemUnmap) X(cuMemSetAccess) X(            \
                cuMemGetAccess) X(cuMemGetAllocationGranularity) X(cuMemRetainAllocationHandle)                          \
                X(cuMemExportToShareableHandle) X(cuMemGetAllocationPropertiesFromHandle) X(cuIpcGetMemHandle) X(        \
                    cuDeviceGetAttribute) X(cuStreamCreate) X(cuStreamQuery) X(cuStreamSynchronize) X(cuStreamWaitEvent) \
                    X(cuStreamGetFlags) X(cuEventCreate) X(cuEventRecord) X(cuEventQuery) X(cuEventSynchronize) X(       \
                        cuEventElapsedTime) X(cuEventRecordWithFlags) X(cuModuleLoadData) X(cuModuleLoad)                \
                        X(cuModuleUnload) X(cuModuleGetFunction) X(cuModuleGetGlobal) X(cuModuleGetFunctionCount) X(     \
                            cuFuncGetParamInfo) X(cuFuncGetAttribute) X(cuFuncSetAttribute) X(cuFuncIsLoaded)            \
                            X(cuLibraryLoadFromFile) X(cuLibraryGetKernel) X(cuLibraryGetKernelCount) X(                 \
                                cuKernelGetParamInfo) X(cuKernelGetFunction) X(cuFuncGetName) X(cuFuncGetModule)         \
                                X(cuLaunchKernel) X(cuLaunchKernelEx) X(cuLaunchCooperativeKernel) X(                    \
                                    cuStreamBeginCapture) X(cuStreamEndCapture) X(cuStreamIsCapturing)                   \
                                    X(cuStreamGetCaptureInfo) X(cuThreadExchangeStreamCaptureMode) X(cuGraphCreate) X(   \
                                        cuGraphDestroy) X(cuGraphClone) X(cuGraphNodeFindInClone) X(cuGraphGetNodes)     \
                                        X(cuGraphGetEdges) X(cuGraphGetRootNodes) X(cuGraphAddKernelNode) X(             \
                                            cuGraphAddEmptyNode) X(cuGraphAddMemcpyNode) X(cuGraphAddChildGraphNode)     \
                                            X(cuGraphAddDependencies) X(cuGraphRemoveDependencies) X(                    \
                                                cuGraphNodeGetType) X(cuGraphKernelNodeGetParams)                        \
                                                X(cuGraphKernelNodeSetParams) X(cuGraphInstantiate) X(cuGraphLaunch) X(  \
                                                    cuGraphExecUpdate) X(cuGraphExecKernelNodeSetParams)                 \
                                                    X(cuGraphNodeSetEnabled) X(cuGraphNodeGetEnabled) X(                 \
                                                        cuGraphChildGraphNodeGetGraph) X(cuGraphNodeGetDependencies)     \
                                                        X(cuOccupancyMaxActiveBlocksPerMultiprocessor) X(                \
                                                            cuFuncSetBlockShape) X(cuParamSetv) X(cuParamSetSize)        \
                                                            X(cuLaunchGrid) X(cuGraphAddNode) X(                         \
                                                                cuGraphConditionalHandleCreate)                          \
                                                                X(cuGraphAddMemAllocNode) X(cuGraphAddMemFreeNode) X(    \
                                                                    cuMemAllocAsync) X(cuMemFreeAsync)                   \
                                                                    X(cuGraphDestroyNode) X(cuGraphExecDestroy) X(       \
                                                                        cuGraphKernelNodeSetAttribute)                   \
                                                                        X(cuGraphKernelNodeCopyAttributes) X(            \
                                                                            cuGraphExecMemcpyNodeSetParams)              \
                                                                            X(cuGraphExecMemsetNodeSetParams) X(         \
                                                                                cuGraphAddMemsetNode)                    \
                                                                                X(cuGraphExecChildGraphNodeSetParams)    \
                                                                                    X(cuGraphAddEventRecordNode)

struct driver {
#define MEMBER(name) __typeof__(&name) name##_;
    FUNCTIONS(MEMBER)
};

extern struct driver d;
extern void *library; /* the handle of libcuda.so.1 */
extern const char *images, *fixtures, *program_name;

/* One line: program, step, answer. */
void say(const char *step, CUresult result);
void tell(const char *step, long long value);
void tell_word(const char *step, CUdeviceptr address);
/* A step that the rest depends on: silent when it works, else the program ends with a line. */
void need(const char *step, CUresult result);
#define NEED(call_)      need(#call_, d.call_)
#define CALL(name_, ...) name_##_(__VA_ARGS__)

/* What most programs begin with: a context, the probe module, two buffers of WORDS words (1 and 2), two streams. */
extern CUcontext context;
extern CUmodule module;
extern CUdeviceptr a, b;
extern CUstream s, t;
extern uint64_t words;
void start(void);
CUfunction function(const char *name);
CUresult increment(CUstream stream, CUdeviceptr target, uint32_t value);
CUevent event_of(unsigned flags);
char *path_of(const char *folder, const char *name);
void *bytes_of(const char *name); /* of a fixture */
CUresult grant(CUdeviceptr address, size_t bytes, CUmemAccess_flags flags);
CUmemGenericAllocationHandle handle_of(size_t bytes);
CUdeviceptr reserve(size_t bytes);

void run_uninitialised(void);
void run_getproc(void);
void run_module(void);
void run_library(void);
void run_launch(void);
void run_memory(void);
void run_vmm(void);
void run_stream(void);
void run_modes(void);
void run_capture(void);
void run_graph(void);
void run_update(void);
/* Not in the answers that are kept. */
void run_rules_update(void);
void run_rules_edges(void);
void run_rules_conditional(void);
void run_rules_memory(void);
void run_rules_updatable(void);
/* These lose the context. */
void run_readonly_store(void);
void run_readonly_copy(void);
void run_unmapped(void);

#endif
