#define _GNU_SOURCE
#include "recall.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "convert.h"
#include "engine.h"
#include "log.h"
#include "record.h"
#include "verdict.h"

/* Speeds that differ by more say that the link is another, or shared. */
#define LINK_TOLERANCE 1.2

/* ---- files ---- */

struct found {
    char *name;
    struct timespec when;
};

static int compare_times(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    if (x->when.tv_sec != y->when.tv_sec) {
        return x->when.tv_sec < y->when.tv_sec ? 1 : -1;
    }
    return x->when.tv_nsec != y->when.tv_nsec ? (x->when.tv_nsec < y->when.tv_nsec ? 1 : -1) : 0;
}

static bool is_of_program(const char *name)
{
    size_t program = strlen(program_invocation_short_name), length = strlen(name);
    return strncmp(name, program_invocation_short_name, program) == 0 && name[program] == '-' && length > 5 &&
           strcmp(name + length - 5, ".json") == 0;
}

/* All of the program's, newest first. */
static size_t list_files(struct found **list)
{
    size_t count = 0, room = 0;
    DIR *folder = opendir(ov_opt.profile_dir);
    *list = NULL;
    for (const struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        struct stat status;
        if (!is_of_program(entry->d_name) || fstatat(dirfd(folder), entry->d_name, &status, 0) != 0 ||
            !S_ISREG(status.st_mode)) {
            continue;
        }
        if (count == room) {
            struct found *more = realloc(*list, (room = room * 2 + 16) * sizeof *more);
            if (more == NULL) {
                break;
            }
            *list = more;
        }
        (*list)[count] = (struct found){strdup(entry->d_name), status.st_mtim};
        count += (*list)[count].name != NULL;
    }
    if (folder != NULL) {
        closedir(folder);
    } else if (errno != ENOENT) {
        ov_log_once(OV_LOG_WARN, "no profile is read: %s: %s", ov_opt.profile_dir, strerror(errno));
    }
    if (count > 1) {
        qsort(*list, count, sizeof **list, compare_times);
    }
    return count;
}

static bool same_text(const char *name, const char *field, const char *theirs, const char *here)
{
    bool same = theirs != NULL && strcmp(theirs, here) == 0;
    if (!same) {
        ov_log(OV_LOG_INFO, "profile %s is not used: its %s is \"%s\", not \"%s\"", name, field,
               theirs != NULL ? theirs : "", here);
    }
    return same;
}

static bool same_number(const char *name, const char *field, size_t theirs, size_t here)
{
    if (theirs != here) {
        ov_log(OV_LOG_INFO, "profile %s is not used: its %s is %zu, not %zu", name, field, theirs, here);
    }
    return theirs == here;
}

/* Such a program would be trusted until that kernel runs, each time. */
static bool is_of_use(const char *name, const struct ov_profile *profile)
{
    bool warned = ov_verdicts_warn(profile->kernel, profile->kernel_count);
    if (warned) {
        ov_log(OV_LOG_INFO, "profile %s is not used: a kernel that computes addresses cannot be known again", name);
    }
    return !warned && profile->weight_count > 0;
}

static bool is_of_here(const char *name, const struct ov_profile *profile, const struct ov_profile *here)
{
    return same_text(name, "program", profile->program, here->program) &&
           same_text(name, "device", profile->device, here->device) &&
           same_number(name, "device's memory in bytes", profile->device_bytes, here->device_bytes) &&
           same_number(name, "driver's version", profile->driver, here->driver);
}

/* Adds it to the candidates, which have room for one more. */
static void read_candidate(struct ov_recall *recall, const char *name, const struct ov_profile *here)
{
    char path[OV_PATH_BYTES + 300], error[OV_PROFILE_ERROR_ROOM];
    struct ov_candidate *candidate = &recall->candidate[recall->count];
    struct ov_profile *profile = &candidate->profile;
    snprintf(path, sizeof path, "%s/%s", ov_opt.profile_dir, name);
    if (!ov_profile_load(path, profile, error)) {
        if (profile->version != 0 && profile->version != OV_PROFILE_VERSION) {
            (void)same_number(name, "version", profile->version, OV_PROFILE_VERSION);
        } else {
            ov_log(OV_LOG_WARN, "profile %s is not used: %s", path, error);
        }
        return;
    }
    if (!is_of_here(name, profile, here) || !is_of_use(name, profile) || (candidate->name = strdup(name)) == NULL) {
        ov_profile_free(profile);
        return;
    }
    candidate->bytes = candidate->filled_bytes = 0;
    for (size_t i = 0; i < profile->weight_count; i++) {
        const struct ov_profile_weight *weight = &profile->weight[i];
        const size_t room = weight->offset < weight->allocation_bytes ? weight->allocation_bytes - weight->offset : 0;
        const size_t bytes = weight->bytes < room ? weight->bytes : room; /* the last page may be more than there is */
        candidate->bytes += bytes;
        candidate->filled_bytes += weight->filled ? bytes : 0;
    }
    recall->count++;
}

void ov_recall_open(struct ov_engine *engine)
{
    struct ov_recall *recall = &engine->recall;
    struct ov_profile here;
    char device[OV_DEVICE_NAME_ROOM];
    struct found *file = NULL;
    if (!ov_verdicts_kept() || recall->candidate != NULL) {
        return;
    }
    recall->candidate = calloc(OV_CANDIDATES, sizeof *recall->candidate);
    size_t files = recall->candidate != NULL ? list_files(&file) : 0;
    ov_record_here(engine, &here, device);
    for (size_t i = 0; i < files; i++) {
        if (i < OV_CANDIDATES) {
            read_candidate(recall, file[i].name, &here);
        }
        free(file[i].name);
    }
    free(file);
}

void ov_recall_close(struct ov_engine *engine)
{
    struct ov_recall *recall = &engine->recall;
    for (unsigned i = 0; i < recall->count; i++) {
        free(recall->candidate[i].name);
        ov_profile_free(&recall->candidate[i].profile);
    }
    free(recall->candidate);
    recall->candidate = NULL;
    recall->count = 0;
}

/* ---- while the program loads ---- */

bool ov_recall_due(struct ov_engine *engine, bool affordable)
{
    struct ov_recall *recall = &engine->recall;
    const struct ov_learn *learn = &engine->learn;
    bool news = recall->seen_ordinal != engine->allocs.last_ordinal || recall->seen_bytes != learn->copied_bytes ||
                recall->seen_launches != learn->launches;
    if (recall->count == 0 || !news || (recall->attempts > 0 && !recall->later && !affordable)) {
        return false;
    }
    for (unsigned i = 0; i < recall->count; i++) {
        const struct ov_candidate *candidate = &recall->candidate[i];
        if (engine->ledger.program_bytes >= candidate->bytes / 10 * 9 &&
            learn->copied_bytes >= candidate->filled_bytes / 10 * 9 && ov_recall_fits(engine, candidate)) {
            return true;
        }
    }
    return false;
}

/* One with more weights would be the better choice, and may yet turn out to be the one: waited for while the program
 * only loads. */
static bool has_to_wait(struct ov_engine *engine, const struct ov_candidate *candidate)
{
    struct ov_recall *recall = &engine->recall;
    bool larger = false;
    for (unsigned i = 0; i < recall->count && !larger; i++) {
        larger =
            recall->candidate[i].bytes > candidate->bytes && ov_recall_may_come(engine, &recall->candidate[i].profile);
    }
    if (larger && recall->waited_since == 0) {
        recall->waited_since = engine->learn.launches + 1;
    }
    return larger && engine->learn.launches < recall->waited_since;
}

/* What is not among the weights may be used from the first pass on, if it was not unused in the earlier run. */
static void presume_used(struct ov_engine *engine, const struct ov_profile *profile)
{
    for (uint32_t i = 0; i < engine->allocs.count; i++) {
        struct ov_alloc *alloc = &engine->allocs.item[i];
        alloc->presumed = alloc->ordinal != 0;
        for (size_t k = 0; k < profile->unused_count && alloc->presumed; k++) {
            alloc->presumed =
                profile->unused[k].allocation != alloc->ordinal || profile->unused[k].bytes != alloc->bytes;
        }
    }
}

static void take_times(struct ov_engine *engine)
{
    const struct ov_runs *runs = &engine->learn.runs;
    engine->timed.compute_s = engine->timed.spread = 0;
    for (size_t i = 0; i < runs->cycle_length && runs->compute_s != NULL; i++) {
        engine->timed.compute_s += runs->compute_s[i];
    }
}

static void take_speeds(struct ov_engine *engine, const struct ov_profile *profile)
{
    struct ov_ring *ring = &engine->ring;
    if (ring->rate_count > 0 || ring->link_bytes_per_s > 0 || profile->rate_count == 0 ||
        profile->rate_count > OV_RATES) {
        return;
    }
    for (size_t i = 0; i < profile->rate_count; i++) {
        ring->rate[i] = (struct ov_plan_rate){(double)profile->rate[i].bytes / (double)OV_PAGE_BYTES,
                                              profile->rate[i].gb_per_s * 1e9 / (double)OV_PAGE_BYTES};
    }
    ring->rate_count = engine->recall.rate_count = (unsigned)profile->rate_count;
    memcpy(engine->recall.rate, ring->rate, sizeof ring->rate);
}

/* The candidate's picture becomes that of a study that was just made. */
static void take(struct ov_engine *engine, const struct ov_candidate *candidate, const struct ov_runs *runs)
{
    struct ov_learn *learn = &engine->learn;
    ov_log(OV_LOG_INFO, "device %d: all %zu weights of the profile %s are there, %llu MiB: its plan is made at once",
           engine->device, candidate->profile.weight_count, candidate->name,
           (unsigned long long)(candidate->bytes >> 20));
    ov_log(OV_LOG_DEBUG, "device %d: %zu kernels are known from it", engine->device, candidate->profile.kernel_count);
    ov_runs_free(&learn->runs);
    learn->runs = *runs;
    learn->studied = learn->head++;
    learn->fresh = false; /* memory is searched for addresses before the plan */
    learn->recalled = true;
    learn->settled = true; /* only a study that shows a period says something else */
    learn->attempts = 0;
    learn->units_seen = runs->count;
    for (uint32_t i = 0; i < runs->count; i++) {
        learn->memo[runs->item[i].first].sparse = runs->item[i].sparse;
    }
    presume_used(engine, &candidate->profile);
    take_times(engine);
    take_speeds(engine, &candidate->profile);
    ov_verdicts_take(candidate->profile.kernel, candidate->profile.kernel_count);
}

bool ov_recall_adopt(struct ov_engine *engine)
{
    struct ov_recall *recall = &engine->recall;
    recall->attempts++;
    recall->later = false;
    recall->seen_ordinal = engine->allocs.last_ordinal;
    recall->seen_bytes = engine->learn.copied_bytes;
    recall->seen_launches = engine->learn.launches;
    if (engine->streaming_barred || ov_learn_hash(engine) != CUDA_SUCCESS) {
        return false;
    }
    for (unsigned i = 0; i < recall->count; i++) {
        struct ov_candidate *candidate = &recall->candidate[i];
        struct ov_runs runs;
        enum ov_recall_match match = ov_recall_match(engine, &candidate->profile, &runs);
        recall->later = recall->later || match != OV_RECALL_NONE;
        if (match == OV_RECALL_ALL && has_to_wait(engine, candidate)) {
            ov_runs_free(&runs);
            continue;
        }
        if (match == OV_RECALL_ALL) {
            take(engine, candidate, &runs);
            ov_recall_close(engine);
            return true;
        }
    }
    return false;
}

static void say_why_not(struct ov_engine *engine)
{
    struct ov_recall *recall = &engine->recall;
    const struct ov_candidate *nearest = NULL;
    size_t most = 0, first = 0;
    char how[128] = "";
    for (unsigned i = 0; i < recall->count; i++) {
        char text[128];
        size_t at, same = ov_recall_compare(engine, &recall->candidate[i].profile, &at, text, sizeof text);
        if (nearest == NULL || same > most) {
            nearest = &recall->candidate[i];
            most = same;
            first = at;
            memcpy(how, text, sizeof how);
        }
    }
    if (nearest != NULL && first == SIZE_MAX) {
        ov_log(OV_LOG_INFO,
               "device %d: the profile %s was not used: it was not sure in time that its weights are used alike",
               engine->device, nearest->name);
    } else if (nearest != NULL) {
        const struct ov_profile_weight *weight = &nearest->profile.weight[first];
        ov_log(OV_LOG_INFO,
               "device %d: the profile %s is of other weights, %zu of its %zu are there: weight %zu (%zu bytes of "
               "allocation %u): %s",
               engine->device, nearest->name, most, nearest->profile.weight_count, first, weight->bytes,
               weight->allocation, how);
    }
}

/* ---- behind the plan ---- */

static bool same_run(const struct ov_run *a, const struct ov_run *b)
{
    return a->begin == b->begin && a->end == b->end && a->first == b->first && a->pages == b->pages &&
           a->ordinal == b->ordinal && a->may == b->may && a->sparse == b->sparse;
}

static bool is_same(const struct ov_runs *a, const struct ov_runs *b)
{
    const size_t length = a->cycle_length;
    bool same = a->count == b->count && length == b->cycle_length && length > 0;
    for (uint32_t i = 0; i < a->count && same; i++) {
        same = same_run(&a->item[i], &b->item[i]);
    }
    if (!same) {
        return false;
    }
    for (size_t shift = 0; shift < length; shift++) { /* the first place is seldom anywhere else than once or twice */
        size_t at = 0;
        while (at < length && a->cycle[at] == b->cycle[at + shift < length ? at + shift : at + shift - length]) {
            at++;
        }
        if (at == length) {
            return true;
        }
    }
    return false;
}

bool ov_recall_ends(struct ov_engine *engine, const struct ov_runs *runs)
{
    struct ov_learn *learn = &engine->learn;
    for (uint32_t i = 0; i < engine->allocs.count; i++) {
        engine->allocs.item[i].presumed = false;
    }
    learn->confirmed = learn->recalled && is_same(&learn->runs, runs);
    if (learn->recalled && !learn->confirmed) {
        ov_log(OV_LOG_INFO, "device %d: weights are used otherwise than in the profile: it is planned anew",
               engine->device);
    }
    say_why_not(engine);
    ov_recall_close(engine);
    learn->recalled = false;
    return learn->confirmed;
}

void ov_recall_doubt(struct ov_engine *engine, const struct ov_kernel *kernel)
{
    struct ov_learn *learn = &engine->learn;
    if (!learn->recalled) {
        return;
    }
    ov_log(OV_LOG_INFO, "device %d: kernel %s computes addresses, and did not in the profile, which is given up",
           engine->device, kernel != NULL ? kernel->name : "?");
    (void)ov_revoke_all(engine, 0);
    ov_runs_free(&learn->runs);
    learn->recalled = learn->settled = false;
    ov_engine_learn(engine);
}

static double bytes_per_s(const struct ov_plan_rate *rate, unsigned count, double pages)
{
    unsigned at = 0;
    while (at + 1 < count && rate[at].pages < pages) {
        at++;
    }
    return rate[at].pages_per_s * (double)OV_PAGE_BYTES;
}

static void drop_times(struct ov_engine *engine)
{
    struct ov_runs *runs = &engine->learn.runs;
    bool timed_anew = ov_opt.profile_cycles > 0; /* and planned by that */
    engine->replan_soon = engine->replan_soon || (runs->compute_s != NULL && !timed_anew);
    free(runs->compute_s);
    free(runs->stretch);
    runs->compute_s = runs->stretch = NULL;
    engine->timed.compute_s = 0;
}

void ov_recall_check_link(struct ov_engine *engine)
{
    struct ov_ring *ring = &engine->ring;
    struct ov_recall *recall = &engine->recall;
    if (recall->rate_count == 0 || ring->rate_count == 0 || ring->link_bytes_per_s <= 0) {
        return;
    }
    const double pages = ring->rate[ring->rate_count - 1].pages;
    const double here = bytes_per_s(ring->rate, ring->rate_count, pages);
    const double known = bytes_per_s(recall->rate, recall->rate_count, pages);
    if (here <= known * LINK_TOLERANCE && known <= here * LINK_TOLERANCE) {
        memcpy(ring->rate, recall->rate, sizeof ring->rate);
        ring->rate_count = recall->rate_count;
    } else {
        ov_log(OV_LOG_INFO, "device %d: the link copies %.1f GB/s, not %.1f as in the profile: its times are not used",
               engine->device, here * 1e-9, known * 1e-9);
        drop_times(engine);
    }
    recall->rate_count = 0;
}
