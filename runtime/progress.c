#include "progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "engine.h"

#define PATIENCE_NS 2000000000u
#define AGAIN_NS    200000000u

static void show(const char *text)
{
    ssize_t written = write(STDERR_FILENO, text, strlen(text));
    (void)written; /* nobody to tell */
}

void ov_progress_begin(struct ov_progress *progress, const char *what, size_t total_bytes)
{
    *progress = (struct ov_progress){.what = what, .total_bytes = total_bytes, .begun_ns = ov_now_ns()};
    progress->terminal = ov_opt.log_file[0] == 0 && isatty(STDERR_FILENO) == 1;
}

bool ov_progress_line(const struct ov_progress *progress, uint64_t elapsed_ns, char *text, size_t room)
{
    if (elapsed_ns < PATIENCE_NS || progress->done_bytes == 0) {
        return false;
    }
    double rate = (double)progress->done_bytes / (double)elapsed_ns; /* bytes a nanosecond: GB/s */
    double left_s = (double)(progress->total_bytes - progress->done_bytes) / rate * 1e-9;
    snprintf(text, room, "overshot: %s: %.1f of %.1f GB, %.1f GB/s, %.0f s left", progress->what,
             (double)progress->done_bytes * 1e-9, (double)progress->total_bytes * 1e-9, rate, left_s);
    return true;
}

void ov_progress_step(struct ov_progress *progress, size_t bytes)
{
    char line[160], text[176];
    progress->done_bytes += bytes;
    progress->done_bytes = progress->done_bytes < progress->total_bytes ? progress->done_bytes : progress->total_bytes;
    uint64_t now = progress->terminal ? ov_now_ns() : 0;
    if (progress->terminal && now - progress->shown_ns >= AGAIN_NS &&
        ov_progress_line(progress, now - progress->begun_ns, line, sizeof line)) {
        snprintf(text, sizeof text, "\r%s\033[K", line);
        show(text);
        progress->shown = true;
        progress->shown_ns = now;
    }
}

double ov_progress_end(struct ov_progress *progress)
{
    if (progress->shown) {
        show("\r\033[K");
    }
    return (double)(ov_now_ns() - progress->begun_ns) * 1e-9;
}
