#include "event_pool.h"

#include <stdlib.h>

#include "engine.h"

CUresult ov_events_fill(struct ov_event_pool *pool, size_t wanted, unsigned flags)
{
    pool->flags = flags;
    if (wanted > pool->room) {
        CUevent *item = realloc(pool->item, wanted * sizeof *item);
        if (item == NULL) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        pool->item = item;
        pool->room = wanted;
    }
    CUresult result = CUDA_SUCCESS;
    while (pool->count < wanted && result == CUDA_SUCCESS) {
        result = ov_cu->cuEventCreate(&pool->item[pool->count], flags);
        pool->count += result == CUDA_SUCCESS;
    }
    return result;
}

CUresult ov_event_take(struct ov_event_pool *pool, CUevent *event)
{
    if (*event != NULL) {
        return CUDA_SUCCESS;
    }
    if (pool->count > 0) {
        *event = pool->item[--pool->count];
        return CUDA_SUCCESS;
    }
    return ov_cu->cuEventCreate(event, pool->flags);
}

void ov_event_give(struct ov_event_pool *pool, CUevent event)
{
    if (event != NULL && pool->count < pool->room) {
        pool->item[pool->count++] = event;
    } else if (event != NULL) {
        (void)ov_cu->cuEventDestroy_v2(event);
    }
}
