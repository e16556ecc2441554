/*
 * A program for steer.sh: it streams, says so, and then waits for the GPU only when a line of its input tells it to.
 */
#include "rig.h"

#include <stdio.h>

static void waits_when_told(void)
{
    struct rig rig;
    char line[16];
    rig_open_with(&rig, 10, 2 * MIB);
    rig_until_streamed(&rig);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        rig_pass(&rig, NULL, 0);
    }
    rig_close(&rig);
}

/* With each line it takes more memory than there is room for. */
static void grows_when_told(void)
{
    struct rig rig;
    char line[16];
    rig_open_with(&rig, 10, 2 * MIB);
    rig_until_streamed(&rig);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        CUdeviceptr buffer;
        OK(cuMemAlloc(&buffer, 4 * MIB));
        OK(cuMemsetD8(buffer, 1, 4 * MIB));
        rig_pass(&rig, NULL, 0);
        puts("grown");
        fflush(stdout);
    }
    rig_close(&rig);
}

static const struct rig_case cases[] = {{"waits_when_told", waits_when_told}, {"grows_when_told", grows_when_told}};
RIG_MAIN(cases)
