/*
 * plan_tiers.h - which tier each unit gets under one choice of limits. Used by plan.c only.
 *
 * A choice says up to which size units are streamed, how large the streamed part of a launch group may be, and how deep
 * the ring should be; ov_plan_assign carries it out and says what the cycle would cost.
 *
 * Ownership: drafts point to places of the caller's; scratch memory is the book's. No allocation, no errors.
 */
#ifndef OV_PLAN_TIERS_H
#define OV_PLAN_TIERS_H

#include "plan_book.h"

struct ov_plan_choice {
    size_t unit_pages;  /* larger units are not streamed */
    size_t group_pages; /* groups of which more would be streamed lose their largest members */
    double depth;       /* of the ring, in largest streamed units */
};

/* What ov_plan_assign leaves: places with tier and reason, and these. */
struct ov_plan_draft {
    struct ov_plan_place *place;
    size_t ring_pages, room_pages; /* the ring, and what is left of the budget */
    size_t largest_pages;          /* the largest streamed unit */
    size_t group_pages;            /* the largest streamed part of a group, or that unit if it is larger */
    double cost;                   /* pages over the link per cycle, in-place reads by weight */
};

void ov_plan_assign(struct ov_plan_book *book, const struct ov_plan_choice *choice, struct ov_plan_draft *draft);
/* A streamed unit that found no place in the ring: resident if there is room, else host-mapped. */
void ov_plan_reject(struct ov_plan_book *book, struct ov_plan_draft *draft, uint32_t unit);
/* Makes resident what fits draft->room_pages: streamed units first, then host-mapped ones. */
void ov_plan_use_room(struct ov_plan_book *book, struct ov_plan_draft *draft);

#endif
