#include "trace.h"

#include <stdlib.h>

/* A jump looks at this many earlier touches of the unit, and compares this many touches before each. */
#define CANDIDATES 64u
#define CONTEXT    4u
/* So much common context is believed in a preload, where the alternative is that seq is one whole cycle. */
#define CONTEXT_SURE 3u

#define LOG2_LEAST   4u
#define LOG2_MOST    30u
#define LOG2_AUTO    12u
#define LOG2_AUTO_UP 18u
#define AUTO_TOUCHES 64u /* per unit */

static unsigned choose_log2(size_t unit_count, unsigned log2_history)
{
    if (log2_history != 0) {
        return log2_history < LOG2_LEAST ? LOG2_LEAST : log2_history > LOG2_MOST ? LOG2_MOST : log2_history;
    }
    log2_history = LOG2_AUTO;
    while (log2_history < LOG2_AUTO_UP && ((size_t)1 << log2_history) / AUTO_TOUCHES < unit_count) {
        log2_history++;
    }
    return log2_history;
}

bool ov_trace_init(struct ov_trace *trace, size_t unit_count, unsigned log2_history)
{
    const size_t slots = (size_t)1 << choose_log2(unit_count, log2_history);
    struct ov_trace_entry *history = calloc(slots, sizeof(*history));
    uint64_t *last = calloc(unit_count > 0 ? unit_count : 1, sizeof(*last));

    if (!history || !last) {
        free(history);
        free(last);
        return false;
    }
    *trace = (struct ov_trace){.history = history, .last = last, .mask = slots - 1, .unit_count = unit_count};
    ov_trace_reset(trace);
    return true;
}

void ov_trace_destroy(struct ov_trace *trace)
{
    free(trace->history);
    free(trace->last);
    *trace = (struct ov_trace){0};
}

/* Position 0 is a unit that nobody touches, so that "the unit before" and "the cycle before" exist from the start. */
void ov_trace_reset(struct ov_trace *trace)
{
    for (size_t i = 0; i < trace->unit_count; i++) {
        trace->last[i] = 0;
    }
    trace->history[0] = (struct ov_trace_entry){OV_TRACE_NONE, 0};
    trace->head = 1;
    trace->here = 1;
    trace->touches = 0;
    trace->jumps = 0;
}

static void push(struct ov_trace *trace, uint32_t unit)
{
    const uint64_t head = trace->head;
    const uint64_t last = trace->last[unit];
    const uint32_t back = last != 0 && head - last <= trace->mask ? (uint32_t)(head - last) : 0;

    trace->history[head & trace->mask] = (struct ov_trace_entry){unit, back};
    trace->last[unit] = head;
    trace->head = head + 1;
}

/* Touches that two positions have in common, looking back, themselves included. Both hold the same unit; a < b. */
static unsigned common(const struct ov_trace *trace, uint64_t a, uint64_t b)
{
    const uint64_t oldest = trace->head > trace->mask + 1 ? trace->head - trace->mask - 1 : 1;
    unsigned length = 1;

    while (length < CONTEXT && a - oldest >= length &&
           trace->history[(a - length) & trace->mask].unit == trace->history[(b - length) & trace->mask].unit) {
        length++;
    }
    return length;
}

/* Points `here` at the earlier touch that looks most like the newest one; returns what they have in common, 0: none. */
static unsigned synchronise(struct ov_trace *trace)
{
    const uint64_t newest = trace->head - 1;
    uint64_t at = newest;
    unsigned best = 0;

    trace->here = trace->head;
    for (unsigned i = 0; i < CANDIDATES && best < CONTEXT; i++) {
        const uint32_t back = trace->history[at & trace->mask].back;
        /* The distance back may lead to a touch that has been overwritten since. */
        if (back == 0 || newest - at + back > trace->mask) {
            break;
        }
        at -= back;
        const unsigned length = common(trace, at, newest);
        if (length > best) {
            best = length;
            trace->here = at;
        }
    }
    return best;
}

enum ov_trace_step ov_trace_touch(struct ov_trace *trace, uint32_t unit)
{
    const struct ov_trace_entry *history = trace->history;
    const uint64_t mask = trace->mask, head = trace->head, next = trace->here + 1;

    if (history[(head - 1) & mask].unit == unit) {
        return OV_TRACE_SAME;
    }
    trace->touches++;
    const bool expected = next < head && history[next & mask].unit == unit;
    push(trace, unit);
    if (expected) {
        trace->here = next;
        return OV_TRACE_EXPECTED;
    }
    trace->jumps++;
    synchronise(trace);
    return OV_TRACE_JUMP;
}

size_t ov_trace_period(const struct ov_trace *trace)
{
    return trace->here + 1 < trace->head ? (size_t)(trace->head - 1 - trace->here) : 0;
}

uint32_t ov_trace_peek(const struct ov_trace *trace, size_t ahead)
{
    const size_t period = ov_trace_period(trace);

    if (period == 0 || ahead == 0) {
        return OV_TRACE_NONE;
    }
    if (ahead > period) {
        ahead = (ahead - 1) % period + 1;
    }
    return trace->history[(trace->here + ahead) & trace->mask].unit;
}

void ov_trace_preload(struct ov_trace *trace, const uint32_t *seq, size_t n)
{
    const size_t slots = (size_t)trace->mask + 1;

    ov_trace_reset(trace);
    for (size_t i = 0; i < n; i++) {
        if (trace->history[(trace->head - 1) & trace->mask].unit != seq[i]) {
            push(trace, seq[i]);
        }
    }
    const uint64_t head = trace->head;
    if (head < 3 || synchronise(trace) >= CONTEXT_SURE || head > slots) {
        return;
    }
    /* One whole cycle. When it ends with the unit it starts with, the two are one touch of the cycle that goes round.
     */
    const bool joined = trace->history[1].unit == trace->history[head - 1].unit;
    trace->here = joined ? 1 : 0;
}

size_t ov_compress(uint32_t *seq, size_t n)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        if (kept == 0 || seq[kept - 1] != seq[i]) {
            seq[kept++] = seq[i];
        }
    }
    return kept;
}

size_t ov_period_tail(const uint32_t *seq, size_t n, size_t period)
{
    size_t tail = period < n ? period : n;

    while (tail < n && seq[n - 1 - tail] == seq[n - 1 - tail + period]) {
        tail++;
    }
    return tail;
}

/* The tail of period p is p longer than what the reversed sequence has in common with itself from p on: the classical
 * Z function, each value of which starts from an earlier one where a known match [left, right) covers it. */
size_t ov_find_period(const uint32_t *seq, size_t n, size_t min_repeats)
{
    const size_t repeats = min_repeats < 2 ? 2 : min_repeats;
    const size_t longest = n / repeats;
    size_t left = 0, right = 0, best = 0, best_tail = 0;

    if (longest == 0) {
        return 0;
    }
    size_t *match = malloc((longest + 1) * sizeof(*match));
    if (!match) {
        return 0;
    }
    for (size_t p = 1; p <= longest; p++) {
        size_t length = 0;
        if (p < right) {
            length = match[p - left];
            length = length < right - p ? length : right - p;
        }
        while (p + length < n && seq[n - 1 - length] == seq[n - 1 - p - length]) {
            length++;
        }
        match[p] = length;
        if (p + length > right) {
            left = p;
            right = p + length;
        }
        if (p + length >= repeats * p && p + length > best_tail) {
            best = p;
            best_tail = p + length;
        }
    }
    free(match);
    return best;
}
