#include "plan_simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Cycles whose times are looked at, after one in which the ring gets into its rhythm. */
#define CYCLES 4
/* Two cycles that differ by less are the same. */
#define SETTLED 1e-9
#define NOBODY  UINT32_MAX

/* ---- which copies ---- */

/* Ring pages between two places where some unit begins or ends always have one owner: a cell. The number of the cell
 * that each page lies in. */
static void find_cells(struct ov_plan_sim *sim, const struct ov_plan_place *place, size_t ring_pages)
{
    uint32_t cell = 0;

    memset(sim->cell, 0, (ring_pages + 1) * sizeof(*sim->cell));
    for (size_t i = 0; i < sim->input->unit_count; i++) {
        if (place[i].tier == OV_TIER_STREAMED) {
            sim->cell[place[i].ring_page] = 1;
            sim->cell[place[i].ring_page + place[i].pages] = 1;
        }
    }
    for (size_t page = 0; page <= ring_pages; page++) {
        cell += sim->cell[page] != 0 && page > 0;
        sim->cell[page] = cell;
    }
}

/* Takes the unit's place for it; returns when that was read last. */
static int64_t take_place(struct ov_plan_sim *sim, const struct ov_plan_place *place, uint32_t unit)
{
    const uint32_t end = sim->cell[place[unit].ring_page + place[unit].pages];
    int64_t after = -1;

    for (uint32_t cell = sim->cell[place[unit].ring_page]; cell < end; cell++) {
        const uint32_t before = sim->owner[cell];
        if (before != NOBODY && before != unit) {
            sim->present[before] = false;
            after = sim->last[before] > after ? sim->last[before] : after;
        }
        sim->owner[cell] = unit;
    }
    sim->present[unit] = true;
    return after;
}

/* The first cycle brings the ring into its rhythm, the second is written down. */
static void find_loads(struct ov_plan_sim *sim, const struct ov_plan_place *place, size_t ring_pages)
{
    const int64_t steps = (int64_t)sim->step_count;

    find_cells(sim, place, ring_pages);
    memset(sim->owner, 0xff, (ring_pages + 1) * sizeof(*sim->owner));
    memset(sim->present, 0, sim->input->unit_count * sizeof(*sim->present));
    for (int64_t now = 0; now < 2 * steps; now++) {
        const size_t step = (size_t)(now < steps ? now : now - steps);
        const uint32_t unit = sim->input->cycle[sim->touch[step]];
        if (place[unit].tier == OV_TIER_STREAMED) {
            const bool needed = !sim->present[unit];
            const int64_t after = needed ? take_place(sim, place, unit) : -1;
            sim->load[step].needed = needed;
            sim->load[step].after = now < steps || after < 0 ? OV_PLAN_FREE : (int32_t)(after - steps);
            sim->last[unit] = now;
        } else {
            sim->load[step].needed = false;
        }
    }
    sim->steps_run += sim->step_count;
}

/* ---- when ---- */

struct clock {
    double now;       /* end of the last touch */
    double link_free; /* end of the last copy */
    double link_s;    /* spent copying */
    double stall_s;
};

static double end_of(const struct ov_plan_sim *sim, int32_t after)
{
    return after >= 0 ? sim->end_s[after] : sim->before_s[(int64_t)sim->step_count + after];
}

/* When a copy may start that waits for `after`, which has ended. */
static double start_of(const struct ov_plan_sim *sim, const struct clock *clock, int32_t after)
{
    if (after != OV_PLAN_FREE) {
        const double freed = end_of(sim, after);
        if (freed > clock->link_free) {
            return freed + OV_PLAN_TURNAROUND_S;
        }
    }
    return clock->link_free;
}

/* A dense read in place takes part in the link. */
static double read_in_place(const struct ov_plan_sim *sim, struct clock *clock, uint32_t unit, double touch_s)
{
    const double link_s = sim->copy_s[unit] * OV_PLAN_HOST_WEIGHT;

    clock->link_free = (clock->link_free > clock->now ? clock->link_free : clock->now) + link_s;
    clock->link_s += link_s;
    return touch_s > link_s ? touch_s : link_s;
}

static bool read_densely(const struct ov_plan_place *place)
{
    return place->tier == OV_TIER_HOST && !place->sparse;
}

static void wait_for(struct ov_plan_sim *sim, struct clock *clock, size_t step, double ready)
{
    sim->stall_s[step] = ready > clock->now ? ready - clock->now : 0;
    clock->stall_s += sim->stall_s[step];
    clock->now += sim->stall_s[step];
}

static void run_lap(struct ov_plan_sim *sim, const struct ov_plan_place *place, const struct ov_plan_lap *lap,
                    struct clock *clock)
{
    for (size_t step = lap->first; step < lap->first + lap->count; step++) {
        const struct ov_plan_load *load = &sim->load[step];
        const uint32_t touch = sim->touch[step], unit = sim->input->cycle[touch];
        double touch_s = sim->compute_s[touch];

        sim->stall_s[step] = 0;
        if (load->needed) {
            clock->link_free = start_of(sim, clock, load->after) + sim->copy_s[unit];
            clock->link_s += sim->copy_s[unit];
            wait_for(sim, clock, step, clock->link_free);
        } else if (read_densely(&place[unit])) {
            touch_s = read_in_place(sim, clock, unit, touch_s);
        }
        clock->now += touch_s;
        sim->end_s[step] = clock->now;
    }
}

/* ---- when, if copies slow the touches that run meanwhile ---- */

/* Copies are issued here when their time has come, since a touch is as long as the copies beside it make it. */
struct issuer {
    size_t next;    /* step: the next copy is its or a later one's */
    size_t wrapped; /* of the next cycle */
};

/* The next copy: its step, or SIZE_MAX if the one it waits for has not ended when `step` runs. At most one cycle ahead.
 */
static size_t next_copy(struct ov_plan_sim *sim, struct issuer *issuer, size_t step, int32_t *after)
{
    while (issuer->wrapped == 0 || issuer->next < step) {
        if (issuer->next == sim->step_count) {
            issuer->next = 0;
            issuer->wrapped = 1;
            continue;
        }
        if (sim->load[issuer->next].needed) {
            *after = sim->load[issuer->next].after;
            if (*after != OV_PLAN_FREE && issuer->wrapped != 0) {
                *after += (int32_t)sim->step_count; /* counted from this cycle */
            }
            const bool ended = *after == OV_PLAN_FREE || *after < (int32_t)step;
            return ended ? issuer->next : SIZE_MAX;
        }
        issuer->next++;
    }
    return SIZE_MAX;
}

static void issue(struct ov_plan_sim *sim, struct clock *clock, struct issuer *issuer, double start, double *ready_s)
{
    const double copy_s = sim->copy_s[sim->input->cycle[sim->touch[issuer->next]]];

    clock->link_free = start + copy_s;
    clock->link_s += copy_s;
    ready_s[issuer->next] = clock->link_free;
    issuer->next++;
}

/* Runs for touch_s of undisturbed time and issues copies meanwhile. */
static void run_beside_copies(struct ov_plan_sim *sim, struct clock *clock, struct issuer *issuer, size_t step,
                              double touch_s, double *ready_s)
{
    const double stretch = sim->input->stretch[sim->touch[step]];
    double left = touch_s;

    sim->beside_s[step] = 0;
    while (left > 0) {
        int32_t after = OV_PLAN_FREE;
        if (clock->link_free > clock->now) { /* beside a copy */
            const double beside = clock->link_free - clock->now;
            const double done = beside / (1 + stretch) < left ? beside / (1 + stretch) : left;
            clock->now += done * (1 + stretch);
            sim->beside_s[step] += done * (1 + stretch);
            left -= done;
            if (left <= 0 || done == 0) {
                break;
            }
            clock->now = clock->link_free;
        }
        const bool any = next_copy(sim, issuer, step, &after) != SIZE_MAX;
        const double start = any ? start_of(sim, clock, after) : HUGE_VAL;
        if (start <= clock->now) {
            issue(sim, clock, issuer, clock->now, ready_s);
        } else {
            const double alone = start - clock->now < left ? start - clock->now : left;
            clock->now += alone;
            left -= alone;
            if (alone == start - clock->now) {
                continue;
            }
        }
    }
    clock->now += left;
}

static void run_lap_stretched(struct ov_plan_sim *sim, const struct ov_plan_place *place, const struct ov_plan_lap *lap,
                              struct clock *clock, struct issuer *issuer, double *ready_s)
{
    for (size_t step = lap->first; step < lap->first + lap->count; step++) {
        const uint32_t touch = sim->touch[step], unit = sim->input->cycle[touch];
        double touch_s = sim->compute_s[touch];

        sim->stall_s[step] = 0;
        if (sim->load[step].needed) {
            int32_t after = OV_PLAN_FREE;
            while (issuer->wrapped == 0 && issuer->next <= step && next_copy(sim, issuer, step, &after) != SIZE_MAX &&
                   issuer->next <= step && issuer->wrapped == 0) {
                issue(sim, clock, issuer, start_of(sim, clock, after), ready_s);
            }
            wait_for(sim, clock, step, ready_s[step]);
        } else if (read_densely(&place[unit])) {
            touch_s = read_in_place(sim, clock, unit, touch_s);
        }
        run_beside_copies(sim, clock, issuer, step, touch_s, ready_s);
        sim->end_s[step] = clock->now;
    }
}

/* ---- cycles ---- */

static void swap_ends(struct ov_plan_sim *sim)
{
    double *end_s = sim->end_s;
    sim->end_s = sim->before_s;
    sim->before_s = end_s;
}

/* What the lap stands for: as many more like it. Copies that it makes go on at the same pace; without any, the link is
 * where it is, and what was copied ahead is so much earlier. */
static void repeat_lap(struct ov_plan_sim *sim, const struct ov_plan_lap *lap, const struct clock *before,
                       struct clock *clock, double *ready_s)
{
    const double more = lap->weight - 1.0, shift_s = more * (clock->now - before->now);
    bool copies = false;

    for (size_t step = lap->first; step < lap->first + lap->count; step++) {
        sim->end_s[step] += shift_s;
        copies = copies || sim->load[step].needed;
    }
    clock->stall_s += more * (clock->stall_s - before->stall_s);
    clock->link_s += copies ? more * (clock->link_s - before->link_s) : 0;
    clock->now += shift_s;
    clock->link_free += copies ? shift_s : 0;
    for (size_t step = lap->first + lap->count; ready_s != NULL && copies && step < sim->step_count; step++) {
        ready_s[step] += shift_s;
    }
}

/* One cycle; returns its time with all laps. */
static double run_cycle(struct ov_plan_sim *sim, const struct ov_plan_place *place, struct clock *clock,
                        struct issuer *issuer, double *ready_s)
{
    const double begin_s = clock->now;

    swap_ends(sim);
    issuer->wrapped = 0; /* what was issued ahead is at the start of this one */
    issuer->next = issuer->next < sim->step_count ? issuer->next : 0;
    for (size_t i = 0; i < sim->lap_count; i++) {
        const struct clock before = *clock;
        if (ready_s == NULL) {
            run_lap(sim, place, &sim->lap[i], clock);
        } else {
            run_lap_stretched(sim, place, &sim->lap[i], clock, issuer, ready_s);
        }
        if (sim->lap[i].weight > 1) {
            repeat_lap(sim, &sim->lap[i], &before, clock, ready_s);
        }
    }
    sim->steps_run += sim->step_count;
    return clock->now - begin_s;
}

/* The mean of two, since late and early cycles may take turns. */
static void run_cycles(struct ov_plan_sim *sim, const struct ov_plan_place *place, double *ready_s,
                       struct ov_plan_score *score)
{
    struct clock clock = {0, 0, 0, 0};
    struct issuer issuer = {0, 0};
    double before_s = -1, cycle_s = 0;

    for (size_t i = 0; i < sim->step_count; i++) {
        sim->end_s[i] = 0;
    }
    for (int cycle = 0; cycle <= CYCLES; cycle++) {
        clock.stall_s = clock.link_s = 0;
        before_s = cycle_s;
        cycle_s = run_cycle(sim, place, &clock, &issuer, ready_s);
        if (cycle > 1 && cycle_s - before_s <= SETTLED * cycle_s && before_s - cycle_s <= SETTLED * cycle_s) {
            break;
        }
    }
    *score = (struct ov_plan_score){(cycle_s + before_s) / 2, clock.stall_s, clock.link_s, 0};
}

static bool provide_ring(struct ov_plan_sim *sim, size_t ring_pages)
{
    if (ring_pages + 1 <= sim->ring_room) {
        return true;
    }
    uint32_t *cell = realloc(sim->cell, (ring_pages + 1) * sizeof(*cell));
    sim->cell = cell != NULL ? cell : sim->cell;
    uint32_t *owner = realloc(sim->owner, (ring_pages + 1) * sizeof(*owner));
    sim->owner = owner != NULL ? owner : sim->owner;
    if (cell == NULL || owner == NULL) {
        return false;
    }
    sim->ring_room = ring_pages + 1;
    return true;
}

bool ov_plan_sim_run(struct ov_plan_sim *sim, const struct ov_plan_place *place, size_t ring_pages,
                     struct ov_plan_score *score)
{
    const bool stretched = sim->input->stretch != NULL;
    double *ready_s = stretched ? calloc(sim->step_count + 1, sizeof(*ready_s)) : NULL;

    if (!provide_ring(sim, ring_pages) || (stretched && ready_s == NULL)) {
        free(ready_s);
        return false;
    }
    find_loads(sim, place, ring_pages);
    run_cycles(sim, place, ready_s, score);
    for (size_t i = 0; i < sim->lap_count; i++) {
        for (uint32_t step = sim->lap[i].first; step < sim->lap[i].first + sim->lap[i].count; step++) {
            const uint32_t unit = sim->input->cycle[sim->touch[step]];
            score->cycle_pages += sim->load[step].needed ? (size_t)place[unit].pages * sim->lap[i].weight : 0;
        }
    }
    free(ready_s);
    return true;
}

static uint32_t touch_at(const struct ov_plan_sim *sim, int32_t after)
{
    return after == OV_PLAN_FREE ? OV_PLAN_NO_TOUCH : sim->touch[after >= 0 ? after : (int64_t)sim->step_count + after];
}

bool ov_plan_sim_copies(const struct ov_plan_sim *sim, struct ov_plan *plan)
{
    plan->copy = calloc(sim->step_count + 1, sizeof(*plan->copy));
    plan->copy_count = 0;
    if (plan->copy == NULL) {
        return false;
    }
    for (size_t i = 0; i < sim->lap_count; i++) {
        const struct ov_plan_lap *lap = &sim->lap[i];
        const uint32_t number = i > 0 && lap[-1].part == lap->part ? (i > 1 && lap[-2].part == lap->part ? 2 : 1) : 0;
        for (uint32_t step = lap->first; number < 2 && step < lap->first + lap->count; step++) {
            if (sim->load[step].needed) {
                plan->copy[plan->copy_count++] = (struct ov_plan_copy){.unit = sim->input->cycle[sim->touch[step]],
                                                                       .touch = sim->touch[step],
                                                                       .after = touch_at(sim, sim->load[step].after),
                                                                       .again = number > 0};
            }
        }
    }
    return true;
}

bool ov_plan_beside(const struct ov_plan_input *input, const struct ov_plan *plan, double *beside_s)
{
    struct ov_plan_sim sim;
    struct ov_plan_score score;

    if (!ov_plan_sim_open(&sim, input)) {
        return false;
    }
    const bool done = ov_plan_sim_run(&sim, plan->place, plan->ring_pages, &score);
    for (size_t step = sim.step_count; done && step-- > 0;) {
        beside_s[sim.touch[step]] = sim.beside_s[step];
    }
    ov_plan_sim_close(&sim);
    return done;
}

bool ov_plan_simulate(const struct ov_plan_input *input, const struct ov_plan *plan, struct ov_plan_score *score,
                      double *stall_s)
{
    struct ov_plan_sim sim;

    if (!ov_plan_sim_open(&sim, input)) {
        return false;
    }
    const bool done = ov_plan_sim_run(&sim, plan->place, plan->ring_pages, score);
    for (size_t step = sim.step_count; done && stall_s != NULL && step-- > 0;) {
        stall_s[sim.touch[step]] = sim.stall_s[step];
    }
    ov_plan_sim_close(&sim);
    return done;
}
