/*
 * arena.h - the address range that all large allocations come from, and what stands behind each of its pages.
 *
 * One range is reserved for the process (2^42 bytes a device where the system allows); each device has an equal slice
 * of it, so that an address is recognised by one subtraction, its device and page found by shifts. A second range of
 * the same size, the *mirror*, shows the host master of a page at the same offset, as long as it has one: a unit's
 * master is therefore contiguous there, whatever its allocation looks like.
 *
 * Behind a page stands exactly one of
 *   OV_NONE     nothing; not mapped
 *   OV_DEVICE   device memory; several pages may share one handle (a chunk), since fewer handles load faster
 *   OV_HOST     its host master, read and written in place over the link
 *   OV_SHARED   device memory that other processes may have mapped (ipc.h): one handle, it never moves
 *   OV_RING     a page of the ring, which other units use too: read-only; the host master holds the truth
 *   OV_FIXED    memory that the program mapped there itself and that is not ours to move (vmm.h)
 * Host masters are handles of one page each, so that any page can change its tier alone.
 *
 * All functions but the address tests need the engine's lock and a current context of the device. Functions that take a
 * mapping away need more: no work on the device may still use it; that is the caller's business (engine.h, exclusive).
 * While `frozen` is set they refuse with that code.
 * Errors: the driver's code; what was done up to the failure is undone unless stated. Memory is asked of the ledger
 * first; CUDA_ERROR_OUT_OF_MEMORY when it refuses.
 */
#ifndef OV_ARENA_H
#define OV_ARENA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"
#include "ledger.h"

#define OV_PAGE_SHIFT  21
#define OV_PAGE_BYTES  ((size_t)1 << OV_PAGE_SHIFT)
#define OV_DEVICES     16
#define OV_ARENA_ALIGN ((size_t)1 << 32) /* of every slice */

enum ov_backing { OV_NONE, OV_DEVICE, OV_HOST, OV_RING, OV_FIXED, OV_SHARED };

struct ov_page {
    uint32_t alloc;                      /* 1 + index of the allocation that owns the page, 0: free */
    uint32_t chunk_first;                /* OV_DEVICE, OV_SHARED: first page of its chunk, ... */
    uint16_t chunk_pages;                /* ... and their number */
    uint8_t backing;                     /* enum ov_backing */
    uint32_t mapping;                    /* 1 + index of the program's own mapping, 0: none (vmm.h) */
    CUmemGenericAllocationHandle device; /* of the chunk, kept at its first page */
    CUmemGenericAllocationHandle host;   /* the mapped master, 0: none */
    struct ov_pin *pin;                  /* what holds the pinned master (masters.h), NULL: none */
};

struct ov_extent {
    uint32_t first, pages;
};

struct ov_arena {
    CUdeviceptr base, mirror;   /* of this device's slice */
    uint32_t page_count;        /* in the slice */
    _Atomic uint32_t high_page; /* pages from here on were never used; read without the lock for copies */
    struct ov_page *page;       /* mapped lazily */
    _Atomic uint32_t *unit;     /* of a page: 1 + index of the streamed unit, 0: none; read without a lock */
    struct ov_extent *hole;     /* free pages below high_page, by address */
    size_t hole_count, hole_room;
    CUdevice device;
    int numa_node;           /* host memory comes from here */
    bool host_capable;       /* host-located handles can be made and mapped */
    uint32_t access_devices; /* devices that may read and write, as bits: this one and its enabled peers */
    struct ov_ledger *ledger;
    struct ov_masters *masters; /* where pinned masters stand (masters.h); NULL: not open yet */
    CUresult frozen;            /* not CUDA_SUCCESS: the device could not be waited for, no mapping is taken away */
};

/* The process's range, constant once reserved. bytes 0: not reserved. */
extern CUdeviceptr ov_arena_base;
extern size_t ov_arena_bytes;
extern unsigned ov_arena_slice_shift;

static inline bool ov_arena_has(uint64_t address)
{
    return address - ov_arena_base < ov_arena_bytes;
}
static inline unsigned ov_arena_slice(uint64_t address)
{
    return (unsigned)((address - ov_arena_base) >> ov_arena_slice_shift);
}
static inline uint32_t ov_arena_page(const struct ov_arena *arena, uint64_t address)
{
    return (uint32_t)((address - arena->base) >> OV_PAGE_SHIFT);
}
static inline CUdeviceptr ov_page_address(const struct ov_arena *arena, uint32_t page)
{
    return arena->base + ((CUdeviceptr)page << OV_PAGE_SHIFT);
}
static inline CUdeviceptr ov_mirror_address(const struct ov_arena *arena, uint32_t page)
{
    return arena->mirror + ((CUdeviceptr)page << OV_PAGE_SHIFT);
}
static inline uint32_t ov_pages(size_t bytes)
{
    return (uint32_t)((bytes + OV_PAGE_BYTES - 1) >> OV_PAGE_SHIFT);
}

/* Reserves both ranges for `devices` devices. False: the driver cannot (no VMM). */
bool ov_arena_reserve(int devices);
/* Prepares the slice of a device and tries out what the driver can do: makes, maps and reads back handles. */
CUresult ov_arena_open(struct ov_arena *arena, CUdevice device, int slice, struct ov_ledger *ledger);

/* Addresses (arena_space.c). take: first fit among holes, then fresh pages; UINT32_MAX when the slice is used up. */
uint32_t ov_arena_take(struct ov_arena *arena, uint32_t pages);
/* The same from a page whose number is a multiple of `align`, a power of two: its address is aligned likewise, up to
 * OV_ARENA_ALIGN. */
uint32_t ov_arena_take_aligned(struct ov_arena *arena, uint32_t pages, uint32_t align);
/* Exactly these pages; false: some are in use. */
bool ov_arena_take_at(struct ov_arena *arena, uint32_t first, uint32_t pages);
void ov_arena_give(struct ov_arena *arena, uint32_t first, uint32_t pages);

/* Backing. back_*: pages must be OV_NONE. back_host keeps a master that is there, else makes a fresh one. */
CUresult ov_back_device(struct ov_arena *arena, uint32_t first, uint32_t pages);
CUresult ov_back_host(struct ov_arena *arena, uint32_t first, uint32_t pages);
CUresult ov_back_ring(struct ov_arena *arena, uint32_t first, uint32_t pages, const CUmemGenericAllocationHandle *ring);
/* arena_shared.c. Device memory that can be exported: held as foreign memory, because no plan may count on it.
 * CUDA_ERROR_NOT_SUPPORTED: there are too many pages for one handle. */
CUresult ov_make_shared(struct ov_arena *arena, uint32_t pages, CUmemGenericAllocationHandle *handle);
void ov_drop_shared(struct ov_arena *arena, uint32_t pages, CUmemGenericAllocationHandle handle);
CUresult ov_back_shared(struct ov_arena *arena, uint32_t first, uint32_t pages, CUmemGenericAllocationHandle handle);
/* Maps a handle for a while at an address outside the slices. */
CUresult ov_window_open(struct ov_arena *arena, uint32_t pages, CUmemGenericAllocationHandle handle,
                        CUdeviceptr *address);
void ov_window_close(uint32_t pages, CUdeviceptr address);
/* arena_host.c. Makes mapped masters where there are none, visible in the mirror only. Undefined contents. */
CUresult ov_make_masters(struct ov_arena *arena, uint32_t first, uint32_t pages);
void ov_drop_mapped(struct ov_arena *arena, uint32_t first, uint32_t pages);
/* Gives back masters of both kinds. */
void ov_drop_masters(struct ov_arena *arena, uint32_t first, uint32_t pages);
/* Takes away what stands behind pages; chunks must lie inside the range as a whole. Masters stay. */
CUresult ov_unback(struct ov_arena *arena, uint32_t first, uint32_t pages);
/* Widens [*first, *first + *pages) to whole chunks. */
void ov_whole_chunks(const struct ov_arena *arena, uint32_t *first, uint32_t *pages);
/* Gives another device access to everything mapped and to be mapped. */
CUresult ov_arena_admit(struct ov_arena *arena, CUdevice peer);

/* Handles that the ledger has granted, mapped nowhere yet; for those who map them themselves (loose.h). Host ones are
 * of one page. */
CUresult ov_create_device(struct ov_arena *arena, enum ov_purpose purpose, size_t bytes,
                          CUmemGenericAllocationHandle *handle);
CUresult ov_create_host(struct ov_arena *arena, CUmemGenericAllocationHandle *handle);
/* What a handle of pinned memory at such a place is made with. */
CUmemAllocationProp ov_arena_prop(CUmemLocationType where, int id);
/* Lets the arena's devices use a row of whole mappings. */
CUresult ov_arena_access(const struct ov_arena *arena, CUdeviceptr address, size_t bytes, CUmemAccess_flags flags);

/* arena_own.c. Device memory of our own: handles of one page each, granted by the ledger; all or none. */
CUresult ov_make_handles(struct ov_arena *arena, enum ov_purpose purpose, uint32_t pages,
                         CUmemGenericAllocationHandle *handle);
void ov_release_handles(struct ov_arena *arena, enum ov_purpose purpose, uint32_t pages,
                        const CUmemGenericAllocationHandle *handle);
/* Maps them, writable, one after the other from `address` on, which is reserved; all or none. */
CUresult ov_map_handles(const struct ov_arena *arena, CUdeviceptr address, uint32_t pages,
                        const CUmemGenericAllocationHandle *handle);
/* The same with an address of its own, outside the slices: scratch. handle[] has room for `pages`. */
CUresult ov_own_device(struct ov_arena *arena, enum ov_purpose purpose, uint32_t pages,
                       CUmemGenericAllocationHandle *handle, CUdeviceptr *address);
void ov_disown_device(struct ov_arena *arena, enum ov_purpose purpose, uint32_t pages,
                      CUmemGenericAllocationHandle *handle, CUdeviceptr address);

#endif
