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

/* Which candidates become resident. */
enum ov_plan_rule {
    OV_PLAN_BY_BYTES, /* evenly over the bytes of the cycle */
    OV_PLAN_BY_TIME,  /* evenly over its computation, so that each copy has as much time as the others */
    OV_PLAN_BY_VALUE, /* those that save most copying for their size */
    OV_PLAN_BY_SIZE,  /* the largest, so that a shallow ring will do; of one size evenly */
    OV_PLAN_BY_ORDER, /* those used first */
    OV_PLAN_BY_COUNT, /* all but every nth */
};

struct ov_plan_choice {
    size_t unit_pages;  /* larger units are not streamed */
    size_t group_pages; /* groups of which more would be streamed lose their largest members */
    double depth;       /* of the ring, in largest streamed units */
    enum ov_plan_rule rule;
    unsigned nth; /* of OV_PLAN_BY_COUNT */
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
/* While something is left of the room that no streamed unit fits: a streamed one for a smaller resident one. */
void ov_plan_use_last_pages(struct ov_plan_book *book, struct ov_plan_draft *draft);
/* Goes on from tiers that draft->place has, with draft->ring_pages: the rest of the draft follows from them. */
void ov_plan_resume(struct ov_plan_book *book, struct ov_plan_draft *draft);
/* Whether the unit is resident or streamed by choice, so that the search may exchange it. */
bool ov_plan_exchangeable(const struct ov_plan_book *book, const struct ov_plan_draft *draft, uint32_t unit);
/* A streamed unit becomes resident and a resident one streamed; what that frees or takes is counted. */
/* A streamed unit becomes resident, or the other way round; it has to fit. */
void ov_plan_settle(struct ov_plan_book *book, struct ov_plan_draft *draft, uint32_t unit, enum ov_tier tier,
                    enum ov_plan_reason reason);
void ov_plan_exchange(struct ov_plan_book *book, struct ov_plan_draft *draft, uint32_t streamed, uint32_t resident,
                      enum ov_plan_reason reason);

#endif
