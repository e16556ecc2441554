#include "learn.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine.h"
#include "log.h"
#include "other.h"
#include "trace.h"

/* Studies in vain after which a program that had launched new kernels is taken for one that has only begun. */
#define BEGINNINGS 16u
/* After one in vain come at least this part of the launches that were before it, or so many: an address may come back
 * again and again at the beginning of a pass. */
#define BETWEEN_PART 4u
#define BETWEEN_MOST 128u

static void *lazy_array(size_t count, size_t size)
{
    void *memory = mmap(NULL, count * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

bool ov_learn_open(struct ov_engine *engine)
{
    struct ov_learn *learn = &engine->learn;
    if (learn->log == NULL) {
        learn->log = lazy_array(OV_LOG_ENTRIES, sizeof *learn->log);
    }
    if (learn->memo == NULL) {
        learn->memo = lazy_array(engine->arena.page_count, sizeof *learn->memo);
    }
    learn->head = learn->start = 1;
    return learn->log != NULL && learn->memo != NULL;
}

void ov_learn_close(struct ov_engine *engine)
{
    struct ov_learn *learn = &engine->learn;
    if (learn->log != NULL) {
        munmap(learn->log, OV_LOG_ENTRIES * sizeof *learn->log);
    }
    if (learn->memo != NULL) {
        munmap(learn->memo, engine->arena.page_count * sizeof *learn->memo);
    }
    ov_runs_free(&learn->runs);
    memset(learn, 0, sizeof *learn);
}

void ov_learn_start(struct ov_engine *engine)
{
    struct ov_learn *learn = &engine->learn;
    learn->start = learn->head;
    learn->attempts = learn->units_seen = learn->new_kernels = learn->beginnings = 0;
    learn->tried = learn->between = 0;
    learn->settled = false;
    learn->launches = 0;
    learn->visits_wanted = ov_opt.discovery_cycles;
    learn->last_address = 0;
    for (uint32_t i = 0; i < engine->allocs.count; i++) {
        engine->allocs.item[i].visits = 0;
        engine->allocs.item[i].dirty = true; /* nobody looked at who wrote there since the last discovery */
    }
}

struct counting {
    struct ov_engine *engine;
    struct ov_kernel *kernel;
};

/* A slot that holds an address, of whatever memory we know, or none at all (an argument left out) is a pointer. */
static void count_pointer(void *context, uint64_t word, uint32_t slot)
{
    const struct counting *counting = context;
    if (slot < counting->kernel->slot_count &&
        (word == 0 || ov_arena_has(word) || ov_others_hold(counting->engine, word))) {
        atomic_fetch_add_explicit(&counting->kernel->hits[slot], 1, memory_order_relaxed);
    }
}

/* Launches without the anchor after which another address is tried in its place; twice as many each time. Memory that
 * holds many things (a pool that the program manages itself) may first be touched where it never is again. What the
 * program did then, and was studied in vain for, says nothing about what it does now: the new one does not have to come
 * as often as the old one had to. */
#define ANCHOR_LAUNCHES 512u

static void count_visit(const struct ov_learn *learn, struct ov_alloc *alloc, uint64_t address)
{
    if (alloc->visits == 0) {
        alloc->anchor_wait = ANCHOR_LAUNCHES;
    }
    bool lost = alloc->visits > 0 && alloc->visits < learn->visits_wanted &&
                learn->launches - alloc->anchored > alloc->anchor_wait;
    if (alloc->visits == 0 || alloc->anchor == 0) {
        alloc->anchor = address;
    } else if (lost && address != alloc->anchor) {
        alloc->anchor = address;
        alloc->visits = learn->visits_wanted - ov_opt.discovery_cycles;
        alloc->anchor_wait = alloc->anchor_wait > UINT32_MAX / 2 ? UINT32_MAX : alloc->anchor_wait * 2;
    }
    if (address == alloc->anchor && address != learn->last_address &&
        ((size_t)alloc->pages << OV_PAGE_SHIFT) >= ov_opt.min_unit_bytes) {
        alloc->visits++;
        alloc->anchored = learn->launches;
    }
}

void ov_learn_log(struct ov_engine *engine, const struct ov_launch *launch, const struct ov_touches *touches)
{
    struct ov_learn *learn = &engine->learn;
    struct ov_kernel *kernel = launch->kernel;
    uint32_t number = ++learn->launches;
    bool named = false; /* something that was loaded */
    for (unsigned i = 0; i < touches->count; i++) {
        uint64_t address = touches->item[i].address;
        if (ov_arena_slice(address) != (unsigned)engine->slice) {
            continue;
        }
        uint32_t page = ov_arena_page(&engine->arena, address);
        struct ov_alloc *alloc = ov_alloc_of(engine, page);
        if (alloc == NULL) {
            continue; /* stale */
        }
        count_visit(learn, alloc, address);
        learn->last_address = address;
        named = named || ov_giveway_is_loaded(engine, page);
        if (kernel == NULL || ov_slot(kernel, touches->item[i].slot) != OV_SLOT_READER) {
            alloc->dirty = true;
            alloc->unseen = alloc->unseen || alloc->reserved; /* weights may be written there while others are used */
        }
        learn->log[learn->head++ % OV_LOG_ENTRIES] =
            (struct ov_log_entry){.address = address,
                                  .kernel = kernel,
                                  .slot = (uint16_t)touches->item[i].slot,
                                  .on_host = engine->arena.page[page].backing == OV_HOST,
                                  .ordinal = alloc->ordinal,
                                  .launch = number};
    }
    if (named) {
        ov_giveway_named(engine);
    }
    if (kernel != NULL) {
        learn->new_kernels += atomic_fetch_add_explicit(&kernel->launches, 1, memory_order_relaxed) == 0;
        ov_scan_words(kernel, launch, count_pointer, &(struct counting){engine, kernel});
    }
}

/* All memory is to be visited a few times more, wherever it is used by now. That it was used stays known. */
static void visit_anew(struct ov_engine *engine)
{
    for (uint32_t i = 0; i < engine->allocs.count; i++) {
        struct ov_alloc *alloc = &engine->allocs.item[i];
        alloc->visits = alloc->visits > 0;
        alloc->anchor = 0;
    }
    engine->learn.visits_wanted = 1 + ov_opt.discovery_cycles;
}

void ov_learn_wait(struct ov_engine *engine)
{
    struct ov_learn *learn = &engine->learn;
    if (learn->new_kernels > 0 && learn->beginnings < BEGINNINGS) {
        learn->beginnings++;
        learn->attempts = 1;
        visit_anew(engine);
    } else {
        learn->visits_wanted += learn->visits_wanted;
    }
    learn->new_kernels = 0;
    learn->between = learn->launches - learn->tried;
    learn->tried = learn->launches;
}

static bool is_soon(const struct ov_learn *learn)
{
    const uint32_t part = learn->between / BETWEEN_PART, least = part < BETWEEN_MOST ? part : BETWEEN_MOST;
    return learn->launches - learn->tried < least;
}

/* Most of what is used at all was used often enough to show an order. */
bool ov_learn_due(const struct ov_engine *engine)
{
    uint64_t used = 0, often = 0;
    for (uint32_t i = 0; i < engine->allocs.count; i++) {
        const struct ov_alloc *alloc = &engine->allocs.item[i];
        if (alloc->ordinal != 0 && alloc->visits > 0) {
            used += alloc->held;
            often += alloc->visits >= engine->learn.visits_wanted ? alloc->held : 0;
        }
    }
    return used > 0 && often * 2 >= used && !is_soon(&engine->learn);
}

static void note_digest(struct ov_engine *engine, uint32_t page, const struct ov_page_digest *digest)
{
    struct ov_memo *memo = &engine->learn.memo[page];
    if (!memo->hashed || memcmp(&memo->hash, &digest->hash, sizeof memo->hash) != 0) {
        if (memo->hashed && !memo->copied) {
            memo->uploaded = 0; /* a kernel wrote here */
            memo->written = true;
        }
        memo->hash = digest->hash;
        memo->born = 0;
        memo->hashed = true;
        memo->since = engine->learn.head;
    }
    memo->copied = false;
}

static CUresult hash_alloc(struct ov_engine *engine, struct ov_alloc *alloc)
{
    struct ov_page_digest digest[128];
    CUresult result = CUDA_SUCCESS;
    uint32_t end = alloc->first + alloc->pages;
    uint32_t page = alloc->first;
    while (page < end && result == CUDA_SUCCESS) {
        uint32_t begin =
            page; /* of a stretch that is mapped and not in the ring: what is there is known to be unchanged */
        while (page < end && page - begin < 128 &&
               (engine->arena.page[page].backing == OV_DEVICE || engine->arena.page[page].backing == OV_HOST)) {
            page++;
        }
        if (page > begin) {
            result = ov_inspect_pages(engine, ov_page_address(&engine->arena, begin), page - begin, digest);
            for (uint32_t p = begin; p < page && result == CUDA_SUCCESS; p++) {
                note_digest(engine, p, &digest[p - begin]);
            }
        } else {
            page++;
        }
    }
    alloc->dirty = result != CUDA_SUCCESS;
    alloc->unseen = alloc->unseen && result != CUDA_SUCCESS;
    return result;
}

/* A graph or an address in memory leads there, so launches that were not logged may have written. */
static bool reached_unseen(const struct ov_engine *engine, const struct ov_alloc *alloc)
{
    for (uint32_t p = alloc->first; p < alloc->first + alloc->pages; p++) {
        if ((engine->learn.memo[p].marks & (OV_MARK_GRAPH | OV_MARK_HIDDEN)) != 0 ||
            ov_inspect_points_to(&engine->inspect, p)) {
            return true;
        }
    }
    return false;
}

CUresult ov_learn_hash(struct ov_engine *engine)
{
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < engine->allocs.count && result == CUDA_SUCCESS; i++) {
        struct ov_alloc *alloc = &engine->allocs.item[i];
        if (alloc->ordinal != 0 && (alloc->dirty || reached_unseen(engine, alloc))) {
            result = hash_alloc(engine, alloc);
        }
    }
    return result;
}

size_t ov_learn_filled(struct ov_engine *engine, uint64_t address, size_t bytes, bool from_copy)
{
    uint64_t end = address + bytes, limit = ov_page_address(&engine->arena, engine->arena.high_page);
    end = end < limit ? end : limit;
    size_t fresh = 0;
    engine->learn.copied_bytes += from_copy ? bytes : 0;
    while (address < end) {
        uint64_t next = (address & ~(uint64_t)(OV_PAGE_BYTES - 1)) + OV_PAGE_BYTES;
        next = next < end ? next : end;
        struct ov_memo *memo = &engine->learn.memo[ov_arena_page(&engine->arena, address)];
        memo->copied = true;
        memo->filled = engine->learn.head;
        memo->born = 0;
        if (from_copy) {
            uint64_t uploaded = memo->uploaded + (next - address);
            uploaded = uploaded < OV_PAGE_BYTES ? uploaded : OV_PAGE_BYTES;
            fresh += uploaded - memo->uploaded;
            memo->uploaded = (uint32_t)uploaded;
        } else {
            memo->uploaded = 0; /* what is filled is written to afterwards, by whoever */
        }
        address = next;
    }
    return fresh;
}

void ov_learn_mark(struct ov_engine *engine, uint64_t address, enum ov_mark mark)
{
    uint32_t page = ov_arena_page(&engine->arena, address);
    const struct ov_alloc *alloc = ov_alloc_of(engine, page);
    if (alloc == NULL || engine->learn.memo == NULL) {
        return;
    }
    uint32_t first = alloc->first, end = alloc->first + alloc->pages;
    const struct ov_runs *runs = &engine->learn.runs;
    for (uint32_t i = 0; i < runs->count; i++) {
        const struct ov_run *run = &runs->item[i];
        uint32_t run_end = run->first + run->pages;
        if (address >= run->begin && address < run->end) {
            first = run->first;
            end = run_end;
            break;
        }
        /* Runs begin at trusted boundaries, which is as far as an address reaches. */
        if (alloc->reserved && run->ordinal == alloc->ordinal) {
            first = run->end <= address && run_end > first ? run_end : first;
            end = run->begin > address && run->first < end ? run->first : end;
        }
    }
    const struct ov_memo *memo = &engine->learn.memo[first];
    if (memo->sparse && (memo->marks & mark) == 0 && (mark & OV_MARKS_UNSEEN) != 0) {
        engine->replan_soon = engine->replan_soon || atomic_load(&engine->planned); /* it may be read whole now */
    }
    for (uint32_t p = first; p < end; p++) {
        engine->learn.memo[p].marks |= (uint8_t)mark;
    }
}

void ov_learn_forget(struct ov_engine *engine, uint32_t first, uint32_t pages)
{
    if (engine->learn.memo != NULL) {
        memset(&engine->learn.memo[first], 0, pages * sizeof *engine->learn.memo);
    }
}

void ov_runs_free(struct ov_runs *runs)
{
    free(runs->item);
    free(runs->cycle);
    free(runs->compute_s);
    free(runs->stretch);
    free(runs->group);
    free(runs->group_unit);
    memset(runs, 0, sizeof *runs);
}

/* moved[]: 1 + new index, 0: gone. What was computed for a touch that is gone, or that the one before makes
 * superfluous, belongs to the one before. */
static void prune_cycle(struct ov_runs *runs, const uint32_t *moved)
{
    size_t length = 0;
    for (size_t i = 0; i < runs->cycle_length; i++) {
        uint32_t run = moved[runs->cycle[i]];
        if (run == 0 || (length > 0 && runs->cycle[length - 1] == run - 1)) {
            if (runs->compute_s != NULL && length > 0) {
                runs->compute_s[length - 1] += runs->compute_s[i];
            }
            continue;
        }
        runs->cycle[length] = run - 1;
        if (runs->compute_s != NULL) {
            runs->compute_s[length] = runs->compute_s[i];
        }
        if (runs->stretch != NULL) {
            runs->stretch[length] = runs->stretch[i];
        }
        length++;
    }
    runs->cycle_length = length;
}

void ov_runs_prune(struct ov_engine *engine)
{
    struct ov_runs *runs = &engine->learn.runs;
    uint32_t *moved = calloc((size_t)runs->count + 1, sizeof *moved); /* 1 + new index, 0: gone */
    if (moved == NULL) {
        runs->count = 0;
        runs->cycle_length = runs->group_count = 0;
        return;
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < runs->count; i++) {
        const struct ov_alloc *alloc = ov_alloc_of(engine, runs->item[i].first);
        if (alloc != NULL && alloc->ordinal == runs->item[i].ordinal &&
            engine->arena.page[alloc->first].backing != OV_SHARED) {
            runs->item[kept] = runs->item[i];
            moved[i] = ++kept;
        }
    }
    runs->count = kept;
    prune_cycle(runs, moved);
    for (size_t g = 0; g < runs->group_count; g++) {
        struct ov_plan_group *group = &runs->group[g];
        uint32_t *unit = &runs->group_unit[group->start];
        uint32_t members = 0;
        for (uint32_t i = 0; i < group->length; i++) {
            if (moved[unit[i]] != 0) {
                unit[members++] = moved[unit[i]] - 1;
            }
        }
        group->length = members;
    }
    free(moved);
}
