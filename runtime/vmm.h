/*
 * vmm.h - memory that the program maps itself: reservations, physical handles, mappings (cuMemCreate and its kin).
 *
 *   reservation   addresses that the program reserved. Served from the arena: one allocation (alloc.h) with
 *                 `reserved` set, whose pages are OV_NONE until something is mapped there. Runs are formed in stretches
 *                 of mapped pages, not by mappings: a tensor may lie across several.
 *   handle        physical memory. A *virtual* one is a number that the driver never saw; behind it is memory like any
 *                 other in the arena, so its pages may be units. While it is not mapped that memory is loose
 *                 (loose.h). A *real* one is the driver's: made so because the program asks for what we do not serve,
 * or *fixed*: a virtual one that had to become real, since its memory is reached in a way that we do not see (mapped
 * twice, exported, bound to a multicast object, mapped outside of the arena). Real device memory is counted, never
 * moved. mapping       of a handle in a reservation. Pages of a real one are OV_FIXED.
 *
 * A handle's memory lives as long as the program has a reference or a mapping.
 *
 * Rights: our own work needs every page of the device readable and writable, so memory of virtual handles is that from
 * the moment it is mapped; what the program set is remembered and told, and peers that it names are admitted.
 *
 * Guarded by the lock of the engine that the struct belongs to. `handle` and `mapping` of a mapping may belong to
 * different engines (a handle of one device mapped in another's reservation); their locks are never held together.
 */
#ifndef OV_VMM_H
#define OV_VMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <uthash.h>

#include "loose.h"

struct ov_engine;

struct ov_handle {
    CUmemGenericAllocationHandle id;   /* what the program holds */
    CUmemGenericAllocationHandle real; /* the driver's; 0: virtual */
    struct ov_engine *engine;
    CUmemAllocationProp prop;
    size_t bytes;
    uint32_t pages;
    uint32_t references; /* the program's; without any it cannot be named */
    uint32_t mappings;
    uint32_t mapping;      /* 1 + index of the mapping of a virtual handle, 0: not mapped */
    bool written;          /* was mapped: contents matter */
    struct ov_loose loose; /* memory of a virtual handle that is not mapped */
    bool listed;           /* in the table of its engine; not, if the driver has given its number to another */
    UT_hash_handle hh;     /* by id */
};

struct ov_mapping {
    uint32_t first, pages;    /* pages 0: the entry is free */
    struct ov_handle *handle; /* NULL: of a handle that we know nothing of */
    bool fixed;
    uint8_t access[OV_DEVICES]; /* CUmemAccess_flags, of mappings that are not fixed */
    uint32_t next_free;
};

struct ov_vmm {
    struct ov_handle *handle;
    struct ov_mapping *item; /* index is ov_page.mapping - 1 */
    uint32_t count, room, first_free;
    uint64_t last_serial; /* of virtual ids */
};

/* ---- handles (vmm_handle.c) ---- */

/* Whether the number is one of ours; whether or not it is still good. */
bool ov_handle_is_virtual(CUmemGenericAllocationHandle id);
/* The handle, its engine locked; NULL: none that can be named, nothing locked. */
struct ov_handle *ov_handle_lock(CUmemGenericAllocationHandle id);
/* A mapping of it went away; gives its memory back with the last reference. Under its engine's lock. */
void ov_handle_unmapped(struct ov_handle *handle);
/* Frees it, and its memory, if nothing refers to it any more. Under its engine's lock. */
void ov_handle_settle(struct ov_handle *handle);

/* ---- becoming real (vmm_fix.c) ---- */

/* The driver's handle for a virtual one, which is real from now on, wherever it is mapped. Takes locks. */
CUresult ov_handle_fix(CUmemGenericAllocationHandle id, CUmemGenericAllocationHandle *real);

/* ---- mappings (vmm_map.c) ---- */

/* The mapping that holds the page, NULL if none. */
struct ov_mapping *ov_mapping_of(struct ov_engine *engine, uint32_t page);
/* The rights that a mapping of a real handle gets when the program had set them before. */
CUresult ov_mapping_grant(struct ov_engine *engine, const struct ov_mapping *mapping);
/* Forgets everything: the engine's context goes away. Its memory has been dropped. */
void ov_vmm_drop(struct ov_engine *engine);

#endif
