#include "stack_wait.h"

#include <pthread.h>

#include "gpu.h"

static pthread_rwlock_t captures = PTHREAD_RWLOCK_INITIALIZER; /* shared by captures, exclusive for waits */

void stack_wait_for_context(void)
{
    pthread_rwlock_wrlock(&captures);
    GPU(cuCtxSynchronize);
    pthread_rwlock_unlock(&captures);
}

void stack_capture_enter(void)
{
    pthread_rwlock_rdlock(&captures);
}

void stack_capture_leave(void)
{
    pthread_rwlock_unlock(&captures);
}
