/* Names and texts of error codes, and the driver's own version. */
#include "sim.h"

#define ERRORS(X)                                                                                                    \
    X(CUDA_SUCCESS, "no error")                                                                                      \
    X(CUDA_ERROR_INVALID_VALUE, "invalid argument")                                                                  \
    X(CUDA_ERROR_OUT_OF_MEMORY, "out of memory")                                                                     \
    X(CUDA_ERROR_NOT_INITIALIZED, "initialization error")                                                            \
    X(CUDA_ERROR_DEINITIALIZED, "driver shutting down")                                                              \
    X(CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library")                                                      \
    X(CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable")                            \
    X(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected")                                                    \
    X(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal")                                                           \
    X(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid")                                                    \
    X(CUDA_ERROR_INVALID_CONTEXT, "invalid device context")                                                          \
    X(CUDA_ERROR_MAP_FAILED, "mapping of buffer object failed")                                                      \
    X(CUDA_ERROR_UNMAP_FAILED, "unmapping of buffer object failed")                                                  \
    X(CUDA_ERROR_ALREADY_MAPPED, "resource already mapped")                                                          \
    X(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device")                      \
    X(CUDA_ERROR_NOT_MAPPED, "resource not mapped")                                                                  \
    X(CUDA_ERROR_UNSUPPORTED_LIMIT, "limit is not supported on this architecture")                                   \
    X(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices")                  \
    X(CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed")                                                        \
    X(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, "the specified execution affinity type is not supported by this device") \
    X(CUDA_ERROR_INVALID_SOURCE, "device kernel image is invalid")                                                   \
    X(CUDA_ERROR_FILE_NOT_FOUND, "file not found")                                                                   \
    X(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, "shared object symbol not found")                                   \
    X(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, "shared object initialization failed")                                   \
    X(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS")                           \
    X(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle")                                                          \
    X(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state")                            \
    X(CUDA_ERROR_NOT_FOUND, "named symbol not found")                                                                \
    X(CUDA_ERROR_NOT_READY, "device not ready")                                                                      \
    X(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered")                                        \
    X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch")                                 \
    X(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated")                                          \
    X(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled")                                      \
    X(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled")                                        \
    X(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "cannot set while device is active in this process")                        \
    X(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed")                                                       \
    X(CUDA_ERROR_ASSERT, "device-side assert triggered")                                                             \
    X(CUDA_ERROR_TOO_MANY_PEERS, "peer mapping resources exhausted")                                                 \
    X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "part or all of the requested memory range is already mapped")      \
    X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region")            \
    X(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address")                                                           \
    X(CUDA_ERROR_INVALID_ADDRESS_SPACE, "operation not supported on global/shared address space")                    \
    X(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure")                                                        \
    X(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "too many blocks in cooperative launch")                              \
    X(CUDA_ERROR_NOT_PERMITTED, "operation not permitted")                                                           \
    X(CUDA_ERROR_NOT_SUPPORTED, "operation not supported")                                                           \
    X(CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized")                                                     \
    X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing")                     \
    X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture")              \
    X(CUDA_ERROR_STREAM_CAPTURE_MERGE, "operation would result in a merge of separate capture sequences")            \
    X(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began")                   \
    X(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work")                                      \
    X(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream")                \
    X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,                                                                            \
      "operation would make the legacy stream depend on a capturing blocking stream")                                \
    X(CUDA_ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream")          \
    X(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,                                                                        \
      "attempt to terminate a thread-local capture sequence from another thread")                                    \
    X(CUDA_ERROR_TIMEOUT, "wait operation timed out")                                                                \
    X(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,                                                                          \
      "the graph update was not performed because it included changes which violated constraints")                   \
    X(CUDA_ERROR_LOSSY_QUERY, "the older form of this query cannot tell edge data")                                  \
    X(CUDA_ERROR_INVALID_CLUSTER_SIZE, "the cluster does not suit the launch")                                       \
    X(CUDA_ERROR_UNKNOWN, "unknown error")

static const struct {
    CUresult code;
    const char *name, *text;
} errors[] = {
#define X(code, text) {code, #code, text},
    ERRORS(X)
#undef X
};

static int error_find(CUresult error)
{
    for (int i = 0; i < (int)(sizeof errors / sizeof errors[0]); i++) {
        if (errors[i].code == error) {
            return i;
        }
    }
    return -1;
}

/* These two set the string to NULL for an unknown code, and are never made to fail. */
SIM_API(SIM_ANY, cuGetErrorName, (CUresult error, const char **pStr), error, pStr)
{
    (void)call;
    int index = error_find(error);
    if (pStr != NULL) {
        *pStr = index >= 0 ? errors[index].name : NULL;
    }
    return index >= 0 && pStr != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(SIM_ANY, cuGetErrorString, (CUresult error, const char **pStr), error, pStr)
{
    (void)call;
    int index = error_find(error);
    if (pStr != NULL) {
        *pStr = index >= 0 ? errors[index].text : NULL;
    }
    return index >= 0 && pStr != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
