#include "plan_tiers.h"

/* A touch of a page in a tier where its unit ought not to be: to be avoided by any other choice. */
#define MISPLACED_WEIGHT 64

/* What a unit still waits for. */
enum role {
    SETTLED,
    MUST,      /* device memory of its own: may be neither streamed (now) nor host-mapped */
    WANT,      /* the same, or else host-mapped */
    CANDIDATE, /* streamed, or resident if there is room; a streamed unit stays one */
    LEFT,      /* host-mapped, or resident if room is left in the end */
};

static void settle(struct ov_plan_book *book, struct ov_plan_draft *draft, uint32_t unit, enum ov_tier tier,
                   enum ov_plan_reason reason)
{
    draft->place[unit].tier = (uint8_t)tier;
    draft->place[unit].reason = (uint8_t)reason;
    book->role[unit] = tier == OV_TIER_STREAMED ? CANDIDATE : SETTLED;
}

static bool only_tier(unsigned may)
{
    return (may & (may - 1)) == 0;
}

static bool is_resident(const struct ov_plan_book *book, const struct ov_plan_draft *draft, uint32_t unit)
{
    return book->role[unit] == SETTLED && draft->place[unit].tier == OV_TIER_RESIDENT;
}

static bool fits(const struct ov_plan_book *book, const struct ov_plan_draft *draft, uint32_t unit, enum role role,
                 size_t room)
{
    return book->role[unit] == role && draft->place[unit].pages <= room && ov_plan_can_be(book, unit, OV_TIER_RESIDENT);
}

static void make_resident(struct ov_plan_book *book, struct ov_plan_draft *draft, uint32_t unit, enum role role)
{
    enum ov_plan_reason reason = draft->place[unit].reason;

    if (role == CANDIDATE) {
        reason = book->loads[unit] > 1 ? OV_PLAN_OFTEN : OV_PLAN_SPREAD;
    } else if (role == LEFT) {
        reason = OV_PLAN_LEFT_OVER;
    }
    draft->room_pages -= draft->place[unit].pages;
    settle(book, draft, unit, OV_TIER_RESIDENT, reason);
}

/* One round of error diffusion over the units of a role in a stretch of by_loads: as many of them as there is room for
 * become resident, so that what is resident in all, earlier ones included, is even by bytes. Returns false when none
 * fits any more; otherwise at least one is taken, since up to the last of them the errors add up to no less than the
 * room. */
static bool spread_once(struct ov_plan_book *book, struct ov_plan_draft *draft, enum role role, size_t from, size_t to)
{
    const size_t room = draft->room_pages;
    double fitting = 0, resident = 0, error = 0;

    for (size_t i = from; i < to; i++) {
        const uint32_t unit = book->by_loads[i];
        if (fits(book, draft, unit, role, room)) {
            fitting += draft->place[unit].pages;
        } else if (is_resident(book, draft, unit)) {
            resident += draft->place[unit].pages;
        }
    }
    const double take = fitting < (double)room ? fitting : (double)room;
    const double part = fitting > 0 ? (take + resident) / (fitting + resident) : 0;
    for (size_t i = from; i < to && fitting > 0; i++) {
        const uint32_t unit = book->by_loads[i];
        const uint32_t pages = draft->place[unit].pages;
        if (is_resident(book, draft, unit)) {
            error += part * pages - pages;
        } else if (fits(book, draft, unit, role, room)) {
            error += part * pages;
            if (error * 2 >= pages && pages <= draft->room_pages) {
                error -= pages;
                make_resident(book, draft, unit, role);
            }
        }
    }
    return fitting > 0;
}

/* Units of one number of loads: by_loads[from .. result). */
static size_t class_end(const struct ov_plan_book *book, size_t from)
{
    const uint32_t loads = book->loads[book->by_loads[from]];
    size_t to = from + 1;

    while (to < book->unit_count && book->loads[book->by_loads[to]] == loads) {
        to++;
    }
    return to;
}

static void spread(struct ov_plan_book *book, struct ov_plan_draft *draft, enum role role)
{
    for (size_t from = 0, to; from < book->unit_count && draft->room_pages > 0; from = to) {
        to = class_end(book, from);
        while (spread_once(book, draft, role, from, to)) {
        }
    }
}

/* ---- which candidates become resident ---- */

static size_t candidate_pages(const struct ov_plan_book *book, size_t from, size_t to)
{
    size_t pages = 0;

    for (size_t i = from; i < to; i++) {
        const uint32_t unit = book->by_loads[i];
        pages += book->role[unit] == CANDIDATE && ov_plan_can_be(book, unit, OV_TIER_RESIDENT)
                     ? book->input->unit[unit].pages
                     : 0;
    }
    return pages;
}

/* Takes the unit if it may be taken and fits. */
static void take(struct ov_plan_book *book, struct ov_plan_draft *draft, uint32_t unit, enum ov_plan_reason reason)
{
    if (fits(book, draft, unit, CANDIDATE, draft->room_pages)) {
        make_resident(book, draft, unit, CANDIDATE);
        draft->place[unit].reason = (uint8_t)(book->loads[unit] > 1 ? OV_PLAN_OFTEN : reason);
    }
}

/* Computation before the unit since the one before it of the same part, or round the part's end. */
static double since_s(const struct ov_plan_book *book, uint32_t unit, uint32_t before, double last_s)
{
    const struct ov_plan_book_part *part = &book->part[book->part_of[unit]];

    if (before != UINT32_MAX && book->part_of[before] == book->part_of[unit]) {
        return book->first_s[unit] - book->first_s[before];
    }
    return book->first_s[unit] - part->begin_s + (last_s > part->begin_s ? part->end_s - last_s : 0);
}

static bool is_choosable(const struct ov_plan_book *book, uint32_t unit)
{
    return book->role[unit] == CANDIDATE && ov_plan_can_be(book, unit, OV_TIER_RESIDENT);
}

/* What is streamed of a class gets, by the end of each touch, the part of all copies that the part of all computation
 * has been until then. */
static void take_by_time(struct ov_plan_book *book, struct ov_plan_draft *draft, size_t from, size_t to)
{
    const size_t pages = candidate_pages(book, from, to);
    const double streamed = pages > draft->room_pages ? (double)(pages - draft->room_pages) : 0;
    double all_s = 0, due = 0, last_s = 0;
    uint32_t before = UINT32_MAX;

    for (size_t i = from; i < to; i++) {
        last_s = is_choosable(book, book->by_loads[i]) ? book->first_s[book->by_loads[i]] : last_s;
    }
    for (size_t i = from; i < to; i++) {
        if (is_choosable(book, book->by_loads[i])) {
            all_s += since_s(book, book->by_loads[i], before, last_s);
            before = book->by_loads[i];
        }
    }
    before = UINT32_MAX;
    for (size_t i = from; i < to && all_s > 0; i++) {
        const uint32_t unit = book->by_loads[i];
        if (!is_choosable(book, unit)) {
            continue;
        }
        due += streamed * since_s(book, unit, before, last_s) / all_s;
        before = unit;
        if (due * 2 >= book->input->unit[unit].pages) {
            due -= book->input->unit[unit].pages;
        } else {
            take(book, draft, unit, OV_PLAN_SPREAD);
        }
    }
}

/* Those of one class and size that fit, evenly; larger sizes first. */
static void take_by_size(struct ov_plan_book *book, struct ov_plan_draft *draft, size_t from, size_t to)
{
    for (uint32_t size = UINT32_MAX, next = 0; size > 0; size = next, next = 0) {
        size_t pages = 0;
        double due = 0;
        for (size_t i = from; i < to; i++) {
            const uint32_t unit = book->by_loads[i], unit_pages = book->input->unit[unit].pages;
            if (is_choosable(book, unit)) {
                pages += unit_pages == size ? size : 0;
                next = unit_pages < size && unit_pages > next ? unit_pages : next;
            }
        }
        const double part = pages > draft->room_pages ? (double)draft->room_pages / (double)pages : 1;
        for (size_t i = from; i < to && pages > 0; i++) {
            const uint32_t unit = book->by_loads[i];
            if (is_choosable(book, unit) && book->input->unit[unit].pages == size) {
                due += part;
                if (due >= 0.5) {
                    due -= 1;
                    take(book, draft, unit, OV_PLAN_FITTING);
                }
            }
        }
    }
}

static void take_in_order(struct ov_plan_book *book, struct ov_plan_draft *draft, const uint32_t *order,
                          enum ov_plan_reason reason)
{
    for (size_t i = 0; i < book->unit_count; i++) {
        take(book, draft, order[i], reason);
    }
}

static void take_by_count(struct ov_plan_book *book, struct ov_plan_draft *draft, unsigned nth)
{
    unsigned number = 0;

    for (size_t i = 0; i < book->unit_count; i++) {
        if (book->role[book->order[i]] == CANDIDATE && ++number % nth != 0) {
            take(book, draft, book->order[i], OV_PLAN_SPREAD);
        }
    }
}

static void choose_residents(struct ov_plan_book *book, const struct ov_plan_choice *choice,
                             struct ov_plan_draft *draft)
{
    switch (choice->rule) {
    case OV_PLAN_BY_BYTES:
        break;
    case OV_PLAN_BY_TIME:
    case OV_PLAN_BY_SIZE:
        for (size_t from = 0, to; from < book->unit_count; from = to) {
            to = class_end(book, from);
            (choice->rule == OV_PLAN_BY_TIME ? take_by_time : take_by_size)(book, draft, from, to);
        }
        break;
    case OV_PLAN_BY_VALUE:
        take_in_order(book, draft, book->by_value, OV_PLAN_FITTING);
        break;
    case OV_PLAN_BY_ORDER:
        take_in_order(book, draft, book->order, OV_PLAN_ORDER);
        break;
    case OV_PLAN_BY_COUNT:
        take_by_count(book, draft, choice->nth);
        break;
    }
    spread(book, draft, CANDIDATE); /* what is left of the room */
}

void ov_plan_settle(struct ov_plan_book *book, struct ov_plan_draft *draft, uint32_t unit, enum ov_tier tier,
                    enum ov_plan_reason reason)
{
    if (tier == OV_TIER_RESIDENT) {
        draft->room_pages -= draft->place[unit].pages;
    } else {
        draft->room_pages += draft->place[unit].pages;
    }
    settle(book, draft, unit, tier, reason);
}

/* For a unit that is not streamed and found no room as planned. */
static void fall_back(struct ov_plan_book *book, struct ov_plan_draft *draft, uint32_t unit, enum ov_plan_reason reason)
{
    const size_t pages = draft->place[unit].pages;

    if (ov_plan_can_be(book, unit, OV_TIER_HOST)) {
        settle(book, draft, unit, OV_TIER_HOST, reason);
    } else if (ov_plan_may_be(book, unit, OV_TIER_RESIDENT) && pages <= draft->room_pages) {
        draft->room_pages -= pages;
        settle(book, draft, unit, OV_TIER_RESIDENT, reason);
    } else {
        settle(book, draft, unit, OV_TIER_HOST, ov_plan_may_be(book, unit, OV_TIER_HOST) ? reason : OV_PLAN_NO_ROOM);
    }
}

static void fall_back_all(struct ov_plan_book *book, struct ov_plan_draft *draft, enum role role)
{
    for (size_t i = 0; i < book->unit_count; i++) {
        const uint32_t unit = book->by_loads[i];
        if (book->role[unit] == role) {
            fall_back(book, draft, unit, draft->place[unit].reason);
        }
    }
}

static void give_roles(struct ov_plan_book *book, const struct ov_plan_choice *choice, struct ov_plan_draft *draft)
{
    for (uint32_t unit = 0; unit < book->unit_count; unit++) {
        const struct ov_plan_unit *in = &book->input->unit[unit];
        struct ov_plan_place *place = &draft->place[unit];
        const bool streamable = ov_plan_can_be(book, unit, OV_TIER_STREAMED);

        *place = (struct ov_plan_place){.pages = in->pages, .sparse = in->sparse};
        place->reason = only_tier(in->may) ? OV_PLAN_ONLY_TIER : streamable ? OV_PLAN_LARGE : OV_PLAN_UNSTREAMABLE;
        if (book->loads[unit] == 0 && ov_plan_can_be(book, unit, OV_TIER_HOST)) {
            const enum ov_plan_reason rare = book->touches[unit] > 0 ? OV_PLAN_SPARSE : OV_PLAN_OUTSIDE;
            settle(book, draft, unit, OV_TIER_HOST, only_tier(in->may) ? OV_PLAN_ONLY_TIER : rare);
        } else if (streamable && in->pages <= choice->unit_pages) {
            book->role[unit] = CANDIDATE;
        } else {
            book->role[unit] = ov_plan_may_be(book, unit, OV_TIER_HOST) ? WANT : MUST;
        }
    }
}

static size_t group_candidates(const struct ov_plan_book *book, size_t group, uint32_t *largest)
{
    const struct ov_plan_groups *groups = &book->groups;
    size_t sum = 0;
    uint32_t most = 0;

    for (uint32_t m = groups->member_start[group]; m < groups->member_start[group + 1]; m++) {
        const uint32_t unit = groups->member[m];
        const uint32_t pages = book->input->unit[unit].pages;
        if (book->role[unit] == CANDIDATE) {
            sum += pages;
            if (pages > most) {
                most = pages;
                *largest = unit;
            }
        }
    }
    return sum;
}

/* No candidate, and no group of candidates, larger than what the ring may become. */
static void limit_candidates(struct ov_plan_book *book, const struct ov_plan_choice *choice,
                             struct ov_plan_draft *draft)
{
    const size_t most = choice->group_pages < draft->room_pages ? choice->group_pages : draft->room_pages;
    uint32_t largest = 0;

    for (uint32_t unit = 0; unit < book->unit_count; unit++) {
        if (book->role[unit] == CANDIDATE && draft->place[unit].pages > most) {
            book->role[unit] = WANT;
            draft->place[unit].reason = OV_PLAN_LARGE;
        }
    }
    for (size_t group = 0; group < book->groups.count; group++) {
        while (group_candidates(book, group, &largest) > most) {
            book->role[largest] = WANT;
            draft->place[largest].reason = OV_PLAN_GROUP;
        }
    }
}

/* Depth of the ring for the candidates there are. */
static size_t ring_for(const struct ov_plan_book *book, const struct ov_plan_choice *choice,
                       struct ov_plan_draft *draft)
{
    const size_t request = book->input->ring_request_pages;
    size_t all = 0, largest = 0, group_most = 0;
    uint32_t ignored;

    for (uint32_t unit = 0; unit < book->unit_count; unit++) {
        if (book->role[unit] == CANDIDATE) {
            const size_t pages = draft->place[unit].pages;
            all += pages;
            largest = pages > largest ? pages : largest;
        }
    }
    group_most = largest;
    for (size_t group = 0; group < book->groups.count; group++) {
        const size_t pages = group_candidates(book, group, &ignored);
        group_most = pages > group_most ? pages : group_most;
    }
    draft->largest_pages = largest;
    draft->group_pages = group_most;

    const double beside = choice->depth < 2 ? choice->depth - 1 : 1; /* a group and so much of another unit */
    const size_t with_group = group_most + (size_t)(beside * (double)largest + 0.5);
    size_t ring = (size_t)(choice->depth * (double)largest + 0.5);
    ring = ring > with_group ? ring : with_group;
    if (request > 0) {
        ring = request > group_most ? request : group_most;
    }
    return ring < all ? ring : all;
}

static double cost_of(const struct ov_plan_book *book, const struct ov_plan_draft *draft)
{
    double cost = 0;

    for (uint32_t unit = 0; unit < book->unit_count; unit++) {
        const struct ov_plan_place *place = &draft->place[unit];
        if (place->reason == OV_PLAN_NO_ROOM || !ov_plan_can_be(book, unit, place->tier)) {
            cost += (double)place->pages * MISPLACED_WEIGHT * (book->touches[unit] + 1.0);
        } else if (place->tier == OV_TIER_STREAMED) {
            cost += (double)place->pages * book->loads[unit];
        } else if (place->tier == OV_TIER_HOST && !place->sparse) {
            cost += (double)place->pages * OV_PLAN_HOST_WEIGHT * book->touches[unit];
        }
    }
    return cost;
}

void ov_plan_assign(struct ov_plan_book *book, const struct ov_plan_choice *choice, struct ov_plan_draft *draft)
{
    draft->room_pages = book->input->budget_pages;
    give_roles(book, choice, draft);
    spread(book, draft, MUST);
    fall_back_all(book, draft, MUST);
    limit_candidates(book, choice, draft);

    const size_t wished = ring_for(book, choice, draft);
    draft->ring_pages = wished < draft->room_pages ? wished : draft->room_pages;
    draft->room_pages -= draft->ring_pages;
    spread(book, draft, WANT);
    fall_back_all(book, draft, WANT);
    choose_residents(book, choice, draft);
    /* The large ones may have become resident, and a shallower ring will do for the rest. */
    for (size_t ring = ring_for(book, choice, draft); ring < draft->ring_pages; ring = ring_for(book, choice, draft)) {
        draft->room_pages += draft->ring_pages - ring;
        draft->ring_pages = ring;
        spread(book, draft, CANDIDATE);
    }
    for (uint32_t unit = 0; unit < book->unit_count; unit++) {
        if (book->role[unit] == CANDIDATE) {
            const bool only = only_tier(book->input->unit[unit].may);
            settle(book, draft, unit, OV_TIER_STREAMED,
                   only                    ? OV_PLAN_ONLY_TIER
                   : book->loads[unit] > 0 ? OV_PLAN_CYCLE
                                           : OV_PLAN_OUTSIDE);
        }
    }
    ov_plan_use_room(book, draft);
    if (choice->rule != OV_PLAN_BY_ORDER && choice->rule != OV_PLAN_BY_COUNT) {
        ov_plan_use_last_pages(book, draft);
    }
    draft->cost = cost_of(book, draft);
}

void ov_plan_resume(struct ov_plan_book *book, struct ov_plan_draft *draft)
{
    draft->room_pages = book->input->budget_pages - draft->ring_pages;
    draft->largest_pages = 0;
    for (uint32_t unit = 0; unit < book->unit_count; unit++) {
        const struct ov_plan_place *place = &draft->place[unit];
        const bool streamed = place->tier == OV_TIER_STREAMED;
        book->role[unit] = streamed ? CANDIDATE : SETTLED;
        draft->room_pages -= place->tier == OV_TIER_RESIDENT ? place->pages : 0;
        draft->largest_pages = streamed && place->pages > draft->largest_pages ? place->pages : draft->largest_pages;
    }
}

void ov_plan_reject(struct ov_plan_book *book, struct ov_plan_draft *draft, uint32_t unit)
{
    const size_t pages = draft->place[unit].pages;

    if (ov_plan_can_be(book, unit, OV_TIER_RESIDENT) && pages <= draft->room_pages) {
        draft->room_pages -= pages;
        settle(book, draft, unit, OV_TIER_RESIDENT, OV_PLAN_COLLISION);
    } else {
        fall_back(book, draft, unit, OV_PLAN_COLLISION);
    }
}

void ov_plan_use_room(struct ov_plan_book *book, struct ov_plan_draft *draft)
{
    spread(book, draft, CANDIDATE);
    for (uint32_t unit = 0; unit < book->unit_count; unit++) {
        if (book->role[unit] == SETTLED && draft->place[unit].tier == OV_TIER_HOST) {
            book->role[unit] = LEFT;
        }
    }
    spread(book, draft, LEFT);
    for (uint32_t unit = 0; unit < book->unit_count; unit++) {
        if (book->role[unit] == LEFT) {
            book->role[unit] = SETTLED;
        }
    }
}
