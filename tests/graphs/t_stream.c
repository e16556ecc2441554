/*
 * Graphs that turn the ring themselves: that they do, when they begin to, what makes them anew and what does not. (That
 * they compute the same is what all other tests are about.)
 */
#include "graphs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 6 };

static struct rig rig;

/* Lines of the log that hold `text`; without the shim there is none. */
static unsigned lines(const char *text)
{
    char line[1024];
    unsigned count = 0;
    FILE *file = with_shim() ? fopen(getenv("OVERSHOT_LOG_FILE"), "r") : NULL;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        count += strstr(line, text) != NULL;
    }
    if (file != NULL) {
        fclose(file);
    }
    return count;
}

/* The case's condition on what the shim did. */
#define DID(condition)        \
    do {                      \
        if (with_shim()) {    \
            HOLDS(condition); \
        }                     \
    } while (0)

static void close_with(CUgraph graph, CUgraphExec exec)
{
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    rig_close(&rig);
}

static void turns_the_ring(void)
{
    open_streaming(&rig, COUNT, 2 * MIB);
    CUgraph graph = capture_pass(&rig, rig.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUgraphExec exec = make_exec(graph);
    replay(&rig, exec, 5);
    DID(lines("graph of 6 nodes: 6 copies in it, 12 MiB") == 1);
    DID(rig_streamed_mib() == 12);
    close_with(graph, exec);
}

/* Neither replays, nor reads of what a graph left in the ring, nor quiet points make it anew. */
static void made_once(void)
{
    open_streaming(&rig, COUNT, 2 * MIB);
    CUgraph graph = chain_of_reads(&rig);
    CUgraphExec exec = make_exec(graph);
    for (int round = 0; round < 50; round++) {
        replay(&rig, exec, 1);
        rig_pass(&rig, NULL, 0);
    }
    DID(lines("copies in it") == 1);
    close_with(graph, exec);
}

/* No launch outside of graphs: what is known of the kernel comes from replays, node by node. */
static void learned_from_graphs(void)
{
    rig_open_with(&rig, COUNT, 2 * MIB);
    CUgraph graph = capture_pass(&rig, rig.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    CUgraphExec exec = make_exec(graph);
    replay(&rig, exec, 20);
    DID(rig_streamed_mib() > 0);
    DID(lines("copies in it") == 1);
    close_with(graph, exec);
}

/* Made before any weight had been read; the plan comes from eager passes. */
static void made_before_the_plan(void)
{
    rig_open_with(&rig, COUNT, 2 * MIB);
    CUgraph graph = chain_of_reads(&rig);
    CUgraphExec exec = make_exec(graph);
    OK(cuGraphDestroy(graph));
    for (int round = 0; round < 12; round++) {
        rig_pass(&rig, NULL, 0);
    }
    replay(&rig, exec, 5);
    DID(lines("copies in it") == 1);
    OK(cuGraphExecDestroy(exec));
    rig_close(&rig);
}

/* A pass in three graphs: after a few rounds each fits its neighbours, and stays as it is. */
static void in_pieces(void)
{
    enum { PIECES = 3, EACH = 4 };
    CUgraphExec exec[PIECES];
    unsigned settled = 0;
    open_streaming(&rig, PIECES * EACH, 2 * MIB);
    for (unsigned p = 0; p < PIECES; p++) {
        CUgraph graph = new_graph();
        add_reads(&rig, graph, p * EACH, (p + 1) * EACH);
        exec[p] = make_exec(graph);
        OK(cuGraphDestroy(graph));
    }
    for (int round = 0; round < 30; round++) {
        clear_out(&rig, rig.stream);
        for (unsigned p = 0; p < PIECES; p++) {
            OK(cuGraphLaunch(exec[p], rig.stream));
        }
        OK(cuStreamSynchronize(rig.stream));
        check_out(&rig, "in pieces");
        if (round == 9) {
            settled = lines("copies in it");
        }
    }
    DID(settled >= PIECES && lines("copies in it") == settled);
    for (unsigned p = 0; p < PIECES; p++) {
        OK(cuGraphExecDestroy(exec[p]));
    }
    rig_close(&rig);
}

/* One of the pieces is made anew all the time, so its neighbours know nobody for long. */
static void pieces_made_anew(void)
{
    CUgraphExec exec[2];
    open_streaming(&rig, COUNT, 2 * MIB);
    CUgraph first = new_graph(), second = new_graph();
    add_reads(&rig, first, 0, 3);
    add_reads(&rig, second, 3, 6);
    exec[0] = make_exec(first);
    for (int round = 0; round < 20; round++) {
        exec[1] = make_exec(second);
        clear_out(&rig, rig.stream);
        for (int times = 0; times < 3; times++) {
            OK(cuGraphLaunch(exec[0], rig.stream));
            OK(cuGraphLaunch(exec[1], rig.stream));
        }
        OK(cuGraphExecDestroy(exec[1]));
        OK(cuStreamSynchronize(rig.stream));
        check_out(&rig, "pieces");
    }
    DID(lines("copies in it") >= 21);
    OK(cuGraphDestroy(second));
    close_with(first, exec[0]);
}

/* Pieces in an order that never repeats: schedules are made for neighbours that do not come. */
static void pieces_in_any_order(void)
{
    enum { PIECES = 4 };
    CUgraphExec exec[PIECES];
    unsigned last = 1;
    open_streaming(&rig, 2 * PIECES, 2 * MIB);
    for (unsigned p = 0; p < PIECES; p++) {
        CUgraph graph = new_graph();
        add_reads(&rig, graph, 2 * p, 2 * p + 2);
        exec[p] = make_exec(graph);
        OK(cuGraphDestroy(graph));
    }
    for (unsigned round = 0; round < 100; round++) {
        clear_out(&rig, rig.stream);
        for (unsigned i = 0; i < PIECES; i++) {
            last = (last * 5 + 3 + round / 10) % 16;
            OK(cuGraphLaunch(exec[round % 20 < 10 ? (last + i) % PIECES : i], rig.stream));
        }
        for (unsigned p = 0; p < PIECES; p++) {
            OK(cuGraphLaunch(exec[p], rig.stream));
        }
        OK(cuStreamSynchronize(rig.stream));
        check_out(&rig, "any order");
    }
    for (unsigned p = 0; p < PIECES; p++) {
        OK(cuGraphExecDestroy(exec[p]));
    }
    rig_close(&rig);
}

/* Pieces that are used to their neighbours, and then launched twice in a row, or in another order. */
static void pieces_out_of_step(void)
{
    enum { PIECES = 3, EACH = 4 };
    CUgraphExec exec[PIECES];
    open_streaming(&rig, PIECES * EACH, 2 * MIB);
    for (unsigned p = 0; p < PIECES; p++) {
        CUgraph graph = new_graph();
        add_reads(&rig, graph, p * EACH, (p + 1) * EACH);
        exec[p] = make_exec(graph);
        OK(cuGraphDestroy(graph));
    }
    for (unsigned round = 0; round < 40; round++) {
        clear_out(&rig, rig.stream);
        for (unsigned p = 0; p < PIECES; p++) {
            const unsigned now = round % 10 == 9 ? PIECES - 1 - p : p;
            OK(cuGraphLaunch(exec[now], rig.stream));
            if (round >= 10 && round % 4 == p) { /* again, and what was read before is forgotten */
                OK(cuMemsetD32Async(rig.out + 4 * EACH * now, 0, EACH, rig.stream));
                OK(cuGraphLaunch(exec[now], rig.stream));
            }
        }
        OK(cuStreamSynchronize(rig.stream));
        check_out(&rig, "out of step");
    }
    for (unsigned p = 0; p < PIECES; p++) {
        OK(cuGraphExecDestroy(exec[p]));
    }
    rig_close(&rig);
}

/* All its weights fit the ring together: the program's own executable graph is launched. */
static void needs_no_copies(void)
{
    open_streaming(&rig, COUNT, 2 * MIB);
    CUgraph graph = new_graph();
    (void)add_read(&rig, graph, NULL, 0, 2, 2);
    CUgraphExec exec = make_exec(graph);
    for (int round = 0; round < 10; round++) {
        OK(cuGraphLaunch(exec, rig.stream));
        rig_pass(&rig, NULL, 0);
    }
    check_out(&rig, "without copies");
    DID(lines("graph of 1 nodes: 0 copies in it") == 1);
    close_with(graph, exec);
}

/* More memory is asked for between replays: there is another plan, and the graph is made anew for it. */
static void made_anew_for_a_plan(void)
{
    CUdeviceptr more[3];
    open_streaming(&rig, COUNT, 2 * MIB);
    CUgraph graph = chain_of_reads(&rig);
    CUgraphExec exec = make_exec(graph);
    for (int i = 0; i < 3; i++) {
        replay(&rig, exec, 5);
        OK(cuMemAlloc(&more[i], 2 * MIB));
        OK(cuMemsetD32(more[i], 7, MIB / 2));
        rig_pass(&rig, NULL, 0);
    }
    for (int i = 0; i < 3; i++) {
        replay(&rig, exec, 5);
        OK(cuMemFree(more[i]));
        rig_pass(&rig, NULL, 0);
    }
    DID(lines("copies in it") >= 1);
    close_with(graph, exec);
}

/* A node writes one of the weights: that one leaves, the others still stream. */
static void one_is_written(void)
{
    open_streaming(&rig, COUNT, 2 * MIB);
    CUgraph graph = new_graph();
    CUgraphNode node, last = add_read(&rig, graph, NULL, 0, 0, 0);
    CUdeviceptr address = rig.weight[3].address;
    uint64_t words = 64;
    uint32_t value = 5;
    CUDA_KERNEL_NODE_PARAMS params = read_params(&rig, (void *[]){&address, &value, &words});
    params.func = rig_kernel(&rig, "probe_fill");
    OK(cuGraphAddKernelNode(&node, graph, &last, 1, &params));
    for (unsigned i = 1; i < COUNT; i++) {
        node = add_read(&rig, graph, &node, 1, i, i);
    }
    CUgraphExec exec = make_exec(graph);
    for (uint64_t i = 0; i < words; i++) {
        rig.weight[3].host[i] = value;
    }
    rig_changed(&rig.weight[3]);
    for (int round = 0; round < 10; round++) {
        replay(&rig, exec, 1);
        rig_pass(&rig, NULL, 0);
    }
    DID(lines("copies in it") >= 1);
    DID(rig_streamed_mib() > 0);
    close_with(graph, exec);
}

/* Eager passes, and so the first plan, know nothing of weights that the graph reads again and again. A plan that knows
 * keeps them on the device, as far as there is room. */
static void some_are_read_again(void)
{
    static const unsigned order[] = {0, 1, 2, 3, 4, 5, 6, 7, 5, 1, 6, 2, 1, 5, 2, 6};
    open_streaming(&rig, 8, 2 * MIB);
    CUgraph graph = new_graph();
    CUgraphNode last = NULL;
    for (unsigned i = 0; i < sizeof order / sizeof *order; i++) {
        last = add_read(&rig, graph, &last, i > 0, order[i], order[i]);
    }
    CUgraphExec exec = make_exec(graph);
    for (int round = 0; round < 30; round++) {
        replay(&rig, exec, 1);
    }
    DID(lines("graph of 16 nodes") > lines(" 0 MiB of them again"));
    DID(lines(" 0 MiB of them again") >= 1);
    DID(rig_plans() == 2);
    close_with(graph, exec);
}

/* Nothing waits between replays, which overlap as far as the driver lets them. */
static void not_waited_for(void)
{
    open_streaming(&rig, COUNT, 2 * MIB);
    CUgraph graph = chain_of_reads(&rig);
    CUgraphExec exec = make_exec(graph);
    for (int round = 0; round < 5; round++) {
        clear_out(&rig, rig.stream);
        for (int times = 0; times < 100; times++) {
            OK(cuGraphLaunch(exec, rig.stream));
        }
        OK(cuStreamSynchronize(rig.stream));
        check_out(&rig, "after a hundred");
    }
    close_with(graph, exec);
}

/* First launched while another stream captures, when nothing can be made; afterwards it is. */
static void made_after_a_capture(void)
{
    CUstream other;
    CUgraph captured;
    open_streaming(&rig, COUNT, 2 * MIB);
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CUgraph graph = chain_of_reads(&rig);
    CUgraphExec exec = make_exec(graph);
    OK(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED));
    for (int times = 0; times < 3; times++) {
        OK(cuGraphLaunch(exec, rig.stream));
    }
    OK(cuStreamEndCapture(other, &captured));
    OK(cuGraphDestroy(captured));
    DID(lines("copies in it") == 0);
    OK(cuStreamSynchronize(rig.stream));
    check_out(&rig, "beside a capture");
    replay(&rig, exec, 3);
    DID(lines("copies in it") == 1);
    OK(cuStreamDestroy(other));
    close_with(graph, exec);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(turns_the_ring),      CASE(made_once),
    CASE(learned_from_graphs), CASE(made_before_the_plan),
    CASE(in_pieces),           CASE(pieces_made_anew),
    CASE(pieces_in_any_order), CASE(pieces_out_of_step),
    CASE(needs_no_copies),     CASE(made_anew_for_a_plan),
    CASE(one_is_written),      CASE(some_are_read_again),
    CASE(not_waited_for),      CASE(made_after_a_capture),
};
RIG_MAIN(cases)
