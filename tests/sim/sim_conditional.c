/*
 * Conditional nodes. A handle stands for one condition of one graph: a value that kernels set, and that gets its
 * default at each launch when it was made so. A conditional node reads it when it is reached and runs one of its
 * bodies, or one body over and over. Bodies are graphs that belong to the node; the program fills them through their
 * handles.
 *
 * A condition outlives its graph, since kernels of executable graphs keep the handle in their parameters; there are
 * few, and they are kept to the end of the process.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "sim_program.h"

enum { LOOP_MAX = 1000000 };

struct sim_condition {
    struct sim_condition *next;
    uint64_t graph_serial;
    struct sim_context *context;
    unsigned initial, flags, value;
    int used; /* by a node */
};

static struct sim_condition *conditions;

static struct sim_condition *condition_of(CUgraphConditionalHandle handle)
{
    struct sim_condition *condition = conditions;
    while (condition != NULL && (uint64_t)(uintptr_t)condition != handle)
        condition = condition->next;
    return condition;
}

SIM_API(SIM_CONTEXT, cuGraphConditionalHandleCreate,
        (CUgraphConditionalHandle * pHandle_out, CUgraph hGraph, CUcontext ctx, unsigned int defaultLaunchValue,
         unsigned int flags),
        pHandle_out, hGraph, ctx, defaultLaunchValue, flags)
{
    struct sim_graph *graph;
    struct sim_context *context = call->context;
    if (pHandle_out == NULL || (flags & ~(unsigned)CU_GRAPH_COND_ASSIGN_DEFAULT) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_graph_get(hGraph, &graph));
    if (ctx != NULL && !sim_context_valid(ctx, &context))
        return CUDA_ERROR_INVALID_CONTEXT;
    struct sim_condition *condition = malloc(sizeof *condition);
    if (condition == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *condition = (struct sim_condition){.next = conditions,
                                        .graph_serial = graph->serial,
                                        .context = context,
                                        .initial = defaultLaunchValue,
                                        .flags = flags};
    conditions = condition;
    *pHandle_out = (uint64_t)(uintptr_t)condition;
    return CUDA_SUCCESS;
}

void sim_conditional_set(uint64_t handle, unsigned value)
{
    struct sim_condition *condition = condition_of(handle);
    if (condition == NULL)
        sim_say("a kernel sets a condition that is none: 0x%llx", (unsigned long long)handle);
    else
        condition->value = value;
}

/* ---- the node */

static CUresult branch_make(const struct sim_branch *like, struct sim_branch **out)
{
    struct sim_branch *branch = malloc(sizeof *branch);
    if (branch == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *branch = *like;
    branch->size = 0; /* bodies made so far */
    branch->body = calloc(like->size, sizeof *branch->body);
    if (branch->body == NULL) {
        free(branch);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = branch;
    return CUDA_SUCCESS;
}

void sim_branch_free(struct sim_branch *branch)
{
    while (branch->size != 0)
        sim_graph_free(branch->body[--branch->size]);
    free(branch->body);
    free(branch);
}

CUresult sim_params_branch(CUDA_CONDITIONAL_NODE_PARAMS *params, struct sim_node *out)
{
    memset(out, 0, sizeof *out);
    out->type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    struct sim_branch like = {condition_of(params->handle), params->type, params->size, NULL};
    if (like.condition == NULL || like.kind > CU_GRAPH_COND_TYPE_SWITCH || like.size == 0 ||
        (like.kind == CU_GRAPH_COND_TYPE_WHILE && like.size != 1) ||
        (like.kind == CU_GRAPH_COND_TYPE_IF && like.size > 2))
        return CUDA_ERROR_INVALID_VALUE;
    if (params->ctx != NULL && (struct sim_context *)params->ctx != like.condition->context)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(branch_make(&like, &out->branch));
    CUresult result = CUDA_SUCCESS;
    while (out->branch->size < like.size && result == CUDA_SUCCESS) {
        result = sim_graph_make(&out->branch->body[out->branch->size]);
        if (result == CUDA_SUCCESS)
            out->branch->body[out->branch->size++]->borrowed = 1;
    }
    if (result != CUDA_SUCCESS) {
        sim_branch_free(out->branch);
        return result;
    }
    params->phGraph_out = (CUgraph *)(void *)out->branch->body;
    return CUDA_SUCCESS;
}

CUresult sim_branch_copy(const struct sim_branch *from, struct sim_branch **out)
{
    SIM_TRY(branch_make(from, out));
    for (unsigned b = 0; b < from->size; b++) {
        CUresult result = sim_graph_copy(from->body[b], &(*out)->body[b]);
        if (result != CUDA_SUCCESS) {
            sim_branch_free(*out);
            *out = NULL;
            return result;
        }
        (*out)->body[b]->borrowed = 1;
        (*out)->size++;
    }
    return CUDA_SUCCESS;
}

CUresult sim_branch_place(struct sim_branch *branch, struct sim_graph *graph)
{
    const struct sim_graph *owner = graph;
    while (owner != NULL && owner->serial != branch->condition->graph_serial)
        owner = owner->outer;
    if (owner == NULL || branch->condition->used)
        return CUDA_ERROR_INVALID_VALUE;
    branch->condition->used = 1;
    for (unsigned b = 0; b < branch->size; b++)
        branch->body[b]->outer = graph;
    return CUDA_SUCCESS;
}

static void check_kind(struct sim_node *node, void *context)
{
    static const unsigned char allowed[] = {
        [CU_GRAPH_NODE_TYPE_KERNEL] = 1, [CU_GRAPH_NODE_TYPE_MEMCPY] = 1, [CU_GRAPH_NODE_TYPE_MEMSET] = 1,
        [CU_GRAPH_NODE_TYPE_GRAPH] = 1,  [CU_GRAPH_NODE_TYPE_EMPTY] = 1,  [CU_GRAPH_NODE_TYPE_CONDITIONAL] = 1};
    if (!allowed[node->type])
        *(CUresult *)context = CUDA_ERROR_NOT_SUPPORTED;
}

/* Which error a body with other kinds of nodes gives is not documented. */
CUresult sim_branch_check(const struct sim_branch *branch)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned b = 0; b < branch->size; b++)
        sim_graph_visit(branch->body[b], check_kind, &result);
    return result;
}

/* ---- running */

static void reset(struct sim_node *node, void *context)
{
    (void)context;
    if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL &&
        (node->branch->condition->flags & CU_GRAPH_COND_ASSIGN_DEFAULT) != 0)
        node->branch->condition->value = node->branch->condition->initial;
}

void sim_conditions_reset(struct sim_graph *graph)
{
    sim_graph_visit(graph, reset, NULL);
}

CUresult sim_branch_run(struct sim_call *call, struct sim_node *node)
{
    const struct sim_branch *branch = node->branch;
    unsigned value = branch->condition->value;
    switch (branch->kind) {
    case CU_GRAPH_COND_TYPE_IF:
        value = value == 0;
        break;
    case CU_GRAPH_COND_TYPE_WHILE:
        for (int round = 0; branch->condition->value != 0; round++) {
            if (round == LOOP_MAX)
                sim_die("a while node has gone round %d times", LOOP_MAX);
            SIM_TRY(sim_graph_run(call, branch->body[0], &node->lane));
        }
        return CUDA_SUCCESS;
    case CU_GRAPH_COND_TYPE_SWITCH:
        break;
    }
    return value < branch->size ? sim_graph_run(call, branch->body[value], &node->lane) : CUDA_SUCCESS;
}
