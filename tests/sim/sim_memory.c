/* Plain device memory: cuMemAlloc and its family. Less than 1 MiB shares 2 MiB blocks; more has its own pages. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SMALL_BYTES     ((uint64_t)1 << 20)
#define SMALL_ALIGNMENT 512
#define PITCH_ALIGNMENT 512

/* One page cut into pieces. The free pieces are sorted by offset and never touch each other. */
struct sim_block {
    struct sim_block *next;
    struct sim_context *context;
    struct sim_backing *backing;
    uint64_t address;
    int low;
    size_t free_count;
    struct sim_extent free[SIM_PAGE_BYTES / SMALL_ALIGNMENT / 2 + 1];
};

static struct sim_block *blocks;

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

static CUresult space_map(struct sim_backing *backing, int low, uint64_t *out)
{
    uint64_t address = sim_space_reserve(backing->bytes, SIM_PAGE_BYTES, 0, low);
    if (address == 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!sim_backing_map(backing, address, PROT_READ | PROT_WRITE)) {
        sim_space_free(address, backing->bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = address;
    return CUDA_SUCCESS;
}

static CUresult backing_map_new(unsigned pool, uint64_t bytes, int low, struct sim_backing **backing, uint64_t *address)
{
    SIM_TRY(sim_backing_make(pool, bytes, backing));
    CUresult result = space_map(*backing, low, address);
    if (result != CUDA_SUCCESS) {
        sim_backing_put(*backing, "cuMemAlloc");
    }
    return result;
}

static CUresult block_make(struct sim_context *context, int low, struct sim_block **out)
{
    struct sim_block *block = calloc(1, sizeof *block);
    if (block == NULL) {
        sim_die("out of host memory");
    }
    CUresult result =
        backing_map_new((unsigned)context->device->ordinal, SIM_PAGE_BYTES, low, &block->backing, &block->address);
    if (result != CUDA_SUCCESS) {
        free(block);
        return result;
    }
    block->context = context;
    block->low = low;
    block->free_count = 1;
    block->free[0] = (struct sim_extent){0, SIM_PAGE_BYTES};
    block->next = blocks;
    blocks = block;
    *out = block;
    return CUDA_SUCCESS;
}

/* First fit. Returns 0 when nothing is large enough. */
static int block_take(struct sim_block *block, uint64_t bytes, uint64_t *offset)
{
    for (size_t i = 0; i < block->free_count; i++) {
        struct sim_extent *hole = &block->free[i];
        if (hole->bytes >= bytes) {
            *offset = hole->offset;
            hole->offset += bytes;
            hole->bytes -= bytes;
            if (hole->bytes == 0) {
                memmove(hole, hole + 1, (block->free_count - i - 1) * sizeof *hole);
                block->free_count--;
            }
            return 1;
        }
    }
    return 0;
}

static void block_give(struct sim_block *block, uint64_t offset, uint64_t bytes)
{
    size_t i = 0;
    while (i < block->free_count && block->free[i].offset < offset) {
        i++;
    }
    memmove(block->free + i + 1, block->free + i, (block->free_count - i) * sizeof block->free[0]);
    block->free[i] = (struct sim_extent){offset, bytes};
    block->free_count++;
    if (i + 1 < block->free_count && offset + bytes == block->free[i + 1].offset) {
        block->free[i].bytes += block->free[i + 1].bytes;
        memmove(block->free + i + 1, block->free + i + 2, (block->free_count - i - 2) * sizeof block->free[0]);
        block->free_count--;
    }
    if (i > 0 && block->free[i - 1].offset + block->free[i - 1].bytes == offset) {
        block->free[i - 1].bytes += block->free[i].bytes;
        memmove(block->free + i, block->free + i + 1, (block->free_count - i - 1) * sizeof block->free[0]);
        block->free_count--;
    }
}

static void block_drop_if_empty(struct sim_block *block, const char *site)
{
    if (block->free_count != 1 || block->free[0].bytes != SIM_PAGE_BYTES) {
        return;
    }
    for (struct sim_block **at = &blocks; *at != NULL; at = &(*at)->next) {
        if (*at == block) {
            *at = block->next;
            break;
        }
    }
    sim_space_free(block->address, SIM_PAGE_BYTES);
    sim_backing_put(block->backing, site);
    free(block);
}

static CUresult allocate_small(struct sim_context *context, uint64_t bytes, int low, struct sim_range *value)
{
    uint64_t offset = 0, taken = round_up(bytes, SMALL_ALIGNMENT);
    struct sim_block *block = blocks;
    while (block != NULL && (block->context != context || block->low != low || !block_take(block, taken, &offset))) {
        block = block->next;
    }
    if (block == NULL) {
        SIM_TRY(block_make(context, low, &block));
        block_take(block, taken, &offset);
    }
    sim_backing_poison(block->backing, offset, taken);
    value->address = block->address + offset;
    value->backing = block->backing;
    value->backing_offset = offset;
    value->block = block;
    return CUDA_SUCCESS;
}

CUresult sim_memory_allocate(struct sim_context *context, uint64_t bytes, int low, struct sim_range **out)
{
    struct sim_range value = {.kind = SIM_RANGE_DEVICE, .bytes = bytes, .context = context, .device = context->device};
    if (bytes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (bytes > sim_knobs.device_bytes) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (bytes < SMALL_BYTES) {
        SIM_TRY(allocate_small(context, bytes, low, &value));
    } else {
        SIM_TRY(backing_map_new((unsigned)context->device->ordinal, bytes, low, &value.backing, &value.address));
        value.reserved_bytes = value.backing->bytes;
    }
    *out = sim_range_add(&value);
    return CUDA_SUCCESS;
}

void sim_memory_free(struct sim_range *range, const char *site)
{
    struct sim_block *block = range->block;
    if (block != NULL) {
        struct sim_extent extent = sim_backing_extent(range->backing, range->backing_offset);
        uint64_t bytes = round_up(range->bytes, SMALL_ALIGNMENT), offset = range->backing_offset;
        sim_race_forget(site, range->backing->pool, extent.offset, bytes);
        sim_range_drop(range);
        block_give(block, offset, bytes);
        block_drop_if_empty(block, site);
        return;
    }
    sim_space_free(range->address, range->reserved_bytes);
    sim_backing_put(range->backing, site);
    sim_range_drop(range);
}

void sim_memory_drop_context(struct sim_context *context)
{
    struct sim_range *range = sim_range_next(0), *next;
    for (; range != NULL; range = next) {
        next = sim_range_next(range->address);
        if (range->context != context || range->kind == SIM_RANGE_RESERVED) {
            continue;
        }
        if (range->pool != NULL) {
            sim_mempool_release(range, "context destruction");
        } else if (range->kind == SIM_RANGE_DEVICE) {
            sim_memory_free(range, "context destruction");
        } else {
            sim_host_release(range, "context destruction");
        }
    }
}

/* ---- exported */

static CUresult allocate(struct sim_call *call, uint64_t bytes, int low, uint64_t *out)
{
    SIM_TRY(sim_capture_unsafe(call));
    struct sim_range *range;
    SIM_TRY(sim_memory_allocate(call->context, bytes, low, &range));
    *out = range->address;
    return CUDA_SUCCESS;
}

static CUresult release(struct sim_call *call, uint64_t address)
{
    if (address == 0) {
        return CUDA_SUCCESS;
    }
    struct sim_range *range = sim_range_find(address);
    if (range == NULL || range->address != address || range->freed ||
        (range->kind != SIM_RANGE_DEVICE && range->kind != SIM_RANGE_MANAGED)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    SIM_TRY(sim_capture_unsafe(call));
    SIM_TRY(sim_context_synchronise(call, range->context));
    if (range->graph_memory != NULL) {
        return sim_graph_memory_freed(call, range->graph_memory, NULL);
    }
    if (range->kind == SIM_RANGE_MANAGED) {
        sim_host_release(range, call->function->name);
    } else if (range->pool != NULL) {
        sim_mempool_release(range, call->function->name);
    } else {
        sim_memory_free(range, call->function->name);
    }
    return CUDA_SUCCESS;
}

static uint64_t free_bytes(const struct sim_context *context)
{
    return sim_knobs.device_bytes - sim_pool_used((unsigned)context->device->ordinal);
}

SIM_API(SIM_CONTEXT, cuMemGetInfo_v2, (size_t * free, size_t *total), free, total)
{
    if (free == NULL || total == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *free = free_bytes(call->context);
    *total = sim_knobs.device_bytes;
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuMemAlloc_v2, (CUdeviceptr * dptr, size_t bytesize), dptr, bytesize)
{
    uint64_t address;
    if (dptr == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    SIM_TRY(allocate(call, bytesize, 0, &address));
    *dptr = address;
    return CUDA_SUCCESS;
}

static CUresult allocate_pitch(struct sim_call *call, uint64_t width, uint64_t height, unsigned element, int low,
                               uint64_t *address, uint64_t *pitch)
{
    if (width == 0 || height == 0 || (element != 4 && element != 8 && element != 16)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pitch = round_up(width, PITCH_ALIGNMENT);
    return allocate(call, *pitch * height, low, address);
}

SIM_API(SIM_CONTEXT, cuMemAllocPitch_v2,
        (CUdeviceptr * dptr, size_t *pPitch, size_t WidthInBytes, size_t Height, unsigned int ElementSizeBytes), dptr,
        pPitch, WidthInBytes, Height, ElementSizeBytes)
{
    uint64_t address, pitch;
    if (dptr == NULL || pPitch == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    SIM_TRY(allocate_pitch(call, WidthInBytes, Height, ElementSizeBytes, 0, &address, &pitch));
    *dptr = address;
    *pPitch = pitch;
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuMemFree_v2, (CUdeviceptr dptr), dptr)
{
    return release(call, dptr);
}

static CUresult address_range(uint64_t address, uint64_t *base, uint64_t *bytes)
{
    const struct sim_range *range = sim_range_find(address);
    if (range == NULL || (range->kind != SIM_RANGE_RESERVED && address - range->address >= range->bytes)) {
        return CUDA_ERROR_NOT_FOUND;
    }
    *base = range->address;
    *bytes = range->bytes;
    if (range->kind == SIM_RANGE_RESERVED) {
        const struct sim_mapping *mapping = sim_vmm_find(range, address);
        if (mapping == NULL) {
            return CUDA_ERROR_NOT_FOUND;
        }
        *base = mapping->address;
        *bytes = mapping->bytes;
    }
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuMemGetAddressRange_v2, (CUdeviceptr * pbase, size_t *psize, CUdeviceptr dptr), pbase, psize,
        dptr)
{
    uint64_t base, bytes;
    (void)call;
    SIM_TRY(address_range(dptr, &base, &bytes));
    if (pbase != NULL) {
        *pbase = base;
    }
    if (psize != NULL) {
        *psize = bytes;
    }
    return CUDA_SUCCESS;
}

/* ---- the 32-bit ABI: sizes and addresses are unsigned int, so its memory lies below 4 GiB */

static unsigned int clamp(uint64_t value)
{
    return value > UINT32_MAX ? UINT32_MAX : (unsigned int)value;
}

SIM_API(SIM_CONTEXT, cuMemGetInfo, (unsigned int *free, unsigned int *total), free, total)
{
    if (free == NULL || total == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *free = clamp(free_bytes(call->context));
    *total = clamp(sim_knobs.device_bytes);
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuMemAlloc, (CUdeviceptr_v1 * dptr, unsigned int bytesize), dptr, bytesize)
{
    uint64_t address;
    if (dptr == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    SIM_TRY(allocate(call, bytesize, 1, &address));
    *dptr = (CUdeviceptr_v1)address;
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuMemAllocPitch,
        (CUdeviceptr_v1 * dptr, unsigned int *pPitch, unsigned int WidthInBytes, unsigned int Height,
         unsigned int ElementSizeBytes),
        dptr, pPitch, WidthInBytes, Height, ElementSizeBytes)
{
    uint64_t address, pitch;
    if (dptr == NULL || pPitch == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    SIM_TRY(allocate_pitch(call, WidthInBytes, Height, ElementSizeBytes, 1, &address, &pitch));
    *dptr = (CUdeviceptr_v1)address;
    *pPitch = (unsigned int)pitch;
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuMemFree, (CUdeviceptr_v1 dptr), dptr)
{
    return release(call, dptr);
}

SIM_API(SIM_CONTEXT, cuMemGetAddressRange, (CUdeviceptr_v1 * pbase, unsigned int *psize, CUdeviceptr_v1 dptr), pbase,
        psize, dptr)
{
    uint64_t base, bytes;
    (void)call;
    SIM_TRY(address_range(dptr, &base, &bytes));
    if (pbase != NULL) {
        *pbase = (CUdeviceptr_v1)base;
    }
    if (psize != NULL) {
        *psize = clamp(bytes);
    }
    return CUDA_SUCCESS;
}
