/*
 * Host masters, whichever way their memory is had (OVERSHOT_PIN), and what happens when there is none: what kernels
 * read stays right, memory is given back, and a program that runs out of it is told.
 *
 * STORE_WAY: the way that the log has to name in the end. STORE_SAYS: what the log has to say.
 */
#include "rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 10 };
static const size_t weight_bytes = 4 * MIB;

static void open_streaming(struct rig *rig)
{
    rig_open_with(rig, COUNT, weight_bytes);
    rig_until_streamed(rig);
}

static void check_log(void)
{
    const char *way = getenv("STORE_WAY"), *says = getenv("STORE_SAYS");
    char text[64];
    if (way != NULL) {
        snprintf(text, sizeof text, "pinned by %s", strcmp(way, "auto") == 0 ? "hugepage" : way);
        HOLDS(rig_logged(text));
    }
    HOLDS(says == NULL || rig_logged(says));
    HOLDS(rig_logged("pages of host masters verified, 0 differ"));
}

static void finish(struct rig *rig)
{
    for (int pass = 0; pass < 3; pass++) {
        rig_pass(rig, NULL, 0);
    }
    check_log();
    rig_close(rig);
}

static void streams(void)
{
    struct rig rig;
    open_streaming(&rig);
    finish(&rig);
}

static void runs(void)
{
    struct rig rig;
    const char *says = getenv("STORE_SAYS");
    rig_open_with(&rig, COUNT, weight_bytes);
    for (int pass = 0; pass < 8; pass++) {
        rig_pass(&rig, NULL, 0);
    }
    HOLDS(says == NULL || rig_logged(says));
    rig_close(&rig);
}

static void read_weight(const struct rig *rig, unsigned index)
{
    static uint32_t bytes[MIB];
    OK(cuMemcpyDtoH(bytes, rig->weight[index].address, weight_bytes));
    rig_compare_bytes(&rig->weight[index], bytes, "read back");
}

/* A copy takes a unit out of the ring: what stands behind its address then is not where its master was. */
static void read_back(void)
{
    struct rig rig;
    open_streaming(&rig);
    for (unsigned i = 0; i < COUNT; i += 3) {
        read_weight(&rig, i);
        rig_pass(&rig, NULL, 0);
    }
    finish(&rig);
}

/* All of them, one after the other: as much host memory as there are weights, and never more than the limit. */
static void everything_read_back(void)
{
    struct rig rig;
    open_streaming(&rig);
    for (unsigned i = 0; i < COUNT; i++) {
        read_weight(&rig, i);
    }
    finish(&rig);
}

/* A kernel not seen before reads a weight, another writes one: each is tried on memory that is writable. */
static void trial_after_plan(void)
{
    struct rig rig;
    open_streaming(&rig);
    struct rig_weight *weight = &rig.weight[2];
    uint32_t value = 5;
    uint64_t words = weight->bytes / 4;
    CUdeviceptr copy;
    OK(cuMemAlloc(&copy, 2 * MIB));
    uint64_t some = MIB / 2;
    void *reads[] = {&rig.weight[5].address, &copy, &some};
    rig_launch(&rig, "probe_copy", rig.stream, reads);
    rig_pass(&rig, NULL, 0);
    void *writes[] = {&weight->address, &value, &words};
    rig_launch(&rig, "probe_increment", rig.stream, writes);
    for (size_t i = 0; i < words; i++) {
        weight->host[i] += value;
    }
    rig_changed(weight);
    rig_pass(&rig, NULL, 0);
    OK(cuMemFree(copy));
    finish(&rig);
}

/* Memory comes and goes: plans follow each other, masters are made and given back. */
static void replans(void)
{
    struct rig rig;
    open_streaming(&rig);
    for (int round = 0; round < 3; round++) {
        CUdeviceptr cache;
        OK(cuMemAlloc(&cache, 6 * MIB));
        OK(cuMemsetD32(cache, 7, 6 * MIB / 4));
        for (int pass = 0; pass < 3; pass++) {
            rig_pass(&rig, NULL, 0);
        }
        OK(cuMemFree(cache));
        for (int pass = 0; pass < 12; pass++) {
            rig_pass(&rig, NULL, 0);
        }
    }
    rig_drop(&rig, 1);
    rig_drop(&rig, 8);
    finish(&rig);
}

/* A child does nothing with its parent's memory, and ends. */
static void forks(void)
{
    struct rig rig;
    int status;
    open_streaming(&rig);
    const pid_t child = fork();
    if (child == 0) {
        exit(0);
    }
    HOLDS(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    read_weight(&rig, 4);
    finish(&rig);
}

/* An ordinary out of memory in the end, and what was allocated is right. */
static void loads_until_it_is_full(void)
{
    struct rig rig;
    CUdeviceptr more;
    CUresult result = CUDA_SUCCESS;
    unsigned fitted = 0;
    rig_open_with(&rig, 4, weight_bytes);
    while (fitted < 64 && (result = cuMemAlloc(&more, weight_bytes)) == CUDA_SUCCESS) {
        fitted++;
    }
    HOLDS(result == CUDA_ERROR_OUT_OF_MEMORY && fitted > 0);
    for (int pass = 0; pass < 4; pass++) {
        rig_pass(&rig, NULL, 0);
    }
    exit(0);
}

static bool is_memory_error(CUresult result)
{
    return result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY;
}

/* Every launch that the driver takes reads right bytes; the others say that memory is out. */
static void careful_pass(struct rig *rig)
{
    static uint32_t got[4096];
    unsigned launched[COUNT], count = 0;
    const CUfunction digest = rig_kernel(rig, "probe_digest");
    for (unsigned i = 0; i < rig->count; i++) {
        CUdeviceptr in = rig->weight[i].address, out = rig->out + 4 * i;
        uint64_t words = rig->weight[i].bytes / 4;
        void *params[] = {&in, &out, &words};
        const CUresult result = cuLaunchKernel(digest, 1, 1, 1, 32, 1, 1, 0, rig->stream, params, NULL);
        HOLDS(is_memory_error(result));
        if (result == CUDA_SUCCESS) {
            launched[count++] = i;
        }
    }
    OK(cuStreamSynchronize(rig->stream));
    OK(cuMemcpyDtoH(got, rig->out, sizeof got));
    rig_compare(rig, got, launched, count);
}

/* Every copy and every launch gives right bytes or says that memory is out. */
static void ends_with_an_error(void)
{
    struct rig rig;
    static uint32_t bytes[MIB];
    CUdeviceptr address;
    rig_open(&rig, 0);
    for (unsigned i = 0; i < COUNT; i++) {
        const CUresult result = cuMemAlloc(&address, weight_bytes);
        HOLDS(is_memory_error(result));
        if (result == CUDA_SUCCESS) {
            (void)rig_place(&rig, address, weight_bytes);
        }
    }
    HOLDS(rig.count > 2);
    for (int pass = 0; pass < 8; pass++) {
        careful_pass(&rig);
    }
    for (unsigned i = 0; i < rig.count; i++) {
        const CUresult result = cuMemcpyDtoH(bytes, rig.weight[i].address, weight_bytes);
        HOLDS(is_memory_error(result));
        if (result == CUDA_SUCCESS) {
            rig_compare_bytes(&rig.weight[i], bytes, "read back");
        }
    }
    careful_pass(&rig);
    exit(0);
}

/* One of several processes that run the same weights: says that it streams, goes on until its input ends. */
static void shares_until_told(void)
{
    struct rig rig;
    open_streaming(&rig);
    rig_pass(&rig, NULL, 0);
    printf("ready\n");
    fflush(stdout);
    while (getchar() != EOF) {
    }
    read_weight(&rig, 3); /* leaves the ring: from then on its own */
    finish(&rig);
}

static CUdevice used;

static void close_context(void)
{
    HOLDS(cuDevicePrimaryCtxRelease(used) == CUDA_ERROR_DEINITIALIZED);
}

/* The context is given back when the driver is gone already, as by libraries that do so at exit. */
static void closes_when_all_is_over(void)
{
    struct rig rig;
    HOLDS(atexit(close_context) == 0); /* before the driver's own: runs after it */
    open_streaming(&rig);
    rig_pass(&rig, NULL, 0);
    used = rig.device;
    exit(0);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(streams),
    CASE(runs),
    CASE(read_back),
    CASE(everything_read_back),
    CASE(trial_after_plan),
    CASE(replans),
    CASE(forks),
    CASE(loads_until_it_is_full),
    CASE(ends_with_an_error),
    CASE(shares_until_told),
    CASE(closes_when_all_is_over),
};
RIG_MAIN(cases)
