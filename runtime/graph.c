/*
 * Captures and graphs: see runtime.h. What a graph touches is resident or host-mapped from the moment the graph can be
 * launched, and stays so: the graph runs without the launch path.
 */
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "engine.h"
#include "gate.h"
#include "graph_source.h"
#include "log.h"
#include "runtime.h"
#include "scan.h"
#include "search.h"

#define CHILD_DEPTH 16

/* Inside the gate: whoever works alone sees either no capture until it is done, or this one from its beginning. */
void ov_capture_beginning(CUstream stream)
{
    (void)stream;
    ov_gate_enter();
}

void ov_capture_began(CUstream stream, CUresult result)
{
    (void)stream;
    if (result == CUDA_SUCCESS) {
        atomic_fetch_add(&ov_captures, 1);
    }
    ov_gate_leave();
}

void ov_capture_ended(CUstream stream)
{
    (void)stream;
    /* Several streams may join a capture, one begins and ends it; an end without a beginning changes nothing. */
    int captures = atomic_load(&ov_captures);
    while (captures > 0 && !atomic_compare_exchange_weak(&ov_captures, &captures, captures - 1)) {
    }
}

/* Takes what is touched out of the ring and marks it, in whatever engine it lies. */
static CUresult pin(uint64_t from, uint64_t to)
{
    struct ov_engine *engine = ov_engine_of(from);
    if (engine == NULL) {
        return CUDA_SUCCESS;
    }
    uint64_t page = (uint64_t)OV_PAGE_BYTES;
    pthread_mutex_lock(&engine->lock);
    ov_learn_mark(engine, from, OV_MARK_GRAPH);
    bool streamed = false;
    for (uint64_t at = from; at < to && engine->ring.streamed_count > 0; at = (at & ~(page - 1)) + page) {
        uint32_t unit = ov_unit_at(&engine->arena, &engine->ring, at);
        streamed = streamed || ov_is_unit(unit);
    }
    pthread_mutex_unlock(&engine->lock);
    if (!streamed) {
        return CUDA_SUCCESS;
    }
    struct ov_exclusive section;
    CUresult result = ov_exclusive_begin(engine, &section);
    for (uint64_t at = from; at < to && result == CUDA_SUCCESS; at = (at & ~(page - 1)) + page) {
        uint32_t unit = ov_unit_at(&engine->arena, &engine->ring, at);
        if (ov_is_unit(unit)) {
            result = ov_unit_revoke(engine, unit - 1, OV_MARK_GRAPH);
        }
    }
    ov_exclusive_end(engine, &section);
    return result;
}

CUresult ov_graph_opaque(const char *what)
{
    return ov_bar_streaming(what);
}

static CUresult first_error(CUresult a, CUresult b)
{
    return a != CUDA_SUCCESS ? a : b;
}

static CUresult pin_launch(struct ov_launch *launch)
{
    struct ov_touches touches;
    CUresult result = CUDA_SUCCESS;
    ov_scan(ov_kernel_of(launch->function), launch, &touches);
    if (touches.incomplete) {
        result = ov_bar_streaming("a graph holds a kernel whose parameters cannot be seen");
    }
    for (unsigned i = 0; i < touches.count; i++) {
        result = first_error(result, pin(touches.item[i].address, touches.item[i].address + 1));
    }
    return result;
}

CUresult ov_graph_node_params(const CUDA_KERNEL_NODE_PARAMS *params)
{
    struct ov_launch launch;
    memset(&launch, 0, sizeof launch);
    launch.function = params->func != NULL ? params->func : (CUfunction)(void *)params->kern;
    launch.params = params->kernelParams;
    launch.extra = params->extra;
    return pin_launch(&launch);
}

static CUresult pin_span(const struct ov_span *span)
{
    size_t bytes = span->rows > 1 ? (span->rows - 1) * span->pitch_bytes + span->bytes : span->bytes;
    return span->address != 0 ? pin(span->address, span->address + bytes) : CUDA_SUCCESS;
}

CUresult ov_graph_copy_params(const struct ov_copy *copy)
{
    return first_error(pin_span(&copy->dst), pin_span(&copy->src));
}

static CUresult pin_kernel_node(CUgraphNode node)
{
    CUDA_KERNEL_NODE_PARAMS params;
    memset(&params, 0, sizeof params);
    if (ov_cu->cuGraphKernelNodeGetParams_v2 == NULL ||
        ov_cu->cuGraphKernelNodeGetParams_v2(node, &params) != CUDA_SUCCESS) {
        return ov_graph_opaque("a graph's kernel node does not tell its parameters");
    }
    return ov_graph_node_params(&params);
}

static struct ov_span block(CUmemorytype type, CUdeviceptr device, const void *host, size_t pitch,
                            const CUDA_MEMCPY3D *copy, size_t height, size_t x, size_t y, size_t z)
{
    CUdeviceptr base = type == CU_MEMORYTYPE_DEVICE ? device : type == CU_MEMORYTYPE_UNIFIED ? device : 0;
    (void)host;
    struct ov_span span = {0};
    if (base != 0) {
        size_t rows = copy->Height > 0 ? copy->Height : 1, slices = copy->Depth > 0 ? copy->Depth : 1;
        span.address = base + (z * height + y) * pitch + x;
        span.bytes = copy->WidthInBytes;
        span.rows = (slices - 1) * height + rows;
        span.pitch_bytes = pitch;
    }
    return span;
}

static CUresult pin_copy_node(CUgraphNode node)
{
    CUDA_MEMCPY3D c;
    if (ov_cu->cuGraphMemcpyNodeGetParams(node, &c) != CUDA_SUCCESS) {
        return ov_graph_opaque("a graph's copy node does not tell its parameters");
    }
    struct ov_span dst =
        block(c.dstMemoryType, c.dstDevice, c.dstHost, c.dstPitch, &c, c.dstHeight, c.dstXInBytes, c.dstY, c.dstZ);
    struct ov_span src =
        block(c.srcMemoryType, c.srcDevice, c.srcHost, c.srcPitch, &c, c.srcHeight, c.srcXInBytes, c.srcY, c.srcZ);
    return first_error(pin_span(&dst), pin_span(&src));
}

static CUresult pin_fill_node(CUgraphNode node)
{
    CUDA_MEMSET_NODE_PARAMS params;
    if (ov_cu->cuGraphMemsetNodeGetParams(node, &params) != CUDA_SUCCESS) {
        return ov_graph_opaque("a graph's fill node does not tell its parameters");
    }
    struct ov_span span = {params.dst, params.width * params.elementSize, params.height, params.pitch};
    return pin_span(&span);
}

static CUresult walk(CUgraph graph, int depth);

static CUresult pin_node(CUgraphNode node, int depth)
{
    CUgraphNodeType type;
    if (ov_cu->cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) {
        return ov_graph_opaque("a graph's node does not tell its kind");
    }
    switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return pin_kernel_node(node);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return pin_copy_node(node);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return pin_fill_node(node);
    case CU_GRAPH_NODE_TYPE_GRAPH: {
        CUgraph child;
        if (ov_cu->cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS && depth < CHILD_DEPTH) {
            return walk(child, depth + 1);
        }
        return ov_graph_opaque("a graph inside a graph cannot be seen");
    }
    case CU_GRAPH_NODE_TYPE_HOST:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return CUDA_SUCCESS;
    default:
        return ov_graph_opaque("a graph holds a node of a kind that cannot be looked into");
    }
}

static CUresult walk(CUgraph graph, int depth)
{
    size_t count = 0;
    CUresult result = CUDA_SUCCESS;
    if (ov_cu->cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS || count == 0) {
        return CUDA_SUCCESS; /* no graph, or an empty one: the driver's to answer */
    }
    CUgraphNode *node = calloc(count, sizeof(CUgraphNode));
    if (node == NULL || ov_cu->cuGraphGetNodes(graph, node, &count) != CUDA_SUCCESS) {
        result = ov_graph_opaque("a graph does not tell its nodes");
    } else {
        for (size_t i = 0; i < count; i++) {
            result = first_error(result, pin_node(node[i], depth));
        }
    }
    free(node);
    return result;
}

CUresult ov_graph_instantiating(CUgraph graph)
{
    return walk(graph, 0);
}

/* What it touches left the ring when it was instantiated; what it uploads is another matter. And its pages may be
 * hashed, or be on their way to another tier: like any other work it starts before that or afterwards. */
CUresult ov_graph_launching(CUgraphExec exec, CUstream stream)
{
    (void)stream;
    ov_gate_enter();
    bool armed = atomic_load_explicit(&ov_state, memory_order_relaxed) == OV_ARMED;
    return armed && ov_search_needed() ? ov_graph_source_search(exec) : CUDA_SUCCESS;
}

void ov_graph_launched(CUgraphExec exec)
{
    (void)exec;
    ov_gate_leave();
}
