/*
 * Changes of executable graphs whose weights are streamed inside of them: every way to change one, each followed by
 * launches that must see the change, also after the weights behind it have changed places.
 */
#include "graphs.h"

#include <malloc.h>
#include <string.h>

enum { COUNT = 6, NODES = 4 };

static struct rig rig;

/* The first forms, which programs built with CUDA 11 call. */
extern CUresult set_params_v1(CUgraphExec exec, CUgraphNode node,
                              const CUDA_KERNEL_NODE_PARAMS_v1 *params) __asm__("cuGraphExecKernelNodeSetParams");
extern CUresult update_v1(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node,
                          CUgraphExecUpdateResult *result) __asm__("cuGraphExecUpdate");

/* A chain of NODES reads; node i reads weight from[i] to out[to[i]]. */
struct chain {
    CUgraph graph;
    CUgraphNode node[NODES];
    CUgraphExec exec;
    unsigned from[NODES], to[NODES];
};

static CUgraph build(CUgraphNode *node, const unsigned *from, const unsigned *to)
{
    CUgraph graph = new_graph();
    for (unsigned i = 0; i < NODES; i++) {
        node[i] = add_read(&rig, graph, i > 0 ? &node[i - 1] : NULL, i > 0, from[i], to[i]);
    }
    return graph;
}

static void open_chain(struct chain *chain)
{
    open_streaming(&rig, COUNT, 2 * MIB);
    for (unsigned i = 0; i < NODES; i++) {
        chain->from[i] = chain->to[i] = i;
    }
    chain->graph = build(chain->node, chain->from, chain->to);
    chain->exec = make_exec(chain->graph);
}

static void close_chain(struct chain *chain)
{
    OK(cuGraphExecDestroy(chain->exec));
    OK(cuGraphDestroy(chain->graph));
    rig_close(&rig);
}

/* Launches three times and compares what was put where; then all weights are read, so that the ring holds others. */
static void check(const struct chain *chain, const char *step)
{
    uint32_t got[4096];
    for (int times = 0; times < 3; times++) {
        OK(cuMemsetD32Async(rig.out, 0, 4096, rig.stream));
        OK(cuGraphLaunch(chain->exec, rig.stream));
    }
    OK(cuStreamSynchronize(rig.stream));
    OK(cuMemcpyDtoH(got, rig.out, sizeof got));
    for (unsigned i = 0; i < NODES; i++) {
        const struct rig_weight *weight = &rig.weight[chain->from[i]];
        if (got[chain->to[i]] != rig_digest(weight->host, weight->bytes / 4)) {
            rig_fail(RIG_EXIT_WRONG, "%s: node %u has not read weight %u", step, i, chain->from[i]);
        }
    }
    tell(step, rig_digest(got, 4096));
    rig_pass(&rig, NULL, 0);
    graphs_streamed();
}

/* ---- one kernel node */

static CUresult set(const struct chain *chain, unsigned i)
{
    CUdeviceptr in = rig.weight[chain->from[i]].address, out = rig.out + 4 * chain->to[i];
    uint64_t words = rig.weight[chain->from[i]].bytes / 4;
    const CUDA_KERNEL_NODE_PARAMS params = read_params(&rig, (void *[]){&in, &out, &words});
    return cuGraphExecKernelNodeSetParams(chain->exec, chain->node[i], &params);
}

static void other_weights(void)
{
    struct chain chain;
    open_chain(&chain);
    check(&chain, "before");
    for (unsigned round = 1; round < 8; round++) {
        for (unsigned i = 0; i < NODES; i++) {
            chain.from[i] = (i * (round % 3 + 1) + round) % COUNT;
            say("set", set(&chain, i));
        }
        check(&chain, "other weights");
    }
    close_chain(&chain);
}

/* The weights stay the same, so the copies in the graph do, too; what the kernel is told otherwise changes. */
static void other_results(void)
{
    struct chain chain;
    open_chain(&chain);
    check(&chain, "before");
    for (unsigned round = 1; round < 5; round++) {
        for (unsigned i = 0; i < NODES; i++) {
            chain.to[i] = 100 * round + i;
            say("set", set(&chain, i));
        }
        check(&chain, "other results");
    }
    close_chain(&chain);
}

/* Between two launches that nothing waits for. */
static void in_flight(void)
{
    struct chain chain;
    open_chain(&chain);
    for (unsigned round = 0; round < 6; round++) {
        OK(cuGraphLaunch(chain.exec, rig.stream));
        chain.from[round % NODES] = round;
        say("set", set(&chain, round % NODES));
        check(&chain, "in flight");
    }
    close_chain(&chain);
}

static void first_form(void)
{
    struct chain chain;
    open_chain(&chain);
    for (unsigned round = 1; round < 5; round++) {
        CUdeviceptr in = rig.weight[round].address, out = rig.out + 4 * 7;
        uint64_t words = rig.weight[round].bytes / 4;
        const CUDA_KERNEL_NODE_PARAMS params = read_params(&rig, (void *[]){&in, &out, &words});
        CUDA_KERNEL_NODE_PARAMS_v1 old;
        memcpy(&old, &params, sizeof old);
        chain.from[1] = round;
        chain.to[1] = 7;
        say("set", set_params_v1(chain.exec, chain.node[1], &old));
        check(&chain, "first form");
    }
    close_chain(&chain);
}

static void any_form(void)
{
    struct chain chain;
    open_chain(&chain);
    for (unsigned round = 1; round < 5; round++) {
        CUdeviceptr in = rig.weight[round].address, out = rig.out + 4 * 9;
        uint64_t words = rig.weight[round].bytes / 4;
        void *values[] = {&in, &out, &words};
        CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL,
                                    .kernel = {.func = rig_kernel(&rig, "probe_digest"),
                                               .gridDimX = 1,
                                               .gridDimY = 1,
                                               .gridDimZ = 1,
                                               .blockDimX = 32,
                                               .blockDimY = 1,
                                               .blockDimZ = 1,
                                               .kernelParams = values}};
        chain.from[2] = round;
        chain.to[2] = 9;
        say("set", cuGraphExecNodeSetParams(chain.exec, chain.node[2], &params));
        check(&chain, "any form");
    }
    close_chain(&chain);
}

/* What the driver returned is changed in place, in the program's graph, and given back for the executable one. */
static void through_returned_pointers(void)
{
    struct chain chain;
    open_chain(&chain);
    for (unsigned round = 1; round < 5; round++) {
        for (unsigned i = 0; i < NODES; i++) {
            CUDA_KERNEL_NODE_PARAMS params;
            OK(cuGraphKernelNodeGetParams(chain.node[i], &params));
            chain.from[i] = (i + round) % COUNT;
            *(CUdeviceptr *)params.kernelParams[0] = rig.weight[chain.from[i]].address;
            say("set", cuGraphExecKernelNodeSetParams(chain.exec, chain.node[i], &params));
        }
        check(&chain, "through pointers");
    }
    close_chain(&chain);
}

/* A node of another graph, a wrong one, nothing: refused, and nothing changes. */
static void refused(void)
{
    struct chain chain, other;
    open_chain(&chain);
    other.graph = build(other.node, chain.to, chain.to);
    CUdeviceptr in = rig.weight[5].address, out = rig.out;
    uint64_t words = 4;
    const CUDA_KERNEL_NODE_PARAMS params = read_params(&rig, (void *[]){&in, &out, &words});
    check(&chain, "before");
    say("another graph's", cuGraphExecKernelNodeSetParams(chain.exec, other.node[0], &params));
    say("nothing", cuGraphExecKernelNodeSetParams(chain.exec, chain.node[0], NULL));
    say("no node", cuGraphExecKernelNodeSetParams(chain.exec, NULL, &params));
    const CUDA_MEMSET_NODE_PARAMS fill = {.dst = rig.out, .elementSize = 4, .width = 1, .height = 1};
    say("another kind", cuGraphExecMemsetNodeSetParams(chain.exec, chain.node[0], &fill, rig.context));
    check(&chain, "refused");
    OK(cuGraphDestroy(other.graph));
    close_chain(&chain);
}

/* ---- the whole graph */

static void whole(bool first)
{
    struct chain chain;
    open_chain(&chain);
    check(&chain, "before");
    for (unsigned round = 1; round < 8; round++) {
        CUgraphNode node[NODES], error_node;
        CUgraphExecUpdateResultInfo info;
        CUgraphExecUpdateResult code;
        for (unsigned i = 0; i < NODES; i++) {
            chain.from[i] = (i * 5 + round) % COUNT;
            chain.to[i] = 10 * round + i;
        }
        CUgraph graph = build(node, chain.from, chain.to);
        say("update",
            first ? update_v1(chain.exec, graph, &error_node, &code) : cuGraphExecUpdate(chain.exec, graph, &info));
        tell("why", first ? (long long)code : (long long)info.result);
        OK(cuGraphDestroy(graph));
        check(&chain, "updated");
        chain.from[1] = 5; /* nodes keep the names of the first graph */
        say("set", set(&chain, 1));
        check(&chain, "and set");
    }
    close_chain(&chain);
}

static void whole_graph(void)
{
    whole(false);
}

static void whole_graph_first_form(void)
{
    whole(true);
}

/* The same weights, other results. */
static void whole_graph_same_weights(void)
{
    struct chain chain;
    open_chain(&chain);
    check(&chain, "before");
    for (unsigned round = 1; round < 4; round++) {
        CUgraphNode node[NODES];
        CUgraphExecUpdateResultInfo info;
        for (unsigned i = 0; i < NODES; i++) {
            chain.to[i] = 10 * round + i;
        }
        CUgraph graph = build(node, chain.from, chain.to);
        say("update", cuGraphExecUpdate(chain.exec, graph, &info));
        OK(cuGraphDestroy(graph));
        check(&chain, "updated");
    }
    close_chain(&chain);
}

/* With one node more: refused, and nothing changes. */
static void another_shape(void)
{
    struct chain chain;
    CUgraphNode node[NODES];
    CUgraphExecUpdateResultInfo info;
    open_chain(&chain);
    check(&chain, "before");
    CUgraph graph = build(node, chain.to, chain.to);
    (void)add_read(&rig, graph, &node[NODES - 1], 1, 5, 5);
    say("update", cuGraphExecUpdate(chain.exec, graph, &info));
    tell("why", info.result);
    OK(cuGraphDestroy(graph));
    check(&chain, "as before");
    close_chain(&chain);
}

/* ---- other nodes */

/* A fill and a copy beside reads of streamed weights get other places and values. */
static void copies_and_fills(void)
{
    struct chain chain;
    CUgraphNode fill_node, copy_node;
    uint32_t got[64];
    open_chain(&chain);
    OK(cuGraphExecDestroy(chain.exec));
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = rig.out + 400, .value = 3, .elementSize = 4, .width = 8, .height = 1};
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = rig.out + 400,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = rig.out + 800,
                          .WidthInBytes = 32,
                          .Height = 1,
                          .Depth = 1};
    OK(cuGraphAddMemsetNode(&fill_node, chain.graph, &chain.node[1], 1, &fill, rig.context));
    OK(cuGraphAddMemcpyNode(&copy_node, chain.graph, &fill_node, 1, &copy, rig.context));
    chain.exec = make_exec(chain.graph);
    check(&chain, "before");
    for (unsigned round = 1; round < 5; round++) {
        fill.dst = rig.out + 400 + 32 * round;
        fill.value = 10 + round;
        copy.srcDevice = fill.dst;
        copy.dstDevice = rig.out + 1200 + 32 * round;
        say("fill", cuGraphExecMemsetNodeSetParams(chain.exec, fill_node, &fill, rig.context));
        say("copy", cuGraphExecMemcpyNodeSetParams(chain.exec, copy_node, &copy, rig.context));
        check(&chain, "changed");
        OK(cuMemcpyDtoH(got, copy.dstDevice, 32));
        tell("copied", got[7]);
    }
    close_chain(&chain);
}

static int first_calls, second_calls;

static void CUDA_CB call_first(void *data)
{
    (void)data;
    first_calls++;
}

static void CUDA_CB call_second(void *data)
{
    (void)data;
    second_calls++;
}

static void host_functions_and_events(void)
{
    struct chain chain;
    CUgraphNode host_node, event_node;
    CUevent first, second;
    open_chain(&chain);
    OK(cuGraphExecDestroy(chain.exec));
    OK(cuEventCreate(&first, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&second, CU_EVENT_DISABLE_TIMING));
    CUDA_HOST_NODE_PARAMS host = {call_first, NULL};
    OK(cuGraphAddHostNode(&host_node, chain.graph, &chain.node[0], 1, &host));
    OK(cuGraphAddEventRecordNode(&event_node, chain.graph, &chain.node[3], 1, first));
    chain.exec = make_exec(chain.graph);
    check(&chain, "before");
    tell("first", first_calls);
    host.fn = call_second;
    say("host", cuGraphExecHostNodeSetParams(chain.exec, host_node, &host));
    say("event", cuGraphExecEventRecordNodeSetEvent(chain.exec, event_node, second));
    check(&chain, "changed");
    tell("first", first_calls);
    tell("second", second_calls);
    say("recorded", cuEventSynchronize(second));
    OK(cuEventDestroy(first));
    OK(cuEventDestroy(second));
    close_chain(&chain);
}

/* Another kernel, which is not known at all. */
static void another_kernel(void)
{
    struct chain chain;
    uint32_t got;
    open_chain(&chain);
    check(&chain, "before");
    CUdeviceptr in = rig.weight[5].address, out = rig.out + 4000;
    uint64_t words = 1;
    CUDA_KERNEL_NODE_PARAMS params = read_params(&rig, (void *[]){&in, &out, &words});
    params.func = rig_kernel(&rig, "probe_copy");
    say("set", cuGraphExecKernelNodeSetParams(chain.exec, chain.node[3], &params));
    for (int times = 0; times < 4; times++) {
        OK(cuMemsetD32Async(out, 0, 1, rig.stream));
        OK(cuGraphLaunch(chain.exec, rig.stream));
        OK(cuStreamSynchronize(rig.stream));
        OK(cuMemcpyDtoH(&got, out, sizeof got));
        HOLDS(got == rig.weight[5].host[0]);
        rig_pass(&rig, NULL, 0);
    }
    tell("copied", got);
    say("set back", set(&chain, 3));
    check(&chain, "as before");
    close_chain(&chain);
}

/* A graph whose child was exchanged, which cannot be followed: further changes take the place of earlier ones, so what
 * is known of the graph does not grow. */
static void changed_a_thousand_times(void)
{
    enum { TIMES = 1000 };
    CUgraphNode child, after;
    open_streaming(&rig, COUNT, 2 * MIB);
    CUgraph inner[2] = {new_graph(), new_graph()}, graph = new_graph();
    add_reads(&rig, inner[0], 0, 1);
    add_reads(&rig, inner[1], 1, 2);
    OK(cuGraphAddChildGraphNode(&child, graph, NULL, 0, inner[0]));
    after = add_read(&rig, graph, &child, 1, 2, 2);
    CUgraphExec exec = make_exec(graph);
    size_t before = 0;
    for (unsigned i = 0; i < TIMES; i++) {
        CUdeviceptr in = rig.weight[2 + i % (COUNT - 2)].address, out = rig.out + 4 * (2 + i % (COUNT - 2));
        uint64_t words = MIB / 2;
        CUDA_KERNEL_NODE_PARAMS params = read_params(&rig, (void *[]){&in, &out, &words});
        OK(cuGraphExecChildGraphNodeSetParams(exec, child, inner[i % 2]));
        OK(cuGraphExecKernelNodeSetParams(exec, after, &params));
        if (i % 100 == 99) {
            OK(cuGraphLaunch(exec, rig.stream));
            OK(cuStreamSynchronize(rig.stream));
        }
        if (i == TIMES / 10) {
            before = mallinfo2().uordblks;
        }
    }
    HOLDS(mallinfo2().uordblks < before + TIMES * 200);
    rig_pass(&rig, NULL, 0);
    check_out(&rig, "changed often");
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuGraphDestroy(inner[0]));
    OK(cuGraphDestroy(inner[1]));
    rig_close(&rig);
}

/* ---- changed while everything fits */

/* What the chain reads changes so often that nobody looks any more; then weights come that do not fit. */
static void open_changed_often(struct chain *chain)
{
    rig_open_with(&rig, 2, 2 * MIB);
    for (unsigned i = 0; i < NODES; i++) {
        chain->from[i] = i % 2;
        chain->to[i] = i;
    }
    chain->graph = build(chain->node, chain->from, chain->to);
    chain->exec = make_exec(chain->graph);
    for (unsigned round = 0; round < 20; round++) {
        CUgraphExecUpdateResultInfo info = {0};
        CUgraphNode node[NODES];
        chain->from[round % NODES] ^= 1;
        CUgraph graph = build(node, chain->from, chain->to);
        OK(cuGraphExecUpdate(chain->exec, graph, &info));
        OK(cuGraphDestroy(graph));
        OK(cuGraphLaunch(chain->exec, rig.stream));
        OK(cuStreamSynchronize(rig.stream));
    }
    for (unsigned i = 2; i < COUNT; i++) {
        (void)rig_add(&rig, 2 * MIB);
    }
    if (with_shim()) {
        rig_until_streamed(&rig);
    }
}

static void changed_while_all_fits(void)
{
    struct chain chain;
    CUgraphExecUpdateResultInfo info = {0};
    CUgraphNode node[NODES];
    open_changed_often(&chain);
    for (unsigned i = 0; i < NODES; i++) {
        chain.from[i] = COUNT - 1 - i;
    }
    CUgraph graph = build(node, chain.from, chain.to);
    OK(cuGraphExecUpdate(chain.exec, graph, &info));
    OK(cuGraphDestroy(graph));
    check(&chain, "changed once more");
    close_chain(&chain);
}

/* Nobody knows what it does. */
static void launched_as_it_was_while_all_fitted(void)
{
    struct chain chain;
    uint32_t got[NODES];
    open_changed_often(&chain);
    OK(cuMemsetD32Async(rig.out, 0, 4096, rig.stream));
    OK(cuGraphLaunch(chain.exec, rig.stream));
    OK(cuStreamSynchronize(rig.stream));
    OK(cuMemcpyDtoH(got, rig.out, sizeof got));
    for (unsigned i = 0; i < NODES; i++) {
        const struct rig_weight *weight = &rig.weight[chain.from[i]];
        if (got[i] != rig_digest(weight->host, weight->bytes / 4)) {
            rig_fail(RIG_EXIT_WRONG, "node %u has not read weight %u", i, chain.from[i]);
        }
    }
    tell("as it was", rig_digest(got, NODES));
    HOLDS(!with_shim() || rig_logged("changed again and again"));
    rig_pass(&rig, NULL, 0);
    close_chain(&chain);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(other_weights),
    CASE(other_results),
    CASE(in_flight),
    CASE(first_form),
    CASE(any_form),
    CASE(through_returned_pointers),
    CASE(refused),
    CASE(whole_graph),
    CASE(whole_graph_first_form),
    CASE(whole_graph_same_weights),
    CASE(another_shape),
    CASE(copies_and_fills),
    CASE(host_functions_and_events),
    CASE(another_kernel),
    CASE(changed_a_thousand_times),
    CASE(changed_while_all_fits),
    CASE(launched_as_it_was_while_all_fitted),
};
RIG_MAIN(cases)
