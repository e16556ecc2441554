/*
 * What a program sees of its memory while weights move behind it.
 */
#include "rig.h"

#include <string.h>

enum { COUNT = 8 };
static const size_t weight_bytes = 4 * MIB;

/* Sizes that are no multiple of anything, in one program that is larger than its budget. */
static void every_size(void)
{
    static const size_t sizes[] = {1,           2,           3,           4,           511,         512,
                                   513,         1000,        4096,        65535,       65536,       262144,
                                   MIB - 4,     MIB - 1,     MIB,         MIB + 1,     MIB + 4,     2 * MIB - 4,
                                   2 * MIB - 1, 2 * MIB,     2 * MIB + 1, 2 * MIB + 4, 3 * MIB + 7, 4 * MIB - 512,
                                   4 * MIB,     4 * MIB + 1, 6 * MIB + 5, 8 * MIB + 4};
    struct rig rig;
    rig_open(&rig, 0);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        CUdeviceptr base;
        size_t bytes;
        const unsigned index = rig_add(&rig, sizes[i]);
        OK(cuMemGetAddressRange(&base, &bytes, rig.weight[index].address + sizes[i] / 2));
        HOLDS(base == rig.weight[index].address && bytes == sizes[i]);
    }
    rig_until_streamed(&rig);
    for (int pass = 0; pass < 4; pass++) {
        rig_pass(&rig, NULL, 0);
    }
    rig_close(&rig);
}

/* Units of every size that the ring can meet, `sizes` of them at once, in turn. */
static void mixed_sizes(void)
{
    struct rig rig;
    rig_open(&rig, 0);
    for (unsigned i = 0; i < 14; i++) {
        (void)rig_add(&rig, (1 + i * 5 % 6) * 2 * MIB + (i % 3) * 4);
    }
    rig_until_streamed(&rig);
    for (int pass = 0; pass < 6; pass++) {
        rig_pass(&rig, NULL, 0);
    }
    rig_close(&rig);
}

/* Four times the budget: loads, and device memory stays inside it (the driver's limit says so). */
static void load_far_over_budget(void)
{
    struct rig rig;
    rig_open_with(&rig, 22, weight_bytes);
    rig_until_streamed(&rig);
    rig_close(&rig);
}

/* A weight larger than the ring and than the budget. */
static void weight_larger_than_budget(void)
{
    struct rig rig;
    rig_open_with(&rig, 4, weight_bytes);
    (void)rig_add(&rig, 40 * MIB);
    for (int pass = 0; pass < 10; pass++) {
        rig_pass(&rig, NULL, 0);
    }
    rig_close(&rig);
}

/* One launch needs more weights at once than the ring can hold. */
static void group_larger_than_ring(void)
{
    struct rig rig;
    uint32_t got[64];
    rig_open_with(&rig, COUNT, weight_bytes);
    for (unsigned pass = 0; pass < 16; pass++) {
        for (unsigned first = 0; first < COUNT; first++) {
            const uint32_t *h[4];
            CUdeviceptr a[4], out = rig.out + 8192;
            for (unsigned k = 0; k < 4; k++) {
                h[k] = rig.weight[(first + 2 * k) % COUNT].host + 5000;
                a[k] = rig.weight[(first + 2 * k) % COUNT].address + 20000;
            }
            uint64_t words = 64;
            uint32_t e = pass;
            float f = 2;
            double g = 3;
            uint8_t h8 = 4;
            void *params[] = {&a[0], &a[1], &a[2], &a[3], &out, &words, &e, &f, &g, &h8};
            rig_launch(&rig, "probe_ten", rig.stream, params);
            OK(cuStreamSynchronize(rig.stream));
            OK(cuMemcpyDtoH(got, out, sizeof got));
            for (unsigned i = 0; i < 64; i++) {
                if (got[i] != (h[0][i] ^ h[1][i]) + (h[2][i] ^ h[3][i]) + e + 9) {
                    rig_fail(RIG_EXIT_WRONG, "pass %u: a launch with four weights read wrong words", pass);
                }
            }
        }
        rig_pass(&rig, NULL, 0);
    }
    rig_close(&rig);
}

/* Counts of units from 1 to 17, one after the other in one process. */
static void counts(void)
{
    struct rig rig;
    rig_open(&rig, 0);
    for (unsigned count = 1; count <= 17; count++) {
        rig.count = 0;
        for (unsigned i = 0; i < count; i++) {
            (void)rig_add(&rig, (1 + i % 2) * 2 * MIB);
        }
        for (int pass = 0; pass < 6; pass++) {
            rig_pass(&rig, NULL, 0);
        }
        for (unsigned i = 0; i < count; i++) {
            rig_drop(&rig, i);
        }
    }
    HOLDS((rig_plans() > 0) == rig_logged("weights will be looked for"));
    rig.count = 0;
    rig_close(&rig);
}

/* Called in another order than uploaded, and in two orders by turns. */
static void call_orders(void)
{
    struct rig rig;
    unsigned order[2][12];
    rig_open_with(&rig, 12, weight_bytes);
    for (unsigned i = 0; i < 12; i++) {
        order[0][i] = i * 5 % 12;
        order[1][i] = 11 - i;
    }
    for (unsigned pass = 0; pass < 24; pass++) {
        rig_pass(&rig, order[pass < 12 ? 0 : pass % 2], pass < 12 || pass % 2 ? 12 : 7);
    }
    HOLDS(rig_streamed_mib() > 0);
    rig_close(&rig);
}

/* ---- Free */

/* A weight freed right after the launch that reads it: the kernel still finds it. */
static void freed_after_launch(void)
{
    struct rig rig;
    uint32_t got;
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_until_streamed(&rig);
    for (unsigned i = 0; i < COUNT; i++) {
        double microseconds = 2000;
        void *spin[] = {&microseconds};
        const uint32_t wanted = rig.weight[i].digest;
        rig_launch(&rig, "probe_spin", rig.stream, spin);
        rig_read(&rig, i, i, rig.stream);
        rig_drop(&rig, i);
        OK(cuStreamSynchronize(rig.stream));
        OK(cuMemcpyDtoH(&got, rig.out + 4 * i, 4));
        if (got != wanted) {
            rig_fail(RIG_EXIT_WRONG, "weight %u was gone before its last kernel had read it", i);
        }
        rig_pass(&rig, NULL, 0);
    }
    rig_close(&rig);
}

/* The same before there is a plan, and with memory that fits. */
static void freed_before_plan(void)
{
    struct rig rig;
    uint32_t got;
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_read(&rig, 0, 0, rig.stream);
    rig_read(&rig, COUNT - 1, 1, rig.stream);
    const uint32_t wanted[2] = {rig_digest(rig.weight[0].host, weight_bytes / 4),
                                rig_digest(rig.weight[COUNT - 1].host, weight_bytes / 4)};
    rig_drop(&rig, 0);
    rig_drop(&rig, COUNT - 1);
    for (unsigned i = 0; i < 2; i++) {
        OK(cuMemcpyDtoH(&got, rig.out + 4 * i, 4));
        if (got != wanted[i]) {
            rig_fail(RIG_EXIT_WRONG, "a weight was gone before its kernel had read it");
        }
    }
    for (int pass = 0; pass < 8; pass++) {
        rig_pass(&rig, NULL, 0);
    }
    rig_close(&rig);
}

/* cuMemFreeAsync of ordinary memory, in stream order. */
static void freed_in_stream_order(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_until_streamed(&rig);
    for (unsigned i = 0; i < COUNT; i += 2) {
        rig_read(&rig, i, i, rig.stream);
        OK(cuMemFreeAsync(rig.weight[i].address, rig.stream));
        rig.weight[i].address = 0;
        rig_pass(&rig, NULL, 0);
    }
    rig_close(&rig);
}

/* Freeing nonsense answers what the driver answers, and harms nobody. */
static void freed_wrongly(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_until_streamed(&rig);
    const CUdeviceptr gone = rig.weight[3].address;
    HOLDS(cuMemFree(rig.weight[2].address + 4096) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuMemFree(rig.weight[2].address + 2 * MIB) == CUDA_ERROR_INVALID_VALUE);
    rig_drop(&rig, 3);
    HOLDS(cuMemFree(gone) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuMemFree(0) == CUDA_SUCCESS);
    for (int pass = 0; pass < 4; pass++) {
        rig_pass(&rig, NULL, 0);
    }
    rig_close(&rig);
}

/* Half of the weights freed while streamed: the rest comes home, nothing is lost. */
static void freed_half(void)
{
    struct rig rig;
    rig_open_with(&rig, 12, weight_bytes);
    rig_until_streamed(&rig);
    for (unsigned i = 0; i < 12; i++) {
        if (i % 3 != 0) {
            rig_drop(&rig, i);
            rig_pass(&rig, NULL, 0);
        }
    }
    for (int pass = 0; pass < 8; pass++) {
        rig_pass(&rig, NULL, 0);
    }
    HOLDS(rig_streamed_mib() == 0); /* 16 MiB fit */
    rig_close(&rig);
}

/* ---- What is told */

static void snapshot(size_t *free_bytes, size_t *last_bytes, bool may_rise)
{
    size_t total_bytes, device_bytes;
    CUdevice device;
    OK(cuMemGetInfo(free_bytes, &total_bytes));
    OK(cuCtxGetDevice(&device));
    OK(cuDeviceTotalMem(&device_bytes, device));
    HOLDS(*free_bytes <= total_bytes && total_bytes == device_bytes);
    HOLDS(may_rise || *free_bytes <= *last_bytes);
    *last_bytes = *free_bytes;
}

/* Free never rises without a free: not by the plan, not by the conversion, not by anything in between. */
static void free_never_rises(void)
{
    struct rig rig;
    size_t free_bytes, last_bytes = SIZE_MAX;
    rig_open(&rig, 0);
    snapshot(&free_bytes, &last_bytes, true);
    for (unsigned i = 0; i < COUNT; i++) {
        const size_t before = free_bytes;
        (void)rig_add(&rig, weight_bytes);
        snapshot(&free_bytes, &last_bytes, false);
        HOLDS(before - free_bytes >= weight_bytes);
    }
    for (int pass = 0; pass < 10; pass++) {
        rig_pass(&rig, NULL, 0);
        snapshot(&free_bytes, &last_bytes, false);
    }
    HOLDS(rig_streamed_mib() > 0);
    const size_t before = free_bytes;
    rig_drop(&rig, 4);
    snapshot(&free_bytes, &last_bytes, true);
    HOLDS(free_bytes - before >= weight_bytes);
    rig_close(&rig);
}

/* What is reported as free can be allocated, filled and read: a KV cache that takes what is left. */
static void all_that_is_free(void)
{
    struct rig rig;
    size_t free_bytes, total_bytes;
    CUdeviceptr cache;
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_until_streamed(&rig);
    OK(cuMemGetInfo(&free_bytes, &total_bytes));
    HOLDS(free_bytes > 0);
    const size_t cache_bytes = (free_bytes - 2 * MIB) / (2 * MIB) * (2 * MIB);
    OK(cuMemAlloc(&cache, cache_bytes));
    OK(cuMemsetD32(cache, 0x600D600D, cache_bytes / 4));
    OK(cuCtxSynchronize());
    for (int pass = 0; pass < 6; pass++) {
        uint32_t got;
        rig_pass(&rig, NULL, 0);
        OK(cuMemcpyDtoH(&got, cache + cache_bytes - 4, 4));
        HOLDS(got == 0x600D600D);
    }
    OK(cuMemGetInfo(&free_bytes, &total_bytes));
    HOLDS(free_bytes <= 4 * MIB);
    OK(cuMemFree(cache));
    rig_close(&rig);
}

/* The range of an address inside a large allocation is the whole allocation, in every tier. */
static void address_range(void)
{
    struct rig rig;
    CUdeviceptr base;
    size_t bytes;
    rig_open_with(&rig, 2, weight_bytes);
    const unsigned big = rig_add(&rig, 40 * MIB);
    for (int pass = 0; pass < 10; pass++) {
        for (size_t offset = 0; offset < 40 * MIB; offset += 3 * MIB + 17) {
            OK(cuMemGetAddressRange(&base, &bytes, rig.weight[big].address + offset));
            HOLDS(base == rig.weight[big].address && bytes == 40 * MIB);
        }
        rig_pass(&rig, NULL, 0);
    }
    HOLDS(cuMemGetAddressRange(&base, &bytes, rig.weight[big].address + 40 * MIB) != CUDA_SUCCESS);
    rig_close(&rig);
}

/* What cuPointerGetAttribute says of a weight is the same before and after it moves. */
static void pointer_attributes(void)
{
    struct rig rig;
    CUmemorytype kind;
    CUcontext context;
    CUdeviceptr start;
    size_t size;
    int ordinal;
    unsigned long long id[COUNT], again;
    rig_open_with(&rig, COUNT, weight_bytes);
    for (int round = 0; round < 2; round++) {
        for (unsigned i = 0; i < COUNT; i++) {
            const CUdeviceptr inside = rig.weight[i].address + 3 * MIB;
            OK(cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside));
            OK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, inside));
            OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside));
            OK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside));
            OK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside));
            OK(cuPointerGetAttribute(round == 0 ? &id[i] : &again, CU_POINTER_ATTRIBUTE_BUFFER_ID, inside));
            HOLDS(kind == CU_MEMORYTYPE_DEVICE && context == rig.context && ordinal == 0);
            HOLDS(start == rig.weight[i].address && size == weight_bytes);
            HOLDS(round == 0 || again == id[i]);
        }
        if (round == 0) {
            rig_until_streamed(&rig);
        }
    }
    rig_close(&rig);
}

/* Pitched memory of weights. */
static void pitched(void)
{
    struct rig rig;
    CUdeviceptr address;
    size_t pitch;
    rig_open_with(&rig, COUNT, weight_bytes);
    OK(cuMemAllocPitch(&address, &pitch, 5000, 1000, 4));
    HOLDS(pitch >= 5000 && pitch % 4 == 0);
    (void)rig_place(&rig, address, pitch * 1000);
    rig_until_streamed(&rig);
    rig_pass(&rig, NULL, 0);
    OK(cuMemFree(address));
    rig.weight[COUNT].address = 0;
    rig_pass(&rig, NULL, 0);
    rig_close(&rig);
}

/* More than device and host may hold together is refused as out of memory, and everything else goes on. */
static void out_of_memory_is_ordinary(void)
{
    struct rig rig;
    CUdeviceptr address = 0x1234;
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_until_streamed(&rig);
    const unsigned plans = rig_plans();
    HOLDS(cuMemAlloc(&address, (size_t)1 << 40) == CUDA_ERROR_OUT_OF_MEMORY);
    HOLDS(cuMemAlloc(&address, 512 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
    HOLDS(address == 0x1234);
    HOLDS(rig_plans() == plans); /* nothing gives way for what is not to be had */
    for (int pass = 0; pass < 4; pass++) {
        rig_pass(&rig, NULL, 0);
    }
    rig_close(&rig);
}

/* ---- Life */

/* Before the first pass it looks at one weight again and again, and the first pass is unlike the others. */
static void begins_slowly(void)
{
    static const unsigned first[] = {0, 1, 0, 2, 3, 1, 4, 5, 6, 0, 7};
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    for (unsigned i = 0; i < 5; i++) {
        rig_pass(&rig, (const unsigned[]){0}, 1);
    }
    rig_pass(&rig, first, sizeof first / sizeof first[0]);
    rig_until_streamed(&rig);
    for (unsigned i = 0; i < 16; i++) {
        rig_pass(&rig, NULL, 0);
    }
    HOLDS(rig_logged("; 8 touches a cycle"));
    rig_close(&rig);
}

/* Ends with everything alive and copies under way. */
static void exit_alive(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_until_streamed(&rig);
    for (unsigned i = 0; i < COUNT; i++) {
        rig_read(&rig, i, i, rig.stream);
    }
    exit(0);
}

/* Repacked on the device after the upload: the bytes that count are the device's. */
static void repacked_on_device(void)
{
    struct rig rig;
    CUdeviceptr staging;
    rig_open(&rig, 0);
    OK(cuMemAlloc(&staging, weight_bytes));
    for (unsigned i = 0; i < COUNT; i++) {
        struct rig_weight *weight = &rig.weight[rig_add(&rig, weight_bytes)];
        uint64_t words = weight_bytes / 4;
        rig_refill(weight);
        OK(cuMemcpyHtoDAsync(staging, weight->host, weight_bytes, rig.stream));
        void *params[] = {&staging, &weight->address, &words};
        rig_launch(&rig, "probe_copy", rig.stream, params);
    }
    OK(cuStreamSynchronize(rig.stream));
    OK(cuMemFree(staging));
    rig_until_streamed(&rig);
    rig_close(&rig);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(every_size),
    CASE(mixed_sizes),
    CASE(load_far_over_budget),
    CASE(weight_larger_than_budget),
    CASE(group_larger_than_ring),
    CASE(counts),
    CASE(call_orders),
    CASE(freed_after_launch),
    CASE(freed_before_plan),
    CASE(freed_in_stream_order),
    CASE(freed_wrongly),
    CASE(freed_half),
    CASE(free_never_rises),
    CASE(all_that_is_free),
    CASE(address_range),
    CASE(pointer_attributes),
    CASE(pitched),
    CASE(out_of_memory_is_ordinary),
    CASE(begins_slowly),
    CASE(exit_alive),
    CASE(repacked_on_device),
};
RIG_MAIN(cases)
