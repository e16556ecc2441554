/* Modules, libraries, parameter layouts, variables. */
#include "harness.h"

#include <string.h>

static void check_layout(CUmodule module, const char *name, const size_t (*expected)[2], size_t count)
{
    CUfunction function;
    size_t offset, size;
    OK(cuModuleGetFunction(&function, module, name));
    for (size_t i = 0; i < count; i++) {
        OK(cuFuncGetParamInfo(function, i, &offset, &size));
        ck_assert_uint_eq(offset, expected[i][0]);
        ck_assert_uint_eq(size, expected[i][1]);
    }
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuFuncGetParamInfo(function, count, &offset, &size));
}

static void check_layouts(CUmodule module)
{
    static const size_t mixed[][2] = {{0, 24}, {24, 8}, {32, 2}};
    static const size_t large[][2] = {{0, 4800}, {4800, 8}};
    static const size_t one[][2] = {{0, 8}};
    check_layout(module, "odd_none", NULL, 0);
    check_layout(module, "odd_mixed", mixed, 3);
    check_layout(module, "odd_large", large, 2);
    check_layout(module, "_Z12odd_templateIfEvPT_", one, 1);
}

static void check_image(const char *name)
{
    CUmodule module;
    void *image = read_fixture(name, NULL);
    OK(cuModuleLoadData(&module, image));
    memset(image, 0xff, 1 << 20); /* a module keeps nothing of the program's bytes */
    check_layouts(module);
    OK(cuModuleUnload(module));
}

START_TEST(layouts_from_every_container)
{
    static const char *const images[] = {"odd_90.cubin",    "odd_none.fatbin", "odd_speed.fatbin",
                                         "odd_size.fatbin", "odd_ptx.fatbin",  "odd.ptx"};
    start(0);
    for (size_t i = 0; i < sizeof images / sizeof *images; i++)
        check_image(images[i]);
}
END_TEST

START_TEST(wrapper_is_followed)
{
    struct {
        uint32_t magic, version;
        const void *data;
        void *more;
    } wrapper = {0x466243B1, 1, NULL, NULL};
    CUmodule module;
    start(0);
    wrapper.data = read_fixture("odd_size.fatbin", NULL);
    OK(cuModuleLoadFatBinary(&module, &wrapper));
    check_layouts(module);
}
END_TEST

START_TEST(cubin_of_another_architecture_is_refused)
{
    CUmodule module = (CUmodule)1;
    start(0);
    ANSWERS(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData(&module, read_fixture("odd_75.cubin", NULL)));
    ck_assert_ptr_eq(module, (CUmodule)1);
}
END_TEST

START_TEST(broken_images_are_refused)
{
    CUmodule module;
    start(0);
    char nonsense[256] = {1, 2, 3};
    ANSWERS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, nonsense));
    ANSWERS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, "This is no program at all."));
    ANSWERS(CUDA_ERROR_INVALID_PTX, cuModuleLoadData(&module, ".version 8.0\n.address_size 64\n"));
    ANSWERS(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad(&module, "/nonexistent/file.cubin"));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuModuleLoadData(&module, NULL));
    char *packed = read_fixture("odd_size.fatbin", NULL);
    packed[16 + 64 + 40] ^= 0x55; /* inside the compressed payload of the first entry */
    CUresult result = cuModuleLoadData(&module, packed);
    ck_assert_msg(result != CUDA_SUCCESS, "damaged payload was accepted");
}
END_TEST

START_TEST(functions_are_enumerated)
{
    CUmodule module, owner;
    CUfunction function[8] = {NULL};
    unsigned count;
    const char *name;
    start(0);
    OK(cuModuleLoadData(&module, read_fixture("odd_90.cubin", NULL)));
    OK(cuModuleGetFunctionCount(&count, module));
    ck_assert_uint_eq(count, 5);
    OK(cuModuleEnumerateFunctions(function, count, module));
    for (unsigned i = 0; i < count; i++) {
        CUfunction again;
        OK(cuFuncGetName(&name, function[i]));
        OK(cuModuleGetFunction(&again, module, name));
        ck_assert_ptr_eq(again, function[i]);
        OK(cuFuncGetModule(&owner, function[i]));
        ck_assert_ptr_eq(owner, module);
    }
    ANSWERS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function[0], module, "odd_missing"));
}
END_TEST

START_TEST(variables_have_their_initial_values)
{
    static const char *const images[] = {"odd_90.cubin", "odd.ptx"};
    start(0);
    for (size_t i = 0; i < 2; i++) {
        CUmodule module;
        CUdeviceptr address;
        size_t bytes;
        OK(cuModuleLoadData(&module, read_fixture(images[i], NULL)));
        OK(cuModuleGetGlobal(&address, &bytes, module, "odd_counter"));
        ck_assert_uint_eq(bytes, 4);
        ck_assert_uint_eq(word_at(address), 7);
        OK(cuModuleGetGlobal(&address, &bytes, module, "odd_table"));
        ck_assert_uint_eq(bytes, 512);
        ck_assert_uint_eq(word_at(address + 508), 0);
        OK(cuModuleGetGlobal(&address, &bytes, module, "odd_factors"));
        ck_assert_uint_eq(bytes, 64);
        ck_assert_uint_eq(word_at(address + 8), 3);
        ANSWERS(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal(&address, &bytes, module, "odd_missing"));
    }
}
END_TEST

START_TEST(unload_gives_memory_back)
{
    size_t before, during, after, total;
    CUmodule module;
    start(0);
    OK(cuMemGetInfo(&before, &total));
    OK(cuModuleLoadData(&module, read_fixture("odd_90.cubin", NULL)));
    OK(cuMemGetInfo(&during, &total));
    OK(cuModuleUnload(module));
    OK(cuMemGetInfo(&after, &total));
    ck_assert_uint_lt(during, before);
    ck_assert_uint_eq(after, before);
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(module));
}
END_TEST

START_TEST(attributes_come_from_the_image)
{
    CUmodule module;
    CUfunction function;
    int value;
    start(0);
    OK(cuModuleLoadData(&module, read_fixture("odd_90.cubin", NULL)));
    OK(cuModuleGetFunction(&function, module, "odd_bound"));
    OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
    ck_assert_int_eq(value, 128);
    OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, function));
    ck_assert_int_gt(value, 0);
    OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_BINARY_VERSION, function));
    ck_assert_int_eq(value, 90);
    OK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000));
    OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function));
    ck_assert_int_eq(value, 100000);
    ANSWERS(CUDA_ERROR_INVALID_VALUE,
            cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 300000));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_NUM_REGS, 1));
}
END_TEST

START_TEST(library_needs_no_context)
{
    CUlibrary library, owner;
    CUkernel kernel, kernels[8];
    CUfunction function, again;
    unsigned count;
    size_t offset, size;
    const char *name;
    OK(cuInit(0));
    OK(cuLibraryLoadData(&library, read_fixture("odd_size.fatbin", NULL), NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel, library, "odd_mixed"));
    OK(cuLibraryGetKernelCount(&count, library));
    ck_assert_uint_eq(count, 5);
    OK(cuLibraryEnumerateKernels(kernels, count, library));
    ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuKernelGetParamInfo(kernel, 1, &offset, &size));
    OK(cuKernelGetLibrary(&owner, kernel));
    ck_assert_ptr_eq(owner, library);
    OK(cuKernelGetName(&name, kernel));
    ck_assert_str_eq(name, "odd_mixed");
    ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuKernelGetFunction(&function, kernel));
    start(0);
    OK(cuKernelGetParamInfo(kernel, 1, &offset, &size));
    ck_assert_uint_eq(offset, 24);
    OK(cuKernelGetFunction(&function, kernel));
    OK(cuKernelGetFunction(&again, kernel));
    ck_assert_ptr_eq(function, again);
    OK(cuLibraryUnload(library));
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuLibraryGetKernel(&kernel, library, "odd_mixed"));
}
END_TEST

START_TEST(kernel_and_function_handles_differ)
{
    CUlibrary library;
    CUkernel kernel;
    size_t offset, size;
    start(0);
    OK(cuLibraryLoadFromFile(&library, SIM_KERNEL_IMAGES "/probe.fatbin", NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel, library, "probe_fill"));
    int value;
    const char *name;
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuFuncGetParamInfo((CUfunction)kernel, 0, &offset, &size));
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, (CUfunction)kernel));
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuFuncGetName(&name, (CUfunction)kernel));
    OK(cuKernelGetParamInfo(kernel, 2, &offset, &size));
    ck_assert_uint_eq(offset, 16);
    ck_assert_uint_eq(size, 8);
}
END_TEST

static void ask_kernel_about_function(void)
{
    size_t offset, size;
    start(0);
    cuKernelGetParamInfo((CUkernel)probe("probe_fill"), 0, &offset, &size);
}

START_TEST(kernel_param_info_of_a_function_crashes)
{
    struct outcome result = outcome(ask_kernel_about_function);
    /* a sanitizer turns the signal into an exit status of its own */
    ck_assert_msg(result.signal == 11 || result.status != 0, "it came back: %s", result.text);
    ck_assert_ptr_nonnull(strstr(result.text, "was given a CUfunction"));
}
END_TEST

START_TEST(library_variables_are_per_context)
{
    CUlibrary library;
    CUdeviceptr first, second;
    size_t bytes;
    CUcontext other;
    knob("SIM_DEVICES", "2");
    start(0);
    OK(cuLibraryLoadData(&library, read_fixture("odd_90.cubin", NULL), NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetGlobal(&first, &bytes, library, "odd_counter"));
    OK(cuDevicePrimaryCtxRetain(&other, 1));
    OK(cuCtxSetCurrent(other));
    OK(cuLibraryGetGlobal(&second, &bytes, library, "odd_counter"));
    ck_assert_uint_ne(first, second);
    ck_assert_uint_eq(word_at(second), 7);
}
END_TEST

START_TEST(kernel_without_host_code_loads_but_does_not_run)
{
    CUmodule module;
    CUfunction function;
    start(0);
    OK(cuModuleLoadData(&module, read_fixture("odd_90.cubin", NULL)));
    OK(cuModuleGetFunction(&function, module, "odd_none"));
    ANSWERS(CUDA_ERROR_NOT_SUPPORTED, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    OK(cuCtxSynchronize());
}
END_TEST

START_TEST(loading_mode_is_told)
{
    CUmoduleLoadingMode mode;
    CUfunctionLoadingState state;
    CUdeviceptr words;
    start(0);
    OK(cuModuleGetLoadingMode(&mode));
    ck_assert_int_eq(mode, CU_MODULE_LAZY_LOADING);
    OK(cuFuncIsLoaded(&state, probe("probe_fill")));
    ck_assert_int_eq(state, CU_FUNCTION_LOADING_STATE_UNLOADED);
    words = device_words(16);
    OK(fill(NULL, words, 1, 16));
    OK(cuFuncIsLoaded(&state, probe("probe_fill")));
    ck_assert_int_eq(state, CU_FUNCTION_LOADING_STATE_LOADED);
}
END_TEST

START_TEST(occupancy_is_plausible)
{
    int blocks, grid, block;
    size_t bytes;
    start(0);
    CUfunction function = probe("probe_fill");
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 256, 0));
    ck_assert_int_eq(blocks, 8);
    OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, function, NULL, 0, 0));
    ck_assert_int_eq(block, 1024);
    ck_assert_int_ge(grid, block / 1024);
    OK(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, function, 2, 128));
    ck_assert_uint_gt(bytes, 48 * 1024);
}
END_TEST

SUITE(sim_image, layouts_from_every_container, wrapper_is_followed, cubin_of_another_architecture_is_refused,
      broken_images_are_refused, functions_are_enumerated, variables_have_their_initial_values,
      unload_gives_memory_back, attributes_come_from_the_image, library_needs_no_context,
      kernel_and_function_handles_differ, kernel_param_info_of_a_function_crashes, library_variables_are_per_context,
      kernel_without_host_code_loads_but_does_not_run, loading_mode_is_told, occupancy_is_plausible)
