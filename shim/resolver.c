#define _GNU_SOURCE
#include "resolver.h"

#include <dlfcn.h>
#include <sched.h>
#include <string.h>

#include "dl.h"
#include "elf_image.h"
#include "standdown.h"

struct ov_driver ov_driver_table;
_Atomic int ov_resolver_state = OV_UNRESOLVED;

static struct ov_elf driver_object;
static bool driver_object_known;
static bool forked; /* set in a child of a fork that may have attached the engine: it is not attached again */

/* Real function -> wrapper: open addressing, filled once, at most half full. */
enum { HASH_SLOTS = 1024 };
static struct {
    const void *real;
    void *wrapper;
} hash[HASH_SLOTS];

static size_t hash_slot(const void *real)
{
    return ((uintptr_t)real >> 4) * 0x9E3779B97F4A7C15u >> 54;
}

static void hash_add(const void *real, void *wrapper)
{
    size_t slot = hash_slot(real);
    while (hash[slot].real != NULL && hash[slot].real != real) {
        slot = (slot + 1) % HASH_SLOTS;
    }
    if (hash[slot].real == NULL) { /* two names of one function: the first row counts */
        hash[slot].real = real;
        hash[slot].wrapper = wrapper;
    }
}

void *ov_wrapper_of(const void *real)
{
    size_t slot = hash_slot(real);
    while (hash[slot].real != NULL) {
        if (hash[slot].real == real) {
            return hash[slot].wrapper;
        }
        slot = (slot + 1) % HASH_SLOTS;
    }
    return NULL;
}

bool ov_in_driver(const void *address)
{
    return ov_resolved() && driver_object_known && ov_elf_holds(&driver_object, address);
}

static void *find_driver(const struct ov_dl *dl, const void *answer)
{
    struct ov_elf object;
    void *handle = dl->dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (handle == NULL && answer == NULL) {
        handle = dl->dlopen("libcuda.so.1", RTLD_NOW);
    } else if (handle == NULL && ov_elf_holding(answer, &object) && ov_elf_is(&object, "libcuda.so")) {
        handle = dl->dlopen(object.path, RTLD_LAZY | RTLD_NOLOAD);
    }
    dl->dlerror();
    return handle;
}

/* Fills a table; returns the name of the first REQUIRED row that is missing. */
static const char *fill(const struct ov_dl *dl, void *handle, struct ov_driver *table)
{
    const char *missing = NULL;
    for (size_t i = 0; i < ov_row_count; i++) {
        const struct ov_row *row = &ov_rows[i];
        void *real = dl->dlsym(handle, row->name);
        memcpy((char *)table + row->member, &real, sizeof real);
        if (real == NULL && row->required && missing == NULL) {
            missing = row->name;
        }
    }
    dl->dlerror();
    return missing;
}

/* If two copies of this library were loaded, the first one works and the others pass through. */
struct first_copy {
    bool before_us;
};

static bool visit_copy(const struct ov_elf *object, void *context)
{
    struct first_copy *out = context;
    if (ov_elf_holds(object, &ov_driver_table)) {
        return true;
    }
    if (ov_elf_is(object, "libovershot.so") && ov_elf_symbol(object, "dlsym") != NULL) {
        out->before_us = true;
        return true;
    }
    return false;
}

static bool is_first_copy(void)
{
    struct first_copy result = {false};
    ov_elf_each(visit_copy, &result);
    return !result.before_us;
}

static void publish(const struct ov_driver *table, const char *missing)
{
    memcpy(&ov_driver_table, table, sizeof ov_driver_table);
    for (size_t i = 0; i < ov_row_count; i++) {
        void *real = ov_row_real(&ov_rows[i]);
        if (real != NULL && ov_rows[i].wrapper != NULL) {
            hash_add(real, ov_rows[i].wrapper);
        }
        if (real != NULL && !driver_object_known) {
            driver_object_known = ov_elf_holding(real, &driver_object);
        }
    }
    if (!forked && is_first_copy()) {
        ov_inside_enter();
        ov_runtime_attach(&ov_driver_table, missing);
        ov_standdown_look(true);
        ov_inside_leave();
    }
    atomic_store_explicit(&ov_resolver_state, OV_RESOLVED, memory_order_release);
}

bool ov_resolve(const void *answer)
{
    if (ov_resolved() || ov_self.inside != 0) {
        return true;
    }
    const struct ov_dl *dl = ov_dl();
    void *handle = dl != NULL ? find_driver(dl, answer) : NULL;
    if (handle == NULL) {
        return false;
    }
    struct ov_driver table = {0};
    const char *missing = fill(dl, handle, &table);
    int expected = OV_UNRESOLVED;
    if (atomic_compare_exchange_strong(&ov_resolver_state, &expected, OV_PUBLISHING)) {
        publish(&table, missing);
    }
    while (!ov_resolved()) {
        sched_yield();
    }
    return true;
}

bool ov_resolver_forked(void)
{
    const int state = atomic_load(&ov_resolver_state);
    if (state == OV_UNRESOLVED) {
        return false;
    }
    forked = true;
    if (state == OV_PUBLISHING) {
        memset(hash, 0, sizeof hash);
        atomic_store(&ov_resolver_state, OV_UNRESOLVED);
    }
    return true;
}
