/* hash.h - the hash of a page's bytes, as the device computes it (inspect.h) and everybody compares it; and one of a
 * few words, for comparing what something was made of with what it would be made of. */
#ifndef OV_HASH_H
#define OV_HASH_H

#include <stdint.h>

struct ov_hash {
    uint64_t low, high;
};

static inline uint64_t ov_hash_add(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9E3779B97F4A7C15ull;
    return hash ^ hash >> 29;
}

#endif
