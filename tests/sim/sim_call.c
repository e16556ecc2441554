/* Entering and leaving the simulated driver: lock, threads, handle registry, messages. */
#include "sim.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uthash.h>

struct handle_entry {
    const void *handle;
    char kind;
    UT_hash_handle hh;
};

struct text_entry {
    char *text;
    UT_hash_handle hh;
};

struct sim_function *sim_functions;
struct sim_thread *sim_threads;
static pthread_mutex_t sim_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_thread *first_thread; /* the one that called first: later threads start at its time */
static _Thread_local struct sim_thread *this_thread;
static struct handle_entry *handles;
static struct text_entry *texts;
static int started, forked, over; /* over: main has returned, and the driver is gone, as a real one is then */

/* A fork leaves the child without a usable driver, as on a real machine; only its lock must be sound. */
static void after_fork(void)
{
    pthread_mutex_init(&sim_lock, NULL);
    forked = sim_initialised;
}

static void first_call(void)
{
    if (!started) {
        started = 1;
        pthread_atfork(NULL, NULL, after_fork);
        sim_knobs_read();
    }
}

static struct sim_thread *thread_get(void)
{
    if (this_thread == NULL) {
        struct sim_thread *thread = calloc(1, sizeof *thread);
        if (thread == NULL) {
            sim_die("out of host memory");
        }
        thread->host_ns = first_thread != NULL ? first_thread->host_ns : 0;
        thread->capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
        thread->next = sim_threads;
        sim_threads = thread;
        if (first_thread == NULL) {
            first_thread = thread;
        }
        this_thread = thread;
    }
    return this_thread;
}

int sim_forked(void)
{
    return forked;
}

void sim_report_at_exit(void)
{
    pthread_mutex_lock(&sim_lock);
    if (!sim_forked()) {
        sim_report_write();
        over = 1;
    }
    pthread_mutex_unlock(&sim_lock);
}

static CUresult need_check(const struct sim_call *call)
{
    if (call->function->need == SIM_ANY) {
        return CUDA_SUCCESS;
    }
    if (!sim_initialised || sim_forked()) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    if (over) {
        return CUDA_ERROR_DEINITIALIZED;
    }
    if (call->function->need == SIM_INIT) {
        return CUDA_SUCCESS;
    }
    if (call->context == NULL) {
        return call->function->need == SIM_SOUND ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    }
    return call->context->sticky;
}

/* SIM_DELAY: other threads' calls go ahead meanwhile. */
static void be_late(const struct sim_function *function)
{
    unsigned microseconds = sim_knob_delay(function->name);
    if (microseconds > 0) {
        pthread_mutex_unlock(&sim_lock);
        usleep(microseconds);
        pthread_mutex_lock(&sim_lock);
    }
}

CUresult sim_call_begin(struct sim_call *call, struct sim_function *function, int per_thread)
{
    pthread_mutex_lock(&sim_lock);
    first_call();
    be_late(function);
    call->function = function;
    call->per_thread = per_thread;
    call->thread = thread_get();
    call->context = call->thread->depth > 0 ? call->thread->stack[call->thread->depth - 1] : NULL;
    if (!function->linked) {
        function->linked = 1;
        function->cost_ns = sim_function_cost(function->name);
        function->next = sim_functions;
        sim_functions = function;
    }
    function->calls++;
    sim_charge(call, (double)function->cost_ns);
    CUresult failure = sim_knob_failure(function->name, function->calls);
    return failure != CUDA_SUCCESS ? failure : need_check(call);
}

CUresult sim_call_end(struct sim_call *call, CUresult result)
{
    (void)call;
    pthread_mutex_unlock(&sim_lock);
    return result;
}

void sim_run_unlocked(void (*function)(void *), void *argument)
{
    pthread_mutex_unlock(&sim_lock);
    function(argument);
    pthread_mutex_lock(&sim_lock);
}

void sim_charge(struct sim_call *call, double ns)
{
    call->thread->host_ns += (int64_t)(ns + 0.5);
}

static void say(const char *format, va_list list)
{
    char line[1024] = "sim: ";
    int length = vsnprintf(line + 5, sizeof line - 6, format, list);
    size_t used = length < 0 ? 5 : 5 + (size_t)length;
    if (used > sizeof line - 2) {
        used = sizeof line - 2;
    }
    line[used++] = '\n';
    for (size_t done = 0; done < used;) {
        ssize_t put = write(STDERR_FILENO, line + done, used - done);
        if (put < 0 && errno != EINTR) {
            return;
        }
        done += put > 0 ? (size_t)put : 0;
    }
}

void sim_say(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say(format, list);
    va_end(list);
}

void sim_die(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say(format, list);
    va_end(list);
    sim_report_write();
    abort();
}

const char *sim_intern(const char *text)
{
    struct text_entry *entry;
    HASH_FIND_STR(texts, text, entry);
    if (entry == NULL) {
        entry = malloc(sizeof *entry);
        if (entry == NULL || (entry->text = strdup(text)) == NULL) {
            sim_die("out of host memory");
        }
        HASH_ADD_KEYPTR(hh, texts, entry->text, strlen(entry->text), entry);
    }
    return entry->text;
}

void sim_handle_add(const void *handle, char kind)
{
    struct handle_entry *entry;
    HASH_FIND_PTR(handles, &handle, entry);
    if (entry == NULL) {
        entry = malloc(sizeof *entry);
        if (entry == NULL) {
            sim_die("out of host memory");
        }
        entry->handle = handle;
        HASH_ADD_PTR(handles, handle, entry);
    }
    entry->kind = kind;
}

void sim_handle_drop(const void *handle)
{
    struct handle_entry *entry;
    HASH_FIND_PTR(handles, &handle, entry);
    if (entry != NULL) {
        HASH_DEL(handles, entry);
        free(entry);
    }
}

int sim_handle_is(const void *handle, char kind)
{
    struct handle_entry *entry;
    HASH_FIND_PTR(handles, &handle, entry);
    return entry != NULL && entry->kind == kind;
}
