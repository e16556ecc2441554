/*
 * options.h - what the user can set, all from one table (options.def).
 *
 * The table makes `struct ov_options`, reads it from OVERSHOT_* variables, checks it, prints it, and describes itself
 * to tools. Values are read once and never change afterwards, so that no lock protects them: the loader of the struct
 * publishes it.
 *
 * Errors: a value that is not accepted is never guessed at. ov_options_load() then returns false, leaves the struct
 * untouched and has written one line for each bad variable, naming the variable, its value and what is accepted. Who
 * calls it logs the lines and stays inert.
 *
 * Nothing here allocates, takes a lock, or depends on the locale; all functions may be called before main() and from
 * any thread.
 */
#ifndef OV_OPTIONS_H
#define OV_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OV_OPTION_PREFIX "OVERSHOT_"
#define OV_PATH_BYTES    4096

/* A size that may be left to us. percent is of a whole that only the reader of the option knows. */
struct ov_amount {
    enum ov_amount_kind { OV_AMOUNT_AUTO, OV_AMOUNT_BYTES, OV_AMOUNT_PERCENT } kind;
    size_t bytes;   /* when kind is OV_AMOUNT_BYTES */
    double percent; /* when kind is OV_AMOUNT_PERCENT: above 0, at most 100 */
};

/* A word of the option's own, or a size: then `word` is OV_SIZED_BYTES. */
#define OV_SIZED_BYTES UINT32_MAX
struct ov_sized {
    uint32_t word;
    size_t bytes; /* when word is OV_SIZED_BYTES */
};

/* A word, and the number behind it (0 where it takes none). */
struct ov_numbered {
    uint32_t word;
    unsigned number;
};

/* Sizes and ranges of sizes; ends are part of a range. */
#define OV_SIZE_RANGES 16
struct ov_sizes {
    unsigned count;
    struct ov_size_range {
        size_t low_bytes, high_bytes;
    } range[OV_SIZE_RANGES];
};
bool ov_sizes_hold(const struct ov_sizes *sizes, size_t bytes);

/* The bytes that an amount means: of `whole_bytes` for a percentage, `auto_bytes` for auto. */
size_t ov_amount_resolve(const struct ov_amount *amount, size_t whole_bytes, size_t auto_bytes);

enum {
#define OV_CHOICE(field, constant, value, word, meaning) constant = (value),
#include "options.def"
};

typedef bool ov_field_flag;
typedef unsigned ov_field_count;
typedef double ov_field_real;
typedef size_t ov_field_bytes;
typedef struct ov_amount ov_field_amount;
typedef struct ov_amount ov_field_share;
typedef unsigned ov_field_choice;
typedef struct ov_sized ov_field_sized;
typedef struct ov_numbered ov_field_numbered;
typedef struct ov_sizes ov_field_sizes;
typedef unsigned ov_field_set;
typedef uint64_t ov_field_devices;
typedef char ov_field_path[OV_PATH_BYTES];

#define OV_FIELD_TYPE_FLAG     ov_field_flag
#define OV_FIELD_TYPE_COUNT    ov_field_count
#define OV_FIELD_TYPE_REAL     ov_field_real
#define OV_FIELD_TYPE_BYTES    ov_field_bytes
#define OV_FIELD_TYPE_AMOUNT   ov_field_amount
#define OV_FIELD_TYPE_SHARE    ov_field_share
#define OV_FIELD_TYPE_CHOICE   ov_field_choice
#define OV_FIELD_TYPE_SIZED    ov_field_sized
#define OV_FIELD_TYPE_NUMBERED ov_field_numbered
#define OV_FIELD_TYPE_SET      ov_field_set
#define OV_FIELD_TYPE_SIZES    ov_field_sizes
#define OV_FIELD_TYPE_DEVICES  ov_field_devices
#define OV_FIELD_TYPE_PATH     ov_field_path

struct ov_options {
#define OV_OPTION(NAME, field, TYPE, low, high, default_text, help, details) OV_FIELD_TYPE_##TYPE field;
#include "options.def"
};

/* Fills *options from get("OVERSHOT_<NAME>") (NULL or an empty string: the default). On failure returns false, *options
 * is untouched and `error` holds the lines, newline between them, cut at error_room. */
bool ov_options_load(struct ov_options *options, const char *(*get)(const char *variable), char *error,
                     size_t error_room);

/* Calls line() once for each option with "NAME=value" as the environment would have to say it. */
void ov_options_print(const struct ov_options *options, void (*line)(void *context, const char *text), void *context);

/* Calls line() once for each variable of `environment` (as environ) that begins with OVERSHOT_ and is no option, with a
 * sentence that names the nearest option. Returns how many. */
size_t ov_options_unknown(char *const *environment, void (*line)(void *context, const char *text), void *context);

/* The table, for tools that describe it. */
enum ov_option_type {
    OV_TYPE_FLAG,
    OV_TYPE_COUNT,
    OV_TYPE_REAL,
    OV_TYPE_BYTES,
    OV_TYPE_AMOUNT,
    OV_TYPE_SHARE,
    OV_TYPE_CHOICE,
    OV_TYPE_SIZED,
    OV_TYPE_NUMBERED,
    OV_TYPE_SET,
    OV_TYPE_SIZES,
    OV_TYPE_DEVICES,
    OV_TYPE_PATH,
    OV_TYPES
};

struct ov_option {
    const char *name; /* without the prefix */
    enum ov_option_type type;
    size_t offset;    /* of the field in struct ov_options */
    double low, high; /* 0, 0: no bounds */
    const char *default_text, *help, *details;
};

struct ov_choice {
    size_t offset; /* of the option's field, a `word` first if it has more */
    const char *word, *meaning;
    unsigned value;
};

enum {
    OV_OPTION_COUNT = 0
#define OV_OPTION(NAME, field, TYPE, low, high, default_text, help, details) +1
#include "options.def"
    ,
    OV_CHOICE_COUNT = 0
#define OV_CHOICE(field, constant, value, word, meaning) +1
#include "options.def"
};

extern const struct ov_option ov_option_table[OV_OPTION_COUNT];
extern const struct ov_choice ov_choice_table[OV_CHOICE_COUNT];

/* What the option accepts, in words: "a size (...), or auto". Cut at room. */
void ov_option_accepts(const struct ov_option *option, char *text, size_t room);
/* Whether `value` would be accepted. */
bool ov_option_valid(const struct ov_option *option, const char *value);

#endif
