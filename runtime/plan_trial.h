/*
 * plan_trial.h - choices carried out and compared: what the search is made of. Used by plan_search.c and plan_phase.c.
 *
 * Ownership: a search's arrays are its own, between ov_plan_search_open and _close. Errors: false when memory ran out.
 */
#ifndef OV_PLAN_TRIAL_H
#define OV_PLAN_TRIAL_H

#include "plan_ring.h"
#include "plan_tiers.h"

/* Times this near to each other are equal; this near to the bound is as good as it. */
#define OV_PLAN_SAME  1e-4
#define OV_PLAN_ABOUT 1.002

struct ov_plan_search {
    struct ov_plan_book *book;
    const struct ov_plan_input *input;
    struct ov_plan_sim *sim;
    double bound_s;
    struct ov_plan_place *place; /* of the trial at hand */
    struct ov_plan_ages ages;
    struct ov_plan best; /* place is the search's own */
    struct ov_plan_choice choice;
    size_t misplaced_pages; /* of the best: in a tier where they were not to be */
    bool forgiving;         /* the best is */
    bool any;
};

bool ov_plan_search_open(struct ov_plan_search *search, struct ov_plan_book *book, double bound_s);
void ov_plan_search_close(struct ov_plan_search *search);

/* Nothing better is to be expected, or the effort is spent. */
bool ov_plan_search_over(const struct ov_plan_search *search);
/* Carries the choice out and keeps it if it is the best. */
bool ov_plan_try(struct ov_plan_search *search, const struct ov_plan_choice *choice);
/* Finds ring places for the tiers in search->place, and keeps that if it is the best. */
bool ov_plan_try_tiers(struct ov_plan_search *search, struct ov_plan_draft *draft, const struct ov_plan_choice *choice);
/* Keeps tiers and places as they are in search->place if they are the best. */
bool ov_plan_try_places(struct ov_plan_search *search, size_t ring_pages, const struct ov_plan_choice *choice);

/* The sums over units in *plan, from its places. */
void ov_plan_sum_up(struct ov_plan *plan, const struct ov_plan_book *book);

#endif
