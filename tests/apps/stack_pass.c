/*
 * stack_pass.c: one pass: what reads the sparse tables, the cache and the workspace, then the layers.
 */
#include "stack_model.h"

#include <string.h>

/* Work submitted to `to` from now on comes after everything submitted to `from` so far. */
static void follow(struct stack_device *from, uint64_t from_stream, struct stack_device *to, uint64_t to_stream)
{
    if (from == to && from_stream == to_stream) {
        return;
    }
    stack_device_use(from);
    GPU(cuEventRecord, from->tail[from_stream], from->stream[from_stream]);
    stack_device_use(to);
    GPU(cuStreamWaitEvent, to->stream[to_stream], from->tail[from_stream], 0);
}

/* ---- Before the layers: one activation, lane 0, on the main stream. */

/* `in place`: every kernel writes the other activation, so two of them or a copy bring it back. */
static void copy_back(struct stack_model *model, struct stack_device *device, uint64_t stream, uint64_t lane)
{
    GPU(cuMemcpyDtoDAsync, device->activation[lane][0], device->activation[lane][1], 4 * model->options->width,
        device->stream[stream]);
}

static void read_tables(struct stack_model *model, uint64_t pass)
{
    struct stack_device *device = &model->device[0];
    struct stack_tables *tables = &model->tables;
    const CUstream stream = device->stream[0];
    uint32_t width = (uint32_t)model->options->width, count = 8, chosen_count = 2;
    uint64_t row_words = 256;
    CUdeviceptr x = device->activation[0][0], y = device->activation[0][1], chosen = tables->ids + 4 * count;
    uint32_t *ids = stack_chunk_new(model, 64, false)->bytes;
    for (uint32_t k = 0; k < count; k++) {
        ids[k] = (uint32_t)(tables->rows ? stack_hash(model, 5000 + pass, k) % tables->rows : 0);
    }
    for (uint32_t k = 0; k < chosen_count; k++) {
        ids[count + k] = (uint32_t)((stack_hash(model, 6000 + pass, 0) + 3 * k) % 8);
    }
    GPU(cuMemcpyHtoDAsync, tables->ids, ids, 4 * (count + chosen_count), stream);
    if (tables->embedding) {
        void *parameters[] = {&tables->embedding, &row_words, &tables->ids, &count, &x, &y, &width};
        stack_launch_kernel(device, KERNEL_embed, width, stream, parameters);
        copy_back(model, device, 0, 0);
    }
    if (tables->experts) {
        struct stack_shape shape = {.bytes = {tables->expert_bytes}, .count = 1, .width = width, .salt = 77};
        shape.operations = model->options->ops * (double)tables->expert_bytes * chosen_count;
        shape.busy_ns = shape.operations / 50e3;
        void *parameters[] = {&tables->experts, &chosen, &chosen_count, &x, &y, &shape};
        stack_launch_kernel(device, KERNEL_experts, width, stream, parameters);
        copy_back(model, device, 0, 0);
    }
}

static void use_cache(struct stack_model *model)
{
    struct stack_device *device = &model->device[0];
    uint32_t width = (uint32_t)model->options->width, row = (uint32_t)(model->rows_used % model->cache_rows);
    model->rows_used++;
    uint32_t rows = (uint32_t)(model->rows_used < model->cache_rows ? model->rows_used : model->cache_rows);
    CUdeviceptr x = device->activation[0][0], y = device->activation[0][1];
    void *append[] = {&x, &model->cache, &width, &row};
    stack_launch_kernel(device, KERNEL_append, width, device->stream[0], append);
    void *attend[] = {&x, &model->cache, &y, &width, &rows};
    stack_launch_kernel(device, KERNEL_attend, width, device->stream[0], attend);
    copy_back(model, device, 0, 0);
}

/* Written whole, then its first and last words are read into the digest. */
static void use_workspace(struct stack_model *model, int which)
{
    struct stack_device *device = &model->device[0];
    uint32_t width = (uint32_t)model->options->width;
    uint64_t words = model->workspace_bytes[which] / 4;
    CUdeviceptr x = device->activation[0][0];
    void *parameters[] = {&x, &width, &model->workspace[which], &words};
    stack_launch_kernel(device, KERNEL_scratch, words, device->stream[0], parameters);
    uint32_t *seen = stack_chunk_new(model, 8, true)->bytes;
    GPU(cuMemcpyDtoHAsync, seen, model->workspace[which], 4, device->stream[0]);
    GPU(cuMemcpyDtoHAsync, seen + 1, model->workspace[which] + 4 * (words - 1), 4, device->stream[0]);
}

static void before_layers(struct stack_model *model, uint64_t pass)
{
    if (model->options->sparse) {
        read_tables(model, pass);
    }
    if (model->cache) {
        use_cache(model);
    }
    for (int which = 0; which < 2; which++) {
        if (model->workspace[which]) {
            use_workspace(model, which);
        }
    }
}

/* ---- The layers */

/* Brings a lane's activation to `device`, and makes `stream` there follow what wrote it. */
static void move_lane(struct stack_model *model, struct stack_place *at, uint64_t lane, struct stack_device *device,
                      uint64_t stream)
{
    follow(at->device, at->stream, device, stream);
    if (at->device != device) {
        stack_device_use(device);
        GPU(cuMemcpyPeerAsync, device->activation[lane][0], device->context, at->device->activation[lane][at->side],
            at->device->context, 4 * model->options->width, device->stream[stream]);
        at->side = 0;
    }
    at->device = device;
    at->stream = stream;
}

static void run_layer(struct stack_model *model, struct stack_place *at, uint64_t lane, uint64_t pass, uint64_t layer)
{
    for (uint64_t l = 0; l < model->launch_count; l++) {
        const struct stack_launch *launch = &model->launch[l];
        if (launch->layer == layer) {
            const CUdeviceptr *activation = at->device->activation[lane];
            stack_launch_run(model, launch, lane, pass, at->device->stream[at->stream], activation[at->side],
                             activation[1 - at->side]);
            at->side = 1 - at->side;
        }
    }
}

/* The pass of the other kind leaves out every third layer and goes in upload order. */
static bool layer_of(const struct stack_model *model, uint64_t pass, uint64_t position, uint64_t *layer)
{
    if (model->options->order == ORDER_ALTERNATE && pass % 2 == 1) {
        *layer = position;
        return position % 3 != 2;
    }
    *layer = model->order[position];
    return true;
}

static void begin_layers(struct stack_model *model)
{
    for (uint64_t lane = 0; lane < model->options->lanes; lane++) {
        model->place[lane] = (struct stack_place){.device = &model->device[0]};
    }
}

static void end_layers(struct stack_model *model)
{
    for (uint64_t lane = 0; lane < model->options->lanes; lane++) {
        move_lane(model, &model->place[lane], lane, &model->device[0], 0);
        if (model->place[lane].side == 1) {
            copy_back(model, &model->device[0], 0, lane);
        }
    }
}

void stack_pass_layers(struct stack_model *model, uint64_t pass, uint64_t part, uint64_t parts)
{
    const struct stack_options *o = model->options;
    if (part == 0) {
        begin_layers(model);
    }
    for (uint64_t position = o->layers * part / parts; position < o->layers * (part + 1) / parts; position++) {
        uint64_t layer;
        if (!layer_of(model, pass, position, &layer)) {
            continue;
        }
        struct stack_device *device = &model->device[layer * o->devices / o->layers];
        for (uint64_t lane = 0; lane < o->lanes; lane++) {
            const uint64_t stream = (o->lanes == 1 ? position : lane) % o->streams;
            move_lane(model, &model->place[lane], lane, device, stream);
            run_layer(model, &model->place[lane], lane, pass, layer);
        }
    }
    if (part + 1 == parts) {
        end_layers(model);
    }
}

/* ---- The pass */

static void wait_for_pass(struct stack_model *model)
{
    switch ((enum stack_sync)model->options->sync) {
    case SYNC_PASS:
        GPU(cuStreamSynchronize, model->device[0].stream[0]);
        break;
    case SYNC_NONE:
        break;
    case SYNC_EVENT:
        GPU(cuEventSynchronize, model->end);
        break;
    case SYNC_QUERY:
        for (CUresult result; (result = gpu.cuEventQuery(model->end)) != CUDA_SUCCESS;) {
            if (result != CUDA_ERROR_NOT_READY) {
                gpu_check(result, "cuEventQuery");
            }
        }
        break;
    }
}

void stack_pass_run(struct stack_model *model, uint64_t pass)
{
    const struct stack_options *o = model->options;
    struct stack_device *main_device = &model->device[0];
    const CUstream stream = main_device->stream[0];
    stack_device_use(main_device);
    GPU(cuEventRecord, model->begin, stream);
    before_layers(model, pass);
    if (stack_graph_turn(model, pass)) {
        stack_graph_run(model, pass);
    } else {
        stack_pass_layers(model, pass, 0, 1);
    }
    for (uint64_t lane = 0; lane < o->lanes; lane++) {
        struct stack_chunk *result = stack_chunk_new(model, 4 * o->width, true);
        GPU(cuMemcpyDtoHAsync, result->bytes, main_device->activation[lane][0], result->size, stream);
    }
    GPU(cuEventRecord, model->end, stream);
    if (o->times) {
        float milliseconds;
        GPU(cuEventSynchronize, model->end);
        GPU(cuEventElapsedTime, &milliseconds, model->begin, model->end);
        model->pass_ms[pass] = (double)milliseconds;
    }
    if ((pass + 1) % o->sync_every == 0) {
        wait_for_pass(model);
    }
}
