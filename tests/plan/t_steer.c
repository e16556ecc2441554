/*
 * A program for steer.sh: it streams, says so, and then waits for the GPU only when a line of its input tells it to.
 * Passes with the bytes that they have to read, and slow ones.
 */
#include "rig.h"

#include <stdio.h>
#include <string.h>

/* Each kernel computes for long. */
static void slow_pass(struct rig *rig)
{
    uint64_t words = 256;
    double microseconds = 1000;
    for (unsigned i = 0; i < rig->count; i++) {
        CUdeviceptr in = rig->weight[i].address, out = rig->out;
        void *params[] = {&in, &out, &words, &microseconds};
        rig_launch(rig, "probe_slow_copy", rig->stream, params);
    }
    OK(cuStreamSynchronize(rig->stream));
}

/* go: a pass. slow: one that computes longer. grow: takes memory that there is no room for, then a pass. */
static void as_told(void)
{
    struct rig rig;
    char line[16];
    rig_open_with(&rig, 10, 2 * MIB);
    rig_until_streamed(&rig);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (strcmp(line, "grow\n") == 0) {
            CUdeviceptr buffer;
            OK(cuMemAlloc(&buffer, 4 * MIB));
            OK(cuMemsetD8(buffer, 1, 4 * MIB));
        }
        if (strcmp(line, "slow\n") == 0) {
            slow_pass(&rig);
        } else {
            rig_pass(&rig, NULL, 0);
        }
        puts("passed");
        fflush(stdout);
    }
    rig_close(&rig);
}

static const struct rig_case cases[] = {{"as_told", as_told}};
RIG_MAIN(cases)
