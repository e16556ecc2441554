#include "ptx.h"

#include <ctype.h>
#include <stdlib.h>

enum token_kind { TOKEN_END, TOKEN_WORD, TOKEN_MARK, TOKEN_STRING };

struct token {
    enum token_kind kind;
    const char *text; /* into the image */
    size_t bytes;
};

struct lexer {
    struct ov_view text;
    size_t at;
};

struct list {
    struct ov_param *param;
    uint32_t count, room, end_bytes;
};

/* What a list entry can have wrong: doubt is about one kernel, lack of memory about all. */
enum outcome { GOOD, DOUBT, NO_MEMORY };

static const struct {
    const char *word;
    uint32_t bytes;
} types[] = {
    {".u8", 1},     {".s8", 1},  {".b8", 1},  {".u16", 2}, {".s16", 2}, {".b16", 2},   {".f16", 2},
    {".bf16", 2},   {".u32", 4}, {".s32", 4}, {".b32", 4}, {".f32", 4}, {".tf32", 4},  {".f16x2", 4},
    {".bf16x2", 4}, {".u64", 8}, {".s64", 8}, {".b64", 8}, {".f64", 8}, {".f32x2", 8}, {".b128", 16},
};
static const char *const spaces[] = {".global", ".const", ".shared", ".local", ".generic"};

/* The character `ahead` places on, or 0 at the end of the text. */
static int peek(struct lexer *lexer, size_t ahead)
{
    return ov_view_need(&lexer->text, lexer->at + ahead, 1) ? lexer->text.data[lexer->at + ahead] : 0;
}

static void skip_comment(struct lexer *lexer, bool block)
{
    int c;

    lexer->at += 2;
    while ((c = peek(lexer, 0)) != 0) {
        if (block && c == '*' && peek(lexer, 1) == '/') {
            lexer->at += 2;
            return;
        }
        if (!block && c == '\n') {
            return;
        }
        lexer->at++;
    }
}

static void skip_space(struct lexer *lexer)
{
    int c;

    while ((c = peek(lexer, 0)) != 0) {
        if (isspace(c)) {
            lexer->at++;
        } else if (c == '/' && (peek(lexer, 1) == '/' || peek(lexer, 1) == '*')) {
            skip_comment(lexer, peek(lexer, 1) == '*');
        } else {
            return;
        }
    }
}

static bool in_word(int c)
{
    return isalnum(c) || c == '_' || c == '$' || c == '%' || c == '.';
}

/* A string that does not end swallows the rest of the text, so that nothing after it is believed. */
static void take_string(struct lexer *lexer)
{
    int c;

    lexer->at++;
    while ((c = peek(lexer, 0)) != 0 && c != '"') {
        lexer->at += c == '\\' && peek(lexer, 1) ? 2 : 1;
    }
    lexer->at += c == '"';
}

static struct token next_token(struct lexer *lexer)
{
    struct token token = {TOKEN_END, NULL, 0};
    size_t start;
    int c;

    skip_space(lexer);
    start = lexer->at;
    c = peek(lexer, 0);
    if (c == '"') {
        take_string(lexer);
        token.kind = TOKEN_STRING;
    } else if (in_word(c)) {
        while (in_word(peek(lexer, 0))) {
            lexer->at++;
        }
        token.kind = TOKEN_WORD;
    } else if (c) {
        lexer->at++;
        token.kind = TOKEN_MARK;
    }
    token.text = (const char *)lexer->text.data + start;
    token.bytes = lexer->at - start;
    return token;
}

static bool is(const struct token *token, const char *text)
{
    return token->kind != TOKEN_END && token->bytes == strlen(text) && memcmp(token->text, text, token->bytes) == 0;
}

static bool is_name(const struct token *token)
{
    if (token->kind != TOKEN_WORD || isdigit((unsigned char)token->text[0])) {
        return false;
    }
    return !memchr(token->text, '.', token->bytes);
}

/* Sizes and alignments, decimal or hexadecimal, as compilers write them; 0 for everything else. */
static uint32_t number(const struct token *token)
{
    const bool hexadecimal = token->bytes > 2 && token->text[0] == '0' && token->text[1] == 'x';
    uint32_t value = 0;

    for (size_t i = hexadecimal ? 2 : 0; token->kind == TOKEN_WORD && i < token->bytes; i++) {
        const int c = (unsigned char)token->text[i];
        if (!(hexadecimal ? isxdigit(c) : isdigit(c))) {
            return 0;
        }
        value = value * (hexadecimal ? 16 : 10) + (uint32_t)(isdigit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
        if (value > OV_IMAGE_PARAM_BYTES_MAX) {
            return 0;
        }
    }
    return value;
}

static uint32_t type_bytes(const struct token *token)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (is(token, types[i].word)) {
            return types[i].bytes;
        }
    }
    return 0;
}

static bool is_space_word(const struct token *token)
{
    for (size_t i = 0; i < sizeof spaces / sizeof spaces[0]; i++) {
        if (is(token, spaces[i])) {
            return true;
        }
    }
    return false;
}

/* One parameter while its words are read. */
struct declaration {
    uint32_t align_bytes, type_bytes, lanes, elements;
    bool pointer;
};

/* `.param` has been read: takes words up to and including the parameter's name. */
static bool take_words(struct lexer *lexer, struct declaration *declared)
{
    for (;;) {
        const struct token token = next_token(lexer);
        if (is_name(&token)) {
            return declared->type_bytes != 0;
        }
        if (is(&token, ".align")) {
            const struct token value = next_token(lexer);
            const uint32_t align_bytes = number(&value);
            if (align_bytes == 0 || (align_bytes & (align_bytes - 1))) {
                return false;
            }
            declared->align_bytes = declared->pointer ? declared->align_bytes : align_bytes;
        } else if (is(&token, ".ptr")) {
            declared->pointer = true;
        } else if (is(&token, ".v2") || is(&token, ".v4")) {
            declared->lanes = token.text[2] == '2' ? 2 : 4;
        } else if (declared->type_bytes == 0 && type_bytes(&token)) {
            declared->type_bytes = type_bytes(&token);
        } else if (!declared->pointer || !is_space_word(&token)) {
            return false;
        }
    }
}

/* Array dimensions, then the mark that ends the declaration: ',' or ')'. */
static bool take_dimensions(struct lexer *lexer, struct declaration *declared, struct token *mark)
{
    for (*mark = next_token(lexer); is(mark, "["); *mark = next_token(lexer)) {
        const struct token count = next_token(lexer);
        const struct token close = next_token(lexer);
        const uint32_t elements = number(&count);
        if (elements == 0 || !is(&close, "]") || declared->elements > OV_IMAGE_PARAM_BYTES_MAX / elements) {
            return false;
        }
        declared->elements *= elements;
    }
    return is(mark, ",") || is(mark, ")");
}

static enum outcome place(struct list *list, const struct declaration *declared)
{
    const uint32_t item_bytes = declared->type_bytes * declared->lanes;
    const uint32_t align_bytes = declared->align_bytes ? declared->align_bytes : item_bytes;
    const uint64_t offset = ((uint64_t)list->end_bytes + align_bytes - 1) & ~((uint64_t)align_bytes - 1);
    const uint64_t bytes = (uint64_t)item_bytes * declared->elements;

    if (offset + bytes > OV_IMAGE_PARAM_BYTES_MAX) {
        return DOUBT;
    }
    if (list->count == list->room) {
        const uint32_t room = list->room ? list->room * 2 : 16;
        struct ov_param *param = realloc(list->param, room * sizeof *param);
        if (!param) {
            return NO_MEMORY;
        }
        list->param = param;
        list->room = room;
    }
    list->param[list->count++] = (struct ov_param){(uint32_t)offset, (uint32_t)bytes};
    list->end_bytes = (uint32_t)(offset + bytes);
    return GOOD;
}

/* '(' has been read: takes everything up to and including ')'. */
static enum outcome take_list(struct lexer *lexer, struct list *list)
{
    struct token token = next_token(lexer);

    if (is(&token, ")")) {
        return GOOD;
    }
    for (;; token = next_token(lexer)) {
        struct declaration declared = {0, 0, 1, 1, false};
        struct token mark;
        enum outcome outcome;
        if (!is(&token, ".param") || !take_words(lexer, &declared) || !take_dimensions(lexer, &declared, &mark)) {
            return DOUBT;
        }
        outcome = place(list, &declared);
        if (outcome != GOOD || is(&mark, ")")) {
            return outcome;
        }
    }
}

/* `.entry` has been read. What follows the list (a body, a directive, `;`) proves that the list was complete. */
static int take_entry(struct lexer *lexer, struct list *list, struct ov_image *into)
{
    const struct token name = next_token(lexer);
    struct token after;
    enum outcome outcome = GOOD;

    if (!is_name(&name)) {
        return OV_IMAGE_MALFORMED;
    }
    list->count = list->end_bytes = 0;
    after = next_token(lexer);
    if (is(&after, "(")) {
        outcome = take_list(lexer, list);
        after = outcome == GOOD ? next_token(lexer) : after;
    }
    if (outcome == NO_MEMORY) {
        return OV_IMAGE_NO_MEMORY;
    }
    if (outcome == DOUBT || !(is(&after, "{") || is(&after, ";") || (after.kind == TOKEN_WORD && *after.text == '.'))) {
        return ov_image_reject(into, name.text, name.bytes);
    }
    return ov_image_add(into, name.text, name.bytes, list->param, list->count);
}

int ov_ptx_read(struct ov_view text, struct ov_image *into)
{
    struct lexer lexer = {text, 0};
    struct list list = {NULL, 0, 0, 0};
    struct token token = next_token(&lexer);
    int error = is(&token, ".version") ? OV_IMAGE_OK : OV_IMAGE_UNKNOWN;

    while (!error && token.kind != TOKEN_END) {
        token = next_token(&lexer);
        if (is(&token, ".entry")) {
            error = take_entry(&lexer, &list, into);
        }
    }
    free(list.param);
    return error;
}

bool ov_ptx_whole(struct ov_view text, struct ov_view *whole)
{
    struct lexer lexer = {text, 0};
    struct token token = next_token(&lexer);
    if (!is(&token, ".version")) {
        return false;
    }
    while (peek(&lexer, 0) != 0) {
        lexer.at++;
    }
    *whole = ov_view_part(&lexer.text, 0, lexer.at);
    return true;
}
