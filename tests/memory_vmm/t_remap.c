/* Memory that the program maps itself is unmapped, moved, filled anew in mid-run: the weights in it are right. */
#include <stdlib.h>
#include <string.h>

#include "weights.h"

/* Everything comes back to the device when there is room, piece by piece as it was mapped: each can be unmapped by
 * itself afterwards. */
static void comes_home(void)
{
    CUdeviceptr cache[4];
    weights_open(16, 2 * MIB, 8, 4 * MIB);
    for (unsigned i = 0; i < 4; i++) {
        OK(cuMemAlloc(&cache[i], 4 * MIB));
        weights_fill(cache[i], i, MIB);
        weights_pass(1);
    }
    for (unsigned i = 4; i < 8; i++) { /* what is left fits */
        rig.weight[i].address = 0;
    }
    OK(cuCtxSynchronize());
    pool_unmap(&pool, 8, 8);
    for (unsigned i = 0; i < 4; i++) {
        OK(cuMemFree(cache[i]));
    }
    weights_pass(24);
    for (unsigned i = 0; i < 4; i++) {
        rig.weight[i].address = 0;
        pool_unmap(&pool, 2 * i + 1, 1);
        pool_unmap(&pool, 2 * i, 1);
        weights_pass(2);
    }
    weights_finish();
}

/* More weights than before, behind and between. */
static void grows(void)
{
    rig_open(&rig, 0);
    pool_open(&pool, 20, 4 * MIB);
    pool_map(&pool, 0, 8);
    weights_place(8, 4 * MIB);
    rig_until_streamed(&rig);
    for (unsigned i = 8; i < 14; i++) {
        pool_map(&pool, i, 1);
        (void)rig_place(&rig, pool_at(&pool, i), 4 * MIB);
        weights_pass(2);
    }
    weights_pass(8);
    HOLDS(rig_streamed_mib() > 0);
    weights_finish();
}

/* Weights are unmapped while they are streamed; those that stay are right, and what takes their place is. */
static void shrinks(void)
{
    weights_open(12, 4 * MIB, 12, 4 * MIB);
    for (unsigned i = 1; i < 12; i += 3) {
        OK(cuCtxSynchronize());
        pool_unmap(&pool, i, 2);
        rig.weight[i].address = rig.weight[i + 1].address = 0;
        weights_pass(2);
        pool_map(&pool, i, 1);
        pool_fill(pool_at(&pool, i), 4 * MIB, i);
        weights_pass(2);
        pool_expect(pool_at(&pool, i), 4 * MIB, i);
    }
    weights_finish();
}

/* A streamed weight is unmapped and mapped elsewhere: its bytes come along. */
static void moves(void)
{
    rig_open(&rig, 0);
    pool_open(&pool, 24, 4 * MIB);
    pool_map(&pool, 0, 10);
    weights_place(10, 4 * MIB);
    rig_until_streamed(&rig);
    for (unsigned i = 0; i < 10; i += 2) {
        OK(cuCtxSynchronize());
        OK(cuMemUnmap(pool_at(&pool, i), 4 * MIB));
        pool_show(pool_at(&pool, i + 12), 4 * MIB, pool.handle[i]);
        pool.handle[i + 12] = pool.handle[i];
        pool.handle[i] = 0;
        rig.weight[i].address = pool_at(&pool, i + 12);
        weights_pass(3);
    }
    weights_pass(6);
    HOLDS(rig_streamed_mib() > 0);
    weights_finish();
}

/* In front of a streamed weight there was nothing; then there is, and the next tensor lies across the seam: where the
 * weight began no tensor begins any more, and nobody names it. */
static void across_a_seam(void)
{
    rig_open(&rig, 0);
    pool_open(&pool, 12, 4 * MIB);
    pool_map(&pool, 0, 2);
    pool_map(&pool, 3, 9);
    for (unsigned i = 0; i < 12; i++) {
        if (i != 2) {
            (void)rig_place(&rig, pool_at(&pool, i), 4 * MIB);
        }
    }
    rig_until_streamed(&rig);
    for (unsigned i = 0; i < 11; i++) { /* the one behind the hole is freed, by an allocator that keeps its memory */
        if (rig.weight[i].address == pool_at(&pool, 3)) {
            free(rig.weight[i].host);
            rig.weight[i] = (struct rig_weight){0};
        }
    }
    pool_map(&pool, 2, 1);
    CUdeviceptr out = pool_at(&pool, 2);
    const unsigned seam = rig_place(&rig, out, 2 * MIB); /* the copy that the host keeps is grown below */
    rig.weight[seam].bytes = 8 * MIB;
    free(rig.weight[seam].host);
    rig.weight[seam].host = calloc(2 * MIB, 4);
    rig_refill(&rig.weight[seam]);
    uint32_t first = 5;
    uint64_t words = 2 * MIB;
    for (uint64_t i = 0; i < words; i++) {
        rig.weight[seam].host[i] = first + (uint32_t)i;
    }
    rig_changed(&rig.weight[seam]);
    void *params[] = {&out, &first, &words};
    rig_launch(&rig, "probe_count", rig.stream, params);
    weights_pass(10);
    weights_finish();
}

/* An allocator gives the place of a streamed weight to activations, and to another weight after that. */
static void reused_in_place(void)
{
    weights_open(10, 4 * MIB, 10, 4 * MIB);
    for (unsigned i = 0; i < 10; i += 3) {
        const CUdeviceptr at = rig.weight[i].address;
        rig.weight[i].address = 0;
        for (uint32_t k = 0; k < 3; k++) {
            weights_fill(at, i * 10 + k, MIB);
            rig_pass(&rig, NULL, 0);
            pool_expect(at, 4 * MIB, i * 10 + k);
        }
        rig.weight[i].address = at;
        rig_refill(&rig.weight[i]);
        OK(cuMemcpyHtoD(at, rig.weight[i].host, 4 * MIB));
        weights_pass(3);
    }
    weights_finish();
}

/* out[slot] = digest of a part of a weight. */
static void read_part(CUdeviceptr in, uint64_t words, unsigned slot)
{
    CUdeviceptr out = rig.out + 4 * slot;
    void *params[] = {&in, &out, &words};
    rig_launch(&rig, "probe_digest", rig.stream, params);
}

/* Two weights, then one tensor in their place, by one copy: where the second began nothing begins any more, even if a
 * kernel is given just that address for a part of it. */
static void replaced_by_one(void)
{
    rig_open(&rig, 0);
    pool_open(&pool, 10, 4 * MIB);
    pool_map(&pool, 0, 10);
    for (unsigned i = 0; i < 10; i++) {
        (void)rig_place(&rig, pool_at(&pool, i), 4 * MIB);
    }
    weights_pass(1);
    for (unsigned i = 0; i < 10; i += 2) { /* pairs become one */
        struct rig_weight *weight = &rig.weight[i];
        free(rig.weight[i + 1].host);
        rig.weight[i + 1] = (struct rig_weight){0};
        free(weight->host);
        weight->bytes = 8 * MIB;
        weight->host = calloc(2 * MIB, 4);
        rig_refill(weight);
        OK(cuMemcpyHtoD(weight->address, weight->host, 8 * MIB));
    }
    for (int pass = 0; pass < 14; pass++) {
        uint32_t got[10];
        for (unsigned i = 0; i < 10; i += 2) {
            read_part(rig.weight[i].address + 4 * MIB, MIB, 100 + i);
        }
        OK(cuStreamSynchronize(rig.stream));
        OK(cuMemcpyDtoH(got, rig.out + 400, sizeof got));
        for (unsigned i = 0; i < 10; i += 2) {
            HOLDS(got[i] == rig_digest(rig.weight[i].host + MIB, MIB));
        }
        rig_pass(&rig, NULL, 0);
    }
    weights_finish();
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(comes_home),    CASE(grows),           CASE(shrinks),         CASE(moves),
    CASE(across_a_seam), CASE(reused_in_place), CASE(replaced_by_one),
};
RIG_MAIN(cases)
