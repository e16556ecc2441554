#include "graphs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OUT_WORDS = 4096, PATIENCE_PASSES = 24 };

void say(const char *step, CUresult result)
{
    printf("%s: %d\n", step, (int)result);
}

void tell(const char *what, long long value)
{
    printf("%s: %lld\n", what, value);
}

bool with_shim(void)
{
    return getenv("OVERSHOT_LOG_FILE") != NULL;
}

void open_streaming(struct rig *rig, unsigned count, size_t bytes)
{
    rig_open_with(rig, count, bytes);
    if (with_shim()) {
        rig_until_streamed(rig);
    } else {
        rig_pass(rig, NULL, 0);
    }
}

void graphs_streamed(void)
{
    if (with_shim() && rig_streamed_mib() == 0) {
        rig_fail(RIG_EXIT_SELF, "no weights are streamed any more");
    }
}

CUgraph capture_pass(struct rig *rig, CUstream stream, CUstreamCaptureMode mode)
{
    CUgraph graph;
    OK(cuStreamBeginCapture(stream, mode));
    for (unsigned i = 0; i < rig->count; i++) {
        rig_read(rig, i, i, stream);
    }
    OK(cuStreamEndCapture(stream, &graph));
    return graph;
}

CUgraphExec make_exec(CUgraph graph)
{
    CUgraphExec exec;
    OK(cuGraphInstantiate(&exec, graph, 0));
    return exec;
}

static uint32_t compare_out(struct rig *rig)
{
    uint32_t got[OUT_WORDS];
    OK(cuMemcpyDtoH(got, rig->out, sizeof got));
    rig_compare(rig, got, NULL, rig->count);
    return rig_digest(got, rig->count);
}

void check_out(struct rig *rig, const char *step)
{
    tell(step, compare_out(rig));
}

void clear_out(struct rig *rig, CUstream stream)
{
    OK(cuMemsetD32Async(rig->out, 0, rig->count, stream));
}

void replay(struct rig *rig, CUgraphExec exec, int times)
{
    uint32_t digest = 0;
    for (int i = 0; i < times; i++) {
        clear_out(rig, rig->stream);
        OK(cuGraphLaunch(exec, rig->stream));
        OK(cuStreamSynchronize(rig->stream));
        digest = digest * 31u + compare_out(rig);
    }
    tell("replayed", digest);
}

CUDA_KERNEL_NODE_PARAMS read_params(const struct rig *rig, void **params)
{
    return (CUDA_KERNEL_NODE_PARAMS){.func = rig_kernel(rig, "probe_digest"),
                                     .gridDimX = 1,
                                     .gridDimY = 1,
                                     .gridDimZ = 1,
                                     .blockDimX = 32,
                                     .blockDimY = 1,
                                     .blockDimZ = 1,
                                     .kernelParams = params};
}

CUgraphNode add_read(struct rig *rig, CUgraph graph, const CUgraphNode *from, size_t count, unsigned index,
                     unsigned slot)
{
    CUgraphNode node;
    CUdeviceptr in = rig->weight[index].address, out = rig->out + 4 * slot;
    uint64_t words = rig->weight[index].bytes / 4;
    CUDA_KERNEL_NODE_PARAMS params = read_params(rig, (void *[]){&in, &out, &words});
    OK(cuGraphAddKernelNode(&node, graph, from, count, &params));
    return node;
}

CUgraph chain_of_reads(struct rig *rig)
{
    CUgraph graph = new_graph();
    add_reads(rig, graph, 0, rig->count);
    return graph;
}

void add_reads(struct rig *rig, CUgraph graph, unsigned from, unsigned to)
{
    CUgraphNode last = NULL;
    for (unsigned i = from; i < to; i++) {
        last = add_read(rig, graph, &last, i > from, i, i);
    }
}

CUgraph new_graph(void)
{
    CUgraph graph;
    OK(cuGraphCreate(&graph, 0));
    return graph;
}

void replay_and_close(struct rig *rig, CUgraph graph, CUgraphExec exec)
{
    for (int round = 0; round < 4; round++) {
        replay(rig, exec, 2);
        rig_pass(rig, NULL, 0);
    }
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    rig_close(rig);
}

CUresult launch_with(const struct rig *rig, unsigned index, unsigned slot, CUstream stream,
                     CUlaunchAttribute *attribute, unsigned attributes)
{
    CUdeviceptr in = rig->weight[index].address, out = rig->out + 4 * slot;
    uint64_t words = rig->weight[index].bytes / 4;
    const CUlaunchConfig config = {.gridDimX = 1,
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = 32,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .hStream = stream,
                                   .attrs = attribute,
                                   .numAttrs = attributes};
    return cuLaunchKernelEx(&config, rig_kernel(rig, "probe_digest"), (void *[]){&in, &out, &words}, NULL);
}

CUgraphNode add_control(struct rig *rig, CUgraph graph, const CUgraphNode *from, size_t count, const char *name,
                        void **params)
{
    static CUmodule module;
    CUgraphNode node;
    CUDA_KERNEL_NODE_PARAMS kernel = read_params(rig, params);
    if (module == NULL) {
        OK(cuModuleLoad(&module, GRAPH_CONTROL_IMAGE));
    }
    OK(cuModuleGetFunction(&kernel.func, module, name));
    OK(cuGraphAddKernelNode(&node, graph, from, count, &kernel));
    return node;
}
