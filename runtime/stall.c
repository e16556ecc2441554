#include "stall.h"

#include "engine.h"
#include "log.h"

void ov_stall_begin(struct ov_engine *engine)
{
    const size_t period = ov_trace_period(&engine->ring.trace);
    engine->stall.cycle = period > 0 ? period : engine->ring.unit_count;
}

static bool is_steady(const struct ov_engine *engine)
{
    return !engine->learning && engine->ring.trace.touches > engine->stall.cycle;
}

/* 1, 2, 4, ...: so a program that misses all the time fills no log. */
static bool is_worth_saying(uint64_t times)
{
    return (times & (times - 1)) == 0;
}

static void note(struct ov_engine *engine, const struct ov_kernel *kernel, uint32_t index, bool refused)
{
    struct ov_stall *stall = &engine->stall;
    const struct ov_unit *unit = &engine->ring.unit[index];
    const struct ov_alloc *alloc = ov_alloc_of(engine, unit->first);
    const unsigned notes = atomic_load_explicit(&stall->notes, memory_order_relaxed);
    const unsigned at = notes < OV_STALL_NOTES ? notes : OV_STALL_NOTES - 1;
    stall->note[at] = (struct ov_stall_note){
        .unit = index,
        .ordinal = alloc != NULL ? alloc->ordinal : 0,
        .bytes = unit->bytes,
        .offset = alloc != NULL ? (size_t)(unit->begin - ov_page_address(&engine->arena, alloc->first)) : 0,
        .kernel = kernel,
        .times_unit = unit->missed,
        .times = stall->times,
        .refused = refused};
    atomic_store_explicit(&stall->notes, at + 1, memory_order_relaxed);
}

static bool miss(struct ov_engine *engine, const struct ov_kernel *kernel, uint32_t index, bool may_refuse)
{
    if (ov_opt.stall == OV_OPT_STALL_OFF || !is_steady(engine)) {
        return false;
    }
    const bool refused = may_refuse && ov_opt.stall == OV_OPT_STALL_ERROR;
    engine->ring.unit[index].missed++;
    engine->stall.times++;
    if (refused || is_worth_saying(engine->stall.times)) {
        note(engine, kernel, index, refused);
    }
    return refused;
}

bool ov_stall_miss(struct ov_engine *engine, const struct ov_launch *launch, uint32_t unit)
{
    const bool replayed = ov_self.inside != 0;
    return miss(engine, launch->kernel, unit, !replayed && launch->watch == NULL);
}

bool ov_stall_miss_graph(struct ov_engine *engine, uint32_t unit)
{
    return miss(engine, NULL, unit, true);
}

void ov_stall_say(struct ov_engine *engine)
{
    const unsigned notes = atomic_exchange_explicit(&engine->stall.notes, 0, memory_order_relaxed);
    for (unsigned i = 0; i < notes; i++) {
        const struct ov_stall_note *note = &engine->stall.note[i];
        ov_log(OV_LOG_ALWAYS,
               "device %d: %s%s%s: weight %u (%zu MiB at %zu MiB of allocation %u) was neither on the GPU nor on its "
               "way: %llu so far, %llu with all weights",
               engine->device, note->refused ? "launch refused (OVERSHOT_STALL=error): " : "a copy was waited for: ",
               note->kernel != NULL ? "kernel " : "a graph", note->kernel != NULL ? note->kernel->name : "", note->unit,
               note->bytes >> 20, note->offset >> 20, note->ordinal, (unsigned long long)note->times_unit,
               (unsigned long long)note->times);
    }
}
