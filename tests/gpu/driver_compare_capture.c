/* Programs about stream capture. */
#define _GNU_SOURCE
#include "driver_compare.h"

#include <pthread.h>
#include <stdio.h>

static CUresult unsafe_alloc(void)
{
    CUdeviceptr address;
    return d.cuMemAlloc_(&address, PAGE);
}

static CUresult unsafe_free(void)
{
    static CUdeviceptr spare[64];
    static int used;
    if (used == 0)
        for (size_t i = 0; i < 64; i++)
            d.cuMemAlloc_(&spare[i], 4 * PAGE);
    return used < 64 ? d.cuMemFree_(spare[used++]) : CUDA_ERROR_UNKNOWN;
}

static CUevent query_event;

static CUresult unsafe_query(void)
{
    return d.cuEventQuery_(query_event);
}

static CUresult unsafe_event_synchronise(void)
{
    return d.cuEventSynchronize_(query_event);
}

static CUresult unsafe_context(void)
{
    return d.cuCtxSynchronize_();
}

static CUresult unsafe_other_stream(void)
{
    return d.cuStreamSynchronize_(t);
}

static CUresult unsafe_stream_query(void)
{
    return d.cuStreamQuery_(t);
}

static CUresult unsafe_load(void)
{
    CUmodule loaded;
    return d.cuModuleLoad_(&loaded, path_of(images, "probe.fatbin"));
}

static CUresult unsafe_copy(void)
{
    uint32_t word = 1;
    return d.cuMemcpyHtoD_(b, &word, 4);
}

static CUresult unsafe_async(void)
{
    return d.cuMemsetD32Async_(b, 1, WORDS, t);
}

static CUresult unsafe_pin(void)
{
    void *pinned;
    return d.cuMemHostAlloc_(&pinned, 4096, 0);
}

static CUresult unsafe_create(void)
{
    handle_of(PAGE);
    return CUDA_SUCCESS;
}

static CUresult unsafe_info(void)
{
    size_t free, total;
    return d.cuMemGetInfo_(&free, &total);
}

static CUresult unsafe_stream_create(void)
{
    CUstream stream;
    return d.cuStreamCreate_(&stream, CU_STREAM_NON_BLOCKING);
}

static const struct {
    const char *name;
    CUresult (*call)(void);
} unsafe[] = {
    {"cuMemAlloc", unsafe_alloc},
    {"cuMemFree", unsafe_free},
    {"cuEventQuery", unsafe_query},
    {"cuEventSynchronize", unsafe_event_synchronise},
    {"cuCtxSynchronize", unsafe_context},
    {"cuStreamSynchronize of another", unsafe_other_stream},
    {"cuStreamQuery of another", unsafe_stream_query},
    {"cuModuleLoad", unsafe_load},
    {"cuMemcpyHtoD", unsafe_copy},
    {"async set elsewhere", unsafe_async},
    {"cuMemHostAlloc", unsafe_pin},
    {"cuMemCreate", unsafe_create},
    {"cuMemGetInfo", unsafe_info},
    {"cuStreamCreate", unsafe_stream_create},
};

static void *call_elsewhere(void *index)
{
    d.cuCtxSetCurrent_(context);
    return (void *)(intptr_t)unsafe[(intptr_t)index].call();
}

void run_modes(void)
{
    static const char *const modes[] = {"global", "thread-local", "relaxed"};
    start();
    unsafe_free();
    query_event = event_of(CU_EVENT_DISABLE_TIMING);
    NEED(CALL(cuEventRecord, query_event, t));
    NEED(CALL(cuCtxSynchronize));
    function("probe_increment");
    for (int mode = 0; mode < 3; mode++) {
        for (intptr_t i = 0; i < (intptr_t)(sizeof unsafe / sizeof *unsafe); i++) {
            for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
                CUgraph graph = NULL;
                pthread_t thread;
                void *answer = NULL;
                NEED(CALL(cuStreamBeginCapture, s, (CUstreamCaptureMode)mode));
                NEED(CALL(cuMemsetD32Async, a, 1, WORDS, s));
                if (elsewhere) {
                    pthread_create(&thread, NULL, call_elsewhere, (void *)i);
                    pthread_join(thread, &answer);
                } else {
                    answer = (void *)(intptr_t)unsafe[i].call();
                }
                CUresult end = d.cuStreamEndCapture_(s, &graph);
                printf("%s: %s, %s%s: %d, end %d, graph %d\n", program_name, modes[mode], unsafe[i].name,
                       elsewhere ? " on another thread" : "", (int)(intptr_t)answer, (int)end, graph != NULL);
            }
        }
    }
}

static void capture_status(const char *step, CUstream stream)
{
    CUstreamCaptureStatus status = (CUstreamCaptureStatus)77;
    say(step, d.cuStreamIsCapturing_(stream, &status));
    tell("  status", status);
}

void run_capture(void)
{
    CUgraph graph = NULL;
    CUstream blocking;
    start();
    CUevent fork_event = event_of(CU_EVENT_DISABLE_TIMING), outside = event_of(CU_EVENT_DISABLE_TIMING);
    NEED(CALL(cuStreamCreate, &blocking, CU_STREAM_DEFAULT));
    NEED(CALL(cuEventRecord, outside, t));
    say("begin on the legacy stream", d.cuStreamBeginCapture_(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
    say("begin with an unknown mode", d.cuStreamBeginCapture_(s, (CUstreamCaptureMode)9));
    say("end without begin", d.cuStreamEndCapture_(s, &graph));
    say("begin", d.cuStreamBeginCapture_(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    say("begin again", d.cuStreamBeginCapture_(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    capture_status("is capturing", s);
    say("synchronise it", d.cuStreamSynchronize_(s));
    capture_status("after that", s);
    say("launch into it", increment(s, a, 1));
    say("end", d.cuStreamEndCapture_(s, &graph));
    tell("graph", graph != NULL);
    say("begin", d.cuStreamBeginCapture_(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    say("query it", d.cuStreamQuery_(s));
    say("end", d.cuStreamEndCapture_(s, &graph));
    say("begin", d.cuStreamBeginCapture_(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    say("wait for an event of outside", d.cuStreamWaitEvent_(s, outside, 0));
    say("end", d.cuStreamEndCapture_(s, &graph));
    say("begin", d.cuStreamBeginCapture_(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    say("record", d.cuEventRecord_(fork_event, s));
    say("fork", d.cuStreamWaitEvent_(t, fork_event, 0));
    capture_status("the other stream", t);
    say("work there", increment(t, a, 1));
    say("end there", d.cuStreamEndCapture_(t, &graph));
    say("end here", d.cuStreamEndCapture_(s, &graph));
    capture_status("the other stream", t);
    say("begin", d.cuStreamBeginCapture_(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    say("record", d.cuEventRecord_(fork_event, s));
    say("fork", d.cuStreamWaitEvent_(t, fork_event, 0));
    say("end without join, nothing done there", d.cuStreamEndCapture_(s, &graph));
    say("begin", d.cuStreamBeginCapture_(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    say("work", increment(s, a, 1));
    say("record", d.cuEventRecord_(fork_event, s));
    say("fork", d.cuStreamWaitEvent_(t, fork_event, 0));
    say("work there", increment(t, a, 1));
    say("end without join", d.cuStreamEndCapture_(s, &graph));
    capture_status("the other stream", t);
    say("query of a captured event", d.cuEventQuery_(fork_event));
    say("synchronise a captured event", d.cuEventSynchronize_(fork_event));
    say("wait for an event of an ended capture", d.cuStreamWaitEvent_(t, fork_event, 0));
    say("record it outside", d.cuEventRecord_(fork_event, t));
    say("query it", (d.cuStreamSynchronize_(t), d.cuEventQuery_(fork_event)));
    say("begin, relaxed", d.cuStreamBeginCapture_(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    say("record inside", d.cuEventRecord_(fork_event, s));
    say("query of it inside", d.cuEventQuery_(fork_event));
    capture_status("after that", s);
    say("end", d.cuStreamEndCapture_(s, &graph));
    say("begin", d.cuStreamBeginCapture_(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    say("record", d.cuEventRecord_(fork_event, s));
    say("begin another", d.cuStreamBeginCapture_(t, CU_STREAM_CAPTURE_MODE_RELAXED));
    say("wait across captures", d.cuStreamWaitEvent_(t, fork_event, 0));
    say("end one", d.cuStreamEndCapture_(s, &graph));
    say("end other", d.cuStreamEndCapture_(t, &graph));
    say("begin blocking", d.cuStreamBeginCapture_(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    say("launch on the legacy stream", increment(NULL, a, 1));
    say("end", d.cuStreamEndCapture_(blocking, &graph));
    say("begin", d.cuStreamBeginCapture_(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    say("launch on the legacy stream", increment(NULL, a, 1));
    say("end", d.cuStreamEndCapture_(s, &graph));
    CUstreamCaptureMode mode = (CUstreamCaptureMode)7;
    say("exchange with an unknown mode", d.cuThreadExchangeStreamCaptureMode_(&mode));
    say("begin", d.cuStreamBeginCapture_(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    say("external record", d.cuEventRecordWithFlags_(fork_event, s, CU_EVENT_RECORD_EXTERNAL));
    say("external wait", d.cuStreamWaitEvent_(s, fork_event, CU_EVENT_WAIT_EXTERNAL));
    say("end", d.cuStreamEndCapture_(s, &graph));
    size_t count = 0;
    say("nodes", d.cuGraphGetNodes_(graph, NULL, &count));
    tell("count", (long long)count);
}
