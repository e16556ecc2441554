#include "plan_phase.h"

#include <stdlib.h>
#include <string.h>

/* What a part gets. */
struct phase {
    struct ov_plan_search *search;
    uint8_t *taken;   /* per unit: it has a place, or needs none */
    size_t own_pages; /* of each part's pages of their own; behind them the ring */
    size_t ring_pages;
    size_t cursor; /* in the ring */
};

static const struct ov_plan_part *part_of(const struct phase *phase, size_t part)
{
    return &phase->search->input->part[part];
}

/* Whether the unit can take turns at all. */
static bool may_turn(const struct phase *phase, uint32_t unit)
{
    return !phase->taken[unit] && ov_plan_can_be(phase->search->book, unit, OV_TIER_STREAMED);
}

static void put(struct phase *phase, uint32_t unit, size_t page, enum ov_plan_reason reason)
{
    struct ov_plan_place *place = &phase->search->place[unit];

    place->tier = OV_TIER_STREAMED;
    place->reason = (uint8_t)reason;
    place->ring_page = (uint32_t)page;
    phase->taken[unit] = 1;
}

/* The part's units in order; evenly chosen, as many as fit get pages of their own. */
static bool place_part(struct phase *phase, size_t first, const struct ov_plan_part *part)
{
    const uint32_t *cycle = phase->search->input->cycle + first;
    const struct ov_plan_place *place = phase->search->place;
    const bool repeated = part->repeats > 1;
    size_t all = 0, used = 0;
    double due = 0;

    for (size_t i = 0; i < part->length; i++) { /* a unit that comes twice counts twice: a little less is its own */
        all += may_turn(phase, cycle[i]) ? place[cycle[i]].pages : 0;
    }
    const double own = repeated && all > 0 ? (double)phase->own_pages / (double)all : 0;
    for (size_t i = 0; i < part->length; i++) {
        const uint32_t unit = cycle[i];
        const size_t pages = place[unit].pages;
        if (!may_turn(phase, unit)) {
            continue;
        }
        due += own * (double)pages;
        if (due * 2 >= (double)pages && used + pages <= phase->own_pages) {
            due -= (double)pages;
            put(phase, unit, used, OV_PLAN_PHASE);
            used += pages;
        } else if (pages <= phase->ring_pages) {
            phase->cursor = phase->cursor + pages <= phase->ring_pages ? phase->cursor : 0;
            put(phase, unit, phase->own_pages + phase->cursor, OV_PLAN_CYCLE);
            phase->cursor += pages;
        } else {
            return false;
        }
    }
    return true;
}

/* What cannot take turns keeps what the best plan gave it; returns the pages that leaves, or 0. */
static size_t keep_others(struct phase *phase)
{
    struct ov_plan_search *search = phase->search;
    size_t left = search->input->budget_pages;

    for (size_t i = 0; i < search->book->unit_count; i++) {
        struct ov_plan_place *place = &search->place[i];
        const uint32_t unit = (uint32_t)i;
        *place = search->best.place[i];
        phase->taken[i] = !ov_plan_can_be(search->book, unit, OV_TIER_STREAMED) || search->book->touches[i] == 0 ||
                          place->tier == OV_TIER_HOST;
        if (phase->taken[i] && place->tier == OV_TIER_STREAMED) {
            return 0; /* outside the cycle, and nowhere else to go */
        }
        if (phase->taken[i] && place->tier == OV_TIER_RESIDENT) {
            left = left > place->pages ? left - place->pages : 0;
        }
    }
    return left;
}

/* The largest unit that some part cannot have for its own. */
static size_t largest_turning(const struct phase *phase, size_t room)
{
    const struct ov_plan_search *search = phase->search;
    size_t first = 0, largest = 0;

    for (size_t p = 0; p < search->input->part_count; p++) {
        const struct ov_plan_part *part = part_of(phase, p);
        size_t all = 0, most = 0;
        for (size_t i = first; i < first + part->length; i++) {
            const uint32_t unit = search->input->cycle[i];
            if (may_turn(phase, unit)) {
                all += search->place[unit].pages;
                most = search->place[unit].pages > most ? search->place[unit].pages : most;
            }
        }
        largest = (all > room || part->repeats == 1) && most > largest ? most : largest;
        first += part->length;
    }
    return largest;
}

static bool try_depth(struct phase *phase, double depth)
{
    struct ov_plan_search *search = phase->search;
    const size_t room = keep_others(phase);
    size_t first = 0;

    phase->ring_pages = (size_t)(depth * (double)largest_turning(phase, room) + 0.5);
    if (room == 0 || phase->ring_pages > room) {
        return true;
    }
    phase->own_pages = room - phase->ring_pages;
    phase->cursor = 0;
    for (size_t p = 0; p < search->input->part_count; p++) {
        if (!place_part(phase, first, part_of(phase, p))) {
            return true;
        }
        first += part_of(phase, p)->length;
    }
    return ov_plan_try_places(search, room, &search->choice);
}

bool ov_plan_try_phases(struct ov_plan_search *search)
{
    static const double depths[] = {2, 1.5, 3, 1};
    struct phase phase = {.search = search};
    size_t repeated = 0;
    bool done = true;

    for (size_t p = 0; search->input->part != NULL && p < search->input->part_count; p++) {
        repeated += search->input->part[p].repeats > 1;
    }
    if (repeated < 2 || search->book->groups.count > 0 || search->input->ring_request_pages > 0 || !search->any ||
        ov_plan_search_over(search)) {
        return true;
    }
    phase.taken = calloc(search->book->unit_count + 1, 1);
    done = phase.taken != NULL;
    for (size_t i = 0; done && i < sizeof(depths) / sizeof(*depths); i++) {
        done = try_depth(&phase, depths[i]);
    }
    free(phase.taken);
    return done;
}
