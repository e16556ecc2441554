#define _GNU_SOURCE
#include "dl.h"

#include <dlfcn.h>
#include <stdatomic.h>

#include "elf_image.h"

enum { EMPTY, READY };

static struct ov_dl functions;
static _Atomic int state = EMPTY;

/* Symbol tables give data pointers. */
static void set(void *function, void *address)
{
    *(void **)function = address;
}

static bool take_family(const struct ov_elf *object, struct ov_dl *out)
{
    set(&out->dlsym, ov_elf_symbol(object, "dlsym"));
    set(&out->dlvsym, ov_elf_symbol(object, "dlvsym"));
    set(&out->dlopen, ov_elf_symbol(object, "dlopen"));
    set(&out->dlerror, ov_elf_symbol(object, "dlerror"));
    return out->dlsym && out->dlvsym && out->dlopen && out->dlerror;
}

static bool visit_family(const struct ov_elf *object, void *context)
{
    return (ov_elf_is(object, "libc.so.") || ov_elf_is(object, "libdl.so.")) && take_family(object, context);
}

struct private_dlopen {
    void *(*function)(const char *path, int mode);
};

static bool visit_private_dlopen(const struct ov_elf *object, void *context)
{
    struct private_dlopen *out = context;
    if (ov_elf_is(object, "libc.so.")) {
        set(&out->function, ov_elf_symbol(object, "__libc_dlopen_mode"));
    }
    return out->function != NULL;
}

/* Set by ov_dl_prepare(): from then on other threads may load and unload objects. */
static bool started;

static bool look(bool (*visit)(const struct ov_elf *object, void *context), void *context)
{
    return started ? ov_elf_each(visit, context) : ov_elf_each_early(visit, context);
}

/* glibc before 2.34, and nothing in the process is linked to libdl: libc has a door of its own for that. */
static void load_libdl(void)
{
    struct private_dlopen found = {0};
    if (look(visit_private_dlopen, &found)) {
        found.function("libdl.so.2", RTLD_NOW);
    }
}

static bool find(struct ov_dl *out, bool may_load)
{
    if (!look(visit_family, out)) {
        if (!may_load) {
            return false;
        }
        load_libdl();
        if (!look(visit_family, out)) {
            return false;
        }
    }
    set(&out->next_dlsym, out->dlsym(RTLD_NEXT, "dlsym"));
    set(&out->next_dlvsym, out->dlsym(RTLD_NEXT, "dlvsym"));
    out->dlerror();
    if (out->next_dlsym == NULL) {
        out->next_dlsym = out->dlsym;
    }
    if (out->next_dlvsym == NULL) {
        out->next_dlvsym = out->dlvsym;
    }
    return true;
}

static const struct ov_dl *get(bool may_load)
{
    if (atomic_load_explicit(&state, memory_order_acquire) == READY) {
        return &functions;
    }
    struct ov_dl found = {0};
    if (!find(&found, may_load)) {
        return NULL;
    }
    functions = found; /* whoever comes here at the same time writes the same */
    atomic_store_explicit(&state, READY, memory_order_release);
    return &functions;
}

const struct ov_dl *ov_dl(void)
{
    return get(true);
}

void ov_dl_prepare(void)
{
    get(false);
    started = true;
}
