/* Stream captures: see "Captures and graphs" in runtime.h. Only their number is kept. */
#include "engine.h"
#include "gate.h"
#include "runtime.h"

/* Inside the gate: whoever works alone sees either no capture until it is done, or this one from its beginning. */
void ov_capture_beginning(CUstream stream)
{
    (void)stream;
    ov_gate_enter();
}

void ov_capture_began(CUstream stream, CUresult result)
{
    (void)stream;
    if (result == CUDA_SUCCESS) {
        atomic_fetch_add(&ov_captures, 1);
    }
    ov_gate_leave();
}

void ov_capture_ended(CUstream stream)
{
    (void)stream;
    /* Several streams may join a capture, one begins and ends it; an end without a beginning changes nothing. */
    int captures = atomic_load(&ov_captures);
    while (captures > 0 && !atomic_compare_exchange_weak(&ov_captures, &captures, captures - 1)) {
    }
}
