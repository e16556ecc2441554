#include "plan_bound.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Knapsacks of so many units times pages are solved exactly, so many of them. */
#define EXACT      600000u
#define EXACT_RUNS 12u
/* Sizes of the ring are looked at in steps of so small a part of it. */
#define RING_STEP 32u
/* Parts of which all sets are tried. */
#define PARTS_AT_MOST 8u

/* A unit that need not be resident, as one lap of a part sees it. */
struct item {
    double cost_s;
    uint32_t pages;
};

struct part {
    uint32_t first, count, laps; /* touches of the cycle */
    double compute_s;            /* of a lap */
    double link_s;               /* of a lap, at least */
    double ring_s;               /* copies that may have been made before a stretch of laps begins */
    size_t pages;                /* that it reads and that cannot be had for nothing */
    bool shares;                 /* units with other parts */
};

struct bound {
    const struct ov_plan_book *book;
    const struct ov_plan_input *input;
    size_t part_count;
    struct part *part;
    /* Scratch, per unit. */
    uint32_t *mark, stamp;
    double *read_s;   /* computation of a lap that reads it */
    uint32_t *reads;  /* in a lap */
    uint32_t *member; /* the units of the part at hand */
    struct item *item;
    double *table;
    unsigned exact_runs;
    double least_page_s, most_page_s;
    double smallest; /* of the members that may be streamed, in pages */
};

/* ---- one lap of one part ---- */

static bool free_in_host(const struct bound *bound, uint32_t unit)
{
    return bound->input->unit[unit].sparse && ov_plan_can_be(bound->book, unit, OV_TIER_HOST);
}

static size_t collect(struct bound *bound, const struct part *part)
{
    const uint32_t *cycle = bound->input->cycle + part->first;
    size_t count = 0;

    bound->stamp++;
    for (uint32_t i = 0; i < part->count; i++) {
        if (bound->mark[cycle[i]] != bound->stamp) {
            bound->mark[cycle[i]] = bound->stamp;
            bound->member[count++] = cycle[i];
            bound->read_s[cycle[i]] = 0;
            bound->reads[cycle[i]] = 0;
        }
        bound->read_s[cycle[i]] += bound->book->sim.compute_s[part->first + i];
        bound->reads[cycle[i]]++;
    }
    return count;
}

static double smallest_unit(const struct bound *bound, size_t count)
{
    uint32_t least = UINT32_MAX;

    for (size_t i = 0; i < count; i++) {
        const uint32_t unit = bound->member[i];
        if (ov_plan_can_be(bound->book, unit, OV_TIER_STREAMED) && bound->input->unit[unit].pages < least) {
            least = bound->input->unit[unit].pages;
        }
    }
    return least;
}

/* What it takes of the link if the unit is not resident, with a ring of `ring` pages. HUGE_VAL: it has to be. */
static double cost_of(const struct bound *bound, uint32_t unit, double ring, double smallest)
{
    const double pages = bound->input->unit[unit].pages, copy_s = bound->book->sim.copy_s[unit];
    double cost_s = HUGE_VAL;

    if (free_in_host(bound, unit)) {
        return 0;
    }
    if (ov_plan_can_be(bound->book, unit, OV_TIER_HOST)) {
        cost_s = copy_s * OV_PLAN_HOST_WEIGHT * bound->reads[unit];
    }
    if (ov_plan_can_be(bound->book, unit, OV_TIER_STREAMED) && pages <= ring) {
        const double beside = ring - pages;
        const double read_s = bound->read_s[unit] + (beside < smallest ? OV_PLAN_TURNAROUND_S : 0);
        const double busy_s = beside < smallest ? 0 : beside * bound->most_page_s * bound->reads[unit];
        const double streamed_s = copy_s + (read_s > busy_s ? read_s - busy_s : 0);
        cost_s = streamed_s < cost_s ? streamed_s : cost_s;
    }
    return cost_s;
}

/* The least cost of `need` pages of items, the last in part. Reorders them. Each round takes, or puts aside, all that
 * are cheaper for their size than one of them: no sorting, and linear. */
static double knapsack(struct item *item, size_t count, double need)
{
    double cost_s = 0;

    while (count > 0 && need > 0) {
        const struct item pivot = item[count / 2];
        double less_pages = 0, less_s = 0, same_pages = 0;
        size_t less = 0, more = count;
        for (size_t i = 0; i < more;) { /* [0, less) cheaper, [less, i) the same, [more, count) dearer */
            const double here = item[i].cost_s * pivot.pages, there = pivot.cost_s * item[i].pages;
            const struct item moved = item[i];
            if (here < there) {
                less_pages += moved.pages;
                less_s += moved.cost_s;
                item[i++] = item[less];
                item[less++] = moved;
            } else if (here > there) {
                item[i] = item[--more];
                item[more] = moved;
            } else {
                same_pages += moved.pages;
                i++;
            }
        }
        if (less_pages >= need) {
            count = less;
            continue;
        }
        cost_s += less_s;
        need -= less_pages;
        const double taken = same_pages < need ? same_pages : need;
        cost_s += taken * pivot.cost_s / pivot.pages;
        need -= taken;
        item += more;
        count -= more;
    }
    return need > 0 ? HUGE_VAL : cost_s;
}

/* The same with whole items. */
static double exact_knapsack(struct bound *bound, size_t count, size_t need)
{
    bound->exact_runs++;
    bound->table[0] = 0;
    for (size_t i = 1; i <= need; i++) {
        bound->table[i] = HUGE_VAL;
    }
    for (size_t i = 0; i < count; i++) {
        const struct item *item = &bound->item[i];
        for (size_t pages = need; pages > 0; pages--) {
            const double with_s = bound->table[pages > item->pages ? pages - item->pages : 0] + item->cost_s;
            bound->table[pages] = with_s < bound->table[pages] ? with_s : bound->table[pages];
        }
    }
    return bound->table[need];
}

/* The link's time for a lap with a ring of `low` to `high` pages. */
static double with_ring(struct bound *bound, size_t members, double low, double high, double best_s)
{
    const double smallest = bound->smallest;
    double fixed_s = 0, pages = 0;
    size_t count = 0;

    for (size_t i = 0; i < members; i++) {
        const uint32_t unit = bound->member[i];
        const double cost_s = cost_of(bound, unit, high, smallest);
        if (!ov_plan_can_be(bound->book, unit, OV_TIER_RESIDENT) ||
            bound->input->unit[unit].pages + low > (double)bound->input->budget_pages) {
            fixed_s += cost_s < HUGE_VAL ? cost_s : 0;
            continue;
        }
        pages += bound->input->unit[unit].pages;
        if (cost_s < HUGE_VAL) {
            bound->item[count++] = (struct item){cost_s, bound->input->unit[unit].pages};
        }
    }
    const double need = pages + low - (double)bound->input->budget_pages;
    double cost_s = knapsack(bound->item, count, need);
    if (need > 0 && cost_s + fixed_s < best_s && need * (double)count <= EXACT && bound->exact_runs < EXACT_RUNS) {
        cost_s = exact_knapsack(bound, count, (size_t)(need + 0.5));
    }
    return fixed_s + cost_s;
}

/* The least over all rings. A larger one leaves more to copy: the search ends when that alone costs more than what was
 * found. */
static double lap_link_s(struct bound *bound, size_t members)
{
    const double budget = (double)bound->input->budget_pages;

    bound->exact_runs = 0;
    bound->smallest = smallest_unit(bound, members);
    double least_s = with_ring(bound, members, 0, 0, HUGE_VAL);
    for (double low = bound->smallest, high; low <= budget; low = high + 1) {
        high = low + (double)(uint64_t)(low / RING_STEP); /* whole pages; floor() would need libm */
        high = high < budget ? high : budget;
        const double link_s = with_ring(bound, members, low, high, least_s);
        least_s = link_s < least_s ? link_s : least_s;
        if (with_ring(bound, members, low, HUGE_VAL, 0) >= least_s) {
            break;
        }
    }
    return least_s < HUGE_VAL ? least_s : 0; /* there is no such plan: no claim */
}

static void study_part(struct bound *bound, struct part *part)
{
    const size_t members = collect(bound, part);
    double forced_s = 0;

    part->pages = 0;
    for (size_t i = 0; i < members; i++) {
        const uint32_t unit = bound->member[i];
        const bool host_only = bound->book->can[unit] == OV_TIER_BIT(OV_TIER_HOST) && !bound->input->unit[unit].sparse;
        const double in_place_s = bound->book->sim.copy_s[unit] * OV_PLAN_HOST_WEIGHT * bound->reads[unit];
        part->pages += free_in_host(bound, unit) ? 0 : bound->input->unit[unit].pages;
        part->compute_s += bound->read_s[unit];
        forced_s += host_only && in_place_s > bound->read_s[unit] ? in_place_s - bound->read_s[unit] : 0;
    }
    part->compute_s += forced_s;
    part->link_s = lap_link_s(bound, members);
    const double pages = (double)part->pages, budget = (double)bound->input->budget_pages;
    const double ring = part->link_s / bound->least_page_s - (pages - budget);
    part->ring_s = (ring > 0 ? ring : 0) * bound->most_page_s;
}

/* ---- all parts ---- */

static void note_shares(struct bound *bound)
{
    memset(bound->reads, 0, bound->input->unit_count * sizeof(*bound->reads));
    for (int round = 0; round < 2; round++) {
        for (size_t p = 0; p < bound->part_count; p++) {
            struct part *part = &bound->part[p];
            bound->stamp++;
            for (uint32_t i = part->first; i < part->first + part->count; i++) {
                const uint32_t unit = bound->input->cycle[i];
                if (round == 0 && bound->mark[unit] != bound->stamp) {
                    bound->mark[unit] = bound->stamp;
                    bound->reads[unit]++;
                }
                part->shares = part->shares || (round == 1 && bound->reads[unit] > 1);
            }
        }
    }
}

/* The link's time if the parts of the set (bits) pay for all their laps, and the units of no such part for one copy. */
static double set_link_s(struct bound *bound, unsigned set)
{
    double link_s = 0, rate = 0; /* what a page less of the budget costs the parts of the set */

    bound->stamp++;
    for (size_t p = 0; p < bound->part_count; p++) {
        const struct part *part = &bound->part[p];
        if (set >> p & 1) {
            const bool alone = (set & (set - 1)) == 0;
            const double laps = part->laps - (part->shares && !alone ? 1.0 : 0.0);
            link_s += laps * part->link_s;
            rate += laps * bound->least_page_s;
            for (uint32_t i = part->first; i < part->first + part->count; i++) {
                bound->mark[bound->input->cycle[i]] = bound->stamp;
            }
        }
    }
    for (size_t i = 0; i < bound->input->cycle_length; i++) {
        const uint32_t unit = bound->input->cycle[i];
        if (bound->mark[unit] != bound->stamp) {
            bound->mark[unit] = bound->stamp;
            const double displaced_s = rate * bound->input->unit[unit].pages;
            const double copy_s = free_in_host(bound, unit) ? 0 : bound->book->sim.copy_s[unit];
            link_s += copy_s < displaced_s ? copy_s : displaced_s;
        }
    }
    return link_s;
}

static double cycle_link_s(struct bound *bound)
{
    struct part whole = {.count = (uint32_t)bound->input->cycle_length, .laps = 1};
    double most_s = 0;

    if (bound->part_count > 1) { /* every unit in turn, each copied once at least */
        const size_t members = collect(bound, &whole);
        for (size_t i = 0; i < members; i++) {
            bound->read_s[bound->member[i]] = 0;
        }
        most_s = lap_link_s(bound, members);
        note_shares(bound);
    }
    const size_t tried = bound->part_count < PARTS_AT_MOST ? bound->part_count : PARTS_AT_MOST;
    for (unsigned set = 1; set < 1u << tried; set++) {
        bool pays = true; /* where all fits, a page less of the budget may cost nothing */
        for (size_t p = 0; p < tried; p++) {
            pays = pays && ((set >> p & 1) == 0 || bound->part[p].pages > bound->input->budget_pages);
        }
        const double link_s = pays ? set_link_s(bound, set) : 0;
        most_s = link_s > most_s ? link_s : most_s;
    }
    return most_s;
}

/* ---- one stretch of much computation ---- */

/* With one part: of all copies of a cycle, at least those of the pages beyond the budget and of the ring, only those
 * that a stretch of touches needs, and a ring full for what follows, can be made while it computes. So what is left
 * takes the time of the rest of the cycle, whatever the ring. The stretch whose computation exceeds its own copies most
 * counts. */
static double stretch_s(struct bound *bound)
{
    const struct ov_plan_input *input = bound->input;
    double pages = 0, fixed_s = 0, best_s = 0;

    bound->stamp++;
    for (size_t i = 0; i < input->cycle_length; i++) {
        const uint32_t unit = input->cycle[i];
        if (bound->mark[unit] != bound->stamp && !free_in_host(bound, unit)) {
            bound->mark[unit] = bound->stamp;
            if (ov_plan_can_be(bound->book, unit, OV_TIER_RESIDENT)) {
                pages += input->unit[unit].pages;
            } else {
                fixed_s += bound->book->sim.copy_s[unit];
            }
        }
    }
    /* Round the cycle twice, so that stretches over its end are seen; none is longer than once round. */
    double sum_s = 0;
    for (size_t i = 0, since = 0; i < 2 * input->cycle_length; i++) {
        const size_t at = i % input->cycle_length;
        const uint32_t unit = input->cycle[at];
        const bool copied = ov_plan_can_be(bound->book, unit, OV_TIER_STREAMED) ||
                            (ov_plan_can_be(bound->book, unit, OV_TIER_HOST) && !free_in_host(bound, unit));
        sum_s += bound->book->sim.compute_s[at] - (copied ? bound->book->sim.copy_s[unit] : 0);
        if (sum_s <= 0 || i - since + 1 >= input->cycle_length) {
            sum_s = 0;
            since = i + 1;
        }
        best_s = sum_s > best_s ? sum_s : best_s;
    }
    const double over = pages - (double)input->budget_pages;
    return over > 0 ? fixed_s + over * bound->least_page_s + best_s : 0;
}

/* ---- windows ---- */

/* Laps of one part, next to each other. */
struct stretch {
    size_t part;
    double laps;
};

static double window_s(struct bound *bound, const struct stretch *stretch, size_t from, size_t to)
{
    double compute_s = 0, laps_s = 0, pages = 0;

    bound->stamp++;
    for (size_t i = from; i < to; i++) {
        const struct part *part = &bound->part[stretch[i].part];
        double laps = stretch[i].laps;
        compute_s += laps * part->compute_s;
        for (; i + 1 < to && stretch[i + 1].part == stretch[i].part; i++) {
            compute_s += stretch[i + 1].laps * part->compute_s;
            laps += stretch[i + 1].laps;
        }
        const double link_s = laps * part->link_s - part->ring_s;
        laps_s += link_s > 0 ? link_s : 0;
        for (uint32_t k = part->first; k < part->first + part->count; k++) {
            const uint32_t unit = bound->input->cycle[k];
            if (bound->mark[unit] != bound->stamp) {
                bound->mark[unit] = bound->stamp;
                pages += free_in_host(bound, unit) ? 0 : bound->input->unit[unit].pages;
            }
        }
    }
    const double new_s = (pages - (double)bound->input->budget_pages) * bound->least_page_s;
    const double link_s = new_s > laps_s ? new_s : laps_s;
    return compute_s > link_s ? compute_s : link_s;
}

/* The best cut of the cycle into windows. False: memory ran out. */
static bool windows_s(struct bound *bound, double *most_s)
{
    struct stretch *stretch = calloc(3 * bound->part_count + 1, sizeof(*stretch));
    double *until_s = calloc(3 * bound->part_count + 1, sizeof(*until_s));
    size_t count = 0;

    for (size_t p = 0; stretch != NULL && p < bound->part_count; p++) {
        const uint32_t laps = bound->part[p].laps;
        stretch[count++] = (struct stretch){p, 1};
        if (laps > 2) {
            stretch[count++] = (struct stretch){p, laps - 2};
        }
        if (laps > 1) {
            stretch[count++] = (struct stretch){p, 1};
        }
    }
    for (size_t to = 1; stretch != NULL && until_s != NULL && to <= count; to++) {
        for (size_t from = 0; from < to; from++) {
            const double sum_s = until_s[from] + window_s(bound, stretch, from, to);
            until_s[to] = sum_s > until_s[to] ? sum_s : until_s[to];
        }
    }
    const bool done = stretch != NULL && until_s != NULL;
    *most_s = done ? until_s[count] : 0;
    free(stretch);
    free(until_s);
    return done;
}

/* ---- everything ---- */

static void set_up_parts(struct bound *bound)
{
    const struct ov_plan_input *input = bound->input;
    uint32_t first = 0;

    for (size_t p = 0; p < bound->part_count; p++) {
        bound->part[p].first = first;
        bound->part[p].count = (uint32_t)ov_plan_part_at(input, p).length;
        bound->part[p].laps = ov_plan_part_at(input, p).repeats;
        first += bound->part[p].count;
    }
    bound->least_page_s = HUGE_VAL;
    for (size_t i = 0; i < input->unit_count; i++) {
        const double page_s = bound->book->sim.copy_s[i] / input->unit[i].pages;
        bound->least_page_s = page_s < bound->least_page_s ? page_s : bound->least_page_s;
        bound->most_page_s = page_s > bound->most_page_s ? page_s : bound->most_page_s;
    }
}

static bool find_bound(struct bound *bound, double *bound_s)
{
    double compute_s = 0, cut_s = 0;

    set_up_parts(bound);
    for (size_t p = 0; p < bound->part_count; p++) {
        study_part(bound, &bound->part[p]);
        compute_s += bound->part[p].laps * bound->part[p].compute_s;
    }
    const double link_s = cycle_link_s(bound);
    if (!windows_s(bound, &cut_s)) {
        return false;
    }
    *bound_s = compute_s > link_s ? compute_s : link_s;
    *bound_s = cut_s > *bound_s ? cut_s : *bound_s;
    if (bound->part_count == 1 && bound->part[0].laps == 1) {
        const double local_s = stretch_s(bound);
        *bound_s = local_s > *bound_s ? local_s : *bound_s;
    }
    return true;
}

bool ov_plan_bound(const struct ov_plan_book *book, double *bound_s)
{
    const size_t room = book->unit_count + 1;
    struct bound bound = {.book = book, .input = book->input};

    bound.part_count = ov_plan_part_count(book->input);
    bound.part = calloc(bound.part_count + 1, sizeof(*bound.part));
    bound.mark = calloc(room, sizeof(*bound.mark));
    bound.read_s = calloc(room, sizeof(*bound.read_s));
    bound.reads = calloc(room, sizeof(*bound.reads));
    bound.member = calloc(room, sizeof(*bound.member));
    bound.item = calloc(room, sizeof(*bound.item));
    bound.table = calloc(EXACT + 2, sizeof(*bound.table));
    const bool done = bound.part && bound.mark && bound.read_s && bound.reads && bound.member && bound.item &&
                      bound.table && find_bound(&bound, bound_s);
    free(bound.part);
    free(bound.mark);
    free(bound.read_s);
    free(bound.reads);
    free(bound.member);
    free(bound.item);
    free(bound.table);
    return done;
}
