/*
 * Which copies a graph makes, in which order, and what it expects and leaves in the ring, so that it can be launched
 * again and again without anything in between.
 *
 * Places are fixed, so what is in the ring after a pass over the steps depends on the steps alone, and a second pass
 * loads exactly the units that the first one has left no room for. Some of these copies, from the first on, are made at
 * the end of the pass before (the *tail*), those that replace nothing which the last step still reads: they run beside
 * it, the next launch finds its first units in the ring, and its own first copy replaces what that last step read, so
 * it can start at once. Then the link always has something to do.
 */
#include <stdlib.h>
#include <string.h>

#include "graph.h"

struct pass {
    const struct ov_ring *ring;
    const struct ov_graph_step *step;
    uint32_t steps;
    uint32_t *owner;        /* per ring page: 1 + unit */
    bool *loaded;           /* per unit */
    uint32_t *first, *last; /* per unit: steps that read it */
    struct ov_graph_load *load;
    uint32_t loads, room;
};

static bool overlap(const struct ov_unit *a, const struct ov_unit *b)
{
    return a->ring_page < b->ring_page + b->pages && b->ring_page < a->ring_page + a->pages;
}

static bool fit_together(const struct ov_ring *ring, const struct ov_graph_step *step)
{
    for (uint32_t i = 0; i < step->units; i++) {
        for (uint32_t j = 0; j < i; j++) {
            if (overlap(&ring->unit[step->unit[i]], &ring->unit[step->unit[j]])) {
                return false;
            }
        }
    }
    return true;
}

static void put(struct pass *pass, uint32_t unit)
{
    const struct ov_unit *at = &pass->ring->unit[unit];
    for (uint32_t p = at->ring_page; p < at->ring_page + at->pages; p++) {
        if (pass->owner[p] != 0) {
            pass->loaded[pass->owner[p] - 1] = false;
        }
    }
    for (uint32_t p = at->ring_page; p < at->ring_page + at->pages; p++) {
        pass->owner[p] = unit + 1;
    }
    pass->loaded[unit] = true;
}

static bool note_load(struct pass *pass, uint32_t step, uint32_t unit)
{
    if (pass->loads == pass->room) {
        uint32_t room = pass->room ? pass->room * 2 : 64;
        struct ov_graph_load *grown = realloc(pass->load, room * sizeof *grown);
        if (grown == NULL) {
            return false;
        }
        pass->load = grown;
        pass->room = room;
    }
    pass->load[pass->loads++] = (struct ov_graph_load){step, unit};
    return true;
}

/* Goes through the steps once; notes what has to be loaded. */
static bool run(struct pass *pass)
{
    pass->loads = 0;
    for (uint32_t s = 0; s < pass->steps; s++) {
        for (uint32_t i = 0; i < pass->step[s].units; i++) {
            uint32_t unit = pass->step[s].unit[i];
            if (!pass->loaded[unit]) {
                put(pass, unit);
                if (!note_load(pass, s, unit)) {
                    return false;
                }
            }
        }
    }
    return true;
}

/* Whether the load can be made at the end of the pass before: nothing that it replaces is read by the last step, or by
 * the next pass before the load's own step. */
static bool may_be_early(const struct pass *pass, const struct ov_graph_load *load)
{
    const struct ov_unit *at = &pass->ring->unit[load->unit];
    for (uint32_t p = at->ring_page; p < at->ring_page + at->pages; p++) {
        uint32_t owner = pass->owner[p];
        if (owner != 0 && (pass->last[owner - 1] == pass->steps - 1 || pass->first[owner - 1] < load->step)) {
            return false;
        }
    }
    return true;
}

/* Loads from the first on become the tail. How many. */
static uint32_t choose_tail(struct pass *pass)
{
    uint32_t tail = 0;
    while (tail < pass->loads && may_be_early(pass, &pass->load[tail])) {
        put(pass, pass->load[tail++].unit);
    }
    return tail;
}

/* Those in the ring, if `wanted` is NULL or says so. */
static uint32_t *list_loaded(const struct pass *pass, const bool *wanted, uint32_t *count)
{
    uint32_t *list = calloc((size_t)pass->ring->unit_count + 1, sizeof *list);
    *count = 0;
    for (uint32_t i = 0; list != NULL && i < pass->ring->unit_count; i++) {
        if (pass->loaded[i] && (wanted == NULL || wanted[i])) {
            list[(*count)++] = i;
        }
    }
    return list;
}

/* Of what is in the ring before a pass, that which it reads without loading it first. */
static bool find_needs(const struct pass *pass, uint32_t tail, struct ov_graph_schedule *out)
{
    bool *wanted = calloc((size_t)pass->ring->unit_count + 1, sizeof *wanted);
    if (wanted == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < pass->ring->unit_count; i++) {
        wanted[i] = pass->first[i] != UINT32_MAX;
    }
    for (uint32_t i = tail; i < pass->loads; i++) {
        uint32_t unit = pass->load[i].unit;
        wanted[unit] = wanted[unit] && pass->first[unit] < pass->load[i].step;
    }
    out->need = list_loaded(pass, wanted, &out->needs);
    free(wanted);
    return out->need != NULL;
}

static bool open_pass(struct pass *pass)
{
    size_t units = (size_t)pass->ring->unit_count + 1;
    pass->owner = calloc((size_t)pass->ring->pages + 1, sizeof *pass->owner);
    pass->loaded = calloc(units, sizeof *pass->loaded);
    pass->first = malloc(units * sizeof *pass->first);
    pass->last = malloc(units * sizeof *pass->last);
    if (pass->owner == NULL || pass->loaded == NULL || pass->first == NULL || pass->last == NULL) {
        return false;
    }
    memset(pass->first, 0xff, units * sizeof *pass->first);
    memset(pass->last, 0xff, units * sizeof *pass->last);
    for (uint32_t s = 0; s < pass->steps; s++) {
        for (uint32_t i = 0; i < pass->step[s].units; i++) {
            uint32_t unit = pass->step[s].unit[i];
            pass->first[unit] = pass->first[unit] == UINT32_MAX ? s : pass->first[unit];
            pass->last[unit] = s;
        }
    }
    return true;
}

static void close_pass(struct pass *pass)
{
    free(pass->owner);
    free(pass->loaded);
    free(pass->first);
    free(pass->last);
    free(pass->load);
}

/* The second pass's loads, its tail moved behind the others. */
static bool set_loads(const struct pass *pass, uint32_t tail, struct ov_graph_schedule *out)
{
    out->load = calloc((size_t)pass->loads + 1, sizeof *out->load);
    if (out->load == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < pass->loads; i++) {
        struct ov_graph_load load = pass->load[(i + tail) % pass->loads];
        if (i + tail >= pass->loads) {
            load.step = pass->steps;
        }
        out->load[out->loads++] = load;
    }
    return true;
}

bool ov_graph_schedule_make(const struct ov_ring *ring, const struct ov_graph_step *step, uint32_t steps,
                            struct ov_graph_schedule *out)
{
    struct pass pass = {.ring = ring, .step = step, .steps = steps};
    memset(out, 0, sizeof *out);
    for (uint32_t s = 0; s < steps; s++) {
        if (!fit_together(ring, &step[s])) {
            return false;
        }
    }
    bool done = steps > 0 && open_pass(&pass) && run(&pass) && run(&pass);
    if (done) {
        uint32_t tail = choose_tail(&pass);
        out->left = list_loaded(&pass, NULL, &out->lefts);
        done = out->left != NULL && find_needs(&pass, tail, out) && set_loads(&pass, tail, out);
    }
    close_pass(&pass);
    if (!done) {
        ov_graph_schedule_free(out);
    }
    return done;
}

void ov_graph_schedule_free(struct ov_graph_schedule *schedule)
{
    free(schedule->load);
    free(schedule->need);
    free(schedule->left);
    memset(schedule, 0, sizeof *schedule);
}
