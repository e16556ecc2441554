#include "weights.h"

struct rig rig;
struct pool pool;

void weights_place(unsigned count, size_t bytes)
{
    for (unsigned i = 0; i < count; i++) {
        (void)rig_place(&rig, pool.base + i * bytes, bytes);
    }
}

void weights_pass(int count)
{
    for (int pass = 0; pass < count; pass++) {
        rig_pass(&rig, NULL, 0);
    }
}

void weights_open(unsigned pieces, size_t piece_bytes, unsigned weights, size_t weight_bytes)
{
    rig_open(&rig, 0);
    pool_open(&pool, pieces, piece_bytes);
    pool_map(&pool, 0, pieces);
    weights_place(weights, weight_bytes);
    rig_until_streamed(&rig);
}

void weights_finish(void)
{
    weights_pass(3);
    pool_forget(&rig);
    pool_close(&pool);
    rig_close(&rig);
}

void weights_fill(CUdeviceptr out, uint32_t value, uint64_t words)
{
    void *params[] = {&out, &value, &words};
    rig_launch(&rig, "probe_fill", rig.stream, params);
}
