/*
 * init.c - what happens when the library is loaded, when the process forks, and when it ends.
 *
 * Loading costs one pthread_atfork() and finding the C library's own dlsym (dl.h). A child of a process that has
 * attached the engine passes through: the driver does not survive a fork, and the memory that the engine knows of is
 * the parent's. A child of a process that has not used CUDA yet starts afresh. At the end no CUDA call is made: the
 * driver may be gone already.
 */
#include <pthread.h>

#include "dl.h"
#include "resolver.h"

static void in_child(void)
{
    if (ov_resolver_forked()) {
        ov_runtime_forked();
    }
}

__attribute__((constructor)) static void loaded(void)
{
    ov_dl_prepare();
    pthread_atfork(NULL, NULL, in_child);
}

__attribute__((destructor)) static void leaving(void)
{
    ov_runtime_exit();
}
