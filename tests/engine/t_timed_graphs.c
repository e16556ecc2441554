/*
 * Passes that are graphs are timed as eager ones are (t_profiler.c): in clones with events in them, without waits of
 * the program's, and when a clone cannot be had.
 */
#include "rig_graph.h"
#include "timed.h"

#include <stdlib.h>
#include <string.h>

enum { COUNT = 10 };
static const size_t weight_bytes = 4 * MIB;

/* A chain of kernels, each of which reads a weight. */
struct chain {
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node[RIG_WEIGHTS];
    unsigned from, to;
};

/* What the node of weight `index` is called with; params point into it. */
struct call {
    CUdeviceptr in, out;
    uint64_t words;
    double microseconds;
    void *params[4];
};

static CUDA_KERNEL_NODE_PARAMS node_params(struct rig *rig, unsigned index, double microseconds, struct call *call)
{
    *call = (struct call){rig->weight[index].address, rig->out, 256, microseconds, {NULL}};
    void *const params[] = {&call->in, &call->out, &call->words, &call->microseconds};
    memcpy(call->params, params, sizeof params);
    return rig_kernel_node(rig, "probe_slow_copy", call->params);
}

static struct chain chain_of(struct rig *rig, unsigned from, unsigned to, double microseconds)
{
    struct chain chain = {.from = from, .to = to};
    struct call call;
    OK(cuGraphCreate(&chain.graph, 0));
    for (unsigned i = from; i < to; i++) {
        const CUDA_KERNEL_NODE_PARAMS params = node_params(rig, i, microseconds, &call);
        OK(cuGraphAddKernelNode(&chain.node[i], chain.graph, &chain.node[i - 1 + (i == from)], i > from, &params));
    }
    chain.exec = rig_instantiate(chain.graph);
    return chain;
}

static void set_chain(struct rig *rig, const struct chain *chain, double microseconds)
{
    struct call call;
    for (unsigned i = chain->from; i < chain->to; i++) {
        const CUDA_KERNEL_NODE_PARAMS params = node_params(rig, i, microseconds, &call);
        OK(cuGraphExecKernelNodeSetParams(chain->exec, chain->node[i], &params));
    }
}

static void replay(struct rig *rig, const struct chain *chain)
{
    OK(cuGraphLaunch(chain->exec, rig->stream));
    OK(cuStreamSynchronize(rig->stream));
}

static void replays(struct rig *rig, const struct chain *chain, unsigned count)
{
    while (count-- > 0) {
        replay(rig, chain);
    }
}

static void drop_chain(const struct chain *chain)
{
    rig_drop_graph(chain->exec, chain->graph);
}

/* A clone that is timed is launched once, so its upload is part of that, unless it was asked for before. */
static void times_of_a_graph_are_told(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    const struct chain chain = chain_of(&rig, 0, COUNT, 100);
    replays(&rig, &chain, 40);
    timed_computes(COUNT, 100);
    drop_chain(&chain);
    timed_close(&rig);
}

static void change_in_graph_is_noticed(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    const struct chain chain = chain_of(&rig, 0, COUNT, 100);
    replays(&rig, &chain, 60);
    timed_computes(COUNT, 100);
    HOLDS(rig_logged("copies in it") && timed_anew() == 0);
    set_chain(&rig, &chain, 300);
    replays(&rig, &chain, 60);
    HOLDS(timed_anew() == 1);
    timed_computes(COUNT, 300);
    replays(&rig, &chain, 200);
    HOLDS(timed_anew() == 1);
    set_chain(&rig, &chain, 100);
    replays(&rig, &chain, 60);
    HOLDS(timed_anew() == 2);
    timed_computes(COUNT, 100);
    drop_chain(&chain);
    timed_close(&rig);
}

/* It takes a little longer for a while and then does not, which is not enough, whatever it is changed to. */
static void steady_graph_is_left_alone(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    const struct chain chain = chain_of(&rig, 0, COUNT, 60);
    for (unsigned i = 0; i < 10; i++) {
        replays(&rig, &chain, 35);
        set_chain(&rig, &chain, i % 2 == 0 ? 66 : 60);
    }
    HOLDS(rig_logged(TIMED_TOLD) && timed_anew() == 0 && rig_plans() <= 2);
    drop_chain(&chain);
    timed_close(&rig);
}

/* One that is changed before each launch, and then one of each kind. */
static void kinds_of_graphs_that_take_turns(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    const struct chain chain = chain_of(&rig, 0, COUNT, 60), other = chain_of(&rig, 0, COUNT, 300);
    for (unsigned i = 0; i < 150; i++) {
        set_chain(&rig, &chain, i % 2 == 0 ? 60 : 300);
        replay(&rig, &chain);
    }
    HOLDS(rig_logged(TIMED_TOLD) && timed_anew() == 0);
    set_chain(&rig, &chain, 60);
    for (unsigned i = 0; i < 100; i++) {
        replay(&rig, &chain);
        replay(&rig, &other);
    }
    HOLDS(timed_anew() == 0 && rig_plans() <= 2);
    drop_chain(&chain);
    drop_chain(&other);
    timed_close(&rig);
}

/* Long enough for each to be noticed: less and less often. */
static void kinds_of_graphs_that_come_in_rows(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    const struct chain chain = chain_of(&rig, 0, COUNT, 60);
    for (unsigned i = 0; i < 30; i++) {
        set_chain(&rig, &chain, i % 2 == 0 ? 60 : 300);
        replays(&rig, &chain, 35);
    }
    HOLDS(rig_logged(TIMED_TOLD) && timed_anew() >= 1 && timed_anew() <= 7 && rig_plans() <= 9);
    drop_chain(&chain);
    timed_close(&rig);
}

/* A graph that is launched once is watched all the same. None of them is where another was. */
static void graph_made_anew_for_each_pass(void)
{
    enum { PASSES = 120 };
    struct rig rig;
    struct chain chain[PASSES];
    rig_open_with(&rig, COUNT, weight_bytes);
    for (unsigned i = 0; i < PASSES; i++) {
        chain[i] = chain_of(&rig, 0, COUNT, i < PASSES / 2 ? 100 : 300);
        replay(&rig, &chain[i]);
        HOLDS(i + 1 != PASSES / 2 || (rig_logged(TIMED_TOLD) && timed_anew() == 0));
    }
    HOLDS(timed_anew() == 1);
    timed_computes(COUNT, 300);
    for (unsigned i = 0; i < PASSES; i++) {
        drop_chain(&chain[i]);
    }
    timed_close(&rig);
}

/* Of two that take turns the one that copies more is watched, whichever comes first when times are known. */
static void largest_graph_is_watched(bool first)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    const struct chain small = chain_of(&rig, 0, 2, 100), large = chain_of(&rig, 2, COUNT, 100);
    const struct chain *const order[] = {first ? &large : &small, first ? &small : &large};
    unsigned launched = 0;
    while (launched < 200 && !rig_logged(TIMED_TOLD)) {
        replay(&rig, order[launched++ % 2]);
    }
    if (launched % 2 == 1) { /* the other one comes next */
        launched++;
    }
    for (unsigned i = 0; i < 100; i++) {
        replay(&rig, order[launched++ % 2]);
    }
    HOLDS(rig_logged(TIMED_TOLD) && timed_anew() == 0);
    set_chain(&rig, &large, 300);
    for (unsigned i = 0; i < 100; i++) {
        replay(&rig, order[launched++ % 2]);
    }
    HOLDS(timed_anew() == 1);
    drop_chain(&small);
    drop_chain(&large);
    timed_close(&rig);
}

static void largest_graph_comes_first(void)
{
    largest_graph_is_watched(true);
}

static void largest_graph_comes_second(void)
{
    largest_graph_is_watched(false);
}

/* Passes of a graph for each weight, of which the last one takes longer. The host is never told that the device is
 * done: every so many launches it uploads a few bytes, and that waits. */
static void never_waited_for(unsigned count, size_t bytes, double us, double last_us, unsigned every)
{
    struct rig rig;
    struct chain chain[RIG_WEIGHTS];
    CUstream stream;
    double ms = 0, unknown = 100;
    rig_open_with(&rig, count, bytes);
    OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    for (unsigned i = 0; i < count; i++) {
        chain[i] = chain_of(&rig, i, i + 1, i + 1 < count ? us : last_us);
    }
    for (unsigned pass = 0; pass < 40 && rig_plans() == 0; pass++) {
        timed_passes(&rig, 1, us);
    }
    for (uint32_t token = 0; token < 480; token++) { /* fewer than after which it is looked for */
        if (token % every == 0) {
            OK(cuMemcpyHtoD(rig.out, &token, sizeof token));
        }
        OK(cuGraphLaunch(chain[token % count].exec, stream));
    }
    HOLDS(!rig_logged(TIMED_TOLD));
    OK(cuStreamSynchronize(stream));
    HOLDS(timed_lines(TIMED_TOLD, &ms) > 0);
    timed_is_about(ms, (count * TIMED_KERNEL_US + (count - 1) * us + last_us) / 1e3);
    /* Each was read when it was over. The first may begin with a launch that is tried out. */
    HOLDS(timed_lines("intervals not known:", &unknown) > 0 && unknown <= 1);
    for (unsigned i = 0; i < count; i++) {
        drop_chain(&chain[i]);
    }
    OK(cuStreamDestroy(stream));
    timed_close(&rig);
}

/* More passes are wanted than there is room for clones: what is over is read in between. */
static void graphs_that_are_never_waited_for(void)
{
    never_waited_for(COUNT, weight_bytes, 2000, 2000, 8 * COUNT);
}

/* There is room for those of a single pass, which ends in a clone that has yet to be launched. */
static void many_graphs_that_are_never_waited_for(void)
{
    never_waited_for(40, 2 * MIB, 500, 10000, 1);
}

/* Not even now and then, and the host is far ahead: when first asked, the passes that are timed are not over. */
static void host_that_never_waits(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    const struct chain chain = chain_of(&rig, 0, COUNT, 200);
    for (unsigned i = 0; i < 4000 && !rig_logged(TIMED_TOLD); i += 50) {
        for (unsigned k = 0; k < 50; k++) {
            OK(cuGraphLaunch(chain.exec, rig.stream));
        }
    }
    timed_computes(COUNT, 200);
    OK(cuStreamSynchronize(rig.stream));
    drop_chain(&chain);
    timed_close(&rig);
}

/* The driver refuses one of the clones that are timed. What it should have timed is no pass: neither the one that it
 * ends nor the one that it begins. */
static void clone_is_refused(void)
{
    struct rig rig;
    unsigned refused = 0;
    double unknown = 100;
    rig_open_with(&rig, COUNT, weight_bytes);
    const struct chain chain = chain_of(&rig, 0, COUNT, 100);
    for (unsigned i = 0; i < 60; i++) {
        const bool was_told = rig_logged(TIMED_TOLD);
        if (cuGraphLaunch(chain.exec, rig.stream) != CUDA_SUCCESS) {
            HOLDS(!was_told);
            refused++;
        }
        OK(cuStreamSynchronize(rig.stream));
    }
    HOLDS(refused == (getenv("LAUNCHED_ALL_THE_SAME") == NULL));
    timed_computes(COUNT, 100);
    HOLDS(timed_lines("intervals not known:", &unknown) > 0 && unknown <= 1); /* that of a launch that is tried out */
    drop_chain(&chain);
    timed_close(&rig);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(times_of_a_graph_are_told),
    CASE(change_in_graph_is_noticed),
    CASE(steady_graph_is_left_alone),
    CASE(kinds_of_graphs_that_take_turns),
    CASE(kinds_of_graphs_that_come_in_rows),
    CASE(graph_made_anew_for_each_pass),
    CASE(largest_graph_comes_first),
    CASE(largest_graph_comes_second),
    CASE(graphs_that_are_never_waited_for),
    CASE(many_graphs_that_are_never_waited_for),
    CASE(host_that_never_waits),
    CASE(clone_is_refused),
};
RIG_MAIN(cases)
