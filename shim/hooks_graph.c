/*
 * hooks_graph.c - captures, and graphs: the engine is told what a graph will touch before the driver takes it in.
 */
#include "span.h"

#define BEGIN_BODY(name, params, args, stream_)      \
    CUresult ov_body_##name params                   \
    {                                                \
        ov_capture_beginning(stream_);               \
        const CUresult result = OV_REAL(name, args); \
        ov_capture_began(stream_, result);           \
        return result;                               \
    }

#define CAPTURE_BODIES(suffix)                                                                               \
    BEGIN_BODY(cuStreamBeginCapture##suffix, (CUstream stream), (stream), OV_STREAM(suffix, stream))         \
    BEGIN_BODY(cuStreamBeginCapture_v2##suffix, (CUstream stream, CUstreamCaptureMode mode), (stream, mode), \
               OV_STREAM(suffix, stream))                                                                    \
    BEGIN_BODY(cuStreamBeginCaptureToGraph##suffix,                                                          \
               (CUstream stream, CUgraph graph, const CUgraphNode *dependency, const CUgraphEdgeData *edge,  \
                size_t dependency_count, CUstreamCaptureMode mode),                                          \
               (stream, graph, dependency, edge, dependency_count, mode), OV_STREAM(suffix, stream))         \
    CUresult ov_body_cuStreamEndCapture##suffix(CUstream stream, CUgraph *out)                               \
    {                                                                                                        \
        const CUresult result = OV_REAL(cuStreamEndCapture##suffix, (stream, out));                          \
        ov_capture_ended(OV_STREAM(suffix, stream));                                                         \
        return result;                                                                                       \
    }

CAPTURE_BODIES()
CAPTURE_BODIES(_ptsz)

/* Every form that makes the driver take in a graph. */
#define TAKE_IN_BODY(name, params, args, graph_)                      \
    CUresult ov_body_##name params                                    \
    {                                                                 \
        const CUresult pinned = ov_graph_instantiating(graph_);       \
        return pinned != CUDA_SUCCESS ? pinned : OV_REAL(name, args); \
    }

#define LOG_PARAMS CUgraphExec *out, CUgraph graph, CUgraphNode *error_node, char *log, size_t log_bytes
#define LOG_ARGS   out, graph, error_node, log, log_bytes
TAKE_IN_BODY(cuGraphInstantiate, (LOG_PARAMS), (LOG_ARGS), graph)
TAKE_IN_BODY(cuGraphInstantiate_v2, (LOG_PARAMS), (LOG_ARGS), graph)
TAKE_IN_BODY(cuGraphInstantiateWithFlags, (CUgraphExec * out, CUgraph graph, unsigned long long flags),
             (out, graph, flags), graph)
TAKE_IN_BODY(cuGraphInstantiateWithParams, (CUgraphExec * out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
             (out, graph, params), graph)
TAKE_IN_BODY(cuGraphInstantiateWithParams_ptsz,
             (CUgraphExec * out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params), (out, graph, params), graph)
TAKE_IN_BODY(cuGraphExecUpdate,
             (CUgraphExec exec, CUgraph graph, CUgraphNode *error_node, CUgraphExecUpdateResult *result),
             (exec, graph, error_node, result), graph)
TAKE_IN_BODY(cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *result),
             (exec, graph, result), graph)
TAKE_IN_BODY(cuGraphExecChildGraphNodeSetParams, (CUgraphExec exec, CUgraphNode node, CUgraph child),
             (exec, node, child), child)

#define GRAPH_LAUNCH_BODY(suffix)                                               \
    CUresult ov_body_cuGraphLaunch##suffix(CUgraphExec exec, CUstream stream)   \
    {                                                                           \
        ov_graph_launching(exec, OV_STREAM(suffix, stream));                    \
        const CUresult result = OV_REAL(cuGraphLaunch##suffix, (exec, stream)); \
        ov_graph_launched(exec);                                                \
        return result;                                                          \
    }

GRAPH_LAUNCH_BODY()
GRAPH_LAUNCH_BODY(_ptsz)

/* All versions of kernel node parameters agree in the members up to `extra`. */
#define TELL_KERNEL(call, kernel_)                         \
    ov_graph_node_params(&(const CUDA_KERNEL_NODE_PARAMS){ \
        .func = (call)->func,                              \
        .gridDimX = (call)->gridDimX,                      \
        .gridDimY = (call)->gridDimY,                      \
        .gridDimZ = (call)->gridDimZ,                      \
        .blockDimX = (call)->blockDimX,                    \
        .blockDimY = (call)->blockDimY,                    \
        .blockDimZ = (call)->blockDimZ,                    \
        .sharedMemBytes = (call)->sharedMemBytes,          \
        .kernelParams = (call)->kernelParams,              \
        .extra = (call)->extra,                            \
        .kern = (kernel_),                                 \
    })

static CUresult tell_copy(const CUDA_MEMCPY3D *call)
{
    struct ov_copy told = {0};
    ov_describe_3d(&told, call);
    return ov_graph_copy_params(&told);
}

static CUresult tell_fill(CUdeviceptr dst, size_t width_bytes, size_t height, size_t pitch_bytes)
{
    const struct ov_copy told = {.dst = {dst, width_bytes, height, pitch_bytes ? pitch_bytes : width_bytes}};
    return ov_graph_copy_params(&told);
}

CUresult ov_body_cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    const CUresult pinned = params != NULL ? TELL_KERNEL(params, NULL) : CUDA_SUCCESS;
    return pinned != CUDA_SUCCESS ? pinned : OV_REAL(cuGraphExecKernelNodeSetParams, (exec, node, params));
}

CUresult ov_body_cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                                   const CUDA_KERNEL_NODE_PARAMS *params)
{
    const CUresult pinned = params != NULL ? ov_graph_node_params(params) : CUDA_SUCCESS;
    return pinned != CUDA_SUCCESS ? pinned : OV_REAL(cuGraphExecKernelNodeSetParams_v2, (exec, node, params));
}

CUresult ov_body_cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *params,
                                                CUcontext context)
{
    const CUresult pinned = params != NULL ? tell_copy(params) : CUDA_SUCCESS;
    return pinned != CUDA_SUCCESS ? pinned : OV_REAL(cuGraphExecMemcpyNodeSetParams, (exec, node, params, context));
}

CUresult ov_body_cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context)
{
    const CUresult pinned =
        params != NULL ? tell_fill(params->dst, params->width * params->elementSize, params->height, params->pitch)
                       : CUDA_SUCCESS;
    return pinned != CUDA_SUCCESS ? pinned : OV_REAL(cuGraphExecMemsetNodeSetParams, (exec, node, params, context));
}

static CUresult tell_node(const CUgraphNodeParams *params)
{
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return TELL_KERNEL(&params->kernel, params->kernel.kern);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return tell_copy(&params->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return tell_fill(params->memset.dst, params->memset.width * params->memset.elementSize, params->memset.height,
                         params->memset.pitch);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return ov_graph_instantiating(params->graph.graph);
    case CU_GRAPH_NODE_TYPE_HOST:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
        return CUDA_SUCCESS; /* no device memory */
    default:
        return ov_graph_opaque("cuGraphExecNodeSetParams of a memory, batch or conditional node");
    }
}

CUresult ov_body_cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params)
{
    const CUresult pinned = params != NULL ? tell_node(params) : CUDA_SUCCESS;
    return pinned != CUDA_SUCCESS ? pinned : OV_REAL(cuGraphExecNodeSetParams, (exec, node, params));
}
