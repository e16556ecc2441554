/*
 * Tensor maps: by value, in device memory, with their address replaced, and of a driver that hides the address.
 */
#include "tables.h"

#include <stdlib.h>
#include <string.h>

static CUtensorMap *new_map(void)
{
    CUtensorMap *map = aligned_alloc(_Alignof(CUtensorMap), sizeof *map);
    HOLDS(map != NULL);
    memset(map, 0, sizeof *map);
    return map;
}

static void encode(CUtensorMap *map, CUdeviceptr address)
{
    const cuuint64_t dims[2] = {1024, 1024}, strides[1] = {4096};
    const cuuint32_t box[2] = {64, 64}, steps[2] = {1, 1};
    OK(cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_UINT32, 2, (void *)(uintptr_t)address, dims, strides, box,
                              steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                              CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}

static void read_map(struct rig *rig, const char *kernel, const void *map, unsigned index)
{
    CUdeviceptr out = tables_out();
    uint64_t words = WORDS;
    void *params[] = {(void *)(uintptr_t)map, &out, &words};
    tables_launch(rig, kernel, params);
    tables_compare(rig, &index, 1);
}

/* All launches of a pass take descriptors: these weights are streamed as if their addresses were passed. */
static void by_value(void)
{
    struct rig rig;
    CUtensorMap *map = new_map();
    tables_open(&rig);
    for (unsigned pass = 0; pass < 14; pass++) {
        for (unsigned i = 0; i < COUNT; i++) {
            encode(map, rig.weight[i].address);
            read_map(&rig, "hidden_read_map", map, i);
        }
    }
    HOLDS(rig_streamed_mib() > 0);
    rig_close(&rig);
    free(map);
}

static void stored(bool before, bool replaced)
{
    struct rig rig;
    CUdeviceptr place;
    CUtensorMap *map = new_map();
    tables_open(&rig);
    OK(cuMemAlloc(&place, sizeof *map));
    if (before) {
        encode(map, rig.weight[5].address);
        OK(cuMemcpyHtoD(place, map, sizeof *map));
    }
    rig_until_streamed(&rig);
    encode(map, rig.out);
    for (unsigned pass = 0; pass < 10; pass++) {
        const unsigned index = before ? 5 : (pass * 3 + 1) % COUNT;
        if (replaced) {
            OK(cuTensorMapReplaceAddress(map, (void *)(uintptr_t)rig.weight[index].address));
        } else {
            encode(map, rig.weight[index].address);
        }
        if (!before) {
            OK(cuMemcpyHtoD(place, map, sizeof *map));
        }
        read_map(&rig, "hidden_read_stored_map", &place, index);
        rig_pass(&rig, NULL, 0);
        read_map(&rig, "hidden_read_stored_map", &place, index);
    }
    OK(cuMemFree(place));
    rig_close(&rig);
    free(map);
}
static void stored_before_plan(void)
{
    stored(true, false);
}
static void stored_after_plan(void)
{
    stored(false, false);
}
static void replaced_after_plan(void)
{
    stored(false, true);
}

/* Nobody can tell where the address is: the weight is not streamed, whether it was before or not. */
static void opaque(bool early)
{
    struct rig rig;
    CUtensorMap *map = new_map();
    tables_open(&rig);
    if (early) {
        encode(map, rig.weight[3].address);
    }
    rig_until_streamed(&rig);
    for (unsigned pass = 0; pass < 10; pass++) {
        const unsigned index = early ? 3 : pass % COUNT;
        if (!early) {
            encode(map, rig.weight[index].address);
        }
        read_map(&rig, "hidden_read_opaque_map", map, index);
        rig_pass(&rig, NULL, 0);
        read_map(&rig, "hidden_read_opaque_map", map, index);
    }
    HOLDS(rig_logged("hide their addresses"));
    rig_close(&rig);
    free(map);
}
static void opaque_before_plan(void)
{
    opaque(true);
}
static void opaque_after_plan(void)
{
    opaque(false);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(by_value),           CASE(stored_before_plan), CASE(stored_after_plan), CASE(replaced_after_plan),
    CASE(opaque_before_plan), CASE(opaque_after_plan),
};
RIG_MAIN(cases)
