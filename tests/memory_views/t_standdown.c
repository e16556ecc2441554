/*
 * Beside others who page GPU memory: PAGER is a library with such a one's name. And beside programs that do by
 * themselves what looks like it.
 */
#define _GNU_SOURCE
#include "rig.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 8 };
static const size_t weight_bytes = 4 * MIB;

static void load_pager(void)
{
    HOLDS(dlopen(getenv("PAGER"), RTLD_NOW) != NULL);
}

/* All is as without overshot: the device's real size, all of it free for the program, memory of the driver's own. */
static void left_alone(void)
{
    struct rig rig;
    size_t free_bytes, total_bytes, before, device_bytes;
    CUdeviceptr base;
    rig_open(&rig, 0);
    OK(cuMemGetInfo(&before, &total_bytes));
    OK(cuDeviceTotalMem(&device_bytes, rig.device));
    HOLDS(total_bytes == 256 * MIB && device_bytes == total_bytes && before >= 250 * MIB);
    for (unsigned i = 0; i < COUNT; i++) {
        (void)rig_add(&rig, weight_bytes);
    }
    OK(cuMemGetInfo(&free_bytes, &total_bytes));
    HOLDS(before - free_bytes == COUNT * weight_bytes);
    OK(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, rig.weight[3].address + MIB));
    HOLDS(base == rig.weight[3].address);
    for (int pass = 0; pass < 10; pass++) {
        rig_pass(&rig, NULL, 0);
    }
    HOLDS(rig_streamed_mib() == 0 && rig_logged("overshot leaves all memory to it"));
    rig_close(&rig);
}

static void loaded_before(void)
{
    load_pager();
    left_alone();
}

static void loaded_after_init(void)
{
    OK(cuInit(0));
    load_pager();
    left_alone();
}

static void preloaded(void)
{
    if (getenv("AGAIN") == NULL) {
        char list[2048];
        snprintf(list, sizeof list, "%s:%s", getenv("LD_PRELOAD"), getenv("PAGER"));
        HOLDS(setenv("LD_PRELOAD", list, 1) == 0 && setenv("AGAIN", "1", 1) == 0);
        execl("/proc/self/exe", "t_standdown", "preloaded", (char *)NULL);
        HOLDS(false);
    }
    left_alone();
}

/* It comes when weights are streamed: they stay right, what is allocated from now on is the driver's. */
static void loaded_late(void)
{
    struct rig rig;
    CUipcMemHandle handle;
    CUdeviceptr plain;
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_until_streamed(&rig);
    load_pager();
    OK(cuMemAlloc(&plain, 8 * MIB));
    HOLDS(rig_logged("overshot leaves all memory to it"));
    OK(cuIpcGetMemHandle(&handle, plain));
    HOLDS(memcmp(&handle, &plain, sizeof plain) == 0); /* the simulated driver's own handle */
    for (int pass = 0; pass < 8; pass++) {
        rig_pass(&rig, NULL, 0);
    }
    rig_drop(&rig, 2);
    (void)rig_add(&rig, weight_bytes);
    rig_pass(&rig, NULL, 0);
    OK(cuMemFree(plain));
    rig_close(&rig);
}

/* OVERSHOT_STANDDOWN=off, or another library: streams as always. */
static void streams(void)
{
    struct rig rig;
    load_pager();
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_until_streamed(&rig);
    HOLDS(!rig_logged("overshot leaves all memory to it"));
    rig_close(&rig);
}

/* torch_memory_saver#24, #108 in kind: memory that the program unmaps and maps again at the same address, with other
 * contents, while weights are streamed beside it. */
static void same_address_paging(void)
{
    struct rig rig;
    CUmemGenericAllocationHandle handle;
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    const CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at;
    size_t first_bytes, free_bytes, total_bytes;
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_until_streamed(&rig);
    OK(cuMemAddressReserve(&at, 4 * MIB, 0, 0, 0));
    rig.weight[rig.count] = (struct rig_weight){.address = at, .bytes = 4 * MIB, .host = malloc(4 * MIB)};
    const unsigned own = rig.count++;
    OK(cuMemGetInfo(&first_bytes, &total_bytes));
    for (int round = 0; round < 6; round++) {
        OK(cuMemCreate(&handle, 4 * MIB, &prop, 0));
        OK(cuMemMap(at, 4 * MIB, 0, handle, 0));
        OK(cuMemSetAccess(at, 4 * MIB, &access, 1));
        rig_refill(&rig.weight[own]);
        rig.weight[own].address = at;
        OK(cuMemcpyHtoD(at, rig.weight[own].host, 4 * MIB));
        for (int pass = 0; pass < 3; pass++) {
            rig_pass(&rig, NULL, 0);
        }
        OK(cuMemGetInfo(&free_bytes, &total_bytes));
        HOLDS(free_bytes <= first_bytes);
        OK(cuMemUnmap(at, 4 * MIB));
        OK(cuMemRelease(handle));
        rig.weight[own].address = 0;
        OK(cuMemGetInfo(&free_bytes, &total_bytes));
        HOLDS(free_bytes <= first_bytes);
        rig_pass(&rig, NULL, 0);
    }
    OK(cuMemAddressFree(at, 4 * MIB));
    rig_close(&rig);
}

/* A program that streams weights itself (TensorRT's weight streaming): what it uploads in every pass is not moved, the
 * weights that it keeps on the device are. */
static void own_streaming(void)
{
    struct rig rig;
    CUdeviceptr scratch[2];
    static uint32_t layer[6][MIB];
    uint32_t wanted[6], got;
    rig_open_with(&rig, COUNT, weight_bytes);
    for (unsigned i = 0; i < 2; i++) {
        OK(cuMemAlloc(&scratch[i], weight_bytes));
    }
    for (unsigned i = 0; i < 6; i++) {
        for (size_t word = 0; word < MIB; word++) {
            layer[i][word] = (uint32_t)(word * (2 * i + 3) + i);
        }
        wanted[i] = rig_digest(layer[i], MIB);
    }
    for (int pass = 0; pass < 14; pass++) {
        for (unsigned i = 0; i < 6; i++) {
            CUdeviceptr in = scratch[i % 2], out = rig.out + 8192;
            uint64_t words = MIB;
            void *params[] = {&in, &out, &words};
            OK(cuMemcpyHtoDAsync(in, layer[i], weight_bytes, rig.stream));
            rig_launch(&rig, "probe_digest", rig.stream, params);
            OK(cuStreamSynchronize(rig.stream));
            OK(cuMemcpyDtoH(&got, out, 4));
            if (got != wanted[i]) {
                rig_fail(RIG_EXIT_WRONG, "pass %d, layer %u: other bytes than were uploaded", pass, i);
            }
        }
        rig_pass(&rig, NULL, 0);
    }
    HOLDS(rig_streamed_mib() > 0 && rig_streamed_mib() <= COUNT * 4);
    rig_close(&rig);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(loaded_before), CASE(loaded_after_init),   CASE(preloaded),     CASE(loaded_late),
    CASE(streams),       CASE(same_address_paging), CASE(own_streaming),
};
RIG_MAIN(cases)
