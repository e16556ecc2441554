/*
 * OVERSHOT_STALL: a weight that is used out of turn is told of, or the launch that uses it is refused before it runs
 * and taken when it is made again. The bytes are right in any case.
 */
#include "rig_graph.h"

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 12 };
static const size_t weight_bytes = 4 * MIB;
extern char **environ;

static void open_steady(struct rig *rig)
{
    rig_open_with(rig, COUNT, weight_bytes);
    rig_until_streamed(rig);
    for (int pass = 0; pass < 3; pass++) {
        rig_pass(rig, NULL, 0);
    }
}

static CUresult try_read(const struct rig *rig, unsigned index)
{
    CUdeviceptr in = rig->weight[index].address, out = rig->out + 4 * index;
    uint64_t words = weight_bytes / 4;
    void *params[] = {&in, &out, &words};
    return cuLaunchKernel(rig_kernel(rig, "probe_digest"), 1, 1, 1, 32, 1, 1, 0, rig->stream, params, NULL);
}

static void compare_all(struct rig *rig)
{
    uint32_t got[4096];
    OK(cuStreamSynchronize(rig->stream));
    OK(cuMemcpyDtoH(got, rig->out, sizeof got));
    rig_compare(rig, got, NULL, COUNT);
}

/* Passes in an order that changes each time; what is refused is launched again. Returns how often that was. */
static unsigned passes_out_of_order(struct rig *rig, unsigned passes)
{
    unsigned refused = 0;
    for (unsigned pass = 0; pass < passes; pass++) {
        OK(cuMemsetD32Async(rig->out, 0, COUNT, rig->stream));
        for (unsigned i = 0; i < COUNT; i++) {
            const unsigned index = (i * (pass % 2 == 0 ? 7 : 5) + pass) % COUNT;
            CUresult result = try_read(rig, index);
            if (result == CUDA_ERROR_NOT_PERMITTED) {
                refused++;
                result = try_read(rig, index);
            }
            OK(result);
        }
        compare_all(rig);
    }
    return refused;
}

/* Lines of the log that hold `text`; the number that follows the last comma of the last of them. */
static unsigned count_lines(const char *log, const char *text, unsigned *total)
{
    char line[512];
    unsigned count = 0;
    FILE *file = fopen(log, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strstr(line, text) != NULL) {
            const char *comma = strrchr(line, ',');
            count++;
            *total = comma != NULL ? (unsigned)strtoul(comma + 2, NULL, 10) : 0;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return count;
}

static void says_nothing(void)
{
    struct rig rig;
    open_steady(&rig);
    HOLDS(passes_out_of_order(&rig, 6) == 0);
    HOLDS(!rig_logged("neither on the GPU"));
    rig_close(&rig);
}

/* As often as the number of misses has doubled, the first time with its own name. */
static void names_them(void)
{
    struct rig rig;
    unsigned total = 0, most = 0;
    open_steady(&rig);
    HOLDS(!rig_logged("neither on the GPU"));
    HOLDS(passes_out_of_order(&rig, 6) == 0);
    HOLDS(rig_logged("a copy was waited for: kernel probe_digest: weight "));
    HOLDS(rig_logged("(4 MiB at 0 MiB of allocation "));
    HOLDS(rig_logged("neither on the GPU nor on its way: 1 so far, 1 with all weights"));
    const unsigned lines = count_lines(getenv("OVERSHOT_LOG_FILE"), "neither on the GPU", &total);
    HOLDS(total >= 4 && (total & (total - 1)) == 0);
    for (unsigned n = total; n > 0; n /= 2) {
        most++;
    }
    HOLDS(lines == most);
    rig_close(&rig);
}

static void refuses_and_goes_on(void)
{
    struct rig rig;
    unsigned total = 0;
    open_steady(&rig);
    const unsigned refused = passes_out_of_order(&rig, 6);
    HOLDS(refused >= 4);
    HOLDS(rig_logged("launch refused (OVERSHOT_STALL=error): kernel probe_digest: weight "));
    HOLDS(count_lines(getenv("OVERSHOT_LOG_FILE"), "launch refused", &total) == refused && total == refused);
    rig_close(&rig);
}

/* A launch that is refused has not run: what it writes is as it was. */
static void refused_has_not_run(void)
{
    struct rig rig;
    unsigned refused = 0;
    open_steady(&rig);
    for (unsigned round = 0; round < 2 * COUNT; round++) {
        const unsigned index = (round * 5 + 3) % COUNT;
        uint32_t before = 0xabcdef, after = 0;
        OK(cuMemcpyHtoD(rig.out + 4 * index, &before, 4));
        CUresult result = try_read(&rig, index);
        OK(cuStreamSynchronize(rig.stream));
        OK(cuMemcpyDtoH(&after, rig.out + 4 * index, 4));
        if (result == CUDA_ERROR_NOT_PERMITTED) {
            HOLDS(after == before);
            refused++;
        } else {
            OK(result);
        }
    }
    HOLDS(refused > 0);
    rig_close(&rig);
}

/* While the plan is followed nothing is refused, from the first launch on. */
static void in_turn(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_until_streamed(&rig);
    for (int pass = 0; pass < 10; pass++) {
        rig_pass(&rig, NULL, 0);
    }
    HOLDS(!rig_logged("neither on the GPU"));
    rig_close(&rig);
}

/* The first whole cycle under a plan is free, in whatever order. */
static void first_cycle_is_free(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    for (int pass = 0; pass < 24 && rig_streamed_mib() == 0; pass++) {
        rig_pass(&rig, NULL, 0);
    }
    HOLDS(rig_streamed_mib() > 0);
    HOLDS(passes_out_of_order(&rig, 1) == 0);
    HOLDS(passes_out_of_order(&rig, 4) > 0);
    rig_close(&rig);
}

/* Reads half of the weights, from `first` on, in a graph. */
static CUgraphExec capture_half(struct rig *rig, CUgraph *graph, unsigned first)
{
    OK(cuStreamBeginCapture(rig->stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    for (unsigned i = first; i < first + COUNT / 2; i++) {
        rig_read(rig, i, i, rig->stream);
    }
    return rig_end_capture(rig, graph);
}

static bool launch_graph(struct rig *rig, CUgraphExec exec)
{
    CUresult result = cuGraphLaunch(exec, rig->stream);
    const bool refused = result == CUDA_ERROR_NOT_PERMITTED;
    OK(refused ? cuGraphLaunch(exec, rig->stream) : result);
    return refused;
}

/* Two graphs follow each other until each loads what the other begins with; then something comes between them. Returns
 * how often a graph was refused. */
static unsigned part_graphs(struct rig *rig)
{
    CUgraph graph[2];
    unsigned refused = 0;
    CUgraphExec first = capture_half(rig, &graph[0], 0), second = capture_half(rig, &graph[1], COUNT / 2);
    for (unsigned round = 0; round < 24; round++) {
        OK(cuMemsetD32Async(rig->out, 0, COUNT, rig->stream));
        refused += launch_graph(rig, first);
        if (round >= 16) {
            CUresult result = try_read(rig, round % 5);
            OK(result == CUDA_ERROR_NOT_PERMITTED ? try_read(rig, round % 5) : result);
        }
        refused += launch_graph(rig, second);
        compare_all(rig);
    }
    rig_drop_graph(first, graph[0]);
    rig_drop_graph(second, graph[1]);
    return refused;
}

static void graphs(void)
{
    struct rig rig;
    open_steady(&rig);
    HOLDS(part_graphs(&rig) > 0);
    HOLDS(rig_logged("launch refused (OVERSHOT_STALL=error): a graph: weight "));
    rig_close(&rig);
}

/* Their nodes are launched one by one, since there is no memory for other graphs: half a graph is never left. */
static void replayed_graphs(void)
{
    struct rig rig;
    open_steady(&rig);
    HOLDS(part_graphs(&rig) == 0);
    HOLDS(rig_logged("a copy was waited for: kernel probe_digest"));
    rig_close(&rig);
}

/* The child of said_at_exit. */
static void ends_without_waiting(void)
{
    struct rig rig;
    open_steady(&rig);
    for (unsigned i = 0; i < COUNT; i++) {
        OK(try_read(&rig, (i * 7 + 3) % COUNT));
    }
    exit(0);
}

static void said_at_exit(void)
{
    char log[512], *arguments[] = {"t_stall", "ends_without_waiting", NULL};
    int status = 0;
    unsigned total = 0;
    pid_t child;
    snprintf(log, sizeof log, "%s.child", getenv("OVERSHOT_LOG_FILE"));
    unlink(log);
    HOLDS(setenv("OVERSHOT_LOG_FILE", log, 1) == 0);
    HOLDS(posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ) == 0);
    HOLDS(waitpid(child, &status, 0) == child && status == 0);
    HOLDS(count_lines(log, "neither on the GPU", &total) > 0);
}

#define CASE(function)       \
    {                        \
#function, function, \
    }
static const struct rig_case cases[] = {
    CASE(says_nothing),
    CASE(names_them),
    CASE(refuses_and_goes_on),
    CASE(refused_has_not_run),
    CASE(in_turn),
    CASE(first_cycle_is_free),
    CASE(graphs),
    CASE(replayed_graphs),
    CASE(said_at_exit),
    CASE(ends_without_waiting),
};

RIG_MAIN(cases)
