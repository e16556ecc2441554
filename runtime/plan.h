/*
 * plan.h - tier and ring place of every unit. A pure function: no CUDA, no locks, no I/O.
 *
 * In: units and what each may become; the learned cycle; launch groups; a budget in pages. Out: a tier per unit, for
 * streamed units the first of their ring pages, and why.
 *
 * What every plan keeps
 *   - resident_pages + ring_pages <= budget_pages, always.
 *   - A streamed unit lies in contiguous ring pages, at one place for as long as the plan lives.
 *   - Streamed units of one launch group lie at disjoint places: they can be in the ring together.
 *   - A unit has a tier that its flags allow. Where that cannot be (it may only be resident and there is no room), it
 *     is host-mapped with OV_PLAN_NO_ROOM and counted in unplaced_pages; the caller decides what that means.
 *
 * What it aims for
 *   - If all fits, all is resident and there is no ring.
 *   - Fewest pages over the link per cycle, where a page read in place counts OV_PLAN_HOST_WEIGHT times. Several
 *     limits on the size of streamed units are tried, since the largest streamed unit sets the depth of the ring; a
 *     lower limit has to save more than 1 %.
 *   - The ring is as shallow as works: twice the largest streamed unit and at least the largest group plus the largest
 *     unit; deeper, up to four times, when the simulation below says that it makes the cycle more than 1 % shorter;
 *     shallower, down to the largest group alone, when the budget asks for it. A group that the budget cannot hold
 *     loses its largest members to other tiers.
 *   - Units that would be loaded several times a cycle are resident first; else residency is spread evenly over the
 *     cycle.
 *   - Neighbours in the cycle lie at disjoint places, so that one is refilled while the other is read, unless the
 *     simulation finds the cycle shorter otherwise. The ring is filled in order of first use, in one to four segments.
 *   - Units outside the cycle: host-mapped, else resident if there is room, else streamed. Sparse ones the same.
 *
 * Ownership: the input belongs to the caller and is not kept; ov_plan_make allocates plan->place, ov_plan_free frees
 * it. Thread-safety: functions of their arguments. Errors: false only when memory runs out. Time: some milliseconds for
 * 5,000 units.
 */
#ifndef OV_PLAN_H
#define OV_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ov_tier { OV_TIER_RESIDENT, OV_TIER_STREAMED, OV_TIER_HOST };

/* Sets of tiers: 1 << tier. The bits of OVERSHOT_TIERS. */
#define OV_TIER_BIT(tier) (1u << (tier))
#define OV_TIERS_ALL      7u

/* A page of dense reads in place counts as so many pages copied: the reads go over the link once per wave of blocks. */
#define OV_PLAN_HOST_WEIGHT 8

/* Why a unit got its tier. OV_PLAN_REASON(constant, text for reports) */
#define OV_PLAN_REASONS(OV_PLAN_REASON)                                                             \
    OV_PLAN_REASON(OV_PLAN_ALL_FITS, "everything fits the budget")                                  \
    OV_PLAN_REASON(OV_PLAN_ONLY_TIER, "may be nothing else")                                        \
    OV_PLAN_REASON(OV_PLAN_SPREAD, "chosen evenly over the cycle")                                  \
    OV_PLAN_REASON(OV_PLAN_OFTEN, "used several times a cycle")                                     \
    OV_PLAN_REASON(OV_PLAN_LEFT_OVER, "fitted into what was left of the budget")                    \
    OV_PLAN_REASON(OV_PLAN_CYCLE, "used in the cycle, and the budget is spent")                     \
    OV_PLAN_REASON(OV_PLAN_OUTSIDE, "not used in the cycle")                                        \
    OV_PLAN_REASON(OV_PLAN_SPARSE, "read sparsely")                                                 \
    OV_PLAN_REASON(OV_PLAN_UNSTREAMABLE, "may not be streamed")                                     \
    OV_PLAN_REASON(OV_PLAN_LARGE, "would ask for too deep a ring")                                  \
    OV_PLAN_REASON(OV_PLAN_GROUP, "the weights of one launch would not fit the ring together")      \
    OV_PLAN_REASON(OV_PLAN_COLLISION, "no ring place apart from the other weights of its launches") \
    OV_PLAN_REASON(OV_PLAN_NO_ROOM, "may only be on the device, and the budget is spent")

enum ov_plan_reason {
#define OV_PLAN_REASON(constant, text) constant,
    OV_PLAN_REASONS(OV_PLAN_REASON)
#undef OV_PLAN_REASON
        OV_PLAN_REASON_COUNT
};

struct ov_plan_unit {
    uint32_t pages; /* of 2 MiB, >= 1 */
    uint8_t may;    /* set of tiers, OV_TIER_BIT; with 0, or if no room is found, OV_PLAN_NO_ROOM */
    bool sparse;    /* a launch reads few of its bytes: in place costs next to nothing */
};

/* The units of one launch: group_unit[start .. start + length). Groups of one unit say nothing and may be left out;
 * duplicates, in a group or of groups, do no harm. */
struct ov_plan_group {
    uint32_t start, length;
};

struct ov_plan_input {
    const struct ov_plan_unit *unit;
    size_t unit_count;     /* < UINT32_MAX */
    const uint32_t *cycle; /* units in order of use, repeats allowed (not in a row) */
    size_t cycle_length;
    const struct ov_plan_group *group;
    size_t group_count;
    const uint32_t *group_unit;
    size_t budget_pages;       /* for resident units and the ring together */
    size_t ring_request_pages; /* 0: automatic. Raised to what the largest launch needs, lowered to what is of use. */
    unsigned tiers; /* set of tiers. A unit goes to a tier outside it only if no tier inside can hold it; left
                       out, `resident` holds only what may not be streamed. */
    /* For the depth of an automatic ring; see ov_plan_simulate. */
    double link_pages_per_s; /* 0: OV_PLAN_LINK */
    const double *compute_s; /* per element of cycle, or NULL */
};

/* Pages a second of the link when it was not measured: PCIe 5 x16, 55.2 GB/s. */
#define OV_PLAN_LINK 26300.0

struct ov_plan_place {
    uint32_t pages;     /* as in the input */
    uint32_t ring_page; /* first page in the ring, if streamed; else 0 */
    uint8_t tier;       /* enum ov_tier */
    uint8_t reason;     /* enum ov_plan_reason */
    bool sparse;        /* as in the input */
};

struct ov_plan {
    struct ov_plan_place *place; /* one per unit */
    size_t unit_count;
    size_t ring_pages;
    size_t resident_pages, streamed_pages, host_pages; /* sums over units */
    size_t resident_units, streamed_units, host_units;
    size_t cycle_pages;      /* copied per cycle in steady state: pages times loads */
    size_t cycle_host_pages; /* read in place per cycle by dense readers: pages times touches */
    size_t unplaced_pages;   /* of units with OV_PLAN_NO_ROOM */
    double cycle_s;          /* what ov_plan_simulate says */
};

/* False: memory ran out, *out untouched. */
bool ov_plan_make(const struct ov_plan_input *input, struct ov_plan *out);
void ov_plan_free(struct ov_plan *plan);

/* Time of one cycle in steady state, in seconds; negative: memory ran out. One link, one compute stream, both in order
 * of the cycle. A unit that is not in the ring when its touch comes up is loaded; the copy starts when the link is free
 * and the last touches of all units in its pages are over (10 us later if it waited for them). A touch takes
 * compute_s[i], for a host-mapped unit (not sparse) at least pages * OV_PLAN_HOST_WEIGHT / link. compute_s NULL: a 64th
 * of what the unit's copy takes, about the ratio of link to device memory. *cycle_pages (may be NULL) gets the pages
 * copied per cycle. */
double ov_plan_simulate(const struct ov_plan *plan, const uint32_t *cycle, size_t cycle_length, double link_pages_per_s,
                        const double *compute_s, size_t *cycle_pages);

/* True when the places of two streamed units overlap. */
bool ov_plan_overlap(const struct ov_plan *plan, uint32_t a, uint32_t b);

const char *ov_plan_reason_text(enum ov_plan_reason reason);
const char *ov_tier_name(enum ov_tier tier); /* "resident", "streamed", "host" */

#endif
