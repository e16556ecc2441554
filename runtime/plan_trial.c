#include "plan_trial.h"

#include <stdlib.h>
#include <string.h>

/* Segments of the ring that are tried. */
#define SEGMENTS 4u
/* Filling a ring or choosing tiers counts as so many looks at each unit. */
#define LOOKS 2u

void ov_plan_sum_up(struct ov_plan *plan, const struct ov_plan_book *book)
{
    for (size_t i = 0; i < plan->unit_count; i++) {
        struct ov_plan_place *place = &plan->place[i];
        if (place->tier == OV_TIER_RESIDENT) {
            plan->resident_units++;
            plan->resident_pages += place->pages;
        } else if (place->tier == OV_TIER_STREAMED) {
            plan->streamed_units++;
            plan->streamed_pages += place->pages;
        } else {
            plan->host_units++;
            plan->host_pages += place->pages;
            plan->cycle_host_pages += place->sparse ? 0 : (size_t)place->pages * book->touches[i];
        }
        if (place->tier != OV_TIER_STREAMED) {
            place->ring_page = 0;
        }
        if (place->reason == OV_PLAN_NO_ROOM) {
            plan->unplaced_pages += place->pages;
        }
    }
    const size_t host = plan->streamed_pages + plan->host_pages, limit = book->input->host_limit_pages;
    plan->host_over_pages = limit > 0 && host > limit ? host - limit : 0;
}

bool ov_plan_search_open(struct ov_plan_search *search, struct ov_plan_book *book, double bound_s)
{
    *search = (struct ov_plan_search){.book = book, .input = book->input, .sim = &book->sim, .bound_s = bound_s};
    search->place = calloc(book->unit_count + 1, sizeof(*search->place));
    search->best.place = calloc(book->unit_count + 1, sizeof(*search->best.place));
    if (search->place && search->best.place) {
        return true;
    }
    ov_plan_search_close(search);
    return false;
}

void ov_plan_search_close(struct ov_plan_search *search)
{
    free(search->place);
    free(search->best.place);
    free(search->ages.item);
}

bool ov_plan_search_over(const struct ov_plan_search *search)
{
    const size_t effort = search->input->effort > 0 ? search->input->effort : OV_PLAN_EFFORT;
    const struct ov_plan *best = &search->best;

    return search->sim->steps_run > effort ||
           (search->any && search->forgiving && best->unplaced_pages == 0 && best->host_over_pages == 0 &&
            search->misplaced_pages == 0 && best->score.cycle_s <= search->bound_s * OV_PLAN_ABOUT);
}

/* ---- comparing ---- */

static size_t misplaced_pages(const struct ov_plan_search *search)
{
    size_t pages = 0;

    for (uint32_t i = 0; i < search->book->unit_count; i++) {
        pages += ov_plan_can_be(search->book, i, search->place[i].tier) ? 0 : search->place[i].pages;
    }
    return pages;
}

static bool is_forgiving(const struct ov_plan *plan)
{
    uint32_t largest = 0;

    for (size_t i = 0; i < plan->unit_count; i++) {
        const struct ov_plan_place *place = &plan->place[i];
        largest = place->tier == OV_TIER_STREAMED && place->pages > largest ? place->pages : largest;
    }
    return plan->ring_pages >= 2 * (size_t)largest;
}

/* What can be done, comes first; then time; then bytes over the link; then memory. */
static bool is_better(const struct ov_plan_search *search, const struct ov_plan *plan, size_t misplaced, bool forgiving)
{
    const struct ov_plan *best = &search->best;
    const double worth = search->input->worth > 0 ? search->input->worth : OV_PLAN_WORTH;

    if (misplaced != search->misplaced_pages) {
        return misplaced < search->misplaced_pages;
    }
    if (plan->unplaced_pages != best->unplaced_pages) {
        return plan->unplaced_pages < best->unplaced_pages;
    }
    if (plan->host_over_pages != best->host_over_pages) {
        return plan->host_over_pages < best->host_over_pages;
    }
    const double time_s = plan->score.cycle_s * (forgiving ? 1 : 1 + worth);
    const double best_s = best->score.cycle_s * (search->forgiving ? 1 : 1 + worth);
    if (time_s < best_s * (1 - OV_PLAN_SAME) || best_s < time_s * (1 - OV_PLAN_SAME)) {
        return time_s < best_s;
    }
    if (plan->score.link_s < best->score.link_s * (1 - OV_PLAN_SAME) ||
        best->score.link_s < plan->score.link_s * (1 - OV_PLAN_SAME)) {
        return plan->score.link_s < best->score.link_s;
    }
    return plan->ring_pages + plan->resident_pages < best->ring_pages + best->resident_pages;
}

bool ov_plan_try_places(struct ov_plan_search *search, size_t ring_pages, const struct ov_plan_choice *choice)
{
    struct ov_plan plan = {.place = search->place, .unit_count = search->book->unit_count, .ring_pages = ring_pages};

    ov_plan_sum_up(&plan, search->book);
    if (!ov_plan_sim_run(search->sim, plan.place, ring_pages, &plan.score)) {
        return false;
    }
    const bool forgiving = is_forgiving(&plan);
    const size_t misplaced = misplaced_pages(search);
    plan.tried = search->best.tried + 1;
    search->best.tried++;
    if (!search->any || is_better(search, &plan, misplaced, forgiving)) {
        search->place = search->best.place;
        search->best = plan;
        search->choice = *choice;
        search->forgiving = forgiving;
        search->misplaced_pages = misplaced;
        search->any = true;
    }
    return true;
}

/* ---- places ---- */

/* One way to fill the ring. */
struct filling {
    unsigned segments; /* 0: by age */
    size_t without, crowded;
    double cycle_s;
};

/* Fewer units without a place; else a shorter cycle; where that is the same, fewer neighbours in each other's way. */
static bool fills_better(const struct filling *a, const struct filling *b)
{
    if (a->without != b->without) {
        return a->without < b->without;
    }
    if (a->crowded != b->crowded && a->cycle_s < b->cycle_s * OV_PLAN_ABOUT &&
        b->cycle_s < a->cycle_s * OV_PLAN_ABOUT) {
        return a->crowded < b->crowded;
    }
    return a->cycle_s < b->cycle_s;
}

static void fill(struct ov_plan_search *search, struct ov_plan_ring *ring, struct filling *filling)
{
    search->sim->steps_run += LOOKS * search->book->unit_count;
    ring->segments = filling->segments > 0 ? filling->segments : 1;
    filling->without =
        filling->segments > 0 ? ov_plan_fill_ring(ring) : ov_plan_fill_ring_by_age(ring, search->sim, &search->ages);
    filling->crowded = ring->crowded;
}

/* Fills the ring in the way that does best. False: memory ran out. */
static bool choose_filling(struct ov_plan_search *search, struct ov_plan_ring *ring, size_t largest_pages)
{
    struct filling best = {0}, last = {0};

    for (unsigned way = 0; way <= SEGMENTS; way++) {
        struct filling filling = {.segments = way};
        struct ov_plan_score score = {0};
        if (way > 0 && ring->ring_pages / way < largest_pages) {
            continue;
        }
        fill(search, ring, &filling);
        if (!ov_plan_sim_run(search->sim, search->place, ring->ring_pages, &score)) {
            return false;
        }
        filling.cycle_s = score.cycle_s;
        if (last.cycle_s == 0 || fills_better(&filling, &best)) {
            best = filling;
        }
        last = filling;
        const double least_s = score.link_s > search->bound_s ? score.link_s : search->bound_s;
        if (filling.without == 0 && filling.crowded == 0 && score.cycle_s <= least_s * OV_PLAN_ABOUT) {
            break;
        }
    }
    if (last.segments != best.segments) {
        fill(search, ring, &best);
    }
    return true;
}

static bool provide_ages(struct ov_plan_search *search, size_t ring_pages)
{
    struct ov_plan_ages *ages = &search->ages;

    if (ring_pages + 2 > ages->room) {
        struct ov_plan_age *item = realloc(ages->item, (ring_pages + 2) * sizeof(*item));
        if (item == NULL) {
            return false;
        }
        ages->item = item;
        ages->room = ring_pages + 2;
    }
    return true;
}

bool ov_plan_try_tiers(struct ov_plan_search *search, struct ov_plan_draft *draft, const struct ov_plan_choice *choice)
{
    struct ov_plan_book *book = search->book;

    if (draft->ring_pages > 0) {
        struct ov_plan_ring ring = {.groups = &book->groups,
                                    .unit_count = book->unit_count,
                                    .ring_pages = draft->ring_pages,
                                    .order = book->list,
                                    .near = book->near,
                                    .placed = book->placed,
                                    .place = draft->place};
        for (size_t i = 0; i < book->unit_count; i++) {
            if (draft->place[book->order[i]].tier == OV_TIER_STREAMED) {
                book->list[ring.order_count++] = book->order[i];
            }
        }
        ov_plan_find_near(&ring, book->input->cycle, book->input->cycle_length);
        if (!provide_ages(search, ring.ring_pages) || !choose_filling(search, &ring, draft->largest_pages)) {
            return false;
        }
        for (size_t i = 0; i < ring.order_count; i++) {
            if (!ov_plan_placed(&ring, ring.order[i])) {
                ov_plan_reject(book, draft, ring.order[i]);
            }
        }
        /* What becomes resident may leave the end of the ring to others. */
        for (size_t extent = ov_plan_ring_extent(&ring), before = SIZE_MAX; extent < before;
             before = extent, extent = ov_plan_ring_extent(&ring)) {
            draft->room_pages += draft->ring_pages - extent;
            draft->ring_pages = extent;
            ov_plan_use_room(book, draft);
        }
    }
    return ov_plan_try_places(search, draft->ring_pages, choice);
}

/* What the tiers take at least: every streamed unit is copied once. */
static double least_s(const struct ov_plan_search *search, const struct ov_plan_draft *draft)
{
    double link_s = 0;

    for (size_t i = 0; i < search->book->unit_count; i++) {
        link_s += draft->place[i].tier == OV_TIER_STREAMED && search->book->touches[i] > 0 ? search->sim->copy_s[i] : 0;
    }
    return link_s;
}

bool ov_plan_try(struct ov_plan_search *search, const struct ov_plan_choice *choice)
{
    struct ov_plan_draft draft = {.place = search->place};
    const struct ov_plan *best = &search->best;

    ov_plan_assign(search->book, choice, &draft);
    search->sim->steps_run += LOOKS * search->book->unit_count;
    if (search->any && best->unplaced_pages == 0 && best->host_over_pages == 0 && search->misplaced_pages == 0 &&
        least_s(search, &draft) > best->score.cycle_s * (1 + OV_PLAN_WORTH)) {
        return true;
    }
    return ov_plan_try_tiers(search, &draft, choice);
}
