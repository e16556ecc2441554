/* One segment that grows piece by piece, as PyTorch's expandable segments do: what that costs, in plans and in time. */
#include <string.h>

#include "weights.h"

static const size_t piece_bytes = 2 * MIB;
static size_t loaded;
static unsigned mapped;

static void open_segment(void)
{
    size_t free_bytes, total_bytes;
    rig_open(&rig, 0);
    OK(cuMemGetInfo(&free_bytes, &total_bytes));
    memset(&pool, 0, sizeof pool);
    pool.piece_bytes = piece_bytes;
    pool.bytes = total_bytes / 8 * 9 / piece_bytes * piece_bytes;
    pool.base = pool_reserve(pool.bytes);
}

/* Pieces come with the weights. */
static void load_one(size_t bytes)
{
    for (; mapped * piece_bytes < loaded + bytes; mapped++) {
        pool_map(&pool, mapped, 1);
    }
    (void)rig_place(&rig, pool.base + loaded, bytes);
    loaded += bytes;
}

static void load(void)
{
    for (unsigned i = 0; i < 24; i++) {
        load_one(4 * MIB);
    }
}

/* What a pass writes, a piece at a time. */
static void grow(unsigned count)
{
    const unsigned first = mapped;
    for (; mapped < first + count; mapped++) {
        pool_map(&pool, mapped, 1);
        weights_fill(pool_at(&pool, mapped), mapped, piece_bytes / 4);
    }
    OK(cuCtxSynchronize());
    for (unsigned i = first; i < mapped; i++) {
        pool_expect(pool_at(&pool, i), piece_bytes, i);
    }
    weights_pass(3);
    HOLDS(rig_streamed_mib() > 0);
}

/* Room for what comes is made in a few steps. */
static void within_the_budget(void)
{
    open_segment();
    load();
    rig_until_streamed(&rig);
    const unsigned plans = rig_plans();
    grow(24);
    HOLDS(rig_plans() - plans <= 6);
}

/* A weight that is larger than the budget is read in place under any plan, so it says nothing of the room there is. */
static void beside_a_weight_in_the_host(void)
{
    open_segment();
    load();
    load_one(48 * MIB);
    rig_until_streamed(&rig);
    const unsigned plans = rig_plans();
    grow(12);
    HOLDS(rig_plans() - plans <= 5);
}

static float timed_pass(void)
{
    CUevent begin, end;
    float ms;
    OK(cuEventCreate(&begin, 0));
    OK(cuEventCreate(&end, 0));
    OK(cuEventRecord(begin, rig.stream));
    rig_pass(&rig, NULL, 0);
    OK(cuEventRecord(end, rig.stream));
    OK(cuEventSynchronize(end));
    OK(cuEventElapsedTime(&ms, begin, end));
    return ms;
}

/* What the first launches of a kernel do is looked at in the weights that they name, not in all that lies behind. */
static void first_pass(void)
{
    open_segment();
    load();
    const float first = timed_pass(), second = timed_pass();
    if (first > 2 * second) {
        rig_fail(RIG_EXIT_SELF, "the first pass took %.2f ms, the second %.2f", (double)first, (double)second);
    }
}

#define CASE(name)  \
    {               \
#name, name \
    }

static const struct rig_case cases[] = {
    CASE(first_pass),
    CASE(within_the_budget),
    CASE(beside_a_weight_in_the_host),
};
RIG_MAIN(cases)
