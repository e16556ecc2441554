/* Whatever form a launch has, and whenever its kernel is first seen, the kernel reads the weights as they are. */
#include "rig.h"

#include <string.h>

enum { COUNT = 8 };
static const size_t weight_bytes = 4 * MIB;

struct box {
    uint8_t kind;
    CUdeviceptr in;
    uint16_t shift;
    CUdeviceptr out;
    uint64_t words;
};

/* By value in a structure with holes. */
static void in_struct(void)
{
    struct rig rig;
    uint32_t got[256];
    rig_open_with(&rig, COUNT, weight_bytes);
    for (int pass = 0; pass < 12; pass++) {
        for (unsigned i = 0; i < COUNT; i++) {
            struct box box;
            memset(&box, 0xEE, sizeof box);
            box.kind = 3;
            box.in = rig.weight[i].address + 4096;
            box.out = rig.out + 8192;
            box.words = 256;
            void *params[] = {&box};
            rig_launch(&rig, "probe_struct", rig.stream, params);
            OK(cuStreamSynchronize(rig.stream));
            OK(cuMemcpyDtoH(got, rig.out + 8192, sizeof got));
            for (unsigned k = 0; k < 256; k++) {
                if (got[k] != rig.weight[i].host[1024 + k] + 3) {
                    rig_fail(RIG_EXIT_WRONG, "weight %u through a structure: word %u is wrong", i, k);
                }
            }
        }
        rig_pass(&rig, NULL, 0);
    }
    HOLDS(rig_streamed_mib() > 0);
    rig_close(&rig);
}

/* Launches of every form read the same weights. `form` launches probe_digest(in, out, words). */
typedef void form(const struct rig *rig, CUdeviceptr in, CUdeviceptr out, uint64_t words);

static void every_pass(form *launch)
{
    struct rig rig;
    uint32_t got[4096];
    rig_open_with(&rig, COUNT, weight_bytes);
    for (int pass = 0; pass < 14; pass++) {
        for (unsigned i = 0; i < COUNT; i++) {
            launch(&rig, rig.weight[i].address, rig.out + 4 * i, weight_bytes / 4);
        }
        OK(cuStreamSynchronize(rig.stream));
        OK(cuMemcpyDtoH(got, rig.out, sizeof got));
        rig_compare(&rig, got, NULL, COUNT);
    }
    rig_close(&rig);
}

static void form_extra(const struct rig *rig, CUdeviceptr in, CUdeviceptr out, uint64_t words)
{
    uint64_t buffer[3] = {in, out, words};
    size_t size = sizeof buffer;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
    OK(cuLaunchKernel(rig_kernel(rig, "probe_digest"), 1, 1, 1, 32, 1, 1, 0, rig->stream, NULL, extra));
}

static void form_ex(const struct rig *rig, CUdeviceptr in, CUdeviceptr out, uint64_t words)
{
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 32,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = rig->stream};
    void *params[] = {&in, &out, &words};
    OK(cuLaunchKernelEx(&config, rig_kernel(rig, "probe_digest"), params, NULL));
}

/* Programmatic dependent launch: the kernel may start before its predecessor has ended. */
static void form_programmatic(const struct rig *rig, CUdeviceptr in, CUdeviceptr out, uint64_t words)
{
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 32,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = rig->stream,
                             .attrs = &attribute,
                             .numAttrs = 1};
    void *params[] = {&in, &out, &words};
    OK(cuLaunchKernelEx(&config, rig_kernel(rig, "probe_digest"), params, NULL));
}

static void form_cooperative(const struct rig *rig, CUdeviceptr in, CUdeviceptr out, uint64_t words)
{
    void *params[] = {&in, &out, &words};
    OK(cuLaunchCooperativeKernel(rig_kernel(rig, "probe_digest"), 1, 1, 1, 32, 1, 1, 0, rig->stream, params));
}

/* The handle is a CUkernel. */
static void form_library_kernel(const struct rig *rig, CUdeviceptr in, CUdeviceptr out, uint64_t words)
{
    static struct gpu_image image;
    if (image.culibrary == NULL) {
        image = gpu_image_load("probe", GPU_LOAD_LIBRARY);
    }
    void *params[] = {&in, &out, &words};
    OK(cuLaunchKernel(gpu_image_kernel(&image, "probe_digest"), 1, 1, 1, 32, 1, 1, 0, rig->stream, params, NULL));
}

/* Parameters set one by one: nobody can look at them. */
static void form_legacy(const struct rig *rig, CUdeviceptr in, CUdeviceptr out, uint64_t words)
{
    const CUfunction function = rig_kernel(rig, "probe_digest");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    OK(cuFuncSetBlockShape(function, 32, 1, 1));
    OK(cuParamSetv(function, 0, &in, 8));
    OK(cuParamSetv(function, 8, &out, 8));
    OK(cuParamSetv(function, 16, &words, 8));
    OK(cuParamSetSize(function, 24));
    OK(cuLaunchGridAsync(function, 1, 1, rig->stream));
#pragma GCC diagnostic pop
}

static void extra_buffer(void)
{
    every_pass(form_extra);
    HOLDS(rig_streamed_mib() > 0);
}
static void launch_ex(void)
{
    every_pass(form_ex);
    HOLDS(rig_streamed_mib() > 0);
}
static void launch_programmatic(void)
{
    every_pass(form_programmatic);
}
static void launch_cooperative(void)
{
    every_pass(form_cooperative);
    HOLDS(rig_streamed_mib() > 0);
}
static void library_kernel(void)
{
    every_pass(form_library_kernel);
    HOLDS(rig_streamed_mib() > 0);
}
static void legacy_from_the_start(void)
{
    every_pass(form_legacy);
}

/* The same form, first seen when everything is streamed. */
static void legacy_after_plan(void)
{
    struct rig rig;
    uint32_t got[4096];
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_until_streamed(&rig);
    for (int pass = 0; pass < 4; pass++) {
        for (unsigned i = 0; i < COUNT; i++) {
            form_legacy(&rig, rig.weight[i].address, rig.out + 4 * i, weight_bytes / 4);
        }
        OK(cuStreamSynchronize(rig.stream));
        OK(cuMemcpyDtoH(got, rig.out, sizeof got));
        rig_compare(&rig, got, NULL, COUNT);
    }
    rig_close(&rig);
}

/* A kernel first seen in steady state. */
static void new_kernel_after_plan(void)
{
    struct rig rig;
    uint32_t got[64];
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_until_streamed(&rig);
    for (unsigned round = 0; round < 3 * COUNT; round++) {
        struct rig_weight *a = &rig.weight[round % COUNT], *b = &rig.weight[(round * 3 + 1) % COUNT];
        CUdeviceptr out = rig.out + 8192;
        uint64_t words = 64;
        void *params[] = {&a->address, &b->address, &out, &words};
        rig_launch(&rig, "probe_add", rig.stream, params);
        OK(cuStreamSynchronize(rig.stream));
        OK(cuMemcpyDtoH(got, out, sizeof got));
        for (unsigned i = 0; i < 64; i++) {
            if (got[i] != a->host[i] + b->host[i]) {
                rig_fail(RIG_EXIT_WRONG, "round %u: probe_add read wrong words", round);
            }
        }
        rig_pass(&rig, NULL, 0);
    }
    rig_close(&rig);
}

/* Another module's kernel at the handle of one that was learned to be a reader: a writer this time. */
static void handle_reused(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_until_streamed(&rig);
    for (unsigned round = 0; round < 12; round++) {
        struct gpu_image image = gpu_image_load("probe", GPU_LOAD_MODULE);
        struct rig_weight *weight = &rig.weight[round % COUNT];
        uint64_t words = weight->bytes / 4;
        if (round % 2 == 0) {
            CUdeviceptr out = rig.out + 8192;
            void *params[] = {&weight->address, &out, &words};
            OK(cuLaunchKernel(gpu_image_kernel(&image, "probe_digest"), 1, 1, 1, 32, 1, 1, 0, rig.stream, params,
                              NULL));
        } else {
            uint32_t value = round;
            void *params[] = {&weight->address, &value, &words};
            OK(cuLaunchKernel(gpu_image_kernel(&image, "probe_increment"), 1, 1, 1, 32, 1, 1, 0, rig.stream, params,
                              NULL));
            for (size_t i = 0; i < words; i++) {
                weight->host[i] += value;
            }
            rig_changed(weight);
        }
        rig_pass(&rig, NULL, 0);
        gpu_image_unload(&image);
    }
    rig_close(&rig);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(in_struct),
    CASE(extra_buffer),
    CASE(launch_ex),
    CASE(launch_programmatic),
    CASE(launch_cooperative),
    CASE(library_kernel),
    CASE(legacy_from_the_start),
    CASE(legacy_after_plan),
    CASE(new_kernel_after_plan),
    CASE(handle_reused),
};
RIG_MAIN(cases)
