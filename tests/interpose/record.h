/*
 * record.h - one file in which the fake driver and the recording engine note what they were asked, in order, a line
 * each. The test program reads it. The file is named by RECORD_FILE; without it nothing is recorded. Lines of several
 * threads and processes do not mix (one write each, appended).
 */
#ifndef RECORD_H
#define RECORD_H

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((format(printf, 1, 2), unused)) static void record(const char *format, ...)
{
    char line[1024];
    const char *path = getenv("RECORD_FILE");
    const int fd = path != NULL ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd < 0) {
        return;
    }
    va_list list;
    va_start(list, format);
    int length = vsnprintf(line, sizeof line - 1, format, list);
    va_end(list);
    if (length >= (int)sizeof line - 1) {
        length = sizeof line - 2;
    }
    line[length++] = '\n';
    if (write(fd, line, (size_t)length) != length) {
        abort();
    }
    close(fd);
}

#endif
