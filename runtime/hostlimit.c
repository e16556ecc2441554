#include "hostlimit.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_ROOM 4096

/* Version 2 names no controllers; in version 1 they stand with commas between. */
static bool holds_nothing(const char *controllers, size_t length)
{
    (void)controllers;
    return length == 0;
}

static bool holds_memory(const char *controllers, size_t length)
{
    const char *end = controllers + length;
    for (const char *at = controllers; at < end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        size_t word = (size_t)((comma != NULL ? comma : end) - at);
        if (word == 6 && memcmp(at, "memory", 6) == 0) {
            return true;
        }
        at += word + 1;
    }
    return false;
}

/* What a version of control groups calls its files, and what it subtracts. */
static const struct version {
    bool (*holds)(const char *controllers, size_t length); /* whether a line of /proc/self/cgroup is about it */
    const char *folder;                                    /* below the mount point of all groups */
    const char *limits[2], *used;                          /* several limits: the smallest counts */
    const char *reclaimable;                               /* in memory.stat */
    const char *name;
} versions[] = {
    {holds_nothing,
     "",
     {"memory.max", "memory.high"},
     "memory.current",
     "\ninactive_file ",
     "the control group's memory.max"},
    {holds_memory,
     "/memory",
     {"memory.limit_in_bytes", NULL},
     "memory.usage_in_bytes",
     "\ntotal_inactive_file ",
     "the control group's memory.limit_in_bytes"},
};

static size_t read_file(const char *path, char *text, size_t room)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        text[0] = 0;
        return 0;
    }
    ssize_t got = read(file, text, room - 1);
    close(file);
    text[got > 0 ? got : 0] = 0;
    return got > 0 ? (size_t)got : 0;
}

/* "max", or no such file: no limit. */
static size_t read_bytes(const char *folder, const char *name)
{
    char path[PATH_ROOM + 64], text[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (read_file(path, text, sizeof text) == 0 || text[0] < '0' || text[0] > '9') {
        return SIZE_MAX;
    }
    return strtoull(text, NULL, 10);
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t less(size_t a, size_t b)
{
    return b < a ? a - b : 0;
}

/* The number after `key` in a text, 0 if it is not there. */
static size_t number_after(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    return at != NULL ? (size_t)strtoull(at + strlen(key), NULL, 10) : 0;
}

/* What one group leaves. */
static size_t group_left(const struct version *version, const char *folder)
{
    char path[PATH_ROOM + 64], stat[8192];
    size_t limit = SIZE_MAX;
    for (int i = 0; i < 2 && version->limits[i] != NULL; i++) {
        limit = smaller(limit, read_bytes(folder, version->limits[i]));
    }
    if (limit >= SIZE_MAX / 4) { /* version 1 says "no limit" by a huge number */
        return SIZE_MAX;
    }
    size_t used = read_bytes(folder, version->used);
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    (void)read_file(path, stat, sizeof stat);
    return used == SIZE_MAX ? 0 : less(limit, less(used, number_after(stat, version->reclaimable)));
}

/* The path of the process's group, from a line such as "4:memory:/a/b" or "0::/a/b". Empty: the root, or none. */
static void own_path(const char *text, const struct version *version, char *path, size_t room)
{
    path[0] = 0;
    for (const char *line = text; line != NULL && *line != 0;) {
        const char *end = strchr(line, '\n');
        const char *colon = strchr(line, ':'), *second = colon != NULL ? strchr(colon + 1, ':') : NULL;
        if (second != NULL && (end == NULL || second < end) &&
            version->holds(colon + 1, (size_t)(second - colon - 1))) {
            size_t length = end != NULL ? (size_t)(end - second - 1) : strlen(second + 1);
            length = length < room ? length : room - 1;
            memcpy(path, second + 1, length);
            path[length] = 0;
            return;
        }
        line = end != NULL ? end + 1 : NULL;
    }
}

/* The smallest of the group and all above it. */
static size_t groups_left(const struct version *version, const char *root, const char *own)
{
    char folder[PATH_ROOM];
    size_t left = SIZE_MAX;
    int base = snprintf(folder, sizeof folder, "%s%s", root, version->folder);
    snprintf(folder + base, sizeof folder - (size_t)base, "%s", own);
    for (;;) {
        left = smaller(left, group_left(version, folder));
        char *slash = strrchr(folder + base, '/');
        if (slash == NULL) {
            return left;
        }
        *slash = 0; /* in the end the root itself, which is a container's own group when that is all it sees */
    }
}

size_t ov_host_left_in(const char *proc, const char *groups, size_t reserve_bytes, const char **limit)
{
    char path[PATH_ROOM], text[PATH_ROOM], own[PATH_ROOM / 2];
    const char *name = "the machine's available memory";
    snprintf(path, sizeof path, "%s/meminfo", proc);
    size_t left = read_file(path, text, sizeof text) > 0 && strstr(text, "MemAvailable:") != NULL
                      ? number_after(text, "MemAvailable:") << 10
                      : SIZE_MAX;
    snprintf(path, sizeof path, "%s/self/cgroup", proc);
    (void)read_file(path, text, sizeof text);
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        own_path(text, &versions[i], own, sizeof own);
        size_t mine = groups_left(&versions[i], groups, own);
        if (mine < left) {
            left = mine;
            name = versions[i].name;
        }
    }
    if (limit != NULL) {
        *limit = name;
    }
    if (left == SIZE_MAX) {
        return left;
    }
    return left > 2 * reserve_bytes ? left - reserve_bytes : left / 2;
}

size_t ov_host_left(size_t reserve_bytes, const char **limit)
{
    return ov_host_left_in("/proc", "/sys/fs/cgroup", reserve_bytes, limit);
}
