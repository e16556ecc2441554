/* Events: a recorded point of a stream, in order and in virtual time. */
#include "sim.h"

#include <stdlib.h>

CUresult sim_event_get(CUevent handle, struct sim_event **out)
{
    if (!sim_handle_is(handle, 'E')) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *out = (struct sim_event *)handle;
    return (*out)->context->sticky;
}

void sim_event_record_on(struct sim_event *event, struct sim_call *call, const struct sim_lane *lane)
{
    int64_t now_ns = sim_now(call);
    event->by_node = 0;
    event->recorded = 1;
    event->time_ns = lane->tail_ns > now_ns ? lane->tail_ns : now_ns;
    event->lane = lane;
    sim_vector_copy(&event->clock, &lane->clock);
    sim_capture_event_gone(event);
}

void sim_event_record_by_node(struct sim_event *event, struct sim_call *call, const struct sim_lane *lane)
{
    const int recorded = event->recorded;
    const int64_t time_ns = event->time_ns;
    sim_event_record_on(event, call, lane);
    event->by_node = sim_knobs.late_node_events;
    event->before_recorded = recorded;
    event->before_ns = time_ns;
}

/* What is said of the event now: whether it was recorded, and when. */
static int look(const struct sim_event *event, int64_t now_ns, int64_t *time_ns)
{
    const int before = event->by_node && event->time_ns > now_ns;
    *time_ns = before ? event->before_ns : event->time_ns;
    return before ? event->before_recorded : event->recorded;
}

SIM_API(SIM_CONTEXT, cuEventCreate, (CUevent * phEvent, unsigned int Flags), phEvent, Flags)
{
    if (phEvent == NULL || (Flags & ~7u) != 0 ||
        ((Flags & CU_EVENT_INTERPROCESS) != 0 && (Flags & CU_EVENT_DISABLE_TIMING) == 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sim_event *event = calloc(1, sizeof *event);
    if (event == NULL) {
        sim_die("out of host memory");
    }
    event->context = call->context;
    event->flags = Flags;
    event->next = call->context->events;
    call->context->events = event;
    sim_handle_add(event, 'E');
    *phEvent = (CUevent)event;
    return CUDA_SUCCESS;
}

void sim_event_drop(struct sim_event *event)
{
    for (struct sim_event **at = &event->context->events; *at != NULL; at = &(*at)->next) {
        if (*at == event) {
            *at = event->next;
            break;
        }
    }
    sim_capture_event_gone(event);
    sim_handle_drop(event);
    sim_vector_free(&event->clock);
    free(event);
}

SIM_API(SIM_INIT, cuEventDestroy_v2, (CUevent hEvent), hEvent)
{
    (void)call;
    if (!sim_handle_is(hEvent, 'E')) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    struct sim_event *event = (struct sim_event *)hEvent;
    CUresult result = event->context->sticky;
    sim_event_drop(event);
    return result;
}
SIM_API_ALIAS(SIM_INIT, cuEventDestroy, cuEventDestroy_v2, (CUevent hEvent), hEvent)

static CUresult record(struct sim_call *call, CUevent hEvent, CUstream hStream, unsigned flags)
{
    struct sim_stream *stream;
    struct sim_event *event;
    if ((flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    SIM_TRY(sim_stream_get(call, hStream, &stream));
    SIM_TRY(sim_event_get(hEvent, &event));
    if (event->context != stream->lane.context) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (sim_stream_is_capturing(stream)) {
        return sim_capture_event_record(call, stream, event, flags);
    }
    SIM_TRY(sim_stream_begin(call, stream));
    sim_event_record_on(event, call, &stream->lane);
    return CUDA_SUCCESS;
}

SIM_API_PTSZ(SIM_CONTEXT, cuEventRecord, (CUevent hEvent, CUstream hStream), hEvent, hStream)
{
    return record(call, hEvent, hStream, 0);
}

SIM_API_PTSZ(SIM_CONTEXT, cuEventRecordWithFlags, (CUevent hEvent, CUstream hStream, unsigned int flags), hEvent,
             hStream, flags)
{
    return record(call, hEvent, hStream, flags);
}

SIM_API_PTSZ(SIM_CONTEXT, cuStreamWaitEvent, (CUstream hStream, CUevent hEvent, unsigned int Flags), hStream, hEvent,
             Flags)
{
    struct sim_stream *stream;
    struct sim_event *event;
    if ((Flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    SIM_TRY(sim_stream_get(call, hStream, &stream));
    SIM_TRY(sim_event_get(hEvent, &event));
    if (sim_stream_is_capturing(stream) || event->capture != NULL) {
        return sim_capture_event_wait(call, stream, event, Flags);
    }
    SIM_TRY(sim_stream_begin(call, stream));
    if (event->recorded) {
        sim_lane_wait(&stream->lane, &event->clock, event->time_ns);
    }
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuEventQuery, (CUevent hEvent), hEvent)
{
    struct sim_event *event;
    SIM_TRY(sim_event_get(hEvent, &event));
    SIM_TRY(sim_capture_unsafe(call));
    SIM_TRY(sim_capture_forbids(call, NULL, event));
    sim_charge(call, sim_knobs.query_ns);
    int64_t time_ns, now_ns = sim_now(call);
    if (look(event, now_ns, &time_ns) && time_ns > now_ns) {
        return CUDA_ERROR_NOT_READY;
    }
    if (event->time_ns <= now_ns) { /* else it is not over, whatever is said */
        sim_host_join(&event->clock);
    }
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuEventSynchronize, (CUevent hEvent), hEvent)
{
    struct sim_event *event;
    SIM_TRY(sim_event_get(hEvent, &event));
    SIM_TRY(sim_capture_forbids(call, NULL, event));
    sim_host_join(&event->clock);
    if (event->recorded) {
        sim_wait_until(call, event->time_ns);
    }
    sim_pool_settle();
    return CUDA_SUCCESS;
}

static CUresult elapsed(struct sim_call *call, float *milliseconds, CUevent hStart, CUevent hEnd)
{
    struct sim_event *start, *end;
    SIM_TRY(sim_event_get(hStart, &start));
    SIM_TRY(sim_event_get(hEnd, &end));
    if (milliseconds == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    int64_t now_ns = sim_now(call), start_ns, end_ns;
    if (!look(start, now_ns, &start_ns) || !look(end, now_ns, &end_ns) ||
        ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (start_ns > now_ns || end_ns > now_ns) {
        return CUDA_ERROR_NOT_READY;
    }
    *milliseconds = (float)((double)(end_ns - start_ns) / 1e6);
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuEventElapsedTime, (float *pMilliseconds, CUevent hStart, CUevent hEnd), pMilliseconds, hStart,
        hEnd)
{
    return elapsed(call, pMilliseconds, hStart, hEnd);
}

SIM_API(SIM_CONTEXT, cuEventElapsedTime_v2, (float *pMilliseconds, CUevent hStart, CUevent hEnd), pMilliseconds, hStart,
        hEnd)
{
    return elapsed(call, pMilliseconds, hStart, hEnd);
}
