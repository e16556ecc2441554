/*
 * Work in flight: the host never waits between launches of graphs and what it does next. Everything is ordered by
 * streams and events alone, so what reads too early or is overwritten too soon shows in the results or to the driver's
 * checker.
 */
#include "graphs.h"

#include <string.h>

enum { COUNT = 6, SLOTS = 64 };

static struct rig rig;

static void prepare(void)
{
    open_streaming(&rig, COUNT, 2 * MIB);
}

/* A graph whose reads go to out[base..]. */
static CUgraph reads_to(unsigned base)
{
    CUgraph graph = new_graph();
    CUgraphNode last = NULL;
    for (unsigned i = 0; i < COUNT; i++) {
        last = add_read(&rig, graph, &last, i > 0, i, base + i);
    }
    return graph;
}

/* Digests that a launch must have seen, by the place where it put them. */
struct seen {
    uint32_t digest[SLOTS][COUNT];
    unsigned count;
};

static void note(struct seen *seen)
{
    for (unsigned i = 0; i < COUNT; i++) {
        seen->digest[seen->count][i] = rig_digest(rig.weight[i].host, rig.weight[i].bytes / 4);
    }
    seen->count++;
}

static void compare(const struct seen *seen)
{
    uint32_t got[4096];
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH(got, rig.out, sizeof got));
    for (unsigned s = 0; s < seen->count; s++) {
        for (unsigned i = 0; i < COUNT; i++) {
            if (got[s * COUNT + i] != seen->digest[s][i]) {
                rig_fail(RIG_EXIT_WRONG, "launch %u: weight %u had other bytes", s, i);
            }
        }
    }
    tell("all seen", rig_digest(got, seen->count * COUNT));
}

/* Weights are written between launches, in stream order: each launch sees what was before it and nothing later. */
static void written_between(void)
{
    static struct seen seen;
    CUgraphExec exec[10];
    prepare();
    for (unsigned round = 0; round < 10; round++) {
        struct rig_weight *weight = &rig.weight[round % COUNT];
        const uint64_t words = weight->bytes / 4;
        uint32_t value = 7 * round + 1;
        CUgraph graph = reads_to(round * COUNT);
        exec[round] = make_exec(graph);
        OK(cuGraphDestroy(graph));
        OK(cuGraphLaunch(exec[round], rig.stream));
        note(&seen);
        if (round % 2) {
            OK(cuMemsetD32Async(weight->address, value, words, rig.stream));
            for (uint64_t i = 0; i < words; i++) {
                weight->host[i] = value;
            }
        } else {
            rig_launch(&rig, "probe_increment", rig.stream, (void *[]){&weight->address, &value, (void *)&words});
            for (uint64_t i = 0; i < words; i++) {
                weight->host[i] += value;
            }
        }
        rig_changed(weight);
    }
    compare(&seen);
    for (unsigned round = 0; round < 10; round++) {
        OK(cuGraphExecDestroy(exec[round]));
    }
    rig_close(&rig);
}

/* Parameters are set while the launch before is under way: it is not affected. */
static void set_in_flight(void)
{
    static struct seen seen;
    CUgraphNode node[COUNT];
    size_t count = COUNT;
    prepare();
    CUgraph graph = reads_to(0);
    CUgraphExec exec = make_exec(graph);
    OK(cuGraphGetNodes(graph, node, &count));
    for (unsigned round = 0; round < 20; round++) {
        for (unsigned i = 0; i < COUNT; i++) {
            const unsigned index = (i + round) % COUNT;
            CUdeviceptr in = rig.weight[index].address, out = rig.out + 4 * (round * COUNT + index);
            uint64_t words = rig.weight[index].bytes / 4;
            CUDA_KERNEL_NODE_PARAMS params = read_params(&rig, (void *[]){&in, &out, &words});
            OK(cuGraphExecKernelNodeSetParams(exec, node[i], &params));
        }
        OK(cuGraphLaunch(exec, rig.stream));
        note(&seen);
    }
    compare(&seen);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    rig_close(&rig);
}

/* The same by whole graphs. */
static void updated_in_flight(void)
{
    static struct seen seen;
    prepare();
    CUgraph graph = reads_to(0);
    CUgraphExec exec = make_exec(graph);
    for (unsigned round = 0; round < 20; round++) {
        CUgraphExecUpdateResultInfo info;
        CUgraph newer = reads_to(round * COUNT);
        say("update", cuGraphExecUpdate(exec, newer, &info));
        OK(cuGraphDestroy(newer));
        OK(cuGraphLaunch(exec, rig.stream));
        note(&seen);
    }
    compare(&seen);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    rig_close(&rig);
}

/* A graph on one stream, an event, eager reads on the other; then the other way round. */
static void handed_between_streams(void)
{
    static struct seen seen;
    CUstream other;
    CUevent there;
    CUgraphExec exec[8];
    prepare();
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&there, CU_EVENT_DISABLE_TIMING));
    for (unsigned round = 0; round < 8; round++) {
        CUgraph graph = reads_to(2 * round * COUNT);
        exec[round] = make_exec(graph);
        OK(cuGraphDestroy(graph));
        OK(cuGraphLaunch(exec[round], round % 2 ? other : rig.stream));
        note(&seen);
        OK(cuEventRecord(there, round % 2 ? other : rig.stream));
        OK(cuStreamWaitEvent(round % 2 ? rig.stream : other, there, 0));
        for (unsigned i = 0; i < COUNT; i++) {
            rig_read(&rig, i, (2 * round + 1) * COUNT + i, round % 2 ? rig.stream : other);
        }
        note(&seen);
    }
    compare(&seen);
    for (unsigned round = 0; round < 8; round++) {
        OK(cuGraphExecDestroy(exec[round]));
    }
    OK(cuEventDestroy(there));
    OK(cuStreamDestroy(other));
    rig_close(&rig);
}

/* Launches on the legacy stream, which waits for blocking streams and they for it, and on the per-thread one. */
static void default_streams(void)
{
    static struct seen seen;
    CUstream blocking;
    CUgraphExec exec[9];
    prepare();
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuCtxSynchronize());
    for (unsigned round = 0; round < 9; round++) {
        const CUstream stream[] = {CU_STREAM_LEGACY, blocking, CU_STREAM_PER_THREAD};
        CUgraph graph = reads_to(round * COUNT);
        exec[round] = make_exec(graph);
        OK(cuGraphDestroy(graph));
        OK(cuGraphLaunch(exec[round], stream[round % 3]));
        note(&seen);
    }
    compare(&seen);
    for (unsigned round = 0; round < 9; round++) {
        OK(cuGraphExecDestroy(exec[round]));
    }
    OK(cuStreamDestroy(blocking));
    rig_close(&rig);
}

/* ---- kernels that need more than one weight, or write one */

static CUgraphNode add_kernel(CUgraph graph, const CUgraphNode *from, size_t count, const char *name, void **values)
{
    CUgraphNode node;
    CUDA_KERNEL_NODE_PARAMS params = read_params(&rig, values);
    params.func = rig_kernel(&rig, name);
    OK(cuGraphAddKernelNode(&node, graph, from, count, &params));
    return node;
}

/* sums[i] = weight i + weight j, then a digest of it: both have to be there together. `large` is memory of the arena.
 */
static void pairs_of_weights(void)
{
    CUdeviceptr large;
    uint64_t words = MIB / 2;
    prepare();
    OK(cuMemAlloc(&large, 2 * MIB));
    CUgraph graph = new_graph();
    CUgraphNode last = NULL;
    for (unsigned i = 0; i < COUNT; i++) {
        CUdeviceptr one = rig.weight[i].address, two = rig.weight[(i + 3) % COUNT].address, out = rig.out + 4 * i;
        last = add_kernel(graph, &last, i > 0, "probe_add", (void *[]){&one, &two, &large, &words});
        last = add_kernel(graph, &last, 1, "probe_digest", (void *[]){&large, &out, &words});
    }
    CUgraphExec exec = make_exec(graph);
    for (int round = 0; round < 6; round++) {
        uint32_t got[COUNT];
        OK(cuGraphLaunch(exec, rig.stream));
        OK(cuStreamSynchronize(rig.stream));
        OK(cuMemcpyDtoH(got, rig.out, sizeof got));
        for (unsigned i = 0; i < COUNT; i++) {
            uint32_t wanted = 0;
            for (uint64_t w = 0; w < words; w++) {
                wanted = wanted * 31u + rig.weight[i].host[w] + rig.weight[(i + 3) % COUNT].host[w];
            }
            HOLDS(got[i] == wanted);
        }
        tell("sums", rig_digest(got, COUNT));
        rig_pass(&rig, NULL, 0);
    }
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuMemFree(large));
    rig_close(&rig);
}

/* A kernel node of the graph changes a weight, later nodes and later launches read it. */
static void written_by_a_kernel_node(void)
{
    uint32_t one = 1;
    prepare();
    struct rig_weight *weight = &rig.weight[3];
    uint64_t words = weight->bytes / 4;
    CUgraph graph = new_graph();
    CUgraphNode last = add_kernel(graph, NULL, 0, "probe_increment", (void *[]){&weight->address, &one, &words});
    for (unsigned i = 0; i < COUNT; i++) {
        last = add_read(&rig, graph, &last, 1, i, i);
    }
    CUgraphExec exec = make_exec(graph);
    for (int round = 0; round < 6; round++) {
        OK(cuGraphLaunch(exec, rig.stream));
        OK(cuStreamSynchronize(rig.stream));
        for (uint64_t w = 0; w < words; w++) {
            weight->host[w]++;
        }
        rig_changed(weight);
        check_out(&rig, "written");
        rig_pass(&rig, NULL, 0);
    }
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    rig_close(&rig);
}

/* A kernel that no launch outside the graph has shown. */
static void new_kernel_in_a_graph(void)
{
    CUdeviceptr copy;
    uint64_t words = MIB / 2;
    prepare();
    OK(cuMemAlloc(&copy, 2 * MIB));
    CUgraph graph = new_graph();
    CUgraphNode last = NULL;
    for (unsigned i = 0; i < COUNT; i++) {
        CUdeviceptr in = rig.weight[i].address, out = rig.out + 4 * i;
        last = add_kernel(graph, &last, i > 0, "probe_copy", (void *[]){&in, &copy, &words});
        last = add_kernel(graph, &last, 1, "probe_digest", (void *[]){&copy, &out, &words});
    }
    CUgraphExec exec = make_exec(graph);
    for (int round = 0; round < 6; round++) {
        replay(&rig, exec, 1);
        rig_pass(&rig, NULL, 0);
    }
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuMemFree(copy));
    rig_close(&rig);
}

/* One weight is larger than the ring, or than the budget. */
static void larger_than_the_ring(void)
{
    open_streaming(&rig, COUNT, 2 * MIB);
    (void)rig_add(&rig, 8 * MIB);
    CUgraph graph = chain_of_reads(&rig);
    replay_and_close(&rig, graph, make_exec(graph));
}

/* Four branches side by side, each a chain of its own weights. */
static void branches(void)
{
    open_streaming(&rig, 8, 2 * MIB);
    CUgraph graph = new_graph();
    for (unsigned b = 0; b < 4; b++) {
        add_reads(&rig, graph, 2 * b, 2 * b + 2);
    }
    replay_and_close(&rig, graph, make_exec(graph));
}

/* Each weight is read at the graph's begin and again at its end. */
static void read_twice(void)
{
    prepare();
    CUgraph graph = new_graph();
    CUgraphNode last = NULL;
    for (unsigned i = 0; i < 2 * COUNT; i++) {
        last = add_read(&rig, graph, &last, i > 0, i % COUNT, i < COUNT ? 1024 + i : i - COUNT);
    }
    CUgraphExec exec = make_exec(graph);
    for (int round = 0; round < 6; round++) {
        uint32_t got[4096];
        replay(&rig, exec, 1);
        OK(cuMemcpyDtoH(got, rig.out + 4096, 4 * COUNT));
        rig_compare(&rig, got, NULL, COUNT);
    }
    replay_and_close(&rig, graph, exec);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(written_between),
    CASE(set_in_flight),
    CASE(updated_in_flight),
    CASE(handed_between_streams),
    CASE(default_streams),
    CASE(pairs_of_weights),
    CASE(written_by_a_kernel_node),
    CASE(new_kernel_in_a_graph),
    CASE(larger_than_the_ring),
    CASE(branches),
    CASE(read_twice),
};
RIG_MAIN(cases)
