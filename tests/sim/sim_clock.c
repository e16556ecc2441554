/* Virtual time: what calls cost the host, how long copies take, how serial engines are shared. */
#include "sim.h"

#include <math.h>
#include <string.h>
#include <time.h>

/* Measured on one H200 host (PCIe 5 x16). What is not listed costs OTHER_NS. Per-size costs are charged by the
 * functions. */
#define OTHER_NS 50
static const struct {
    const char *name;
    int64_t ns;
} costs[] = {
    {"cuLaunchKernel", 4500},
    {"cuLaunchKernelEx", 4500},
    {"cuLaunchCooperativeKernel", 4500},
    {"cuGraphLaunch", 6000},
    {"cuMemcpyHtoDAsync", 2500},
    {"cuMemcpyDtoHAsync", 2500},
    {"cuMemcpyDtoDAsync", 2500},
    {"cuMemcpyAsync", 2500},
    {"cuMemcpyPeerAsync", 2500},
    {"cuMemcpy2DAsync", 2500},
    {"cuMemcpy3DAsync", 2500},
    {"cuMemcpyBatchAsync", 2500},
    {"cuMemcpyHtoD", 2500},
    {"cuMemcpyDtoH", 2500},
    {"cuMemcpyDtoD", 2500},
    {"cuMemcpy", 2500},
    {"cuMemsetD8Async", 2500},
    {"cuMemsetD16Async", 2500},
    {"cuMemsetD32Async", 2500},
    {"cuMemsetD8", 2500},
    {"cuMemsetD16", 2500},
    {"cuMemsetD32", 2500},
    {"cuEventRecord", 300},
    {"cuEventRecordWithFlags", 300},
    {"cuStreamWaitEvent", 340},
    {"cuLaunchHostFunc", 2000},
    {"cuStreamWriteValue32", 1700},
    {"cuStreamWriteValue64", 1700},
    {"cuStreamWaitValue32", 1700},
    {"cuMemCreate", 10000},
    {"cuMemMap", 1600},
    {"cuMemSetAccess", 33000},
    {"cuMemUnmap", 19000},
    {"cuMemRelease", 5000},
    {"cuMemAlloc", 20000},
    {"cuMemFree", 20000},
    {"cuMemAllocAsync", 1000},
    {"cuMemFreeAsync", 1000},
    {"cuMemHostAlloc", 20000},
    {"cuMemAllocHost", 20000},
    {"cuMemFreeHost", 20000},
    {"cuMemHostRegister", 20000},
};

/* Pinned copy speed by size; log-linear between the points. */
static const struct {
    double bytes, gbps;
} curve[] = {
    {65536, 17}, {262144, 35}, {1048576, 48}, {2097152, 51}, {16777216, 53.8}, {67108864, 54.9}, {268435456, 55.3},
};
#define CURVE_POINTS    (sizeof curve / sizeof curve[0])
#define CURVE_LINK_GBPS 55.2 /* the link this curve was taken on */
#define COPY_LATENCY_NS 1500

int64_t sim_function_cost(const char *name)
{
    size_t length = strlen(name);
    if (length > 5 && (strcmp(name + length - 5, "_ptsz") == 0 || strcmp(name + length - 5, "_ptds") == 0)) {
        length -= 5;
    }
    if (length > 3 && name[length - 3] == '_' && name[length - 2] == 'v') {
        length -= 3;
    }
    for (size_t i = 0; i < sizeof costs / sizeof costs[0]; i++) {
        if (strlen(costs[i].name) == length && strncmp(costs[i].name, name, length) == 0) {
            return costs[i].ns;
        }
    }
    return OTHER_NS;
}

double sim_copy_ns(uint64_t bytes)
{
    double size = (double)bytes, scale = sim_knobs.link_gbps / CURVE_LINK_GBPS;
    if (size <= curve[0].bytes) {
        double smallest_ns = curve[0].bytes / (curve[0].gbps * scale);
        double latency_ns = fmin(COPY_LATENCY_NS, smallest_ns);
        return latency_ns + (smallest_ns - latency_ns) * size / curve[0].bytes;
    }
    double gbps = curve[CURVE_POINTS - 1].gbps;
    for (size_t i = 1; i < CURVE_POINTS; i++) {
        if (size <= curve[i].bytes) {
            double part = log(size / curve[i - 1].bytes) / log(curve[i].bytes / curve[i - 1].bytes);
            gbps = curve[i - 1].gbps + part * (curve[i].gbps - curve[i - 1].gbps);
            break;
        }
    }
    return size / (gbps * scale);
}

static int64_t monotonic_ns(void)
{
    static struct timespec start;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (start.tv_sec == 0) {
        start = now;
    }
    return (int64_t)(now.tv_sec - start.tv_sec) * 1000000000 + (now.tv_nsec - start.tv_nsec);
}

int64_t sim_now(struct sim_call *call)
{
    if (sim_knobs.real_time) {
        int64_t real_ns = monotonic_ns();
        if (call->thread->host_ns < real_ns) {
            call->thread->host_ns = real_ns;
        }
    }
    return call->thread->host_ns;
}

static void sleep_ns(void *argument)
{
    int64_t ns = *(const int64_t *)argument;
    struct timespec left = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    nanosleep(&left, NULL);
}

void sim_wait_until(struct sim_call *call, int64_t time_ns)
{
    if (sim_knobs.real_time) {
        int64_t wait_ns = time_ns - monotonic_ns();
        if (wait_ns > 0) {
            sim_run_unlocked(sleep_ns, &wait_ns);
        }
    }
    if (call->thread->host_ns < time_ns) {
        call->thread->host_ns = time_ns;
    }
}

/* Gaps are kept in order of time; when there are too many the oldest is given up. */
static void gap_add(struct sim_engine_state *engine, unsigned at, int64_t start_ns, int64_t end_ns)
{
    const unsigned room = sizeof engine->gap / sizeof engine->gap[0];
    if (end_ns <= start_ns) {
        return;
    }
    if (engine->gap_count == room) {
        memmove(engine->gap, engine->gap + 1, (room - 1) * sizeof engine->gap[0]);
        engine->gap_count--;
        at -= at > 0;
    }
    memmove(engine->gap + at + 1, engine->gap + at, (engine->gap_count - at) * sizeof engine->gap[0]);
    engine->gap[at].start_ns = start_ns;
    engine->gap[at].end_ns = end_ns;
    engine->gap_count++;
}

int64_t sim_engine_place(struct sim_engine_state *engine, int64_t ready_ns, int64_t duration_ns)
{
    engine->busy_ns += duration_ns;
    for (unsigned i = 0; i < engine->gap_count; i++) {
        struct sim_gap gap = engine->gap[i];
        int64_t start_ns = gap.start_ns > ready_ns ? gap.start_ns : ready_ns;
        if (start_ns + duration_ns <= gap.end_ns) {
            memmove(engine->gap + i, engine->gap + i + 1, (engine->gap_count - i - 1) * sizeof gap);
            engine->gap_count--;
            gap_add(engine, i, start_ns + duration_ns, gap.end_ns);
            gap_add(engine, i, gap.start_ns, start_ns);
            return start_ns;
        }
    }
    int64_t start_ns = engine->tail_ns > ready_ns ? engine->tail_ns : ready_ns;
    gap_add(engine, engine->gap_count, engine->tail_ns, start_ns);
    engine->tail_ns = start_ns + duration_ns;
    return start_ns;
}

static int64_t latest_lane_ns;

void sim_clock_note(int64_t time_ns)
{
    latest_lane_ns = time_ns > latest_lane_ns ? time_ns : latest_lane_ns;
}

int64_t sim_makespan(void)
{
    int64_t latest_ns = latest_lane_ns;
    for (const struct sim_thread *thread = sim_threads; thread != NULL; thread = thread->next) {
        latest_ns = thread->host_ns > latest_ns ? thread->host_ns : latest_ns;
    }
    return latest_ns;
}
