/*
 * density.h - how much of a unit its readers read, told by how long they take.
 *
 * To read all of a unit takes at least its bytes over the rate of what stands behind it: the link's, or the device
 * memory's. A launch that is over much sooner has read a part: rows of an embedding, some experts of a stack. Such a
 * unit is best left in host memory and read in place, since streaming would copy all of it.
 *
 * Units that are touched by what is not logged (OV_MARKS_UNSEEN) do not count as read in part, whatever was timed.
 *
 * Time only bounds what was read: a launch that takes long for another reason counts as one that reads everything. And
 * all that follows from a wrong answer is a wrong tier, which costs time. What is measured:
 *
 * - In discovery: launches that touch large allocations; the times go to the log (learn.h). From it each study says
 *   what *share* of a unit its launches read in a cycle. What was timed in host memory says what reading in place
 *   costs. What was timed on the device only proves that not all was read, so:
 * - After a plan: the first launches that touch a unit which the plan left in host memory for this reason. If they
 *   take too long the unit is *refuted*: there is another plan soon, and it never counts as read in part again, so
 *   a unit changes its tier twice at most.
 * - Now and then: the same again, after twice as many quiet points each time: programs change.
 *
 * Guarded by the engine's lock. The events belong to the engine's context.
 */
#ifndef OV_DENSITY_H
#define OV_DENSITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"

/* Smaller units are streamed as fast as they are looked at. */
#define OV_DENSITY_PAGES 4u

/* Launches that may be timed at once. */
#define OV_DENSITY_ROOM 256u

struct ov_engine;
struct ov_launch;
struct ov_log_entry;
struct ov_runs;

/* A launch that is timed, from the moment it begins until its time was asked for. */
struct ov_timing {
    CUevent begin, end;
    uint64_t place;   /* of its first entry in the log; */
    uint32_t entries; /* how many it has there */
    uint32_t unit;    /* 1 + the unit that is put to the test, 0: none; */
    unsigned plan;    /* of that plan */
    bool ended, dropped;
};

struct ov_density {
    struct ov_timing *timing;    /* a queue */
    uint32_t first, count, room; /* room: how many have their events */
    uint32_t tests;              /* units that are put to the test */
    uint32_t met;                /* graphs that use them */
    uint32_t quiet, wait;        /* quiet points since the last tests began; how many until the next */
    double device_bytes_per_s;   /* at most; 0: not known */
    double link_bytes_per_s;     /* of copies of single pages, as long as nothing was streamed; 0: not known */
};

/* Makes the events. Without them nothing is timed and every unit counts as read whole. */
void ov_density_open(struct ov_engine *engine);
void ov_density_close(struct ov_engine *engine);

/* Right before and after the launch. place, entries: what was logged of it; unit: 1 + the unit of this launch that is
 * put to the test, 0: none. Sets launch->timing when the launch is timed. */
void ov_density_begin(struct ov_engine *engine, struct ov_launch *launch, uint64_t place, uint32_t entries,
                      uint32_t unit);
void ov_density_end(struct ov_engine *engine, struct ov_launch *launch);
/* The unit that an address belongs to, whatever its tier, as 1 + index; 0: none. */
uint32_t ov_density_unit(const struct ov_engine *engine, uint64_t address);

/* Asks for the times of launches that are over. Not while somebody captures. */
void ov_density_collect(struct ov_engine *engine);
/* Pages have moved: what launches took that touched a run of them before says nothing any more. */
void ov_density_moved(struct ov_engine *engine, uint32_t first, uint32_t pages);
/* What was read of the log: `count` entries, their places, and 1 + the run of each, 0: none; `cycles` is how many
 * cycles they cover. */
struct ov_density_log {
    const struct ov_log_entry *entry;
    const uint64_t *place;
    const uint32_t *run;
    size_t count;
    double cycles;
};
/* Sets share and sparse of all runs. */
void ov_density_judge(struct ov_engine *engine, struct ov_runs *runs, const struct ov_density_log *log);
/* After a plan was brought about: units that are host-mapped because they are read in part are put to the test; */
void ov_density_test(struct ov_engine *engine);
/* when a graph comes up that uses an address in one of them (true), at the first such graph and whenever their number
 * has doubled; it is replayed as long as the test lasts; */
bool ov_density_meet(struct ov_engine *engine, uint64_t address);
/* at a quiet point: they are again if it is time. */
void ov_density_quiet(struct ov_engine *engine);
/* Says in engine->last_plan what is host-mapped because it is read in part. */
void ov_density_sum_up(struct ov_engine *engine);

#endif
