/*
 * Captures while weights are streamed: whatever the program does beside a capture, on its own thread or on another,
 * gives the same codes and the same graph as without the shim.
 *
 * The matrix: a case is `mode.action.thread`. A capture of that mode is opened, half of a pass is captured, the action
 * is taken, the other half is captured, the capture ends; its graph, when there is one, is replayed between eager
 * passes.
 */
#include "graphs.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 8, SPARE = COUNT };

static struct rig rig;
static CUstream side; /* of the actions; never captured */
static CUevent event;
static uint32_t *pinned;
static struct gpu_image image[4]; /* what the actions have loaded */
static unsigned images;

/* ---- actions; each tells its codes */

/* Copies into, out of and between weights, and of memory that is no weight. */
static void act_copies(void)
{
    struct rig_weight *changed = &rig.weight[3], *copied = &rig.weight[4], *source = &rig.weight[5];
    const size_t bytes = changed->bytes;
    rig_refill(changed);
    memcpy(pinned, changed->host, bytes);
    CUresult result = cuMemcpyHtoDAsync(changed->address, pinned, bytes, side);
    say("copy to a weight", result);
    result = cuMemcpyDtoDAsync(copied->address, source->address, bytes, side);
    say("copy between weights", result);
    if (result == CUDA_SUCCESS) {
        memcpy(copied->host, source->host, bytes);
        rig_changed(copied);
    }
    say("copy from a weight", cuMemcpyDtoHAsync(pinned + bytes / 4, rig.weight[6].address, bytes, side));
    say("fill", cuMemsetD32Async(rig.out + 8192, 7, 16, side));
}

/* Work with weights, then the host waits for it. */
static void act_sync(void)
{
    for (unsigned i = 0; i < COUNT; i++) {
        rig_read(&rig, i, 1024 + i, side);
    }
    say("synchronise a stream", cuStreamSynchronize(side));
}

static void act_context(void)
{
    rig_read(&rig, 2, 1024, side);
    say("synchronise the context", cuCtxSynchronize());
}

/* The spare weight, which the captured work does not read. */
static void act_free(void)
{
    CUresult result = cuMemFree(rig.weight[SPARE].address);
    say("free a weight", result);
    if (result == CUDA_SUCCESS) {
        rig.weight[SPARE].address = 0;
    }
    CUdeviceptr small, large;
    result = cuMemAlloc(&small, 512);
    say("allocate little", result);
    if (result == CUDA_SUCCESS) {
        say("free it", cuMemFree(small));
    }
    result = cuMemAlloc(&large, 2 * MIB);
    say("allocate much", result);
    if (result == CUDA_SUCCESS) {
        say("free it", cuMemFree(large));
    }
}

/* Code is loaded, and a kernel of it reads weights. */
static void act_load(void)
{
    image[images] = gpu_image_load("probe", GPU_LOAD_MODULE);
    CUfunction function = gpu_image_kernel(&image[images++], "probe_digest");
    for (unsigned i = 0; i < COUNT; i++) {
        CUdeviceptr in = rig.weight[i].address, out = rig.out + 4 * (1100 + i);
        uint64_t words = rig.weight[i].bytes / 4;
        say("launch a new kernel",
            cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, side, (void *[]){&in, &out, &words}, NULL));
    }
}

static void act_query(void)
{
    rig_read(&rig, 1, 1024, side);
    say("record", cuEventRecord(event, side));
    CUresult result = cuEventQuery(event);
    say("query an event", result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result);
    result = cuStreamQuery(side);
    say("query a stream", result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result);
}

/* Eager passes go on, and nothing is asked. */
static void act_work(void)
{
    for (int pass = 0; pass < 4; pass++) {
        for (unsigned i = 0; i < COUNT; i++) {
            rig_read(&rig, i, 1200 + i, side);
        }
    }
}

static const struct {
    const char *name;
    void (*act)(void);
} actions[] = {{"copies", act_copies}, {"sync", act_sync},   {"context", act_context}, {"free", act_free},
               {"load", act_load},     {"query", act_query}, {"work", act_work}};

static void *act_elsewhere(void *act)
{
    OK(cuCtxSetCurrent(rig.context));
    (*(void (**)(void))act)();
    return NULL;
}

/* ---- the matrix */

static void prepare(void)
{
    open_streaming(&rig, COUNT + 1, 2 * MIB);
    OK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAllocHost((void **)&pinned, 4 * MIB));
}

static void finish(void)
{
    OK(cuCtxSynchronize());
    while (images > 0) {
        gpu_image_unload(&image[--images]);
    }
    OK(cuMemFreeHost(pinned));
    OK(cuEventDestroy(event));
    OK(cuStreamDestroy(side));
    rig_close(&rig);
}

static void capture_with(CUstreamCaptureMode mode, void (*act)(void), bool elsewhere)
{
    CUgraph graph = NULL;
    pthread_t thread;
    OK(cuStreamBeginCapture(rig.stream, mode));
    for (unsigned i = 0; i < COUNT / 2; i++) {
        say("capture a read", launch_with(&rig, i, i, rig.stream, NULL, 0));
    }
    if (elsewhere) {
        HOLDS(pthread_create(&thread, NULL, act_elsewhere, &act) == 0);
        HOLDS(pthread_join(thread, NULL) == 0);
    } else {
        act();
    }
    for (unsigned i = COUNT / 2; i < COUNT; i++) {
        say("capture a read", launch_with(&rig, i, i, rig.stream, NULL, 0));
    }
    CUresult result = cuStreamEndCapture(rig.stream, &graph);
    say("end", result);
    tell("graph", graph != NULL);
    OK(cuStreamSynchronize(side));
    if (result != CUDA_SUCCESS) {
        return;
    }
    CUgraphExec exec = make_exec(graph);
    OK(cuGraphDestroy(graph));
    if (rig.weight[SPARE].address != 0) {
        rig_read(&rig, SPARE, SPARE, rig.stream);
    }
    for (int round = 0; round < 3; round++) {
        OK(cuMemsetD32Async(rig.out, 0, COUNT, rig.stream));
        OK(cuGraphLaunch(exec, rig.stream));
        OK(cuStreamSynchronize(rig.stream));
        check_out(&rig, "replayed");
        rig_pass(&rig, NULL, 0);
    }
    graphs_streamed();
    OK(cuGraphExecDestroy(exec));
}

static bool run_matrix(const char *name)
{
    static const struct {
        const char *name;
        CUstreamCaptureMode mode;
    } modes[] = {{"global", CU_STREAM_CAPTURE_MODE_GLOBAL},
                 {"thread", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL},
                 {"relaxed", CU_STREAM_CAPTURE_MODE_RELAXED}};
    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
        for (size_t a = 0; a < sizeof actions / sizeof *actions; a++) {
            for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
                char wanted[64];
                snprintf(wanted, sizeof wanted, "%s.%s.%s", modes[m].name, actions[a].name,
                         elsewhere ? "elsewhere" : "here");
                if (strcmp(name, wanted) == 0) {
                    prepare();
                    capture_with(modes[m].mode, actions[a].act, elsewhere != 0);
                    capture_with(modes[m].mode, actions[a].act, elsewhere != 0);
                    finish();
                    return true;
                }
            }
        }
    }
    return false;
}

/* ---- captures of other forms */

/* A capture that another stream joins and leaves by events. */
static void fork_and_join(void)
{
    CUstream other;
    CUgraph graph;
    CUevent fork_event, join;
    prepare();
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&fork_event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamBeginCapture(rig.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuEventRecord(fork_event, rig.stream));
    OK(cuStreamWaitEvent(other, fork_event, 0));
    for (unsigned i = 0; i <= COUNT; i++) {
        rig_read(&rig, i, i, i % 2 ? other : rig.stream);
    }
    OK(cuEventRecord(join, other));
    OK(cuStreamWaitEvent(rig.stream, join, 0));
    OK(cuStreamEndCapture(rig.stream, &graph));
    replay(&rig, make_exec(graph), 6);
    rig_pass(&rig, NULL, 0);
    replay(&rig, make_exec(graph), 3);
    finish();
}

/* Into a graph that has nodes already. */
static void into_a_graph(void)
{
    CUgraph graph, ended;
    CUgraphNode first;
    prepare();
    graph = new_graph();
    first = add_read(&rig, graph, NULL, 0, 0, 0);
    OK(cuStreamBeginCaptureToGraph(rig.stream, graph, &first, NULL, 1, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (unsigned i = 1; i <= COUNT; i++) {
        rig_read(&rig, i, i, rig.stream);
    }
    OK(cuStreamEndCapture(rig.stream, &ended));
    tell("the same graph", ended == graph);
    replay(&rig, make_exec(graph), 5);
    finish();
}

/* The program looks at its capture all the time and adds a node of its own. */
static void asked_about(void)
{
    CUgraph graph, ended;
    prepare();
    OK(cuStreamBeginCapture(rig.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (unsigned i = 0; i <= COUNT; i++) {
        CUstreamCaptureStatus status;
        cuuint64_t id = 0;
        const CUgraphNode *node;
        const CUgraphEdgeData *data;
        CUgraphNode empty;
        size_t count, nodes = 0;
        rig_read(&rig, i, i, rig.stream);
        say("info", cuStreamGetCaptureInfo(rig.stream, &status, &id, &graph, &node, &data, &count));
        tell("status", status);
        tell("frontier", (long long)count);
        OK(cuGraphGetNodes(graph, NULL, &nodes));
        tell("nodes so far", (long long)nodes);
        if (i == 3) {
            OK(cuGraphAddEmptyNode(&empty, graph, node, count));
            OK(cuStreamUpdateCaptureDependencies(rig.stream, &empty, NULL, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
        }
    }
    OK(cuStreamEndCapture(rig.stream, &ended));
    replay(&rig, make_exec(ended), 4);
    finish();
}

/* Broken by the program itself; the next capture is whole. */
static void broken_by_the_program(void)
{
    CUgraph graph;
    prepare();
    for (int round = 0; round < 3; round++) {
        OK(cuStreamBeginCapture(rig.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        rig_read(&rig, 0, 0, rig.stream);
        say("synchronise it", cuStreamSynchronize(rig.stream));
        say("launch into it", launch_with(&rig, 1, 1, rig.stream, NULL, 0));
        say("end", cuStreamEndCapture(rig.stream, &graph));
        rig_pass(&rig, NULL, 0);
        graph = capture_pass(&rig, rig.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
        replay(&rig, make_exec(graph), 2);
    }
    finish();
}

/* Ends of captures that are none, while another stream captures: that one goes on, and is not disturbed. */
static void ended_too_often(void)
{
    CUgraph graph, none;
    CUstream other;
    prepare();
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    for (int round = 0; round < 3; round++) {
        OK(cuStreamBeginCapture(rig.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        rig_read(&rig, 0, 0, rig.stream);
        say("end of none", cuStreamEndCapture(other, &none));
        struct rig_weight *weight = &rig.weight[round];
        rig_refill(weight);
        OK(cuMemcpyHtoDAsync(weight->address, weight->host, weight->bytes, other));
        for (unsigned i = 1; i <= COUNT; i++) {
            rig_read(&rig, i, i, rig.stream);
        }
        say("end", cuStreamEndCapture(rig.stream, &graph));
        say("end again", cuStreamEndCapture(rig.stream, &none));
        OK(cuStreamSynchronize(other));
        replay(&rig, make_exec(graph), 2);
    }
    OK(cuStreamDestroy(other));
    finish();
}

/* A stream goes while it captures; weights are streamed afterwards as before. */
static void destroyed_while_open(void)
{
    CUstream other;
    prepare();
    for (int round = 0; round < 3; round++) {
        OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
        OK(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED));
        rig_read(&rig, 0, 0, other);
        say("destroyed", cuStreamDestroy(other));
    }
    struct rig_weight *weight = &rig.weight[1];
    rig_refill(weight);
    OK(cuMemcpyHtoD(weight->address, weight->host, weight->bytes));
    unsigned plans = with_shim() ? rig_plans() : 0;
    for (int round = 0; round < 24; round++) {
        rig_pass(&rig, NULL, 0);
    }
    HOLDS(!with_shim() || rig_plans() > plans);
    finish();
}

/* Relaxed for the time of a call: a call that the capture would refuse. */
static void mode_exchanged(void)
{
    CUgraph graph;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    prepare();
    OK(cuStreamBeginCapture(rig.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (unsigned i = 0; i <= COUNT; i++) {
        rig_read(&rig, i, i, rig.stream);
    }
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    tell("mode before", mode);
    act_sync();
    act_copies();
    act_query();
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    tell("mode between", mode);
    OK(cuStreamEndCapture(rig.stream, &graph));
    OK(cuStreamSynchronize(side));
    replay(&rig, make_exec(graph), 4);
    finish();
}

static void *capture_own(void *argument)
{
    CUgraph graph;
    CUstream stream;
    const unsigned index = *(const unsigned *)argument;
    OK(cuCtxSetCurrent(rig.context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int round = 0; round < 10; round++) {
        OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        rig_read(&rig, index, index, stream);
        rig_read(&rig, index + 4, index + 4, stream);
        OK(cuStreamEndCapture(stream, &graph));
        CUgraphExec exec = make_exec(graph);
        OK(cuGraphDestroy(graph));
        OK(cuGraphLaunch(exec, stream));
        OK(cuStreamSynchronize(stream));
        OK(cuGraphExecDestroy(exec));
    }
    OK(cuStreamDestroy(stream));
    return NULL;
}

/* Four threads capture, instantiate and replay at once. */
static void four_threads(void)
{
    pthread_t thread[4];
    unsigned index[4];
    prepare();
    for (unsigned t = 0; t < 4; t++) {
        index[t] = t;
        HOLDS(pthread_create(&thread[t], NULL, capture_own, &index[t]) == 0);
    }
    for (unsigned t = 0; t < 4; t++) {
        HOLDS(pthread_join(thread[t], NULL) == 0);
    }
    rig_read(&rig, SPARE, SPARE, rig.stream);
    OK(cuStreamSynchronize(rig.stream));
    check_out(&rig, "all read");
    finish();
}

/* Open from before the first pass until after the last: whatever is learned or planned meanwhile. */
static void open_all_the_time(void)
{
    CUstream other;
    CUgraph graph;
    rig_open_with(&rig, COUNT, 2 * MIB);
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED));
    rig_read(&rig, 0, 0, other);
    for (int pass = 0; pass < 20; pass++) {
        rig_pass(&rig, NULL, 0);
    }
    OK(cuStreamEndCapture(other, &graph));
    CUgraphExec exec = make_exec(graph);
    OK(cuGraphLaunch(exec, rig.stream));
    OK(cuStreamSynchronize(rig.stream));
    check_out(&rig, "after it");
    for (int pass = 0; pass < 8; pass++) {
        rig_pass(&rig, NULL, 0);
        OK(cuGraphLaunch(exec, rig.stream));
    }
    rig_close(&rig);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {CASE(fork_and_join),         CASE(into_a_graph),    CASE(asked_about),
                                        CASE(broken_by_the_program), CASE(mode_exchanged),  CASE(four_threads),
                                        CASE(open_all_the_time),     CASE(ended_too_often), CASE(destroyed_while_open)};

int main(int argc, char **argv)
{
    if (argc == 2 && run_matrix(argv[1])) {
        return 0;
    }
    return rig_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
