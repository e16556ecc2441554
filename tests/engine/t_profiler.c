/*
 * Passes are timed, and timed anew when they take another time than was planned for; but not when they are of several
 * kinds, not because the host is late, and not for ever.
 */
#include "rig_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 10 };
static const size_t weight_bytes = 4 * MIB;
static const char told[] = "a pass computes", anew[] = "they are timed anew", slower[] = "more beside copies";
static const double kernel_us = 2; /* what a kernel takes that does nothing (tests/sim/sim_submit.c) */

/* The host is busy for a while: SIM_QUERY_NS a query, and with LATE of them longer than a kernel. */
enum { LATE = 10 };
static void dawdle(unsigned queries)
{
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    while (queries-- > 0) {
        OK(cuEventQuery(event));
    }
    OK(cuEventDestroy(event));
}

/* A pass in which each weight's kernel computes so long, before each of which the host takes its time. */
static void pass(struct rig *rig, double microseconds, unsigned queries)
{
    uint64_t words = 256;
    for (unsigned i = 0; i < rig->count; i++) {
        CUdeviceptr in = rig->weight[i].address, out = rig->out;
        void *params[] = {&in, &out, &words, &microseconds};
        dawdle(queries);
        rig_launch(rig, "probe_slow_copy", rig->stream, params);
    }
    OK(cuStreamSynchronize(rig->stream));
}

static void passes(struct rig *rig, unsigned count, double microseconds)
{
    while (count-- > 0) {
        pass(rig, microseconds, 0);
    }
}

/* Lines of the log with `text`; *last gets what follows it in the last one. */
static unsigned lines_with(const char *text, double *last)
{
    char line[512];
    unsigned count = 0;
    FILE *file = fopen(getenv("OVERSHOT_LOG_FILE"), "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *at = strstr(line, text);
        if (at != NULL) {
            count++;
            *last = strtod(at + strlen(text), NULL);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return count;
}

static unsigned times_anew(void)
{
    double ignored;
    return lines_with(anew, &ignored);
}

static void is_about(double ms, double expected_ms)
{
    if (ms < 0.97 * expected_ms || ms > 1.03 * expected_ms) {
        rig_fail(RIG_EXIT_SELF, "%.3f ms instead of %.3f", ms, expected_ms);
    }
}

static void computes(double microseconds)
{
    double ms = 0;
    HOLDS(lines_with(told, &ms) > 0);
    is_about(ms, COUNT * (microseconds + kernel_us) / 1e3);
}

/* All bytes are right, too. */
static void close_rig(struct rig *rig)
{
    rig_pass(rig, NULL, 0);
    rig_close(rig);
}

static void times_are_told(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    passes(&rig, 16, 100);
    computes(100);
    HOLDS(rig_streamed_mib() > 0 && times_anew() == 0);
    close_rig(&rig);
}

/* Launches that are tried out tell nothing: that is no reason to doubt what the others told. */
static void trials_are_no_spread(void)
{
    struct rig rig;
    double percent = 100;
    rig_open_with(&rig, COUNT, weight_bytes);
    passes(&rig, 16, 100);
    HOLDS(lines_with("(spread", &percent) > 0);
    if (percent > 3) {
        rig_fail(RIG_EXIT_SELF, "passes that are alike differ by %.1f %%", percent);
    }
    close_rig(&rig);
}

/* Computation is what it was, so what passes take is what they take: that is accepted, and not timed for ever. */
static void prediction_is_off(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    passes(&rig, 300, 5);
    HOLDS(rig_logged(told) && times_anew() == 1);
    close_rig(&rig);
}

static void change_is_noticed(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    passes(&rig, 16, 100);
    passes(&rig, 24, 400);
    HOLDS(times_anew() == 1);
    computes(400);
    passes(&rig, 40, 100);
    HOLDS(times_anew() == 2);
    computes(100);
    close_rig(&rig);
}

static void steady_is_left_alone(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    passes(&rig, 100, 60);
    HOLDS(rig_logged(told) && times_anew() == 0 && rig_plans() <= 2);
    close_rig(&rig);
}

static void kinds_that_take_turns(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    for (unsigned i = 0; i < 100; i++) {
        passes(&rig, 1, 60);
        passes(&rig, 1, 300);
    }
    HOLDS(rig_logged(told) && times_anew() == 0 && rig_plans() <= 2);
    close_rig(&rig);
}

/* Long enough for each to be noticed: less and less often. */
static void kinds_that_come_in_rows(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    for (unsigned i = 0; i < 25; i++) {
        passes(&rig, 6, 60);
        passes(&rig, 6, 300);
    }
    HOLDS(rig_logged(told) && times_anew() <= 5 && rig_plans() <= 7);
    close_rig(&rig);
}

static void host_that_is_late(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    passes(&rig, 20, 100);
    for (unsigned i = 0; i < 40; i++) {
        pass(&rig, 100, LATE);
    }
    HOLDS(rig_logged(told) && times_anew() == 0);
    close_rig(&rig);
}

static void pauses_between_passes(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    passes(&rig, 20, 100);
    for (unsigned i = 0; i < 40; i++) {
        passes(&rig, 1, 100);
        dawdle(10 * LATE);
    }
    HOLDS(rig_logged(told) && times_anew() == 0);
    close_rig(&rig);
}

/* Passes in every order: there is nothing to time. */
static void no_order(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    for (unsigned i = 0; i < 60; i++) {
        unsigned order[COUNT];
        for (unsigned k = 0; k < COUNT; k++) {
            order[k] = k;
        }
        for (unsigned k = COUNT - 1; k > 0; k--) {
            const unsigned other = (i * 2654435761u >> (k % 16)) % (k + 1), there = order[k];
            order[k] = order[other];
            order[other] = there;
        }
        rig_pass(&rig, order, COUNT);
    }
    HOLDS(!rig_logged(told));
    rig_close(&rig);
}

/* The order changes while passes are timed: what was measured belongs to the pass before. */
static void order_changes_meanwhile(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    unsigned reverse[COUNT];
    for (unsigned k = 0; k < COUNT; k++) {
        reverse[k] = COUNT - 1 - k;
    }
    for (unsigned i = 0; i < 40 && rig_plans() == 0; i++) {
        passes(&rig, 1, 100);
    }
    passes(&rig, 1, 100);
    for (unsigned i = 0; i < 40; i++) {
        rig_pass(&rig, reverse, COUNT);
    }
    HOLDS(!rig_logged(told));
    passes(&rig, 8, 100); /* in order again */
    close_rig(&rig);
}

/* A host that is late has less to wait for in hushed passes, and no copy is to blame for it. */
static void host_that_is_always_late(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    for (unsigned i = 0; i < 20; i++) {
        pass(&rig, 100, LATE);
    }
    HOLDS(rig_logged(told) && !rig_logged(slower));
    close_rig(&rig);
}

/* Copies slow kernels by two fifths; the last one's interval is not counted, since the program waits behind it. */
static void copies_that_slow_kernels(void)
{
    struct rig rig;
    double percent = 0;
    rig_open_with(&rig, COUNT, weight_bytes);
    passes(&rig, 16, 100);
    HOLDS(rig_logged(slower) && lines_with("%), ", &percent) > 0);
    HOLDS(percent > 25 && percent < 42);
    close_rig(&rig);
}

/* The order is another in the second half of each pass that is hushed: not more than two are tried. */
static void order_changes_while_hushed(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    unsigned order[COUNT];
    for (unsigned k = 0; k < COUNT; k++) {
        order[k] = k < COUNT / 2 ? k : COUNT - 1 - (k - COUNT / 2);
    }
    for (unsigned i = 0; i < 40 && rig_plans() == 0; i++) {
        passes(&rig, 1, 100);
    }
    passes(&rig, 3, 100);
    HOLDS(!rig_logged(told));
    for (unsigned i = 0; i < 3; i++) {
        rig_pass(&rig, order, COUNT);
    }
    HOLDS(rig_logged(told) && !rig_logged(slower));
    close_rig(&rig);
}

/* ---- graphs ---- */

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
    computes(100);
    drop_chain(&chain);
    close_rig(&rig);
}

static void change_in_graph_is_noticed(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    const struct chain chain = chain_of(&rig, 0, COUNT, 100);
    replays(&rig, &chain, 60);
    computes(100);
    HOLDS(rig_logged("copies in it") && times_anew() == 0);
    set_chain(&rig, &chain, 300);
    replays(&rig, &chain, 60);
    HOLDS(times_anew() == 1);
    computes(300);
    replays(&rig, &chain, 200);
    HOLDS(times_anew() == 1);
    set_chain(&rig, &chain, 100);
    replays(&rig, &chain, 60);
    HOLDS(times_anew() == 2);
    computes(100);
    drop_chain(&chain);
    close_rig(&rig);
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
    HOLDS(rig_logged(told) && times_anew() == 0 && rig_plans() <= 2);
    drop_chain(&chain);
    close_rig(&rig);
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
    HOLDS(rig_logged(told) && times_anew() == 0);
    set_chain(&rig, &chain, 60);
    for (unsigned i = 0; i < 100; i++) {
        replay(&rig, &chain);
        replay(&rig, &other);
    }
    HOLDS(times_anew() == 0 && rig_plans() <= 2);
    drop_chain(&chain);
    drop_chain(&other);
    close_rig(&rig);
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
    HOLDS(rig_logged(told) && times_anew() >= 1 && times_anew() <= 7 && rig_plans() <= 9);
    drop_chain(&chain);
    close_rig(&rig);
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
        HOLDS(i + 1 != PASSES / 2 || (rig_logged(told) && times_anew() == 0));
    }
    HOLDS(times_anew() == 1);
    computes(300);
    for (unsigned i = 0; i < PASSES; i++) {
        drop_chain(&chain[i]);
    }
    close_rig(&rig);
}

/* Of two that take turns the one that copies more is watched, whichever comes first when times are known. */
static void largest_graph_is_watched(bool first)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    const struct chain small = chain_of(&rig, 0, 2, 100), large = chain_of(&rig, 2, COUNT, 100);
    const struct chain *const order[] = {first ? &large : &small, first ? &small : &large};
    unsigned launched = 0;
    while (launched < 200 && !rig_logged(told)) {
        replay(&rig, order[launched++ % 2]);
    }
    if (launched % 2 == 1) { /* the other one comes next */
        launched++;
    }
    for (unsigned i = 0; i < 100; i++) {
        replay(&rig, order[launched++ % 2]);
    }
    HOLDS(rig_logged(told) && times_anew() == 0);
    set_chain(&rig, &large, 300);
    for (unsigned i = 0; i < 100; i++) {
        replay(&rig, order[launched++ % 2]);
    }
    HOLDS(times_anew() == 1);
    drop_chain(&small);
    drop_chain(&large);
    close_rig(&rig);
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
        passes(&rig, 1, us);
    }
    for (uint32_t token = 0; token < 480; token++) { /* fewer than after which it is looked for */
        if (token % every == 0) {
            OK(cuMemcpyHtoD(rig.out, &token, sizeof token));
        }
        OK(cuGraphLaunch(chain[token % count].exec, stream));
    }
    HOLDS(!rig_logged(told));
    OK(cuStreamSynchronize(stream));
    HOLDS(lines_with(told, &ms) > 0);
    is_about(ms, (count * kernel_us + (count - 1) * us + last_us) / 1e3);
    /* Each was read when it was over. The first may begin with a launch that is tried out. */
    HOLDS(lines_with("intervals not known:", &unknown) > 0 && unknown <= 1);
    for (unsigned i = 0; i < count; i++) {
        drop_chain(&chain[i]);
    }
    OK(cuStreamDestroy(stream));
    close_rig(&rig);
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
    for (unsigned i = 0; i < 4000 && !rig_logged(told); i += 50) {
        for (unsigned k = 0; k < 50; k++) {
            OK(cuGraphLaunch(chain.exec, rig.stream));
        }
    }
    computes(200);
    OK(cuStreamSynchronize(rig.stream));
    drop_chain(&chain);
    close_rig(&rig);
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
        const bool was_told = rig_logged(told);
        if (cuGraphLaunch(chain.exec, rig.stream) != CUDA_SUCCESS) {
            HOLDS(!was_told);
            refused++;
        }
        OK(cuStreamSynchronize(rig.stream));
    }
    HOLDS(refused == (getenv("LAUNCHED_ALL_THE_SAME") == NULL));
    computes(100);
    HOLDS(lines_with("intervals not known:", &unknown) > 0 && unknown <= 1); /* that of a launch that is tried out */
    drop_chain(&chain);
    close_rig(&rig);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(trials_are_no_spread),
    CASE(prediction_is_off),
    CASE(times_are_told),
    CASE(change_is_noticed),
    CASE(steady_is_left_alone),
    CASE(kinds_that_take_turns),
    CASE(kinds_that_come_in_rows),
    CASE(host_that_is_late),
    CASE(pauses_between_passes),
    CASE(no_order),
    CASE(order_changes_meanwhile),
    CASE(order_changes_while_hushed),
    CASE(copies_that_slow_kernels),
    CASE(host_that_is_always_late),
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
