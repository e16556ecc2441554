/*
 * SIM_CONTENTION: kernels take so many percent longer while a copy to their device runs.
 *
 * When a kernel is submitted, the copies before it are known, and it is as long as they make it. A copy that is
 * submitted later and runs meanwhile makes it longer afterwards: the kernel, those behind it in its lane, and the
 * events that were recorded after them. What other lanes have made of such an event stays. In programs whose copies
 * wait for kernels that ran before, as those of a ring do, nothing is lost by that; and nodes of a graph are run in the
 * order of their times, so that a copy comes before whatever follows the kernel beside it.
 */
#include "sim.h"

#include <string.h>

/* Copies that are remembered of a device, and kernels of a lane; both oldest first. */
enum { COPIES = 256, KERNELS = 16, LANES = 256 };

struct span {
    int64_t start_ns, end_ns;
};

static struct {
    struct span copy[COPIES];
    unsigned count;
} link_of[SIM_MAX_DEVICES];

static struct running {
    struct sim_lane *lane; /* NULL: free */
    struct {
        int64_t start_ns, work_ns, end_ns;
    } kernel[KERNELS];
    unsigned count;
} running[LANES];
static unsigned next_lane;

/* When work that begins then is done. */
static int64_t end_of(int device, int64_t start_ns, int64_t work_ns)
{
    const double slow = 1 + sim_knobs.contention / 100;
    double now_ns = (double)start_ns, left_ns = (double)work_ns;
    for (unsigned i = 0; i < link_of[device].count && left_ns > 0; i++) {
        const struct span *copy = &link_of[device].copy[i];
        if ((double)copy->end_ns <= now_ns) {
            continue;
        }
        const double alone_ns = (double)copy->start_ns - now_ns;
        if (alone_ns > 0) {
            if (left_ns <= alone_ns) {
                break;
            }
            left_ns -= alone_ns;
            now_ns = (double)copy->start_ns;
        }
        const double beside_ns = (double)copy->end_ns - now_ns;
        const double done_ns = beside_ns / slow < left_ns ? beside_ns / slow : left_ns;
        now_ns += done_ns * slow;
        left_ns -= done_ns;
    }
    return (int64_t)(now_ns + left_ns + 0.5);
}

static struct running *of_lane(struct sim_lane *lane)
{
    struct running *found = NULL;
    for (unsigned i = 0; i < LANES; i++) {
        if (running[i].lane == lane) {
            return &running[i];
        }
        found = running[i].lane == NULL ? &running[i] : found;
    }
    found = found != NULL ? found : &running[next_lane++ % LANES];
    found->lane = lane;
    found->count = 0;
    return found;
}

void sim_contention_forget(const struct sim_lane *lane)
{
    for (unsigned i = 0; i < LANES; i++) {
        if (running[i].lane == lane) {
            running[i].lane = NULL;
        }
    }
}

int64_t sim_contention_kernel(struct sim_lane *lane, int64_t start_ns, int64_t work_ns)
{
    if (sim_knobs.contention <= 0) {
        return start_ns + work_ns;
    }
    struct running *of = of_lane(lane);
    if (of->count == KERNELS) {
        memmove(of->kernel, of->kernel + 1, (KERNELS - 1) * sizeof of->kernel[0]);
        of->count--;
    }
    const int64_t end_ns = end_of(lane->context->device->ordinal, start_ns, work_ns);
    of->kernel[of->count].start_ns = start_ns;
    of->kernel[of->count].work_ns = work_ns;
    of->kernel[of->count++].end_ns = end_ns;
    return end_ns;
}

static void put_off_events(const struct sim_lane *lane, int64_t from_ns, int64_t to_ns)
{
    for (struct sim_event *event = lane->context->events; event != NULL; event = event->next) {
        if (event->recorded && event->lane == lane && event->time_ns == from_ns) {
            event->time_ns = to_ns;
        }
    }
}

/* From the last one on, so that no event is put off twice. */
static void put_off(struct running *of, int device)
{
    int64_t old_ns[KERNELS], before_ns = INT64_MIN, old_before_ns = INT64_MIN;
    for (unsigned i = 0; i < of->count; i++) {
        const int64_t start_ns = of->kernel[i].start_ns;
        old_ns[i] = of->kernel[i].end_ns;
        of->kernel[i].start_ns = start_ns == old_before_ns || start_ns < before_ns ? before_ns : start_ns;
        of->kernel[i].end_ns = end_of(device, of->kernel[i].start_ns, of->kernel[i].work_ns);
        old_before_ns = old_ns[i];
        before_ns = of->kernel[i].end_ns;
    }
    for (unsigned i = of->count; i-- > 0;) {
        if (of->kernel[i].end_ns != old_ns[i]) {
            put_off_events(of->lane, old_ns[i], of->kernel[i].end_ns);
        }
    }
    if (of->count > 0 && of->lane->tail_ns < before_ns) {
        of->lane->tail_ns = before_ns;
        sim_clock_note(before_ns);
    }
}

void sim_contention_copy(const struct sim_device *device, int64_t start_ns, int64_t end_ns)
{
    unsigned at = link_of[device->ordinal].count;
    struct span *copy = link_of[device->ordinal].copy;
    if (sim_knobs.contention <= 0) {
        return;
    }
    if (at == COPIES) {
        memmove(copy, copy + 1, --at * sizeof *copy);
    }
    link_of[device->ordinal].count = at + 1;
    for (; at > 0 && copy[at - 1].start_ns > start_ns; at--) {
        copy[at] = copy[at - 1];
    }
    copy[at] = (struct span){start_ns, end_ns};
    for (unsigned i = 0; i < LANES; i++) {
        const struct sim_lane *lane = running[i].lane;
        if (lane != NULL && lane->context->device == device && running[i].count > 0 &&
            running[i].kernel[running[i].count - 1].end_ns > start_ns) {
            put_off(&running[i], device->ordinal);
        }
    }
}
