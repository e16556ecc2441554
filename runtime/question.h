/*
 * question.h - what the planner is asked about the units and the cycle as they are known now.
 *
 * Asking reads the engine and needs its lock. What was asked lives in the engine's arrays for the most part, so it is
 * answered at once or copied. Answering is a function of the question alone: a thread may do it with a copy.
 */
#ifndef OV_QUESTION_H
#define OV_QUESTION_H

#include <stdbool.h>
#include <stdint.h>

#include "plan.h"
#include "ring.h"

struct ov_engine;

struct ov_question {
    struct ov_plan_input input;
    struct ov_plan_unit *unit; /* the question's own */
    double *assumed_s;         /* as well: computation, if it is guessed */
    struct ov_plan_rate rate[OV_RATES];
    double share; /* that computation is guessed by; 0: it was timed */
    void *kept;   /* of a copy: the rest of what input points to; else NULL, and that is the engine's */
};

/* With a budget for the units and their ring. False: memory ran out, and there is nothing to free. */
bool ov_question_ask(const struct ov_engine *engine, uint32_t budget_pages, struct ov_question *question);
/* As ov_question_ask, of what was asked. `to` may not move in memory afterwards, as no question may. */
bool ov_question_copy(const struct ov_question *from, struct ov_question *to);
void ov_question_free(struct ov_question *question);
/* Whether the answer to what was kept answers this one, too: it is the same, but for how much may be searched, and a
 * budget that may be larger by 1 %, since small memory comes and goes. */
bool ov_question_covers(const struct ov_question *kept, const struct ov_question *asked);
/* False: memory ran out, and *plan need not be freed. */
bool ov_question_answer(const struct ov_question *question, struct ov_plan *plan);

#endif
