#define _GNU_SOURCE
#include "record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine.h"
#include "log.h"
#include "profile.h"
#include "propose.h"
#include "study.h"
#include "verdict.h"

/* Quiet points after which the file is written again, if more is known; so many times more each time. */
#define FIRST_WAIT 16u
#define LAST_WAIT  (1u << 20)
/* Sets of weights that one run of a program leaves profiles of. */
#define KEYS_AT_MOST 8u

void ov_record_here(const struct ov_engine *engine, struct ov_profile *here, char device[OV_DEVICE_NAME_ROOM])
{
    int driver = 0;
    *here = (struct ov_profile){.program = program_invocation_short_name};
    device[0] = 0;
    (void)ov_cu->cuDeviceGetName(device, OV_DEVICE_NAME_ROOM, engine->device);
    device[OV_DEVICE_NAME_ROOM - 1] = 0;
    here->device = device;
    (void)ov_cu->cuDeviceTotalMem_v2(&here->device_bytes, engine->device);
    (void)ov_cu->cuDriverGetVersion(&driver);
    here->driver = (unsigned)driver;
}

void ov_record_hash(const struct ov_engine *engine, const struct ov_run *run, uint64_t hash[2])
{
    hash[0] = hash[1] = 0;
    for (uint32_t p = run->first; p < run->first + run->pages; p++) {
        uint64_t page[2] = {0, 0};
        memcpy(page, &engine->learn.memo[p].hash, sizeof page);
        for (int i = 0; i < 2; i++) {
            hash[i] = ((hash[i] << 7 | hash[i] >> 57) ^ page[i]) * 0x9e3779b97f4a7c15u;
        }
    }
}

/* As the next plan would see it: marks may have been put on since the study. */
static uint8_t may_now(const struct ov_engine *engine, const struct ov_run *run)
{
    uint8_t marks = 0;
    for (uint32_t p = run->first; p < run->first + run->pages; p++) {
        marks |= engine->learn.memo[p].marks;
    }
    return marks == 0 ? run->may : run->may & (uint8_t)~OV_TIER_BIT(OV_TIER_STREAMED);
}

/* False: one of them was freed since the plan was made. The next plan's profile is without it. */
static bool fill_weights(struct ov_engine *engine, struct ov_profile *profile)
{
    const struct ov_runs *runs = &engine->learn.runs;
    for (uint32_t i = 0; i < runs->count; i++) {
        const struct ov_run *run = &runs->item[i];
        const struct ov_alloc *alloc = ov_alloc_of(engine, run->first);
        if (alloc == NULL || alloc->ordinal != run->ordinal) {
            return false;
        }
        struct ov_profile_weight *weight = &profile->weight[i];
        *weight = (struct ov_profile_weight){.bytes = (size_t)run->pages << OV_PAGE_SHIFT,
                                             .span = (size_t)(run->end - run->begin),
                                             .allocation = run->ordinal,
                                             .may = may_now(engine, run),
                                             .sparse = run->sparse,
                                             .share = run->share < 1 ? (double)run->share : 1,
                                             .reads = (double)run->reads};
        weight->allocation_bytes = alloc->bytes;
        weight->offset = (size_t)(run->begin - ov_page_address(&engine->arena, alloc->first));
        weight->filled = ov_study_is_filled(engine, run->first, run->pages);
        ov_record_hash(engine, run, weight->hash);
    }
    profile->weight_count = runs->count;
    return true;
}

static void sum_key(struct ov_profile *profile)
{
    for (size_t i = 0; i < profile->weight_count; i++) {
        const struct ov_profile_weight *weight = &profile->weight[i];
        for (int k = 0; k < 2; k++) {
            uint64_t hash = ov_hash_add(ov_hash_add(weight->hash[k], weight->bytes), weight->offset);
            profile->key[k] += ov_hash_add(hash, weight->allocation_bytes);
        }
    }
}

static size_t fill_rates(const struct ov_ring *ring, struct ov_profile_rate rate[OV_RATES])
{
    const double share = ring->rate_share > 0 ? ring->rate_share : 1; /* as the program has it */
    for (unsigned i = 0; i < ring->rate_count; i++) {
        rate[i] = (struct ov_profile_rate){(size_t)(ring->rate[i].pages * (double)OV_PAGE_BYTES),
                                           share * ring->rate[i].pages_per_s * (double)OV_PAGE_BYTES * 1e-9};
    }
    if (ring->rate_count == 0 && ring->link_bytes_per_s > 0) {
        rate[0] = (struct ov_profile_rate){(size_t)64 << 20, share * ring->link_bytes_per_s * 1e-9};
        return 1;
    }
    return ring->rate_count;
}

/* Allocations that the last plan took for unused. */
static void fill_unused(struct ov_engine *engine, struct ov_profile *profile)
{
    for (uint32_t i = 0; i < engine->allocs.count; i++) {
        const struct ov_alloc *alloc = &engine->allocs.item[i];
        bool has_weights = false;
        for (uint32_t k = 0; k < engine->learn.runs.count && !has_weights; k++) {
            has_weights = engine->learn.runs.item[k].ordinal == alloc->ordinal;
        }
        if (alloc->ordinal != 0 && !alloc->reserved && !has_weights && ov_is_cold(engine, alloc, alloc->first)) {
            profile->unused[profile->unused_count++] = (struct ov_profile_unused){alloc->ordinal, alloc->bytes};
        }
    }
}

/* Whether the file holds that text. */
static bool holds(const char *path, const char *text)
{
    const size_t length = strlen(text);
    char piece[4096];
    size_t at = 0;
    bool same = true;
    FILE *file = fopen(path, "re");
    while (file != NULL && same) {
        size_t got = fread(piece, 1, sizeof piece, file);
        same = got <= length - at && memcmp(piece, text + at, got) == 0;
        at += got;
        if (got == 0) {
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return file != NULL && same && at == length;
}

/* A new file, whatever was there: a draft of a process that was killed and had this number, or a link that leads
 * elsewhere. */
static FILE *open_anew(const char *path)
{
    (void)unlink(path);
    const int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    FILE *stream = file >= 0 ? fdopen(file, "w") : NULL;
    if (file >= 0 && stream == NULL) {
        close(file);
    }
    return stream;
}

/* Several processes may write the same file at the same time: each has a draft of its own. */
static bool write_file(const char *path, const char *text)
{
    char draft[OV_PATH_BYTES + 340];
    snprintf(draft, sizeof draft, "%s.%ld", path, (long)getpid());
    FILE *file = open_anew(draft);
    if (file == NULL) {
        return false;
    }
    const bool written = fputs(text, file) >= 0;
    const bool closed = fclose(file) == 0;
    if (written && closed && rename(draft, path) == 0) {
        return true;
    }
    const int cause = errno;
    unlink(draft);
    errno = cause;
    return false;
}

static void save(const struct ov_engine *engine, const struct ov_profile *profile)
{
    char path[OV_PATH_BYTES + 300];
    char *text = ov_profile_write(profile);
    snprintf(path, sizeof path, "%s/%s-%016llx-device%d.json", ov_opt.profile_dir, profile->program,
             (unsigned long long)profile->key[0], engine->device);
    errno = ENOMEM;
    if (text != NULL && holds(path, text)) {
        (void)utimensat(AT_FDCWD, path, NULL, 0);
    } else if (text == NULL || ((void)mkdir(ov_opt.profile_dir, 0700), !write_file(path, text))) {
        ov_log_once(OV_LOG_WARN, "no profile is written: %s: %s", path, strerror(errno));
    } else {
        ov_log(OV_LOG_INFO, "device %d: profile: %s", engine->device, path);
    }
    free(text);
}

static bool is_one_too_many(struct ov_engine *engine, uint64_t key)
{
    if (engine->record.key != key && engine->record.keys < KEYS_AT_MOST) {
        engine->record.keys++;
        engine->record.key = key;
    }
    return engine->record.key != key;
}

static void record(struct ov_engine *engine)
{
    const struct ov_runs *runs = &engine->learn.runs;
    const size_t used_pages = engine->last_plan.resident + engine->last_plan.ring;
    char device[OV_DEVICE_NAME_ROOM], *strings = NULL;
    struct ov_profile_rate rate[OV_RATES];
    struct ov_profile_cycle cycle = {.repeats = 1, .length = runs->cycle_length};
    struct ov_profile profile;
    ov_record_here(engine, &profile, device);
    profile.budget_bytes = (used_pages << OV_PAGE_SHIFT) + ov_ledger_left(&engine->ledger);
    profile.rate = rate;
    profile.rate_count = fill_rates(&engine->ring, rate);
    profile.cycle = &cycle;
    profile.cycle_count = 1;
    profile.touch = runs->cycle;
    profile.touch_count = runs->cycle_length;
    profile.compute_s = runs->compute_s;
    profile.stretch = runs->stretch;
    profile.group = runs->group;
    profile.group_count = runs->group_count;
    profile.group_weight = runs->group_unit;
    profile.weight = calloc(runs->count, sizeof *profile.weight);
    profile.unused = calloc((size_t)engine->allocs.count + 1, sizeof *profile.unused);
    profile.kernel_count = ov_verdicts_list(&profile.kernel, &strings);
    if (profile.weight != NULL && profile.unused != NULL && fill_weights(engine, &profile)) {
        fill_unused(engine, &profile);
        sum_key(&profile);
        if (!is_one_too_many(engine, profile.key[0])) {
            save(engine, &profile);
        }
    }
    free(profile.weight);
    free(profile.unused);
    free(profile.kernel);
    free(strings);
}

static bool is_wanted(const struct ov_engine *engine)
{
    const struct ov_runs *runs = &engine->learn.runs;
    return ov_verdicts_kept() && ov_opt.profile == OV_OPT_PROFILE_RW && !engine->profile_suspended && runs->count > 0 &&
           runs->cycle_length > 0;
}

void ov_record(struct ov_engine *engine)
{
    if (is_wanted(engine)) {
        record(engine);
    }
    engine->record.wait = FIRST_WAIT;
    engine->record.points = 0;
}

void ov_record_quiet(struct ov_engine *engine)
{
    if (engine->plans == 0 || ++engine->record.points < engine->record.wait) {
        return;
    }
    engine->record.wait = engine->record.wait < LAST_WAIT ? 4 * engine->record.wait : LAST_WAIT;
    engine->record.points = 0;
    if (is_wanted(engine)) {
        record(engine);
    }
}
