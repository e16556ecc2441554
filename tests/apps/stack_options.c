#include "stack_options.h"

#include <stdlib.h>
#include <string.h>

#include "stack_kernels.h"

enum kind { KIND_COUNT, KIND_SIZE, KIND_NUMBER, KIND_FLAG, KIND_CHOICE, KIND_TEXT };

struct row {
    const char *field;
    enum kind kind;
    const char *initial, *names, *help;
    size_t offset;
};

#define STACK_OPTION(field, kind, initial, names, help) \
    {#field, KIND_##kind, initial, names, help, offsetof(struct stack_options, field)},
static const struct row rows[] = {
#include "stack_options.def"
};
#undef STACK_OPTION

enum { ROWS = sizeof rows / sizeof *rows };

static uint64_t *whole_of(struct stack_options *options, const struct row *row)
{
    return (uint64_t *)(void *)((char *)options + row->offset);
}

/* Compares a name on the command line with a field: '-' stands for '_'. */
static bool same_name(const char *name, size_t length, const char *field)
{
    if (strlen(field) != length) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        if (name[i] != (field[i] == '_' ? '-' : field[i])) {
            return false;
        }
    }
    return true;
}

static bool parse_size(const char *text, uint64_t *bytes)
{
    char *end;
    double value = strtod(text, &end);
    double unit = *end == 'K' ? 1024.0 : *end == 'M' ? 1048576.0 : *end == 'G' ? 1073741824.0 : 1.0;
    end += unit > 1.0;
    if (end == text || *end != '\0' || value < 0 || value * unit > 1e15) {
        return false;
    }
    *bytes = (uint64_t)(value * unit);
    return true;
}

/* Place of `text` in a list separated by commas, or -1. */
static int find_choice(const char *names, const char *text)
{
    size_t length = strlen(text);
    int index = 0;
    for (const char *name = names; name; index++) {
        const char *comma = strchr(name, ',');
        size_t name_length = comma ? (size_t)(comma - name) : strlen(name);
        if (name_length == length && memcmp(name, text, length) == 0) {
            return index;
        }
        name = comma ? comma + 1 : NULL;
    }
    return -1;
}

static bool set_row(struct stack_options *options, const struct row *row, const char *value)
{
    uint64_t *whole = whole_of(options, row);
    char *end;
    int choice;
    switch (row->kind) {
    case KIND_COUNT:
    case KIND_FLAG:
        *whole = strtoull(value, &end, 0);
        return end != value && *end == '\0' && value[0] != '-';
    case KIND_SIZE:
        return parse_size(value, whole);
    case KIND_NUMBER:
        *(double *)(void *)whole = strtod(value, &end);
        return end != value && *end == '\0';
    case KIND_CHOICE:
        choice = find_choice(row->names, value);
        *whole = (uint64_t)choice;
        return choice >= 0;
    case KIND_TEXT:
        *(const char **)(void *)whole = value;
        return true;
    }
    return false;
}

bool stack_options_set(struct stack_options *options, const char *name, const char *value)
{
    for (size_t i = 0; i < ROWS; i++) {
        if (same_name(name, strlen(name), rows[i].field)) {
            return set_row(options, &rows[i], value);
        }
    }
    return false;
}

static void print_dashed(const char *field, FILE *out)
{
    fputs("--", out);
    for (const char *c = field; *c; c++) {
        fputc(*c == '_' ? '-' : *c, out);
    }
}

static void print_help(void)
{
    puts(
        "Usage: stack [options]\nA synthetic decoder in exact integer arithmetic; prints a digest of its activations.");
    for (size_t i = 0; i < ROWS; i++) {
        fputs("  ", stdout);
        print_dashed(rows[i].field, stdout);
        if (rows[i].kind == KIND_CHOICE) {
            printf(" %s", rows[i].names);
        } else if (rows[i].kind != KIND_FLAG) {
            static const char *const kinds[] = {
                [KIND_COUNT] = "N", [KIND_SIZE] = "SIZE", [KIND_NUMBER] = "X", [KIND_TEXT] = "LIST"};
            printf(" %s", kinds[rows[i].kind]);
        }
        printf("\n      %s", rows[i].help);
        printf(rows[i].kind == KIND_FLAG || !rows[i].initial[0] ? "\n" : " (%s)\n", rows[i].initial);
    }
    puts("Exit code: 0 done, 2 out of memory, 3 another driver error, 4 wrong options.");
}

/* Sets the row that argv[*at] names and moves *at behind its value. */
static void parse_argument(struct stack_options *options, int argc, char **argv, int *at, bool *given)
{
    const char *name = argv[*at];
    if (strcmp(name, "--help") == 0 || strcmp(name, "--list") == 0) {
        print_help();
        exit(0);
    }
    const char *equals = strchr(name, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    for (size_t i = 0; i < ROWS && strncmp(name, "--", 2) == 0; i++) {
        if (!same_name(name + 2, length - 2, rows[i].field)) {
            continue;
        }
        const char *value = equals ? equals + 1 : "1";
        if (!equals && rows[i].kind != KIND_FLAG) {
            if (*at + 1 >= argc) {
                gpu_die("%s needs a value", name);
            }
            value = argv[++*at];
        }
        if (!set_row(options, &rows[i], value)) {
            gpu_die("%.*s cannot be '%s'%s%s", (int)length, name, value, rows[i].names ? "; one of " : "",
                    rows[i].names ? rows[i].names : "");
        }
        given[i] = true;
        ++*at;
        return;
    }
    gpu_die("unknown option %s (see --help)", name);
}

/* The k-th size of the list, counted round; 0 for a size that cannot be read. */
static uint64_t listed_size(const char *list, uint64_t k)
{
    uint64_t count = 1;
    for (const char *c = list; *c; c++) {
        count += *c == ',';
    }
    const char *at = list;
    for (uint64_t i = k % count; i > 0; i--) {
        at = strchr(at, ',') + 1;
    }
    char text[32];
    size_t length = strcspn(at, ",");
    uint64_t bytes = 0;
    if (length == 0 || length >= sizeof text) {
        return 0;
    }
    memcpy(text, at, length);
    text[length] = '\0';
    return parse_size(text, &bytes) ? bytes : 0;
}

uint64_t stack_weight_bytes(const struct stack_options *options, uint64_t k)
{
    return options->sizes[0] ? listed_size(options->sizes, k) : options->bytes;
}

static void require(bool right, const char *complaint)
{
    if (!right) {
        gpu_die("%s", complaint);
    }
}

static void validate(const struct stack_options *o)
{
    require(o->layers >= 1 && o->layers <= 100000, "--layers must be 1 to 100000");
    require(o->weights >= 1 && o->weights <= 64, "--weights must be 1 to 64");
    require(o->fused >= 1 && o->fused <= STACK_FUSED, "--fused must be 1 to 4");
    require(o->passes >= 1 && o->passes <= 1000000, "--passes must be 1 to 1000000");
    require(o->width >= 16 && o->width <= 1u << 28, "--width must be 16 to 2^28");
    require(o->streams >= 1 && o->streams <= STACK_MAX_STREAMS, "--streams must be 1 to 16");
    require(o->lanes >= 1 && o->lanes <= 64, "--lanes must be 1 to 64");
    require(o->threads >= 1 && o->threads <= 64, "--threads must be 1 to 64");
    require(o->devices >= 1 && o->devices <= STACK_MAX_DEVICES, "--devices must be 1 to 16");
    require(o->devices <= o->layers, "--devices must not exceed --layers");
    require(!o->graph || o->devices == 1, "--graph captures one device only");
    require(!o->until[0] || (o->threads == 1 && o->pointers == POINTERS_DIRECT && !o->times),
            "--until needs --threads 1 and --pointers direct, and has no --times");
    require(o->sync_every >= 1, "--sync-every must be at least 1");
    require(o->graph_turns >= 1 && o->graph_parts >= 1 && o->graph_turns * o->graph_parts <= STACK_MAX_GRAPHS,
            "--graph-turns times --graph-parts must be 1 to 64");
    require(o->graph_parts == 1 || (o->streams == 1 && o->graph_parts <= o->layers),
            "--graph-parts needs --streams 1 and as many --layers");
    require(!o->over_read || (o->alloc == ALLOC_ONE && o->over_read <= STACK_OVER_READ_MAX),
            "--over-read needs --alloc one and is 4K at most");
    require(!o->cache || o->cache >= 8 * o->width, "--cache must hold two activations");
    for (uint64_t k = 0; k < STACK_MAX_SIZES; k++) {
        const uint64_t bytes = stack_weight_bytes(o, k);
        require(bytes >= 4 && bytes % 4 == 0, "sizes of weights must be multiples of 4 bytes");
    }
}

void stack_options_parse(struct stack_options *options, int argc, char **argv)
{
    bool given[ROWS] = {false};
    memset(options, 0, sizeof *options);
    for (size_t i = 0; i < ROWS; i++) {
        if (!set_row(options, &rows[i], rows[i].initial)) {
            gpu_die("default of --%s", rows[i].field);
        }
    }
    for (int at = 1; at < argc;) {
        parse_argument(options, argc, argv, &at, given);
    }
    if (options->random) {
        for (size_t i = 0; i < ROWS; i++) {
            char dashed[64];
            size_t length = 0;
            for (const char *c = rows[i].field; *c && length < sizeof dashed - 1; c++) {
                dashed[length++] = *c == '_' ? '-' : *c;
            }
            dashed[length] = '\0';
            given[i] = given[i] || find_choice(options->without, dashed) >= 0;
        }
        stack_options_draw(options, given);
    }
    validate(options);
}

void stack_options_print(const struct stack_options *options, FILE *out)
{
    struct stack_options standard = {0};
    fputs("stack", out);
    for (size_t i = 0; i < ROWS; i++) {
        const struct row *row = &rows[i];
        uint64_t value, usual; /* every kind has 8 bytes */
        set_row(&standard, row, row->initial);
        memcpy(&value, (const char *)options + row->offset, sizeof value);
        memcpy(&usual, (const char *)&standard + row->offset, sizeof usual);
        if (row->offset == offsetof(struct stack_options, random) ||
            row->offset == offsetof(struct stack_options, without) ||
            row->offset == offsetof(struct stack_options, limit) || value == usual) {
            continue;
        }
        fputc(' ', out);
        print_dashed(row->field, out);
        if (row->kind == KIND_CHOICE) {
            const char *name = row->names;
            for (uint64_t skip = value; skip > 0; skip--) {
                name = strchr(name, ',') + 1;
            }
            fprintf(out, " %.*s", (int)strcspn(name, ","), name);
        } else if (row->kind == KIND_NUMBER) {
            fprintf(out, " %g", *(const double *)(const void *)((const char *)options + row->offset));
        } else if (row->kind == KIND_TEXT) {
            fprintf(out, " %s", *(const char *const *)(const void *)((const char *)options + row->offset));
        } else if (row->kind != KIND_FLAG) {
            fprintf(out, " %llu", (unsigned long long)value);
        }
    }
    fputc('\n', out);
}
