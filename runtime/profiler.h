/*
 * profiler.h - how long the program computes from one touch of the cycle to the next.
 *
 * After a plan was brought about, launches are followed through the cycle that was learned (learn.h), those on resident
 * and host-mapped units, too. An *interval* is what lies between two touches: it begins when the launch has what it
 * waits for, and ends where the next one begins to wait. So copies are not in it, whatever the plan, but what they take
 * of the device's memory bandwidth meanwhile, and the pauses that the program makes itself.
 *
 *     ... wait | interval i: launches of the touch, and others | wait | interval i + 1 ...
 *           from                                               to   from
 *
 * Both ends are events that take the time, recorded on the launch's stream; where there is nothing to wait for, one is
 * both. A launch that touches several units at once waits for all of them: all its intervals but the last are empty. An
 * interval that begins on one stream and ends on another, or has a trial in it, tells nothing and is left out.
 *
 * A *slot* holds the samples of one pass through the cycle. A touch that is not the next one drops the pass that is
 * under way, and the cycle's first touch begins another. When that happens too often the program has no such cycle, and
 * profiling ends without a result. Samples are read at quiet points, when their events are over; nobody waits for them.
 *
 *   off > seeking > following > done > off
 *
 * What comes of it is judged in timing.h. Guarded by the engine's lock; memory and events are made when profiling
 * begins, in an exclusive section, and given back at the quiet point at which it ends. The events belong to the
 * engine's context.
 */
#ifndef OV_PROFILER_H
#define OV_PROFILER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"
#include "scan.h"

/* Longer cycles are not timed: an interval has up to two events. */
#define OV_PROFILER_EVENTS 16384u
/* And passes, at most (options.def). */
#define OV_PROFILER_PASSES 16u

enum ov_profiler_phase {
    OV_PROFILER_OFF,
    OV_PROFILER_SEEKING,   /* the beginning of the cycle */
    OV_PROFILER_FOLLOWING, /* in the cycle */
    OV_PROFILER_DONE,      /* the samples that there are will be all: enough, or it was given up */
};

struct ov_sample {
    CUevent from, to; /* NULL: empty, or left out */
    bool empty;
};

struct ov_profiler {
    enum ov_profiler_phase phase;
    uint32_t *cycle; /* as it was learned */
    uint32_t length;
    unsigned plan;    /* and under which plan */
    uint64_t studied; /* and from what */
    /* Where the program is. */
    uint32_t at;   /* entry of the cycle, when following */
    uint32_t last; /* 1 + unit that was touched last, 0: none */
    CUstream stream;
    uint32_t step[OV_TOUCHES]; /* of the launch under way: the touches that it brings */
    uint32_t steps;
    uint64_t waits; /* of the ring, when the launch began */
    CUevent ended;  /* the end of the interval before */
    /* Passes. */
    uint32_t slots, slot;     /* slot: being filled; those from `oldest` on are waited for */
    uint32_t oldest, full;    /* full: how many of them */
    struct ov_sample *sample; /* slots x length */
    CUevent *event;           /* slots x events_per_slot */
    uint32_t events_per_slot, used;
    uint32_t wanted, passes; /* passes that are to be timed, and that were */
    float *seconds;          /* wanted x length; negative: not known */
    uint32_t surprises;
    uint64_t sought; /* touches while seeking */
};

struct ov_engine;
struct ov_launch;

/* Begins, if it is wanted and there is a cycle that can be timed; else ends. In an exclusive section. */
void ov_profiler_begin(struct ov_engine *engine, bool wanted);
/* Ends, and gives back what it holds. */
void ov_profiler_end(struct ov_engine *engine);
void ov_profiler_close(struct ov_engine *engine);
static inline bool ov_profiler_on(const struct ov_profiler *profiler)
{
    return profiler->phase == OV_PROFILER_SEEKING || profiler->phase == OV_PROFILER_FOLLOWING;
}

/* Around what the launch waits for: before its units are acquired, and after they were. Only if ov_profiler_on. */
void ov_profiler_arrive(struct ov_engine *engine, const struct ov_launch *launch, const struct ov_touches *touches);
void ov_profiler_depart(struct ov_engine *engine, const struct ov_launch *launch);

/* At a quiet point: reads the samples that are over. True: all there will be are read, and `seconds` holds `passes` of
 * them; ov_profiler_end follows. */
bool ov_profiler_collect(struct ov_engine *engine);

#endif
