#define _GNU_SOURCE
#include "ipc.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "service.h"

void ov_ipc_name(uint64_t service, char *name)
{
    snprintf(name, OV_SERVICE_NAME_BYTES, "ipc-%016" PRIx64, service);
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
    char name[OV_SERVICE_NAME_BYTES];
    ov_ipc_name(ticket->service, name);
    const int connection = ov_service_connect(name);
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
