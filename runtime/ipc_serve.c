#define _GNU_SOURCE
#include "ipc.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "log.h"
#include "service.h"

struct offer {
    struct ov_ticket ticket;
    int file;
    struct offer *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all that follows */
static struct offer *offers;
static uint64_t service; /* 0: none */

static bool random_bytes(void *out, size_t bytes)
{
    return getrandom(out, bytes, 0) == (ssize_t)bytes;
}

static struct offer **find(const unsigned char *token)
{
    struct offer **at = &offers;
    while (*at != NULL && memcmp((*at)->ticket.token, token, sizeof(*at)->ticket.token) != 0) {
        at = &(*at)->next;
    }
    return at;
}

/* ---- the service's thread */

static void send_file(int connection, int file)
{
    char byte = file >= 0;
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.room = {0}};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (file >= 0) {
        message.msg_control = control.room;
        message.msg_controllen = sizeof control.room;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof file);
        memcpy(CMSG_DATA(header), &file, sizeof file);
    }
    (void)sendmsg(connection, &message, MSG_NOSIGNAL);
}

static void answer(int connection)
{
    unsigned char token[sizeof((struct ov_ticket *)0)->token];
    if (recv(connection, token, sizeof token, MSG_WAITALL) != (ssize_t)sizeof token) {
        return;
    }
    pthread_mutex_lock(&lock);
    const struct offer *offer = *find(token);
    const int file = offer != NULL ? dup(offer->file) : -1;
    pthread_mutex_unlock(&lock);
    send_file(connection, file);
    if (file >= 0) {
        close(file);
    }
}

static struct ov_service socket_service = {.answer = answer};

bool ov_ipc_serve(void)
{
    pthread_mutex_lock(&lock);
    uint64_t number = 0;
    char name[OV_SERVICE_NAME_BYTES];
    if (service == 0 && random_bytes(&number, sizeof number) && number != 0) {
        ov_ipc_name(number, name);
        service = ov_service_start(&socket_service, name) ? number : 0;
    }
    const bool serving = service != 0;
    pthread_mutex_unlock(&lock);
    if (!serving) {
        ov_log_once(OV_LOG_WARN, "memory cannot be shared with other processes: no folder of this user's alone in "
                                 "XDG_RUNTIME_DIR or /tmp, or no socket or thread to be had");
    }
    return serving;
}

/* ---- offers */

bool ov_ipc_offer(int file, size_t bytes, size_t mapped_bytes, struct ov_ticket *ticket)
{
    struct offer *offer = calloc(1, sizeof *offer);
    if (offer == NULL || !random_bytes(offer->ticket.token, sizeof offer->ticket.token)) {
        free(offer);
        return false;
    }
    memcpy(offer->ticket.magic, OV_IPC_MAGIC, sizeof offer->ticket.magic);
    offer->ticket.bytes = bytes;
    offer->ticket.mapped_bytes = mapped_bytes;
    offer->file = file;
    pthread_mutex_lock(&lock);
    offer->ticket.service = service;
    offer->next = offers;
    offers = offer;
    pthread_mutex_unlock(&lock);
    *ticket = offer->ticket;
    return true;
}

void ov_ipc_withdraw(const struct ov_ticket *ticket)
{
    pthread_mutex_lock(&lock);
    struct offer **at = find(ticket->token), *offer = *at;
    if (offer != NULL) {
        *at = offer->next;
        close(offer->file);
        free(offer);
    }
    pthread_mutex_unlock(&lock);
}

bool ov_ipc_is_own(const struct ov_ticket *ticket)
{
    pthread_mutex_lock(&lock);
    const bool own = service != 0 && ticket->service == service;
    pthread_mutex_unlock(&lock);
    return own;
}

void ov_ipc_forked(void)
{
    ov_service_forked(&socket_service);
}

void ov_ipc_exit(void)
{
    ov_service_exit(&socket_service);
}
