/*
 * event_pool.h - events that are handed out and taken back, so that steady state makes none.
 *
 * Filled when a plan is made. Taking one from an empty pool asks the driver, which only a program with many streams
 * gets to; giving one back to a full pool destroys it. The pool owns what is in it; free `item` when the context, and
 * so the events with it, is gone. Guarded by whoever owns the pool.
 */
#ifndef OV_EVENT_POOL_H
#define OV_EVENT_POOL_H

#include <stddef.h>

#include "driver.h"

struct ov_event_pool {
    CUevent *item;
    size_t count, room;
    unsigned flags;
};

/* Makes events until there are `wanted`. Errors: the driver's code; what was made stays. */
CUresult ov_events_fill(struct ov_event_pool *pool, size_t wanted, unsigned flags);
/* Does nothing if *event is one already. */
CUresult ov_event_take(struct ov_event_pool *pool, CUevent *event);
/* NULL: does nothing. */
void ov_event_give(struct ov_event_pool *pool, CUevent event);

#endif
