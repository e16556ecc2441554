/*
 * Graphs whose kernels work on two devices. They are launched as they are; once what they use has left the rings, a
 * launch waits for nothing.
 */
#include "graphs.h"

enum { COUNT = 6, GRAPHS = 2 };

static struct rig rig[2];

static CUgraphNode add_read_on(unsigned device, CUgraph graph, const CUgraphNode *from, size_t count, unsigned index)
{
    CUgraphNode node;
    CUdeviceptr in = rig[device].weight[index].address, out = rig[device].out + 4 * index;
    uint64_t words = rig[device].weight[index].bytes / 4;
    CUDA_KERNEL_NODE_PARAMS params = read_params(&rig[device], (void *[]){&in, &out, &words});
    params.ctx = rig[device].context;
    OK(cuGraphAddKernelNode(&node, graph, from, count, &params));
    return node;
}

/* Every graph reads weights of its own of both devices. */
static CUgraphExec spanning(unsigned from, unsigned to)
{
    CUgraph graph = new_graph();
    CUgraphNode last = NULL;
    for (unsigned i = from; i < to; i++) {
        for (unsigned device = 0; device < 2; device++) {
            last = add_read_on(device, graph, &last, last != NULL, i);
        }
    }
    CUgraphExec exec = make_exec(graph);
    OK(cuGraphDestroy(graph));
    return exec;
}

static void two_in_turn(void)
{
    CUgraphExec exec[GRAPHS];
    CUevent before;
    rig_open(&rig[1], 1);
    for (unsigned i = 0; i < COUNT; i++) {
        (void)rig_add(&rig[1], 2 * MIB);
    }
    open_streaming(&rig[0], COUNT, 2 * MIB);
    OK(cuEventCreate(&before, CU_EVENT_DISABLE_TIMING));
    for (unsigned g = 0; g < GRAPHS; g++) {
        exec[g] = spanning(2 * g, 2 * g + 2);
    }
    for (int round = 0; round < 12; round++) {
        clear_out(&rig[0], rig[0].stream);
        for (int times = 0; times < 10; times++) {
            OK(cuGraphLaunch(exec[0], rig[0].stream));
            OK(cuGraphLaunch(exec[1], rig[0].stream));
        }
        OK(cuEventRecord(before, rig[0].stream));
        OK(cuGraphLaunch(exec[0], rig[0].stream));
        CUresult done = cuEventQuery(before);
        if (round > 8) {
            say("still under way", done);
        }
        for (unsigned i = 2 * GRAPHS; i < COUNT; i++) {
            rig_read(&rig[0], i, i, rig[0].stream);
        }
        OK(cuStreamSynchronize(rig[0].stream));
        check_out(&rig[0], "on two devices");
    }
    for (unsigned g = 0; g < GRAPHS; g++) {
        OK(cuGraphExecDestroy(exec[g]));
    }
    OK(cuEventDestroy(before));
    rig_close(&rig[0]);
    OK(cuCtxSetCurrent(rig[1].context));
    rig_close(&rig[1]);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {CASE(two_in_turn)};
RIG_MAIN(cases)
