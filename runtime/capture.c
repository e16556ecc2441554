/*
 * Stream captures: see "Captures and graphs" in runtime.h. What others ask for is their number (ov_captures). As long
 * as it is not zero the device is not waited for and no plan is made, so it must neither be too small nor stay too
 * large: the streams that captures began in are listed, and a capture is over when its stream says so, or is destroyed,
 * or its context is. (An end may be refused and leave the capture as it was; one of a stream that joined ends nothing.)
 */
#include <pthread.h>

#include "engine.h"
#include "gate.h"
#include "runtime.h"

/* Captures at a time that are known by their streams. Those beyond are counted, and are over with any end. */
#define LISTED_MOST 256u

struct capture {
    CUstream stream;
    pthread_t thread; /* of a per-thread stream */
    CUcontext context;
    CUdevice device;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* a leaf; guards what follows, and changes of ov_captures */
static struct capture listed[LISTED_MOST];
static unsigned listed_count, unlisted_count;

static void set_number(void)
{
    atomic_store(&ov_captures, (int)(listed_count + unlisted_count));
}

static struct capture describe(CUstream stream)
{
    struct capture capture = {.stream = stream, .thread = pthread_self(), .device = -1};
    if (ov_cu->cuCtxGetCurrent(&capture.context) != CUDA_SUCCESS ||
        ov_cu->cuCtxGetDevice(&capture.device) != CUDA_SUCCESS) {
        capture.device = -1;
    }
    return capture;
}

static unsigned place_of(CUstream stream)
{
    unsigned at = 0;
    while (at < listed_count && (listed[at].stream != stream || (stream == CU_STREAM_PER_THREAD &&
                                                                 !pthread_equal(listed[at].thread, pthread_self())))) {
        at++;
    }
    return at;
}

static void strike(unsigned at)
{
    listed[at] = listed[--listed_count];
    set_number();
}

/* Inside the gate: whoever works alone sees either no capture until it is done, or this one from its beginning. */
void ov_capture_beginning(CUstream stream)
{
    (void)stream;
    ov_gate_enter();
}

void ov_capture_began(CUstream stream, CUresult result)
{
    if (result == CUDA_SUCCESS) {
        const struct capture capture = describe(stream);
        pthread_mutex_lock(&lock);
        if (listed_count < LISTED_MOST) {
            listed[listed_count++] = capture;
        } else {
            unlisted_count++;
        }
        set_number();
        pthread_mutex_unlock(&lock);
    }
    ov_gate_leave();
}

void ov_capture_ended(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (ov_cu->cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE) {
        return;
    }
    pthread_mutex_lock(&lock);
    unsigned at = place_of(stream);
    if (at < listed_count) {
        strike(at);
    } else if (unlisted_count > 0) {
        unlisted_count--;
        set_number();
    }
    pthread_mutex_unlock(&lock);
}

void ov_capture_stream_closing(CUstream stream)
{
    if (atomic_load(&ov_captures) == 0) {
        return;
    }
    pthread_mutex_lock(&lock);
    unsigned at = place_of(stream);
    if (at < listed_count) {
        strike(at);
    }
    pthread_mutex_unlock(&lock);
}

void ov_capture_context_closing(CUcontext context, CUdevice device)
{
    pthread_mutex_lock(&lock);
    for (unsigned at = listed_count; at-- > 0;) {
        if (context != NULL ? listed[at].context == context : listed[at].device == device) {
            strike(at);
        }
    }
    pthread_mutex_unlock(&lock);
}
