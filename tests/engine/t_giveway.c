/*
 * Before the first plan: what was loaded gives way to what is computed, and a loader's weights not to each other. Where
 * memory stands is told by the time it takes to read: the link is seventy times slower than the device's memory.
 */
#include "rig_graph.h"

#include <stdio.h>

enum { COUNT = 12 };
static const size_t weight_bytes = 4 * MIB;
static const char gave_way[] = "of what was uploaded give way",
                  changed[] = "have changed places with what was uploaded";
static const double link_bytes_per_us = 50.8e3;

static void fill(const struct rig *rig, CUdeviceptr address, size_t bytes, uint32_t value)
{
    uint64_t words = bytes / 4;
    void *params[] = {&address, &value, &words};
    rig_launch(rig, "probe_fill", rig->stream, params);
}

/* Whether the kernel that reads the memory, known by now and so not watched, is done long before the link could be. */
static bool is_on_device(struct rig *rig, CUdeviceptr address, size_t bytes)
{
    CUevent begin, end;
    float ms;
    CUdeviceptr out = rig->out + 12288;
    uint64_t words = bytes / 4;
    void *params[] = {&address, &out, &words};
    OK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&end, CU_EVENT_DEFAULT));
    OK(cuEventRecord(begin, rig->stream));
    rig_launch(rig, "probe_digest", rig->stream, params);
    OK(cuEventRecord(end, rig->stream));
    while (cuEventQuery(end) == CUDA_ERROR_NOT_READY) { /* no quiet point */
    }
    OK(cuEventElapsedTime(&ms, begin, end));
    OK(cuEventDestroy(begin));
    OK(cuEventDestroy(end));
    return (double)ms * 1e3 < (double)bytes / link_bytes_per_us / 3;
}

/* A pass without a wait. */
static void launch_all(const struct rig *rig)
{
    for (unsigned i = 0; i < rig->count; i++) {
        rig_read(rig, i, i, rig->stream);
    }
}

static void check(struct rig *rig)
{
    for (int pass = 0; pass < 4; pass++) {
        rig_pass(rig, NULL, 0);
    }
}

/* Activations that are asked for in the first pass stand on the device, in few steps; without, they would not fit. */
static void activations(void)
{
    enum { BUFFERS = 4 };
    struct rig rig;
    CUdeviceptr buffer[BUFFERS];
    uint32_t got;
    rig_open_with(&rig, COUNT, weight_bytes);
    for (unsigned i = 0; i < BUFFERS; i++) {
        launch_all(&rig);
        OK(cuMemAlloc(&buffer[i], 4 * MIB));
        fill(&rig, buffer[i], 4 * MIB, 100 + i);
    }
    HOLDS(rig_plans() == 0 && rig_logged(gave_way));
    for (unsigned i = 0; i < BUFFERS; i++) {
        HOLDS(is_on_device(&rig, buffer[i], 4 * MIB));
        OK(cuMemcpyDtoH(&got, buffer[i] + 4 * MIB - 4, 4));
        HOLDS(got == 100 + i);
    }
    check(&rig);
    rig_until_streamed(&rig); /* what gave way is planned as what was never on the device */
    for (unsigned i = 0; i < BUFFERS; i++) {
        OK(cuMemcpyDtoH(&got, buffer[i], 4));
        HOLDS(got == 100 + i);
        OK(cuMemFree(buffer[i]));
    }
    rig_close(&rig);
}

/* A loader that ran no kernel is over with the first launch that reads a weight. */
static void first_launch(void)
{
    struct rig rig;
    CUdeviceptr rest, buffer;
    rig_open_with(&rig, COUNT, weight_bytes);
    OK(cuMemAlloc(&rest, 2 * MIB)); /* of the device */
    HOLDS(!rig_logged(gave_way));
    rig_read(&rig, 0, 0, rig.stream);
    OK(cuMemAlloc(&buffer, 2 * MIB));
    HOLDS(rig_logged(gave_way));
    check(&rig);
    OK(cuMemFree(rest));
    OK(cuMemFree(buffer));
    rig_close(&rig);
}

/* Many small requests: a step serves several of them. */
static void in_steps(void)
{
    enum { BUFFERS = 16 };
    struct rig rig;
    CUdeviceptr buffer[BUFFERS];
    rig_open_with(&rig, 60, 2 * MIB);
    launch_all(&rig);
    for (unsigned i = 0; i < BUFFERS; i++) {
        OK(cuMemAlloc(&buffer[i], 2 * MIB));
        fill(&rig, buffer[i], 2 * MIB, i);
        HOLDS(is_on_device(&rig, buffer[i], 2 * MIB));
    }
    const unsigned steps = rig_times_logged(gave_way);
    HOLDS(rig_plans() == 0 && steps >= 2 && steps <= BUFFERS / 3);
    check(&rig);
    for (unsigned i = 0; i < BUFFERS; i++) {
        OK(cuMemFree(buffer[i]));
    }
    rig_close(&rig);
}

/* The same from a pool, and from handles that the program maps. */
static void other_allocators(void)
{
    struct rig rig;
    CUdeviceptr pooled, mapped;
    CUmemGenericAllocationHandle handle;
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    const CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    rig_open_with(&rig, COUNT, weight_bytes);
    launch_all(&rig);
    OK(cuMemAllocAsync(&pooled, 4 * MIB, rig.stream));
    fill(&rig, pooled, 4 * MIB, 1);
    OK(cuMemAddressReserve(&mapped, 4 * MIB, 0, 0, 0));
    OK(cuMemCreate(&handle, 4 * MIB, &prop, 0));
    OK(cuMemMap(mapped, 4 * MIB, 0, handle, 0));
    OK(cuMemSetAccess(mapped, 4 * MIB, &access, 1));
    fill(&rig, mapped, 4 * MIB, 2);
    HOLDS(is_on_device(&rig, pooled, 4 * MIB) && is_on_device(&rig, mapped, 4 * MIB));
    HOLDS(rig_plans() == 0);
    check(&rig);
    OK(cuMemFreeAsync(pooled, rig.stream));
    OK(cuMemUnmap(mapped, 4 * MIB));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(mapped, 4 * MIB));
    rig_close(&rig);
}

/* Uploads one weight after the other, each with `kernels` launches that read it, and waits in between. */
static void load(unsigned kernels)
{
    struct rig rig;
    rig_open(&rig, 0);
    for (unsigned i = 0; i < 2 * COUNT; i++) {
        const unsigned index = rig_add(&rig, weight_bytes);
        for (unsigned k = 0; k < kernels; k++) {
            rig_read(&rig, index, index, rig.stream);
        }
        OK(cuStreamSynchronize(rig.stream));
    }
    HOLDS(rig_plans() == 0 && !rig_logged(gave_way) && !rig_logged(changed));
    rig_until_streamed(&rig);
    rig_close(&rig);
}

static void loader_alone(void)
{
    load(0);
}

static void loader_that_looks_at_weights(void)
{
    load(3);
}

static void loader_that_works_on_weights(void)
{
    load(12);
}

/* Uploads one weight to where it stays and the next to a place for this alone, from which it is converted. */
static void loader_that_converts(void)
{
    struct rig rig;
    rig_open(&rig, 0);
    for (unsigned i = 0; i < COUNT; i++) {
        CUdeviceptr staging, weight;
        uint64_t words = weight_bytes / 4;
        (void)rig_add(&rig, weight_bytes);
        OK(cuMemAlloc(&staging, weight_bytes));
        OK(cuMemAlloc(&weight, weight_bytes));
        const unsigned index = rig_adopt(&rig, weight, weight_bytes);
        OK(cuMemcpyHtoD(staging, rig.weight[index].host, weight_bytes));
        void *params[] = {&staging, &weight, &words};
        rig_launch(&rig, "probe_copy", rig.stream, params);
        OK(cuStreamSynchronize(rig.stream));
        OK(cuMemFree(staging));
    }
    HOLDS(rig_plans() == 0 && !rig_logged(gave_way) && !rig_logged(changed));
    check(&rig);
    rig_close(&rig);
}

/* A cache that was made after the weights, before any launch: at the end of a pass it is on the device, once for all.
 */
static void cache_first(void)
{
    static const size_t cache_bytes = 24 * MIB;
    struct rig rig;
    CUdeviceptr cache;
    uint32_t got;
    rig_open_with(&rig, COUNT, weight_bytes);
    OK(cuMemAlloc(&cache, cache_bytes));
    for (unsigned pass = 0; pass < 5; pass++) {
        fill(&rig, cache, cache_bytes, pass);
        rig_pass(&rig, NULL, 0);
        HOLDS(pass > 0 || rig_plans() == 0);
        HOLDS(rig_times_logged(changed) == 1 && !rig_logged(gave_way));
        HOLDS(is_on_device(&rig, cache, cache_bytes));
        OK(cuMemcpyDtoH(&got, cache + cache_bytes - 4, 4));
        HOLDS(got == pass);
    }
    rig_until_streamed(&rig);
    HOLDS(rig_times_logged(changed) == 1);
    OK(cuMemFree(cache));
    rig_close(&rig);
}

/* A small one is not worth it. */
static void small_cache_first(void)
{
    struct rig rig;
    CUdeviceptr cache;
    rig_open_with(&rig, COUNT, weight_bytes);
    OK(cuMemAlloc(&cache, 4 * MIB));
    for (unsigned pass = 0; pass < 5; pass++) {
        fill(&rig, cache, 4 * MIB, pass);
        rig_pass(&rig, NULL, 0);
    }
    HOLDS(!rig_logged(changed));
    OK(cuMemFree(cache));
    rig_close(&rig);
}

/* While somebody captures nothing moves; afterwards it does. */
static void while_capturing(void)
{
    struct rig rig;
    CUstream other;
    CUgraph graph;
    CUdeviceptr during, after;
    rig_open_with(&rig, COUNT, weight_bytes);
    launch_all(&rig);
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemAlloc(&during, 4 * MIB));
    HOLDS(!rig_logged(gave_way));
    OK(cuStreamEndCapture(other, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuMemAlloc(&after, 4 * MIB));
    HOLDS(rig_logged(gave_way) && rig_plans() == 0);
    fill(&rig, during, 4 * MIB, 1);
    fill(&rig, after, 4 * MIB, 2);
    HOLDS(!is_on_device(&rig, during, 4 * MIB) && is_on_device(&rig, after, 4 * MIB));
    check(&rig);
    OK(cuMemFree(during));
    OK(cuMemFree(after));
    OK(cuStreamDestroy(other));
    rig_close(&rig);
}

/* The host holds the weights that did not fit and 2 MiB more: no weight of 4 can leave, and a buffer goes where it went
 * without. */
static void host_is_full(void)
{
    struct rig rig;
    CUdeviceptr rest, buffer, more;
    rig_open_with(&rig, COUNT, weight_bytes);
    OK(cuMemAlloc(&rest, 2 * MIB)); /* of the device */
    launch_all(&rig);
    OK(cuMemAlloc(&buffer, 2 * MIB));
    fill(&rig, buffer, 2 * MIB, 1);
    HOLDS(!is_on_device(&rig, buffer, 2 * MIB) && !rig_logged(gave_way));
    HOLDS(cuMemAlloc(&more, 4 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
    check(&rig);
    OK(cuMemFree(buffer));
    OK(cuMemFree(rest));
    rig_close(&rig);
}

/* More than the device can hold: nothing moves for it. What it can hold, it gets all the same. */
static void too_much(void)
{
    struct rig rig;
    CUdeviceptr rest, buffer;
    rig_open_with(&rig, COUNT, weight_bytes);
    OK(cuMemAlloc(&rest, 2 * MIB)); /* of the device */
    launch_all(&rig);
    OK(cuMemAlloc(&buffer, 64 * MIB));
    HOLDS(!rig_logged(gave_way));
    OK(cuMemFree(buffer));
    OK(cuMemAlloc(&buffer, 2 * MIB));
    HOLDS(rig_logged(gave_way) && is_on_device(&rig, buffer, 2 * MIB));
    check(&rig);
    OK(cuMemFree(buffer));
    OK(cuMemFree(rest));
    rig_close(&rig);
}

/* Most of a weight leaves, not the page by which it is named: what its readers took before does not make it look as if
 * they read a part of what stands in the host now. */
static void times_from_before(void)
{
    struct rig rig;
    CUdeviceptr packed, buffer;
    rig_open(&rig, 0);
    OK(cuMemAlloc(&packed, 66 * MIB));
    const unsigned scratch = rig_place(&rig, packed, 2 * MIB);
    const unsigned table = rig_place(&rig, packed + 2 * MIB, 64 * MIB);
    for (unsigned i = 0; i < 10; i++) {
        (void)rig_add(&rig, weight_bytes);
    }
    for (unsigned pass = 0; pass < 20; pass++) {
        fill(&rig, packed, 2 * MIB, pass);
        for (unsigned i = scratch + 1; i < rig.count; i++) {
            rig_read(&rig, i, i, rig.stream);
        }
        if (pass == 12) {
            OK(cuMemAlloc(&buffer, 40 * MIB));
            HOLDS(rig_plans() == 0 && rig_logged(gave_way));
        }
        if (pass > 12) {
            fill(&rig, buffer, 40 * MIB, pass);
            OK(cuStreamSynchronize(rig.stream));
        }
    }
    HOLDS(rig_plans() > 0 && !rig_logged("read in part"));
    OK(cuMemFree(buffer));
    OK(cuMemFree(packed));
    rig.weight[scratch].address = rig.weight[table].address = 0;
    rig_close(&rig);
}

/* The same where too little may give way, and what the program needs at any cost takes the place of all kinds. */
static void times_from_before_at_any_cost(void)
{
    struct rig rig;
    CUdeviceptr written, needed;
    rig_open(&rig, 0);
    (void)rig_add(&rig, 96 * MIB);
    for (unsigned i = 0; i < 3; i++) {
        (void)rig_add(&rig, 2 * MIB);
    }
    OK(cuMemAlloc(&written, 64 * MIB));
    for (unsigned pass = 0; pass < 20; pass++) {
        fill(&rig, written, 64 * MIB, pass);
        for (unsigned i = 0; i < rig.count; i++) {
            rig_read(&rig, i, i, rig.stream);
        }
        if (pass == 12) {
            OK(cuMemAlloc(&needed, 114 * MIB)); /* excluded */
            HOLDS(rig_plans() == 0 && !rig_logged(gave_way));
        }
        if (pass > 12) {
            OK(cuStreamSynchronize(rig.stream));
        }
    }
    HOLDS(rig_plans() > 0 && !rig_logged("read in part"));
    OK(cuMemFree(needed));
    OK(cuMemFree(written));
    rig_close(&rig);
}

enum { BUFFERS = 3, ROUNDS = 4 };
static const size_t buffer_bytes = 16 * MIB;

/* Each buffer is written again and again once it is there. Returns what a pass takes, in us. */
static double pass_us(struct rig *rig, CUdeviceptr *buffer)
{
    CUevent begin, end;
    float ms;
    OK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&end, CU_EVENT_DEFAULT));
    OK(cuEventRecord(begin, rig->stream));
    for (unsigned i = 0; i < BUFFERS; i++) {
        rig_read(rig, i, i, rig->stream);
        if (buffer[i] == 0) {
            OK(cuMemAlloc(&buffer[i], buffer_bytes));
        }
        for (unsigned k = 0; k < ROUNDS * (i + 1); k++) {
            fill(rig, buffer[k % (i + 1)], buffer_bytes, k);
        }
    }
    launch_all(rig);
    OK(cuEventRecord(end, rig->stream));
    OK(cuStreamSynchronize(rig->stream));
    OK(cuEventElapsedTime(&ms, begin, end));
    OK(cuEventDestroy(begin));
    OK(cuEventDestroy(end));
    return (double)ms * 1e3;
}

/* A pass of discovery whose activations are written by kernel after kernel takes less than a third of what these would
 * take over the link, though weights are read over it in their stead. */
static void discovery_is_faster(void)
{
    struct rig rig;
    CUdeviceptr buffer[BUFFERS] = {0};
    double us = 0;
    rig_open_with(&rig, 28, weight_bytes);
    for (unsigned i = 0; i < 4; i++) { /* the kernel gets known */
        rig_read(&rig, i, i, rig.stream);
    }
    for (unsigned pass = 0; pass < 3; pass++) {
        us = pass_us(&rig, buffer);
        HOLDS(rig_plans() == 0);
    }
    const double written_us = ROUNDS * BUFFERS * (BUFFERS + 1) / 2 * (double)buffer_bytes / link_bytes_per_us;
    fprintf(stderr, "a pass of discovery: %.0f us; activations over the link alone: %.0f us\n", us, written_us);
    HOLDS(us < written_us / 3);
    check(&rig);
    for (unsigned i = 0; i < BUFFERS; i++) {
        OK(cuMemFree(buffer[i]));
    }
    rig_close(&rig);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(activations),
    CASE(first_launch),
    CASE(in_steps),
    CASE(other_allocators),
    CASE(loader_alone),
    CASE(loader_that_looks_at_weights),
    CASE(loader_that_works_on_weights),
    CASE(loader_that_converts),
    CASE(cache_first),
    CASE(small_cache_first),
    CASE(while_capturing),
    CASE(host_is_full),
    CASE(too_much),
    CASE(times_from_before),
    CASE(times_from_before_at_any_cost),
    CASE(discovery_is_faster),
};
RIG_MAIN(cases)
