/*
 * stack_vmm.h: the parts of stack_pool.h that map memory (cuMemCreate and its kin).
 *
 * A space is one reservation, mapped from its start on in pieces, each of one handle: it grows and shrinks at its end,
 * as PyTorch's expandable segments do, or has one piece that holds everything, as JAX makes it. It belongs to the
 * device whose context is current.
 */
#ifndef STACK_VMM_H
#define STACK_VMM_H

#include "gpu.h"

struct stack_space {
    CUdeviceptr base;
    uint64_t reserved_bytes, mapped_bytes, piece_bytes;
    CUmemGenericAllocationHandle *handle; /* of each piece */
    size_t pieces;
};

void stack_space_open(struct stack_space *space, uint64_t reserved_bytes, uint64_t piece_bytes);
/* Maps whole pieces until `bytes` more are mapped; returns how many were. */
uint64_t stack_space_grow(struct stack_space *space, uint64_t bytes, const char *what);
/* Unmaps, by one call, the whole pieces in the last `bytes`; returns how many bytes went. The caller has waited for all
 * that uses them. */
uint64_t stack_space_shrink(struct stack_space *space, uint64_t bytes);
void stack_space_close(struct stack_space *space);

#endif
