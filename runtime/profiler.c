#include "profiler.h"

#include <stdlib.h>
#include <string.h>

#include "density.h"
#include "engine.h"
#include "graph.h"
#include "log.h"

/* Passes that may be broken off for each one that is wanted, and touches without the cycle's first one in as many
 * cycles, before profiling is given up. */
#define SURPRISES 8u
#define SOUGHT    16u

/* ---- life ---- */

static void give_back(struct ov_profiler *profiler, bool context_is_there)
{
    for (uint32_t i = 0; context_is_there && i < profiler->slots * profiler->events_per_slot; i++) {
        if (profiler->event[i] != NULL) {
            (void)ov_cu->cuEventDestroy_v2(profiler->event[i]);
        }
    }
    free(profiler->cycle);
    free(profiler->sample);
    free(profiler->event);
    free(profiler->seconds);
    memset(profiler, 0, sizeof *profiler);
}

void ov_profiler_end(struct ov_engine *engine)
{
    if (engine->profiler.phase != OV_PROFILER_OFF) {
        give_back(&engine->profiler, true);
        ov_engine_look(engine);
    }
}

/* The events go with the context. */
void ov_profiler_close(struct ov_engine *engine)
{
    give_back(&engine->profiler, false);
}

static bool can_be_timed(const struct ov_engine *engine)
{
    const struct ov_runs *runs = &engine->learn.runs;
    return ov_opt.profile_cycles > 0 && !engine->profile_suspended && runs->periodic &&
           engine->ring.streamed_count > 0 && runs->cycle_length > 0 &&
           2 * runs->cycle_length + 2 <= OV_PROFILER_EVENTS;
}

static bool provide(struct ov_profiler *profiler, const struct ov_runs *runs)
{
    const uint32_t length = (uint32_t)runs->cycle_length;
    profiler->length = length;
    profiler->wanted = ov_opt.profile_cycles;
    profiler->events_per_slot = 2 * length + 2;
    profiler->slots = OV_PROFILER_EVENTS / profiler->events_per_slot;
    profiler->slots = profiler->slots < profiler->wanted ? profiler->slots : profiler->wanted;
    profiler->cycle = calloc(length, sizeof *profiler->cycle);
    profiler->sample = calloc((size_t)profiler->slots * length, sizeof *profiler->sample);
    profiler->event = calloc((size_t)profiler->slots * profiler->events_per_slot, sizeof(CUevent));
    profiler->seconds = calloc((size_t)profiler->wanted * length, sizeof *profiler->seconds);
    if (profiler->cycle == NULL || profiler->sample == NULL || profiler->event == NULL || profiler->seconds == NULL) {
        profiler->slots = 0; /* there are no events */
        return false;
    }
    memcpy(profiler->cycle, runs->cycle, length * sizeof *profiler->cycle);
    for (uint32_t i = 0; i < profiler->slots * profiler->events_per_slot; i++) {
        if (ov_cu->cuEventCreate(&profiler->event[i], CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
            profiler->event[i] = NULL;
            return false;
        }
    }
    return true;
}

void ov_profiler_begin(struct ov_engine *engine, bool wanted)
{
    struct ov_profiler *profiler = &engine->profiler;
    ov_profiler_end(engine);
    if (!wanted || !can_be_timed(engine)) {
        return;
    }
    if (!provide(profiler, &engine->learn.runs)) {
        ov_log(OV_LOG_INFO, "device %d: passes are not timed: no memory or no events for it", engine->device);
        give_back(profiler, true);
        return;
    }
    profiler->plan = engine->plans;
    profiler->studied = engine->learn.studied;
    profiler->phase = OV_PROFILER_SEEKING;
    ov_engine_look(engine);
}

/* ---- following ---- */

static struct ov_sample *sample_at(struct ov_profiler *profiler, uint32_t slot, uint32_t at)
{
    return &profiler->sample[(size_t)slot * profiler->length + at];
}

/* A time on the stream, now; NULL: there is none. */
static CUevent record(struct ov_profiler *profiler, CUstream stream)
{
    if (profiler->used == profiler->events_per_slot) {
        return NULL;
    }
    CUevent event = profiler->event[profiler->slot * profiler->events_per_slot + profiler->used];
    if (ov_cu->cuEventRecord(event, stream) != CUDA_SUCCESS) {
        return NULL;
    }
    profiler->used++;
    return event;
}

static void give_up(struct ov_profiler *profiler)
{
    profiler->phase = OV_PROFILER_DONE;
}

static void surprise(struct ov_profiler *profiler)
{
    profiler->phase = OV_PROFILER_SEEKING;
    if (++profiler->surprises > SURPRISES * profiler->wanted) {
        give_up(profiler);
    }
}

/* The touches that the launch brings, in the way in which study.c makes a sequence of them. */
static void find_steps(struct ov_engine *engine, const struct ov_touches *touches)
{
    struct ov_profiler *profiler = &engine->profiler;
    profiler->steps = 0;
    for (unsigned i = 0; i < touches->count; i++) {
        const uint64_t address = touches->item[i].address;
        const uint32_t unit = ov_arena_slice(address) == (unsigned)engine->slice ? ov_density_unit(engine, address) : 0;
        bool known = unit == 0;
        for (uint32_t s = 0; s < profiler->steps && !known; s++) {
            known = profiler->step[s] == unit - 1;
        }
        if (!known) {
            profiler->step[profiler->steps++] = unit - 1;
        }
    }
    if (profiler->steps > 0 && profiler->step[0] + 1 == profiler->last) {
        profiler->steps--;
        memmove(profiler->step, profiler->step + 1, profiler->steps * sizeof *profiler->step);
    }
}

void ov_profiler_arrive(struct ov_engine *engine, const struct ov_launch *launch, const struct ov_touches *touches)
{
    struct ov_profiler *profiler = &engine->profiler;
    profiler->ended = NULL;
    profiler->steps = 0;
    if (profiler->plan != engine->plans) {
        give_up(profiler);
        return;
    }
    if (atomic_load(&ov_captures) != 0) { /* no event may be asked for its time then */
        if (profiler->phase == OV_PROFILER_FOLLOWING) {
            surprise(profiler);
        }
        return;
    }
    find_steps(engine, touches);
    profiler->waits = engine->ring.counts.waits;
    if (profiler->phase == OV_PROFILER_FOLLOWING && profiler->steps > 0 && launch->stream == profiler->stream &&
        launch->watch == NULL) {
        const uint32_t used = profiler->used;
        profiler->ended = record(profiler, launch->stream);
        profiler->used = used; /* kept by depart; until then the launch may come here again */
    }
}

/* The pass that ends here is full, and the next one may begin if there is room for it. */
static void complete(struct ov_profiler *profiler)
{
    profiler->full++;
    profiler->slot = (profiler->slot + 1) % profiler->slots;
    if (profiler->passes + profiler->full >= profiler->wanted) {
        profiler->phase = OV_PROFILER_DONE;
    } else {
        profiler->phase = OV_PROFILER_SEEKING;
    }
}

/* The first touch of the cycle. */
static void set_out(struct ov_profiler *profiler)
{
    if (profiler->full < profiler->slots) {
        profiler->phase = OV_PROFILER_FOLLOWING;
        profiler->at = 0;
        profiler->used = 0;
        *sample_at(profiler, profiler->slot, 0) = (struct ov_sample){NULL, NULL, true};
    }
}

/* Moves on by a touch, from an interval that gets its end. */
static void step(struct ov_profiler *profiler, uint32_t unit, CUevent ended)
{
    if (profiler->phase == OV_PROFILER_FOLLOWING) {
        const uint32_t next = profiler->at + 1 < profiler->length ? profiler->at + 1 : 0;
        sample_at(profiler, profiler->slot, profiler->at)->to = ended;
        if (profiler->cycle[next] != unit) {
            surprise(profiler);
        } else if (next == 0) {
            complete(profiler);
        } else {
            profiler->at = next;
            *sample_at(profiler, profiler->slot, next) = (struct ov_sample){NULL, NULL, true};
        }
    }
    if (profiler->phase == OV_PROFILER_SEEKING) {
        if (unit == profiler->cycle[0]) {
            set_out(profiler);
        } else if (++profiler->sought > (uint64_t)SOUGHT * profiler->wanted * (profiler->length + SOUGHT)) {
            give_up(profiler);
        }
    }
    profiler->last = unit + 1;
}

void ov_profiler_depart(struct ov_engine *engine, const struct ov_launch *launch)
{
    struct ov_profiler *profiler = &engine->profiler;
    CUevent ended = profiler->ended;
    profiler->used += ended != NULL;
    const uint32_t slot = profiler->slot, used = profiler->used;
    for (uint32_t i = 0; i < profiler->steps && profiler->phase != OV_PROFILER_DONE; i++) {
        step(profiler, profiler->step[i], i == 0 ? ended : NULL);
    }
    if (profiler->phase == OV_PROFILER_FOLLOWING && profiler->steps > 0) {
        struct ov_sample *sample = sample_at(profiler, profiler->slot, profiler->at);
        const bool same_pass = slot == profiler->slot && used == profiler->used;
        const bool waited = profiler->waits != engine->ring.counts.waits;
        sample->empty = false;
        sample->from = launch->watch != NULL                   ? NULL
                       : ended != NULL && same_pass && !waited ? ended
                                                               : record(profiler, launch->stream);
        profiler->stream = launch->stream;
    } else if (profiler->phase == OV_PROFILER_FOLLOWING && launch->watch != NULL) {
        sample_at(profiler, profiler->slot, profiler->at)->from = NULL;
    }
}

/* ---- reading ---- */

/* CUDA_ERROR_NOT_READY: some of its events are not over. */
static CUresult read_pass(struct ov_profiler *profiler)
{
    float *seconds = &profiler->seconds[(size_t)profiler->passes * profiler->length];
    for (uint32_t i = 0; i < profiler->length; i++) {
        const struct ov_sample *sample = sample_at(profiler, profiler->oldest, i);
        float ms = 0;
        CUresult result = sample->from != NULL && sample->to != NULL
                              ? ov_cu->cuEventElapsedTime(&ms, sample->from, sample->to)
                              : CUDA_ERROR_INVALID_VALUE;
        if (result == CUDA_ERROR_NOT_READY) {
            return result;
        }
        seconds[i] = sample->empty ? 0 : result == CUDA_SUCCESS && ms >= 0 ? ms * 1e-3f : -1;
    }
    return CUDA_SUCCESS;
}

bool ov_profiler_collect(struct ov_engine *engine)
{
    struct ov_profiler *profiler = &engine->profiler;
    if (profiler->phase == OV_PROFILER_OFF || atomic_load(&ov_captures) != 0) {
        return false;
    }
    while (profiler->full > 0 && read_pass(profiler) == CUDA_SUCCESS) {
        profiler->oldest = (profiler->oldest + 1) % profiler->slots;
        profiler->full--;
        profiler->passes++;
    }
    return profiler->phase == OV_PROFILER_DONE && profiler->full == 0;
}
