/*
 * stack_graph.c: the layers of a pass as graphs. Executable graphs take turns (--graph-turns), each pass is cut into
 * parts with a graph of their own (--graph-parts), and before a pass they are left alone, made anew, or brought up to
 * date from a new capture (--graph-keep).
 */
#include "stack_model.h"

#include <stdlib.h>

#include "stack_wait.h"

static void drop(struct stack_graph *graph)
{
    if (graph->executable) {
        GPU(cuGraphExecDestroy, graph->executable);
        GPU(cuGraphDestroy, graph->graph);
        graph->executable = NULL;
    }
}

void stack_graphs_drop(struct stack_model *model)
{
    for (uint64_t i = 0; i < STACK_MAX_GRAPHS; i++) {
        drop(&model->graph[i]);
    }
}

void stack_graphs_moved(struct stack_model *model)
{
    if (model->options->graph_keep == KEEP_AS_IS) {
        stack_graphs_drop(model);
    }
}

static CUgraph capture(struct stack_model *model, uint64_t pass, uint64_t part)
{
    static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                                CU_STREAM_CAPTURE_MODE_RELAXED};
    const CUstream stream = model->device[0].stream[0];
    CUgraph graph;
    stack_capture_enter();
    GPU(cuStreamBeginCapture, stream, modes[model->options->capture]);
    stack_pass_layers(model, pass, part, model->options->graph_parts);
    GPU(cuStreamEndCapture, stream, &graph);
    stack_capture_leave();
    return graph;
}

static void instantiate(struct stack_graph *graph, CUgraph captured)
{
    graph->graph = captured;
    GPU(cuGraphInstantiateWithFlags, &graph->executable, captured, 0);
}

/* As a whole, where the driver takes it; else made anew. */
static void update(struct stack_graph *graph, CUgraph captured)
{
    CUgraphExecUpdateResultInfo info;
    const CUresult result = gpu.cuGraphExecUpdate(graph->executable, captured, &info);
    if (result == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) {
        drop(graph);
        instantiate(graph, captured);
        return;
    }
    gpu_check(result, "cuGraphExecUpdate");
    GPU(cuGraphDestroy, captured); /* nodes are still named by the first graph */
}

static CUgraphNode *nodes_of(CUgraph graph, size_t *count)
{
    *count = 0;
    GPU(cuGraphGetNodes, graph, NULL, count);
    CUgraphNode *node = calloc(*count + 1, sizeof *node);
    if (node == NULL) {
        gpu_die("out of host memory");
    }
    GPU(cuGraphGetNodes, graph, node, count);
    return node;
}

static CUgraphNodeType type_of(CUgraphNode node)
{
    CUgraphNodeType type;
    GPU(cuGraphNodeGetType, node, &type);
    return type;
}

/* Node by node, when both have the same nodes; kernels are all that changes. */
static bool set_each(struct stack_graph *graph, CUgraph captured)
{
    size_t count, wanted;
    CUgraphNode *node = nodes_of(graph->graph, &count), *from = nodes_of(captured, &wanted);
    bool alike = count == wanted;
    for (size_t i = 0; alike && i < count; i++) {
        alike = type_of(node[i]) == type_of(from[i]);
    }
    for (size_t i = 0; alike && i < count; i++) {
        if (type_of(node[i]) == CU_GRAPH_NODE_TYPE_KERNEL) {
            CUDA_KERNEL_NODE_PARAMS params;
            GPU(cuGraphKernelNodeGetParams, from[i], &params);
            GPU(cuGraphExecKernelNodeSetParams, graph->executable, node[i], &params);
        }
    }
    free(node);
    free(from);
    return alike;
}

static void bring_up_to_date(struct stack_model *model, struct stack_graph *graph, uint64_t pass, uint64_t part)
{
    const enum stack_keep keep = (enum stack_keep)model->options->graph_keep;
    if (graph->executable && keep == KEEP_AS_IS) {
        return;
    }
    CUgraph captured = capture(model, pass, part);
    if (graph->executable && keep == KEEP_UPDATED) {
        update(graph, captured);
    } else if (graph->executable && keep == KEEP_SET && set_each(graph, captured)) {
        GPU(cuGraphDestroy, captured);
    } else {
        drop(graph);
        instantiate(graph, captured);
    }
}

bool stack_graph_turn(const struct stack_model *model, uint64_t pass)
{
    const struct stack_options *o = model->options;
    return o->graph && pass >= o->graph_after && (o->graph_eager == 0 || pass % o->graph_eager != 0);
}

/* All parts are captured before the first is launched, or none. */
void stack_graph_run(struct stack_model *model, uint64_t pass)
{
    const uint64_t parts = model->options->graph_parts, first = pass % model->options->graph_turns * parts;
    for (uint64_t part = 0; part < parts; part++) {
        bring_up_to_date(model, &model->graph[first + part], pass, part);
    }
    for (uint64_t part = 0; part < parts; part++) {
        GPU(cuGraphLaunch, model->graph[first + part].executable, model->device[0].stream[0]);
    }
}
