/* Host functions, callbacks and memory operations in stream order. */
#include "sim.h"

#include <string.h>

#define WRITE_VALUE_NS 1000

struct host_call {
    CUhostFn function;
    CUstreamCallback callback;
    CUstream stream;
    void *data;
};

static void host_call_run(void *argument)
{
    const struct host_call *host = argument;
    if (host->function != NULL) {
        host->function(host->data);
    } else {
        host->callback(host->stream, CUDA_SUCCESS, host->data);
    }
}

/* What a host function does may be seen by any thread, which then acts on all that came before it. */
static CUresult host_call(struct sim_call *call, struct sim_lane *lane, struct host_call *host)
{
    const struct sim_op op = {.site = call->function->name};
    SIM_TRY(sim_submit(call, lane, &op));
    sim_host_join(&lane->clock);
    sim_run_unlocked(host_call_run, host);
    return CUDA_SUCCESS;
}

CUresult sim_host_function_run(struct sim_call *call, struct sim_lane *lane, CUhostFn function, void *data)
{
    struct host_call host = {.function = function, .data = data};
    return host_call(call, lane, &host);
}

SIM_API_PTSZ(SIM_CONTEXT, cuLaunchHostFunc, (CUstream hStream, CUhostFn fn, void *userData), hStream, fn, userData)
{
    struct sim_stream *stream;
    SIM_TRY(sim_stream_get(call, hStream, &stream));
    if (fn == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (sim_stream_is_capturing(stream)) {
        return sim_capture_host(call, stream, fn, userData);
    }
    SIM_TRY(sim_stream_begin(call, stream));
    return sim_host_function_run(call, &stream->lane, fn, userData);
}

SIM_API_PTSZ(SIM_CONTEXT, cuStreamAddCallback,
             (CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags), hStream, callback,
             userData, flags)
{
    struct sim_stream *stream;
    SIM_TRY(sim_stream_get(call, hStream, &stream));
    if (callback == NULL || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    SIM_TRY(sim_capture_forbids(call, stream, NULL));
    SIM_TRY(sim_stream_begin(call, stream));
    struct host_call host = {.callback = callback, .stream = hStream, .data = userData};
    return host_call(call, &stream->lane, &host);
}

/* ---- values in memory */

struct value_write {
    uint64_t address, value;
    unsigned bytes;
};

static void value_write_run(void *argument)
{
    const struct value_write *write = argument;
    memcpy((void *)(uintptr_t)write->address, &write->value, write->bytes);
}

static CUresult value_check(struct sim_lane *lane, uint64_t address, unsigned bytes, int writes)
{
    if ((address & (bytes - 1)) != 0 ||
        sim_memory_check(address, bytes, writes, lane->context->device) != SIM_ACCESS_OK) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static CUresult value_write(struct sim_call *call, struct sim_lane *lane, uint64_t address, uint64_t value,
                            unsigned bytes)
{
    SIM_TRY(value_check(lane, address, bytes, 1));
    struct value_write write = {address, value, bytes};
    const struct sim_access access = {address, bytes, 1};
    const struct sim_op op = {.site = call->function->name,
                              .access = &access,
                              .access_count = 1,
                              .fixed_ns = WRITE_VALUE_NS,
                              .run = value_write_run,
                              .argument = &write};
    return sim_submit(call, lane, &op);
}

static int value_there(uint64_t seen, uint64_t value, unsigned bytes, unsigned flags)
{
    uint64_t sign = (uint64_t)1 << (bytes * 8 - 1);
    switch (flags & 3u) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return ((seen - value) & sign) == 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return seen == value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (seen & value) != 0;
    default:
        return (~(seen | value) & (sign | (sign - 1))) != 0;
    }
}

/* Operations run at submission, so a value that only later work would write can never come. Waiting on a value gives
   order with its writer, which the vector clocks cannot see: the lane takes over what all lanes have done. */
static CUresult value_wait(struct sim_call *call, struct sim_stream *stream, uint64_t address, uint64_t value,
                           unsigned bytes, unsigned flags)
{
    uint64_t seen = 0;
    SIM_TRY(value_check(&stream->lane, address, bytes, 0));
    memcpy(&seen, (const void *)(uintptr_t)address, bytes);
    if (!value_there(seen, value, bytes, flags)) {
        sim_say("%s: the value waited for is not there at submission; this is not supported", call->function->name);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    for (struct sim_stream *other = stream->lane.context->streams; other != NULL; other = other->next) {
        if (other != stream) {
            sim_vector_join(&stream->lane.clock, &other->lane.clock);
        }
    }
    return CUDA_SUCCESS;
}

static CUresult value_op(struct sim_call *call, CUstream hStream, int waits, uint64_t address, uint64_t value,
                         unsigned bytes, unsigned flags)
{
    struct sim_stream *stream;
    SIM_TRY(sim_stream_get(call, hStream, &stream));
    SIM_TRY(sim_capture_forbids(call, stream, NULL));
    SIM_TRY(sim_stream_begin(call, stream));
    return waits ? value_wait(call, stream, address, value, bytes, flags)
                 : value_write(call, &stream->lane, address, value, bytes);
}

#define VALUE_OP(name, waits, bytes, type)                                                                             \
    SIM_API_PTSZ(SIM_CONTEXT, name, (CUstream stream, CUdeviceptr addr, type value, unsigned int flags), stream, addr, \
                 value, flags)                                                                                         \
    {                                                                                                                  \
        return value_op(call, stream, waits, addr, value, bytes, flags);                                               \
    }

VALUE_OP(cuStreamWriteValue32, 0, 4, cuuint32_t)
VALUE_OP(cuStreamWriteValue32_v2, 0, 4, cuuint32_t)
VALUE_OP(cuStreamWaitValue32, 1, 4, cuuint32_t)
VALUE_OP(cuStreamWaitValue32_v2, 1, 4, cuuint32_t)
VALUE_OP(cuStreamWriteValue64, 0, 8, cuuint64_t)
VALUE_OP(cuStreamWriteValue64_v2, 0, 8, cuuint64_t)
VALUE_OP(cuStreamWaitValue64, 1, 8, cuuint64_t)
VALUE_OP(cuStreamWaitValue64_v2, 1, 8, cuuint64_t)

static CUresult batch(struct sim_call *call, CUstream stream, unsigned count, const CUstreamBatchMemOpParams *param)
{
    if (count > 256 || (count > 0 && param == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned i = 0; i < count; i++) {
        const CUstreamBatchMemOpParams *p = &param[i];
        CUresult result = CUDA_SUCCESS;
        switch (p->operation) {
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
            result = value_op(call, stream, 0, p->writeValue.address, p->writeValue.value, 4, 0);
            break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
            result = value_op(call, stream, 0, p->writeValue.address, p->writeValue.value64, 8, 0);
            break;
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
            result = value_op(call, stream, 1, p->waitValue.address, p->waitValue.value, 4, p->waitValue.flags);
            break;
        case CU_STREAM_MEM_OP_WAIT_VALUE_64:
            result = value_op(call, stream, 1, p->waitValue.address, p->waitValue.value64, 8, p->waitValue.flags);
            break;
        case CU_STREAM_MEM_OP_BARRIER:
        case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
            break;
        default:
            result = CUDA_ERROR_INVALID_VALUE;
            break;
        }
        SIM_TRY(result);
    }
    return CUDA_SUCCESS;
}

SIM_API_PTSZ(SIM_CONTEXT, cuStreamBatchMemOp,
             (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray, unsigned int flags), stream,
             count, paramArray, flags)
{
    return flags != 0 ? CUDA_ERROR_INVALID_VALUE : batch(call, stream, count, paramArray);
}

SIM_API_PTSZ(SIM_CONTEXT, cuStreamBatchMemOp_v2,
             (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray, unsigned int flags), stream,
             count, paramArray, flags)
{
    return flags != 0 ? CUDA_ERROR_INVALID_VALUE : batch(call, stream, count, paramArray);
}
