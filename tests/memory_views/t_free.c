/*
 * Free and total: what cuMemGetInfo and cuDeviceTotalMem say, before, while and after weights are moved.
 */
#include "rig.h"

#include <stdlib.h>
#include <string.h>

enum { COUNT = 8 };
static const size_t weight_bytes = 4 * MIB;

struct told {
    size_t free_bytes, total_bytes;
};

/* Asks everybody and checks that they agree. */
static struct told ask(const struct rig *rig)
{
    struct told told;
    size_t device_bytes;
    OK(cuMemGetInfo(&told.free_bytes, &told.total_bytes));
    OK(cuDeviceTotalMem(&device_bytes, rig->device));
    HOLDS(told.free_bytes <= told.total_bytes && told.total_bytes == device_bytes);
    return told;
}

static void falls(const struct rig *rig, struct told *last, size_t at_least)
{
    const struct told now = ask(rig);
    HOLDS(now.free_bytes + at_least <= last->free_bytes || (now.free_bytes == 0 && last->free_bytes < at_least));
    HOLDS(now.total_bytes == last->total_bytes);
    *last = now;
}

static void rises(const struct rig *rig, struct told *last, size_t at_most)
{
    const struct told now = ask(rig);
    HOLDS(now.free_bytes <= last->free_bytes + at_most);
    *last = now;
}

/* vllm#56830, #55169: snapshots around allocation, upload, use, classification, conversion, and what comes after. */
static void snapshots(void)
{
    struct rig rig;
    CUdeviceptr cache[4];
    rig_open(&rig, 0);
    struct told last = ask(&rig);
    for (unsigned i = 0; i < COUNT; i++) {
        OK(cuMemAlloc(&rig.weight[i].address, weight_bytes));
        falls(&rig, &last, weight_bytes);
        OK(cuMemFree(rig.weight[i].address));
        rises(&rig, &last, weight_bytes);
        (void)rig_add(&rig, weight_bytes);
        falls(&rig, &last, weight_bytes);
    }
    for (int pass = 0; pass < 10; pass++) {
        for (unsigned i = 0; i < COUNT; i++) {
            rig_read(&rig, i, i, rig.stream);
            falls(&rig, &last, 0);
        }
        OK(cuStreamSynchronize(rig.stream));
        falls(&rig, &last, 0);
    }
    rig_until_streamed(&rig);
    falls(&rig, &last, 0);
    for (unsigned i = 0; i < 4; i++) {
        OK(cuMemAlloc(&cache[i], 2 * MIB));
        OK(cuMemsetD8(cache[i], 1, 2 * MIB));
        falls(&rig, &last, 2 * MIB);
        rig_pass(&rig, NULL, 0);
        falls(&rig, &last, 0);
    }
    for (unsigned i = 0; i < 4; i++) {
        OK(cuMemFree(cache[i]));
        rises(&rig, &last, 2 * MIB);
        rig_pass(&rig, NULL, 0);
        falls(&rig, &last, 0);
    }
    for (int pass = 0; pass < 10; pass++) {
        rig_pass(&rig, NULL, 0);
        falls(&rig, &last, 0);
    }
    rig_close(&rig);
}

/* Allocates exactly what is free, in one piece, and writes and reads all of it. */
static void take_all(struct rig *rig)
{
    struct told told = ask(rig);
    CUdeviceptr all;
    uint32_t got;
    if (told.free_bytes == 0) {
        return;
    }
    OK(cuMemAlloc(&all, told.free_bytes));
    OK(cuMemsetD8(all, 0x5A, told.free_bytes));
    OK(cuCtxSynchronize());
    for (size_t at = 0; at + 4 <= told.free_bytes; at += MIB) {
        OK(cuMemcpyDtoH(&got, all + at, 4));
        HOLDS(got == 0x5A5A5A5A);
    }
    HOLDS(ask(rig).free_bytes == 0);
    rig_pass(rig, NULL, 0);
    OK(cuMemFree(all));
    rig_pass(rig, NULL, 0);
}

/* vllm#40256: weights, then exactly what is reported as free, all written; before the first launch, in discovery, with
 * a plan. */
static void exactly_free(void)
{
    struct rig rig;
    rig_open(&rig, 0);
    take_all(&rig);
    while (rig.count < COUNT && ask(&rig).free_bytes >= weight_bytes) {
        (void)rig_add(&rig, weight_bytes);
    }
    HOLDS(rig.count >= 4);
    take_all(&rig);
    rig_pass(&rig, NULL, 0);
    take_all(&rig);
    for (int pass = 0; pass < 8; pass++) {
        rig_pass(&rig, NULL, 0);
    }
    take_all(&rig);
    rig_close(&rig);
}

/* The same for a program that fits: nothing is moved, and what is free is what the budget leaves. */
static void fits_exactly_free(void)
{
    struct rig rig;
    rig_open_with(&rig, 2, weight_bytes);
    rig_pass(&rig, NULL, 0);
    rig_pass(&rig, NULL, 0);
    take_all(&rig);
    rig_close(&rig);
}

/* Admission checks: before weights are loaded, there is room for more than the budget. */
static void room_before_load(void)
{
    struct rig rig;
    rig_open(&rig, 0);
    HOLDS(ask(&rig).free_bytes >= 250 * MIB);
    rig_close(&rig);
}

/* Fillers: once weights are loaded and have been used, once is enough, free is what the budget leaves for memory that
 * is written. */
static void surplus_goes(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    const struct told loaded = ask(&rig);
    HOLDS(loaded.free_bytes > 200 * MIB);
    rig_pass(&rig, NULL, 0);
    const struct told used = ask(&rig);
    HOLDS(used.free_bytes <= 22 * MIB && used.free_bytes >= 8 * MIB);
    rig_until_streamed(&rig);
    const struct told streamed = ask(&rig);
    HOLDS(streamed.free_bytes <= used.free_bytes && streamed.free_bytes >= 4 * MIB);
    rig_close(&rig);
}

/* A second model after the first was freed is admitted as the first was. */
static void starts_over(void)
{
    struct rig rig;
    rig_open(&rig, 0);
    const struct told empty = ask(&rig);
    for (int round = 0; round < 2; round++) {
        for (unsigned i = 0; i < COUNT; i++) {
            (void)rig_add(&rig, weight_bytes);
        }
        for (int pass = 0; pass < 8; pass++) {
            rig_pass(&rig, NULL, 0);
        }
        HOLDS(ask(&rig).free_bytes <= 22 * MIB);
        for (unsigned i = 0; i < COUNT; i++) {
            rig_drop(&rig, i);
        }
        rig.count = 0;
        HOLDS(ask(&rig).free_bytes == empty.free_bytes);
    }
    rig_close(&rig);
}

static const CUmemAllocationProp own_prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                             .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};

/* Memory that the program makes and maps itself costs its bytes once, however often it is mapped. */
static void own_handles_count_once(void)
{
    struct rig rig;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    rig_open(&rig, 0);
    struct told last = ask(&rig);
    const struct told first = last;
    OK(cuMemAddressReserve(&at, 8 * MIB, 0, 0, 0));
    OK(cuMemCreate(&handle, 4 * MIB, &own_prop, 0));
    falls(&rig, &last, 4 * MIB);
    OK(cuMemMap(at, 4 * MIB, 0, handle, 0));
    OK(cuMemMap(at + 4 * MIB, 4 * MIB, 0, handle, 0));
    HOLDS(ask(&rig).free_bytes == first.free_bytes - 4 * MIB);
    OK(cuMemUnmap(at, 8 * MIB));
    OK(cuMemRelease(handle));
    HOLDS(ask(&rig).free_bytes == first.free_bytes);
    OK(cuMemAddressFree(at, 8 * MIB));
    rig_close(&rig);
}

static void pools_count_once(void)
{
    struct rig rig;
    CUdeviceptr at;
    rig_open(&rig, 0);
    const struct told first = ask(&rig);
    for (int round = 0; round < 20; round++) {
        OK(cuMemAllocAsync(&at, 4 * MIB, rig.stream));
        HOLDS(ask(&rig).free_bytes == first.free_bytes - 4 * MIB);
        OK(cuMemFreeAsync(at, rig.stream));
        OK(cuStreamSynchronize(rig.stream));
        HOLDS(ask(&rig).free_bytes == first.free_bytes);
    }
    rig_close(&rig);
}

/* A free that the driver refuses changes nothing. */
static void refused_free_counts_on(void)
{
    struct rig rig;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at, managed;
    rig_open(&rig, 0);
    OK(cuMemAllocManaged(&managed, 4 * MIB, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemAddressReserve(&at, 4 * MIB, 0, 0, 0));
    OK(cuMemCreate(&handle, 4 * MIB, &own_prop, 0));
    OK(cuMemMap(at, 4 * MIB, 0, handle, 0));
    const struct told first = ask(&rig);
    HOLDS(cuMemFree(at) != CUDA_SUCCESS);
    HOLDS(cuMemFree(managed + 4096) != CUDA_SUCCESS);
    HOLDS(ask(&rig).free_bytes == first.free_bytes);
    OK(cuMemFree(managed));
    HOLDS(ask(&rig).free_bytes == first.free_bytes + 4 * MIB);
    rig_close(&rig);
}

/* vllm#13714, #51462: the budget is exceeded and there is nothing to offload for it: the user hears of it at once. */
static void excess_is_said(void)
{
    struct rig rig;
    CUdeviceptr managed;
    rig_open(&rig, 0);
    HOLDS(!rig_logged("more than the budget of 22 MiB"));
    OK(cuMemAllocManaged(&managed, 64 * MIB, CU_MEM_ATTACH_GLOBAL));
    HOLDS(rig_logged("more than the budget of 22 MiB") && rig_logged("which overshot cannot move"));
    OK(cuMemFree(managed));
    rig_close(&rig);
}

/* Weights that are never used, or for too short a time: what did not fit was in host memory all the time. */
static void no_effect_is_said(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    HOLDS(!rig_logged("nothing was streamed"));
    rig_close(&rig);
    HOLDS(rig_logged("nothing was streamed: no plan was made before the end"));
}

/* The total is the same before there is a context as after. */
static void total_before_context(void)
{
    struct rig rig;
    size_t before;
    CUdevice device;
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDeviceTotalMem(&before, device));
    rig_open(&rig, 0);
    HOLDS(ask(&rig).total_bytes == before);
    const char *report = getenv("OVERSHOT_REPORT");
    HOLDS(report == NULL || before == (strcmp(report, "budget") == 0 ? 22 * MIB : 80 * MIB));
    rig_close(&rig);
}

/* A device that is not managed is told as it is. */
static void total_unmanaged(void)
{
    struct rig rig;
    rig_open(&rig, 0);
    HOLDS(ask(&rig).total_bytes > 1024 * MIB);
    rig_close(&rig);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(snapshots),
    CASE(exactly_free),
    CASE(fits_exactly_free),
    CASE(room_before_load),
    CASE(surplus_goes),
    CASE(starts_over),
    CASE(own_handles_count_once),
    CASE(pools_count_once),
    CASE(refused_free_counts_on),
    CASE(excess_is_said),
    CASE(no_effect_is_said),
    CASE(total_before_context),
    CASE(total_unmanaged),
    {"total_without_vmm", total_unmanaged},
};
RIG_MAIN(cases)
