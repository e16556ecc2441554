/*
 * service.h - a private socket by which other processes of the same user reach this one, and a thread that answers.
 *
 * Sockets lie in a folder that only the user can enter: $XDG_RUNTIME_DIR/overshot, else /tmp/overshot-<uid>. Both sides
 * check that the other is of the same user, and wait a few seconds at most. The thread makes no CUDA call, blocks all
 * signals, and ends with the process. A forked child has no part in it.
 *
 * Ownership: a struct ov_service is the caller's, static, and zero before it is started. Locks: none; start, forked and
 * exit are the caller's to order. Nothing here logs: a failure is told, and who asked says what it means.
 */
#ifndef OV_SERVICE_H
#define OV_SERVICE_H

#include <stdbool.h>
#include <stddef.h>

enum { OV_SERVICE_PATH_BYTES = 108, OV_SERVICE_NAME_BYTES = 40 };

struct ov_service {
    void (*answer)(int connection); /* by the thread; the connection is trusted, and closed afterwards */
    int listener;                   /* valid while path is not empty */
    char path[OV_SERVICE_PATH_BYTES];
};

/* Listens as `name`, which is a kind, a dash, and what tells services of the kind apart. Sockets of the kind that
 * killed processes left behind are removed. False: no folder, socket or thread could be had. */
bool ov_service_start(struct ov_service *service, const char *name);
/* In the child of a fork (async-signal-safe); at exit. */
void ov_service_forked(struct ov_service *service);
void ov_service_exit(struct ov_service *service);

/* The other side: a trusted connection; -1: there is no such service, or it does not answer. */
int ov_service_connect(const char *name);
/* Longer than the usual patience, for an answer that takes time. */
bool ov_service_wait(int connection, unsigned seconds);

#endif
