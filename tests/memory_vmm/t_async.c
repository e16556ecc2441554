/* Memory that is allocated and freed in the order of a stream: right in every order, in every number that a pool tells,
 * and without the driver making memory anew for every allocation. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "pool.h"

static struct rig rig;
static const size_t weight_bytes = 4 * MIB;

enum { COUNT = 10 };

static CUmemoryPool default_pool(void)
{
    CUmemoryPool pool_handle_;
    OK(cuDeviceGetDefaultMemPool(&pool_handle_, rig.device));
    return pool_handle_;
}

static void keep_all(CUmemoryPool of)
{
    cuuint64_t threshold = UINT64_MAX; /* as PyTorch's backend sets it */
    OK(cuMemPoolSetAttribute(of, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
}

static uint64_t number(CUmemoryPool of, CUmemPool_attribute attribute)
{
    cuuint64_t value = 12345;
    OK(cuMemPoolGetAttribute(of, attribute, &value));
    return value;
}

static void fill(CUdeviceptr out, uint32_t value, size_t bytes, CUstream stream)
{
    uint64_t words = bytes / 4;
    void *params[] = {&out, &value, &words};
    rig_launch(&rig, "probe_fill", stream, params);
}

static void copy(CUdeviceptr in, CUdeviceptr out, size_t bytes, CUstream stream)
{
    uint64_t words = bytes / 4;
    double microseconds = 50;
    void *params[] = {&in, &out, &words, &microseconds};
    rig_launch(&rig, "probe_slow_copy", stream, params);
}

static CUstream new_stream(void)
{
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

/* Weights by cuMemAlloc, activations of every operation by the stream: as PyTorch's cudaMallocAsync backend. */
static void activations(void)
{
    rig_open_with(&rig, COUNT, weight_bytes);
    keep_all(default_pool());
    for (uint32_t pass = 0; pass < 14; pass++) {
        CUdeviceptr last = 0;
        for (uint32_t layer = 0; layer < 4; layer++) {
            CUdeviceptr next;
            OK(cuMemAllocAsync(&next, 2 * MIB, rig.stream));
            if (last == 0) {
                fill(next, pass * 10 + layer, 2 * MIB, rig.stream);
            } else {
                copy(last, next, 2 * MIB, rig.stream);
                OK(cuMemFreeAsync(last, rig.stream));
            }
            last = next;
        }
        rig_pass(&rig, NULL, 0);
        pool_expect(last, 2 * MIB, pass * 10);
        OK(cuMemFreeAsync(last, rig.stream));
    }
    HOLDS(rig_streamed_mib() > 0);
    rig_close(&rig);
}

/* Weights themselves come from a pool, and are freed in order while they are streamed. */
static void weights(void)
{
    rig_open(&rig, 0);
    for (unsigned i = 0; i < COUNT; i++) {
        CUdeviceptr address;
        OK(cuMemAllocAsync(&address, weight_bytes, rig.stream));
        OK(cuStreamSynchronize(rig.stream));
        (void)rig_place(&rig, address, weight_bytes);
    }
    rig_until_streamed(&rig);
    for (unsigned i = 0; i < COUNT; i += 3) {
        rig_read(&rig, i, i, rig.stream);
        OK(cuMemFreeAsync(rig.weight[i].address, rig.stream));
        rig.weight[i].address = 0;
        rig_pass(&rig, NULL, 0);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        if (rig.weight[i].address != 0) {
            OK(cuMemFreeAsync(rig.weight[i].address, rig.stream));
        }
    }
    OK(cuStreamSynchronize(rig.stream));
    pool_forget(&rig);
    rig_close(&rig);
}

/* The first memory of the program comes from a pool. */
static void first_of_all(void)
{
    CUdeviceptr address;
    pool_begin();
    OK(cuMemAllocAsync(&address, COUNT * weight_bytes, NULL));
    OK(cuStreamSynchronize(NULL));
    rig_open(&rig, 0);
    for (unsigned i = 0; i < COUNT; i++) {
        (void)rig_place(&rig, address + i * weight_bytes, weight_bytes);
    }
    rig_until_streamed(&rig);
    pool_forget(&rig);
    OK(cuMemFreeAsync(address, NULL));
    OK(cuStreamSynchronize(NULL));
    rig_close(&rig);
}

/* Freed and allocated again on one stream: the same memory, at once, and no kernel sees the next one's bytes. */
static void same_stream(void)
{
    CUdeviceptr first = 0, out;
    rig_open(&rig, 0);
    keep_all(default_pool());
    OK(cuMemAlloc(&out, 64 * MIB / 4));
    for (uint32_t i = 0; i < 8; i++) {
        CUdeviceptr address;
        OK(cuMemAllocAsync(&address, 2 * MIB, rig.stream));
        HOLDS(i == 0 || address == first);
        first = address;
        fill(address, i, 2 * MIB, rig.stream);
        copy(address, out + i * 2 * MIB, 2 * MIB, rig.stream);
        OK(cuMemFreeAsync(address, rig.stream));
    }
    OK(cuStreamSynchronize(rig.stream));
    for (uint32_t i = 0; i < 8; i++) {
        pool_expect(out + i * 2 * MIB, 2 * MIB, i);
    }
    OK(cuMemFree(out));
    rig_close(&rig);
}

/* Freed on one stream while its kernel is still at work, allocated on another: never the same memory, until the first
 * stream has come so far. (The driver's checker would see it, too.) */
static void other_stream(void)
{
    CUdeviceptr busy, other, out;
    rig_open(&rig, 0);
    keep_all(default_pool());
    const CUstream second = new_stream();
    OK(cuMemAlloc(&out, 4 * MIB));
    OK(cuMemAllocAsync(&busy, 2 * MIB, rig.stream));
    fill(busy, 1, 2 * MIB, rig.stream);
    double microseconds = 20000;
    void *spin[] = {&microseconds};
    rig_launch(&rig, "probe_spin", rig.stream, spin);
    copy(busy, out, 2 * MIB, rig.stream);
    OK(cuMemFreeAsync(busy, rig.stream));
    OK(cuMemAllocAsync(&other, 2 * MIB, second));
    HOLDS(other != busy);
    fill(other, 2, 2 * MIB, second);
    OK(cuStreamSynchronize(second));
    OK(cuStreamSynchronize(rig.stream));
    pool_expect(out, 2 * MIB, 1);
    OK(cuMemFreeAsync(other, second));
    OK(cuStreamSynchronize(second));
    for (int i = 0; i < 2; i++) { /* both are free for everybody now */
        CUdeviceptr address;
        OK(cuMemAllocAsync(&address, 2 * MIB, rig.stream));
        HOLDS(address == busy || address == other);
        fill(address, 3, 2 * MIB, rig.stream);
    }
    OK(cuCtxSynchronize());
    OK(cuStreamDestroy(second));
    OK(cuMemFree(out));
    rig_close(&rig);
}

/* Used on one stream, freed on another that waits for it. */
static void freed_elsewhere(void)
{
    CUevent event;
    CUdeviceptr address, out;
    rig_open(&rig, 0);
    keep_all(default_pool());
    const CUstream second = new_stream();
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc(&out, 16 * MIB));
    for (uint32_t i = 0; i < 6; i++) {
        OK(cuMemAllocAsync(&address, 2 * MIB, rig.stream));
        fill(address, i, 2 * MIB, rig.stream);
        copy(address, out + i * 2 * MIB, 2 * MIB, rig.stream);
        OK(cuEventRecord(event, rig.stream));
        OK(cuStreamWaitEvent(second, event, 0));
        OK(cuMemFreeAsync(address, second));
    }
    OK(cuCtxSynchronize());
    for (uint32_t i = 0; i < 6; i++) {
        pool_expect(out + i * 2 * MIB, 2 * MIB, i);
    }
    OK(cuEventDestroy(event));
    OK(cuStreamDestroy(second));
    OK(cuMemFree(out));
    rig_close(&rig);
}

/* The stream that it was freed on is destroyed, and its handle comes back as another stream's. */
static void stream_gone(void)
{
    CUdeviceptr address, out;
    rig_open(&rig, 0);
    keep_all(default_pool());
    OK(cuMemAlloc(&out, 16 * MIB));
    for (uint32_t i = 0; i < 6; i++) {
        const CUstream brief = new_stream();
        OK(cuMemAllocAsync(&address, 2 * MIB, brief));
        fill(address, i, 2 * MIB, brief);
        copy(address, out + i * 2 * MIB, 2 * MIB, brief);
        OK(cuMemFreeAsync(address, brief));
        OK(cuStreamDestroy(brief));
    }
    OK(cuCtxSynchronize());
    for (uint32_t i = 0; i < 6; i++) {
        pool_expect(out + i * 2 * MIB, 2 * MIB, i);
    }
    OK(cuMemFree(out));
    rig_close(&rig);
}

/* Freed with cuMemFree, and freed in order although it came from cuMemAlloc. */
static void mixed_frees(void)
{
    CUdeviceptr address;
    rig_open(&rig, 0);
    const CUmemoryPool plain = default_pool();
    for (uint32_t i = 0; i < 4; i++) {
        OK(cuMemAllocAsync(&address, 6 * MIB, rig.stream));
        fill(address, i, 6 * MIB, rig.stream);
        OK(cuMemFree(address));
        HOLDS(cuMemFree(address) == CUDA_ERROR_INVALID_VALUE);
        OK(cuMemAlloc(&address, 6 * MIB));
        pool_fill(address, 6 * MIB, i);
        OK(cuMemFreeAsync(address, rig.stream));
        HOLDS(cuMemFreeAsync(address, rig.stream) == CUDA_ERROR_INVALID_VALUE);
        HOLDS(cuMemFree(address) == CUDA_ERROR_INVALID_VALUE);
    }
    OK(cuCtxSynchronize());
    OK(cuMemPoolTrimTo(plain, 0));
    HOLDS(number(plain, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
    HOLDS(number(plain, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
    OK(cuMemFreeAsync(0, rig.stream));
    rig_close(&rig);
}

/* The numbers of a pool, through its life: used, reserved, the marks, trimming, the release threshold. */
static void numbers(void)
{
    CUdeviceptr a, b;
    cuuint64_t zero = 0;
    rig_open(&rig, 0);
    OK(cuMemAlloc(&a, 4 * MIB)); /* not of a pool */
    const CUmemoryPool plain = default_pool();
    keep_all(plain);
    HOLDS(number(plain, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
    OK(cuMemAllocAsync(&a, 4 * MIB, rig.stream));
    OK(cuMemAllocAsync(&b, 2 * MIB, rig.stream));
    HOLDS(number(plain, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 6 * MIB);
    HOLDS(number(plain, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 6 * MIB);
    OK(cuMemFreeAsync(a, rig.stream));
    OK(cuStreamSynchronize(rig.stream));
    HOLDS(number(plain, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 2 * MIB);
    HOLDS(number(plain, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 6 * MIB);
    HOLDS(number(plain, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 6 * MIB); /* kept */
    OK(cuMemPoolSetAttribute(plain, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
    HOLDS(number(plain, CU_MEMPOOL_ATTR_USED_MEM_HIGH) <= 2 * MIB);
    OK(cuMemPoolTrimTo(plain, 0));
    HOLDS(number(plain, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 2 * MIB);
    OK(cuMemPoolSetAttribute(plain, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &zero));
    OK(cuMemFreeAsync(b, rig.stream));
    OK(cuStreamSynchronize(rig.stream));
    HOLDS(number(plain, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
    HOLDS(number(plain, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0); /* given back when the program waited */
    rig_close(&rig);
}

/* A pool of the program's own, with allocations that outlive it. */
static void own_pool(void)
{
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemoryPool mine, told = NULL;
    CUdeviceptr a, b;
    rig_open(&rig, 0);
    OK(cuMemAlloc(&a, 4 * MIB));
    OK(cuMemPoolCreate(&mine, &props));
    keep_all(mine);
    OK(cuMemAllocFromPoolAsync(&a, 2 * MIB, mine, rig.stream));
    OK(cuPointerGetAttribute(&told, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, a));
    HOLDS(told == mine);
    OK(cuMemAllocFromPoolAsync(&b, 2 * MIB, mine, rig.stream));
    fill(a, 7, 2 * MIB, rig.stream);
    OK(cuMemFreeAsync(b, rig.stream));
    HOLDS(number(mine, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 2 * MIB);
    HOLDS(number(default_pool(), CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
    OK(cuDeviceSetMemPool(rig.device, mine));
    OK(cuMemAllocAsync(&b, 2 * MIB, rig.stream));
    HOLDS(number(mine, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 4 * MIB);
    OK(cuMemPoolDestroy(mine));
    OK(cuStreamSynchronize(rig.stream));
    pool_expect(a, 2 * MIB, 7);
    OK(cuMemFreeAsync(a, rig.stream));
    OK(cuMemFreeAsync(b, rig.stream));
    OK(cuStreamSynchronize(rig.stream));
    HOLDS(number(default_pool(), CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
    rig_close(&rig);
}

/* What is idle makes way: for other sizes, for other memory, within the budget all the time. */
static void idle_makes_way(void)
{
    CUdeviceptr address[8], big;
    rig_open(&rig, 0);
    keep_all(default_pool());
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < 4; i++) {
            OK(cuMemAllocAsync(&address[i], (1 + round) * MIB, rig.stream));
            fill(address[i], i, MIB, rig.stream);
        }
        for (uint32_t i = 0; i < 4; i++) {
            OK(cuMemFreeAsync(address[i], rig.stream));
        }
        OK(cuMemAlloc(&big, 18 * MIB));
        pool_fill(big, 18 * MIB, round);
        pool_expect(big, 18 * MIB, round);
        OK(cuMemFree(big));
    }
    HOLDS(!rig_logged("the budget is used up"));
    rig_close(&rig);
}

/* In a capture the driver serves, and what was idle stays idle. */
static void capturing(void)
{
    CUdeviceptr address, again;
    CUgraph graph;
    rig_open(&rig, 0);
    keep_all(default_pool());
    const CUstream captured = new_stream();
    OK(cuMemAllocAsync(&address, 2 * MIB, rig.stream));
    fill(address, 5, 2 * MIB, rig.stream);
    OK(cuMemFreeAsync(address, rig.stream));
    OK(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemAllocAsync(&again, 2 * MIB, rig.stream)); /* not the captured one: as ever */
    HOLDS(again == address);
    fill(again, 6, 2 * MIB, rig.stream);
    OK(cuMemFreeAsync(again, rig.stream));
    OK(cuStreamEndCapture(captured, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuStreamSynchronize(rig.stream));
    OK(cuMemAllocAsync(&again, 2 * MIB, captured));
    fill(again, 7, 2 * MIB, captured);
    OK(cuStreamSynchronize(captured));
    pool_expect(again, 2 * MIB, 7);
    OK(cuMemFreeAsync(again, captured));
    OK(cuStreamSynchronize(captured));
    OK(cuStreamDestroy(captured));
    rig_close(&rig);
}

/* What is freed in order is nobody's memory any more. */
static void freed_is_gone(void)
{
    CUdeviceptr address, base;
    size_t bytes, before, after, total;
    rig_open(&rig, 0);
    keep_all(default_pool());
    OK(cuMemAllocAsync(&address, 3 * MIB, rig.stream));
    OK(cuMemGetAddressRange(&base, &bytes, address + MIB));
    HOLDS(base == address && bytes == 3 * MIB);
    OK(cuMemGetInfo(&before, &total));
    OK(cuMemFreeAsync(address, rig.stream));
    OK(cuMemGetInfo(&after, &total));
    HOLDS(after - before == 3 * MIB);
    OK(cuMemAllocAsync(&address, 4 * MIB, rig.stream)); /* in the same place */
    HOLDS(base == address);
    OK(cuMemGetAddressRange(&base, &bytes, address + MIB));
    HOLDS(base == address && bytes == 4 * MIB);
    OK(cuMemFreeAsync(address, rig.stream));
    OK(cuStreamSynchronize(rig.stream));
    rig_close(&rig);
}

/* Threads, each with its per-thread stream, with weights that are streamed. */
static void *one_thread(void *context)
{
    const uint32_t number_of = (uint32_t)(uintptr_t)context;
    uint32_t got;
    OK(cuCtxSetCurrent(rig.context));
    for (uint32_t i = 0; i < 24; i++) {
        CUdeviceptr a, b;
        OK(cuMemAllocAsync(&a, 2 * MIB, CU_STREAM_PER_THREAD));
        fill(a, number_of * 1000 + i, 2 * MIB, CU_STREAM_PER_THREAD);
        OK(cuMemAllocAsync(&b, 2 * MIB, CU_STREAM_PER_THREAD));
        copy(a, b, 2 * MIB, CU_STREAM_PER_THREAD);
        OK(cuMemFreeAsync(a, CU_STREAM_PER_THREAD));
        OK(cuMemcpyDtoHAsync(&got, b + MIB, 4, CU_STREAM_PER_THREAD));
        OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
        if (got != number_of * 1000 + i) {
            rig_fail(RIG_EXIT_WRONG, "a thread read another one's bytes");
        }
        OK(cuMemFreeAsync(b, CU_STREAM_PER_THREAD));
    }
    return NULL;
}

static void threads(void)
{
    pthread_t thread[4];
    rig_open_with(&rig, COUNT, weight_bytes);
    keep_all(default_pool());
    for (int round = 0; round < 2; round++) {
        for (uintptr_t i = 0; i < 4; i++) {
            HOLDS(pthread_create(&thread[i], NULL, one_thread, (void *)(i + 1)) == 0);
        }
        for (int pass = 0; pass < 8; pass++) {
            rig_pass(&rig, NULL, 0);
        }
        for (int i = 0; i < 4; i++) {
            pthread_join(thread[i], NULL);
        }
    }
    OK(cuCtxSynchronize());
    rig_close(&rig);
}

/* Errors are the driver's. */
static void errors(void)
{
    CUdeviceptr address = 0x1234;
    rig_open(&rig, 0);
    HOLDS(cuMemAllocAsync(NULL, 4 * MIB, rig.stream) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuMemAllocAsync(&address, 0, rig.stream) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuMemAllocFromPoolAsync(&address, 4 * MIB, NULL, rig.stream) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuMemAllocAsync(&address, (size_t)1 << 40, rig.stream) == CUDA_ERROR_OUT_OF_MEMORY);
    HOLDS(address == 0x1234);
    OK(cuMemAllocAsync(&address, 4 * MIB, rig.stream));
    HOLDS(cuMemFreeAsync(address + 4096, rig.stream) == CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFreeAsync(address, rig.stream));
    rig_close(&rig);
}

/* Ends with idle memory and work under way. */
static void exit_alive(void)
{
    CUdeviceptr address;
    rig_open_with(&rig, COUNT, weight_bytes);
    for (int i = 0; i < 20; i++) {
        OK(cuMemAllocAsync(&address, 2 * MIB, rig.stream));
        fill(address, 1, 2 * MIB, rig.stream);
        OK(cuMemFreeAsync(address, rig.stream));
        rig_read(&rig, (unsigned)i % COUNT, 0, rig.stream);
    }
    exit(0);
}

/* The context is reset with idle memory. */
static void context_gone(void)
{
    CUdeviceptr address;
    for (int round = 0; round < 2; round++) {
        rig_open(&rig, 0);
        for (int i = 0; i < 4; i++) {
            OK(cuMemAllocAsync(&address, 2 * MIB, rig.stream));
            fill(address, 1, 2 * MIB, rig.stream);
            OK(cuMemFreeAsync(address, rig.stream));
        }
        OK(cuDevicePrimaryCtxReset(rig.device));
        rig_forget(&rig);
    }
}

/* Pitched memory: rows as the driver would lay them out, and its errors. */
static void pitched(void)
{
    CUdeviceptr address = 0x1234;
    size_t pitch = 0x1234;
    static const size_t width[] = {1, 100, 512, 513, 5000, 40000};
    rig_open(&rig, 0);
    HOLDS(cuMemAllocPitch(&address, &pitch, 5000, 1000, 3) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuMemAllocPitch(&address, &pitch, 0, 1000, 4) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuMemAllocPitch(&address, &pitch, 5000, 0, 4) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuMemAllocPitch(NULL, &pitch, 5000, 1000, 4) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(address == 0x1234 && pitch == 0x1234);
    for (size_t i = 0; i < sizeof width / sizeof width[0]; i++) {
        for (size_t height = 1; height <= 300; height += 299) {
            OK(cuMemAllocPitch(&address, &pitch, width[i], height, 16));
            HOLDS(pitch >= width[i] && pitch % 512 == 0 && pitch < width[i] + 512);
            OK(cuMemsetD2D8(address, pitch, 0x5a, width[i], height));
            OK(cuMemFree(address));
        }
    }
    rig_close(&rig);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(activations),     CASE(first_of_all), CASE(weights),       CASE(same_stream), CASE(other_stream),
    CASE(freed_elsewhere), CASE(stream_gone),  CASE(mixed_frees),   CASE(numbers),     CASE(own_pool),
    CASE(idle_makes_way),  CASE(capturing),    CASE(freed_is_gone), CASE(threads),     CASE(errors),
    CASE(exit_alive),      CASE(context_gone), CASE(pitched),
};
RIG_MAIN(cases)
