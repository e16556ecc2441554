#include "inspect.h"

#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "log.h"

#define LANES 512u
#define FOUND_SLOTS                                                                                  \
    ((size_t)1 << 18) /* the table of marked pages, modulo its size: a collision only marks too much \
                       */
#define BATCH_PAGES   128u
#define PARTIAL_BYTES ((size_t)BATCH_PAGES * LANES * sizeof(struct ov_page_digest))
#define PAGE_WORDS    (OV_PAGE_BYTES / 8)

/* Scratch: the table of marked pages, the partial sums of one batch, its totals. */
#define FOUND_AT   0
#define PARTIAL_AT FOUND_SLOTS
#define TOTAL_AT   (PARTIAL_AT + PARTIAL_BYTES)
_Static_assert(TOTAL_AT + BATCH_PAGES * sizeof(struct ov_page_digest) <= OV_PAGE_BYTES, "scratch is one page");

extern const char ov_inspect_ptx[];

CUresult ov_inspect_open(struct ov_engine *engine)
{
    struct ov_inspect *inspect = &engine->inspect;
    if (inspect->ready) {
        return CUDA_SUCCESS;
    }
    int least = 0, greatest = 0;
    (void)ov_cu->cuCtxGetStreamPriorityRange(&least, &greatest);
    inspect->found = calloc(FOUND_SLOTS, 1);
    inspect->named = calloc(FOUND_SLOTS, 1);
    CUresult result = inspect->found != NULL && inspect->named != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        result = ov_cu->cuModuleLoadData(&inspect->module, ov_inspect_ptx);
    }
    if (result == CUDA_SUCCESS) {
        result = ov_cu->cuModuleGetFunction(&inspect->partial, inspect->module, "ov_inspect_partial");
    }
    if (result == CUDA_SUCCESS) {
        result = ov_cu->cuModuleGetFunction(&inspect->total, inspect->module, "ov_inspect_total");
    }
    if (result == CUDA_SUCCESS) {
        result = ov_cu->cuStreamCreateWithPriority(&inspect->stream, CU_STREAM_NON_BLOCKING, greatest);
    }
    if (result == CUDA_SUCCESS) {
        result = ov_own_device(&engine->arena, OV_FOR_SCRATCH, 1, &inspect->handle, &inspect->scratch);
    }
    inspect->ready = result == CUDA_SUCCESS;
    return inspect->ready ? ov_inspect_clear(engine) : result;
}

void ov_inspect_close(struct ov_engine *engine)
{
    struct ov_inspect *inspect = &engine->inspect;
    if (inspect->ready) {
        ov_disown_device(&engine->arena, OV_FOR_SCRATCH, 1, &inspect->handle, inspect->scratch);
    }
    free(inspect->found);
    free(inspect->named);
    memset(inspect, 0, sizeof *inspect);
}

static CUresult digest_batch(struct ov_engine *engine, CUdeviceptr address, size_t words, uint32_t pages,
                             struct ov_page_digest *out)
{
    const struct ov_inspect *inspect = &engine->inspect;
    CUdeviceptr partial = inspect->scratch + PARTIAL_AT, total = inspect->scratch + TOTAL_AT;
    CUdeviceptr found = inspect->scratch + FOUND_AT;
    uint64_t word_count = words, page_words = PAGE_WORDS, page_count = pages;
    uint64_t base = engine->arena.base, bytes = (uint64_t)engine->arena.high_page << OV_PAGE_SHIFT;
    void *partial_params[] = {&address, &word_count, &page_words, &partial, &base, &bytes, &found};
    void *total_params[] = {&partial, &page_count, &total};
    CUresult result = ov_cu->cuLaunchKernel(inspect->partial, pages * (LANES / 256), 1, 1, 256, 1, 1, 0,
                                            inspect->stream, partial_params, NULL);
    if (result == CUDA_SUCCESS) {
        result = ov_cu->cuLaunchKernel(inspect->total, (pages + 31) / 32, 1, 1, 32, 1, 1, 0, inspect->stream,
                                       total_params, NULL);
    }
    if (result == CUDA_SUCCESS) {
        result = ov_cu->cuMemcpyDtoHAsync_v2(out, total, pages * sizeof *out, inspect->stream);
    }
    return ov_finish(engine, inspect->stream, result);
}

CUresult ov_inspect_pages(struct ov_engine *engine, CUdeviceptr address, uint32_t pages, struct ov_page_digest *out)
{
    CUresult result = CUDA_SUCCESS;
    for (uint32_t done = 0; done < pages && result == CUDA_SUCCESS; done += BATCH_PAGES) {
        uint32_t batch = pages - done < BATCH_PAGES ? pages - done : BATCH_PAGES;
        result =
            digest_batch(engine, address + ((CUdeviceptr)done << OV_PAGE_SHIFT), batch * PAGE_WORDS, batch, out + done);
    }
    return result;
}

CUresult ov_inspect_range(struct ov_engine *engine, CUdeviceptr address, size_t bytes, struct ov_page_digest *out)
{
    memset(out, 0, sizeof *out);
    CUresult result = CUDA_SUCCESS;
    for (size_t done = 0; done < bytes && result == CUDA_SUCCESS; done += BATCH_PAGES * OV_PAGE_BYTES) {
        struct ov_page_digest page[BATCH_PAGES];
        size_t batch = bytes - done < BATCH_PAGES * OV_PAGE_BYTES ? bytes - done : BATCH_PAGES * OV_PAGE_BYTES;
        uint32_t pages = ov_pages(batch);
        if (batch < 8) {
            break; /* too little to hold an address */
        }
        result = digest_batch(engine, address + done, batch / 8, pages, page);
        for (uint32_t p = 0; p < pages && result == CUDA_SUCCESS; p++) {
            out->addresses += page[p].addresses;
            out->hash.low += page[p].hash.low * (done / OV_PAGE_BYTES + p + 1);
            out->hash.high += page[p].hash.high * (done / OV_PAGE_BYTES + p + 1);
        }
    }
    return result;
}

CUresult ov_inspect_copied(struct ov_engine *engine, CUdeviceptr address, size_t bytes, struct ov_page_digest *out)
{
    const struct ov_inspect *inspect = &engine->inspect;
    const uint64_t base = engine->arena.base, limit = (uint64_t)engine->arena.high_page << OV_PAGE_SHIFT;
    uint64_t piece[2048];
    CUresult result = CUDA_SUCCESS;
    memset(out, 0, sizeof *out);
    for (size_t done = 0; done < bytes && result == CUDA_SUCCESS; done += sizeof piece) {
        size_t size = bytes - done < sizeof piece ? bytes - done : sizeof piece;
        result = ov_cu->cuMemcpyDtoHAsync_v2(piece, address + done, size, inspect->stream);
        CUresult synced = ov_cu->cuStreamSynchronize(inspect->stream);
        result = result != CUDA_SUCCESS ? result : synced;
        for (size_t i = 0; i < size / 8 && result == CUDA_SUCCESS; i++) {
            if (piece[i] - base < limit) {
                inspect->named[((piece[i] - base) >> OV_PAGE_SHIFT) % FOUND_SLOTS] = 1;
                out->addresses += piece[i] * (2 * (done / 8 + i) + 1);
            }
        }
    }
    return result;
}

CUresult ov_inspect_fetch(struct ov_engine *engine)
{
    const struct ov_inspect *inspect = &engine->inspect;
    CUresult result =
        ov_cu->cuMemcpyDtoHAsync_v2(inspect->found, inspect->scratch + FOUND_AT, FOUND_SLOTS, inspect->stream);
    return ov_finish(engine, inspect->stream, result);
}

bool ov_inspect_points_to(const struct ov_inspect *inspect, uint32_t page)
{
    return (inspect->found[page % FOUND_SLOTS] | inspect->named[page % FOUND_SLOTS]) != 0;
}

CUresult ov_inspect_clear(struct ov_engine *engine)
{
    const struct ov_inspect *inspect = &engine->inspect;
    memset(inspect->found, 0, FOUND_SLOTS);
    memset(inspect->named, 0, FOUND_SLOTS);
    CUresult result = ov_cu->cuMemsetD8Async(inspect->scratch + FOUND_AT, 0, FOUND_SLOTS, inspect->stream);
    return ov_finish(engine, inspect->stream, result);
}

CUdeviceptr ov_inspect_spare(const struct ov_inspect *inspect, size_t *bytes)
{
    *bytes = PARTIAL_BYTES;
    return inspect->scratch + PARTIAL_AT;
}
