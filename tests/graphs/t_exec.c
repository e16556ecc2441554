/* The life of executable graphs whose weights are streamed inside of them. */
#include "graphs.h"

enum { COUNT = 6 };

static struct rig rig;

/* Two of one graph, in turn. */
static void two_of_one_graph(void)
{
    open_streaming(&rig, COUNT, 2 * MIB);
    CUgraph graph = chain_of_reads(&rig);
    CUgraphExec first = make_exec(graph), second = make_exec(graph);
    for (int round = 0; round < 10; round++) {
        replay(&rig, first, 1);
        replay(&rig, second, 2);
    }
    OK(cuGraphExecDestroy(first));
    replay(&rig, second, 3);
    OK(cuGraphExecDestroy(second));
    OK(cuGraphDestroy(graph));
    rig_close(&rig);
}

/* Launched in two streams in turn with nothing in between: they follow each other all the same. */
static void in_two_streams(void)
{
    CUstream other;
    open_streaming(&rig, COUNT, 2 * MIB);
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CUgraph graph = chain_of_reads(&rig);
    CUgraphExec exec = make_exec(graph);
    for (int round = 0; round < 20; round++) {
        OK(cuGraphLaunch(exec, rig.stream));
        OK(cuGraphLaunch(exec, other));
    }
    OK(cuStreamSynchronize(other));
    check_out(&rig, "in two streams");
    OK(cuStreamSynchronize(rig.stream));
    OK(cuStreamDestroy(other));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    rig_close(&rig);
}

/* The same while it is only replayed node by node, since its kernel is not known. */
static void in_two_streams_unknown(void)
{
    CUstream other;
    CUdeviceptr copy;
    CUgraphNode node, last;
    uint64_t words = MIB / 2;
    open_streaming(&rig, COUNT, 2 * MIB);
    OK(cuMemAlloc(&copy, 2 * MIB));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CUgraph graph = new_graph();
    for (unsigned i = 0; i < COUNT; i++) {
        CUdeviceptr in = rig.weight[i].address, out = rig.out + 4 * i;
        CUDA_KERNEL_NODE_PARAMS params = read_params(&rig, (void *[]){&in, &copy, &words});
        params.func = rig_kernel(&rig, "probe_copy");
        OK(cuGraphAddKernelNode(&node, graph, &last, i > 0, &params));
        params = read_params(&rig, (void *[]){&copy, &out, &words});
        OK(cuGraphAddKernelNode(&last, graph, &node, 1, &params));
    }
    CUgraphExec exec = make_exec(graph);
    for (int round = 0; round < 6; round++) {
        OK(cuGraphLaunch(exec, rig.stream));
        OK(cuGraphLaunch(exec, other));
    }
    OK(cuStreamSynchronize(other));
    check_out(&rig, "in two streams");
    OK(cuStreamSynchronize(rig.stream));
    OK(cuStreamDestroy(other));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuMemFree(copy));
    rig_close(&rig);
}

/* A weight of the graph is freed, another one takes its place; the graph is made anew for it. */
static void weight_exchanged(void)
{
    open_streaming(&rig, COUNT, 2 * MIB);
    for (unsigned round = 0; round < 6; round++) {
        CUgraph graph = chain_of_reads(&rig);
        CUgraphExec exec = make_exec(graph);
        replay(&rig, exec, 4);
        OK(cuGraphExecDestroy(exec));
        OK(cuGraphDestroy(graph));
        struct rig_weight *weight = &rig.weight[round];
        OK(cuMemFree(weight->address));
        OK(cuMemAlloc(&weight->address, weight->bytes));
        rig_refill(weight);
        OK(cuMemcpyHtoD(weight->address, weight->host, weight->bytes));
        rig_pass(&rig, NULL, 0);
    }
    rig_close(&rig);
}

/* Its handle and those of its nodes stay what they were. */
static void handles_stay(void)
{
    open_streaming(&rig, COUNT, 2 * MIB);
    CUgraph graph = chain_of_reads(&rig);
    CUgraphExec exec = make_exec(graph);
    size_t before = 0, after = 0;
    cuuint64_t flags = 0;
    OK(cuGraphGetNodes(graph, NULL, &before));
    replay(&rig, exec, 4);
    OK(cuGraphGetNodes(graph, NULL, &after));
    say("flags", cuGraphExecGetFlags(exec, &flags));
    tell("flags", (long long)flags);
    tell("nodes before", (long long)before);
    tell("nodes after", (long long)after);
    say("destroyed", cuGraphExecDestroy(exec));
    say("destroyed again", cuGraphExecDestroy(exec));
    say("launched", cuGraphLaunch(exec, rig.stream));
    OK(cuGraphDestroy(graph));
    rig_close(&rig);
}

/* Two lives of the device's context. */
static void context_made_again(void)
{
    for (int life = 0; life < 2; life++) {
        open_streaming(&rig, COUNT, 2 * MIB);
        CUgraph graph = chain_of_reads(&rig);
        CUgraphExec exec = make_exec(graph);
        replay(&rig, exec, 4);
        OK(cuGraphExecDestroy(exec));
        OK(cuGraphDestroy(graph));
        rig_close(&rig);
    }
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(two_of_one_graph), CASE(in_two_streams), CASE(in_two_streams_unknown),
    CASE(weight_exchanged), CASE(handles_stay),   CASE(context_made_again),
};
RIG_MAIN(cases)
