#include "stack_pool.h"
#include "stack_wait.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t segment_bytes = 20u << 20, large_bytes = 10u << 20, page_bytes = 2u << 20;

uint64_t stack_pool_rounded(enum stack_alloc style, uint64_t bytes)
{
    static const uint64_t units[] = {
        [ALLOC_ONE] = 128, [ALLOC_HANDLE] = 128, [ALLOC_SEGMENTS] = 512, [ALLOC_VMM] = 512, [ALLOC_POOL] = 0};
    const uint64_t unit = units[style] ? units[style] : 1;
    return (bytes + unit - 1) / unit * unit;
}

static void insert(struct stack_pool *pool, size_t at, struct stack_block block)
{
    if (pool->count == pool->room) {
        pool->room = pool->room ? 2 * pool->room : 64;
        pool->block = realloc(pool->block, pool->room * sizeof *pool->block);
        if (!pool->block) {
            gpu_die("out of host memory");
        }
    }
    memmove(pool->block + at + 1, pool->block + at, (pool->count - at) * sizeof *pool->block);
    pool->block[at] = block;
    pool->count++;
}

static void erase(struct stack_pool *pool, size_t at)
{
    pool->count--;
    memmove(pool->block + at, pool->block + at + 1, (pool->count - at) * sizeof *pool->block);
}

/* More of the segment that grows, as part of a free block at its end; its index. */
static size_t grow_space(struct stack_pool *pool, uint64_t bytes, const char *what)
{
    struct stack_block *last = pool->count > 0 ? &pool->block[pool->count - 1] : NULL;
    if (last && !last->used) {
        last->bytes += stack_space_grow(&pool->space, bytes - last->bytes, what);
        return pool->count - 1;
    }
    const CUdeviceptr address = pool->space.base + pool->space.mapped_bytes;
    const uint64_t grown = stack_space_grow(&pool->space, bytes, what);
    insert(pool, pool->count, (struct stack_block){address, grown, false, pool->count == 0});
    return pool->count - 1;
}

static void shrink_space(struct stack_pool *pool)
{
    struct stack_block *last = &pool->block[pool->count - 1];
    if (!last->used && last->bytes >= pool->space.piece_bytes) {
        stack_wait_for_context();
        last->bytes -= stack_space_shrink(&pool->space, last->bytes);
        if (last->bytes == 0) {
            erase(pool, pool->count - 1);
        }
    }
}

static CUdeviceptr alloc_in_order(const struct stack_pool *pool, uint64_t bytes)
{
    CUdeviceptr address;
    if (pool->style == ALLOC_POOL) {
        GPU(cuMemAllocFromPoolAsync, &address, bytes, pool->from, NULL);
    } else {
        GPU(cuMemAllocAsync, &address, bytes, NULL);
    }
    GPU(cuStreamSynchronize, NULL); /* it is used on any stream */
    return address;
}

/* A new segment of one free block; its index. */
static size_t add_segment(struct stack_pool *pool, uint64_t bytes, const char *what)
{
    if (pool->style == ALLOC_VMM) {
        return grow_space(pool, bytes, what);
    }
    const uint64_t slack = pool->style == ALLOC_ONE ? STACK_OVER_READ_MAX : 0;
    const bool in_order = pool->style == ALLOC_ASYNC || pool->style == ALLOC_POOL;
    const CUdeviceptr address = in_order ? alloc_in_order(pool, bytes) : gpu_alloc(bytes + slack, what);
    insert(pool, pool->count, (struct stack_block){address, bytes, false, true});
    return pool->count - 1;
}

void stack_pool_open(struct stack_pool *pool, enum stack_alloc style, uint64_t known_bytes)
{
    *pool = (struct stack_pool){.style = style};
    if (style == ALLOC_ONE && known_bytes) {
        add_segment(pool, known_bytes, "all weights");
    } else if (style == ALLOC_VMM) {
        stack_space_open(&pool->space, (uint64_t)64 << 30, 4u << 20);
    } else if (style == ALLOC_HANDLE) { /* with room for what is not known: the rest is as with ALLOC_ONE */
        const uint64_t bytes = (known_bytes + known_bytes / 8 + page_bytes) / page_bytes * page_bytes + page_bytes;
        stack_space_open(&pool->space, bytes, bytes);
        insert(
            pool, 0,
            (struct stack_block){pool->space.base, stack_space_grow(&pool->space, bytes, "everything"), false, false});
    } else if (style == ALLOC_POOL) {
        CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
        cuuint64_t keep = UINT64_MAX;
        GPU(cuCtxGetDevice, &props.location.id);
        GPU(cuMemPoolCreate, &pool->from, &props);
        GPU(cuMemPoolSetAttribute, pool->from, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
    }
}

static uint64_t size_of_segment(enum stack_alloc style, uint64_t bytes)
{
    if (style != ALLOC_SEGMENTS) {
        return bytes;
    }
    return bytes <= large_bytes ? segment_bytes : (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

CUdeviceptr stack_pool_take(struct stack_pool *pool, uint64_t bytes, const char *what)
{
    const uint64_t rounded = stack_pool_rounded(pool->style, bytes);
    size_t at = 0;
    while (at < pool->count && (pool->block[at].used || pool->block[at].bytes < rounded)) {
        at++;
    }
    if (at == pool->count) {
        at = add_segment(pool, size_of_segment(pool->style, rounded), what);
    }
    struct stack_block *block = &pool->block[at];
    const CUdeviceptr address = block->address;
    block->used = true;
    if (block->bytes > rounded) {
        const struct stack_block rest = {address + rounded, block->bytes - rounded, false, false};
        block->bytes = rounded;
        insert(pool, at + 1, rest);
    }
    return address;
}

/* Joins block `at` with the free one behind it. */
static void join(struct stack_pool *pool, size_t at)
{
    if (at + 1 < pool->count && !pool->block[at].used && !pool->block[at + 1].used && !pool->block[at + 1].first) {
        pool->block[at].bytes += pool->block[at + 1].bytes;
        erase(pool, at + 1);
    }
}

void stack_pool_give(struct stack_pool *pool, CUdeviceptr address)
{
    size_t at = 0;
    while (at < pool->count && !(pool->block[at].used && pool->block[at].address == address)) {
        at++;
    }
    if (at == pool->count) {
        gpu_die("a block was given back that was never taken");
    }
    if (pool->style == ALLOC_EACH) {
        GPU(cuMemFree, address);
        erase(pool, at);
        return;
    }
    if (pool->style == ALLOC_ASYNC || pool->style == ALLOC_POOL) {
        stack_wait_for_context(); /* it was used on any stream */
        GPU(cuMemFreeAsync, address, NULL);
        erase(pool, at);
        return;
    }
    pool->block[at].used = false;
    join(pool, at);
    if (at > 0) {
        join(pool, at - 1);
    }
    if (pool->style == ALLOC_VMM) {
        shrink_space(pool);
    }
}

void stack_pool_close(struct stack_pool *pool)
{
    for (size_t i = 0; i < pool->count; i++) {
        if (pool->block[i].used) {
            gpu_die("a block of %llu bytes was not given back", (unsigned long long)pool->block[i].bytes);
        }
        if (pool->block[i].first && pool->style != ALLOC_VMM) {
            GPU(cuMemFree, pool->block[i].address);
        }
    }
    if (pool->space.base) {
        stack_space_close(&pool->space);
    }
    if (pool->from) {
        GPU(cuMemPoolDestroy, pool->from);
    }
    free(pool->block);
    *pool = (struct stack_pool){0};
}
