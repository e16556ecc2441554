/*
 * plan_bound.h - what a cycle takes at least, whatever the plan. Used by plan*.c only.
 *
 * Every plan that keeps what plan.h promises has, for each part of the program, units with pages of their own (the
 * others that its laps read never lie over them) and units that take turns in a ring of r pages. So:
 *
 *   - Computation is done one touch after the other.
 *   - Of the pages that a lap reads, no more than budget - r are its own. All others are copied in every lap (read in
 *     place, which takes the link longer). None of those is larger than r.
 *   - While a unit of the ring is read, only what fits beside it, r less its pages, can be copied; if no unit does, the
 *     link is idle meanwhile.
 *
 * For each r the cheapest units are chosen to be copied: a knapsack, solved exactly where it is small, else with
 * fractions, which is less. The least over all r, summed over the laps, is the link's time. Over several parts: any set
 * of parts whose weights do not fit pays for its laps, and all units outside of it are copied once, or take the place
 * of others that then are.
 *
 * Local arguments: the laps in order are cut into windows; each takes as long as its computation, and as long as the
 * copies of what it reads and what cannot have been there when it began. The best cut counts.
 */
#ifndef OV_PLAN_BOUND_H
#define OV_PLAN_BOUND_H

#include "plan_book.h"

/* False: memory ran out. */
bool ov_plan_bound(const struct ov_plan_book *book, double *bound_s);

#endif
