#include "kernel.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <uthash.h>

#include "engine.h"
#include "image.h"
#include "log.h"
#include "runtime.h"
#include "verdict.h"

#define TABLE_SLOTS ((size_t)1 << 16)
/* Parameters reach 32,764 bytes; a kernel without a layout can still be launched with a buffer of up to that. */
#define OPAQUE_SLOTS 4096u

/* Where a handle came from: told by cuModuleGetFunction and cuLibraryGetKernel. */
struct origin {
    void *handle;
    const void *owner;
    bool is_kernel; /* a CUkernel: asking the driver about one kind of handle with the other's function crashes */
    char *name;
    UT_hash_handle hh;
};

/* What is known of a module or library from its image. */
struct owner {
    const void *owner;
    struct ov_image *image; /* the layouts; NULL where the driver can tell them itself */
    struct ov_code code;    /* only known if profiles are kept */
    UT_hash_handle hh;
};

static struct ov_kernel *_Atomic table[TABLE_SLOTS];
static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER; /* guards everything below and insertion above */
static struct origin *origins;
static struct owner *owners;
static size_t table_used;

static size_t home(const void *handle)
{
    return (size_t)(((uint64_t)(uintptr_t)handle * 0x9E3779B97F4A7C15ull) >> 48) & (TABLE_SLOTS - 1);
}

static struct ov_kernel *find(const void *handle)
{
    for (size_t i = home(handle);; i = (i + 1) & (TABLE_SLOTS - 1)) {
        struct ov_kernel *kernel = atomic_load_explicit(&table[i], memory_order_acquire);
        if (kernel == NULL || atomic_load_explicit(&kernel->handle, memory_order_relaxed) == handle) {
            return kernel;
        }
    }
}

struct parameters {
    struct ov_param *item;
    uint32_t count, room;
};

static bool add_parameter(struct parameters *all, size_t offset, size_t size)
{
    if (all->count == all->room) {
        uint32_t room = all->room ? all->room * 2 : 16;
        struct ov_param *item = realloc(all->item, room * sizeof *item);
        if (item == NULL) {
            return false;
        }
        all->item = item;
        all->room = room;
    }
    all->item[all->count++] = (struct ov_param){(uint32_t)offset, (uint32_t)size};
    return true;
}

/* CUDA_ERROR_INVALID_VALUE ends the list: the index is past the last parameter. */
static bool ask_driver(void *handle, bool is_kernel, struct parameters *all)
{
    for (size_t i = 0;; i++) {
        size_t offset = 0, size = 0;
        CUresult result;
        if (is_kernel) {
            result = ov_cu->cuKernelGetParamInfo != NULL ? ov_cu->cuKernelGetParamInfo(handle, i, &offset, &size)
                                                         : CUDA_ERROR_NOT_SUPPORTED;
        } else {
            result = ov_cu->cuFuncGetParamInfo != NULL ? ov_cu->cuFuncGetParamInfo(handle, i, &offset, &size)
                                                       : CUDA_ERROR_NOT_SUPPORTED;
        }
        if (result == CUDA_ERROR_INVALID_VALUE) {
            return true;
        }
        if (result != CUDA_SUCCESS || !add_parameter(all, offset, size)) {
            return false;
        }
    }
}

static bool ask_image(const struct origin *origin, struct parameters *all)
{
    struct owner *owner = NULL;
    if (origin != NULL && origin->name != NULL) {
        HASH_FIND_PTR(owners, &origin->owner, owner);
    }
    const struct ov_kernel_layout *layout = owner != NULL ? ov_image_find(owner->image, origin->name) : NULL;
    for (uint32_t i = 0; layout != NULL && i < layout->param_count; i++) {
        if (!add_parameter(all, layout->param[i].offset, layout->param[i].size)) {
            return false;
        }
    }
    return layout != NULL;
}

/* Lays out the words that lie whole inside one parameter. */
static bool set_words(struct ov_kernel *kernel, const struct parameters *all)
{
    uint32_t words = 0, end = 0;
    for (uint32_t i = 0; i < all->count; i++) {
        words += all->item[i].size / 8;
        end = all->item[i].offset + all->item[i].size > end ? all->item[i].offset + all->item[i].size : end;
    }
    struct ov_word *word = calloc(words + 1, sizeof *word);
    if (word == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < all->count; i++) {
        uint32_t offset = all->item[i].offset, size = all->item[i].size;
        for (uint32_t at = (8 - offset % 8) % 8; at + 8 <= size; at += 8) {
            word[kernel->word_count++] = (struct ov_word){(uint16_t)i, (uint16_t)at, (offset + at) / 8};
        }
    }
    kernel->word = word;
    kernel->slot_count = (end + 7) / 8;
    return true;
}

static const void *owner_of(void *handle, const struct origin *origin)
{
    if (origin != NULL && origin->owner != NULL) {
        return origin->owner;
    }
    CUmodule module = NULL;
    if (ov_cu->cuFuncGetModule != NULL && ov_cu->cuFuncGetModule(&module, handle) == CUDA_SUCCESS) {
        return module;
    }
    return NULL;
}

static struct ov_code code_of(const struct ov_kernel *kernel, const char *name)
{
    struct owner *owner = NULL;
    HASH_FIND_PTR(owners, &kernel->owner, owner);
    return owner != NULL && name != NULL ? ov_code_of_kernel(&owner->code, name) : (struct ov_code){{0, 0}};
}

static void learn_layout(struct ov_kernel *kernel, const struct origin *origin)
{
    struct parameters all = {0};
    bool known = ask_driver(atomic_load(&kernel->handle), origin != NULL && origin->is_kernel, &all);
    if (!known) {
        all.count = 0;
        known = ask_image(origin, &all);
    }
    known = known && set_words(kernel, &all);
    free(all.item);
    if (!known) {
        kernel->opaque = true;
        kernel->slot_count = OPAQUE_SLOTS;
        ov_log(OV_LOG_DEBUG, "kernel %s: parameters unknown", kernel->name);
    }
}

/* Under the registry's lock. */
static struct ov_kernel *enter(void *handle)
{
    if (table_used > TABLE_SLOTS / 2) {
        return NULL; /* further kernels are opaque: a program with 32,768 of them has other troubles */
    }
    struct origin *origin = NULL;
    HASH_FIND_PTR(origins, &handle, origin);
    struct ov_kernel *kernel = calloc(1, sizeof *kernel);
    if (kernel == NULL) {
        return NULL;
    }
    atomic_init(&kernel->handle, handle);
    kernel->owner = owner_of(handle, origin);
    const char *name = origin != NULL ? origin->name : NULL;
    if (name == NULL && ov_cu->cuFuncGetName != NULL && (origin == NULL || !origin->is_kernel) &&
        ov_cu->cuFuncGetName(&name, handle) != CUDA_SUCCESS) {
        name = NULL;
    }
    strncpy(kernel->name, name != NULL ? name : "?", sizeof kernel->name - 1);
    kernel->code = code_of(kernel, name);
    learn_layout(kernel, origin);
    kernel->slot = calloc(kernel->slot_count + 1, sizeof *kernel->slot);
    kernel->hits = calloc(kernel->slot_count + 1, sizeof *kernel->hits);
    if (kernel->slot == NULL || kernel->hits == NULL) {
        free((void *)kernel->word);
        free((void *)kernel->slot);
        free((void *)kernel->hits);
        free(kernel);
        return NULL;
    }
    ov_verdict_give(kernel);
    size_t i = home(handle);
    while (atomic_load_explicit(&table[i], memory_order_relaxed) != NULL) {
        i = (i + 1) & (TABLE_SLOTS - 1);
    }
    atomic_store_explicit(&table[i], kernel, memory_order_release);
    table_used++;
    return kernel;
}

struct ov_kernel *ov_kernel_of(CUfunction handle)
{
    struct ov_kernel *kernel = find(handle);
    if (kernel == NULL) {
        pthread_mutex_lock(&registry);
        kernel = find(handle);
        if (kernel == NULL) {
            kernel = enter(handle);
        }
        pthread_mutex_unlock(&registry);
    }
    return kernel;
}

void ov_kernels_each(void (*visit)(void *context, struct ov_kernel *kernel), void *context)
{
    pthread_mutex_lock(&registry);
    for (size_t i = 0; i < TABLE_SLOTS; i++) {
        struct ov_kernel *kernel = atomic_load_explicit(&table[i], memory_order_relaxed);
        if (kernel != NULL && atomic_load_explicit(&kernel->handle, memory_order_relaxed) != NULL) {
            visit(context, kernel);
        }
    }
    pthread_mutex_unlock(&registry);
}

/* ---- where handles come from ---- */

static void note_origin(void *handle, const void *owner, const char *name, bool is_kernel)
{
    pthread_mutex_lock(&registry);
    struct origin *origin = NULL;
    HASH_FIND_PTR(origins, &handle, origin);
    if (origin == NULL) {
        origin = calloc(1, sizeof *origin);
        if (origin != NULL) {
            origin->handle = handle;
            HASH_ADD_PTR(origins, handle, origin);
        }
    }
    if (origin != NULL) {
        origin->owner = owner;
        origin->is_kernel = is_kernel;
        free(origin->name);
        origin->name = name != NULL ? strdup(name) : NULL;
    }
    pthread_mutex_unlock(&registry);
}

void ov_function_found(CUfunction function, CUmodule module, const char *name)
{
    note_origin(function, module, name, false);
}

void ov_kernel_found(CUkernel kernel, CUlibrary library, const char *name)
{
    note_origin(kernel, library, name, true);
}

static struct ov_image *layouts_of(const void *image)
{
    int error = 0;
    struct ov_image *parsed = ov_image_parse(image, SIZE_MAX, &error);
    if (parsed == NULL) {
        ov_log(OV_LOG_INFO, "a code image could not be read (%s): its kernels are opaque", ov_image_reason(error));
    }
    return parsed;
}

static void note_image(const void *owner, const void *image)
{
    if (image == NULL) {
        return;
    }
    struct ov_image *parsed = ov_cu->cuFuncGetParamInfo == NULL ? layouts_of(image) : NULL;
    struct ov_code code = ov_verdicts_kept() ? ov_code_of_image(image, SIZE_MAX) : (struct ov_code){{0, 0}};
    if (ov_verdicts_kept() && !ov_code_known(&code)) {
        ov_log(OV_LOG_DEBUG, "a code image has no hash: what is learned of its kernels is not kept");
    }
    struct owner *entry = parsed != NULL || ov_code_known(&code) ? calloc(1, sizeof *entry) : NULL;
    if (entry == NULL) {
        ov_image_free(parsed);
        return;
    }
    entry->owner = owner;
    entry->image = parsed;
    entry->code = code;
    pthread_mutex_lock(&registry);
    HASH_ADD_PTR(owners, owner, entry);
    pthread_mutex_unlock(&registry);
}

void ov_module_loaded(CUmodule module, const void *image)
{
    note_image(module, image);
}
void ov_library_loaded(CUlibrary library, const void *image)
{
    note_image(library, image);
}

static void forget(const void *gone)
{
    pthread_mutex_lock(&registry);
    struct owner *owner = NULL;
    HASH_FIND_PTR(owners, &gone, owner);
    if (owner != NULL) {
        HASH_DEL(owners, owner);
        ov_image_free(owner->image);
        free(owner);
    }
    struct origin *origin, *next;
    HASH_ITER(hh, origins, origin, next)
    {
        if (origin->owner == gone) {
            HASH_DEL(origins, origin);
            free(origin->name);
            free(origin);
        }
    }
    /* A kernel whose owner is not known may be of this one. Marks, since readers walk the table without a lock. */
    for (size_t i = 0; i < TABLE_SLOTS; i++) {
        struct ov_kernel *kernel = atomic_load_explicit(&table[i], memory_order_relaxed);
        if (kernel != NULL && (kernel->owner == gone || kernel->owner == NULL)) {
            atomic_store_explicit(&kernel->handle, NULL, memory_order_relaxed);
        }
    }
    pthread_mutex_unlock(&registry);
}

void ov_module_unloading(CUmodule module)
{
    forget(module);
}
void ov_library_unloading(CUlibrary library)
{
    forget(library);
}
