/*
 * Graphs that turn the ring in turn with others: each expects what the one before it left, and brings in what the next
 * one expects. Here what they count on changes, or does not come.
 */
#include "graphs.h"

enum { COUNT = 6, HALF = COUNT / 2, SETTLED = 12 };

static struct rig rig;
static CUgraphExec exec[2]; /* of either half of the weights */

static void launch(unsigned which)
{
    OK(cuGraphLaunch(exec[which], rig.stream));
}

static void check(const char *step)
{
    OK(cuStreamSynchronize(rig.stream));
    check_out(&rig, step);
    clear_out(&rig, rig.stream);
}

/* One after the other, until each is made for the other. */
static void settle(void)
{
    for (int round = 0; round < SETTLED; round++) {
        launch(0);
        launch(1);
        check("settling");
    }
}

static void open_halves(void)
{
    open_streaming(&rig, COUNT, 2 * MIB);
    for (unsigned g = 0; g < 2; g++) {
        CUgraph graph = new_graph();
        add_reads(&rig, graph, g * HALF, (g + 1) * HALF);
        exec[g] = make_exec(graph);
        OK(cuGraphDestroy(graph));
    }
    settle();
}

static void close_halves(void)
{
    for (unsigned g = 0; g < 2; g++) {
        OK(cuGraphExecDestroy(exec[g]));
    }
    rig_close(&rig);
}

/* A weight that one brings in for the other leaves the ring. */
static void weight_of_the_next_written(void)
{
    open_halves();
    for (unsigned i = 0; i < COUNT; i++) {
        struct rig_weight *weight = &rig.weight[(i + HALF) % COUNT];
        rig_refill(weight);
        OK(cuMemcpyHtoD(weight->address, weight->host, weight->bytes));
        for (int round = 0; round < 5; round++) {
            launch(i / HALF);
            launch(1 - i / HALF);
            check("written");
        }
    }
    close_halves();
}

/* ... and its memory is given back, before the graph that used it. */
static void weights_of_the_next_freed(unsigned next)
{
    open_halves();
    for (unsigned i = next * HALF; i < (next + 1) * HALF; i++) {
        OK(cuMemFree(rig.weight[i].address));
    }
    launch(1 - next);
    OK(cuStreamSynchronize(rig.stream));
    for (unsigned i = next * HALF; i < (next + 1) * HALF; i++) {
        struct rig_weight *weight = &rig.weight[i];
        OK(cuMemAlloc(&weight->address, weight->bytes));
        OK(cuMemcpyHtoD(weight->address, weight->host, weight->bytes));
    }
    for (int round = 0; round < 4; round++) {
        launch(1 - next);
        for (unsigned i = next * HALF; i < (next + 1) * HALF; i++) {
            rig_read(&rig, i, i, rig.stream);
        }
        check("alone");
    }
    close_halves();
}

static void weights_of_the_first_freed(void)
{
    weights_of_the_next_freed(0);
}

static void weights_of_the_second_freed(void)
{
    weights_of_the_next_freed(1);
}

/* Nothing can be made anew while somebody captures: a graph follows itself that expects what the other leaves. */
static void other_order_in_a_capture(void)
{
    CUstream capturing;
    CUgraph captured;
    open_halves();
    OK(cuStreamCreate(&capturing, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (unsigned g = 0; g < 2; g++) {
        launch(1 - g);
        launch(g);
        launch(g);
        launch(g);
        launch(1 - g);
    }
    OK(cuStreamEndCapture(capturing, &captured));
    check("in another order");
    OK(cuGraphDestroy(captured));
    OK(cuStreamDestroy(capturing));
    close_halves();
}

/* The order changes until they are not made anew any more. */
static void order_changes_often(void)
{
    open_halves();
    for (int phase = 0; phase < 12; phase++) {
        for (unsigned g = 0; g < 2; g++) {
            for (int times = 0; times < 4; times++) {
                launch(g);
            }
        }
        check("alone");
        settle();
    }
    close_halves();
}

/* The neighbour is changed until it uses no weight at all, and destroyed. */
static void neighbour_changed_and_destroyed(void)
{
    CUgraphNode node[COUNT];
    size_t count = COUNT;
    CUdeviceptr nothing = rig.out;
    uint64_t words = 16;
    open_streaming(&rig, COUNT, 2 * MIB);
    nothing = rig.out;
    CUgraph graph = new_graph();
    add_reads(&rig, graph, 0, HALF);
    exec[0] = make_exec(graph);
    OK(cuGraphDestroy(graph));
    graph = new_graph();
    add_reads(&rig, graph, HALF, COUNT);
    exec[1] = make_exec(graph);
    settle();
    OK(cuGraphGetNodes(graph, node, &count));
    for (size_t i = 0; i < count; i++) {
        CUdeviceptr out = rig.out + 4 * (64 + i);
        CUDA_KERNEL_NODE_PARAMS params = read_params(&rig, (void *[]){&nothing, &out, &words});
        OK(cuGraphExecKernelNodeSetParams(exec[1], node[i], &params));
    }
    OK(cuGraphExecDestroy(exec[1]));
    for (int round = 0; round < 4; round++) {
        launch(0);
        for (unsigned i = HALF; i < COUNT; i++) {
            rig_read(&rig, i, i, rig.stream);
        }
        check("without a neighbour");
    }
    OK(cuGraphDestroy(graph));
    OK(cuGraphExecDestroy(exec[0]));
    rig_close(&rig);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(weight_of_the_next_written), CASE(weights_of_the_first_freed), CASE(weights_of_the_second_freed),
    CASE(other_order_in_a_capture),   CASE(order_changes_often),        CASE(neighbour_changed_and_destroyed),
};
RIG_MAIN(cases)
