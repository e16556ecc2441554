/*
 * Several streams, threads, devices and contexts read the same weights at once, in every order.
 */
#include "rig.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COUNT = 8, MANY = 80 };
static const size_t weight_bytes = 4 * MIB;

static void read_out(struct rig *rig, uint32_t *got)
{
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH(got, rig->out, 4096 * 4));
}

/* One launch of each weight on each of `streams` streams, without any wait between them. */
static void on_streams(struct rig *rig, CUstream *stream, unsigned streams)
{
    static uint32_t got[4096];
    for (unsigned i = 0; i < COUNT; i++) {
        for (unsigned s = 0; s < streams; s++) {
            rig_read(rig, (i + s) % COUNT, s * COUNT + (i + s) % COUNT, stream[s]);
        }
    }
    read_out(rig, got);
    for (unsigned s = 0; s < streams; s++) {
        rig_compare(rig, got + s * COUNT, NULL, COUNT);
    }
}

static void concurrent(unsigned streams, int passes)
{
    struct rig rig;
    CUstream stream[MANY];
    rig_open_with(&rig, COUNT, weight_bytes);
    for (unsigned s = 0; s < streams; s++) {
        OK(cuStreamCreate(&stream[s], s % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    }
    for (int pass = 0; pass < passes; pass++) {
        on_streams(&rig, stream, streams);
    }
    HOLDS(rig_streamed_mib() > 0);
    for (unsigned s = 0; s < streams; s++) {
        OK(cuStreamDestroy(stream[s]));
    }
    rig_close(&rig);
}

static void two_streams(void)
{
    concurrent(2, 12);
}

/* More than the readers that a unit remembers. */
static void seven_streams(void)
{
    concurrent(7, 8);
}

/* More than the streams that the ring remembers. */
static void eighty_streams(void)
{
    concurrent(MANY, 4);
}

/* A stream's handle comes back as another stream. */
static void streams_come_and_go(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    for (int pass = 0; pass < 30; pass++) {
        CUstream stream[3];
        for (unsigned s = 0; s < 3; s++) {
            OK(cuStreamCreate(&stream[s], CU_STREAM_NON_BLOCKING));
        }
        on_streams(&rig, stream, 3);
        for (unsigned s = 0; s < 3; s++) {
            OK(cuStreamDestroy(stream[(s + (unsigned)pass) % 3]));
        }
    }
    HOLDS(rig_streamed_mib() > 0);
    rig_close(&rig);
}

/* Destroyed while its launches run. */
static void stream_destroyed_while_busy(void)
{
    struct rig rig;
    uint32_t got[4096];
    rig_open_with(&rig, COUNT, weight_bytes);
    for (int pass = 0; pass < 16; pass++) {
        for (unsigned i = 0; i < COUNT; i++) {
            CUstream stream;
            OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
            rig_read(&rig, i, i, stream);
            OK(cuStreamDestroy(stream));
        }
        read_out(&rig, got);
        rig_compare(&rig, got, NULL, COUNT);
    }
    HOLDS(rig_streamed_mib() > 0);
    rig_close(&rig);
}

/* The two default streams, which wait for others by rules of their own. */
static void default_streams(void)
{
    struct rig rig;
    CUstream blocking;
    rig_open_with(&rig, COUNT, weight_bytes);
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    CUstream stream[4] = {CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, NULL, blocking};
    for (int pass = 0; pass < 12; pass++) {
        on_streams(&rig, stream, 4);
    }
    HOLDS(rig_streamed_mib() > 0);
    OK(cuStreamDestroy(blocking));
    rig_close(&rig);
}

/* A program that never waits for the device: no quiet point but those that the launches themselves make. */
static void never_waits(void)
{
    struct rig rig;
    uint32_t got[4096];
    rig_open_with(&rig, COUNT, weight_bytes);
    for (unsigned pass = 0; pass < 3000; pass++) {
        for (unsigned i = 0; i < COUNT; i++) {
            CUdeviceptr in = rig.weight[i].address, out = rig.out + 8192;
            uint64_t words = 16;
            void *params[] = {&in, &out, &words};
            rig_launch(&rig, "probe_copy", rig.stream, params);
        }
    }
    for (unsigned i = 0; i < COUNT; i++) {
        rig_read(&rig, i, i, rig.stream);
    }
    read_out(&rig, got);
    rig_compare(&rig, got, NULL, COUNT);
    HOLDS(rig_streamed_mib() > 0);
    rig_close(&rig);
}

static void CUDA_CB tell(void *over)
{
    atomic_store((_Atomic bool *)over, true);
}

/* As JAX does: the driver is never asked what is over, it calls back. */
static void pass_told_by_host_function(const struct rig *rig)
{
    const struct timespec pause = {.tv_nsec = 3000000};
    _Atomic bool over = false;
    for (unsigned i = 0; i < COUNT; i++) {
        rig_read(rig, i, i, rig->stream);
    }
    OK(cuLaunchHostFunc(rig->stream, tell, &over));
    while (!atomic_load(&over)) {
        sched_yield();
    }
    nanosleep(&pause, NULL); /* the program looks at what it got */
}

/* In fewer launches than after which a program that never waits is stopped; and then passes are timed in far fewer. */
static void told_by_host_functions(void)
{
    struct rig rig;
    uint32_t got[4096];
    rig_open_with(&rig, COUNT, weight_bytes);
    for (unsigned launches = 0; launches < 3500 && rig_streamed_mib() == 0; launches += COUNT) {
        pass_told_by_host_function(&rig);
    }
    HOLDS(rig_streamed_mib() > 0);
    for (unsigned launches = 0; launches < 400 && !rig_logged("a pass computes"); launches += COUNT) {
        pass_told_by_host_function(&rig);
    }
    HOLDS(rig_logged("a pass computes"));
    read_out(&rig, got);
    rig_compare(&rig, got, NULL, COUNT);
    rig_close(&rig);
}

/* Slow kernels, a small ring, many rounds: every refill overtakes the readers if it is not held back. */
static void thousand_slow_rounds(void)
{
    struct rig rig;
    CUstream stream[2];
    CUdeviceptr out;
    const size_t slice = 64;
    uint32_t *got = calloc(1000 * slice, 4);
    rig_open(&rig, 0);
    OK(cuMemAlloc(&out, 1000 * slice * 4));
    for (unsigned i = 0; i < COUNT; i++) {
        (void)rig_add(&rig, weight_bytes);
    }
    rig_until_streamed(&rig);
    for (unsigned s = 0; s < 2; s++) {
        OK(cuStreamCreate(&stream[s], CU_STREAM_NON_BLOCKING));
    }
    for (unsigned round = 0; round < 1000; round++) {
        CUdeviceptr in = rig.weight[round % COUNT].address, to = out + 4 * slice * round;
        uint64_t words = slice;
        double microseconds = round % 3 == 0 ? 400 : 20;
        void *params[] = {&in, &to, &words, &microseconds};
        rig_launch(&rig, "probe_slow_copy", stream[round % 2], params);
    }
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH(got, out, 1000 * slice * 4));
    for (unsigned round = 0; round < 1000; round++) {
        if (memcmp(got + round * slice, rig.weight[round % COUNT].host, slice * 4) != 0) {
            rig_fail(RIG_EXIT_WRONG, "round %u read another weight", round);
        }
    }
    for (unsigned s = 0; s < 2; s++) {
        OK(cuStreamDestroy(stream[s]));
    }
    OK(cuMemFree(out));
    free(got);
    rig_close(&rig);
}

/* ---- Threads */

struct worker {
    struct rig *rig;
    CUdevice device;
    unsigned number;
    bool default_stream;
    int passes;
};

/* Reads all weights on a stream of its own, in an order of its own, comparing after each pass. */
static void *work(void *argument)
{
    const struct worker *worker = argument;
    struct rig *rig = worker->rig;
    CUstream stream = CU_STREAM_PER_THREAD;
    uint32_t *pinned;
    OK(cuCtxSetCurrent(rig->context));
    OK(cuMemAllocHost((void **)&pinned, 4 * COUNT));
    if (!worker->default_stream) {
        OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    }
    for (int pass = 0; pass < worker->passes; pass++) {
        for (unsigned i = 0; i < COUNT; i++) {
            const unsigned index = worker->number % 2 ? COUNT - 1 - i : (i + worker->number) % COUNT;
            rig_read(rig, index, 64 * worker->number + index, stream);
        }
        OK(cuMemcpyDtoHAsync(pinned, rig->out + 256 * worker->number, 4 * COUNT, stream));
        OK(cuStreamSynchronize(stream));
        for (unsigned i = 0; i < COUNT; i++) {
            if (pinned[i] != rig->weight[i].digest) {
                rig_fail(RIG_EXIT_WRONG, "thread %u, pass %d: weight %u is wrong", worker->number, pass, i);
            }
        }
    }
    if (!worker->default_stream) {
        OK(cuStreamDestroy(stream));
    }
    OK(cuMemFreeHost(pinned));
    return NULL;
}

static void with_threads(unsigned threads, bool default_stream)
{
    struct rig rig;
    pthread_t thread[16];
    struct worker worker[16];
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_pass(&rig, NULL, 0); /* digests */
    for (unsigned t = 0; t < threads; t++) {
        worker[t] = (struct worker){.rig = &rig, .number = t, .default_stream = default_stream, .passes = 20};
        HOLDS(pthread_create(&thread[t], NULL, work, &worker[t]) == 0);
    }
    for (unsigned t = 0; t < threads; t++) {
        pthread_join(thread[t], NULL);
    }
    HOLDS(rig_streamed_mib() > 0);
    rig_close(&rig);
}

static void four_threads(void)
{
    with_threads(4, false);
}

static void threads_with_default_streams(void)
{
    with_threads(3, true);
}

/* Threads that only allocate and free, while others read. */
static void *churn(void *argument)
{
    const struct worker *worker = argument;
    OK(cuCtxSetCurrent(worker->rig->context));
    for (int round = 0; round < 40; round++) {
        CUdeviceptr large, small;
        OK(cuMemAlloc(&large, 2 * MIB + 4096));
        OK(cuMemAlloc(&small, 1000));
        OK(cuMemsetD32(large, 7, 1024));
        OK(cuMemFree(small));
        OK(cuMemFree(large));
    }
    return NULL;
}

static void allocations_meanwhile(void)
{
    struct rig rig;
    pthread_t thread[3];
    struct worker worker[3];
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_pass(&rig, NULL, 0);
    for (unsigned t = 0; t < 3; t++) {
        worker[t] = (struct worker){.rig = &rig, .number = t, .passes = 16};
        HOLDS(pthread_create(&thread[t], NULL, t == 2 ? churn : work, &worker[t]) == 0);
    }
    for (unsigned t = 0; t < 3; t++) {
        pthread_join(thread[t], NULL);
    }
    rig_close(&rig);
}

/* ---- Devices and contexts */

/* Two devices, interleaved on one thread. */
static void two_devices(void)
{
    struct rig rig[2];
    for (int d = 0; d < 2; d++) {
        rig_open(&rig[d], d);
        for (unsigned i = 0; i < COUNT; i++) {
            (void)rig_add(&rig[d], weight_bytes);
        }
    }
    for (int pass = 0; pass < 14; pass++) {
        for (int d = 0; d < 2; d++) {
            OK(cuCtxSetCurrent(rig[d].context));
            rig_pass(&rig[d], NULL, 0);
        }
    }
    HOLDS(rig_streamed_mib() >= 32);
    rig_close(&rig[1]);
    rig_close(&rig[0]);
}

/* The other device reads this one's streamed weights in place. */
static void peer_reads(void)
{
    struct rig rig[2];
    uint32_t got;
    rig_open(&rig[1], 1);
    rig_open(&rig[0], 0);
    for (unsigned i = 0; i < COUNT; i++) {
        (void)rig_add(&rig[0], weight_bytes);
    }
    OK(cuCtxSetCurrent(rig[1].context));
    OK(cuCtxEnablePeerAccess(rig[0].context, 0));
    OK(cuCtxSetCurrent(rig[0].context));
    rig_until_streamed(&rig[0]);
    for (unsigned round = 0; round < 2 * COUNT; round++) {
        struct rig_weight *weight = &rig[0].weight[round % COUNT];
        OK(cuCtxSetCurrent(rig[1].context));
        uint64_t words = weight->bytes / 4;
        void *params[] = {&weight->address, &rig[1].out, &words};
        rig_launch(&rig[1], "probe_digest", rig[1].stream, params);
        OK(cuStreamSynchronize(rig[1].stream));
        OK(cuMemcpyDtoH(&got, rig[1].out, 4));
        if (got != weight->digest) {
            rig_fail(RIG_EXIT_WRONG, "the neighbour read other bytes of weight %u", round % COUNT);
        }
        OK(cuCtxSetCurrent(rig[0].context));
        rig_pass(&rig[0], NULL, 0);
    }
    rig_close(&rig[0]);
    rig_close(&rig[1]);
}

static CUcontext new_context(CUdevice device)
{
    CUcontext context;
#if CUDA_VERSION >= 13000
    OK(cuCtxCreate(&context, NULL, 0, device));
#else
    OK(cuCtxCreate(&context, 0, device));
#endif
    return context;
}

/* A second context of the device reads weights that the first one's engine streams. */
static void second_context_reads(void)
{
    struct rig rig;
    uint32_t got;
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_until_streamed(&rig);
    CUcontext other = new_context(rig.device);
    struct gpu_image image = gpu_image_load("probe", GPU_LOAD_MODULE);
    const CUfunction digest = gpu_image_kernel(&image, "probe_digest");
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned round = 0; round < 2 * COUNT; round++) {
        struct rig_weight *weight = &rig.weight[(round * 3) % COUNT];
        OK(cuCtxSetCurrent(other));
        CUdeviceptr out = rig.out + 8192;
        uint64_t words = weight->bytes / 4;
        void *params[] = {&weight->address, &out, &words};
        OK(cuLaunchKernel(digest, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
        OK(cuStreamSynchronize(stream));
        OK(cuMemcpyDtoH(&got, out, 4));
        if (got != weight->digest) {
            rig_fail(RIG_EXIT_WRONG, "the second context read other bytes of weight %u", (round * 3) % COUNT);
        }
        OK(cuCtxSetCurrent(rig.context));
        rig_pass(&rig, NULL, 0);
    }
    OK(cuCtxSetCurrent(other));
    gpu_image_unload(&image);
    OK(cuCtxDestroy(other));
    OK(cuCtxSetCurrent(rig.context));
    rig_close(&rig);
}

/* A context destroyed with everything in it, and made again, several times. */
static void context_made_again(void)
{
    for (int life = 0; life < 3; life++) {
        struct rig rig;
        rig_open_with(&rig, COUNT, weight_bytes);
        const unsigned before = rig_plans();
        for (int pass = 0; pass < 10; pass++) {
            rig_pass(&rig, NULL, 0);
        }
        HOLDS(rig_plans() > before && rig_streamed_mib() > 0);
        if (life == 1) {
            rig_close(&rig);
        } else {
            OK(cuDevicePrimaryCtxReset(rig.device));
            OK(cuDevicePrimaryCtxRelease(rig.device));
            rig_forget(&rig);
        }
    }
}

/* The same with contexts of the program's own. */
static void own_context_made_again(void)
{
    OK(cuInit(0));
    for (int life = 0; life < 3; life++) {
        struct rig rig;
        memset(&rig, 0, sizeof rig);
        gpu_open("own_context_made_again", GPU_ENTRY_LINK);
        rig.context = new_context(0);
        rig.image = gpu_image_load("probe", GPU_LOAD_MODULE);
        OK(cuStreamCreate(&rig.stream, CU_STREAM_NON_BLOCKING));
        OK(cuMemAlloc(&rig.out, 4096 * 4));
        OK(cuMemsetD32(rig.out, 0, 4096));
        OK(cuCtxSynchronize());
        for (unsigned i = 0; i < COUNT; i++) {
            (void)rig_add(&rig, weight_bytes);
        }
        const unsigned before = rig_plans();
        for (int pass = 0; pass < 10; pass++) {
            rig_pass(&rig, NULL, 0);
        }
        HOLDS(rig_plans() > before && rig_streamed_mib() > 0);
        CUcontext borrowed; /* by a library, for a moment */
        OK(cuDevicePrimaryCtxRetain(&borrowed, 0));
        OK(cuDevicePrimaryCtxRelease(0));
        HOLDS(rig_streamed_mib() > 0);
        rig_pass(&rig, NULL, 0);
        OK(cuCtxDestroy(rig.context));
        rig_forget(&rig);
    }
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(two_streams),
    CASE(seven_streams),
    CASE(eighty_streams),
    CASE(streams_come_and_go),
    CASE(stream_destroyed_while_busy),
    CASE(default_streams),
    CASE(never_waits),
    CASE(told_by_host_functions),
    CASE(thousand_slow_rounds),
    CASE(four_threads),
    CASE(threads_with_default_streams),
    CASE(allocations_meanwhile),
    CASE(two_devices),
    CASE(peer_reads),
    CASE(second_context_reads),
    CASE(context_made_again),
    CASE(own_context_made_again),
};
RIG_MAIN(cases)
