/*
 * stack_pool.h: how the program `stack` gets device memory, in the styles that inference programs have.
 *
 * ALLOC_EACH asks the driver for every block and gives it back at once. The other two carve blocks out of segments,
 * keep segments until the end, and reuse the place of a block that was given back for whatever is taken next, weight or
 * activation: ALLOC_ONE starts with one segment for everything known in advance and packs at 128 bytes (ggml),
 * ALLOC_SEGMENTS has segments of 20 MiB for blocks up to 10 MiB and one of its own for each larger block, at 512 bytes
 * (PyTorch). ALLOC_VMM has one segment that grows by mapping and is cut where its end is free (PyTorch's expandable
 * segments); ALLOC_HANDLE is ALLOC_ONE in memory that the program maps by itself (JAX). ALLOC_ASYNC and ALLOC_POOL
 * are ALLOC_EACH in stream order, from the default pool or from one that keeps everything.
 *
 * A pool belongs to one device and one thread. The caller orders the reuse of a block on its streams.
 */
#ifndef STACK_POOL_H
#define STACK_POOL_H

#include "stack_options.h"
#include "stack_vmm.h"

struct stack_block {
    CUdeviceptr address;
    uint64_t bytes;
    bool used;
    bool first; /* starts a segment */
};

struct stack_pool {
    enum stack_alloc style;
    struct stack_block *block; /* by segment, by address within a segment; without gaps */
    size_t count, room;
    struct stack_space space; /* of ALLOC_VMM and ALLOC_HANDLE */
    CUmemoryPool from;        /* of ALLOC_POOL */
};

/* `known_bytes`: what ALLOC_ONE gets in its first segment; 0 for none. Weights that are over-read have room behind
 * them. */
void stack_pool_open(struct stack_pool *pool, enum stack_alloc style, uint64_t known_bytes);
CUdeviceptr stack_pool_take(struct stack_pool *pool, uint64_t bytes, const char *what);
void stack_pool_give(struct stack_pool *pool, CUdeviceptr address);

/* Bytes that `bytes` take up in this style. */
uint64_t stack_pool_rounded(enum stack_alloc style, uint64_t bytes);

/* Frees the segments. Ends the process if a block was not given back. */
void stack_pool_close(struct stack_pool *pool);

#endif
