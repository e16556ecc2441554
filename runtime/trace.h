/*
 * trace.h - the sequence of touches, and what comes next.
 *
 * A touch is a launch whose parameters hold an address inside a streamed unit; units are numbers below unit_count. The
 * predictor replays history: it remembers the last 2^k touches (a touch of the unit touched just before is dropped),
 * finds the place in them where the same touches happened before, and says that what followed there follows now. It has
 * no notion of a cycle, so several cycles, alternation and nesting (encoder once, denoiser fifty times, decoder once)
 * need nothing special; whatever repeats within the history is predicted.
 *
 *     history   ... a b c d e a b c          positions count from 1 and never wrap; a slot is position & mask
 *                       ^here   ^newest = head - 1
 *     next      history[here + 1] = d, and beyond the newest touch the part (here, newest] repeats: d e a b c d e ...
 *
 * While touches come as predicted, `here` moves along: a comparison and a few stores. At a jump the earlier touches of
 * the same unit are followed back (each entry knows the distance to the previous one) and the one with the longest
 * common context of up to four touches wins, the most recent among equals: a longer one would prefer old passes to new
 * ones. A unit never touched before leaves the future unknown. One surprise costs up to four jumps: itself, the return,
 * and one in each of the next two passes, until what is replayed is a pass without it.
 *
 * Ownership: ov_trace_init allocates everything, nothing is allocated later. Locks: none in here; whoever owns the
 * trace calls all functions under its own lock. Errors: only init can fail, when memory runs out. No CUDA, no I/O.
 */
#ifndef OV_TRACE_H
#define OV_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OV_TRACE_NONE UINT32_MAX /* no unit: not known */

struct ov_trace_entry {
    uint32_t unit;
    uint32_t back; /* distance to the previous touch of the same unit, 0: none that is remembered */
};

/* Complete so that it can be embedded; all but the two counters is private. */
struct ov_trace {
    struct ov_trace_entry *history;
    uint64_t *last; /* per unit: position of its newest touch, 0: never */
    uint64_t mask;  /* slots - 1 */
    uint64_t head;  /* position of the next touch */
    uint64_t here;  /* position that corresponds to head - 1; head: unknown */
    size_t unit_count;
    uint64_t touches; /* without repeated ones, without preloaded ones */
    uint64_t jumps;   /* of them, those that came unpredicted */
};

enum ov_trace_step {
    OV_TRACE_SAME,     /* the unit touched just before: dropped */
    OV_TRACE_EXPECTED, /* what ov_trace_peek(trace, 1) said */
    OV_TRACE_JUMP,     /* anything else */
};

/* The history holds 2^log2_history touches (4 to 30), and so the longest period that can be predicted is one less.
 * 0: chosen from unit_count. False: memory ran out; nothing to destroy then. */
bool ov_trace_init(struct ov_trace *trace, size_t unit_count, unsigned log2_history);
void ov_trace_destroy(struct ov_trace *trace);

/* unit < unit_count. Constant time as long as touches are expected; a jump looks at a bounded number of places. */
enum ov_trace_step ov_trace_touch(struct ov_trace *trace, uint32_t unit);

/* The unit that will be touched `ahead` touches from now (1: next), OV_TRACE_NONE when not known. Constant time. It is
 * known at every distance or at none, and consecutive answers differ. */
uint32_t ov_trace_peek(const struct ov_trace *trace, size_t ahead);

/* Touches after which the prediction repeats itself, 0: not known. */
size_t ov_trace_period(const struct ov_trace *trace);

/* Forgets all touches and takes these n units for what happened (n may exceed the history: its end counts). If the last
 * three touches do not occur earlier in seq, it is taken for one whole cycle: its start is what is expected next. The
 * counters restart at 0. */
void ov_trace_preload(struct ov_trace *trace, const uint32_t *seq, size_t n);

/* Forgets all touches; the same as a preload of nothing. */
void ov_trace_reset(struct ov_trace *trace);

/* Pure functions on sequences. */

/* Drops consecutive duplicates in place; returns the new length. */
size_t ov_compress(uint32_t *seq, size_t n);

/* Length of the longest tail of seq that repeats with `period` (>= 1), at most n. */
size_t ov_period_tail(const uint32_t *seq, size_t n, size_t period);

/* The period of the end of seq: among all p whose tail is at least min_repeats * p long (min_repeats below 2 counts as
 * 2) the one with the longest tail, and of those the smallest. 0: none, or memory ran out. O(n). The longest tail and
 * not simply the smallest p, since a cycle may itself hold repeats: in "a a b a a b a a" the end has period 1, but
 * period 3 explains all of it. Whether the tail is long enough to be believed is the caller's question. */
size_t ov_find_period(const uint32_t *seq, size_t n, size_t min_repeats);

#endif
