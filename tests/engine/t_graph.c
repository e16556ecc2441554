/*
 * Captures and graphs: what a graph reads is there whenever it is replayed, whatever became of the weights; and
 * captures of the program are not harmed by what goes on behind it.
 */
#include "rig_graph.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { COUNT = 8 };
static const size_t weight_bytes = 4 * MIB;

static void read_and_compare(struct rig *rig)
{
    uint32_t got[4096];
    OK(cuStreamSynchronize(rig->stream));
    OK(cuMemcpyDtoH(got, rig->out, sizeof got));
    rig_compare(rig, got, NULL, COUNT);
}

static CUgraphExec capture_pass(struct rig *rig, CUgraph *graph, CUstreamCaptureMode mode)
{
    OK(cuStreamBeginCapture(rig->stream, mode));
    for (unsigned i = 0; i < COUNT; i++) {
        rig_read(rig, i, i, rig->stream);
    }
    return rig_end_capture(rig, graph);
}

static void replay(struct rig *rig, CUgraphExec exec, int times)
{
    for (int i = 0; i < times; i++) {
        OK(cuMemsetD32Async(rig->out, 0, COUNT, rig->stream));
        OK(cuGraphLaunch(exec, rig->stream));
        read_and_compare(rig);
    }
}

/* Captured before anything was learned, replayed while direct passes go on. */
static void captured_first(void)
{
    struct rig rig;
    CUgraph graph;
    rig_open_with(&rig, COUNT, weight_bytes);
    CUgraphExec exec = capture_pass(&rig, &graph, CU_STREAM_CAPTURE_MODE_GLOBAL);
    replay(&rig, exec, 3);
    for (int round = 0; round < 10; round++) {
        rig_pass(&rig, NULL, 0);
        replay(&rig, exec, 2);
    }
    rig_drop_graph(exec, graph);
    rig_close(&rig);
}

/* Captured when everything is streamed; replayed a thousand times, with direct passes and changes between. */
static void captured_when_streamed(void)
{
    struct rig rig;
    CUgraph graph;
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_until_streamed(&rig);
    CUgraphExec exec = capture_pass(&rig, &graph, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    for (int round = 0; round < 10; round++) {
        struct rig_weight *weight = &rig.weight[round % COUNT];
        replay(&rig, exec, 5);
        rig_refill(weight);
        OK(cuMemcpyHtoD(weight->address, weight->host, weight->bytes));
        rig_pass(&rig, NULL, 0);
    }
    rig_drop_graph(exec, graph);
    rig_close(&rig);
}

/* Half of the weights are used by a graph, the other half directly: those stream. */
static void graph_of_half(void)
{
    struct rig rig;
    CUgraph graph;
    uint32_t got[4096];
    const unsigned direct[COUNT / 2] = {1, 3, 5, 7};
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_until_streamed(&rig);
    OK(cuStreamBeginCapture(rig.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    for (unsigned i = 0; i < COUNT; i += 2) {
        rig_read(&rig, i, i, rig.stream);
    }
    CUgraphExec exec = rig_end_capture(&rig, &graph);
    for (int round = 0; round < 16; round++) {
        OK(cuGraphLaunch(exec, rig.stream));
        rig_pass(&rig, direct, COUNT / 2);
        OK(cuMemcpyDtoH(got, rig.out, sizeof got));
        rig_compare(&rig, got, NULL, COUNT);
    }
    rig_drop_graph(exec, graph);
    rig_close(&rig);
}

/* Built by hand; a node's parameters are changed to another weight, which is streamed at that moment. */
static void node_parameters_changed(void)
{
    struct rig rig;
    CUgraph graph;
    CUgraphNode node;
    uint32_t got;
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_until_streamed(&rig);
    CUdeviceptr in = rig.weight[0].address, out = rig.out + 8192;
    uint64_t words = weight_bytes / 4;
    void *params[] = {&in, &out, &words};
    CUDA_KERNEL_NODE_PARAMS node_params = rig_kernel_node(&rig, "probe_digest", params);
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &node_params));
    CUgraphExec exec = rig_instantiate(graph);
    for (unsigned round = 0; round < 2 * COUNT; round++) {
        const struct rig_weight *weight = &rig.weight[(round * 3) % COUNT];
        in = weight->address;
        OK(cuGraphExecKernelNodeSetParams(exec, node, &node_params));
        rig_pass(&rig, NULL, 0);
        OK(cuGraphLaunch(exec, rig.stream));
        OK(cuStreamSynchronize(rig.stream));
        OK(cuMemcpyDtoH(&got, out, 4));
        if (got != weight->digest) {
            rig_fail(RIG_EXIT_WRONG, "round %u: a node with new parameters read other bytes", round);
        }
    }
    rig_drop_graph(exec, graph);
    rig_close(&rig);
}

/* An executable graph is updated from a new capture that reads other weights. */
static void graph_updated(void)
{
    struct rig rig;
    CUgraph graph, newer;
    uint32_t got;
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_until_streamed(&rig);
    OK(cuStreamBeginCapture(rig.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    rig_read(&rig, 0, 2048, rig.stream);
    CUgraphExec exec = rig_end_capture(&rig, &graph);
    for (unsigned round = 1; round < COUNT; round++) {
        CUgraphExecUpdateResultInfo info;
        OK(cuStreamBeginCapture(rig.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        rig_read(&rig, round, 2048, rig.stream);
        OK(cuStreamEndCapture(rig.stream, &newer));
        OK(cuGraphExecUpdate(exec, newer, &info));
        OK(cuGraphDestroy(newer));
        rig_pass(&rig, NULL, 0);
        OK(cuGraphLaunch(exec, rig.stream));
        OK(cuStreamSynchronize(rig.stream));
        OK(cuMemcpyDtoH(&got, rig.out + 8192, 4));
        if (got != rig.weight[round].digest) {
            rig_fail(RIG_EXIT_WRONG, "round %u: an updated graph read other bytes", round);
        }
    }
    rig_drop_graph(exec, graph);
    rig_close(&rig);
}

/* Copies and fills inside a graph, of weights that are streamed. */
static void copies_in_graph(void)
{
    struct rig rig;
    CUgraph graph;
    void *pinned;
    rig_open_with(&rig, COUNT, weight_bytes);
    OK(cuMemAllocHost(&pinned, weight_bytes));
    rig_until_streamed(&rig);
    struct rig_weight *copied = &rig.weight[2], *filled = &rig.weight[5];
    OK(cuStreamBeginCapture(rig.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemcpyDtoHAsync(pinned, copied->address, weight_bytes, rig.stream));
    OK(cuMemsetD32Async(filled->address, 99, MIB / 8, rig.stream));
    OK(cuMemcpyDtoDAsync(rig.weight[6].address, rig.weight[1].address, MIB, rig.stream));
    CUgraphExec exec = rig_end_capture(&rig, &graph);
    for (int round = 0; round < 4; round++) {
        rig_pass(&rig, NULL, 0);
        memset(pinned, 0, weight_bytes);
        OK(cuGraphLaunch(exec, rig.stream));
        OK(cuStreamSynchronize(rig.stream));
        rig_compare_bytes(copied, pinned, "a copy in a graph");
        for (size_t i = 0; i < MIB / 8; i++) {
            filled->host[i] = 99;
        }
        memcpy(rig.weight[6].host, rig.weight[1].host, MIB);
        rig_changed(filled);
        rig_changed(&rig.weight[6]);
    }
    rig_pass(&rig, NULL, 0);
    rig_drop_graph(exec, graph);
    OK(cuMemFreeHost(pinned));
    rig_close(&rig);
}

/* A graph inside a graph. */
static void child_graph(void)
{
    struct rig rig;
    CUgraph inner, outer;
    CUgraphNode node;
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_until_streamed(&rig);
    OK(cuStreamBeginCapture(rig.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (unsigned i = 0; i < COUNT; i++) {
        rig_read(&rig, i, i, rig.stream);
    }
    OK(cuStreamEndCapture(rig.stream, &inner));
    OK(cuGraphCreate(&outer, 0));
    OK(cuGraphAddChildGraphNode(&node, outer, NULL, 0, inner));
    OK(cuGraphDestroy(inner));
    CUgraphExec exec = rig_instantiate(outer);
    replay(&rig, exec, 5);
    rig_pass(&rig, NULL, 0);
    replay(&rig, exec, 5);
    rig_drop_graph(exec, outer);
    rig_close(&rig);
}

/* ---- Captures while others work */

struct side {
    struct rig *rig;
    CUstreamCaptureMode mode;
    _Atomic int stop;
    int captures;
};

/* Captures, instantiates, replays small things over and over on a stream of its own. */
static void *capture_over_and_over(void *argument)
{
    struct side *side = argument;
    CUstream stream;
    OK(cuCtxSetCurrent(side->rig->context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr out = side->rig->out + 12288;
    while (!atomic_load(&side->stop) || side->captures < 20) {
        CUgraph graph;
        uint32_t value = (uint32_t)side->captures;
        uint64_t words = 16;
        void *params[] = {&out, &value, &words};
        OK(cuStreamBeginCapture(stream, side->mode));
        for (int i = 0; i < 20; i++) {
            rig_launch(side->rig, "probe_fill", stream, params);
        }
        OK(cuStreamEndCapture(stream, &graph));
        CUgraphExec exec = rig_instantiate(graph);
        OK(cuGraphLaunch(exec, stream));
        OK(cuStreamSynchronize(stream));
        rig_drop_graph(exec, graph);
        side->captures++;
    }
    OK(cuStreamDestroy(stream));
    return NULL;
}

/* The captures of the other thread stay whole while this one streams weights, misses, and waits. */
static void capture_elsewhere(CUstreamCaptureMode mode)
{
    struct rig rig;
    pthread_t thread;
    uint32_t *pinned;
    rig_open_with(&rig, COUNT, weight_bytes);
    OK(cuMemAllocHost((void **)&pinned, 4 * COUNT));
    rig_until_streamed(&rig);
    struct side side = {.rig = &rig, .mode = mode};
    HOLDS(pthread_create(&thread, NULL, capture_over_and_over, &side) == 0);
    CUstreamCaptureMode own_mode = CU_STREAM_CAPTURE_MODE_RELAXED; /* what waiting beside a global capture takes */
    OK(cuThreadExchangeStreamCaptureMode(&own_mode));
    for (int pass = 0; pass < 30; pass++) {
        CUevent done;
        OK(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
        for (unsigned i = 0; i < COUNT; i++) {
            rig_read(&rig, i, i, rig.stream);
        }
        OK(cuMemcpyDtoHAsync(pinned, rig.out, 4 * COUNT, rig.stream));
        OK(cuEventRecord(done, rig.stream));
        OK(cuStreamSynchronize(rig.stream));
        OK(cuEventDestroy(done));
        for (unsigned i = 0; i < COUNT; i++) {
            if (pinned[i] != rig.weight[i].digest) {
                rig_fail(RIG_EXIT_WRONG, "pass %d beside a capture: weight %u is wrong", pass, i);
            }
        }
    }
    OK(cuThreadExchangeStreamCaptureMode(&own_mode));
    atomic_store(&side.stop, 1);
    pthread_join(thread, NULL);
    OK(cuMemFreeHost(pinned));
    rig_close(&rig);
}

static void global_capture_elsewhere(void)
{
    capture_elsewhere(CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static void thread_capture_elsewhere(void)
{
    capture_elsewhere(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

static void relaxed_capture_elsewhere(void)
{
    capture_elsewhere(CU_STREAM_CAPTURE_MODE_RELAXED);
}

/* While a capture is open on one stream, the same thread uses streamed weights on another. */
static void capture_and_work(void)
{
    struct rig rig;
    CUstream other;
    CUgraph graph;
    uint32_t got[4096];
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_until_streamed(&rig);
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    for (int round = 0; round < 6; round++) {
        OK(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED));
        rig_read(&rig, 0, 1000, other);
        for (unsigned i = 0; i < COUNT; i++) {
            rig_read(&rig, i, i, rig.stream);
        }
        OK(cuStreamSynchronize(rig.stream));
        OK(cuStreamEndCapture(other, &graph));
        OK(cuGraphDestroy(graph));
        OK(cuMemcpyDtoH(got, rig.out, sizeof got));
        rig_compare(&rig, got, NULL, COUNT);
    }
    OK(cuStreamDestroy(other));
    rig_close(&rig);
}

/* A capture is open in the mode that forbids most, and the same thread launches what reads streamed weights elsewhere,
 * which is allowed. Now in the order of the cycle, now in another. Whether `text` is logged while it is open. */
static bool work_beside_global_capture(const char *text)
{
    struct rig rig;
    bool logged = false;
    CUstream other;
    CUgraph graph;
    uint32_t got[4096];
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_until_streamed(&rig);
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    for (unsigned round = 0; round < 6; round++) {
        const bool before = rig_logged(text);
        OK(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_GLOBAL));
        rig_read(&rig, 0, 1000, other);
        for (unsigned i = 0; i < COUNT; i++) {
            const unsigned weight = round % 2 == 0 ? i : (5 * i + round) % COUNT;
            rig_read(&rig, weight, weight, rig.stream);
        }
        logged |= !before && rig_logged(text);
        OK(cuStreamEndCapture(other, &graph));
        OK(cuGraphDestroy(graph));
        OK(cuStreamSynchronize(rig.stream));
        OK(cuMemcpyDtoH(got, rig.out, sizeof got));
        rig_compare(&rig, got, NULL, COUNT);
    }
    OK(cuStreamDestroy(other));
    rig_close(&rig);
    return logged;
}

static void global_capture_and_work(void)
{
    (void)work_beside_global_capture("");
}

/* The end of a launch cannot be noted, and is waited for. */
static void reader_not_noted_beside_capture(void)
{
    HOLDS(work_beside_global_capture("an event could not be recorded"));
}

/* A graph whose nodes are launched one by one, since there is no memory for another; it begins with a copy from memory
 * that is not pinned. Beside a capture of the mode that forbids most, in which graphs may be launched. */
static void replayed_beside_global_capture(void)
{
    struct rig rig;
    CUstream other;
    CUgraph graph, captured;
    uint32_t got[4096], word = 0;
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_until_streamed(&rig);
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(rig.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemcpyHtoDAsync(rig.out + 12288, &word, sizeof word, rig.stream));
    for (unsigned i = 0; i < COUNT; i++) {
        rig_read(&rig, i, i, rig.stream);
    }
    CUgraphExec exec = rig_end_capture(&rig, &graph);
    for (word = 1; word < 4; word++) {
        OK(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_GLOBAL));
        rig_read(&rig, 0, 1000, other);
        OK(cuGraphLaunch(exec, rig.stream));
        OK(cuStreamEndCapture(other, &captured));
        OK(cuGraphDestroy(captured));
        OK(cuStreamSynchronize(rig.stream));
        OK(cuMemcpyDtoH(got, rig.out, sizeof got));
        rig_compare(&rig, got, NULL, COUNT);
        HOLDS(got[12288 / 4] == word);
    }
    rig_drop_graph(exec, graph);
    OK(cuStreamDestroy(other));
    rig_close(&rig);
}

/* Memory that the program maps itself while it captures, which is allowed in every mode, makes overshot begin to look
 * for weights. */
static void maps_memory_while_capturing(void)
{
    enum { PIECES = 6 };
    struct rig rig;
    CUstream other;
    CUgraph graph;
    CUdeviceptr address;
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    const CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    rig_open(&rig, 0);
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuMemAddressReserve(&address, PIECES * weight_bytes, 0, 0, 0));
    OK(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemsetD32Async(rig.out, 1, 1, other));
    for (unsigned i = 0; i < PIECES; i++) {
        CUmemGenericAllocationHandle handle;
        OK(cuMemCreate(&handle, weight_bytes, &prop, 0));
        OK(cuMemMap(address + i * weight_bytes, weight_bytes, 0, handle, 0));
        OK(cuMemSetAccess(address + i * weight_bytes, weight_bytes, &access, 1));
        OK(cuMemRelease(handle));
    }
    OK(cuStreamEndCapture(other, &graph));
    OK(cuGraphDestroy(graph));
    HOLDS(rig_logged("weights will be looked for"));
    for (unsigned i = 0; i < PIECES; i++) {
        (void)rig_place(&rig, address + i * weight_bytes, weight_bytes);
    }
    rig_until_streamed(&rig);
    OK(cuStreamDestroy(other));
    OK(cuMemUnmap(address, PIECES * weight_bytes));
    OK(cuMemAddressFree(address, PIECES * weight_bytes));
    rig_forget(&rig);
}

/* Launched in streams of two contexts, one of which goes away afterwards. */
static void launched_in_other_context(void)
{
    struct rig rig;
    CUcontext other;
    CUstream stream;
    CUgraph graph;
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_until_streamed(&rig);
    CUgraphExec exec = capture_pass(&rig, &graph, CU_STREAM_CAPTURE_MODE_RELAXED);
    for (int round = 0; round < 3; round++) {
#if CUDA_VERSION >= 13000
        OK(cuCtxCreate(&other, NULL, 0, rig.device));
#else
        OK(cuCtxCreate(&other, 0, rig.device));
#endif
        OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        OK(cuGraphLaunch(exec, stream));
        OK(cuStreamSynchronize(stream));
        OK(cuCtxDestroy(other));
        OK(cuCtxSetCurrent(rig.context));
        read_and_compare(&rig);
        replay(&rig, exec, 2);
        rig_pass(&rig, NULL, 0);
    }
    rig_drop_graph(exec, graph);
    rig_close(&rig);
}

/* Memory freed in relaxed mode right after a launch that reads it, while a capture is open. */
static void free_while_capturing(void)
{
    struct rig rig;
    CUstream other;
    CUgraph graph;
    uint32_t got;
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_until_streamed(&rig);
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < 4; i++) {
        double microseconds = 500;
        void *spin[] = {&microseconds};
        const uint32_t wanted = rig.weight[i].digest;
        OK(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED));
        rig_launch(&rig, "probe_spin", rig.stream, spin);
        rig_read(&rig, i, i, rig.stream);
        rig_drop(&rig, i);
        OK(cuStreamEndCapture(other, &graph));
        OK(cuGraphDestroy(graph));
        OK(cuStreamSynchronize(rig.stream));
        OK(cuMemcpyDtoH(&got, rig.out + 4 * i, 4));
        if (got != wanted) {
            rig_fail(RIG_EXIT_WRONG, "freed while a capture was open: read other bytes");
        }
        rig_pass(&rig, NULL, 0);
    }
    OK(cuStreamDestroy(other));
    rig_close(&rig);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(captured_first),
    CASE(captured_when_streamed),
    CASE(graph_of_half),
    CASE(node_parameters_changed),
    CASE(graph_updated),
    CASE(copies_in_graph),
    CASE(child_graph),
    CASE(global_capture_elsewhere),
    CASE(thread_capture_elsewhere),
    CASE(relaxed_capture_elsewhere),
    CASE(capture_and_work),
    CASE(global_capture_and_work),
    CASE(maps_memory_while_capturing),
    CASE(reader_not_noted_beside_capture),
    CASE(replayed_beside_global_capture),
    CASE(free_while_capturing),
    CASE(launched_in_other_context),
};
RIG_MAIN(cases)
