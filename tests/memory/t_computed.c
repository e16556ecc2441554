/*
 * Addresses that kernels compute or the device writes, and addresses of weights that were not streamed when they were
 * found but could be by the next plan.
 */
#include "tables.h"

#include <string.h>

static void write_pointer(const struct rig *rig, CUdeviceptr table, unsigned index, uint64_t slot)
{
    CUdeviceptr address = rig->weight[index].address;
    void *params[] = {&table, &address, &slot};
    rig_launch(rig, "probe_write_pointer", rig->stream, params);
}

/* Each pass a kernel writes addresses to scratch, and the next one gets only the scratch: in memory of every kind. */
static void scratch(CUdeviceptr table, struct rig *rig, bool early)
{
    for (unsigned pass = 0; pass < 12; pass++) {
        unsigned index[2];
        for (int more = 0; pass == 2 && more < 16 && !(rig_streamed_mib() > 0); more++) {
            rig_pass(rig, NULL, 0);
        }
        if (early || pass >= 2) {
            tables_pair(pass, index);
            write_pointer(rig, table, index[0], 0);
            write_pointer(rig, table, index[1], 1);
            tables_read(rig, table, index, 2);
        }
        rig_pass(rig, NULL, 0);
        if (early || pass >= 2) {
            tables_read(rig, table, index, 2);
        }
    }
    rig_close(rig);
}

static void in_arena(bool early)
{
    struct rig rig;
    CUdeviceptr table;
    tables_open(&rig);
    OK(cuMemAlloc(&table, 2 * MIB));
    OK(cuMemsetD32(table, 0, 2 * MIB / 4));
    OK(cuCtxSynchronize());
    scratch(table, &rig, early);
}
static void in_arena_before(void)
{
    in_arena(true);
}
static void in_arena_after(void)
{
    in_arena(false);
}

static void in_pool(void)
{
    struct rig rig;
    CUdeviceptr table;
    tables_open(&rig);
    OK(cuMemAllocAsync(&table, 4096, rig.stream));
    scratch(table, &rig, false);
}

static void in_managed(void)
{
    struct rig rig;
    CUdeviceptr table;
    tables_open(&rig);
    OK(cuMemAllocManaged(&table, 4096, CU_MEM_ATTACH_GLOBAL));
    scratch(table, &rig, false);
}

/* One kernel collects the addresses, another moves them on: the second takes no weight at all. */
static void moved_by_kernel(void)
{
    struct rig rig;
    CUdeviceptr first, second;
    tables_open(&rig);
    OK(cuMemAlloc(&first, 4096));
    OK(cuMemAlloc(&second, 4096));
    rig_until_streamed(&rig);
    for (unsigned pass = 0; pass < 10; pass++) {
        unsigned index[2];
        uint64_t words = 4;
        tables_pair(pass, index);
        write_pointer(&rig, first, index[0], 0);
        write_pointer(&rig, first, index[1], 1);
        void *params[] = {&first, &second, &words};
        rig_launch(&rig, "probe_copy", rig.stream, params);
        tables_read(&rig, second, index, 2);
        rig_pass(&rig, NULL, 0);
        tables_read(&rig, second, index, 2);
    }
    rig_close(&rig);
}

/* The device writes the address as a value in stream order, alone or in a batch. */
static void stream_value(bool batch)
{
    struct rig rig;
    CUdeviceptr table;
    tables_open(&rig);
    OK(cuMemAlloc(&table, 4096));
    rig_until_streamed(&rig);
    for (unsigned pass = 0; pass < 10; pass++) {
        unsigned index[2];
        tables_pair(pass, index);
        CUstreamBatchMemOpParams op[2];
        memset(op, 0, sizeof op);
        for (unsigned i = 0; i < 2; i++) {
            op[i].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
            op[i].writeValue.address = table + 8 * i;
            op[i].writeValue.value64 = rig.weight[index[i]].address;
            if (!batch) {
                OK(cuStreamWriteValue64(rig.stream, table + 8 * i, rig.weight[index[i]].address, 0));
            }
        }
        if (batch) {
            OK(cuStreamBatchMemOp(rig.stream, 2, op, 0));
        }
        tables_read(&rig, table, index, 2);
        rig_pass(&rig, NULL, 0);
        tables_read(&rig, table, index, 2);
    }
    rig_close(&rig);
}
static void stream_values(void)
{
    stream_value(false);
}
static void stream_values_in_a_batch(void)
{
    stream_value(true);
}

/* Weight 0 is read four times a pass, so it is the one that stays on the device. Its address gets into memory while
 * nothing watches it. Then memory is short, and the new plan would have it streamed. */
enum keeper { DEVICE_TABLE, ARENA_TABLE, PINNED_TABLE };
static void named_before_the_next_plan(enum keeper keeper)
{
    static const unsigned order[] = {0, 1, 2, 0, 3, 4, 0, 5, 6, 0, 7};
    const unsigned length = sizeof order / sizeof order[0];
    struct rig rig;
    CUdeviceptr table;
    void *host = NULL;
    tables_open(&rig);
    if (keeper == PINNED_TABLE) {
        OK(cuMemHostAlloc(&host, 4096, 0));
        memset(host, 0, 4096);
        OK(cuMemHostGetDevicePointer(&table, host, 0));
    } else {
        OK(cuMemAlloc(&table, keeper == ARENA_TABLE ? 2 * MIB : 4096));
        OK(cuMemsetD32(table, 0, 1024));
        OK(cuCtxSynchronize());
    }
    for (int pass = 0; pass < 24 && !(rig_streamed_mib() > 0); pass++) {
        rig_pass(&rig, order, length);
    }
    HOLDS(rig_streamed_mib() > 0 && rig_streamed_mib() < 32);
    rig_pass(&rig, order, length);
    const unsigned plans = rig_plans(), index = 0;
    if (host != NULL) {
        tables_fill(&rig, &index, 1, host);
    } else {
        write_pointer(&rig, table, 0, 0);
    }
    OK(cuStreamSynchronize(rig.stream));
    CUdeviceptr more[4];
    for (int i = 0; i < 4; i++) {
        OK(cuMemAlloc(&more[i], 2 * MIB));
        OK(cuMemsetD32(more[i], 1, 2 * MIB / 4));
    }
    OK(cuCtxSynchronize());
    static const unsigned others[] = {1, 2, 3, 4, 5, 6, 7}; /* so that others stand where weight 0 might stand */
    for (int pass = 0; pass < 12; pass++) {
        rig_pass(&rig, others, 7);
        tables_read(&rig, table, &index, 1);
        rig_pass(&rig, order, length);
        tables_read(&rig, table, &index, 1);
    }
    HOLDS(rig_plans() > plans);
    rig_close(&rig);
}
static void named_in_small_memory(void)
{
    named_before_the_next_plan(DEVICE_TABLE);
}
static void named_in_the_arena(void)
{
    named_before_the_next_plan(ARENA_TABLE);
}
static void named_in_pinned_memory(void)
{
    named_before_the_next_plan(PINNED_TABLE);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(in_arena_before),
    CASE(in_arena_after),
    CASE(in_pool),
    CASE(in_managed),
    CASE(moved_by_kernel),
    CASE(stream_values),
    CASE(stream_values_in_a_batch),
    CASE(named_in_small_memory),
    CASE(named_in_the_arena),
    CASE(named_in_pinned_memory),
};
RIG_MAIN(cases)
