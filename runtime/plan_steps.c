/* What of the simulation does not depend on the plan: steps, and times of copies. See plan_simulate.h. */
#include "plan_simulate.h"

#include <stdlib.h>

/* Without measurements a touch computes for this part of what its copy takes: about the ratio of link to device memory.
 */
#define COMPUTE_PART (1.0 / 64)
/* Laps of a part that are gone through. */
#define LAPS 3u

double ov_plan_copy_time(const struct ov_plan_input *input, double pages)
{
    const struct ov_plan_rate *rate = input->rate;
    const size_t count = rate != NULL ? input->rate_count : 0;
    size_t i = 0;

    if (count == 0) {
        return pages / (input->link_pages_per_s > 0 ? input->link_pages_per_s : OV_PLAN_LINK);
    }
    while (i < count && rate[i].pages < pages) {
        i++;
    }
    if (i == 0) {
        return pages / rate[0].pages_per_s;
    }
    if (i == count) {
        return pages / rate[count - 1].pages_per_s;
    }
    const double low_s = rate[i - 1].pages / rate[i - 1].pages_per_s, high_s = rate[i].pages / rate[i].pages_per_s;
    return low_s + (high_s - low_s) * (pages - rate[i - 1].pages) / (rate[i].pages - rate[i - 1].pages);
}

size_t ov_plan_part_count(const struct ov_plan_input *input)
{
    return input->part != NULL ? input->part_count : 1;
}

struct ov_plan_part ov_plan_part_at(const struct ov_plan_input *input, size_t part)
{
    return input->part != NULL ? input->part[part] : (struct ov_plan_part){input->cycle_length, 1};
}

static uint32_t laps_of(struct ov_plan_part part)
{
    return part.repeats < LAPS ? part.repeats : LAPS;
}

static void lay_out_steps(struct ov_plan_sim *sim)
{
    size_t begin = 0, step = 0;

    for (size_t p = 0; p < ov_plan_part_count(sim->input); p++) {
        const struct ov_plan_part part = ov_plan_part_at(sim->input, p);
        for (uint32_t lap = 0; lap < laps_of(part); lap++) {
            const uint32_t weight = lap + 1 == LAPS ? part.repeats - lap : 1;
            sim->lap[sim->lap_count++] =
                (struct ov_plan_lap){(uint32_t)step, (uint32_t)part.length, weight, (uint32_t)p};
            for (size_t i = 0; i < part.length; i++) {
                sim->touch[step++] = (uint32_t)(begin + i);
            }
        }
        begin += part.length;
    }
}

static void find_next(struct ov_plan_sim *sim)
{
    for (size_t i = 0; i < sim->lap_count; i++) {
        const size_t first = sim->lap[i].first;
        for (size_t step = first + sim->lap[i].count; step-- > first;) {
            int64_t *last = &sim->last[sim->input->cycle[sim->touch[step]]]; /* above `first`: of this lap */
            sim->next[step] = *last > (int64_t)step ? (uint32_t)*last : 0;
            *last = (int64_t)step;
        }
        for (size_t step = first; step < first + sim->lap[i].count; step++) {
            sim->last[sim->input->cycle[sim->touch[step]]] = 0;
        }
    }
}

bool ov_plan_sim_open(struct ov_plan_sim *sim, const struct ov_plan_input *input)
{
    size_t steps = 0;

    *sim = (struct ov_plan_sim){.input = input};
    for (size_t p = 0; p < ov_plan_part_count(input); p++) {
        steps += ov_plan_part_at(input, p).length * laps_of(ov_plan_part_at(input, p));
    }
    sim->step_count = steps;
    sim->copy_s = calloc(input->unit_count + 1, sizeof(*sim->copy_s));
    sim->compute_s = calloc(input->cycle_length + 1, sizeof(*sim->compute_s));
    sim->touch = calloc(steps + 1, sizeof(*sim->touch));
    sim->next = calloc(steps + 1, sizeof(*sim->next));
    sim->lap = calloc(LAPS * ov_plan_part_count(input) + 1, sizeof(*sim->lap));
    sim->load = calloc(steps + 1, sizeof(*sim->load));
    sim->stall_s = calloc(steps + 1, sizeof(*sim->stall_s));
    sim->beside_s = calloc(steps + 1, sizeof(*sim->beside_s));
    sim->end_s = calloc(steps + 1, sizeof(*sim->end_s));
    sim->before_s = calloc(steps + 1, sizeof(*sim->before_s));
    sim->last = calloc(input->unit_count + 1, sizeof(*sim->last));
    sim->present = calloc(input->unit_count + 1, sizeof(*sim->present));
    if (!sim->copy_s || !sim->compute_s || !sim->touch || !sim->next || !sim->lap || !sim->load || !sim->stall_s ||
        !sim->beside_s || !sim->end_s || !sim->before_s || !sim->last || !sim->present) {
        ov_plan_sim_close(sim);
        return false;
    }
    for (size_t i = 0; i < input->unit_count; i++) {
        sim->copy_s[i] = ov_plan_copy_time(input, input->unit[i].pages);
    }
    for (size_t i = 0; i < input->cycle_length; i++) {
        sim->compute_s[i] = input->compute_s ? input->compute_s[i] : sim->copy_s[input->cycle[i]] * COMPUTE_PART;
    }
    lay_out_steps(sim);
    find_next(sim);
    return true;
}

void ov_plan_sim_close(struct ov_plan_sim *sim)
{
    free(sim->copy_s);
    free(sim->compute_s);
    free(sim->touch);
    free(sim->next);
    free(sim->lap);
    free(sim->load);
    free(sim->stall_s);
    free(sim->beside_s);
    free(sim->end_s);
    free(sim->before_s);
    free(sim->cell);
    free(sim->owner);
    free(sim->last);
    free(sim->present);
    *sim = (struct ov_plan_sim){0};
}
