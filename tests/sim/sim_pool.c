/*
 * Stream-ordered allocation. A freed range stays in its pool, with the point of its stream at which it was freed. It is
 * given out again to work that is ordered after that point, or, when memory is short, to work that is made to wait for
 * it. What the host has seen the end of, above the pool's release threshold, goes back to the device.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

struct sim_mempool {
    struct sim_mempool *next;
    struct sim_device *device;
    int is_default, reuse[3]; /* follow events, opportunistic, internal dependencies */
    uint64_t used, used_high, reserved, reserved_high, release_threshold;
    unsigned char access[SIM_MAX_DEVICES];
    CUmemPoolProps props;
};

/* A range whose free was put on a stream. */
struct freed {
    struct sim_range *range;
    uint32_t lane;
    uint64_t tick;
    int64_t time_ns;
    struct sim_vector clock;
};

static struct sim_mempool *pools;
static struct freed *freed;
static size_t freed_count, freed_room;

static uint64_t capacity(uint64_t bytes)
{
    uint64_t unit = bytes < (uint64_t)1 << 20 ? 512 : SIM_PAGE_BYTES;
    return (bytes + unit - 1) / unit * unit;
}

static struct sim_mempool *pool_make(struct sim_device *device, const CUmemPoolProps *props)
{
    struct sim_mempool *pool = calloc(1, sizeof *pool);
    if (pool == NULL) {
        sim_die("out of host memory");
    }
    pool->device = device;
    pool->props = *props;
    pool->access[device->ordinal] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    for (int i = 0; i < 3; i++) {
        pool->reuse[i] = 1;
    }
    pool->next = pools;
    pools = pool;
    sim_handle_add(pool, 'P');
    return pool;
}

static struct sim_mempool *default_pool(struct sim_device *device)
{
    if (device->default_pool == NULL) {
        const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal}};
        device->default_pool = pool_make(device, &props);
        device->default_pool->is_default = 1;
    }
    return device->default_pool;
}

static struct sim_mempool *current_pool(struct sim_device *device)
{
    return device->current_pool != NULL ? device->current_pool : default_pool(device);
}

int sim_mempool_reaches(const struct sim_mempool *pool, const struct sim_device *device)
{
    return pool->access[device->ordinal] == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

static void freed_drop(size_t index)
{
    sim_vector_free(&freed[index].clock);
    freed[index] = freed[--freed_count];
}

/* The range goes back to the device. No site: nothing in flight there is looked for, the caller has ordered it. */
static void range_release(struct sim_range *range, const char *site)
{
    range->pool->reserved -= capacity(range->bytes);
    sim_memory_free(range, site);
}

void sim_mempool_release(struct sim_range *range, const char *site)
{
    range->pool->used -= range->freed ? 0 : capacity(range->bytes);
    for (size_t i = 0; i < freed_count; i++) {
        if (freed[i].range == range) {
            freed_drop(i);
            break;
        }
    }
    range_release(range, site);
}

static void pool_trim(struct sim_mempool *pool, uint64_t keep_bytes)
{
    for (size_t i = freed_count; i-- > 0 && pool->reserved > keep_bytes;) {
        if (freed[i].range->pool == pool && sim_host_covers(freed[i].lane, freed[i].tick)) {
            struct sim_range *range = freed[i].range;
            freed_drop(i);
            range_release(range, "memory pool");
        }
    }
}

void sim_pool_settle(void)
{
    for (struct sim_mempool *pool = pools; freed_count > 0 && pool != NULL; pool = pool->next) {
        pool_trim(pool, pool->release_threshold);
    }
}

static struct sim_range *reuse(const struct sim_mempool *pool, const struct sim_stream *stream, uint64_t bytes)
{
    for (size_t i = 0; i < freed_count; i++) {
        struct sim_range *range = freed[i].range;
        if (range->pool == pool && range->context == stream->lane.context &&
            capacity(range->bytes) == capacity(bytes) &&
            (sim_vector_covers(&stream->lane.clock, freed[i].lane, freed[i].tick) ||
             sim_host_covers(freed[i].lane, freed[i].tick))) {
            freed_drop(i);
            range->bytes = bytes;
            sim_backing_poison(range->backing, range->backing_offset, bytes);
            return range;
        }
    }
    return NULL;
}

/* Memory is short: the stream waits for everything freed in this pool, which then goes back to the device. */
static int reclaim(struct sim_mempool *pool, struct sim_stream *stream)
{
    int any = 0;
    for (size_t i = freed_count; i-- > 0;) {
        if (freed[i].range->pool == pool) {
            struct sim_range *range = freed[i].range;
            sim_lane_wait(&stream->lane, &freed[i].clock, freed[i].time_ns);
            freed_drop(i);
            range_release(range, NULL);
            any = 1;
        }
    }
    return any;
}

/* Counts as a write: whoever uses the range must come after its allocation and before its free. */
static CUresult touch(struct sim_call *call, struct sim_stream *stream, const struct sim_range *range)
{
    const struct sim_access access = {range->address, range->bytes, 1};
    const struct sim_op op = {.site = call->function->name, .access = &access, .access_count = 1};
    return sim_submit(call, &stream->lane, &op);
}

static CUresult allocate(struct sim_call *call, CUdeviceptr *out, uint64_t bytes, struct sim_mempool *pool,
                         CUstream handle)
{
    struct sim_stream *stream;
    SIM_TRY(sim_stream_get(call, handle, &stream));
    if (sim_knob_attribute_off(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (bytes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pool = pool != NULL ? pool : current_pool(stream->lane.context->device);
    if (pool->device != stream->lane.context->device) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (sim_stream_is_capturing(stream)) {
        return sim_capture_allocate(stream, bytes, &pool->props, out);
    }
    SIM_TRY(sim_stream_begin(call, stream));
    struct sim_range *range = reuse(pool, stream, bytes);
    if (range == NULL) {
        CUresult result = sim_memory_allocate(stream->lane.context, bytes, 0, &range);
        if (result == CUDA_ERROR_OUT_OF_MEMORY && pool->reuse[2] && reclaim(pool, stream)) {
            result = sim_memory_allocate(stream->lane.context, bytes, 0, &range);
        }
        SIM_TRY(result);
        pool->reserved += capacity(bytes);
    }
    range->pool = pool;
    range->freed = 0;
    pool->used += capacity(bytes);
    pool->used_high = pool->used > pool->used_high ? pool->used : pool->used_high;
    pool->reserved_high = pool->reserved > pool->reserved_high ? pool->reserved : pool->reserved_high;
    SIM_TRY(touch(call, stream, range));
    *out = range->address;
    return CUDA_SUCCESS;
}

SIM_API_PTSZ(SIM_CONTEXT, cuMemAllocAsync, (CUdeviceptr * dptr, size_t bytesize, CUstream hStream), dptr, bytesize,
             hStream)
{
    return dptr != NULL ? allocate(call, dptr, bytesize, NULL, hStream) : CUDA_ERROR_INVALID_VALUE;
}

SIM_API_PTSZ(SIM_CONTEXT, cuMemAllocFromPoolAsync,
             (CUdeviceptr * dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream), dptr, bytesize, pool, hStream)
{
    if (dptr == NULL || !sim_handle_is(pool, 'P')) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return allocate(call, dptr, bytesize, (struct sim_mempool *)pool, hStream);
}

static void freed_add(struct sim_range *range, const struct sim_lane *lane)
{
    if (freed_count == freed_room) {
        freed_room = freed_room * 2 + 32;
        freed = realloc(freed, freed_room * sizeof *freed);
        if (freed == NULL) {
            sim_die("out of host memory");
        }
    }
    struct freed *entry = &freed[freed_count++];
    memset(entry, 0, sizeof *entry);
    entry->range = range;
    entry->lane = lane->index;
    entry->tick = lane->clock.tick[lane->index];
    entry->time_ns = lane->tail_ns;
    sim_vector_copy(&entry->clock, &lane->clock);
}

SIM_API_PTSZ(SIM_CONTEXT, cuMemFreeAsync, (CUdeviceptr dptr, CUstream hStream), dptr, hStream)
{
    struct sim_stream *stream;
    SIM_TRY(sim_stream_get(call, hStream, &stream));
    if (dptr == 0) {
        return CUDA_SUCCESS;
    }
    struct sim_range *range = sim_range_find(dptr);
    if (range == NULL || range->address != dptr || range->kind != SIM_RANGE_DEVICE || range->freed) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (sim_stream_is_capturing(stream)) {
        return sim_capture_free(stream, dptr);
    }
    SIM_TRY(sim_stream_begin(call, stream));
    if (range->graph_memory != NULL) {
        return sim_graph_memory_freed(call, range->graph_memory, &stream->lane);
    }
    SIM_TRY(touch(call, stream, range));
    if (range->pool == NULL) { /* from cuMemAlloc: it joins the current pool on its way out */
        range->pool = current_pool(range->device);
        range->pool->reserved += capacity(range->bytes);
        range->pool->used += capacity(range->bytes);
    }
    range->pool->used -= capacity(range->bytes);
    range->freed = 1;
    freed_add(range, &stream->lane);
    return CUDA_SUCCESS;
}

/* ---- pools */

SIM_API(SIM_INIT, cuDeviceGetDefaultMemPool, (CUmemoryPool * pool_out, CUdevice dev), pool_out, dev)
{
    (void)call;
    struct sim_device *device = sim_device_get(dev);
    if (pool_out == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (device == NULL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *pool_out = (CUmemoryPool)default_pool(device);
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuDeviceGetMemPool, (CUmemoryPool * pool, CUdevice dev), pool, dev)
{
    (void)call;
    struct sim_device *device = sim_device_get(dev);
    if (pool == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (device == NULL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *pool = (CUmemoryPool)current_pool(device);
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuDeviceSetMemPool, (CUdevice dev, CUmemoryPool pool), dev, pool)
{
    (void)call;
    struct sim_device *device = sim_device_get(dev);
    if (device == NULL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (!sim_handle_is(pool, 'P') || ((struct sim_mempool *)pool)->device != device) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    device->current_pool = (struct sim_mempool *)pool;
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuMemPoolCreate, (CUmemoryPool * pool, const CUmemPoolProps *poolProps), pool, poolProps)
{
    (void)call;
    if (pool == NULL || poolProps == NULL || poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE || poolProps->handleTypes != CU_MEM_HANDLE_TYPE_NONE) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    struct sim_device *device = sim_device_get(poolProps->location.id);
    if (device == NULL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *pool = (CUmemoryPool)pool_make(device, poolProps);
    return CUDA_SUCCESS;
}

/* Allocations outlive their pool: they go on in the default pool. */
SIM_API(SIM_INIT, cuMemPoolDestroy, (CUmemoryPool handle), handle)
{
    (void)call;
    struct sim_mempool *pool = (struct sim_mempool *)handle;
    if (!sim_handle_is(handle, 'P') || pool->is_default) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sim_mempool *heir = default_pool(pool->device);
    for (struct sim_range *range = sim_range_next(0); range != NULL; range = sim_range_next(range->address)) {
        range->pool = range->pool == pool ? heir : range->pool;
    }
    heir->used += pool->used;
    heir->reserved += pool->reserved;
    pool->device->current_pool = pool->device->current_pool == pool ? NULL : pool->device->current_pool;
    for (struct sim_mempool **at = &pools; *at != NULL; at = &(*at)->next) {
        if (*at == pool) {
            *at = pool->next;
            break;
        }
    }
    sim_handle_drop(pool);
    free(pool);
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuMemPoolTrimTo, (CUmemoryPool pool, size_t minBytesToKeep), pool, minBytesToKeep)
{
    SIM_TRY(sim_capture_unsafe(call));
    if (!sim_handle_is(pool, 'P')) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pool_trim((struct sim_mempool *)pool, minBytesToKeep);
    return CUDA_SUCCESS;
}

/* Where an attribute lives: an int or a 64-bit count. */
static int attribute_place(struct sim_mempool *pool, CUmemPool_attribute attr, int **flag, uint64_t **count)
{
    *flag = NULL;
    *count = NULL;
    switch ((int)attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        *flag = &pool->reuse[(int)attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
        return 1;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        *count = &pool->release_threshold;
        return 1;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        *count = &pool->reserved;
        return 1;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        *count = &pool->reserved_high;
        return 1;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *count = &pool->used;
        return 1;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *count = &pool->used_high;
        return 1;
    default:
        return 0;
    }
}

SIM_API(SIM_INIT, cuMemPoolGetAttribute, (CUmemoryPool pool, CUmemPool_attribute attr, void *value), pool, attr, value)
{
    int *flag;
    uint64_t *count;
    SIM_TRY(sim_capture_unsafe(call));
    if (!sim_handle_is(pool, 'P') || value == NULL ||
        !attribute_place((struct sim_mempool *)pool, attr, &flag, &count)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (flag != NULL) {
        *(int *)value = *flag;
    } else {
        *(cuuint64_t *)value = *count;
    }
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuMemPoolSetAttribute, (CUmemoryPool pool, CUmemPool_attribute attr, void *value), pool, attr, value)
{
    int *flag;
    uint64_t *count;
    (void)call;
    if (!sim_handle_is(pool, 'P') || value == NULL || attr == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ||
        attr == CU_MEMPOOL_ATTR_USED_MEM_CURRENT || !attribute_place((struct sim_mempool *)pool, attr, &flag, &count)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (flag != NULL) {
        *flag = *(int *)value;
    } else if (attr != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD && *(cuuint64_t *)value != 0) {
        return CUDA_ERROR_INVALID_VALUE; /* high-water marks can only be cleared */
    } else {
        *count = *(cuuint64_t *)value;
    }
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuMemPoolSetAccess, (CUmemoryPool handle, const CUmemAccessDesc *map, size_t count), handle, map,
        count)
{
    (void)call;
    struct sim_mempool *pool = (struct sim_mempool *)handle;
    if (!sim_handle_is(handle, 'P') || map == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++) {
        if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || sim_device_get(map[i].location.id) == NULL ||
            map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
            (map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE && map[i].location.id == pool->device->ordinal)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        pool->access[map[i].location.id] = (unsigned char)map[i].flags;
    }
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuMemPoolGetAccess, (CUmemAccess_flags * flags, CUmemoryPool pool, CUmemLocation *location), flags,
        pool, location)
{
    (void)call;
    if (flags == NULL || !sim_handle_is(pool, 'P') || location == NULL ||
        location->type != CU_MEM_LOCATION_TYPE_DEVICE || sim_device_get(location->id) == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = (CUmemAccess_flags)((const struct sim_mempool *)pool)->access[location->id];
    return CUDA_SUCCESS;
}

#if CUDA_VERSION >= 13000
static CUresult pool_of_location(const CUmemLocation *location, CUmemAllocationType type, struct sim_device **out)
{
    if (location == NULL || type != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    *out = sim_device_get(location->id);
    return *out != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

SIM_API(SIM_INIT, cuMemGetDefaultMemPool, (CUmemoryPool * pool, CUmemLocation *location, CUmemAllocationType type),
        pool, location, type)
{
    struct sim_device *device;
    (void)call;
    if (pool == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    SIM_TRY(pool_of_location(location, type, &device));
    *pool = (CUmemoryPool)default_pool(device);
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuMemGetMemPool, (CUmemoryPool * pool, CUmemLocation *location, CUmemAllocationType type), pool,
        location, type)
{
    struct sim_device *device;
    (void)call;
    if (pool == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    SIM_TRY(pool_of_location(location, type, &device));
    *pool = (CUmemoryPool)current_pool(device);
    return CUDA_SUCCESS;
}
#endif
