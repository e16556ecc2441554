#define _GNU_SOURCE
#include "lookup.h"

#include <dlfcn.h>
#include <string.h>

#include "dl.h"
#include "elf_image.h"
#include "nvml.h"

static void *no_dlsym(void)
{
    return NULL;
}

/* Other libraries' names start with cu, too: cudnnCreate, cublasCreate, curl_easy_init. */
static bool may_be_driver_name(const char *name)
{
    return name != NULL && name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

const struct ov_row *ov_row_named(const char *name)
{
    for (size_t i = 0; i < ov_row_count; i++) {
        if (ov_rows[i].wrapper != NULL && strcmp(ov_rows[i].name, name) == 0) {
            return &ov_rows[i];
        }
    }
    return NULL;
}

struct next {
    const struct ov_lookup *lookup;
    bool (*is_meant)(const void *address);
    bool passed_caller, is_ours_to_answer;
};

/* Stops at the first object after the caller that defines the name. */
static bool visit_next(const struct ov_elf *object, void *context)
{
    struct next *next = context;
    if (!next->passed_caller) {
        next->passed_caller = ov_elf_holds(object, next->lookup->caller);
        return false;
    }
    const void *address = ov_elf_symbol(object, next->lookup->name);
    if (address == NULL) {
        return false;
    }
    next->is_ours_to_answer = next->is_meant(address) || ov_elf_holds(object, &ov_driver_table);
    return true;
}

bool ov_lookup_next(const struct ov_lookup *lookup, bool (*is_meant)(const void *address), bool nobody)
{
    struct next next = {.lookup = lookup, .is_meant = is_meant, .is_ours_to_answer = nobody};
    ov_elf_each(visit_next, &next);
    return next.is_ours_to_answer;
}

static bool answers_driver(const struct ov_row *row, const struct ov_lookup *lookup, const void *answer)
{
    if (lookup->handle == RTLD_NEXT) {
        /* A caller behind the driver in load order finds nothing; it means the driver, and gets the wrapper. */
        return ov_lookup_next(lookup, ov_in_driver, true);
    }
    return answer == row->wrapper || answer == ov_row_real(row);
}

const void *ov_lookup_ask(const struct ov_lookup *lookup, const struct ov_dl *dl, int versioned)
{
    return versioned ? dl->dlvsym(lookup->handle, lookup->name, lookup->version)
                     : dl->dlsym(lookup->handle, lookup->name);
}

static void *substitute(const struct ov_row *row, struct ov_lookup *lookup, const struct ov_dl *dl, int versioned)
{
    const void *answer = row->wrapper;
    if (lookup->handle != RTLD_NEXT) {
        answer = ov_lookup_ask(lookup, dl, versioned);
        if (answer == NULL) {
            return NULL;
        }
    }
    /* Our own export as an answer is no proof that there is a driver, and does not make us load one. */
    const bool have_driver = ov_resolve(answer);
    if (have_driver && (ov_in_driver(lookup->caller) || !answers_driver(row, lookup, answer))) {
        return NULL;
    }
    if (!have_driver || ov_row_real(row) == NULL) {
        if (answer == row->wrapper) {
            lookup->name = row->undefined_name;
        }
        return NULL;
    }
    return ov_bypass() ? NULL : row->wrapper;
}

void *ov_dlsym_lookup(struct ov_lookup *lookup, int versioned)
{
    const struct ov_dl *dl = ov_dl();
    if (dl == NULL) {
        lookup->real = (void *)no_dlsym;
        return NULL;
    }
    lookup->real = versioned ? (void *)dl->next_dlvsym : (void *)dl->next_dlsym;
    if (ov_nvml_name(lookup->name) && ov_self.inside == 0) {
        return ov_nvml_lookup(lookup, dl, versioned);
    }
    const struct ov_row *row = may_be_driver_name(lookup->name) ? ov_row_named(lookup->name) : NULL;
    if (row == NULL || ov_self.inside != 0) {
        return NULL;
    }
    return substitute(row, lookup, dl, versioned);
}
