#include "plan_book.h"

#include <stdlib.h>

/* The tiers that a unit is to be given: inside the user's set if it has any there. Without `resident` in the set, what
 * may not be streamed is resident all the same, unless streaming is out as well. */
static unsigned choose_can(unsigned may, unsigned tiers)
{
    if ((tiers & OV_TIER_BIT(OV_TIER_STREAMED)) && !(may & OV_TIER_BIT(OV_TIER_STREAMED))) {
        tiers |= OV_TIER_BIT(OV_TIER_RESIDENT);
    }
    return (may & tiers) != 0 ? may & tiers : may;
}

/* Units of the cycle in order of first use, then the others. */
static void order_units(struct ov_plan_book *book)
{
    const struct ov_plan_input *input = book->input;
    size_t count = 0;

    for (size_t i = 0; i < book->sim.lap_count; i++) {
        const struct ov_plan_lap *lap = &book->sim.lap[i];
        for (uint32_t step = lap->first; step < lap->first + lap->count; step++) {
            const uint32_t unit = input->cycle[book->sim.touch[step]];
            if (book->touches[unit] == 0) {
                book->order[count++] = unit;
            }
            book->touches[unit] += lap->weight;
        }
    }
    for (uint32_t unit = 0; unit < book->unit_count; unit++) {
        if (book->touches[unit] == 0) {
            book->order[count++] = unit;
        }
    }
}

/* A touch finds its unit in the ring if no more was touched since the last time than fits beside it. A guess, since
 * what becomes resident brings touches closer together; it only decides whom residency helps most. */
static void count_loads(struct ov_plan_book *book, size_t ring_pages, double *after_last)
{
    const struct ov_plan_input *input = book->input;
    double sum = 0;

    for (unsigned cycle = 0; cycle < 2; cycle++) { /* the second counts */
        for (size_t i = 0; i < book->sim.lap_count; i++) {
            const struct ov_plan_lap *lap = &book->sim.lap[i];
            for (uint32_t step = lap->first; step < lap->first + lap->count; step++) {
                const uint32_t unit = input->cycle[book->sim.touch[step]];
                const double pages = input->unit[unit].pages;
                const bool gone = sum - after_last[unit] + pages > (double)ring_pages;
                book->loads[unit] += cycle > 0 && gone ? lap->weight : 0;
                sum += pages;
                after_last[unit] = sum;
            }
        }
    }
    for (uint32_t unit = 0; unit < book->unit_count; unit++) {
        if (book->touches[unit] == 0 || (input->unit[unit].sparse && ov_plan_can_be(book, unit, OV_TIER_HOST))) {
            book->loads[unit] = 0;
        } else if (book->loads[unit] == 0) {
            book->loads[unit] = 1;
        }
    }
}

static size_t usual_ring(const struct ov_plan_book *book)
{
    const struct ov_plan_input *input = book->input;
    size_t largest = 0;

    for (uint32_t unit = 0; unit < book->unit_count; unit++) {
        const size_t pages = input->unit[unit].pages;
        if (ov_plan_can_be(book, unit, OV_TIER_STREAMED) && pages <= input->budget_pages && pages > largest) {
            largest = pages;
        }
    }
    return input->ring_request_pages > 2 * largest ? input->ring_request_pages : 2 * largest;
}

/* Most loads first, in order of the cycle among equals: a counting sort, all beyond its range being equal. */
static bool sort_by_loads(struct ov_plan_book *book)
{
    enum { RANGE = 4096 };
    size_t *start = calloc(RANGE + 1, sizeof(*start));

    if (!start) {
        return false;
    }
    for (uint32_t unit = 0; unit < book->unit_count; unit++) {
        if (book->loads[unit] >= RANGE) {
            book->loads[unit] = RANGE - 1;
        }
        start[RANGE - 1 - book->loads[unit] + 1]++;
    }
    for (size_t i = 1; i <= RANGE; i++) {
        start[i] += start[i - 1];
    }
    for (size_t i = 0; i < book->unit_count; i++) {
        const uint32_t unit = book->order[i];
        book->by_loads[start[RANGE - 1 - book->loads[unit]]++] = unit;
    }
    free(start);
    return true;
}

struct value {
    uint32_t unit, loads, at;
    double page_s;
};

static int compare_values(const void *a, const void *b)
{
    const struct value *x = a, *y = b;

    if (x->loads != y->loads) {
        return x->loads > y->loads ? -1 : 1;
    }
    if (x->page_s < y->page_s || x->page_s > y->page_s) {
        return x->page_s > y->page_s ? -1 : 1;
    }
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Most loads first, then those whose copies take longest for their size, then in order of the cycle. */
static bool sort_by_value(struct ov_plan_book *book)
{
    struct value *value = calloc(book->unit_count + 1, sizeof(*value));

    if (!value) {
        return false;
    }
    for (uint32_t i = 0; i < book->unit_count; i++) {
        const uint32_t unit = book->order[i];
        value[i] = (struct value){unit, book->loads[unit], i, book->sim.copy_s[unit] / book->input->unit[unit].pages};
    }
    qsort(value, book->unit_count, sizeof(*value), compare_values);
    for (size_t i = 0; i < book->unit_count; i++) {
        book->by_value[i] = value[i].unit;
    }
    free(value);
    return true;
}

static void time_units(struct ov_plan_book *book)
{
    const struct ov_plan_input *input = book->input;
    uint8_t *seen = book->placed; /* scratch of others, all zero now */
    double now_s = 0;

    for (size_t p = 0, touch = 0; p < ov_plan_part_count(input); p++) {
        const size_t end = touch + ov_plan_part_at(input, p).length;
        book->part[p].begin_s = now_s;
        for (; touch < end; touch++) {
            const uint32_t unit = input->cycle[touch];
            if (!seen[unit]) {
                seen[unit] = 1;
                book->first_s[unit] = now_s;
                book->part_of[unit] = (uint32_t)p;
            }
            book->read_s[unit] += book->sim.compute_s[touch];
            now_s += book->sim.compute_s[touch];
        }
        book->part[p].end_s = now_s;
    }
}

static size_t members_at_most(const struct ov_plan_input *input)
{
    size_t sum = 0;

    for (size_t g = 0; g < input->group_count; g++) {
        sum += input->group[g].length;
    }
    return sum;
}

/* Groups of at least two units that can be streamed. book->list stamps the units of the group at hand. */
static void collect_groups(struct ov_plan_book *book)
{
    const struct ov_plan_input *input = book->input;
    struct ov_plan_groups *groups = &book->groups;
    uint32_t filled = 0, stamp = 0;

    for (size_t g = 0; g < input->group_count; g++) {
        const uint32_t *unit = input->group_unit + input->group[g].start;
        const uint32_t from = filled;
        stamp++;
        for (uint32_t m = 0; m < input->group[g].length; m++) {
            if (book->list[unit[m]] != stamp && ov_plan_can_be(book, unit[m], OV_TIER_STREAMED)) {
                book->list[unit[m]] = stamp;
                groups->member[filled++] = unit[m];
            }
        }
        if (filled - from < 2) {
            filled = from;
        } else {
            groups->member_start[++groups->count] = filled;
        }
    }
    for (uint32_t m = 0; m < filled; m++) {
        groups->of_start[groups->member[m] + 2]++;
    }
    for (size_t i = 2; i < book->unit_count + 2; i++) {
        groups->of_start[i] += groups->of_start[i - 1];
    }
    for (uint32_t g = 0; g < groups->count; g++) {
        for (uint32_t m = groups->member_start[g]; m < groups->member_start[g + 1]; m++) {
            groups->of[groups->of_start[groups->member[m] + 1]++] = g;
        }
    }
}

static bool fill_book(struct ov_plan_book *book)
{
    const struct ov_plan_input *input = book->input;
    double *after_last = calloc(book->unit_count + 1, sizeof(*after_last));
    bool done = false;

    if (after_last) {
        for (uint32_t unit = 0; unit < book->unit_count; unit++) {
            book->can[unit] = (uint8_t)choose_can(input->unit[unit].may, input->tiers);
        }
        order_units(book);
        count_loads(book, usual_ring(book), after_last);
        collect_groups(book);
        time_units(book);
        done = sort_by_loads(book) && sort_by_value(book);
    }
    free(after_last);
    return done;
}

bool ov_plan_book_open(struct ov_plan_book *book, const struct ov_plan_input *input)
{
    const size_t room = input->unit_count + 3; /* also for offsets, one ahead while they are being filled */
    const size_t members = members_at_most(input) + 1;
    struct ov_plan_groups *groups = &book->groups;

    *book = (struct ov_plan_book){.input = input, .unit_count = input->unit_count};
    if (!ov_plan_sim_open(&book->sim, input)) {
        return false;
    }
    book->order = calloc(room, sizeof(*book->order));
    book->by_loads = calloc(room, sizeof(*book->by_loads));
    book->by_value = calloc(room, sizeof(*book->by_value));
    book->first_s = calloc(room, sizeof(*book->first_s));
    book->read_s = calloc(room, sizeof(*book->read_s));
    book->part_of = calloc(room, sizeof(*book->part_of));
    book->part = calloc(ov_plan_part_count(input) + 1, sizeof(*book->part));
    book->touches = calloc(room, sizeof(*book->touches));
    book->loads = calloc(room, sizeof(*book->loads));
    book->list = calloc(room, sizeof(*book->list));
    book->can = calloc(room, sizeof(*book->can));
    book->role = calloc(room, sizeof(*book->role));
    book->placed = calloc(room, sizeof(*book->placed));
    book->near = calloc(room, sizeof(*book->near));
    groups->of_start = calloc(room, sizeof(*groups->of_start));
    groups->member_start = calloc(input->group_count + 2, sizeof(*groups->member_start));
    groups->member = calloc(members, sizeof(*groups->member));
    groups->of = calloc(members, sizeof(*groups->of));
    if (book->order && book->by_loads && book->by_value && book->first_s && book->read_s && book->part_of &&
        book->part && book->touches && book->loads && book->list && book->can && book->role && book->placed &&
        book->near && groups->of_start && groups->member_start && groups->member && groups->of && fill_book(book)) {
        return true;
    }
    ov_plan_book_close(book);
    return false;
}

void ov_plan_book_close(struct ov_plan_book *book)
{
    ov_plan_sim_close(&book->sim);
    free(book->order);
    free(book->by_loads);
    free(book->by_value);
    free(book->first_s);
    free(book->read_s);
    free(book->part_of);
    free(book->part);
    free(book->touches);
    free(book->loads);
    free(book->list);
    free(book->can);
    free(book->role);
    free(book->placed);
    free(book->near);
    free(book->groups.of_start);
    free(book->groups.member_start);
    free(book->groups.member);
    free(book->groups.of);
}
