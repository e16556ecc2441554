/*
 * A driver call fails, whichever and whenever (SIM_FAIL, see tests/engine/failures.sh), in the life of a program that
 * maps its memory itself: right bytes or an error code, never wrong bytes, and it ends.
 */
#include "pool.h"

enum { COUNT = 8 };
#define PIECE (2 * MIB)

static struct rig rig;
static struct pool pool;

static void fill(CUdeviceptr out, uint32_t value, size_t bytes)
{
    uint64_t words = bytes / 4;
    void *params[] = {&out, &value, &words};
    rig_launch(&rig, "probe_fill", rig.stream, params);
}

/* Activations in stream order, checked. */
static void pass(uint32_t number)
{
    CUdeviceptr address;
    OK(cuMemAllocAsync(&address, 2 * MIB, rig.stream));
    fill(address, number, 2 * MIB);
    rig_pass(&rig, NULL, 0);
    pool_expect(address, 2 * MIB, number);
    OK(cuMemFreeAsync(address, rig.stream));
}

/* Load, plan, steady state; a weight unmapped, one moved, one mapped twice; growth; the end. */
static void life(void)
{
    uint32_t number = 0;
    rig_open(&rig, 0);
    pool_open(&pool, 14, PIECE);
    pool_map(&pool, 0, COUNT);
    for (unsigned i = 0; i < COUNT; i++) {
        (void)rig_place(&rig, pool_at(&pool, i), PIECE);
    }
    while (number < 7) {
        pass(number++);
    }
    OK(cuCtxSynchronize());
    pool_unmap(&pool, 5, 1);
    rig.weight[5].address = 0;
    OK(cuMemUnmap(pool_at(&pool, 2), PIECE));
    pool_show(pool_at(&pool, 9), PIECE, pool.handle[2]);
    pool.handle[9] = pool.handle[2];
    pool.handle[2] = 0;
    rig.weight[2].address = pool_at(&pool, 9);
    pass(number++);
    const CUdeviceptr other = pool_reserve(PIECE);
    pool_show(other, PIECE, pool.handle[1]);
    rig_refill(&rig.weight[1]);
    OK(cuMemcpyHtoD(other, rig.weight[1].host, PIECE));
    pass(number++);
    OK(cuMemUnmap(other, PIECE));
    OK(cuMemAddressFree(other, PIECE));
    pool_map(&pool, 10, 3);
    fill(pool_at(&pool, 10), 77, 3 * PIECE);
    for (int i = 0; i < 4; i++) {
        pass(number++);
    }
    pool_expect(pool_at(&pool, 11), PIECE, 77);
    pool_forget(&rig);
    pool_close(&pool);
    rig_close(&rig);
}

static const struct rig_case cases[] = {
    {"life", life},
};
RIG_MAIN(cases)
