#include "options.h"

#include "value.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

const struct ov_option ov_option_table[OV_OPTION_COUNT] = {
#define OV_OPTION(NAME, field, TYPE, low, high, default_text, help, details) \
    {#NAME, OV_TYPE_##TYPE, offsetof(struct ov_options, field), (low), (high), default_text, help, details},
#include "options.def"
};

const struct ov_choice ov_choice_table[OV_CHOICE_COUNT] = {
#define OV_CHOICE(field, constant, value, word, meaning) {offsetof(struct ov_options, field), word, meaning, constant},
#include "options.def"
};

/* ---- text being built, cut at its room ---- */

struct text {
    char *at;
    size_t room, length;
};

static void text_add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void text_add(struct text *text, const char *format, ...)
{
    if (text->length + 1 >= text->room) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    int added = vsnprintf(text->at + text->length, text->room - text->length, format, arguments);
    va_end(arguments);
    text->length += added > 0 ? (size_t)added : 0;
    if (text->length >= text->room) {
        text->length = text->room - 1;
    }
}

/* As the parser reads it back: the largest unit that leaves no remainder. */
static void text_add_bytes(struct text *text, size_t bytes)
{
    static const char units[] = "\0KMGT";
    size_t unit = 0;
    while (bytes != 0 && bytes % 1024 == 0 && unit < 4) {
        bytes /= 1024;
        unit++;
    }
    text_add(text, "%zu%.1s", bytes, units + unit);
}

/* ---- one option ---- */

static const struct ov_choice *find_choice(size_t offset, const char *word, size_t length)
{
    for (size_t i = 0; i < OV_CHOICE_COUNT; i++) {
        const struct ov_choice *choice = &ov_choice_table[i];
        if (choice->offset == offset && strlen(choice->word) == length &&
            strncasecmp(choice->word, word, length) == 0) {
            return choice;
        }
    }
    return NULL;
}

static unsigned all_choices(size_t offset)
{
    unsigned all = 0;
    for (size_t i = 0; i < OV_CHOICE_COUNT; i++) {
        all |= ov_choice_table[i].offset == offset ? ov_choice_table[i].value : 0;
    }
    return all;
}

static bool parse_set(size_t offset, const char *text, unsigned *out)
{
    unsigned set = 0;
    const char *element;
    size_t length;
    while (ov_value_element(&text, &element, &length)) {
        const struct ov_choice *choice = find_choice(offset, element, length);
        if (choice) {
            set |= choice->value;
        } else if (length == 3 && strncasecmp(element, "all", 3) == 0) {
            set |= all_choices(offset);
        } else {
            return false;
        }
    }
    *out = set;
    return true;
}

static bool in_bounds(const struct ov_option *option, double value)
{
    return (option->low == 0 && option->high == 0) || (value >= option->low && value <= option->high);
}

static bool parse_amount(const struct ov_option *option, const char *text, struct ov_amount *out)
{
    struct ov_amount amount = {OV_AMOUNT_AUTO, 0, 0};
    size_t length = strlen(text);
    if (strcasecmp(text, "auto") == 0) {
        *out = amount;
        return true;
    }
    if (option->type == OV_TYPE_SHARE && length && length < 32 && text[length - 1] == '%') {
        char number[32];
        memcpy(number, text, length);
        number[length - 1] = '\0';
        amount.kind = OV_AMOUNT_PERCENT;
        if (!ov_value_real(number, &amount.percent) || amount.percent <= 0 || amount.percent > 100) {
            return false;
        }
    } else {
        amount.kind = OV_AMOUNT_BYTES;
        if (!ov_value_bytes(text, &amount.bytes) || !in_bounds(option, (double)amount.bytes)) {
            return false;
        }
    }
    *out = amount;
    return true;
}

static bool parse_sized(const struct ov_option *option, const char *text, struct ov_sized *out)
{
    const struct ov_choice *choice = find_choice(option->offset, text, strlen(text));
    struct ov_sized sized = {choice != NULL ? choice->value : OV_SIZED_BYTES, 0};
    if (choice == NULL && (!ov_value_bytes(text, &sized.bytes) || !in_bounds(option, (double)sized.bytes))) {
        return false;
    }
    *out = sized;
    return true;
}

/* Of a row that ends in ":N" only what comes before the colon is the word. */
static bool parse_numbered(size_t offset, const char *text, struct ov_numbered *out)
{
    const size_t length = strcspn(text, ":");
    for (size_t i = 0; i < OV_CHOICE_COUNT; i++) {
        const struct ov_choice *choice = &ov_choice_table[i];
        const size_t word = strcspn(choice->word, ":");
        if (choice->offset != offset || word != length || strncasecmp(choice->word, text, length) != 0 ||
            (choice->word[word] == ':') != (text[length] == ':')) {
            continue;
        }
        double number = 0;
        if (text[length] == ':' && (!ov_value_real(text + length + 1, &number) || number < 1 || number > 1e6 ||
                                    number != (double)(unsigned)number)) {
            return false;
        }
        *out = (struct ov_numbered){choice->value, (unsigned)number};
        return true;
    }
    return false;
}

static bool parse_size(const struct ov_option *option, const char *text, size_t length, size_t *out)
{
    char size[32];
    if (length >= sizeof size) {
        return false;
    }
    memcpy(size, text, length);
    size[length] = '\0';
    return ov_value_bytes(size, out) && in_bounds(option, (double)*out);
}

static bool parse_sizes(const struct ov_option *option, const char *text, struct ov_sizes *out)
{
    struct ov_sizes sizes = {0};
    const char *element;
    size_t length;
    while (text != NULL && *text && ov_value_element(&text, &element, &length)) {
        struct ov_size_range *range = &sizes.range[sizes.count];
        const char *dash = memchr(element, '-', length);
        size_t first = dash != NULL ? (size_t)(dash - element) : length;
        if (sizes.count++ == OV_SIZE_RANGES || !parse_size(option, element, first, &range->low_bytes)) {
            return false;
        }
        range->high_bytes = range->low_bytes;
        if (dash != NULL && (!parse_size(option, dash + 1, length - first - 1, &range->high_bytes) ||
                             range->high_bytes < range->low_bytes)) {
            return false;
        }
    }
    *out = sizes;
    return true;
}

bool ov_sizes_hold(const struct ov_sizes *sizes, size_t bytes)
{
    for (unsigned i = 0; i < sizes->count; i++) {
        if (bytes >= sizes->range[i].low_bytes && bytes <= sizes->range[i].high_bytes) {
            return true;
        }
    }
    return false;
}

static bool parse_number(const struct ov_option *option, const char *text, void *field)
{
    double real;
    size_t bytes;
    if (option->type == OV_TYPE_BYTES) {
        if (!ov_value_bytes(text, &bytes) || !in_bounds(option, (double)bytes)) {
            return false;
        }
        memcpy(field, &bytes, sizeof(bytes));
        return true;
    }
    if (!ov_value_real(text, &real) || !in_bounds(option, real)) {
        return false;
    }
    if (option->type == OV_TYPE_REAL) {
        memcpy(field, &real, sizeof(real));
        return true;
    }
    unsigned count = (unsigned)real;
    memcpy(field, &count, sizeof(count));
    return !strchr(text, '.');
}

/* Parses `text` into the field; what a failure leaves in the field is of no use. */
static bool parse(const struct ov_option *option, const char *text, void *field)
{
    const struct ov_choice *choice;
    switch (option->type) {
    case OV_TYPE_FLAG:
        return ov_value_flag(text, field);
    case OV_TYPE_COUNT:
    case OV_TYPE_REAL:
    case OV_TYPE_BYTES:
        return parse_number(option, text, field);
    case OV_TYPE_AMOUNT:
    case OV_TYPE_SHARE:
        return parse_amount(option, text, field);
    case OV_TYPE_CHOICE:
        choice = find_choice(option->offset, text, strlen(text));
        if (choice) {
            memcpy(field, &choice->value, sizeof(choice->value));
        }
        return choice;
    case OV_TYPE_SIZED:
        return parse_sized(option, text, field);
    case OV_TYPE_NUMBERED:
        return parse_numbered(option->offset, text, field);
    case OV_TYPE_SET:
        return parse_set(option->offset, text, field);
    case OV_TYPE_SIZES:
        return parse_sizes(option, text, field);
    case OV_TYPE_DEVICES:
        return ov_value_devices(text, field);
    case OV_TYPE_PATH:
        if (strlen(text) >= OV_PATH_BYTES) {
            return false;
        }
        memcpy(field, text, strlen(text) + 1);
        return true;
    case OV_TYPES:
        break;
    }
    return false;
}

bool ov_option_valid(const struct ov_option *option, const char *value)
{
    union {
        struct ov_amount amount;
        struct ov_sized sized;
        struct ov_numbered numbered;
        struct ov_sizes sizes;
        char path[OV_PATH_BYTES];
    } field;
    return parse(option, value, &field);
}

static void accepts_choices(struct text *text, const struct ov_option *option)
{
    const char *separator = "";
    for (size_t i = 0; i < OV_CHOICE_COUNT; i++) {
        if (ov_choice_table[i].offset == option->offset) {
            text_add(text, "%s%s", separator, ov_choice_table[i].word);
            separator = ", ";
        }
    }
}

static void accepts_bounds(struct text *text, const struct ov_option *option)
{
    if (option->type == OV_TYPE_COUNT || option->type == OV_TYPE_REAL) {
        text_add(text, " from %g to %g", option->low, option->high);
    } else if (option->low > 0) {
        text_add(text, " of at least ");
        text_add_bytes(text, (size_t)option->low);
    }
}

void ov_option_accepts(const struct ov_option *option, char *room_at, size_t room)
{
    static const char *const words[OV_TYPES] = {
        [OV_TYPE_FLAG] = "0 or 1",
        [OV_TYPE_COUNT] = "a whole number",
        [OV_TYPE_REAL] = "a number",
        [OV_TYPE_BYTES] = "a size (bytes, or a number and K, M, G or T)",
        [OV_TYPE_AMOUNT] = "a size (bytes, or a number and K, M, G or T)",
        [OV_TYPE_SHARE] = "a size (bytes, or a number and K, M, G or T)",
        [OV_TYPE_CHOICE] = "one of ",
        [OV_TYPE_SIZED] = "a size (bytes, or a number and K, M, G or T)",
        [OV_TYPE_NUMBERED] = "one of ",
        [OV_TYPE_SET] = "\"all\", or with commas between: ",
        [OV_TYPE_SIZES] = "sizes and ranges of sizes with commas between, such as 64M,1G-2G",
        [OV_TYPE_DEVICES] = "\"all\", or ordinals from 0 to 63 and ranges with commas between, such as 0,2-3",
        [OV_TYPE_PATH] = "the name of a file",
    };
    struct text text = {room_at, room, 0};
    text_add(&text, "%s", words[option->type]);
    if (option->type != OV_TYPE_SIZED) {
        accepts_choices(&text, option);
    }
    if (option->low != 0 || option->high != 0) {
        accepts_bounds(&text, option);
    }
    if (option->type == OV_TYPE_SIZED) {
        text_add(&text, ", or one of ");
        accepts_choices(&text, option);
    }
    if (option->type == OV_TYPE_SHARE) {
        text_add(&text, ", a percentage up to 100%%");
    }
    if (option->type == OV_TYPE_AMOUNT || option->type == OV_TYPE_SHARE) {
        text_add(&text, ", or \"auto\"");
    }
}

/* ---- all options ---- */

size_t ov_amount_resolve(const struct ov_amount *amount, size_t whole_bytes, size_t auto_bytes)
{
    switch (amount->kind) {
    case OV_AMOUNT_BYTES:
        return amount->bytes;
    case OV_AMOUNT_PERCENT:
        return (size_t)((double)whole_bytes * amount->percent / 100);
    case OV_AMOUNT_AUTO:
        break;
    }
    return auto_bytes;
}

bool ov_options_load(struct ov_options *options, const char *(*get)(const char *variable), char *error,
                     size_t error_room)
{
    struct ov_options loaded;
    struct text lines = {error, error_room, 0};
    bool good = true;
    memset(&loaded, 0, sizeof(loaded));
    for (size_t i = 0; i < OV_OPTION_COUNT; i++) {
        const struct ov_option *option = &ov_option_table[i];
        char variable[64], accepted[256];
        snprintf(variable, sizeof(variable), OV_OPTION_PREFIX "%s", option->name);
        const char *value = get(variable);
        if (!value || !*value) {
            value = option->default_text;
        }
        if (!parse(option, value, (char *)&loaded + option->offset)) {
            ov_option_accepts(option, accepted, sizeof(accepted));
            text_add(&lines, "%s%s=%.100s is not accepted; it takes %s", good ? "" : "\n", variable, value, accepted);
            good = false;
        }
    }
    if (good) {
        *options = loaded;
    }
    return good;
}

static void text_add_set(struct text *text, size_t offset, unsigned set)
{
    const char *separator = "";
    if (set == all_choices(offset)) {
        text_add(text, "all");
        return;
    }
    for (size_t i = 0; i < OV_CHOICE_COUNT; i++) {
        if (ov_choice_table[i].offset == offset && (set & ov_choice_table[i].value)) {
            text_add(text, "%s%s", separator, ov_choice_table[i].word);
            separator = ",";
        }
    }
}

static void text_add_devices(struct text *text, uint64_t bits)
{
    const char *separator = "";
    if (bits == UINT64_MAX) {
        text_add(text, "all");
        return;
    }
    for (unsigned i = 0; i < 64; i++) {
        if (bits >> i & 1) {
            text_add(text, "%s%u", separator, i);
            separator = ",";
        }
    }
}

static void text_add_amount(struct text *text, const struct ov_amount *amount)
{
    if (amount->kind == OV_AMOUNT_AUTO) {
        text_add(text, "auto");
    } else if (amount->kind == OV_AMOUNT_PERCENT) {
        text_add(text, "%g%%", amount->percent);
    } else {
        text_add_bytes(text, amount->bytes);
    }
}

static void text_add_choice(struct text *text, size_t offset, unsigned value)
{
    for (size_t i = 0; i < OV_CHOICE_COUNT; i++) {
        if (ov_choice_table[i].offset == offset && ov_choice_table[i].value == value) {
            text_add(text, "%s", ov_choice_table[i].word);
        }
    }
}

static void text_add_sized(struct text *text, size_t offset, const struct ov_sized *sized)
{
    if (sized->word == OV_SIZED_BYTES) {
        text_add_bytes(text, sized->bytes);
    } else {
        text_add_choice(text, offset, sized->word);
    }
}

static void text_add_numbered(struct text *text, size_t offset, const struct ov_numbered *numbered)
{
    for (size_t i = 0; i < OV_CHOICE_COUNT; i++) {
        const char *word = ov_choice_table[i].word;
        if (ov_choice_table[i].offset == offset && ov_choice_table[i].value == numbered->word) {
            text_add(text, "%.*s", (int)strcspn(word, ":"), word);
        }
    }
    if (numbered->number != 0) {
        text_add(text, ":%u", numbered->number);
    }
}

static void text_add_sizes(struct text *text, const struct ov_sizes *sizes)
{
    for (unsigned i = 0; i < sizes->count; i++) {
        text_add(text, "%s", i > 0 ? "," : "");
        text_add_bytes(text, sizes->range[i].low_bytes);
        if (sizes->range[i].high_bytes != sizes->range[i].low_bytes) {
            text_add(text, "-");
            text_add_bytes(text, sizes->range[i].high_bytes);
        }
    }
}

static void text_add_value(struct text *text, const struct ov_option *option, const void *field)
{
    switch (option->type) {
    case OV_TYPE_FLAG:
        text_add(text, "%d", *(const bool *)field);
        break;
    case OV_TYPE_COUNT:
        text_add(text, "%u", *(const unsigned *)field);
        break;
    case OV_TYPE_REAL:
        text_add(text, "%g", *(const double *)field);
        break;
    case OV_TYPE_BYTES:
        text_add_bytes(text, *(const size_t *)field);
        break;
    case OV_TYPE_AMOUNT:
    case OV_TYPE_SHARE:
        text_add_amount(text, field);
        break;
    case OV_TYPE_CHOICE:
        text_add_choice(text, option->offset, *(const unsigned *)field);
        break;
    case OV_TYPE_NUMBERED:
        text_add_numbered(text, option->offset, field);
        break;
    case OV_TYPE_SIZED:
        text_add_sized(text, option->offset, field);
        break;
    case OV_TYPE_SIZES:
        text_add_sizes(text, field);
        break;
    case OV_TYPE_SET:
        text_add_set(text, option->offset, *(const unsigned *)field);
        break;
    case OV_TYPE_DEVICES:
        text_add_devices(text, *(const uint64_t *)field);
        break;
    case OV_TYPE_PATH:
        text_add(text, "%s", (const char *)field);
        break;
    case OV_TYPES:
        break;
    }
}

void ov_options_print(const struct ov_options *options, void (*line)(void *context, const char *text), void *context)
{
    for (size_t i = 0; i < OV_OPTION_COUNT; i++) {
        char buffer[OV_PATH_BYTES + 64];
        struct text text = {buffer, sizeof(buffer), 0};
        text_add(&text, OV_OPTION_PREFIX "%s=", ov_option_table[i].name);
        text_add_value(&text, &ov_option_table[i], (const char *)options + ov_option_table[i].offset);
        line(context, buffer);
    }
}

/* ---- misspelt variables ---- */

enum { NAME_LENGTH_MAX = 48 };

/* Edits (insert, delete, replace, swap of neighbours) that make one name the other. */
static size_t edit_distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t rows[3][NAME_LENGTH_MAX + 1];
    size_t *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= b_length; j++) {
        last[j] = j;
    }
    for (size_t i = 1; i <= a_length; i++) {
        now[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t best = last[j - 1] + (a[i - 1] != b[j - 1]);
            best = last[j] + 1 < best ? last[j] + 1 : best;
            best = now[j - 1] + 1 < best ? now[j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < best) {
                best = before[j - 2] + 1;
            }
            now[j] = best;
        }
        size_t *free_row = before;
        before = last;
        last = now;
        now = free_row;
    }
    return last[b_length];
}

static const struct ov_option *nearest_option(const char *name, size_t length, size_t *distance)
{
    const struct ov_option *nearest = NULL;
    *distance = SIZE_MAX;
    for (size_t i = 0; length <= NAME_LENGTH_MAX && i < OV_OPTION_COUNT; i++) {
        const char *candidate = ov_option_table[i].name;
        size_t edits = edit_distance(name, length, candidate, strlen(candidate));
        if (edits < *distance) {
            *distance = edits;
            nearest = &ov_option_table[i];
        }
    }
    return nearest;
}

size_t ov_options_unknown(char *const *environment, void (*line)(void *context, const char *text), void *context)
{
    const size_t prefix_length = sizeof(OV_OPTION_PREFIX) - 1;
    size_t unknown = 0, distance;
    for (; environment && *environment; environment++) {
        const char *name = *environment;
        if (strncmp(name, OV_OPTION_PREFIX, prefix_length) != 0) {
            continue;
        }
        name += prefix_length;
        size_t length = strcspn(name, "=");
        const struct ov_option *nearest = nearest_option(name, length, &distance);
        if (distance == 0) {
            continue;
        }
        char buffer[256];
        struct text text = {buffer, sizeof(buffer), 0};
        text_add(&text, OV_OPTION_PREFIX "%.*s is no option and is ignored", (int)(length < 100 ? length : 100), name);
        if (nearest && distance <= 1 + length / 3) {
            text_add(&text, "; did you mean " OV_OPTION_PREFIX "%s?", nearest->name);
        }
        line(context, buffer);
        unknown++;
    }
    return unknown;
}
