/*
 * Launches in a row that read one weight: as soon as as many were made as ever before, its place is given away. That
 * may turn out to be too soon.
 */
#include "rig.h"

enum { COUNT = 8, MOST = 4 };
static const size_t weight_bytes = 4 * MIB;

/* Each weight is read times[i] times in a row. */
static void pass(struct rig *rig, const unsigned times[COUNT])
{
    unsigned order[COUNT * MOST], length = 0;
    for (unsigned i = 0; i < COUNT; i++) {
        for (unsigned k = 0; k < times[i]; k++) {
            order[length++] = i;
        }
    }
    rig_pass(rig, order, length);
}

static void passes_of(struct rig *rig, unsigned count, unsigned times)
{
    const unsigned each[COUNT] = {times, times, times, times, times, times, times, times};
    while (count-- > 0) {
        pass(rig, each);
    }
}

static void open_rig(struct rig *rig)
{
    rig_open_with(rig, COUNT, weight_bytes);
    rig_until_streamed(rig);
    passes_of(rig, 6, 1);
}

static void get_longer(void)
{
    struct rig rig;
    open_rig(&rig);
    for (unsigned times = 2; times <= MOST; times++) {
        passes_of(&rig, 5, times);
    }
    rig_close(&rig);
}

static void get_shorter(void)
{
    struct rig rig;
    open_rig(&rig);
    passes_of(&rig, 5, MOST);
    passes_of(&rig, 5, 1);
    rig_close(&rig);
}

/* What was once so long is not waited for for ever. */
static void long_once(void)
{
    struct rig rig;
    open_rig(&rig);
    for (unsigned i = 0; i < 3; i++) {
        passes_of(&rig, 1, MOST);
        passes_of(&rig, 15, 1);
    }
    rig_close(&rig);
}

static void differ_from_pass_to_pass(void)
{
    struct rig rig;
    unsigned state = 1;
    open_rig(&rig);
    for (unsigned i = 0; i < 40; i++) {
        unsigned times[COUNT];
        for (unsigned k = 0; k < COUNT; k++) {
            state = state * 1103515245 + 12345;
            times[k] = 1 + (state >> 16) % MOST;
        }
        pass(&rig, times);
    }
    rig_close(&rig);
}

/* The visit goes on behind the wait with which a pass seemed to end, in another stream, and the weight is gone. */
static void go_on_elsewhere(void)
{
    struct rig rig;
    CUstream other;
    uint32_t got[COUNT];
    open_rig(&rig);
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < 20; i++) {
        for (unsigned k = 0; k < COUNT; k++) {
            rig_read(&rig, k, k, rig.stream);
        }
        OK(cuStreamSynchronize(rig.stream));
        const unsigned last = COUNT - 1;
        rig_read(&rig, last, last, other);
        OK(cuStreamSynchronize(other));
        OK(cuMemcpyDtoH(got, rig.out, sizeof got));
        rig_compare(&rig, got, NULL, COUNT);
    }
    OK(cuStreamDestroy(other));
    rig_close(&rig);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(get_longer), CASE(get_shorter), CASE(long_once), CASE(differ_from_pass_to_pass), CASE(go_on_elsewhere),
};
RIG_MAIN(cases)
