/* Node parameters: conversion, getters and setters. See sim_node_params.h. */
#define _GNU_SOURCE
#include "sim_node_params.h"

#include <stdlib.h>
#include <string.h>

static CUresult context_of(struct sim_call *call, CUcontext handle, struct sim_context **out)
{
    if (handle != NULL)
        return sim_context_valid(handle, out) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    *out = call->context;
    return call->context != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult sim_params_kernel(struct sim_call *call, const CUDA_KERNEL_NODE_PARAMS *params, struct sim_node *out)
{
    memset(out, 0, sizeof *out);
    if (params == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUfunction function = params->func != NULL ? params->func : (CUfunction)params->kern;
    struct sim_context *context = NULL;
    if (sim_handle_is(function, SIM_IS_FUNCTION))
        context = ((struct sim_func *)function)->module->context;
    else
        SIM_TRY(context_of(call, params->ctx, &context));
    const struct sim_launch_request request = {
        .function = function,
        .grid = {params->gridDimX, params->gridDimY, params->gridDimZ},
        .block = {params->blockDimX, params->blockDimY, params->blockDimZ},
        .shared_bytes = params->sharedMemBytes,
        .params = params->kernelParams,
        .extra = params->extra,
        .form = "cuGraphAddKernelNode",
    };
    out->type = CU_GRAPH_NODE_TYPE_KERNEL;
    out->context = context;
    return sim_launch_make(context, &request, &out->launch);
}

CUresult sim_params_kernel_v1(struct sim_call *call, const CUDA_KERNEL_NODE_PARAMS_v1 *params, struct sim_node *out)
{
    CUDA_KERNEL_NODE_PARAMS newer = {0};
    if (params == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&newer, params, sizeof *params); /* version 2 only adds fields behind */
    return sim_params_kernel(call, &newer, out);
}

/* Where an operand lies: pool number of its memory. Host memory that the driver does not know counts as host memory. */
static unsigned home_of(uint64_t address)
{
    const struct sim_range *range = sim_range_find(address);
    const struct sim_mapping *mapping =
        range != NULL && range->kind == SIM_RANGE_RESERVED ? sim_vmm_find(range, address) : NULL;
    if (mapping != NULL)
        return sim_vmm_backing(mapping)->pool;
    return range != NULL && range->kind == SIM_RANGE_DEVICE ? (unsigned)range->device->ordinal : SIM_POOL_HOST;
}

void sim_operand_homes(struct sim_node *node)
{
    const CUDA_MEMCPY3D *copy = &node->copy;
    if (node->type == CU_GRAPH_NODE_TYPE_MEMSET) {
        node->home[0] = home_of(node->set.dst);
        return;
    }
    node->home[0] =
        home_of(copy->dstMemoryType == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)copy->dstHost : copy->dstDevice);
    node->home[1] =
        home_of(copy->srcMemoryType == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)copy->srcHost : copy->srcDevice);
}

CUresult sim_params_copy(struct sim_call *call, const CUDA_MEMCPY3D *copy, CUcontext context, struct sim_node *out)
{
    memset(out, 0, sizeof *out);
    if (copy == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    out->type = CU_GRAPH_NODE_TYPE_MEMCPY;
    SIM_TRY(context_of(call, context, &out->context));
    out->copy = *copy;
    sim_operand_homes(out);
    const struct sim_lane where = {.context = out->context};
    return sim_copy_check(call, &where, copy);
}

CUresult sim_params_set(struct sim_call *call, const CUDA_MEMSET_NODE_PARAMS *set, CUcontext context,
                        struct sim_node *out)
{
    memset(out, 0, sizeof *out);
    if (set == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    out->type = CU_GRAPH_NODE_TYPE_MEMSET;
    SIM_TRY(context_of(call, context, &out->context));
    out->set = *set;
    sim_operand_homes(out);
    const struct sim_lane where = {.context = out->context};
    return sim_memset_check(call, &where, set);
}

CUresult sim_params_host(const CUDA_HOST_NODE_PARAMS *host, struct sim_node *out)
{
    memset(out, 0, sizeof *out);
    if (host == NULL || host->fn == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    out->type = CU_GRAPH_NODE_TYPE_HOST;
    out->host = *host;
    return CUDA_SUCCESS;
}

CUresult sim_params_child(CUgraph child, struct sim_node *out)
{
    memset(out, 0, sizeof *out);
    struct sim_graph *graph;
    SIM_TRY(sim_graph_get(child, &graph));
    if (sim_graph_holds(graph) & (SIM_HOLDS_MEMORY | SIM_HOLDS_CONDITION))
        return CUDA_ERROR_NOT_SUPPORTED;
    out->type = CU_GRAPH_NODE_TYPE_GRAPH;
    SIM_TRY(sim_graph_clone(graph, &out->child));
    out->child->borrowed = 1;
    return CUDA_SUCCESS;
}

CUresult sim_params_event(CUgraphNodeType type, CUevent event, struct sim_node *out)
{
    memset(out, 0, sizeof *out);
    out->type = type;
    return sim_event_get(event, &out->event);
}

CUresult sim_params_any(struct sim_call *call, CUgraphNodeParams *params, struct sim_node *out)
{
    memset(out, 0, sizeof *out);
    if (params == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_KERNEL_NODE_PARAMS kernel;
    CUDA_MEMSET_NODE_PARAMS set;
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        memcpy(&kernel, &params->kernel, sizeof kernel);
        return sim_params_kernel(call, &kernel, out);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return sim_params_copy(call, &params->memcpy.copyParams, params->memcpy.copyCtx, out);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        memcpy(&set, &params->memset, sizeof set);
        return sim_params_set(call, &set, params->memset.ctx, out);
    case CU_GRAPH_NODE_TYPE_HOST: {
        const CUDA_HOST_NODE_PARAMS host = {params->host.fn, params->host.userData};
        return sim_params_host(&host, out);
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return sim_params_child(params->graph.graph, out);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        out->type = CU_GRAPH_NODE_TYPE_EMPTY;
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return sim_params_event(params->type, params->eventWait.event, out);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return sim_params_event(params->type, params->eventRecord.event, out);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return sim_params_branch(&params->conditional, out);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
        CUDA_MEM_ALLOC_NODE_PARAMS allocation;
        memcpy(&allocation, &params->alloc, sizeof allocation);
        SIM_TRY(sim_params_allocation(call, &allocation, out));
        params->alloc.dptr = allocation.dptr;
        return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return sim_params_free(params->free.dptr, out);
    default:
        sim_say("graph nodes of type %d are not simulated", (int)params->type);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult sim_params_put(struct sim_node *node, struct sim_node *params)
{
    if (node->type != params->type || node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL ||
        node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
        sim_node_drop_params(params);
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sim_launch old = node->type == CU_GRAPH_NODE_TYPE_KERNEL ? node->launch : (struct sim_launch){0};
    sim_node_drop_params(node);
    sim_node_move_params(node, params);
    if (node->type == CU_GRAPH_NODE_TYPE_KERNEL) { /* attributes are set apart from parameters */
        memcpy(node->launch.attribute, old.attribute, sizeof old.attribute);
        node->launch.attribute_count = old.attribute_count;
    }
    return CUDA_SUCCESS;
}

static CUresult typed_node(CUgraphNode handle, CUgraphNodeType type, const void *params, struct sim_node **out)
{
    if (params == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_node_get(handle, out));
    return (*out)->type == type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Parameters come back in the form in which they were given, in memory of the node. */
static void tell_kernel(struct sim_node *node, CUDA_KERNEL_NODE_PARAMS *out)
{
    struct sim_launch *launch = &node->launch;
    launch->extra_bytes = launch->func->kernel->param_bytes;
    void *const extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, launch->bytes, CU_LAUNCH_PARAM_BUFFER_SIZE,
                           &launch->extra_bytes, CU_LAUNCH_PARAM_END};
    memcpy(launch->extra, extra, sizeof extra);
    *out = (CUDA_KERNEL_NODE_PARAMS){
        .func = (CUfunction)launch->func,
        .gridDimX = launch->grid[0],
        .gridDimY = launch->grid[1],
        .gridDimZ = launch->grid[2],
        .blockDimX = launch->block[0],
        .blockDimY = launch->block[1],
        .blockDimZ = launch->block[2],
        .sharedMemBytes = launch->shared_bytes,
        .kernelParams = launch->from_extra ? NULL : launch->param,
        .extra = launch->from_extra ? launch->extra : NULL,
        .kern = launch->kernel,
        .ctx = (CUcontext)launch->func->module->context,
    };
}

SIM_API(SIM_INIT, cuGraphKernelNodeGetParams_v2, (CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS *nodeParams), hNode,
        nodeParams)
{
    (void)call;
    struct sim_node *node;
    SIM_TRY(typed_node(hNode, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams, &node));
    tell_kernel(node, nodeParams);
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuGraphKernelNodeGetParams, (CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams), hNode,
        nodeParams)
{
    (void)call;
    struct sim_node *node;
    CUDA_KERNEL_NODE_PARAMS newer;
    SIM_TRY(typed_node(hNode, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams, &node));
    tell_kernel(node, &newer);
    memcpy(nodeParams, &newer, sizeof *nodeParams);
    return CUDA_SUCCESS;
}

/* cuGraph<Type>NodeSetParams: convert, then put into the node. */
#define SET_PARAMS(name_, type_, convert_)                                                    \
    SIM_API(SIM_INIT, name_, (CUgraphNode hNode, const type_ *nodeParams), hNode, nodeParams) \
    {                                                                                         \
        (void)call;                                                                           \
        struct sim_node *node, params;                                                        \
        SIM_TRY(sim_node_get(hNode, &node));                                                  \
        SIM_TRY(convert_);                                                                    \
        return sim_params_put(node, &params);                                                 \
    }
SET_PARAMS(cuGraphKernelNodeSetParams, CUDA_KERNEL_NODE_PARAMS_v1, sim_params_kernel_v1(call, nodeParams, &params))
SET_PARAMS(cuGraphKernelNodeSetParams_v2, CUDA_KERNEL_NODE_PARAMS, sim_params_kernel(call, nodeParams, &params))
SET_PARAMS(cuGraphMemcpyNodeSetParams, CUDA_MEMCPY3D,
           sim_params_copy(call, nodeParams, (CUcontext)node->context, &params))
SET_PARAMS(cuGraphMemsetNodeSetParams, CUDA_MEMSET_NODE_PARAMS,
           sim_params_set(call, nodeParams, (CUcontext)node->context, &params))
SET_PARAMS(cuGraphHostNodeSetParams, CUDA_HOST_NODE_PARAMS, sim_params_host(nodeParams, &params))

/* cuGraph<Type>NodeGetParams and ...GetEvent: one field out. */
#define GET_PARAMS(name_, out_type_, node_type_, value_)                       \
    SIM_API(SIM_INIT, name_, (CUgraphNode hNode, out_type_ * out), hNode, out) \
    {                                                                          \
        (void)call;                                                            \
        struct sim_node *node;                                                 \
        SIM_TRY(typed_node(hNode, node_type_, out, &node));                    \
        *out = value_;                                                         \
        return CUDA_SUCCESS;                                                   \
    }
GET_PARAMS(cuGraphMemcpyNodeGetParams, CUDA_MEMCPY3D, CU_GRAPH_NODE_TYPE_MEMCPY, node->copy)
GET_PARAMS(cuGraphMemsetNodeGetParams, CUDA_MEMSET_NODE_PARAMS, CU_GRAPH_NODE_TYPE_MEMSET, node->set)
GET_PARAMS(cuGraphHostNodeGetParams, CUDA_HOST_NODE_PARAMS, CU_GRAPH_NODE_TYPE_HOST, node->host)
GET_PARAMS(cuGraphChildGraphNodeGetGraph, CUgraph, CU_GRAPH_NODE_TYPE_GRAPH, (CUgraph)node->child)
GET_PARAMS(cuGraphEventRecordNodeGetEvent, CUevent, CU_GRAPH_NODE_TYPE_EVENT_RECORD, (CUevent)node->event)
GET_PARAMS(cuGraphEventWaitNodeGetEvent, CUevent, CU_GRAPH_NODE_TYPE_WAIT_EVENT, (CUevent)node->event)

#define SET_EVENT(name_, node_type_)                                           \
    SIM_API(SIM_INIT, name_, (CUgraphNode hNode, CUevent event), hNode, event) \
    {                                                                          \
        (void)call;                                                            \
        struct sim_node *node, params;                                         \
        SIM_TRY(typed_node(hNode, node_type_, event, &node));                  \
        SIM_TRY(sim_params_event(node_type_, event, &params));                 \
        return sim_params_put(node, &params);                                  \
    }
SET_EVENT(cuGraphEventRecordNodeSetEvent, CU_GRAPH_NODE_TYPE_EVENT_RECORD)
SET_EVENT(cuGraphEventWaitNodeSetEvent, CU_GRAPH_NODE_TYPE_WAIT_EVENT)

SIM_API(SIM_INIT, cuGraphNodeSetParams, (CUgraphNode hNode, CUgraphNodeParams *nodeParams), hNode, nodeParams)
{
    struct sim_node *node, params;
    SIM_TRY(sim_node_get(hNode, &node));
    SIM_TRY(sim_params_any(call, nodeParams, &params));
    return sim_params_put(node, &params);
}

/* ---- kernel node attributes ---- */

SIM_API(SIM_INIT, cuGraphKernelNodeGetAttribute,
        (CUgraphNode hNode, CUkernelNodeAttrID attr, CUkernelNodeAttrValue *value_out), hNode, attr, value_out)
{
    (void)call;
    struct sim_node *node;
    SIM_TRY(typed_node(hNode, CU_GRAPH_NODE_TYPE_KERNEL, value_out, &node));
    const CUlaunchAttribute *attribute = sim_launch_attribute(&node->launch, attr);
    if (attribute != NULL)
        *value_out = attribute->value;
    else
        memset(value_out, 0, sizeof *value_out);
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuGraphKernelNodeSetAttribute,
        (CUgraphNode hNode, CUkernelNodeAttrID attr, const CUkernelNodeAttrValue *value), hNode, attr, value)
{
    (void)call;
    struct sim_node *node;
    SIM_TRY(typed_node(hNode, CU_GRAPH_NODE_TYPE_KERNEL, value, &node));
    CUlaunchAttribute attribute = {.id = attr, .value = *value};
    SIM_TRY(sim_launch_check_attribute(&node->launch, &attribute));
    CUlaunchAttribute *old = (CUlaunchAttribute *)sim_launch_attribute(&node->launch, attr);
    if (old == NULL && node->launch.attribute_count == SIM_MAX_ATTRIBUTES)
        return CUDA_ERROR_INVALID_VALUE;
    if (attr == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE) {
        SIM_TRY(sim_device_node_opt_in(node, &attribute.value));
        /* An output, whatever the prototype says. */
        ((CUkernelNodeAttrValue *)value)->deviceUpdatableKernelNode = attribute.value.deviceUpdatableKernelNode;
    }
    *(old != NULL ? old : &node->launch.attribute[node->launch.attribute_count++]) = attribute;
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuGraphKernelNodeCopyAttributes, (CUgraphNode dst, CUgraphNode src), dst, src)
{
    (void)call;
    struct sim_node *to, *from;
    SIM_TRY(typed_node(dst, CU_GRAPH_NODE_TYPE_KERNEL, dst, &to));
    SIM_TRY(typed_node(src, CU_GRAPH_NODE_TYPE_KERNEL, src, &from));
    if (to->device_node != NULL || from->device_node != NULL || to->context != from->context)
        return CUDA_ERROR_INVALID_VALUE;
    memmove(to->launch.attribute, from->launch.attribute, sizeof from->launch.attribute);
    to->launch.attribute_count = from->launch.attribute_count;
    return CUDA_SUCCESS;
}
