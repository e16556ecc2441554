/* Launch forms: the same kernel through each of them, and what each refuses. */
#include "harness.h"

#include <cudaTypedefs.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { WORDS = 1000 };

static CUdeviceptr out;
static uint32_t value = 0x1234;
static uint64_t words = WORDS;

static void prepare(void)
{
    start(0);
    out = device_words(WORDS);
    OK(cuMemsetD32(out, 0, WORDS));
}

static void expect(uint32_t wanted)
{
    ck_assert_uint_eq(word_at(out), wanted);
    ck_assert_uint_eq(word_at(out + 4 * (WORDS - 1)), wanted);
}

START_TEST(kernel_params)
{
    prepare();
    OK(cuLaunchKernel(probe("probe_fill"), 4, 1, 1, 128, 1, 1, 0, NULL, (void *[]){&out, &value, &words}, NULL));
    expect(0x1234);
}
END_TEST

struct fill_params {
    CUdeviceptr out;
    uint32_t value;
    uint64_t words;
};

START_TEST(extra_buffer)
{
    prepare();
    struct fill_params params = {out, 77, WORDS};
    size_t bytes = sizeof params;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &params, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    OK(cuLaunchKernel(probe("probe_fill"), 4, 1, 1, 128, 1, 1, 0, NULL, NULL, extra));
    expect(77);
    bytes = sizeof params + 1; /* as the real driver: too long is refused, too short is not */
    ANSWERS(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
            cuLaunchKernel(probe("probe_fill"), 4, 1, 1, 128, 1, 1, 0, NULL, NULL, extra));
    bytes = 16; /* then the count is zero */
    OK(cuLaunchKernel(probe("probe_fill"), 4, 1, 1, 128, 1, 1, 0, NULL, NULL, extra));
    extra[1] = NULL;
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(probe("probe_fill"), 4, 1, 1, 128, 1, 1, 0, NULL, NULL, extra));
}
END_TEST

START_TEST(params_and_extra_exclude_each_other)
{
    prepare();
    struct fill_params params = {out, 77, WORDS};
    size_t bytes = sizeof params;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &params, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    void *list[] = {&out, &value, &words};
    CUfunction function = probe("probe_fill");
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, list, extra));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    expect(0);
}
END_TEST

START_TEST(launch_ex_with_attributes)
{
    prepare();
    CUlaunchAttribute attribute[] = {
        {.id = CU_LAUNCH_ATTRIBUTE_IGNORE},
        {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value = {.priority = -1}},
        {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value = {.clusterDim = {2, 1, 1}}},
    };
    CUlaunchConfig config = {.gridDimX = 4,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 128,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .attrs = attribute,
                             .numAttrs = 3};
    void *list[] = {&out, &value, &words};
    OK(cuLaunchKernelEx(&config, probe("probe_fill"), list, NULL));
    expect(0x1234);
    attribute[2].value.clusterDim.x = 3; /* does not divide the grid */
    ANSWERS(CUDA_ERROR_INVALID_CLUSTER_SIZE, cuLaunchKernelEx(&config, probe("probe_fill"), list, NULL));
    attribute[2].value.clusterDim.x = 16; /* not portable */
    config.gridDimX = 16;
    ANSWERS(CUDA_ERROR_INVALID_CLUSTER_SIZE, cuLaunchKernelEx(&config, probe("probe_fill"), list, NULL));
    OK(cuFuncSetAttribute(probe("probe_fill"), CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
    OK(cuLaunchKernelEx(&config, probe("probe_fill"), list, NULL));
    attribute[1].id = (CUlaunchAttributeID)999;
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernelEx(&config, probe("probe_fill"), list, NULL));
}
END_TEST

START_TEST(cooperative)
{
    prepare();
    void *list[] = {&out, &value, &words};
    OK(cuLaunchCooperativeKernel(probe("probe_fill"), 132, 1, 1, 256, 1, 1, 0, NULL, list));
    expect(0x1234);
    ANSWERS(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
            cuLaunchCooperativeKernel(probe("probe_fill"), 1000000, 1, 1, 256, 1, 1, 0, NULL, list));
}
END_TEST

START_TEST(legacy_forms)
{
    /* Programs of CUDA 3: the launch state lies in the function. */
    prepare();
    CUfunction function = probe("probe_fill");
    OK(cuFuncSetBlockShape(function, 128, 1, 1));
    OK(cuParamSetv(function, 0, &out, sizeof out));
    OK(cuParamSeti(function, 8, 4711));
    OK(cuParamSetv(function, 16, &words, sizeof words));
    OK(cuParamSetSize(function, 24));
    OK(cuLaunchGrid(function, 8, 1));
    expect(4711);
    OK(cuParamSeti(function, 8, 4712));
    OK(cuLaunchGridAsync(function, 8, 1, NULL));
    expect(4712);
    OK(cuParamSeti(function, 8, 4713));
    OK(cuLaunch(function));
    expect(4713);
}
END_TEST

START_TEST(library_kernel_is_launched_as_function)
{
    CUlibrary library;
    CUkernel kernel;
    prepare();
    OK(cuLibraryLoadFromFile(&library, SIM_KERNEL_IMAGES "/probe.fatbin", NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel, library, "probe_fill"));
    OK(launch_params((CUfunction)kernel, NULL, (void *[]){&out, &value, &words}));
    expect(0x1234);
}
END_TEST

START_TEST(shapes_that_are_refused)
{
    prepare();
    void *list[] = {&out, &value, &words};
    CUfunction f = probe("probe_fill");
    static const unsigned shapes[][7] = {
        {0, 1, 1, 32, 1, 1, 0},         {1, 0, 1, 32, 1, 1, 0},      {1, 1, 0, 32, 1, 1, 0},
        {1, 1, 1, 0, 1, 1, 0},          {1, 1, 1, 2048, 1, 1, 0},    {1, 1, 1, 1, 1, 128, 0},
        {1, 1, 1, 64, 32, 1, 0},        {1, 65536, 1, 1, 1, 1, 0},   {1, 1, 65536, 1, 1, 1, 0},
        {0x80000000, 1, 1, 1, 1, 1, 0}, {1, 1, 1, 1, 1, 1, 1 << 20},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const unsigned *s = shapes[i];
        CUresult result = cuLaunchKernel(f, s[0], s[1], s[2], s[3], s[4], s[5], s[6], NULL, list, NULL);
        ck_assert_msg(result == CUDA_ERROR_INVALID_VALUE, "shape %zu answers %d", i, (int)result);
    }
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, list, NULL));
    expect(0);
}
END_TEST

START_TEST(every_kind_of_parameter_arrives)
{
    CUdeviceptr a, b, c, d, o;
    uint64_t count = 16;
    uint32_t e = 5;
    float f = 7;
    double g = 11;
    uint8_t h = 13;
    start(0);
    a = device_words(16), b = device_words(16), c = device_words(16), d = device_words(16), o = device_words(16);
    OK(cuMemsetD32(a, 1, 16));
    OK(cuMemsetD32(b, 2, 16));
    OK(cuMemsetD32(c, 4, 16));
    OK(cuMemsetD32(d, 8, 16));
    OK(LAUNCH(NULL, "probe_ten", &a, &b, &c, &d, &o, &count, &e, &f, &g, &h));
    ck_assert_uint_eq(word_at(o), 3 + 12 + 5 + 7 + 11 + 13);
}
END_TEST

START_TEST(struct_parameter_with_padding)
{
    struct {
        uint8_t kind;
        CUdeviceptr in;
        uint16_t shift;
        CUdeviceptr out;
        uint64_t words;
    } box;
    start(0);
    memset(&box, 0xee, sizeof box); /* padding holds rubbish */
    box.kind = 9;
    box.in = device_words(8);
    box.out = device_words(8);
    box.words = 8;
    OK(cuMemsetD32(box.in, 100, 8));
    OK(LAUNCH(NULL, "probe_struct", &box));
    ck_assert_uint_eq(word_at(box.out), 109);
}
END_TEST

START_TEST(pointer_table_written_by_the_device)
{
    CUdeviceptr table, target, result;
    uint64_t slot = 1, entries = 2, count = 4;
    start(0);
    table = device_words(4), target = device_words(4), result = device_words(8);
    OK(cuMemsetD32(target, 42, 4));
    for (slot = 0; slot < 2; slot++)
        OK(LAUNCH(NULL, "probe_write_pointer", &table, &target, &slot));
    OK(LAUNCH(NULL, "probe_read_table", &table, &entries, &result, &count));
    ck_assert_uint_eq(word_at(result + 28), 42);
}
END_TEST

START_TEST(kernel_on_unmapped_memory_loses_the_context)
{
    CUdeviceptr nowhere;
    size_t free, total;
    start(0);
    OK(cuMemAddressReserve(&nowhere, PAGE, 0, 0, 0));
    OK(fill(NULL, nowhere, 1, 16));
    ANSWERS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    ANSWERS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemGetInfo(&free, &total));
    ANSWERS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc(&nowhere, 4096));
}
END_TEST

START_TEST(bad_address_in_a_table_is_found_before_it_is_read)
{
    CUdeviceptr table, result;
    uint64_t slot = 0, entries = 1, count = 4;
    start(0);
    table = device_words(4), result = device_words(8);
    const void *wild = (const void *)0x10;
    OK(LAUNCH(NULL, "probe_write_pointer", &table, &wild, &slot));
    OK(LAUNCH(NULL, "probe_read_table", &table, &entries, &result, &count));
    ANSWERS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(NULL));
}
END_TEST

START_TEST(per_thread_twin_uses_the_per_thread_stream)
{
    CUstreamCaptureStatus status;
    union {
        void *pointer;
        PFN_cuLaunchKernel_v7000_ptsz launch;
        PFN_cuStreamIsCapturing_v10000_ptsz capturing;
    } f;
    CUgraph graph;
    prepare();
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *list[] = {&out, &value, &words};
    /* the NULL stream of a twin is the calling thread's own: it can be captured, the legacy one cannot */
    OK(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
    f.pointer = dlsym(driver, "cuLaunchKernel_ptsz");
    OK(f.launch(probe("probe_fill"), 1, 1, 1, 32, 1, 1, 0, NULL, list, NULL));
    f.pointer = dlsym(driver, "cuStreamIsCapturing_ptsz");
    OK(f.capturing(NULL, &status));
    ck_assert_int_eq(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    size_t count = 0;
    OK(cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph));
    OK(cuGraphGetNodes(graph, NULL, &count));
    ck_assert_uint_eq(count, 1);
    expect(0);
}
END_TEST

START_TEST(trace_tells_the_whole_configuration)
{
    char path[] = "/tmp/sim_trace_XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    knob("SIM_TRACE", path);
    prepare();
    CUlaunchAttribute priority = {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value = {.priority = -2}};
    CUlaunchConfig config = {.gridDimX = 5,
                             .gridDimY = 6,
                             .gridDimZ = 7,
                             .blockDimX = 8,
                             .blockDimY = 2,
                             .blockDimZ = 1,
                             .sharedMemBytes = 96,
                             .attrs = &priority,
                             .numAttrs = 1};
    OK(cuLaunchKernelEx(&config, probe("probe_fill"), (void *[]){&out, &value, &words}, NULL));
    char *text = read_file(path, NULL);
    ck_assert_ptr_nonnull(
        strstr(text, "\"kernel\":\"probe_fill\",\"form\":\"cuLaunchKernelEx\",\"grid\":[5,6,7],\"block\":[8,2,1]"));
    ck_assert_ptr_nonnull(strstr(text, "\"shared_bytes\":96"));
    ck_assert_ptr_nonnull(strstr(text, "{\"id\":8,\"value\":\"feffffff"));
    ck_assert_ptr_nonnull(strstr(text, "34120000")); /* the value parameter */
    unlink(path);
}
END_TEST

START_TEST(function_belongs_to_its_context)
{
    CUcontext other;
    CUstream stream;
    knob("SIM_DEVICES", "2");
    prepare();
    CUfunction function = probe("probe_fill");
    OK(cuDevicePrimaryCtxRetain(&other, 1));
    OK(cuCtxSetCurrent(other));
    OK(cuStreamCreate(&stream, 0));
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, launch_params(function, stream, (void *[]){&out, &value, &words}));
}
END_TEST

SUITE(sim_launch, kernel_params, extra_buffer, params_and_extra_exclude_each_other, launch_ex_with_attributes,
      cooperative, legacy_forms, library_kernel_is_launched_as_function, shapes_that_are_refused,
      every_kind_of_parameter_arrives, struct_parameter_with_padding, pointer_table_written_by_the_device,
      kernel_on_unmapped_memory_loses_the_context, bad_address_in_a_table_is_found_before_it_is_read,
      per_thread_twin_uses_the_per_thread_stream, trace_tells_the_whole_configuration, function_belongs_to_its_context)
