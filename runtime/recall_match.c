/* A profile's weights against the program's memory: see recall.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "recall.h"
#include "record.h"
#include "study.h"

/* Which allocation holds each weight. Weights of one allocation follow each other in a profile, since they are written
 * in the order of addresses: a *group*. */
struct pairing {
    struct ov_engine *engine;
    const struct ov_profile *profile;
    struct ov_alloc **alloc; /* those that there are, by bytes, then ordinal */
    uint32_t count;
    bool *taken;          /* of each */
    struct ov_alloc **of; /* of each weight, NULL: none */
};

typedef bool fits_fn(struct ov_engine *engine, const struct ov_alloc *alloc, const struct ov_profile_weight *weight);

static int compare_allocs(const void *a, const void *b)
{
    const struct ov_alloc *x = *(struct ov_alloc *const *)a, *y = *(struct ov_alloc *const *)b;
    int order = (x->bytes > y->bytes) - (x->bytes < y->bytes);
    return order != 0 ? order : (x->ordinal > y->ordinal) - (x->ordinal < y->ordinal);
}

static bool pairing_open(struct pairing *pairing, struct ov_engine *engine, const struct ov_profile *profile)
{
    const struct ov_allocs *allocs = &engine->allocs;
    *pairing = (struct pairing){.engine = engine, .profile = profile};
    pairing->alloc = calloc((size_t)allocs->count + 1, sizeof *pairing->alloc);
    pairing->taken = calloc((size_t)allocs->count + 1, sizeof *pairing->taken);
    pairing->of = calloc(profile->weight_count + 1, sizeof *pairing->of);
    if (pairing->alloc == NULL || pairing->taken == NULL || pairing->of == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < allocs->count; i++) {
        if (allocs->item[i].ordinal != 0 && !allocs->item[i].doomed && !allocs->item[i].idle) {
            pairing->alloc[pairing->count++] = &allocs->item[i];
        }
    }
    qsort(pairing->alloc, pairing->count, sizeof *pairing->alloc, compare_allocs);
    return true;
}

static void pairing_close(struct pairing *pairing)
{
    free(pairing->alloc);
    free(pairing->taken);
    free(pairing->of);
}

/* The first that is not less. */
static uint32_t first_from(const struct pairing *pairing, size_t bytes, uint32_t ordinal)
{
    uint32_t low = 0, high = pairing->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        const struct ov_alloc *alloc = pairing->alloc[middle];
        if (alloc->bytes < bytes || (alloc->bytes == bytes && alloc->ordinal < ordinal)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* One behind the last weight of the group that begins there. */
static size_t group_end(const struct ov_profile *profile, size_t weight)
{
    size_t end = weight + 1;
    while (end < profile->weight_count && profile->weight[end].allocation == profile->weight[weight].allocation) {
        end++;
    }
    return end;
}

static bool group_fits(const struct pairing *pairing, const struct ov_alloc *alloc, size_t begin, size_t end,
                       fits_fn *fits)
{
    for (size_t i = begin; i < end; i++) {
        if (!fits(pairing->engine, alloc, &pairing->profile->weight[i])) {
            return false;
        }
    }
    return true;
}

static void take(struct pairing *pairing, uint32_t index, size_t begin, size_t end)
{
    pairing->taken[index] = true;
    for (size_t i = begin; i < end; i++) {
        pairing->of[i] = pairing->alloc[index];
    }
}

/* Finds an allocation for each group: that of its number, as programs mostly load alike; else any of its size. Returns
 * how many weights have one. */
static size_t pair_up(struct pairing *pairing, fits_fn *fits)
{
    const struct ov_profile *profile = pairing->profile;
    size_t found = 0;
    for (size_t begin = 0, end; begin < profile->weight_count; begin = end) {
        end = group_end(profile, begin);
        const struct ov_profile_weight *weight = &profile->weight[begin];
        uint32_t at = first_from(pairing, weight->allocation_bytes, weight->allocation);
        if (at < pairing->count && pairing->alloc[at]->ordinal == weight->allocation && !pairing->taken[at] &&
            group_fits(pairing, pairing->alloc[at], begin, end, fits)) {
            take(pairing, at, begin, end);
            found += end - begin;
        }
    }
    for (size_t begin = 0, end; begin < profile->weight_count; begin = end) {
        end = group_end(profile, begin);
        size_t bytes = profile->weight[begin].allocation_bytes;
        for (uint32_t at = first_from(pairing, bytes, 0);
             pairing->of[begin] == NULL && at < pairing->count && pairing->alloc[at]->bytes == bytes; at++) {
            if (!pairing->taken[at] && group_fits(pairing, pairing->alloc[at], begin, end, fits)) {
                take(pairing, at, begin, end);
                found += end - begin;
            }
        }
    }
    return found;
}

/* ---- one weight ---- */

/* Where the weight would be in the allocation; as a study would have formed it. */
static bool place(const struct ov_engine *engine, const struct ov_alloc *alloc, const struct ov_profile_weight *weight,
                  struct ov_run *run)
{
    const uint64_t mask = OV_PAGE_BYTES - 1, base = ov_page_address(&engine->arena, alloc->first);
    const uint64_t room = (uint64_t)alloc->pages << OV_PAGE_SHIFT;
    if (weight->allocation_bytes != alloc->bytes || weight->offset >= room || weight->span == 0 ||
        weight->span > room - weight->offset) {
        return false;
    }
    *run = (struct ov_run){.begin = base + weight->offset,
                           .end = base + weight->offset + weight->span,
                           .ordinal = alloc->ordinal,
                           .share = weight->sparse ? (float)weight->share : 1,
                           .reads = (float)weight->reads,
                           .sparse = weight->sparse};
    const uint64_t from = (run->begin + mask) & ~mask, to = run->end & ~mask;
    if (from >= to || to - from != weight->bytes || weight->bytes < ov_opt.min_unit_bytes) {
        return false;
    }
    run->first = ov_arena_page(&engine->arena, from);
    run->pages = (uint32_t)((to - from) >> OV_PAGE_SHIFT);
    for (uint32_t p = run->first; p < run->first + run->pages; p++) {
        uint8_t backing = engine->arena.page[p].backing;
        if (backing != OV_DEVICE && backing != OV_HOST && backing != OV_RING) {
            return false;
        }
    }
    return true;
}

static bool is_full(struct ov_engine *engine, const struct ov_alloc *alloc, const struct ov_profile_weight *weight)
{
    struct ov_run run;
    return place(engine, alloc, weight, &run) && (!weight->filled || ov_study_is_filled(engine, run.first, run.pages));
}

/* Whether equal bytes say that it is this weight. Zeros that something will be written over are as good as any others;
 * if there is but one page, its place has to do. */
static bool tells(struct ov_engine *engine, const struct ov_alloc *alloc, const struct ov_run *run, uint32_t ordinal)
{
    const struct ov_memo *memo = &engine->learn.memo[run->first];
    bool alike = true;
    for (uint32_t p = 1; p < run->pages && alike; p++) {
        alike = memcmp(&memo[p].hash, &memo[0].hash, sizeof memo[0].hash) == 0;
    }
    return !alike || (run->pages == 1 && alloc->ordinal == ordinal) ||
           ov_study_is_filled(engine, run->first, run->pages);
}

static bool is_same(struct ov_engine *engine, const struct ov_alloc *alloc, const struct ov_profile_weight *weight)
{
    struct ov_run run;
    uint64_t hash[2];
    if ((weight->hash[0] | weight->hash[1]) == 0 || !place(engine, alloc, weight, &run)) {
        return false;
    }
    for (uint32_t p = run.first; p < run.first + run.pages; p++) {
        if (!engine->learn.memo[p].hashed) {
            return false;
        }
    }
    ov_record_hash(engine, &run, hash);
    return hash[0] == weight->hash[0] && hash[1] == weight->hash[1] && tells(engine, alloc, &run, weight->allocation);
}

/* ---- questions ---- */

bool ov_recall_fits(struct ov_engine *engine, const struct ov_candidate *candidate)
{
    struct pairing pairing;
    bool fits = pairing_open(&pairing, engine, &candidate->profile) &&
                pair_up(&pairing, is_full) == candidate->profile.weight_count;
    pairing_close(&pairing);
    return fits;
}

static bool has_place(struct ov_engine *engine, const struct ov_alloc *alloc, const struct ov_profile_weight *weight)
{
    struct ov_run run;
    return place(engine, alloc, weight, &run);
}

bool ov_recall_may_come(struct ov_engine *engine, const struct ov_profile *profile)
{
    struct pairing pairing;
    bool agrees = pairing_open(&pairing, engine, profile), lacks = false;
    for (size_t i = 0; i < profile->weight_count && agrees; i++) {
        const struct ov_profile_weight *weight = &profile->weight[i];
        uint32_t at = first_from(&pairing, weight->allocation_bytes, weight->allocation);
        const struct ov_alloc *alloc = at < pairing.count ? pairing.alloc[at] : NULL;
        if (alloc == NULL || alloc->ordinal != weight->allocation || !has_place(engine, alloc, weight)) {
            agrees = weight->allocation > engine->allocs.last_ordinal;
            lacks = true;
        } else if (is_full(engine, alloc, weight)) {
            agrees = is_same(engine, alloc, weight);
        } else {
            lacks = true;
        }
    }
    pairing_close(&pairing);
    return agrees && lacks;
}

/* What is wrong with a weight that was not found. */
static void explain(struct pairing *pairing, size_t index, char *how, size_t room)
{
    const struct ov_profile_weight *weight = &pairing->profile->weight[index];
    uint32_t at = first_from(pairing, weight->allocation_bytes, 0);
    for (; at < pairing->count && pairing->alloc[at]->bytes == weight->allocation_bytes; at++) {
        if (!pairing->taken[at] && has_place(pairing->engine, pairing->alloc[at], weight)) {
            snprintf(how, room, "its content differs");
            return;
        }
    }
    for (uint32_t i = 0; i < pairing->count; i++) {
        if (pairing->alloc[i]->ordinal == weight->allocation && !pairing->taken[i]) {
            snprintf(how, room, "its size differs: the allocation has %zu bytes, not %zu", pairing->alloc[i]->bytes,
                     weight->allocation_bytes);
            return;
        }
    }
    snprintf(how, room, "it is missing");
}

size_t ov_recall_compare(struct ov_engine *engine, const struct ov_profile *profile, size_t *first, char *how,
                         size_t room)
{
    struct pairing pairing;
    size_t same = 0;
    *first = SIZE_MAX;
    if (pairing_open(&pairing, engine, profile)) {
        same = pair_up(&pairing, is_same);
        for (size_t i = 0; i < profile->weight_count && *first == SIZE_MAX; i++) {
            if (pairing.of[i] == NULL) {
                *first = i;
                explain(&pairing, i, how, room);
            }
        }
    }
    pairing_close(&pairing);
    return same;
}

/* ---- runs ---- */

struct placed {
    struct ov_run run;
    uint32_t weight;
};

static int compare_placed(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;
    return (x->run.begin > y->run.begin) - (x->run.begin < y->run.begin);
}

/* The runs by address, and of each weight the number of its run. False: they overlap, or memory ran out. */
static bool form_runs(const struct pairing *pairing, struct ov_runs *runs, uint32_t *number)
{
    const struct ov_profile *profile = pairing->profile;
    struct placed *placed = calloc(profile->weight_count + 1, sizeof *placed);
    runs->item = calloc(profile->weight_count + 1, sizeof *runs->item);
    bool formed = placed != NULL && runs->item != NULL;
    for (size_t i = 0; i < profile->weight_count && formed; i++) {
        placed[i].weight = (uint32_t)i;
        formed = place(pairing->engine, pairing->of[i], &profile->weight[i], &placed[i].run);
    }
    if (formed) {
        qsort(placed, profile->weight_count, sizeof *placed, compare_placed);
    }
    for (size_t i = 0; i < profile->weight_count && formed; i++) {
        runs->item[i] = placed[i].run;
        number[placed[i].weight] = (uint32_t)i;
        formed = i == 0 || placed[i - 1].run.end <= placed[i].run.begin;
    }
    runs->count = runs->room = (uint32_t)profile->weight_count;
    free(placed);
    return formed;
}

static bool form_cycle(const struct ov_profile *profile, const uint32_t *number, struct ov_runs *runs)
{
    runs->cycle = calloc(profile->touch_count + 1, sizeof *runs->cycle);
    runs->compute_s = profile->compute_s != NULL ? calloc(profile->touch_count + 1, sizeof *runs->compute_s) : NULL;
    runs->stretch = profile->stretch != NULL ? calloc(profile->touch_count + 1, sizeof *runs->stretch) : NULL;
    if (runs->cycle == NULL || (profile->compute_s != NULL && runs->compute_s == NULL) ||
        (profile->stretch != NULL && runs->stretch == NULL)) {
        return false;
    }
    size_t length = 0;
    for (size_t i = 0; i < profile->touch_count; i++) {
        bool again = length > 0 && runs->cycle[length - 1] == number[profile->touch[i]];
        length += !again;
        runs->cycle[length - 1] = number[profile->touch[i]];
        if (runs->compute_s != NULL) {
            runs->compute_s[length - 1] += profile->compute_s[i];
        }
        if (runs->stretch != NULL) {
            runs->stretch[length - 1] = again ? runs->stretch[length - 1] : profile->stretch[i];
        }
    }
    runs->cycle_length = length;
    runs->periodic = true;
    return true;
}

static bool form_groups(const struct ov_profile *profile, const uint32_t *number, struct ov_runs *runs)
{
    size_t members = 0;
    for (size_t i = 0; i < profile->group_count; i++) {
        members += profile->group[i].length;
    }
    runs->group = calloc(profile->group_count + 1, sizeof *runs->group);
    runs->group_unit = calloc(members + 1, sizeof *runs->group_unit);
    if (runs->group == NULL || runs->group_unit == NULL) {
        return false;
    }
    memcpy(runs->group, profile->group, profile->group_count * sizeof *runs->group);
    for (size_t i = 0; i < members; i++) {
        runs->group_unit[i] = number[profile->group_weight[i]];
    }
    runs->group_count = profile->group_count;
    return true;
}

/* ---- what of them may be streamed ---- */

static void mark_emitters(struct ov_study *study)
{
    for (size_t i = 0; i < study->count; i++) {
        if (study->run[i] != 0 && study->entry[i].kernel != NULL && ov_kernel_emits(study->entry[i].kernel)) {
            study->runs.item[study->run[i] - 1].marks |= OV_MARK_HIDDEN;
        }
    }
}

static void keep_to_profile(const struct ov_profile *profile, const uint32_t *number, struct ov_runs *runs)
{
    for (size_t i = 0; i < profile->weight_count; i++) {
        runs->item[number[i]].may &= (uint8_t)(profile->weight[i].may | OV_TIER_BIT(OV_TIER_HOST));
    }
}

/* Nothing is in front of it that an address could reach it from. */
static bool begins_memory(struct ov_engine *engine, const struct ov_run *run)
{
    const struct ov_alloc *alloc = ov_alloc_of(engine, run->first);
    return run->begin == ov_page_address(&engine->arena, run->first) &&
           (run->first == alloc->first || (alloc->reserved && engine->arena.page[run->first - 1].backing == OV_NONE));
}

static bool begin_where_they_did(const struct ov_study *study)
{
    for (uint32_t i = 0; i < study->runs.count; i++) {
        const struct ov_run *run = &study->runs.item[i];
        if ((run->may & OV_TIER_BIT(OV_TIER_STREAMED)) != 0 && !begins_memory(study->engine, run) &&
            ov_study_times_touched(study, run->begin) == 0) {
            return false;
        }
    }
    return true;
}

static enum ov_recall_match judge(struct ov_study *study, const struct pairing *pairing, uint32_t *number)
{
    const struct ov_profile *profile = pairing->profile;
    if (!ov_study_begin(study) || !form_runs(pairing, &study->runs, number) ||
        !form_cycle(profile, number, &study->runs) || !form_groups(profile, number, &study->runs) ||
        !ov_study_keep_innocent(study) || study->runs.count != profile->weight_count) {
        return OV_RECALL_NONE;
    }
    mark_emitters(study);
    ov_study_mark_hidden(study->engine, &study->runs);
    ov_study_settle_marks(study);
    keep_to_profile(profile, number, &study->runs);
    return begin_where_they_did(study) ? OV_RECALL_ALL : OV_RECALL_LATER;
}

enum ov_recall_match ov_recall_match(struct ov_engine *engine, const struct ov_profile *profile, struct ov_runs *runs)
{
    struct pairing pairing;
    struct ov_study study = {.engine = engine};
    uint32_t *number = calloc(profile->weight_count + 1, sizeof *number);
    enum ov_recall_match match = OV_RECALL_NONE;
    if (pairing_open(&pairing, engine, profile) && number != NULL &&
        pair_up(&pairing, is_same) == profile->weight_count) {
        match = judge(&study, &pairing, number);
    }
    if (match == OV_RECALL_ALL) {
        *runs = study.runs;
        memset(&study.runs, 0, sizeof study.runs);
    }
    ov_study_end(&study);
    pairing_close(&pairing);
    free(number);
    return match;
}
