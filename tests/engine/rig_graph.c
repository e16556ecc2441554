#include "rig_graph.h"

CUDA_KERNEL_NODE_PARAMS rig_kernel_node(const struct rig *rig, const char *name, void **params)
{
    return (CUDA_KERNEL_NODE_PARAMS){.func = rig_kernel(rig, name),
                                     .gridDimX = 1,
                                     .gridDimY = 1,
                                     .gridDimZ = 1,
                                     .blockDimX = 32,
                                     .blockDimY = 1,
                                     .blockDimZ = 1,
                                     .kernelParams = params};
}

CUgraphExec rig_instantiate(CUgraph graph)
{
    CUgraphExec exec;
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

CUgraphExec rig_end_capture(const struct rig *rig, CUgraph *graph)
{
    OK(cuStreamEndCapture(rig->stream, graph));
    return rig_instantiate(*graph);
}

void rig_drop_graph(CUgraphExec exec, CUgraph graph)
{
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}
