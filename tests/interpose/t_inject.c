/* Proves (HAMi-core#281, #313): whichever call of the driver fails, the program gets an ordinary error or none, no
 * out-parameter of a failed call is touched, and nothing crashes or hangs. The program runs itself once, to see which
 * functions are called on its behalf, and then once for each of them with SIM_FAIL set. Argument: which call fails, and
 * how: "1:999", "*:2". */
#include "interpose.h"

#include <sys/wait.h>

static int failed_calls;

/* The call; if it fails, `out` must be as it was. */
#define TRY(call, out)                                       \
    __extension__({                                          \
        unsigned char before[sizeof(out)];                   \
        memcpy(before, &(out), sizeof(out));                 \
        const CUresult result = (call);                      \
        if (result != CUDA_SUCCESS) {                        \
            failed_calls++;                                  \
            CHECK(memcmp(before, &(out), sizeof(out)) == 0); \
        }                                                    \
        result == CUDA_SUCCESS;                              \
    })
static int nothing;
#define DO(call) TRY(call, nothing)

enum { BYTES = 5 << 20 };
static char payload[BYTES], back[BYTES];

static void use_memory(CUstream stream, CUevent event)
{
    CUdeviceptr large = 0xdead, small = 0xdead, pitched = 0xdead, pool = 0xdead, base = 0xdead;
    size_t pitch = 0xdead, bytes = 0xdead, total = 0xdead;
    int type = 0xdead;
    const bool have_large = TRY(cuMemAlloc(&large, BYTES), large), have_small = TRY(cuMemAlloc(&small, 1000), small);
    const bool have_pitched = TRY(cuMemAllocPitch(&pitched, &pitch, 100, 100, 4), pitched);
    const bool have_pool = TRY(cuMemAllocAsync(&pool, BYTES, stream), pool);
    TRY(cuMemGetInfo(&bytes, &total), total);
    if (have_large) {
        TRY(cuMemGetAddressRange(&base, &bytes, large + 5), base);
        TRY(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, large), type);
        const bool written =
            DO(cuMemcpyHtoD(large, payload, BYTES)) || DO(cuMemcpy(large, (CUdeviceptr)payload, BYTES));
        DO(cuMemcpyHtoDAsync(large, payload, BYTES, stream));
        DO(cuMemcpyAsync((CUdeviceptr)back, large, BYTES, stream));
        DO(cuEventRecord(event, stream));
        DO(cuStreamSynchronize(stream));
        if (written && DO(cuMemcpyDtoH(back, large, BYTES))) {
            CHECK(memcmp(payload, back, BYTES) == 0);
        }
        DO(cuMemsetD8(large, 7, BYTES));
        DO(cuMemsetD32Async(large, 7, BYTES / 4, stream));
        if (have_small) {
            DO(cuMemcpyDtoD(small, large, 1000));
        }
        DO(cuMemFree(large));
    }
    if (have_pitched) {
        const CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                                    .srcHost = payload,
                                    .srcPitch = 100,
                                    .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                    .dstDevice = pitched,
                                    .dstPitch = pitch,
                                    .WidthInBytes = 100,
                                    .Height = 100};
        DO(cuMemcpy2D(&copy));
        DO(cuMemcpy2DAsync(&copy, stream));
        DO(cuMemsetD2D8(pitched, pitch, 1, 100, 100));
        DO(cuMemFree(pitched));
    }
    if (have_pool) {
        DO(cuMemFreeAsync(pool, stream));
    }
    if (have_small) {
        DO(cuMemFree(small));
    }
}

static void use_mappings(CUdevice device)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemGenericAllocationHandle handle = 0xdead;
    CUdeviceptr range = 0xdead;
    if (TRY(cuMemAddressReserve(&range, 4 << 20, 0, 0, 0), range)) {
        if (TRY(cuMemCreate(&handle, 4 << 20, &prop, 0), handle)) {
            if (DO(cuMemMap(range, 4 << 20, 0, handle, 0))) {
                DO(cuMemUnmap(range, 4 << 20));
            }
            DO(cuMemRelease(handle));
        }
        DO(cuMemAddressFree(range, 4 << 20));
    }
}

static void use_stream_capture(CUstream stream)
{
    CUgraph graph = (CUgraph)0xdead;
    CUgraphExec exec = (CUgraphExec)0xdead;
    if (DO(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)) &&
        TRY(cuStreamEndCapture(stream, &graph), graph)) {
        if (TRY(cuGraphInstantiateWithFlags(&exec, graph, 0), exec)) {
            DO(cuGraphLaunch(exec, stream));
            DO(cuStreamSynchronize(stream));
            DO(cuGraphExecDestroy(exec));
        }
        DO(cuGraphDestroy(graph));
    }
}

static int program(void)
{
    CUdevice device = 0xdead;
    CUcontext context = (CUcontext)0xdead;
    CUstream stream = (CUstream)0xdead;
    CUevent event = (CUevent)0xdead;
    for (size_t i = 0; i < BYTES; i++) {
        payload[i] = (char)(i * 31);
    }
    if (!DO(cuInit(0)) || !TRY(cuDeviceGet(&device, 0), device)) {
        return 0;
    }
    if (!TRY(cuDevicePrimaryCtxRetain(&context, device), context)) {
        return 0;
    }
    if (DO(cuCtxSetCurrent(context)) && TRY(cuStreamCreate(&stream, CU_STREAM_DEFAULT), stream)) {
        if (TRY(cuEventCreate(&event, 0), event)) {
            use_memory(stream, event);
            DO(cuEventSynchronize(event));
            DO(cuEventQuery(event));
            DO(cuEventDestroy(event));
        }
        use_mappings(device);
        use_stream_capture(stream);
        DO(cuStreamQuery(stream));
        DO(cuStreamDestroy(stream));
    }
    DO(cuCtxSynchronize());
    DO(cuDevicePrimaryCtxRelease_v2(device));
    printf("failed calls: %d\n", failed_calls);
    return 0;
}

static void run_with(const char *variable, const char *value)
{
    const pid_t child = fork();
    if (child == 0) {
        if (freopen("/dev/null", "w", stdout) == NULL) {
            _exit(126);
        }
        setenv(variable, value, 1);
        alarm(60);
        execl("/proc/self/exe", "t_inject", "--program", (char *)NULL);
        _exit(127);
    }
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    if (status != 0) {
        fprintf(stderr, "with %s=%s: status %#x\n", variable, value, (unsigned)status);
        exit(1);
    }
}

/* Each function that the simulator's report counts calls of: `"cuName": number`. */
static int fail_each(const char *report, const char *how)
{
    static char text[1 << 16];
    int count = 0;
    FILE *file = fopen(report, "r");
    CHECK(file != NULL);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    for (char *name = text; (name = strstr(name, "\"cu")) != NULL; count++) {
        char fail[128];
        const size_t length = strcspn(++name, "\"");
        CHECK(length + strlen(how) + 2 < sizeof fail);
        snprintf(fail, sizeof fail, "%.*s:%s", (int)length, name, how);
        run_with("SIM_FAIL", fail);
        name += length;
    }
    return count;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--program") == 0) {
        return program();
    }
    CHECK(argc == 2);
    char report[512];
    snprintf(report, sizeof report, "%s.report", getenv("RECORD_FILE"));
    unlink(report);
    run_with("SIM_REPORT", report);
    const int count = fail_each(report, argv[1]);
    CHECK(count >= 40);
    printf("%d functions\n", count);
    return 0;
}
