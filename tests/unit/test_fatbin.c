/* Fatbins: wrapper, container, entries; which entries are read, and what is said of those that cannot be. */
#include <check.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#include "image.h"
#include "image_writer.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Puts an entry list into a fatbin, parses it, frees all. */
static struct ov_image *parse_entries(struct fatbin_entry *entry, size_t count, int *error)
{
    struct blob blob = fatbin_write(entry, count);
    struct ov_image *image = ov_image_parse(blob.data, blob.bytes, error);

    blob_free(&blob);
    for (size_t i = 0; i < count; i++) {
        blob_free(&entry[i].payload);
    }
    return image;
}

static struct fatbin_entry ptx_entry(uint32_t architecture, const char *text)
{
    struct fatbin_entry entry = {.kind = 1, .architecture = architecture};

    blob_put(&entry.payload, text, strlen(text) + 1);
    return entry;
}

static struct fatbin_entry cubin_entry(uint32_t architecture, struct cubin_function function)
{
    return (struct fatbin_entry){.kind = 2, .architecture = architecture, .payload = cubin_of(&function, 1, false)};
}

struct wrapper {
    uint32_t magic, version;
    const void *container, *more;
};

static struct blob fatbin_of_one(void)
{
    struct fatbin_entry entry = cubin_entry(75, function_of("k", 4));
    struct blob blob = fatbin_write(&entry, 1);

    blob_free(&entry.payload);
    return blob;
}

START_TEST(wrapper_is_followed)
{
    struct blob blob = fatbin_of_one();
    const struct wrapper wrapper = {0x466243b1, 1, blob.data, NULL};
    int error = -1;
    struct ov_image *image = ov_image_parse(&wrapper, SIZE_MAX, &error);

    ck_assert_int_eq(error, OV_IMAGE_OK);
    ck_assert_uint_eq(ov_image_count(image), 1);
    ck_assert_uint_eq(ov_image_find(image, "k")->param_bytes, 12);
    ov_image_free(image);
    blob_free(&blob);
}
END_TEST

START_TEST(wrapper_pointing_nowhere)
{
    void *page = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const void *targets[] = {NULL, page, (void *)8, (void *)(UINTPTR_MAX - 7), (void *)(UINTPTR_MAX / 2 + 1)};

    ck_assert_int_eq(munmap(page, (size_t)sysconf(_SC_PAGESIZE)), 0);
    for (size_t i = 0; i < COUNT(targets); i++) {
        const struct wrapper wrapper = {0x466243b1, 1, targets[i], NULL};
        int error = -1;
        ck_assert_ptr_null(ov_image_parse(&wrapper, SIZE_MAX, &error));
        ck_assert_int_eq(error, targets[i] ? OV_IMAGE_TRUNCATED : OV_IMAGE_MALFORMED);
    }
}
END_TEST

START_TEST(wrapper_stays_inside_a_known_length)
{
    struct blob fatbin = fatbin_of_one(), blob = {NULL, 0};
    struct wrapper wrapper = {0x466243b1, 1, NULL, NULL};
    int error = -1;
    struct ov_image *image;

    blob_put(&blob, &wrapper, sizeof wrapper);
    blob_put(&blob, fatbin.data, fatbin.bytes);
    wrapper.container = fatbin.data; /* readable, but not part of what the caller vouches for */
    memcpy(blob.data, &wrapper, sizeof wrapper);
    ck_assert_ptr_null(ov_image_parse(blob.data, blob.bytes, &error));
    ck_assert_int_eq(error, OV_IMAGE_MALFORMED);
    wrapper.container = blob.data + sizeof wrapper;
    memcpy(blob.data, &wrapper, sizeof wrapper);
    image = ov_image_parse(blob.data, blob.bytes, &error);
    ck_assert_int_eq(error, OV_IMAGE_OK);
    ck_assert_uint_eq(ov_image_count(image), 1);
    ov_image_free(image);
    blob_free(&blob);
    blob_free(&fatbin);
}
END_TEST

START_TEST(ptx_is_read_only_where_the_driver_would_compile_it)
{
    struct fatbin_entry entry[] = {
        ptx_entry(75, ".version 8.0\n.entry old() { }"), cubin_entry(80, function_of("k", 4)),
        ptx_entry(80, ".version 8.0\n.entry equal() { }"), ptx_entry(90, ".version 8.0\n.entry newer() { }"),
        ptx_entry(100, ".version 8.0\n.entry newest() { }")};
    int error = -1;
    struct ov_image *image = parse_entries(entry, COUNT(entry), &error);

    ck_assert_int_eq(error, OV_IMAGE_OK);
    ck_assert_uint_eq(ov_image_count(image), 3);
    ck_assert_ptr_nonnull(ov_image_find(image, "k"));
    ck_assert_ptr_nonnull(ov_image_find(image, "newer"));
    ck_assert_ptr_nonnull(ov_image_find(image, "newest"));
    ov_image_free(image);
}
END_TEST

START_TEST(architectures_that_disagree)
{
    struct fatbin_entry entry[] = {cubin_entry(75, function_of("k", 4)), cubin_entry(90, function_of("k", 8))};
    int error = -1;

    ck_assert_ptr_null(parse_entries(entry, COUNT(entry), &error));
    ck_assert_int_eq(error, OV_IMAGE_NO_KERNELS);
}
END_TEST

START_TEST(damaged_entry_is_passed_over)
{
    struct fatbin_entry entry[] = {cubin_entry(75, function_of("k", 4)), cubin_entry(80, function_of("k", 8)),
                                   cubin_entry(90, function_of("k", 4))};
    int error = -1;
    struct ov_image *image;

    entry[1].payload.bytes -= 100; /* cuts the section table */
    image = parse_entries(entry, COUNT(entry), &error);
    ck_assert_int_eq(error, OV_IMAGE_OK);
    ck_assert_uint_eq(ov_image_find(image, "k")->param_bytes, 12);
    ov_image_free(image);
}
END_TEST

START_TEST(kernels_of_a_damaged_entry_are_forgotten)
{
    struct cubin_function function[] = {function_of("first", 4), function_of("second", 4)};
    struct fatbin_entry entry[] = {{.kind = 2, .architecture = 75, .payload = cubin_of(function, 2, false)},
                                   cubin_entry(80, function_of("k", 4))};
    const uint64_t outside = UINT64_MAX / 2;
    Elf64_Ehdr header;
    int error = -1;
    struct ov_image *image;

    memcpy(&header, entry[0].payload.data, sizeof header);
    memcpy(entry[0].payload.data + header.e_shoff + 2 * sizeof(Elf64_Shdr) + offsetof(Elf64_Shdr, sh_offset), &outside,
           sizeof outside); /* the records of `second` */
    image = parse_entries(entry, COUNT(entry), &error);
    ck_assert_int_eq(error, OV_IMAGE_OK);
    ck_assert_uint_eq(ov_image_count(image), 1);
    ck_assert_ptr_nonnull(ov_image_find(image, "k"));
    ov_image_free(image);
}
END_TEST

/* One entry that cannot be read, and what is said about it. */
static const struct {
    uint64_t flags;
    uint32_t compressed_bytes;
    uint64_t plain_bytes;
    int error;
} bad_entries[] = {
    {0x2000, 16, 100, OV_IMAGE_COMPRESSED}, /* no LZ4 */
    {0x8000, 16, 100, OV_IMAGE_COMPRESSED}, /* no Zstandard */
    {0xa000, 16, 100, OV_IMAGE_COMPRESSED}, /* both */
    {0, 16, 100, OV_IMAGE_COMPRESSED},      /* something newer */
    {0x2000, 17, 100, OV_IMAGE_MALFORMED},  /* longer than the payload */
    {0x8000, 0, 100, OV_IMAGE_MALFORMED},
    {0x8000, 16, 0, OV_IMAGE_MALFORMED},
    {0x8000, 16, UINT64_MAX, OV_IMAGE_TOO_LARGE},
    {0x2000, 16, (uint64_t)1 << 40, OV_IMAGE_TOO_LARGE},
    {0, 0, 0, OV_IMAGE_FOREIGN}, /* stored plain, but no ELF */
};

START_TEST(entries_that_cannot_be_read)
{
    struct fatbin_entry entry = {.kind = 2,
                                 .architecture = 75,
                                 .flags = bad_entries[_i].flags,
                                 .compressed_bytes = bad_entries[_i].compressed_bytes,
                                 .plain_bytes = bad_entries[_i].plain_bytes};
    uint8_t payload[64] = {0};
    int error = -1;

    memset(payload, 0xa5, sizeof payload);
    blob_put(&entry.payload, payload, bad_entries[_i].flags || bad_entries[_i].compressed_bytes ? 16 : sizeof payload);
    ck_assert_ptr_null(parse_entries(&entry, 1, &error));
    ck_assert_str_eq(ov_image_reason(error), ov_image_reason(bad_entries[_i].error));
}
END_TEST

START_TEST(container_padding_and_damage)
{
    struct fatbin_entry entry = cubin_entry(75, function_of("k", 4));
    struct blob blob = fatbin_write(&entry, 1);
    const uint64_t more[] = {4, 4, UINT64_MAX, UINT64_MAX - 15};
    const int expected[] = {OV_IMAGE_OK, OV_IMAGE_TRUNCATED, OV_IMAGE_TRUNCATED, OV_IMAGE_TRUNCATED};
    const size_t entries_bytes = blob.bytes - 16;

    blob_put(&blob, "\0\0\0", 4);
    for (size_t i = 0; i < COUNT(more); i++) {
        const uint64_t claimed = i < 2 ? entries_bytes + more[i] : more[i];
        int error = -1;
        memcpy(blob.data + 8, &claimed, sizeof claimed);
        blob.data[blob.bytes - 1] = i == 1; /* four bytes that are neither padding nor an entry */
        ov_image_free(ov_image_parse(blob.data, blob.bytes, &error));
        ck_assert_int_eq(error, expected[i]);
    }
    blob_free(&blob);
    blob_free(&entry.payload);
}
END_TEST

Suite *fatbin_suite(void);
Suite *fatbin_suite(void)
{
    Suite *suite = suite_create("fatbin");
    TCase *tcase = tcase_create("containers");

    tcase_add_test(tcase, wrapper_is_followed);
    tcase_add_test(tcase, wrapper_pointing_nowhere);
    tcase_add_test(tcase, wrapper_stays_inside_a_known_length);
    tcase_add_test(tcase, ptx_is_read_only_where_the_driver_would_compile_it);
    tcase_add_test(tcase, architectures_that_disagree);
    tcase_add_test(tcase, damaged_entry_is_passed_over);
    tcase_add_test(tcase, kernels_of_a_damaged_entry_are_forgotten);
    tcase_add_loop_test(tcase, entries_that_cannot_be_read, 0, (int)COUNT(bad_entries));
    tcase_add_test(tcase, container_padding_and_damage);
    suite_add_tcase(suite, tcase);
    return suite;
}
