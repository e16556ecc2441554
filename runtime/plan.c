#include "plan.h"

#include <stdlib.h>
#include <string.h>

#include "plan_bound.h"
#include "plan_search.h"
#include "plan_trial.h"

/* Of a smallest budget, in pages of the largest one: where the search for it ends. */
#define BUDGET_STEP 512u

static bool all_fits(const struct ov_plan_input *input)
{
    size_t left = input->budget_pages;

    for (size_t i = 0; i < input->unit_count; i++) {
        const struct ov_plan_unit *unit = &input->unit[i];
        if (!(unit->may & input->tiers & OV_TIER_BIT(OV_TIER_RESIDENT)) || unit->pages > left) {
            return false;
        }
        left -= unit->pages;
    }
    return true;
}

static bool plan_all_resident(struct ov_plan_book *book, struct ov_plan *plan)
{
    const struct ov_plan_input *input = book->input;
    struct ov_plan_place *place = calloc(input->unit_count + 1, sizeof(*place));

    if (!place) {
        return false;
    }
    for (size_t i = 0; i < input->unit_count; i++) {
        place[i] = (struct ov_plan_place){.pages = input->unit[i].pages,
                                          .tier = OV_TIER_RESIDENT,
                                          .reason = OV_PLAN_ALL_FITS,
                                          .sparse = input->unit[i].sparse};
    }
    *plan = (struct ov_plan){.place = place, .unit_count = input->unit_count, .tried = 1};
    ov_plan_sum_up(plan, book);
    return ov_plan_sim_run(&book->sim, place, 0, &plan->score);
}

static double computation_s(const struct ov_plan_book *book)
{
    double sum_s = 0;

    for (size_t i = 0; i < book->sim.lap_count; i++) {
        const struct ov_plan_lap *lap = &book->sim.lap[i];
        for (uint32_t step = lap->first; step < lap->first + lap->count; step++) {
            sum_s += lap->weight * book->sim.compute_s[book->sim.touch[step]];
        }
    }
    return sum_s;
}

/* enough_s: the search may end when a cycle takes no longer; 0: it goes for the bound. */
static bool plan_within(const struct ov_plan_input *input, double enough_s, struct ov_plan *out)
{
    struct ov_plan_book book;
    struct ov_plan plan = {0};
    double bound_s = 0;

    if (!ov_plan_book_open(&book, input)) {
        return false;
    }
    bool done = ov_plan_bound(&book, &bound_s);
    const double goal_s = enough_s > 0 ? enough_s * (1 + OV_PLAN_SAME) / OV_PLAN_ABOUT : bound_s;
    done = done && (all_fits(input) ? plan_all_resident(&book, &plan) : ov_plan_search(&book, goal_s, &plan));
    if (done) {
        done = ov_plan_sim_run(&book.sim, plan.place, plan.ring_pages, &plan.score) &&
               ov_plan_sim_copies(&book.sim, &plan);
        plan.cycle_s = plan.score.cycle_s;
        plan.cycle_pages = plan.score.cycle_pages;
        plan.resident_s = computation_s(&book);
        plan.bound_s = bound_s < plan.cycle_s ? bound_s : plan.cycle_s;
    }
    ov_plan_book_close(&book);
    if (!done) {
        ov_plan_free(&plan);
        return false;
    }
    *out = plan;
    return true;
}

/* Halves the budgets between one that is too small and one that is not. What the largest cannot reach is its time. */
static bool plan_least(const struct ov_plan_input *input, struct ov_plan *out)
{
    struct ov_plan_input trial = *input;
    struct ov_plan best;
    size_t low = 0, high = 0; /* low is too small */

    for (size_t i = 0; i < input->unit_count; i++) {
        high += input->unit[i].pages;
    }
    high = high < input->budget_pages ? high : input->budget_pages;
    if (!plan_within(input, 0, &best)) {
        return false;
    }
    const double wanted_s = best.resident_s * (1 + (input->slowdown > 0 ? input->slowdown : 0));
    const double most_s = wanted_s > best.cycle_s ? wanted_s : best.cycle_s;
    const size_t step = high / BUDGET_STEP + 1;
    while (high - low > step) {
        struct ov_plan plan;
        trial.budget_pages = low + (high - low) / 2;
        if (!plan_within(&trial, most_s, &plan)) {
            ov_plan_free(&best);
            return false;
        }
        const bool enough = plan.unplaced_pages <= best.unplaced_pages &&
                            plan.host_over_pages <= best.host_over_pages && plan.cycle_s <= most_s * (1 + OV_PLAN_SAME);
        *(enough ? &high : &low) = trial.budget_pages;
        ov_plan_free(enough ? &best : &plan);
        best = enough ? plan : best;
    }
    *out = best;
    return true;
}

bool ov_plan_make(const struct ov_plan_input *input, struct ov_plan *out)
{
    return input->mode == OV_PLAN_LATENCY ? plan_least(input, out) : plan_within(input, 0, out);
}

void ov_plan_free(struct ov_plan *plan)
{
    free(plan->place);
    free(plan->copy);
    *plan = (struct ov_plan){0};
}

bool ov_plan_clone(const struct ov_plan *from, struct ov_plan *to)
{
    struct ov_plan clone = *from;
    clone.place = malloc(from->unit_count * sizeof *clone.place + 1);
    clone.copy = malloc(from->copy_count * sizeof *clone.copy + 1);
    if (clone.place == NULL || clone.copy == NULL) {
        ov_plan_free(&clone);
        return false;
    }
    memcpy(clone.place, from->place, from->unit_count * sizeof *clone.place);
    if (from->copy_count > 0) {
        memcpy(clone.copy, from->copy, from->copy_count * sizeof *clone.copy);
    }
    *to = clone;
    return true;
}

const char *ov_plan_reason_text(enum ov_plan_reason reason)
{
    static const char *const text[] = {
#define OV_PLAN_REASON(constant, words) [constant] = words,
        OV_PLAN_REASONS(OV_PLAN_REASON)
#undef OV_PLAN_REASON
    };
    return (unsigned)reason < OV_PLAN_REASON_COUNT ? text[reason] : "unknown";
}

const char *ov_tier_name(enum ov_tier tier)
{
    static const char *const name[] = {"resident", "streamed", "host"};
    return (unsigned)tier < sizeof(name) / sizeof(*name) ? name[tier] : "unknown";
}

const char *ov_plan_strategy_name(enum ov_plan_strategy strategy)
{
    static const char *const name[] = {
#define OV_PLAN_STRATEGY(constant, word, help) [constant] = word,
        OV_PLAN_STRATEGIES(OV_PLAN_STRATEGY)
#undef OV_PLAN_STRATEGY
    };
    return (unsigned)strategy < OV_PLAN_STRATEGY_COUNT ? name[strategy] : "unknown";
}
