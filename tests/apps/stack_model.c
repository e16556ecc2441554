#include "stack_model.h"
#include "stack_wait.h"

#include <stdlib.h>
#include <string.h>

uint64_t stack_hash(const struct stack_model *model, uint64_t a, uint64_t b)
{
    uint64_t z = model->seed * 0x9E3779B97F4A7C15u + a * 0xD6E8FEB86659FD93u + b * 0xA0761D6478BD642Fu + 1;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

uint64_t stack_digest(uint64_t digest, const void *bytes, uint64_t count)
{
    const unsigned char *at = bytes;
    while (count > 0) {
        uint64_t word = 0;
        const size_t step = count < sizeof word ? (size_t)count : sizeof word;
        memcpy(&word, at, step);
        digest = (digest ^ word ^ step) * 0x9FB21C651E98DF25u;
        digest ^= digest >> 32;
        at += step;
        count -= step;
    }
    return digest;
}

void stack_content(const struct stack_model *model, uint64_t id, uint64_t version, void *bytes, uint64_t count)
{
    uint64_t state = stack_hash(model, id, version) | 1;
    unsigned char *at = bytes;
    while (count > 0) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        const size_t step = count < sizeof state ? (size_t)count : sizeof state;
        memcpy(at, &state, step);
        at += step;
        count -= step;
    }
}

void stack_device_use(const struct stack_device *device)
{
    GPU(cuCtxSetCurrent, device->context);
}

static void *zeroed(uint64_t count, size_t size)
{
    void *memory = calloc((size_t)(count ? count : 1), size);
    if (!memory) {
        gpu_die("out of host memory");
    }
    return memory;
}

/* Room for `bytes` in the newest slab, or in a new one. */
static void *pinned_room(struct stack_model *model, uint64_t bytes)
{
    const uint64_t standard_bytes = 2u << 20, rounded = (bytes + 63) / 64 * 64;
    struct stack_slab *slab = model->slab;
    if (!slab || slab->size - slab->used < rounded) {
        slab = zeroed(1, sizeof *slab);
        slab->size = rounded > standard_bytes ? rounded : standard_bytes;
        GPU(cuMemAllocHost, &slab->bytes, slab->size);
        slab->older = model->slab;
        model->slab = slab;
    }
    void *room = (char *)slab->bytes + slab->used;
    slab->used += rounded;
    return room;
}

struct stack_chunk *stack_chunk_new(struct stack_model *model, uint64_t bytes, bool digested)
{
    struct stack_chunk *chunk = zeroed(1, sizeof *chunk);
    chunk->bytes = pinned_room(model, bytes);
    chunk->size = bytes;
    chunk->digested = digested;
    *model->last_chunk = chunk;
    model->last_chunk = &chunk->next;
    return chunk;
}

/* ---- Shape: which weights there are, and which launch reads which. No driver call. */

static void shape_weights(struct stack_model *model)
{
    const struct stack_options *o = model->options;
    model->weight_count = o->layers * o->weights;
    model->weight = zeroed(model->weight_count, sizeof *model->weight);
    for (uint64_t k = 0; k < model->weight_count; k++) {
        const uint64_t layer = k / o->weights;
        model->weight[k] = (struct stack_weight){
            .device = &model->device[layer * o->devices / o->layers],
            .bytes = stack_weight_bytes(o, k),
            .id = k,
        };
    }
}

static enum stack_pointers style_of(const struct stack_model *model, uint64_t layer)
{
    const enum stack_pointers chosen = (enum stack_pointers)model->options->pointers;
    return chosen == POINTERS_MIX ? (enum stack_pointers)((layer + model->seed) % POINTERS_MIX) : chosen;
}

static bool is_tied(const struct stack_model *model, uint64_t k)
{
    const struct stack_options *o = model->options;
    return o->tied && o->layers > 1 && o->devices == 1 && k == (o->layers - 1) * o->weights;
}

static void shape_launches(struct stack_model *model)
{
    const struct stack_options *o = model->options;
    model->launch = zeroed(model->weight_count, sizeof *model->launch);
    for (uint64_t layer = 0; layer < o->layers; layer++) {
        const enum stack_pointers style = style_of(model, layer);
        const bool single = style == POINTERS_DESCRIPTOR || style == POINTERS_STORED;
        const uint64_t most = single ? 1 : o->fused;
        for (uint64_t done = 0; done < o->weights;) {
            struct stack_launch *launch = &model->launch[model->launch_count];
            *launch = (struct stack_launch){.index = model->launch_count++, .layer = layer, .style = style};
            launch->salt = (uint32_t)stack_hash(model, 1000 + launch->index, 0);
            for (; launch->count < most && done < o->weights; done++) {
                const uint64_t k = layer * o->weights + done;
                launch->weight[launch->count++] = is_tied(model, k) ? 0 : (uint32_t)k;
            }
        }
    }
}

static void shape_order(struct stack_model *model)
{
    const uint64_t layers = model->options->layers;
    model->order = zeroed(layers, sizeof *model->order);
    for (uint64_t i = 0; i < layers; i++) {
        model->order[i] = model->options->order == ORDER_REVERSE ? layers - 1 - i : i;
    }
    if (model->options->order == ORDER_SEQUENTIAL || model->options->order == ORDER_REVERSE) {
        return;
    }
    for (uint64_t i = layers - 1; i > 0; i--) {
        const uint64_t other = stack_hash(model, 2000, i) % (i + 1);
        const uint64_t kept = model->order[i];
        model->order[i] = model->order[other];
        model->order[other] = kept;
    }
}

/* ---- Devices */

static void open_device(struct stack_model *model, struct stack_device *device, int ordinal)
{
    static const char *const names[] = {
#define STACK_KERNEL_NAME(name) "stack_" #name,
        STACK_KERNELS(STACK_KERNEL_NAME)
#undef STACK_KERNEL_NAME
    };
    const struct stack_options *o = model->options;
    GPU(cuDeviceGet, &device->handle, ordinal);
    GPU(cuDevicePrimaryCtxRetain, &device->context, device->handle);
    stack_device_use(device);
    device->image = gpu_image_load("stack", (enum gpu_load)o->load);
    for (int k = 0; k < KERNEL_COUNT; k++) {
        device->kernel[k] = gpu_image_kernel(&device->image, names[k]);
    }
    for (uint64_t s = 0; s < o->streams; s++) {
        GPU(cuStreamCreate, &device->stream[s], CU_STREAM_NON_BLOCKING);
        GPU(cuEventCreate, &device->tail[s], CU_EVENT_DISABLE_TIMING);
    }
    uint64_t known = 0;
    for (uint64_t k = 0; k < model->weight_count; k++) {
        known += model->weight[k].device == device ? stack_pool_rounded(ALLOC_ONE, model->weight[k].bytes) : 0;
    }
    stack_pool_open(&device->pool, (enum stack_alloc)o->alloc, known);
}

/* Small buffers; among the weights when the pool shares segments, as in real programs. */
static void open_buffers(struct stack_model *model, struct stack_device *device)
{
    const struct stack_options *o = model->options;
    struct stack_pool *pool = &device->pool;
    for (uint64_t lane = 0; lane < o->lanes; lane++) {
        for (int side = 0; side < 2; side++) {
            device->activation[lane][side] = stack_pool_take(pool, 4 * o->width, "activations");
        }
    }
    const uint64_t entry = STACK_FUSED * sizeof(uint64_t);
    device->tables = stack_pool_take(pool, model->launch_count * entry, "pointer tables");
    device->descriptors = stack_pool_take(pool, model->launch_count * STACK_DESCRIPTOR_BYTES, "descriptors");
    device->scratch = stack_pool_take(pool, o->lanes * model->launch_count * entry, "computed pointers");
}

static void open_host_tables(struct stack_model *model)
{
    const struct stack_options *o = model->options;
    struct stack_host_tables *tables = &model->host_tables;
    const size_t bytes = o->passes * o->lanes * model->launch_count * STACK_FUSED * sizeof(uint64_t);
    if (o->pointers == POINTERS_PINNED) {
        void *host;
        GPU(cuMemAllocHost, &host, bytes);
        GPU(cuMemHostGetDevicePointer, &tables->address, host, 0);
        tables->host = host;
    } else if (o->pointers == POINTERS_MANAGED) {
        GPU(cuMemAllocManaged, &tables->managed, bytes, CU_MEM_ATTACH_GLOBAL);
        tables->address = tables->managed;
        tables->host = (uint64_t *)(uintptr_t)tables->managed;
    }
}

static void close_host_tables(struct stack_model *model)
{
    if (model->host_tables.managed) {
        GPU(cuMemFree, model->host_tables.managed);
    } else if (model->host_tables.host) {
        GPU(cuMemFreeHost, model->host_tables.host);
    }
}

static void close_device(struct stack_model *model, struct stack_device *device)
{
    const struct stack_options *o = model->options;
    stack_device_use(device);
    for (uint64_t lane = 0; lane < o->lanes; lane++) {
        stack_pool_give(&device->pool, device->activation[lane][0]);
        stack_pool_give(&device->pool, device->activation[lane][1]);
    }
    stack_pool_give(&device->pool, device->tables);
    stack_pool_give(&device->pool, device->descriptors);
    stack_pool_give(&device->pool, device->scratch);
    stack_pool_close(&device->pool);
    for (uint64_t s = 0; s < o->streams; s++) {
        GPU(cuStreamDestroy, device->stream[s]);
        GPU(cuEventDestroy, device->tail[s]);
    }
    gpu_image_unload(&device->image);
    GPU(cuDevicePrimaryCtxRelease, device->handle);
}

/* ---- Content */

/* Uploads `count` bytes of what (id, version 0) holds. */
static void upload(struct stack_model *model, const struct stack_device *device, CUdeviceptr address, uint64_t id,
                   uint64_t count)
{
    const bool pinned = model->options->upload == UPLOAD_ASYNC;
    void *bytes = pinned ? stack_chunk_new(model, count, false)->bytes : malloc((size_t)count);
    if (!bytes) {
        gpu_die("out of host memory");
    }
    stack_content(model, id, 0, bytes, count);
    if (pinned) {
        GPU(cuMemcpyHtoDAsync, address, bytes, count, device->stream[0]);
        return;
    }
    GPU(cuMemcpyHtoD, address, bytes, count);
    free(bytes);
}

static void upload_weights(struct stack_model *model)
{
    for (uint64_t k = 0; k < model->weight_count; k++) {
        struct stack_weight *weight = &model->weight[k];
        if (is_tied(model, k)) {
            continue;
        }
        stack_device_use(weight->device);
        weight->address = stack_pool_take(&weight->device->pool, weight->bytes, "a weight");
        upload(model, weight->device, weight->address, weight->id, weight->bytes);
    }
    stack_device_use(&model->device[0]);
}

void stack_model_upload_addresses(struct stack_model *model, const struct stack_launch *launch, CUstream stream)
{
    if (launch->style != POINTERS_TABLE && launch->style != POINTERS_STORED) {
        return; /* as a program that passes addresses by parameter has none of them in memory */
    }
    const struct stack_device *device = model->weight[launch->weight[0]].device;
    const uint64_t table_bytes = STACK_FUSED * sizeof(uint64_t);
    struct stack_chunk *chunk = stack_chunk_new(model, table_bytes + STACK_DESCRIPTOR_BYTES, false);
    uint64_t *table = chunk->bytes;
    struct stack_descriptor *descriptor = (struct stack_descriptor *)(void *)(table + STACK_FUSED);
    memset(chunk->bytes, 0, chunk->size);
    for (uint32_t k = 0; k < launch->count; k++) {
        table[k] = model->weight[launch->weight[k]].address;
    }
    descriptor->address = table[0];
    descriptor->opaque[0] = model->weight[launch->weight[0]].bytes;
    stack_device_use(device);
    const CUdeviceptr tables = device->tables + launch->index * table_bytes;
    const CUdeviceptr descriptors = device->descriptors + launch->index * STACK_DESCRIPTOR_BYTES;
    if (stream) {
        GPU(cuMemcpyHtoDAsync, tables, table, table_bytes, stream);
        GPU(cuMemcpyHtoDAsync, descriptors, descriptor, STACK_DESCRIPTOR_BYTES, stream);
    } else {
        GPU(cuMemcpyHtoD, tables, table, table_bytes);
        GPU(cuMemcpyHtoD, descriptors, descriptor, STACK_DESCRIPTOR_BYTES);
    }
    stack_device_use(&model->device[0]);
}

static void open_tables(struct stack_model *model)
{
    const struct stack_options *o = model->options;
    struct stack_tables *tables = &model->tables;
    struct stack_pool *pool = &model->device[0].pool;
    if (o->sparse == SPARSE_EMBEDDING || o->sparse == SPARSE_BOTH) {
        tables->rows = o->table / 1024 ? o->table / 1024 : 1;
        tables->embedding = stack_pool_take(pool, 1024 * tables->rows, "the embedding");
        upload(model, &model->device[0], tables->embedding, 1u << 30, 1024 * tables->rows);
    }
    if (o->sparse == SPARSE_EXPERTS || o->sparse == SPARSE_BOTH) {
        tables->expert_bytes = o->table / 8 / 4096 * 4096 + 4096;
        tables->experts = stack_pool_take(pool, 8 * tables->expert_bytes, "the experts");
        upload(model, &model->device[0], tables->experts, 1u << 31, 8 * tables->expert_bytes);
    }
    if (o->sparse) {
        tables->ids = stack_pool_take(pool, 64, "ids");
    }
}

static void open_state(struct stack_model *model)
{
    const struct stack_options *o = model->options;
    struct stack_pool *pool = &model->device[0].pool;
    const uint64_t share = o->grow ? 2 : 1;
    if (o->workspace) {
        model->workspace_bytes[0] = o->workspace / share / 4 * 4 + 4;
        model->workspace[0] = stack_pool_take(pool, model->workspace_bytes[0], "the workspace");
    }
    if (o->cache) {
        model->cache_rows = o->cache / share / (4 * o->width);
        model->cache = stack_pool_take(pool, 4 * o->width * model->cache_rows, "the cache");
    }
    for (uint64_t lane = 0; lane < o->lanes; lane++) {
        upload(model, &model->device[0], model->device[0].activation[lane][0], (1u << 29) + lane, 4 * o->width);
    }
}

void stack_model_open(struct stack_model *model, const struct stack_options *options, uint64_t seed)
{
    *model = (struct stack_model){.options = options, .seed = seed};
    model->last_chunk = &model->first_chunk;
    model->device = zeroed(options->devices, sizeof *model->device);
    model->pass_ms = zeroed(options->passes, sizeof *model->pass_ms);
    shape_weights(model);
    shape_launches(model);
    shape_order(model);
    for (uint64_t d = 0; d < options->devices; d++) {
        open_device(model, &model->device[d], (int)d);
    }
    upload_weights(model);
    for (uint64_t d = 0; d < options->devices; d++) {
        stack_device_use(&model->device[d]);
        open_buffers(model, &model->device[d]);
    }
    stack_device_use(&model->device[0]);
    GPU(cuEventCreate, &model->begin, CU_EVENT_DEFAULT);
    GPU(cuEventCreate, &model->end, CU_EVENT_DEFAULT);
    open_state(model);
    open_tables(model);
    open_host_tables(model);
    for (uint64_t l = 0; l < model->launch_count; l++) {
        stack_model_upload_addresses(model, &model->launch[l], NULL);
    }
    /* A copy from pageable memory may still be on its way when the call returns. */
    for (uint64_t d = options->devices; d-- > 0;) {
        stack_device_use(&model->device[d]);
        stack_wait_for_context();
    }
}

static void free_chunks(struct stack_model *model)
{
    for (struct stack_chunk *chunk = model->first_chunk, *next; chunk; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    for (struct stack_slab *slab = model->slab, *older; slab; slab = older) {
        older = slab->older;
        GPU(cuMemFreeHost, slab->bytes);
        free(slab);
    }
}

void stack_model_close(struct stack_model *model)
{
    const struct stack_options *o = model->options;
    struct stack_pool *pool = &model->device[0].pool;
    const CUdeviceptr owned[] = {model->workspace[0],     model->workspace[1],   model->cache,
                                 model->tables.embedding, model->tables.experts, model->tables.ids};
    stack_device_use(&model->device[0]);
    stack_graphs_drop(model);
    stack_change_settle(model);
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) {
        if (owned[i]) {
            stack_pool_give(pool, owned[i]);
        }
    }
    for (uint64_t k = 0; k < model->weight_count; k++) {
        if (model->weight[k].address) {
            stack_device_use(model->weight[k].device);
            stack_pool_give(&model->weight[k].device->pool, model->weight[k].address);
        }
    }
    stack_device_use(&model->device[0]);
    free_chunks(model);
    close_host_tables(model);
    GPU(cuEventDestroy, model->begin);
    GPU(cuEventDestroy, model->end);
    for (uint64_t d = o->devices; d-- > 0;) {
        close_device(model, &model->device[d]);
    }
    free(model->device);
    free(model->weight);
    free(model->launch);
    free(model->order);
    free(model->pass_ms);
}
