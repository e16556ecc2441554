/* The registry of kernels, in front of a driver of a few functions: layouts, kinds of handles, handles used again. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "engine.h"
#include "kernel.h"
#include "runtime.h"

/* What the driver says of every handle: parameters of these sizes, each at the next multiple of 8. */
static size_t sizes[8];
static size_t size_count;
static CUresult trouble;
static _Atomic unsigned asked_functions, asked_kernels;
static CUmodule module_of_all;

static CUresult tell(size_t index, size_t *offset, size_t *bytes)
{
    if (trouble != CUDA_SUCCESS) {
        return trouble;
    }
    if (index >= size_count) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *offset = 0;
    for (size_t i = 0; i < index; i++) {
        *offset += (sizes[i] + 7) / 8 * 8;
    }
    *bytes = sizes[index];
    return CUDA_SUCCESS;
}

static CUresult function_info(CUfunction function, size_t index, size_t *offset, size_t *bytes)
{
    (void)function;
    atomic_fetch_add(&asked_functions, 1);
    return tell(index, offset, bytes);
}

static CUresult kernel_info(CUkernel kernel, size_t index, size_t *offset, size_t *bytes)
{
    (void)kernel;
    atomic_fetch_add(&asked_kernels, 1);
    return tell(index, offset, bytes);
}

static CUresult function_module(CUmodule *module, CUfunction function)
{
    (void)function;
    *module = module_of_all;
    return module_of_all != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult function_name(const char **name, CUfunction function)
{
    (void)function;
    *name = "some_kernel";
    return CUDA_SUCCESS;
}

static struct ov_driver driver;

static void *handle_at(uintptr_t number)
{
    return (void *)(number << 8);
}

static CUfunction function_at(uintptr_t number)
{
    return handle_at(number);
}

static void set_up(void)
{
    memset(&driver, 0, sizeof driver);
    driver.cuFuncGetParamInfo = function_info;
    driver.cuKernelGetParamInfo = kernel_info;
    driver.cuFuncGetModule = function_module;
    driver.cuFuncGetName = function_name;
    ov_cu = &driver;
    trouble = CUDA_SUCCESS;
    module_of_all = handle_at(900);
    sizes[0] = 8;
    sizes[1] = 20;
    sizes[2] = 4;
    sizes[3] = 8;
    size_count = 4;
}

START_TEST(words_lie_whole_inside_parameters)
{
    const struct ov_kernel *kernel = ov_kernel_of(function_at(1));

    ck_assert_ptr_nonnull(kernel);
    ck_assert(!kernel->opaque);
    ck_assert_uint_eq(kernel->word_count, 4); /* 1 + 2 (the third is cut) + 0 + 1 */
    ck_assert(kernel->word[2].param == 1 && kernel->word[2].offset == 8 && kernel->word[2].slot == 2);
    ck_assert(kernel->word[3].param == 3 && kernel->word[3].offset == 0 && kernel->word[3].slot == 5);
    ck_assert_uint_eq(kernel->slot_count, 6);
    ck_assert_str_eq(kernel->name, "some_kernel");
    ck_assert_ptr_eq(kernel, ov_kernel_of(function_at(1)));
}
END_TEST

START_TEST(slots_keep_what_was_learned)
{
    struct ov_kernel *kernel = ov_kernel_of(function_at(2));

    ck_assert_int_eq(ov_slot(kernel, 5), OV_SLOT_UNKNOWN);
    ov_slot_set(kernel, 5, OV_SLOT_READER);
    ov_slot_set(kernel, 6000, OV_SLOT_WRITER); /* outside: nothing happens */
    ck_assert_int_eq(ov_slot(kernel, 5), OV_SLOT_READER);
    ck_assert_int_eq(ov_slot(kernel, 6000), OV_SLOT_UNKNOWN);
    ck_assert_int_eq(ov_slot(ov_kernel_of(function_at(3)), 5), OV_SLOT_UNKNOWN);
}
END_TEST

/* Asking cuKernelGetParamInfo about a CUfunction crashes, and the other way round. */
START_TEST(each_kind_of_handle_is_asked_with_its_own_function)
{
    ov_kernel_found(handle_at(11), handle_at(800), "library_kernel");
    atomic_store(&asked_functions, 0);
    atomic_store(&asked_kernels, 0);
    const struct ov_kernel *kernel = ov_kernel_of(function_at(11));
    ck_assert_uint_eq(atomic_load(&asked_functions), 0);
    ck_assert_uint_gt(atomic_load(&asked_kernels), 0);
    ck_assert_str_eq(kernel->name, "library_kernel");

    ov_function_found(function_at(12), handle_at(801), "module_kernel");
    atomic_store(&asked_kernels, 0);
    kernel = ov_kernel_of(function_at(12));
    ck_assert_uint_eq(atomic_load(&asked_kernels), 0);
    ck_assert_str_eq(kernel->name, "module_kernel");
}
END_TEST

START_TEST(without_a_layout_a_kernel_is_opaque)
{
    trouble = CUDA_ERROR_UNKNOWN;
    ck_assert(ov_kernel_of(function_at(21))->opaque);
    trouble = CUDA_SUCCESS;
    driver.cuFuncGetParamInfo = NULL;
    ck_assert(ov_kernel_of(function_at(22))->opaque);
    ck_assert_uint_gt(ov_kernel_of(function_at(22))->slot_count, 100);
}
END_TEST

START_TEST(a_kernel_without_parameters_is_not_opaque)
{
    size_count = 0;
    const struct ov_kernel *kernel = ov_kernel_of(function_at(23));
    ck_assert(!kernel->opaque);
    ck_assert_uint_eq(kernel->word_count, 0);
}
END_TEST

START_TEST(a_handle_used_again_is_another_kernel)
{
    ov_function_found(function_at(31), handle_at(810), "first");
    struct ov_kernel *first = ov_kernel_of(function_at(31));
    struct ov_kernel *other = ov_kernel_of(function_at(32)); /* of module_of_all */
    ov_slot_set(first, 0, OV_SLOT_READER);
    ov_module_unloading(handle_at(810));
    size_count = 1;
    ov_function_found(function_at(31), handle_at(811), "second");
    struct ov_kernel *second = ov_kernel_of(function_at(31));
    ck_assert_ptr_ne(first, second);
    ck_assert_str_eq(second->name, "second");
    ck_assert_int_eq(ov_slot(second, 0), OV_SLOT_UNKNOWN);
    ck_assert_uint_eq(second->word_count, 1);
    ck_assert_ptr_eq(other, ov_kernel_of(function_at(32)));
}
END_TEST

START_TEST(kernels_of_unknown_owner_go_with_any_module)
{
    module_of_all = NULL;
    const struct ov_kernel *kernel = ov_kernel_of(function_at(41));
    ov_library_unloading(handle_at(820));
    ck_assert_ptr_ne(kernel, ov_kernel_of(function_at(41)));
}
END_TEST

/* Layouts come from the image when the driver is too old to tell them. */
START_TEST(old_driver_layouts_from_the_image)
{
    static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                              ".visible .entry mul(.param .u64 a, .param .u32 n, .param .u64 b)\n{\nret;\n}\n";
    driver.cuFuncGetParamInfo = NULL;
    driver.cuKernelGetParamInfo = NULL;
    ov_module_loaded(handle_at(830), ptx);
    ov_function_found(function_at(51), handle_at(830), "mul");
    ov_function_found(function_at(52), handle_at(830), "not_there");
    const struct ov_kernel *kernel = ov_kernel_of(function_at(51));
    ck_assert(!kernel->opaque);
    ck_assert_uint_eq(kernel->word_count, 2);
    ck_assert(kernel->word[1].param == 2 && kernel->word[1].slot == 2);
    ck_assert(ov_kernel_of(function_at(52))->opaque);
    ov_module_unloading(handle_at(830));
    ck_assert(ov_kernel_of(function_at(51))->opaque); /* the image is gone */
}
END_TEST

enum { THREADS = 4, HANDLES = 500 };
static struct ov_kernel *found[THREADS][HANDLES];

static void *look_up(void *argument)
{
    struct ov_kernel **mine = argument;
    for (uintptr_t i = 0; i < HANDLES; i++) {
        mine[i] = ov_kernel_of(function_at(10000 + i));
    }
    return NULL;
}

START_TEST(threads_agree_on_kernels)
{
    pthread_t thread[THREADS];

    for (int t = 0; t < THREADS; t++) {
        ck_assert_int_eq(pthread_create(&thread[t], NULL, look_up, found[t]), 0);
    }
    for (int t = 0; t < THREADS; t++) {
        pthread_join(thread[t], NULL);
    }
    for (int i = 0; i < HANDLES; i++) {
        ck_assert_ptr_nonnull(found[0][i]);
        for (int t = 1; t < THREADS; t++) {
            ck_assert_ptr_eq(found[0][i], found[t][i]);
        }
        ck_assert(i == 0 || found[0][i] != found[0][i - 1]);
    }
}
END_TEST

Suite *kernel_suite(void);
Suite *kernel_suite(void)
{
    Suite *suite = suite_create("kernel");
    TCase *tcase = tcase_create("registry");

    tcase_add_checked_fixture(tcase, set_up, NULL);
    tcase_add_test(tcase, words_lie_whole_inside_parameters);
    tcase_add_test(tcase, slots_keep_what_was_learned);
    tcase_add_test(tcase, each_kind_of_handle_is_asked_with_its_own_function);
    tcase_add_test(tcase, without_a_layout_a_kernel_is_opaque);
    tcase_add_test(tcase, a_kernel_without_parameters_is_not_opaque);
    tcase_add_test(tcase, a_handle_used_again_is_another_kernel);
    tcase_add_test(tcase, kernels_of_unknown_owner_go_with_any_module);
    tcase_add_test(tcase, old_driver_layouts_from_the_image);
    tcase_add_test(tcase, threads_agree_on_kernels);
    suite_add_tcase(suite, tcase);
    return suite;
}
