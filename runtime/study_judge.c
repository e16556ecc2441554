/* What follows from the runs that a study found; see study.h. */
#include "study.h"

#include <stdlib.h>

#include "engine.h"
#include "log.h"
#include "watch.h"

/* Times a unit may be taken out of the ring before it stays out. */
#define STRIKES 3u
/* Bit in study.run[], inside of mark_ambiguous only. */
#define ASTRAY 0x80000000u

/* 1 + index of the run that holds the address. */
static uint32_t run_at(const struct ov_runs *runs, uint64_t address)
{
    uint32_t low = 0, high = runs->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (runs->item[middle].end <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < runs->count && runs->item[low].begin <= address ? low + 1 : 0;
}

static uint64_t run_since(const struct ov_study *study, const struct ov_run *run)
{
    uint64_t since = 0;
    for (uint32_t p = run->first; p < run->first + run->pages; p++) {
        uint64_t page_since = study->engine->learn.memo[p].since;
        since = page_since > since ? page_since : since;
    }
    return since;
}

static bool ambiguous(const struct ov_log_entry *entry)
{
    const struct ov_kernel *kernel = entry->kernel;
    return kernel != NULL && entry->slot < kernel->slot_count && kernel->hits[entry->slot] < kernel->launches;
}

bool ov_study_is_filled(struct ov_engine *engine, uint32_t first, uint32_t pages)
{
    const struct ov_alloc *alloc = ov_alloc_of(engine, first);
    uint64_t uploaded = 0;
    uint64_t begin = ov_page_address(&engine->arena, first);
    uint64_t end = begin + ((uint64_t)pages << OV_PAGE_SHIFT);
    uint64_t used_end = ov_page_address(&engine->arena, alloc->first) + alloc->bytes;
    for (uint32_t p = first; p < first + pages; p++) {
        uploaded += engine->learn.memo[p].uploaded;
    }
    end = used_end < end ? used_end : end;
    return uploaded * 10 >= (end - begin) * 9;
}

static void find_runs(struct ov_study *study)
{
    for (size_t i = 0; i < study->count; i++) {
        study->run[i] = run_at(&study->runs, study->entry[i].address);
    }
}

/* Drops runs that somebody may write. */
bool ov_study_keep_innocent(struct ov_study *study)
{
    enum { FILLED = 1, WRITTEN = 2, DOUBTED = 4 };
    uint8_t *what = calloc(study->runs.count + 1, 1);
    uint64_t *since = calloc(study->runs.count + 1, sizeof *since);
    if (what == NULL || since == NULL) {
        free(what);
        free(since);
        return false;
    }
    for (uint32_t i = 0; i < study->runs.count; i++) {
        const struct ov_run *run = &study->runs.item[i];
        what[i] = ov_study_is_filled(study->engine, run->first, run->pages) ? FILLED : 0;
        since[i] = run_since(study, &study->runs.item[i]);
    }
    find_runs(study);
    for (size_t i = 0; i < study->count; i++) {
        const struct ov_log_entry *entry = &study->entry[i];
        if (study->run[i] != 0 && study->place[i] >= since[study->run[i] - 1]) { /* earlier writes made it what it is */
            bool writes = entry->kernel != NULL && ov_slot(entry->kernel, entry->slot) == OV_SLOT_WRITER;
            what[study->run[i] - 1] |= writes ? WRITTEN : ov_watch_reads_only(entry->kernel, entry->slot) ? 0 : DOUBTED;
        }
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < study->runs.count; i++) {
        bool in_ring = study->engine->arena.page[study->runs.item[i].first].backing == OV_RING;
        if (in_ring || ((what[i] & WRITTEN) == 0 && (what[i] & (FILLED | DOUBTED)) != DOUBTED)) {
            study->runs.item[kept++] = study->runs.item[i];
        } else if ((what[i] & WRITTEN) != 0) {
            study->written++;
        } else {
            study->doubted++;
        }
    }
    study->runs.count = kept;
    free(what);
    free(since);
    find_runs(study);
    return true;
}

/* Marks runs that ambiguous slots reach at moments when they are not in use anyway: such a touch, stale or not, would
 * cost a copy of its own. Next to a sure touch of the same run it costs nothing, and mostly is what that touch left on
 * the stack. */
static void mark_ambiguous(struct ov_study *study)
{
    uint32_t sure = 0; /* the run that was surely touched last */
    for (size_t i = 0; i < study->count; i++) {
        if (study->run[i] != 0 && !ambiguous(&study->entry[i])) {
            sure = study->run[i];
        } else if (study->run[i] != sure) {
            study->run[i] |= ASTRAY;
        }
    }
    sure = 0; /* the one that is touched next */
    for (size_t i = study->count; i-- > 0;) {
        uint32_t run = study->run[i] & ~ASTRAY;
        if (run != 0 && !ambiguous(&study->entry[i])) {
            sure = run;
        } else if (run != 0 && study->run[i] != run && run != sure) {
            study->runs.item[run - 1].marks |= OV_MARK_AMBIGUOUS;
        }
        study->run[i] = run;
    }
}

/* Says of pairs whether they read, and puts marks on runs. */
bool ov_study_judge_pairs(struct ov_study *study)
{
    uint64_t *since = calloc(study->runs.count + 1, sizeof *since);
    if (since == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < study->runs.count; i++) {
        since[i] = run_since(study, &study->runs.item[i]);
    }
    /* First hope, then doubt: an unknown pair is a reader unless one of its touches speaks against it. */
    for (int step = 0; step < 3; step++) {
        for (size_t i = 0; i < study->count; i++) {
            const struct ov_log_entry *entry = &study->entry[i];
            uint32_t run = study->run[i];
            bool reads = run != 0 && study->place[i] >= since[run - 1];
            if (entry->kernel == NULL) {
                continue;
            }
            enum ov_slot_state state = ov_slot(entry->kernel, entry->slot);
            if (step == 0 && state == OV_SLOT_UNKNOWN && reads) {
                ov_slot_set(entry->kernel, entry->slot, OV_SLOT_HOPE);
            } else if (step == 1 && state == OV_SLOT_HOPE && !reads) {
                ov_slot_set(entry->kernel, entry->slot, OV_SLOT_UNKNOWN);
            } else if (step == 2 && state == OV_SLOT_HOPE) {
                ov_slot_set(entry->kernel, entry->slot, OV_SLOT_READER);
            }
        }
    }
    for (size_t i = 0; i < study->count; i++) {
        if (study->run[i] != 0 && study->entry[i].kernel != NULL && ov_kernel_emits(study->entry[i].kernel)) {
            study->runs.item[study->run[i] - 1].marks |= OV_MARK_HIDDEN;
        }
    }
    mark_ambiguous(study);
    free(since);
    return true;
}

void ov_study_mark_hidden(const struct ov_engine *engine, struct ov_runs *runs)
{
    for (uint32_t i = 0; i < runs->count; i++) {
        struct ov_run *run = &runs->item[i];
        uint32_t begin = ov_arena_page(&engine->arena, run->begin);
        uint32_t end = ov_arena_page(&engine->arena, run->end - 1);
        for (uint32_t p = begin; p <= end; p++) {
            if (ov_inspect_points_to(&engine->inspect, p)) {
                run->marks |= OV_MARK_HIDDEN;
            }
        }
    }
}

/* What was only caught by surprise, and is found stable again, gets another chance: not for ever. */
static void forgive(struct ov_engine *engine, struct ov_run *run)
{
    const uint8_t forgivable = OV_MARK_WRITTEN | OV_MARK_COPIED | OV_MARK_CROWDED;
    uint8_t strikes = 0;
    for (uint32_t p = run->first; p < run->first + run->pages; p++) {
        strikes = engine->learn.memo[p].strikes > strikes ? engine->learn.memo[p].strikes : strikes;
    }
    if (strikes < STRIKES) {
        run->marks &= (uint8_t)~forgivable;
        for (uint32_t p = run->first; p < run->first + run->pages; p++) {
            engine->learn.memo[p].marks &= (uint8_t)~forgivable;
        }
    }
}

void ov_study_settle_marks(struct ov_study *study)
{
    for (uint32_t i = 0; i < study->runs.count; i++) {
        struct ov_run *run = &study->runs.item[i];
        for (uint32_t p = run->first; p < run->first + run->pages; p++) {
            study->engine->learn.memo[p].marks |= run->marks;
        }
        forgive(study->engine, run);
        run->may = OV_TIER_BIT(OV_TIER_RESIDENT) | OV_TIER_BIT(OV_TIER_HOST);
        if (run->marks == 0 && !study->engine->streaming_barred) {
            run->may |= OV_TIER_BIT(OV_TIER_STREAMED);
        }
    }
}

/* Pages that may not be streamed, by reason. */
void ov_study_log_marks(const struct ov_study *study)
{
    static const char *const reason[] = {
        "address found in memory", "ambiguous slot",           "used by a graph", "copied", "written",
        "used by another context", "used with too many others"};
    for (unsigned bit = 0; bit < sizeof reason / sizeof reason[0]; bit++) {
        size_t pages = 0;
        for (uint32_t i = 0; i < study->runs.count; i++) {
            pages += study->runs.item[i].marks >> bit & 1 ? study->runs.item[i].pages : 0;
        }
        if (pages > 0) {
            ov_log(OV_LOG_INFO, "device %d: %zu MiB of weights are not streamed: %s", study->engine->device, pages * 2,
                   reason[bit]);
        }
    }
}
