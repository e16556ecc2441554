/*
 * stack: a synthetic decoder on the CUDA driver API, for tests of what sits between a program and the driver.
 *
 * Prints one line `digest <16 hex digits>` that depends on every weight, on the order of the launches, and on nothing
 * else: the same options give the same digest on every driver and GPU. See stack_options.def for what it can do,
 * stack_model.h for how it is built.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "stack_model.h"

/* One thread's model; `digest` is valid after the thread was joined. */
struct job {
    const struct stack_options *options;
    uint64_t seed, digest;
    bool loud;
};

static void print_times(const struct stack_model *model)
{
    size_t free_bytes, total_bytes;
    uint64_t weight_bytes = 0;
    for (uint64_t k = 0; k < model->weight_count; k++) {
        weight_bytes += model->weight[k].address ? model->weight[k].bytes : 0;
    }
    for (uint64_t pass = 0; pass < model->options->passes; pass++) {
        printf("pass %llu %.3f ms %.2f GB/s\n", (unsigned long long)pass, model->pass_ms[pass],
               (double)weight_bytes / model->pass_ms[pass] / 1e6);
    }
    GPU(cuMemGetInfo, &free_bytes, &total_bytes);
    printf("weights %llu bytes, device memory in use %zu bytes\n", (unsigned long long)weight_bytes,
           total_bytes - free_bytes);
}

static bool goes_on(const struct stack_options *options, uint64_t pass)
{
    return pass < options->passes || (options->until[0] != '\0' && access(options->until, F_OK) != 0);
}

static void run_passes(struct stack_model *model)
{
    uint64_t pass = 0;
    for (; goes_on(model->options, pass); pass++) {
        stack_change_before(model, pass);
        stack_pass_run(model, pass);
    }
    if (model->options->until[0] != '\0') {
        fprintf(stderr, "passes %llu\n", (unsigned long long)pass);
    }
}

static void *run_job(void *argument)
{
    struct job *job = argument;
    struct stack_model model;
    stack_model_open(&model, job->options, job->seed);
    run_passes(&model);
    stack_change_finish(&model);
    for (const struct stack_chunk *chunk = model.first_chunk; chunk; chunk = chunk->next) {
        if (chunk->digested) {
            job->digest = stack_digest(job->digest, chunk->bytes, chunk->size);
        }
    }
    if (job->loud) {
        print_times(&model);
    }
    stack_model_close(&model);
    return NULL;
}

static uint64_t run_jobs(const struct stack_options *options)
{
    struct job job[64];
    pthread_t thread[64];
    for (uint64_t t = 0; t < options->threads; t++) {
        job[t] = (struct job){options, options->seed + 1000 * t, 0x6F76657273686F74u, options->times && t == 0};
    }
    for (uint64_t t = 1; t < options->threads; t++) {
        if (pthread_create(&thread[t], NULL, run_job, &job[t]) != 0) {
            gpu_die("cannot create a thread");
        }
    }
    run_job(&job[0]);
    for (uint64_t t = 1; t < options->threads; t++) {
        pthread_join(thread[t], NULL);
    }
    uint64_t digest = 0;
    for (uint64_t t = 0; t < options->threads; t++) {
        digest = stack_digest(digest, &job[t].digest, sizeof digest);
    }
    return digest;
}

int main(int argc, char **argv)
{
    struct stack_options options;
    stack_options_parse(&options, argc, argv);
    if (options.random) {
        stack_options_print(&options, stdout);
        fflush(stdout);
    }
    gpu_open("stack", (enum gpu_entry)options.entry);
    int devices;
    GPU(cuDeviceGetCount, &devices);
    if ((uint64_t)devices < options.devices) {
        gpu_die("%d devices are there, --devices asks for %llu", devices, (unsigned long long)options.devices);
    }
    printf("digest %016llx\n", (unsigned long long)run_jobs(&options));
    return 0;
}
