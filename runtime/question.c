#include "question.h"

#include <stdlib.h>
#include <string.h>

#include "engine.h"

/* Computation is guessed at first, and what launches take from the host is never known: a ring of less than two units,
 * which stakes much on both, has to save a good deal. */
#define SHALLOW_WORTH 0.05

/* The pause between two passes of a program that waits for each (PyTorch on an H200's host: about 1 ms). */
#define BRIDGE_S 1.2e-3

/* ---- asking ---- */

void ov_question_free(struct ov_question *question)
{
    free(question->unit);
    free(question->assumed_s);
    free(question->kept);
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

bool ov_question_ask(const struct ov_engine *engine, uint32_t budget_pages, struct ov_question *question)
{
    const struct ov_runs *runs = &engine->learn.runs;
    const bool timed = runs->compute_s != NULL;
    const double link = link_pages_per_s(&engine->ring);
    *question = (struct ov_question){.unit = calloc(runs->count + 1, sizeof *question->unit),
                                     .assumed_s = calloc(runs->cycle_length + 1, sizeof *question->assumed_s)};
    if (question->unit == NULL || question->assumed_s == NULL) {
        ov_question_free(question);
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

/* ---- keeping ---- */

/* What `array` is, at *to, which moves on; both ends are aligned as double is. */
static const void *keep(char **to, const void *array, size_t bytes)
{
    if (array == NULL) {
        return NULL;
    }
    char *const here = *to;
    memcpy(here, array, bytes);
    *to += (bytes + sizeof(double) - 1) / sizeof(double) * sizeof(double);
    return here;
}

static bool same_bytes(const void *a, const void *b, size_t bytes)
{
    return bytes == 0 || memcmp(a, b, bytes) == 0;
}

static size_t group_units(const struct ov_plan_input *input)
{
    size_t count = 0;
    for (size_t i = 0; i < input->group_count; i++) {
        const size_t end = (size_t)input->group[i].start + input->group[i].length;
        count = end > count ? end : count;
    }
    return count;
}

bool ov_question_copy(const struct ov_question *from, struct ov_question *to)
{
    const struct ov_plan_input *input = &from->input;
    const size_t units = input->unit_count * sizeof *input->unit, times = input->cycle_length * sizeof(double);
    const size_t cycle = input->cycle_length * sizeof *input->cycle, groups = input->group_count * sizeof *input->group;
    const size_t members = group_units(input) * sizeof *input->group_unit;
    *to = *from;
    to->assumed_s = NULL;
    to->unit = malloc(units + 1);
    char *room = to->kept = malloc(cycle + 2 * times + groups + members + 5 * sizeof(double));
    if (to->unit == NULL || to->kept == NULL) {
        ov_question_free(to);
        return false;
    }
    memcpy(to->unit, from->unit, units);
    to->input.unit = to->unit;
    to->input.rate = to->rate;
    to->input.cycle = keep(&room, input->cycle, cycle);
    to->input.compute_s = keep(&room, input->compute_s, times);
    to->input.stretch = keep(&room, input->stretch, times);
    to->input.group = keep(&room, input->group, groups);
    to->input.group_unit = keep(&room, input->group_unit, members);
    return true;
}

static bool same_units(const struct ov_plan_input *a, const struct ov_plan_input *b)
{
    bool same = a->unit_count == b->unit_count;
    for (size_t i = 0; i < a->unit_count && same; i++) {
        same = a->unit[i].pages == b->unit[i].pages && a->unit[i].may == b->unit[i].may &&
               a->unit[i].sparse == b->unit[i].sparse;
    }
    return same;
}

/* NULL is no array. */
static bool same_times(const double *a, const double *b, size_t count)
{
    bool same = (a == NULL) == (b == NULL);
    for (size_t i = 0; a != NULL && i < count && same; i++) {
        same = a[i] == b[i];
    }
    return same;
}

static bool same_cycle(const struct ov_plan_input *a, const struct ov_plan_input *b)
{
    return a->cycle_length == b->cycle_length && same_bytes(a->cycle, b->cycle, a->cycle_length * sizeof *a->cycle) &&
           same_times(a->compute_s, b->compute_s, a->cycle_length) &&
           same_times(a->stretch, b->stretch, a->cycle_length);
}

static bool same_groups(const struct ov_plan_input *a, const struct ov_plan_input *b)
{
    return a->group_count == b->group_count && group_units(a) == group_units(b) &&
           same_bytes(a->group, b->group, a->group_count * sizeof *a->group) &&
           same_bytes(a->group_unit, b->group_unit, group_units(a) * sizeof *a->group_unit);
}

static bool same_link(const struct ov_plan_input *a, const struct ov_plan_input *b)
{
    bool same = a->link_pages_per_s == b->link_pages_per_s && a->rate_count == b->rate_count;
    for (size_t i = 0; i < a->rate_count && same; i++) {
        same = a->rate[i].pages == b->rate[i].pages && a->rate[i].pages_per_s == b->rate[i].pages_per_s;
    }
    return same;
}

static bool covers_budget(const struct ov_plan_input *kept, const struct ov_plan_input *asked)
{
    return asked->budget_pages >= kept->budget_pages && asked->budget_pages * 100 <= kept->budget_pages * 101;
}

/* What comes from the options does not change while a program runs. */
bool ov_question_covers(const struct ov_question *kept, const struct ov_question *asked)
{
    return kept->share == asked->share && covers_budget(&kept->input, &asked->input) &&
           kept->input.mode == asked->input.mode && kept->input.ring_request_pages == asked->input.ring_request_pages &&
           same_units(&kept->input, &asked->input) && same_cycle(&kept->input, &asked->input) &&
           same_groups(&kept->input, &asked->input) && same_link(&kept->input, &asked->input);
}

/* ---- answering ---- */

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
static bool plan_robustly(const struct ov_plan_input *input, struct ov_plan *plan, double share)
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
static void deepen(const struct ov_question *question, struct ov_plan *plan)
{
    struct ov_plan_input input = question->input;
    uint32_t largest = largest_streamed(plan), limit = (uint32_t)(input.budget_pages / 16);
    uint32_t least = 3 * largest, bridged = least + (uint32_t)(BRIDGE_S * input.link_pages_per_s);
    least = largest == 0 ? 0 : bridged <= limit ? bridged - bridged % largest : least;
    if (input.ring_request_pages > 0 || plan->ring_pages >= least || least > limit) {
        return;
    }
    struct ov_plan_unit *unit = calloc(input.unit_count + 1, sizeof *unit);
    for (size_t i = 0; unit != NULL && i < input.unit_count; i++) {
        unit[i] = input.unit[i];
        if (unit[i].pages > largest && (unit[i].may & OV_TIER_BIT(OV_TIER_RESIDENT)) != 0) {
            unit[i].may &= (uint8_t)(~OV_TIER_BIT(OV_TIER_STREAMED) & 0xff);
        }
    }
    struct ov_plan deeper;
    input.unit = unit;
    input.ring_request_pages = least;
    if (unit != NULL && plan_robustly(&input, &deeper, question->share)) {
        bool worse = deeper.host_pages > plan->host_pages || deeper.streamed_units == 0;
        ov_plan_free(worse ? &deeper : plan);
        *plan = worse ? *plan : deeper;
    }
    free(unit);
}

bool ov_question_answer(const struct ov_question *question, struct ov_plan *plan)
{
    const bool made = plan_robustly(&question->input, plan, question->share);
    if (made) {
        deepen(question, plan);
    }
    return made;
}
