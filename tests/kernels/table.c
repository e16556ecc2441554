/*
 * table.c: the rows of libsimkernels.so. Kernels register themselves while the library is loaded (portable.h); the
 * table is sorted when it is first asked for. See sim_kernel.h.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim_kernel.h"

enum { MAX_KERNELS = 256, MAX_GLOBALS = 16 };

int (*sim_access_check)(uint64_t address, uint64_t bytes, int writes);

struct sim_device_calls sim_device_calls;

static struct sim_kernel table[MAX_KERNELS];
static size_t kernel_count;

void sim_kernel_register(const char *name, void (*run)(void **), void (*access)(void **, struct sim_accesses *))
{
    if (kernel_count == MAX_KERNELS) {
        fprintf(stderr, "libsimkernels: more than %d kernels, %s does not fit\n", MAX_KERNELS, name);
        abort();
    }
    table[kernel_count++] = (struct sim_kernel){name, run, access};
}

static struct sim_kernel_global globals[MAX_GLOBALS];
static size_t global_count;

void sim_kernel_global_register(const char *name, void **place)
{
    if (global_count == MAX_GLOBALS) {
        fprintf(stderr, "libsimkernels: more than %d globals, %s does not fit\n", MAX_GLOBALS, name);
        abort();
    }
    globals[global_count++] = (struct sim_kernel_global){name, place};
}

const struct sim_kernel_global *sim_kernel_globals(size_t *count)
{
    *count = global_count;
    return globals;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct sim_kernel *)a)->name, ((const struct sim_kernel *)b)->name);
}

static void sort_table(void)
{
    qsort(table, kernel_count, sizeof *table, compare_names);
}

const struct sim_kernel *sim_kernels(size_t *count)
{
    static pthread_once_t sorted = PTHREAD_ONCE_INIT;
    pthread_once(&sorted, sort_table);
    *count = kernel_count;
    return table;
}

int sim_access_add(struct sim_accesses *list, const void *address, uint64_t bytes, int writes)
{
    if (bytes == 0) {
        return 0;
    }
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 16;
        struct sim_access *item = realloc(list->item, room * sizeof *item);
        if (!item) {
            return 1;
        }
        list->item = item;
        list->room = room;
    }
    list->item[list->count++] = (struct sim_access){(uint64_t)(uintptr_t)address, bytes, writes};
    return sim_access_check ? sim_access_check((uint64_t)(uintptr_t)address, bytes, writes) : 0;
}
