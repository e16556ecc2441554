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
/* Of a pass: two for each interval, four for each clone of a graph. */
#define EVENTS(length) (2 * (length) + 2 + 4 * OV_PROFILER_GRAPHS)

/* ---- life ---- */

static void drop_graphs(struct ov_profiler *profiler)
{
    while (profiler->graphs > 0) {
        profiler->graphs--;
        (void)ov_cu->cuGraphExecDestroy(profiler->graph[profiler->graphs].exec);
        (void)ov_cu->cuGraphDestroy(profiler->graph[profiler->graphs].graph);
    }
}

static void give_back(struct ov_profiler *profiler, bool context_is_there)
{
    for (uint32_t i = 0; context_is_there && i < profiler->slots * profiler->events_per_slot; i++) {
        if (profiler->event[i] != NULL) {
            (void)ov_cu->cuEventDestroy_v2(profiler->event[i]);
        }
    }
    if (context_is_there) {
        drop_graphs(profiler);
        if (profiler->launched != NULL) {
            (void)ov_cu->cuEventDestroy_v2(profiler->launched);
        }
    }
    free(profiler->cycle);
    free(profiler->sample);
    free(profiler->event);
    free(profiler->seconds);
    free(profiler->late);
    memset(profiler, 0, sizeof *profiler);
}

void ov_profiler_end(struct ov_engine *engine)
{
    if (engine->profiler.phase != OV_PROFILER_OFF) {
        give_back(&engine->profiler, true);
        engine->ring.meter.wanted = false;
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
    return ov_opt.profile_cycles > 0 && !engine->paused && !engine->profile_suspended && runs->periodic &&
           engine->ring.streamed_count > 0 && runs->cycle_length > 0 &&
           EVENTS(runs->cycle_length) <= OV_PROFILER_EVENTS;
}

static bool provide(struct ov_profiler *profiler, const struct ov_runs *runs)
{
    const uint32_t length = (uint32_t)runs->cycle_length;
    profiler->length = length;
    profiler->beside = ov_opt.profile_cycles;
    profiler->wanted = profiler->beside + (ov_opt.stall == OV_OPT_STALL_ERROR ? 0 : OV_PROFILER_HUSHED);
    profiler->events_per_slot = EVENTS(length);
    profiler->slots = OV_PROFILER_EVENTS / profiler->events_per_slot;
    profiler->slots = profiler->slots < profiler->wanted ? profiler->slots : profiler->wanted;
    profiler->cycle = calloc(length, sizeof *profiler->cycle);
    profiler->sample = calloc((size_t)profiler->slots * length, sizeof *profiler->sample);
    profiler->event = calloc((size_t)profiler->slots * profiler->events_per_slot, sizeof(CUevent));
    profiler->seconds = calloc((size_t)profiler->wanted * length, sizeof *profiler->seconds);
    profiler->late = calloc(length, sizeof *profiler->late);
    if (profiler->cycle == NULL || profiler->sample == NULL || profiler->event == NULL || profiler->seconds == NULL ||
        profiler->late == NULL) {
        profiler->slots = 0; /* there are no events */
        return false;
    }
    memcpy(profiler->cycle, runs->cycle, length * sizeof *profiler->cycle);
    if (ov_cu->cuEventCreate(&profiler->launched, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
        profiler->launched = NULL;
        return false;
    }
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
    ov_meter_start(&engine->ring);
    ov_engine_look(engine);
}

/* ---- reading ---- */

static struct ov_sample *sample_at(struct ov_profiler *profiler, uint32_t slot, uint32_t at)
{
    return &profiler->sample[(size_t)slot * profiler->length + at];
}

/* What is not counted of it; CUDA_ERROR_INVALID_VALUE: it is not known. */
static CUresult read_skipped(const struct ov_sample *sample, float *skipped_ms)
{
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < 2 && result == CUDA_SUCCESS; i++) {
        float ms = 0;
        if (sample->skip[i].begin != NULL) {
            result = sample->skip[i].end != NULL
                         ? ov_cu->cuEventElapsedTime(&ms, sample->skip[i].begin, sample->skip[i].end)
                         : CUDA_ERROR_INVALID_VALUE;
        }
        *skipped_ms += ms > 0 ? ms : 0;
    }
    return result;
}

static CUresult read_sample(const struct ov_sample *sample, float *seconds)
{
    float ms = 0, skipped_ms = 0;
    if (sample->empty || sample->from == NULL || sample->to == NULL) {
        *seconds = sample->empty ? 0 : -1;
        return CUDA_SUCCESS;
    }
    CUresult result = ov_cu->cuEventElapsedTime(&ms, sample->from, sample->to);
    result = result == CUDA_SUCCESS ? read_skipped(sample, &skipped_ms) : result;
    *seconds = result == CUDA_SUCCESS && ms >= 0 ? (ms > skipped_ms ? ms - skipped_ms : 0) * 1e-3f : -1;
    return result;
}

/* CUDA_ERROR_NOT_READY: some of its events are not over. */
static CUresult read_pass(struct ov_profiler *profiler)
{
    float *seconds = &profiler->seconds[(size_t)profiler->passes * profiler->length];
    for (uint32_t i = 0; i < profiler->length; i++) {
        if (read_sample(sample_at(profiler, profiler->oldest, i), &seconds[i]) == CUDA_ERROR_NOT_READY) {
            return CUDA_ERROR_NOT_READY;
        }
    }
    return CUDA_SUCCESS;
}

/* What a driver says of the events in a clone that has not run is not known: no such one may be on its way. The same
 * event twice asks without telling the checkers of races that the host has waited. */
static bool clones_are_over(const struct ov_profiler *profiler)
{
    float ms;
    return profiler->launching == 0 &&
           (!profiler->any_launched ||
            ov_cu->cuEventElapsedTime(&ms, profiler->launched, profiler->launched) != CUDA_ERROR_NOT_READY);
}

/* Passes that are over, the oldest first. Not while somebody captures: then events may not be asked. */
static void read_full(struct ov_profiler *profiler)
{
    if (atomic_load(&ov_captures) != 0 || !clones_are_over(profiler)) {
        return;
    }
    while (profiler->full > 0 && read_pass(profiler) == CUDA_SUCCESS) {
        profiler->oldest = (profiler->oldest + 1) % profiler->slots;
        profiler->full--;
        profiler->passes++;
    }
    if (profiler->full == 0 && profiler->phase != OV_PROFILER_FOLLOWING) {
        drop_graphs(profiler);
    }
}

static bool is_room(const struct ov_profiler *profiler)
{
    const uint32_t each = profiler->full > 0 ? profiler->graphs / profiler->full : 0;
    return profiler->full < profiler->slots && profiler->graphs + each < OV_PROFILER_GRAPHS;
}

bool ov_profiler_has_room(struct ov_profiler *profiler)
{
    if (!is_room(profiler)) {
        read_full(profiler);
    }
    return is_room(profiler);
}

/* ---- following ---- */

CUevent ov_profiler_event(struct ov_profiler *profiler)
{
    return profiler->used < profiler->events_per_slot
               ? profiler->event[profiler->slot * profiler->events_per_slot + profiler->used++]
               : NULL;
}

/* A time on the stream, now; NULL: there is none. */
static CUevent record(struct ov_profiler *profiler, CUstream stream)
{
    CUevent event = ov_profiler_event(profiler);
    return event != NULL && ov_cu->cuEventRecord(event, stream) == CUDA_SUCCESS ? event : NULL;
}

static void give_up(struct ov_profiler *profiler)
{
    profiler->phase = OV_PROFILER_DONE;
    profiler->hushed = false;
}

/* Hushed passes are slow: they are not tried for ever. */
static void surprise(struct ov_profiler *profiler)
{
    profiler->phase = OV_PROFILER_SEEKING;
    profiler->unhushed += profiler->hushed;
    profiler->hushed = false;
    if (++profiler->surprises > SURPRISES * profiler->wanted || profiler->unhushed == OV_PROFILER_HUSHED) {
        give_up(profiler);
    }
}

/* The stream has done all that was asked of it, and waits for the host: with less to do it would wait longer. */
static void ask_late(struct ov_profiler *profiler, CUstream stream)
{
    profiler->late_at = 0;
    if (!profiler->hushed) {
        const CUstreamCaptureMode mode = ov_relax(); /* another thread may begin a capture now */
        profiler->late_at = ov_cu->cuStreamQuery(stream) == CUDA_SUCCESS ? profiler->at + 1 : 0;
        ov_relax_end(mode);
    }
}

/* It counts when the launch was made, which may be asked for several times. */
static void count_late(struct ov_profiler *profiler)
{
    if (profiler->late_at > 0 && profiler->late[profiler->late_at - 1] < UINT8_MAX) {
        profiler->late[profiler->late_at - 1]++;
    }
    profiler->late_at = 0;
}

/* 1 + index, 0: none of this engine's. */
static uint32_t unit_of(struct ov_engine *engine, uint64_t address)
{
    return ov_arena_slice(address) == (unsigned)engine->slice ? ov_density_unit(engine, address) : 0;
}

bool ov_profiler_begins(struct ov_engine *engine, const struct ov_touches *touches)
{
    bool begins = false;
    for (unsigned i = 0; i < touches->count && !begins; i++) {
        begins = unit_of(engine, touches->item[i].address) == engine->profiler.cycle[0] + 1;
    }
    return begins;
}

/* The touches that the launch brings, in the way in which study.c makes a sequence of them. */
bool ov_profiler_meet(struct ov_engine *engine, const struct ov_touches *touches)
{
    struct ov_profiler *profiler = &engine->profiler;
    profiler->steps = 0;
    for (unsigned i = 0; i < touches->count; i++) {
        const uint32_t unit = unit_of(engine, touches->item[i].address);
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
    return profiler->steps > 0;
}

void ov_profiler_arrive(struct ov_engine *engine, const struct ov_launch *launch, const struct ov_touches *touches)
{
    struct ov_profiler *profiler = &engine->profiler;
    profiler->ended = NULL;
    profiler->late_at = 0;
    profiler->steps = 0;
    profiler->may_hush = true;
    if (profiler->plan != engine->plans) {
        give_up(profiler);
        return;
    }
    if (atomic_load(&ov_captures) != 0) { /* no event may be asked for its time then */
        ov_profiler_lose(profiler);
        return;
    }
    if (profiler->hushed && launch->stream != profiler->stream) { /* copies have waited for one stream only */
        ov_profiler_lose(profiler);
    }
    bool brings = ov_profiler_meet(engine, touches);
    profiler->waits = engine->ring.counts.waits;
    if (profiler->phase == OV_PROFILER_FOLLOWING && brings && launch->stream == profiler->stream &&
        launch->watch == NULL) {
        const uint32_t used = profiler->used;
        ask_late(profiler, launch->stream);
        profiler->ended = record(profiler, launch->stream);
        profiler->used = used; /* kept by depart; until then the launch may come here again */
    }
}

/* The pass that ends here is full, and the next one may begin if there is room for it. */
static void complete(struct ov_profiler *profiler)
{
    profiler->full++;
    profiler->hushed = false;
    profiler->slot = (profiler->slot + 1) % profiler->slots;
    if (profiler->passes + profiler->full >= profiler->wanted) {
        profiler->phase = OV_PROFILER_DONE;
    } else {
        profiler->phase = OV_PROFILER_SEEKING;
    }
}

static bool next_is_hushed(const struct ov_profiler *profiler)
{
    return profiler->passes + profiler->full >= profiler->beside;
}

/* The first touch of the cycle. */
static void set_out(struct ov_profiler *profiler)
{
    const bool hushed = next_is_hushed(profiler);
    if (ov_profiler_has_room(profiler) && (!hushed || profiler->may_hush)) {
        profiler->phase = OV_PROFILER_FOLLOWING;
        profiler->hushed = hushed;
        profiler->at = 0;
        profiler->used = 0;
        *sample_at(profiler, profiler->slot, 0) = (struct ov_sample){.empty = true};
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
            *sample_at(profiler, profiler->slot, next) = (struct ov_sample){.empty = true};
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

void ov_profiler_advance(struct ov_profiler *profiler, CUevent ended)
{
    for (uint32_t i = 0; i < profiler->steps && profiler->phase != OV_PROFILER_DONE; i++) {
        step(profiler, profiler->step[i], i == 0 ? ended : NULL);
    }
}

void ov_profiler_start(struct ov_profiler *profiler, CUevent from, CUstream stream)
{
    struct ov_sample *sample = sample_at(profiler, profiler->slot, profiler->at);
    sample->empty = false;
    sample->from = from;
    profiler->stream = stream;
}

void ov_profiler_hush(struct ov_engine *engine, CUstream stream)
{
    struct ov_profiler *profiler = &engine->profiler;
    if (profiler->hushed && profiler->at == 0 && ov_ring_hush(&engine->ring, stream) != CUDA_SUCCESS) {
        surprise(profiler);
    }
}

void ov_profiler_depart(struct ov_engine *engine, const struct ov_launch *launch)
{
    struct ov_profiler *profiler = &engine->profiler;
    CUevent ended = profiler->ended;
    profiler->used += ended != NULL;
    count_late(profiler);
    const uint32_t slot = profiler->slot, used = profiler->used;
    ov_profiler_advance(profiler, ended);
    if (profiler->phase == OV_PROFILER_FOLLOWING && profiler->steps > 0) {
        ov_profiler_hush(engine, launch->stream);
    }
    if (profiler->phase == OV_PROFILER_FOLLOWING && profiler->steps > 0) {
        const bool same_pass = slot == profiler->slot && used == profiler->used;
        const bool waited = profiler->waits != engine->ring.counts.waits;
        const bool shared = ended != NULL && same_pass && !waited;
        CUevent from = launch->watch != NULL ? NULL : shared ? ended : record(profiler, launch->stream);
        ov_profiler_start(profiler, from, launch->stream);
    } else if (profiler->phase == OV_PROFILER_FOLLOWING && launch->watch != NULL) {
        sample_at(profiler, profiler->slot, profiler->at)->from = NULL;
    }
}

/* ---- graphs ---- */

bool ov_profiler_hushes(struct ov_engine *engine, const struct ov_touches *touches)
{
    const struct ov_profiler *profiler = &engine->profiler;
    if (profiler->phase == OV_PROFILER_FOLLOWING) { /* the last pass may need no more than its end */
        const bool last = profiler->passes + profiler->full + 1 >= profiler->wanted;
        return profiler->hushed && !(last && profiler->at + 1 == profiler->length);
    }
    return next_is_hushed(profiler) && ov_profiler_begins(engine, touches);
}

/* On a stream that has nothing to do, the two events are as far apart as the host took; on one that has, as its wait
 * for copies took. */
void ov_profiler_pause(struct ov_profiler *profiler, CUstream stream)
{
    profiler->pausing = NULL;
    profiler->late_at = 0;
    if (profiler->hushed && profiler->stream != stream) {
        ov_profiler_lose(profiler);
    }
    if (profiler->phase == OV_PROFILER_FOLLOWING && profiler->stream == stream) {
        ask_late(profiler, stream);
        profiler->pausing = sample_at(profiler, profiler->slot, profiler->at);
        profiler->pausing->skip[0].begin = record(profiler, stream);
        profiler->pausing->skip[0].end = ov_profiler_event(profiler); /* of this pass, which may end meanwhile */
    }
}

void ov_profiler_resume(struct ov_profiler *profiler, CUstream stream)
{
    struct ov_sample *sample = profiler->pausing;
    if (sample != NULL &&
        (sample->skip[0].end == NULL || ov_cu->cuEventRecord(sample->skip[0].end, stream) != CUDA_SUCCESS)) {
        sample->skip[0].end = NULL;
    }
    profiler->pausing = NULL;
}

void ov_profiler_end_graph(struct ov_profiler *profiler, CUevent ended, CUevent copied)
{
    struct ov_sample *sample = sample_at(profiler, profiler->slot, profiler->at);
    sample->skip[1].begin = ended;
    sample->skip[1].end = copied;
}

void ov_profiler_launching(struct ov_profiler *profiler)
{
    if (profiler->launching++ == 0) {
        profiler->sound = profiler->full; /* none is read until there are no more */
    }
}

void ov_profiler_keep(struct ov_profiler *profiler, CUgraphExec exec, CUgraph graph)
{
    profiler->graph[profiler->graphs].exec = exec;
    profiler->graph[profiler->graphs++].graph = graph;
}

void ov_profiler_launched(struct ov_profiler *profiler, CUstream stream)
{
    profiler->launching--;
    count_late(profiler);
    profiler->any_launched = ov_cu->cuEventRecord(profiler->launched, stream) == CUDA_SUCCESS || profiler->any_launched;
}

/* Its events tell of nothing, or of another pass: neither the passes that it ends nor the one that it begins. */
void ov_profiler_refused(struct ov_profiler *profiler)
{
    const bool given_up = profiler->phase == OV_PROFILER_DONE && profiler->passes + profiler->full < profiler->wanted;
    const bool ended = profiler->full > profiler->sound;
    profiler->launching--;
    profiler->late_at = 0;
    if (ended) {
        profiler->full = profiler->sound;
        profiler->slot = (profiler->oldest + profiler->full) % profiler->slots;
    }
    if (!given_up && (ended || profiler->phase == OV_PROFILER_FOLLOWING)) {
        surprise(profiler);
    }
}

void ov_profiler_lose(struct ov_profiler *profiler)
{
    if (profiler->phase == OV_PROFILER_FOLLOWING) {
        surprise(profiler);
    }
}

static size_t count_unknown(const struct ov_profiler *profiler)
{
    size_t count = 0;
    for (size_t i = 0; i < (size_t)profiler->passes * profiler->length; i++) {
        count += profiler->seconds[i] < 0;
    }
    return count;
}

static int compare(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

double ov_profiler_median(const struct ov_profiler *profiler, uint32_t at, uint32_t first, uint32_t end)
{
    float known[OV_PROFILER_PASSES + OV_PROFILER_HUSHED];
    uint32_t count = 0;
    for (uint32_t pass = first; pass < end; pass++) {
        const float seconds = profiler->seconds[(size_t)pass * profiler->length + at];
        if (seconds >= 0) {
            known[count++] = seconds;
        }
    }
    qsort(known, count, sizeof *known, compare);
    return count == 0 ? -1 : (double)(known[(count - 1) / 2] + known[count / 2]) / 2;
}

bool ov_profiler_collect(struct ov_engine *engine)
{
    struct ov_profiler *profiler = &engine->profiler;
    if (profiler->phase == OV_PROFILER_OFF || atomic_load(&ov_captures) != 0) {
        return false;
    }
    read_full(profiler);
    if (profiler->phase != OV_PROFILER_DONE || profiler->full > 0) {
        return false;
    }
    ov_log(OV_LOG_DEBUG, "device %d: %u passes were timed, intervals not known: %zu of %zu", engine->device,
           profiler->passes, count_unknown(profiler), (size_t)profiler->passes * profiler->length);
    return true;
}
