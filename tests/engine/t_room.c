/*
 * A program that has a plan asks for more: weights give way, and the ring keeps what it needs (runtime/room.c).
 */
#include "rig.h"

enum { COUNT = 8 };
static const size_t weight_bytes = 4 * MIB;

/* Device memory of the program's own grows in mid-run (a pool by cuMemCreate): weights give way. */
static void own_mapping_grows(void)
{
    struct rig rig;
    CUmemGenericAllocationHandle handle[4];
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr pool;
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_until_streamed(&rig);
    OK(cuMemAddressReserve(&pool, 8 * MIB, 0, 0, 0));
    for (unsigned i = 0; i < 4; i++) {
        OK(cuMemCreate(&handle[i], 2 * MIB, &prop, 0));
        OK(cuMemMap(pool + i * 2 * MIB, 2 * MIB, 0, handle[i], 0));
        OK(cuMemSetAccess(pool + i * 2 * MIB, 2 * MIB, &access, 1));
        OK(cuMemsetD32(pool + i * 2 * MIB, i, MIB / 2));
        OK(cuCtxSynchronize());
        rig_pass(&rig, NULL, 0);
        rig_pass(&rig, NULL, 0);
    }
    OK(cuMemUnmap(pool, 8 * MIB));
    for (unsigned i = 0; i < 4; i++) {
        OK(cuMemRelease(handle[i]));
    }
    OK(cuMemAddressFree(pool, 8 * MIB));
    rig_pass(&rig, NULL, 0);
    rig_close(&rig);
}

/* The cache grows in mid-run by ordinary allocations: weights give way to what is written. */
static void cache_grows(void)
{
    struct rig rig;
    CUdeviceptr cache[8];
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_until_streamed(&rig);
    for (unsigned i = 0; i < 8; i++) {
        OK(cuMemAlloc(&cache[i], 2 * MIB));
        for (unsigned k = 0; k <= i; k++) {
            uint32_t value = i * 10 + k;
            uint64_t words = MIB / 2;
            void *params[] = {&cache[k], &value, &words};
            rig_launch(&rig, "probe_fill", rig.stream, params);
        }
        rig_pass(&rig, NULL, 0);
        for (unsigned k = 0; k <= i; k++) {
            uint32_t got;
            OK(cuMemcpyDtoH(&got, cache[k] + 2 * MIB - 4, 4));
            HOLDS(got == i * 10 + k);
        }
        rig_pass(&rig, NULL, 0);
    }
    for (unsigned i = 0; i < 8; i++) {
        OK(cuMemFree(cache[i]));
    }
    rig_close(&rig);
}

static CUdeviceptr grow(struct rig *rig, size_t bytes)
{
    CUdeviceptr address;
    uint32_t value = 7;
    uint64_t words = bytes / 4;
    OK(cuMemAlloc(&address, bytes));
    void *params[] = {&address, &value, &words};
    rig_launch(rig, "probe_fill", rig->stream, params);
    return address;
}

/* A long pass after short ones takes more and more memory. The next ones hold the largest buffer twice: room for that
 * was made when the first had ended. Each waits for something small when it begins, as PyTorch's do: no reason to plan.
 */
static void largest_buffer_twice(void)
{
    static const size_t step_mib[] = {6, 10, 4, 24, 8, 32, 6, 4};
    enum { STEPS = sizeof step_mib / sizeof step_mib[0] };
    struct rig rig;
    CUdeviceptr buffer[STEPS + 1];
    rig_open_with(&rig, 32, 8 * MIB);
    rig_until_streamed(&rig);
    for (unsigned i = 0; i < STEPS; i++) {
        buffer[i] = grow(&rig, step_mib[i] * MIB);
        for (unsigned k = i * 4; k < i * 4 + 4; k++) {
            rig_read(&rig, k, k, rig.stream);
        }
    }
    OK(cuCtxSynchronize());
    unsigned plans = rig_plans();
    for (unsigned pass = 0; pass < 3; pass++) {
        OK(cuStreamSynchronize(rig.stream));
        if (pass == 1) {
            buffer[STEPS] = grow(&rig, 32 * MIB);
        }
        for (unsigned k = 0; k < 32; k++) {
            rig_read(&rig, k, k, rig.stream);
        }
    }
    HOLDS(rig_plans() == plans);
    rig_pass(&rig, NULL, 0);
    for (unsigned i = 0; i <= STEPS; i++) {
        OK(cuMemFree(buffer[i]));
    }
    rig_close(&rig);
}

/* The program writes more than the budget holds. Still the ring keeps room for weights of the size that most of them
 * have, and not just for the smallest: those would be read over the link again and again. */
static void writes_more_than_fits(void)
{
    enum { LARGE = 20, SMALL = 4, BUFFERS = 4 };
    struct rig rig;
    CUdeviceptr buffer[BUFFERS];
    rig_open_with(&rig, LARGE, 8 * MIB);
    for (unsigned i = 0; i < SMALL; i++) {
        (void)rig_add(&rig, 2 * MIB);
    }
    rig_until_streamed(&rig);
    for (unsigned i = 0; i < BUFFERS; i++) {
        buffer[i] = grow(&rig, 32 * MIB);
        rig_pass(&rig, NULL, 0);
    }
    for (uint32_t pass = 0; pass < 24; pass++) {
        for (unsigned i = 0; i < BUFFERS; i++) {
            uint64_t words = 32 * MIB / 4;
            void *params[] = {&buffer[i], &pass, &words};
            rig_launch(&rig, "probe_fill", rig.stream, params);
        }
        rig_pass(&rig, NULL, 0);
    }
    HOLDS(rig_streamed_mib() >= LARGE * 8 / 2);
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
    CASE(own_mapping_grows),
    CASE(cache_grows),
    CASE(largest_buffer_twice),
    CASE(writes_more_than_fits),
};
RIG_MAIN(cases)
