#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "planning.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "engine.h"
#include "log.h"
#include "propose.h"
#include "question.h"
#include "worker.h"

/* The program's own threads come first. */
#define NICENESS 10

enum stage { SEARCHING, ANSWERED, LEFT };

/* The thread's until it is ANSWERED; the engine's then. LEFT: whoever comes second frees it. */
struct ov_planning_job {
    struct ov_question question;
    struct ov_plan plan;
    bool made;
    _Atomic int stage;
};

static void drop(struct ov_planning_job *job)
{
    if (job->made) {
        ov_plan_free(&job->plan);
    }
    ov_question_free(&job->question);
    free(job);
}

static void *answer(void *context)
{
    struct ov_planning_job *job = context;
    int stage = SEARCHING;
    (void)setpriority(PRIO_PROCESS, 0, NICENESS); /* of this thread, on Linux */
    job->made = ov_question_answer(&job->question, &job->plan);
    if (!atomic_compare_exchange_strong(&job->stage, &stage, ANSWERED)) {
        drop(job);
    }
    return NULL;
}

static bool ask(struct ov_engine *engine, uint32_t spare_pages, struct ov_question *kept)
{
    struct ov_question question;
    if (!ov_propose_question(engine, spare_pages, &question)) {
        return false;
    }
    const bool copied = ov_question_copy(&question, kept);
    ov_question_free(&question);
    return copied;
}

bool ov_planning_begin(struct ov_engine *engine, uint32_t spare_pages)
{
    ov_planning_end(&engine->planning);
    ov_engine_look(engine); /* nothing is awaited any more */
    if (ov_opt.planning == OV_OPT_PLANNING_WAIT) {
        return false;
    }
    struct ov_planning_job *job = calloc(1, sizeof *job);
    if (job == NULL || !ask(engine, spare_pages, &job->question)) {
        free(job);
        return false;
    }
    if (!ov_worker_start(NULL, answer, job)) {
        drop(job);
        return false;
    }
    engine->planning = (struct ov_planning){.job = job, .plan = engine->plans, .awaited = true};
    ov_engine_look(engine); /* so that a program that never waits hears of it, too */
    return true;
}

bool ov_planning_done(const struct ov_planning *planning)
{
    return planning->awaited && atomic_load(&planning->job->stage) == ANSWERED;
}

bool ov_planning_heard(struct ov_engine *engine)
{
    engine->planning.awaited = false;
    ov_engine_look(engine);
    return engine->planning.plan == engine->plans;
}

bool ov_planning_recall(const struct ov_planning *planning, const struct ov_question *question, struct ov_plan *plan)
{
    const struct ov_planning_job *job = planning->job;
    return job != NULL && atomic_load(&job->stage) == ANSWERED && job->made &&
           ov_question_covers(&job->question, question) && ov_plan_clone(&job->plan, plan);
}

void ov_planning_end(struct ov_planning *planning)
{
    int stage = SEARCHING;
    if (planning->job != NULL && !atomic_compare_exchange_strong(&planning->job->stage, &stage, LEFT)) {
        drop(planning->job);
    }
    *planning = (struct ov_planning){0};
}
