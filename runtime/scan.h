/*
 * scan.h - launch parameters -> addresses inside the arena.
 *
 * Every 8-byte-aligned word of every parameter, or of the `extra` buffer, is tested. A word that looks like an address
 * counts as one: a false touch costs bandwidth, a missed one would be a wrong answer.
 */
#ifndef OV_SCAN_H
#define OV_SCAN_H

#include "arena.h"
#include "kernel.h"
#include "runtime.h"

#define OV_TOUCHES 64

struct ov_touch {
    uint64_t address;
    uint32_t slot;
};

struct ov_touches {
    unsigned count;
    bool incomplete; /* more than fit, or parameters that cannot be seen */
    bool exposed;    /* a word may be an address of zero-copy memory (zerocopy.h) */
    struct ov_touch item[OV_TOUCHES];
};

/* Fills in touches->count, ->incomplete and ->exposed, and the items that were found. No lock, no allocation. */
void ov_scan(const struct ov_kernel *kernel, const struct ov_launch *launch, struct ov_touches *touches);

/* Calls each() for every word that ov_scan would test. For discovery, where time matters less. */
void ov_scan_words(const struct ov_kernel *kernel, const struct ov_launch *launch,
                   void (*each)(void *context, uint64_t word, uint32_t slot), void *context);

#endif
