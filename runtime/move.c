#include "move.h"

#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "hostlimit.h"
#include "log.h"
#include "populate.h"
#include "progress.h"
#include "propose.h"

/* Pages that are copied out before what they stood on is given back: bounds what is held twice for pages that only
 * share a chunk with others. */
#define GROUP_PAGES 512u

/* ---- one stretch ---- */

CUresult ov_move_home(struct ov_engine *engine, uint32_t first, uint32_t pages)
{
    ov_density_moved(engine, first, pages);
    CUresult result = ov_master_evacuate(engine, first, pages);
    return result == CUDA_SUCCESS ? ov_back_host(&engine->arena, first, pages) : result;
}

CUresult ov_move_to_host(struct ov_engine *engine, uint32_t first, uint32_t pages)
{
    struct ov_arena *arena = &engine->arena;
    CUresult result = ov_make_masters(arena, first, pages);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    ov_density_moved(engine, first, pages);
    result = ov_cu->cuMemcpyAsync(ov_mirror_address(arena, first), ov_page_address(arena, first),
                                  (size_t)pages << OV_PAGE_SHIFT, engine->ring.side);
    result = ov_finish(engine, engine->ring.side, result);
    if (result == CUDA_SUCCESS) {
        result = ov_unback(arena, first, pages);
    }
    if (result != CUDA_SUCCESS) {
        ov_drop_masters(arena, first, pages);
        return result;
    }
    return ov_back_host(arena, first, pages);
}

CUresult ov_move_to_device(struct ov_engine *engine, uint32_t first, uint32_t pages)
{
    struct ov_arena *arena = &engine->arena;
    if (((size_t)pages << OV_PAGE_SHIFT) > ov_ledger_left(&engine->ledger)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = ov_unback(arena, first, pages);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    ov_density_moved(engine, first, pages);
    result = ov_back_device(arena, first, pages);
    if (result != CUDA_SUCCESS) {
        CUresult home = ov_move_home(engine, first, pages);
        return home != CUDA_SUCCESS ? home : result;
    }
    result = ov_master_fetch(engine, ov_page_address(arena, first), first, pages, engine->ring.side);
    result = ov_finish(engine, engine->ring.side, result);
    if (result != CUDA_SUCCESS) {
        if (ov_unback(arena, first, pages) == CUDA_SUCCESS) {
            (void)ov_move_home(engine, first, pages); /* the masters still are the truth */
        }
        return result;
    }
    ov_drop_masters(arena, first, pages);
    return CUDA_SUCCESS;
}

/* ---- out of the device, in bulk ---- */

/* A stretch that gets one master. */
struct piece {
    uint32_t first, pages;
    bool mapped; /* kind of master */
};

struct group {
    struct piece piece[GROUP_PAGES];
    struct ov_extent chunk[GROUP_PAGES];
    size_t pieces, chunks;
    uint32_t pages;
};

struct out {
    struct ov_engine *engine;
    const uint8_t *want;
    uint32_t run;      /* cursor: the first run that ends after the page looked at */
    size_t room_bytes; /* host memory that may still be taken */
    struct ov_progress progress;
    struct group group;
};

static bool leaves(const struct out *out, uint32_t page)
{
    return out->engine->arena.page[page].backing == OV_DEVICE &&
           (out->want[page] == OV_WANT_HOST || out->want[page] == OV_WANT_RING);
}

/* The chunk around a page that leaves. */
static struct ov_extent chunk_of(const struct ov_arena *arena, uint32_t page)
{
    return (struct ov_extent){arena->page[page].chunk_first, arena->page[page].chunk_pages};
}

/* 1 + index of the run that covers the page, 0: none. Pages are asked for in ascending order. */
static uint32_t run_of(struct out *out, uint32_t page)
{
    const struct ov_runs *runs = &out->engine->learn.runs;
    while (out->run < runs->count && runs->item[out->run].first + runs->item[out->run].pages <= page) {
        out->run++;
    }
    return out->run < runs->count && runs->item[out->run].first <= page ? out->run + 1 : 0;
}

static void add_pages(struct out *out, struct ov_extent chunk)
{
    struct group *group = &out->group;
    uint32_t last_run = UINT32_MAX;
    if (group->pieces > 0) {
        const struct piece *last = &group->piece[group->pieces - 1];
        last_run = last->first + last->pages == chunk.first ? run_of(out, chunk.first - 1) : UINT32_MAX;
    }
    for (uint32_t p = chunk.first; p < chunk.first + chunk.pages; p++) {
        bool mapped = out->want[p] == OV_WANT_HOST;
        uint32_t run = run_of(out, p);
        struct piece *piece = group->pieces > 0 ? &group->piece[group->pieces - 1] : NULL;
        if (piece != NULL && run == last_run && mapped == piece->mapped && piece->pages < OV_PIN_PAGES &&
            piece->first + piece->pages == p) {
            piece->pages++;
        } else {
            group->piece[group->pieces++] = (struct piece){p, 1, mapped};
        }
        last_run = run;
    }
    group->chunk[group->chunks++] = chunk;
    group->pages += chunk.pages;
}

/* Fills the group from page `from` on; returns where to go on. */
static uint32_t gather(struct out *out, uint32_t from)
{
    const struct ov_arena *arena = &out->engine->arena;
    out->group.pieces = out->group.chunks = 0;
    out->group.pages = 0;
    out->run = 0;
    while (from < arena->high_page) {
        if (!leaves(out, from)) {
            from++;
            continue;
        }
        struct ov_extent chunk = chunk_of(arena, from);
        if (out->group.pages + chunk.pages > GROUP_PAGES) {
            break;
        }
        add_pages(out, chunk);
        from = chunk.first + chunk.pages;
    }
    return from;
}

static CUresult copy_out(struct out *out, const struct piece *piece, const struct ov_pin *pin)
{
    struct ov_engine *engine = out->engine;
    CUdeviceptr from = ov_page_address(&engine->arena, piece->first);
    size_t bytes = (size_t)piece->pages << OV_PAGE_SHIFT;
    ov_progress_step(&out->progress, bytes);
    return pin != NULL
               ? ov_cu->cuMemcpyDtoHAsync_v2(pin->host, from, bytes, engine->ring.side)
               : ov_cu->cuMemcpyAsync(ov_mirror_address(&engine->arena, piece->first), from, bytes, engine->ring.side);
}

static bool take_room(struct out *out, size_t bytes)
{
    if (bytes > out->room_bytes || !ov_ledger_take_host(&out->engine->ledger, bytes)) {
        return false;
    }
    out->room_bytes -= bytes;
    return true;
}

static void give_room(struct out *out, size_t bytes)
{
    ov_ledger_give_host(&out->engine->ledger, bytes);
    out->room_bytes += bytes;
}

/* A piece that there is no room for, or that cannot be copied, has no masters in the end, which is what tells. False:
 * there is room, and the driver has no memory. */
static bool out_mapped(struct out *out, const struct piece *piece)
{
    struct ov_arena *arena = &out->engine->arena;
    size_t bytes = (size_t)piece->pages << OV_PAGE_SHIFT;
    if (bytes > out->room_bytes || bytes > ov_ledger_host_left(&out->engine->ledger)) {
        return true;
    }
    if (ov_make_masters(arena, piece->first, piece->pages) != CUDA_SUCCESS) {
        return false;
    }
    out->room_bytes -= bytes;
    if (copy_out(out, piece, NULL) != CUDA_SUCCESS) {
        (void)ov_finish(out->engine, out->engine->ring.side, CUDA_SUCCESS);
        ov_drop_masters(arena, piece->first, piece->pages);
    }
    return true;
}

struct pinning {
    struct ov_pin *pin[GROUP_PAGES]; /* of the pieces, NULL: no room for it */
    struct ov_populate_range range[GROUP_PAGES];
    size_t count;
};

/* Address space for as many pieces as there is room for, up to the first that the way cannot have. */
static void reserve_all(struct out *out, const struct piece *piece, size_t count, struct pinning *pinning,
                        const char **cause)
{
    const struct ov_pins *pins = &out->engine->masters.pins;
    for (pinning->count = 0; pinning->count < count; pinning->count++) {
        size_t bytes = (size_t)piece[pinning->count].pages << OV_PAGE_SHIFT;
        struct ov_pin *pin = NULL;
        if (take_room(out, bytes)) {
            pin = ov_pin_reserve(pins, pins->kind, bytes, cause);
            if (pin == NULL) {
                give_room(out, bytes);
                return;
            }
        }
        pinning->pin[pinning->count] = pin;
        pinning->range[pinning->count] =
            (struct ov_populate_range){pin != NULL ? pin->host : NULL, pin != NULL ? bytes : 0};
    }
}

/* Pins and copies pieces in the present way. Returns how many were dealt with: all, or those before the first that the
 * way failed at. */
static size_t out_pinned(struct out *out, const struct piece *piece, size_t count, struct pinning *pinning,
                         const char **cause)
{
    struct ov_engine *engine = out->engine;
    struct ov_pins *pins = &engine->masters.pins;
    struct ov_populate *team = NULL;
    size_t at = 0;
    *cause = "";
    reserve_all(out, piece, count, pinning, cause);
    if (pinning->count > 0 && ov_pin_wants_populating(pins->kind)) {
        team = ov_populate_start(pinning->range, pinning->count, ov_opt.pin_threads, pins->node);
    }
    for (; at < pinning->count; at++) {
        struct ov_pin *pin = pinning->pin[at];
        if (pin == NULL) {
            continue;
        }
        if (team != NULL && !ov_populate_wait(team, at)) {
            *cause = "the system has no more memory";
            break;
        }
        if (ov_pin_commit(pins, pin) != CUDA_SUCCESS) {
            *cause = "the driver refuses";
            break;
        }
        ov_master_attach(engine, piece[at].first, piece[at].pages, pin);
        pinning->pin[at] = NULL;
        if (copy_out(out, &piece[at], pin) != CUDA_SUCCESS) {
            (void)ov_finish(engine, engine->ring.side, CUDA_SUCCESS);
            ov_drop_masters(&engine->arena, piece[at].first, piece[at].pages);
        }
    }
    ov_populate_end(team);
    for (size_t i = at; i < pinning->count; i++) {
        if (pinning->pin[i] != NULL) {
            give_room(out, pinning->pin[i]->bytes);
            ov_pin_abandon(pinning->pin[i]);
        }
    }
    return at;
}

/* Masters for all pieces of the group, and copies into them. */
static void make_masters(struct out *out, struct pinning *pinning)
{
    struct ov_pins *pins = &out->engine->masters.pins;
    const struct piece *piece = out->group.piece;
    size_t at = 0, count = out->group.pieces;
    while (at < count) {
        if (piece[at].mapped || pins->kind == OV_PIN_VMM) {
            bool dealt_with = out_mapped(out, &piece[at]);
            at += dealt_with || piece[at].mapped || !ov_pins_descend(pins, "the driver refuses");
            continue;
        }
        size_t end = at;
        while (end < count && !piece[end].mapped) {
            end++;
        }
        const char *cause;
        at += out_pinned(out, &piece[at], end - at, pinning, &cause);
        if (at < end && !ov_pins_descend(pins, cause)) {
            at = end;
        }
    }
}

static bool has_masters(const struct ov_arena *arena, struct ov_extent chunk)
{
    for (uint32_t p = chunk.first; p < chunk.first + chunk.pages; p++) {
        if (!ov_page_has_master(&arena->page[p])) {
            return false;
        }
    }
    return true;
}

/* Pages of one wish: behind those to be read in place comes the host, behind those that only shared the chunk the
 * device again. */
static void settle(struct out *out, struct ov_extent chunk)
{
    for (uint32_t p = chunk.first; p < chunk.first + chunk.pages;) {
        uint32_t first = p;
        while (p < chunk.first + chunk.pages && out->want[p] == out->want[first]) {
            p++;
        }
        if (out->want[first] == OV_WANT_HOST) {
            (void)ov_move_home(out->engine, first, p - first);
        } else if (out->want[first] != OV_WANT_RING) {
            (void)ov_move_to_device(out->engine, first, p - first);
        }
    }
}

static void move_group(struct out *out, struct pinning *pinning)
{
    struct ov_arena *arena = &out->engine->arena;
    const struct group *group = &out->group;
    uint32_t stayed = 0;
    make_masters(out, pinning);
    bool copied = ov_finish(out->engine, out->engine->ring.side, CUDA_SUCCESS) == CUDA_SUCCESS;
    for (size_t i = 0; i < group->chunks; i++) {
        struct ov_extent chunk = group->chunk[i];
        if (!copied || !has_masters(arena, chunk) || ov_unback(arena, chunk.first, chunk.pages) != CUDA_SUCCESS) {
            ov_drop_masters(arena, chunk.first, chunk.pages);
            stayed += chunk.pages;
        }
    }
    for (size_t i = 0; i < group->chunks; i++) {
        if (arena->page[group->chunk[i].first].backing == OV_NONE) {
            settle(out, group->chunk[i]);
        }
    }
    if (stayed > 0) {
        ov_log(OV_LOG_WARN, "device %d: %u MiB stay on the device: no host memory for them", out->engine->device,
               stayed * 2);
    }
}

/* What is to move, and whether there is room for it. */
static size_t announce(struct out *out)
{
    const struct ov_engine *engine = out->engine;
    const char *limit = "OVERSHOT_HOST_LIMIT";
    size_t bytes = 0;
    for (uint32_t p = 0; p < engine->arena.high_page; p++) {
        bytes += leaves(out, p) ? OV_PAGE_BYTES : 0;
    }
    size_t now = ov_host_left(ov_opt.host_limit.kind == OV_AMOUNT_AUTO ? ov_opt.host_reserve_bytes : 0, &limit);
    size_t ledger = ov_ledger_host_left(&engine->ledger);
    out->room_bytes = now < ledger ? now : ledger;
    if (bytes > out->room_bytes) {
        ov_log(OV_LOG_WARN,
               "device %d: %zu MiB of weights should go to host memory and there is room for %zu MiB (%s): the rest "
               "stays on the device",
               engine->device, bytes >> 20, out->room_bytes >> 20,
               now < ledger ? limit : "what OVERSHOT_HOST_LIMIT leaves");
    }
    return bytes;
}

void ov_move_out(struct ov_engine *engine, const uint8_t *want)
{
    struct out *out = calloc(1, sizeof *out);
    struct pinning *pinning = calloc(1, sizeof *pinning);
    if (out != NULL && pinning != NULL) {
        out->engine = engine;
        out->want = want;
        size_t bytes = announce(out);
        ov_progress_begin(&out->progress, "weights to host memory", bytes);
        for (uint32_t from = 0; from < engine->arena.high_page && bytes > 0;) {
            from = gather(out, from);
            if (out->group.chunks > 0) {
                move_group(out, pinning);
            }
        }
        double seconds = ov_progress_end(&out->progress);
        if (bytes > 0) {
            ov_log(OV_LOG_INFO, "device %d: %.2f GB to host memory in %.2f s (%.1f GB/s), pinned by %s", engine->device,
                   (double)bytes * 1e-9, seconds, seconds > 0 ? (double)bytes * 1e-9 / seconds : 0.0,
                   ov_pin_name(engine->masters.pins.kind));
        }
    }
    free(pinning);
    free(out);
}
