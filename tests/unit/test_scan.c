/* The scan: every word that may be an address of the arena is found, wherever it stands in the parameters. */
#include <check.h>
#include <string.h>

#include "scan.h"
#include "zerocopy.h"

enum { ARENA_SHIFT = 40 };
static const CUdeviceptr base = (CUdeviceptr)1 << ARENA_SHIFT;

static void set_up(void)
{
    ov_arena_base = base;
    ov_arena_bytes = (size_t)1 << 33;
    ov_arena_slice_shift = 33;
}

static struct ov_touches scan(const struct ov_kernel *kernel, void **params, void **extra)
{
    struct ov_launch launch = {.params = params, .extra = extra};
    struct ov_touches touches;

    memset(&touches, 0xEE, sizeof touches);
    ov_scan(kernel, &launch, &touches);
    return touches;
}

/* (pointer, struct of 24 bytes at offset 8, unsigned at 32, pointer at 40) */
static const struct ov_word words[] = {{0, 0, 0}, {1, 0, 1}, {1, 8, 2}, {1, 16, 3}, {3, 0, 5}};
static const struct ov_kernel kernel = {.word_count = 5, .word = words, .slot_count = 6};

START_TEST(finds_addresses_in_parameters_and_inside_structures)
{
    uint64_t first = base, structure[3] = {7, base + 12345, base + ov_arena_bytes}, last = base + ov_arena_bytes - 1;
    uint32_t number = 3;
    void *params[] = {&first, structure, &number, &last};
    const struct ov_touches touches = scan(&kernel, params, NULL);

    ck_assert_uint_eq(touches.count, 3);
    ck_assert(!touches.incomplete);
    ck_assert(touches.item[0].address == base && touches.item[0].slot == 0);
    ck_assert(touches.item[1].address == base + 12345 && touches.item[1].slot == 2);
    ck_assert(touches.item[2].address == last && touches.item[2].slot == 5);
}
END_TEST

START_TEST(parameters_need_not_be_aligned)
{
    char block[64];
    uint64_t address = base + 4096, other = 0;
    uint32_t number = 0;

    memset(block, 0, sizeof block);
    memcpy(block + 3 + 8, &address, 8);
    void *params[] = {&other, block + 3, &number, &other};
    const struct ov_touches touches = scan(&kernel, params, NULL);
    ck_assert_uint_eq(touches.count, 1);
    ck_assert_uint_eq(touches.item[0].address, address);
}
END_TEST

START_TEST(neighbours_of_the_arena_are_no_touches)
{
    uint64_t below = base - 1, above = base + ov_arena_bytes, structure[3] = {0, UINT64_MAX, 1};
    uint32_t number = 0;
    void *params[] = {&below, structure, &number, &above};

    ck_assert_uint_eq(scan(&kernel, params, NULL).count, 0);
}
END_TEST

static struct ov_touches scan_one(uint64_t word)
{
    uint64_t structure[3] = {0, word, UINT64_MAX}, zero = 0;
    uint32_t number = 0;
    void *params[] = {&zero, structure, &number, &zero};
    return scan(&kernel, params, NULL);
}

/* Below and above the arena alike; what is only between two ranges is let pass. */
START_TEST(zero_copy_addresses_expose_a_launch)
{
    const uint64_t low = (uint64_t)1 << 30, high = (uint64_t)1 << 46;
    ck_assert(!scan_one(low).exposed && !scan_one(base).exposed); /* there is no such memory yet */
    ov_zerocopy_low = low;
    ov_zerocopy_high = high + OV_PAGE_BYTES;
    ov_zerocopy_granule[(low >> OV_ZEROCOPY_SHIFT) % OV_ZEROCOPY_GRANULES] = 1;
    ov_zerocopy_granule[(high >> OV_ZEROCOPY_SHIFT) % OV_ZEROCOPY_GRANULES] = 1;
    ck_assert(scan_one(low).exposed && scan_one(low + 4095).exposed && scan_one(high).exposed);
    ck_assert(!scan_one(low - 1).exposed && !scan_one(low + OV_PAGE_BYTES).exposed);
    ck_assert(!scan_one(high + OV_PAGE_BYTES).exposed);
    ck_assert(!scan_one(base).exposed);
    ck_assert_uint_eq(scan_one(base).count, 1);
    ck_assert_uint_eq(scan_one(low).count, 0);
}
END_TEST

START_TEST(extra_is_scanned_to_its_last_whole_word)
{
    uint64_t buffer[4] = {base + 8, 1, base + 16, base + 24};
    size_t bytes = 31; /* the last word is cut */
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_END};
    struct ov_touches touches = scan(NULL, NULL, extra);

    ck_assert_uint_eq(touches.count, 2);
    ck_assert_uint_eq(touches.item[1].slot, 2);
    ck_assert(!touches.incomplete); /* the layout does not matter */
    bytes = 32;
    ck_assert_uint_eq(scan(NULL, NULL, extra).count, 3);
}
END_TEST

START_TEST(what_cannot_be_seen_is_said)
{
    uint64_t value = 0;
    void *params[] = {&value};
    void *unknown[] = {(void *)(uintptr_t)77, &value, CU_LAUNCH_PARAM_END};
    const struct ov_kernel opaque = {.opaque = true};
    struct ov_launch legacy = {.opaque = true};
    struct ov_touches touches;

    ck_assert(scan(NULL, params, NULL).incomplete);
    ck_assert(scan(&opaque, params, NULL).incomplete);
    ck_assert(scan(&kernel, NULL, unknown).incomplete);
    ov_scan(&kernel, &legacy, &touches);
    ck_assert(touches.incomplete);
    ck_assert(!scan(&kernel, NULL, NULL).incomplete); /* a kernel without parameters */
}
END_TEST

START_TEST(more_addresses_than_fit_are_said)
{
    uint64_t buffer[OV_TOUCHES + 1];
    size_t bytes = sizeof buffer;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};

    for (size_t i = 0; i < OV_TOUCHES + 1; i++) {
        buffer[i] = base + 4096 * i;
    }
    ck_assert_uint_eq(scan(NULL, NULL, extra).count, OV_TOUCHES);
    ck_assert(scan(NULL, NULL, extra).incomplete);
    bytes -= 8;
    ck_assert(!scan(NULL, NULL, extra).incomplete);
}
END_TEST

static void count_word(void *context, uint64_t word, uint32_t slot)
{
    uint64_t *sum = context;
    *sum += word * (slot + 1);
}

START_TEST(all_words_are_shown_to_discovery)
{
    uint64_t first = 1, structure[3] = {2, 3, 4}, last = 5, sum = 0;
    uint32_t number = 99;
    void *params[] = {&first, structure, &number, &last};
    const struct ov_launch launch = {.params = params};

    ov_scan_words(&kernel, &launch, count_word, &sum);
    ck_assert_uint_eq(sum, 1 * 1 + 2 * 2 + 3 * 3 + 4 * 4 + 5 * 6);
}
END_TEST

Suite *scan_suite(void);
Suite *scan_suite(void)
{
    Suite *suite = suite_create("scan");
    TCase *tcase = tcase_create("scan");

    tcase_add_checked_fixture(tcase, set_up, NULL);
    tcase_add_test(tcase, finds_addresses_in_parameters_and_inside_structures);
    tcase_add_test(tcase, parameters_need_not_be_aligned);
    tcase_add_test(tcase, neighbours_of_the_arena_are_no_touches);
    tcase_add_test(tcase, zero_copy_addresses_expose_a_launch);
    tcase_add_test(tcase, extra_is_scanned_to_its_last_whole_word);
    tcase_add_test(tcase, what_cannot_be_seen_is_said);
    tcase_add_test(tcase, more_addresses_than_fit_are_said);
    tcase_add_test(tcase, all_words_are_shown_to_discovery);
    suite_add_tcase(suite, tcase);
    return suite;
}
