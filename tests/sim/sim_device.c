/* Devices: start, count, names and attributes. The numbers are those of one real data-centre GPU. */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICE_NAME "Simulated GPU"

struct sim_device sim_devices[SIM_MAX_DEVICES];
int sim_initialised;

/* CUdevice_attribute and its answer; what is not here and known to the header is 0. */
static const struct {
    int attribute, value;
} attributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
    {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 3201000},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 6144},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 62914560},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE, 39321600},
    {CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE, 134217728},
    {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS, 1},
    {CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT, 4},
    {CU_DEVICE_ATTRIBUTE_NUMA_ID, -1},
    {SIM_ATTRIBUTE_HOST_NUMA_VMM, 1},
    {SIM_ATTRIBUTE_HOST_VMM, 1},
};
#define ATTRIBUTE_LAST 200 /* numbers above are refused */

struct sim_device *sim_device_get(CUdevice device)
{
    return device >= 0 && device < sim_knobs.devices ? &sim_devices[device] : NULL;
}

/* The driver of some platforms looks itself up while it starts; that happens outside the lock. */
static void self_lookup(void *unused)
{
    (void)unused;
    sim_self_lookup();
}

SIM_API(SIM_ANY, cuInit, (unsigned int Flags), Flags)
{
    (void)call;
    if (Flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (sim_knobs.devices == 0) {
        return CUDA_ERROR_NO_DEVICE;
    }
    if (sim_forked()) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    if (!sim_initialised) {
        sim_initialised = 1;
        for (int i = 0; i < sim_knobs.devices; i++) {
            sim_devices[i].ordinal = i;
        }
        atexit(sim_report_at_exit);
        sim_run_unlocked(self_lookup, NULL);
    }
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuDeviceGet, (CUdevice * device, int ordinal), device, ordinal)
{
    (void)call;
    if (device == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (sim_device_get(ordinal) == NULL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *device = ordinal;
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuDeviceGetCount, (int *count), count)
{
    (void)call;
    if (count == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *count = sim_knobs.devices;
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuDeviceGetName, (char *name, int len, CUdevice dev), name, len, dev)
{
    (void)call;
    if (name == NULL || len <= 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (sim_device_get(dev) == NULL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    snprintf(name, (size_t)len, "%s", DEVICE_NAME);
    return CUDA_SUCCESS;
}

static CUresult total(CUdevice dev, uint64_t *bytes)
{
    if (sim_device_get(dev) == NULL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *bytes = sim_knobs.device_bytes;
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuDeviceTotalMem_v2, (size_t * bytes, CUdevice dev), bytes, dev)
{
    uint64_t value;
    (void)call;
    if (bytes == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    SIM_TRY(total(dev, &value));
    *bytes = value;
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuDeviceTotalMem, (unsigned int *bytes, CUdevice dev), bytes, dev)
{
    uint64_t value;
    (void)call;
    if (bytes == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    SIM_TRY(total(dev, &value));
    *bytes = value > UINT32_MAX ? UINT32_MAX : (unsigned int)value;
    return CUDA_SUCCESS;
}

static int attribute_value(int attribute, int ordinal)
{
    if (sim_knob_attribute_off(attribute)) {
        return 0;
    }
    if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) {
        return ordinal + 1;
    }
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++) {
        if (attributes[i].attribute == attribute) {
            return attributes[i].value;
        }
    }
    return 0;
}

SIM_API(SIM_INIT, cuDeviceGetAttribute, (int *pi, CUdevice_attribute attrib, CUdevice dev), pi, attrib, dev)
{
    (void)call;
    if (pi == NULL || (int)attrib <= 0 || (int)attrib > ATTRIBUTE_LAST) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (sim_device_get(dev) == NULL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *pi = attribute_value((int)attrib, dev);
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuDeviceComputeCapability, (int *major, int *minor, CUdevice dev), major, minor, dev)
{
    (void)call;
    if (major == NULL || minor == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (sim_device_get(dev) == NULL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *major = attribute_value(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, dev);
    *minor = attribute_value(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, dev);
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuDeviceGetProperties, (CUdevprop * prop, CUdevice dev), prop, dev)
{
    (void)call;
    if (prop == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (sim_device_get(dev) == NULL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    memset(prop, 0, sizeof *prop);
    prop->maxThreadsPerBlock = 1024;
    prop->maxThreadsDim[0] = prop->maxThreadsDim[1] = 1024;
    prop->maxThreadsDim[2] = 64;
    prop->maxGridSize[0] = 2147483647;
    prop->maxGridSize[1] = prop->maxGridSize[2] = 65535;
    prop->sharedMemPerBlock = 49152;
    prop->totalConstantMemory = 65536;
    prop->SIMDWidth = 32;
    prop->memPitch = 2147483647;
    prop->regsPerBlock = 65536;
    prop->clockRate = 1980000;
    prop->textureAlign = 512;
    return CUDA_SUCCESS;
}

static CUresult uuid(CUuuid *out, CUdevice dev)
{
    if (out == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (sim_device_get(dev) == NULL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    for (size_t i = 0; i < sizeof out->bytes; i++) {
        out->bytes[i] = (char)(i + 16 * (size_t)(dev + 1));
    }
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuDeviceGetUuid, (CUuuid * out, CUdevice dev), out, dev)
{
    (void)call;
    return uuid(out, dev);
}

SIM_API(SIM_INIT, cuDeviceGetUuid_v2, (CUuuid * out, CUdevice dev), out, dev)
{
    (void)call;
    return uuid(out, dev);
}

SIM_API(SIM_INIT, cuDeviceGetPCIBusId, (char *pciBusId, int len, CUdevice dev), pciBusId, len, dev)
{
    (void)call;
    if (pciBusId == NULL || len < 13) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (sim_device_get(dev) == NULL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    snprintf(pciBusId, (size_t)len, "0000:%02X:00.0", (unsigned)(dev + 1) & 0xffu);
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuDeviceGetByPCIBusId, (CUdevice * dev, const char *pciBusId), dev, pciBusId)
{
    unsigned domain, bus;
    (void)call;
    if (dev == NULL || pciBusId == NULL || sscanf(pciBusId, "%x:%x:", &domain, &bus) != 2 || domain != 0 || bus == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (sim_device_get((CUdevice)bus - 1) == NULL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *dev = (CUdevice)bus - 1;
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuDeviceGetExecAffinitySupport, (int *pi, CUexecAffinityType type, CUdevice dev), pi, type, dev)
{
    (void)call;
    if (pi == NULL || (int)type < 0 || (int)type >= CU_EXEC_AFFINITY_TYPE_MAX) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (sim_device_get(dev) == NULL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *pi = 0;
    return CUDA_SUCCESS;
}
