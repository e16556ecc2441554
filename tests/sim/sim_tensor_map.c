/*
 * Tensor maps: 128 opaque bytes that a kernel gets by value. As in the real encoding the global address is the first
 * word; the rest here is only good to tell two maps apart. SIM_MAPS=opaque: a driver whose encoding nobody can read,
 * the complement of the address.
 */
#include "sim.h"

#include <string.h>

static uint64_t encoded(const void *address)
{
    const uint64_t word = (uint64_t)(uintptr_t)address;
    return sim_knobs.opaque_maps ? ~word : word;
}

static CUresult encode(CUtensorMap *map, uint32_t rank, const void *address, const cuuint64_t *dims,
                       const cuuint64_t *strides, const cuuint32_t *steps)
{
    if (map == NULL || ((uintptr_t)map & 63) != 0 || rank == 0 || rank > 5 || ((uintptr_t)address & 15) != 0 ||
        dims == NULL || steps == NULL || (rank > 1 && strides == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t word[sizeof map->opaque / sizeof(uint64_t)] = {encoded(address), rank};
    for (uint32_t i = 0; i < rank; i++) {
        if (dims[i] == 0 || (i + 1 < rank && (strides[i] & 15) != 0)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        word[2 + i] = dims[i];
        word[7 + i] = i + 1 < rank ? strides[i] : 0;
    }
    memcpy(map->opaque, word, sizeof map->opaque);
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuTensorMapEncodeTiled,
        (CUtensorMap * tensorMap, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *dims,
         const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *steps, CUtensorMapInterleave interleave,
         CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill),
        tensorMap, type, rank, address, dims, strides, box, steps, interleave, swizzle, promotion, fill)
{
    (void)call, (void)type, (void)interleave, (void)swizzle, (void)promotion, (void)fill;
    return box == NULL ? CUDA_ERROR_INVALID_VALUE : encode(tensorMap, rank, address, dims, strides, steps);
}

SIM_API(SIM_INIT, cuTensorMapEncodeIm2col,
        (CUtensorMap * tensorMap, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *dims,
         const cuuint64_t *strides, const int *lower, const int *upper, cuuint32_t channels, cuuint32_t pixels,
         const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
         CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill),
        tensorMap, type, rank, address, dims, strides, lower, upper, channels, pixels, steps, interleave, swizzle,
        promotion, fill)
{
    (void)call, (void)type, (void)channels, (void)pixels, (void)interleave, (void)swizzle, (void)promotion, (void)fill;
    return lower == NULL || upper == NULL ? CUDA_ERROR_INVALID_VALUE
                                          : encode(tensorMap, rank, address, dims, strides, steps);
}

SIM_API(SIM_INIT, cuTensorMapReplaceAddress, (CUtensorMap * tensorMap, void *globalAddress), tensorMap, globalAddress)
{
    (void)call;
    uint64_t word = encoded(globalAddress);
    if (tensorMap == NULL || ((uintptr_t)globalAddress & 15) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(tensorMap->opaque, &word, sizeof word);
    return CUDA_SUCCESS;
}
