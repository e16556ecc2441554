/*
 * plan_simulate.h - a cycle of the program under a plan, step by step. Used by plan*.c only.
 *
 * A *step* is one execution of a touch, a *lap* one time through a part. Of a part that is repeated often, three laps
 * are gone through, the last of which stands for all further ones: which units are in the ring when a lap begins
 * depends only on the lap before. For the same reason everything repeats from the second cycle on.
 *
 * Two stages. First which steps find their unit gone from the ring, and which earlier step is the last to read what the
 * copy overwrites: that is the plan's order of copies, and knows no time. Then times, by nothing but maxima and sums.
 *
 * Ownership: ov_plan_sim_open allocates all there is; the input must outlive it. Errors: only opening and running can
 * fail, when memory runs out.
 */
#ifndef OV_PLAN_SIMULATE_H
#define OV_PLAN_SIMULATE_H

#include "plan.h"

struct ov_plan_lap {
    uint32_t first, count; /* steps */
    uint32_t weight;       /* laps that it stands for */
    uint32_t part;
};

/* A step's copy. */
struct ov_plan_load {
    bool needed;
    int32_t after; /* step; negative: of the cycle before, counted from its end; OV_PLAN_FREE: nobody reads there */
};
#define OV_PLAN_FREE INT32_MIN

struct ov_plan_sim {
    const struct ov_plan_input *input;
    double *copy_s;    /* per unit: its copy */
    double *compute_s; /* per touch */
    uint32_t *touch;   /* per step: its place in the cycle */
    uint32_t *next;    /* per step: that of the same lap which reads the unit again; 0: none */
    size_t step_count;
    struct ov_plan_lap *lap;
    size_t lap_count;
    size_t steps_run; /* so far, by all runs: what the search spends */
    /* Of the last run. */
    struct ov_plan_load *load; /* per step */
    double *stall_s;           /* per step, of the last cycle */
    double *beside_s;          /* the same: copies ran meanwhile. Only kept where the input has a stretch */
    /* Scratch. */
    double *end_s, *before_s; /* per step: ends in this cycle and the one before */
    uint32_t *cell, *owner;   /* per ring page */
    size_t ring_room;
    int64_t *last; /* per unit: when it was read last */
    bool *present; /* per unit */
};

/* The parts of the trace; all of it is one where none are given. */
size_t ov_plan_part_count(const struct ov_plan_input *input);
struct ov_plan_part ov_plan_part_at(const struct ov_plan_input *input, size_t part);

bool ov_plan_sim_open(struct ov_plan_sim *sim, const struct ov_plan_input *input);
void ov_plan_sim_close(struct ov_plan_sim *sim);
/* False: memory ran out. */
bool ov_plan_sim_run(struct ov_plan_sim *sim, const struct ov_plan_place *place, size_t ring_pages,
                     struct ov_plan_score *score);
/* The order of copies of the last run. False: memory ran out. */
bool ov_plan_sim_copies(const struct ov_plan_sim *sim, struct ov_plan *plan);

#endif
