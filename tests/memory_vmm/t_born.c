/* Weights in one mapped handle that kernels write, as JAX makes them: where they lie was never told by a copy. */
#include <stdatomic.h>
#include <time.h>

#include "weights.h"

enum { COUNT = 12, OVER = 5 };
static const size_t weight_bytes = 4 * MIB;
static CUdeviceptr base, staging, small_out;
static CUmemGenericAllocationHandle arena;
static size_t arena_bytes;

static void open_arena(void)
{
    size_t free_bytes, total_bytes;
    rig_open(&rig, 0);
    OK(cuMemGetInfo(&free_bytes, &total_bytes));
    arena_bytes = total_bytes * 3 / 4 / PAGE * PAGE;
    staging = pool_reserve(arena_bytes);
    arena = pool_handle(arena_bytes);
    pool_show(staging, arena_bytes, arena);
    base = staging + 8 * MIB;
    small_out = rig.out;
    rig.out = staging + 6 * MIB; /* everything is in the arena */
}

static void close_arena(void)
{
    pool_forget(&rig);
    rig.out = small_out;
    OK(cuMemUnmap(staging, arena_bytes));
    OK(cuMemRelease(arena));
    OK(cuMemAddressFree(staging, arena_bytes));
    rig_close(&rig);
}

static void copy(CUdeviceptr in, CUdeviceptr out, size_t bytes)
{
    uint64_t words = bytes / 4;
    void *params[] = {&in, &out, &words};
    rig_launch(&rig, "probe_copy", rig.stream, params);
}

/* Uploaded beside them, and written by a kernel in steps of `step`. */
static void write_weight(unsigned index, size_t step)
{
    const struct rig_weight *weight = &rig.weight[index];
    OK(cuMemcpyHtoD(staging, weight->host, weight->bytes));
    for (size_t at = 0; at < weight->bytes; at += step) {
        copy(staging + at, weight->address + at, step);
    }
    OK(cuCtxSynchronize());
}

static void write_all(size_t step)
{
    for (unsigned i = 0; i < COUNT; i++) {
        write_weight(rig_adopt(&rig, base + i * weight_bytes, weight_bytes), step);
    }
}

/* The time that the library sees: a microsecond more with every look at the clock, so that nothing rests on how busy
 * the machine is. */
static _Atomic int64_t now_ns = 1000000000;

int clock_gettime(clockid_t clock, struct timespec *time)
{
    (void)clock;
    const int64_t now = atomic_fetch_add(&now_ns, 1000) + 1000;
    *time = (struct timespec){.tv_sec = now / 1000000000, .tv_nsec = now % 1000000000};
    return 0;
}

/* New memory is looked at in a tenth of the time. */
static void be_looked_at(void)
{
    now_ns += 1000000000;
    OK(cuCtxSynchronize());
}

static void work(int passes)
{
    for (int pass = 0; pass < passes; pass++) {
        weights_fill(staging, (uint32_t)pass, 2 * MIB / 4); /* activations, where the uploads were */
        rig_pass(&rig, NULL, 0);
        pool_expect(staging, 2 * MIB, (uint32_t)pass);
    }
}

/* The log begins anew when a part turns out to be read in part, and each study takes twice the launches. */
static void work_until_streamed(void)
{
    be_looked_at();
    for (int pass = 0; pass < 240 && rig_streamed_mib() < 12; pass++) {
        work(1);
    }
    HOLDS(rig_streamed_mib() >= 12);
}

/* Each is a unit. */
static void each_is_a_unit(void)
{
    open_arena();
    write_all(weight_bytes);
    work_until_streamed();
    work(4);
    close_arena();
}

/* A kernel writes half of each at a time, and but for once only the whole is read: it is one thing. */
static void written_by_halves(void)
{
    open_arena();
    write_all(weight_bytes / 2);
    be_looked_at();
    for (unsigned i = 0; i < COUNT; i++) {
        copy(rig.weight[i].address + weight_bytes / 2, staging, weight_bytes / 2);
    }
    work_until_streamed();
    work(4);
    close_arena();
}

/* A kernel once began to write in the middle of what is a weight now, and what it wrote was read there. */
static CUdeviceptr older_one(void)
{
    const CUdeviceptr middle = base + OVER * weight_bytes + 2 * MIB;
    copy(base, middle, 2 * MIB);
    for (unsigned i = 0; i < 6; i++) {
        copy(middle, staging, 2 * MIB);
    }
    OK(cuCtxSynchronize());
    return middle;
}

/* Its place is passed by itself later, too: the second half of the weight. */
static void work_beside(CUdeviceptr middle)
{
    unsigned streamed = 0;
    be_looked_at();
    for (int pass = 0; pass < 48 && streamed < 6; pass++) {
        copy(middle, staging, 2 * MIB);
        work(1);
        streamed += rig_streamed_mib() > 0;
    }
    HOLDS(streamed == 6);
    close_arena();
}

static void over_an_older_one(void)
{
    open_arena();
    const CUdeviceptr middle = older_one();
    write_all(weight_bytes);
    work_beside(middle);
}

#define CASE(name)  \
    {               \
#name, name \
    }

static const struct rig_case cases[] = {
    CASE(each_is_a_unit),
    CASE(written_by_halves),
    CASE(over_an_older_one),
};
RIG_MAIN(cases)
