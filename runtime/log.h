/*
 * log.h - lines for the user, on standard error or in OVERSHOT_LOG_FILE.
 *
 * A line is "overshot: " and the message. It is formatted into a buffer on the stack and leaves in one write(2), so
 * that lines of several threads and processes do not mix; a message that does not fit is cut and ends in "...".
 * Newlines in a message start further lines with the same prefix. Nothing here allocates or takes a lock, errno is
 * kept, and logging works from the first instruction of the process on, at level warn, until ov_log_open() says
 * otherwise. It does not belong into the launch path.
 *
 * Who decides an error logs it, once; callers pass the code up in silence.
 */
#ifndef OV_LOG_H
#define OV_LOG_H

#include <stdatomic.h>
#include <stdbool.h>

/* ALWAYS: what the user asked for by an option of its own. */
enum ov_log_level { OV_LOG_ALWAYS = -1, OV_LOG_ERROR, OV_LOG_WARN, OV_LOG_INFO, OV_LOG_DEBUG };

/* Sets the level, and the file that lines are appended to (NULL or "": standard error). A file that cannot be opened is
 * reported on standard error, which then stays in use; returns false. May be called again; not from two threads at
 * once. */
bool ov_log_open(enum ov_log_level level, const char *path);

/* Whether a line of this level would be written: for messages whose arguments are dear. */
bool ov_log_enabled(enum ov_log_level level);

void ov_log(enum ov_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Logs the first time that this place is reached, and never again. */
#define ov_log_once(level, ...)                                                     \
    do {                                                                            \
        static atomic_flag ov_logged = ATOMIC_FLAG_INIT;                            \
        if (!atomic_flag_test_and_set_explicit(&ov_logged, memory_order_relaxed)) { \
            ov_log((level), __VA_ARGS__);                                           \
        }                                                                           \
    } while (0)

#endif
