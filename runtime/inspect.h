/*
 * inspect.h - looks at the contents of device memory, on the device: a hash of every page, and the addresses found in
 * it.
 *
 * One pass over the memory (device/inspect.cu) gives, for each page, a 128-bit hash that depends on every word and its
 * place, and a digest of all aligned words that look like addresses of this device's arena slice. The pages that such
 * words point into are marked in a table that only grows until it is cleared.
 *
 * Works on a stream of its own and waits for it: call in an exclusive section, or on memory that nobody writes. Scratch
 * is one page of device memory, counted in the ledger. Errors: the driver's code; results are then undefined.
 */
#ifndef OV_INSPECT_H
#define OV_INSPECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"
#include "hash.h"

struct ov_page_digest {
    struct ov_hash hash;
    uint64_t addresses; /* digest of the words that are addresses, 0: none */
};

struct ov_inspect {
    bool ready;
    CUmodule module;
    CUfunction partial, total;
    CUstream stream;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr scratch;
    uint8_t *found; /* host copy of the table of pages pointed to, see ov_inspect_points_to */
    uint8_t *named; /* the same of what was searched on the host */
};

struct ov_engine;

/* Loads the device code and takes scratch; called when the engine is armed. */
CUresult ov_inspect_open(struct ov_engine *engine);
void ov_inspect_close(struct ov_engine *engine);
/* Digests `pages` pages from `address` (page-aligned, mapped and readable as a whole) into out[]. */
CUresult ov_inspect_pages(struct ov_engine *engine, CUdeviceptr address, uint32_t pages, struct ov_page_digest *out);
/* The digest of addresses in [address, address + bytes), any 8-byte-aligned range; used for memory outside the arena.
 */
CUresult ov_inspect_range(struct ov_engine *engine, CUdeviceptr address, size_t bytes, struct ov_page_digest *out);
/* The same for memory that only copies may read: on the host. The hash is left out. */
CUresult ov_inspect_copied(struct ov_engine *engine, CUdeviceptr address, size_t bytes, struct ov_page_digest *out);
/* Fetches the table of what was pointed to since the last clear. */
CUresult ov_inspect_fetch(struct ov_engine *engine);
bool ov_inspect_points_to(const struct ov_inspect *inspect, uint32_t page);
CUresult ov_inspect_clear(struct ov_engine *engine);
/* Device memory that holds nothing between two calls: more than a MiB, *bytes of it. */
CUdeviceptr ov_inspect_spare(const struct ov_inspect *inspect, size_t *bytes);

#endif
