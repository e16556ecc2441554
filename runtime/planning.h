/*
 * planning.h - a better plan is looked for while the program goes on.
 *
 * A search takes some ten milliseconds for a hundred weights, and more for thousands: several passes of a small
 * program, and mostly for nothing, since the plan that stands is good enough. So what the planner is asked (question.h)
 * is copied and a thread answers it; a quiet point after that finds the answer. It answers that very question: whoever
 * asks the same gets it without a search, and what has changed meanwhile has to be asked anew.
 *
 * The thread sees the copy and nothing else, calls no driver, and is left to itself when the engine ends. In a forked
 * child it does not exist, and no answer comes.
 *
 * With OVERSHOT_PLANNING=wait there is no thread: plans change at the same places in every run.
 *
 * Guarded by the engine's lock.
 */
#ifndef OV_PLANNING_H
#define OV_PLANNING_H

#include <stdbool.h>
#include <stdint.h>

struct ov_engine;
struct ov_plan;
struct ov_question;

struct ov_planning {
    struct ov_planning_job *job; /* NULL: nothing was asked */
    unsigned plan;               /* when it was: which plan stood */
    bool awaited;                /* nobody has heard of the answer yet */
};

/* Asks for a plan that leaves `spare_pages` free; what was asked before is forgotten. In an exclusive section. False:
 * it can't be answered beside the program, or is not to be. */
bool ov_planning_begin(struct ov_engine *engine, uint32_t spare_pages);
/* At a quiet point: whether there is an answer that nobody has heard of. ov_planning_heard: now somebody has; false:
 * the plan that stood when it was asked for does not stand any more. */
bool ov_planning_done(const struct ov_planning *planning);
bool ov_planning_heard(struct ov_engine *engine);
/* The answer, if it is known; the caller frees it. */
bool ov_planning_recall(const struct ov_planning *planning, const struct ov_question *question, struct ov_plan *plan);
/* Nobody wants to know any more. */
void ov_planning_end(struct ov_planning *planning);

#endif
