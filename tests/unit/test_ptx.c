/* PTX parameter lists: each row of the tables is one text. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "image.h"

struct row {
    const char *text; /* after the header */
    uint32_t count;
    struct ov_param param[4];
};

#define HEADER ".version 8.0\n.target sm_75\n.address_size 64\n"

static struct ov_image *parse(const char *text, int *error)
{
    static char whole[4096];

    snprintf(whole, sizeof whole, "%s%s", HEADER, text);
    return ov_image_parse(whole, strlen(whole), error);
}

static const struct row good[] = {
    {".entry k { ret; }", 0, {{0, 0}}},
    {".visible .entry k() { ret; }", 0, {{0, 0}}},
    {".weak .entry k ( ) ;", 0, {{0, 0}}},
    {".entry k(.param .u64 a) .maxntid 256 { ret; }", 1, {{0, 8}}},
    {".entry k(.param .u8 a, .param .u16 b, .param .u32 c, .param .f64 d)\n{", 4, {{0, 1}, {2, 2}, {4, 4}, {8, 8}}},
    {".entry k(.param .align 8 .b8 a[16], .param .align 1 .b8 b[3], .param .u32 c) {", 3, {{0, 16}, {16, 3}, {20, 4}}},
    {".entry k(.param .u32 n, .param .align 64 .b8 map[128]) {", 2, {{0, 4}, {64, 128}}},
    /* the alignment of what a pointer points at is not the parameter's */
    {".entry k(.param .u32 n, .param .u64 .ptr .global .align 256 a) {", 2, {{0, 4}, {8, 8}}},
    {".entry k(.param .u64 .ptr a, .param .u64 .ptr .const .align 4 b) {", 2, {{0, 8}, {8, 8}}},
    {".entry k(.param .u8 a, .param .v4 .f32 b) {", 2, {{0, 1}, {16, 16}}},
    {".entry k(.param .b8 a[2][3][0x4]) {", 1, {{0, 24}}},
    {".entry k(.param .f16 a, .param .bf16x2 b, .param .b128 c) {", 3, {{0, 2}, {4, 4}, {16, 16}}},
    {".entry k(/* .param .u32 x, */ .param .u64 a // ) {\n, .param .u32 b) {", 2, {{0, 8}, {8, 4}}},
    {"// .entry other(\n/* .entry other( */ .file 1 \".entry other(\\\" .entry other(\"\n.entry k(.param .u64 a) {",
     1,
     {{0, 8}}},
    {".extern .func (.param .b32 r) f(.param .b64 x); .entry k(.param .u64 a) {", 1, {{0, 8}}},
    /* declared, then defined */
    {".entry k(.param .u64 a); .visible .entry k(.param .u64 b) { ret; }", 1, {{0, 8}}},
};

START_TEST(lists_are_read)
{
    const struct row *row = &good[_i];
    int error = -1;
    struct ov_image *image = parse(row->text, &error);
    const struct ov_kernel_layout *kernel = ov_image_find(image, "k");

    ck_assert_int_eq(error, OV_IMAGE_OK);
    ck_assert_uint_eq(ov_image_count(image), 1);
    ck_assert_ptr_nonnull(kernel);
    ck_assert_uint_eq(kernel->param_count, row->count);
    for (uint32_t i = 0; i < row->count; i++) {
        ck_assert_uint_eq(kernel->param[i].offset, row->param[i].offset);
        ck_assert_uint_eq(kernel->param[i].size, row->param[i].size);
    }
    if (row->count) {
        const struct ov_param last = row->param[row->count - 1];
        ck_assert_uint_eq(kernel->param_bytes, last.offset + last.size);
    }
    ov_image_free(image);
}
END_TEST

/* `k` is in doubt; `after`, one u64, must be found all the same. */
static const char *const doubtful[] = {
    ".entry k(.param .texref t) {",
    ".entry k(.param .u64 a, .param .u128 b) {",
    ".entry k(.param .u64) {",
    ".entry k(.param a) {",
    ".entry k(.u64 a) {",
    ".entry k(.param .u64 a .param .u64 b) {",
    ".entry k(.param .u64 a, ) {",
    ".entry k(.param .align 3 .b8 a[4]) {",
    ".entry k(.param .align .b8 a[4]) {",
    ".entry k(.param .b8 a[]) {",
    ".entry k(.param .b8 a[0]) {",
    ".entry k(.param .b8 a[4) {",
    ".entry k(.param .b8 a[99999]) {",
    ".entry k(.param .b8 a[4294967297]) {",
    ".entry k(.param .b64 a[65536]) {",
    ".entry k(.param .b8 a[256][256][256]) {",
    ".entry k(.param .u32 .u64 a) {",
    ".entry k(.param .u64 .global a) {",
    ".entry k(.param .u64 a) garbage {",
    ".entry k(.param .b8 a[65000], .param .b8 b[1000]) {",
    ".entry k(.param .u64 a) { } .entry k(.param .u64 a, .param .u64 b) {", /* twice, not the same */
    ".entry k(.param .u32 a) { } .entry k(.param .u64 a) {",
};

START_TEST(unknown_lists_leave_doubt)
{
    char text[1024];
    int error = -1;

    snprintf(text, sizeof text, "%s ret; }\n.entry after(.param .u64 a) { ret; }", doubtful[_i]);
    struct ov_image *image = parse(text, &error);
    ck_assert_int_eq(error, OV_IMAGE_OK);
    ck_assert_ptr_null(ov_image_find(image, "k"));
    ck_assert_uint_eq(ov_image_count(image), 1);
    ck_assert_ptr_nonnull(ov_image_find(image, "after"));
    ck_assert_uint_eq(ov_image_find(image, "after")->param_bytes, 8);
    ov_image_free(image);
}
END_TEST

START_TEST(truncated_lists_are_not_believed)
{
    static const char text[] = ".entry kernel(.param .u64 a, .param .align 8 .b8 bb[128]) {";

    for (size_t bytes = 0; bytes < sizeof text - 1; bytes++) {
        char part[sizeof text] = "";
        int error = -1;
        memcpy(part, text, bytes);
        ck_assert_ptr_null(parse(part, &error));
        ck_assert_int_ne(error, OV_IMAGE_OK);
    }
}
END_TEST

START_TEST(text_ends_at_nul)
{
    static const char text[] = HEADER ".entry k(.param .u64 a) { ret; }\0.entry hidden() { }";
    int error = -1;
    struct ov_image *image = ov_image_parse(text, sizeof text, &error);

    ck_assert_uint_eq(ov_image_count(image), 1);
    ck_assert_ptr_nonnull(ov_image_find(image, "k"));
    ov_image_free(image);
}
END_TEST

START_TEST(first_word_must_be_version)
{
    static const char *const texts[] = {"hello world",
                                        ".entry k() {",
                                        ".versions 8.0 .entry k() {",
                                        "\n\n",
                                        "{{{{",
                                        "\"unterminated .version .entry k() {",
                                        "/* .version 8.0 .entry k() {"};
    static const char commented[] = "// Generated\n\n/* by */ .version 8.0\n.entry k() {";
    int error = -1;
    struct ov_image *image;

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        ck_assert_ptr_null(ov_image_parse(texts[i], strlen(texts[i]) + 1, &error));
        ck_assert(error == OV_IMAGE_UNKNOWN || error == OV_IMAGE_TRUNCATED);
    }
    image = ov_image_parse(commented, sizeof commented, &error);
    ck_assert_int_eq(error, OV_IMAGE_OK);
    ck_assert_uint_eq(ov_image_count(image), 1);
    ov_image_free(image);
}
END_TEST

Suite *ptx_suite(void);
Suite *ptx_suite(void)
{
    Suite *suite = suite_create("ptx");
    TCase *tcase = tcase_create("lists");

    tcase_add_loop_test(tcase, lists_are_read, 0, (int)(sizeof good / sizeof good[0]));
    tcase_add_loop_test(tcase, unknown_lists_leave_doubt, 0, (int)(sizeof doubtful / sizeof doubtful[0]));
    tcase_add_test(tcase, truncated_lists_are_not_believed);
    tcase_add_test(tcase, text_ends_at_nul);
    tcase_add_test(tcase, first_word_must_be_version);
    suite_add_tcase(suite, tcase);
    return suite;
}
