/*
 * Units of which a pass reads a part are read in place in host memory, wherever they stood when they were loaded; those
 * that are read whole are not, and what changes from one to the other does so once. The pass is right all along.
 */
#include "rig_graph.h"

#include <string.h>

enum { COUNT = 10, IDS = 64, PASSES = 24 };
static const size_t weight_bytes = 4 * MIB, table_bytes = 64 * MIB;
static const char in_part[] = "read in part, ", as_a_whole[] = "read as a whole after all";

static void add_weights(struct rig *rig)
{
    for (unsigned i = 0; i < COUNT; i++) {
        (void)rig_add(rig, weight_bytes);
    }
}

/* Reads IDS words of the table. */
static void look_up(struct rig *rig, unsigned table, unsigned pass)
{
    uint32_t ids[IDS], got[IDS];
    CUdeviceptr in = rig->weight[table].address, at = rig->out + 8192, out = rig->out + 12288;
    uint64_t count = IDS;
    void *params[] = {&in, &at, &out, &count};
    for (unsigned i = 0; i < IDS; i++) {
        ids[i] = (i * 2654435761u + pass * 97) % (uint32_t)(table_bytes / 4);
    }
    OK(cuMemcpyHtoD(at, ids, sizeof ids));
    rig_launch(rig, "probe_gather", rig->stream, params);
    OK(cuStreamSynchronize(rig->stream));
    OK(cuMemcpyDtoH(got, out, sizeof got));
    for (unsigned i = 0; i < IDS; i++) {
        if (got[i] != rig->weight[table].host[ids[i]]) {
            rig_fail(RIG_EXIT_WRONG, "pass %u: a word of the table is wrong", pass);
        }
    }
}

/* How passes read the table. */
enum reads { PART = 1, WHOLE = 2 };

static void run(struct rig *rig, unsigned table, unsigned passes, unsigned reads)
{
    unsigned order[RIG_WEIGHTS], count = 0;
    for (unsigned i = 0; i < rig->count; i++) {
        order[count] = i;
        count += i != table || (reads & WHOLE) != 0;
    }
    for (unsigned pass = 0; pass < passes; pass++) {
        if (reads & PART) {
            look_up(rig, table, pass);
        }
        rig_pass(rig, order, count);
    }
}

/* One plan is enough, and it stays. */
static void holds_in_part(struct rig *rig, unsigned table)
{
    run(rig, table, PASSES, PART);
    HOLDS(rig_logged(in_part) && !rig_logged(as_a_whole));
    HOLDS(rig_plans() <= 2);
    rig_close(rig);
}

/* It stands on the device while the program is watched. */
static void loaded_first(void)
{
    struct rig rig;
    rig_open(&rig, 0);
    const unsigned table = rig_add(&rig, table_bytes);
    add_weights(&rig);
    holds_in_part(&rig, table);
}

/* It stands in host memory from the beginning. */
static void loaded_last(void)
{
    struct rig rig;
    rig_open(&rig, 0);
    add_weights(&rig);
    holds_in_part(&rig, rig_add(&rig, table_bytes));
}

/* Weights and table together have less room than the weights alone need: those are streamed, it is not. */
static void beside_streamed(void)
{
    struct rig rig;
    rig_open(&rig, 0);
    const unsigned table = rig_add(&rig, table_bytes);
    add_weights(&rig);
    run(&rig, table, PASSES, PART);
    HOLDS(rig_logged(in_part) && rig_streamed_mib() > 0 && rig_streamed_mib() <= COUNT * weight_bytes / MIB);
    rig_close(&rig);
}

/* Looked up at the beginning of a pass, read as a whole at its end, as tied embeddings are. */
static void tied(void)
{
    struct rig rig;
    rig_open(&rig, 0);
    const unsigned table = rig_add(&rig, table_bytes);
    add_weights(&rig);
    run(&rig, table, PASSES, PART | WHOLE);
    HOLDS(rig_plans() > 0 && !rig_logged(in_part));
    rig_close(&rig);
}

/* Read in part for some passes, as a whole from then on: that is seen, and no further plan goes back. */
static void becomes_dense(void)
{
    struct rig rig;
    rig_open(&rig, 0);
    const unsigned table = rig_add(&rig, table_bytes);
    add_weights(&rig);
    run(&rig, table, PASSES, PART);
    HOLDS(rig_logged(in_part) && !rig_logged(as_a_whole));
    run(&rig, table, 2 * PASSES, WHOLE);
    HOLDS(rig_logged(as_a_whole) && rig_streamed_mib() + 76 >= 104);
    const unsigned plans = rig_plans();
    run(&rig, table, PASSES, PART);
    HOLDS(rig_plans() == plans);
    rig_close(&rig);
}

/* Read in part by launches, and from some time on as a whole by a graph, whose launches nobody times. */
static void graph_reads_whole(void)
{
    struct rig rig;
    CUgraph graph;
    uint32_t got;
    rig_open(&rig, 0);
    const unsigned table = rig_add(&rig, table_bytes);
    add_weights(&rig);
    run(&rig, table, PASSES / 2, PART);
    HOLDS(rig_logged(in_part));
    OK(cuStreamBeginCapture(rig.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    rig_read(&rig, table, 4000, rig.stream);
    CUgraphExec exec = rig_end_capture(&rig, &graph);
    const unsigned plans = rig_plans();
    for (unsigned pass = 0; pass < PASSES / 2; pass++) {
        run(&rig, table, 1, PART);
        OK(cuGraphLaunch(exec, rig.stream));
        OK(cuStreamSynchronize(rig.stream));
        OK(cuMemcpyDtoH(&got, rig.out + 4 * 4000, 4));
        HOLDS(got == rig_digest(rig.weight[table].host, table_bytes / 4));
    }
    HOLDS(rig_plans() > plans && rig_plans() <= plans + 2 && rig_streamed_mib() > 0);
    rig_drop_graph(exec, graph);
    rig_close(&rig);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(loaded_first), CASE(loaded_last),   CASE(beside_streamed),
    CASE(tied),         CASE(becomes_dense), CASE(graph_reads_whole),
};
RIG_MAIN(cases)
