/* Room for what the program asks for: what gives way, and what follows from growth. See alloc.h. */
#include "convert.h"
#include "engine.h"

static size_t budget_left(struct ov_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    size_t left = ov_ledger_left(&engine->ledger);
    pthread_mutex_unlock(&engine->lock);
    return left;
}

/* What was freed in stream order goes first: what is done at once, the rest when the device is. */
static bool idle_makes_room(struct ov_engine *engine, size_t bytes)
{
    if (atomic_load(&engine->pools.idle_count) == 0 && !atomic_load(&engine->kept.some)) {
        return false;
    }
    bool entered = ov_context_enter(engine);
    pthread_mutex_lock(&engine->lock);
    ov_idle_drop(engine, 0, false);
    ov_kept_trim(engine);
    bool fits = bytes <= ov_ledger_left(&engine->ledger);
    pthread_mutex_unlock(&engine->lock);
    ov_context_leave(entered);
    return fits;
}

/* Programs ask for more in many steps, and a conversion looks at all memory. So there is one for each sixteenth that
 * the program grows by, and none for each piece: what is asked for in between and does not fit goes to the host until
 * the next quiet point. */
#define STEP 16

static bool may_convert(struct ov_engine *engine, size_t bytes)
{
    if (!atomic_load(&engine->planned) || atomic_load(&engine->paused)) {
        return false;
    }
    pthread_mutex_lock(&engine->lock);
    size_t then = engine->room_made_bytes, now = engine->ledger.program_bytes + bytes;
    pthread_mutex_unlock(&engine->lock);
    return then == 0 || now >= then + then / STEP || now <= then - then / STEP;
}

/* More than the device holds though all weights gave way: it goes to the host if it fits there, and nowhere if both
 * together do not hold it. Programs ask for too much to find out how much there is. */
static bool is_hopeless(struct ov_engine *engine, size_t bytes)
{
    const struct ov_ledger *ledger = &engine->ledger;
    pthread_mutex_lock(&engine->lock);
    const size_t stays =
        ledger->held_bytes[OV_FOR_SCRATCH] + ledger->held_bytes[OV_FOR_SMALL] + ledger->held_bytes[OV_FOR_FOREIGN];
    const bool too_much = stays > ledger->budget_bytes || bytes > ledger->budget_bytes - stays;
    const bool in_host = bytes <= ov_ledger_host_left(ledger);
    const size_t all = ledger->program_bytes + bytes;
    const bool nowhere = all > ledger->budget_bytes && all - ledger->budget_bytes > ledger->host_limit_bytes;
    pthread_mutex_unlock(&engine->lock);
    return too_much && (in_host || nowhere);
}

/* Room for as much again as the program has taken, and at least for the next step, where it can be had: mostly there is
 * nothing that does not fit. What stays unused comes back after some quiet points. */
static void convert(struct ov_engine *engine, uint32_t pages)
{
    uint32_t most = ov_pages(engine->ledger.budget_bytes / 4), written = ov_pages_written(engine);
    uint32_t step = ov_pages(engine->ledger.program_bytes / STEP);
    uint32_t spare = written > step ? written : step;
    (void)ov_plan_and_convert(engine, pages, spare < most ? spare : most);
    engine->room_made_bytes = engine->ledger.program_bytes + ((size_t)pages << OV_PAGE_SHIFT);
    engine->slack = true;
    engine->quiet_points = 0;
    engine->replan_wait = engine->replan_wait < 8 ? 8 : engine->replan_wait;
}

/* Whether there is room once pools of the driver's have given back what was freed, which may have to be waited for. */
static bool kept_may_do(struct ov_engine *engine, size_t bytes)
{
    if (!atomic_load(&engine->kept.some)) {
        return false;
    }
    pthread_mutex_lock(&engine->lock);
    const struct ov_ledger *ledger = &engine->ledger;
    const bool may =
        bytes <= ov_ledger_left(ledger) + ledger->kept_bytes[OV_FOR_SMALL] + ledger->kept_bytes[OV_FOR_FOREIGN];
    pthread_mutex_unlock(&engine->lock);
    return may;
}

void ov_make_room(struct ov_engine *engine, uint32_t pages, bool at_any_cost)
{
    size_t bytes = (size_t)pages << OV_PAGE_SHIFT;
    bool convertible = may_convert(engine, bytes), gives_way = ov_giveway_may(engine, bytes);
    if ((convertible || gives_way) && is_hopeless(engine, bytes)) {
        convertible = gives_way = false;
    }
    if (bytes <= budget_left(engine) || atomic_load(&ov_captures) != 0 || idle_makes_room(engine, bytes) ||
        !(convertible || gives_way || at_any_cost || atomic_load(&engine->pools.idle_count) > 0 ||
          kept_may_do(engine, bytes))) {
        return;
    }
    struct ov_exclusive section;
    (void)ov_exclusive_begin(engine, &section);
    if (section.idle) {
        ov_idle_drop(engine, 0, true);
        ov_kept_trim(engine);
        bool fits = bytes <= ov_ledger_left(&engine->ledger);
        if (convertible && !fits) {
            convert(engine, pages);
        }
        if (gives_way && !fits) {
            ov_giveway(engine, pages);
            fits = bytes <= ov_ledger_left(&engine->ledger);
        }
        if (at_any_cost && !fits && ov_ring_open(engine) == CUDA_SUCCESS) {
            ov_demote_some(engine, pages);
        }
    }
    ov_exclusive_end(engine, &section);
}

static void note_growth(struct ov_engine *engine, uint32_t pages, bool on_host)
{
    if (atomic_load(&engine->planned)) {
        engine->replan_soon = engine->replan_soon || on_host;
        engine->grown = engine->grown || pages > engine->largest_pages;
        engine->largest_pages = pages > engine->largest_pages ? pages : engine->largest_pages;
    }
}

void ov_alloc_grown(struct ov_engine *engine, size_t bytes, bool on_host)
{
    engine->ledger.program_bytes += bytes;
    note_growth(engine, ov_pages(bytes), on_host);
    engine->over_budget = engine->over_budget || on_host;
    if (on_host && engine->armed) {
        ov_engine_learn(engine);
    }
}

void ov_alloc_grew(struct ov_engine *engine, bool on_host)
{
    if (on_host && !engine->armed) {
        ov_engine_arm(engine, "the budget is used up");
    } else if (!engine->armed && ov_mode_moves() && engine->arena.host_capable &&
               budget_left(engine) < engine->ledger.budget_bytes / 2) {
        ov_engine_arm(engine, "half of the budget is used");
    }
}
