#include "verdict.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <uthash.h>

#include "engine.h"
#include "kernel.h"
#include "profile.h"
#include "watch.h"

struct verdict {
    struct ov_code code;
    bool watched, emits, output, unseen;
    UT_hash_handle hh;
    char *name;
    char slots[]; /* and the name behind them */
};

static struct verdict *verdicts;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the table */

bool ov_verdicts_kept(void)
{
    return ov_opt.profile_dir[0] != 0 && ov_opt.profile != OV_OPT_PROFILE_OFF;
}

static void give_slots(struct ov_kernel *kernel, const char *slots)
{
    for (uint32_t slot = 0; slot < kernel->slot_count; slot++) {
        if (slots[slot] == 'w') {
            ov_slot_set(kernel, slot, OV_SLOT_WRITER);
        } else if (slots[slot] == 'r' && ov_slot(kernel, slot) == OV_SLOT_UNKNOWN) {
            ov_slot_set(kernel, slot, OV_SLOT_READER);
        }
    }
}

static void raise_flag(_Atomic bool *flag, bool to)
{
    if (to) {
        atomic_store_explicit(flag, true, memory_order_relaxed);
    }
}

void ov_verdict_give(struct ov_kernel *kernel)
{
    struct verdict *found = NULL;
    if (!ov_code_known(&kernel->code)) {
        return;
    }
    pthread_mutex_lock(&lock);
    HASH_FIND(hh, verdicts, &kernel->code, sizeof kernel->code, found);
    if (found != NULL && strlen(found->slots) == kernel->slot_count) {
        give_slots(kernel, found->slots);
        raise_flag(&kernel->emits, found->emits);
        raise_flag(&kernel->has_output, found->output);
        raise_flag(&kernel->unseen, found->unseen);
        if (found->watched && atomic_load_explicit(&kernel->watched, memory_order_relaxed) < OV_WATCH_LAUNCHES) {
            atomic_store_explicit(&kernel->watched, OV_WATCH_LAUNCHES, memory_order_relaxed);
        }
    }
    pthread_mutex_unlock(&lock);
}

static void give(void *context, struct ov_kernel *kernel)
{
    (void)context;
    ov_verdict_give(kernel);
}

/* Under the lock. */
static void take(const struct ov_profile_kernel *kernel)
{
    const struct ov_code code = {{kernel->code[0], kernel->code[1]}};
    const char *name = kernel->name != NULL ? kernel->name : "?";
    struct verdict *verdict = NULL;
    HASH_FIND(hh, verdicts, &code, sizeof code, verdict);
    if (!ov_code_known(&code) || verdict != NULL ||
        (verdict = malloc(sizeof *verdict + strlen(kernel->slots) + strlen(name) + 2)) == NULL) {
        return;
    }
    *verdict = (struct verdict){.code = code,
                                .watched = kernel->watched,
                                .emits = kernel->emits,
                                .output = kernel->output,
                                .unseen = kernel->unseen};
    strcpy(verdict->slots, kernel->slots);
    verdict->name = verdict->slots + strlen(kernel->slots) + 1;
    strcpy(verdict->name, name);
    HASH_ADD(hh, verdicts, code, sizeof verdict->code, verdict);
}

void ov_verdicts_take(const struct ov_profile_kernel *kernel, size_t count)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count; i++) {
        take(&kernel[i]);
    }
    pthread_mutex_unlock(&lock);
    ov_kernels_each(give, NULL);
}

bool ov_verdicts_warn(const struct ov_profile_kernel *kernel, size_t count)
{
    bool warn = false;
    for (size_t i = 0; i < count && !warn; i++) {
        warn = kernel[i].emits && (kernel[i].code[0] | kernel[i].code[1]) == 0;
    }
    return warn;
}

/* ---- for the next start ---- */

struct listing {
    struct ov_profile_kernel *kernel;
    size_t count, room;
    char *text; /* names and slots */
    size_t used, text_room;
};

/* Something was found out that a new kernel does not have. One that computes addresses is told of, whatever its code.
 */
static bool is_worth_keeping(const struct ov_kernel *kernel)
{
    if (atomic_load_explicit(&kernel->emits, memory_order_relaxed)) {
        return true;
    }
    bool known = atomic_load_explicit(&kernel->watched, memory_order_relaxed) > 0;
    for (uint32_t slot = 0; slot < kernel->slot_count && !known; slot++) {
        known = ov_slot(kernel, slot) != OV_SLOT_UNKNOWN;
    }
    return known && !kernel->opaque && ov_code_known(&kernel->code);
}

static void measure(void *context, struct ov_kernel *kernel)
{
    struct listing *listing = context;
    if (is_worth_keeping(kernel)) {
        listing->room++;
        listing->text_room += kernel->slot_count + 1 + strlen(kernel->name) + 1;
    }
}

/* Room for the slots in the list's text, behind a copy of the name. NULL: it came after the list was measured. */
static char *put_name(struct listing *listing, const char *from, size_t slots)
{
    const size_t name_bytes = strlen(from) + 1;
    if (listing->count == listing->room || listing->text_room - listing->used < name_bytes + slots + 1) {
        return NULL;
    }
    char *name = listing->text + listing->used, *slot = name + name_bytes;
    memcpy(name, from, name_bytes);
    slot[slots] = 0;
    listing->used += name_bytes + slots + 1;
    listing->kernel[listing->count].name = name;
    listing->kernel[listing->count].slots = slot;
    return slot;
}

static void put(void *context, struct ov_kernel *kernel)
{
    struct listing *listing = context;
    char *slots = is_worth_keeping(kernel) ? put_name(listing, kernel->name, kernel->slot_count) : NULL;
    if (slots == NULL) {
        return;
    }
    for (uint32_t slot = 0; slot < kernel->slot_count; slot++) {
        enum ov_slot_state state = ov_slot(kernel, slot);
        slots[slot] = state == OV_SLOT_READER ? 'r' : state == OV_SLOT_WRITER ? 'w' : '-';
    }
    struct ov_profile_kernel *to = &listing->kernel[listing->count++];
    memcpy(to->code, kernel->code.hash, sizeof to->code);
    to->watched = atomic_load_explicit(&kernel->watched, memory_order_relaxed) > 0;
    to->emits = atomic_load_explicit(&kernel->emits, memory_order_relaxed);
    to->output = atomic_load_explicit(&kernel->has_output, memory_order_relaxed);
    to->unseen = atomic_load_explicit(&kernel->unseen, memory_order_relaxed);
}

/* What was known before, also of kernels that this run has not launched yet. Under the lock. */
static void put_verdicts(struct listing *listing)
{
    for (const struct verdict *verdict = verdicts; verdict != NULL; verdict = verdict->hh.next) {
        char *slots = put_name(listing, verdict->name, strlen(verdict->slots));
        if (slots == NULL) {
            return;
        }
        strcpy(slots, verdict->slots);
        struct ov_profile_kernel *to = &listing->kernel[listing->count++];
        memcpy(to->code, verdict->code.hash, sizeof to->code);
        to->watched = verdict->watched;
        to->emits = verdict->emits;
        to->output = verdict->output;
        to->unseen = verdict->unseen;
    }
}

static void measure_verdicts(struct listing *listing)
{
    for (const struct verdict *verdict = verdicts; verdict != NULL; verdict = verdict->hh.next) {
        listing->room++;
        listing->text_room += strlen(verdict->slots) + 1 + strlen(verdict->name) + 1;
    }
}

/* The registry is in the order of handles, which differ from run to run. */
static int compare_codes(const void *a, const void *b)
{
    const struct ov_profile_kernel *x = a, *y = b;
    int order = (x->code[0] > y->code[0]) - (x->code[0] < y->code[0]);
    return order != 0 ? order : (x->code[1] > y->code[1]) - (x->code[1] < y->code[1]);
}

/* A module may be loaded more than once, and be known from before: what is known of one instance is known of all. */
static void merge(struct ov_profile_kernel *into, const struct ov_profile_kernel *from, char *slots)
{
    for (size_t i = 0; slots[i] != 0 && from->slots[i] != 0; i++) {
        slots[i] = slots[i] == 'w' || from->slots[i] == '-' ? slots[i] : from->slots[i];
    }
    into->watched = into->watched || from->watched;
    into->emits = into->emits || from->emits;
    into->output = into->output || from->output;
    into->unseen = into->unseen || from->unseen;
}

static size_t merge_instances(struct ov_profile_kernel *kernel, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (kept > 0 && memcmp(kernel[kept - 1].code, kernel[i].code, sizeof kernel[i].code) == 0) {
            merge(&kernel[kept - 1], &kernel[i], (char *)kernel[kept - 1].slots);
        } else {
            kernel[kept++] = kernel[i];
        }
    }
    return kept;
}

size_t ov_verdicts_list(struct ov_profile_kernel **list, char **strings)
{
    struct listing listing = {0};
    pthread_mutex_lock(&lock);
    measure_verdicts(&listing);
    pthread_mutex_unlock(&lock);
    ov_kernels_each(measure, &listing);
    listing.kernel = calloc(listing.room + 1, sizeof *listing.kernel);
    listing.text = malloc(listing.text_room + 1);
    if (listing.kernel != NULL && listing.text != NULL) {
        pthread_mutex_lock(&lock);
        put_verdicts(&listing);
        pthread_mutex_unlock(&lock);
        ov_kernels_each(put, &listing);
        qsort(listing.kernel, listing.count, sizeof *listing.kernel, compare_codes);
    }
    *list = listing.kernel;
    *strings = listing.text;
    return merge_instances(listing.kernel, listing.count);
}
