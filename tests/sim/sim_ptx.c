/*
 * Images: the PTX reader. It knows declarations only: .version, .target, module-scope .global and .const variables, and
 * .entry with its parameters and launch bounds. Bodies are skipped by counting braces.
 */
#include "sim_image.h"

#include <ctype.h>
#include <cuda.h>
#include <stdlib.h>
#include <string.h>

struct token {
    const char *text;
    size_t bytes;
};

struct reader {
    const char *at, *end;
    struct token token; /* bytes 0 at the end */
};

struct type {
    const char *name;
    uint32_t bytes;
};

static const struct type types[] = {
    {".b8", 1},   {".u8", 1},    {".s8", 1},  {".b16", 2},   {".u16", 2},    {".s16", 2},        {".f16", 2},
    {".bf16", 2}, {".f16x2", 4}, {".b32", 4}, {".u32", 4},   {".s32", 4},    {".f32", 4},        {".b64", 8},
    {".u64", 8},  {".s64", 8},   {".f64", 8}, {".b128", 16}, {".texref", 8}, {".samplerref", 8}, {".surfref", 8},
};

static int name_char(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.';
}

static void skip_space(struct reader *reader)
{
    while (reader->at < reader->end) {
        if (isspace((unsigned char)*reader->at)) {
            reader->at++;
        } else if (reader->end - reader->at > 1 && reader->at[0] == '/' && reader->at[1] == '/') {
            while (reader->at < reader->end && *reader->at != '\n')
                reader->at++;
        } else if (reader->end - reader->at > 1 && reader->at[0] == '/' && reader->at[1] == '*') {
            reader->at += 2;
            while (reader->end - reader->at > 1 && !(reader->at[0] == '*' && reader->at[1] == '/'))
                reader->at++;
            reader->at = reader->end - reader->at > 1 ? reader->at + 2 : reader->end;
        } else {
            return;
        }
    }
}

/* Words of name characters, quoted strings, and single other characters. */
static int next(struct reader *reader)
{
    skip_space(reader);
    const char *start = reader->at;
    if (start < reader->end && *start == '"') {
        for (reader->at++; reader->at < reader->end && *reader->at != '"'; reader->at++)
            ;
        if (reader->at < reader->end)
            reader->at++;
    } else if (start < reader->end && name_char(*start)) {
        while (reader->at < reader->end && name_char(*reader->at))
            reader->at++;
    } else if (start < reader->end) {
        reader->at++;
    }
    reader->token = (struct token){start, (size_t)(reader->at - start)};
    return reader->token.bytes != 0;
}

static int is(const struct reader *reader, const char *text)
{
    return reader->token.bytes == strlen(text) && memcmp(reader->token.text, text, reader->token.bytes) == 0;
}

static unsigned long long number(const struct reader *reader)
{
    char digits[32] = "";
    size_t bytes = reader->token.bytes < sizeof digits - 1 ? reader->token.bytes : sizeof digits - 1;
    memcpy(digits, reader->token.text, bytes);
    return strtoull(digits, NULL, 0);
}

/* A declared variable or parameter: `.align 8 .b8 name[24]`, `.u64 .ptr .global .align 8 name`. */
struct declaration {
    uint32_t element_bytes, align;
    uint64_t count;
    struct token name;
};

/* Reads up to, not including, the character that ends it: one of , ) ; = { */
static void read_declaration(struct reader *reader, struct declaration *out)
{
    *out = (struct declaration){.count = 1};
    do {
        if (is(reader, ",") || is(reader, ")") || is(reader, ";") || is(reader, "=") || is(reader, "{"))
            return;
        if (is(reader, ".align") && next(reader)) {
            out->align = (uint32_t)number(reader);
        } else if (is(reader, "[") && next(reader)) {
            out->count *= is(reader, "]") ? 0 : number(reader);
        } else if (reader->token.text[0] == '.') {
            for (size_t i = 0; i < sizeof types / sizeof *types; i++)
                if (out->element_bytes == 0 && is(reader, types[i].name))
                    out->element_bytes = types[i].bytes;
            if (out->element_bytes != 0 && is(reader, ".v2"))
                out->count *= 2;
            if (is(reader, ".v4"))
                out->count *= 4;
        } else if (name_char(reader->token.text[0]) && !isdigit((unsigned char)reader->token.text[0])) {
            out->name = reader->token;
        }
    } while (next(reader));
}

static void skip_body(struct reader *reader)
{
    int depth = 0;
    do {
        depth += is(reader, "{") - is(reader, "}");
    } while (depth > 0 && next(reader));
}

static int read_params(struct reader *reader, struct sim_image_kernel *kernel)
{
    uint32_t ordinal = 0, end = 0;
    while (next(reader) && !is(reader, ")")) {
        if (!is(reader, ".param"))
            continue;
        struct declaration param;
        read_declaration(reader, &param);
        uint32_t align =
            param.align > param.element_bytes || param.element_bytes == 0 ? param.align : param.element_bytes;
        /* `.ptr .align n` speaks of what is pointed at, so a scalar keeps its own alignment */
        if (param.count == 1 && param.element_bytes != 0)
            align = param.element_bytes;
        if (align == 0 || param.count > 65536)
            return CUDA_ERROR_INVALID_PTX;
        uint32_t size = param.element_bytes * (uint32_t)param.count;
        end = (end + align - 1) / align * align;
        int error = sim_image_add_param(kernel, ordinal++, end, size);
        if (error != CUDA_SUCCESS)
            return error;
        end += size;
        if (is(reader, ")"))
            break;
    }
    return CUDA_SUCCESS;
}

static int read_entry(struct reader *reader, struct sim_image *image)
{
    if (!next(reader))
        return CUDA_ERROR_INVALID_PTX;
    struct sim_image_kernel *kernel = sim_image_add_kernel(image, reader->token.text, reader->token.bytes);
    if (kernel == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!next(reader))
        return CUDA_ERROR_INVALID_PTX;
    int error = is(reader, "(") ? read_params(reader, kernel) : CUDA_SUCCESS;
    uint32_t *limit = NULL;
    uint32_t bound[3] = {1, 1, 1};
    size_t index = 0;
    while (error == CUDA_SUCCESS && !is(reader, "{") && !is(reader, ";")) {
        if (is(reader, ".maxntid") || is(reader, ".reqntid") || is(reader, ".reqnctapercluster")) {
            limit = is(reader, ".reqnctapercluster") ? kernel->cluster : bound;
            index = 0;
        } else if (limit != NULL && isdigit((unsigned char)reader->token.text[0]) && index < 3) {
            limit[index++] = (uint32_t)number(reader);
        } else if (!is(reader, ",") && !is(reader, ")")) {
            limit = NULL;
        }
        if (!next(reader))
            return CUDA_ERROR_INVALID_PTX;
    }
    if (bound[0] * bound[1] * bound[2] > 1)
        kernel->max_threads = bound[0] * bound[1] * bound[2];
    skip_body(reader);
    return error;
}

/* Integer initialisers; a symbolic one (an address) leaves zero. The reader stands on the '='. */
static int read_initial(struct reader *reader, struct sim_image_global *global, uint32_t element_bytes)
{
    global->initial = calloc(1, global->bytes + 8);
    if (global->initial == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t offset = 0;
    int negative = 0;
    while (next(reader) && !is(reader, ";")) {
        if (is(reader, "-"))
            negative = 1;
        if (!isdigit((unsigned char)reader->token.text[0]))
            continue;
        unsigned long long value = number(reader);
        if (negative)
            value = 0 - value;
        negative = 0;
        if (offset + element_bytes <= global->bytes && element_bytes <= sizeof value)
            memcpy((char *)global->initial + offset, &value, element_bytes);
        offset += element_bytes;
    }
    return CUDA_SUCCESS;
}

static int read_variable(struct reader *reader, struct sim_image *image, int constant)
{
    struct declaration variable;
    if (!next(reader))
        return CUDA_ERROR_INVALID_PTX;
    read_declaration(reader, &variable);
    if (variable.name.bytes == 0 || variable.element_bytes == 0 || variable.count > UINT32_MAX)
        return CUDA_ERROR_INVALID_PTX;
    struct sim_image_global *global = sim_image_add_global(image, variable.name.text, variable.name.bytes);
    if (global == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    global->bytes = (size_t)(variable.element_bytes * variable.count);
    global->constant = constant;
    return is(reader, "=") ? read_initial(reader, global, variable.element_bytes) : CUDA_SUCCESS;
}

int sim_image_read_ptx(struct sim_image *image, const char *text, size_t bytes)
{
    struct reader reader = {.at = text, .end = text + bytes};
    int versioned = 0, error = CUDA_SUCCESS;
    while (error == CUDA_SUCCESS && next(&reader)) {
        if (reader.token.text[0] == '\0')
            break;
        if (is(&reader, ".version")) {
            versioned = next(&reader);
        } else if (is(&reader, ".target") && next(&reader)) {
            if (reader.token.bytes > 3 && memcmp(reader.token.text, "sm_", 3) == 0)
                image->ptx_version = (int)strtoul(reader.token.text + 3, NULL, 10);
        } else if (is(&reader, ".entry")) {
            error = read_entry(&reader, image);
        } else if (is(&reader, ".global") || is(&reader, ".const")) {
            error = read_variable(&reader, image, is(&reader, ".const"));
        } else if (is(&reader, "{")) {
            skip_body(&reader);
        }
    }
    if (!versioned)
        return CUDA_ERROR_INVALID_IMAGE; /* no PTX at all */
    if (error == CUDA_SUCCESS && image->ptx_version == 0)
        error = CUDA_ERROR_INVALID_PTX;
    return error;
}
