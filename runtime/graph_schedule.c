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
#include "hash.h"

struct pass {
    const struct ov_ring *ring;
    const struct ov_graph_step *step;
    uint32_t steps;
    uint32_t *owner;            /* per ring page: 1 + unit */
    bool *loaded;               /* per unit */
    uint32_t *first, *last;     /* per unit: steps that read it */
    struct ov_graph_load *load; /* before the tail */
    uint32_t loads, room;
};

static bool fit_together(const struct ov_ring *ring, const struct ov_graph_step *step)
{
    for (uint32_t i = 0; i < step->units; i++) {
        for (uint32_t j = 0; j < i; j++) {
            if (ov_units_overlap(&ring->unit[step->unit[i]], &ring->unit[step->unit[j]])) {
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

/* ---- results ---- */

static bool list_reads(const struct pass *pass, struct ov_graph_schedule *out)
{
    out->read = calloc((size_t)pass->ring->unit_count + 1, sizeof *out->read);
    for (uint32_t i = 0; out->read != NULL && i < pass->ring->unit_count; i++) {
        if (pass->first[i] != UINT32_MAX) {
            out->read[out->reads++] = (struct ov_graph_read){i, pass->first[i]};
        }
    }
    return out->read != NULL;
}

/* Of what was in the ring before the pass, that which is read before it is loaded. */
static bool list_needs(const struct pass *pass, const bool *before, struct ov_graph_schedule *out)
{
    out->need = calloc((size_t)pass->ring->unit_count + 1, sizeof *out->need);
    for (uint32_t i = 0; out->need != NULL && i < pass->ring->unit_count; i++) {
        bool needed = before[i] && pass->first[i] != UINT32_MAX;
        for (uint32_t l = 0; l < out->tail && needed; l++) {
            needed = out->load[l].unit != i || out->load[l].step > pass->first[i];
        }
        if (needed) {
            out->need[out->needs++] = i;
        }
    }
    return out->need != NULL;
}

static bool is_made_here(const struct ov_graph_schedule *schedule, uint32_t unit)
{
    for (uint32_t i = 0; i < schedule->loads; i++) {
        if (schedule->load[i].unit == unit) {
            return true;
        }
    }
    for (uint32_t i = 0; i < schedule->needs; i++) {
        if (schedule->need[i] == unit) {
            return true;
        }
    }
    return false;
}

/* What is in the ring after the pass: surely, and if it was there before. */
static bool list_left(const struct pass *pass, struct ov_graph_schedule *out)
{
    out->left = calloc((size_t)pass->ring->unit_count + 1, sizeof *out->left);
    out->kept = calloc((size_t)pass->ring->unit_count + 1, sizeof *out->kept);
    if (out->left == NULL || out->kept == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < pass->ring->unit_count; i++) {
        if (pass->loaded[i] && is_made_here(out, i)) {
            out->left[out->lefts++] = i;
        } else if (pass->loaded[i]) {
            out->kept[out->keeps++] = i;
        }
    }
    return true;
}

static void hash_both_ends(struct ov_graph_schedule *out)
{
    out->begins = out->ends = 1;
    for (uint32_t i = 0; i < out->needs; i++) {
        out->begins = ov_hash_add(out->begins, out->need[i]);
    }
    for (uint32_t i = 0; i < out->tail; i++) {
        out->begins = ov_hash_add(out->begins, (uint64_t)out->load[i].step << 32 | out->load[i].unit);
    }
    for (uint32_t i = 0; i < out->lefts; i++) {
        out->ends = ov_hash_add(out->ends, out->left[i]);
    }
    for (uint32_t i = 0; i < out->keeps; i++) {
        out->ends = ov_hash_add(out->ends, out->kept[i]);
    }
}

static bool add_load(struct ov_graph_schedule *out, uint32_t step, uint32_t unit)
{
    struct ov_graph_load *grown = realloc(out->load, ((size_t)out->loads + 1) * sizeof *grown);
    if (grown == NULL) {
        return false;
    }
    out->load = grown;
    out->load[out->loads++] = (struct ov_graph_load){step, unit};
    return true;
}

/* ---- alone ---- */

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

/* The second pass's loads; those that can be early, from the first on, behind the others. */
static bool place_loads(struct pass *pass, struct ov_graph_schedule *out)
{
    uint32_t early = 0;
    bool done = true;
    while (early < pass->loads && may_be_early(pass, &pass->load[early])) {
        put(pass, pass->load[early++].unit);
    }
    for (uint32_t i = early; i < pass->loads && done; i++) {
        done = add_load(out, pass->load[i].step, pass->load[i].unit);
    }
    out->tail = out->loads;
    for (uint32_t i = 0; i < early && done; i++) {
        done = add_load(out, pass->steps, pass->load[i].unit);
    }
    return done;
}

static bool schedule_alone(struct pass *pass, struct ov_graph_schedule *out)
{
    return run(pass) && run(pass) && place_loads(pass, out) && list_needs(pass, pass->loaded, out);
}

/* ---- between others ---- */

static uint32_t first_read(const struct ov_graph_schedule *schedule, uint32_t unit)
{
    for (uint32_t i = 0; i < schedule->reads; i++) {
        if (schedule->read[i].unit == unit) {
            return schedule->read[i].first;
        }
    }
    return UINT32_MAX;
}

/* The same for the one after. */
static bool may_be_early_for(const struct pass *pass, const struct ov_graph_schedule *after,
                             const struct ov_graph_load *load)
{
    const struct ov_unit *at = &pass->ring->unit[load->unit];
    for (uint32_t p = at->ring_page; p < at->ring_page + at->pages; p++) {
        uint32_t owner = pass->owner[p];
        if (owner != 0 && pass->loaded[owner - 1] &&
            (pass->last[owner - 1] == pass->steps - 1 || first_read(after, owner - 1) < load->step)) {
            return false;
        }
    }
    return true;
}

static bool add_early(struct pass *pass, uint32_t unit, struct ov_graph_schedule *out)
{
    if (pass->loaded[unit]) {
        return true;
    }
    put(pass, unit);
    return add_load(out, pass->steps, unit);
}

static bool add_tail(struct pass *pass, const struct ov_graph_schedule *after, struct ov_graph_schedule *out)
{
    bool done = true;
    for (uint32_t i = 0; i < after->needs && done; i++) {
        done = add_early(pass, after->need[i], out);
    }
    for (uint32_t i = 0; i < after->tail && done && may_be_early_for(pass, after, &after->load[i]); i++) {
        done = add_early(pass, after->load[i].unit, out);
    }
    return done;
}

static bool schedule_between(struct pass *pass, const struct ov_graph_schedule *before,
                             const struct ov_graph_schedule *after, struct ov_graph_schedule *out)
{
    bool *start = calloc((size_t)pass->ring->unit_count + 1, sizeof *start);
    bool done = start != NULL;
    for (uint32_t i = 0; done && before != NULL && i < before->lefts + before->keeps; i++) {
        uint32_t unit = i < before->lefts ? before->left[i] : before->kept[i - before->lefts];
        put(pass, unit);
        start[unit] = true;
    }
    done = done && run(pass);
    for (uint32_t i = 0; i < pass->loads && done; i++) {
        done = add_load(out, pass->load[i].step, pass->load[i].unit);
    }
    out->tail = out->loads;
    done = done && list_needs(pass, start, out) && (after == NULL || add_tail(pass, after, out));
    free(start);
    return done;
}

/* ---- both ---- */

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

bool ov_graph_schedule_make(const struct ov_ring *ring, const struct ov_graph_step *step, uint32_t steps,
                            const struct ov_graph_neighbours *neighbours, struct ov_graph_schedule *out)
{
    struct pass pass = {.ring = ring, .step = step, .steps = steps};
    memset(out, 0, sizeof *out);
    for (uint32_t s = 0; s < steps; s++) {
        if (!fit_together(ring, &step[s])) {
            return false;
        }
    }
    bool done = steps > 0 && open_pass(&pass) &&
                (neighbours == NULL ? schedule_alone(&pass, out)
                                    : schedule_between(&pass, neighbours->before, neighbours->after, out)) &&
                list_left(&pass, out) && list_reads(&pass, out);
    close_pass(&pass);
    if (done) {
        hash_both_ends(out);
    } else {
        ov_graph_schedule_free(out);
    }
    return done;
}

bool ov_graph_schedule_same(const struct ov_graph_schedule *a, const struct ov_graph_schedule *b)
{
    return a->loads == b->loads && a->tail == b->tail && a->needs == b->needs && a->lefts == b->lefts &&
           a->keeps == b->keeps && (a->loads == 0 || memcmp(a->load, b->load, a->loads * sizeof *a->load) == 0) &&
           (a->needs == 0 || memcmp(a->need, b->need, a->needs * sizeof *a->need) == 0) &&
           (a->lefts == 0 || memcmp(a->left, b->left, a->lefts * sizeof *a->left) == 0) &&
           (a->keeps == 0 || memcmp(a->kept, b->kept, a->keeps * sizeof *a->kept) == 0);
}

void ov_graph_schedule_free(struct ov_graph_schedule *schedule)
{
    free(schedule->load);
    free(schedule->need);
    free(schedule->left);
    free(schedule->kept);
    free(schedule->read);
    memset(schedule, 0, sizeof *schedule);
}
