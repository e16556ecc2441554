#include "json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "value.h"

/* Nothing of ours nests deeper. */
#define DEPTH 32u
/* Lines are filled up to here. */
#define COLUMNS 110u

/* ---- reading ---- */

struct reader {
    const char *at, *end;
    const char *message;
    struct ov_json_document *document;
    size_t string_length;
    unsigned line, depth;
};

static bool refuse(struct reader *reader, const char *message)
{
    reader->message = reader->message != NULL ? reader->message : message;
    return false;
}

static void skip_space(struct reader *reader)
{
    while (reader->at < reader->end &&
           (*reader->at == ' ' || *reader->at == '\t' || *reader->at == '\n' || *reader->at == '\r')) {
        reader->line += *reader->at++ == '\n';
    }
}

static bool next_is(struct reader *reader, char wanted)
{
    skip_space(reader);
    if (reader->at < reader->end && *reader->at == wanted) {
        reader->at++;
        return true;
    }
    return false;
}

static bool read_word(struct reader *reader, const char *word)
{
    const size_t length = strlen(word);
    if ((size_t)(reader->end - reader->at) < length || memcmp(reader->at, word, length) != 0) {
        return refuse(reader, "a value was expected");
    }
    reader->at += length;
    return true;
}

static void add_char(struct reader *reader, unsigned byte)
{
    reader->document->strings[reader->string_length++] = (char)byte;
}

static void add_code_point(struct reader *reader, unsigned code)
{
    if (code < 0x80) {
        add_char(reader, code);
    } else if (code < 0x800) {
        add_char(reader, 0xc0 | code >> 6);
        add_char(reader, 0x80 | (code & 0x3f));
    } else {
        add_char(reader, 0xe0 | code >> 12);
        add_char(reader, 0x80 | (code >> 6 & 0x3f));
        add_char(reader, 0x80 | (code & 0x3f));
    }
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static bool read_escape(struct reader *reader)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *found = reader->at < reader->end && *reader->at ? strchr(from, *reader->at) : NULL;
    unsigned code = 0;

    if (found != NULL) {
        add_char(reader, (unsigned char)to[found - from]);
        reader->at++;
        return true;
    }
    if (reader->end - reader->at < 5 || *reader->at != 'u') {
        return refuse(reader, "an unknown escape in a string");
    }
    for (int i = 1; i < 5; i++) {
        if (hex_digit(reader->at[i]) < 0) {
            return refuse(reader, "an unknown escape in a string");
        }
        code = code * 16 + (unsigned)hex_digit(reader->at[i]);
    }
    reader->at += 5;
    if (code == 0 || (code >= 0xd800 && code < 0xe000)) { /* a half of a pair is no character, and we write none */
        return refuse(reader, "an escape that is no character");
    }
    add_code_point(reader, code);
    return true;
}

/* What is read is never longer than the text, so it fits. */
static bool read_string(struct reader *reader, const char **string)
{
    const size_t start = reader->string_length;

    if (!next_is(reader, '"')) {
        return refuse(reader, "a string was expected");
    }
    while (reader->at < reader->end && *reader->at != '"') {
        const char c = *reader->at++;
        if ((unsigned char)c < 0x20) {
            return refuse(reader, "a string that does not end on its line");
        }
        if (c != '\\') {
            add_char(reader, (unsigned char)c);
        } else if (!read_escape(reader)) {
            return false;
        }
    }
    if (reader->at == reader->end) {
        return refuse(reader, "a string that does not end");
    }
    reader->at++;
    add_char(reader, 0);
    *string = reader->document->strings + start;
    return true;
}

static bool read_number(struct reader *reader, double *number)
{
    char text[64];
    size_t length = 0;

    while (reader->at + length < reader->end && reader->at[length] && strchr("+-.0123456789eE", reader->at[length])) {
        length++;
    }
    if (length == 0 || length >= sizeof(text)) {
        return refuse(reader, "a value was expected");
    }
    memcpy(text, reader->at, length);
    text[length] = '\0';
    if (!ov_value_decimal(text, number)) {
        return refuse(reader, "a number was expected");
    }
    reader->at += length;
    return true;
}

static bool read_value(struct reader *reader, struct ov_json *value);

static struct ov_json *new_node(struct reader *reader)
{
    struct ov_json *node = &reader->document->node[reader->document->node_count++];
    *node = (struct ov_json){0};
    return node;
}

static bool read_children(struct reader *reader, struct ov_json *value, char close)
{
    struct ov_json *last = NULL;

    if (++reader->depth > DEPTH) {
        return refuse(reader, "values are nested too deeply");
    }
    if (next_is(reader, close)) {
        reader->depth--;
        return true;
    }
    do {
        struct ov_json *child = new_node(reader);
        if (value->type == OV_JSON_OBJECT &&
            (!read_string(reader, &child->key) || (!next_is(reader, ':') && !refuse(reader, "a colon was expected")))) {
            return false;
        }
        if (!read_value(reader, child)) {
            return false;
        }
        *(last != NULL ? &last->next : &value->first) = child;
        last = child;
        value->count++;
    } while (next_is(reader, ','));
    reader->depth--;
    return next_is(reader, close) || refuse(reader, "a comma or the end of the list was expected");
}

static bool read_value(struct reader *reader, struct ov_json *value)
{
    skip_space(reader);
    switch (reader->at < reader->end ? *reader->at : 0) {
    case '{':
    case '[':
        value->type = *reader->at++ == '{' ? OV_JSON_OBJECT : OV_JSON_ARRAY;
        return read_children(reader, value, value->type == OV_JSON_OBJECT ? '}' : ']');
    case '"':
        value->type = OV_JSON_STRING;
        return read_string(reader, &value->string);
    case 't':
    case 'f':
        value->type = OV_JSON_BOOL;
        value->number = *reader->at == 't';
        return read_word(reader, *reader->at == 't' ? "true" : "false");
    case 'n':
        return read_word(reader, "null");
    default:
        value->type = OV_JSON_NUMBER;
        return read_number(reader, &value->number);
    }
}

/* Every value but the first follows a comma, a colon, or the beginning of a list. */
static size_t nodes_at_most(const char *text, size_t length)
{
    size_t count = 2;
    for (size_t i = 0; i < length; i++) {
        count += text[i] == ',' || text[i] == '[' || text[i] == '{';
    }
    return count;
}

bool ov_json_read(const char *text, size_t length, struct ov_json_document *document, unsigned *line,
                  const char **message)
{
    struct reader reader = {.at = text, .end = text + length, .document = document, .line = 1};

    *line = 0;
    *message = NULL;
    *document = (struct ov_json_document){0};
    document->node = calloc(nodes_at_most(text, length), sizeof(*document->node));
    document->strings = malloc(2 * length + 1); /* a zero for each */
    if (document->node == NULL || document->strings == NULL) {
        ov_json_free(document);
        return false;
    }
    bool done = read_value(&reader, new_node(&reader));
    skip_space(&reader);
    done = done && (reader.at == reader.end || refuse(&reader, "something follows the value"));
    if (!done) {
        *line = reader.line;
        *message = reader.message;
        ov_json_free(document);
    }
    return done;
}

void ov_json_free(struct ov_json_document *document)
{
    free(document->node);
    free(document->strings);
    *document = (struct ov_json_document){0};
}

const struct ov_json *ov_json_member(const struct ov_json *value, const char *key)
{
    if (value == NULL || value->type != OV_JSON_OBJECT) {
        return NULL;
    }
    for (const struct ov_json *member = value->first; member != NULL; member = member->next) {
        if (strcmp(member->key, key) == 0) {
            return member;
        }
    }
    return NULL;
}

const struct ov_json *ov_json_as(const struct ov_json *value, enum ov_json_type type)
{
    return value != NULL && value->type == type ? value : NULL;
}

/* ---- writing ---- */

static void put(struct ov_json_writer *writer, const char *text, size_t length)
{
    if (writer->length + length + 1 > writer->room && !writer->failed) {
        const size_t room = 2 * (writer->room + length) + 256;
        char *larger = realloc(writer->text, room);
        writer->failed = larger == NULL;
        writer->text = larger != NULL ? larger : writer->text;
        writer->room = larger != NULL ? room : writer->room;
    }
    if (!writer->failed) {
        memcpy(writer->text + writer->length, text, length);
        writer->length += length;
        writer->column += (unsigned)length;
    }
}

static void put_line(struct ov_json_writer *writer)
{
    put(writer, "\n", 1);
    writer->column = 0;
    for (unsigned i = 0; i < writer->depth; i++) {
        put(writer, " ", 1);
    }
}

/* What comes before a value or a key. */
static void separate(struct ov_json_writer *writer, bool scalar)
{
    if (writer->keyed) { /* right behind its key */
        writer->keyed = false;
        return;
    }
    if (!writer->empty && writer->depth > 0) {
        put(writer, ",", 1);
    }
    if (writer->depth > 0 && (!scalar || writer->column >= COLUMNS)) {
        put_line(writer);
    } else if (!writer->empty && writer->depth > 0) {
        put(writer, " ", 1);
    }
    writer->empty = false;
}

void ov_json_begin(struct ov_json_writer *writer, enum ov_json_type type)
{
    separate(writer, false);
    writer->depth++;
    writer->object = (writer->object & ~(1ull << writer->depth)) | (uint64_t)(type == OV_JSON_OBJECT) << writer->depth;
    put(writer, type == OV_JSON_OBJECT ? "{" : "[", 1);
    writer->empty = true;
}

void ov_json_end(struct ov_json_writer *writer)
{
    put(writer, writer->object >> writer->depth & 1 ? "}" : "]", 1);
    writer->depth--;
    writer->empty = false;
}

static void put_string(struct ov_json_writer *writer, const char *string)
{
    put(writer, "\"", 1);
    for (; *string; string++) {
        char escape[8];
        if (*string == '"' || *string == '\\') {
            put(writer, "\\", 1);
            put(writer, string, 1);
        } else if ((unsigned char)*string < 0x20) {
            put(writer, escape, (size_t)snprintf(escape, sizeof(escape), "\\u%04x", (unsigned)*string));
        } else {
            put(writer, string, 1);
        }
    }
    put(writer, "\"", 1);
}

void ov_json_key(struct ov_json_writer *writer, const char *key)
{
    separate(writer, true);
    put_string(writer, key);
    put(writer, ": ", 2);
    writer->keyed = true;
}

void ov_json_string(struct ov_json_writer *writer, const char *string)
{
    separate(writer, true);
    put_string(writer, string);
}

/* Without printf's decimal point, which is the locale's. */
void ov_json_number(struct ov_json_writer *writer, double number)
{
    char text[48];
    int length;

    separate(writer, true);
    if (!(number > -HUGE_VAL && number < HUGE_VAL)) {
        put(writer, "null", 4);
        return;
    }
    if (number > -9e15 && number < 9e15 && number == (double)(int64_t)number) {
        length = snprintf(text, sizeof(text), "%lld", (long long)number);
    } else {
        length = snprintf(text, sizeof(text), "%.10g", number);
        for (int i = 0; i < length; i++) {
            text[i] = text[i] == ',' ? '.' : text[i];
        }
    }
    put(writer, text, (size_t)length);
}

void ov_json_bool(struct ov_json_writer *writer, bool value)
{
    separate(writer, true);
    put(writer, value ? "true" : "false", value ? 4 : 5);
}

char *ov_json_text(struct ov_json_writer *writer)
{
    put(writer, "\n", 2);
    if (writer->failed) {
        free(writer->text);
        writer->text = NULL;
    }
    return writer->text;
}
