/*
 * stack_options.h: the options of `stack`, one row each in stack_options.def. Parsed once by the main thread; constant
 * after.
 */
#ifndef STACK_OPTIONS_H
#define STACK_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "gpu.h"

typedef uint64_t stack_COUNT;
typedef uint64_t stack_SIZE;
typedef uint64_t stack_FLAG;
typedef uint64_t stack_CHOICE; /* index into the row's names */
typedef double stack_NUMBER;
typedef const char *stack_TEXT;

struct stack_options {
#define STACK_OPTION(field, kind, initial, names, help) stack_##kind field;
#include "stack_options.def"
#undef STACK_OPTION
};

enum stack_order { ORDER_SEQUENTIAL, ORDER_REVERSE, ORDER_RANDOM, ORDER_ALTERNATE };
enum stack_pointers {
    POINTERS_DIRECT,
    POINTERS_STRUCT,
    POINTERS_TABLE,
    POINTERS_COMPUTED,
    POINTERS_DESCRIPTOR,
    POINTERS_STORED,
    POINTERS_EXTRA,
    POINTERS_EX,
    POINTERS_COOPERATIVE,
    POINTERS_MIX, /* those above in turn */
    POINTERS_PINNED,
    POINTERS_MANAGED,
};
enum stack_alloc { ALLOC_EACH, ALLOC_ONE, ALLOC_SEGMENTS, ALLOC_VMM, ALLOC_HANDLE, ALLOC_ASYNC, ALLOC_POOL };
enum stack_sparse { SPARSE_NONE, SPARSE_EMBEDDING, SPARSE_EXPERTS, SPARSE_BOTH };
enum stack_sync { SYNC_PASS, SYNC_NONE, SYNC_EVENT, SYNC_QUERY };
enum stack_capture { CAPTURE_GLOBAL, CAPTURE_THREAD, CAPTURE_RELAXED };
enum stack_keep { KEEP_AS_IS, KEEP_NOT, KEEP_UPDATED, KEEP_SET };
enum stack_upload { UPLOAD_SYNC, UPLOAD_ASYNC };

enum {
    STACK_MAX_SIZES = 64,
    STACK_MAX_STREAMS = 16,
    STACK_MAX_DEVICES = 16,
    STACK_OVER_READ_MAX = 4096,
    STACK_MAX_GRAPHS = 64
};

/* Defaults, then the command line, then (--random) the draw. Ends the process with a line on stderr when something is
 * wrong, and with the help on stdout after --help. `entry` is needed before a driver call is possible, so nothing here
 * makes one. */
void stack_options_parse(struct stack_options *options, int argc, char **argv);

/* Draws every option that is not marked in `given`, which has one flag for each row. */
void stack_options_draw(struct stack_options *options, const bool *given);

/* Sets one option by its name on the command line; false if there is no such option or the value is not one of its
 * kind. */
bool stack_options_set(struct stack_options *options, const char *name, const char *value);

/* The command line that gives these options, on one line. */
void stack_options_print(const struct stack_options *options, FILE *out);

/* Size of the k-th weight of the model. */
uint64_t stack_weight_bytes(const struct stack_options *options, uint64_t k);

#endif
