/*
 * hooks_context.c - streams and contexts that end, and the points where the program has waited for the GPU.
 */
#include "hook.h"

#define WAIT_BODY(name, params, args)                \
    CUresult ov_body_##name params                   \
    {                                                \
        const CUresult result = OV_REAL(name, args); \
        if (result == CUDA_SUCCESS) {                \
            ov_quiet_point();                        \
        }                                            \
        return result;                               \
    }

WAIT_BODY(cuCtxSynchronize, (void), ())
WAIT_BODY(cuCtxSynchronize_v2, (CUcontext context), (context))
WAIT_BODY(cuStreamSynchronize, (CUstream stream), (stream))
WAIT_BODY(cuStreamSynchronize_ptsz, (CUstream stream), (stream))
WAIT_BODY(cuEventSynchronize, (CUevent event), (event))
/* A query that succeeds has found the work done. */
WAIT_BODY(cuStreamQuery, (CUstream stream), (stream))
WAIT_BODY(cuStreamQuery_ptsz, (CUstream stream), (stream))
WAIT_BODY(cuEventQuery, (CUevent event), (event))

CUresult ov_body_cuStreamDestroy_v2(CUstream stream)
{
    ov_stream_closing(stream);
    return OV_REAL(cuStreamDestroy_v2, (stream));
}

/* The device of a context that need not be current; -1 if the context is none. */
static CUdevice device_of(CUcontext context)
{
    CUdevice device = -1;
    if (OV_REAL(cuCtxPushCurrent_v2, (context)) != CUDA_SUCCESS) {
        return -1;
    }
    if (OV_REAL(cuCtxGetDevice, (&device)) != CUDA_SUCCESS) {
        device = -1;
    }
    OV_REAL(cuCtxPopCurrent_v2, (&context));
    return device;
}

CUresult ov_body_cuCtxDestroy_v2(CUcontext context)
{
    const CUdevice device = context != NULL ? device_of(context) : -1;
    if (device >= 0) {
        ov_context_closing(context, device);
    }
    return OV_REAL(cuCtxDestroy_v2, (context));
}

/* A primary context ends with its last release. The engine does not retain it, and we were there from the first look-up
 * on, so the program's own count is the count. */
enum { DEVICES_MAX = 128 };
static _Atomic int retained[DEVICES_MAX];
static CUcontext _Atomic primary[DEVICES_MAX]; /* once known; a program's own contexts of the device are others */

static _Atomic int *retain_count(CUdevice device)
{
    return device >= 0 && device < DEVICES_MAX ? &retained[device] : NULL;
}

CUresult ov_body_cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
    const CUresult result = OV_REAL(cuDevicePrimaryCtxRetain, (out, device));
    _Atomic int *count = retain_count(device);
    if (result == CUDA_SUCCESS && count != NULL) {
        atomic_store(&primary[device], *out);
        atomic_fetch_add(count, 1);
    }
    return result;
}

static void primary_closing(CUdevice device)
{
    ov_context_closing(retain_count(device) != NULL ? atomic_load(&primary[device]) : NULL, device);
}

static void releasing(CUdevice device)
{
    _Atomic int *count = retain_count(device);
    int now = count != NULL ? atomic_load(count) : 0;
    while (now > 0 && !atomic_compare_exchange_weak(count, &now, now - 1)) {
    }
    if (now == 1 || count == NULL) {
        primary_closing(device);
    }
}

static void resetting(CUdevice device)
{
    _Atomic int *count = retain_count(device);
    if (count != NULL) {
        atomic_store(count, 0);
    }
    primary_closing(device);
}

#define CLOSING_BODY(name, closing)          \
    CUresult ov_body_##name(CUdevice device) \
    {                                        \
        closing(device);                     \
        return OV_REAL(name, (device));      \
    }

CLOSING_BODY(cuDevicePrimaryCtxRelease, releasing)
CLOSING_BODY(cuDevicePrimaryCtxRelease_v2, releasing)
CLOSING_BODY(cuDevicePrimaryCtxReset, resetting)
CLOSING_BODY(cuDevicePrimaryCtxReset_v2, resetting)

CUresult ov_body_cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    const CUresult result = OV_REAL(cuCtxEnablePeerAccess, (peer, flags));
    if (result == CUDA_SUCCESS) {
        ov_peer_enabled(peer);
    }
    return result;
}
