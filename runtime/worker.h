/*
 * worker.h - threads of our own, in a program that does not know of them.
 */
#ifndef OV_WORKER_H
#define OV_WORKER_H

#include <pthread.h>
#include <stdbool.h>

/* With all signals blocked: the program's are none of its business. thread NULL: nobody waits for it. False: there is
 * none. Needs no lock. */
bool ov_worker_start(pthread_t *thread, void *(*run)(void *context), void *context);

#endif
