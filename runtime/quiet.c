/*
 * Quiet points: moments at which the program has waited for the device anyway. There, and only there, memory is hashed,
 * the log is studied, plans are made and changed.
 *
 * A program that is called back when something is over does not wait in a way that is seen: for it, a launch that finds
 * its stream idle is one, after hundreds without, and then after dozens (launch.c); and after thousands, whatever is
 * under way is waited for.
 */

#include "clock.h"
#include "convert.h"
#include "engine.h"
#include "log.h"
#include "record.h"
#include "retime.h"
#include "runtime.h"
#include "steer.h"

/* Share of the program's time that may go into hashing memory for the first time while it loads. */
#define HASH_SHARE 10u

/* Something was filled and never hashed: a first look now is what makes a later one tell whether it changed. */
static bool has_unseen(const struct ov_engine *engine)
{
    for (uint32_t i = 0; i < engine->allocs.count; i++) {
        const struct ov_alloc *alloc = &engine->allocs.item[i];
        if (alloc->ordinal != 0 && alloc->dirty && alloc->unseen) {
            return true;
        }
    }
    return false;
}

/* How long a program that still fits its budget is watched. */
#define QUIET_LAUNCHES 20000u

/* Looks at what was learned after which the user hears that nothing came of it yet. */
#define PATIENCE_LOOKS 8u

enum work { NOTHING, LOOK, RECALL, STUDY };

static enum work due(struct ov_engine *engine)
{
    if (!engine->armed || !engine->inspect.ready || engine->watches > 0) {
        return NOTHING;
    }
    bool affordable = ov_now_ns() - engine->looked_at_ns >= HASH_SHARE * engine->look_took_ns;
    if (engine->learning && ov_recall_due(engine, affordable)) {
        return RECALL;
    }
    if (engine->learning && ov_learn_due(engine) && (engine->learn.beginnings < OV_PATIENCE || affordable)) {
        return STUDY;
    }
    return engine->learning && affordable && has_unseen(engine) ? LOOK : NOTHING;
}

/* Whether a plan was made. */
static bool study(struct ov_engine *engine)
{
    bool studied = ov_learn_study(engine);
    if (engine->learn.confirmed) {
        engine->learn.confirmed = engine->learning = false;
        ov_engine_look(engine);
        ov_record(engine); /* more may be known of kernels */
        return false;
    }
    if (!studied && !engine->over_budget && engine->learn.launches > QUIET_LAUNCHES) {
        engine->learning = false; /* no need yet, and no clear picture: not worth the cost */
        ov_engine_look(engine);
        return false;
    }
    if (!studied && engine->over_budget && engine->learn.attempts == PATIENCE_LOOKS) {
        ov_log(OV_LOG_WARN,
               "device %d: %zu MiB did not fit the budget and are used in host memory; nothing is streamed: after %u "
               "looks it is not clear what the weights are",
               engine->device, engine->ledger.host_bytes >> 20, engine->learn.attempts);
    }
    bool planned = studied && ov_plan_and_convert(engine, 0, 0);
    if (planned || engine->learn.settled) { /* a period may yet show */
        engine->learning = engine->learn.settled && engine->learn.attempts < 2 * OV_PATIENCE;
        ov_engine_look(engine);
        engine->replan_soon = engine->replan_soon && !planned;
    }
    return planned;
}

/* Weights that are known from an earlier start. Whether a plan was made. Discovery goes on behind it (recall.h). */
static bool recall(struct ov_engine *engine)
{
    if (!ov_recall_adopt(engine)) {
        return false;
    }
    engine->replan_soon = false;
    return ov_plan_and_convert(engine, 0, 0);
}

/* Programs often hold what a pass gave them while the next one makes its own. So while weights give way anyway, room
 * for one more of the largest buffer is kept: the conversion that it asks for falls into a quiet point and not into the
 * pass. What nobody asks for comes back by halves. */
static uint32_t spare_pages(const struct ov_engine *engine)
{
    uint32_t most = ov_pages(engine->ledger.budget_bytes / 4);
    return engine->largest_pages < most ? engine->largest_pages : most;
}

static bool is_tight(const struct ov_engine *engine)
{
    return engine->ring.streamed_count > 0 && ov_ledger_left(&engine->ledger) >> OV_PAGE_SHIFT < spare_pages(engine);
}

/* Weights that came back would be a tenth of those that are streamed: less is not worth a conversion. */
static bool slack_is_worth_taking(const struct ov_engine *engine)
{
    size_t left = ov_ledger_left(&engine->ledger) >> OV_PAGE_SHIFT, spare = spare_pages(engine);
    return left > spare && (left - spare) * 10 >= engine->last_plan.streamed;
}

/* Whether a plan that stands should be made anew. Each such plan doubles the wait for the next: programs that allocate
 * and free all the time have plans that last, not plans that fit. */
static bool wants_replan(struct ov_engine *engine)
{
    if (!atomic_load(&engine->planned)) {
        return false;
    }
    bool tight = engine->grown && is_tight(engine);
    engine->grown = false;
    if ((!engine->replan_soon && !engine->slack) || ++engine->quiet_points < engine->replan_wait) {
        return tight;
    }
    bool replan = tight || engine->replan_soon || slack_is_worth_taking(engine);
    engine->replan_wait = engine->replan_wait < 512 ? engine->replan_wait * 2 + 1 : engine->replan_wait;
    engine->quiet_points = 0;
    engine->largest_pages /= 2;
    return replan;
}

static void attend(struct ov_engine *engine)
{
    struct ov_exclusive section;
    pthread_mutex_lock(&engine->lock);
    ov_density_quiet(engine);
    ov_record_quiet(engine);
    enum work work = due(engine);
    bool change = ov_giveway_due(engine), replan = wants_replan(engine), timed = ov_profiler_collect(engine);
    bool off = !timed && engine->ring.pace.due && !engine->profile_suspended;
    bool answered = ov_planning_done(&engine->planning);
    pthread_mutex_unlock(&engine->lock);
    if (work == NOTHING && !change && !replan && !timed && !off && !answered) {
        atomic_store(&engine->overdue, 0); /* asked again after as many launches */
        return;
    }
    uint64_t begin = ov_now_ns();
    (void)ov_exclusive_begin(engine, &section);
    if (!section.idle) {
        work = NOTHING;
        change = replan = timed = off = answered = false;
    }
    if (work == RECALL) {
        bool planned = recall(engine);
        replan = replan && !planned;
        work = !planned && ov_learn_due(engine) ? STUDY : RECALL;
    }
    if (work == STUDY) {
        replan = !study(engine) && replan;
    } else if (work == LOOK) {
        (void)ov_learn_hash(engine);
    }
    if (change && !atomic_load(&engine->planned)) { /* nor has one been made just now */
        const uint64_t then = ov_now_ns();
        ov_giveway_change(engine);
        begin += ov_now_ns() - then; /* it is no look, and delays none */
    }
    if (timed && engine->profiler.phase == OV_PROFILER_DONE && engine->watches == 0) { /* no plan came before it */
        replan = ov_retime(engine, spare_pages(engine)) || replan;
    }
    if (answered && !timed && engine->watches == 0) {
        replan = ov_retime_answered(engine, spare_pages(engine)) || replan;
    }
    if (replan && engine->watches == 0) {
        engine->replan_soon = engine->slack = false;
        (void)ov_plan_and_convert(engine, 0, spare_pages(engine));
    }
    if (off && !replan && ov_pace_is_off(&engine->ring.pace)) {
        ov_log(OV_LOG_INFO, "device %d: passes take another time than was planned for: they are timed anew",
               engine->device);
        ov_profiler_begin(engine, true);
    }
    atomic_store(&engine->overdue, 0);
    engine->looked_at_ns = ov_now_ns();
    engine->look_took_ns = engine->looked_at_ns - begin;
    ov_exclusive_end(engine, &section);
    ov_state_settle();
}

/* What the launch path left to be said and to be counted. */
static void catch_up(struct ov_engine *engine)
{
    if (ov_opt.timing > 0 || atomic_load_explicit(&engine->stall.notes, memory_order_relaxed) > 0) {
        pthread_mutex_lock(&engine->lock);
        ov_timetable_collect(&engine->ring);
        ov_stall_say(engine);
        pthread_mutex_unlock(&engine->lock);
    }
}

void ov_quiet_point(void)
{
    for (int slice = 0; slice < OV_DEVICES; slice++) {
        struct ov_engine *waited = ov_engine_at(slice);
        if (waited != NULL) {
            ov_pools_synchronized(waited);
        }
    }
    if (atomic_load(&ov_captures) != 0 || ov_self.gate_depth != 0) {
        return;
    }
    if (__builtin_expect(atomic_load_explicit(&ov_steer_waiting, memory_order_relaxed), 0)) {
        ov_steer_serve();
    }
    if (atomic_load_explicit(&ov_state, memory_order_relaxed) != OV_ARMED) {
        return;
    }
    struct ov_engine *engine = ov_engine_here();
    if (engine != NULL && engine->armed) {
        atomic_store(&engine->called_back, false);
        catch_up(engine);
        if (!engine->paused) {
            attend(engine);
        }
    }
}
