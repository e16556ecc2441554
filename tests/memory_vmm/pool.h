/*
 * pool.h - memory that a test program maps itself, as PyTorch's expandable segments or JAX do it: one reservation, and
 * handles of one size mapped in it. What the driver has to answer is checked on the way.
 */
#ifndef MEMORY_VMM_POOL_H
#define MEMORY_VMM_POOL_H

#include "rig.h"

#define PAGE (2 * MIB)

enum { POOL_PIECES = 512 };

struct pool {
    CUdeviceptr base;
    size_t bytes, piece_bytes;
    CUmemGenericAllocationHandle handle[POOL_PIECES]; /* 0: nothing is mapped there */
};

static const CUmemAllocationProp pool_prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};

CUmemGenericAllocationHandle pool_handle(size_t bytes);
CUdeviceptr pool_reserve(size_t bytes);
CUresult pool_grant(CUdeviceptr address, size_t bytes, CUmemAccess_flags flags);
/* Maps a handle as a whole, readable and writable. */
void pool_show(CUdeviceptr address, size_t bytes, CUmemGenericAllocationHandle handle);

/* Reserves room for `pieces` of that size. */
void pool_open(struct pool *pool, unsigned pieces, size_t piece_bytes);
CUdeviceptr pool_at(const struct pool *pool, unsigned piece);
void pool_map(struct pool *pool, unsigned first, unsigned count);
/* Unmaps with one call and releases. */
void pool_unmap(struct pool *pool, unsigned first, unsigned count);
void pool_close(struct pool *pool);

/* Words on the device, by a kernel or a fill of ours, and whether they are still there. */
void pool_fill(CUdeviceptr address, size_t bytes, uint32_t value);
void pool_expect(CUdeviceptr address, size_t bytes, uint32_t value);

/* A current context and nothing else, before rig_open: the very first memory of the program may then be of any kind. */
void pool_begin(void);

/* Weights that lie in a pool are the pool's to free: the rig forgets all it has. */
void pool_forget(struct rig *rig);

#endif
