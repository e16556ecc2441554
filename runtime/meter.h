/*
 * meter.h - times: of the link, when the first plan is made; and for the summary, how fast copies to the ring are and
 * how long streams waited for them.
 *
 * In steady state only some copies are timed, since an event that takes the time holds up the copies behind it; of each
 * unit's load, only the first wait; and without OVERSHOT_SUMMARY nothing, but copies while passes are timed. With
 * OVERSHOT_TIMING all copies and waits are timed, by the timetable (timetable.h), and the summary's figures come from
 * there. Events come from the ring's pool `timed`, results go to its counts. A failure of the driver loses a figure and
 * nothing else. Guarded by the engine's lock.
 */
#ifndef OV_METER_H
#define OV_METER_H

#include <stdbool.h>
#include <stddef.h>

#include "driver.h"

struct ov_engine;
struct ov_ring;
struct ov_unit;

struct ov_meter {
    CUevent begin, end;
    size_t bytes;             /* of the copy under way, 0: none */
    bool wanted;              /* also without OVERSHOT_SUMMARY: while passes are timed (profiler.h) */
    double alone_s, beside_s; /* what the copies timed since then would have taken on an idle device, and took ... */
    unsigned copies;          /* ... and how many there were */
};

/* Before a unit's copy to the ring; true: ov_meter_end after it. */
bool ov_meter_begin(struct ov_ring *ring, struct ov_unit *unit);
void ov_meter_end(struct ov_ring *ring, struct ov_unit *unit);

/* Before a stream waits for the unit's copy; true: ov_meter_wait_end when it has been told to. */
bool ov_meter_wait_begin(struct ov_ring *ring, struct ov_unit *unit, CUstream stream);
void ov_meter_wait_end(struct ov_unit *unit, CUstream stream);
/* Counts how long that took; when the unit is about to be loaded again. */
void ov_meter_account(struct ov_ring *ring, struct ov_unit *unit);

/* From now on copies are timed for ov_meter_share. */
void ov_meter_start(struct ov_ring *ring);
/* And no longer. How fast they were beside the program's kernels, as a share of what the link gives alone; at most 1,
 * and 1 if there were too few to tell, as when a program soon goes over to graphs. */
double ov_meter_share(struct ov_ring *ring);

/* Sets ring->rate and ring->link_bytes_per_s, the best of them, if they are not known yet: the link as copies from
 * masters see it, by the size of the copy, in powers of two up to the largest streamed unit and 64 MiB, and that unit's
 * own. Each size again and again, one copy queued behind the other and waiting for events as in steady state; the
 * first, before the clock starts, hides that the host needs time to queue them. Best of two. In an exclusive section.
 */
void ov_meter_link(struct ov_engine *engine);

#endif
