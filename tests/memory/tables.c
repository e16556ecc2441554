#include "tables.h"

#include <string.h>

static CUdeviceptr out;
static struct gpu_image image;

void tables_open(struct rig *rig)
{
    rig_open_with(rig, COUNT, 4 * MIB);
    out = 0;
}

CUdeviceptr tables_out(void)
{
    if (out == 0) {
        OK(cuMemAlloc(&out, COUNT * WORDS * 4));
    }
    return out;
}

void tables_fill(const struct rig *rig, const unsigned *index, unsigned entries, uint64_t *addresses)
{
    for (unsigned i = 0; i < entries; i++) {
        addresses[i] = rig->weight[index[i]].address;
    }
}

void tables_compare(struct rig *rig, const unsigned *index, unsigned entries)
{
    static uint32_t got[COUNT * WORDS];
    OK(cuStreamSynchronize(rig->stream));
    OK(cuMemcpyDtoH(got, tables_out(), (size_t)entries * WORDS * 4));
    for (unsigned t = 0; t < entries; t++) {
        if (memcmp(got + (size_t)t * WORDS, rig->weight[index[t]].host, WORDS * 4) != 0) {
            rig_fail(RIG_EXIT_WRONG, "entry %u of a table led to other bytes than weight %u holds", t, index[t]);
        }
    }
    OK(cuMemsetD32(tables_out(), 0, (size_t)entries * WORDS));
    OK(cuCtxSynchronize());
}

void tables_read(struct rig *rig, CUdeviceptr table, const unsigned *index, unsigned entries)
{
    uint64_t words = WORDS, count = entries;
    CUdeviceptr to = tables_out();
    void *params[] = {&table, &count, &to, &words};
    rig_launch(rig, "probe_read_table", rig->stream, params);
    tables_compare(rig, index, entries);
}

void tables_read_often(struct rig *rig, CUdeviceptr table, const unsigned *index, unsigned entries)
{
    for (int pass = 0; pass < 6; pass++) {
        tables_read(rig, table, index, entries);
        rig_pass(rig, NULL, 0);
        tables_read(rig, table, index, entries);
    }
}

void tables_pair(unsigned round, unsigned *index)
{
    index[0] = round % COUNT;
    index[1] = (round * 3 + 5) % COUNT;
}

CUmodule tables_module(void)
{
    if (image.module == NULL) {
        image = gpu_image_load("hidden", GPU_LOAD_MODULE);
    }
    return image.module;
}

void tables_launch(const struct rig *rig, const char *name, void **params)
{
    CUfunction function;
    OK(cuModuleGetFunction(&function, tables_module(), name));
    OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, rig->stream, params, NULL));
}
