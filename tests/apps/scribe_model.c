#include "scribe_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "safetensors.h"

enum { BLOCK_THREADS = 64, ALIGNMENT_BYTES = 256, PAGE_BYTES = 2 << 20 };
enum { AFTER_STORE, AFTER_ADD, AFTER_SQUARED_RELU }; /* as in scribe.cu */

/* ---- Packing several tensors into one allocation: first all sizes, then all addresses. */

struct packer {
    size_t used;
    CUdeviceptr base; /* 0 while sizes are added up */
    const struct safetensors *file;
};

static CUdeviceptr pack_room(struct packer *packer, size_t bytes)
{
    const CUdeviceptr address = packer->base + packer->used;
    packer->used += (bytes + ALIGNMENT_BYTES - 1) / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
    return address;
}

/* A tensor of the file; uploaded in the second round. */
static CUdeviceptr pack_tensor(struct packer *packer, const char *name, size_t rows, size_t columns)
{
    const size_t bytes = (rows ? rows : 1) * columns * sizeof(float);
    const float *data = safetensors_float(packer->file, name, rows, columns);
    const CUdeviceptr address = pack_room(packer, bytes);
    if (packer->base) {
        GPU(cuMemcpyHtoD, address, data, bytes);
    }
    return address;
}

static void pack_layer(struct scribe_model *model, struct packer *packer, uint32_t index)
{
    const uint32_t width = model->width, mlp = model->mlp;
    struct scribe_layer *layer = &model->layer[index];
    char name[64];
#define PACK_TENSOR(field, tensor, rows, columns)            \
    snprintf(name, sizeof name, "layers.%u." tensor, index); \
    layer->field = pack_tensor(packer, name, rows, columns);
    SCRIBE_TENSORS(PACK_TENSOR)
#undef PACK_TENSOR
}

static void pack_ends(struct scribe_model *model, struct packer *packer)
{
    model->embedding = pack_tensor(packer, "embed.weight", model->vocabulary, model->width);
    model->final_weight = pack_tensor(packer, "final.weight", 0, model->width);
    model->final_bias = pack_tensor(packer, "final.bias", 0, model->width);
    model->head = pack_tensor(packer, "head.weight", model->vocabulary, model->width);
}

static void pack_working(struct scribe_model *model, struct packer *packer)
{
    const size_t width_bytes = model->width * sizeof(float);
    model->x = pack_room(packer, width_bytes);
    model->normed = pack_room(packer, width_bytes);
    model->qkv = pack_room(packer, 3 * width_bytes);
    model->mixed = pack_room(packer, width_bytes);
    model->scores = pack_room(packer, (size_t)model->heads * model->window * sizeof(float));
    model->hidden = pack_room(packer, model->mlp * sizeof(float));
    model->logits = pack_room(packer, model->vocabulary * sizeof(float));
    model->tokens = pack_room(packer, model->room * sizeof(uint32_t));
}

static void open_layer(struct scribe_model *model, const struct safetensors *file, uint32_t index)
{
    struct packer packer = {.file = file};
    pack_layer(model, &packer, index);
    model->weight_bytes += packer.used;
    /* Whole pages, as caching allocators ask for. */
    const size_t bytes = (packer.used + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    packer.base = model->layer[index].block = gpu_alloc(bytes, "a layer");
    packer.used = 0;
    pack_layer(model, &packer, index);
}

static void open_ends(struct scribe_model *model, const struct safetensors *file)
{
    struct packer packer = {.file = file};
    pack_ends(model, &packer);
    model->weight_bytes += packer.used;
    packer.base = model->ends = gpu_alloc(packer.used, "embedding and head");
    packer.used = 0;
    pack_ends(model, &packer);
}

static void open_working(struct scribe_model *model)
{
    struct packer packer = {0};
    pack_working(model, &packer);
    packer.base = model->working = gpu_alloc(packer.used, "activations");
    packer.used = 0;
    pack_working(model, &packer);
}

void scribe_model_open(struct scribe_model *model, const char *path, uint32_t window, uint32_t room)
{
    static const char *const names[] = {
#define SCRIBE_KERNEL_NAME(name) "scribe_" #name,
        SCRIBE_KERNELS(SCRIBE_KERNEL_NAME)
#undef SCRIBE_KERNEL_NAME
    };
    struct safetensors file = safetensors_open(path);
    *model = (struct scribe_model){
        .layers = safetensors_number(&file, "layers"),
        .width = safetensors_number(&file, "model"),
        .heads = safetensors_number(&file, "heads"),
        .mlp = safetensors_number(&file, "mlp"),
        .window = window,
        .room = room,
    };
    model->vocabulary = safetensors_number(&file, "vocabulary");
    if (model->width % model->heads != 0 || model->heads > 30) {
        gpu_die("%u heads do not suit a width of %u", model->heads, model->width);
    }
    model->image = gpu_image_load("scribe", GPU_LOAD_MODULE);
    for (int k = 0; k < SCRIBE_KERNEL_COUNT; k++) {
        model->kernel[k] = gpu_image_kernel(&model->image, names[k]);
    }
    GPU(cuStreamCreate, &model->stream, CU_STREAM_NON_BLOCKING);
    model->layer = calloc(model->layers, sizeof *model->layer);
    if (!model->layer) {
        gpu_die("out of host memory");
    }
    for (uint32_t i = 0; i < model->layers; i++) {
        open_layer(model, &file, i);
    }
    open_ends(model, &file);
    model->cache = gpu_alloc((size_t)model->layers * window * 2 * model->width * sizeof(uint16_t), "the cache");
    open_working(model);
    GPU(cuCtxSynchronize);
    safetensors_close(&file);
}

void scribe_model_close(struct scribe_model *model)
{
    GPU(cuStreamSynchronize, model->stream);
    for (uint32_t i = 0; i < model->layers; i++) {
        GPU(cuMemFree, model->layer[i].block);
    }
    GPU(cuMemFree, model->ends);
    GPU(cuMemFree, model->cache);
    GPU(cuMemFree, model->working);
    GPU(cuStreamDestroy, model->stream);
    gpu_image_unload(&model->image);
    free(model->layer);
}

/* ---- One position */

static void launch(struct scribe_model *model, enum scribe_kernel kernel, uint32_t threads, void **parameters)
{
    GPU(cuLaunchKernel, model->kernel[kernel], (threads + BLOCK_THREADS - 1) / BLOCK_THREADS, 1, 1, BLOCK_THREADS, 1, 1,
        0, model->stream, parameters, NULL);
}

static void norm(struct scribe_model *model, CUdeviceptr weight, CUdeviceptr bias)
{
    void *parameters[] = {&model->x, &weight, &bias, &model->normed, &model->width};
    launch(model, SCRIBE_norm, 1, parameters);
}

static void linear(struct scribe_model *model, CUdeviceptr weight, CUdeviceptr bias, CUdeviceptr x, CUdeviceptr y,
                   uint32_t rows, uint32_t columns, uint32_t after)
{
    void *parameters[] = {&weight, &bias, &x, &y, &rows, &columns, &after};
    launch(model, SCRIBE_linear, rows, parameters);
}

static void attend(struct scribe_model *model, uint32_t index, uint32_t position)
{
    CUdeviceptr cache = model->cache + (uint64_t)index * model->window * 2 * model->width * sizeof(uint16_t);
    uint32_t slots = position + 1 < model->window ? position + 1 : model->window;
    void *remember[] = {&model->qkv, &cache, &position, &model->window, &model->width};
    launch(model, SCRIBE_remember, 2 * model->width, remember);
    void *score[] = {&model->qkv, &cache, &model->scores, &position, &model->window, &model->heads, &model->width};
    launch(model, SCRIBE_score, model->heads * slots, score);
    void *softmax[] = {&model->scores, &model->heads, &slots};
    launch(model, SCRIBE_softmax, model->heads, softmax);
    void *mix[] = {&model->scores, &cache, &model->mixed, &position, &model->window, &model->heads, &model->width};
    launch(model, SCRIBE_mix, model->width, mix);
}

void scribe_model_step(struct scribe_model *model, uint32_t position)
{
    const uint32_t width = model->width, mlp = model->mlp;
    void *embed[] = {&model->embedding, &model->tokens, &position, &model->x, &model->width};
    launch(model, SCRIBE_embed, width, embed);
    for (uint32_t i = 0; i < model->layers; i++) {
        const struct scribe_layer *layer = &model->layer[i];
        norm(model, layer->norm1_weight, layer->norm1_bias);
        linear(model, layer->qkv_weight, layer->qkv_bias, model->normed, model->qkv, 3 * width, width, AFTER_STORE);
        attend(model, i, position);
        linear(model, layer->out_weight, layer->out_bias, model->mixed, model->x, width, width, AFTER_ADD);
        norm(model, layer->norm2_weight, layer->norm2_bias);
        linear(model, layer->up_weight, layer->up_bias, model->normed, model->hidden, mlp, width, AFTER_SQUARED_RELU);
        linear(model, layer->down_weight, layer->down_bias, model->hidden, model->x, width, mlp, AFTER_ADD);
    }
    norm(model, model->final_weight, model->final_bias);
    linear(model, model->head, 0, model->normed, model->logits, model->vocabulary, width, AFTER_STORE);
}

void scribe_model_sample(struct scribe_model *model, uint32_t position, float temperature, uint32_t random)
{
    void *parameters[] = {&model->logits, &model->vocabulary, &temperature, &random, &model->tokens, &position};
    launch(model, SCRIBE_sample, 1, parameters);
}
