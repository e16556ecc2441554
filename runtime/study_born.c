/*
 * Where kernels began to write what weights are now; see study.h.
 *
 * Copies say where they begin and end, kernels only where they begin: at an address that was passed in a slot that is
 * known to write. That something begins there for good is believed if nothing in front of it, which may have gone on
 * over it, may have been written later, until its bytes were what they are. Inside of what one copy has filled nothing
 * else begins: a kernel that changes a part of it makes no weight. A tensor that kernels fill part by part is not told
 * from several, so this is done only where the user says that there is none (OVERSHOT_BOUNDARIES).
 */
#include <stdlib.h>

#include "engine.h"
#include "study.h"
#include "watch.h"

static int compare_births(const void *a, const void *b)
{
    const struct ov_birth *x = a, *y = b;
    if (x->address != y->address) {
        return x->address < y->address ? -1 : 1;
    }
    return x->place < y->place ? -1 : x->place > y->place;
}

/* What an earlier study has found; the log begins anew with each discovery. */
static size_t count_known(const struct ov_study *study, struct ov_birth *birth)
{
    const struct ov_engine *engine = study->engine;
    size_t count = 0;
    for (uint32_t i = 0; i < engine->allocs.count; i++) {
        const struct ov_alloc *alloc = &engine->allocs.item[i];
        for (uint32_t p = alloc->first; alloc->ordinal != 0 && alloc->reserved && p < alloc->first + alloc->pages;
             p++) {
            if (engine->learn.memo[p].born != 0 && birth != NULL) {
                birth[count].address = ov_page_address(&engine->arena, p) + engine->learn.memo[p].born - 1;
            }
            count += engine->learn.memo[p].born != 0;
        }
    }
    return count;
}

bool ov_study_find_births(struct ov_study *study)
{
    if (ov_opt.boundaries != OV_OPT_BOUNDARIES_WRITES) {
        return true;
    }
    study->birth = calloc(study->count + count_known(study, NULL) + 1, sizeof *study->birth);
    study->births = study->birth != NULL ? count_known(study, study->birth) : 0;
    for (size_t i = 0; study->birth != NULL && i < study->count; i++) {
        const struct ov_log_entry *entry = &study->entry[i];
        const struct ov_alloc *alloc = ov_alloc_of(study->engine, ov_arena_page(&study->engine->arena, entry->address));
        if (alloc->reserved && !ov_watch_reads_only(entry->kernel, entry->slot)) {
            bool surely = entry->kernel != NULL && ov_slot(entry->kernel, entry->slot) == OV_SLOT_WRITER;
            study->birth[study->births++] = (struct ov_birth){entry->address, study->place[i], surely};
        }
    }
    if (study->births > 1) {
        qsort(study->birth, study->births, sizeof *study->birth, compare_births);
    }
    return study->birth != NULL;
}

size_t ov_study_births_from(const struct ov_study *study, uint64_t address)
{
    size_t low = 0, high = study->births;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (study->birth[middle].address < address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Whether one copy covers what lies on both sides. */
static bool copied_across(const struct ov_study *study, const struct ov_alloc *alloc, uint64_t address)
{
    uint64_t offset = address - ov_page_address(&study->engine->arena, alloc->first);
    bool open = false;
    for (uint32_t i = 0; i < alloc->edge_count && alloc->edge[i] <= offset * 2; i++) { /* one may end right there */
        open = (alloc->edge[i] & 1) != 0;
    }
    return open;
}

/* Whether the log says so. */
static bool is_logged(const struct ov_study *study, const struct ov_alloc *alloc, uint64_t address)
{
    const struct ov_memo *memo = &study->engine->learn.memo[ov_arena_page(&study->engine->arena, address)];
    size_t at = ov_study_births_from(study, address);
    uint64_t born = 0;
    for (size_t i = at; i < study->births && study->birth[i].address == address; i++) {
        born = study->birth[i].surely && study->birth[i].place < memo->since ? study->birth[i].place : born;
    }
    if (!memo->hashed || born == 0 || born < memo->filled || copied_across(study, alloc, address)) {
        return false;
    }
    uint64_t base = ov_page_address(&study->engine->arena, alloc->first);
    uint64_t from = address - base > OV_REACH_BYTES ? address - OV_REACH_BYTES : base;
    for (size_t i = at; i > 0 && study->birth[i - 1].address >= from; i--) {
        uint64_t place = study->birth[i - 1].place;
        if (place > born && place < memo->since) {
            return false;
        }
    }
    return true;
}

bool ov_study_born_at(const struct ov_study *study, const struct ov_alloc *alloc, uint64_t address)
{
    struct ov_memo *memo = &study->engine->learn.memo[ov_arena_page(&study->engine->arena, address)];
    uint32_t born = (uint32_t)(address & (OV_PAGE_BYTES - 1)) + 1;
    if (ov_opt.boundaries != OV_OPT_BOUNDARIES_WRITES || (memo->born != born && !is_logged(study, alloc, address))) {
        return false;
    }
    memo->born = born;
    return true;
}
