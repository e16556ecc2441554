/*
 * probe_digest.h: a sum over words that depends on their order, computed alike by a kernel (probe_digest) and by the
 * test that knows what the kernel has to find: word[0] * 31^(count-1) + ... + word[count-1], modulo 2^32.
 *
 * Include it after portable.h or on its own.
 */
#ifndef PROBE_DIGEST_H
#define PROBE_DIGEST_H

#include <stdint.h>

#ifndef DEVICE_FUNCTION
#define DEVICE_FUNCTION static inline
#endif
#ifndef PREFETCH
#define PREFETCH(address) __builtin_prefetch(address)
#endif

/* One word after the other would be as slow as a multiplication and an addition take; lanes do not wait for each
 * other. */
enum { PROBE_LANES = 16 };

DEVICE_FUNCTION uint32_t probe_digest_of(const uint32_t *word, uint64_t count)
{
    uint32_t lane[PROBE_LANES] = {0}, sum = 0, factor = 1;
    uint64_t k = 0;
    for (int l = 0; l < PROBE_LANES; l++) {
        factor *= 31u;
    }
    for (; k + PROBE_LANES <= count; k += PROBE_LANES) {
        PREFETCH(word + k + 64 * PROBE_LANES);
        for (int l = 0; l < PROBE_LANES; l++) {
            lane[l] = lane[l] * factor + word[k + (uint64_t)l];
        }
    }
    for (int l = 0; l < PROBE_LANES; l++) {
        sum = sum * 31u + lane[l];
    }
    for (; k < count; k++) {
        sum = sum * 31u + word[k];
    }
    return sum;
}

#endif
