#include "stack_pool.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t segment_bytes = 20u << 20, large_bytes = 10u << 20, page_bytes = 2u << 20;

uint64_t stack_pool_rounded(enum stack_alloc style, uint64_t bytes)
{
    const uint64_t unit = style == ALLOC_ONE ? 128 : style == ALLOC_SEGMENTS ? 512 : 1;
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

/* A new segment of one free block; its index. */
static size_t add_segment(struct stack_pool *pool, uint64_t bytes, const char *what)
{
    const uint64_t slack = pool->style == ALLOC_ONE ? STACK_OVER_READ_MAX : 0;
    const CUdeviceptr address = gpu_alloc(bytes + slack, what);
    insert(pool, pool->count, (struct stack_block){address, bytes, false, true});
    return pool->count - 1;
}

void stack_pool_open(struct stack_pool *pool, enum stack_alloc style, uint64_t known_bytes)
{
    *pool = (struct stack_pool){.style = style};
    if (style == ALLOC_ONE && known_bytes) {
        add_segment(pool, known_bytes, "all weights");
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
    pool->block[at].used = false;
    join(pool, at);
    if (at > 0) {
        join(pool, at - 1);
    }
}

void stack_pool_close(struct stack_pool *pool)
{
    for (size_t i = 0; i < pool->count; i++) {
        if (pool->block[i].used) {
            gpu_die("a block of %llu bytes was not given back", (unsigned long long)pool->block[i].bytes);
        }
        if (pool->block[i].first) {
            GPU(cuMemFree, pool->block[i].address);
        }
    }
    free(pool->block);
    *pool = (struct stack_pool){0};
}
