#include "globals.h"

#include <pthread.h>
#include <stdlib.h>

struct global {
    struct global *next;
    const void *owner;
    CUdeviceptr address;
};

static struct global *list;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects list */

/* Whether it is in the list now. */
static bool remember(const void *owner, CUdeviceptr address)
{
    pthread_mutex_lock(&lock);
    struct global *global = list;
    while (global != NULL && (global->owner != owner || global->address != address)) {
        global = global->next;
    }
    if (global == NULL && (global = malloc(sizeof *global)) != NULL) {
        *global = (struct global){list, owner, address};
        list = global;
    }
    pthread_mutex_unlock(&lock);
    return global != NULL;
}

void ov_global_found(const void *owner, CUdeviceptr address, size_t bytes)
{
    if (remember(owner, address)) {
        ov_global_added(address, bytes);
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
        free(global);
    }
}
