#include "propose.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

/* Computation is guessed at first, and what launches take from the host is never known: a ring of less than two units,
 * which stakes much on both, has to save a good deal. */
#define SHALLOW_WORTH 0.05

/* The pause between two passes of a program that waits for each (PyTorch on an H200's host: about 1 ms). */
#define BRIDGE_S 1.2e-3

bool ov_is_cold(const struct ov_engine *engine, const struct ov_alloc *alloc, uint32_t page)
{
    const struct ov_memo *memo = &engine->learn.memo[page];
    if (alloc->reserved) { /* holds everything, and room for more: only what changes is known to be in use */
        return memo->hashed && !memo->written && !memo->used;
    }
    return alloc->visits == 0 && alloc->edge_count > 0 && !alloc->presumed;
}

static uint32_t want_others(struct ov_engine *engine, uint8_t *want, bool cold, uint32_t room)
{
    uint32_t taken = 0;
    for (uint32_t i = 0; i < engine->allocs.count; i++) {
        const struct ov_alloc *alloc = &engine->allocs.item[i];
        if (alloc->ordinal == 0) {
            continue;
        }
        for (uint32_t p = alloc->first; p < alloc->first + alloc->pages; p++) {
            uint8_t backing = engine->arena.page[p].backing;
            if (want[p] == OV_WANT_NOTHING && backing != OV_NONE && backing != OV_FIXED && backing != OV_SHARED &&
                ov_is_cold(engine, alloc, p) == cold) {
                want[p] = taken < room ? OV_WANT_DEVICE : OV_WANT_HOST;
                taken += taken < room;
            }
        }
    }
    return taken;
}

static void want_runs(const struct ov_runs *runs, const struct ov_plan *plan, uint8_t *want)
{
    static const uint8_t of_tier[] = {
        [OV_TIER_RESIDENT] = OV_WANT_DEVICE, [OV_TIER_STREAMED] = OV_WANT_RING, [OV_TIER_HOST] = OV_WANT_HOST};
    for (uint32_t i = 0; i < runs->count; i++) {
        memset(&want[runs->item[i].first], plan != NULL ? of_tier[plan->place[i].tier] : OV_WANT_HOST,
               runs->item[i].pages);
    }
}

/* A cycle under the plan when each touch computes so long; 0: memory ran out. */
static double cycle_s(const struct ov_plan_input *input, const struct ov_plan *plan, const double *compute_s)
{
    struct ov_plan_input timed = *input;
    struct ov_plan_score score;
    timed.compute_s = compute_s;
    return ov_plan_simulate(&timed, plan, &score, NULL) ? score.cycle_s : 0;
}

/* How much longer than the better of both plans one takes, at worst, whether computation is short or long. */
static double regret(const struct ov_plan_input *input, const struct ov_plan *plan, const struct ov_plan *other,
                     const double *longer)
{
    const double *const compute[] = {input->compute_s, longer};
    double worst = 0;
    for (int k = 0; k < 2; k++) {
        double mine = cycle_s(input, plan, compute[k]), theirs = cycle_s(input, other, compute[k]);
        double best = mine < theirs ? mine : theirs;
        worst = best > 0 && mine / best > worst ? mine / best : worst;
    }
    return worst;
}

/* Where computation was timed, what it says counts. Else plans for computation as long as the copies, and for
 * computation as long as if everything were copied; takes what does worse than the other by the smaller factor. */
static bool plan_robustly(struct ov_plan_input *input, struct ov_plan *plan, double share)
{
    if (share <= 0) {
        return ov_plan_make(input, plan);
    }
    double *longer = calloc(input->cycle_length + 1, sizeof *longer);
    struct ov_plan other;
    bool made = longer != NULL && ov_plan_make(input, plan);
    for (size_t i = 0; made && i < input->cycle_length; i++) {
        longer[i] = input->compute_s[i] / share;
    }
    if (made && plan->streamed_units > 0) {
        struct ov_plan_input second = *input;
        second.compute_s = longer;
        if (ov_plan_make(&second, &other)) {
            bool better = regret(input, &other, plan, longer) < regret(input, plan, &other, longer);
            ov_plan_free(better ? plan : &other);
            *plan = better ? other : *plan;
        }
    }
    free(longer);
    return made;
}

static uint32_t largest_streamed(const struct ov_plan *plan)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < plan->unit_count; i++) {
        const struct ov_plan_place *place = &plan->place[i];
        largest = place->tier == OV_TIER_STREAMED && place->pages > largest ? place->pages : largest;
    }
    return largest;
}

/* A third place hides the latency between a reader's end and the start of the copy that waits for it. What lies beyond
 * bridges the moments in which the program asks for nothing, as between passes: what it adds to the copies it takes
 * from those pauses. Both where they are cheap, and for the sizes that were chosen: the larger ring is not there to
 * hold larger units. */
static void deepen(struct ov_plan_input *input, struct ov_plan_unit *unit, struct ov_plan *plan, double share)
{
    uint32_t largest = largest_streamed(plan), limit = (uint32_t)(input->budget_pages / 16);
    uint32_t least = 3 * largest, bridged = least + (uint32_t)(BRIDGE_S * input->link_pages_per_s);
    least = largest == 0 ? 0 : bridged <= limit ? bridged - bridged % largest : least;
    if (input->ring_request_pages > 0 || plan->ring_pages >= least || least > limit) {
        return;
    }
    for (size_t i = 0; i < input->unit_count; i++) {
        if (unit[i].pages > largest && (unit[i].may & OV_TIER_BIT(OV_TIER_RESIDENT)) != 0) {
            unit[i].may &= (uint8_t)(~OV_TIER_BIT(OV_TIER_STREAMED) & 0xff);
        }
    }
    struct ov_plan deeper;
    input->ring_request_pages = least;
    if (!plan_robustly(input, &deeper, share)) {
        return;
    }
    bool worse = deeper.host_pages > plan->host_pages || deeper.streamed_units == 0;
    ov_plan_free(worse ? &deeper : plan);
    *plan = worse ? *plan : deeper;
}

/* As long as computation is not timed it is taken to be, over the cycle, as long as the copies of what does not fit,
 * and in between as the bytes are, every place where a refill could not overlap counts fully: right for programs on
 * either side. Returns that share of the copies. */
static double assume_times(const struct ov_runs *runs, uint32_t budget_pages, double link, double *compute_s)
{
    double total_pages = 0;
    for (uint32_t i = 0; i < runs->count; i++) {
        total_pages += runs->item[i].pages;
    }
    bool may_stay = (ov_opt.tiers & OV_OPT_TIER_RESIDENT) != 0;
    double share = may_stay && total_pages > budget_pages ? 1 - budget_pages / total_pages : may_stay ? 0.05 : 1;
    for (size_t i = 0; i < runs->cycle_length; i++) {
        compute_s[i] = share * runs->item[runs->cycle[i]].pages / link;
    }
    return share;
}

static double link_scale(const struct ov_ring *ring)
{
    return ov_opt.link_scale * (ring->rate_share > 0 ? ring->rate_share : 1);
}

static double link_pages_per_s(const struct ov_ring *ring)
{
    return link_scale(ring) *
           (ring->link_bytes_per_s > 0 ? ring->link_bytes_per_s / (double)OV_PAGE_BYTES : OV_PLAN_LINK);
}

static unsigned scale_rates(const struct ov_ring *ring, struct ov_plan_rate rate[OV_RATES])
{
    for (unsigned i = 0; i < ring->rate_count; i++) {
        rate[i] = (struct ov_plan_rate){ring->rate[i].pages, link_scale(ring) * ring->rate[i].pages_per_s};
    }
    return ring->rate_count;
}

/* What the planner is told of the program, and what of that is only there for it. */
struct question {
    struct ov_plan_input input;
    struct ov_plan_unit *unit;
    double *assumed_s;
    struct ov_plan_rate rate[OV_RATES];
    double share; /* that computation is guessed by; 0: it was timed */
};

static void free_question(struct question *question)
{
    free(question->unit);
    free(question->assumed_s);
}

static void describe_units(const struct ov_engine *engine, struct ov_plan_unit *unit)
{
    const struct ov_runs *runs = &engine->learn.runs;
    for (uint32_t i = 0; i < runs->count; i++) {
        unit[i] = (struct ov_plan_unit){.pages = runs->item[i].pages, .may = runs->item[i].may};
        uint8_t marks = 0; /* put on since the study */
        for (uint32_t p = runs->item[i].first; p < runs->item[i].first + runs->item[i].pages; p++) {
            marks |= engine->learn.memo[p].marks;
        }
        unit[i].sparse =
            runs->item[i].sparse && !engine->learn.memo[runs->item[i].first].refuted && (marks & OV_MARKS_UNSEEN) == 0;
        if (engine->streaming_barred || marks != 0) {
            unit[i].may &= (uint8_t)(~OV_TIER_BIT(OV_TIER_STREAMED) & 0xff);
        }
    }
}

/* False: memory ran out, and there is nothing to free. */
static bool ask(const struct ov_engine *engine, uint32_t budget_pages, struct question *question)
{
    const struct ov_runs *runs = &engine->learn.runs;
    const bool timed = runs->compute_s != NULL;
    const double link = link_pages_per_s(&engine->ring);
    *question = (struct question){.unit = calloc(runs->count + 1, sizeof *question->unit),
                                  .assumed_s = calloc(runs->cycle_length + 1, sizeof *question->assumed_s)};
    if (question->unit == NULL || question->assumed_s == NULL) {
        free_question(question);
        return false;
    }
    question->share = timed ? 0 : assume_times(runs, budget_pages, link, question->assumed_s);
    describe_units(engine, question->unit);
    question->input = (struct ov_plan_input){
        .unit = question->unit,
        .unit_count = runs->count,
        .cycle = runs->cycle,
        .cycle_length = runs->cycle_length,
        .group = runs->group,
        .group_count = runs->group_count,
        .group_unit = runs->group_unit,
        .budget_pages = budget_pages,
        .tiers = ov_opt.tiers,
        .ring_request_pages = ov_opt.ring.kind == OV_AMOUNT_AUTO
                                  ? 0
                                  : ov_pages(ov_amount_resolve(&ov_opt.ring, engine->ledger.budget_bytes, 0)),
        .link_pages_per_s = link,
        .rate = question->rate,
        .rate_count = scale_rates(&engine->ring, question->rate),
        .compute_s = timed ? runs->compute_s : question->assumed_s,
        .stretch = timed ? runs->stretch : NULL,
        .never_held = true, /* the ring makes its copies as soon as there is room */
        .strategy = (enum ov_plan_strategy)ov_opt.strategy.word,
        .nth = ov_opt.strategy.number,
        /* What costs nothing is not known before passes were timed. */
        .mode = timed && ov_opt.mode == OV_OPT_MODE_LATENCY ? OV_PLAN_LATENCY : OV_PLAN_MEMORY,
        .slowdown = ov_opt.slowdown / 100,
        .worth = SHALLOW_WORTH,
        .effort = engine->plan_effort,
    };
    return true;
}

static bool make_plan(const struct ov_engine *engine, uint32_t budget_pages, struct ov_plan *plan)
{
    struct question question;
    bool made = ask(engine, budget_pages, &question);
    if (made) {
        made = plan_robustly(&question.input, plan, question.share);
        if (made) {
            deepen(&question.input, question.unit, plan, question.share);
        }
        free_question(&question);
    }
    return made;
}

bool ov_propose_score(const struct ov_engine *engine, const struct ov_plan *plan, struct ov_plan_score *score,
                      double *stall_s)
{
    struct question question;
    if (engine->learn.runs.compute_s == NULL || !ask(engine, 0, &question)) {
        return false;
    }
    struct ov_plan as_run = *plan;
    as_run.hold_stretch = HUGE_VAL; /* copies are never held back here */
    bool done = ov_plan_simulate(&question.input, &as_run, score, stall_s);
    free_question(&question);
    return done;
}

/* As it stands; false: the units are others by now, or memory ran out. plan->place is to be freed. */
static bool standing_plan(const struct ov_engine *engine, struct ov_plan *plan)
{
    const struct ov_runs *runs = &engine->learn.runs;
    const struct ov_ring *ring = &engine->ring;
    *plan = (struct ov_plan){.place = calloc((size_t)runs->count + 1, sizeof *plan->place),
                             .unit_count = runs->count,
                             .ring_pages = ring->pages};
    bool same = plan->place != NULL && ring->unit_count == runs->count;
    for (uint32_t i = 0; i < runs->count && same; i++) {
        const struct ov_unit *unit = &ring->unit[i];
        same = unit->first == runs->item[i].first && unit->pages == runs->item[i].pages;
        plan->place[i] = (struct ov_plan_place){
            .pages = unit->pages, .ring_page = unit->ring_page, .tier = unit->tier, .sparse = unit->sparse};
    }
    return same;
}

bool ov_propose_standing(const struct ov_engine *engine, struct ov_plan_score *score, double *stall_s)
{
    struct ov_plan plan;
    const bool done = standing_plan(engine, &plan) && ov_propose_score(engine, &plan, score, stall_s);
    free(plan.place);
    return done;
}

bool ov_propose_beside(const struct ov_engine *engine, double *beside_s)
{
    struct question question;
    struct ov_plan plan;
    bool done = standing_plan(engine, &plan) && ask(engine, 0, &question);
    if (done) {
        done = ov_plan_beside(&question.input, &plan, beside_s);
        free_question(&question);
    }
    free(plan.place);
    return done;
}

static uint32_t pages_left_for(const struct ov_engine *engine, uint32_t reserve_pages)
{
    const size_t *held = engine->ledger.held_bytes;
    const size_t *aside = engine->ledger.set_aside_bytes;
    size_t fixed = held[OV_FOR_SMALL] + held[OV_FOR_FOREIGN] + held[OV_FOR_SCRATCH] + aside[OV_FOR_SMALL] +
                   aside[OV_FOR_SCRATCH] + ((size_t)reserve_pages << OV_PAGE_SHIFT);
    size_t budget = engine->ledger.budget_bytes;
    return fixed < budget ? (uint32_t)((budget - fixed) >> OV_PAGE_SHIFT) : 0;
}

/* What the ring needs at least, kept from what the program writes: without a ring every weight is read over the link by
 * every wave of blocks, which is far worse than activations over the link. */
static uint32_t ring_floor(const struct ov_engine *engine, uint32_t room)
{
    uint32_t smallest = UINT32_MAX;
    for (uint32_t i = 0; i < engine->learn.runs.count; i++) {
        const struct ov_run *run = &engine->learn.runs.item[i];
        smallest = run->may & OV_TIER_BIT(OV_TIER_STREAMED) && run->pages < smallest ? run->pages : smallest;
    }
    return smallest == UINT32_MAX ? 0 : 2 * smallest < room / 4 ? 2 * smallest : room / 4;
}

/* One attempt: where everything goes when `reserve_pages` are left free. */
bool ov_propose(struct ov_engine *engine, uint32_t reserve_pages, uint8_t *want, struct ov_plan *plan)
{
    memset(want, OV_WANT_NOTHING, (size_t)engine->arena.high_page + 1);
    want_runs(&engine->learn.runs, NULL, want); /* claims their pages, so that the others are seen */
    uint32_t room = pages_left_for(engine, reserve_pages), floor = ring_floor(engine, room);
    uint32_t others = want_others(engine, want, false, room - floor);
    if (!make_plan(engine, room - others, plan)) {
        return false;
    }
    want_runs(&engine->learn.runs, plan, want);
    uint32_t left = room - others - (uint32_t)(plan->resident_pages + plan->ring_pages);
    (void)want_others(engine, want, true, left);
    return true;
}
