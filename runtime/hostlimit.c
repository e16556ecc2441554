#include "hostlimit.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MARGIN_BYTES ((size_t)512 << 20)

static size_t read_file(const char *path, char *text, size_t room)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return 0;
    }
    ssize_t got = read(file, text, room - 1);
    close(file);
    text[got > 0 ? got : 0] = 0;
    return got > 0 ? (size_t)got : 0;
}

/* "max", or no such file: no limit. */
static size_t read_bytes(const char *path)
{
    char text[64];
    if (read_file(path, text, sizeof text) == 0 || text[0] < '0' || text[0] > '9') {
        return SIZE_MAX;
    }
    return strtoull(text, NULL, 10);
}

static size_t left(size_t limit, size_t used)
{
    return limit == SIZE_MAX ? SIZE_MAX : used == SIZE_MAX || used > limit ? 0 : limit - used;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t ov_host_limit(void)
{
    char text[4096];
    size_t limit = SIZE_MAX;
    if (read_file("/proc/meminfo", text, sizeof text) > 0) {
        const char *line = strstr(text, "MemAvailable:");
        if (line != NULL) {
            limit = (size_t)strtoull(line + strlen("MemAvailable:"), NULL, 10) << 10;
        }
    }
    size_t group_max = read_bytes("/sys/fs/cgroup/memory.max");
    if (group_max != SIZE_MAX) {
        limit = smaller(limit, left(group_max, read_bytes("/sys/fs/cgroup/memory.current")));
    } else { /* version 1; its "no limit" is a huge number */
        group_max = read_bytes("/sys/fs/cgroup/memory/memory.limit_in_bytes");
        if (group_max < SIZE_MAX / 4) {
            limit = smaller(limit, left(group_max, read_bytes("/sys/fs/cgroup/memory/memory.usage_in_bytes")));
        }
    }
    return limit == SIZE_MAX ? limit : limit > 2 * MARGIN_BYTES ? limit - MARGIN_BYTES : limit / 2;
}
