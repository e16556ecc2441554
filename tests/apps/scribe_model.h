/*
 * scribe_model.h: the language model of `scribe` on the device: one allocation for the tensors of each layer, one for
 * embedding and head, one for the cache of keys and values, one for everything else. Weights are float32, [out][in].
 *
 * The work of one position is about 150 launches on one stream; nothing waits for the host. Not thread-safe.
 */
#ifndef SCRIBE_MODEL_H
#define SCRIBE_MODEL_H

#include "gpu.h"

#define SCRIBE_KERNELS(K) K(embed) K(norm) K(linear) K(remember) K(score) K(softmax) K(mix) K(sample)

enum scribe_kernel {
#define SCRIBE_KERNEL_ID(name) SCRIBE_##name,
    SCRIBE_KERNELS(SCRIBE_KERNEL_ID)
#undef SCRIBE_KERNEL_ID
        SCRIBE_KERNEL_COUNT
};

/* Tensors of a layer, in the order of its allocation: SCRIBE_TENSOR(name, tensor in the file, rows, columns), 0 rows: a
 * vector. */
#define SCRIBE_TENSORS(T)                                                               \
    T(norm1_weight, "ln1.weight", 0, width)                                             \
    T(norm1_bias, "ln1.bias", 0, width)                                                 \
    T(qkv_weight, "qkv.weight", 3 * width, width) T(qkv_bias, "qkv.bias", 0, 3 * width) \
        T(out_weight, "out.weight", width, width) T(out_bias, "out.bias", 0, width)     \
            T(norm2_weight, "ln2.weight", 0, width) T(norm2_bias, "ln2.bias", 0, width) \
                T(up_weight, "up.weight", mlp, width) T(up_bias, "up.bias", 0, mlp)     \
                    T(down_weight, "down.weight", width, mlp) T(down_bias, "down.bias", 0, width)

struct scribe_layer {
    CUdeviceptr block; /* the allocation; all tensors lie in it */
#define SCRIBE_TENSOR_FIELD(name, tensor, rows, columns) CUdeviceptr name;
    SCRIBE_TENSORS(SCRIBE_TENSOR_FIELD)
#undef SCRIBE_TENSOR_FIELD
};

struct scribe_model {
    uint32_t layers, width, heads, mlp, vocabulary; /* from the file */
    uint32_t window;                                /* positions that attention sees */
    uint32_t room;                                  /* tokens that the text may have */
    uint64_t weight_bytes;
    struct gpu_image image;
    CUfunction kernel[SCRIBE_KERNEL_COUNT];
    CUstream stream;
    struct scribe_layer *layer;
    CUdeviceptr ends, embedding, final_weight, final_bias, head; /* `ends` is the allocation of the other four */
    CUdeviceptr cache;                                           /* [layer][slot][key, value][width] of bfloat16 */
    CUdeviceptr working;                                         /* the allocation of what follows */
    CUdeviceptr x, normed, qkv, scores, mixed, hidden, logits, tokens;
};

/* Loads the weights file into device memory. The context is current. */
void scribe_model_open(struct scribe_model *model, const char *path, uint32_t window, uint32_t room);
void scribe_model_close(struct scribe_model *model);

/* One position through all layers: reads tokens[position], leaves the scores of the next token in `logits`. */
void scribe_model_step(struct scribe_model *model, uint32_t position);

/* Draws tokens[position] from `logits`. temperature 0: the likeliest. `random` is uniform in 0 .. 2^32-1. */
void scribe_model_sample(struct scribe_model *model, uint32_t position, float temperature, uint32_t random);

#endif
