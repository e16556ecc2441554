#include "globals.h"

#include "hook.h"

#include <pthread.h>
#include <stdlib.h>

struct global {
    struct global *next;
    const void *owner;
    CUdeviceptr address;
    bool managed;
};

static struct global *list;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects list */

/* Whether it is in the list now. */
static bool remember(const void *owner, CUdeviceptr address, bool managed)
{
    pthread_mutex_lock(&lock);
    struct global *global = list;
    while (global != NULL && (global->owner != owner || global->address != address)) {
        global = global->next;
    }
    if (global == NULL && (global = malloc(sizeof *global)) != NULL) {
        *global = (struct global){list, owner, address, managed};
        list = global;
    }
    pthread_mutex_unlock(&lock);
    return global != NULL;
}

/* A `__managed__` variable: the CPU stores there, too. */
static bool is_managed(CUdeviceptr address)
{
    unsigned managed = 0;
    const CUresult result = OV_REAL(cuPointerGetAttribute, (&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address));
    return result == CUDA_SUCCESS && (managed & 0xff) != 0; /* one byte, or four */
}

void ov_global_found(const void *owner, CUdeviceptr address, size_t bytes)
{
    const bool managed = is_managed(address);
    if (remember(owner, address, managed)) {
        ov_global_added(address, bytes);
        if (managed) {
            ov_zerocopy_added((void *)(uintptr_t)address, bytes, true);
        }
    }
}

void ov_globals_going(const void *owner)
{
    struct global *gone = NULL;
    pthread_mutex_lock(&lock);
    for (struct global **at = &list; *at != NULL;) {
        struct global *global = *at;
        if (global->owner == owner) {
            *at = global->next;
            global->next = gone;
            gone = global;
        } else {
            at = &global->next;
        }
    }
    pthread_mutex_unlock(&lock);
    while (gone != NULL) {
        struct global *global = gone;
        gone = global->next;
        ov_foreign_removed(global->address);
        if (global->managed) {
            ov_zerocopy_removed((const void *)(uintptr_t)global->address);
        }
        free(global);
    }
}
