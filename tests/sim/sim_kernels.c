/*
 * Host kernels: the library that implements kernels by name, and the question what a launch accesses.
 *
 * SIM_KERNELS names it (several paths with ':'); otherwise libsimkernels.so is looked for beside this library and in
 * ../kernels. A kernel's access function tells its accesses one by one through sim_access_add(), which asks
 * sim_access_check() here after each; so a pointer table is known to be readable before it is read, and a launch that
 * may not touch something is found before any of it has run.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim_program.h"

enum { MAX_LIBRARIES = 8 };

struct kernel_library {
    const struct sim_kernel *kernel;
    size_t count;
    const struct sim_kernel_global *global;
    size_t globals;
};

static struct kernel_library libraries[MAX_LIBRARIES];
static size_t library_count;
static int loaded;

static const struct sim_device *asking_device;
static struct sim_access refused;
static int refused_any;

static int check_access(uint64_t address, uint64_t bytes, int writes)
{
    if (asking_device == NULL || bytes == 0)
        return 0;
    if (sim_memory_check(address, bytes, writes, asking_device) == SIM_ACCESS_OK)
        return 0;
    if (!refused_any)
        refused = (struct sim_access){address, bytes, writes};
    refused_any = 1;
    return 1;
}

static int load_library(const char *path)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL || library_count == MAX_LIBRARIES)
        return 0;
    union {
        void *pointer;
        const struct sim_kernel *(*function)(size_t *);
        const struct sim_kernel_global *(*globals)(size_t *);
        int (**check)(uint64_t, uint64_t, int);
        struct sim_device_calls *device_calls;
    } symbol;
    symbol.pointer = dlsym(handle, "sim_device_calls");
    if (symbol.pointer != NULL)
        *symbol.device_calls = (struct sim_device_calls){sim_conditional_set, sim_device_node_update};
    symbol.pointer = dlsym(handle, "sim_access_check");
    if (symbol.pointer != NULL)
        *symbol.check = check_access;
    symbol.pointer = dlsym(handle, "sim_kernels");
    if (symbol.pointer == NULL)
        return 0;
    struct kernel_library *library = &libraries[library_count++];
    library->kernel = symbol.function(&library->count);
    symbol.pointer = dlsym(handle, "sim_kernel_globals");
    library->global = symbol.pointer != NULL ? symbol.globals(&library->globals) : NULL;
    return 1;
}

static void load_beside(void)
{
    Dl_info self;
    if (dladdr((void *)&load_beside, &self) == 0 || self.dli_fname == NULL)
        return;
    const char *slash = strrchr(self.dli_fname, '/');
    int directory = slash != NULL ? (int)(slash - self.dli_fname) : 0;
    static const char *const places[] = {"libsimkernels.so", "../kernels/libsimkernels.so"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char path[4096];
        if (slash != NULL)
            snprintf(path, sizeof path, "%.*s/%s", directory, self.dli_fname, places[i]);
        else
            snprintf(path, sizeof path, "%s", places[i]);
        if (load_library(path))
            return;
    }
}

static void load_all(void)
{
    loaded = 1;
    if (sim_knobs.kernels == NULL || sim_knobs.kernels[0] == '\0') {
        load_beside();
        return;
    }
    char *paths = strdup(sim_knobs.kernels), *rest = paths;
    for (char *path; paths != NULL && (path = strsep(&rest, ":")) != NULL;)
        if (path[0] != '\0' && !load_library(path))
            sim_say("cannot load kernels from %s: %s", path, dlerror());
    free(paths);
}

const struct sim_kernel *sim_host_kernel(const char *name)
{
    if (!loaded)
        load_all();
    for (size_t l = 0; l < library_count; l++)
        for (size_t k = 0; k < libraries[l].count; k++)
            if (strcmp(libraries[l].kernel[k].name, name) == 0)
                return &libraries[l].kernel[k];
    return NULL;
}

void sim_host_globals(const struct sim_module *module)
{
    for (size_t l = 0; l < library_count; l++) {
        for (size_t g = 0; g < libraries[l].globals; g++) {
            uint64_t address = 0, bytes;
            (void)sim_module_global(module, libraries[l].global[g].name, &address, &bytes);
            *libraries[l].global[g].place = (void *)(uintptr_t)address;
        }
    }
}

int sim_host_accesses(const struct sim_kernel *kernel, void **params, const struct sim_device *device,
                      const struct sim_accesses **out)
{
    static struct sim_accesses list;
    static struct sim_accesses fault = {.item = &refused, .count = 1, .room = 1};
    list.count = 0;
    list.operations = 0;
    refused_any = 0;
    asking_device = device;
    kernel->access(params, &list);
    asking_device = NULL;
    *out = refused_any ? &fault : &list;
    return !refused_any;
}
