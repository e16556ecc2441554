#include "meter.h"

#include "engine.h"

/* One copy in so many is timed, at first more: a short run wants a figure, too. */
#define METER_EVERY 16u
#define METER_FIRST 3u

bool ov_meter_begin(struct ov_ring *ring, size_t bytes)
{
    struct ov_meter *meter = &ring->meter;
    float ms = 0;
    if (!ov_opt.summary || ring->loads % (ring->loads < 4 * METER_EVERY ? METER_FIRST : METER_EVERY) != 0) {
        return false;
    }
    if (meter->bytes > 0) {
        CUresult result = ov_cu->cuEventElapsedTime(&ms, meter->begin, meter->end);
        if (result == CUDA_ERROR_NOT_READY) {
            return false;
        }
        if (result == CUDA_SUCCESS) {
            ring->counts.timed_bytes += meter->bytes;
            ring->counts.timed_ns += (uint64_t)(ms * 1e6f);
        }
        meter->bytes = 0;
    }
    if (ov_event_take(&ring->timed, &meter->begin) != CUDA_SUCCESS ||
        ov_event_take(&ring->timed, &meter->end) != CUDA_SUCCESS ||
        ov_cu->cuEventRecord(meter->begin, ring->side) != CUDA_SUCCESS) {
        return false;
    }
    meter->bytes = bytes;
    return true;
}

void ov_meter_end(struct ov_ring *ring)
{
    if (ov_cu->cuEventRecord(ring->meter.end, ring->side) != CUDA_SUCCESS) {
        ring->meter.bytes = 0;
    }
}

bool ov_meter_wait_begin(struct ov_ring *ring, struct ov_unit *unit, CUstream stream)
{
    return ov_opt.summary && !unit->timed && ov_event_take(&ring->timed, &unit->asked) == CUDA_SUCCESS &&
           ov_event_take(&ring->timed, &unit->got) == CUDA_SUCCESS &&
           ov_cu->cuEventRecord(unit->asked, stream) == CUDA_SUCCESS;
}

void ov_meter_wait_end(struct ov_unit *unit, CUstream stream)
{
    unit->timed = ov_cu->cuEventRecord(unit->got, stream) == CUDA_SUCCESS;
}

void ov_meter_account(struct ov_ring *ring, struct ov_unit *unit)
{
    float ms = 0;
    if (unit->timed && ov_cu->cuEventElapsedTime(&ms, unit->asked, unit->got) == CUDA_SUCCESS && ms > 0) {
        ring->counts.stall_ns += (uint64_t)(ms * 1e6f);
    }
    unit->timed = false;
}
