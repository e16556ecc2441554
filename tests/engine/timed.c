#include "timed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void timed_dawdle(unsigned queries)
{
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    while (queries-- > 0) {
        OK(cuEventQuery(event));
    }
    OK(cuEventDestroy(event));
}

void timed_pass(struct rig *rig, double microseconds, unsigned queries)
{
    uint64_t words = 256;
    for (unsigned i = 0; i < rig->count; i++) {
        CUdeviceptr in = rig->weight[i].address, out = rig->out;
        void *params[] = {&in, &out, &words, &microseconds};
        timed_dawdle(queries);
        rig_launch(rig, "probe_slow_copy", rig->stream, params);
    }
    OK(cuStreamSynchronize(rig->stream));
}

void timed_passes(struct rig *rig, unsigned count, double microseconds)
{
    while (count-- > 0) {
        timed_pass(rig, microseconds, 0);
    }
}

unsigned timed_lines(const char *text, double *last)
{
    char line[512];
    unsigned count = 0;
    FILE *file = fopen(getenv("OVERSHOT_LOG_FILE"), "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *at = strstr(line, text);
        if (at != NULL) {
            count++;
            *last = strtod(at + strlen(text), NULL);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return count;
}

unsigned timed_anew(void)
{
    double ignored;
    return timed_lines("they are timed anew", &ignored);
}

void timed_is_about(double ms, double expected_ms)
{
    if (ms < 0.97 * expected_ms || ms > 1.03 * expected_ms) {
        rig_fail(RIG_EXIT_SELF, "%.3f ms instead of %.3f", ms, expected_ms);
    }
}

void timed_computes(unsigned count, double microseconds)
{
    double ms = 0;
    HOLDS(timed_lines(TIMED_TOLD, &ms) > 0);
    timed_is_about(ms, count * (microseconds + TIMED_KERNEL_US) / 1e3);
}

void timed_close(struct rig *rig)
{
    rig_pass(rig, NULL, 0);
    rig_close(rig);
}
