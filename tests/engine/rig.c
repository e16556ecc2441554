#include "rig.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OUT_WORDS = 4096, PATIENCE_PASSES = 24 };

static const char *case_name = "";

void rig_fail(int status, const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    fprintf(stderr, "%s: %s\n", case_name, line);
    exit(status);
}

void rig_ok(CUresult result, const char *call, int line)
{
    if (result != CUDA_SUCCESS) {
        rig_fail(result == CUDA_ERROR_OUT_OF_MEMORY ? RIG_EXIT_MEMORY : RIG_EXIT_DRIVER, "line %d: %s: error %d", line,
                 call, (int)result);
    }
}

int rig_main(int argc, char **argv, const struct rig_case *cases, size_t count)
{
    for (size_t i = 0; argc >= 2 && i < count; i++) {
        if (strcmp(argv[1], cases[i].name) == 0) {
            case_name = cases[i].name;
            cases[i].run();
            return 0;
        }
    }
    fprintf(stderr, "usage: %s CASE; cases:\n", argv[0]);
    for (size_t i = 0; i < count; i++) {
        fprintf(stderr, "  %s\n", cases[i].name);
    }
    return RIG_EXIT_SELF;
}

/* ---- Life */

void rig_open(struct rig *rig, int ordinal)
{
    static bool open;
    memset(rig, 0, sizeof *rig);
    if (!open) {
        gpu_open(case_name, GPU_ENTRY_LINK);
        open = true;
    }
    OK(cuDeviceGet(&rig->device, ordinal));
    OK(cuDevicePrimaryCtxRetain(&rig->context, rig->device));
    OK(cuCtxSetCurrent(rig->context));
    rig->image = gpu_image_load("probe", GPU_LOAD_MODULE);
    OK(cuStreamCreate(&rig->stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&rig->out, OUT_WORDS * 4));
    OK(cuMemsetD32(rig->out, 0, OUT_WORDS));
    OK(cuCtxSynchronize());
}

void rig_open_with(struct rig *rig, unsigned count, size_t bytes)
{
    rig_open(rig, 0);
    for (unsigned i = 0; i < count; i++) {
        (void)rig_add(rig, bytes);
    }
}

void rig_close(struct rig *rig)
{
    OK(cuCtxSetCurrent(rig->context));
    OK(cuCtxSynchronize());
    for (unsigned i = 0; i < rig->count; i++) {
        if (rig->weight[i].address != 0) {
            rig_drop(rig, i);
        }
    }
    OK(cuMemFree(rig->out));
    OK(cuStreamDestroy(rig->stream));
    gpu_image_unload(&rig->image);
    OK(cuDevicePrimaryCtxRelease(rig->device));
    rig_forget(rig);
}

void rig_forget(struct rig *rig)
{
    for (unsigned i = 0; i < rig->count; i++) {
        free(rig->weight[i].host);
    }
    free(rig->image.bytes);
    memset(rig, 0, sizeof *rig);
}

CUfunction rig_kernel(const struct rig *rig, const char *name)
{
    CUfunction function;
    OK(cuModuleGetFunction(&function, rig->image.module, name));
    return function;
}

/* ---- Weights */

void rig_changed(struct rig_weight *weight)
{
    weight->fresh = false;
}

static struct rig_weight *new_weight(struct rig *rig, CUdeviceptr address, size_t bytes)
{
    if (rig->count == RIG_WEIGHTS) {
        rig_fail(RIG_EXIT_SELF, "too many weights");
    }
    struct rig_weight *weight = &rig->weight[rig->count];
    *weight = (struct rig_weight){.address = address, .bytes = bytes, .host = calloc(bytes / 4 + 1, 4)};
    if (weight->host == NULL) {
        rig_fail(RIG_EXIT_SELF, "out of host memory");
    }
    rig->count++;
    return weight;
}

unsigned rig_add(struct rig *rig, size_t bytes)
{
    CUdeviceptr address;
    OK(cuMemAlloc(&address, bytes));
    return rig_place(rig, address, bytes);
}

unsigned rig_add_zeroed(struct rig *rig, size_t bytes)
{
    CUdeviceptr address;
    OK(cuMemAlloc(&address, bytes));
    OK(cuMemsetD8(address, 0, bytes));
    OK(cuCtxSynchronize());
    (void)new_weight(rig, address, bytes);
    return rig->count - 1;
}

unsigned rig_adopt(struct rig *rig, CUdeviceptr address, size_t bytes)
{
    rig_refill(new_weight(rig, address, bytes));
    return rig->count - 1;
}

unsigned rig_place(struct rig *rig, CUdeviceptr address, size_t bytes)
{
    const unsigned index = rig_adopt(rig, address, bytes);
    OK(cuMemcpyHtoD(address, rig->weight[index].host, bytes));
    return index;
}

void rig_drop(struct rig *rig, unsigned index)
{
    struct rig_weight *weight = &rig->weight[index];
    OK(cuMemFree(weight->address));
    free(weight->host);
    *weight = (struct rig_weight){0};
}

/* ---- Launches */

void rig_launch(const struct rig *rig, const char *name, CUstream stream, void **params)
{
    OK(cuLaunchKernel(rig_kernel(rig, name), 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
}

void rig_read(const struct rig *rig, unsigned index, unsigned slot, CUstream stream)
{
    const struct rig_weight *weight = &rig->weight[index];
    CUdeviceptr in = weight->address, out = rig->out + 4 * slot;
    uint64_t words = weight->bytes / 4;
    void *params[] = {&in, &out, &words};
    rig_launch(rig, "probe_digest", stream, params);
}

void rig_compare(struct rig *rig, const uint32_t *got, const unsigned *order, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        const unsigned index = order != NULL ? order[i] : i;
        struct rig_weight *weight = &rig->weight[index];
        if (weight->address == 0) {
            continue;
        }
        if (!weight->fresh) {
            weight->digest = rig_digest(weight->host, weight->bytes / 4);
            weight->fresh = true;
        }
        if (got[index] != weight->digest) {
            rig_fail(RIG_EXIT_WRONG, "weight %u: a kernel read other bytes than it holds", index);
        }
    }
}

void rig_pass(struct rig *rig, const unsigned *order, unsigned count)
{
    uint32_t got[OUT_WORDS];
    count = order != NULL ? count : rig->count;
    for (unsigned i = 0; i < count; i++) {
        const unsigned index = order != NULL ? order[i] : i;
        if (rig->weight[index].address != 0) {
            rig_read(rig, index, index, rig->stream);
        }
    }
    OK(cuStreamSynchronize(rig->stream));
    OK(cuMemcpyDtoH(got, rig->out, sizeof got));
    rig_compare(rig, got, order, count);
}

void rig_compare_bytes(const struct rig_weight *weight, const void *bytes, const char *how)
{
    if (memcmp(bytes, weight->host, weight->bytes / 4 * 4) != 0) {
        rig_fail(RIG_EXIT_WRONG, "%s: other bytes than the weight holds", how);
    }
}

/* ---- The log */

/* Calls line() for each line until it returns true. */
static bool search_log(bool (*line)(const char *text, void *context), void *context)
{
    const char *path = getenv("OVERSHOT_LOG_FILE");
    FILE *file = path != NULL ? fopen(path, "r") : NULL;
    char text[1024];
    bool found = false;
    while (file != NULL && !found && fgets(text, sizeof text, file) != NULL) {
        found = line(text, context);
    }
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

struct newest {
    unsigned plans;
    size_t streamed_mib[16];
};

static bool note_plan(const char *text, void *context)
{
    struct newest *newest = context;
    unsigned device, plan;
    size_t resident_mib, streamed_mib;
    if (sscanf(text, "overshot: device %u, plan %u: %zu MiB of weights resident, %zu streamed", &device, &plan,
               &resident_mib, &streamed_mib) == 4 &&
        device < 16) {
        newest->plans++;
        newest->streamed_mib[device] = streamed_mib;
    }
    return false;
}

static struct newest newest_plan(void)
{
    struct newest newest = {0};
    (void)search_log(note_plan, &newest);
    return newest;
}

size_t rig_streamed_mib(void)
{
    const struct newest newest = newest_plan();
    size_t sum = 0;
    for (int device = 0; device < 16; device++) {
        sum += newest.streamed_mib[device];
    }
    return sum;
}

unsigned rig_plans(void)
{
    return newest_plan().plans;
}

static bool contains(const char *text, void *context)
{
    return strstr(text, context) != NULL;
}

bool rig_logged(const char *text)
{
    char wanted[256];
    snprintf(wanted, sizeof wanted, "%s", text);
    return search_log(contains, wanted);
}

struct count {
    const char *text;
    unsigned lines;
};

static bool count_line(const char *text, void *context)
{
    struct count *count = context;
    count->lines += strstr(text, count->text) != NULL;
    return false;
}

unsigned rig_times_logged(const char *text)
{
    struct count count = {text, 0};
    (void)search_log(count_line, &count);
    return count.lines;
}

void rig_until_streamed(struct rig *rig)
{
    for (int pass = 0; pass < PATIENCE_PASSES; pass++) {
        rig_pass(rig, NULL, 0);
        if (rig_streamed_mib() > 0) {
            rig_pass(rig, NULL, 0);
            return;
        }
    }
    rig_fail(RIG_EXIT_SELF, "nothing was streamed in %d passes", PATIENCE_PASSES);
}
