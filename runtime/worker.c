#include "worker.h"

#include <signal.h>

bool ov_worker_start(pthread_t *thread, void *(*run)(void *context), void *context)
{
    pthread_t detached;
    sigset_t all, before;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) {
        return false;
    }
    bool started = pthread_create(thread != NULL ? thread : &detached, NULL, run, context) == 0;
    if (started && thread == NULL) {
        (void)pthread_detach(detached);
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}
