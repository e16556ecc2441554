/*
 * other.h - allocations of the program that are not in the arena.
 *
 *   small     requests below OV_ARENA_LEAST: ours to grant, the driver's to place (small.c)
 *   foreign   what is the driver's altogether: pools, managed memory, mappings of the program's own, module globals,
 * and what OVERSHOT_EXCLUDE names (foreign.c). Counted whether it fits or not, unless it is excluded.
 *
 * All are kept in one table by address (other.c): counted in the ledger, and searched for addresses of weights. None
 * can be moved. Guarded by the engine's lock, which all functions take that do not say otherwise.
 */
#ifndef OV_OTHER_H
#define OV_OTHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <uthash.h>

#include "driver.h"

struct ov_engine;
struct ov_handle;

struct ov_other {
    uint64_t address;
    size_t bytes, device_bytes;
    struct ov_handle *handle; /* of which it is a mapping, NULL: none that is known */
    bool small;               /* else foreign */
    bool pooled;              /* when it is freed, a pool of the driver's may keep it (kept.h) */
    CUmemoryPool pool;        /* that it was taken from, NULL: none, or one that is no more */
    bool global;              /* foreign: of a module */
    UT_hash_handle hh;
};

/* other.c. add: under the lock. take: out of the table, before the driver's free, after which another thread may get
 * the same address; then settle gives its bytes back to the ledger and frees the entry (which may be NULL), or restore
 * puts it back, when the driver refused. */
void ov_other_add(struct ov_engine *engine, struct ov_other *other);
struct ov_other *ov_other_take(struct ov_engine *engine, uint64_t address);
void ov_other_settle(struct ov_engine *engine, struct ov_other *other);
void ov_other_restore(struct ov_engine *engine, struct ov_other *other);
/* The same for all engines, other[OV_DEVICES]: take says whether any has it; end settles or restores by the driver's
 * result. */
bool ov_others_take(uint64_t address, struct ov_other **other);
void ov_others_end(struct ov_other **other, CUresult result);
/* Forgets all. Under the lock, as the next. */
void ov_others_drop(struct ov_engine *engine);
/* The pool is no more. */
void ov_others_orphan(struct ov_engine *engine, CUmemoryPool pool);
/* Calls each() for every one that holds device memory of a known extent. Under the lock, as the next two. */
void ov_others_each(struct ov_engine *engine, void (*each)(void *context, CUdeviceptr address, size_t bytes),
                    void *context);
/* The same for module globals: constant ones among them, so only copies may read them. */
void ov_globals_each(struct ov_engine *engine, void (*each)(void *context, CUdeviceptr address, size_t bytes),
                     void *context);
/* Whether an address lies in one of them. Slow: for discovery. */
bool ov_others_hold(const struct ov_engine *engine, uint64_t address);

/* small.c. What the driver takes for so many bytes. */
#define OV_SMALL_BYTES(bytes) (((bytes) + 511) & ~(size_t)511)
/* Whether a request may be made, other memory having given way; its bytes are counted from here on, and alloc makes it.
 * take: it will be made all the same. pool NULL: by cuMemAlloc. */
bool ov_small_reserve(struct ov_engine *engine, size_t bytes);
void ov_small_take(struct ov_engine *engine, size_t bytes);
CUresult ov_small_alloc(struct ov_engine *engine, CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream);

/* foreign.c. A request that OVERSHOT_EXCLUDE leaves to the driver, within the budget. */
CUresult ov_foreign_alloc(struct ov_engine *engine, CUdeviceptr *out, size_t bytes);
/* A request to a pool that is the driver's to serve. */
CUresult ov_foreign_alloc_async(struct ov_engine *engine, CUdeviceptr *out, size_t bytes, CUmemoryPool pool,
                                CUstream stream);
/* The program has mapped a handle at addresses of the driver's. */
void ov_foreign_mapped(CUdeviceptr address, size_t bytes, CUmemGenericAllocationHandle id);

#endif
