/* Whole images: what nvcc makes (fixtures/, remade by fixtures/build.sh), fatbins and cubins made here, damaged ones.
 */
#include <check.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#include "image.h"
#include "image_writer.h"
#include "view.h"

/* What the sources of the fixtures say: sizes and alignments in C. Offsets follow from where parameters begin. */
struct declared {
    const char *name;
    struct {
        uint32_t bytes, align;
    } param[8];
};

static const struct declared layouts[] = {
    {"k_none", {{0, 0}}},
    {"k_scalars", {{1, 1}, {2, 2}, {4, 4}, {8, 8}, {8, 8}, {8, 8}, {1, 1}}},
    {"k_struct", {{16, 8}, {3, 1}, {128, 64}, {8, 8}}},
    {"k_aligned_first", {{128, 64}, {8, 8}}},
    {"k_divide", {{8, 8}, {8, 8}}},
    {"_Z10k_templateIiEvPT_S0_", {{8, 8}, {4, 4}}},
};
static const struct declared wide[] = {
    {"k_4000", {{8, 8}, {4000, 4}}},
    {"k_32000", {{8, 8}, {32000, 4}, {2, 2}}},
    {"k_most", {{32764, 1}}},
};
static const struct declared relocatable[] = {
    {"k_caller", {{8, 8}, {4, 4}}},
    {"k_plain", {{8, 8}, {8, 8}}},
};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const struct fixture {
    const char *file;
    const struct declared *kernel;
    size_t count;
    uint32_t base;      /* where the first image of the file puts parameters in constant memory */
    const char *absent; /* a kernel of the table that this image does not have */
} fixtures[] = {
    {"image_layouts_sm75.cubin", layouts, COUNT(layouts), 0x160, ""},
    {"image_layouts_sm90a.cubin", layouts, COUNT(layouts), 0x210, ""},
    {"image_layouts_sm100.cubin", layouts, COUNT(layouts), 0x380, "k_divide"},
    {"image_layouts.ptx", layouts, COUNT(layouts), 0, ""},
    {"image_ptx_only.fatbin", layouts, COUNT(layouts), 0, ""},
    {"image_wide.ptx", wide, COUNT(wide), 0, ""},
    {"image_wide_zstd.fatbin", wide, COUNT(wide), 0, ""},
    {"image_wide_lz4.fatbin", wide, COUNT(wide), 0, ""},
    {"image_default.fatbin", relocatable, COUNT(relocatable), 0x160, ""},
    {"image_plain.fatbin", relocatable, COUNT(relocatable), 0x160, ""},
    {"image_lto.fatbin", relocatable, COUNT(relocatable), 0x210, ""},
    {"image_relocatable.cubin", relocatable, COUNT(relocatable), 0x160, ""},
};

/* For loops of many thousands: ck_assert sends a message each time it is reached, this one only when it fails. */
#define MUST(condition)                     \
    do {                                    \
        if (!(condition)) {                 \
            ck_abort_msg("%s", #condition); \
        }                                   \
    } while (0)

static struct blob load_fixture(const char *file)
{
    char path[512];

    snprintf(path, sizeof path, "%s/%s", OV_FIXTURES, file);
    return blob_load(path);
}

static void assert_kernel(const struct ov_image *image, const struct declared *declared, uint32_t base)
{
    const struct ov_kernel_layout *kernel = ov_image_find(image, declared->name);
    uint32_t end = base, count = 0;

    ck_assert_msg(kernel != NULL, "%s not found", declared->name);
    for (; count < COUNT(declared->param) && declared->param[count].bytes; count++) {
        const uint32_t align = declared->param[count].align;
        end = (end + align - 1) / align * align;
        ck_assert_uint_lt(count, kernel->param_count);
        ck_assert_msg(kernel->param[count].offset == end - base, "%s: parameter %u at %u, not %u", declared->name,
                      count, kernel->param[count].offset, end - base);
        ck_assert_uint_eq(kernel->param[count].size, declared->param[count].bytes);
        end += declared->param[count].bytes;
    }
    ck_assert_uint_eq(kernel->param_count, count);
    ck_assert_uint_eq(kernel->param_bytes, end - base);
}

static void assert_fixture(const struct ov_image *image, const struct fixture *fixture)
{
    size_t present = 0;

    for (size_t i = 0; i < fixture->count; i++) {
        if (strcmp(fixture->kernel[i].name, fixture->absent) != 0) {
            assert_kernel(image, &fixture->kernel[i], fixture->base);
            present++;
        }
    }
    ck_assert_uint_eq(ov_image_count(image), present); /* no helper and no device function */
}

START_TEST(fixture_layouts)
{
    struct blob blob = load_fixture(fixtures[_i].file);
    int error = -1;
    struct ov_image *image = ov_image_parse(blob.data, blob.bytes, &error);

    ck_assert_int_eq(error, OV_IMAGE_OK);
    blob_free(&blob); /* the image keeps its own copies */
    assert_fixture(image, &fixtures[_i]);
    ov_image_free(image);
}
END_TEST

START_TEST(fixture_of_unknown_length)
{
    struct blob blob = load_fixture(fixtures[_i].file);
    int error = -1;
    struct ov_image *image;

    blob_put(&blob, "", 1); /* PTX ends with a NUL, as the driver's interface demands */
    image = ov_image_parse(blob.data, SIZE_MAX, &error);
    ck_assert_int_eq(error, OV_IMAGE_OK);
    assert_fixture(image, &fixtures[_i]);
    ov_image_free(image);
    blob_free(&blob);
}
END_TEST

START_TEST(fixture_at_odd_address)
{
    struct blob blob = load_fixture(fixtures[_i].file);
    struct blob shifted = {NULL, 0};
    int error = -1;
    struct ov_image *image;

    blob_put(&shifted, "x", 1);
    blob_put(&shifted, blob.data, blob.bytes);
    image = ov_image_parse(shifted.data + 1, blob.bytes, &error);
    ck_assert_int_eq(error, OV_IMAGE_OK);
    assert_fixture(image, &fixtures[_i]);
    ov_image_free(image);
    blob_free(&blob);
    blob_free(&shifted);
}
END_TEST

/* Memory whose last byte is followed by an unmapped page: one byte read too many ends the test. */
struct edge {
    uint8_t *start, *end;
    size_t mapped_bytes;
};

static struct edge edge_make(size_t bytes)
{
    const size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    struct edge edge;

    edge.mapped_bytes = (bytes + page_bytes - 1) / page_bytes * page_bytes + page_bytes;
    edge.start = mmap(NULL, edge.mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(edge.start, MAP_FAILED);
    edge.mapped_bytes -= page_bytes;
    edge.end = edge.start + edge.mapped_bytes;
    ck_assert_int_eq(munmap(edge.end, page_bytes), 0);
    return edge;
}

/* A damaged image may lose kernels; those it still has are unharmed. */
static void assert_subset(const struct ov_image *image, const struct ov_image *whole)
{
    for (size_t i = 0; i < ov_image_count(image); i++) {
        const struct ov_kernel_layout *part = ov_image_kernel(image, i);
        const struct ov_kernel_layout *full = ov_image_find(whole, part->name);
        MUST(full != NULL);
        MUST(part->param_count == full->param_count);
        MUST(memcmp(part->param, full->param, full->param_count * sizeof *full->param) == 0);
    }
}

static void truncate_everywhere(const struct fixture *fixture, bool open)
{
    struct blob blob = load_fixture(fixture->file);
    struct ov_image *whole = ov_image_parse(blob.data, blob.bytes, NULL);
    struct edge edge = edge_make(blob.bytes);
    size_t failures = 0;

    ck_assert_ptr_nonnull(whole);
    for (size_t bytes = 0; bytes < blob.bytes; bytes++) {
        int error = -1;
        memcpy(edge.end - bytes, blob.data, bytes);
        struct ov_image *image = ov_image_parse(edge.end - bytes, open ? SIZE_MAX : bytes, &error);
        MUST((image == NULL) == (error != OV_IMAGE_OK));
        failures += image == NULL;
        assert_subset(image, whole);
        ov_image_free(image);
    }
    ck_assert_uint_gt(failures, 0);
    ov_image_free(whole);
    munmap(edge.start, edge.mapped_bytes);
    blob_free(&blob);
}

START_TEST(truncated_at_every_length)
{
    truncate_everywhere(&fixtures[_i], false);
}
END_TEST

START_TEST(truncated_at_every_length_unknown_to_the_caller)
{
    truncate_everywhere(&fixtures[_i], true);
}
END_TEST

static void assert_sane(const struct ov_image *image)
{
    for (size_t i = 0; i < ov_image_count(image); i++) {
        const struct ov_kernel_layout *kernel = ov_image_kernel(image, i);
        uint32_t end = 0;
        for (uint32_t j = 0; j < kernel->param_count; j++) {
            MUST(kernel->param[j].offset >= end);
            MUST(kernel->param[j].size > 0);
            end = kernel->param[j].offset + kernel->param[j].size;
        }
        MUST(kernel->param_bytes == end);
        MUST(end <= OV_IMAGE_PARAM_BYTES_MAX);
        MUST(ov_image_find(image, kernel->name) == kernel);
    }
}

START_TEST(every_byte_flipped)
{
    static const uint8_t masks[] = {0x01, 0x80, 0xff};
    struct blob blob = load_fixture(fixtures[_i].file);
    struct edge edge = edge_make(blob.bytes);
    uint8_t *copy = edge.end - blob.bytes;

    memcpy(copy, blob.data, blob.bytes);
    for (size_t at = 0; at < blob.bytes; at++) {
        const uint8_t mask = masks[at % COUNT(masks)];
        int error = -1;
        copy[at] ^= mask;
        struct ov_image *image = ov_image_parse(copy, blob.bytes, &error);
        MUST((image == NULL) == (error != OV_IMAGE_OK));
        assert_sane(image);
        ov_image_free(image);
        copy[at] ^= mask;
    }
    munmap(edge.start, edge.mapped_bytes);
    blob_free(&blob);
}
END_TEST

START_TEST(section_count_in_section_0)
{
    struct cubin_function function[] = {function_of("a", 4), function_of("b", 8)};
    struct blob blob = cubin_of(function, 2, true);
    int error = -1;
    struct ov_image *image = ov_image_parse(blob.data, blob.bytes, &error);

    ck_assert_int_eq(error, OV_IMAGE_OK);
    ck_assert_uint_eq(ov_image_count(image), 2);
    ck_assert_uint_eq(ov_image_find(image, "a")->param_bytes, 12);
    ck_assert_uint_eq(ov_image_find(image, "b")->param_bytes, 16);
    ov_image_free(image);
    blob_free(&blob);
}
END_TEST

START_TEST(only_entry_functions_are_kernels)
{
    struct cubin_function function[] = {function_of("kernel", 4),
                                        function_of("device_function", 4),
                                        function_of("$__internal_0_$__cuda_sm20_div", 4),
                                        function_of("mercury", 4),
                                        {"no_records", 1, {NULL, 0}, NULL}};
    function[1].is_entry = function[2].is_entry = 0;
    function[3].section = ".nv.merc.nv.info.mercury";
    struct blob blob = cubin_of(function, COUNT(function), false);
    struct ov_image *image = ov_image_parse(blob.data, blob.bytes, NULL);

    ck_assert_uint_eq(ov_image_count(image), 1);
    ck_assert_ptr_nonnull(ov_image_find(image, "kernel"));
    ov_image_free(image);
    blob_free(&blob);
}
END_TEST

START_TEST(duplicate_kernels)
{
    struct cubin_function function[] = {function_of("same", 4), function_of("differs", 4), function_of("other", 8),
                                        function_of("same", 4), function_of("differs", 8), function_of("odd", 4),
                                        function_of("odd", 4)};
    put_record(&function[6].records, 9, 9, 9, NULL);
    struct blob blob = cubin_of(function, COUNT(function), false);
    struct ov_image *image = ov_image_parse(blob.data, blob.bytes, NULL);

    ck_assert_uint_eq(ov_image_count(image), 2);
    ck_assert_str_eq(ov_image_kernel(image, 0)->name, "other");
    ck_assert_str_eq(ov_image_kernel(image, 1)->name, "same");
    ck_assert_ptr_null(ov_image_kernel(image, 2));
    ov_image_free(image);
    blob_free(&blob);
}
END_TEST

START_TEST(image_of_doubtful_kernels_only)
{
    struct cubin_function function[] = {function_of("odd", 4)};
    int error = -1;

    put_record(&function[0].records, 9, 9, 9, NULL);
    struct blob blob = cubin_of(function, 1, false);
    ck_assert_ptr_null(ov_image_parse(blob.data, blob.bytes, &error));
    ck_assert_int_eq(error, OV_IMAGE_NO_KERNELS);
    blob_free(&blob);
}
END_TEST

START_TEST(name_that_does_not_end)
{
    struct cubin_function function[] = {function_of("k", 4)};
    struct blob blob = cubin_of(function, 1, false);
    Elf64_Ehdr header;
    int error = -1;

    memcpy(&header, blob.data, sizeof header);
    blob.data[header.e_shoff - 1] = 'x'; /* the NUL that ends the last string of the symbols' names */
    ck_assert_ptr_null(ov_image_parse(blob.data, blob.bytes, &error));
    ck_assert_int_eq(error, OV_IMAGE_MALFORMED);
    blob_free(&blob);
}
END_TEST

START_TEST(lengths_that_wrap_around)
{
    static const uint8_t memory[64];
    struct ov_view closed = ov_view_make(memory, sizeof memory), open = ov_view_make(memory, SIZE_MAX);

    ck_assert(ov_view_need(&closed, 0, 64) && ov_view_need(&closed, 64, 0) && ov_view_need(&closed, 60, 4));
    ck_assert(!ov_view_need(&closed, 60, 5) && !ov_view_need(&closed, 65, 0));
    ck_assert(!ov_view_need(&closed, 8, UINT64_MAX) && !ov_view_need(&closed, UINT64_MAX, 8));
    ck_assert(ov_view_need(&open, 0, 64));
    ck_assert(!ov_view_need(&open, 8, UINT64_MAX) && !ov_view_need(&open, UINT64_MAX, 8));
    ck_assert(!ov_view_need(&open, 8, UINT64_MAX - 8) && !ov_view_need(&open, 0, UINT64_MAX - (uintptr_t)memory));
}
END_TEST

START_TEST(not_cuda_code)
{
    struct blob blob = blob_load("/proc/self/exe");
    int error = -1;

    ck_assert_ptr_null(ov_image_parse(blob.data, blob.bytes, &error));
    ck_assert_int_eq(error, OV_IMAGE_FOREIGN);
    blob_free(&blob);
}
END_TEST

START_TEST(nothing_to_read)
{
    static const uint8_t zeros[64];
    int error = -1;

    ck_assert_ptr_null(ov_image_parse(NULL, SIZE_MAX, &error));
    ck_assert_int_eq(error, OV_IMAGE_MISSING);
    ck_assert_ptr_null(ov_image_parse(zeros, 0, &error));
    ck_assert_int_eq(error, OV_IMAGE_TRUNCATED);
    ck_assert_ptr_null(ov_image_parse(zeros, sizeof zeros, &error));
    ck_assert_int_eq(error, OV_IMAGE_UNKNOWN);
    ck_assert_ptr_null(ov_image_parse(zeros, sizeof zeros, NULL));
    ck_assert_ptr_null(ov_image_find(NULL, "k"));
    ck_assert_uint_eq(ov_image_count(NULL), 0);
    ck_assert_ptr_null(ov_image_kernel(NULL, 0));
    ov_image_free(NULL);
}
END_TEST

START_TEST(every_code_has_its_own_words)
{
    for (int i = OV_IMAGE_OK; i <= OV_IMAGE_NO_MEMORY; i++) {
        ck_assert_str_ne(ov_image_reason(i), ov_image_reason(-1));
        for (int j = OV_IMAGE_OK; j < i; j++) {
            ck_assert_str_ne(ov_image_reason(i), ov_image_reason(j));
        }
    }
    ck_assert_str_eq(ov_image_reason(-1), ov_image_reason(OV_IMAGE_NO_MEMORY + 1));
}
END_TEST

static void *parse_many_times(void *argument)
{
    const struct blob *blob = argument;
    size_t found = 0;

    for (int i = 0; i < 200; i++) {
        struct ov_image *image = ov_image_parse(blob->data, blob->bytes, NULL);
        found += ov_image_count(image);
        ov_image_free(image);
    }
    return (void *)found;
}

START_TEST(threads_read_the_same_image)
{
    struct blob blob = load_fixture("image_wide_zstd.fatbin");
    pthread_t thread[4];

    for (size_t i = 0; i < COUNT(thread); i++) {
        ck_assert_int_eq(pthread_create(&thread[i], NULL, parse_many_times, &blob), 0);
    }
    for (size_t i = 0; i < COUNT(thread); i++) {
        void *found = NULL;
        ck_assert_int_eq(pthread_join(thread[i], &found), 0);
        ck_assert_uint_eq((size_t)found, 200 * COUNT(wide));
    }
    blob_free(&blob);
}
END_TEST

Suite *image_suite(void);
Suite *image_suite(void)
{
    const int all = (int)COUNT(fixtures);
    Suite *suite = suite_create("image");
    TCase *tcase = tcase_create("images");

    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, fixture_layouts, 0, all);
    tcase_add_loop_test(tcase, fixture_of_unknown_length, 0, all);
    tcase_add_loop_test(tcase, fixture_at_odd_address, 0, all);
    tcase_add_loop_test(tcase, truncated_at_every_length, 0, all);
    tcase_add_loop_test(tcase, truncated_at_every_length_unknown_to_the_caller, 0, all);
    tcase_add_loop_test(tcase, every_byte_flipped, 0, all);
    tcase_add_test(tcase, section_count_in_section_0);
    tcase_add_test(tcase, only_entry_functions_are_kernels);
    tcase_add_test(tcase, duplicate_kernels);
    tcase_add_test(tcase, image_of_doubtful_kernels_only);
    tcase_add_test(tcase, name_that_does_not_end);
    tcase_add_test(tcase, lengths_that_wrap_around);
    tcase_add_test(tcase, not_cuda_code);
    tcase_add_test(tcase, nothing_to_read);
    tcase_add_test(tcase, every_code_has_its_own_words);
    tcase_add_test(tcase, threads_read_the_same_image);
    suite_add_tcase(suite, tcase);
    return suite;
}
