/* Records of .nv.info: what must be believed, and that everything odd leaves the kernel in doubt. */
#include <check.h>

#include "image_writer.h"
#include "nvinfo.h"

static int read_records(const struct blob *records, struct ov_param **param, uint32_t *count)
{
    /* A copy of exactly this size, so that a sanitizer or valgrind sees the first byte read too many. */
    uint8_t *exact = malloc(records->bytes ? records->bytes : 1);
    int error;

    ck_assert_ptr_nonnull(exact);
    if (records->bytes) {
        memcpy(exact, records->data, records->bytes);
    }
    *param = NULL;
    *count = UINT32_MAX;
    error = ov_nvinfo_read(ov_view_make(exact, records->bytes), param, count);
    free(exact);
    return error;
}

static void assert_layout(struct blob *records, const struct ov_param *expected, uint32_t count)
{
    struct ov_param *param;
    uint32_t found;

    ck_assert_int_eq(read_records(records, &param, &found), OV_IMAGE_OK);
    ck_assert_uint_eq(found, count);
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_uint_eq(param[i].offset, expected[i].offset);
        ck_assert_uint_eq(param[i].size, expected[i].size);
    }
    free(param);
    blob_free(records);
}

static void assert_doubt(struct blob *records)
{
    struct ov_param *param;
    uint32_t found;

    ck_assert_int_eq(read_records(records, &param, &found), OV_IMAGE_MALFORMED);
    ck_assert_ptr_null(param);
    ck_assert_uint_eq(found, UINT32_MAX);
    blob_free(records);
}

/* Three parameters at 0, 8 and 16 of 8, 4 and 8 bytes, in the compiler's order: last first. */
static const struct ov_param three[] = {{0, 8}, {8, 4}, {16, 8}};

static struct blob records_of_three(void)
{
    struct blob records = {NULL, 0};

    put_kparam(&records, 2, 16, 8);
    put_kparam(&records, 1, 8, 4);
    put_kparam(&records, 0, 0, 8);
    return records;
}

START_TEST(records_in_any_order)
{
    struct blob records = {NULL, 0};

    put_cbank(&records, 0x160, 24);
    put_kparam(&records, 1, 8, 4);
    put_record(&records, 3, 0x19, 24, NULL);
    put_kparam(&records, 2, 16, 8);
    put_kparam(&records, 0, 0, 8);
    assert_layout(&records, three, 3);
}
END_TEST

START_TEST(unknown_attributes_are_stepped_over)
{
    struct blob records = {NULL, 0};
    const uint8_t payload[300] = {0x17, 0x45, 0x0a, 0x19};

    put_record(&records, 4, 0xee, sizeof payload, payload);
    put_record(&records, 1, 0x54, 0x1717, NULL);
    put_record(&records, 2, 0x4c, 0x0004, NULL);
    put_record(&records, 3, 0x1b, 0x00ff, NULL);
    put_record(&records, 4, 0x7f, 0, NULL);
    struct blob rest = records_of_three();
    blob_put(&records, rest.data, rest.bytes);
    blob_free(&rest);
    put_cbank(&records, 0x210, 24);
    assert_layout(&records, three, 3);
}
END_TEST

START_TEST(one_total_is_enough)
{
    struct blob records = records_of_three();

    put_record(&records, 3, 0x19, 24, NULL);
    assert_layout(&records, three, 3);
}
END_TEST

START_TEST(no_records_no_parameters)
{
    struct blob records = {NULL, 0};

    assert_layout(&records, NULL, 0);
    put_record(&records, 3, 0x1b, 0xff, NULL);
    assert_layout(&records, NULL, 0);
}
END_TEST

START_TEST(wide_records_hold_sizes_above_4_kib)
{
    const struct ov_param expected[] = {{0, 8}, {8, 32000}, {32008, 2}};
    struct blob records = {NULL, 0};

    put_kparam_wide(&records, 0, 0, 8);
    put_kparam_wide(&records, 1, 8, 32000);
    put_kparam_wide(&records, 2, 32008, 2);
    put_cbank(&records, 0x210, 32010);
    assert_layout(&records, expected, 3);
}
END_TEST

START_TEST(over_aligned_parameters_count_from_the_base)
{
    /* 64-byte alignment: 0x210 + 0x30 = 0x240. At base 0x200 the same gap would be no padding. */
    const struct ov_param expected[] = {{0x30, 128}, {0xb0, 8}};
    struct blob good = {NULL, 0}, bad = {NULL, 0};

    put_cbank(&good, 0x210, 0xb8);
    put_cbank(&bad, 0x200, 0xb8);
    for (int i = 0; i < 2; i++) {
        put_kparam(i ? &bad : &good, 0, 0x30, 128);
        put_kparam(i ? &bad : &good, 1, 0xb0, 8);
    }
    assert_layout(&good, expected, 2);
    assert_doubt(&bad);
}
END_TEST

START_TEST(every_truncation_is_in_doubt_or_harmless)
{
    struct blob records = records_of_three();

    put_cbank(&records, 0x160, 24);
    for (size_t bytes = 1; bytes < records.bytes; bytes++) {
        const struct blob part = {records.data, bytes};
        struct ov_param *param;
        uint32_t found;
        ck_assert_int_eq(read_records(&part, &param, &found), OV_IMAGE_MALFORMED);
    }
    blob_free(&records);
}
END_TEST

START_TEST(totals_must_exist_and_agree)
{
    struct blob none = records_of_three(), low = records_of_three(), high = records_of_three(),
                differ = records_of_three();

    put_cbank(&low, 0x160, 20);
    put_cbank(&high, 0x160, 32);
    put_record(&differ, 3, 0x19, 20, NULL);
    put_cbank(&differ, 0x160, 24); /* the right one, but who says so? */
    assert_doubt(&none);
    assert_doubt(&low);
    assert_doubt(&high);
    assert_doubt(&differ);
}
END_TEST

START_TEST(total_without_parameters_is_in_doubt)
{
    struct blob records = {NULL, 0};

    put_record(&records, 3, 0x19, 8, NULL);
    assert_doubt(&records);
}
END_TEST

/* One odd record before otherwise good ones. The rows are what parsers in the field stumbled over, or would. */
static const struct {
    uint8_t format, attribute;
    uint16_t value;
    uint32_t payload[4];
} odd[] = {
    {0, 0x17, 12, {0}}, /* formats that do not exist: their length is unknown */
    {5, 0x50, 0, {0}},
    {255, 255, 65535, {0}},
    {3, 0x17, 12, {0}}, /* a parameter without payload */
    {1, 0x45, 0, {0}},
    {4, 0x17, 8, {0, 0, 8u << 18}}, /* payload too short, too long */
    {4, 0x17, 16, {0, 0, 8u << 18}},
    {4, 0x45, 0, {0}},
    {4, 0x17, 12, {0, 1, 8u << 18}}, /* ordinal given twice */
    {4, 0x17, 12, {0, 7, 8u << 18}}, /* ordinal beyond the last */
    {4, 0x17, 12, {0, 0xffff, 8u << 18}},
    {4, 0x17, 12, {0, 3, 0}},                    /* empty parameter */
    {4, 0x17, 12, {0, 20u << 16 | 3, 8u << 18}}, /* overlaps its neighbour */
    {4, 0x17, 12, {0, 28u << 16 | 3, 8u << 18}}, /* beyond the total */
    {4, 0x45, 12, {0, 24u << 16 | 3, 0xffffff}}, /* larger than any block */
    {4, 0x0a, 4, {0}},                           /* bank record of another length */
    {2, 0x0a, 24, {0}},
    {4, 0x19, 4, {24}}, /* total in another format */
    {2, 0x19, 24, {0}},
};

START_TEST(odd_records_leave_doubt)
{
    struct blob records = {NULL, 0};
    struct blob rest = records_of_three();

    put_record(&records, odd[_i].format, odd[_i].attribute, odd[_i].value, odd[_i].payload);
    blob_put(&records, rest.data, rest.bytes);
    put_cbank(&records, 0x160, 24);
    blob_free(&rest);
    assert_doubt(&records);
}
END_TEST

START_TEST(payload_longer_than_the_section)
{
    struct blob records = records_of_three();
    const uint8_t header[4] = {4, 0x99, 0xff, 0xff};

    put_cbank(&records, 0x160, 24);
    blob_put(&records, header, sizeof header);
    assert_doubt(&records);
}
END_TEST

START_TEST(gaps_must_be_padding)
{
    struct blob records = {NULL, 0};

    put_kparam(&records, 0, 0, 4);
    put_kparam(&records, 1, 12, 4); /* 12 is aligned to 4; 8 unused bytes are not padding */
    put_cbank(&records, 0x160, 16);
    assert_doubt(&records);
}
END_TEST

Suite *nvinfo_suite(void);
Suite *nvinfo_suite(void)
{
    Suite *suite = suite_create("nvinfo");
    TCase *tcase = tcase_create("records");

    tcase_add_test(tcase, records_in_any_order);
    tcase_add_test(tcase, unknown_attributes_are_stepped_over);
    tcase_add_test(tcase, one_total_is_enough);
    tcase_add_test(tcase, no_records_no_parameters);
    tcase_add_test(tcase, wide_records_hold_sizes_above_4_kib);
    tcase_add_test(tcase, over_aligned_parameters_count_from_the_base);
    tcase_add_test(tcase, every_truncation_is_in_doubt_or_harmless);
    tcase_add_test(tcase, totals_must_exist_and_agree);
    tcase_add_test(tcase, total_without_parameters_is_in_doubt);
    tcase_add_loop_test(tcase, odd_records_leave_doubt, 0, (int)(sizeof odd / sizeof odd[0]));
    tcase_add_test(tcase, payload_longer_than_the_section);
    tcase_add_test(tcase, gaps_must_be_padding);
    suite_add_tcase(suite, tcase);
    return suite;
}
