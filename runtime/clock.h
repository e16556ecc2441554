/* clock.h - the time for measuring how long something takes: nanoseconds since some moment, never set back. */
#ifndef OV_CLOCK_H
#define OV_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t ov_now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

#endif
