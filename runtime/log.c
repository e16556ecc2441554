#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINE_BYTES = 2048 };

static const char prefix[] = "overshot: ";
static _Atomic int log_level = OV_LOG_WARN;
static _Atomic int log_fd = STDERR_FILENO;

static void write_all(int fd, const char *bytes, size_t length)
{
    while (length) {
        ssize_t written = write(fd, bytes, length);
        if (written > 0) {
            bytes += written;
            length -= (size_t)written;
        } else if (written < 0 && errno != EINTR) {
            return; /* nowhere to complain to */
        }
    }
}

/* Copies message to line, prefix before each of its lines, and cuts what does not fit. Returns the length. */
static size_t compose(char *line, size_t room, const char *message, bool cut)
{
    static const char ellipsis[] = "...";
    const size_t tail = sizeof(ellipsis); /* three dots and a newline */
    size_t length = 0;
    bool start = true;
    for (; *message; message++) {
        size_t wanted = (start ? sizeof(prefix) - 1 : 0) + 1;
        if (length + wanted + tail > room) {
            cut = true;
            break;
        }
        if (start) {
            memcpy(line + length, prefix, sizeof(prefix) - 1);
            length += sizeof(prefix) - 1;
        }
        line[length++] = *message;
        start = *message == '\n';
    }
    if (cut) {
        memcpy(line + length, ellipsis, sizeof(ellipsis) - 1);
        length += sizeof(ellipsis) - 1;
    }
    if (cut || !start) {
        line[length++] = '\n';
    }
    return length;
}

bool ov_log_enabled(enum ov_log_level level)
{
    return (int)level <= atomic_load_explicit(&log_level, memory_order_relaxed);
}

void ov_log(enum ov_log_level level, const char *format, ...)
{
    if (!ov_log_enabled(level)) {
        return;
    }
    int saved_errno = errno;
    char message[LINE_BYTES], line[LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    if (length > 0) {
        size_t composed = compose(line, sizeof(line), message, (size_t)length >= sizeof(message));
        write_all(atomic_load_explicit(&log_fd, memory_order_relaxed), line, composed);
    }
    errno = saved_errno;
}

bool ov_log_open(enum ov_log_level level, const char *path)
{
    int saved_errno = errno;
    int fd = STDERR_FILENO;
    if (path && *path) {
        fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    }
    int reason = errno;
    int old_fd = atomic_exchange(&log_fd, fd < 0 ? STDERR_FILENO : fd);
    if (old_fd != STDERR_FILENO) {
        close(old_fd);
    }
    atomic_store(&log_level, (int)level);
    if (fd < 0) {
        ov_log(OV_LOG_ERROR, "log file %s cannot be opened (errno %d); logging to standard error", path, reason);
    }
    errno = saved_errno;
    return fd >= 0;
}
