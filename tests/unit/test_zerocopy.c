/* The table of zero-copy memory: what is found, when it goes, and how much of it is searched. */
#include <check.h>
#include <string.h>

#include "engine.h"
#include "runtime.h"
#include "zerocopy.h"

static uint64_t distance; /* of the addresses that kernels use from those of the CPU */
static CUcontext context = (CUcontext)0xc1;
static CUresult unreachable = CUDA_SUCCESS;

static CUresult current_context(CUcontext *out)
{
    *out = context;
    return CUDA_SUCCESS;
}
static CUresult current_device(CUdevice *out)
{
    *out = context == (CUcontext)0xc1 ? 0 : 1;
    return CUDA_SUCCESS;
}
static CUresult attribute(int *value, CUdevice_attribute which, CUdevice device)
{
    ck_assert_int_eq(which, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS);
    *value = device == 0;
    return CUDA_SUCCESS;
}
static CUresult device_pointer(CUdeviceptr *out, void *host, unsigned flags)
{
    ck_assert_uint_eq(flags, 0);
    *out = (CUdeviceptr)(uintptr_t)host + distance;
    return unreachable;
}

static const struct ov_driver driver = {.cuCtxGetCurrent = current_context,
                                        .cuCtxGetDevice = current_device,
                                        .cuDeviceGetAttribute = attribute,
                                        .cuMemHostGetDevicePointer_v2 = device_pointer};

#define BASE ((uint64_t)0x7f0000000000)
static void *at(uint64_t offset)
{
    return (void *)(uintptr_t)(BASE + offset);
}
static void begin(void)
{
    ov_cu = &driver;
}
static bool known(uint64_t offset)
{
    struct ov_zerocopy range;
    return ov_zerocopy_find(BASE + offset, &range);
}

START_TEST(nothing_is_found_in_an_empty_table)
{
    begin();
    ck_assert(!known(0));
    ck_assert_uint_eq(ov_zerocopy_high - ov_zerocopy_low, 1); /* no word lies between */
}
END_TEST

START_TEST(ranges_are_found_by_every_byte)
{
    struct ov_zerocopy range;
    begin();
    ov_zerocopy_added(at(0x5000), 0x1000, false);
    ov_zerocopy_added(at(0x1000), 100, true);
    ov_zerocopy_added(at(0x80000000), (size_t)5 << 20, false);
    ck_assert(!known(0xfff) && known(0x1000) && known(0x1000 + 99) && !known(0x1000 + 100));
    ck_assert(!known(0x4fff) && known(0x5000) && known(0x5fff) && !known(0x6000));
    ck_assert(known(0x80000000 + (5u << 20) - 1) && !known(0x80000000 + (5u << 20)));
    ck_assert(ov_zerocopy_find(BASE + 0x1010, &range) && range.managed && range.host == at(0x1000));
    ck_assert_uint_eq(ov_zerocopy_low, BASE + 0x1000);
    ck_assert_uint_eq(ov_zerocopy_high, BASE + 0x80000000 + (5u << 20));
}
END_TEST

START_TEST(ranges_go_and_leave_nothing)
{
    begin();
    ov_zerocopy_added(at(0), (size_t)300 << 30, false); /* more granules than the table has */
    ov_zerocopy_added(at((uint64_t)400 << 30), 4096, false);
    ov_zerocopy_removed(at(1)); /* no beginning of a range */
    ck_assert(known(1) && known((uint64_t)200 << 30));
    ov_zerocopy_removed(at(0));
    ck_assert(!known(1) && known((uint64_t)400 << 30));
    ov_zerocopy_removed(at((uint64_t)400 << 30));
    for (uint64_t granule = 0; granule < OV_ZEROCOPY_GRANULES; granule++) {
        ck_assert_uint_eq(ov_zerocopy_granule[granule], 0);
    }
    ck_assert_uint_eq(ov_zerocopy_low, UINT64_MAX);
}
END_TEST

/* The end of a range was not told, and its place is taken. */
START_TEST(a_new_range_replaces_what_it_overlaps)
{
    begin();
    ov_zerocopy_added(at(0x1000), 0x3000, false);
    ov_zerocopy_added(at(0x4000), 0x1000, false);
    ov_zerocopy_added(at(0x2000), 0x2800, false);
    ck_assert(!known(0x1000) && known(0x2000) && known(0x47ff) && !known(0x4800));
}
END_TEST

START_TEST(kernels_may_know_another_address)
{
    struct ov_zerocopy range;
    begin();
    distance = 0x100000000;
    ov_zerocopy_added(at(0x1000), 0x1000, false);
    ov_zerocopy_added(at(0x9000), 0x1000, false);
    ck_assert(!known(0x1000) && ov_zerocopy_find(BASE + distance + 0x1008, &range) && range.host == at(0x1000));
    ov_zerocopy_removed(at(0x1000)); /* the CPU's address */
    ck_assert(!known(distance + 0x1000) && known(distance + 0x9000));
}
END_TEST

START_TEST(what_no_kernel_can_reach_is_left_out)
{
    begin();
    unreachable = CUDA_ERROR_INVALID_VALUE;
    ov_zerocopy_added(at(0x1000), 0x1000, false);
    ov_zerocopy_added(at(0x3000), 0, true);
    ck_assert(!known(0x1000) && !known(0x3000));
}
END_TEST

START_TEST(ranges_go_with_their_context)
{
    begin();
    ov_zerocopy_added(at(0x1000), 0x1000, false);
    context = (CUcontext)0xc2;
    ov_zerocopy_added(at(0x3000), 0x1000, false);
    ov_zerocopy_context_closing((CUcontext)0xc1, 0);
    ck_assert(!known(0x1000) && known(0x3000));
    ov_zerocopy_context_closing(NULL, 0); /* another device's primary */
    ck_assert(known(0x3000));
    ov_zerocopy_context_closing(NULL, 1);
    ck_assert(!known(0x3000));
}
END_TEST

START_TEST(managed_memory_that_the_cpu_may_not_read)
{
    struct ov_zerocopy range;
    begin();
    context = (CUcontext)0xc2; /* on device 1, which does not allow it */
    ov_zerocopy_added(at(0x1000), 0x1000, true);
    ck_assert(ov_zerocopy_find(BASE + 0x1000, &range) && range.host == NULL);
}
END_TEST

static void window(size_t bytes, uint64_t begins, uint64_t address, uint64_t wanted, size_t wanted_bytes)
{
    const struct ov_zerocopy range = {.address = BASE + begins, .host = at(begins), .bytes = bytes};
    const char *host;
    size_t got;
    ov_zerocopy_window(&range, BASE + address, &host, &got);
    ck_assert_uint_eq((uint64_t)(uintptr_t)host, BASE + wanted);
    ck_assert_uint_eq(got, wanted_bytes);
}

START_TEST(windows)
{
    const size_t most = OV_ZEROCOPY_WINDOW;
    window(4096, 0x1000, 0x1800, 0x1000, 4096);       /* small: all of it */
    window(most, 0x1000, 0x1800, 0x1000, most);       /* just as large as that */
    window(4096, 0x1003, 0x1003, 0x1008, 4091);       /* words are aligned */
    window(3, 0x1006, 0x1006, 0x1008, 1);             /* too small to hold any */
    window(4 * most, 0x1000, 0x20000, 0x20000, most); /* large: from the address on */
    window(4 * most, 0x1000, 0x20005, 0x20000, most); /* from the word that holds it */
    window(4 * most, 0x1003, 0x1004, 0x1008, most);   /* but not from before its beginning */
    window(4 * most, 0x1000, 0x1000 + 4 * most - 64, 0x1000 + 4 * most - 64, 64); /* nor beyond its end */
}
END_TEST

Suite *zerocopy_suite(void);
Suite *zerocopy_suite(void)
{
    Suite *suite = suite_create("zerocopy");
    TCase *tcase = tcase_create("table");
    tcase_add_test(tcase, nothing_is_found_in_an_empty_table);
    tcase_add_test(tcase, ranges_are_found_by_every_byte);
    tcase_add_test(tcase, ranges_go_and_leave_nothing);
    tcase_add_test(tcase, a_new_range_replaces_what_it_overlaps);
    tcase_add_test(tcase, kernels_may_know_another_address);
    tcase_add_test(tcase, what_no_kernel_can_reach_is_left_out);
    tcase_add_test(tcase, ranges_go_with_their_context);
    tcase_add_test(tcase, managed_memory_that_the_cpu_may_not_read);
    tcase_add_test(tcase, windows);
    suite_add_tcase(suite, tcase);
    return suite;
}
