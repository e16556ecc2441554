/*
 * Copies and fills: see runtime.h. A copy that reads or writes streamed units finds them in host memory, writable, where
 * every form of copy is served by the driver itself.
 */
#include <string.h>

#include "convert.h"
#include "engine.h"
#include "gate.h"
#include "log.h"
#include "runtime.h"

/* Payloads up to this size are searched for addresses of streamed units: pointer tables are small. */
#define TABLE_BYTES ((size_t)1 << 20)

static size_t span_bytes(const struct ov_span *span) {
    return span->rows > 1 ? (span->rows - 1) * span->pitch_bytes + span->bytes : span->bytes;
}

/* 1 + the first streamed unit that [from, to) overlaps, from the page on. Page granularity: neighbours may be caught, too. */
static uint32_t unit_in(const struct ov_engine *engine, uint64_t from, uint64_t to) {
    uint64_t limit = ov_page_address(&engine->arena, engine->arena.high_page);
    to = to < limit ? to : limit;
    for (uint64_t at = from & ~(uint64_t)(OV_PAGE_BYTES - 1); at < to; at += OV_PAGE_BYTES) {
        uint32_t unit = atomic_load_explicit(&engine->arena.unit[ov_arena_page(&engine->arena, at)], memory_order_relaxed);
        if (unit != 0 && unit != OV_UNIT_COLD && (unit & OV_UNIT_EDGE) == 0) {
            return unit;
        }
    }
    return 0;
}

static void take_out(struct ov_engine *engine, uint64_t from, uint64_t to, enum ov_mark mark) {
    if (unit_in(engine, from, to) == 0) {
        return;
    }
    struct ov_exclusive section;
    ov_exclusive_begin(engine, &section);
    for (uint32_t unit; (unit = unit_in(engine, from, to)) != 0;) {
        if (ov_unit_revoke(engine, unit - 1, mark) != CUDA_SUCCESS) {
            break;
        }
    }
    ov_exclusive_end(engine, &section);
}

static bool in_arena(const struct ov_span *span) { return span->address != 0 && ov_engine_of(span->address) != NULL; }

static void serve_span(const struct ov_span *span, bool capturing) {
    struct ov_engine *engine = ov_engine_of(span->address);
    if (!capturing && atomic_load_explicit(&engine->planned, memory_order_relaxed)) {
        take_out(engine, span->address, span->address + span_bytes(span), OV_MARK_COPIED);
    }
}

/* Addresses of streamed units in what is uploaded: from now on they can be reached without being named. */
static void search_payload(const struct ov_copy *copy) {
    size_t bytes = span_bytes(&copy->dst);
    const char *payload = copy->host_source;
    for (size_t at = (8 - copy->dst.address % 8) % 8; at + 8 <= bytes && bytes <= TABLE_BYTES; at += 8) {
        uint64_t word;
        memcpy(&word, payload + at, sizeof word);
        struct ov_engine *engine = ov_engine_of(word);
        if (engine == NULL || !atomic_load_explicit(&engine->planned, memory_order_relaxed)) {
            continue;
        }
        uint32_t unit = ov_unit_at(&engine->arena, &engine->ring, word);
        if (unit != 0 && unit != OV_UNIT_COLD) {
            struct ov_exclusive section;
            ov_exclusive_begin(engine, &section);
            unit = ov_unit_at(&engine->arena, &engine->ring, word);
            if (unit != 0 && unit != OV_UNIT_COLD) {
                (void)ov_unit_revoke(engine, unit - 1, OV_MARK_HIDDEN);
            }
            ov_exclusive_end(engine, &section);
        }
    }
}

void ov_copy_begin(struct ov_copy *copy) {
    bool dst = in_arena(&copy->dst), src = in_arena(&copy->src);
    bool armed = atomic_load_explicit(&ov_state, memory_order_relaxed) == OV_ARMED;
    copy->gated = dst || src || (armed && copy->host_source != NULL && copy->dst.address != 0);
    if (!copy->gated) {
        return;
    }
    ov_gate_enter();
    bool capturing = armed && ov_capturing(copy->stream);
    if (src) {
        serve_span(&copy->src, capturing);
    }
    if (dst) {
        serve_span(&copy->dst, capturing);
        struct ov_engine *engine = ov_engine_of(copy->dst.address);
        pthread_mutex_lock(&engine->lock);
        if (copy->dst.rows <= 1) {
            ov_alloc_edges(engine, copy->dst.address, copy->dst.bytes);
        }
        struct ov_alloc *alloc = ov_alloc_of(engine, ov_arena_page(&engine->arena, copy->dst.address));
        if (alloc != NULL) {
            alloc->dirty = true;
        }
        pthread_mutex_unlock(&engine->lock);
    }
    if (armed && !capturing && copy->host_source != NULL && copy->dst.address != 0) {
        search_payload(copy);
    }
}

void ov_copy_end(struct ov_copy *copy, CUresult result) {
    (void)result;
    if (copy->gated) {
        ov_gate_leave();
    }
}
