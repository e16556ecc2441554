#include "plan_ring.h"

#include "plan_simulate.h"

#include <string.h>

/* States in ring->placed. */
enum { OUT, IN, FIRST /* out, and to be placed before others */ };

static bool apart(const struct ov_plan_place *place, uint32_t unit, size_t page, uint32_t other)
{
    const size_t start = place[other].ring_page;
    return page + place[unit].pages <= start || start + place[other].pages <= page;
}

bool ov_plan_overlap(const struct ov_plan *plan, uint32_t a, uint32_t b)
{
    return plan->place[a].tier == OV_TIER_STREAMED && plan->place[b].tier == OV_TIER_STREAMED &&
           !apart(plan->place, a, plan->place[a].ring_page, b);
}

static void add_near(struct ov_plan_near *near, uint32_t unit)
{
    for (uint32_t i = 0; i < near->count; i++) {
        if (near->unit[i] == unit) {
            return;
        }
    }
    if (near->count < OV_PLAN_NEIGHBOURS) {
        near->unit[near->count++] = unit;
    }
}

void ov_plan_find_near(struct ov_plan_ring *ring, const uint32_t *cycle, size_t cycle_length)
{
    uint32_t before = UINT32_MAX;

    for (size_t i = 0; i < ring->order_count; i++) {
        ring->near[ring->order[i]].count = 0;
    }
    /* Once round, and on to the first streamed unit of the next cycle. */
    for (size_t i = 0; i < 2 * cycle_length; i++) {
        const uint32_t unit = cycle[i < cycle_length ? i : i - cycle_length];
        if (ring->place[unit].tier != OV_TIER_STREAMED) {
            continue;
        }
        if (before != UINT32_MAX && before != unit) {
            add_near(&ring->near[before], unit);
            add_near(&ring->near[unit], before);
        }
        before = unit;
        if (i >= cycle_length) {
            break;
        }
    }
}

/* Steps through the units that share a group with `unit` (some may come twice); UINT32_MAX after the last. */
struct partners {
    const struct ov_plan_groups *groups;
    uint32_t unit, group, group_end, member, member_end;
};

static struct partners partners_of(const struct ov_plan_ring *ring, uint32_t unit)
{
    const struct ov_plan_groups *groups = ring->groups;
    return (struct partners){groups, unit, groups->of_start[unit], groups->of_start[unit + 1], 0, 0};
}

static uint32_t next_partner(struct partners *at)
{
    for (;;) {
        while (at->member < at->member_end) {
            const uint32_t other = at->groups->member[at->member++];
            if (other != at->unit) {
                return other;
            }
        }
        if (at->group == at->group_end) {
            return UINT32_MAX;
        }
        const uint32_t group = at->groups->of[at->group++];
        at->member = at->groups->member_start[group];
        at->member_end = at->groups->member_start[group + 1];
    }
}

static bool clear_of_groups(const struct ov_plan_ring *ring, uint32_t unit, size_t page)
{
    struct partners partners = partners_of(ring, unit);

    for (uint32_t other = next_partner(&partners); other != UINT32_MAX; other = next_partner(&partners)) {
        if (ring->placed[other] == IN && !apart(ring->place, unit, page, other)) {
            return false;
        }
    }
    return true;
}

static bool clear_of_near(const struct ov_plan_ring *ring, uint32_t unit, size_t page)
{
    const struct ov_plan_near *near = &ring->near[unit];

    for (uint32_t i = 0; i < near->count; i++) {
        if (ring->placed[near->unit[i]] == IN && !apart(ring->place, unit, page, near->unit[i])) {
            return false;
        }
    }
    return true;
}

/* The best place so far in a search: clear of groups, and of neighbours too if `good`. */
struct search {
    const struct ov_plan_ring *ring;
    uint32_t unit;
    size_t page; /* SIZE_MAX: none */
    bool good;
};

static void consider(struct search *search, size_t page)
{
    const struct ov_plan_ring *ring = search->ring;

    if (search->good || page + ring->place[search->unit].pages > ring->ring_pages ||
        !clear_of_groups(ring, search->unit, page)) {
        return;
    }
    const bool good = clear_of_near(ring, search->unit, page);
    if (good || search->page == SIZE_MAX) {
        search->page = page;
        search->good = good;
    }
}

static size_t segment_start(const struct ov_plan_ring *ring, size_t segment)
{
    return segment % ring->segments * (ring->ring_pages / ring->segments);
}

static size_t segment_end(const struct ov_plan_ring *ring, size_t segment)
{
    return segment % ring->segments + 1 == ring->segments ? ring->ring_pages : segment_start(ring, segment + 1);
}

static void consider_behind(struct search *search, uint32_t other)
{
    const struct ov_plan_ring *ring = search->ring;

    if (ring->placed[other] == IN) {
        consider(search, ring->place[other].ring_page + (size_t)ring->place[other].pages);
    }
}

/* Any place that exists can be slid down to page 0 or to the end of a unit it must lie apart from: trying those is
 * enough. */
static void consider_ends(struct search *search)
{
    const struct ov_plan_near *near = &search->ring->near[search->unit];
    struct partners partners = partners_of(search->ring, search->unit);

    for (uint32_t i = 0; i < near->count && !search->good; i++) {
        consider_behind(search, near->unit[i]);
    }
    for (uint32_t other = next_partner(&partners); other != UINT32_MAX && !search->good;
         other = next_partner(&partners)) {
        consider_behind(search, other);
    }
}

/* Where the ring is filled next. */
struct cursor {
    size_t page, segment;
};

static bool place_unit(struct ov_plan_ring *ring, uint32_t unit, struct cursor *cursor)
{
    const uint32_t pages = ring->place[unit].pages;
    struct search search = {ring, unit, SIZE_MAX, false};

    if (cursor->page + pages <= segment_end(ring, cursor->segment)) {
        consider(&search, cursor->page);
    }
    for (size_t i = 1; i <= ring->segments && !search.good; i++) {
        consider(&search, segment_start(ring, cursor->segment + i));
    }
    if (!search.good) {
        consider_ends(&search);
    }
    if (search.page == SIZE_MAX) {
        return false;
    }
    ring->place[unit].ring_page = (uint32_t)search.page;
    ring->placed[unit] = IN;
    ring->crowded += !search.good;
    cursor->page = search.page + pages;
    for (cursor->segment = 0; segment_end(ring, cursor->segment) < cursor->page;) {
        cursor->segment++;
    }
    return true;
}

static size_t place_rest(struct ov_plan_ring *ring, struct cursor *cursor)
{
    size_t without = 0;

    for (size_t i = 0; i < ring->order_count; i++) {
        const uint32_t unit = ring->order[i];
        if (ring->placed[unit] != IN && !place_unit(ring, unit, cursor)) {
            without++;
        }
    }
    return without;
}

/* Once more, and those that found no place go first, each with the units that it must lie apart from. */
static size_t fill_again(struct ov_plan_ring *ring)
{
    struct cursor cursor = {0, 0};

    ring->crowded = 0;
    for (size_t i = 0; i < ring->order_count; i++) {
        uint8_t *placed = &ring->placed[ring->order[i]];
        *placed = *placed == IN ? OUT : FIRST;
    }
    for (size_t i = 0; i < ring->order_count; i++) {
        const uint32_t unit = ring->order[i];
        if (ring->placed[unit] != FIRST) {
            continue;
        }
        struct partners partners = partners_of(ring, unit);
        place_unit(ring, unit, &cursor);
        for (uint32_t other = next_partner(&partners); other != UINT32_MAX; other = next_partner(&partners)) {
            if (ring->place[other].tier == OV_TIER_STREAMED && ring->placed[other] != IN) {
                place_unit(ring, other, &cursor);
            }
        }
    }
    return place_rest(ring, &cursor);
}

size_t ov_plan_fill_ring(struct ov_plan_ring *ring)
{
    struct cursor cursor = {0, 0};

    memset(ring->placed, OUT, ring->unit_count);
    ring->crowded = 0;
    return place_rest(ring, &cursor) == 0 ? 0 : fill_again(ring);
}

/* ---- by age ---- */

/* What was read last, and when, from one page of the ring to where the next begins. */
static void set_age(struct ov_plan_ages *ages, size_t page, size_t pages, uint32_t age)
{
    struct ov_plan_age *item = ages->item;
    size_t first = 0, last;

    while (first + 1 < ages->count && item[first + 1].page <= page) {
        first++;
    }
    for (last = first; last + 1 < ages->count && item[last + 1].page < page + pages;) {
        last++;
    }
    const size_t end = last + 1 < ages->count ? item[last + 1].page : ages->pages;
    struct ov_plan_age piece[3];
    size_t count = 0;
    if (item[first].page < page) {
        piece[count++] = item[first];
    }
    piece[count++] = (struct ov_plan_age){(uint32_t)page, age};
    if (page + pages < end) {
        piece[count++] = (struct ov_plan_age){(uint32_t)(page + pages), item[last].age};
    }
    memmove(item + first + count, item + last + 1, (ages->count - last - 1) * sizeof(*item));
    memcpy(item + first, piece, count * sizeof(*item));
    ages->count += first + count - last - 1;
}

/* Of all places for the unit the one whose youngest page is oldest; of equals the first. Any place can be slid down to
 * where something begins. */
static size_t oldest_place(const struct ov_plan_ring *ring, const struct ov_plan_ages *ages, uint32_t unit)
{
    const size_t pages = ring->place[unit].pages;
    size_t best = SIZE_MAX;
    uint32_t best_age = UINT32_MAX;

    for (size_t i = 0; i < ages->count && ages->item[i].page + pages <= ages->pages; i++) {
        const size_t page = ages->item[i].page;
        uint32_t youngest = 0;
        for (size_t k = i; k < ages->count && ages->item[k].page < page + pages && youngest < best_age; k++) {
            youngest = ages->item[k].age > youngest ? ages->item[k].age : youngest;
        }
        if (youngest < best_age && clear_of_groups(ring, unit, page)) {
            best = page;
            best_age = youngest;
        }
    }
    return best;
}

/* Units outside the cycle, anywhere; returns how many found no place. */
static size_t place_unused(struct ov_plan_ring *ring)
{
    size_t without = 0;

    for (size_t i = 0; i < ring->order_count; i++) {
        const uint32_t unit = ring->order[i];
        struct search search = {ring, unit, SIZE_MAX, false};
        if (ring->placed[unit] == OUT) {
            consider(&search, 0);
            if (search.page == SIZE_MAX) {
                consider_ends(&search);
            }
            ring->placed[unit] = search.page == SIZE_MAX ? FIRST : IN;
            ring->place[unit].ring_page = search.page == SIZE_MAX ? 0 : (uint32_t)search.page;
            without += search.page == SIZE_MAX;
        }
    }
    return without;
}

size_t ov_plan_fill_ring_by_age(struct ov_plan_ring *ring, struct ov_plan_sim *sim, struct ov_plan_ages *ages)
{
    size_t without = 0;

    ages->pages = ring->ring_pages;
    ages->count = 1;
    ages->item[0] = (struct ov_plan_age){0, 0};
    memset(ring->placed, OUT, ring->unit_count);
    ring->crowded = 0;
    for (size_t step = 0; step < 2 * sim->step_count; step++) {
        const size_t at = step < sim->step_count ? step : step - sim->step_count;
        const uint32_t unit = sim->input->cycle[sim->touch[at]];
        if (step > 0 && at == 0) { /* all once more */
            memset(ring->placed, OUT, ring->unit_count);
            without = ring->crowded = 0;
        }
        if (ring->place[unit].tier != OV_TIER_STREAMED) {
            continue;
        }
        if (ring->placed[unit] == OUT) {
            const size_t page = oldest_place(ring, ages, unit);
            ring->placed[unit] = page == SIZE_MAX ? FIRST : IN;
            ring->place[unit].ring_page = page == SIZE_MAX ? 0 : (uint32_t)page;
            ring->crowded += page != SIZE_MAX && !clear_of_near(ring, unit, page);
            without += page == SIZE_MAX;
        }
        if (ring->placed[unit] == IN) {
            /* What is read again soon is as young as what is read then. */
            const size_t until = sim->next[at] > 0 ? step + sim->next[at] - at : step;
            set_age(ages, ring->place[unit].ring_page, ring->place[unit].pages, (uint32_t)until + 1);
        }
        sim->steps_run += 1 + ages->count / 8;
    }
    return without + place_unused(ring);
}

bool ov_plan_placed(const struct ov_plan_ring *ring, uint32_t unit)
{
    return ring->placed[unit] == IN;
}

size_t ov_plan_ring_extent(const struct ov_plan_ring *ring)
{
    size_t extent = 0;

    for (size_t i = 0; i < ring->order_count; i++) {
        const struct ov_plan_place *place = &ring->place[ring->order[i]];
        const size_t end = (size_t)place->ring_page + place->pages;
        if (place->tier == OV_TIER_STREAMED && ov_plan_placed(ring, ring->order[i]) && end > extent) {
            extent = end;
        }
    }
    return extent;
}
