/* What single nodes of a graph do, from the driver's descriptions: see graph_model.h. */
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "graph_model.h"

bool ov_graph_node_scan(struct ov_graph_node *node, const CUDA_KERNEL_NODE_PARAMS *params)
{
    struct ov_launch launch;
    struct ov_touches touches;
    memset(&launch, 0, sizeof launch);
    launch.function = params->func != NULL ? params->func : (CUfunction)(void *)params->kern;
    launch.params = params->kernelParams;
    launch.extra = params->extra;
    node->function = launch.function;
    node->context = params->ctx;
    node->kernel = ov_kernel_of(launch.function);
    ov_scan(node->kernel, &launch, &touches);
    bool shown = launch.params != NULL || launch.extra != NULL;
    bool takes_none = node->kernel != NULL && !node->kernel->opaque && node->kernel->slot_count == 0;
    node->incomplete = touches.incomplete || (!shown && !takes_none);
    node->exposed = touches.exposed;
    free(node->touch);
    node->touch = NULL;
    node->touches = touches.count;
    if (touches.count > 0) {
        node->touch = malloc(touches.count * sizeof *node->touch);
        if (node->touch == NULL) {
            node->touches = 0;
            node->incomplete = true;
            return false;
        }
        memcpy(node->touch, touches.item, touches.count * sizeof *node->touch);
    }
    return true;
}

bool ov_graph_node_copies(struct ov_graph_node *node, const struct ov_copy *copy)
{
    if (node->copy == NULL) {
        node->copy = malloc(sizeof *node->copy);
    }
    if (node->copy == NULL) {
        node->incomplete = true;
        return false;
    }
    *node->copy = *copy;
    node->incomplete = false;
    return true;
}

struct side {
    CUmemorytype type;
    const void *host;
    CUdeviceptr device;
    size_t x_bytes, y, z, pitch_bytes, height;
};

/* What lies between the slices of a block is taken for part of it. */
static struct ov_span span_of(const struct side *side, const CUDA_MEMCPY3D *copy)
{
    if (side->type == CU_MEMORYTYPE_ARRAY) {
        return (struct ov_span){0};
    }
    CUdeviceptr base = side->type == CU_MEMORYTYPE_HOST ? (CUdeviceptr)(uintptr_t)side->host : side->device;
    size_t pitch = side->pitch_bytes != 0 ? side->pitch_bytes : copy->WidthInBytes;
    size_t rows = copy->Height > 0 ? copy->Height : 1, slices = copy->Depth > 0 ? copy->Depth : 1;
    size_t height = side->height > rows ? side->height : rows;
    return (struct ov_span){base + (side->z * height + side->y) * pitch + side->x_bytes, copy->WidthInBytes,
                            (slices - 1) * height + rows, pitch};
}

/* The driver knows no ordinary host memory. */
static bool is_host(CUdeviceptr address)
{
    CUmemorytype type = 0;
    CUresult result = ov_cu->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    return result == CUDA_ERROR_INVALID_VALUE || (result == CUDA_SUCCESS && type == CU_MEMORYTYPE_HOST);
}

struct ov_copy ov_graph_copy_of(const CUDA_MEMCPY3D *c)
{
    const struct side dst = {c->dstMemoryType, c->dstHost, c->dstDevice, c->dstXInBytes,
                             c->dstY,          c->dstZ,    c->dstPitch,  c->dstHeight};
    const struct side src = {c->srcMemoryType, c->srcHost, c->srcDevice, c->srcXInBytes,
                             c->srcY,          c->srcZ,    c->srcPitch,  c->srcHeight};
    struct ov_copy copy;
    memset(&copy, 0, sizeof copy);
    copy.dst = span_of(&dst, c);
    copy.src = span_of(&src, c);
    if (src.type == CU_MEMORYTYPE_HOST || (src.type == CU_MEMORYTYPE_UNIFIED && is_host(copy.src.address))) {
        copy.host_source = (const void *)(uintptr_t)copy.src.address;
    }
    return copy;
}

struct ov_copy ov_graph_fill_of(const CUDA_MEMSET_NODE_PARAMS *params)
{
    size_t width = params->width * params->elementSize;
    struct ov_copy copy;
    memset(&copy, 0, sizeof copy);
    copy.dst = (struct ov_span){params->dst, width, params->height, params->pitch != 0 ? params->pitch : width};
    return copy;
}
