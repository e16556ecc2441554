/*
 * Host memory that kernels read in place: the CPU stores an address there, and no call tells.
 */
#include "tables.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const unsigned two[2] = {2, 5};

/* The table is stored before the plan; or after it, another one each round. */
static void table_in(struct rig *rig, CUdeviceptr address, void *host, bool before)
{
    if (before) {
        tables_fill(rig, two, 2, host);
        rig_until_streamed(rig);
        tables_read_often(rig, address, two, 2);
        HOLDS(rig_streamed_mib() > 0);
    } else {
        rig_until_streamed(rig);
        for (unsigned round = 0; round < COUNT; round++) {
            unsigned index[2];
            tables_pair(round, index);
            tables_fill(rig, index, 2, host);
            tables_read(rig, address, index, 2);
            rig_pass(rig, NULL, 0);
            tables_read(rig, address, index, 2);
        }
    }
}

static CUdeviceptr device_address(void *host)
{
    CUdeviceptr address;
    OK(cuMemHostGetDevicePointer(&address, host, 0));
    return address;
}

static void in_pinned(bool before, unsigned flags)
{
    struct rig rig;
    void *host;
    tables_open(&rig);
    OK(cuMemHostAlloc(&host, 4096, flags));
    table_in(&rig, device_address(host), host, before);
    OK(cuMemFreeHost(host));
    rig_close(&rig);
}
static void pinned_before(void)
{
    in_pinned(true, 0);
}
static void pinned_after(void)
{
    in_pinned(false, CU_MEMHOSTALLOC_PORTABLE);
}
static void write_combined(void)
{
    in_pinned(false, CU_MEMHOSTALLOC_WRITECOMBINED);
}

static void pinned_by_other_call(void)
{
    struct rig rig;
    void *host;
    tables_open(&rig);
    OK(cuMemAllocHost(&host, 4096));
    table_in(&rig, device_address(host), host, false);
    OK(cuMemFreeHost(host));
    rig_close(&rig);
}

static void in_registered(bool before, size_t offset)
{
    struct rig rig;
    char *host = aligned_alloc(4096, 8192);
    HOLDS(host != NULL);
    memset(host, 0, 8192);
    tables_open(&rig);
    OK(cuMemHostRegister(host + offset, 4096, 0));
    const size_t aligned = (offset + 7) & ~(size_t)7;
    table_in(&rig, device_address(host + offset) + (aligned - offset), host + aligned, before);
    OK(cuMemHostUnregister(host + offset));
    free(host);
    rig_close(&rig);
}
static void registered_before(void)
{
    in_registered(true, 0);
}
static void registered_after(void)
{
    in_registered(false, 0);
}
static void registered_unaligned(void)
{
    in_registered(false, 4);
}

static void in_managed(bool before)
{
    struct rig rig;
    CUdeviceptr address;
    tables_open(&rig);
    OK(cuMemAllocManaged(&address, 4096, CU_MEM_ATTACH_GLOBAL));
    table_in(&rig, address, (void *)(uintptr_t)address, before);
    OK(cuMemFree(address));
    rig_close(&rig);
}
static void managed_before(void)
{
    in_managed(true);
}
static void managed_after(void)
{
    in_managed(false);
}

/* The CPU may not look at managed memory while kernels run: nothing is streamed once a kernel takes any. */
static void managed_not_concurrent(void)
{
    in_managed(false);
    HOLDS(rig_logged("the CPU may not look at"));
}

/* A small table in the middle of a large pool of pinned memory, passed by its own address. */
static void inside_large(void)
{
    struct rig rig;
    char *host;
    tables_open(&rig);
    OK(cuMemHostAlloc((void **)&host, 4 * MIB, 0));
    memset(host, 0, 4 * MIB);
    rig_until_streamed(&rig);
    for (unsigned round = 0; round < 12; round++) { /* more than the whole is searched for */
        unsigned index[2];
        size_t offset = 4096 + round * 300000;
        tables_pair(round, index);
        tables_fill(&rig, index, 2, (uint64_t *)(void *)(host + offset));
        tables_read(&rig, device_address(host) + offset, index, 2);
        memset(host + offset, 0, 16);
        rig_pass(&rig, NULL, 0);
    }
    OK(cuMemFreeHost(host));
    rig_close(&rig);
}

/* The kernel gets the beginning, and the addresses stand far behind it. */
static void far_behind_the_pointer(void)
{
    struct rig rig;
    char *host;
    const size_t offset = 3 * MIB;
    tables_open(&rig);
    OK(cuMemHostAlloc((void **)&host, 4 * MIB, 0));
    memset(host, 0, 4 * MIB);
    rig_until_streamed(&rig);
    for (unsigned round = 0; round < 12; round++) {
        unsigned index[1] = {round % COUNT};
        CUdeviceptr base = device_address(host), out = tables_out();
        uint64_t slot = offset / 8, words = WORDS;
        tables_fill(&rig, index, 1, (uint64_t *)(void *)(host + offset));
        void *params[] = {&base, &slot, &out, &words};
        tables_launch(&rig, "hidden_read_entry", params);
        tables_compare(&rig, index, 1);
        rig_pass(&rig, NULL, 0);
    }
    OK(cuMemFreeHost(host));
    rig_close(&rig);
}

/* The kernel was known, with tables of what is not streamed, before the first dangerous one. */
static void stored_before_every_launch(void)
{
    struct rig rig;
    uint64_t *host;
    tables_open(&rig);
    OK(cuMemHostAlloc((void **)&host, 4096, 0));
    uint32_t small[WORDS];
    CUdeviceptr other;
    OK(cuMemAlloc(&other, sizeof small));
    OK(cuMemsetD32(other, 7, WORDS));
    OK(cuCtxSynchronize()); /* rig.stream does not wait for the fill */
    for (unsigned round = 0; round < 30; round++) {
        unsigned index[1] = {round % COUNT};
        if (round < 18) {
            uint64_t words = WORDS, one = 1;
            CUdeviceptr table = device_address(host), out = tables_out();
            void *params[] = {&table, &one, &out, &words};
            host[0] = other;
            rig_launch(&rig, "probe_read_table", rig.stream, params);
            OK(cuStreamSynchronize(rig.stream));
            OK(cuMemcpyDtoH(small, out, sizeof small));
            HOLDS(small[0] == 7 && small[WORDS - 1] == 7);
        } else {
            HOLDS(round > 18 || rig_streamed_mib() > 0);
            tables_fill(&rig, index, 1, host);
            tables_read(&rig, device_address(host), index, 1);
        }
        rig_pass(&rig, NULL, 0);
    }
    OK(cuMemFree(other));
    OK(cuMemFreeHost(host));
    rig_close(&rig);
}

/* Pinned memory without addresses, read by a kernel in every pass, large and small: everything stays as planned. */
static void data_stays_harmless(void)
{
    struct rig rig;
    uint32_t *host, got[256];
    tables_open(&rig);
    OK(cuMemHostAlloc((void **)&host, 8 * MIB, 0));
    memset(host, 0x11, 8 * MIB);
    for (unsigned pass = 0; pass < 24; pass++) {
        CUdeviceptr in = device_address(host) + (pass % 2) * 4 * MIB, out = tables_out();
        uint64_t words = 256;
        void *params[] = {&in, &out, &words};
        host[pass % 2 * MIB] = pass;
        rig_launch(&rig, "probe_copy", rig.stream, params);
        OK(cuStreamSynchronize(rig.stream));
        OK(cuMemcpyDtoH(got, out, sizeof got));
        HOLDS(got[0] == pass && got[255] == 0x11111111);
        rig_pass(&rig, NULL, 0);
    }
    HOLDS(rig_streamed_mib() > 0 && rig_plans() == 1);
    OK(cuMemFreeHost(host));
    rig_close(&rig);
}

/* The table goes on to device memory before it is used: by a kernel, as a copy between two device addresses, as a copy
 * of which the driver finds out where it goes. */
enum way { BY_KERNEL, AS_DEVICE, UNIFIED };
static void copied(enum way way)
{
    struct rig rig;
    CUdeviceptr managed, table;
    void *pinned;
    tables_open(&rig);
    OK(cuMemAlloc(&table, 4096));
    OK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemHostAlloc(&pinned, 4096, 0));
    rig_until_streamed(&rig);
    for (unsigned round = 0; round < COUNT; round++) {
        unsigned index[2];
        uint64_t words = 4;
        tables_pair(round, index);
        CUdeviceptr from = way == UNIFIED || round % 2 == 0 ? managed : device_address(pinned);
        tables_fill(&rig, index, 2, from == managed ? (void *)(uintptr_t)managed : pinned);
        void *params[] = {&from, &table, &words};
        if (way == BY_KERNEL) {
            rig_launch(&rig, "probe_copy", rig.stream, params);
        } else if (way == AS_DEVICE) {
            OK(cuMemcpyDtoDAsync(table, from, 16, rig.stream));
        } else {
            OK(cuMemcpyAsync(table, from, 16, rig.stream));
        }
        tables_read(&rig, table, index, 2);
        rig_pass(&rig, NULL, 0);
        tables_read(&rig, table, index, 2);
    }
    OK(cuMemFreeHost(pinned));
    OK(cuMemFree(managed));
    OK(cuMemFree(table));
    rig_close(&rig);
}
static void copied_by_kernel(void)
{
    copied(BY_KERNEL);
}
static void copied_as_device_memory(void)
{
    copied(AS_DEVICE);
}
static void copied_unified(void)
{
    copied(UNIFIED);
}

/* A kernel writes the addresses to pinned memory, another one reads them there. */
static void written_by_kernel(bool early)
{
    struct rig rig;
    void *host;
    tables_open(&rig);
    OK(cuMemHostAlloc(&host, 4096, 0));
    memset(host, 0, 4096);
    CUdeviceptr table = device_address(host);
    for (unsigned pass = 0; pass < 10; pass++) {
        if (early || pass >= 2) {
            unsigned index[2];
            tables_pair(pass, index);
            for (uint64_t slot = 0; slot < 2; slot++) {
                void *params[] = {&table, &rig.weight[index[slot]].address, &slot};
                rig_launch(&rig, "probe_write_pointer", rig.stream, params);
            }
            tables_read(&rig, table, index, 2);
        }
        for (int more = 0; pass == 1 && more < 8 && !(rig_streamed_mib() > 0); more++) {
            rig_pass(&rig, NULL, 0);
        }
        rig_pass(&rig, NULL, 0);
    }
    /* It has to be known before the next kernel is launched: here everything is done at once, on a GPU it is not. */
    HOLDS(rig_logged("probe_write_pointer writes addresses"));
    OK(cuMemFreeHost(host));
    rig_close(&rig);
}
static void written_by_kernel_before(void)
{
    written_by_kernel(true);
}
static void written_by_kernel_after(void)
{
    written_by_kernel(false);
}

/* Memory that is no longer registered or pinned is not looked at: it may be gone. */
static void unregistered_is_not_read(void)
{
    struct rig rig;
    tables_open(&rig);
    void *host = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    HOLDS(host != MAP_FAILED);
    OK(cuMemHostRegister(host, MIB, 0));
    rig_pass(&rig, NULL, 0);
    OK(cuMemHostUnregister(host));
    munmap(host, MIB);
    rig_until_streamed(&rig);
    uint64_t nothing = (uint64_t)(uintptr_t)host;
    uint32_t unused = 0;
    void *params[] = {&unused, &nothing};
    rig_launch(&rig, "probe_empty", rig.stream, params);
    rig_pass(&rig, NULL, 0);
    rig_close(&rig);
}

static void freed_is_not_read(void)
{
    struct rig rig;
    void *host;
    CUdeviceptr managed;
    tables_open(&rig);
    for (int round = 0; round < 20; round++) {
        uint32_t unused = 0;
        OK(cuMemHostAlloc(&host, 100000, 0));
        OK(cuMemAllocManaged(&managed, 100000, CU_MEM_ATTACH_GLOBAL));
        rig_pass(&rig, NULL, 0);
        OK(cuMemFreeHost(host));
        OK(cuMemFree(managed));
        void *params[] = {&unused, &host}, *more[] = {&unused, &managed};
        rig_launch(&rig, "probe_empty", rig.stream, params);
        rig_launch(&rig, "probe_empty", rig.stream, more);
    }
    rig_until_streamed(&rig);
    rig_close(&rig);
}

/* Pinned memory goes with the context that it was allocated in. */
static void lost_with_its_context(void)
{
    struct rig rig;
    CUcontext context;
    void *host;
    tables_open(&rig);
    rig_pass(&rig, NULL, 0);
#if CUDA_VERSION >= 13000
    OK(cuCtxCreate(&context, NULL, 0, rig.device));
#else
    OK(cuCtxCreate(&context, 0, rig.device));
#endif
    OK(cuMemHostAlloc(&host, MIB, 0));
    OK(cuCtxDestroy(context));
    OK(cuCtxSetCurrent(rig.context));
    rig_until_streamed(&rig);
    rig_close(&rig);
}

/* A table that is too large to be searched at each launch: nothing is streamed any more. */
static void too_large_a_table(void)
{
    struct rig rig;
    uint64_t *host;
    tables_open(&rig);
    OK(cuMemHostAlloc((void **)&host, 24 * MIB, 0));
    memset(host, 0, 24 * MIB);
    rig_until_streamed(&rig);
    for (unsigned round = 0; round < 12; round++) {
        unsigned index[2];
        tables_pair(round, index);
        tables_fill(&rig, index, 2, host + round * MIB / 8);
        tables_read(&rig, device_address(host) + round * MIB, index, 2);
        rig_pass(&rig, NULL, 0);
    }
    HOLDS(rig_logged("too large to be searched"));
    OK(cuMemFreeHost(host));
    rig_close(&rig);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(pinned_before),
    CASE(pinned_after),
    CASE(pinned_by_other_call),
    CASE(write_combined),
    CASE(registered_before),
    CASE(registered_after),
    CASE(registered_unaligned),
    CASE(managed_before),
    CASE(managed_after),
    CASE(managed_not_concurrent),
    CASE(inside_large),
    CASE(far_behind_the_pointer),
    CASE(stored_before_every_launch),
    CASE(data_stays_harmless),
    CASE(copied_by_kernel),
    CASE(copied_as_device_memory),
    CASE(copied_unified),
    CASE(written_by_kernel_before),
    CASE(written_by_kernel_after),
    CASE(unregistered_is_not_read),
    CASE(freed_is_not_read),
    CASE(lost_with_its_context),
    CASE(too_large_a_table),
};
RIG_MAIN(cases)
