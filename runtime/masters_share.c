/*
 * Masters of streamed units that other processes hold too: see share.h.
 *
 * A unit is shared piece by piece. The first process to come copies its own master into the piece, looks at it through
 * the ring on the device, and publishes it only if it hashes to what was on the device; whoever finds it hashes it the
 * same way before use. Then the private master is given back. So a wrong or a torn piece is never used, and there are
 * never two copies of more than one piece.
 */
#include <string.h>

#include "engine.h"
#include "log.h"
#include "masters.h"

/* How long a creator at work on one piece is waited for. */
#define WAIT_MS 10000u

static void stop_sharing(struct ov_engine *engine, const char *why)
{
    ov_log(OV_LOG_WARN, "device %d: host copies are not shared any more: %s", engine->device, why);
    ov_share_leave(&engine->masters.share);
}

static bool enter(struct ov_engine *engine)
{
    static bool refused; /* said once; the engine's lock is held, and several engines would say the same */
    const char *why;
    if (engine->masters.share.on || refused) {
        return engine->masters.share.on;
    }
    if (!ov_share_enter(&engine->masters.share, ov_opt.share, &why)) {
        refused = true;
        ov_log(OV_LOG_WARN, "OVERSHOT_SHARE=%s cannot be entered: %s; host copies are not shared", ov_opt.share, why);
    }
    return engine->masters.share.on;
}

/* Whether the memory holds what was on the device, seen through the unit's place in the ring. */
static bool is_true(struct ov_engine *engine, const struct ov_unit *unit, const struct ov_pin *pin, uint32_t first,
                    uint32_t pages)
{
    struct ov_ring *ring = &engine->ring;
    struct ov_page_digest digest[OV_PIN_PAGES];
    CUdeviceptr window = ring->window + ((CUdeviceptr)unit->ring_page << OV_PAGE_SHIFT);
    CUresult result = ov_cu->cuMemcpyHtoDAsync_v2(window, pin->host, (size_t)pages << OV_PAGE_SHIFT, ring->side);
    result = ov_finish(engine, ring->side, result);
    if (result != CUDA_SUCCESS || ov_inspect_pages(engine, window, pages, digest) != CUDA_SUCCESS) {
        return false;
    }
    for (uint32_t p = 0; p < pages; p++) {
        if (memcmp(&digest[p].hash, &engine->learn.memo[first + p].hash, sizeof digest[p].hash) != 0) {
            return false;
        }
    }
    return true;
}

static CUresult fill(struct ov_engine *engine, char *to, uint32_t first, uint32_t pages)
{
    CUresult result = CUDA_SUCCESS;
    for (uint32_t done = 0; done < pages && result == CUDA_SUCCESS;) {
        struct ov_piece piece = ov_master_piece(&engine->arena, first + done, pages - done);
        size_t offset = (size_t)done << OV_PAGE_SHIFT, bytes = (size_t)piece.pages << OV_PAGE_SHIFT;
        if (piece.pages == 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (engine->arena.page[first + done].host != 0) {
            result = ov_cu->cuMemcpyDtoHAsync_v2(to + offset, piece.address, bytes, engine->ring.side);
        } else {
            memcpy(to + offset, (const void *)(uintptr_t)piece.address, bytes);
        }
        done += piece.pages;
    }
    return ov_finish(engine, engine->ring.side, result);
}

/* The pin takes the place of the private masters. */
static void take_over(struct ov_engine *engine, uint32_t first, uint32_t pages, struct ov_pin *pin)
{
    ov_drop_masters(&engine->arena, first, pages);
    ov_master_attach(engine, first, pages, pin);
}

/* False: sharing has ended. */
static bool share_piece(struct ov_engine *engine, const struct ov_unit *unit, uint32_t first, uint32_t pages)
{
    struct ov_masters *masters = &engine->masters;
    struct ov_hash hash[OV_PIN_PAGES];
    struct ov_share_piece piece;
    char key[OV_SHARE_KEY];
    const char *why = "";
    size_t bytes = (size_t)pages << OV_PAGE_SHIFT;
    for (uint32_t p = 0; p < pages; p++) {
        hash[p] = engine->learn.memo[first + p].hash;
    }
    ov_share_key(hash, pages, key);
    if (!ov_ledger_take_host(&engine->ledger, bytes)) {
        return true; /* no room for two copies of it for a moment: stays private */
    }
    enum ov_share_role role = ov_share_take(&masters->share, key, bytes, WAIT_MS, &piece, &why);
    struct ov_pin *pin = role != OV_SHARE_NOBODY ? ov_pin_adopt(piece.memory, bytes) : NULL;
    bool committed = pin != NULL && ov_pin_commit(&masters->pins, pin) == CUDA_SUCCESS;
    if (role == OV_SHARE_CREATOR && piece.before[0] != 0) {
        ov_log(OV_LOG_INFO, "a shared piece is filled again: %s", piece.before);
    }
    if (role != OV_SHARE_NOBODY) {
        why = committed ? "" : "the driver does not register its memory";
    }
    if (committed && role == OV_SHARE_CREATOR && fill(engine, pin->host, first, pages) != CUDA_SUCCESS) {
        why = "a copy failed";
    }
    if (committed && why[0] == 0 && !is_true(engine, unit, pin, first, pages)) {
        why = "a piece does not hold what was on the device";
    }
    if (why[0] == 0 && role == OV_SHARE_CREATOR && !ov_share_publish(&masters->share, &piece)) {
        why = "a piece could not be published";
    }
    if (why[0] == 0) {
        take_over(engine, first, pages, pin);
        return true;
    }
    if (role == OV_SHARE_CREATOR) {
        ov_share_fail(&piece, why);
    }
    if (role != OV_SHARE_NOBODY && pin == NULL) {
        ov_share_unmap(piece.memory, bytes);
    }
    if (committed) {
        bool gone = ov_pin_release(&masters->pins, pin, true);
        ov_ledger_give_host(&engine->ledger, gone ? bytes : 0);
    } else {
        ov_pin_abandon(pin);
        ov_ledger_give_host(&engine->ledger, bytes);
    }
    stop_sharing(engine, why);
    return false;
}

static bool is_shared(const struct ov_engine *engine, uint32_t first, uint32_t pages)
{
    for (uint32_t p = first; p < first + pages; p++) {
        const struct ov_pin *pin = engine->arena.page[p].pin;
        if (pin == NULL || pin->kind != OV_PIN_SHARED) {
            return false;
        }
    }
    return true;
}

void ov_masters_share(struct ov_engine *engine)
{
    struct ov_ring *ring = &engine->ring;
    if (ov_opt.share[0] == 0 || ring->streamed_count == 0 || !enter(engine)) {
        return;
    }
    size_t shared = 0;
    bool on = true;
    for (uint32_t i = 0; i < ring->unit_count && on; i++) {
        const struct ov_unit *unit = &ring->unit[i];
        for (uint32_t done = 0; unit->tier == OV_TIER_STREAMED && done < unit->pages && on; done += OV_PIN_PAGES) {
            uint32_t pages = unit->pages - done < OV_PIN_PAGES ? unit->pages - done : OV_PIN_PAGES;
            if (!is_shared(engine, unit->first + done, pages)) {
                on = share_piece(engine, unit, unit->first + done, pages);
            }
            shared += is_shared(engine, unit->first + done, pages) ? pages : 0;
        }
        ov_ring_find_master(engine, i);
    }
    ov_log(OV_LOG_INFO, "device %d: %zu MiB of host copies are shared as \"%s\", %zu MiB are not", engine->device,
           shared * 2, ov_opt.share, (engine->ledger.host_bytes >> 20) - shared * 2);
}
