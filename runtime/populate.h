/*
 * populate.h - gives ranges of fresh anonymous memory their physical pages, with several threads.
 *
 * The kernel zeroes a page when it is touched first, at 4 to 7 GB/s a thread, which is less than everything else that
 * pinning takes. So a team of threads works through a list of ranges, slice by slice, in order, while the caller waits
 * for the first range, registers it, waits for the second, and so on.
 *
 * The threads make no call of the driver, take no signal of the program's, and run on the processors of the wanted NUMA
 * node where the process may. They end when the list is done; a program that forks meanwhile has none of them in the
 * child. Without any thread (none can be made) the caller does the work while it waits.
 */
#ifndef OV_POPULATE_H
#define OV_POPULATE_H

#include <stdbool.h>
#include <stddef.h>

struct ov_populate_range {
    char *begin;
    size_t bytes;
};

struct ov_populate;

/* Starts on the ranges, which are copied. threads 0: as many as are of use here. node -1: any. NULL: no memory. */
struct ov_populate *ov_populate_start(const struct ov_populate_range *range, size_t count, unsigned threads, int node);
/* Waits until range `index` is done. False: the system has no memory for it. */
bool ov_populate_wait(struct ov_populate *team, size_t index);
/* Stops after the slices that are being worked on, joins the threads, frees the team. */
void ov_populate_end(struct ov_populate *team);

/* How many threads are of use: the processors that this process may run on, at most 8. */
unsigned ov_populate_threads(void);

#endif
