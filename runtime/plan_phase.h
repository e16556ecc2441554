/*
 * plan_phase.h - weights of several parts that are each repeated take turns in the same memory. Used by plan_search.c
 * only.
 *
 * Two models that run in turn, thirty passes each: what is resident for the whole cycle is idle half of the time. Here
 * a part's weights have, as far as the budget goes, places that no other weight of the same part lies over, so that
 * they are copied once when the part begins and stay until another part needs the pages. For the rest of a part's
 * weights there is a ring beside that.
 */
#ifndef OV_PLAN_PHASE_H
#define OV_PLAN_PHASE_H

#include "plan_trial.h"

/* Tries such a plan where the trace has more than one part that is repeated. */
bool ov_plan_try_phases(struct ov_plan_search *search);

#endif
