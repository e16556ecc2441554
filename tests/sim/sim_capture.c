/* Stream capture: the model, what captures forbid, and operations that become nodes. See sim_capture.h. */
#define _GNU_SOURCE
#include "sim_capture.h"

#include <stdlib.h>
#include <string.h>

struct capture *sim_captures;

void sim_capture_put(struct capture *capture)
{
    if (--capture->references != 0)
        return;
    free(capture);
}

struct frontier *sim_frontier_make(struct capture *capture)
{
    struct frontier *frontier = calloc(1, sizeof *frontier);
    if (frontier == NULL)
        sim_die("out of host memory");
    frontier->capture = capture;
    capture->references++;
    return frontier;
}

void sim_frontier_free(struct frontier *frontier)
{
    sim_capture_put(frontier->capture);
    free(frontier->node);
    free(frontier->data);
    free(frontier);
}

void sim_frontier_add(struct frontier *frontier, struct sim_node *node, const CUgraphEdgeData *data)
{
    for (size_t i = 0; i < frontier->count; i++)
        if (frontier->node[i] == node)
            return;
    if (frontier->count == frontier->room) {
        frontier->room = frontier->room * 2 + 4;
        frontier->node = realloc(frontier->node, frontier->room * sizeof *frontier->node);
        frontier->data = realloc(frontier->data, frontier->room * sizeof *frontier->data);
        if (frontier->node == NULL || frontier->data == NULL)
            sim_die("out of host memory");
    }
    static const CUgraphEdgeData plain;
    frontier->node[frontier->count] = node;
    frontier->data[frontier->count++] = data != NULL ? *data : plain;
}

void sim_frontier_join(struct frontier *into, const struct frontier *from)
{
    for (size_t i = 0; i < from->count; i++)
        sim_frontier_add(into, from->node[i], &from->data[i]);
}

void sim_capture_leave(struct sim_stream *stream)
{
    if (stream->capture != NULL)
        sim_frontier_free(stream->capture);
    stream->capture = NULL;
}

CUresult sim_capture_broken(const struct sim_stream *stream)
{
    return frontier_of(stream)->capture->broken ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

CUresult sim_capture_break(struct capture *capture, CUresult result)
{
    capture->broken = 1;
    return result;
}

/* ---- what captures forbid ---- */

static int refuses(const struct capture *capture, const struct sim_thread *thread)
{
    if (thread->capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return 0;
    if (capture->thread == thread && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        return 1;
    return thread->capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

/* Functions of this name, with any suffix. */
static int is_function(const struct sim_call *call, const char *name)
{
    size_t length = strlen(name);
    const char *called = call->function->name;
    return strncmp(called, name, length) == 0 && (called[length] == '\0' || called[length] == '_');
}

/* Waiting for a context would wait for its capturing streams: refused whatever the modes. */
static CUresult context_capturing(const struct sim_context *context)
{
    CUresult result = CUDA_SUCCESS;
    for (struct capture *capture = sim_captures; capture != NULL; capture = capture->next)
        if (capture->origin != NULL && capture->origin->lane.context == context)
            result = sim_capture_break(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    return result;
}

CUresult sim_capture_unsafe(struct sim_call *call)
{
    if (is_function(call, "cuCtxSynchronize"))
        return context_capturing(call->context);
    CUresult result = CUDA_SUCCESS;
    for (struct capture *capture = sim_captures; capture != NULL; capture = capture->next)
        if (refuses(capture, call->thread))
            result = sim_capture_break(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    return result;
}

/* Asking about a stream or an event that has nothing to do with a capture is still unsafe while one goes on. */
static int asks(const struct sim_call *call)
{
    static const char *const names[] = {"cuStreamSynchronize", "cuStreamQuery", "cuEventSynchronize"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (is_function(call, names[i]))
            return 1;
    return 0;
}

CUresult sim_capture_forbids(struct sim_call *call, struct sim_stream *stream, struct sim_event *event)
{
    if (event != NULL && event->capture != NULL) {
        const struct frontier *frontier = event->capture;
        return frontier->capture->ended ? CUDA_ERROR_INVALID_VALUE
                                        : sim_capture_break(frontier->capture, CUDA_ERROR_CAPTURED_EVENT);
    }
    if (stream != NULL && stream->capture != NULL) {
        SIM_TRY(sim_capture_broken(stream));
        return sim_capture_break(frontier_of(stream)->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    return asks(call) ? sim_capture_unsafe(call) : CUDA_SUCCESS;
}

CUresult sim_capture_legacy(struct sim_call *call, struct sim_context *context)
{
    (void)call;
    CUresult result = CUDA_SUCCESS;
    for (struct sim_stream *stream = context->streams; stream != NULL; stream = stream->next)
        if (stream->capture != NULL && stream->kind != SIM_STREAM_NONBLOCKING)
            result = sim_capture_break(frontier_of(stream)->capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    return result;
}

void sim_capture_stream_gone(struct sim_stream *stream)
{
    if (stream->capture == NULL)
        return;
    struct capture *capture = frontier_of(stream)->capture;
    capture->broken = 1;
    if (capture->origin == stream)
        capture->origin = NULL;
    sim_capture_leave(stream);
}

void sim_capture_event_gone(struct sim_event *event)
{
    if (event->capture != NULL)
        sim_frontier_free(event->capture);
    event->capture = NULL;
}

/* ---- operations become nodes ---- */

CUresult sim_capture_node(struct sim_stream *stream, CUgraphNodeType type, struct sim_node **out)
{
    struct frontier *frontier = frontier_of(stream);
    SIM_TRY(sim_capture_broken(stream));
    SIM_TRY(sim_node_make(frontier->capture->graph, type, frontier->node, frontier->data, frontier->count, out));
    (*out)->context = stream->lane.context;
    frontier->count = 0;
    sim_frontier_add(frontier, *out, NULL);
    return CUDA_SUCCESS;
}

struct sim_graph *sim_capture_graph_of(const struct sim_stream *stream)
{
    return frontier_of(stream)->capture->graph;
}

/* The edges of a programmatic launch from kernels are programmatic, whatever else it waits for. */
static void mark_programmatic(struct sim_stream *stream, const struct sim_launch *launch)
{
    const CUlaunchAttribute *attribute =
        sim_launch_attribute(launch, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
    struct frontier *frontier = frontier_of(stream);
    if (attribute == NULL || !attribute->value.programmaticStreamSerializationAllowed)
        return;
    for (size_t i = 0; i < frontier->count; i++) {
        if (frontier->node[i]->type != CU_GRAPH_NODE_TYPE_KERNEL)
            continue;
        frontier->data[i].from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
        frontier->data[i].type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
    }
}

/* Nodes keep the priority of the stream that they were captured from. */
static void keep_priority(const struct sim_stream *stream, struct sim_launch *launch)
{
    if (stream->priority == 0 || launch->attribute_count == SIM_MAX_ATTRIBUTES ||
        sim_launch_attribute(launch, CU_LAUNCH_ATTRIBUTE_PRIORITY) != NULL)
        return;
    launch->attribute[launch->attribute_count++] =
        (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value = {.priority = stream->priority}};
}

/* An event of the launch itself: who waits for it in the capture depends on the kernel by another of its ports. */
static CUresult record_port(struct sim_node *node, struct capture *capture, CUevent handle, const CUgraphEdgeData *data)
{
    struct sim_event *event;
    SIM_TRY(sim_event_get(handle, &event));
    sim_capture_event_gone(event);
    struct frontier *recorded = sim_frontier_make(capture);
    sim_frontier_add(recorded, node, data);
    event->capture = recorded;
    return CUDA_SUCCESS;
}

static CUresult record_ports(struct sim_node *node, struct capture *capture)
{
    static const CUgraphEdgeData programmatic = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                                 .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
    static const CUgraphEdgeData order = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER};
    unsigned kept = 0;
    for (unsigned i = 0; i < node->launch.attribute_count; i++) {
        const CUlaunchAttribute attribute = node->launch.attribute[i];
        if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT)
            SIM_TRY(record_port(node, capture, attribute.value.programmaticEvent.event, &programmatic));
        else if (attribute.id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
            SIM_TRY(record_port(node, capture, attribute.value.launchCompletionEvent.event, &order));
        else
            node->launch.attribute[kept++] = attribute;
    }
    node->launch.attribute_count = kept; /* the edges say it from now on */
    return CUDA_SUCCESS;
}

CUresult sim_capture_launch(struct sim_call *call, struct sim_stream *stream, struct sim_launch *launch,
                            CUgraphDeviceNode *device_node)
{
    (void)call;
    struct sim_node *node;
    mark_programmatic(stream, launch);
    keep_priority(stream, launch);
    CUresult result = sim_capture_node(stream, CU_GRAPH_NODE_TYPE_KERNEL, &node);
    if (result != CUDA_SUCCESS) {
        sim_launch_drop(launch);
        return result;
    }
    node->launch = *launch;
    node->context = launch->func->module->context;
    SIM_TRY(record_ports(node, frontier_of(stream)->capture));
    CUlaunchAttribute *updatable =
        (CUlaunchAttribute *)sim_launch_attribute(&node->launch, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE);
    if (updatable != NULL) {
        SIM_TRY(sim_device_node_opt_in(node, &updatable->value));
        *device_node = updatable->value.deviceUpdatableKernelNode.devNode;
    }
    return CUDA_SUCCESS;
}

CUresult sim_capture_memcpy(struct sim_call *call, struct sim_stream *stream, const CUDA_MEMCPY3D *copy)
{
    (void)call;
    struct sim_node *node;
    SIM_TRY(sim_capture_node(stream, CU_GRAPH_NODE_TYPE_MEMCPY, &node));
    node->copy = *copy;
    sim_operand_homes(node);
    return CUDA_SUCCESS;
}

CUresult sim_capture_memset(struct sim_call *call, struct sim_stream *stream, const CUDA_MEMSET_NODE_PARAMS *set)
{
    (void)call;
    struct sim_node *node;
    SIM_TRY(sim_capture_node(stream, CU_GRAPH_NODE_TYPE_MEMSET, &node));
    node->set = *set;
    sim_operand_homes(node);
    return CUDA_SUCCESS;
}

CUresult sim_capture_host(struct sim_call *call, struct sim_stream *stream, CUhostFn function, void *data)
{
    (void)call;
    struct sim_node *node;
    SIM_TRY(sim_capture_node(stream, CU_GRAPH_NODE_TYPE_HOST, &node));
    node->host.fn = function;
    node->host.userData = data;
    return CUDA_SUCCESS;
}

CUresult sim_capture_graph(struct sim_call *call, struct sim_stream *stream, const struct sim_graph *graph)
{
    (void)call;
    struct sim_node *node;
    struct sim_graph *child;
    if (sim_graph_holds(graph) & (SIM_HOLDS_MEMORY | SIM_HOLDS_CONDITION))
        return sim_capture_break(frontier_of(stream)->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    SIM_TRY(sim_graph_copy(graph, &child));
    child->borrowed = 1;
    CUresult result = sim_capture_node(stream, CU_GRAPH_NODE_TYPE_GRAPH, &node);
    if (result != CUDA_SUCCESS) {
        sim_graph_free(child);
        return result;
    }
    node->child = child;
    return CUDA_SUCCESS;
}

CUresult sim_capture_event_record(struct sim_call *call, struct sim_stream *stream, struct sim_event *event,
                                  unsigned flags)
{
    (void)call;
    SIM_TRY(sim_capture_broken(stream));
    if (flags & CU_EVENT_RECORD_EXTERNAL) {
        struct sim_node *node;
        SIM_TRY(sim_capture_node(stream, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &node));
        node->event = event;
        return CUDA_SUCCESS;
    }
    sim_capture_event_gone(event);
    struct frontier *copy = sim_frontier_make(frontier_of(stream)->capture);
    sim_frontier_join(copy, frontier_of(stream));
    event->capture = copy;
    return CUDA_SUCCESS;
}

CUresult sim_capture_event_wait(struct sim_call *call, struct sim_stream *stream, struct sim_event *event,
                                unsigned flags)
{
    (void)call;
    struct frontier *recorded = event->capture;
    if (stream->capture != NULL) {
        SIM_TRY(sim_capture_broken(stream));
        if (flags & CU_EVENT_WAIT_EXTERNAL) {
            struct sim_node *node;
            if (recorded != NULL)
                return sim_capture_break(frontier_of(stream)->capture, CUDA_ERROR_INVALID_VALUE);
            SIM_TRY(sim_capture_node(stream, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &node));
            node->event = event;
            return CUDA_SUCCESS;
        }
        if (recorded == NULL || recorded->capture->ended)
            return sim_capture_break(frontier_of(stream)->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
        if (recorded->capture != frontier_of(stream)->capture) {
            recorded->capture->broken = 1;
            return sim_capture_break(frontier_of(stream)->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
        }
    } else {
        if (recorded->capture->ended)
            return CUDA_ERROR_INVALID_VALUE;
        if (recorded->capture->broken)
            return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        if (stream->kind == SIM_STREAM_LEGACY)
            return sim_capture_break(recorded->capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        stream->capture = sim_frontier_make(recorded->capture);
    }
    sim_frontier_join(frontier_of(stream), recorded);
    return CUDA_SUCCESS;
}
