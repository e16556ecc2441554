#include "giveway.h"

#include <stdlib.h>

#include "engine.h"
#include "hostlimit.h"
#include "log.h"
#include "move.h"
#include "study.h"

/* What goes in one go is this part of the budget at least, ... */
#define STEP 16u
/* ... and this much at once. */
#define BATCH_PAGES 64u
/* Less is not worth changing places for; nor is less than such a part of the budget. */
#define WORTH_PAGES 8u
#define WORTH_PART  64u
/* Uploads of less than this are a pass's input. */
#define UPLOAD_BYTES ((size_t)1 << 20)
/* Launches on what was loaded that tell a pass from a loader of which fewer than so many uploads were seen; ... */
#define LEAST_NAMED 4u
#define FEW_UPLOADS 8u
/* ... and in any case, however many there were between two uploads: those may have been passes. */
#define MOST_NAMED 256u

/* ---- whether the program computes ---- */

void ov_giveway_uploaded(struct ov_engine *engine, size_t bytes)
{
    struct ov_giveway *giveway = &engine->giveway;
    giveway->fresh_bytes += bytes;
    if (giveway->fresh_bytes >= UPLOAD_BYTES) {
        giveway->most = giveway->named > giveway->most ? giveway->named : giveway->most;
        giveway->named = 0;
        giveway->uploads += engine->learning;
        giveway->fresh_bytes = 0;
        giveway->loaded = engine->learn.head;
    }
}

bool ov_giveway_is_loaded(struct ov_engine *engine, uint32_t page)
{
    const struct ov_memo *memo = &engine->learn.memo[page];
    return memo->filled <= engine->giveway.loaded && !memo->written && ov_study_is_filled(engine, page, 1);
}

void ov_giveway_named(struct ov_engine *engine)
{
    engine->giveway.named++;
}

static bool computes(const struct ov_giveway *giveway)
{
    const uint32_t least = giveway->uploads < FEW_UPLOADS ? LEAST_NAMED : 1;
    return giveway->named >= least && (giveway->named > 2 * giveway->most || giveway->named >= MOST_NAMED);
}

/* Weights need not be on the device; and there is no plan that says where they are to be. */
static bool may_move(const struct ov_engine *engine)
{
    return engine->armed && !atomic_load(&engine->planned) && !atomic_load(&engine->paused) && ov_host_backed(engine) &&
           (ov_opt.tiers & (OV_OPT_TIER_STREAMED | OV_OPT_TIER_HOST)) != 0;
}

/* ---- what kernels write, as far as that is known ---- */

enum { WRITTEN = 1, MAKES = 2 }; /* of a page; of the first page of an allocation: a kernel wrote in it */

static bool is_writer(const struct ov_log_entry *entry)
{
    return entry->kernel != NULL && ov_slot(entry->kernel, entry->slot) == OV_SLOT_WRITER;
}

/* From the address to where the next upload began. */
static void note_writer(struct ov_engine *engine, uint64_t address, uint8_t *what)
{
    const uint32_t first = ov_arena_page(&engine->arena, address);
    const struct ov_alloc *alloc = ov_alloc_of(engine, first);
    const uint64_t next = ov_alloc_next_upload(engine, alloc, address + 1);
    uint32_t last = alloc->first + alloc->pages - 1;
    last = next != UINT64_MAX ? ov_arena_page(&engine->arena, next - 1) : last;
    what[alloc->first] |= MAKES;
    if ((what[first] & what[last] & WRITTEN) == 0) {
        for (uint32_t p = first; p <= last; p++) {
            what[p] |= WRITTEN;
        }
    }
}

/* Of each page; free() it. NULL: no memory. */
static uint8_t *survey(struct ov_engine *engine)
{
    const struct ov_learn *learn = &engine->learn;
    uint8_t *what = calloc((size_t)engine->arena.high_page + 1, 1);
    uint64_t from = learn->head > OV_LOG_ENTRIES ? learn->head - OV_LOG_ENTRIES : 1;
    from = from > learn->start ? from : learn->start;
    for (uint64_t at = from; what != NULL && at < learn->head; at++) {
        const struct ov_log_entry *entry = &learn->log[at % OV_LOG_ENTRIES];
        const struct ov_alloc *alloc = ov_alloc_of(engine, ov_arena_page(&engine->arena, entry->address));
        if (alloc != NULL && alloc->ordinal == entry->ordinal && is_writer(entry)) {
            note_writer(engine, entry->address, what);
        }
    }
    return what;
}

/* ---- what may leave the device ---- */

/* The pages of the chunk that begins there, if it may; else 0. A chunk that is full but for its end is full. */
static uint32_t leaving(struct ov_engine *engine, const uint8_t *what, uint32_t page)
{
    const struct ov_page *first = &engine->arena.page[page];
    const struct ov_alloc *alloc = ov_alloc_of(engine, page);
    uint32_t loaded = 0;
    if (first->backing != OV_DEVICE || first->chunk_first != page || alloc == NULL || alloc->idle || alloc->doomed) {
        return 0;
    }
    for (uint32_t p = page; p < page + first->chunk_pages; p++) {
        if ((what[p] & WRITTEN) != 0 || engine->learn.memo[p].written) {
            return 0;
        }
        loaded += ov_giveway_is_loaded(engine, p);
    }
    return loaded * 4 >= first->chunk_pages * 3u ? first->chunk_pages : 0;
}

static uint32_t all_leaving(struct ov_engine *engine, const uint8_t *what)
{
    uint32_t pages = 0;
    for (uint32_t p = 0; p < engine->arena.high_page; p++) {
        pages += leaving(engine, what, p);
    }
    return pages;
}

/* Host memory that may be taken, by the user's limit and the system's. */
static uint32_t host_pages(const struct ov_engine *engine)
{
    const char *limit;
    const size_t now = ov_host_left(ov_opt.host_limit.kind == OV_AMOUNT_AUTO ? ov_opt.host_reserve_bytes : 0, &limit);
    const size_t ledger = ov_ledger_host_left(&engine->ledger);
    return (uint32_t)((now < ledger ? now : ledger) >> OV_PAGE_SHIFT);
}

/* False: it is where it was, if that can be. */
static bool move_stretch(struct ov_engine *engine, uint32_t first, uint32_t pages)
{
    if (ov_move_to_host(engine, first, pages) == CUDA_SUCCESS) {
        return true;
    }
    if (engine->arena.page[first].backing == OV_NONE && ov_move_home(engine, first, pages) != CUDA_SUCCESS) {
        (void)ov_move_to_device(engine, first, pages);
    }
    return false;
}

/* Moves `pages` to the host, from page *from on, which becomes where to go on; in whole chunks, so it may be some more,
 * but no more than `most`. Returns how many: fewer when there is nothing more, or the host has no memory. */
static uint32_t move_out(struct ov_engine *engine, const uint8_t *what, uint32_t *from, uint32_t pages, uint32_t most)
{
    uint32_t done = 0;
    while (done < pages && *from < engine->arena.high_page) {
        const uint32_t first = *from;
        uint32_t count = 0, chunk;
        while (count < BATCH_PAGES && done + count < pages && first + count < engine->arena.high_page &&
               (chunk = leaving(engine, what, first + count)) > 0 && done + count + chunk <= most) {
            count += chunk;
        }
        *from += count > 0 ? count : 1;
        if (count > 0 && !move_stretch(engine, first, count)) {
            break;
        }
        done += count;
    }
    return done;
}

/* Something is in the host for lack of room: as if the program had been given that. */
static void settle(struct ov_engine *engine)
{
    engine->over_budget = true;
    ov_engine_learn(engine);
}

/* ---- for an allocation ---- */

bool ov_giveway_may(struct ov_engine *engine, size_t bytes)
{
    if (!may_move(engine)) {
        return false;
    }
    pthread_mutex_lock(&engine->lock);
    const size_t then = engine->giveway.refused_bytes, now = engine->ledger.program_bytes + bytes;
    const bool may =
        computes(&engine->giveway) && (then == 0 || now >= then + then / STEP || now <= then - then / STEP);
    pthread_mutex_unlock(&engine->lock);
    return may;
}

void ov_giveway(struct ov_engine *engine, uint32_t pages)
{
    const uint32_t left = (uint32_t)(ov_ledger_left(&engine->ledger) >> OV_PAGE_SHIFT);
    const uint32_t lack = pages > left ? pages - left : 0;
    const uint32_t step = ov_pages(engine->ledger.budget_bytes / STEP);
    uint8_t *what = lack > 0 && may_move(engine) ? survey(engine) : NULL;
    if (what == NULL) {
        return;
    }
    const uint32_t all = all_leaving(engine, what), host = host_pages(engine), most = all < host ? all : host;
    const uint32_t wanted = lack > step ? lack : step;
    uint32_t from = 0;
    const uint32_t done = most >= lack ? move_out(engine, what, &from, wanted < most ? wanted : most, most) : 0;
    engine->giveway.refused_bytes = done < lack ? engine->ledger.program_bytes : 0;
    if (done > 0) {
        settle(engine);
        ov_log(OV_LOG_INFO, "device %d: %u MiB of what was uploaded give way to what is computed", engine->device,
               2 * done);
    }
    free(what);
}

/* ---- changing places ---- */

/* In memory that the program maps itself, only what is known to have changed counts (propose.c). */
static bool comes(struct ov_engine *engine, const uint8_t *what, uint32_t page)
{
    const struct ov_alloc *alloc = ov_alloc_of(engine, page);
    if (engine->arena.page[page].backing != OV_HOST || alloc == NULL || alloc->idle || alloc->doomed) {
        return false;
    }
    const bool written = engine->learn.memo[page].written;
    return alloc->reserved ? written
                           : written || ((what[alloc->first] & MAKES) != 0 && !ov_giveway_is_loaded(engine, page));
}

static uint32_t all_coming(struct ov_engine *engine, const uint8_t *what)
{
    uint32_t pages = 0;
    for (uint32_t p = 0; p < engine->arena.high_page; p++) {
        pages += comes(engine, what, p);
    }
    return pages;
}

/* From `first` on, of one allocation and mapping. */
static uint32_t coming_stretch(struct ov_engine *engine, const uint8_t *what, uint32_t first, uint32_t most)
{
    const struct ov_page *page = engine->arena.page;
    uint32_t count = 0;
    while (count < most && first + count < engine->arena.high_page && comes(engine, what, first + count) &&
           page[first + count].alloc == page[first].alloc && page[first + count].mapping == page[first].mapping) {
        count++;
    }
    return count;
}

/* Batch by batch, since what leaves needs its place in the host before what comes has given up its own. Returns how
 * many pages came. */
static uint32_t change_places(struct ov_engine *engine, const uint8_t *what)
{
    uint32_t from = 0, done = 0;
    for (uint32_t p = 0; p < engine->arena.high_page;) {
        if (!comes(engine, what, p)) {
            p++;
            continue;
        }
        const uint32_t left = (uint32_t)(ov_ledger_left(&engine->ledger) >> OV_PAGE_SHIFT), host = host_pages(engine);
        const uint32_t room = left > host ? left : host;
        const uint32_t count = coming_stretch(engine, what, p, room < BATCH_PAGES ? room : BATCH_PAGES);
        const uint32_t lack = count > left ? count - left : 0;
        if (count == 0 || move_out(engine, what, &from, lack, host) < lack ||
            ov_move_to_device(engine, p, count) != CUDA_SUCCESS) {
            break;
        }
        done += count;
        p += count;
    }
    return done;
}

bool ov_giveway_due(struct ov_engine *engine)
{
    struct ov_giveway *giveway = &engine->giveway;
    if (!may_move(engine) || !engine->over_budget || engine->watches > 0 || !computes(giveway) ||
        ++giveway->points <= giveway->wait) {
        return false;
    }
    giveway->points = 0;
    giveway->wait = 2 * giveway->wait + 1;
    return true;
}

void ov_giveway_change(struct ov_engine *engine)
{
    const uint32_t part = ov_pages(engine->ledger.budget_bytes / WORTH_PART);
    const uint32_t worth = part > WORTH_PAGES ? part : WORTH_PAGES;
    const uint32_t left = (uint32_t)(ov_ledger_left(&engine->ledger) >> OV_PAGE_SHIFT);
    uint8_t *what = may_move(engine) ? survey(engine) : NULL;
    if (what != NULL && all_coming(engine, what) >= worth && left + all_leaving(engine, what) >= worth) {
        const uint32_t done = change_places(engine, what);
        settle(engine);
        ov_log(done > 0 ? OV_LOG_INFO : OV_LOG_DEBUG,
               "device %d: %u MiB that kernels write have changed places with what was uploaded", engine->device,
               2 * done);
    }
    free(what);
}
