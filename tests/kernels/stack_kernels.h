/*
 * stack_kernels.h: parameter structs shared by stack.cu and the program tests/apps/stack.
 *
 * One launch is a "layer": it reads the activation x (width words), up to STACK_FUSED weights, and writes the
 * activation y. The shape says how large the weights are and what the launch pretends to compute.
 */
#ifndef STACK_KERNELS_H
#define STACK_KERNELS_H

#include <stdint.h>

enum {
    STACK_FUSED = 4,        /* weights that one launch takes at most */
    STACK_BLOCK_WORDS = 64, /* of each so many words of a weight one is used; which one, the activation decides */
    STACK_DESCRIPTOR_BYTES = 128
};

struct stack_shape {
    uint64_t bytes[STACK_FUSED]; /* of each weight, a multiple of 4 */
    double operations;           /* what the launch costs to compute, for the simulator's clock */
    double busy_ns;              /* the same for a real GPU: no thread ends before */
    uint32_t count;              /* weights used, 1 .. STACK_FUSED */
    uint32_t width;              /* words of x and y */
    uint32_t salt;               /* makes layers differ */
    uint32_t over_bytes;         /* read past each weight's end; the values do not matter */
};

/* By-value parameter with holes: `gap`, `filler` and the unused entries of `weight` hold whatever was on the stack. */
struct stack_bundle {
    uint8_t kind;
    uint8_t gap[7];
    const uint32_t *weight[STACK_FUSED];
    uint64_t filler[3];
    struct stack_shape shape;
};

/* Like a tensor-map descriptor: 128 opaque bytes, the address first. */
struct stack_descriptor {
    uint64_t address;
    uint64_t opaque[STACK_DESCRIPTOR_BYTES / 8 - 1];
};

#endif
