/* Peers: every device can reach every other one, once a context has asked for it. */
#include "sim.h"

SIM_API(SIM_INIT, cuDeviceCanAccessPeer, (int *canAccessPeer, CUdevice dev, CUdevice peerDev), canAccessPeer, dev,
        peerDev)
{
    (void)call;
    if (canAccessPeer == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (sim_device_get(dev) == NULL || sim_device_get(peerDev) == NULL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *canAccessPeer = dev != peerDev;
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuDeviceGetP2PAttribute,
        (int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice, CUdevice dstDevice), value, attrib, srcDevice,
        dstDevice)
{
    (void)call;
    if (value == NULL || (int)attrib < 1 || (int)attrib > 5) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (sim_device_get(srcDevice) == NULL || sim_device_get(dstDevice) == NULL || srcDevice == dstDevice) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *value = attrib == CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ? 0 : 1;
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuCtxEnablePeerAccess, (CUcontext peerContext, unsigned int Flags), peerContext, Flags)
{
    struct sim_context *peer;
    if (Flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!sim_context_valid(peerContext, &peer) || peer->device == call->context->device) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    uint64_t bit = (uint64_t)1 << peer->device->ordinal;
    if (call->context->peers & bit) {
        return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    }
    call->context->peers |= bit;
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuCtxDisablePeerAccess, (CUcontext peerContext), peerContext)
{
    struct sim_context *peer;
    if (!sim_context_valid(peerContext, &peer)) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    uint64_t bit = (uint64_t)1 << peer->device->ordinal;
    if (!(call->context->peers & bit)) {
        return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    }
    call->context->peers &= ~bit;
    return CUDA_SUCCESS;
}
