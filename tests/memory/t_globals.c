/*
 * Module globals: tables that the program fills by the address the driver tells, or that kernels write and read by
 * name.
 */
#include "tables.h"

#include <string.h>

static const unsigned two[2] = {2, 5};

static CUdeviceptr slots_of(CUmodule module)
{
    CUdeviceptr address;
    size_t bytes;
    OK(cuModuleGetGlobal(&address, &bytes, module, "hidden_slots"));
    HOLDS(bytes == 64 * 8);
    return address;
}

/* The kernel gets the number of a slot, and finds the address itself. */
static void load(struct rig *rig, uint64_t slot, unsigned index)
{
    CUdeviceptr out = tables_out();
    uint64_t words = WORDS;
    void *params[] = {&slot, &out, &words};
    tables_launch(rig, "hidden_load", params);
    tables_compare(rig, &index, 1);
}

static void store(const struct rig *rig, unsigned index, uint64_t slot)
{
    CUdeviceptr address = rig->weight[index].address;
    void *params[] = {&address, &slot};
    tables_launch(rig, "hidden_store", params);
}

static void filled_before_plan(void)
{
    struct rig rig;
    uint64_t table[2];
    tables_open(&rig);
    tables_fill(&rig, two, 2, table);
    OK(cuMemcpyHtoD(slots_of(tables_module()), table, sizeof table));
    rig_until_streamed(&rig);
    for (unsigned pass = 0; pass < 12; pass++) {
        load(&rig, pass % 2, two[pass % 2]);
        rig_pass(&rig, NULL, 0);
    }
    HOLDS(rig_streamed_mib() > 0);
    rig_close(&rig);
}

static void filled_after_plan(void)
{
    struct rig rig;
    tables_open(&rig);
    CUdeviceptr slots = slots_of(tables_module());
    rig_until_streamed(&rig);
    for (unsigned pass = 0; pass < 12; pass++) {
        unsigned index = pass % COUNT;
        OK(cuMemcpyHtoD(slots + 8 * (pass % 64), &rig.weight[index].address, 8));
        load(&rig, pass % 64, index);
        rig_pass(&rig, NULL, 0);
        load(&rig, pass % 64, index);
    }
    rig_close(&rig);
}

/* The table is asked for by cuLibraryGetGlobal. */
static void of_a_library(void)
{
    struct rig rig;
    CUdeviceptr slots;
    size_t bytes;
    uint64_t table[2];
    tables_open(&rig);
    struct gpu_image image = gpu_image_load("hidden", GPU_LOAD_LIBRARY);
    OK(cuLibraryGetGlobal(&slots, &bytes, image.culibrary, "hidden_slots"));
    tables_fill(&rig, two, 2, table);
    OK(cuMemcpyHtoD(slots, table, sizeof table));
    CUfunction load_kernel = gpu_image_kernel(&image, "hidden_load");
    rig_until_streamed(&rig);
    for (unsigned pass = 0; pass < 8; pass++) {
        CUdeviceptr out = tables_out();
        uint64_t slot = pass % 2, words = WORDS;
        void *params[] = {&slot, &out, &words};
        OK(cuLaunchKernel(load_kernel, 1, 1, 1, 32, 1, 1, 0, rig.stream, params, NULL));
        tables_compare(&rig, &two[slot], 1);
        rig_pass(&rig, NULL, 0);
    }
    gpu_image_unload(&image);
    rig_close(&rig);
}

/* Kernel N writes an address to a table of its module's, kernel N+1 reads it there; the program never asks where that
 * is. Or it does, and then the table is looked at. */
static void stored(bool asked, bool early)
{
    struct rig rig;
    tables_open(&rig);
    if (asked) {
        (void)slots_of(tables_module());
    }
    for (unsigned pass = 0; pass < 12; pass++) {
        for (int more = 0; pass == 2 && more < 16 && !(rig_streamed_mib() > 0); more++) {
            rig_pass(&rig, NULL, 0);
        }
        if (early || pass >= 2) {
            store(&rig, pass % COUNT, pass);
            store(&rig, (pass + 3) % COUNT, pass + 1);
            load(&rig, pass, pass % COUNT);
        }
        rig_pass(&rig, NULL, 0);
        if (early || pass >= 2) {
            load(&rig, pass + 1, (pass + 3) % COUNT);
        }
    }
    rig_close(&rig);
}
static void stored_by_kernel_before(void)
{
    stored(true, true);
}
static void stored_by_kernel_after(void)
{
    stored(true, false);
}
static void stored_unseen_before(void)
{
    stored(false, true);
}
static void stored_unseen_after(void)
{
    stored(false, false);
}

/* Stored once, while the program loads, and never again. */
static void stored_once(void)
{
    struct rig rig;
    tables_open(&rig);
    store(&rig, 2, 0);
    store(&rig, 5, 1);
    OK(cuCtxSynchronize());
    rig_until_streamed(&rig);
    for (unsigned pass = 0; pass < 12; pass++) {
        load(&rig, pass % 2, two[pass % 2]);
        rig_pass(&rig, NULL, 0);
    }
    rig_close(&rig);
}

/* The result goes to a large buffer that was uploaded once, like a weight, and that the first launch leaves as it is.
 */
static void result_in_an_uploaded_buffer(void)
{
    struct rig rig;
    CUdeviceptr out;
    static uint32_t content[MIB / 2];
    uint64_t words = MIB / 2;
    rig_open(&rig, 0);
    OK(cuMemAlloc(&out, sizeof content));
    for (unsigned i = 0; i < COUNT; i++) {
        (void)rig_add(&rig, 4 * MIB);
    }
    OK(cuMemcpyHtoD(out, rig.weight[0].host, sizeof content));
    for (unsigned pass = 0; pass < 12; pass++) {
        for (unsigned i = 0; i < COUNT; i++) {
            void *params[] = {&rig.weight[i].address, &out, &words};
            rig_launch(&rig, "probe_copy", rig.stream, params);
        }
        OK(cuStreamSynchronize(rig.stream));
    }
    OK(cuMemcpyDtoH(content, out, sizeof content));
    HOLDS(memcmp(content, rig.weight[COUNT - 1].host, sizeof content) == 0);
    HOLDS(rig_streamed_mib() > 0 && rig_logged("nobody looks"));
    OK(cuMemFree(out));
    rig_close(&rig);
}

/* A module that is gone has no globals to look at. */
static void unloaded_is_not_read(void)
{
    struct rig rig;
    tables_open(&rig);
    struct gpu_image image = gpu_image_load("hidden", GPU_LOAD_MODULE);
    (void)slots_of(image.module);
    rig_pass(&rig, NULL, 0);
    gpu_image_unload(&image);
    rig_until_streamed(&rig);
    rig_close(&rig);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(filled_before_plan),     CASE(filled_after_plan),
    CASE(of_a_library),           CASE(stored_by_kernel_before),
    CASE(stored_by_kernel_after), CASE(stored_unseen_before),
    CASE(stored_unseen_after),    CASE(stored_once),
    CASE(unloaded_is_not_read),   CASE(result_in_an_uploaded_buffer),
};
RIG_MAIN(cases)
