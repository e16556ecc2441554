#include "profile.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"

/* ---- reading ---- */

struct reader {
    struct ov_profile *profile;
    char *error;
};

static bool refuse(struct reader *reader, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool refuse(struct reader *reader, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reader->error, OV_PROFILE_ERROR_ROOM, format, arguments);
    va_end(arguments);
    return false;
}

static const char *string_of(const struct ov_json *object, const char *key)
{
    const struct ov_json *value = ov_json_as(ov_json_member(object, key), OV_JSON_STRING);
    return value != NULL ? value->string : NULL;
}

/* A number that may be left out, then 0. */
static bool read_number(struct reader *reader, const struct ov_json *object, const char *key, double most, double *out)
{
    const struct ov_json *value = ov_json_member(object, key);
    *out = 0;
    if (value == NULL || value->type == OV_JSON_NULL) {
        return true;
    }
    if (value->type != OV_JSON_NUMBER || !(value->number >= 0 && value->number <= most)) {
        return refuse(reader, "\"%s\" is not a number from 0 to %g", key, most);
    }
    *out = value->number;
    return true;
}

static bool read_size(struct reader *reader, const struct ov_json *object, const char *key, size_t *out)
{
    double number;
    if (!read_number(reader, object, key, 0x1p50, &number)) {
        return false;
    }
    *out = (size_t)number;
    return true;
}

/* 32 hexadecimal digits; left out: 0, 0. */
static bool read_hash(struct reader *reader, const struct ov_json *object, const char *key, uint64_t hash[2])
{
    const char *text = string_of(object, key);
    unsigned long long high, low;
    int end = 0;
    hash[0] = hash[1] = 0;
    if (ov_json_member(object, key) == NULL) {
        return true;
    }
    if (text == NULL || strlen(text) != 32 || strspn(text, "0123456789abcdef") != 32 ||
        sscanf(text, "%16llx%16llx%n", &high, &low, &end) != 2 || end != 32) {
        return refuse(reader, "\"%s\" is not a hash of 32 hexadecimal digits", key);
    }
    hash[0] = high;
    hash[1] = low;
    return true;
}

static bool read_flag(const struct ov_json *object, const char *key)
{
    const struct ov_json *value = ov_json_as(ov_json_member(object, key), OV_JSON_BOOL);
    return value != NULL && value->number != 0;
}

static bool read_may(struct reader *reader, const struct ov_json *weight, uint8_t *may)
{
    const struct ov_json *list = ov_json_member(weight, "may");
    *may = list == NULL ? OV_TIERS_ALL : 0;
    for (const struct ov_json *tier = list != NULL ? list->first : NULL; tier != NULL; tier = tier->next) {
        int found = -1;
        for (int i = OV_TIER_RESIDENT; i <= OV_TIER_HOST; i++) {
            found =
                tier->type == OV_JSON_STRING && strcmp(tier->string, ov_tier_name((enum ov_tier)i)) == 0 ? i : found;
        }
        if (found < 0) {
            return refuse(reader, "\"may\" lists something that is no tier: resident, streamed, host");
        }
        *may |= (uint8_t)OV_TIER_BIT(found);
    }
    return true;
}

static bool read_weights(struct reader *reader, const struct ov_json *root)
{
    struct ov_profile *profile = reader->profile;
    const struct ov_json *list = ov_json_as(ov_json_member(root, "weights"), OV_JSON_ARRAY);

    if (list == NULL) {
        return refuse(reader, "there is no list \"weights\"");
    }
    profile->weight = calloc((size_t)list->count + 1, sizeof(*profile->weight));
    if (profile->weight == NULL) {
        return refuse(reader, "out of memory");
    }
    for (const struct ov_json *item = list->first; item != NULL; item = item->next) {
        struct ov_profile_weight *weight = &profile->weight[profile->weight_count];
        double allocation = 0;
        if (!read_size(reader, item, "bytes", &weight->bytes) || !read_hash(reader, item, "hash", weight->hash) ||
            !read_may(reader, item, &weight->may) || !read_size(reader, item, "offset", &weight->offset) ||
            !read_number(reader, item, "allocation", UINT32_MAX, &allocation) ||
            !read_size(reader, item, "allocation_bytes", &weight->allocation_bytes) ||
            !read_size(reader, item, "span", &weight->span) || !read_number(reader, item, "share", 1, &weight->share) ||
            !read_number(reader, item, "reads", 1e9, &weight->reads)) {
            char reason[OV_PROFILE_ERROR_ROOM];
            memcpy(reason, reader->error, sizeof(reason));
            return refuse(reader, "weight %zu: %.200s", profile->weight_count, reason);
        }
        if (weight->bytes == 0) {
            return refuse(reader, "weight %zu has no bytes", profile->weight_count);
        }
        weight->sparse = read_flag(item, "sparse");
        weight->filled = read_flag(item, "filled");
        weight->allocation = (uint32_t)allocation;
        weight->name = string_of(item, "name");
        profile->weight_count++;
    }
    return true;
}

static bool read_link(struct reader *reader, const struct ov_json *root)
{
    struct ov_profile *profile = reader->profile;
    const struct ov_json *list = ov_json_as(ov_json_member(root, "link"), OV_JSON_ARRAY);

    profile->rate = calloc(list != NULL ? (size_t)list->count + 1 : 1, sizeof(*profile->rate));
    if (profile->rate == NULL) {
        return refuse(reader, "out of memory");
    }
    for (const struct ov_json *item = list != NULL ? list->first : NULL; item != NULL; item = item->next) {
        const struct ov_json *bytes = item->type == OV_JSON_ARRAY ? item->first : NULL;
        const struct ov_json *speed = bytes != NULL ? bytes->next : NULL;
        struct ov_profile_rate *rate = &profile->rate[profile->rate_count];
        if (ov_json_as(bytes, OV_JSON_NUMBER) == NULL || ov_json_as(speed, OV_JSON_NUMBER) == NULL ||
            !(bytes->number >= 1 && bytes->number <= 0x1p50) || !(speed->number > 0)) {
            return refuse(reader, "\"link\" is not a list of [bytes, GB/s]");
        }
        *rate = (struct ov_profile_rate){(size_t)bytes->number, speed->number};
        if (profile->rate_count > 0 && rate->bytes <= rate[-1].bytes) {
            return refuse(reader, "\"link\" is not in ascending order of bytes");
        }
        profile->rate_count++;
    }
    return true;
}

/* Numbers of weights. */
static bool read_numbers(struct reader *reader, const struct ov_json *list, const char *where, uint32_t *out)
{
    for (const struct ov_json *item = list->first; item != NULL; item = item->next, out++) {
        if (item->type != OV_JSON_NUMBER ||
            !(item->number >= 0 && item->number < (double)reader->profile->weight_count) ||
            item->number != (double)(uint32_t)item->number) {
            return refuse(reader, "%s: there is no weight of that number", where);
        }
        *out = (uint32_t)item->number;
    }
    return true;
}

static bool read_launches(struct reader *reader, const struct ov_json *root)
{
    struct ov_profile *profile = reader->profile;
    const struct ov_json *list = ov_json_as(ov_json_member(root, "launches"), OV_JSON_ARRAY);
    size_t members = 0;

    for (const struct ov_json *item = list != NULL ? list->first : NULL; item != NULL; item = item->next) {
        members += item->count;
    }
    profile->group = calloc(list != NULL ? (size_t)list->count + 1 : 1, sizeof(*profile->group));
    profile->group_weight = calloc(members + 1, sizeof(*profile->group_weight));
    if (profile->group == NULL || profile->group_weight == NULL) {
        return refuse(reader, "out of memory");
    }
    members = 0;
    for (const struct ov_json *item = list != NULL ? list->first : NULL; item != NULL; item = item->next) {
        if (item->type != OV_JSON_ARRAY) {
            return refuse(reader, "\"launches\" is not a list of lists");
        }
        if (!read_numbers(reader, item, "launches", profile->group_weight + members)) {
            return false;
        }
        profile->group[profile->group_count++] = (struct ov_plan_group){(uint32_t)members, item->count};
        members += item->count;
    }
    return true;
}

/* Times or stretches of a cycle, as many as touches; *to is allocated for all cycles when the first has some. */
static bool read_column(struct reader *reader, const struct ov_json *cycle, const char *key, size_t room, size_t begin,
                        double scale, double **to)
{
    const struct ov_json *list = ov_json_member(cycle, key);
    const struct ov_json *touches = ov_json_member(cycle, "touches");

    if (list == NULL) {
        return true;
    }
    if (list->type != OV_JSON_ARRAY || list->count != touches->count) {
        return refuse(reader, "\"%s\" has not as many elements as \"touches\"", key);
    }
    *to = *to != NULL ? *to : calloc(room + 1, sizeof(**to));
    if (*to == NULL) {
        return refuse(reader, "out of memory");
    }
    for (const struct ov_json *item = list->first; item != NULL; item = item->next, begin++) {
        if (item->type != OV_JSON_NUMBER || !(item->number >= 0 && item->number <= 1e15)) {
            return refuse(reader, "\"%s\" holds something that is not a number from 0 on", key);
        }
        (*to)[begin] = item->number * scale;
    }
    return true;
}

static bool read_cycle(struct reader *reader, const struct ov_json *item, size_t room)
{
    struct ov_profile *profile = reader->profile;
    struct ov_profile_cycle *cycle = &profile->cycle[profile->cycle_count];
    const struct ov_json *touches = ov_json_as(ov_json_member(item, "touches"), OV_JSON_ARRAY);
    double repeats = 1;

    if (touches == NULL || touches->count == 0) {
        return refuse(reader, "cycle %zu has no list \"touches\"", profile->cycle_count);
    }
    if (ov_json_member(item, "repeats") != NULL && !read_number(reader, item, "repeats", 1e6, &repeats)) {
        return false;
    }
    if (repeats < 1) {
        return refuse(reader, "cycle %zu: \"repeats\" is less than 1", profile->cycle_count);
    }
    *cycle = (struct ov_profile_cycle){string_of(item, "name"), (uint32_t)repeats, touches->count};
    const size_t begin = profile->touch_count;
    if (!read_numbers(reader, touches, "touches", profile->touch + begin) ||
        !read_column(reader, item, "compute_us", room, begin, 1e-6, &profile->compute_s) ||
        !read_column(reader, item, "stretch", room, begin, 1, &profile->stretch)) {
        return false;
    }
    profile->touch_count += touches->count;
    profile->cycle_count++;
    return true;
}

static bool read_cycles(struct reader *reader, const struct ov_json *root)
{
    struct ov_profile *profile = reader->profile;
    const struct ov_json *list = ov_json_as(ov_json_member(root, "cycles"), OV_JSON_ARRAY);
    size_t room = 0, timed = 0;

    if (list == NULL || list->count == 0) {
        return refuse(reader, "there is no list \"cycles\", or it is empty");
    }
    for (const struct ov_json *item = list->first; item != NULL; item = item->next) {
        const struct ov_json *touches = ov_json_as(ov_json_member(item, "touches"), OV_JSON_ARRAY);
        room += touches != NULL ? touches->count : 0;
        timed += ov_json_member(item, "compute_us") != NULL;
    }
    if (timed != 0 && timed != list->count) {
        return refuse(reader, "some cycles have \"compute_us\" and some have not");
    }
    profile->cycle = calloc((size_t)list->count + 1, sizeof(*profile->cycle));
    profile->touch = calloc(room + 1, sizeof(*profile->touch));
    if (profile->cycle == NULL || profile->touch == NULL) {
        return refuse(reader, "out of memory");
    }
    for (const struct ov_json *item = list->first; item != NULL; item = item->next) {
        if (!read_cycle(reader, item, room)) {
            return false;
        }
    }
    return true;
}

static bool read_unused(struct reader *reader, const struct ov_json *root)
{
    struct ov_profile *profile = reader->profile;
    const struct ov_json *list = ov_json_as(ov_json_member(root, "unused"), OV_JSON_ARRAY);

    profile->unused = calloc(list != NULL ? (size_t)list->count + 1 : 1, sizeof(*profile->unused));
    if (profile->unused == NULL) {
        return refuse(reader, "out of memory");
    }
    for (const struct ov_json *item = list != NULL ? list->first : NULL; item != NULL; item = item->next) {
        const struct ov_json *allocation = item->type == OV_JSON_ARRAY ? item->first : NULL;
        const struct ov_json *bytes = allocation != NULL ? allocation->next : NULL;
        if (ov_json_as(allocation, OV_JSON_NUMBER) == NULL || ov_json_as(bytes, OV_JSON_NUMBER) == NULL ||
            !(allocation->number >= 0 && allocation->number <= UINT32_MAX) ||
            !(bytes->number >= 0 && bytes->number <= 0x1p50)) {
            return refuse(reader, "\"unused\" is not a list of [allocation, bytes]");
        }
        profile->unused[profile->unused_count++] =
            (struct ov_profile_unused){(uint32_t)allocation->number, (size_t)bytes->number};
    }
    return true;
}

static bool read_kernels(struct reader *reader, const struct ov_json *root)
{
    struct ov_profile *profile = reader->profile;
    const struct ov_json *list = ov_json_as(ov_json_member(root, "kernels"), OV_JSON_ARRAY);

    profile->kernel = calloc(list != NULL ? (size_t)list->count + 1 : 1, sizeof(*profile->kernel));
    if (profile->kernel == NULL) {
        return refuse(reader, "out of memory");
    }
    for (const struct ov_json *item = list != NULL ? list->first : NULL; item != NULL; item = item->next) {
        struct ov_profile_kernel *kernel = &profile->kernel[profile->kernel_count];
        kernel->name = string_of(item, "name");
        kernel->slots = string_of(item, "slots");
        if (!read_hash(reader, item, "code", kernel->code)) {
            return false;
        }
        if (kernel->slots == NULL || kernel->slots[strspn(kernel->slots, "-rw")] != 0) {
            return refuse(reader, "kernel %zu: \"slots\" is not a string of r, w and -", profile->kernel_count);
        }
        kernel->watched = read_flag(item, "watched");
        kernel->emits = read_flag(item, "emits");
        kernel->output = read_flag(item, "output");
        kernel->unseen = read_flag(item, "unseen");
        profile->kernel_count++;
    }
    return true;
}

static bool read_heading(struct reader *reader, const struct ov_json *root)
{
    struct ov_profile *profile = reader->profile;
    const struct ov_json *program = ov_json_member(root, "program"), *device = ov_json_member(root, "device");
    const char *schema = string_of(root, "schema");
    double version = 0, driver = 0;

    if (schema == NULL || strcmp(schema, OV_PROFILE_SCHEMA) != 0) {
        return refuse(reader, "it is no profile: \"schema\" is not \"" OV_PROFILE_SCHEMA "\"");
    }
    if (!read_number(reader, root, "version", 1e9, &version)) {
        return false;
    }
    profile->version = (unsigned)version;
    if (version != OV_PROFILE_VERSION) {
        return refuse(reader, "it is of version %g, and this overshot reads version %d", version, OV_PROFILE_VERSION);
    }
    profile->program = string_of(program, "name");
    profile->device = string_of(device, "name");
    if (!read_hash(reader, program, "key", profile->key) ||
        !read_size(reader, device, "bytes", &profile->device_bytes) ||
        !read_number(reader, device, "driver", 1e9, &driver) ||
        !read_size(reader, root, "budget", &profile->budget_bytes) ||
        !read_size(reader, root, "host_limit", &profile->host_limit_bytes)) {
        return false;
    }
    profile->driver = (unsigned)driver;
    return true;
}

bool ov_profile_read(const char *text, size_t length, struct ov_profile *profile, char error[OV_PROFILE_ERROR_ROOM])
{
    struct reader reader = {profile, error};
    struct ov_json_document document;
    const char *message;
    unsigned line;

    *profile = (struct ov_profile){0};
    if (!ov_json_read(text, length, &document, &line, &message)) {
        return message != NULL ? refuse(&reader, "line %u: %s", line, message) : refuse(&reader, "out of memory");
    }
    const struct ov_json *root = &document.node[0];
    const bool done = read_heading(&reader, root) && read_link(&reader, root) && read_weights(&reader, root) &&
                      read_launches(&reader, root) && read_cycles(&reader, root) && read_unused(&reader, root) &&
                      read_kernels(&reader, root);
    if (done) {
        profile->owned = document.strings;
        document.strings = NULL;
    } else {
        const unsigned version = profile->version;
        ov_profile_free(profile);
        profile->version = version;
    }
    ov_json_free(&document);
    return done;
}

bool ov_profile_load(const char *path, struct ov_profile *profile, char error[OV_PROFILE_ERROR_ROOM])
{
    struct reader reader = {profile, error};
    FILE *file = fopen(path, "re");
    size_t length = 0, room = 1 << 16;
    char *text = file != NULL ? malloc(room) : NULL;
    int cause = errno;

    *profile = (struct ov_profile){0};
    while (text != NULL && length < OV_PROFILE_BYTES_AT_MOST) {
        errno = 0;
        const size_t got = fread(text + length, 1, room - length, file);
        cause = errno;
        length += got;
        if (got == 0) {
            break;
        }
        char *larger = length == room ? realloc(text, room *= 2) : text;
        if (larger == NULL) {
            free(text);
        }
        text = larger;
    }
    const bool failed = file == NULL || ferror(file);
    if (file != NULL) {
        fclose(file);
    }
    const bool done = failed                               ? refuse(&reader, "%s", strerror(cause != 0 ? cause : EIO))
                      : text == NULL                       ? refuse(&reader, "out of memory")
                      : length >= OV_PROFILE_BYTES_AT_MOST ? refuse(&reader, "it is too large for a profile")
                                                           : ov_profile_read(text, length, profile, error);
    free(text);
    return done;
}

void ov_profile_free(struct ov_profile *profile)
{
    free(profile->rate);
    free(profile->weight);
    free(profile->cycle);
    free(profile->touch);
    free(profile->compute_s);
    free(profile->stretch);
    free(profile->group);
    free(profile->group_weight);
    free(profile->unused);
    free(profile->kernel);
    free(profile->owned);
    *profile = (struct ov_profile){0};
}
