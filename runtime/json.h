/*
 * json.h - JSON as text: a reader that makes a tree, and a writer.
 *
 * No I/O, no locale, no global state. Reading is bounded by the text: depth is limited, numbers are finite, strings are
 * UTF-8 as they come and may hold no NUL. What is read is looked at by ov_json_* functions that take NULL for "there is
 * none" and answer it, so that a chain of look-ups is checked once, at its end.
 *
 * Ownership: ov_json_read allocates one block with the whole tree, and one with all strings; ov_json_free frees them.
 * The text is not kept. A writer owns its text until ov_json_text hands it over.
 */
#ifndef OV_JSON_H
#define OV_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ov_json_type { OV_JSON_NULL, OV_JSON_BOOL, OV_JSON_NUMBER, OV_JSON_STRING, OV_JSON_ARRAY, OV_JSON_OBJECT };

struct ov_json {
    enum ov_json_type type;
    const char *key;    /* in an object */
    const char *string; /* of a string */
    double number;      /* of a number; of a bool 0 or 1 */
    uint32_t count;     /* elements or members */
    const struct ov_json *first, *next;
};

struct ov_json_document {
    struct ov_json *node; /* node[0] is the value */
    char *strings;
    uint32_t node_count;
};

/* False: the text is not JSON, or memory ran out (message NULL); then *line is where, *message what was wrong. */
bool ov_json_read(const char *text, size_t length, struct ov_json_document *document, unsigned *line,
                  const char **message);
void ov_json_free(struct ov_json_document *document);

/* Of an object; NULL if it is none or has no such member. */
const struct ov_json *ov_json_member(const struct ov_json *value, const char *key);
/* If it is of the type, else NULL. */
const struct ov_json *ov_json_as(const struct ov_json *value, enum ov_json_type type);

/* Writes one value: begin and end nest, key() comes before each member of an object. An array whose elements are
 * numbers stays on one line until it is full. When memory runs out everything after is dropped, and the text is NULL.
 */
struct ov_json_writer {
    char *text;
    size_t length, room;
    unsigned depth, column;
    uint64_t object; /* bits by depth */
    bool empty, keyed, failed;
};
void ov_json_begin(struct ov_json_writer *writer, enum ov_json_type type); /* OV_JSON_ARRAY, OV_JSON_OBJECT */
void ov_json_end(struct ov_json_writer *writer);
void ov_json_key(struct ov_json_writer *writer, const char *key);
void ov_json_string(struct ov_json_writer *writer, const char *string);
/* With so many digits that it reads back as the same number, or as whole as it is. */
void ov_json_number(struct ov_json_writer *writer, double number);
void ov_json_bool(struct ov_json_writer *writer, bool value);
/* The text, with a newline at its end; free() it. NULL: memory ran out. */
char *ov_json_text(struct ov_json_writer *writer);

#endif
