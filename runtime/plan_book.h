/*
 * plan_book.h - what is known of the units before any choice is made: order, touches, loads, launch groups; and the
 * scratch memory of all steps of planning. Used by plan*.c only.
 *
 * Ownership: the book owns its arrays and points into the caller's input. Errors: only ov_plan_book_open can fail, when
 * memory runs out; nothing to close then.
 */
#ifndef OV_PLAN_BOOK_H
#define OV_PLAN_BOOK_H

#include "plan.h"
#include "plan_ring.h"
#include "plan_simulate.h"

/* Computation of the cycle, each part once, before a part and up to its end. */
struct ov_plan_book_part {
    double begin_s, end_s;
};

struct ov_plan_book {
    const struct ov_plan_input *input;
    size_t unit_count;
    struct ov_plan_sim sim;
    uint32_t *order;    /* all units; those of the cycle come first, in order of first use */
    uint32_t *by_loads; /* order, most loads first */
    uint32_t *by_value; /* order, most copying saved for its size first */
    double *first_s;    /* per unit: computation of the cycle, each part once, before its first touch */
    double *read_s;     /* per unit: computation of its touches, each part once */
    uint32_t *part_of;  /* per unit: the part of that touch */
    struct ov_plan_book_part *part;
    uint32_t *touches; /* per unit, in a cycle with all repetitions */
    uint32_t *loads;   /* of them, about how many find it no longer in a ring of the usual depth. 0: outside the cycle,
                          or sparse and free to be host-mapped */
    uint8_t *can;      /* tiers it is to be given, from what it may be and what the user allows */
    struct ov_plan_groups groups;
    struct ov_plan_near *near;
    uint8_t *placed;
    uint32_t *list; /* scratch, unit_count */
    uint8_t *role;  /* scratch of ov_plan_assign, see plan_tiers.c */
};

bool ov_plan_book_open(struct ov_plan_book *book, const struct ov_plan_input *input);
void ov_plan_book_close(struct ov_plan_book *book);

static inline bool ov_plan_can_be(const struct ov_plan_book *book, uint32_t unit, enum ov_tier tier)
{
    return (book->can[unit] & OV_TIER_BIT(tier)) != 0;
}

static inline bool ov_plan_may_be(const struct ov_plan_book *book, uint32_t unit, enum ov_tier tier)
{
    return (book->input->unit[unit].may & OV_TIER_BIT(tier)) != 0;
}

#endif
