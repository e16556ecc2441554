/*
 * Does the happens-before checker agree with the definition? Random programs of accesses, events and synchronisation on
 * four streams run in the simulator; beside it every operation keeps the full set of operations that come before it.
 * Up to the first race of a program, each single verdict must be the same.
 */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STREAMS    4 /* legacy, blocking, and two that are not */
#define EVENTS     3
#define OPERATIONS 60 /* of one program; a set of them is one word */
#define STEPS      160

struct operation {
    uint64_t start, end, before; /* before: bit j = operation j happens before this one */
    int writes;
};

struct program {
    CUstream stream[STREAMS];
    CUevent event[EVENTS];
    uint64_t on_stream[STREAMS], at_event[EVENTS], on_host; /* what has happened before the next operation there */
    struct operation operation[OPERATIONS];
    int count;
};

static uint64_t memory;
static unsigned long verdicts, races, disagreements;
static uint64_t random_state;

static void must(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "%s answered %d\n", what, (int)result);
        exit(1);
    }
}
#define MUST(call_) must(call_, #call_)

static int pick(int below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int)((random_state >> 33) % (uint64_t)below);
}

/* A kernel that only declares what it touches. */
CUresult race_model_touch(CUstream handle, uint64_t address, uint64_t bytes, int writes);
SIM_API(SIM_CONTEXT, race_model_touch, (CUstream handle, uint64_t address, uint64_t bytes, int writes), handle, address,
        bytes, writes)
{
    struct sim_stream *stream;
    SIM_TRY(sim_stream_get(call, handle, &stream));
    const struct sim_access access = {address, bytes, writes};
    const struct sim_op op = {.site = "touch", .engine = SIM_ENGINE_KERNEL, .access = &access, .access_count = 1};
    return sim_stream_submit(call, stream, &op);
}

/* Work on the legacy stream comes after that of blocking streams, and the other way round. */
static void legacy_rule(struct program *p, int stream)
{
    if (stream == 0) {
        p->on_stream[0] |= p->on_stream[1];
    } else if (stream == 1) {
        p->on_stream[1] |= p->on_stream[0];
    }
}

static int conflicts(const struct program *p, const struct operation *next)
{
    for (int j = 0; j < p->count; j++) {
        const struct operation *earlier = &p->operation[j];
        if ((earlier->writes || next->writes) && earlier->start < next->end && next->start < earlier->end &&
            (next->before >> j & 1) == 0) {
            return 1;
        }
    }
    return 0;
}

/* Returns 1 when the program raced. */
static int step_touch(struct program *p, int stream)
{
    struct operation *next = &p->operation[p->count];
    const uint64_t unit = pick(2) ? 777 : 1 << 20;
    legacy_rule(p, stream);
    next->start = (uint64_t)pick(12) * unit;
    next->end = next->start + (uint64_t)(1 + pick(3)) * unit;
    next->writes = pick(3) == 0;
    next->before = p->on_stream[stream] | p->on_host;
    int expected = conflicts(p, next);
    uint64_t races_before = sim_race_count;
    MUST(race_model_touch(p->stream[stream], memory + next->start, next->end - next->start, next->writes));
    int found = sim_race_count != races_before;
    p->on_stream[stream] = next->before | (uint64_t)1 << p->count++;
    verdicts++;
    if (found != expected) {
        disagreements++;
        printf("operation %d: a race is %s, the checker says %s\n", p->count - 1, expected ? "there" : "not there",
               found ? "race" : "none");
    }
    return expected;
}

static int step(struct program *p)
{
    int kind = pick(12), stream = pick(STREAMS), event = pick(EVENTS);
    if (kind < 4) {
        return p->count < OPERATIONS ? step_touch(p, stream) : 0;
    }
    if (kind < 7) {
        legacy_rule(p, stream);
        MUST(cuEventRecord(p->event[event], p->stream[stream]));
        p->at_event[event] = p->on_stream[stream];
    } else if (kind < 10) {
        legacy_rule(p, stream);
        MUST(cuStreamWaitEvent(p->stream[stream], p->event[event], 0));
        p->on_stream[stream] |= p->at_event[event];
    } else if (kind == 10) {
        if (stream == 0) {
            legacy_rule(p, stream);
        }
        MUST(cuStreamSynchronize(p->stream[stream]));
        p->on_host |= p->on_stream[stream];
    } else {
        CUresult result = pick(2) ? cuEventQuery(p->event[event]) : cuEventSynchronize(p->event[event]);
        p->on_host |= result == CUDA_SUCCESS ? p->at_event[event] : 0;
    }
    return 0;
}

static void run(uint64_t seed, const CUstream *stream)
{
    struct program p;
    memset(&p, 0, sizeof p);
    memcpy(p.stream, stream, sizeof p.stream);
    random_state = seed * 2654435761u + 1;
    for (int i = 0; i < EVENTS; i++) {
        MUST(cuEventCreate(&p.event[i], CU_EVENT_DISABLE_TIMING));
    }
    for (int i = 0, raced = 0; i < STEPS && !raced; i++) {
        raced = step(&p);
        races += (unsigned long)raced;
    }
    MUST(cuCtxSynchronize());
    for (int i = 0; i < EVENTS; i++) {
        MUST(cuEventDestroy_v2(p.event[i]));
    }
}

int main(int count, char **word)
{
    unsigned long programs = count > 1 ? strtoul(word[1], NULL, 10) : 5000;
    CUcontext context;
    CUstream stream[STREAMS] = {NULL};
    CUdeviceptr address;
    setenv("SIM_RACE", "report", 1);
    if (freopen("/dev/null", "w", stderr) == NULL) { /* every race is a line there */
        return 1;
    }
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemAlloc_v2(&address, (size_t)16 << 20));
    memory = address;
    for (int i = 1; i < STREAMS; i++) {
        MUST(cuStreamCreate(&stream[i], i == 1 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    }
    for (unsigned long seed = 0; seed < programs; seed++) {
        run(seed, stream);
    }
    printf("%lu programs, %lu verdicts, %lu races, %lu disagreements\n", programs, verdicts, races, disagreements);
    return disagreements != 0 || races == 0 || verdicts < 2 * races;
}
