/*
 * timetable.h - OVERSHOT_TIMING: what the copies, the waits and the computation of the last passes took.
 *
 * Of each touch of a streamed unit the meter (meter.h) records events: around its copy on the side stream, before the
 * stream that touches it waits for that, and after. So a *touch* has three times:
 *
 *   copy     between the events around the copy that this touch was the first to use; 0: it was in the ring
 *   wait     how long the stream stood still for it
 *   compute  from there until the next touch is reached, in whatever stream; also when that is in the next pass
 *
 *     stream   asked |-- wait --| got, kernel ............ | asked |-- wait --| got ...
 *                                |------- compute --------|
 *
 * Used in one stream, waits and computation add up to the time of the pass. What repeats the unit touched just before
 * is the same touch, as for the trace.
 *
 * A graph that turns the ring is one touch, of a row of its own: wait is what it waited for before it began, copy is
 * from its launch to its end, and the copies in it are counted. What happens inside is not seen.
 *
 * A pass begins with the touch of one unit, which is chosen from the plan's cycle because it is touched least often; in
 * programs that only launch graphs, with the graph that began the one before. Of N passes that are over each unit's
 * sums are kept, and those of the pass under way.
 *
 * Touches wait in a queue until their events are over; they are collected at quiet points, and in the launch path only
 * when the queue is more than half full. Nobody waits for the device. When a program runs so far ahead of it that the
 * queue is full, touches are lost until there is room for the next passes as a whole; those that are not whole are left
 * out, which is told.
 *
 * Hushed passes (profiler.h) are not what the program takes, and are left out as well.
 *
 * All memory and events are had when a plan is made; the table of the plan before is kept until the new one has a pass.
 * Without OVERSHOT_TIMING `passes` is 0 and nothing is done. Guarded by the engine's lock.
 */
#ifndef OV_TIMETABLE_H
#define OV_TIMETABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"

struct ov_engine;
struct ov_ring;
struct ov_turn;
struct ov_unit;

/* What a row is about. The last row is for graphs, and has no bytes. */
struct ov_timetable_row {
    uint32_t ordinal; /* of the allocation */
    size_t bytes, offset;
};

/* Sums of a row in a pass. */
struct ov_times {
    float copy_ms, wait_ms, compute_ms;
    uint32_t copies;
};

struct ov_timetable_touch {
    CUevent asked, got; /* before the stream waits, and after */
    CUevent sent, came; /* around the copy; of a graph only came: after it */
    uint32_t row, copies;
    bool waited;     /* got was recorded */
    bool copied;     /* the others were */
    bool gap;        /* touches before it were lost */
    uint64_t begins; /* the number of the pass that begins with it, 0: none does */
};

/* What a reader gets: complete, and its own. */
struct ov_timetable_text {
    struct ov_timetable_row *row;
    struct ov_times *sum;    /* per row, of all passes */
    float *worst_wait_ms;    /* per row */
    struct ov_times *pass;   /* per pass, oldest first: all units together */
    struct ov_times *graphs; /* per pass */
    uint64_t *number;        /* per pass */
    uint32_t rows, passes;
    uint64_t begun, left_out; /* passes, under the plan */
    unsigned plan;
};

struct ov_timetable {
    uint32_t passes, rows; /* passes: 0: off */
    struct ov_timetable_row *row;
    struct ov_times *cell; /* passes + 1 times rows */
    uint64_t *number;      /* of the pass in each of passes + 1 places */
    uint32_t place, kept;  /* of the pass under way; those before it that are whole */
    uint64_t left_out;
    bool open, broken; /* the pass under way: there is one; something of it was lost */
    struct ov_timetable_touch *queue;
    uint32_t room, first, count;
    bool lost;                /* touches, since the newest in the queue */
    uint32_t newest;          /* 1 + row touched last */
    uint32_t anchor, every;   /* the unit that begins a pass, with every so many touches of it */
    uint32_t anchored, turns; /* touches of it, or graphs, in the pass that is being queued */
    uint64_t begun;           /* passes, in the queue */
    const void *began_with;   /* the graph that began it; the table itself: a unit did; NULL: there is none yet */
    struct ov_timetable_text *former; /* of the plan before */
};

/* A plan was brought about: begins anew, in an exclusive section. */
void ov_timetable_begin(struct ov_engine *engine);
void ov_timetable_close(struct ov_ring *ring);

/* For the meter and the ring, when it is on. Around a copy. */
bool ov_timetable_copy_begin(struct ov_ring *ring, struct ov_unit *unit);
void ov_timetable_copy_end(struct ov_ring *ring, struct ov_unit *unit);
/* Before the stream waits for the unit, if it has to; in a hushed pass the touch is lost. True: ov_timetable_got when
 * it has been told to. */
bool ov_timetable_touch(struct ov_ring *ring, uint32_t unit, CUstream stream, bool hushed);
void ov_timetable_got(struct ov_ring *ring, CUstream stream);
/* Before a graph's stream waits for what it needs; when it has been told to; and after its launch. `turn` tells
 * graphs apart. */
void ov_timetable_graph(struct ov_ring *ring, const struct ov_turn *turn, CUstream stream);
void ov_timetable_graph_begins(struct ov_ring *ring, CUstream stream);
void ov_timetable_graph_ends(struct ov_ring *ring, CUstream stream);

/* After ov_timetable_graph_begins: it is launched as in no other pass, and not to be counted. */
void ov_timetable_lose(struct ov_ring *ring);

/* Counts all that is over. At a quiet point. */
void ov_timetable_collect(struct ov_ring *ring);

/* What is known now; NULL: no pass is over, or memory ran out. Makes no CUDA call. */
struct ov_timetable_text *ov_timetable_read(const struct ov_engine *engine);
void ov_timetable_free(struct ov_timetable_text *text);
/* As lines, with the lock not held. */
void ov_timetable_tell(const struct ov_timetable_text *text, int device, void (*line)(void *context, const char *text),
                       void *context);

#endif
