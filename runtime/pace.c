#include "pace.h"

#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "propose.h"

/* How far a span may be from what is expected, as a share of it. */
#define PACE_OFF 0.2
/* Passes before they are timed anew for the first time. */
#define FIRST_WAIT 8u
#define LAST_WAIT  (1u << 20)
/* Launches of other graphs after which the one that is watched is taken for gone. */
#define OTHERS_MOST 1024u

static bool provide(struct ov_pace *pace)
{
    CUevent *const all[] = {&pace->pair[0].begin, &pace->pair[0].end, &pace->pair[1].begin,
                            &pace->pair[1].end,   &pace->graph.begin, &pace->graph.end};
    bool made = true;
    for (size_t i = 0; i < sizeof all / sizeof *all && made; i++) {
        made = *all[i] != NULL || ov_cu->cuEventCreate(all[i], CU_EVENT_DEFAULT) == CUDA_SUCCESS;
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

/* Nothing is watched, and nothing was seen. */
static void reset(struct ov_pace *pace)
{
    pace->eager = (struct ov_paced_span){.seen_s = pace->eager.seen_s};
    pace->graph = (struct ov_paced_graph){.begin = pace->graph.begin, .end = pace->graph.end};
    pace->pair[0].begun = pace->pair[0].full = pace->pair[1].begun = pace->pair[1].full = false;
    pace->graphs = pace->due = false;
}

void ov_pace_begin(struct ov_engine *engine)
{
    struct ov_ring *ring = &engine->ring;
    const uint32_t *cycle = engine->learn.runs.cycle;
    size_t first = 0, last = 0;
    reset(&ring->pace);
    for (uint32_t i = 0; i < ring->unit_count; i++) {
        ring->unit[i].paced = OV_PACED_NOT;
    }
    if (engine->learn.runs.compute_s == NULL || ov_opt.profile_cycles == 0 || !provide(&ring->pace)) {
        return;
    }
    ring->pace.graphs = true;
    ring->pace.wait = ring->pace.wait > 0 ? ring->pace.wait : FIRST_WAIT;
    ring->pace.eager.expected_s = choose(engine, &first, &last) ? expect(engine, first, last) : 0;
    if (ring->pace.eager.expected_s > 0) {
        ring->unit[cycle[first]].paced = OV_PACED_BEGIN;
        ring->unit[cycle[last]].paced = OV_PACED_END;
    }
}

/* The events go with the context. */
void ov_pace_close(struct ov_engine *engine)
{
    memset(&engine->ring.pace, 0, sizeof engine->ring.pace);
}

static bool is_off(const struct ov_paced_span *span)
{
    return span->longer >= PACE_ROW || span->shorter >= PACE_ROW;
}

/* Of so many passes, one took so long. */
static void judge(struct ov_pace *pace, struct ov_paced_span *span, double seconds, unsigned passes)
{
    span->seen_s = seconds;
    span->longer = seconds > (1 + PACE_OFF) * span->expected_s ? span->longer + 1 : 0;
    span->shorter = seconds < (1 - PACE_OFF) * span->expected_s ? span->shorter + 1 : 0;
    pace->passes += passes;
    pace->due = pace->passes >= pace->wait && (is_off(&pace->eager) || is_off(&pace->graph.span));
}

/* CUDA_ERROR_NOT_READY: it is not over. *seconds 0: it is not known. */
static CUresult read_between(CUevent begin, CUevent end, double *seconds)
{
    float ms = 0;
    const CUresult result = ov_cu->cuEventElapsedTime(&ms, begin, end);
    *seconds = result == CUDA_SUCCESS && ms > 0 ? ms * 1e-3 : 0;
    return result;
}

/* ---- eager passes ---- */

/* The span before, whose end may not be over yet: then it is not known. */
static void read_before(struct ov_pace *pace)
{
    const unsigned before = 1 - pace->now;
    double seconds = 0;
    if (pace->pair[before].full) {
        (void)read_between(pace->pair[before].begin, pace->pair[before].end, &seconds);
    }
    if (seconds > 0) {
        judge(pace, &pace->eager, seconds, 1);
    }
    pace->pair[before].full = false;
}

void ov_pace_pass(struct ov_pace *pace, const struct ov_unit *unit, CUstream stream)
{
    if (pace->eager.expected_s <= 0 || atomic_load(&ov_captures) != 0) {
        return;
    }
    if (unit->paced == OV_PACED_BEGIN) {
        pace->pair[pace->now].begun = ov_cu->cuEventRecord(pace->pair[pace->now].begin, stream) == CUDA_SUCCESS;
    } else if (pace->pair[pace->now].begun) {
        const CUstreamCaptureMode mode = ov_relax();
        const bool late = ov_cu->cuStreamQuery(stream) != CUDA_ERROR_NOT_READY;
        ov_relax_end(mode);
        read_before(pace);
        pace->pair[pace->now].begun = false;
        pace->pair[pace->now].full = !late && ov_cu->cuEventRecord(pace->pair[pace->now].end, stream) == CUDA_SUCCESS;
        pace->now = 1 - pace->now;
    }
}

void ov_pace_lose(struct ov_pace *pace)
{
    pace->pair[pace->now].begun = false;
}

/* ---- graphs ---- */

static void watch(struct ov_paced_graph *graph, uint64_t kind, uint32_t copies)
{
    *graph = (struct ov_paced_graph){.begin = graph->begin, .end = graph->end, .kind = kind, .copies = copies};
}

/* Whether the launch is one of the graph that is watched, which it may become by this. */
static bool is_watched(struct ov_paced_graph *graph, uint64_t kind, uint32_t copies)
{
    graph->others = kind == graph->kind ? 0 : graph->others + 1;
    if (graph->others > 0 && (graph->kind == 0 || copies > graph->copies || graph->others > OTHERS_MOST)) {
        watch(graph, kind, copies);
    }
    return kind == graph->kind;
}

static void expect_of_first(struct ov_paced_graph *graph, double seconds)
{
    unsigned at = graph->firsts++;
    for (; at > 0 && graph->first_s[at - 1] > seconds; at--) {
        graph->first_s[at] = graph->first_s[at - 1];
    }
    graph->first_s[at] = seconds;
    graph->span.expected_s = graph->firsts == PACE_ROW ? graph->first_s[PACE_ROW / 2] : 0;
}

/* False: the one before is not over yet, and keeps its events. */
static bool read_graph(struct ov_pace *pace)
{
    struct ov_paced_graph *graph = &pace->graph;
    double seconds = 0;
    if (graph->full && read_between(graph->begin, graph->end, &seconds) == CUDA_ERROR_NOT_READY) {
        return false;
    }
    graph->full = false;
    if (seconds > 0 && graph->span.expected_s > 0) {
        judge(pace, &graph->span, seconds, PACE_EVERY);
    } else if (seconds > 0) {
        expect_of_first(graph, seconds);
    }
    return true;
}

bool ov_pace_graph_begins(struct ov_pace *pace, uint64_t kind, uint32_t copies, CUstream stream)
{
    struct ov_paced_graph *graph = &pace->graph;
    if (!pace->graphs || !is_watched(graph, kind, copies) || ++graph->launches < PACE_EVERY) {
        return false;
    }
    graph->launches = 0;
    return atomic_load(&ov_captures) == 0 && read_graph(pace) &&
           ov_cu->cuEventRecord(graph->begin, stream) == CUDA_SUCCESS;
}

void ov_pace_graph_ends(struct ov_pace *pace, CUstream stream, bool launched)
{
    pace->graph.full = launched && ov_cu->cuEventRecord(pace->graph.end, stream) == CUDA_SUCCESS;
}

/* ---- what comes of it ---- */

bool ov_pace_is_off(struct ov_pace *pace)
{
    const bool due = pace->due;
    if (due) {
        pace->due = false;
        pace->eager.longer = pace->eager.shorter = 0;
        pace->graph.span.longer = pace->graph.span.shorter = 0;
        pace->passes = 0;
        pace->wait = pace->wait < LAST_WAIT ? 2 * pace->wait : LAST_WAIT;
    }
    return due;
}

void ov_pace_accept(struct ov_pace *pace)
{
    struct ov_paced_span *eager = &pace->eager;
    eager->expected_s = eager->expected_s > 0 && eager->seen_s > 0 ? eager->seen_s : eager->expected_s;
}
