#include "meter.h"

#include "engine.h"

/* One copy in so many is timed, at first more: a short run wants a figure, too. */
#define METER_EVERY 16u
#define METER_FIRST 3u

/* A copy on an idle device, by the sizes that were measured. */
static double alone_s(const struct ov_ring *ring, size_t bytes)
{
    double pages = (double)bytes / (double)OV_PAGE_BYTES, pages_per_s = 0;
    for (unsigned i = 0; i < ring->rate_count && (i == 0 || ring->rate[i].pages <= pages); i++) {
        pages_per_s = ring->rate[i].pages_per_s;
    }
    return pages_per_s > 0 ? pages / pages_per_s : 0;
}

/* A few copies in which something else was in the way say nothing of a program. */
#define LEAST_COPIES 12u
#define LEAST_S      2e-3
#define LEAST_SHARE  0.8

void ov_meter_start(struct ov_ring *ring)
{
    ring->meter.wanted = true;
    ring->meter.alone_s = ring->meter.beside_s = 0;
    ring->meter.copies = 0;
}

double ov_meter_share(struct ov_ring *ring)
{
    const struct ov_meter *meter = &ring->meter;
    const bool known = meter->copies >= LEAST_COPIES && meter->beside_s > LEAST_S;
    const double share = known ? meter->alone_s / meter->beside_s : 1;
    ring->meter.wanted = false;
    return share >= 1 ? 1 : share > LEAST_SHARE ? share : LEAST_SHARE;
}

bool ov_meter_begin(struct ov_ring *ring, struct ov_unit *unit)
{
    struct ov_meter *meter = &ring->meter;
    float ms = 0;
    if (ring->timetable.passes > 0) {
        return ov_timetable_copy_begin(ring, unit);
    }
    if (!(ov_opt.summary || meter->wanted) ||
        ring->loads % (ring->loads < 4 * METER_EVERY ? METER_FIRST : METER_EVERY) != 0) {
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
            meter->beside_s += (double)ms * 1e-3;
            meter->alone_s += alone_s(ring, meter->bytes);
            meter->copies++;
        }
        meter->bytes = 0;
    }
    if (ov_event_take(&ring->timed, &meter->begin) != CUDA_SUCCESS ||
        ov_event_take(&ring->timed, &meter->end) != CUDA_SUCCESS ||
        ov_cu->cuEventRecord(meter->begin, ring->side) != CUDA_SUCCESS) {
        return false;
    }
    meter->bytes = unit->bytes;
    return true;
}

void ov_meter_end(struct ov_ring *ring, struct ov_unit *unit)
{
    if (ring->timetable.passes > 0) {
        ov_timetable_copy_end(ring, unit);
    } else if (ov_cu->cuEventRecord(ring->meter.end, ring->side) != CUDA_SUCCESS) {
        ring->meter.bytes = 0;
    }
}

bool ov_meter_wait_begin(struct ov_ring *ring, struct ov_unit *unit, CUstream stream)
{
    return ov_opt.summary && ring->timetable.passes == 0 && !unit->timed &&
           ov_event_take(&ring->timed, &unit->asked) == CUDA_SUCCESS &&
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

/* Larger copies are no faster. */
#define LARGEST_PAGES (((uint32_t)64 << 20) >> OV_PAGE_SHIFT)

/* Copies as in steady state, but for the kernels: each is told to another stream when it is over, and waits to be told
 * by that stream that the one two before is not needed any more. */
struct convoy {
    CUevent ready[2], free[2];
};

static bool make_convoy(struct convoy *convoy)
{
    CUevent *const all[] = {&convoy->ready[0], &convoy->ready[1], &convoy->free[0], &convoy->free[1]};
    bool made = true;
    for (int i = 0; i < 4; i++) {
        *all[i] = NULL;
        made = made && ov_cu->cuEventCreate(all[i], CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
    }
    return made;
}

static void end_convoy(const struct convoy *convoy)
{
    for (int i = 0; i < 2; i++) {
        if (convoy->ready[i] != NULL) {
            (void)ov_cu->cuEventDestroy_v2(convoy->ready[i]);
        }
        if (convoy->free[i] != NULL) {
            (void)ov_cu->cuEventDestroy_v2(convoy->free[i]);
        }
    }
}

static void send(struct ov_engine *engine, const struct convoy *convoy, const struct ov_unit *unit, uint32_t pages,
                 int copy)
{
    const struct ov_ring *ring = &engine->ring;
    CUstream reader = engine->inspect.stream;
    if (copy >= 2) {
        (void)ov_cu->cuStreamWaitEvent(ring->side, convoy->free[copy % 2], 0);
    }
    (void)ov_master_fetch(engine, ring->window, unit->first, pages, ring->side);
    (void)ov_cu->cuEventRecord(convoy->ready[copy % 2], ring->side);
    (void)ov_cu->cuStreamWaitEvent(reader, convoy->ready[copy % 2], 0);
    (void)ov_cu->cuEventRecord(convoy->free[copy % 2], reader);
}

/* Bytes a second; 0: not known. */
static double measure(struct ov_engine *engine, const struct convoy *convoy, const struct ov_unit *unit, uint32_t pages,
                      CUevent begin, CUevent end)
{
    enum { COPIES = 6, ROUNDS = 2 };
    const struct ov_ring *ring = &engine->ring;
    double best = 0;
    for (int round = 0; round < ROUNDS; round++) {
        float ms = 0;
        for (int copy = 0; copy <= COPIES; copy++) {
            send(engine, convoy, unit, pages, copy);
            if (copy == 0) {
                (void)ov_cu->cuEventRecord(begin, ring->side);
            }
        }
        (void)ov_cu->cuEventRecord(end, ring->side);
        (void)ov_finish(engine, engine->inspect.stream, ov_finish(engine, ring->side, CUDA_SUCCESS));
        if (ov_cu->cuEventElapsedTime(&ms, begin, end) == CUDA_SUCCESS && ms > 0) {
            const double rate = COPIES * (double)((size_t)pages << OV_PAGE_SHIFT) / (ms * 1e-3);
            best = rate > best ? rate : best;
        }
    }
    return best;
}

static void measure_curve(struct ov_engine *engine, const struct convoy *convoy, const struct ov_unit *unit,
                          CUevent begin, CUevent end)
{
    struct ov_ring *ring = &engine->ring;
    const uint32_t largest = unit->pages < LARGEST_PAGES ? unit->pages : LARGEST_PAGES;
    ring->rate_count = 0;
    for (uint32_t pages = 1; pages > 0 && ring->rate_count < OV_RATES; pages = pages == largest      ? 0
                                                                               : 2 * pages < largest ? 2 * pages
                                                                                                     : largest) {
        const double rate = measure(engine, convoy, unit, pages, begin, end);
        if (rate > 0) {
            ring->rate[ring->rate_count++] =
                (struct ov_plan_rate){.pages = pages, .pages_per_s = rate / (double)OV_PAGE_BYTES};
            ring->link_bytes_per_s = rate > ring->link_bytes_per_s ? rate : ring->link_bytes_per_s;
        }
    }
}

void ov_meter_link(struct ov_engine *engine)
{
    struct ov_ring *ring = &engine->ring;
    const struct ov_unit *largest = NULL;
    for (uint32_t i = 0; i < ring->unit_count; i++) {
        const struct ov_unit *unit = &ring->unit[i];
        if (unit->tier == OV_TIER_STREAMED && (largest == NULL || unit->bytes > largest->bytes)) {
            largest = unit;
        }
    }
    CUevent begin = NULL, end = NULL;
    struct convoy convoy;
    if (largest == NULL || ring->link_bytes_per_s > 0) {
        return;
    }
    if (make_convoy(&convoy) && ov_cu->cuEventCreate(&begin, CU_EVENT_DEFAULT) == CUDA_SUCCESS) {
        if (ov_cu->cuEventCreate(&end, CU_EVENT_DEFAULT) == CUDA_SUCCESS) {
            measure_curve(engine, &convoy, largest, begin, end);
            (void)ov_cu->cuEventDestroy_v2(end);
        }
        (void)ov_cu->cuEventDestroy_v2(begin);
    }
    end_convoy(&convoy);
}
