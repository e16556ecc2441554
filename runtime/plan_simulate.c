/* The time of one cycle under a plan; see ov_plan_simulate in plan.h. */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

/* A copy that had to wait for readers starts so much after they are over. Matters only where units are very small. */
#define TURNAROUND_S 1e-5
/* Without measurements a touch computes for this part of what its copy takes. */
#define COMPUTE_PART (1.0 / 64)
/* Simulated cycles: so many until the ring is in its rhythm, and as many to take the mean of. One where a cycle is
 * long. */
#define CYCLES     2
#define CYCLE_LONG 16384
#define NOBODY     UINT32_MAX

struct machine {
    const struct ov_plan *plan;
    double page_s;    /* time to copy a page */
    double link_free; /* end of the last copy */
    double now;       /* end of the last touch */
    uint32_t *owner;  /* per ring page: the unit whose bytes are there */
    double *last_end; /* per unit: end of its last touch */
    bool *present;    /* per unit: all its ring pages are its own */
    size_t copied_pages;
};

static void load(struct machine *machine, uint32_t unit)
{
    const struct ov_plan_place *place = &machine->plan->place[unit];
    uint32_t *owner = machine->owner + place->ring_page;
    double start = machine->link_free;

    for (uint32_t page = 0; page < place->pages; page++) {
        const uint32_t before = owner[page];
        owner[page] = unit;
        if (before == NOBODY || before == unit) {
            continue;
        }
        machine->present[before] = false;
        if (machine->last_end[before] + TURNAROUND_S > start && machine->last_end[before] > machine->link_free) {
            start = machine->last_end[before] + TURNAROUND_S;
        }
    }
    machine->present[unit] = true;
    machine->link_free = start + place->pages * machine->page_s;
    machine->copied_pages += place->pages;
    if (machine->now < machine->link_free) {
        machine->now = machine->link_free;
    }
}

static void run_cycle(struct machine *machine, const uint32_t *cycle, size_t cycle_length, const double *compute_s)
{
    for (size_t i = 0; i < cycle_length; i++) {
        const uint32_t unit = cycle[i];
        const struct ov_plan_place *place = &machine->plan->place[unit];
        const double copy_s = place->pages * machine->page_s;
        double touch_s = compute_s ? compute_s[i] : copy_s * COMPUTE_PART;

        if (place->tier == OV_TIER_STREAMED && !machine->present[unit]) {
            load(machine, unit);
        }
        if (place->tier == OV_TIER_HOST && !place->sparse && touch_s < copy_s * OV_PLAN_HOST_WEIGHT) {
            touch_s = copy_s * OV_PLAN_HOST_WEIGHT;
        }
        machine->now += touch_s;
        machine->last_end[unit] = machine->now;
    }
}

double ov_plan_simulate(const struct ov_plan *plan, const uint32_t *cycle, size_t cycle_length, double link_pages_per_s,
                        const double *compute_s, size_t *cycle_pages)
{
    const unsigned rounds = cycle_length < CYCLE_LONG ? CYCLES : 1;
    struct machine machine = {.plan = plan, .page_s = 1 / (link_pages_per_s > 0 ? link_pages_per_s : OV_PLAN_LINK)};
    double cycle_s = -1;

    machine.owner = malloc((plan->ring_pages + 1) * sizeof(*machine.owner));
    machine.last_end = calloc(plan->unit_count + 1, sizeof(*machine.last_end));
    machine.present = calloc(plan->unit_count + 1, sizeof(*machine.present));
    if (machine.owner && machine.last_end && machine.present) {
        memset(machine.owner, 0xff, plan->ring_pages * sizeof(*machine.owner));
        for (unsigned i = 0; i < rounds; i++) {
            run_cycle(&machine, cycle, cycle_length, compute_s);
        }
        const double start = machine.now;
        for (unsigned i = 0; i < rounds; i++) {
            machine.copied_pages = 0;
            run_cycle(&machine, cycle, cycle_length, compute_s);
        }
        cycle_s = (machine.now - start) / rounds;
        if (cycle_pages) {
            *cycle_pages = machine.copied_pages;
        }
    }
    free(machine.owner);
    free(machine.last_end);
    free(machine.present);
    return cycle_s;
}
