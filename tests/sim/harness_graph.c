/* See harness_graph.h. */
#include "harness_graph.h"

CUdeviceptr a, b;
CUstream s;
CUcontext context;
uint64_t words = WORDS;

void graph_prepare(void)
{
    context = start(0);
    a = device_words(WORDS);
    b = device_words(WORDS);
    OK(cuMemsetD32(a, 1, WORDS));
    OK(cuMemsetD32(b, 2, WORDS));
    OK(cuCtxSynchronize());
    s = new_stream();
}

CUgraph new_graph(void)
{
    CUgraph graph;
    OK(cuGraphCreate(&graph, 0));
    return graph;
}

CUDA_KERNEL_NODE_PARAMS kernel_params(const char *name, void **params)
{
    return (CUDA_KERNEL_NODE_PARAMS){.func = probe(name),
                                     .gridDimX = 2,
                                     .gridDimY = 1,
                                     .gridDimZ = 1,
                                     .blockDimX = 64,
                                     .blockDimY = 1,
                                     .blockDimZ = 1,
                                     .kernelParams = params};
}

CUgraphNode add_increment(CUgraph graph, const CUgraphNode *from, size_t count, CUdeviceptr target, uint32_t value)
{
    CUgraphNode node;
    CUDA_KERNEL_NODE_PARAMS params = kernel_params("probe_increment", (void *[]){&target, &value, &words});
    OK(cuGraphAddKernelNode(&node, graph, from, count, &params));
    return node;
}

CUDA_MEMCPY3D copy_params(CUdeviceptr in, CUdeviceptr out)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = in,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = out,
                           .WidthInBytes = 4 * WORDS,
                           .Height = 1,
                           .Depth = 1};
}

CUgraphNode add_copy(CUgraph graph, const CUgraphNode *from, size_t count, CUdeviceptr in, CUdeviceptr out)
{
    CUgraphNode node;
    const CUDA_MEMCPY3D params = copy_params(in, out);
    OK(cuGraphAddMemcpyNode(&node, graph, from, count, &params, context));
    return node;
}

CUgraphExec instantiate(CUgraph graph)
{
    CUgraphExec exec;
    OK(cuGraphInstantiate(&exec, graph, 0));
    return exec;
}

void run(CUgraphExec exec)
{
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
}
