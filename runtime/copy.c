/*
 * Copies and fills: see runtime.h. A copy that reads or writes streamed units finds them in host memory, writable,
 * where every form of copy is served by the driver itself.
 */
#include <string.h>

#include "convert.h"
#include "copy.h"
#include "engine.h"
#include "gate.h"
#include "log.h"
#include "runtime.h"
#include "search.h"
#include "zerocopy.h"

static size_t span_bytes(const struct ov_span *span)
{
    return span->rows > 1 ? (span->rows - 1) * span->pitch_bytes + span->bytes : span->bytes;
}

/* 1 + the first streamed unit that [from, to) overlaps, from the page on. Page granularity: neighbours may be caught,
 * too. */
static uint32_t unit_in(const struct ov_engine *engine, uint64_t from, uint64_t to)
{
    uint64_t limit = ov_page_address(&engine->arena, engine->arena.high_page);
    to = to < limit ? to : limit;
    uint32_t first = from < limit ? ov_unit_at(&engine->arena, &engine->ring, from) : 0;
    if (ov_is_unit(first)) {
        return first;
    }
    for (uint64_t at = from & ~(uint64_t)(OV_PAGE_BYTES - 1); at < to; at += OV_PAGE_BYTES) {
        uint32_t unit =
            atomic_load_explicit(&engine->arena.unit[ov_arena_page(&engine->arena, at)], memory_order_relaxed);
        if (ov_is_unit(unit)) {
            return unit;
        }
    }
    return 0;
}

static CUresult take_out(struct ov_engine *engine, uint64_t from, uint64_t to, enum ov_mark mark)
{
    if (unit_in(engine, from, to) == 0) {
        return CUDA_SUCCESS;
    }
    struct ov_exclusive section;
    CUresult result = ov_exclusive_begin(engine, &section);
    for (uint32_t unit; result == CUDA_SUCCESS && (unit = unit_in(engine, from, to)) != 0;) {
        result = ov_unit_revoke(engine, unit - 1, mark);
    }
    ov_exclusive_end(engine, &section);
    return result;
}

static bool in_arena(const struct ov_span *span)
{
    return span->address != 0 && ov_engine_of(span->address) != NULL;
}

static CUresult serve_span(const struct ov_span *span, bool capturing)
{
    struct ov_engine *engine = ov_engine_of(span->address);
    if (!capturing && atomic_load_explicit(&engine->planned, memory_order_relaxed)) {
        return take_out(engine, span->address, span->address + span_bytes(span), OV_MARK_COPIED);
    }
    return CUDA_SUCCESS;
}

/* Copies between two addresses of the device may come from host memory, too. */
static void find_host_source(struct ov_copy *copy)
{
    struct ov_zerocopy range;
    if (copy->host_source == NULL && copy->src.address != 0 && ov_zerocopy_find(copy->src.address, &range) &&
        range.host != NULL) {
        copy->host_source = range.host + (copy->src.address - range.address);
    }
}

/* The source's own rows and pitch: what lies between its rows need not be readable. */
static void search_payload(struct ov_copy *copy)
{
    if (!ov_search_needed()) {
        return;
    }
    bool pitched = copy->src.rows > 1;
    size_t rows = pitched ? copy->src.rows : 1;
    size_t bytes = pitched || copy->src.bytes > 0 ? copy->src.bytes : copy->dst.bytes;
    for (size_t row = 0; row < rows; row++) {
        size_t skip = (8 - copy->dst.address % 8) % 8; /* addresses are aligned where they end up */
        const char *from = (const char *)copy->host_source + row * copy->src.pitch_bytes;
        CUresult result = bytes > skip ? ov_search(from + skip, bytes - skip, NULL) : CUDA_SUCCESS;
        copy->refused = copy->refused != CUDA_SUCCESS ? copy->refused : result;
    }
}

CUresult ov_copy_settle(const struct ov_copy *copy, bool capturing)
{
    CUresult result = in_arena(&copy->src) ? serve_span(&copy->src, capturing) : CUDA_SUCCESS;
    if (in_arena(&copy->dst)) {
        CUresult served = serve_span(&copy->dst, capturing);
        result = result != CUDA_SUCCESS ? result : served;
        struct ov_engine *engine = ov_engine_of(copy->dst.address);
        pthread_mutex_lock(&engine->lock);
        if (copy->dst.rows <= 1) {
            ov_alloc_edges(engine, copy->dst.address, copy->dst.bytes);
        }
        struct ov_alloc *alloc = ov_alloc_of(engine, ov_arena_page(&engine->arena, copy->dst.address));
        if (alloc != NULL) {
            alloc->dirty = true;
            const bool from_copy = copy->src.address != 0 || copy->host_source != NULL;
            const size_t fresh = ov_learn_filled(engine, copy->dst.address, span_bytes(&copy->dst), from_copy);
            ov_giveway_uploaded(engine, in_arena(&copy->src) ? 0 : fresh);
        }
        pthread_mutex_unlock(&engine->lock);
    }
    return result;
}

void ov_copy_note(const struct ov_copy *copy, CUstream stream)
{
    if (in_arena(&copy->dst)) {
        ov_note_stream(ov_engine_of(copy->dst.address), stream);
    }
    if (in_arena(&copy->src)) {
        ov_note_stream(ov_engine_of(copy->src.address), stream);
    }
}

void ov_copy_begin(struct ov_copy *copy)
{
    copy->refused = CUDA_SUCCESS;
    bool dst = in_arena(&copy->dst), src = in_arena(&copy->src);
    bool armed = atomic_load_explicit(&ov_state, memory_order_relaxed) == OV_ARMED;
    copy->gated =
        dst || src || (armed && (copy->dst.address != 0 || copy->src.address != 0)); /* others may be inspected */
    if (!copy->gated) {
        return;
    }
    ov_gate_enter();
    ov_copy_note(copy, copy->stream); /* from the first one on: it may be under way when there is something to stream */
    bool capturing = armed && ov_capturing(copy->stream);
    copy->refused = ov_copy_settle(copy, capturing);
    if (armed && !capturing && copy->dst.address != 0) {
        find_host_source(copy);
    }
    if (armed && !capturing && copy->host_source != NULL && copy->dst.address != 0) {
        search_payload(copy);
    }
}

void ov_copy_end(struct ov_copy *copy, CUresult result)
{
    (void)result;
    if (copy->gated) {
        ov_gate_leave();
    }
}
