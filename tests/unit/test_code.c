/* What a kernel's code is known by: all of its image and its name, and nothing where either is not sure. */
#include <check.h>

#include "code.h"
#include "image_writer.h"

static const char *const files[] = {
    "image_layouts_sm75.cubin", "image_layouts_sm100.cubin", "image_layouts.ptx",       "image_ptx_only.fatbin",
    "image_wide_zstd.fatbin",   "image_default.fatbin",      "image_relocatable.cubin",
};
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static struct blob load(int index)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", OV_FIXTURES, files[index]);
    struct blob blob = blob_load(path);
    blob_put(&blob, "", 1); /* ends a text */
    blob.bytes--;
    return blob;
}

START_TEST(length_is_found)
{
    struct blob blob = load(_i);
    struct ov_code told = ov_code_of_image(blob.data, blob.bytes), found = ov_code_of_image(blob.data, SIZE_MAX);
    ck_assert(ov_code_known(&told) && ov_code_same(&told, &found));
    struct blob copy = {NULL, 0};
    blob_put(&copy, blob.data, blob.bytes + 1);
    struct ov_code again = ov_code_of_image(copy.data, SIZE_MAX);
    ck_assert(ov_code_same(&told, &again));
    blob_free(&copy);
    blob_free(&blob);
}
END_TEST

/* But the container's header, which is checked and says nothing of the code. */
START_TEST(every_byte_counts)
{
    struct blob blob = load(_i);
    const struct ov_code whole = ov_code_of_image(blob.data, blob.bytes);
    const size_t header = strstr(files[_i], ".fatbin") != NULL ? 16 : 0;
    for (size_t at = header; at < blob.bytes; at += at < 256 ? 1 : 37) {
        blob.data[at] ^= 1;
        const struct ov_code other = ov_code_of_image(blob.data, blob.bytes);
        ck_assert_msg(!ov_code_same(&whole, &other), "byte %zu of %s", at, files[_i]);
        blob.data[at] ^= 1;
    }
    blob_free(&blob);
}
END_TEST

START_TEST(less_of_it_is_something_else)
{
    struct blob blob = load(_i);
    const struct ov_code whole = ov_code_of_image(blob.data, blob.bytes);
    for (size_t length = 0; length < blob.bytes; length += length < 256 ? 1 : 41) {
        const struct ov_code part = ov_code_of_image(blob.data, length);
        ck_assert_msg(!ov_code_same(&whole, &part), "%zu bytes of %s", length, files[_i]);
    }
    blob_free(&blob);
}
END_TEST

START_TEST(other_formats_have_no_hash)
{
    static const char *const text[] = {"", "BC\xc0\xde and more", "MZ\x90 neither", "// no version\n.entry x"};
    for (size_t i = 0; i < COUNT(text); i++) {
        const struct ov_code code = ov_code_of_image(text[i], SIZE_MAX);
        ck_assert(!ov_code_known(&code));
    }
    const struct ov_code none = ov_code_of_image(NULL, SIZE_MAX);
    ck_assert(!ov_code_known(&none));
}
END_TEST

START_TEST(kernels_of_one_image_differ_by_name)
{
    const struct ov_code image = {{5, 6}}, unknown = {{0, 0}};
    const struct ov_code a = ov_code_of_kernel(&image, "kernel_a"), b = ov_code_of_kernel(&image, "kernel_b");
    const struct ov_code again = ov_code_of_kernel(&image, "kernel_a"), none = ov_code_of_kernel(&unknown, "kernel_a");
    ck_assert(ov_code_same(&a, &again) && !ov_code_same(&a, &b) && !ov_code_known(&none));
}
END_TEST

Suite *code_suite(void);
Suite *code_suite(void)
{
    Suite *suite = suite_create("code");
    TCase *tcase = tcase_create("code");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, length_is_found, 0, (int)COUNT(files));
    tcase_add_loop_test(tcase, every_byte_counts, 0, (int)COUNT(files));
    tcase_add_loop_test(tcase, less_of_it_is_something_else, 0, (int)COUNT(files));
    tcase_add_test(tcase, other_formats_have_no_hash);
    tcase_add_test(tcase, kernels_of_one_image_differ_by_name);
    suite_add_tcase(suite, tcase);
    return suite;
}
