/*
 * zerocopy.h - zero-copy memory: host memory that kernels read in place, pinned, registered or managed.
 *
 * The CPU stores there without a call that anybody could see, and a kernel may follow an address that it finds there.
 * The rule that makes that right:
 *
 *   study    all of it is searched on the device, as all other memory is (study.c). What is named is not streamed.
 *   launch   a launch that passes an address of zero-copy memory is *exposed*. While anything is streamed, it leaves
 *            the launch path, and the CPU searches what it passes: the whole range up to OV_ZEROCOPY_WINDOW, else that
 *            much from the address on (a table is passed by its beginning). A range up to OV_ZEROCOPY_TABLE is searched
 *            as a whole the first four times, and whenever their number has doubled; each time, once addresses were
 *            found in it. If they are found in a larger one, and a launch passes it, nothing is streamed any more.
 *   copy     a copy out of zero-copy memory is a payload like any other (copy.c); graphs: graph_source.h.
 *   emit     a watched launch that passes such memory is checked for addresses that it left there (watch.c).
 *
 * The launch path only pays for telling that a parameter is not one of these addresses: ranges lie between two bounds,
 * and in granules of which a table says how many ranges each holds.
 *
 * One table for the process, since these addresses are good on every device. Its lock is a leaf: nothing is called
 * under it but the search of ov_zerocopy_each, which is made under the engine's lock.
 */
#ifndef OV_ZEROCOPY_H
#define OV_ZEROCOPY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"

#define OV_ZEROCOPY_WINDOW ((size_t)256 << 10)
#define OV_ZEROCOPY_TABLE  ((size_t)16 << 20)

#define OV_ZEROCOPY_GRANULES ((uint64_t)1 << 16)
#define OV_ZEROCOPY_SHIFT    21

/* All ranges lie in [low, high). Both only widen while a range in use is there, so they may be read one by one. */
extern _Atomic uint64_t ov_zerocopy_low, ov_zerocopy_high;
extern _Atomic uint32_t ov_zerocopy_granule[OV_ZEROCOPY_GRANULES];

/* For a word between the bounds: false, it is in no range. */
static inline bool ov_zerocopy_maybe(uint64_t word)
{
    return atomic_load_explicit(&ov_zerocopy_granule[(word >> OV_ZEROCOPY_SHIFT) % OV_ZEROCOPY_GRANULES],
                                memory_order_relaxed) != 0;
}

struct ov_zerocopy {
    uint64_t address; /* as kernels know it */
    const char *host; /* as the CPU does; NULL: the CPU may not look while the device works */
    size_t bytes;
    CUcontext context; /* with which it goes */
    CUdevice device;
    bool managed;
    bool table;     /* was found to hold addresses of the arena */
    uint32_t looks; /* exposed launches that passed it while it was too large to be searched as a whole */
};

/* The range that holds the address, copied; false: none. */
bool ov_zerocopy_find(uint64_t address, struct ov_zerocopy *range);
/* Part of a range that is searched for an address inside it: [*host, *host + *bytes). */
void ov_zerocopy_window(const struct ov_zerocopy *range, uint64_t address, const char **host, size_t *bytes);
/* Searches what an address passed by a launch leads to, see above; nothing if it is in no range. As ov_search. */
CUresult ov_zerocopy_exposed(uint64_t address);
/* Calls look() for every range that is not managed memory (which is among the engine's own, alloc.h); true: it is a
 * table. No range is freed meanwhile. */
void ov_zerocopy_each(bool (*look)(void *context, CUdeviceptr address, size_t bytes), void *context);
/* Ranges that go with a context; NULL: the device's primary. */
void ov_zerocopy_context_closing(CUcontext context, CUdevice device);

#endif
