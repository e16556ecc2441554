#define _GNU_SOURCE
#include "ipc.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define PATIENCE_SECONDS 3

bool ov_ipc_folder(unsigned n, bool create, char *path)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    struct stat status;
    int length = -1;
    if (n == 0 && runtime != NULL && runtime[0] == '/') {
        length = snprintf(path, OV_IPC_PATH_BYTES, "%s/overshot", runtime);
    } else if (n == 1 && !create) {
        length = snprintf(path, OV_IPC_PATH_BYTES, "/run/user/%u/overshot", (unsigned)geteuid());
    } else if (n == 2) {
        length = snprintf(path, OV_IPC_PATH_BYTES, "/tmp/overshot-%u", (unsigned)geteuid());
    }
    if (length <= 0 || length >= OV_IPC_PATH_BYTES) {
        return false;
    }
    if (create && mkdir(path, 0700) != 0 && errno != EEXIST) {
        return false;
    }
    return lstat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
           (status.st_mode & 077) == 0;
}

bool ov_ipc_socket_path(const char *folder, uint64_t service, char *path)
{
    const int length = snprintf(path, OV_IPC_PATH_BYTES, "%s/ipc-%016" PRIx64, folder, service);
    return length > 0 && length < OV_IPC_PATH_BYTES;
}

bool ov_ipc_trust(int socket)
{
    const struct timeval patience = {.tv_sec = PATIENCE_SECONDS};
    struct ucred peer;
    socklen_t length = sizeof peer;
    return setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0 &&
           setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0 &&
           getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

static int connect_to(uint64_t service)
{
    for (unsigned n = 0; n < OV_IPC_FOLDERS; n++) {
        char folder[OV_IPC_PATH_BYTES];
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        if (!ov_ipc_folder(n, false, folder) || !ov_ipc_socket_path(folder, service, address.sun_path)) {
            continue;
        }
        const int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connection < 0) {
            return -1;
        }
        /* The limits come before connecting: an owner that is stopped does not stop us. */
        const struct timeval patience = {.tv_sec = PATIENCE_SECONDS};
        (void)setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        if (connect(connection, (struct sockaddr *)&address, sizeof address) == 0 && ov_ipc_trust(connection)) {
            return connection;
        }
        close(connection);
    }
    return -1;
}

/* The answer is one byte, and a descriptor if the byte is 1. */
static int receive(int connection)
{
    char byte = 0;
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.room = {0}};
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
    int file = -1;
    if (recvmsg(connection, &message, MSG_CMSG_CLOEXEC) != 1) {
        return -1;
    }
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header != NULL && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof file)) {
        memcpy(&file, CMSG_DATA(header), sizeof file);
    }
    return file;
}

int ov_ipc_fetch(const struct ov_ticket *ticket)
{
    const int connection = connect_to(ticket->service);
    int file = -1;
    if (connection < 0) {
        return -1;
    }
    if (send(connection, ticket->token, sizeof ticket->token, MSG_NOSIGNAL) == (ssize_t)sizeof ticket->token) {
        file = receive(connection);
    }
    close(connection);
    return file;
}
