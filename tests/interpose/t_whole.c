/* Proves: the library itself, engine and all, in front of the simulated driver: odd ways to begin and to end a process,
 * odd drivers (HAMi-core#172, HAMi-core#187, HAMi#1834, torch_memory_saver#56, UCX#11275, xgboost#12217). */
#include "interpose.h"

#include <pthread.h>
#include <signal.h>

enum { BYTES = 6 << 20 };
static char payload[BYTES], back[BYTES];
static CUcontext context;

static void start(void)
{
    CUdevice device;
    CHECK(cuInit(0) == CUDA_SUCCESS && cuDeviceGet(&device, 0) == CUDA_SUCCESS);
    CHECK(cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS && cuCtxSetCurrent(context) == CUDA_SUCCESS);
}

static void round_trip(void)
{
    CUdeviceptr address = 0, base = 0;
    size_t bytes = 0;
    for (size_t i = 0; i < BYTES; i++) {
        payload[i] = (char)(i * 37 + i / 4096);
    }
    CHECK(cuMemAlloc(&address, BYTES) == CUDA_SUCCESS);
    CHECK(cuMemcpyHtoD(address, payload, BYTES) == CUDA_SUCCESS);
    CHECK(cuMemcpyDtoH(back, address, BYTES) == CUDA_SUCCESS && memcmp(payload, back, BYTES) == 0);
    CHECK(cuMemGetAddressRange(&base, &bytes, address + BYTES / 2) == CUDA_SUCCESS && base == address &&
          bytes == BYTES);
    CHECK(cuMemFree(address) == CUDA_SUCCESS);
}

static void works(void)
{
    start();
    round_trip();
}

static void *without_context(void *unused)
{
    (void)unused;
    CUdeviceptr address = 0xdead;
    size_t free_bytes = 0xdead, total_bytes = 0xdead;
    CHECK(cuMemAlloc(&address, BYTES) == CUDA_ERROR_INVALID_CONTEXT && address == 0xdead);
    CHECK(cuMemGetInfo(&free_bytes, &total_bytes) == CUDA_ERROR_INVALID_CONTEXT && free_bytes == 0xdead);
    CHECK(cuCtxSynchronize() == CUDA_ERROR_INVALID_CONTEXT);
    CHECK(cuCtxSetCurrent(context) == CUDA_SUCCESS);
    round_trip();
    return NULL;
}

static void bare_thread(void)
{
    pthread_t thread;
    start();
    CHECK(pthread_create(&thread, NULL, without_context, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

/* Before cuInit everything says so. */
static void before_init(void)
{
    CUdeviceptr address = 0xdead;
    CHECK(cuMemAlloc(&address, BYTES) == CUDA_ERROR_NOT_INITIALIZED && address == 0xdead);
    CHECK(cuMemFree(0x1000) == CUDA_ERROR_NOT_INITIALIZED);
    start();
    round_trip();
}

/* The program's own host-located memory is host memory: no device memory is taken for it. */
static void host_located(void)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0}};
    CUmemGenericAllocationHandle handle;
    size_t before, after, total;
    start();
    CHECK(cuMemGetInfo(&before, &total) == CUDA_SUCCESS);
    CHECK(cuMemCreate(&handle, 64 << 20, &prop, 0) == CUDA_SUCCESS);
    CHECK(cuMemGetInfo(&after, &total) == CUDA_SUCCESS && after == before);
    CHECK(cuMemRelease(handle) == CUDA_SUCCESS);
    round_trip();
}

/* Leaves with memory, streams and a copy under way. */
static void leave_things_behind(void)
{
    CUdeviceptr address;
    CUstream stream;
    CUevent event;
    start();
    CHECK(cuMemAlloc(&address, BYTES) == CUDA_SUCCESS && cuStreamCreate(&stream, 0) == CUDA_SUCCESS);
    CHECK(cuEventCreate(&event, 0) == CUDA_SUCCESS);
    CHECK(cuMemcpyHtoDAsync(address, payload, BYTES, stream) == CUDA_SUCCESS);
    CHECK(cuEventRecord(event, stream) == CUDA_SUCCESS);
}

static void exit_main(void)
{
    leave_things_behind();
}

static void *never_ends(void *unused)
{
    (void)unused;
    CHECK(cuCtxSetCurrent(context) == CUDA_SUCCESS);
    for (;;) {
        CUdeviceptr address;
        if (cuMemAlloc(&address, BYTES) == CUDA_SUCCESS) {
            cuMemFree(address);
        }
        usleep(100);
    }
    return NULL;
}

static void exit_with_threads(void)
{
    pthread_t thread;
    leave_things_behind();
    CHECK(pthread_create(&thread, NULL, never_ends, NULL) == 0);
    usleep(20000);
}

static void *exits(void *unused)
{
    (void)unused;
    exit(0);
}

static void exit_thread(void)
{
    pthread_t thread;
    leave_things_behind();
    CHECK(pthread_create(&thread, NULL, exits, NULL) == 0);
    pthread_join(thread, NULL);
}

static void on_signal(int number)
{
    (void)number;
    exit(0);
}

static void exit_signal(void)
{
    leave_things_behind();
    signal(SIGTERM, on_signal);
    raise(SIGTERM);
    _exit(1); /* not reached */
}

TEST_CASES(CASE(works), CASE(bare_thread), CASE(before_init), CASE(host_located), CASE(exit_main),
           CASE(exit_with_threads), CASE(exit_thread), CASE(exit_signal))
