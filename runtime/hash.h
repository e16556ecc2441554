/* hash.h - the hash of a page's bytes, as the device computes it (inspect.h) and everybody compares it. */
#ifndef OV_HASH_H
#define OV_HASH_H

#include <stdint.h>

struct ov_hash {
    uint64_t low, high;
};

#endif
