/* The reading of the log: see learn.h. */
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "log.h"
#include "other.h"
#include "recall.h"
#include "study.h"
#include "trace.h"
#include "zerocopy.h"

/* Kernels may read this far past the end of a tensor, so packers leave gaps of up to this size. */
#define GAP_BYTES 4096u
/* An aperiodic program's "cycle" is this much of the end of the log. */
#define APERIODIC_TOUCHES 8192u

/* ---- reading the log ---- */

static bool load_log(struct ov_study *study)
{
    const struct ov_learn *learn = &study->engine->learn;
    uint64_t from = learn->start;
    if (learn->head > OV_LOG_ENTRIES && from < learn->head - OV_LOG_ENTRIES) {
        from = learn->head - OV_LOG_ENTRIES;
    }
    size_t room = (size_t)(learn->head - from) + 1;
    study->entry = calloc(room, sizeof *study->entry);
    study->place = calloc(room, sizeof *study->place);
    study->run = calloc(room, sizeof *study->run);
    if (study->entry == NULL || study->place == NULL || study->run == NULL) {
        return false;
    }
    for (uint64_t at = from; at < learn->head; at++) {
        const struct ov_log_entry *entry = &learn->log[at % OV_LOG_ENTRIES];
        const struct ov_alloc *alloc = ov_alloc_of(study->engine, ov_arena_page(&study->engine->arena, entry->address));
        if (alloc != NULL && alloc->ordinal == entry->ordinal) {
            study->entry[study->count] = *entry;
            study->place[study->count++] = at;
        }
    }
    return true;
}

static int compare_addresses(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static bool count_addresses(struct ov_study *study)
{
    uint64_t *all = calloc(study->count + 1, sizeof *all);
    study->exact = calloc(study->count + 1, sizeof *study->exact);
    if (all == NULL || study->exact == NULL) {
        free(all);
        return false;
    }
    /* Only what was touched while it was what it is now: how a buffer was filled says nothing about its use. */
    size_t settled = 0;
    for (size_t i = 0; i < study->count; i++) {
        const struct ov_engine *engine = study->engine;
        const struct ov_memo *memo = &engine->learn.memo[ov_arena_page(&engine->arena, study->entry[i].address)];
        if (memo->hashed && study->place[i] >= memo->since) {
            all[settled++] = study->entry[i].address;
        }
    }
    qsort(all, settled, sizeof *all, compare_addresses);
    for (size_t i = 0; i < settled; i++) {
        if (study->exact_count > 0 && study->exact[study->exact_count - 1].address == all[i]) {
            study->exact[study->exact_count - 1].times++;
        } else {
            study->exact[study->exact_count].address = all[i];
            study->exact[study->exact_count++].times = 1;
        }
    }
    free(all);
    return true;
}

/* Index of the first touched address >= address. */
static size_t exact_from(const struct ov_study *study, uint64_t address)
{
    size_t low = 0, high = study->exact_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (study->exact[middle].address < address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

uint32_t ov_study_times_touched(const struct ov_study *study, uint64_t address)
{
    size_t i = exact_from(study, address);
    return i < study->exact_count && study->exact[i].address == address ? study->exact[i].times : 0;
}

static bool touched_inside(const struct ov_study *study, uint64_t begin, uint64_t end)
{
    size_t i = exact_from(study, begin);
    return i < study->exact_count && study->exact[i].address < end;
}

/* ---- runs ---- */

/* Launches passed exactly that address, again and again, while all was stable. */
static bool used_from(struct ov_study *study, uint64_t address)
{
    uint32_t wanted = ov_opt.discovery_cycles > 2 ? ov_opt.discovery_cycles : 2;
    uint32_t times = ov_study_times_touched(study, address);
    study->undecided += times > 0 && times < wanted;
    return times >= wanted;
}

/* Edges are (offset, began) pairs, ascending. */
static bool boundary_trusted(struct ov_study *study, const struct ov_alloc *alloc, uint32_t edge)
{
    if ((alloc->edge[edge] & 1) == 0) {
        return false;
    }
    uint64_t offset = alloc->edge[edge] / 2;
    bool ended = false;
    for (uint32_t i = edge; i > 0 && !ended; i--) {
        uint64_t earlier = alloc->edge[i - 1];
        if (earlier / 2 + GAP_BYTES <= offset) {
            break;
        }
        ended = (earlier & 1) == 0;
    }
    return ended && used_from(study, ov_page_address(&study->engine->arena, alloc->first) + offset);
}

static bool add_run(struct ov_study *study, const struct ov_alloc *alloc, uint64_t begin, uint64_t end)
{
    const struct ov_engine *engine = study->engine;
    uint64_t base = ov_page_address(&engine->arena, alloc->first);
    uint64_t limit = base + ((uint64_t)alloc->pages << OV_PAGE_SHIFT);
    uint64_t page_mask = OV_PAGE_BYTES - 1;
    uint64_t from = (begin + page_mask) & ~page_mask, to = end & ~page_mask;
    if (end == base + alloc->bytes) {
        end = to = limit; /* what is left of the last page is nobody's */
    }
    if (from >= to || !touched_inside(study, begin, end)) {
        return true;
    }
    struct ov_run run = {.begin = begin,
                         .end = end,
                         .first = ov_arena_page(&engine->arena, from),
                         .pages = (uint32_t)((to - from) >> OV_PAGE_SHIFT),
                         .ordinal = alloc->ordinal,
                         .share = 1};
    if (((size_t)run.pages << OV_PAGE_SHIFT) < ov_opt.min_unit_bytes) {
        return true;
    }
    for (uint32_t p = run.first; p < run.first + run.pages; p++) {
        const struct ov_memo *memo = &engine->learn.memo[p];
        if (!memo->hashed || (engine->arena.page[p].backing != OV_RING && memo->since >= engine->learn.head)) {
            study->unstable_pages += run.pages;
            return true; /* it changed since it was last looked at, or was never looked at before */
        }
        run.marks |= memo->marks;
    }
    struct ov_runs *runs = &study->runs;
    if (runs->count == runs->room) {
        uint32_t room = runs->room ? runs->room * 2 : 256;
        struct ov_run *item = realloc(runs->item, room * sizeof *item);
        if (item == NULL) {
            return false;
        }
        runs->item = item;
        runs->room = room;
    }
    runs->item[runs->count++] = run;
    return true;
}

/* Whether a run that began at `begin` is worth ending at `at`. Tensors of less than a few pages stay together: the page
 * that two runs share can only be resident, and runs that are used one after the other lose nothing by being one. */
static bool worth_ending(const struct ov_alloc *alloc, uint64_t begin, uint64_t at)
{
    uint64_t least = alloc->held / 16 < 2 ? 2 : alloc->held / 16 < 8 ? alloc->held / 16 : 8;
    bool aligned = ((begin | at) & (OV_PAGE_BYTES - 1)) == 0;
    return at - begin >= (aligned ? ov_opt.min_unit_bytes : least << OV_PAGE_SHIFT);
}

/* The runs of [begin, limit), which is all of an allocation or what lies between two holes of a reservation. */
static bool form_stretch(struct ov_study *study, const struct ov_alloc *alloc, uint64_t begin, uint64_t limit)
{
    uint64_t base = ov_page_address(&study->engine->arena, alloc->first);
    size_t birth = ov_study_births_from(study, begin);
    for (uint32_t i = 0;;) {
        uint64_t edge = i < alloc->edge_count ? base + alloc->edge[i] / 2 : UINT64_MAX;
        uint64_t born = birth < study->births ? study->birth[birth].address : UINT64_MAX;
        uint64_t at = edge < born ? edge : born;
        if (at >= limit) {
            return add_run(study, alloc, begin, limit);
        }
        if (at > begin && worth_ending(alloc, begin, at) &&
            ((at == edge && boundary_trusted(study, alloc, i)) ||
             (at == born && ov_study_born_at(study, alloc, at) && used_from(study, at)))) {
            if (!add_run(study, alloc, begin, at)) {
                return false;
            }
            begin = at;
        }
        i += at == edge;
        birth += at == born;
    }
}

static bool form_alloc(struct ov_study *study, const struct ov_alloc *alloc)
{
    const struct ov_arena *arena = &study->engine->arena;
    uint64_t base = ov_page_address(arena, alloc->first);
    if (!alloc->reserved) {
        return form_stretch(study, alloc, base, base + alloc->bytes);
    }
    uint32_t end = alloc->first + alloc->pages;
    for (uint32_t p = alloc->first; p < end; p++) {
        uint32_t first = p;
        while (p < end && arena->page[p].backing != OV_NONE) {
            p++;
        }
        if (p > first && !form_stretch(study, alloc, ov_page_address(arena, first), ov_page_address(arena, p))) {
            return false;
        }
    }
    return true;
}

/* Units of an earlier plan that this discovery did not see at work are kept as they are, if they still stand. */
static bool keep_old(struct ov_study *study, const struct ov_alloc *alloc)
{
    const struct ov_runs *old = &study->engine->learn.runs;
    uint64_t base = ov_page_address(&study->engine->arena, alloc->first);
    for (uint32_t i = 0; i < old->count; i++) {
        const struct ov_run *run = &old->item[i];
        if (run->ordinal == alloc->ordinal && run->begin >= base) {
            struct ov_run copy = *run;
            bool stands = true;
            copy.marks = 0;
            for (uint32_t p = run->first; p < run->first + run->pages && stands; p++) {
                const struct ov_memo *memo = &study->engine->learn.memo[p];
                copy.marks |= memo->marks;
                stands = study->engine->arena.page[p].backing == OV_RING ||
                         (memo->hashed && memo->since < study->engine->learn.start);
            }
            if (stands) {
                if (study->runs.count == study->runs.room) {
                    uint32_t room = study->runs.room ? study->runs.room * 2 : 256;
                    struct ov_run *item = realloc(study->runs.item, room * sizeof *item);
                    if (item == NULL) {
                        return false;
                    }
                    study->runs.item = item;
                    study->runs.room = room;
                }
                study->runs.item[study->runs.count++] = copy;
            }
        }
    }
    return true;
}

static int compare_runs(const void *a, const void *b)
{
    const struct ov_run *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static bool form_runs(struct ov_study *study)
{
    const struct ov_allocs *allocs = &study->engine->allocs;
    for (uint32_t i = 0; i < allocs->count; i++) {
        const struct ov_alloc *alloc = &allocs->item[i];
        if (alloc->ordinal == 0 || ((size_t)alloc->pages << OV_PAGE_SHIFT) < ov_opt.min_unit_bytes) {
            continue;
        }
        uint64_t base = ov_page_address(&study->engine->arena, alloc->first);
        bool seen = touched_inside(study, base, base + ((uint64_t)alloc->pages << OV_PAGE_SHIFT));
        if (!(seen ? form_alloc(study, alloc) : keep_old(study, alloc))) {
            return false;
        }
    }
    if (study->runs.count > 1) {
        qsort(study->runs.item, study->runs.count, sizeof *study->runs.item, compare_runs);
    }
    return true;
}

/* A repetition at the end of the log may be a part of a pass (micro-batches go through the last layer again and again):
 * a cycle holds nearly all units that are used. */
static bool holds_most(const uint32_t *sequence, size_t length, size_t period, uint32_t runs)
{
    uint8_t *seen = calloc((size_t)runs + 1, 1);
    size_t all = 0, inside = 0;
    for (size_t i = 0; seen != NULL && i < length; i++) {
        bool in_cycle = i >= length - period;
        all += (seen[sequence[i]] & 1) == 0;
        inside += in_cycle && (seen[sequence[i]] & 2) == 0;
        seen[sequence[i]] |= in_cycle ? 3 : 1;
    }
    free(seen);
    return inside * 10 >= all * 9;
}

/* The sequence of runs, without repeats, and the groups that launches use together. */
static bool form_order(struct ov_study *study)
{
    struct ov_runs *runs = &study->runs;
    uint32_t *sequence = calloc(study->count + 1, sizeof *sequence);
    runs->group = calloc(study->count + 1, sizeof *runs->group);
    runs->group_unit = calloc(study->count + 1, sizeof *runs->group_unit);
    if (sequence == NULL || runs->group == NULL || runs->group_unit == NULL) {
        free(sequence);
        return false;
    }
    size_t length = 0, flat = 0;
    for (size_t i = 0; i < study->count;) {
        size_t start = flat, next = i;
        for (; next < study->count && study->entry[next].launch == study->entry[i].launch; next++) {
            uint32_t run = study->run[next];
            bool known = run == 0;
            for (size_t g = start; g < flat && !known; g++) {
                known = runs->group_unit[g] == run - 1;
            }
            if (!known) {
                runs->group_unit[flat++] = sequence[length++] = run - 1;
            }
        }
        if (flat - start >= 2) {
            runs->group[runs->group_count++] = (struct ov_plan_group){(uint32_t)start, (uint32_t)(flat - start)};
        } else {
            flat = start;
        }
        i = next;
    }
    length = ov_compress(sequence, length);
    size_t period = ov_find_period(sequence, length, 2);
    if (!holds_most(sequence, length, period, runs->count)) {
        period = 0;
    }
    runs->periodic = period != 0;
    study->cycles = period != 0 ? (double)length / (double)period : 1;
    runs->cycle_length = period != 0 ? period : length < APERIODIC_TOUCHES ? length : APERIODIC_TOUCHES;
    memmove(sequence, sequence + (length - runs->cycle_length), runs->cycle_length * sizeof *sequence);
    runs->cycle = sequence;
    return true;
}

struct looking {
    struct ov_engine *engine;
    CUresult result; /* the first that was not CUDA_SUCCESS */
};

static void note_look(struct looking *looking, CUresult result)
{
    looking->result = looking->result != CUDA_SUCCESS ? looking->result : result;
}

static void look_outside(void *context, CUdeviceptr address, size_t bytes)
{
    struct looking *looking = context;
    struct ov_page_digest digest;
    note_look(looking, ov_inspect_range(looking->engine, address, bytes, &digest));
}

static void look_at_global(void *context, CUdeviceptr address, size_t bytes)
{
    struct looking *looking = context;
    struct ov_page_digest digest;
    note_look(looking, ov_inspect_copied(looking->engine, address, bytes, &digest));
}

static bool look_at_zerocopy(void *context, CUdeviceptr address, size_t bytes)
{
    struct looking *looking = context;
    struct ov_page_digest digest = {{0, 0}, 0};
    size_t skip = (size_t)(-address & 7);
    if (bytes >= skip + 8) {
        note_look(looking, ov_inspect_range(looking->engine, address + skip, bytes - skip, &digest));
    }
    return digest.addresses != 0;
}

/* Searches all memory that kernels may read and that is not in the arena, and fetches what was found anywhere. */
static CUresult look_around(struct ov_engine *engine)
{
    struct looking looking = {engine, CUDA_SUCCESS};
    ov_others_each(engine, look_outside, &looking);
    ov_globals_each(engine, look_at_global, &looking);
    ov_zerocopy_each(look_at_zerocopy, &looking);
    note_look(&looking, ov_inspect_fetch(engine));
    return looking.result;
}

CUresult ov_learn_look_again(struct ov_engine *engine)
{
    struct ov_runs *runs = &engine->learn.runs;
    for (uint32_t i = 0; i < engine->allocs.count; i++) {
        engine->allocs.item[i].dirty = true;
    }
    CUresult result = ov_learn_hash(engine);
    if (result == CUDA_SUCCESS) {
        result = look_around(engine);
    }
    if (result == CUDA_SUCCESS) {
        ov_study_mark_hidden(engine, runs);
    }
    for (uint32_t i = 0; i < runs->count; i++) {
        const struct ov_run *run = &runs->item[i];
        for (uint32_t p = run->first; (run->marks & OV_MARK_HIDDEN) != 0 && p < run->first + run->pages; p++) {
            engine->learn.memo[p].marks |= OV_MARK_HIDDEN;
        }
    }
    return result;
}

static bool same_run(const struct ov_run *a, const struct ov_run *b)
{
    return a->begin == b->begin && a->end == b->end;
}

/* Whether both go through the same units, the one `shift` touches ahead of the other. */
static bool same_cycle(const struct ov_runs *a, const struct ov_runs *b, size_t shift)
{
    size_t i = 0;
    while (i < a->cycle_length && same_run(&a->item[a->cycle[i]], &b->item[b->cycle[(i + shift) % b->cycle_length]])) {
        i++;
    }
    return i == a->cycle_length;
}

static double *turned(const double *times, size_t count, size_t shift)
{
    double *copy = times != NULL ? calloc(count, sizeof *copy) : NULL;
    for (size_t i = 0; copy != NULL && i < count; i++) {
        copy[i] = times[(i + shift) % count];
    }
    return copy;
}

/* A cycle that was timed and comes out again, from wherever it begins now, keeps its times. */
static void keep_times(struct ov_runs *runs, const struct ov_runs *old)
{
    const size_t length = runs->cycle_length;
    size_t shift = 0;
    if (old->compute_s == NULL || !runs->periodic || old->cycle_length != length) {
        return;
    }
    while (shift < length && !same_cycle(runs, old, shift)) {
        shift++;
    }
    if (shift < length) {
        runs->compute_s = turned(old->compute_s, length, shift);
        runs->stretch = turned(old->stretch, length, shift);
    }
}

bool ov_study_begin(struct ov_study *study)
{
    return load_log(study) && count_addresses(study);
}

void ov_study_end(struct ov_study *study)
{
    free(study->entry);
    free(study->place);
    free(study->run);
    free(study->exact);
    free(study->birth);
    ov_runs_free(&study->runs);
}

bool ov_learn_study(struct ov_engine *engine)
{
    struct ov_learn *learn = &engine->learn;
    struct ov_study study = {.engine = engine};
    learn->attempts++;
    ov_density_collect(engine); /* what the log says is complete then */
    bool done = ov_learn_hash(engine) == CUDA_SUCCESS && look_around(engine) == CUDA_SUCCESS &&
                ov_study_begin(&study) && ov_study_find_births(&study) && form_runs(&study) &&
                ov_study_keep_innocent(&study) && ov_study_judge_pairs(&study) && form_order(&study);
    if (done) {
        ov_study_mark_hidden(engine, &study.runs);
        ov_study_settle_marks(&study);
        ov_study_log_marks(&study);
        ov_density_judge(engine, &study.runs,
                         &(struct ov_density_log){study.entry, study.place, study.run, study.count, study.cycles});
        ov_log(
            OV_LOG_DEBUG,
            "study %u: %zu touches, %u units, cycle of %zu%s; not used often enough: %u boundaries; no units: %zu MiB "
            "that changed, %u written, %u doubted; %zu may begin where a kernel wrote",
            learn->attempts, study.count, study.runs.count, study.runs.cycle_length,
            study.runs.periodic ? "" : " (no period)", study.undecided, study.unstable_pages * (OV_PAGE_BYTES >> 20),
            study.written, study.doubted, study.births);
    }
    if (study.runs.count > 2 * learn->units_seen) {
        learn->attempts = 1; /* the program has only begun */
    }
    learn->units_seen = study.runs.count;
    /* Half of what is used should be recognised before a plan is made; what changes all the time never is. */
    bool clear = study.runs.periodic && study.undecided == 0;
    if (!done || study.runs.count == 0 || (!clear && (learn->attempts < OV_PATIENCE || learn->settled))) {
        ov_learn_wait(engine);
        ov_study_end(&study);
        return false;
    }
    if (ov_recall_ends(engine, &study.runs)) {
        ov_study_end(&study);
        return false;
    }
    learn->settled = !clear;
    keep_times(&study.runs, &learn->runs);
    ov_runs_free(&learn->runs);
    learn->fresh = true;
    learn->studied = learn->head++; /* so that what changes later is seen to have changed later */
    learn->runs = study.runs;
    memset(&study.runs, 0, sizeof study.runs);
    ov_study_end(&study);
    return true;
}
