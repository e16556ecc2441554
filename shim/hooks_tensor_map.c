/*
 * hooks_tensor_map.c - descriptors of the tensor memory accelerator. The program passes them by value, or stores them
 * where kernels read them, and the engine finds the address in them as it finds any other: provided that it stands
 * there as one word, which the engine makes sure of.
 */
#include "hook.h"

#define ENCODE_BODY(name, params, args)                                                                        \
    CUresult ov_body_##name params                                                                             \
    {                                                                                                          \
        const CUresult result = OV_REAL(name, args);                                                           \
        return result != CUDA_SUCCESS ? result                                                                 \
                                      : ov_address_encoded(map, sizeof *map, (CUdeviceptr)(uintptr_t)address); \
    }

#define TENSOR                                                                                          \
    CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *dims, \
        const cuuint64_t *strides
#define LAYOUT CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill

ENCODE_BODY(cuTensorMapEncodeTiled,
            (TENSOR, const cuuint32_t *box, const cuuint32_t *steps, CUtensorMapInterleave interleave, LAYOUT),
            (map, type, rank, address, dims, strides, box, steps, interleave, swizzle, promotion, fill))
ENCODE_BODY(cuTensorMapEncodeIm2col,
            (TENSOR, const int *lower, const int *upper, cuuint32_t channels, cuuint32_t pixels,
             const cuuint32_t *steps, CUtensorMapInterleave interleave, LAYOUT),
            (map, type, rank, address, dims, strides, lower, upper, channels, pixels, steps, interleave, swizzle,
             promotion, fill))
ENCODE_BODY(cuTensorMapEncodeIm2colWide,
            (TENSOR, int lower, int upper, cuuint32_t channels, cuuint32_t pixels, const cuuint32_t *steps,
             CUtensorMapInterleave interleave, int mode, LAYOUT),
            (map, type, rank, address, dims, strides, lower, upper, channels, pixels, steps, interleave, mode, swizzle,
             promotion, fill))
ENCODE_BODY(cuTensorMapReplaceAddress, (CUtensorMap * map, void *address), (map, address))
