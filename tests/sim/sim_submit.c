/* One operation: may it, after what, when, then do it. */
#include "sim.h"

#include <math.h>

#define KERNEL_LATENCY_NS 2000
#define HOST_READ_PART    0.92 /* kernels read host memory at 50.8 of 55.2 GB/s */

/* Where the bytes of an operation lie, as its device sees it. */
struct traffic {
    double local, peer, host;
};

static uint64_t last_sequence;

static const char *const state_text[] = {
    [SIM_ACCESS_OK] = "may",
    [SIM_ACCESS_UNKNOWN] = "is not memory of a device",
    [SIM_ACCESS_UNMAPPED] = "has nothing mapped",
    [SIM_ACCESS_DENIED] = "is mapped without the right",
};

static int may_access(const struct sim_lane *lane, const struct sim_op *op)
{
    for (size_t i = 0; i < op->access_count; i++) {
        const struct sim_access *access = &op->access[i];
        enum sim_access_state state =
            sim_memory_check(access->address, access->bytes, access->writes, lane->context->device);
        if (state == SIM_ACCESS_OK || (state == SIM_ACCESS_UNKNOWN && op->engine != SIM_ENGINE_KERNEL)) {
            continue;
        }
        sim_say("illegal address: %s (stream %llu) %s 0x%llx + %llu, which %s", op->site, (unsigned long long)lane->id,
                access->writes ? "writes" : "reads", (unsigned long long)access->address,
                (unsigned long long)access->bytes, state_text[state]);
        return 0;
    }
    return 1;
}

static void account(struct traffic *traffic, const struct sim_device *device, const struct sim_piece *piece,
                    size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double bytes = (double)piece[i].bytes;
        if (piece[i].pool == (unsigned)device->ordinal) {
            traffic->local += bytes;
        } else if (piece[i].pool < SIM_MAX_DEVICES) {
            traffic->peer += bytes;
        } else {
            traffic->host += bytes;
        }
    }
}

static int64_t copy_on_link(struct sim_lane *lane, const struct sim_op *op, int64_t ready_ns)
{
    struct sim_device *device = lane->context->device;
    int up = op->engine == SIM_ENGINE_H2D;
    int64_t duration_ns = (int64_t)(sim_copy_ns(op->bytes) * (op->pageable ? 2 : 1) + 0.5);
    *(up ? &device->h2d_bytes : &device->d2h_bytes) += op->bytes;
    const int64_t start_ns = sim_engine_place(up ? &device->h2d : &device->d2h, ready_ns, duration_ns);
    if (up) {
        sim_contention_copy(device, start_ns, start_ns + duration_ns);
    }
    return start_ns + duration_ns;
}

static int64_t kernel_end(struct sim_lane *lane, const struct sim_op *op, const struct traffic *traffic,
                          int64_t ready_ns)
{
    struct sim_device *device = lane->context->device;
    double link_ns = traffic->host / (sim_knobs.link_gbps * HOST_READ_PART);
    double busy_ns = fmax(fmax(op->operations / (sim_knobs.tflops * 1e3), traffic->local / sim_knobs.hbm_gbps),
                          fmax(traffic->peer / sim_knobs.peer_gbps, link_ns));
    int64_t duration_ns = (int64_t)(busy_ns + 0.5) + KERNEL_LATENCY_NS;
    device->kernel_busy_ns += duration_ns;
    if (link_ns >= 1) {
        ready_ns = sim_engine_place(&device->h2d, ready_ns, (int64_t)(link_ns + 0.5));
    }
    return sim_contention_kernel(lane, ready_ns, duration_ns);
}

static int64_t operation_end(struct sim_lane *lane, const struct sim_op *op, const struct traffic *traffic,
                             int64_t ready_ns)
{
    double moved = (double)op->bytes;
    switch (op->engine) {
    case SIM_ENGINE_KERNEL:
        return kernel_end(lane, op, traffic, ready_ns);
    case SIM_ENGINE_H2D:
    case SIM_ENGINE_D2H:
        return copy_on_link(lane, op, ready_ns);
    case SIM_ENGINE_D2D:
        moved = traffic->peer > 0 ? moved / sim_knobs.peer_gbps : 2 * moved / sim_knobs.hbm_gbps;
        return ready_ns + KERNEL_LATENCY_NS + (int64_t)(moved + 0.5);
    case SIM_ENGINE_NONE:
        break;
    }
    return ready_ns + op->fixed_ns;
}

CUresult sim_submit(struct sim_call *call, struct sim_lane *lane, const struct sim_op *op)
{
    struct traffic traffic = {0};
    if (lane->context->sticky != CUDA_SUCCESS) {
        return lane->context->sticky;
    }
    if (!may_access(lane, op)) {
        sim_context_lose(lane->context, CUDA_ERROR_ILLEGAL_ADDRESS);
        return CUDA_SUCCESS;
    }
    sim_lane_tick(lane);
    uint64_t sequence = ++last_sequence;
    for (size_t i = 0; i < op->access_count; i++) {
        const struct sim_piece *piece;
        size_t count = sim_memory_pieces(op->access[i].address, op->access[i].bytes, &piece);
        sim_race_access(lane, op->site, sequence, piece, count, op->access[i].writes);
        account(&traffic, lane->context->device, piece, count);
    }
    int64_t now_ns = sim_now(call), ready_ns = lane->tail_ns > now_ns ? lane->tail_ns : now_ns;
    lane->tail_ns = operation_end(lane, op, &traffic, ready_ns);
    sim_clock_note(lane->tail_ns);
    if (op->run != NULL) {
        op->run(op->argument);
    }
    return CUDA_SUCCESS;
}
