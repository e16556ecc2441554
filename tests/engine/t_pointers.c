/*
 * However a weight's address reaches a kernel, the kernel finds the weight: in memory that the host wrote, that another
 * kernel wrote, or computed from another weight's.
 */
#include "rig.h"

#include <string.h>

enum { COUNT = 8, WORDS = 1024 };
static const size_t weight_bytes = 4 * MIB;

/* Reads the first WORDS words of the weights that the table names, and compares them. */
static void read_table(struct rig *rig, CUdeviceptr table, const unsigned *index, uint64_t entries)
{
    static uint32_t got[COUNT * WORDS];
    static CUdeviceptr out;
    uint64_t words = WORDS;
    if (out == 0) {
        OK(cuMemAlloc(&out, sizeof got));
    }
    void *params[] = {&table, &entries, &out, &words};
    rig_launch(rig, "probe_read_table", rig->stream, params);
    OK(cuStreamSynchronize(rig->stream));
    OK(cuMemcpyDtoH(got, out, entries * WORDS * 4));
    for (uint64_t t = 0; t < entries; t++) {
        if (memcmp(got + t * WORDS, rig->weight[index[t]].host, WORDS * 4) != 0) {
            rig_fail(RIG_EXIT_WRONG, "entry %llu of a table led to other bytes than weight %u holds",
                     (unsigned long long)t, index[t]);
        }
    }
}

/* Passes with table reads between them: the units have other neighbours in the ring each time. */
static void read_table_often(struct rig *rig, CUdeviceptr table, const unsigned *index, uint64_t entries)
{
    for (int pass = 0; pass < 6; pass++) {
        read_table(rig, table, index, entries);
        rig_pass(rig, NULL, 0);
        read_table(rig, table, index, entries);
    }
}

static const unsigned two[2] = {2, 5};

static void addresses_of(const struct rig *rig, const unsigned *index, unsigned entries, uint64_t *to)
{
    for (unsigned i = 0; i < entries; i++) {
        to[i] = rig->weight[index[i]].address;
    }
}

/* A table uploaded at load, in small memory. */
static void table_before_plan(void)
{
    struct rig rig;
    uint64_t table[2];
    rig_open_with(&rig, COUNT, weight_bytes);
    addresses_of(&rig, two, 2, table);
    OK(cuMemcpyHtoD(rig.out + 8192, table, sizeof table));
    rig_until_streamed(&rig);
    read_table_often(&rig, rig.out + 8192, two, 2);
    HOLDS(rig_streamed_mib() > 0);
    rig_close(&rig);
}

/* A table that points at units which are streamed already. */
static void table_after_plan(void)
{
    struct rig rig;
    uint64_t table[2];
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_until_streamed(&rig);
    for (unsigned first = 0; first + 1 < COUNT; first++) {
        const unsigned index[2] = {first, first + 1};
        addresses_of(&rig, index, 2, table);
        OK(cuMemcpyHtoD(rig.out + 8192, table, sizeof table));
        read_table(&rig, rig.out + 8192, index, 2);
        rig_pass(&rig, NULL, 0);
        read_table(&rig, rig.out + 8192, index, 2);
    }
    rig_close(&rig);
}

/* The table is a small part of a large upload. */
static void table_in_large_upload(void)
{
    struct rig rig;
    CUdeviceptr block;
    static uint64_t payload[MIB / 2];
    rig_open_with(&rig, COUNT, weight_bytes);
    OK(cuMemAlloc(&block, sizeof payload));
    rig_until_streamed(&rig);
    const size_t place = MIB / 2 - 1000;
    addresses_of(&rig, two, 2, payload + place);
    OK(cuMemcpyHtoD(block, payload, sizeof payload));
    read_table_often(&rig, block + 8 * place, two, 2);
    OK(cuMemFree(block));
    rig_close(&rig);
}

/* The table is uploaded with a 2D copy. */
static void table_by_2d_copy(void)
{
    struct rig rig;
    uint64_t rows[4][16] = {0};
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_until_streamed(&rig);
    addresses_of(&rig, two, 2, rows[1]);
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = rows,
                          .srcPitch = sizeof rows[0],
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = rig.out + 8192,
                          .dstPitch = 256,
                          .WidthInBytes = 64,
                          .Height = 4};
    OK(cuMemcpy2D(&copy));
    read_table_often(&rig, rig.out + 8192 + 256, two, 2);
    rig_close(&rig);
}

/* The table is moved on the device before it is used. */
static void table_copied_on_device(void)
{
    struct rig rig;
    uint64_t table[2];
    CUdeviceptr other;
    rig_open_with(&rig, COUNT, weight_bytes);
    OK(cuMemAlloc(&other, 4096));
    rig_until_streamed(&rig);
    addresses_of(&rig, two, 2, table);
    OK(cuMemcpyHtoD(rig.out + 8192, table, sizeof table));
    OK(cuMemcpyDtoD(other, rig.out + 8192, sizeof table));
    OK(cuCtxSynchronize()); /* rig.stream does not wait for the copy's */
    read_table_often(&rig, other, two, 2);
    OK(cuMemFree(other));
    rig_close(&rig);
}

/* Memory that other calls than cuMemAlloc gave: the table is written there before the plan, used before and after. */
static void table_in_memory(CUdeviceptr address, void *host, struct rig *rig, bool before)
{
    uint64_t table[2];
    for (int round = 0; round < 2; round++) {
        if ((round == 0) == before) {
            addresses_of(rig, two, 2, table);
            if (host != NULL) {
                memcpy(host, table, sizeof table);
            } else {
                OK(cuMemcpyHtoD(address, table, sizeof table));
            }
        }
        if (round == 0) {
            rig_until_streamed(rig);
        }
    }
    read_table_often(rig, address, two, 2);
    rig_close(rig);
}

static void table_in_pinned(bool before)
{
    struct rig rig;
    void *host;
    CUdeviceptr address;
    rig_open_with(&rig, COUNT, weight_bytes);
    OK(cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    OK(cuMemHostGetDevicePointer(&address, host, 0));
    table_in_memory(address, host, &rig, before);
}
static void table_in_pinned_before(void)
{
    table_in_pinned(true);
}

static void table_in_pinned_after(void)
{
    table_in_pinned(false);
}

static void table_in_managed(bool before)
{
    struct rig rig;
    CUdeviceptr address;
    rig_open_with(&rig, COUNT, weight_bytes);
    OK(cuMemAllocManaged(&address, 4096, CU_MEM_ATTACH_GLOBAL));
    table_in_memory(address, (void *)(uintptr_t)address, &rig, before);
}
static void table_in_managed_before(void)
{
    table_in_managed(true);
}

static void table_in_managed_after(void)
{
    table_in_managed(false);
}

static void table_in_pool(bool before)
{
    struct rig rig;
    CUdeviceptr address;
    rig_open(&rig, 0);
    OK(cuMemAllocAsync(&address, 4096, rig.stream));
    OK(cuStreamSynchronize(rig.stream));
    for (int i = 0; i < COUNT; i++) {
        (void)rig_add(&rig, weight_bytes);
    }
    table_in_memory(address, NULL, &rig, before);
}
static void table_in_pool_before(void)
{
    table_in_pool(true);
}

static void table_in_pool_after(void)
{
    table_in_pool(false);
}

/* The program's own mapping (expandable segments). */
static void table_in_own_mapping(bool before)
{
    struct rig rig;
    CUdeviceptr address;
    CUmemGenericAllocationHandle handle;
    rig_open(&rig, 0);
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(cuMemAddressReserve(&address, 2 * MIB, 0, 0, 0));
    OK(cuMemCreate(&handle, 2 * MIB, &prop, 0));
    OK(cuMemMap(address, 2 * MIB, 0, handle, 0));
    OK(cuMemSetAccess(address, 2 * MIB, &access, 1));
    for (int i = 0; i < COUNT; i++) {
        (void)rig_add(&rig, weight_bytes);
    }
    table_in_memory(address, NULL, &rig, before);
}
static void table_in_own_mapping_before(void)
{
    table_in_own_mapping(true);
}

static void table_in_own_mapping_after(void)
{
    table_in_own_mapping(false);
}

static void write_pointer(const struct rig *rig, CUdeviceptr table, CUdeviceptr pointer, uint64_t slot)
{
    void *params[] = {&table, &pointer, &slot};
    rig_launch(rig, "probe_write_pointer", rig->stream, params);
}

/* Kernel N writes the addresses, kernel N+1 gets only the scratch. */
static void computed(CUdeviceptr table, struct rig *rig, bool early)
{
    for (int pass = 0; pass < 8; pass++) {
        if (early || pass >= 2) {
            const unsigned index[2] = {(unsigned)pass % COUNT, (unsigned)(pass + 3) % COUNT};
            write_pointer(rig, table, rig->weight[index[0]].address, 0);
            write_pointer(rig, table, rig->weight[index[1]].address, 1);
            read_table(rig, table, index, 2);
        }
        if (pass == 1) {
            for (int more = 0; more < 8 && !(rig_streamed_mib() > 0); more++) {
                rig_pass(rig, NULL, 0);
            }
        }
        rig_pass(rig, NULL, 0);
    }
    rig_close(rig);
}

static void computed_before_plan(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    computed(rig.out + 8192, &rig, true);
}

static void computed_after_plan(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    computed(rig.out + 8192, &rig, false);
}

/* A pool in which addresses of earlier launches are left: a kernel that takes a weight and writes over some of them has
 * not written any. */
static void stale_addresses_overwritten(void)
{
    struct rig rig;
    CUdeviceptr pool, cache;
    uint64_t words = 1024;
    rig_open(&rig, 0);
    OK(cuMemAlloc(&pool, 4 * MIB));
    OK(cuMemAlloc(&cache, 2 * MIB));
    OK(cuMemsetD32(pool, 0, MIB));
    OK(cuMemsetD32(cache, 0, MIB / 2));
    for (int i = 0; i < COUNT; i++) {
        (void)rig_add(&rig, weight_bytes);
    }
    for (int pass = 0; pass < 8; pass++) {
        write_pointer(&rig, pool, cache, 0);
        write_pointer(&rig, pool, cache, 100000);
        for (int i = 0; i < COUNT; i++) {
            void *params[] = {&rig.weight[i].address, &pool, &words};
            rig_launch(&rig, "probe_copy", rig.stream, params);
        }
        rig_pass(&rig, NULL, 0);
    }
    HOLDS(rig_streamed_mib() > 0);
    OK(cuMemFree(pool));
    OK(cuMemFree(cache));
    rig_close(&rig);
}

/* The scratch is a large allocation, and the addresses stand at its end. */
static void computed_far_inside(void)
{
    struct rig rig;
    CUdeviceptr scratch;
    const size_t bytes = 80 * MIB;
    rig_open(&rig, 0);
    OK(cuMemAlloc(&scratch, bytes));
    OK(cuMemsetD32(scratch, 0, bytes / 4));
    for (int i = 0; i < COUNT; i++) {
        (void)rig_add(&rig, weight_bytes);
    }
    rig_until_streamed(&rig);
    for (int pass = 0; pass < 6; pass++) {
        const unsigned index[2] = {(unsigned)pass % COUNT, (unsigned)(pass + 3) % COUNT};
        const uint64_t slot = bytes / 8 - 16;
        write_pointer(&rig, scratch, rig.weight[index[0]].address, slot);
        write_pointer(&rig, scratch, rig.weight[index[1]].address, slot + 1);
        rig_pass(&rig, NULL, 0);
        read_table(&rig, scratch + 8 * slot, index, 2);
    }
    OK(cuMemFree(scratch));
    rig_close(&rig);
}

/* Slices that are uploaded one by one and only ever reached through the base (fused projections): they belong together.
 */
static void slices_through_base(void)
{
    struct rig rig;
    enum { SLICES = 3, FUSED = 6 };
    const size_t slice = 2 * MIB;
    rig_open(&rig, 0);
    for (unsigned i = 0; i < FUSED; i++) {
        const unsigned index = rig_add(&rig, SLICES * slice);
        struct rig_weight *weight = &rig.weight[index];
        rig_refill(weight);
        for (unsigned s = 0; s < SLICES; s++) {
            OK(cuMemcpyHtoD(weight->address + s * slice, weight->host + s * slice / 4, slice));
        }
    }
    rig_until_streamed(&rig);
    for (int pass = 0; pass < 6; pass++) {
        rig_pass(&rig, NULL, 0);
    }
    rig_close(&rig);
}

/* Many weights in one allocation, uploaded and passed one by one (ggml): each is a unit of its own. */
static void weights_in_one_allocation(void)
{
    struct rig rig;
    CUdeviceptr base;
    const size_t stride = 3 * MIB + 128;
    rig_open(&rig, 0);
    OK(cuMemAlloc(&base, 12 * stride));
    for (unsigned i = 0; i < 12; i++) {
        (void)rig_place(&rig, base + i * stride, 3 * MIB);
    }
    rig_until_streamed(&rig);
    for (int pass = 0; pass < 6; pass++) {
        rig_pass(&rig, NULL, 0);
    }
    for (unsigned i = 0; i < 12; i++) {
        rig.weight[i].address = 0;
    }
    OK(cuMemFree(base));
    rig_close(&rig);
}

/* Sparse reads of a large table through its base, next to weights that are streamed. */
static void sparse_reads(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    const unsigned big = rig_add(&rig, 24 * MIB);
    uint32_t ids[64], got[64];
    for (unsigned pass = 0; pass < 16; pass++) {
        for (unsigned i = 0; i < 64; i++) {
            ids[i] = (i * 2654435761u + pass * 97) % (uint32_t)(24 * MIB / 4);
        }
        OK(cuMemcpyHtoD(rig.out + 8192, ids, sizeof ids));
        CUdeviceptr in = rig.weight[big].address, idp = rig.out + 8192, out = rig.out + 12288;
        uint64_t count = 64;
        void *params[] = {&in, &idp, &out, &count};
        rig_launch(&rig, "probe_gather", rig.stream, params);
        for (unsigned i = 0; i < COUNT; i++) {
            rig_read(&rig, i, i, rig.stream);
        }
        OK(cuStreamSynchronize(rig.stream));
        OK(cuMemcpyDtoH(got, out, sizeof got));
        for (unsigned i = 0; i < 64; i++) {
            if (got[i] != rig.weight[big].host[ids[i]]) {
                rig_fail(RIG_EXIT_WRONG, "pass %u: a gathered word is wrong", pass);
            }
        }
    }
    HOLDS(rig_streamed_mib() > 0);
    rig_close(&rig);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(table_before_plan),           CASE(table_after_plan),
    CASE(table_in_large_upload),       CASE(table_by_2d_copy),
    CASE(table_copied_on_device),      CASE(table_in_pinned_before),
    CASE(table_in_pinned_after),       CASE(table_in_managed_before),
    CASE(table_in_managed_after),      CASE(table_in_pool_before),
    CASE(table_in_pool_after),         CASE(table_in_own_mapping_before),
    CASE(table_in_own_mapping_after),  CASE(computed_before_plan),
    CASE(computed_after_plan),         CASE(computed_far_inside),
    CASE(stale_addresses_overwritten), CASE(slices_through_base),
    CASE(weights_in_one_allocation),   CASE(sparse_reads),
};
RIG_MAIN(cases)
