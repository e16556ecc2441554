/* Proves: every form of kernel launch is seen, with its stream, function and parameters, and arrives at the driver
 * exactly as the program made it (HAMi-core#143, cricket#58, lupine#356, accel-sim#521). */
#include "interpose.h"
#include "rows.h"

#define FUNCTION ((CUfunction)0xf00d)
#define STREAM   ((CUstream)0x57)
static int value;
static void *params[] = {&value, NULL};
static void *extra[] = {CU_LAUNCH_PARAM_END};

static const char *begin(CUstream stream, const void *seen_params, const void *seen_extra, int opaque, int programmatic)
{
    return line("launch_begin function=%p stream=%p params=%p extra=%p opaque=%d programmatic=%d inside=0",
                (void *)FUNCTION, (void *)stream, seen_params, seen_extra, opaque, programmatic);
}

static const char *arrived(const char *name, CUstream stream, const void *seen_params, const void *seen_extra)
{
    return line("arrived %s 1,2,3,4,5,6 shared=7 stream=%p function=%p params=%p extra=%p", name, (void *)stream,
                (void *)FUNCTION, seen_params, seen_extra);
}

static const char end[] = "launch_end result=0 same=1 inside=0";

static void attach(void)
{
    CHECK(elf_cuStreamQuery(NULL) == CUDA_SUCCESS);
    record_forget();
}

static void kernel(void)
{
    attach();
    CHECK(elf_cuLaunchKernel(FUNCTION, 1, 2, 3, 4, 5, 6, 7, STREAM, params, NULL) == CUDA_SUCCESS);
    EXPECT(begin(STREAM, params, NULL, 0, 0), "driver cuLaunchKernel", arrived("cuLaunchKernel", STREAM, params, NULL),
           end);
    /* The NULL stream goes on as it came; what it means is told. */
    CHECK(elf_cuLaunchKernel(FUNCTION, 1, 2, 3, 4, 5, 6, 7, NULL, NULL, extra) == CUDA_SUCCESS);
    EXPECT(begin(CU_STREAM_LEGACY, NULL, extra, 0, 0), "driver cuLaunchKernel",
           arrived("cuLaunchKernel", NULL, NULL, extra), end);
}

static void kernel_ptsz(void)
{
    attach();
    CHECK(elf_cuLaunchKernel_ptsz(FUNCTION, 1, 2, 3, 4, 5, 6, 7, NULL, params, extra) == CUDA_SUCCESS);
    EXPECT(begin(CU_STREAM_PER_THREAD, params, extra, 0, 0), "driver cuLaunchKernel_ptsz",
           arrived("cuLaunchKernel_ptsz", NULL, params, extra), end);
}

static void cooperative(void)
{
    attach();
    CHECK(elf_cuLaunchCooperativeKernel(FUNCTION, 1, 2, 3, 4, 5, 6, 7, STREAM, params) == CUDA_SUCCESS);
    EXPECT(begin(STREAM, params, NULL, 0, 0), "driver cuLaunchCooperativeKernel",
           arrived("cuLaunchCooperativeKernel", STREAM, params, NULL), end);
    CHECK(elf_cuLaunchCooperativeKernel_ptsz(FUNCTION, 1, 2, 3, 4, 5, 6, 7, NULL, params) == CUDA_SUCCESS);
    EXPECT(begin(CU_STREAM_PER_THREAD, params, NULL, 0, 0), "driver cuLaunchCooperativeKernel_ptsz",
           arrived("cuLaunchCooperativeKernel_ptsz", NULL, params, NULL), end);
}

static uint64_t sum_of(const CUlaunchAttribute *attribute, size_t count)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < count * sizeof *attribute; i++) {
        sum = sum * 31 + ((const unsigned char *)attribute)[i];
    }
    return sum;
}

typedef CUresult (*ex_fn)(const CUlaunchConfig *, CUfunction, void **, void **);

/* The driver must get the program's own configuration: same address, same bytes behind it, before and after. */
static void launch_ex(ex_fn launch, const char *name, CUstream told, CUlaunchConfig *config, int programmatic)
{
    const CUlaunchConfig before = *config;
    const uint64_t sum = sum_of(config->attrs, config->numAttrs);
    CHECK(launch(config, FUNCTION, params, extra) == CUDA_SUCCESS);
    EXPECT(begin(told, params, extra, 0, programmatic), line("driver %s", name),
           line("arrived %s config=%p attributes=%p sum=%llx function=%p params=%p extra=%p", name, (void *)config,
                (void *)config->attrs, (unsigned long long)sum, (void *)FUNCTION, (void *)params, (void *)extra),
           end);
    CHECK(memcmp(&before, config, sizeof before) == 0 && sum == sum_of(config->attrs, config->numAttrs));
}

static void ex(void)
{
    CUlaunchAttribute attribute[3];
    CUlaunchConfig config = {1, 2, 3, 4, 5, 6, 7, STREAM, attribute, 3};
    attach();
    for (size_t i = 0; i < sizeof attribute; i++) {
        ((unsigned char *)attribute)[i] = (unsigned char)(i * 7); /* attributes nobody has heard of */
    }
    launch_ex(elf_cuLaunchKernelEx, "cuLaunchKernelEx", STREAM, &config, 0);
    config.hStream = NULL;
    launch_ex(elf_cuLaunchKernelEx, "cuLaunchKernelEx", CU_STREAM_LEGACY, &config, 0);
    launch_ex(elf_cuLaunchKernelEx_ptsz, "cuLaunchKernelEx_ptsz", CU_STREAM_PER_THREAD, &config, 0);
    config.numAttrs = 0;
    config.attrs = NULL;
    launch_ex(elf_cuLaunchKernelEx, "cuLaunchKernelEx", CU_STREAM_LEGACY, &config, 0);
}

static void programmatic(void)
{
    CUlaunchAttribute attribute[2] = {{.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION}};
    CUlaunchConfig config = {1, 2, 3, 4, 5, 6, 7, STREAM, attribute, 2};
    attach();
    attribute[1].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute[1].value.programmaticStreamSerializationAllowed = 1;
    launch_ex(elf_cuLaunchKernelEx, "cuLaunchKernelEx", STREAM, &config, 1);
    attribute[1].value.programmaticStreamSerializationAllowed = 0;
    launch_ex(elf_cuLaunchKernelEx, "cuLaunchKernelEx", STREAM, &config, 0);
    attribute[1].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
    launch_ex(elf_cuLaunchKernelEx_ptsz, "cuLaunchKernelEx_ptsz", STREAM, &config, 1);
}

/* A configuration that is not there is the driver's to refuse. */
static void ex_without_config(void)
{
    attach();
    CHECK(elf_cuLaunchKernelEx(NULL, FUNCTION, params, NULL) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(begin(CU_STREAM_LEGACY, params, NULL, 0, 0), "driver cuLaunchKernelEx",
           "launch_end result=1 same=1 inside=0");
}

static void legacy(void)
{
    attach();
    CHECK(elf_cuLaunch(FUNCTION) == CUDA_SUCCESS);
    EXPECT(begin(CU_STREAM_LEGACY, NULL, NULL, 1, 0), "driver cuLaunch", end);
    CHECK(elf_cuLaunchGrid(FUNCTION, 2, 3) == CUDA_SUCCESS);
    EXPECT(begin(CU_STREAM_LEGACY, NULL, NULL, 1, 0), "driver cuLaunchGrid", end);
    CHECK(elf_cuLaunchGridAsync(FUNCTION, 2, 3, STREAM) == CUDA_SUCCESS);
    EXPECT(begin(STREAM, NULL, NULL, 1, 0), "driver cuLaunchGridAsync", end);
}

static void several_devices(void)
{
    CUDA_LAUNCH_PARAMS launches[2] = {{.function = FUNCTION, .hStream = STREAM}, {.function = FUNCTION}};
    attach();
    CHECK(elf_cuLaunchCooperativeKernelMultiDevice(launches, 2, 0) == CUDA_SUCCESS);
    EXPECT(begin(STREAM, NULL, NULL, 1, 0), "driver cuLaunchCooperativeKernelMultiDevice", end);
    CHECK(elf_cuLaunchCooperativeKernelMultiDevice(NULL, 0, 0) == CUDA_SUCCESS);
}

/* While everything fits, launches only keep the gate. */
static void idle(void)
{
    const CUlaunchConfig config = {1, 2, 3, 4, 5, 6, 7, STREAM, NULL, 0};
    attach();
    CHECK(elf_cuLaunchKernel(FUNCTION, 1, 2, 3, 4, 5, 6, 7, STREAM, params, NULL) == CUDA_SUCCESS);
    EXPECT("gate entered", "driver cuLaunchKernel", arrived("cuLaunchKernel", STREAM, params, NULL), "gate left");
    CHECK(elf_cuLaunchKernelEx(&config, FUNCTION, params, NULL) == CUDA_SUCCESS);
    CHECK(recorded("launch_begin") == 0 && recorded("arrived") == 1);
    CHECK(recorded("gate entered") == 1 && recorded("gate left") == 1);
}

/* The engine refuses: no launch, its error is the program's. */
static void refused(void)
{
    attach();
    CHECK(elf_cuLaunchKernel(FUNCTION, 1, 2, 3, 4, 5, 6, 7, STREAM, params, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(begin(STREAM, params, NULL, 0, 0));
}

static void failed(void)
{
    attach();
    setenv("FAKE_FAIL", "cuLaunchKernel:719", 1);
    CHECK(elf_cuLaunchKernel(FUNCTION, 1, 2, 3, 4, 5, 6, 7, STREAM, params, NULL) == CUDA_ERROR_LAUNCH_FAILED);
    EXPECT(begin(STREAM, params, NULL, 0, 0), "driver cuLaunchKernel", "launch_end result=719 same=1 inside=0");
}

TEST_CASES(CASE(kernel), CASE(kernel_ptsz), CASE(cooperative), CASE(ex), CASE(programmatic), CASE(ex_without_config),
           CASE(legacy), CASE(several_devices), CASE(idle), CASE(refused), CASE(failed))
