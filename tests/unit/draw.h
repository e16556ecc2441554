/* draw.h - for tests that try many cases: numbers that are the same in every run, and a cheap check. */
#ifndef DRAW_H
#define DRAW_H

#include <check.h>
#include <stdint.h>

/* As ck_assert, which tells the runner of every check that holds: too much in loops of many thousands. */
#define CHECK(condition)                                       \
    do {                                                       \
        if (!(condition)) {                                    \
            ck_abort_msg("line %d: %s", __LINE__, #condition); \
        }                                                      \
    } while (0)

/* A test sets it, to anything but 0. */
static uint64_t seed;

/* 0 .. n-1 */
static uint32_t below(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)((seed >> 20) % n);
}

#endif
