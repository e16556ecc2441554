/*
 * batch_copy.h - what the batch copies of CUDA 12.8 and newer are given, for builds with an older cuda.h, too.
 * Where cuda.h has the types, batch_copy.c checks that they are the same.
 */
#ifndef OV_BATCH_COPY_H
#define OV_BATCH_COPY_H

#include <cuda.h>
#include <stddef.h>

struct ov_location {
    int type, id;
};

enum { OV_OPERAND_POINTER = 1, OV_OPERAND_ARRAY = 2 };

struct ov_operand {
    int type;
    union {
        struct {
            CUdeviceptr address;
            size_t row_length, layer_height; /* in elements; 0: as the extent */
            struct ov_location location;
        } pointer;
        struct {
            CUarray array;
            size_t x, y, z;
        } array;
    };
};

struct ov_batch_3d {
    struct ov_operand src, dst;
    size_t width, height, depth; /* in elements: bytes, or what the array holds */
    int source_order;
    unsigned flags;
};

#endif
