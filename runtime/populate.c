#define _GNU_SOURCE
#include "populate.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "thread.h"
#include "worker.h"

/* Small enough that all threads work on the range that is waited for. */
#define SLICE_BYTES  ((size_t)8 << 20)
#define MOST_THREADS 64u
#define USEFUL       8u
#define LEAST_PAGE   ((size_t)4096)

/* Linux 5.14; says what a touch would only tell by a signal. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

struct range {
    struct ov_populate_range of;
    size_t first_slice, slices;
    size_t left; /* slices not done yet */
    bool failed;
};

struct ov_populate {
    pthread_mutex_t lock; /* guards left, failed */
    pthread_cond_t moved;
    _Atomic size_t next; /* slice that nobody has taken */
    _Atomic bool stop;
    size_t slices, count;
    pthread_t thread[MOST_THREADS];
    unsigned threads;
    struct range range[];
};

unsigned ov_populate_threads(void)
{
    cpu_set_t set;
    unsigned count = sched_getaffinity(0, sizeof set, &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
    return count < 1 ? 1 : count < USEFUL ? count : USEFUL;
}

static bool populate_slice(char *begin, size_t bytes)
{
    if (madvise(begin, bytes, MADV_POPULATE_WRITE) == 0) {
        return true;
    }
    if (errno != EINVAL) {
        return false;
    }
    for (size_t at = 0; at < bytes; at += LEAST_PAGE) { /* an older kernel */
        ((volatile char *)begin)[at] = 0;
    }
    return true;
}

static struct range *range_of(struct ov_populate *team, size_t slice)
{
    size_t low = 0, high = team->count;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (team->range[middle].first_slice <= slice) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return &team->range[low];
}

/* Takes one slice and does it. False: none is left. */
static bool do_one(struct ov_populate *team)
{
    size_t slice = atomic_fetch_add(&team->next, 1);
    if (slice >= team->slices || atomic_load(&team->stop)) {
        return false;
    }
    struct range *range = range_of(team, slice);
    size_t offset = (slice - range->first_slice) * SLICE_BYTES;
    size_t bytes = range->of.bytes - offset < SLICE_BYTES ? range->of.bytes - offset : SLICE_BYTES;
    bool done = populate_slice(range->of.begin + offset, bytes);
    pthread_mutex_lock(&team->lock);
    range->failed = range->failed || !done;
    range->left--;
    if (range->left == 0) {
        pthread_cond_broadcast(&team->moved);
    }
    pthread_mutex_unlock(&team->lock);
    return true;
}

static void *work(void *context)
{
    ov_inside_enter(); /* whatever is called from here is none of the program's */
    while (do_one(context)) {
    }
    return NULL;
}

/* "0-3,8-11" */
static void parse_processors(const char *text, cpu_set_t *set)
{
    CPU_ZERO(set);
    while (*text >= '0' && *text <= '9') {
        char *end;
        unsigned long first = strtoul(text, &end, 10), last = first;
        if (*end == '-') {
            last = strtoul(end + 1, &end, 10);
        }
        for (unsigned long cpu = first; cpu <= last && cpu < CPU_SETSIZE; cpu++) {
            CPU_SET(cpu, set);
        }
        text = *end == ',' ? end + 1 : end;
    }
}

/* The processors of the node that this thread may use; false: no such node, or none of them. */
static bool processors_of(int node, cpu_set_t *set)
{
    char path[64], text[1024];
    cpu_set_t mine;
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
    int file = node >= 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) {
        return false;
    }
    ssize_t got = read(file, text, sizeof text - 1);
    close(file);
    if (got <= 0 || sched_getaffinity(0, sizeof mine, &mine) != 0) {
        return false;
    }
    text[got] = 0;
    parse_processors(text, set);
    CPU_AND(set, set, &mine);
    return CPU_COUNT(set) > 0;
}

static void start_threads(struct ov_populate *team, unsigned threads, int node)
{
    cpu_set_t near;
    bool placed = processors_of(node, &near);
    while (team->threads < threads && ov_worker_start(&team->thread[team->threads], work, team)) {
        if (placed) {
            (void)pthread_setaffinity_np(team->thread[team->threads], sizeof near, &near);
        }
        team->threads++;
    }
}

struct ov_populate *ov_populate_start(const struct ov_populate_range *range, size_t count, unsigned threads, int node)
{
    struct ov_populate *team = calloc(1, sizeof *team + count * sizeof team->range[0]);
    if (team == NULL) {
        return NULL;
    }
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->moved, NULL);
    team->count = count;
    for (size_t i = 0; i < count; i++) {
        team->range[i].of = range[i];
        team->range[i].first_slice = team->slices;
        team->range[i].slices = team->range[i].left = (range[i].bytes + SLICE_BYTES - 1) / SLICE_BYTES;
        team->slices += team->range[i].slices;
    }
    threads = threads == 0 ? ov_populate_threads() : threads;
    threads = threads < MOST_THREADS ? threads : MOST_THREADS;
    start_threads(team, team->slices < threads ? (unsigned)team->slices : threads, node);
    return team;
}

bool ov_populate_wait(struct ov_populate *team, size_t index)
{
    struct range *range = &team->range[index];
    while (team->threads == 0 && atomic_load(&team->next) < range->first_slice + range->slices) {
        if (!do_one(team)) {
            break;
        }
    }
    pthread_mutex_lock(&team->lock);
    while (range->left > 0) {
        pthread_cond_wait(&team->moved, &team->lock);
    }
    bool done = !range->failed;
    pthread_mutex_unlock(&team->lock);
    return done;
}

void ov_populate_end(struct ov_populate *team)
{
    if (team == NULL) {
        return;
    }
    atomic_store(&team->stop, true);
    for (unsigned i = 0; i < team->threads; i++) {
        (void)pthread_join(team->thread[i], NULL);
    }
    pthread_cond_destroy(&team->moved);
    pthread_mutex_destroy(&team->lock);
    free(team);
}
