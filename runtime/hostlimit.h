/*
 * hostlimit.h - how much host memory may be pinned: what the machine has available, and what the process's control
 * group and limits leave, less a margin for the program itself. Reads /proc and /sys; no allocation; thread-safe.
 */
#ifndef OV_HOSTLIMIT_H
#define OV_HOSTLIMIT_H

#include <stddef.h>

/* Bytes; SIZE_MAX when nothing could be read. */
size_t ov_host_limit(void);

#endif
