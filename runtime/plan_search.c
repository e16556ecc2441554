#include "plan_search.h"

#include <stdlib.h>
#include <string.h>

#include "plan_phase.h"
#include "plan_trial.h"

/* Sizes above which units are not streamed that are tried; evenly chosen where there are more. */
#define SIZES 16u
/* Of two sizes the smaller has to save so many pages. */
#define SIZE_WORTH 0.99
/* All sets of residents are tried of so many. */
#define FEW_UNITS 8u

/* Depths of the ring, in largest streamed units. */
static const double depths[] = {2, 2.5, 3, 4, 1.75, 1.5, 1.25, 1.125, 1, 2.25, 6, 8};
#define DEPTHS (sizeof(depths) / sizeof(*depths))

static const struct {
    enum ov_plan_rule rule;
    enum ov_plan_strategy strategy;
} rules[] = {
    {OV_PLAN_BY_BYTES, OV_PLAN_EVEN},    {OV_PLAN_BY_TIME, OV_PLAN_EVEN},    {OV_PLAN_BY_VALUE, OV_PLAN_KNAPSACK},
    {OV_PLAN_BY_SIZE, OV_PLAN_KNAPSACK}, {OV_PLAN_BY_ORDER, OV_PLAN_GREEDY}, {OV_PLAN_BY_COUNT, OV_PLAN_NTH},
};
#define RULES      (sizeof(rules) / sizeof(*rules))
#define RULES_AUTO 4u /* the first are part of the search */

static int by_size(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Distinct sizes of units that could be streamed, at most SIZES; *size[0] is 0: nothing is streamed. */
static size_t find_sizes(struct ov_plan_book *book, size_t *size)
{
    uint32_t *list = book->list;
    size_t count = 0, distinct = 0, chosen = 0;

    for (uint32_t unit = 0; unit < book->unit_count; unit++) {
        const bool host = book->loads[unit] == 0 && (book->can[unit] & OV_TIER_BIT(OV_TIER_HOST));
        if ((book->can[unit] & OV_TIER_BIT(OV_TIER_STREAMED)) && !host) {
            list[count++] = book->input->unit[unit].pages;
        }
    }
    qsort(list, count, sizeof(*list), by_size);
    for (size_t i = 0; i < count; i++) {
        if (distinct == 0 || list[distinct - 1] != list[i]) {
            list[distinct++] = list[i];
        }
    }
    size[chosen++] = 0;
    const size_t tried = distinct < SIZES ? distinct : SIZES;
    for (size_t i = 0; i < tried; i++) {
        size[chosen++] = list[tried == 1 ? 0 : i * (distinct - 1) / (tried - 1)];
    }
    return chosen;
}

/* Limits on what is streamed, in order of what they are likely to be worth. */
struct limits {
    size_t count;
    struct ov_plan_choice item[3 * (SIZES + 1)];
};

/* The limit that costs least with a ring of the usual depth comes first. The largest size is looked at first and wins
 * when nearly equal, since with all sizes to choose from residency is spread most evenly. */
static void find_limits(struct ov_plan_search *search, struct limits *limits)
{
    size_t size[SIZES + 1], best = 0;
    double best_cost = -1;
    struct ov_plan_draft draft = {.place = search->place};

    limits->count = 0;
    for (size_t i = find_sizes(search->book, size); i-- > 0;) {
        /* A group that asks for a deeper ring than its largest unit does may be better off taken apart. */
        const size_t group_pages[] = {SIZE_MAX, 2 * size[i], size[i]};
        for (unsigned step = 0; step < sizeof(group_pages) / sizeof(*group_pages); step++) {
            const struct ov_plan_choice choice = {size[i], group_pages[step], depths[0], OV_PLAN_BY_BYTES, 0};
            if (step > 0 && draft.group_pages <= choice.group_pages) {
                continue;
            }
            ov_plan_assign(search->book, &choice, &draft);
            search->sim->steps_run += 2 * search->book->unit_count;
            if (best_cost < 0 || draft.cost < best_cost * SIZE_WORTH) {
                best = limits->count;
                best_cost = draft.cost;
            }
            limits->item[limits->count++] = choice;
        }
    }
    const struct ov_plan_choice first = limits->item[best];
    for (size_t i = best; i > 0; i--) {
        limits->item[i] = limits->item[i - 1];
    }
    limits->item[0] = first;
}

/* One rule under one limit, with rings of all depths that may be worth it. */
static bool try_depths(struct ov_plan_search *search, struct ov_plan_choice choice, size_t from, size_t to)
{
    const size_t end = search->input->ring_request_pages > 0 ? from + 1 : to;

    for (size_t i = from; i < end && !ov_plan_search_over(search); i++) {
        choice.depth = depths[i];
        if (!ov_plan_try(search, &choice)) {
            return false;
        }
    }
    return true;
}

static bool try_all(struct ov_plan_search *search, const struct limits *limits)
{
    /* First the usual depths, then shallow rings, then deep ones. */
    static const size_t stage[] = {0, 4, 9, DEPTHS};

    for (size_t s = 0; s + 1 < sizeof(stage) / sizeof(*stage); s++) {
        for (size_t rule = 0; rule < RULES_AUTO; rule++) {
            struct ov_plan_choice choice = limits->item[0];
            choice.rule = rules[rule].rule;
            if (!try_depths(search, choice, stage[s], stage[s + 1])) {
                return false;
            }
        }
        if (s == 0 && !ov_plan_try_phases(search)) {
            return false;
        }
    }
    for (size_t i = 1; i < limits->count; i++) {
        for (size_t rule = 0; rule < RULES_AUTO; rule++) {
            struct ov_plan_choice choice = limits->item[i];
            choice.rule = rules[rule].rule;
            if (!try_depths(search, choice, 0, stage[2])) {
                return false;
            }
        }
    }
    return true;
}

/* Where few units may change, every set of residents. */
static bool try_every_set(struct ov_plan_search *search)
{
    struct ov_plan_draft draft = {.place = search->place};
    const struct ov_plan_choice choice = search->choice;
    uint32_t unit[FEW_UNITS];
    size_t count = 0;

    if (search->best.streamed_units == 0 || search->input->ring_request_pages > 0) {
        return true;
    }
    memcpy(search->place, search->best.place, search->book->unit_count * sizeof(*search->place));
    for (uint32_t i = 0; i < search->book->unit_count; i++) {
        if (ov_plan_can_be(search->book, i, OV_TIER_STREAMED) && ov_plan_can_be(search->book, i, OV_TIER_RESIDENT) &&
            search->book->loads[i] > 0) {
            if (count == FEW_UNITS) {
                return true;
            }
            unit[count++] = i;
        }
    }
    for (unsigned set = 0; count > 0 && set < 1u << count && !ov_plan_search_over(search); set++) {
        size_t left = search->input->budget_pages, largest = 0;
        memcpy(search->place, search->best.place, search->book->unit_count * sizeof(*search->place));
        draft = (struct ov_plan_draft){.place = search->place};
        for (size_t i = 0; i < count; i++) {
            const bool stays = set >> i & 1;
            search->place[unit[i]].tier = stays ? OV_TIER_RESIDENT : OV_TIER_STREAMED;
            search->place[unit[i]].reason = stays ? OV_PLAN_SPREAD : OV_PLAN_CYCLE;
        }
        for (size_t i = 0; i < search->book->unit_count; i++) {
            const struct ov_plan_place *place = &search->place[i];
            const size_t pages = place->pages;
            left = place->tier != OV_TIER_RESIDENT ? left : left > pages ? left - pages : 0;
            largest = place->tier == OV_TIER_STREAMED && pages > largest ? pages : largest;
        }
        draft.ring_pages = left;
        if (left < largest || (largest == 0 && left == 0)) {
            continue;
        }
        ov_plan_resume(search->book, &draft);
        if (!ov_plan_try_tiers(search, &draft, &choice)) {
            return false;
        }
    }
    return true;
}

static bool try_strategy(struct ov_plan_search *search, const struct limits *limits)
{
    struct ov_plan_choice choice = limits->item[0];

    choice.nth = search->input->nth > 1 ? search->input->nth : 2;
    if (search->input->strategy == OV_PLAN_GREEDY || search->input->strategy == OV_PLAN_NTH) { /* whatever its size */
        choice.unit_pages = choice.group_pages = SIZE_MAX;
    }
    for (size_t rule = 0; rule < RULES; rule++) {
        if (rules[rule].strategy == search->input->strategy) {
            choice.rule = rules[rule].rule;
            return try_depths(search, choice, 0, DEPTHS);
        }
    }
    return true;
}

/* ---- improving what is best ---- */

/* So many attempts in a row that change nothing for the better end it. */
enum { STALE = 1000, MOVES_AT_ONCE = 4 };

struct improver {
    struct ov_plan_search *search;
    uint64_t random;
    uint32_t *waited; /* streamed units of the best plan that were waited for */
    size_t waited_count;
    struct ov_plan_draft draft;
};

/* The same numbers each time: plans are repeatable. */
static size_t below(struct improver *improver, size_t limit)
{
    improver->random ^= improver->random << 13;
    improver->random ^= improver->random >> 7;
    improver->random ^= improver->random << 17;
    return (size_t)((improver->random >> 16) % limit);
}

static bool find_waited(struct improver *improver)
{
    struct ov_plan_search *search = improver->search;
    struct ov_plan_score score;

    improver->waited_count = 0;
    if (!ov_plan_sim_run(search->sim, search->best.place, search->best.ring_pages, &score)) {
        return false;
    }
    for (size_t step = 0; step < search->sim->step_count; step++) {
        const uint32_t unit = search->input->cycle[search->sim->touch[step]];
        if (search->sim->stall_s[step] > OV_PLAN_SAME * score.cycle_s &&
            search->best.place[unit].tier == OV_TIER_STREAMED) {
            improver->waited[improver->waited_count++] = unit;
        }
    }
    return true;
}

/* A unit of that tier that may change it; UINT32_MAX if none was met. */
static uint32_t draw_unit(struct improver *improver, enum ov_tier tier, size_t pages_at_most)
{
    const struct ov_plan_search *search = improver->search;
    const size_t count = search->book->unit_count;
    size_t at = below(improver, count);

    for (size_t looked = 0; looked < count; looked++, at = at + 1 < count ? at + 1 : 0) {
        const uint32_t unit = search->book->order[at];
        if (improver->draft.place[unit].tier == tier && improver->draft.place[unit].pages <= pages_at_most &&
            ov_plan_exchangeable(search->book, &improver->draft, unit)) {
            return unit;
        }
    }
    return UINT32_MAX;
}

/* Of two resident units the one that computes longer for its size: next to it there is more time for copies. */
static uint32_t draw_resident(struct improver *improver)
{
    const struct ov_plan_search *search = improver->search;
    const size_t most = improver->draft.largest_pages;
    const uint32_t a = draw_unit(improver, OV_TIER_RESIDENT, most);
    const uint32_t b = below(improver, 2) ? draw_unit(improver, OV_TIER_RESIDENT, most) : a;

    if (a == UINT32_MAX || b == UINT32_MAX) {
        return a;
    }
    return search->book->read_s[a] * search->input->unit[b].pages <
                   search->book->read_s[b] * search->input->unit[a].pages
               ? b
               : a;
}

/* Streams resident units until there is so much room. */
static bool make_room(struct improver *improver, size_t pages)
{
    while (improver->draft.room_pages < pages) {
        const uint32_t unit = draw_resident(improver);
        if (unit == UINT32_MAX) {
            return false;
        }
        ov_plan_settle(improver->search->book, &improver->draft, unit, OV_TIER_STREAMED, OV_PLAN_CYCLE);
    }
    return true;
}

/* A streamed unit, mostly one that was waited for, becomes resident. */
static bool move_in(struct improver *improver)
{
    const bool waited = improver->waited_count > 0 && below(improver, 4) > 0;
    const uint32_t unit = waited ? improver->waited[below(improver, improver->waited_count)]
                                 : draw_unit(improver, OV_TIER_STREAMED, SIZE_MAX);

    if (unit == UINT32_MAX || !ov_plan_exchangeable(improver->search->book, &improver->draft, unit) ||
        !make_room(improver, improver->draft.place[unit].pages)) {
        return false;
    }
    ov_plan_settle(improver->search->book, &improver->draft, unit, OV_TIER_RESIDENT, OV_PLAN_EXCHANGED);
    return true;
}

/* A resident unit becomes streamed, and others take its place. */
static bool move_out(struct improver *improver)
{
    const uint32_t unit = draw_resident(improver);

    if (unit == UINT32_MAX) {
        return false;
    }
    ov_plan_settle(improver->search->book, &improver->draft, unit, OV_TIER_STREAMED, OV_PLAN_CYCLE);
    for (uint32_t in; (in = draw_unit(improver, OV_TIER_STREAMED, improver->draft.room_pages)) != UINT32_MAX;) {
        ov_plan_settle(improver->search->book, &improver->draft, in, OV_TIER_RESIDENT, OV_PLAN_EXCHANGED);
    }
    return improver->draft.place[unit].tier == OV_TIER_STREAMED;
}

/* The ring becomes a little larger or smaller. */
static bool change_ring(struct improver *improver)
{
    struct ov_plan_draft *draft = &improver->draft;
    const size_t change = 1 + below(improver, draft->largest_pages / 4 + 1);
    const bool larger = below(improver, 2);

    if (improver->search->input->ring_request_pages > 0 ||
        (larger ? !make_room(improver, change) : draft->ring_pages < draft->largest_pages + change)) {
        return false;
    }
    draft->ring_pages = larger ? draft->ring_pages + change : draft->ring_pages - change;
    draft->room_pages = larger ? draft->room_pages - change : draft->room_pages + change;
    return true;
}

static bool attempt(struct improver *improver)
{
    static bool (*const moves[])(struct improver *) = {move_in, move_in, move_out, change_ring};
    struct ov_plan_search *search = improver->search;
    const struct ov_plan *best = &search->best;

    memcpy(search->place, best->place, best->unit_count * sizeof(*best->place));
    improver->draft = (struct ov_plan_draft){.place = search->place, .ring_pages = best->ring_pages};
    ov_plan_resume(search->book, &improver->draft);
    bool moved = false;
    for (size_t i = below(improver, 8) < 5 ? 1 : 1 + below(improver, MOVES_AT_ONCE); i > 0; i--) {
        moved |= moves[below(improver, sizeof(moves) / sizeof(*moves))](improver);
    }
    if (!moved) {
        search->sim->steps_run += search->book->unit_count;
        return true;
    }
    ov_plan_use_last_pages(search->book, &improver->draft);
    return ov_plan_try_tiers(search, &improver->draft, &search->choice);
}

static bool improve(struct ov_plan_search *search)
{
    struct improver improver = {.search = search, .random = 0x2545f4914f6cdd1du};
    double before_s = 0;
    bool done = true;

    improver.waited = calloc(search->sim->step_count + 1, sizeof(*improver.waited));
    done = improver.waited != NULL;
    for (unsigned stale = 0; done && stale < STALE && !ov_plan_search_over(search); stale++) {
        if (search->best.score.cycle_s < before_s || stale == 0) {
            stale = 0;
            before_s = search->best.score.cycle_s;
            done = find_waited(&improver);
        }
        done = done && attempt(&improver);
    }
    free(improver.waited);
    return done;
}

bool ov_plan_search(struct ov_plan_book *book, double bound_s, struct ov_plan *out)
{
    struct ov_plan_search search;
    struct limits limits;

    if (!ov_plan_search_open(&search, book, bound_s)) {
        return false;
    }
    find_limits(&search, &limits);
    bool done = book->input->strategy == OV_PLAN_AUTO
                    ? try_all(&search, &limits) && try_every_set(&search) && improve(&search)
                    : try_strategy(&search, &limits);
    if (done && !search.any) { /* the effort is for less than one */
        done = ov_plan_try(&search, &limits.item[0]);
    }
    if (done) {
        *out = search.best;
        search.best.place = NULL;
        for (size_t rule = 0; rule < RULES; rule++) {
            out->strategy = rules[rule].rule == search.choice.rule ? rules[rule].strategy : out->strategy;
        }
    }
    ov_plan_search_close(&search);
    return done;
}
