#include "plan_tiers.h"

#include <stdlib.h>

/* Sizes above which units are not streamed that are tried; evenly chosen where there are more. */
#define SIZES 8
/* Segments of the ring that are tried. */
#define SEGMENTS 4
/* A deeper ring has to make the cycle so much shorter, and fewer streamed sizes have to save so many pages. */
#define WORTH 0.99
/* Times this near to each other, or to what is possible, are equal. */
#define ABOUT 1.002

static const double depths[] = {2, 2.5, 3, 4};

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

/* The choice that costs least, with a ring of the usual depth. The largest size comes first and wins when nearly equal,
 * since with all sizes to choose from residency is spread most evenly. */
static struct ov_plan_choice choose(struct ov_plan_book *book, struct ov_plan_draft *draft)
{
    size_t size[SIZES + 1];
    struct ov_plan_choice best = {0, 0, depths[0]};
    double best_cost = -1;

    for (size_t i = find_sizes(book, size); i-- > 0;) {
        /* A group that asks for a deeper ring than its largest unit does may be better off taken apart. */
        const size_t group_pages[] = {SIZE_MAX, 2 * size[i], size[i]};
        for (unsigned step = 0; step < sizeof(group_pages) / sizeof(*group_pages); step++) {
            const struct ov_plan_choice choice = {size[i], group_pages[step], depths[0]};
            if (step > 0 && draft->group_pages <= choice.group_pages) {
                continue;
            }
            ov_plan_assign(book, &choice, draft);
            if (best_cost < 0 || draft->cost < best_cost * WORTH) {
                best = choice;
                best_cost = draft->cost;
            }
        }
    }
    return best;
}

static void sum_up(struct ov_plan *plan, const uint32_t *touches)
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
            plan->cycle_host_pages += place->sparse ? 0 : (size_t)place->pages * touches[i];
        }
        if (place->tier != OV_TIER_STREAMED) {
            place->ring_page = 0;
        }
        if (place->reason == OV_PLAN_NO_ROOM) {
            plan->unplaced_pages += place->pages;
        }
    }
}

static bool simulate(const struct ov_plan_input *input, struct ov_plan *plan)
{
    plan->cycle_s = ov_plan_simulate(plan, input->cycle, input->cycle_length, input->link_pages_per_s, input->compute_s,
                                     &plan->cycle_pages);
    return plan->cycle_s >= 0;
}

/* No order of copies and touches is faster than the link alone or the touches alone. */
static double bound_s(const struct ov_plan_input *input, const struct ov_plan *plan)
{
    const double link = input->link_pages_per_s > 0 ? input->link_pages_per_s : OV_PLAN_LINK;
    double compute = 0;

    for (size_t i = 0; input->compute_s && i < input->cycle_length; i++) {
        compute += input->compute_s[i];
    }
    const double copies = (double)plan->cycle_pages / link;
    return compute > copies ? compute : copies;
}

static void fill_ring(struct ov_plan_book *book, struct ov_plan_ring *ring, struct ov_plan_draft *draft)
{
    ring->order_count = 0;
    for (size_t i = 0; i < book->unit_count; i++) {
        if (draft->place[book->order[i]].tier == OV_TIER_STREAMED) {
            book->list[ring->order_count++] = book->order[i];
        }
    }
    ov_plan_find_near(ring, book->input->cycle, book->input->cycle_length);
}

/* One way to fill the ring. */
struct filling {
    unsigned segments;
    size_t without, crowded;
    double cycle_s;
};

/* Fewer units without a place; else a shorter cycle; where that is nearly the same, fewer neighbours in each other's
 * way. */
static bool better(const struct filling *a, const struct filling *b)
{
    if (a->without != b->without) {
        return a->without < b->without;
    }
    if (a->crowded != b->crowded && a->cycle_s < b->cycle_s * ABOUT && b->cycle_s < a->cycle_s * ABOUT) {
        return a->crowded < b->crowded;
    }
    return a->cycle_s < b->cycle_s;
}

/* Fills the ring in the number of segments that does best. False: memory ran out. */
static bool choose_segments(struct ov_plan_book *book, struct ov_plan_ring *ring, struct ov_plan_draft *draft)
{
    struct filling best = {0};

    for (unsigned segments = 1; segments <= SEGMENTS && ring->ring_pages / segments >= draft->largest_pages;
         segments++) {
        struct ov_plan plan = {.place = draft->place, .unit_count = book->unit_count, .ring_pages = ring->ring_pages};
        ring->segments = segments;
        const size_t without = ov_plan_fill_ring(ring);
        if (!simulate(book->input, &plan)) {
            return false;
        }
        const struct filling filling = {segments, without, ring->crowded, plan.cycle_s};
        if (segments == 1 || better(&filling, &best)) {
            best = filling;
        }
        if (without == 0 && ring->crowded == 0 && plan.cycle_s <= bound_s(book->input, &plan) * ABOUT) {
            break;
        }
    }
    if (ring->segments != best.segments) {
        ring->segments = best.segments;
        ov_plan_fill_ring(ring);
    }
    return true;
}

/* Carries a choice out: tiers, ring places, what is left of the budget, sums. False: memory ran out. */
static bool carry_out(struct ov_plan_book *book, const struct ov_plan_choice *choice, struct ov_plan_place *place,
                      struct ov_plan *plan)
{
    struct ov_plan_draft draft = {.place = place};

    ov_plan_assign(book, choice, &draft);
    if (draft.ring_pages > 0) {
        struct ov_plan_ring ring = {.groups = &book->groups,
                                    .unit_count = book->unit_count,
                                    .ring_pages = draft.ring_pages,
                                    .order = book->list,
                                    .near = book->near,
                                    .placed = book->placed,
                                    .place = place};
        fill_ring(book, &ring, &draft);
        if (!choose_segments(book, &ring, &draft)) {
            return false;
        }
        const size_t extent = ov_plan_ring_extent(&ring);
        draft.room_pages += draft.ring_pages - extent;
        draft.ring_pages = extent;
        for (size_t i = 0; i < ring.order_count; i++) {
            if (!ov_plan_placed(&ring, ring.order[i])) {
                ov_plan_reject(book, &draft, ring.order[i]);
            }
        }
        ov_plan_use_room(book, &draft);
    }
    *plan = (struct ov_plan){.place = place, .unit_count = book->unit_count, .ring_pages = draft.ring_pages};
    sum_up(plan, book->touches);
    return simulate(book->input, plan);
}

/* Tries deeper rings until one is as good as any. The result's places are those in `place` or `other`. */
static bool deepen(struct ov_plan_book *book, struct ov_plan_choice choice, struct ov_plan_place *place,
                   struct ov_plan_place *other, struct ov_plan *best)
{
    const size_t tried = book->input->ring_request_pages > 0 ? 1 : sizeof(depths) / sizeof(*depths);

    for (size_t i = 0; i < tried; i++) {
        struct ov_plan plan;
        choice.depth = depths[i];
        if (!carry_out(book, &choice, i > 0 && best->place == place ? other : place, &plan)) {
            return false;
        }
        if (i == 0 || (plan.unplaced_pages <= best->unplaced_pages && plan.cycle_s < best->cycle_s * WORTH)) {
            *best = plan;
        }
        if (best->ring_pages == 0 || best->cycle_s <= bound_s(book->input, best) * ABOUT) {
            break;
        }
    }
    return true;
}

static bool plan_all_resident(const struct ov_plan_input *input, struct ov_plan_place *place, struct ov_plan *out)
{
    for (size_t i = 0; i < input->unit_count; i++) {
        place[i] = (struct ov_plan_place){.pages = input->unit[i].pages,
                                          .tier = OV_TIER_RESIDENT,
                                          .reason = OV_PLAN_ALL_FITS,
                                          .sparse = input->unit[i].sparse};
    }
    *out = (struct ov_plan){.place = place, .unit_count = input->unit_count};
    sum_up(out, NULL);
    return simulate(input, out);
}

static bool plan_some(const struct ov_plan_input *input, struct ov_plan_place *place, struct ov_plan_place *other,
                      struct ov_plan *out)
{
    struct ov_plan_book book;

    if (!ov_plan_book_open(&book, input)) {
        return false;
    }
    struct ov_plan_draft draft = {.place = place};
    const struct ov_plan_choice choice = choose(&book, &draft);
    const bool done = deepen(&book, choice, place, other, out);
    ov_plan_book_close(&book);
    return done;
}

bool ov_plan_make(const struct ov_plan_input *input, struct ov_plan *out)
{
    struct ov_plan_place *place = calloc(input->unit_count + 1, sizeof(*place));
    struct ov_plan_place *other = calloc(input->unit_count + 1, sizeof(*other));
    struct ov_plan plan;
    bool done = false;

    if (place && other) {
        done = all_fits(input) ? plan_all_resident(input, place, &plan) : plan_some(input, place, other, &plan);
    }
    free(done && plan.place == place ? NULL : place);
    free(done && plan.place == other ? NULL : other);
    if (done) {
        *out = plan;
    }
    return done;
}

void ov_plan_free(struct ov_plan *plan)
{
    free(plan->place);
    *plan = (struct ov_plan){0};
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
