/*
 * hostlimit.h - how much host memory may still be taken: what the machine has available, and what the control groups
 * that the process is in leave, versions 1 and 2, from its own up to the root. Memory of files that the kernel would
 * give up counts as available. Reads /proc and /sys; no allocation; thread-safe.
 *
 * RLIMIT_MEMLOCK is not among the limits: drivers pin memory without counting it against that. It is named when pinning
 * fails all the same.
 */
#ifndef OV_HOSTLIMIT_H
#define OV_HOSTLIMIT_H

#include <stddef.h>

/* Bytes that may be taken now so that `reserve_bytes` stay free, or half of what there is, if that is more; SIZE_MAX
 * when nothing could be read. *limit (NULL: not wanted) says what sets it, in words. */
size_t ov_host_left(size_t reserve_bytes, const char **limit);

/* The same on other files: proc for /proc, groups for /sys/fs/cgroup. For tests. */
size_t ov_host_left_in(const char *proc, const char *groups, size_t reserve_bytes, const char **limit);

#endif
