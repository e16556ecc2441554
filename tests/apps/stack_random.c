/*
 * stack_random.c: --random. Draws one value for every row of stack_options.def, always in the same order and always the
 * same number of draws, so that fixing one option by hand leaves the others of a seed as they were.
 */
#include <stdlib.h>
#include <string.h>

#include "stack_options.h"

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static uint64_t between(uint64_t *state, uint64_t low, uint64_t high)
{
    return low + next(state) % (high - low + 1);
}

/* Sizes around what matters: tiny, below and above a page of 2 MiB, exactly pages, a little more. */
static const uint64_t interesting_bytes[] = {
    4,       1000,    65536,   300000,  1048576, 1048580, 2097148, 2097152, 2097156,
    2621440, 3145728, 4194304, 4194816, 5000000, 6291456, 8388608, 8392704, 12582912,
};

/* Up to eight sizes, so that `weights` of them in turn stay below the limit. The text is never freed: options live that
 * long. */
static const char *draw_sizes(uint64_t *state, uint64_t weights, uint64_t limit)
{
    static char text[8 * 21];
    const uint64_t count = between(state, 1, 8), kinds = sizeof interesting_bytes / sizeof *interesting_bytes;
    const uint64_t mean_limit = limit / weights;
    size_t length = 0;
    for (uint64_t i = 0; i < 8; i++) {
        uint64_t bytes = interesting_bytes[next(state) % kinds];
        if (i >= count) {
            continue;
        }
        while (bytes > mean_limit && bytes > 4096) {
            bytes = bytes / 2 / 4 * 4;
        }
        length +=
            (size_t)snprintf(text + length, sizeof text - length, "%s%llu", i ? "," : "", (unsigned long long)bytes);
    }
    return text;
}

/* Each row: option, chance in percent that it leaves its default, range of values then. */
static const struct draw {
    size_t offset;
    unsigned percent;
    uint64_t low, high;
} draws[] = {
#define DRAW(field, percent, low, high)                           \
    {                                                             \
        offsetof(struct stack_options, field), percent, low, high \
    }
    DRAW(layers, 100, 1, 17),
    DRAW(weights, 50, 1, 4),
    DRAW(fused, 40, 2, 4),
    DRAW(passes, 100, 3, 10),
    DRAW(width, 40, 16, 6000),
    DRAW(workspace, 40, 4096, 6 << 20),
    DRAW(cache, 40, 64 << 10, 6 << 20),
    DRAW(grow, 30, 1, 1),
    DRAW(streams, 50, 2, 4),
    DRAW(lanes, 25, 2, 4),
    DRAW(threads, 15, 2, 3),
    DRAW(devices, 15, 2, 2),
    DRAW(order, 60, ORDER_REVERSE, ORDER_ALTERNATE),
    DRAW(pointers, 80, POINTERS_STRUCT, POINTERS_MANAGED),
    DRAW(alloc, 60, ALLOC_ONE, ALLOC_POOL),
    DRAW(tied, 20, 1, 1),
    DRAW(over_read, 50, 4, STACK_OVER_READ_MAX),
    DRAW(sparse, 30, SPARSE_EMBEDDING, SPARSE_BOTH),
    DRAW(table, 100, 1 << 20, 16 << 20),
    DRAW(late_writes, 30, 1, 4),
    DRAW(realloc, 30, 1, 4),
    DRAW(readback, 30, 1, 4),
    DRAW(stale, 30, 1, 1),
    DRAW(sync, 60, SYNC_NONE, SYNC_QUERY),
    DRAW(graph, 25, 1, 1),
    DRAW(graph_after, 50, 1, 4),
    DRAW(capture, 60, CAPTURE_THREAD, CAPTURE_RELAXED),
    DRAW(upload, 50, UPLOAD_ASYNC, UPLOAD_ASYNC),
    DRAW(entry, 50, GPU_ENTRY_DLSYM, GPU_ENTRY_PER_THREAD),
    DRAW(load, 60, GPU_LOAD_LIBRARY, GPU_LOAD_FATBINARY),
#undef DRAW
};

/* Options that exclude each other: the later one gives way, unless it was given by hand. */
static void make_consistent(struct stack_options *o)
{
    if (o->devices > o->layers) {
        o->devices = 1;
    }
    if (o->devices > 1) {
        o->graph = 0;
    }
    if (o->alloc != ALLOC_ONE) {
        o->over_read = 0;
    }
    if (o->cache && o->cache < 8 * o->width) {
        o->cache = 8 * o->width;
    }
    if (o->graph && o->threads > 1 && o->capture == CAPTURE_GLOBAL) {
        o->capture = CAPTURE_RELAXED;
    }
    o->workspace = o->workspace / 4 * 4;
    o->over_read = o->over_read / 4 * 4;
}

/* Row number of an option, for `given`. */
static size_t row_of(size_t offset)
{
    static const size_t offsets[] = {
#define STACK_OPTION(field, kind, initial, names, help) offsetof(struct stack_options, field),
#include "stack_options.def"
#undef STACK_OPTION
    };
    size_t row = 0;
    while (offsets[row] != offset) {
        row++;
    }
    return row;
}

void stack_options_draw(struct stack_options *options, const bool *given)
{
    uint64_t state = options->seed * 0x2545F4914F6CDD1Du + 1;
    for (size_t i = 0; i < sizeof draws / sizeof *draws; i++) {
        const struct draw *draw = &draws[i];
        const bool drawn = next(&state) % 100 < draw->percent;
        const uint64_t value = between(&state, draw->low, draw->high);
        if (drawn && !given[row_of(draw->offset)]) {
            *(uint64_t *)(void *)((char *)options + draw->offset) = value;
        }
    }
    const uint64_t copies = options->layers * options->weights * options->threads;
    const bool compute_bound = next(&state) % 100 < 30;
    const double ops = (double)between(&state, 1, 2000);
    const char *sizes = draw_sizes(&state, copies, options->limit);
    if (!given[row_of(offsetof(struct stack_options, sizes))] &&
        !given[row_of(offsetof(struct stack_options, bytes))]) {
        options->sizes = sizes;
    }
    if (compute_bound && !given[row_of(offsetof(struct stack_options, ops))]) {
        options->ops = ops;
    }
    make_consistent(options);
}
