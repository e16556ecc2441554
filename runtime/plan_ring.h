/*
 * plan_ring.h - where in the ring the streamed units of a plan lie. Used by plan.c only.
 *
 * Hard: units of one launch group at disjoint places. Soft: neighbours in the cycle too. The ring is filled in a given
 * order, in equal segments, each at least as long as the largest unit: a unit that does not fit behind its predecessor
 * starts the next segment, so it never lies over it. With one segment the ring is packed tighter, at the price of such
 * overlaps where it wraps. Or it is filled by age, without an order of pages.
 *
 * Ownership: the caller's arrays, filled in here. No allocation, no errors, no state.
 */
#ifndef OV_PLAN_RING_H
#define OV_PLAN_RING_H

#include "plan.h"

/* Neighbours in the cycle that are kept apart from a unit; further ones are not looked at. */
#define OV_PLAN_NEIGHBOURS 8

struct ov_plan_near {
    uint32_t unit[OV_PLAN_NEIGHBOURS];
    uint32_t count;
};

/* Launch groups of two units and more, without duplicates, and for each unit the groups it is in: group g is
 * member[member_start[g] .. member_start[g + 1]), likewise `of` per unit. */
struct ov_plan_groups {
    size_t count;
    uint32_t *member_start, *member;
    uint32_t *of_start, *of;
};

struct ov_plan_ring {
    const struct ov_plan_groups *groups;
    size_t unit_count, ring_pages;
    unsigned segments;     /* ring_pages / segments >= largest streamed unit */
    const uint32_t *order; /* streamed units, each once, in the order in which the ring is to be filled */
    size_t order_count;
    struct ov_plan_near *near;   /* scratch, per unit */
    uint8_t *placed;             /* scratch, per unit; see ov_plan_placed */
    struct ov_plan_place *place; /* pages and tier are read, ring_page is written */
    size_t crowded;              /* out: units that lie over a neighbour */
};

/* Fills ring->near for the units that the plan streams. */
void ov_plan_find_near(struct ov_plan_ring *ring, const uint32_t *cycle, size_t cycle_length);

/* Gives the units in `order` their places. Returns how many got none; ov_plan_placed tells which. */
size_t ov_plan_fill_ring(struct ov_plan_ring *ring);
/* The same by age: each unit, in order of first use, goes where it overwrites what was read longest ago. For that the
 * steps are gone through twice, so that the end of the cycle is what its beginning overwrites. ages->item is scratch,
 * for ring_pages + 2. */
struct ov_plan_age {
    uint32_t page, age; /* from this page on */
};
struct ov_plan_ages {
    struct ov_plan_age *item;
    size_t count, room, pages;
};
struct ov_plan_sim;
size_t ov_plan_fill_ring_by_age(struct ov_plan_ring *ring, struct ov_plan_sim *sim, struct ov_plan_ages *ages);
bool ov_plan_placed(const struct ov_plan_ring *ring, uint32_t unit);

/* Pages of the ring that are of use: the largest end of the place of a unit that is still streamed. */
size_t ov_plan_ring_extent(const struct ov_plan_ring *ring);

#endif
