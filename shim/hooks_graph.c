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

/* Every form that makes the driver take in a graph. `whole`: the executable graph is this graph from then on. */
#define TAKE_IN_BODY(name, params, args, graph_, exec_, whole)  \
    CUresult ov_body_##name params                              \
    {                                                           \
        const CUresult pinned = ov_graph_instantiating(graph_); \
        if (pinned != CUDA_SUCCESS) {                           \
            return pinned;                                      \
        }                                                       \
        const CUresult result = OV_REAL(name, args);            \
        if (result == CUDA_SUCCESS) {                           \
            ov_graph_taken_in(exec_, graph_, whole);            \
        }                                                       \
        return result;                                          \
    }

#define LOG_PARAMS CUgraphExec *out, CUgraph graph, CUgraphNode *error_node, char *log, size_t log_bytes
#define LOG_ARGS   out, graph, error_node, log, log_bytes
TAKE_IN_BODY(cuGraphInstantiate, (LOG_PARAMS), (LOG_ARGS), graph, *out, true)
TAKE_IN_BODY(cuGraphInstantiate_v2, (LOG_PARAMS), (LOG_ARGS), graph, *out, true)
TAKE_IN_BODY(cuGraphInstantiateWithFlags, (CUgraphExec * out, CUgraph graph, unsigned long long flags),
             (out, graph, flags), graph, *out, true)
TAKE_IN_BODY(cuGraphInstantiateWithParams, (CUgraphExec * out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
             (out, graph, params), graph, *out, true)
TAKE_IN_BODY(cuGraphInstantiateWithParams_ptsz,
             (CUgraphExec * out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params), (out, graph, params), graph,
             *out, true)
TAKE_IN_BODY(cuGraphExecUpdate,
             (CUgraphExec exec, CUgraph graph, CUgraphNode *error_node, CUgraphExecUpdateResult *result_),
             (exec, graph, error_node, result_), graph, exec, true)
TAKE_IN_BODY(cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *result_),
             (exec, graph, result_), graph, exec, true)
TAKE_IN_BODY(cuGraphExecChildGraphNodeSetParams, (CUgraphExec exec, CUgraphNode node, CUgraph child),
             (exec, node, child), child, exec, false)

CUresult ov_body_cuGraphExecDestroy(CUgraphExec exec)
{
    ov_graph_destroying(exec);
    return OV_REAL(cuGraphExecDestroy, (exec));
}

#define GRAPH_LAUNCH_BODY(suffix)                                                                                   \
    CUresult ov_body_cuGraphLaunch##suffix(CUgraphExec exec, CUstream stream)                                       \
    {                                                                                                               \
        const CUresult refused = ov_graph_launching(exec, OV_STREAM(suffix, stream));                               \
        const CUresult result = refused != CUDA_SUCCESS ? refused : OV_REAL(cuGraphLaunch##suffix, (exec, stream)); \
        ov_graph_launched(exec);                                                                                    \
        return result;                                                                                              \
    }

GRAPH_LAUNCH_BODY()
GRAPH_LAUNCH_BODY(_ptsz)

/* All versions of kernel node parameters agree in the members up to `extra`. */
#define TELL_KERNEL(call, kernel_) ov_graph_node_params(AS_V2(call, kernel_))
#define AS_V2(call, kernel_)                      \
    (&(const CUDA_KERNEL_NODE_PARAMS){            \
        .func = (call)->func,                     \
        .gridDimX = (call)->gridDimX,             \
        .gridDimY = (call)->gridDimY,             \
        .gridDimZ = (call)->gridDimZ,             \
        .blockDimX = (call)->blockDimX,           \
        .blockDimY = (call)->blockDimY,           \
        .blockDimZ = (call)->blockDimZ,           \
        .sharedMemBytes = (call)->sharedMemBytes, \
        .kernelParams = (call)->kernelParams,     \
        .extra = (call)->extra,                   \
        .kern = (kernel_),                        \
    })

static CUresult tell_fill(CUdeviceptr dst, size_t width_bytes, size_t height, size_t pitch_bytes)
{
    const struct ov_copy told = {.dst = {dst, width_bytes, height, pitch_bytes ? pitch_bytes : width_bytes}};
    return ov_graph_copy_params(&told);
}

/* Sets a kernel node: told before what it touches, afterwards what it reads from host memory. */
#define SET_KERNEL(call, kernel_, real)                            \
    __extension__({                                                \
        CUresult set = TELL_KERNEL(call, kernel_);                 \
        set = set != CUDA_SUCCESS ? set : (real);                  \
        if (set == CUDA_SUCCESS) {                                 \
            ov_graph_kernel_set(exec, node, AS_V2(call, kernel_)); \
        }                                                          \
        set;                                                       \
    })

/* The same for a copy node. */
#define SET_COPY(call, real)                        \
    __extension__({                                 \
        struct ov_copy told = {0};                  \
        ov_describe_3d(&told, call);                \
        CUresult set = ov_graph_copy_params(&told); \
        set = set != CUDA_SUCCESS ? set : (real);   \
        if (set == CUDA_SUCCESS) {                  \
            ov_graph_copy_set(exec, node, &told);   \
        }                                           \
        set;                                        \
    })

CUresult ov_body_cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    return params == NULL ? OV_REAL(cuGraphExecKernelNodeSetParams, (exec, node, params))
                          : SET_KERNEL(params, NULL, OV_REAL(cuGraphExecKernelNodeSetParams, (exec, node, params)));
}

CUresult ov_body_cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                                   const CUDA_KERNEL_NODE_PARAMS *params)
{
    return params == NULL
               ? OV_REAL(cuGraphExecKernelNodeSetParams_v2, (exec, node, params))
               : SET_KERNEL(params, params->kern, OV_REAL(cuGraphExecKernelNodeSetParams_v2, (exec, node, params)));
}

CUresult ov_body_cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *params,
                                                CUcontext context)
{
    return params == NULL ? OV_REAL(cuGraphExecMemcpyNodeSetParams, (exec, node, params, context))
                          : SET_COPY(params, OV_REAL(cuGraphExecMemcpyNodeSetParams, (exec, node, params, context)));
}

CUresult ov_body_cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context)
{
    const CUresult pinned =
        params != NULL ? tell_fill(params->dst, params->width * params->elementSize, params->height, params->pitch)
                       : CUDA_SUCCESS;
    return pinned != CUDA_SUCCESS ? pinned : OV_REAL(cuGraphExecMemsetNodeSetParams, (exec, node, params, context));
}

#define SET_ANY OV_REAL(cuGraphExecNodeSetParams, (exec, node, params))

CUresult ov_body_cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params)
{
    CUresult result;
    if (params == NULL) {
        return SET_ANY;
    }
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return SET_KERNEL(&params->kernel, params->kernel.kern, SET_ANY);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return SET_COPY(&params->memcpy.copyParams, SET_ANY);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        result = tell_fill(params->memset.dst, params->memset.width * params->memset.elementSize, params->memset.height,
                           params->memset.pitch);
        return result != CUDA_SUCCESS ? result : SET_ANY;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        result = ov_graph_instantiating(params->graph.graph);
        result = result != CUDA_SUCCESS ? result : SET_ANY;
        if (result == CUDA_SUCCESS) {
            ov_graph_taken_in(exec, params->graph.graph, false);
        }
        return result;
    case CU_GRAPH_NODE_TYPE_HOST:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
        return SET_ANY; /* no device memory */
    default:
        result = ov_graph_opaque("cuGraphExecNodeSetParams of a memory, batch or conditional node");
        return result != CUDA_SUCCESS ? result : SET_ANY;
    }
}
