/* Profiles as text, and as what the planner takes; see profile.h. */
#include "profile.h"

#include <stdio.h>
#include <stdlib.h>

#include "json.h"

static void put_string(struct ov_json_writer *writer, const char *key, const char *string)
{
    if (string != NULL) {
        ov_json_key(writer, key);
        ov_json_string(writer, string);
    }
}

static void put_number(struct ov_json_writer *writer, const char *key, double number)
{
    ov_json_key(writer, key);
    ov_json_number(writer, number);
}

/* Left out: false. */
static void put_flag(struct ov_json_writer *writer, const char *key, bool flag)
{
    if (flag) {
        ov_json_key(writer, key);
        ov_json_bool(writer, true);
    }
}

static void put_hash(struct ov_json_writer *writer, const char *key, const uint64_t hash[2])
{
    char text[40];
    if (hash[0] != 0 || hash[1] != 0) {
        snprintf(text, sizeof(text), "%016llx%016llx", (unsigned long long)hash[0], (unsigned long long)hash[1]);
        put_string(writer, key, text);
    }
}

static void write_weight(struct ov_json_writer *writer, const struct ov_profile_weight *weight)
{
    ov_json_begin(writer, OV_JSON_OBJECT);
    put_string(writer, "name", weight->name);
    put_number(writer, "bytes", (double)weight->bytes);
    put_hash(writer, "hash", weight->hash);
    if (weight->allocation != 0) {
        put_number(writer, "allocation", weight->allocation);
        put_number(writer, "offset", (double)weight->offset);
    }
    if (weight->allocation_bytes != 0) {
        put_number(writer, "allocation_bytes", (double)weight->allocation_bytes);
        put_number(writer, "span", (double)weight->span);
    }
    put_flag(writer, "filled", weight->filled);
    if (weight->may != OV_TIERS_ALL) {
        ov_json_key(writer, "may");
        ov_json_begin(writer, OV_JSON_ARRAY);
        for (int tier = OV_TIER_RESIDENT; tier <= OV_TIER_HOST; tier++) {
            if (weight->may & OV_TIER_BIT(tier)) {
                ov_json_string(writer, ov_tier_name((enum ov_tier)tier));
            }
        }
        ov_json_end(writer);
    }
    put_flag(writer, "sparse", weight->sparse);
    if (weight->sparse && weight->reads > 0) {
        put_number(writer, "share", weight->share);
        put_number(writer, "reads", weight->reads);
    }
    ov_json_end(writer);
}

static void write_unused(struct ov_json_writer *writer, const struct ov_profile *profile)
{
    ov_json_key(writer, "unused");
    ov_json_begin(writer, OV_JSON_ARRAY);
    for (size_t i = 0; i < profile->unused_count; i++) {
        ov_json_begin(writer, OV_JSON_ARRAY);
        ov_json_number(writer, profile->unused[i].allocation);
        ov_json_number(writer, (double)profile->unused[i].bytes);
        ov_json_end(writer);
    }
    ov_json_end(writer);
}

static void write_kernels(struct ov_json_writer *writer, const struct ov_profile *profile)
{
    ov_json_key(writer, "kernels");
    ov_json_begin(writer, OV_JSON_ARRAY);
    for (size_t i = 0; i < profile->kernel_count; i++) {
        const struct ov_profile_kernel *kernel = &profile->kernel[i];
        ov_json_begin(writer, OV_JSON_OBJECT);
        put_string(writer, "name", kernel->name);
        put_hash(writer, "code", kernel->code);
        put_string(writer, "slots", kernel->slots);
        put_flag(writer, "watched", kernel->watched);
        put_flag(writer, "emits", kernel->emits);
        put_flag(writer, "output", kernel->output);
        put_flag(writer, "unseen", kernel->unseen);
        ov_json_end(writer);
    }
    ov_json_end(writer);
}

static void write_column(struct ov_json_writer *writer, const char *key, const double *value, size_t count,
                         double scale)
{
    if (value == NULL) {
        return;
    }
    ov_json_key(writer, key);
    ov_json_begin(writer, OV_JSON_ARRAY);
    for (size_t i = 0; i < count; i++) {
        ov_json_number(writer, value[i] * scale);
    }
    ov_json_end(writer);
}

static void write_cycles(struct ov_json_writer *writer, const struct ov_profile *profile)
{
    size_t begin = 0;

    ov_json_key(writer, "cycles");
    ov_json_begin(writer, OV_JSON_ARRAY);
    for (size_t i = 0; i < profile->cycle_count; i++) {
        const struct ov_profile_cycle *cycle = &profile->cycle[i];
        ov_json_begin(writer, OV_JSON_OBJECT);
        put_string(writer, "name", cycle->name);
        put_number(writer, "repeats", cycle->repeats);
        ov_json_key(writer, "touches");
        ov_json_begin(writer, OV_JSON_ARRAY);
        for (size_t k = 0; k < cycle->length; k++) {
            ov_json_number(writer, profile->touch[begin + k]);
        }
        ov_json_end(writer);
        write_column(writer, "compute_us", profile->compute_s ? profile->compute_s + begin : NULL, cycle->length, 1e6);
        write_column(writer, "stretch", profile->stretch ? profile->stretch + begin : NULL, cycle->length, 1);
        ov_json_end(writer);
        begin += cycle->length;
    }
    ov_json_end(writer);
}

static void write_heading(struct ov_json_writer *writer, const struct ov_profile *profile)
{
    put_string(writer, "schema", OV_PROFILE_SCHEMA);
    put_number(writer, "version", OV_PROFILE_VERSION);
    ov_json_key(writer, "program");
    ov_json_begin(writer, OV_JSON_OBJECT);
    put_string(writer, "name", profile->program);
    put_hash(writer, "key", profile->key);
    ov_json_end(writer);
    ov_json_key(writer, "device");
    ov_json_begin(writer, OV_JSON_OBJECT);
    put_string(writer, "name", profile->device);
    put_number(writer, "bytes", (double)profile->device_bytes);
    put_number(writer, "driver", profile->driver);
    ov_json_end(writer);
    put_number(writer, "budget", (double)profile->budget_bytes);
    put_number(writer, "host_limit", (double)profile->host_limit_bytes);
}

char *ov_profile_write(const struct ov_profile *profile)
{
    struct ov_json_writer writer = {0};

    ov_json_begin(&writer, OV_JSON_OBJECT);
    write_heading(&writer, profile);
    ov_json_key(&writer, "link");
    ov_json_begin(&writer, OV_JSON_ARRAY);
    for (size_t i = 0; i < profile->rate_count; i++) {
        ov_json_begin(&writer, OV_JSON_ARRAY);
        ov_json_number(&writer, (double)profile->rate[i].bytes);
        ov_json_number(&writer, profile->rate[i].gb_per_s);
        ov_json_end(&writer);
    }
    ov_json_end(&writer);
    ov_json_key(&writer, "weights");
    ov_json_begin(&writer, OV_JSON_ARRAY);
    for (size_t i = 0; i < profile->weight_count; i++) {
        write_weight(&writer, &profile->weight[i]);
    }
    ov_json_end(&writer);
    ov_json_key(&writer, "launches");
    ov_json_begin(&writer, OV_JSON_ARRAY);
    for (size_t i = 0; i < profile->group_count; i++) {
        ov_json_begin(&writer, OV_JSON_ARRAY);
        for (uint32_t k = 0; k < profile->group[i].length; k++) {
            ov_json_number(&writer, profile->group_weight[profile->group[i].start + k]);
        }
        ov_json_end(&writer);
    }
    ov_json_end(&writer);
    write_cycles(&writer, profile);
    if (profile->unused_count > 0) {
        write_unused(&writer, profile);
    }
    if (profile->kernel_count > 0) {
        write_kernels(&writer, profile);
    }
    ov_json_end(&writer);
    return ov_json_text(&writer);
}

/* ---- for the planner ---- */

static size_t whole_pages(size_t bytes)
{
    return (bytes + OV_PROFILE_PAGE - 1) / OV_PROFILE_PAGE;
}

bool ov_profile_plan_input(const struct ov_profile *profile, struct ov_profile_input *out)
{
    *out = (struct ov_profile_input){.unit = calloc(profile->weight_count + 1, sizeof(*out->unit)),
                                     .part = calloc(profile->cycle_count + 1, sizeof(*out->part)),
                                     .rate = calloc(profile->rate_count + 1, sizeof(*out->rate))};
    if (out->unit == NULL || out->part == NULL || out->rate == NULL) {
        ov_profile_free_input(out);
        return false;
    }
    for (size_t i = 0; i < profile->weight_count; i++) {
        const struct ov_profile_weight *weight = &profile->weight[i];
        out->unit[i] = (struct ov_plan_unit){(uint32_t)whole_pages(weight->bytes), weight->may, weight->sparse};
    }
    for (size_t i = 0; i < profile->cycle_count; i++) {
        out->part[i] = (struct ov_plan_part){profile->cycle[i].length, profile->cycle[i].repeats};
    }
    for (size_t i = 0; i < profile->rate_count; i++) {
        out->rate[i] = (struct ov_plan_rate){(double)profile->rate[i].bytes / (double)OV_PROFILE_PAGE,
                                             profile->rate[i].gb_per_s * 1e9 / (double)OV_PROFILE_PAGE};
    }
    out->input = (struct ov_plan_input){.unit = out->unit,
                                        .unit_count = profile->weight_count,
                                        .cycle = profile->touch,
                                        .cycle_length = profile->touch_count,
                                        .part = out->part,
                                        .part_count = profile->cycle_count,
                                        .compute_s = profile->compute_s,
                                        .stretch = profile->stretch,
                                        .group = profile->group,
                                        .group_count = profile->group_count,
                                        .group_unit = profile->group_weight,
                                        .budget_pages = profile->budget_bytes / OV_PROFILE_PAGE,
                                        .host_limit_pages = profile->host_limit_bytes / OV_PROFILE_PAGE,
                                        .tiers = OV_TIERS_ALL,
                                        .rate = out->rate,
                                        .rate_count = profile->rate_count};
    return true;
}

void ov_profile_free_input(struct ov_profile_input *input)
{
    free(input->unit);
    free(input->part);
    free(input->rate);
}
