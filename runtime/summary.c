#include "summary.h"

#include "engine.h"
#include "log.h"

/* An option that is silently without effect is worse than an error. */
static void warn_of_no_effect(const struct ov_engine *engine)
{
    if (engine->over_budget && engine->plans == 0) {
        ov_log(
            OV_LOG_WARN,
            "device %d: more than the budget of %zu MiB was allocated, what did not fit was used in host memory, and "
            "nothing was streamed: no plan was made before the end",
            engine->device, engine->ledger.budget_bytes >> 20);
    }
}

static void log_line(void *context, const char *text)
{
    (void)context;
    ov_log(OV_LOG_ALWAYS, "%s", text);
}

static void print_timetable(const struct ov_engine *engine)
{
    struct ov_timetable_text *text = ov_opt.timing > 0 ? ov_timetable_read(engine) : NULL;
    if (text != NULL) {
        ov_timetable_tell(text, engine->device, log_line, NULL);
    } else if (ov_opt.timing > 0 && engine->armed) {
        ov_log(OV_LOG_ALWAYS, "device %d: OVERSHOT_TIMING: no pass was timed from beginning to end", engine->device);
    }
    ov_timetable_free(text);
}

/* Not through the log: the user asked for this line, whatever the level. */
void ov_summary_print(struct ov_engine *engine)
{
    ov_stall_say(engine);
    print_timetable(engine);
    warn_of_no_effect(engine);
    if (!ov_opt.summary) {
        return;
    }
    const struct ov_ring *ring = &engine->ring;
    const struct ov_ring_counts *counts = &ring->counts;
    unsigned long long resident = engine->last_plan.resident * 2, streamed = engine->last_plan.streamed * 2;
    unsigned long long host = engine->last_plan.host * 2;
    double rate = counts->timed_ns > 0 ? (double)counts->timed_bytes / (double)counts->timed_ns : 0;
    unsigned long long touches = counts->touches + ring->trace.touches;
    unsigned long long cycles = engine->last_plan.units > 0 ? touches / engine->last_plan.units : 0;
    if (!engine->armed) {
        ov_log(OV_LOG_ALWAYS, "device %d: all of %zu MiB fitted the budget of %zu MiB: nothing was moved",
               engine->device, engine->ledger.peak_bytes >> 20, engine->ledger.budget_bytes >> 20);
        return;
    }
    if (engine->last_plan.in_part > 0) {
        ov_log(OV_LOG_ALWAYS,
               "device %d: weights that are host-mapped because they are read in part: %zu MiB, %.1f %% a cycle",
               engine->device, engine->last_plan.in_part * 2, 100 * engine->last_plan.share);
    }
    ov_log(OV_LOG_ALWAYS,
           "device %d: weights %llu MiB: %llu resident, %llu streamed, %llu host-mapped; ring %zu MiB; peak %zu of %zu "
           "MiB budget, host %zu MiB; %u plans, %llu cycles; %.2f GB/s of %.2f GB/s link (%.1f %%); stalled %.1f ms, "
           "%llu copies, %llu misses, %llu graphs",
           engine->device, resident + streamed + host, resident, streamed, host, engine->last_plan.ring * 2,
           engine->ledger.peak_bytes >> 20, engine->ledger.budget_bytes >> 20, engine->ledger.host_peak_bytes >> 20,
           engine->plans, cycles, rate, ring->link_bytes_per_s * 1e-9,
           ring->link_bytes_per_s > 0 ? 100 * rate * 1e9 / ring->link_bytes_per_s : 0.0,
           (double)counts->stall_ns * 1e-6, (unsigned long long)counts->copies, (unsigned long long)counts->misses,
           (unsigned long long)counts->graphs);
}
