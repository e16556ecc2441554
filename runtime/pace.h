/*
 * pace.h - whether passes still take what they took when they were timed (profiler.h).
 *
 * Two streamed units that a pass touches once, one early and one late, are watched: an event is recorded where a launch
 * has waited for the first, and one where a launch has waited for the second. What is between them is part of the pass
 * and not the pause after it, so a program that waits for its user looks the same as ever. When it takes more than
 * PACE_OFF longer or shorter than expected, PACE_ROW times in a row and always in the same direction, passes are timed
 * anew. Passes of two kinds that take turns do not come to that.
 *
 * A host that is late makes passes longer, and no plan helps against it: a pass does not count when the stream has
 * nothing left to do where the second unit is waited for.
 *
 * A graph that turns the ring is watched as a whole: of every PACE_EVERY launches one has an event before it and one
 * after it on its stream. A prediction is of passes, and a graph may be a piece of one, or bring in what others need;
 * so what is expected is what the first of them took, the one in the middle of PACE_ROW. Of graphs that take turns the
 * one with the most copies is watched. Graphs that read the same units in the same order count as one: a program that
 * makes its graph anew for each pass, and one that goes over to the graph of a larger batch.
 *
 * Each time that passes are timed anew doubles the number of passes until it can happen again, whether something came
 * of it or not: a program that changes its ways all the time has a plan that lasts. And if passes computed what they
 * did before, the expectation was wrong, and what is seen takes its place.
 *
 * Costs nothing where a launch waits for no copy; at the two units, an event and once a query; where a graph is
 * launched, a count. Guarded by the engine's lock. The events belong to the engine's context.
 */
#ifndef OV_PACE_H
#define OV_PACE_H

#include <stdbool.h>
#include <stdint.h>

#include "driver.h"

/* Of a unit (ring.h): which end of what is watched it is. */
enum ov_paced { OV_PACED_NOT, OV_PACED_BEGIN, OV_PACED_END };

/* How often in a row a span may be off; the graph's first spans that tell what to expect. */
#define PACE_ROW 3u
/* An odd number: of two kinds of launches that take turns both are seen. */
#define PACE_EVERY 7u

struct ov_paced_span {
    double expected_s;        /* 0: it is not watched, or not known yet */
    double seen_s;            /* the last one that counted */
    unsigned longer, shorter; /* spans in a row that were too long, too short */
};

struct ov_paced_graph {
    struct ov_paced_span span;
    CUevent begin, end;
    bool full;         /* both were recorded, and not read yet */
    uint64_t kind;     /* what it is made of (graph_turn.c), 0: none was launched yet */
    uint32_t copies;   /* in it */
    uint32_t launches; /* since the last one that was watched */
    uint32_t others;   /* launches of others since its own */
    double first_s[PACE_ROW];
    unsigned firsts;
};

struct ov_pace {
    struct {
        CUevent begin, end;
        bool begun, full;
    } pair[2];
    unsigned now;               /* the pair in use; the other one may be full */
    struct ov_paced_span eager; /* between the two units */
    bool graphs;                /* are watched, too: */
    struct ov_paced_graph graph;
    uint64_t passes, wait; /* since passes were last timed; how many there have to be */
    bool due;              /* passes are to be timed anew */
};

struct ov_engine;
struct ov_unit;

/* After a plan was brought about, or times were renewed: chooses the units, and what is expected between them. */
void ov_pace_begin(struct ov_engine *engine);
void ov_pace_close(struct ov_engine *engine);
/* A launch on the stream has waited for a unit that is watched. */
void ov_pace_pass(struct ov_pace *pace, const struct ov_unit *unit, CUstream stream);
/* What is between the two is longer this time, and that is known. */
void ov_pace_lose(struct ov_pace *pace);
/* A graph that turns the ring is about to be launched, with so many copies in it. True: ov_pace_graph_ends when it was,
 * or was refused. */
bool ov_pace_graph_begins(struct ov_pace *pace, uint64_t kind, uint32_t copies, CUstream stream);
void ov_pace_graph_ends(struct ov_pace *pace, CUstream stream, bool launched);
/* At a quiet point: whether passes are to be timed anew. If so they are, as far as this is concerned. */
bool ov_pace_is_off(struct ov_pace *pace);
/* They were, and compute what they did before: what is seen is expected from now on. */
void ov_pace_accept(struct ov_pace *pace);

#endif
