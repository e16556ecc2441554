#include "propose.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "question.h"

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

/* What was looked for beside the program is at hand (planning.h). */
static bool make_plan(const struct ov_engine *engine, uint32_t budget_pages, struct ov_plan *plan)
{
    struct ov_question question;
    if (!ov_question_ask(engine, budget_pages, &question)) {
        return false;
    }
    bool made = ov_planning_recall(&engine->planning, &question, plan) || ov_question_answer(&question, plan);
    ov_question_free(&question);
    return made;
}

bool ov_propose_score(const struct ov_engine *engine, const struct ov_plan *plan, struct ov_plan_score *score,
                      double *stall_s)
{
    struct ov_question question;
    if (engine->learn.runs.compute_s == NULL || !ov_question_ask(engine, 0, &question)) {
        return false;
    }
    bool done = ov_plan_simulate(&question.input, plan, score, stall_s);
    ov_question_free(&question);
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
    struct ov_question question;
    struct ov_plan plan;
    bool done = standing_plan(engine, &plan) && ov_question_ask(engine, 0, &question);
    if (done) {
        done = ov_plan_beside(&question.input, &plan, beside_s);
        ov_question_free(&question);
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

/* All pages of the units of the next size above *size, which becomes that; 0: there is none. What is read in part needs
 * no ring. */
static uint64_t next_larger(const struct ov_runs *runs, uint32_t *size)
{
    const uint32_t most = *size;
    uint64_t pages = 0;
    *size = 0;
    for (uint32_t i = 0; i < runs->count; i++) {
        const struct ov_run *run = &runs->item[i];
        if ((run->may & OV_TIER_BIT(OV_TIER_STREAMED)) == 0 || run->sparse || run->pages <= most) {
            continue;
        }
        if (*size == 0 || run->pages < *size) {
            *size = run->pages;
            pages = 0;
        }
        pages += run->pages == *size ? run->pages : 0;
    }
    return pages;
}

/* What the ring needs at least, kept from what the program writes: a weight that does not fit the ring is read over the
 * link by every wave of blocks, which is far worse than activations over the link. Twice the size of a unit, so that
 * one is copied while another is used: of the smallest in any case, and of larger ones if twice as much can be streamed
 * for it as it takes from the program; a quarter of the room at most. */
static uint32_t ring_floor(const struct ov_engine *engine, uint32_t room)
{
    uint32_t floor = 0, size = 0;
    uint64_t gained = next_larger(&engine->learn.runs, &size);
    for (; size != 0; gained += next_larger(&engine->learn.runs, &size)) {
        if (floor == 0 || (2 * size <= room / 4 && gained >= 2 * (uint64_t)(2 * size - floor))) {
            floor = 2 * size;
            gained = 0;
        }
    }
    return floor < room / 4 ? floor : room / 4;
}

/* What the program writes gets its places in want[]. Returns the pages that are left of the budget. */
static uint32_t place_written(struct ov_engine *engine, uint32_t reserve_pages, uint8_t *want)
{
    memset(want, OV_WANT_NOTHING, (size_t)engine->arena.high_page + 1);
    want_runs(&engine->learn.runs, NULL, want); /* claims their pages, so that the others are seen */
    uint32_t room = pages_left_for(engine, reserve_pages), floor = ring_floor(engine, room);
    return room - want_others(engine, want, false, room - floor);
}

bool ov_propose(struct ov_engine *engine, uint32_t reserve_pages, uint8_t *want, struct ov_plan *plan)
{
    const uint32_t room = place_written(engine, reserve_pages, want);
    if (!make_plan(engine, room, plan)) {
        return false;
    }
    want_runs(&engine->learn.runs, plan, want);
    (void)want_others(engine, want, true, room - (uint32_t)(plan->resident_pages + plan->ring_pages));
    return true;
}

bool ov_propose_question(struct ov_engine *engine, uint32_t reserve_pages, struct ov_question *question)
{
    uint8_t *want = malloc((size_t)engine->arena.high_page + 1);
    const bool asked = want != NULL && ov_question_ask(engine, place_written(engine, reserve_pages, want), question);
    free(want);
    return asked;
}
