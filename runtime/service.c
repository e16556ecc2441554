#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "service.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "worker.h"

#define PATIENCE_SECONDS 3
#define FOLDERS          3u

/* ---- where ---- */

/* The n-th folder where services may be; with `create`, made if it is not there. False: there is no such folder, or it
 * is not the user's alone. The first that can be created is where ours is. */
static bool find_folder(unsigned n, bool create, char *path)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    struct stat status;
    int length = -1;
    if (n == 0 && runtime != NULL && runtime[0] == '/') {
        length = snprintf(path, OV_SERVICE_PATH_BYTES, "%s/overshot", runtime);
    } else if (n == 1 && !create) {
        length = snprintf(path, OV_SERVICE_PATH_BYTES, "/run/user/%u/overshot", (unsigned)geteuid());
    } else if (n == 2) {
        length = snprintf(path, OV_SERVICE_PATH_BYTES, "/tmp/overshot-%u", (unsigned)geteuid());
    }
    if (length <= 0 || length >= OV_SERVICE_PATH_BYTES) {
        return false;
    }
    if (create && mkdir(path, 0700) != 0 && errno != EEXIST) {
        return false;
    }
    return lstat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
           (status.st_mode & 077) == 0;
}

static bool socket_path(const char *folder, const char *name, char *path)
{
    const int length = snprintf(path, OV_SERVICE_PATH_BYTES, "%s/%s", folder, name);
    return length > 0 && length < OV_SERVICE_PATH_BYTES;
}

bool ov_service_wait(int connection, unsigned seconds)
{
    const struct timeval patience = {.tv_sec = seconds};
    return setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0 &&
           setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0;
}

/* Whether the other end is of the same user; sets the time limits of the socket. */
static bool trust(int connection)
{
    struct ucred peer;
    socklen_t length = sizeof peer;
    return ov_service_wait(connection, PATIENCE_SECONDS) &&
           getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

int ov_service_connect(const char *name)
{
    for (unsigned n = 0; n < FOLDERS; n++) {
        char folder[OV_SERVICE_PATH_BYTES];
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        if (!find_folder(n, false, folder) || !socket_path(folder, name, address.sun_path)) {
            continue;
        }
        const int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connection < 0) {
            return -1;
        }
        /* The limits come before connecting: an owner that is stopped does not stop us. */
        if (ov_service_wait(connection, PATIENCE_SECONDS) &&
            connect(connection, (struct sockaddr *)&address, sizeof address) == 0 && trust(connection)) {
            return connection;
        }
        close(connection);
    }
    return -1;
}

/* ---- the thread ---- */

static void *serve(void *context)
{
    const struct ov_service *service = context;
    const int listener = service->listener;
    for (;;) {
        const int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (connection >= 0) {
            if (trust(connection)) {
                service->answer(connection);
            }
            close(connection);
        } else if (errno != EINTR && errno != ECONNABORTED) {
            const struct timespec pause = {.tv_nsec = 100000000}; /* no descriptors left, mostly */
            nanosleep(&pause, NULL);
        }
    }
    return NULL;
}

/* Sockets of the kind that processes left behind when they were killed. */
static void sweep(const char *folder, const char *name)
{
    const size_t kind = strcspn(name, "-") + 1;
    DIR *directory = opendir(folder);
    const struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        if (strncmp(entry->d_name, name, kind) != 0 || strlen(entry->d_name) >= OV_SERVICE_NAME_BYTES ||
            !socket_path(folder, entry->d_name, address.sun_path)) {
            continue;
        }
        const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (probe >= 0 && connect(probe, (struct sockaddr *)&address, sizeof address) != 0 && errno == ECONNREFUSED) {
            unlink(address.sun_path);
        }
        if (probe >= 0) {
            close(probe);
        }
    }
    if (directory != NULL) {
        closedir(directory);
    }
}

/* What nobody listens at yet is what a killed process leaves, to one that sweeps: so a socket gets its name when it
 * listens. A name that is there by now is another's, who is in another name space of processes. */
static bool listen_as(int listener, const char *folder, const char *name, const char *path)
{
    struct sockaddr_un draft = {.sun_family = AF_UNIX};
    const int length = snprintf(draft.sun_path, sizeof draft.sun_path, "%s/.%s", folder, name);
    if (length <= 0 || (size_t)length >= sizeof draft.sun_path) {
        return false;
    }
    (void)unlink(draft.sun_path);
    if (bind(listener, (struct sockaddr *)&draft, sizeof draft) != 0) {
        return false;
    }
    if (listen(listener, 64) == 0 && access(path, F_OK) != 0 && rename(draft.sun_path, path) == 0) {
        return true;
    }
    unlink(draft.sun_path);
    return false;
}

static bool listen_in(struct ov_service *service, const char *folder, const char *name)
{
    char path[OV_SERVICE_PATH_BYTES];
    sweep(folder, name);
    if (!socket_path(folder, name, path)) {
        return false;
    }
    service->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (service->listener < 0) {
        return false;
    }
    if (!listen_as(service->listener, folder, name, path)) {
        close(service->listener);
        return false;
    }
    if (!ov_worker_start(NULL, serve, service)) {
        unlink(path);
        close(service->listener);
        return false;
    }
    memcpy(service->path, path, sizeof service->path);
    return true;
}

bool ov_service_start(struct ov_service *service, const char *name)
{
    char folder[OV_SERVICE_PATH_BYTES];
    for (unsigned n = 0; n < FOLDERS && service->path[0] == 0; n++) {
        (void)(find_folder(n, true, folder) && listen_in(service, folder, name));
    }
    return service->path[0] != 0;
}

void ov_service_forked(struct ov_service *service)
{
    if (service->path[0] != 0) { /* the parent's: as long as we held it, too, others would wait for an answer */
        close(service->listener);
        service->path[0] = 0;
    }
}

void ov_service_exit(struct ov_service *service)
{
    if (service->path[0] != 0) {
        unlink(service->path);
    }
}
