/*
 * A driver call fails, whichever and whenever (SIM_FAIL, see failures.sh): the program gets right bytes or an error
 * code (exit status 2 or 3), never wrong bytes, and it ends.
 */
#include "rig.h"

enum { COUNT = 7 };

/* Load, discovery, plan, steady state, a change, a read-back, a free, a larger allocation, steady state again. */
static void life(void)
{
    struct rig rig;
    CUdeviceptr cache;
    static uint32_t bytes[MIB];
    rig_open(&rig, 0);
    for (unsigned i = 0; i < COUNT; i++) {
        (void)rig_add(&rig, (1 + i % 2) * 2 * MIB);
    }
    for (int pass = 0; pass < 7; pass++) {
        rig_pass(&rig, NULL, 0);
    }
    struct rig_weight *weight = &rig.weight[3];
    uint32_t value = 9;
    uint64_t words = weight->bytes / 4;
    void *params[] = {&weight->address, &value, &words};
    rig_launch(&rig, "probe_increment", rig.stream, params);
    for (size_t i = 0; i < words; i++) {
        weight->host[i] += value;
    }
    rig_changed(weight);
    rig_pass(&rig, NULL, 0);
    OK(cuMemcpyDtoH(bytes, rig.weight[1].address, rig.weight[1].bytes));
    rig_compare_bytes(&rig.weight[1], bytes, "read back");
    rig_drop(&rig, 5);
    OK(cuMemAlloc(&cache, 6 * MIB));
    OK(cuMemsetD32Async(cache, 1, MIB, rig.stream));
    for (int pass = 0; pass < 5; pass++) {
        rig_pass(&rig, NULL, 0);
    }
    OK(cuMemFree(cache));
    rig_pass(&rig, NULL, 0);
    rig_close(&rig);
}

static const struct rig_case cases[] = {
    {"life", life},
};
RIG_MAIN(cases)
