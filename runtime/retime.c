#include "retime.h"

#include <stdlib.h>

#include "convert.h"
#include "engine.h"
#include "interference.h"
#include "log.h"
#include "outcome.h"
#include "propose.h"
#include "record.h"

/* What another plan has to save, of a pass or, in mode latency, of the device's memory. */
#define WORTH 0.03
/* If less than this part of the cycle's bytes could be timed, the rest cannot be guessed from it. */
#define ENOUGH 0.5

/* ---- times ---- */

/* A read in place takes what the link takes: no computation of which anything follows for other tiers. */
static bool tells(const struct ov_engine *engine, uint32_t unit)
{
    return engine->ring.unit[unit].tier != OV_TIER_HOST || engine->ring.unit[unit].sparse;
}

/* Intervals that could not be timed get what the others take for their bytes. False: there are too few of those. */
static bool guess_rest(const struct ov_runs *runs, double *compute_s)
{
    double pages = 0, timed_pages = 0, timed_s = 0;
    for (size_t i = 0; i < runs->cycle_length; i++) {
        const double here = runs->item[runs->cycle[i]].pages;
        pages += here;
        timed_pages += compute_s[i] >= 0 ? here : 0;
        timed_s += compute_s[i] >= 0 ? compute_s[i] : 0;
    }
    for (size_t i = 0; i < runs->cycle_length && timed_pages > 0; i++) {
        if (compute_s[i] < 0) {
            compute_s[i] = timed_s / timed_pages * runs->item[runs->cycle[i]].pages;
        }
    }
    return timed_pages > ENOUGH * pages;
}

/* How far the passes are apart, as a share of what one computes. What could not be timed in a pass took what it takes.
 */
static double spread_of(const struct ov_profiler *profiler, const double *compute_s, double sum_s)
{
    double least = 0, most = 0;
    for (uint32_t pass = 0; pass < ov_profiler_beside(profiler); pass++) {
        double took_s = 0;
        for (uint32_t i = 0; i < profiler->length; i++) {
            const float seconds = profiler->seconds[(size_t)pass * profiler->length + i];
            took_s += seconds >= 0 ? (double)seconds : compute_s[i];
        }
        least = pass == 0 || took_s < least ? took_s : least;
        most = took_s > most ? took_s : most;
    }
    return sum_s > 0 ? (most - least) / sum_s : 0;
}

static double sum_of(const double *compute_s, uint32_t length)
{
    double sum = 0;
    for (uint32_t i = 0; i < length; i++) {
        sum += compute_s[i];
    }
    return sum;
}

static bool same_cycle(const struct ov_engine *engine)
{
    const struct ov_profiler *profiler = &engine->profiler;
    return profiler->plan == engine->plans && profiler->studied == engine->learn.studied &&
           profiler->length == engine->learn.runs.cycle_length;
}

static bool take_times(struct ov_engine *engine)
{
    const struct ov_profiler *profiler = &engine->profiler;
    struct ov_runs *runs = &engine->learn.runs;
    double *compute_s = calloc(profiler->length, sizeof *compute_s);
    if (compute_s == NULL || profiler->passes == 0 || !same_cycle(engine)) {
        free(compute_s);
        return false;
    }
    for (uint32_t i = 0; i < profiler->length; i++) {
        compute_s[i] =
            tells(engine, runs->cycle[i]) ? ov_profiler_median(profiler, i, 0, ov_profiler_beside(profiler)) : -1;
    }
    if (!guess_rest(runs, compute_s)) {
        free(compute_s);
        return false;
    }
    engine->ring.rate_share = ov_meter_share(&engine->ring);
    engine->timed.spread = spread_of(profiler, compute_s, sum_of(compute_s, profiler->length));
    free(runs->compute_s);
    free(runs->stretch);
    runs->compute_s = compute_s;
    runs->stretch = NULL;
    ov_interference_take(engine);
    engine->timed.compute_s = sum_of(compute_s, profiler->length);
    return true;
}

/* ---- the plan ---- */

static size_t device_pages(const struct ov_engine *engine)
{
    return engine->last_plan.resident + engine->last_plan.ring;
}

static bool is_better(const struct ov_engine *engine, const struct ov_plan *plan, const struct ov_plan_score *score,
                      const struct ov_plan_score *standing)
{
    const double doubt = engine->timed.spread / 2, least = WORTH > doubt ? WORTH : doubt;
    const bool faster = score->cycle_s < (1 - least) * standing->cycle_s;
    const bool smaller = (double)(plan->resident_pages + plan->ring_pages) < (1 - WORTH) * (double)device_pages(engine);
    return faster || (ov_opt.mode == OV_OPT_MODE_LATENCY && smaller);
}

/* Unless the answer is known, the program waits meanwhile, and mostly for nothing, since the plan that stands is good
 * enough. So this is a short search, and the whole one is for when something comes of it. */
#define SHORT_EFFORT (OV_PLAN_EFFORT / 64)

static bool another_is_worth_it(struct ov_engine *engine, uint32_t spare_pages)
{
    struct ov_plan plan;
    struct ov_plan_score score, standing;
    uint8_t *want = calloc((size_t)engine->arena.high_page + 1, 1);
    bool worth = false;
    engine->plan_effort = SHORT_EFFORT;
    if (want != NULL && ov_propose_standing(engine, &standing, NULL) &&
        ov_plan_draft(engine, 0, &spare_pages, want, &plan)) {
        worth = ov_propose_score(engine, &plan, &score, NULL) && is_better(engine, &plan, &score, &standing);
        ov_log(OV_LOG_DEBUG,
               "device %d: timed: plan %u takes %.3f ms and %zu MiB, another %.3f ms and %zu MiB, the bound is %.3f ms",
               engine->device, engine->plans, standing.cycle_s * 1e3, 2 * device_pages(engine), score.cycle_s * 1e3,
               2 * (plan.resident_pages + plan.ring_pages), plan.bound_s * 1e3);
        ov_plan_free(&plan);
    }
    engine->plan_effort = 0;
    free(want);
    return worth;
}

/* Of what a pass computed when it was timed before, so much may be other and still count as the same. */
#define SAME 0.1

static bool computes_the_same(double before_s, double now_s)
{
    return now_s < (1 + SAME) * before_s && now_s > (1 - SAME) * before_s;
}

/* What the plan that stands is worth by the new times. */
static void tell(struct ov_engine *engine, double before_s)
{
    ov_outcome_predict(engine);
    ov_pace_begin(engine);
    if (computes_the_same(before_s, engine->timed.compute_s)) {
        ov_pace_accept(&engine->ring.pace);
    }
}

bool ov_retime(struct ov_engine *engine, uint32_t spare_pages)
{
    const double before_s = engine->learn.runs.compute_s != NULL ? engine->timed.compute_s : 0;
    const bool taken = take_times(engine);
    if (!taken) {
        ov_log(OV_LOG_DEBUG, "device %d: %u passes were timed, which is not enough: computation stays a guess",
               engine->device, engine->profiler.passes);
    }
    ov_profiler_end(engine);
    if (!taken) {
        return false;
    }
    tell(engine, before_s);
    const bool worth = !ov_planning_begin(engine, spare_pages) && another_is_worth_it(engine, spare_pages);
    if (!worth) {
        ov_record(engine);
    }
    return worth;
}

bool ov_retime_answered(struct ov_engine *engine, uint32_t spare_pages)
{
    return ov_planning_heard(engine) && engine->learn.runs.compute_s != NULL &&
           another_is_worth_it(engine, spare_pages);
}
