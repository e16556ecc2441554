/*
 * Memory that belongs to a graph: allocation and free nodes, by hand and by capture.
 *
 * An allocation has its address and its device memory from the moment its node is made (a real driver takes the memory
 * at the launch). It is live from the run of its allocation node to the free: of a free node, of the program, or of the
 * next launch when the graph was instantiated so. Allocating and freeing count as writes, and fresh memory is poisoned,
 * so uses that are out of order are seen. Nodes hold the allocation; it goes with the last of them unless it is live.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "sim_program.h"

struct sim_graph_memory {
    struct sim_graph_memory *next;
    uint64_t address, bytes;
    int device;
    unsigned references; /* nodes */
    int live;
    uint64_t owner;    /* serial of the graph with the allocation node; 0 until it is placed */
    uint64_t freed_in; /* serial of the graph with the free node, or 0 */
    CUmemPoolProps props;
};

static struct sim_graph_memory *all_memory;
static uint64_t used_high[SIM_MAX_DEVICES], reserved_high[SIM_MAX_DEVICES];

static struct sim_graph_memory *memory_at(uint64_t address)
{
    struct sim_graph_memory *memory = all_memory;
    while (memory != NULL && memory->address != address)
        memory = memory->next;
    return memory;
}

static uint64_t sum(int device, int live_only)
{
    uint64_t bytes = 0;
    for (const struct sim_graph_memory *memory = all_memory; memory != NULL; memory = memory->next)
        if (memory->device == device && (memory->live || !live_only))
            bytes += memory->bytes;
    return bytes;
}

static void note_high(int device)
{
    uint64_t used = sum(device, 1), reserved = sum(device, 0);
    used_high[device] = used > used_high[device] ? used : used_high[device];
    reserved_high[device] = reserved > reserved_high[device] ? reserved : reserved_high[device];
}

uint64_t sim_graph_memory_address(const struct sim_graph_memory *memory)
{
    return memory->address;
}

void sim_graph_memory_hold(struct sim_graph_memory *memory)
{
    memory->references++;
}

static void release_unheld(struct sim_graph_memory *memory)
{
    if (memory->references != 0 || memory->live)
        return;
    for (struct sim_graph_memory **at = &all_memory; *at != NULL; at = &(*at)->next) {
        if (*at == memory) {
            *at = memory->next;
            break;
        }
    }
    struct sim_range *range = sim_range_find(memory->address);
    if (range != NULL && range->graph_memory == memory) /* else its context took it away */
        sim_memory_free(range, NULL);
    free(memory);
}

void sim_graph_memory_drop(struct sim_graph_memory *memory)
{
    memory->references--;
    release_unheld(memory);
}

/* ---- nodes */

static CUresult make(struct sim_context *context, uint64_t bytes, const CUmemPoolProps *props,
                     struct sim_graph_memory **out)
{
    struct sim_range *range;
    struct sim_graph_memory *memory = calloc(1, sizeof *memory);
    if (memory == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = sim_memory_allocate(context, bytes, 0, &range);
    if (result != CUDA_SUCCESS) {
        free(memory);
        return result;
    }
    *memory = (struct sim_graph_memory){.next = all_memory,
                                        .address = range->address,
                                        .bytes = bytes,
                                        .device = context->device->ordinal,
                                        .references = 1,
                                        .props = *props};
    range->graph_memory = memory;
    all_memory = memory;
    note_high(memory->device);
    *out = memory;
    return CUDA_SUCCESS;
}

CUresult sim_params_allocation(struct sim_call *call, CUDA_MEM_ALLOC_NODE_PARAMS *params, struct sim_node *out)
{
    memset(out, 0, sizeof *out);
    out->type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    out->context = call->context;
    if (params == NULL || params->bytesize == 0 || params->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        params->poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE ||
        params->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (call->context == NULL || sim_device_get(params->poolProps.location.id) != call->context->device)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(make(call->context, params->bytesize, &params->poolProps, &out->memory));
    params->dptr = out->memory->address;
    return CUDA_SUCCESS;
}

CUresult sim_params_free(uint64_t address, struct sim_node *out)
{
    memset(out, 0, sizeof *out);
    out->type = CU_GRAPH_NODE_TYPE_MEM_FREE;
    struct sim_graph_memory *memory = memory_at(address);
    if (memory == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    out->memory = memory;
    sim_graph_memory_hold(memory);
    return CUDA_SUCCESS;
}

CUresult sim_graph_memory_place(struct sim_node *params, struct sim_graph *graph)
{
    struct sim_graph_memory *memory = params->memory;
    if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        memory->owner = graph->serial;
        return CUDA_SUCCESS;
    }
    if (memory->freed_in == graph->serial || (memory->freed_in != 0 && memory->freed_in == memory->owner) ||
        (memory->freed_in != 0 && graph->serial == memory->owner))
        return CUDA_ERROR_INVALID_VALUE;
    memory->freed_in = graph->serial;
    return CUDA_SUCCESS;
}

/* ---- running */

static CUresult touch(struct sim_call *call, struct sim_lane *lane, const char *site,
                      const struct sim_graph_memory *memory)
{
    const struct sim_access access = {memory->address, memory->bytes, 1};
    const struct sim_op op = {.site = site, .access = &access, .access_count = 1};
    return sim_submit(call, lane, &op);
}

static CUresult allocate(struct sim_call *call, struct sim_lane *lane, struct sim_graph_memory *memory)
{
    const struct sim_range *range = sim_range_find(memory->address);
    SIM_TRY(touch(call, lane, "memory allocation node", memory));
    if (range == NULL || range->graph_memory != memory)
        return CUDA_ERROR_INVALID_VALUE;
    sim_backing_poison(range->backing, range->backing_offset, memory->bytes);
    memory->live = 1;
    note_high(memory->device);
    return CUDA_SUCCESS;
}

CUresult sim_graph_memory_run(struct sim_call *call, struct sim_node *node)
{
    struct sim_graph_memory *memory = node->memory;
    if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        return allocate(call, &node->lane, memory);
    if (!memory->live)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(touch(call, &node->lane, "memory free node", memory));
    memory->live = 0;
    return CUDA_SUCCESS;
}

struct beginning {
    CUresult result;
    int frees;
};

static void begin_node(struct sim_node *node, void *context)
{
    struct beginning *beginning = context;
    if (node->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC || !node->memory->live)
        return;
    if (beginning->frees)
        node->memory->live = 0; /* the write of the next allocation is what has to come after all uses */
    else
        beginning->result = CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_graph_memory_begin(struct sim_exec *exec)
{
    struct beginning beginning = {CUDA_SUCCESS, (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0};
    sim_graph_visit(exec->graph, begin_node, &beginning);
    return beginning.result;
}

/* ---- frees by the program */

/* What one graph allocates and frees is not the program's to free. */
CUresult sim_graph_memory_freed(struct sim_call *call, struct sim_graph_memory *memory, struct sim_lane *lane)
{
    if (!memory->live || (memory->freed_in != 0 && memory->freed_in == memory->owner))
        return CUDA_ERROR_INVALID_VALUE;
    if (lane != NULL)
        SIM_TRY(touch(call, lane, call->function->name, memory));
    memory->live = 0;
    release_unheld(memory);
    return CUDA_SUCCESS;
}

/* ---- capture */

static CUresult capture_node(struct sim_stream *stream, struct sim_node *params)
{
    struct sim_node *node;
    CUresult result = sim_graph_memory_place(params, sim_capture_graph_of(stream));
    if (result == CUDA_SUCCESS)
        result = sim_capture_node(stream, params->type, &node);
    if (result != CUDA_SUCCESS) {
        sim_node_drop_params(params);
        return result;
    }
    sim_node_move_params(node, params);
    return CUDA_SUCCESS;
}

CUresult sim_capture_allocate(struct sim_stream *stream, uint64_t bytes, const CUmemPoolProps *props, CUdeviceptr *out)
{
    struct sim_node params = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC, .context = stream->lane.context};
    SIM_TRY(make(stream->lane.context, bytes, props, &params.memory));
    uint64_t address = params.memory->address;
    SIM_TRY(capture_node(stream, &params));
    *out = address;
    return CUDA_SUCCESS;
}

CUresult sim_capture_free(struct sim_stream *stream, uint64_t address)
{
    struct sim_node params;
    SIM_TRY(sim_params_free(address, &params));
    return capture_node(stream, &params);
}

/* ---- exported */

static CUresult memory_node(CUgraphNode handle, CUgraphNodeType type, struct sim_graph_memory **out)
{
    struct sim_node *node;
    SIM_TRY(sim_node_get(handle, &node));
    if (node->type != type)
        return CUDA_ERROR_INVALID_VALUE;
    *out = node->memory;
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuGraphMemAllocNodeGetParams, (CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS *params_out), hNode,
        params_out)
{
    (void)call;
    struct sim_graph_memory *memory;
    if (params_out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(memory_node(hNode, CU_GRAPH_NODE_TYPE_MEM_ALLOC, &memory));
    *params_out =
        (CUDA_MEM_ALLOC_NODE_PARAMS){.poolProps = memory->props, .bytesize = memory->bytes, .dptr = memory->address};
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuGraphMemFreeNodeGetParams, (CUgraphNode hNode, CUdeviceptr *dptr_out), hNode, dptr_out)
{
    (void)call;
    struct sim_graph_memory *memory;
    if (dptr_out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(memory_node(hNode, CU_GRAPH_NODE_TYPE_MEM_FREE, &memory));
    *dptr_out = memory->address;
    return CUDA_SUCCESS;
}

static CUresult check_attribute(CUdevice dev, CUgraphMem_attribute attr, const void *value)
{
    if (value == NULL || (int)attr < 0 || attr > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_device_get(dev) != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

SIM_API(SIM_INIT, cuDeviceGetGraphMemAttribute, (CUdevice dev, CUgraphMem_attribute attr, void *value), dev, attr,
        value)
{
    (void)call;
    SIM_TRY(check_attribute(dev, attr, value));
    const int device = sim_device_get(dev)->ordinal;
    *(cuuint64_t *)value = attr == CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT       ? sum(device, 1)
                           : attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH        ? used_high[device]
                           : attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT ? sum(device, 0)
                                                                            : reserved_high[device];
    return CUDA_SUCCESS;
}

/* The marks can only be cleared. */
SIM_API(SIM_INIT, cuDeviceSetGraphMemAttribute, (CUdevice dev, CUgraphMem_attribute attr, void *value), dev, attr,
        value)
{
    (void)call;
    SIM_TRY(check_attribute(dev, attr, value));
    if ((attr != CU_GRAPH_MEM_ATTR_USED_MEM_HIGH && attr != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) ||
        *(const cuuint64_t *)value != 0)
        return CUDA_ERROR_INVALID_VALUE;
    const int device = sim_device_get(dev)->ordinal;
    *(attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH ? &used_high[device] : &reserved_high[device]) = 0;
    note_high(device);
    return CUDA_SUCCESS;
}

/* Nothing is cached that no graph holds. */
SIM_API(SIM_INIT, cuDeviceGraphMemTrim, (CUdevice dev), dev)
{
    (void)call;
    return sim_device_get(dev) != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
