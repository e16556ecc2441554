/*
 * progress.h - a line on the terminal for work that takes more than two seconds.
 *
 * Only if standard error is a terminal and the log goes there; rewritten in place a few times a second, and removed at
 * the end. One writer; no allocation.
 */
#ifndef OV_PROGRESS_H
#define OV_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ov_progress {
    const char *what;
    size_t total_bytes, done_bytes;
    uint64_t begun_ns, shown_ns;
    bool terminal, shown;
};

void ov_progress_begin(struct ov_progress *progress, const char *what, size_t total_bytes);
void ov_progress_step(struct ov_progress *progress, size_t bytes);
/* Returns the seconds that it took. */
double ov_progress_end(struct ov_progress *progress);

/* The line after `elapsed_ns`; false: it is too early for one. */
bool ov_progress_line(const struct ov_progress *progress, uint64_t elapsed_ns, char *text, size_t room);

#endif
