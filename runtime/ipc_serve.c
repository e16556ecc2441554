#define _GNU_SOURCE
#include "ipc.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "log.h"

struct offer {
    struct ov_ticket ticket;
    int file;
    struct offer *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all that follows but `service` once it is set */
static struct offer *offers;
static int listener = -1;
static uint64_t service; /* 0: none */
static char socket_path[OV_IPC_PATH_BYTES];

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
    if (!ov_ipc_trust(connection) || recv(connection, token, sizeof token, MSG_WAITALL) != (ssize_t)sizeof token) {
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

static void *serve(void *context)
{
    const int socket = *(int *)context;
    for (;;) {
        const int connection = accept4(socket, NULL, NULL, SOCK_CLOEXEC);
        if (connection >= 0) {
            answer(connection);
            close(connection);
        } else if (errno != EINTR && errno != ECONNABORTED) {
            const struct timespec pause = {.tv_nsec = 100000000}; /* no descriptors left, mostly */
            nanosleep(&pause, NULL);
        }
    }
    return NULL;
}

/* ---- its start */

/* Sockets that processes left behind when they were killed. */
static void sweep(const char *folder)
{
    DIR *directory = opendir(folder);
    const struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        const size_t length = strlen(folder) + 1 + strlen(entry->d_name);
        if (strncmp(entry->d_name, "ipc-", 4) != 0 || length >= sizeof address.sun_path) {
            continue;
        }
        stpcpy(stpcpy(stpcpy(address.sun_path, folder), "/"), entry->d_name);
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

static bool listen_in(const char *folder)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    uint64_t name = 0;
    sweep(folder);
    if (!random_bytes(&name, sizeof name) || name == 0 || !ov_ipc_socket_path(folder, name, address.sun_path)) {
        return false;
    }
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 64) != 0) {
        close(listener);
        listener = -1;
        return false;
    }
    memcpy(socket_path, address.sun_path, sizeof socket_path);
    service = name;
    return true;
}

/* The program's signals are none of its business. */
static bool start_thread(void)
{
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool started = pthread_create(&thread, NULL, serve, &listener) == 0 && pthread_detach(thread) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

bool ov_ipc_serve(void)
{
    pthread_mutex_lock(&lock);
    for (unsigned n = 0; n < OV_IPC_FOLDERS && service == 0; n++) {
        char folder[OV_IPC_PATH_BYTES];
        if (ov_ipc_folder(n, true, folder) && listen_in(folder) && !start_thread()) {
            unlink(socket_path);
            close(listener);
            listener = -1;
            service = 0;
        }
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

/* Async-signal-safe. The socket is the parent's: as long as we held it, too, openers would wait for an answer. */
void ov_ipc_forked(void)
{
    if (listener >= 0) {
        close(listener);
        listener = -1;
    }
    socket_path[0] = 0;
}

void ov_ipc_exit(void)
{
    if (socket_path[0] != 0) {
        unlink(socket_path);
    }
}
