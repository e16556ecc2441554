/*
 * kernel.h - kernels: where their parameters may hold addresses, and what was learned of each.
 *
 * A *slot* is an 8-byte-aligned word of a kernel's parameter block, numbered by offset / 8. What is learned is attached
 * to the pair (kernel, slot), since it is the kernel's code that decides what it does with an address: OV_SLOT_UNKNOWN
 * nothing yet OV_SLOT_READER   every allocation reached through it stayed unchanged, over a cycle or in a watched
 * launch OV_SLOT_WRITER   a watched launch changed what it reached
 *
 * Layouts come from the driver (12.4 and newer), else from the image the kernel was loaded from (image.h); a kernel
 * with neither is opaque: its parameters cannot be looked at.
 *
 * The registry is one for the process. Lookups take no lock: an open-addressing table of atomic pointers; entries are
 * never freed, those of an unloaded module are made unfindable, because the driver uses handles again. Registration
 * takes the registry's lock. slot[] holds relaxed atomics; flags only ever rise.
 */
#ifndef OV_KERNEL_H
#define OV_KERNEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "code.h"
#include "driver.h"

enum ov_slot_state { OV_SLOT_UNKNOWN, OV_SLOT_READER, OV_SLOT_WRITER, OV_SLOT_HOPE /* inside a study only */ };

/* A word of a parameter that may hold an address. */
struct ov_word {
    uint16_t param, offset;
    uint32_t slot;
};

struct ov_kernel {
    void *_Atomic handle; /* CUfunction or CUkernel; NULL once unloaded */
    const void *owner;    /* CUmodule or CUlibrary, NULL: not known */
    struct ov_code code;  /* known only if profiles are kept (record.h) */
    bool opaque;
    uint32_t word_count;
    const struct ov_word *word;
    uint32_t slot_count;       /* parameter bytes / 8, rounded up */
    _Atomic uint8_t *slot;     /* enum ov_slot_state */
    _Atomic uint8_t watched;   /* launches compared before and after, for emitted addresses */
    _Atomic bool emits;        /* seen to write addresses into memory */
    _Atomic bool has_output;   /* a slot was seen to write */
    _Atomic bool unseen;       /* left its result nowhere that is looked at: as if it emitted, until it has an output */
    _Atomic uint32_t launches; /* logged in discovery, and of them, per slot, those with an arena address there: */
    _Atomic uint32_t *hits;    /* a slot in between is ambiguous */
    char name[64];             /* cut */
};

/* The kernel behind a handle that a launch names; registered on first sight (slow). NULL: no memory; treat as opaque.
 */
struct ov_kernel *ov_kernel_of(CUfunction handle);
/* Those that are loaded, under the registry's lock. */
void ov_kernels_each(void (*visit)(void *context, struct ov_kernel *kernel), void *context);

/* What it takes can be reached by others who do not name it. */
static inline bool ov_kernel_emits(const struct ov_kernel *kernel)
{
    return atomic_load_explicit(&kernel->emits, memory_order_relaxed) ||
           (atomic_load_explicit(&kernel->unseen, memory_order_relaxed) &&
            !atomic_load_explicit(&kernel->has_output, memory_order_relaxed));
}

static inline enum ov_slot_state ov_slot(const struct ov_kernel *kernel, uint32_t slot)
{
    return slot < kernel->slot_count
               ? (enum ov_slot_state)atomic_load_explicit(&kernel->slot[slot], memory_order_relaxed)
               : OV_SLOT_UNKNOWN;
}
static inline void ov_slot_set(struct ov_kernel *kernel, uint32_t slot, enum ov_slot_state state)
{
    if (slot < kernel->slot_count) {
        atomic_store_explicit(&kernel->slot[slot], (uint8_t)state, memory_order_relaxed);
    }
}

#endif
