#include "emission.h"

#include <stdlib.h>
#include <string.h>

#include "engine.h"

static size_t piece_bytes(const struct ov_emission *emission, size_t at)
{
    return emission->bytes - at < OV_PAGE_BYTES ? emission->bytes - at : OV_PAGE_BYTES;
}

/* The words of a piece, to be freed; NULL: they cannot be had. */
static uint64_t *fetch(struct ov_engine *engine, CUdeviceptr address, size_t bytes)
{
    uint64_t *words = malloc(bytes);
    CUstream stream = engine->inspect.stream;
    if (words != NULL &&
        ov_finish(engine, stream, ov_cu->cuMemcpyDtoHAsync_v2(words, address, bytes, stream)) != CUDA_SUCCESS) {
        free(words);
        return NULL;
    }
    return words;
}

CUresult ov_emission_begin(struct ov_engine *engine, struct ov_emission *emission, CUdeviceptr address, size_t bytes)
{
    *emission = (struct ov_emission){.address = address, .bytes = bytes & ~(size_t)7};
    CUresult result = ov_inspect_range(engine, address, emission->bytes, &emission->digest);
    if (emission->digest.addresses == 0) {
        return result;
    }
    for (size_t at = 0; at < emission->bytes && result == CUDA_SUCCESS && !emission->crowded; at += OV_PAGE_BYTES) {
        struct ov_page_digest piece;
        const size_t length = piece_bytes(emission, at);
        result = ov_inspect_range(engine, address + at, length, &piece);
        if (result != CUDA_SUCCESS || piece.addresses == 0) {
            continue;
        }
        uint64_t *words = emission->pieces < OV_EMISSION_PIECES ? fetch(engine, address + at, length) : NULL;
        emission->crowded = words == NULL;
        if (words != NULL) {
            emission->piece[emission->pieces].at = at;
            emission->piece[emission->pieces++].words = words;
        }
    }
    if (result != CUDA_SUCCESS) {
        ov_emission_free(emission);
    }
    return result;
}

static const uint64_t *words_before(const struct ov_emission *emission, size_t at)
{
    for (unsigned i = 0; i < emission->pieces; i++) {
        if (emission->piece[i].at == at) {
            return emission->piece[i].words;
        }
    }
    return NULL;
}

/* Addresses where there were others, or none. */
static bool differ(const struct ov_engine *engine, const uint64_t *before, const uint64_t *after, size_t count)
{
    const uint64_t base = engine->arena.base, limit = (uint64_t)engine->arena.high_page << OV_PAGE_SHIFT;
    for (size_t i = 0; i < count; i++) {
        if (after[i] - base < limit && after[i] != before[i]) {
            return true;
        }
    }
    return false;
}

/* A piece that holds addresses now. */
static bool piece_is_new(struct ov_engine *engine, const struct ov_emission *emission, size_t at)
{
    const size_t length = piece_bytes(emission, at);
    const uint64_t *before = words_before(emission, at);
    uint64_t *after = before != NULL ? fetch(engine, emission->address + at, length) : NULL;
    const bool is_new = after == NULL || differ(engine, before, after, length / 8);
    free(after);
    return is_new;
}

CUresult ov_emission_end(struct ov_engine *engine, const struct ov_emission *emission, struct ov_page_digest *after,
                         bool *emitted)
{
    CUresult result = ov_inspect_range(engine, emission->address, emission->bytes, after);
    *emitted = result != CUDA_SUCCESS;
    if (result != CUDA_SUCCESS || after->addresses == 0 || after->addresses == emission->digest.addresses) {
        return result;
    }
    *emitted = emission->crowded || emission->pieces == 0;
    for (size_t at = 0; at < emission->bytes && result == CUDA_SUCCESS && !*emitted; at += OV_PAGE_BYTES) {
        struct ov_page_digest piece;
        result = ov_inspect_range(engine, emission->address + at, piece_bytes(emission, at), &piece);
        *emitted = result != CUDA_SUCCESS || (piece.addresses != 0 && piece_is_new(engine, emission, at));
    }
    return result;
}

void ov_emission_free(struct ov_emission *emission)
{
    for (unsigned i = 0; i < emission->pieces; i++) {
        free(emission->piece[i].words);
    }
    emission->pieces = 0;
}
