#include "pace.h"

#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "propose.h"

/* How far a span may be from what is expected, as a share of it, and how often in a row it may be further. */
#define PACE_OFF 0.2
#define PACE_ROW 3u
/* Passes before they are timed anew for the first time. */
#define FIRST_WAIT 8u
#define LAST_WAIT  (1u << 20)

static bool provide(struct ov_pace *pace)
{
    bool made = true;
    for (int i = 0; i < 2 && made; i++) {
        CUevent *const ends[] = {&pace->span[i].begin, &pace->span[i].end};
        for (int k = 0; k < 2 && made; k++) {
            made = *ends[k] != NULL || ov_cu->cuEventCreate(ends[k], CU_EVENT_DEFAULT) == CUDA_SUCCESS;
        }
        pace->span[i].begun = pace->span[i].full = false;
    }
    return made;
}

/* The first and the last streamed touch whose unit has no other; false: there are no two. */
static bool choose(const struct ov_engine *engine, size_t *first, size_t *last)
{
    const struct ov_runs *runs = &engine->learn.runs;
    uint32_t *touches = calloc((size_t)runs->count + 1, sizeof *touches);
    size_t found = 0;
    for (size_t i = 0; touches != NULL && i < runs->cycle_length; i++) {
        touches[runs->cycle[i]]++;
    }
    for (size_t i = 0; touches != NULL && i < runs->cycle_length; i++) {
        if (touches[runs->cycle[i]] == 1 && engine->ring.unit[runs->cycle[i]].tier == OV_TIER_STREAMED) {
            *first = found++ == 0 ? i : *first;
            *last = i;
        }
    }
    free(touches);
    return found > 1;
}

/* From where the first of the two touches has what it waits for to where the second has. */
static double expect(const struct ov_engine *engine, size_t first, size_t last)
{
    const struct ov_runs *runs = &engine->learn.runs;
    struct ov_plan_score score;
    double *stall_s = calloc(runs->cycle_length + 1, sizeof *stall_s);
    double span_s = 0, rest_s = 0;
    if (stall_s == NULL || !ov_propose_standing(engine, &score, stall_s)) {
        free(stall_s);
        return 0;
    }
    for (size_t i = 0; i < runs->cycle_length; i++) {
        *(i >= first && i < last ? &span_s : &rest_s) += runs->compute_s[i];
        *(i > first && i <= last ? &span_s : &rest_s) += stall_s[i];
    }
    free(stall_s);
    return span_s + rest_s > 0 ? score.cycle_s * span_s / (span_s + rest_s) : 0;
}

void ov_pace_begin(struct ov_engine *engine)
{
    struct ov_ring *ring = &engine->ring;
    const uint32_t *cycle = engine->learn.runs.cycle;
    size_t first = 0, last = 0;
    ring->pace.expected_s = 0;
    ring->pace.longer = ring->pace.shorter = 0;
    ring->pace.due = false;
    for (uint32_t i = 0; i < ring->unit_count; i++) {
        ring->unit[i].paced = OV_PACED_NOT;
    }
    if (engine->learn.runs.compute_s == NULL || ov_opt.profile_cycles == 0 || !choose(engine, &first, &last) ||
        !provide(&ring->pace)) {
        return;
    }
    ring->pace.expected_s = expect(engine, first, last);
    if (ring->pace.expected_s > 0) {
        ring->unit[cycle[first]].paced = OV_PACED_BEGIN;
        ring->unit[cycle[last]].paced = OV_PACED_END;
        ring->pace.wait = ring->pace.wait > 0 ? ring->pace.wait : FIRST_WAIT;
    }
}

/* The events go with the context. */
void ov_pace_close(struct ov_engine *engine)
{
    memset(&engine->ring.pace, 0, sizeof engine->ring.pace);
}

static void judge(struct ov_pace *pace, double seconds)
{
    pace->seen_s = seconds;
    pace->passes++;
    pace->longer = seconds > (1 + PACE_OFF) * pace->expected_s ? pace->longer + 1 : 0;
    pace->shorter = seconds < (1 - PACE_OFF) * pace->expected_s ? pace->shorter + 1 : 0;
    pace->due = pace->passes >= pace->wait && (pace->longer >= PACE_ROW || pace->shorter >= PACE_ROW);
}

/* The span before, whose end may not be over yet: then it is not known. */
static void read_before(struct ov_pace *pace)
{
    const unsigned before = 1 - pace->now;
    float ms = 0;
    if (pace->span[before].full &&
        ov_cu->cuEventElapsedTime(&ms, pace->span[before].begin, pace->span[before].end) == CUDA_SUCCESS && ms > 0) {
        judge(pace, ms * 1e-3);
    }
    pace->span[before].full = false;
}

void ov_pace_pass(struct ov_pace *pace, const struct ov_unit *unit, CUstream stream)
{
    if (pace->expected_s <= 0 || atomic_load(&ov_captures) != 0) {
        return;
    }
    if (unit->paced == OV_PACED_BEGIN) {
        pace->span[pace->now].begun = ov_cu->cuEventRecord(pace->span[pace->now].begin, stream) == CUDA_SUCCESS;
    } else if (pace->span[pace->now].begun) {
        const CUstreamCaptureMode mode = ov_relax();
        const bool late = ov_cu->cuStreamQuery(stream) != CUDA_ERROR_NOT_READY;
        ov_relax_end(mode);
        read_before(pace);
        pace->span[pace->now].begun = false;
        pace->span[pace->now].full = !late && ov_cu->cuEventRecord(pace->span[pace->now].end, stream) == CUDA_SUCCESS;
        pace->now = 1 - pace->now;
    }
}

bool ov_pace_is_off(struct ov_pace *pace)
{
    const bool due = pace->due;
    if (due) {
        pace->due = false;
        pace->longer = pace->shorter = 0;
        pace->passes = 0;
        pace->wait = pace->wait < LAST_WAIT ? 2 * pace->wait : LAST_WAIT;
    }
    return due;
}

void ov_pace_accept(struct ov_pace *pace)
{
    pace->expected_s = pace->expected_s > 0 && pace->seen_s > 0 ? pace->seen_s : pace->expected_s;
}
