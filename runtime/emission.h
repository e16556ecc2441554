/*
 * emission.h - whether memory holds arena addresses that it did not hold before.
 *
 * Programs take scratch from pools in which tables of addresses of earlier launches still stand: who overwrites those
 * changes the digest of addresses (inspect.h) and has emitted nothing. So before a launch the pieces that hold
 * addresses are copied to the host, and after it the words that are addresses now are compared with what stood in their
 * place.
 *
 * One struct ov_emission for each range that is looked at. In an exclusive section. Ownership: ov_emission_free frees
 * the copies. Errors: whatever cannot be told counts as new addresses.
 */
#ifndef OV_EMISSION_H
#define OV_EMISSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"
#include "inspect.h"

/* Pieces of 2 MiB of one range that are copied; in a range with more of them every change counts. */
#define OV_EMISSION_PIECES 8u

struct ov_emission {
    CUdeviceptr address; /* 8-byte aligned */
    size_t bytes;
    struct ov_page_digest digest; /* of all of it, before */
    struct {
        size_t at; /* offset of the piece */
        uint64_t *words;
    } piece[OV_EMISSION_PIECES];
    unsigned pieces;
    bool crowded; /* there were more, or one could not be copied */
};

struct ov_engine;

/* Looks at [address, address + bytes). On an error nothing is kept. */
CUresult ov_emission_begin(struct ov_engine *engine, struct ov_emission *emission, CUdeviceptr address, size_t bytes);
/* Looks again: *after is the digest now, *emitted whether there are new addresses. */
CUresult ov_emission_end(struct ov_engine *engine, const struct ov_emission *emission, struct ov_page_digest *after,
                         bool *emitted);
void ov_emission_free(struct ov_emission *emission);

#endif
