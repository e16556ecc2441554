#define _GNU_SOURCE
#include "record.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine.h"
#include "log.h"
#include "profile.h"

/* The page hashes of a unit, one after the other. */
static void hash_run(const struct ov_engine *engine, const struct ov_run *run, uint64_t hash[2])
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

static void fill_weights(struct ov_engine *engine, struct ov_profile *profile)
{
    const struct ov_runs *runs = &engine->learn.runs;
    for (uint32_t i = 0; i < runs->count; i++) {
        const struct ov_run *run = &runs->item[i];
        const struct ov_alloc *alloc = ov_alloc_of(engine, run->first);
        struct ov_profile_weight *weight = &profile->weight[i];
        *weight = (struct ov_profile_weight){
            .bytes = (size_t)run->pages << OV_PAGE_SHIFT,
            .allocation = run->ordinal,
            .offset = alloc != NULL ? (size_t)(run->begin - ov_page_address(&engine->arena, alloc->first)) : 0,
            .may = run->may};
        hash_run(engine, run, weight->hash);
    }
    profile->weight_count = runs->count;
}

static size_t fill_rates(const struct ov_ring *ring, struct ov_profile_rate rate[OV_RATES])
{
    for (unsigned i = 0; i < ring->rate_count; i++) {
        rate[i] = (struct ov_profile_rate){(size_t)(ring->rate[i].pages * (double)OV_PAGE_BYTES),
                                           ring->rate[i].pages_per_s * (double)OV_PAGE_BYTES * 1e-9};
    }
    if (ring->rate_count == 0 && ring->link_bytes_per_s > 0) {
        rate[0] = (struct ov_profile_rate){(size_t)64 << 20, ring->link_bytes_per_s * 1e-9};
        return 1;
    }
    return ring->rate_count;
}

static bool write_file(const char *path, const char *text)
{
    char draft[OV_PATH_BYTES + 320];
    snprintf(draft, sizeof draft, "%s.new", path);
    FILE *file = fopen(draft, "we");
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
    snprintf(path, sizeof path, "%s/%s-%ld-device%d.json", ov_opt.profile_dir, profile->program, (long)getpid(),
             engine->device);
    errno = ENOMEM;
    if (text == NULL || ((void)mkdir(ov_opt.profile_dir, 0700), !write_file(path, text))) {
        ov_log_once(OV_LOG_WARN, "no profile is written: %s: %s", path, strerror(errno));
    } else {
        ov_log(OV_LOG_INFO, "device %d: profile: %s", engine->device, path);
    }
    free(text);
}

void ov_record(struct ov_engine *engine)
{
    const struct ov_runs *runs = &engine->learn.runs;
    const size_t used_pages = engine->last_plan.resident + engine->last_plan.ring;
    if (ov_opt.profile_dir[0] == 0 || engine->profile_suspended || runs->count == 0 || runs->cycle_length == 0) {
        return;
    }
    struct ov_profile_rate rate[OV_RATES];
    struct ov_profile_cycle cycle = {.repeats = 1, .length = runs->cycle_length};
    struct ov_profile profile = {.program = program_invocation_short_name,
                                 .budget_bytes = (used_pages << OV_PAGE_SHIFT) + ov_ledger_left(&engine->ledger),
                                 .rate = rate,
                                 .rate_count = fill_rates(&engine->ring, rate),
                                 .cycle = &cycle,
                                 .cycle_count = 1,
                                 .touch = runs->cycle,
                                 .touch_count = runs->cycle_length,
                                 .compute_s = runs->compute_s,
                                 .stretch = runs->stretch,
                                 .group = runs->group,
                                 .group_count = runs->group_count,
                                 .group_weight = runs->group_unit};
    profile.weight = calloc(runs->count, sizeof *profile.weight);
    if (profile.weight != NULL) {
        fill_weights(engine, &profile);
        save(engine, &profile);
    }
    free(profile.weight);
}
