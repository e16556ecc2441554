#define _GNU_SOURCE
#include "steer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "convert.h"
#include "engine.h"
#include "log.h"
#include "outcome.h"
#include "runtime.h"
#include "service.h"
#include "value.h"

/* No plan has less. */
#define LEAST_PAGES 4u
/* Requests that may wait for a quiet point. */
#define WAITING_MOST 8u

enum action { BUDGET, RESTORE, REPLAN, PAUSE, RESUME, SUSPEND_PROFILE, RESUME_PROFILE };

static const struct {
    const char *word;
    enum action action;
    bool takes_bytes;
} actions[] = {{"budget", BUDGET, true},
               {"restore", RESTORE, false},
               {"replan", REPLAN, false},
               {"pause", PAUSE, false},
               {"resume", RESUME, false},
               {"suspend-profile", SUSPEND_PROFILE, false},
               {"resume-profile", RESUME_PROFILE, false}};

struct request {
    enum action action;
    size_t bytes;
    uint64_t number;
};

_Atomic bool ov_steer_waiting;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all that follows */
static pthread_cond_t done_signal = PTHREAD_COND_INITIALIZER;
static struct request waiting[WAITING_MOST]; /* in the order in which they came; the first may be under way */
static unsigned waiting_count;
static bool under_way;
static uint64_t asked, answered; /* the number of the last one */
static char outcome[OV_STEER_LINE_BYTES];

/* ---- what is done, at a quiet point ---- */

static void tell(char *line, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void tell(char *line, const char *format, ...)
{
    const size_t length = strlen(line);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + length, OV_STEER_LINE_BYTES - length, format, arguments);
    va_end(arguments);
}

/* The budget is another: units, what the program writes, and the ring, in that order of preference. */
static void fit_budget(struct ov_engine *engine)
{
    if (engine->learn.runs.count > 0 && engine->watches == 0) {
        (void)ov_plan_and_convert(engine, 0, 0);
    }
    if (ov_ledger_held(&engine->ledger) > engine->ledger.budget_bytes) {
        engine->over_budget = true;
        if (ov_ring_open(engine) == CUDA_SUCCESS) {
            ov_demote_some(engine, 1);
        }
        ov_engine_learn(engine);
    }
    engine->replan_wait = 0;
}

/* What it takes to have all on the device: what the program has, wherever it is, and what is ours and stays. */
static size_t everything(const struct ov_engine *engine)
{
    const struct ov_ledger *ledger = &engine->ledger;
    return ledger->program_bytes + ledger->held_bytes[OV_FOR_SCRATCH] + ledger->set_aside_bytes[OV_FOR_SCRATCH] +
           ledger->held_bytes[OV_FOR_SMALL] + ledger->held_bytes[OV_FOR_FOREIGN] + 2 * OV_PAGE_BYTES;
}

static bool may_restore(struct ov_engine *engine, char *line)
{
    const size_t wanted = everything(engine), held = ov_ledger_held(&engine->ledger);
    size_t free_bytes = 0, total_bytes = 0;
    if (wanted <= engine->ledger.budget_bytes) {
        return true;
    }
    if (ov_cu->cuMemGetInfo_v2(&free_bytes, &total_bytes) != CUDA_SUCCESS || wanted > held + free_bytes) {
        tell(line, " device %d: %zu MiB are needed, and it has %zu;", engine->device, wanted >> 20,
             (held + free_bytes) >> 20);
        return false;
    }
    engine->ledger.budget_bytes = (wanted + OV_PAGE_BYTES - 1) & ~(OV_PAGE_BYTES - 1);
    return true;
}

/* Passes that are being timed are timed from the beginning, those that never were, too: now, or when they may be. */
static void time_or_not(struct ov_engine *engine)
{
    const bool broken_off = engine->timing_broken_off || engine->profiler.phase != OV_PROFILER_OFF;
    engine->timing_broken_off = broken_off && (engine->paused || engine->profile_suspended);
    ov_profiler_begin(engine, atomic_load(&engine->planned) && (broken_off || engine->learn.runs.compute_s == NULL));
}

static void carry_out(struct ov_engine *engine, const struct request *request, char *line)
{
    struct ov_ledger *ledger = &engine->ledger;
    switch (request->action) {
    case BUDGET:
        ledger->budget_bytes = request->bytes & ~(OV_PAGE_BYTES - 1);
        fit_budget(engine);
        tell(line, " device %d: budget %zu MiB, %zu held;", engine->device, ledger->budget_bytes >> 20,
             ov_ledger_held(ledger) >> 20);
        break;
    case RESTORE:
        if (may_restore(engine, line)) {
            fit_budget(engine);
            tell(line, " device %d: budget %zu MiB, %zu MiB of weights not resident;", engine->device,
                 ledger->budget_bytes >> 20, 2 * (engine->last_plan.streamed + engine->last_plan.host));
        }
        break;
    case REPLAN:
        if (engine->watches == 0 && ov_plan_and_convert(engine, 0, 0)) {
            tell(line, " device %d: plan %u;", engine->device, atomic_load(&engine->plans));
        } else {
            tell(line, " device %d: no plan can be made yet;", engine->device);
        }
        break;
    case PAUSE:
    case RESUME:
        engine->paused = request->action == PAUSE;
        time_or_not(engine);
        tell(line, " device %d: %s;", engine->device, engine->paused ? "paused" : "resumed");
        break;
    case SUSPEND_PROFILE:
    case RESUME_PROFILE:
        engine->profile_suspended = request->action == SUSPEND_PROFILE;
        time_or_not(engine);
        tell(line, " device %d: profile %s;", engine->device, engine->profile_suspended ? "suspended" : "resumed");
        break;
    }
}

/* False: the device is not idle, or a capture is active; at the next quiet point, then. */
static bool serve_engine(struct ov_engine *engine, const struct request *request, char *line)
{
    struct ov_exclusive section;
    (void)ov_exclusive_begin(engine, &section);
    if (section.idle) {
        carry_out(engine, request, line);
    }
    ov_exclusive_end(engine, &section);
    return section.idle;
}

/* The next one, unless another thread is at work. */
static bool take(struct request *request)
{
    pthread_mutex_lock(&lock);
    const bool taken = waiting_count > 0 && !under_way;
    if (taken) {
        *request = waiting[0];
        under_way = true;
    }
    pthread_mutex_unlock(&lock);
    return taken;
}

/* It is done, and answered; or it waits on. */
static void put_back(const struct request *request, bool done, const char *line)
{
    pthread_mutex_lock(&lock);
    under_way = false;
    if (done) {
        memmove(&waiting[0], &waiting[1], --waiting_count * sizeof waiting[0]);
        atomic_store(&ov_steer_waiting, waiting_count > 0);
        memcpy(outcome, line, sizeof outcome);
        answered = request->number;
        pthread_cond_broadcast(&done_signal);
    }
    pthread_mutex_unlock(&lock);
}

void ov_steer_serve(void)
{
    struct request request;
    for (bool done = true; done && take(&request);) {
        char line[OV_STEER_LINE_BYTES] = "done:";
        for (int slice = 0; slice < OV_DEVICES && done; slice++) {
            struct ov_engine *engine = ov_engine_at(slice);
            if (engine != NULL && engine->armed) {
                done = serve_engine(engine, &request, line);
            }
        }
        ov_state_settle();
        line[strlen(line) - 1] = '\0';
        put_back(&request, done, line);
        if (done) {
            ov_log(OV_LOG_INFO, "overshot ctl: %s", line);
        }
    }
}

/* ---- what is answered, by the service's thread ---- */

static void say(int connection, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(int connection, const char *format, ...)
{
    char line[OV_STEER_LINE_BYTES + 1];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length > 0 && (size_t)length < sizeof line) {
        (void)send(connection, line, (size_t)length, MSG_NOSIGNAL);
    }
}

static const char *phase_of(const struct ov_engine *engine)
{
    return engine->paused                                ? "paused"
           : !engine->armed                              ? "idle"
           : engine->learning && !engine->learn.recalled ? "looking for weights"
           : engine->ring.streamed_count > 0             ? "streaming"
           : atomic_load(&engine->planned)               ? "planned"
                                                         : "waiting";
}

/* The engine is not kept waiting for whoever asks: its lock is given back before anything is sent. */
static void say_status(int connection)
{
    for (int slice = 0; slice < OV_DEVICES; slice++) {
        struct ov_engine *engine = ov_engine_at(slice);
        if (engine == NULL) {
            continue;
        }
        pthread_mutex_lock(&engine->lock);
        const char *phase = phase_of(engine), *profile = engine->profile_suspended ? ", profile suspended" : "";
        const size_t budget = engine->ledger.budget_bytes, held = ov_ledger_held(&engine->ledger);
        const size_t resident = engine->last_plan.resident, streamed = engine->last_plan.streamed;
        const size_t host = engine->last_plan.host, ring = engine->last_plan.ring;
        const unsigned plans = atomic_load(&engine->plans);
        char pass[OV_OUTCOME_BYTES] = "";
        if (engine->last_plan.predicted_s > 0) {
            ov_outcome_tell(engine, pass);
        }
        const unsigned long long copies = engine->ring.counts.copies, misses = engine->ring.counts.misses;
        pthread_mutex_unlock(&engine->lock);
        say(connection,
            "device %d: %s%s; budget %zu MiB, %zu held; weights: %zu MiB resident, %zu streamed, %zu in host memory; "
            "ring %zu MiB; %s%s%u plans, %llu copies, %llu misses\n",
            slice, phase, profile, budget >> 20, held >> 20, 2 * resident, 2 * streamed, 2 * host, 2 * ring, pass,
            pass[0] != 0 ? "; " : "", plans, copies, misses);
    }
}

static void say_line(void *context, const char *text)
{
    say(*(const int *)context, "%s\n", text);
}

/* The same: what is read is a copy. */
static void say_timing(int connection)
{
    if (ov_opt.timing == 0) {
        say(connection, "error: nothing is timed: the program was started without OVERSHOT_TIMING\n");
    }
    for (int slice = 0; slice < OV_DEVICES && ov_opt.timing > 0; slice++) {
        struct ov_engine *engine = ov_engine_at(slice);
        if (engine == NULL) {
            continue;
        }
        pthread_mutex_lock(&engine->lock);
        struct ov_timetable_text *text = ov_timetable_read(engine);
        pthread_mutex_unlock(&engine->lock);
        if (text != NULL) {
            ov_timetable_tell(text, slice, say_line, &connection);
        } else {
            say(connection, "device %d: no pass was timed from beginning to end yet\n", slice);
        }
        ov_timetable_free(text);
    }
}

static const struct {
    const char *word;
    void (*answer)(int connection);
} questions[] = {{"status", say_status}, {"timing", say_timing}};

static bool answer_question(int connection, const char *word)
{
    for (size_t i = 0; i < sizeof questions / sizeof questions[0]; i++) {
        if (strcmp(word, questions[i].word) == 0) {
            questions[i].answer(connection);
            return true;
        }
    }
    return false;
}

static bool understand(char *line, struct request *request)
{
    char *value = strchr(line, '=');
    if (value != NULL) {
        *value++ = '\0';
    }
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++) {
        if (strcmp(line, actions[i].word) == 0 && actions[i].takes_bytes == (value != NULL)) {
            *request = (struct request){.action = actions[i].action};
            return value == NULL ||
                   (ov_value_bytes(value, &request->bytes) && request->bytes >= LEAST_PAGES * OV_PAGE_BYTES &&
                    request->bytes <= (size_t)1 << 50);
        }
    }
    return false;
}

/* Puts the request down and waits for a quiet point. */
static void ask(int connection, struct request *request)
{
    struct timespec until;
    char line[OV_STEER_LINE_BYTES] = "accepted: will be done when the program next waits for the GPU";
    bool in_time = true;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += OV_STEER_WAIT_SECONDS;
    pthread_mutex_lock(&lock);
    if (waiting_count == WAITING_MOST) {
        pthread_mutex_unlock(&lock);
        say(connection, "error: %u requests wait for the program to wait for the GPU: ask again later\n", WAITING_MOST);
        return;
    }
    request->number = ++asked;
    waiting[waiting_count++] = *request;
    atomic_store(&ov_steer_waiting, true);
    while (answered < request->number && in_time) {
        in_time = pthread_cond_timedwait(&done_signal, &lock, &until) == 0;
    }
    if (answered == request->number) {
        memcpy(line, outcome, sizeof line);
    }
    pthread_mutex_unlock(&lock);
    say(connection, "%s\n", line);
}

static void answer(int connection)
{
    char line[OV_STEER_LINE_BYTES];
    struct request request;
    const ssize_t length = recv(connection, line, sizeof line - 1, 0);
    if (length <= 0) {
        return;
    }
    line[length] = '\0';
    line[strcspn(line, "\n")] = '\0';
    if (answer_question(connection, line)) {
        return;
    }
    if (understand(line, &request)) {
        ask(connection, &request);
    } else {
        say(connection, "error: not understood\n");
    }
}

static struct ov_service control = {.answer = answer};

void ov_steer_start(void)
{
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    char name[OV_STEER_NAME_BYTES];
    if (!ov_opt.control) {
        return;
    }
    pthread_mutex_lock(&once);
    if (control.path[0] == 0) {
        ov_steer_name(getpid(), name);
        if (!ov_service_start(&control, name)) {
            ov_log_once(OV_LOG_INFO, "`overshot ctl` cannot reach this process: no folder of this user's alone in "
                                     "XDG_RUNTIME_DIR or /tmp, or no socket or thread to be had");
        }
    }
    pthread_mutex_unlock(&once);
}

void ov_steer_forked(void)
{
    ov_service_forked(&control);
    atomic_store(&ov_steer_waiting, false);
}

void ov_steer_exit(void)
{
    ov_service_exit(&control);
}
