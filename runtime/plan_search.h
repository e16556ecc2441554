/*
 * plan_search.h - the search for a plan within one budget. Used by plan.c only.
 *
 * A trial is a choice (plan_tiers.h) carried out: tiers, places in the ring, and what the simulation says of them
 * (plan_trial.h). Rules, limits on the size of what is streamed, and depths of the ring are tried, the most forgiving
 * first; trials that could not be faster even if every copy were hidden are not simulated. What is best then is
 * improved: units whose copies are waited for are exchanged for others.
 */
#ifndef OV_PLAN_SEARCH_H
#define OV_PLAN_SEARCH_H

#include "plan_book.h"

/* Places, tiers, sums, score; out->place is allocated. bound_s: where the search may stop. False: memory ran out. */
bool ov_plan_search(struct ov_plan_book *book, double bound_s, struct ov_plan *out);

#endif
