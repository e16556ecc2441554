/*
 * hooks_graph.c - captures, and graphs: the engine is told what the driver has taken in, and asked before launches.
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

#define ADD_BODY(name, params_, args)                \
    CUresult ov_body_##name params_                  \
    {                                                \
        const CUresult result = OV_REAL(name, args); \
        if (result == CUDA_SUCCESS) {                \
            ov_graph_node_added(*out, params);       \
        }                                            \
        return result;                               \
    }

ADD_BODY(cuGraphAddNode,
         (CUgraphNode * out, CUgraph graph, const CUgraphNode *dependency, size_t count, CUgraphNodeParams *params),
         (out, graph, dependency, count, params))
ADD_BODY(cuGraphAddNode_v2,
         (CUgraphNode * out, CUgraph graph, const CUgraphNode *dependency, const CUgraphEdgeData *edge, size_t count,
          CUgraphNodeParams *params),
         (out, graph, dependency, edge, count, params))

/* Every form that makes the driver take in a graph: the engine is told when it has. */
#define TAKE_IN_BODY(name, params, args, told)       \
    CUresult ov_body_##name params                   \
    {                                                \
        const CUresult result = OV_REAL(name, args); \
        if (result == CUDA_SUCCESS) {                \
            told;                                    \
        }                                            \
        return result;                               \
    }

#define LOG_PARAMS CUgraphExec *out, CUgraph graph, CUgraphNode *error_node, char *log, size_t log_bytes
#define LOG_ARGS   out, graph, error_node, log, log_bytes
TAKE_IN_BODY(cuGraphInstantiate, (LOG_PARAMS), (LOG_ARGS), ov_graph_instantiated(*out, graph, 0))
TAKE_IN_BODY(cuGraphInstantiate_v2, (LOG_PARAMS), (LOG_ARGS), ov_graph_instantiated(*out, graph, 0))
TAKE_IN_BODY(cuGraphInstantiateWithFlags, (CUgraphExec * out, CUgraph graph, unsigned long long flags),
             (out, graph, flags), ov_graph_instantiated(*out, graph, flags))
TAKE_IN_BODY(cuGraphInstantiateWithParams, (CUgraphExec * out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
             (out, graph, params), ov_graph_instantiated(*out, graph, params->flags))
TAKE_IN_BODY(cuGraphInstantiateWithParams_ptsz,
             (CUgraphExec * out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params), (out, graph, params),
             ov_graph_instantiated(*out, graph, params->flags))
TAKE_IN_BODY(cuGraphExecUpdate,
             (CUgraphExec exec, CUgraph graph, CUgraphNode *error_node, CUgraphExecUpdateResult *result_),
             (exec, graph, error_node, result_), ov_graph_updated(exec, graph))
TAKE_IN_BODY(cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *result_),
             (exec, graph, result_), ov_graph_updated(exec, graph))

CUresult ov_body_cuGraphExecDestroy(CUgraphExec exec)
{
    ov_graph_destroying(exec);
    return OV_REAL(cuGraphExecDestroy, (exec));
}

#define GRAPH_LAUNCH_BODY(suffix)                                                            \
    CUresult ov_body_cuGraphLaunch##suffix(CUgraphExec exec, CUstream stream)                \
    {                                                                                        \
        struct ov_graph_launch launch = {.exec = exec, .stream = OV_STREAM(suffix, stream)}; \
        CUresult result;                                                                     \
        do {                                                                                 \
            result = ov_graph_launch_begin(&launch);                                         \
            if (result == CUDA_SUCCESS && !launch.served) {                                  \
                result = OV_REAL(cuGraphLaunch##suffix, (launch.used, stream));              \
            }                                                                                \
        } while (ov_graph_launch_end(&launch, result));                                      \
        return result;                                                                       \
    }

GRAPH_LAUNCH_BODY()
GRAPH_LAUNCH_BODY(_ptsz)

/* Changes of one node: the engine is told in the form of cuGraphNodeSetParams when the driver has taken them. `...`
 * initialises CUgraphNodeParams. What the driver refuses may be NULL, and is not looked at. */
#define SET_BODY(name, params_, args, ...)                \
    CUresult ov_body_##name params_                       \
    {                                                     \
        const CUresult result = OV_REAL(name, args);      \
        if (result == CUDA_SUCCESS) {                     \
            const CUgraphNodeParams told = {__VA_ARGS__}; \
            ov_graph_node_set(exec, node, &told);         \
        }                                                 \
        return result;                                    \
    }

/* All versions of kernel node parameters agree in the members up to `extra`. */
#define KERNEL_TOLD(kernel_, context_)                                               \
    .type = CU_GRAPH_NODE_TYPE_KERNEL, .kernel = {                                   \
                                           .func = params->func,                     \
                                           .gridDimX = params->gridDimX,             \
                                           .gridDimY = params->gridDimY,             \
                                           .gridDimZ = params->gridDimZ,             \
                                           .blockDimX = params->blockDimX,           \
                                           .blockDimY = params->blockDimY,           \
                                           .blockDimZ = params->blockDimZ,           \
                                           .sharedMemBytes = params->sharedMemBytes, \
                                           .kernelParams = params->kernelParams,     \
                                           .extra = params->extra,                   \
                                           .kern = (kernel_),                        \
                                           .ctx = (context_),                        \
    }

SET_BODY(cuGraphExecKernelNodeSetParams, (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params),
         (exec, node, params), KERNEL_TOLD(NULL, NULL))
SET_BODY(cuGraphExecKernelNodeSetParams_v2, (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params),
         (exec, node, params), KERNEL_TOLD(params->kern, params->ctx))
SET_BODY(cuGraphExecMemcpyNodeSetParams,
         (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *params, CUcontext context),
         (exec, node, params, context), .type = CU_GRAPH_NODE_TYPE_MEMCPY,
         .memcpy = {.copyCtx = context, .copyParams = *params})
SET_BODY(cuGraphExecMemsetNodeSetParams,
         (CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context),
         (exec, node, params, context), .type = CU_GRAPH_NODE_TYPE_MEMSET,
         .memset = {.dst = params->dst,
                    .pitch = params->pitch,
                    .value = params->value,
                    .elementSize = params->elementSize,
                    .width = params->width,
                    .height = params->height,
                    .ctx = context})
SET_BODY(cuGraphExecHostNodeSetParams, (CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params),
         (exec, node, params), .type = CU_GRAPH_NODE_TYPE_HOST,
         .host = {.fn = params->fn, .userData = params->userData})
SET_BODY(cuGraphExecEventRecordNodeSetEvent, (CUgraphExec exec, CUgraphNode node, CUevent event), (exec, node, event),
         .type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .eventRecord = {.event = event})
SET_BODY(cuGraphExecEventWaitNodeSetEvent, (CUgraphExec exec, CUgraphNode node, CUevent event), (exec, node, event),
         .type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .eventWait = {.event = event})
SET_BODY(cuGraphExecExternalSemaphoresSignalNodeSetParams,
         (CUgraphExec exec, CUgraphNode node, const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *params), (exec, node, params),
         .type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL)
SET_BODY(cuGraphExecExternalSemaphoresWaitNodeSetParams,
         (CUgraphExec exec, CUgraphNode node, const CUDA_EXT_SEM_WAIT_NODE_PARAMS *params), (exec, node, params),
         .type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT)
SET_BODY(cuGraphExecBatchMemOpNodeSetParams,
         (CUgraphExec exec, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params), (exec, node, params),
         .type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP)
SET_BODY(cuGraphExecChildGraphNodeSetParams, (CUgraphExec exec, CUgraphNode node, CUgraph child), (exec, node, child),
         .type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = {.graph = child})

CUresult ov_body_cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params)
{
    const CUresult result = OV_REAL(cuGraphExecNodeSetParams, (exec, node, params));
    if (result == CUDA_SUCCESS) {
        ov_graph_node_set(exec, node, params);
    }
    return result;
}

CUresult ov_body_cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned enabled)
{
    const CUresult result = OV_REAL(cuGraphNodeSetEnabled, (exec, node, enabled));
    if (result == CUDA_SUCCESS) {
        ov_graph_node_enabled(exec, node, enabled != 0);
    }
    return result;
}
