/*
 * Drivers and devices that lack something: the program computes what it always computes, or is told that memory is out.
 * What is lacking is set up by the caller (SIM_MISSING, SIM_ATTR_OFF, SIM_DRIVER_VERSION, ...).
 */
#include "rig.h"

#include <stdlib.h>

enum { COUNT = 8 };
static const size_t weight_bytes = 4 * MIB;

/* Runs and streams. */
static void streams(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_until_streamed(&rig);
    for (int pass = 0; pass < 4; pass++) {
        rig_pass(&rig, NULL, 0);
    }
    rig_close(&rig);
}

/* Kernels of a library, when the driver tells no parameters. */
static void streams_library_kernels(void)
{
    struct rig rig;
    uint32_t got[4096];
    rig_open_with(&rig, COUNT, weight_bytes);
    struct gpu_image image = gpu_image_load("probe", GPU_LOAD_LIBRARY);
    const CUfunction digest = gpu_image_kernel(&image, "probe_digest");
    for (int pass = 0; pass < 12; pass++) {
        for (unsigned i = 0; i < COUNT; i++) {
            CUdeviceptr out = rig.out + 4 * i;
            uint64_t words = weight_bytes / 4;
            void *params[] = {&rig.weight[i].address, &out, &words};
            OK(cuLaunchKernel(digest, 1, 1, 1, 32, 1, 1, 0, rig.stream, params, NULL));
        }
        OK(cuStreamSynchronize(rig.stream));
        OK(cuMemcpyDtoH(got, rig.out, sizeof got));
        rig_compare(&rig, got, NULL, COUNT);
    }
    HOLDS(rig_streamed_mib() > 0);
    gpu_image_unload(&image);
    rig_close(&rig);
}

/* Runs, with or without streaming. */
static void runs(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    for (int pass = 0; pass < 10; pass++) {
        rig_pass(&rig, NULL, 0);
    }
    HOLDS(rig_streamed_mib() == 0);
    rig_close(&rig);
}

/* Runs while memory lasts; then an ordinary out of memory, and what was allocated goes on working. */
static void runs_until_memory_is_out(void)
{
    struct rig rig;
    CUdeviceptr more;
    CUresult result = CUDA_SUCCESS;
    rig_open_with(&rig, 3, weight_bytes);
    for (int i = 0; i < 64 && result == CUDA_SUCCESS; i++) {
        result = cuMemAlloc(&more, weight_bytes);
    }
    HOLDS(result == CUDA_ERROR_OUT_OF_MEMORY);
    for (int pass = 0; pass < 4; pass++) {
        rig_pass(&rig, NULL, 0);
    }
    exit(0);
}

/* The cause is the user's, and he is told how to remove it. */
static void no_host_memory_allowed(void)
{
    struct rig rig;
    rig_open(&rig, 0);
    HOLDS(rig_logged("there is no room for host memory (OVERSHOT_HOST_LIMIT"));
    rig_close(&rig);
    runs_until_memory_is_out();
}

static const struct rig_case cases[] = {
    {"streams", streams},
    {"streams_library_kernels", streams_library_kernels},
    {"runs", runs},
    {"runs_until_memory_is_out", runs_until_memory_is_out},
    {"no_host_memory_allowed", no_host_memory_allowed},
};
RIG_MAIN(cases)
