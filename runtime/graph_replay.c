/*
 * The nodes of a graph, one after the other on the stream that the graph was launched in, as if the program had made
 * each launch and copy itself: see graph.h. Slower than the graph, and right whatever is known of its kernels.
 *
 * Branches that could run side by side follow each other. A programmatic edge becomes an ordinary order: the kernel's
 * own wait for its predecessor then has nothing to wait for.
 */
#include <string.h>

#include "engine.h"
#include "graph.h"
#include "launch.h"
#include "runtime.h"

/* Attributes of a kernel node that its launch must have, too. What has its default is left out, since drivers that do
 * not know the attribute refuse it. */
static const CUlaunchAttributeID attributes[] = {
    CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
    CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
    CU_LAUNCH_ATTRIBUTE_PRIORITY,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
};
enum { ATTRIBUTES = sizeof attributes / sizeof attributes[0] };

static bool has_default(CUlaunchAttributeID id, const CUlaunchAttributeValue *value)
{
    switch (id) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        return value->accessPolicyWindow.num_bytes == 0;
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        return value->cooperative == 0;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        return value->clusterDim.x * value->clusterDim.y * value->clusterDim.z <= 1;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        return value->clusterSchedulingPolicyPreference == CU_CLUSTER_SCHEDULING_POLICY_DEFAULT;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        return value->priority == 0;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        return value->memSyncDomainMap.default_ == 0 && value->memSyncDomainMap.remote == 1;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        return value->memSyncDomain == CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT;
    default:
        return true;
    }
}

static unsigned read_attributes(CUgraphNode node, CUlaunchAttribute *attribute)
{
    unsigned count = 0;
    for (unsigned i = 0; i < ATTRIBUTES; i++) {
        CUlaunchAttribute *next = &attribute[count];
        memset(next, 0, sizeof *next);
        next->id = attributes[i];
        if (ov_cu->cuGraphKernelNodeGetAttribute(node, attributes[i], &next->value) == CUDA_SUCCESS &&
            !has_default(attributes[i], &next->value)) {
            count++;
        }
    }
    return count;
}

static bool get_params(const struct ov_graph_node *node, CUDA_KERNEL_NODE_PARAMS *params)
{
    memset(params, 0, sizeof *params);
    return ov_cu->cuGraphKernelNodeGetParams_v2(node->node, params) == CUDA_SUCCESS;
}

static CUresult run_kernel(const struct ov_graph_node *node, CUstream stream)
{
    CUDA_KERNEL_NODE_PARAMS params;
    CUlaunchAttribute attribute[ATTRIBUTES];
    if (!get_params(node, &params)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const CUlaunchConfig config = {
        .gridDimX = params.gridDimX,
        .gridDimY = params.gridDimY,
        .gridDimZ = params.gridDimZ,
        .blockDimX = params.blockDimX,
        .blockDimY = params.blockDimY,
        .blockDimZ = params.blockDimZ,
        .sharedMemBytes = params.sharedMemBytes,
        .hStream = stream,
        .attrs = attribute,
        .numAttrs = read_attributes(node->node, attribute),
    };
    struct ov_launch launch = {
        .function = node->function, .stream = stream, .params = params.kernelParams, .extra = params.extra};
    CUresult result = ov_launch_begin(&launch);
    if (result == CUDA_SUCCESS) {
        result = ov_cu->cuLaunchKernelEx(&config, node->function, params.kernelParams, params.extra);
        ov_launch_end(&launch, result);
    }
    return result;
}

static CUresult fill(const CUDA_MEMSET_NODE_PARAMS *p, CUstream stream)
{
    if (p->height > 1) {
        switch (p->elementSize) {
        case 1:
            return ov_cu->cuMemsetD2D8Async(p->dst, p->pitch, (unsigned char)p->value, p->width, p->height, stream);
        case 2:
            return ov_cu->cuMemsetD2D16Async(p->dst, p->pitch, (unsigned short)p->value, p->width, p->height, stream);
        default:
            return ov_cu->cuMemsetD2D32Async(p->dst, p->pitch, p->value, p->width, p->height, stream);
        }
    }
    switch (p->elementSize) {
    case 1:
        return ov_cu->cuMemsetD8Async(p->dst, (unsigned char)p->value, p->width, stream);
    case 2:
        return ov_cu->cuMemsetD16Async(p->dst, (unsigned short)p->value, p->width, stream);
    default:
        return ov_cu->cuMemsetD32Async(p->dst, p->value, p->width, stream);
    }
}

static CUresult move_or_fill(const struct ov_graph_node *node, CUstream stream)
{
    CUDA_MEMCPY3D copy;
    CUDA_MEMSET_NODE_PARAMS params;
    return node->type == CU_GRAPH_NODE_TYPE_MEMCPY
               ? (ov_cu->cuGraphMemcpyNodeGetParams(node->node, &copy) == CUDA_SUCCESS
                      ? ov_cu->cuMemcpy3DAsync_v2(&copy, stream)
                      : CUDA_ERROR_INVALID_VALUE)
           : ov_cu->cuGraphMemsetNodeGetParams(node->node, &params) == CUDA_SUCCESS ? fill(&params, stream)
                                                                                    : CUDA_ERROR_INVALID_VALUE;
}

/* Memory that the driver does not know. */
static bool is_pageable(const void *host)
{
    CUmemorytype type;
    return host != NULL && ov_cu->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                        (CUdeviceptr)(uintptr_t)host) == CUDA_ERROR_INVALID_VALUE;
}

static CUresult run_copy(const struct ov_graph_node *node, CUstream stream)
{
    struct ov_copy copy = *node->copy;
    copy.stream = stream;
    if (is_pageable(copy.host_source)) {
        /* In a graph it is read when its turn comes; by a call it is read at once, and a host function before it or a
         * copy may not have filled it yet. */
        const CUstreamCaptureMode mode = ov_relax();
        CUresult filled = ov_cu->cuStreamSynchronize(stream);
        ov_relax_end(mode);
        if (filled != CUDA_SUCCESS) {
            return filled;
        }
    }
    ov_copy_begin(&copy);
    CUresult result = copy.refused != CUDA_SUCCESS ? copy.refused : move_or_fill(node, stream);
    ov_copy_end(&copy, result);
    return result;
}

static CUresult run_host(const struct ov_graph_node *node, CUstream stream)
{
    CUDA_HOST_NODE_PARAMS params;
    CUresult result = ov_cu->cuGraphHostNodeGetParams(node->node, &params);
    return result == CUDA_SUCCESS ? ov_cu->cuLaunchHostFunc(stream, params.fn, params.userData) : result;
}

static CUresult run_event(const struct ov_graph_node *node, CUstream stream)
{
    CUevent event;
    bool records = node->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    CUresult result = records ? ov_cu->cuGraphEventRecordNodeGetEvent(node->node, &event)
                              : ov_cu->cuGraphEventWaitNodeGetEvent(node->node, &event);
    return result != CUDA_SUCCESS ? result
           : records              ? ov_cu->cuEventRecord(event, stream)
                                  : ov_cu->cuStreamWaitEvent(stream, event, 0);
}

static CUresult run_node(const struct ov_graph_node *node, CUstream stream)
{
    switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return run_kernel(node, stream);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return run_copy(node, stream);
    case CU_GRAPH_NODE_TYPE_HOST:
        return run_host(node, stream);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return run_event(node, stream);
    default:
        return CUDA_SUCCESS; /* empty; or a child, whose nodes stand for it */
    }
}

bool ov_graph_replayable(const struct ov_graph *graph)
{
    bool can = graph->clone != NULL && ov_cu->cuMemcpy3DAsync_v2 != NULL && ov_cu->cuMemsetD2D8Async != NULL &&
               ov_cu->cuMemsetD2D16Async != NULL && ov_cu->cuMemsetD2D32Async != NULL &&
               ov_cu->cuGraphKernelNodeGetParams_v2 != NULL;
    for (uint32_t i = 0; can && i < graph->model.count; i++) {
        const struct ov_graph_node *node = &graph->model.node[i];
        switch (node->type) {
        case CU_GRAPH_NODE_TYPE_KERNEL:
        case CU_GRAPH_NODE_TYPE_GRAPH:
        case CU_GRAPH_NODE_TYPE_HOST:
        case CU_GRAPH_NODE_TYPE_EMPTY:
        case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
            break;
        case CU_GRAPH_NODE_TYPE_MEMCPY:
        case CU_GRAPH_NODE_TYPE_MEMSET:
            can = node->copy != NULL;
            break;
        default:
            can = false;
        }
    }
    return can;
}

CUresult ov_graph_replay(struct ov_graph *graph, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    ov_inside_enter();
    for (uint32_t i = 0; i < graph->model.count && result == CUDA_SUCCESS; i++) {
        const struct ov_graph_node *node = &graph->model.node[graph->model.order[i]];
        if (node->enabled) {
            result = run_node(node, stream);
        }
    }
    ov_inside_leave();
    return result;
}

void ov_graph_log(const struct ov_graph *graph)
{
    for (uint32_t i = 0; i < graph->model.count; i++) {
        const struct ov_graph_node *node = &graph->model.node[graph->model.order[i]];
        CUDA_KERNEL_NODE_PARAMS params;
        struct ov_launch launch = {.function = node->function, .kernel = node->kernel};
        struct ov_touches touches;
        if (node->touches == 0 || !node->enabled) {
            continue;
        }
        if (graph->clone != NULL && get_params(node, &params)) {
            launch.params = params.kernelParams;
            launch.extra = params.extra;
        } else {
            launch.kernel = NULL; /* how often its slots hold addresses cannot be counted */
        }
        touches.count = node->touches;
        memcpy(touches.item, node->touch, node->touches * sizeof *node->touch);
        ov_learn_log(graph->engine, &launch, &touches);
    }
}
