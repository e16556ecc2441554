/*
 * Memory that the driver's pools give and keep, beside memory that overshot places: the budget holds at every moment
 * (the driver's limit says so).
 */
#include "rig.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { SMALL_ONES = 3, LARGE_ONES = 4 };
static const size_t small_bytes = 900 * 1024, large_bytes = 2 * MIB; /* two small ones fill a block of the driver's */

static atomic_uint asking; /* threads that are about to call the driver */

struct piece {
    CUcontext context;
    CUdeviceptr address;
    CUmemGenericAllocationHandle handle;
};

/* No kernels, no small memory: nothing but what the case asks for. */
static CUcontext open_bare(void)
{
    CUcontext context;
    OK(cuInit(0));
    gpu_open("t_pools", GPU_ENTRY_LINK);
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    return context;
}

/* The first memory of all: what overshot makes for that, it makes before several threads ask at once. */
static void warm_up(void)
{
    CUdeviceptr address;
    OK(cuMemAlloc(&address, large_bytes));
    OK(cuMemFree(address));
}

static void take_large(CUdeviceptr *large)
{
    for (unsigned i = 0; i < LARGE_ONES; i++) {
        OK(cuMemAlloc(&large[i], large_bytes));
    }
}

static void give_large(const CUdeviceptr *large)
{
    for (unsigned i = 0; i < LARGE_ONES; i++) {
        OK(cuMemFree(large[i]));
    }
}

/* The device's pool keeps what it gets back for as long as it lives. */
static CUmemoryPool keeping_pool(void)
{
    CUmemoryPool pool;
    cuuint64_t all = UINT64_MAX;
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    return pool;
}

static void take_small(CUdeviceptr *small)
{
    for (unsigned i = 0; i < SMALL_ONES; i++) {
        OK(cuMemAllocAsync(&small[i], small_bytes, NULL));
    }
}

static void give_small(const CUdeviceptr *small)
{
    for (unsigned i = 0; i < SMALL_ONES; i++) {
        OK(cuMemFreeAsync(small[i], NULL));
    }
}

static void *take_one(void *argument)
{
    struct piece *piece = argument;
    OK(cuCtxSetCurrent(piece->context));
    atomic_fetch_add(&asking, 1);
    OK(cuMemAllocAsync(&piece->address, small_bytes, NULL));
    return NULL;
}

static void *give_one(void *argument)
{
    const struct piece *piece = argument;
    OK(cuCtxSetCurrent(piece->context));
    atomic_fetch_add(&asking, 1);
    OK(cuMemFreeAsync(piece->address, NULL));
    return NULL;
}

/* Memory that is compressed is the driver's, whether it fits or not. */
static CUmemGenericAllocationHandle compressible(void)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                      .allocFlags = {.compressionType = CU_MEM_ALLOCATION_COMP_GENERIC}};
    CUmemGenericAllocationHandle handle;
    OK(cuMemCreate(&handle, 2 * MIB, &prop, 0));
    return handle;
}

static void *take_handle(void *argument)
{
    struct piece *piece = argument;
    OK(cuCtxSetCurrent(piece->context));
    atomic_fetch_add(&asking, 1);
    piece->handle = compressible();
    return NULL;
}

/* One thread for each piece is in the driver, which is slow, while large ones are taken. */
static void take_large_beside(struct piece *piece, void *(*what)(void *), CUdeviceptr *large)
{
    pthread_t thread[SMALL_ONES];
    for (unsigned i = 0; i < SMALL_ONES; i++) {
        HOLDS(pthread_create(&thread[i], NULL, what, &piece[i]) == 0);
    }
    while (atomic_load(&asking) < SMALL_ONES) {
        usleep(1000);
    }
    usleep(100 * 1000);
    take_large(large);
    for (unsigned i = 0; i < SMALL_ONES; i++) {
        pthread_join(thread[i], NULL);
    }
}

static void prepare(struct piece *piece)
{
    const CUcontext context = open_bare();
    warm_up();
    for (unsigned i = 0; i < SMALL_ONES; i++) {
        piece[i] = (struct piece){.context = context};
    }
}

/* The driver takes its time over small ones. What they will take is nobody else's meanwhile. */
static void small_ones_at_once(void)
{
    struct piece piece[SMALL_ONES];
    CUdeviceptr large[LARGE_ONES];
    prepare(piece);
    take_large_beside(piece, take_one, large);
    for (unsigned i = 0; i < SMALL_ONES; i++) {
        OK(cuMemFreeAsync(piece[i].address, NULL));
    }
    give_large(large);
    OK(cuCtxSynchronize());
}

/* And over giving them back. */
static void freed_at_once(void)
{
    struct piece piece[SMALL_ONES];
    CUdeviceptr small[SMALL_ONES], large[LARGE_ONES];
    prepare(piece);
    take_small(small);
    for (unsigned i = 0; i < SMALL_ONES; i++) {
        piece[i].address = small[i];
    }
    take_large_beside(piece, give_one, large);
    give_large(large);
    OK(cuCtxSynchronize());
}

/* The same of memory that the program gets from the driver itself. */
static void handles_at_once(void)
{
    struct piece piece[SMALL_ONES];
    CUdeviceptr large[LARGE_ONES];
    prepare(piece);
    take_large_beside(piece, take_handle, large);
    for (unsigned i = 0; i < SMALL_ONES; i++) {
        OK(cuMemRelease(piece[i].handle));
    }
    give_large(large);
}

/* What is freed goes to the pool, which need not give it to the device: it does when memory is short. */
static void pool_keeps(void)
{
    (void)open_bare();
    const CUmemoryPool pool = keeping_pool();
    CUdeviceptr small[SMALL_ONES], large[LARGE_ONES];
    cuuint64_t reserved;
    take_small(small);
    give_small(small);
    OK(cuCtxSynchronize());
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
    HOLDS(reserved >= SMALL_ONES * small_bytes);
    take_large(large);
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
    HOLDS(reserved == 0);
    give_large(large);
}

/* Nor can it before the work in front of the free is done. */
static void pool_keeps_while_busy(void)
{
    (void)open_bare();
    CUdeviceptr small[SMALL_ONES], large[LARGE_ONES];
    take_small(small);
    for (unsigned i = 0; i < SMALL_ONES; i++) {
        OK(cuMemsetD32Async(small[i], i, small_bytes / 4, NULL));
    }
    give_small(small);
    take_large(large);
    OK(cuCtxSynchronize());
    give_large(large);
}

/* What cuMemAlloc gave joins the current pool when it is freed in stream order. */
static void joins_the_pool(void)
{
    (void)open_bare();
    (void)keeping_pool();
    CUdeviceptr small[SMALL_ONES], large[LARGE_ONES];
    for (unsigned i = 0; i < SMALL_ONES; i++) {
        OK(cuMemAlloc(&small[i], small_bytes));
    }
    give_small(small);
    OK(cuCtxSynchronize());
    take_large(large);
    give_large(large);
}

/* A pool that is destroyed leaves what it keeps to the device's. */
static void pool_is_destroyed(void)
{
    (void)open_bare();
    (void)keeping_pool();
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemoryPool pool;
    CUdeviceptr small[SMALL_ONES], large[LARGE_ONES];
    OK(cuMemPoolCreate(&pool, &props));
    for (unsigned i = 0; i < SMALL_ONES; i++) {
        OK(cuMemAllocFromPoolAsync(&small[i], small_bytes, pool, NULL));
    }
    give_small(small);
    OK(cuMemPoolDestroy(pool));
    take_large(large);
    OK(cuCtxSynchronize());
    give_large(large);
}

/* What the pool gives out again is not counted twice: the budget has room for the rest, however often. */
static void pool_gives_again(void)
{
    (void)open_bare();
    (void)keeping_pool();
    CUdeviceptr small[2], large[2];
    for (unsigned round = 0; round < 2000; round++) {
        OK(cuMemAllocAsync(&small[0], small_bytes, NULL));
        OK(cuMemAllocAsync(&small[1], 4096, NULL));
        OK(cuMemFreeAsync(small[0], NULL));
        OK(cuMemFreeAsync(small[1], NULL));
    }
    OK(cuMemAllocAsync(&small[0], 4096, NULL));
    OK(cuMemAlloc(&large[0], large_bytes));
    OK(cuMemAlloc(&large[1], large_bytes));
    HOLDS(!rig_logged("the budget is used up"));
    OK(cuMemFree(large[0]));
    OK(cuMemFree(large[1]));
    OK(cuMemFreeAsync(small[0], NULL));
}

/* Another stream is captured meanwhile, which asking a pool would break. */
static void beside_a_capture(void)
{
    (void)open_bare();
    CUdeviceptr small[SMALL_ONES], more[2 * SMALL_ONES];
    CUstream stream;
    CUgraph graph;
    (void)keeping_pool();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    take_small(small);
    give_small(small);
    OK(cuCtxSynchronize());
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (unsigned i = 0; i < 2 * SMALL_ONES; i++) {
        OK(cuMemAllocAsync(&more[i], small_bytes, CU_STREAM_PER_THREAD));
    }
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
    for (unsigned i = 0; i < 2 * SMALL_ONES; i++) {
        OK(cuMemFreeAsync(more[i], CU_STREAM_PER_THREAD));
    }
    OK(cuCtxSynchronize());
}

/* What was freed, and is kept until the work before that is done, is waited for before a request is refused. */
static void waits_for_what_is_kept(void)
{
    (void)open_bare();
    CUdeviceptr small[SMALL_ONES], large[LARGE_ONES];
    take_small(small);
    for (unsigned i = 0; i < SMALL_ONES; i++) {
        OK(cuMemsetD32Async(small[i], i, small_bytes / 4, NULL));
    }
    give_small(small);
    take_large(large);
    give_large(large);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(small_ones_at_once),    CASE(freed_at_once),          CASE(handles_at_once),   CASE(pool_keeps),
    CASE(pool_keeps_while_busy), CASE(joins_the_pool),         CASE(pool_is_destroyed), CASE(pool_gives_again),
    CASE(beside_a_capture),      CASE(waits_for_what_is_kept),
};
RIG_MAIN(cases)
