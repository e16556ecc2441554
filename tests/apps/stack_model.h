/*
 * stack_model.h: the data of one model of the program `stack`: weights, the launches of a pass, and what runs them.
 *
 * A model belongs to one thread; several threads have one each and share nothing but the devices' primary contexts.
 * Everything in device memory comes from the pool of its device. Uploads, results and read-backs go through pinned
 * chunks of their own, kept to the end, so that nothing has to wait for a copy (--sync none).
 *
 * Order on the device: a pass starts on the main stream (stream 0 of device 0), forks to the streams that its layers
 * use, and joins again on the main stream. All changes in mid-run are made there, between passes, so they need no other
 * ordering.
 *
 * Files: stack_model.c builds and frees; stack_launch.c one layer's launches, in every pointer style; stack_pass.c a
 * pass; stack_graph.c its layers as graphs; stack_change.c what happens between passes; stack_wait.c keeps captures of
 * one thread and waits of another apart.
 */
#ifndef STACK_MODEL_H
#define STACK_MODEL_H

#include "stack_kernels.h"
#include "stack_pool.h"

#define STACK_KERNELS(K) \
    K(one)               \
    K(fused)             \
    K(struct)            \
    K(table) K(point) K(descriptor) K(descriptor_stored) K(embed) K(experts) K(update) K(scratch) K(append) K(attend)

enum stack_kernel {
#define STACK_KERNEL_ID(name) KERNEL_##name,
    STACK_KERNELS(STACK_KERNEL_ID)
#undef STACK_KERNEL_ID
        KERNEL_COUNT
};

struct stack_device {
    CUdevice handle;
    CUcontext context;
    struct gpu_image image;
    CUfunction kernel[KERNEL_COUNT];
    struct stack_pool pool;
    CUstream stream[STACK_MAX_STREAMS];
    CUevent tail[STACK_MAX_STREAMS]; /* recorded on its stream whenever another one has to wait for it */
    CUdeviceptr activation[64][2];   /* of each lane: the current one is [0] between passes */
    CUdeviceptr tables;              /* per launch STACK_FUSED addresses */
    CUdeviceptr descriptors;         /* per launch one struct stack_descriptor */
    CUdeviceptr scratch;             /* per lane and launch STACK_FUSED addresses, written by a kernel */
};

struct stack_weight {
    struct stack_device *device;
    CUdeviceptr address;
    uint64_t bytes;
    uint64_t id; /* with `version` and the seed: what it holds */
    uint64_t version;
};

/* One launch reads `count` weights; a layer has one launch or more. */
struct stack_launch {
    uint64_t index; /* in model->launch: its place in tables and descriptors */
    uint64_t layer;
    uint32_t weight[STACK_FUSED]; /* indices */
    uint32_t count;
    enum stack_pointers style;
    uint32_t salt;
};

/* Pinned host memory is allocated in slabs, as allocating it is slow and may wait for the device. */
struct stack_slab {
    void *bytes;
    uint64_t size, used;
    struct stack_slab *older;
};

/* A piece of a slab. */
struct stack_chunk {
    void *bytes;
    uint64_t size;
    bool digested; /* part of the digest, in the order of the chunks */
    struct stack_chunk *next;
};

/* The large, sparsely read tables. */
struct stack_tables {
    CUdeviceptr embedding, experts, ids; /* ids: rows of the embedding, then chosen experts */
    uint64_t rows, expert_bytes;
};

/* Tables that the host stores its addresses in and kernels read in place: STACK_FUSED addresses for each launch, lane
 * and pass, so that none is stored over while it may be read. */
struct stack_host_tables {
    uint64_t *host;
    CUdeviceptr address;
    CUdeviceptr managed; /* 0: pinned */
};

/* An executable graph of a part of a pass, and the graph that it was made of. */
struct stack_graph {
    CUgraph graph;
    CUgraphExec executable; /* NULL: nothing captured, or addresses changed since */
};

/* Where the current activation of a lane is while its layers run. */
struct stack_place {
    struct stack_device *device;
    uint64_t stream; /* index of its device's stream */
    int side;        /* which of the two activations */
};

struct stack_model {
    const struct stack_options *options;
    uint64_t seed;
    struct stack_device *device;
    struct stack_weight *weight;
    uint64_t weight_count;
    struct stack_launch *launch;
    uint64_t launch_count;
    uint64_t *order; /* layers in call order */
    struct stack_tables tables;
    struct stack_host_tables host_tables; /* for the styles that need them */
    CUdeviceptr workspace[2], cache;      /* workspace[1] comes with --grow */
    uint64_t workspace_bytes[2], cache_rows, rows_used;
    struct stack_chunk *first_chunk, **last_chunk;
    struct stack_slab *slab;  /* the newest pinned slab, chunks are carved from it */
    CUdeviceptr borrowed[64]; /* scratch of device 0 that the coming pass may still use */
    size_t borrowed_count;
    struct stack_graph graph[STACK_MAX_GRAPHS]; /* of turn t and part p: t * parts + p */
    struct stack_place place[64];               /* of each lane, from one part of a pass to the next */
    CUevent begin, end;
    double *pass_ms;
};

/* ---- stack_model.c */
void stack_model_open(struct stack_model *model, const struct stack_options *options, uint64_t seed);
/* Everything freed; ends the process if something is left. */
void stack_model_close(struct stack_model *model);
/* Uploads the addresses of a launch's weights to the tables in memory. With `stream` NULL the host waits for the copy.
 */
void stack_model_upload_addresses(struct stack_model *model, const struct stack_launch *launch, CUstream stream);
/* Fills `bytes` bytes with what version `version` of weight `id` holds. */
void stack_content(const struct stack_model *model, uint64_t id, uint64_t version, void *bytes, uint64_t count);
struct stack_chunk *stack_chunk_new(struct stack_model *model, uint64_t bytes, bool digested);
void stack_device_use(const struct stack_device *device);
/* A number that depends on the model's seed and the arguments only. */
uint64_t stack_hash(const struct stack_model *model, uint64_t a, uint64_t b);
uint64_t stack_digest(uint64_t digest, const void *bytes, uint64_t count);

/* ---- stack_launch.c */
void stack_launch_kernel(const struct stack_device *device, enum stack_kernel kernel, uint64_t threads, CUstream stream,
                         void **parameters);
/* One launch of a layer from activation x to y. */
void stack_launch_run(struct stack_model *model, const struct stack_launch *launch, uint64_t lane, uint64_t pass,
                      CUstream stream, CUdeviceptr x, CUdeviceptr y);

/* ---- stack_pass.c */
void stack_pass_run(struct stack_model *model, uint64_t pass);
/* The layers of one of `parts` parts of a pass, in order: the first begins it, the last ends it. */
void stack_pass_layers(struct stack_model *model, uint64_t pass, uint64_t part, uint64_t parts);

/* ---- stack_graph.c */
/* Whether the layers of this pass are launched as graphs. */
bool stack_graph_turn(const struct stack_model *model, uint64_t pass);
void stack_graph_run(struct stack_model *model, uint64_t pass);
/* Weights have other addresses from now on. */
void stack_graphs_moved(struct stack_model *model);
void stack_graphs_drop(struct stack_model *model);

/* ---- stack_change.c */
void stack_change_before(struct stack_model *model, uint64_t pass);
void stack_change_finish(struct stack_model *model);
/* Gives back what the last pass borrowed. */
void stack_change_settle(struct stack_model *model);

#endif
