/*
 * Replays over a program's life: thousands of them, with the plan made in the middle, eager passes between, memory that
 * comes and goes, several graphs in turn, and graphs that are made anew all the time.
 */
#include "graphs.h"

#include <pthread.h>
#include <string.h>

enum { COUNT = 6 };

static struct rig rig;

static void close_with(CUgraph graph, CUgraphExec exec)
{
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    rig_close(&rig);
}

/* What many replays have read, without a line for each. */
static void replay_quietly(CUgraphExec exec)
{
    uint32_t got[4096];
    clear_out(&rig, rig.stream);
    OK(cuGraphLaunch(exec, rig.stream));
    OK(cuStreamSynchronize(rig.stream));
    OK(cuMemcpyDtoH(got, rig.out, sizeof got));
    rig_compare(&rig, got, NULL, rig.count);
}

/* Captured before anything is known of the weights; eager passes from the 300th replay on bring the plan. */
static void thousand_with_conversion(void)
{
    rig_open_with(&rig, COUNT, 2 * MIB);
    CUgraph graph = capture_pass(&rig, rig.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUgraphExec exec = make_exec(graph);
    for (int i = 0; i < 1000; i++) {
        replay_quietly(exec);
        if (i >= 300 && i < 330) {
            rig_pass(&rig, NULL, 0);
        }
    }
    tell("replays", 1000);
    graphs_streamed();
    close_with(graph, exec);
}

/* The same with weights of which the graph reads half: the others are converted while it is replayed. */
static void thousand_of_half(void)
{
    CUgraph graph;
    CUgraphNode last = NULL;
    rig_open_with(&rig, COUNT, 2 * MIB);
    graph = new_graph();
    for (unsigned i = 0; i < COUNT; i += 2) {
        last = add_read(&rig, graph, &last, i > 0, i, i);
    }
    CUgraphExec exec = make_exec(graph);
    for (int i = 0; i < 1000; i++) {
        uint32_t got[4096];
        OK(cuGraphLaunch(exec, rig.stream));
        if (i % 10 == 0) {
            rig_pass(&rig, (const unsigned[]){1, 3, 5}, 3);
            OK(cuMemcpyDtoH(got, rig.out, sizeof got));
            rig_compare(&rig, got, NULL, COUNT);
        }
    }
    OK(cuStreamSynchronize(rig.stream));
    check_out(&rig, "after all");
    close_with(graph, exec);
}

/* Never an eager launch: all that is known comes from the graph. */
static void graphs_only(void)
{
    rig_open_with(&rig, COUNT, 2 * MIB);
    CUgraph graph = chain_of_reads(&rig);
    CUgraphExec exec = make_exec(graph);
    for (int i = 0; i < 60; i++) {
        replay_quietly(exec);
    }
    replay(&rig, exec, 2);
    graphs_streamed();
    close_with(graph, exec);
}

/* Back to back, the host waits for ten at a time. */
static void back_to_back(void)
{
    open_streaming(&rig, COUNT, 2 * MIB);
    CUgraph graph = chain_of_reads(&rig);
    CUgraphExec exec = make_exec(graph);
    for (int round = 0; round < 10; round++) {
        clear_out(&rig, rig.stream);
        for (int i = 0; i < 10; i++) {
            OK(cuGraphLaunch(exec, rig.stream));
        }
        OK(cuStreamSynchronize(rig.stream));
        check_out(&rig, "ten");
    }
    graphs_streamed();
    close_with(graph, exec);
}

/* Launches and eager reads in every order, without a wait between them. */
static void mixed_with_eager(void)
{
    open_streaming(&rig, COUNT, 2 * MIB);
    CUgraph graph = chain_of_reads(&rig);
    CUgraphExec exec = make_exec(graph);
    for (unsigned round = 0; round < 24; round++) {
        clear_out(&rig, rig.stream);
        for (unsigned step = 0; step < 4; step++) {
            if ((round >> step & 1) != 0) {
                OK(cuGraphLaunch(exec, rig.stream));
            } else {
                for (unsigned i = 0; i < COUNT; i++) {
                    rig_read(&rig, (i + round) % COUNT, (i + round) % COUNT, rig.stream);
                }
            }
        }
        OK(cuStreamSynchronize(rig.stream));
        check_out(&rig, "mixed");
    }
    graphs_streamed();
    close_with(graph, exec);
}

/* A graph on one stream, eager work on another, at the same time. */
static void beside_eager(void)
{
    CUstream other;
    open_streaming(&rig, COUNT, 2 * MIB);
    CUgraph graph = chain_of_reads(&rig);
    CUgraphExec exec = make_exec(graph);
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    for (int round = 0; round < 12; round++) {
        uint32_t got[4096];
        OK(cuGraphLaunch(exec, rig.stream));
        for (unsigned i = COUNT; i-- > 0;) {
            rig_read(&rig, i, 1024 + i, other);
        }
        OK(cuCtxSynchronize());
        check_out(&rig, "graph");
        OK(cuMemcpyDtoH(got, rig.out + 4096, 4 * COUNT));
        rig_compare(&rig, got, NULL, COUNT);
    }
    OK(cuStreamDestroy(other));
    close_with(graph, exec);
}

/* Prefill and decode: two graphs that read the weights in different order, in turn. */
static void two_in_turn(void)
{
    CUgraph graph[2];
    CUgraphExec exec[2];
    CUgraphNode last = NULL;
    open_streaming(&rig, COUNT, 2 * MIB);
    graph[0] = chain_of_reads(&rig);
    graph[1] = new_graph();
    for (unsigned i = COUNT; i-- > 0;) {
        last = add_read(&rig, graph[1], &last, i + 1 < COUNT, i, i);
    }
    for (int g = 0; g < 2; g++) {
        exec[g] = make_exec(graph[g]);
    }
    for (unsigned round = 0; round < 30; round++) {
        replay_quietly(exec[round % 3 == 0]);
    }
    replay(&rig, exec[0], 2);
    replay(&rig, exec[1], 2);
    graphs_streamed();
    OK(cuGraphExecDestroy(exec[1]));
    OK(cuGraphDestroy(graph[1]));
    close_with(graph[0], exec[0]);
}

/* One graph a layer and size, as inference servers have them: 40 executable graphs. */
static void forty_graphs(void)
{
    CUgraphExec exec[40];
    open_streaming(&rig, COUNT, 2 * MIB);
    for (unsigned g = 0; g < 40; g++) {
        CUgraph graph;
        graph = new_graph();
        (void)add_read(&rig, graph, NULL, 0, g % COUNT, g % COUNT);
        exec[g] = make_exec(graph);
        OK(cuGraphDestroy(graph));
    }
    for (unsigned round = 0; round < 8; round++) {
        clear_out(&rig, rig.stream);
        for (unsigned layer = 0; layer < COUNT; layer++) {
            OK(cuGraphLaunch(exec[layer + COUNT * (round % 6)], rig.stream));
        }
        OK(cuStreamSynchronize(rig.stream));
        check_out(&rig, "pass");
    }
    graphs_streamed();
    for (unsigned g = 0; g < 40; g++) {
        OK(cuGraphExecDestroy(exec[g]));
    }
    rig_close(&rig);
}

/* The first launch of an executable graph waits for nothing: what was given to the device before is still under way. */
static void made_anew_unwaited(void)
{
    CUevent before;
    open_streaming(&rig, COUNT, 2 * MIB);
    OK(cuEventCreate(&before, CU_EVENT_DISABLE_TIMING));
    CUgraph graph = chain_of_reads(&rig);
    for (unsigned step = 0; step < 8; step++) {
        CUgraphExec exec = make_exec(graph), next = make_exec(graph);
        clear_out(&rig, rig.stream);
        for (int times = 0; times < 20; times++) {
            OK(cuGraphLaunch(exec, rig.stream));
        }
        OK(cuEventRecord(before, rig.stream));
        OK(cuGraphLaunch(next, rig.stream));
        say("still under way", cuEventQuery(before));
        OK(cuStreamSynchronize(rig.stream));
        check_out(&rig, "made anew");
        OK(cuGraphExecDestroy(exec));
        OK(cuGraphExecDestroy(next));
    }
    OK(cuEventDestroy(before));
    OK(cuGraphDestroy(graph));
    rig_close(&rig);
}

/* Captured anew for each step, the executable graph updated from it, or made anew when that fails. */
static void captured_each_step(void)
{
    CUgraphExec exec = NULL;
    open_streaming(&rig, COUNT, 2 * MIB);
    for (unsigned step = 0; step < 24; step++) {
        CUgraph graph;
        CUgraphExecUpdateResultInfo info;
        OK(cuStreamBeginCapture(rig.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        for (unsigned i = 0; i < COUNT; i++) { /* each step in another order; sometimes with one node more */
            rig_read(&rig, (i + step) % COUNT, (i + step) % COUNT, rig.stream);
        }
        if (step % 5 == 4) {
            rig_read(&rig, 0, 2000, rig.stream);
        }
        OK(cuStreamEndCapture(rig.stream, &graph));
        CUresult result = exec != NULL ? cuGraphExecUpdate(exec, graph, &info) : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
        say("update", result);
        if (result != CUDA_SUCCESS) {
            if (exec != NULL) {
                tell("because", info.result);
                OK(cuGraphExecDestroy(exec));
            }
            exec = make_exec(graph);
        }
        OK(cuGraphDestroy(graph));
        replay(&rig, exec, 1);
    }
    graphs_streamed();
    OK(cuGraphExecDestroy(exec));
    rig_close(&rig);
}

/* Contents change between replays, by every way of writing. */
static void weights_changed_between(void)
{
    open_streaming(&rig, COUNT, 2 * MIB);
    CUgraph graph = chain_of_reads(&rig);
    CUgraphExec exec = make_exec(graph);
    for (unsigned round = 0; round < 15; round++) {
        struct rig_weight *weight = &rig.weight[round % COUNT];
        const uint64_t words = weight->bytes / 4;
        uint32_t value = round + 1;
        switch (round % 3) {
        case 0:
            rig_refill(weight);
            OK(cuMemcpyHtoD(weight->address, weight->host, weight->bytes));
            break;
        case 1:
            rig_launch(&rig, "probe_increment", rig.stream, (void *[]){&weight->address, &value, (void *)&words});
            for (uint64_t i = 0; i < words; i++) {
                weight->host[i] += value;
            }
            break;
        default:
            OK(cuMemsetD32Async(weight->address, value, words, rig.stream));
            for (uint64_t i = 0; i < words; i++) {
                weight->host[i] = value;
            }
            break;
        }
        rig_changed(weight);
        replay(&rig, exec, 2);
    }
    close_with(graph, exec);
}

/* A weight is freed and another gets its place; the executable graph is set to read that one. */
static void weights_exchanged(void)
{
    CUgraphNode node[COUNT];
    size_t count = COUNT;
    open_streaming(&rig, COUNT, 2 * MIB);
    CUgraph graph = chain_of_reads(&rig);
    CUgraphExec exec = make_exec(graph);
    OK(cuGraphGetNodes(graph, node, &count));
    for (unsigned round = 0; round < 6; round++) {
        struct rig_weight *weight = &rig.weight[round];
        OK(cuStreamSynchronize(rig.stream));
        OK(cuMemFree(weight->address));
        OK(cuMemAlloc(&weight->address, weight->bytes));
        rig_refill(weight);
        OK(cuMemcpyHtoD(weight->address, weight->host, weight->bytes));
        CUdeviceptr out = rig.out + 4 * round;
        uint64_t words = weight->bytes / 4;
        CUDA_KERNEL_NODE_PARAMS params = read_params(&rig, (void *[]){&weight->address, &out, &words});
        say("set", cuGraphExecKernelNodeSetParams(exec, node[round], &params));
        replay(&rig, exec, 2);
        rig_pass(&rig, NULL, 0);
    }
    close_with(graph, exec);
}

/* More memory is taken, then given back, while graphs are replayed: plans change. */
static void memory_grows_and_shrinks(void)
{
    CUdeviceptr more[4] = {0};
    open_streaming(&rig, COUNT, 2 * MIB);
    CUgraph graph = chain_of_reads(&rig);
    CUgraphExec exec = make_exec(graph);
    for (unsigned round = 0; round < 16; round++) {
        CUdeviceptr *slot = &more[round % 4];
        if (*slot == 0) {
            OK(cuMemAlloc(slot, 2 * MIB));
            OK(cuMemsetD32Async(*slot, round, MIB / 2, rig.stream));
        } else {
            OK(cuMemFree(*slot));
            *slot = 0;
        }
        replay(&rig, exec, 1);
        rig_pass(&rig, NULL, 0);
    }
    close_with(graph, exec);
}

/* Destroyed while launches are under way; the graph before the executable one, and the other way round. */
static void destroyed_in_flight(void)
{
    open_streaming(&rig, COUNT, 2 * MIB);
    for (int round = 0; round < 10; round++) {
        CUgraph graph = chain_of_reads(&rig);
        CUgraphExec exec = make_exec(graph);
        clear_out(&rig, rig.stream);
        OK(cuGraphLaunch(exec, rig.stream));
        if (round % 2) {
            OK(cuGraphDestroy(graph));
            OK(cuGraphExecDestroy(exec));
        } else {
            OK(cuGraphExecDestroy(exec));
            OK(cuGraphDestroy(graph));
        }
        OK(cuStreamSynchronize(rig.stream));
        check_out(&rig, "read");
    }
    rig_close(&rig);
}

/* Uploaded beforehand, on another stream, as often as one likes. */
static void uploaded(void)
{
    CUstream other;
    open_streaming(&rig, COUNT, 2 * MIB);
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CUgraph graph = chain_of_reads(&rig);
    CUgraphExec exec = make_exec(graph);
    for (int round = 0; round < 5; round++) {
        say("upload", cuGraphUpload(exec, round % 2 ? other : rig.stream));
        replay(&rig, exec, 1);
        rig_pass(&rig, NULL, 0);
    }
    OK(cuStreamDestroy(other));
    close_with(graph, exec);
}

/* A slow reader of every weight, so that copies run far ahead of kernels, or wait for them. */
static void slow_kernels(void)
{
    CUgraph graph;
    open_streaming(&rig, COUNT, 2 * MIB);
    OK(cuStreamBeginCapture(rig.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (unsigned i = 0; i < COUNT; i++) {
        CUdeviceptr in = rig.weight[i].address, out = rig.out + 8192 + 256 * i;
        uint64_t words = 64;
        double microseconds = i % 2 ? 2000 : 1;
        rig_launch(&rig, "probe_slow_copy", rig.stream, (void *[]){&in, &out, &words, &microseconds});
        rig_read(&rig, i, i, rig.stream);
    }
    OK(cuStreamEndCapture(rig.stream, &graph));
    CUgraphExec exec = make_exec(graph);
    for (int round = 0; round < 20; round++) {
        OK(cuGraphLaunch(exec, rig.stream));
    }
    OK(cuStreamSynchronize(rig.stream));
    check_out(&rig, "read");
    graphs_streamed();
    close_with(graph, exec);
}

/* Units of many sizes, some below a page, some not whole pages. */
static void odd_sizes(void)
{
    static const size_t bytes[] = {4, 65536, 2 * MIB, 2 * MIB + 4, 3 * MIB, 4 * MIB, 5 * MIB + 512, 2 * MIB - 4};
    rig_open(&rig, 0);
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        (void)rig_add(&rig, bytes[i]);
    }
    for (int pass = 0; pass < 6; pass++) {
        rig_pass(&rig, NULL, 0);
    }
    CUgraph graph = capture_pass(&rig, rig.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    CUgraphExec exec = make_exec(graph);
    for (int round = 0; round < 10; round++) {
        replay(&rig, exec, 2);
        rig_pass(&rig, NULL, 0);
    }
    close_with(graph, exec);
}

/* ---- threads */

struct worker {
    CUgraphExec exec;
    unsigned first;
};

static void *replay_own(void *argument)
{
    const struct worker *worker = argument;
    CUstream stream;
    OK(cuCtxSetCurrent(rig.context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int round = 0; round < 20; round++) {
        OK(cuGraphLaunch(worker->exec, stream));
        OK(cuStreamSynchronize(stream));
    }
    OK(cuStreamDestroy(stream));
    return NULL;
}

/* Three threads replay their graphs, which share all weights, and write apart. */
static void three_threads(void)
{
    pthread_t thread[3];
    struct worker worker[3];
    open_streaming(&rig, COUNT, 2 * MIB);
    for (unsigned t = 0; t < 3; t++) {
        CUgraph graph;
        CUgraphNode last = NULL;
        graph = new_graph();
        for (unsigned i = 0; i < COUNT; i++) {
            last = add_read(&rig, graph, &last, i > 0, (i + t) % COUNT, 1024 * t + (i + t) % COUNT);
        }
        worker[t].exec = make_exec(graph);
        OK(cuGraphDestroy(graph));
        HOLDS(pthread_create(&thread[t], NULL, replay_own, &worker[t]) == 0);
    }
    for (unsigned t = 0; t < 3; t++) {
        uint32_t got[4096];
        HOLDS(pthread_join(thread[t], NULL) == 0);
        OK(cuMemcpyDtoH(got, rig.out + 4096 * t, 4 * COUNT));
        rig_compare(&rig, got, NULL, COUNT);
        tell("thread", rig_digest(got, COUNT));
        OK(cuGraphExecDestroy(worker[t].exec));
    }
    rig_close(&rig);
}

/* The process ends with executable graphs alive and a launch under way. */
static void exit_alive(void)
{
    open_streaming(&rig, COUNT, 2 * MIB);
    CUgraphExec exec = make_exec(chain_of_reads(&rig));
    replay(&rig, exec, 3);
    OK(cuGraphLaunch(exec, rig.stream));
    for (unsigned i = 0; i < rig.count; i++) { /* the host's side: not what is tested */
        rig.weight[i].address = 0;
    }
    rig_forget(&rig);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(thousand_with_conversion),
    CASE(thousand_of_half),
    CASE(graphs_only),
    CASE(back_to_back),
    CASE(mixed_with_eager),
    CASE(beside_eager),
    CASE(two_in_turn),
    CASE(forty_graphs),
    CASE(captured_each_step),
    CASE(made_anew_unwaited),
    CASE(weights_changed_between),
    CASE(weights_exchanged),
    CASE(memory_grows_and_shrinks),
    CASE(destroyed_in_flight),
    CASE(uploaded),
    CASE(slow_kernels),
    CASE(odd_sizes),
    CASE(three_threads),
    CASE(exit_alive),
};
RIG_MAIN(cases)
