/* Stream capture: what it records, how it spreads, what breaks it. */
#include "harness.h"

#include <pthread.h>
#include <string.h>

enum { WORDS = 256 };

static CUdeviceptr a, b;
static CUstream s, t;

static void prepare(void)
{
    start(0);
    a = device_words(WORDS);
    b = device_words(WORDS);
    OK(cuMemsetD32(a, 1, WORDS));
    OK(cuMemsetD32(b, 2, WORDS));
    OK(cuCtxSynchronize());
    s = new_stream();
    t = new_stream();
    probe_module();
}

static size_t node_count(CUgraph graph)
{
    size_t count = 0;
    OK(cuGraphGetNodes(graph, NULL, &count));
    return count;
}

static size_t edge_count(CUgraph graph)
{
    size_t count = 0;
    OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &count));
    return count;
}

static CUstreamCaptureStatus status_of(CUstream stream)
{
    CUstreamCaptureStatus status;
    OK(cuStreamIsCapturing(stream, &status));
    return status;
}

START_TEST(records_and_replays)
{
    CUgraph graph;
    CUgraphExec exec;
    prepare();
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemsetD32Async(a, 10, WORDS, s));
    OK(increment(s, a, 5, WORDS));
    OK(cuMemcpyDtoDAsync(b, a, 4 * WORDS, s));
    OK(cuStreamEndCapture(s, &graph));
    ck_assert_uint_eq(node_count(graph), 3);
    ck_assert_uint_eq(edge_count(graph), 2);
    ck_assert_uint_eq(word_at(a), 1); /* nothing has run */
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    for (int i = 0; i < 3; i++)
        OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    ck_assert_uint_eq(word_at(b), 15);
    OK(cuGraphExecDestroy(exec));
}
END_TEST

START_TEST(spreads_through_events_and_joins)
{
    CUgraph graph;
    CUevent fork, join;
    prepare();
    fork = new_event(), join = new_event();
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(increment(s, a, 1, WORDS));
    OK(cuEventRecord(fork, s));
    OK(cuStreamWaitEvent(t, fork, 0));
    ck_assert_int_eq(status_of(t), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(increment(t, b, 1, WORDS));
    OK(increment(s, a, 1, WORDS));
    OK(cuEventRecord(join, t));
    OK(cuStreamWaitEvent(s, join, 0));
    OK(copy(s, a, b, WORDS));
    OK(cuStreamEndCapture(s, &graph));
    ck_assert_int_eq(status_of(t), CU_STREAM_CAPTURE_STATUS_NONE);
    ck_assert_uint_eq(node_count(graph), 4);
    ck_assert_uint_eq(edge_count(graph), 4);
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuEventSynchronize(join));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuEventQuery(fork));
    OK(cuEventRecord(join, t)); /* a plain record makes it an ordinary event again */
    OK(cuEventSynchronize(join));
}
END_TEST

START_TEST(unjoined_work_is_an_error)
{
    CUgraph graph = (CUgraph)1;
    CUevent fork;
    prepare();
    fork = new_event();
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(increment(s, a, 1, WORDS));
    OK(cuEventRecord(fork, s));
    OK(cuStreamWaitEvent(t, fork, 0));
    OK(increment(t, b, 1, WORDS));
    ANSWERS(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(t, &graph));
    ANSWERS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &graph));
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(increment(s, a, 1, WORDS));
    OK(cuEventRecord(fork, s));
    OK(cuStreamWaitEvent(t, fork, 0));
    OK(increment(t, b, 1, WORDS));
    ANSWERS(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(s, &graph));
    ck_assert_int_eq(status_of(s), CU_STREAM_CAPTURE_STATUS_NONE);
    ck_assert_int_eq(status_of(t), CU_STREAM_CAPTURE_STATUS_NONE);
    OK(increment(t, b, 1, WORDS));
    OK(cuStreamSynchronize(t));
    ck_assert_uint_eq(word_at(b), 3);
}
END_TEST

START_TEST(synchronising_a_capturing_stream_breaks_it)
{
    CUgraph graph = (CUgraph)1;
    prepare();
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    ANSWERS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(s));
    ck_assert_int_eq(status_of(s), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    ANSWERS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, increment(s, a, 1, WORDS));
    ANSWERS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &graph));
    ck_assert_ptr_null(graph);
    OK(cuStreamSynchronize(s));
}
END_TEST

START_TEST(legacy_stream_is_implicit)
{
    CUstream blocking;
    CUgraph graph;
    prepare();
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    ANSWERS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ANSWERS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, increment(NULL, a, 1, WORDS));
    ANSWERS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(blocking, &graph));
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL)); /* not blocking: does not mind */
    OK(increment(NULL, a, 1, WORDS));
    OK(cuStreamEndCapture(s, &graph));
}
END_TEST

START_TEST(events_do_not_cross_the_border)
{
    CUgraph graph;
    prepare();
    CUevent outside = new_event(), inside = new_event();
    OK(cuEventRecord(outside, t));
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ANSWERS(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(s, outside, 0));
    ANSWERS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &graph));
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuEventRecord(inside, s));
    OK(cuStreamBeginCapture(t, CU_STREAM_CAPTURE_MODE_RELAXED));
    ANSWERS(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuStreamWaitEvent(t, inside, 0));
    ANSWERS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &graph));
    ANSWERS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(t, &graph));
}
END_TEST

START_TEST(begin_twice_and_end_without)
{
    CUgraph graph;
    prepare();
    ANSWERS(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(s, &graph));
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ANSWERS(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuStreamEndCapture(s, &graph));
    ck_assert_uint_eq(node_count(graph), 0);
}
END_TEST

static void *end_elsewhere(void *result)
{
    CUcontext context;
    CUgraph graph;
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    *(CUresult *)result = cuStreamEndCapture(s, &graph);
    return NULL;
}

START_TEST(ends_on_its_own_thread)
{
    pthread_t thread;
    CUresult result;
    CUgraph graph;
    prepare();
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ck_assert_int_eq(pthread_create(&thread, NULL, end_elsewhere, &result), 0);
    pthread_join(thread, NULL);
    ANSWERS(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, result);
    OK(cuStreamEndCapture(s, &graph));
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    ck_assert_int_eq(pthread_create(&thread, NULL, end_elsewhere, &result), 0);
    pthread_join(thread, NULL);
    OK(result);
}
END_TEST

START_TEST(info_and_dependencies)
{
    CUstreamCaptureStatus status;
    cuuint64_t id = 0;
    CUgraph graph, ended;
    const CUgraphNode *node;
    const CUgraphEdgeData *data;
    size_t count;
    CUgraphNode empty;
    prepare();
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(increment(s, a, 1, WORDS));
    OK(cuStreamGetCaptureInfo(s, &status, &id, &graph, &node, &data, &count));
    ck_assert_int_eq(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    ck_assert_uint_ne(id, 0);
    ck_assert_uint_eq(count, 1);
    OK(cuGraphAddEmptyNode(&empty, graph, node, count));
    OK(cuStreamUpdateCaptureDependencies(s, &empty, NULL, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    OK(increment(s, a, 1, WORDS));
    OK(cuStreamEndCapture(s, &ended));
    ck_assert_ptr_eq(ended, graph);
    ck_assert_uint_eq(node_count(ended), 3);
    OK(cuGraphNodeGetDependentNodes(empty, NULL, NULL, &count));
    ck_assert_uint_eq(count, 1);
    OK(cuStreamGetCaptureInfo(s, &status, &id, &graph, &node, &data, &count));
    ck_assert_int_eq(status, CU_STREAM_CAPTURE_STATUS_NONE);
}
END_TEST

START_TEST(capture_into_a_graph)
{
    CUgraph graph, ended;
    CUgraphNode first;
    prepare();
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddEmptyNode(&first, graph, NULL, 0));
    OK(cuStreamBeginCaptureToGraph(s, graph, &first, NULL, 1, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(increment(s, a, 1, WORDS));
    OK(cuStreamEndCapture(s, &ended));
    ck_assert_ptr_eq(ended, graph);
    ck_assert_uint_eq(node_count(graph), 2);
    ck_assert_uint_eq(edge_count(graph), 1);
}
END_TEST

START_TEST(programmatic_launch_makes_a_programmatic_edge)
{
    CUgraph graph;
    CUgraphNode from[4], to[4];
    CUgraphEdgeData data[4];
    size_t count = 4;
    prepare();
    uint32_t value = 1;
    uint64_t words = WORDS;
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                   .value = {.programmaticStreamSerializationAllowed = 1}};
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 32,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = s,
                             .attrs = &attribute,
                             .numAttrs = 1};
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(increment(s, a, 1, WORDS));
    OK(cuLaunchKernelEx(&config, probe("probe_increment"), (void *[]){&a, &value, &words}, NULL));
    OK(cuStreamEndCapture(s, &graph));
    OK(cuGraphGetEdges(graph, from, to, data, &count));
    ck_assert_uint_eq(count, 1);
    ck_assert_uint_eq(data[0].type, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
    ck_assert_uint_eq(data[0].from_port, CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC);
    count = 4;
    ANSWERS(CUDA_ERROR_LOSSY_QUERY, cuGraphGetEdges(graph, from, to, NULL, &count));
}
END_TEST

START_TEST(external_events_become_nodes)
{
    CUgraph graph;
    CUgraphNode node[4];
    CUgraphNodeType type;
    size_t count = 4;
    prepare();
    CUevent event = new_event();
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuEventRecordWithFlags(event, s, CU_EVENT_RECORD_EXTERNAL));
    OK(cuStreamWaitEvent(s, event, CU_EVENT_WAIT_EXTERNAL));
    OK(cuStreamEndCapture(s, &graph));
    OK(cuGraphGetNodes(graph, node, &count));
    ck_assert_uint_eq(count, 2);
    OK(cuGraphNodeGetType(node[0], &type));
    ck_assert_int_eq(type, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
    OK(cuGraphNodeGetType(node[1], &type));
    ck_assert_int_eq(type, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
}
END_TEST

SUITE(sim_capture, records_and_replays, spreads_through_events_and_joins, unjoined_work_is_an_error,
      synchronising_a_capturing_stream_breaks_it, legacy_stream_is_implicit, events_do_not_cross_the_border,
      begin_twice_and_end_without, ends_on_its_own_thread, info_and_dependencies, capture_into_a_graph,
      programmatic_launch_makes_a_programmatic_edge, external_events_become_nodes)
