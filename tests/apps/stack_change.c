/*
 * stack_change.c: what happens to memory between passes: weights changed in place, freed and uploaded anew, read back;
 * cache and workspace growing. All on the main stream of device 0, so it needs no other ordering; only weights of
 * device 0 take part.
 *
 * When, to which weight and how follows from the seed. Each kind of change goes through its variants in turn.
 */
#include "stack_model.h"

#include <string.h>

enum change { CHANGE_WRITE, CHANGE_REALLOC, CHANGE_READ };

/* The n-th change of a kind concerns one weight of device 0, and happens before one pass. */
static uint64_t pass_of(const struct stack_model *model, enum change kind, uint64_t n)
{
    const uint64_t passes = model->options->passes;
    return passes < 2 ? 0 : 1 + stack_hash(model, 7000 + kind, n) % (passes - 1);
}

static struct stack_weight *weight_of(struct stack_model *model, enum change kind, uint64_t n)
{
    uint64_t k = stack_hash(model, 8000 + kind, n) % model->weight_count;
    while (!model->weight[k].address || model->weight[k].device != &model->device[0]) {
        k = (k + 1) % model->weight_count;
    }
    return &model->weight[k];
}

/* ---- Changes in place */

static void write_by_kernel(struct stack_model *model, struct stack_weight *weight, uint64_t n)
{
    const uint64_t half = n % 2 ? weight->bytes / 8 * 4 : 0;
    CUdeviceptr address = weight->address + half;
    uint64_t words = (weight->bytes - half) / 4;
    uint32_t salt = (uint32_t)n + 17;
    void *parameters[] = {&address, &words, &salt};
    stack_launch_kernel(&model->device[0], KERNEL_update, words, model->device[0].stream[0], parameters);
}

static void write_by_copy(struct stack_model *model, struct stack_weight *weight)
{
    struct stack_chunk *chunk = stack_chunk_new(model, weight->bytes, false);
    weight->version++;
    stack_content(model, weight->id, weight->version, chunk->bytes, weight->bytes);
    GPU(cuMemcpyHtoDAsync, weight->address, chunk->bytes, weight->bytes, model->device[0].stream[0]);
}

static void write_by_memset(struct stack_model *model, struct stack_weight *weight, uint64_t n)
{
    const uint64_t words = weight->bytes / 4;
    const uint64_t first = stack_hash(model, 9000, n) % words;
    const uint64_t count = words - first < 20000 ? words - first : 20000;
    GPU(cuMemsetD32Async, weight->address + 4 * first, (uint32_t)n + 3, count, model->device[0].stream[0]);
}

static void write_weight(struct stack_model *model, uint64_t n)
{
    struct stack_weight *weight = weight_of(model, CHANGE_WRITE, n);
    switch (n % 3) {
    case 0:
        write_by_kernel(model, weight, n);
        break;
    case 1:
        write_by_copy(model, weight);
        break;
    default:
        write_by_memset(model, weight, n);
        break;
    }
}

/* ---- Freed and uploaded anew */

static void borrow(struct stack_model *model, CUdeviceptr address)
{
    if (model->borrowed_count == sizeof model->borrowed / sizeof *model->borrowed) {
        stack_change_settle(model);
    }
    model->borrowed[model->borrowed_count++] = address;
}

void stack_change_settle(struct stack_model *model)
{
    stack_device_use(&model->device[0]);
    for (size_t i = 0; i < model->borrowed_count; i++) {
        stack_pool_give(&model->device[0].pool, model->borrowed[i]);
    }
    model->borrowed_count = 0;
}

/* Scratch of the weight's size, written by a kernel, where the weight was (if the pool reuses places). */
static void write_scratch(struct stack_model *model, uint64_t bytes)
{
    struct stack_device *device = &model->device[0];
    CUdeviceptr x = device->activation[0][0], scratch = stack_pool_take(&device->pool, bytes, "scratch");
    uint32_t width = (uint32_t)model->options->width;
    uint64_t words = bytes / 4;
    void *parameters[] = {&x, &width, &scratch, &words};
    stack_launch_kernel(device, KERNEL_scratch, words, device->stream[0], parameters);
    struct stack_chunk *seen = stack_chunk_new(model, 4, true);
    GPU(cuMemcpyDtoHAsync, seen->bytes, scratch + 4 * (words - 1), 4, device->stream[0]);
    borrow(model, scratch);
}

static void move_weight(struct stack_model *model, uint64_t n)
{
    struct stack_weight *weight = weight_of(model, CHANGE_REALLOC, n);
    struct stack_device *device = &model->device[0];
    stack_pool_give(&device->pool, weight->address);
    if (n % 3 != 2) {
        write_scratch(model, weight->bytes);
    }
    if (n % 2 == 1 && weight->bytes >= 16) {
        weight->bytes = weight->bytes / 8 * 4;
    }
    weight->address = stack_pool_take(&device->pool, weight->bytes, "a weight");
    write_by_copy(model, weight);
    for (uint64_t l = 0; l < model->launch_count; l++) {
        for (uint32_t k = 0; k < model->launch[l].count; k++) {
            if (&model->weight[model->launch[l].weight[k]] == weight) {
                stack_model_upload_addresses(model, &model->launch[l], device->stream[0]);
            }
        }
    }
    stack_graphs_moved(model);
}

/* ---- Read back */

static void read_directly(struct stack_model *model, CUdeviceptr address, uint64_t bytes)
{
    struct stack_chunk *chunk = stack_chunk_new(model, bytes, true);
    GPU(cuMemcpyDtoHAsync, chunk->bytes, address, bytes, model->device[0].stream[0]);
}

static void read_through_copy(struct stack_model *model, const struct stack_weight *weight)
{
    const CUdeviceptr copy = stack_pool_take(&model->device[0].pool, weight->bytes, "a copy of a weight");
    GPU(cuMemcpyDtoDAsync, copy, weight->address, weight->bytes, model->device[0].stream[0]);
    read_directly(model, copy, weight->bytes);
    borrow(model, copy);
}

/* The first KiB of every 4 KiB. */
static void read_rows(struct stack_model *model, const struct stack_weight *weight)
{
    const uint64_t rows = weight->bytes / 4096;
    struct stack_chunk *chunk = stack_chunk_new(model, 1024 * rows, true);
    CUDA_MEMCPY2D copy = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = weight->address,
        .srcPitch = 4096,
        .dstMemoryType = CU_MEMORYTYPE_HOST,
        .dstHost = chunk->bytes,
        .dstPitch = 1024,
        .WidthInBytes = 1024,
        .Height = rows,
    };
    GPU(cuMemcpy2DAsync, &copy, model->device[0].stream[0]);
}

static void read_weight(struct stack_model *model, uint64_t n)
{
    const struct stack_weight *weight = weight_of(model, CHANGE_READ, n);
    if (n % 3 == 1) {
        read_through_copy(model, weight);
    } else if (n % 3 == 2 && weight->bytes >= 4096) {
        read_rows(model, weight);
    } else {
        const uint64_t skip = stack_hash(model, 9500, n) % (weight->bytes / 4) * 4;
        read_directly(model, weight->address + skip, weight->bytes - skip);
    }
}

/* ---- Growth */

static void grow(struct stack_model *model)
{
    const struct stack_options *o = model->options;
    struct stack_device *device = &model->device[0];
    if (o->cache) {
        const uint64_t row_bytes = 4 * o->width, rows = o->cache / row_bytes;
        const CUdeviceptr old = model->cache;
        model->cache = stack_pool_take(&device->pool, row_bytes * rows, "a larger cache");
        GPU(cuMemcpyDtoDAsync, model->cache, old, row_bytes * model->cache_rows, device->stream[0]);
        GPU(cuStreamSynchronize, device->stream[0]);
        stack_pool_give(&device->pool, old);
        model->rows_used = model->rows_used < model->cache_rows ? model->rows_used : model->cache_rows;
        model->cache_rows = rows;
    }
    if (o->workspace) {
        model->workspace_bytes[1] = model->workspace_bytes[0];
        model->workspace[1] = stack_pool_take(&device->pool, model->workspace_bytes[1], "more workspace");
    }
}

void stack_change_before(struct stack_model *model, uint64_t pass)
{
    static void (*const make[])(struct stack_model *, uint64_t) = {
        [CHANGE_WRITE] = write_weight, [CHANGE_REALLOC] = move_weight, [CHANGE_READ] = read_weight};
    const struct stack_options *o = model->options;
    const uint64_t counts[] = {
        [CHANGE_WRITE] = o->late_writes, [CHANGE_REALLOC] = o->realloc, [CHANGE_READ] = o->readback};
    stack_device_use(&model->device[0]);
    stack_change_settle(model);
    for (int kind = CHANGE_WRITE; kind <= CHANGE_READ; kind++) {
        for (uint64_t n = 0; n < counts[kind]; n++) {
            if (pass_of(model, (enum change)kind, n) == pass) {
                make[kind](model, n);
            }
        }
    }
    if (o->grow && pass == o->passes / 2) {
        grow(model);
    }
}

/* With --readback, every weight's last content is part of the digest, read by the synchronous copy. */
void stack_change_finish(struct stack_model *model)
{
    GPU(cuStreamSynchronize, model->device[0].stream[0]);
    for (uint64_t k = 0; k < model->weight_count && model->options->readback; k++) {
        const struct stack_weight *weight = &model->weight[k];
        if (weight->address) {
            stack_device_use(weight->device);
            struct stack_chunk *chunk = stack_chunk_new(model, weight->bytes, true);
            GPU(cuMemcpyDtoH, chunk->bytes, weight->address, weight->bytes);
        }
    }
    stack_device_use(&model->device[0]);
}
