#include "interference.h"

#include <stdlib.h>

#include "engine.h"
#include "propose.h"

/* Less is noise, whatever passes differ in. */
#define LEAST 0.01
/* A link has a small part of the bandwidth of the memory behind it. */
#define MOST 1.0
/* From this part of an interval on the link counts as busy beside all of it. */
#define WHOLE 0.9
/* What copies add depends on how long they run beside an interval, and that on what they add. */
#define ROUNDS 8

/* An interval in both kinds of passes. */
struct both {
    double beside_s, hushed_s;
    bool counts; /* timed in both, and not as long as the host or the link took */
    bool late;
};

static bool is_late(const struct ov_profiler *profiler, uint32_t at)
{
    return 2 * profiler->late[at] >= ov_profiler_beside(profiler);
}

static bool reads_in_place(const struct ov_engine *engine, uint32_t unit)
{
    return engine->ring.unit[unit].tier == OV_TIER_HOST && !engine->ring.unit[unit].sparse;
}

static struct both compare_passes(const struct ov_engine *engine, uint32_t at)
{
    const struct ov_profiler *profiler = &engine->profiler;
    const uint32_t beside = ov_profiler_beside(profiler);
    struct both both = {.beside_s = ov_profiler_median(profiler, at, 0, beside),
                        .hushed_s = ov_profiler_median(profiler, at, beside, profiler->passes),
                        .late = is_late(profiler, at)};
    both.counts =
        both.beside_s >= 0 && both.hushed_s >= 0 && !both.late && !reads_in_place(engine, engine->learn.runs.cycle[at]);
    return both;
}

static double sum_of(const struct ov_profiler *profiler, const struct both *both, uint32_t pass)
{
    double sum = 0;
    for (uint32_t i = 0; i < profiler->length; i++) {
        const double seconds = profiler->seconds[(size_t)pass * profiler->length + i];
        const double usual = pass < profiler->beside ? both[i].beside_s : both[i].hushed_s;
        sum += !both[i].counts ? 0 : seconds >= 0 ? seconds : usual;
    }
    return sum;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* What passes of one kind differ in, but for fewer than half of them, as medians leave those out, too. */
static double differ_s(const struct ov_profiler *profiler, const struct both *both, uint32_t first, uint32_t end)
{
    double sum[OV_PROFILER_PASSES + OV_PROFILER_HUSHED], least = 0;
    const uint32_t count = end - first, most = count / 2 + 1;
    for (uint32_t i = 0; i < count; i++) {
        sum[i] = sum_of(profiler, both, first + i);
    }
    qsort(sum, count, sizeof *sum, compare);
    for (uint32_t i = 0; i + most <= count; i++) {
        const double range = sum[i + most - 1] - sum[i];
        least = i == 0 || range < least ? range : least;
    }
    return least;
}

/* What passes beside copies take longer, as a share; 0: nothing that is sure, or so much that they are not the same. */
static double find(const struct ov_profiler *profiler, const struct both *both)
{
    const uint32_t beside = ov_profiler_beside(profiler);
    double beside_s = 0, hushed_s = 0;
    for (uint32_t i = 0; i < profiler->length; i++) {
        beside_s += both[i].counts ? both[i].beside_s : 0;
        hushed_s += both[i].counts ? both[i].hushed_s : 0;
    }
    const double doubt_s = differ_s(profiler, both, 0, beside) + differ_s(profiler, both, beside, profiler->passes);
    const bool sure =
        beside_s > (1 + LEAST) * hushed_s && beside_s > hushed_s + doubt_s && beside_s < (1 + MOST) * hushed_s;
    return sure ? beside_s / hushed_s - 1 : 0;
}

/* Of what took `longer_s` longer, and all in all so long that a copy ran beside it for `busy_s`. */
static double stretch_of(double longer_s, double busy_s, double otherwise)
{
    const double stretch = busy_s > longer_s ? longer_s / (busy_s - longer_s) : otherwise;
    return longer_s <= 0 ? 0 : stretch < MOST ? stretch : MOST;
}

/* From how long copies run beside each interval. A copy that is said to run beside one of which nothing is known may
 * have run beside the next. */
static void refine(const struct both *both, uint32_t length, const double *busy_s, double otherwise, double *stretch)
{
    double longer_s = 0, part_s = 0;
    for (uint32_t i = 0; i < length; i++) {
        const bool whole = busy_s[i] >= WHOLE * both[i].beside_s;
        longer_s += both[i].counts && !whole ? both[i].beside_s - both[i].hushed_s : 0;
        part_s += !whole ? busy_s[i] : 0;
    }
    const double together = part_s > 0 ? stretch_of(longer_s, part_s, otherwise) : otherwise;
    for (uint32_t i = 0; i < length; i++) {
        const bool whole = both[i].counts && busy_s[i] > 0 && busy_s[i] >= WHOLE * both[i].beside_s;
        stretch[i] = both[i].late ? 0
                     : whole      ? stretch_of(both[i].beside_s - both[i].hushed_s, busy_s[i], together)
                                  : together;
    }
}

/* False: memory ran out. */
static bool spread_over(struct ov_engine *engine, const struct both *both, double share)
{
    struct ov_runs *runs = &engine->learn.runs;
    const uint32_t length = engine->profiler.length;
    double *busy_s = calloc(length, sizeof *busy_s);
    bool done = busy_s != NULL;
    for (uint32_t i = 0; i < length; i++) {
        runs->compute_s[i] = both[i].counts ? both[i].hushed_s : runs->compute_s[i];
        runs->stretch[i] = both[i].late ? 0 : share;
    }
    for (int round = 0; round < ROUNDS && done; round++) {
        done = ov_propose_beside(engine, busy_s);
        if (done) {
            refine(both, length, busy_s, share, runs->stretch);
        }
    }
    free(busy_s);
    return done;
}

void ov_interference_take(struct ov_engine *engine)
{
    const struct ov_profiler *profiler = &engine->profiler;
    struct ov_runs *runs = &engine->learn.runs;
    struct both *both = calloc(profiler->length, sizeof *both);
    double share = 0;
    if (both != NULL && profiler->passes > profiler->beside) {
        for (uint32_t i = 0; i < profiler->length; i++) {
            both[i] = compare_passes(engine, i);
        }
        share = find(profiler, both);
    }
    runs->stretch = share > 0 ? calloc(profiler->length, sizeof *runs->stretch) : NULL;
    if (runs->stretch != NULL) {
        (void)spread_over(engine, both, share); /* failing that, all intervals are as the mean of all */
    }
    free(both);
}

double ov_interference(const struct ov_runs *runs)
{
    double compute_s = 0, more_s = 0;
    for (size_t i = 0; runs->stretch != NULL && runs->compute_s != NULL && i < runs->cycle_length; i++) {
        compute_s += runs->compute_s[i];
        more_s += runs->compute_s[i] * runs->stretch[i];
    }
    return compute_s > 0 ? more_s / compute_s : 0;
}
