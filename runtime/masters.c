#include "masters.h"

#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "log.h"

void ov_masters_open(struct ov_engine *engine)
{
    ov_pins_open(&engine->masters.pins, ov_opt.pin, engine->arena.numa_node);
    engine->arena.masters = &engine->masters;
}

/* ---- what is set aside ---- */

/* Room for the largest pin's pages, as long as there are pins. */
static void set_aside(struct ov_arena *arena)
{
    struct ov_masters *masters = arena->masters;
    masters->largest_bytes = 0;
    for (const struct ov_pin *pin = masters->pins.first; pin != NULL; pin = pin->next) {
        if (!pin->dropped && pin->bytes > masters->largest_bytes) {
            masters->largest_bytes = pin->bytes;
        }
    }
    arena->ledger->host_aside_bytes = masters->largest_bytes;
}

void ov_master_attach(struct ov_engine *engine, uint32_t first, uint32_t pages, struct ov_pin *pin)
{
    pin->first = first;
    pin->pages_used = pages;
    for (uint32_t p = first; p < first + pages; p++) {
        engine->arena.page[p].pin = pin;
    }
    if (pin->bytes > engine->masters.largest_bytes) {
        engine->masters.largest_bytes = engine->ledger.host_aside_bytes = pin->bytes;
    }
}

static void drop(struct ov_arena *arena, struct ov_pin *pin)
{
    size_t bytes = pin->bytes;
    bool largest = bytes == arena->masters->largest_bytes;
    /* The driver may wait for the device, and that is not to be waited for while somebody captures. */
    if (ov_pin_release(&arena->masters->pins, pin, atomic_load(&ov_captures) == 0 && arena->frozen == CUDA_SUCCESS)) {
        ov_ledger_give_host(arena->ledger, bytes);
    }
    if (largest) {
        set_aside(arena);
    }
}

void ov_master_detach(struct ov_arena *arena, uint32_t first, uint32_t pages)
{
    for (uint32_t p = first; p < first + pages; p++) {
        struct ov_pin *pin = arena->page[p].pin;
        arena->page[p].pin = NULL;
        if (pin != NULL && --pin->pages_used == 0) {
            drop(arena, pin);
        }
    }
}

void ov_masters_reap(struct ov_engine *engine)
{
    ov_ledger_give_host(&engine->ledger, ov_pins_reap(&engine->masters.pins));
}

/* ---- copies ---- */

struct ov_piece ov_master_piece(const struct ov_arena *arena, uint32_t page, uint32_t limit)
{
    const struct ov_page *first = &arena->page[page];
    struct ov_piece piece = {0, 0, false};
    if (first->host != 0) {
        piece.address = ov_mirror_address(arena, page);
        while (piece.pages < limit && first[piece.pages].host != 0) {
            piece.pages++;
        }
    } else if (first->pin != NULL) {
        piece.address =
            (CUdeviceptr)(uintptr_t)first->pin->host + ((CUdeviceptr)(page - first->pin->first) << OV_PAGE_SHIFT);
        piece.pageable = first->pin->kind == OV_PIN_NONE;
        while (piece.pages < limit && first[piece.pages].pin == first->pin && first[piece.pages].host == 0) {
            piece.pages++;
        }
    }
    return piece;
}

static bool open_bounce(struct ov_bounce *bounce)
{
    void *memory = NULL;
    if (bounce->memory != NULL || bounce->failed) {
        return !bounce->failed;
    }
    CUresult result = ov_cu->cuMemHostAlloc(&memory, OV_BOUNCE_SLOTS * OV_PAGE_BYTES, CU_MEMHOSTALLOC_PORTABLE);
    for (unsigned i = 0; i < OV_BOUNCE_SLOTS && result == CUDA_SUCCESS; i++) {
        result = ov_cu->cuEventCreate(&bounce->free[i], CU_EVENT_DISABLE_TIMING);
    }
    bounce->memory = memory;
    bounce->failed = result != CUDA_SUCCESS;
    if (bounce->failed) {
        ov_log_once(OV_LOG_INFO, "no pinned buffer for copies from unpinned memory (error %d): the driver makes do",
                    (int)result);
    }
    return !bounce->failed;
}

/* Page by page through the buffer: the host fills a slot while the slots before it are on their way. */
static CUresult fetch_pageable(struct ov_bounce *bounce, CUdeviceptr to, const char *from, uint32_t pages,
                               CUstream stream)
{
    if (!open_bounce(bounce)) {
        return ov_cu->cuMemcpyHtoDAsync_v2(to, from, (size_t)pages << OV_PAGE_SHIFT, stream);
    }
    CUresult result = CUDA_SUCCESS;
    for (uint32_t p = 0; p < pages && result == CUDA_SUCCESS; p++) {
        unsigned slot = bounce->next++ % OV_BOUNCE_SLOTS;
        char *buffer = bounce->memory + slot * OV_PAGE_BYTES;
        result = ov_cu->cuEventSynchronize(bounce->free[slot]); /* at once, if it was never recorded */
        if (result == CUDA_SUCCESS) {
            memcpy(buffer, from + ((size_t)p << OV_PAGE_SHIFT), OV_PAGE_BYTES);
            result = ov_cu->cuMemcpyHtoDAsync_v2(to + ((CUdeviceptr)p << OV_PAGE_SHIFT), buffer, OV_PAGE_BYTES, stream);
        }
        if (result == CUDA_SUCCESS) {
            result = ov_cu->cuEventRecord(bounce->free[slot], stream);
        }
        if (result != CUDA_SUCCESS) {
            (void)ov_cu->cuStreamSynchronize(stream); /* the slot may be in use without an event that tells */
        }
    }
    return result;
}

/* Launches may be made while somebody captures, and what they need is fetched then. */
static CUresult fetch_beside_captures(struct ov_bounce *bounce, CUdeviceptr to, const char *from, uint32_t pages,
                                      CUstream stream)
{
    const CUstreamCaptureMode mode = ov_relax();
    const CUresult result = fetch_pageable(bounce, to, from, pages, stream);
    ov_relax_end(mode);
    return result;
}

CUresult ov_master_fetch(struct ov_engine *engine, CUdeviceptr to, uint32_t first, uint32_t pages, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    for (uint32_t done = 0; done < pages && result == CUDA_SUCCESS;) {
        struct ov_piece piece = ov_master_piece(&engine->arena, first + done, pages - done);
        CUdeviceptr at = to + ((CUdeviceptr)done << OV_PAGE_SHIFT);
        if (piece.pages == 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        result = piece.pageable ? fetch_beside_captures(&engine->masters.bounce, at,
                                                        (const char *)(uintptr_t)piece.address, piece.pages, stream)
                                : ov_cu->cuMemcpyAsync(at, piece.address, (size_t)piece.pages << OV_PAGE_SHIFT, stream);
        done += piece.pages;
    }
    return result;
}

CUresult ov_master_store(struct ov_engine *engine, uint32_t first, uint32_t pages, CUdeviceptr from, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    for (uint32_t done = 0; done < pages && result == CUDA_SUCCESS;) {
        struct ov_piece piece = ov_master_piece(&engine->arena, first + done, pages - done);
        CUdeviceptr at = from + ((CUdeviceptr)done << OV_PAGE_SHIFT);
        size_t bytes = (size_t)piece.pages << OV_PAGE_SHIFT;
        if (piece.pages == 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        result = piece.pageable ? ov_cu->cuMemcpyDtoHAsync_v2((void *)(uintptr_t)piece.address, at, bytes, stream)
                                : ov_cu->cuMemcpyAsync(piece.address, at, bytes, stream);
        done += piece.pages;
    }
    return result;
}

bool ov_master_is_private(const struct ov_arena *arena, uint32_t first, uint32_t pages)
{
    for (uint32_t p = first; p < first + pages; p++) {
        if (arena->page[p].pin != NULL && arena->page[p].pin->kind == OV_PIN_SHARED) {
            return false;
        }
    }
    return true;
}

/* ---- pinned masters become mapped ones ---- */

/* [first, first + pages) lies in one pin. */
static CUresult evacuate_piece(struct ov_engine *engine, uint32_t first, uint32_t pages)
{
    struct ov_arena *arena = &engine->arena;
    const struct ov_piece from = ov_master_piece(arena, first, pages);
    engine->ledger.host_aside_bytes = 0; /* this is what it is for */
    CUresult result = ov_make_masters(arena, first, pages);
    engine->ledger.host_aside_bytes = engine->masters.largest_bytes;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    CUdeviceptr to = ov_mirror_address(arena, first);
    size_t bytes = (size_t)pages << OV_PAGE_SHIFT;
    result = from.pageable
                 ? ov_cu->cuMemcpyHtoDAsync_v2(to, (const void *)(uintptr_t)from.address, bytes, engine->ring.side)
                 : ov_cu->cuMemcpyAsync(to, from.address, bytes, engine->ring.side);
    result = ov_finish(engine, engine->ring.side, result);
    if (result != CUDA_SUCCESS) {
        ov_drop_mapped(arena, first, pages);
        return result;
    }
    ov_master_detach(arena, first, pages);
    return CUDA_SUCCESS;
}

CUresult ov_master_evacuate(struct ov_engine *engine, uint32_t first, uint32_t pages)
{
    CUresult result = CUDA_SUCCESS;
    for (uint32_t p = first; p < first + pages && result == CUDA_SUCCESS;) {
        struct ov_piece piece = ov_master_piece(&engine->arena, p, first + pages - p);
        if (piece.pages == 0) {
            p++;
        } else {
            result = engine->arena.page[p].host == 0 ? evacuate_piece(engine, p, piece.pages) : CUDA_SUCCESS;
            p += piece.pages;
        }
    }
    return result;
}

/* ---- the end ---- */

size_t ov_masters_close(struct ov_engine *engine)
{
    struct ov_masters *masters = &engine->masters;
    if (masters->bounce.memory != NULL) {
        (void)ov_cu->cuMemFreeHost(masters->bounce.memory); /* its events go with the context */
    }
    memset(&masters->bounce, 0, sizeof masters->bounce);
    ov_share_leave(&masters->share);
    ov_masters_reap(engine);
    if (masters->pins.count > 0) {
        ov_log(OV_LOG_WARN, "device %d: %zu MiB of pinned host memory could not be released", engine->device,
               masters->pins.bytes >> 20);
    }
    return masters->pins.count;
}
