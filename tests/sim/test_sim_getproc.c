/* Finding entry points: dlsym, both forms of cuGetProcAddress, versions, flags, what is missing. */
#include "harness.h"

#include <cudaTypedefs.h>
#include <dlfcn.h>
#include <string.h>

enum { LEGACY = CU_GET_PROC_ADDRESS_LEGACY_STREAM, PER_THREAD = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM };

static void *driver;
static PFN_cuGetProcAddress_v11030 get1;
static PFN_cuGetProcAddress_v12000 get2;

static void *exported(const char *name)
{
    return dlsym(driver, name);
}

static void prepare(void)
{
    union {
        void *pointer;
        PFN_cuGetProcAddress_v11030 v1;
        PFN_cuGetProcAddress_v12000 v2;
    } f;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    ck_assert_ptr_nonnull(driver);
    f.pointer = exported("cuGetProcAddress");
    get1 = f.v1;
    f.pointer = exported("cuGetProcAddress_v2");
    get2 = f.v2;
    ck_assert(get1 != NULL && get2 != NULL);
}

static void finds(const char *name, int version, cuuint64_t flags, const char *symbol)
{
    void *first = NULL, *second = NULL;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    OK(get1(name, &first, version, flags));
    OK(get2(name, &second, version, flags, &status));
    ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_SUCCESS);
    ck_assert_ptr_nonnull(exported(symbol));
    ck_assert_msg(first == exported(symbol), "%s at %d is not %s", name, version, symbol);
    ck_assert_ptr_eq(second, first);
}

static void lacks(const char *name, int version, CUdriverProcAddressQueryResult wanted)
{
    void *pointer = &pointer;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    OK(get2(name, &pointer, version, 0, &status)); /* the status alone tells */
    ck_assert_ptr_null(pointer);
    ck_assert_int_eq(status, wanted);
    ANSWERS(CUDA_ERROR_NOT_FOUND, get1(name, &pointer, version, 0));
    ck_assert_ptr_null(pointer);
}

START_TEST(version_picks_the_abi)
{
    prepare();
    finds("cuMemAlloc", 3020, 0, "cuMemAlloc_v2");
    finds("cuMemAlloc", 3010, 0, "cuMemAlloc");
    finds("cuCtxCreate", 3020, 0, "cuCtxCreate_v2");
    finds("cuCtxCreate", 11040, 0, "cuCtxCreate_v3");
    finds("cuCtxCreate", 13000, 0, "cuCtxCreate_v4");
    finds("cuStreamBeginCapture", 10000, 0, "cuStreamBeginCapture");
    finds("cuStreamBeginCapture", 10010, 0, "cuStreamBeginCapture_v2");
    finds("cuGetProcAddress", 11030, 0, "cuGetProcAddress");
    finds("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2");
    finds("cuGraphInstantiate", 11000, 0, "cuGraphInstantiate_v2");
    finds("cuGraphInstantiate", 12000, 0, "cuGraphInstantiate_v2"); /* cuda.h only renames it */
    finds("cuGraphExecUpdate", 10020, 0, "cuGraphExecUpdate");
    finds("cuGraphExecUpdate", 12000, 0, "cuGraphExecUpdate_v2");
    finds("cuLaunchKernelEx", 11060, 0, "cuLaunchKernelEx");
}
END_TEST

START_TEST(flag_picks_the_twin)
{
    prepare();
    finds("cuMemcpyHtoDAsync", 12000, LEGACY, "cuMemcpyHtoDAsync_v2");
    finds("cuMemcpyHtoDAsync", 12000, PER_THREAD, "cuMemcpyHtoDAsync_v2_ptsz");
    finds("cuMemcpyHtoD", 12000, PER_THREAD, "cuMemcpyHtoD_v2_ptds");
    finds("cuLaunchKernel", 12000, PER_THREAD, "cuLaunchKernel_ptsz");
    finds("cuStreamSynchronize", 12000, PER_THREAD, "cuStreamSynchronize_ptsz");
    finds("cuMemAlloc", 12000, PER_THREAD, "cuMemAlloc_v2"); /* has no twin */
    void *pointer = NULL;                                    /* before there were twins */
    CUdriverProcAddressQueryResult status;
    OK(get2("cuLaunchKernel", &pointer, 6000, PER_THREAD, &status));
    ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
}
END_TEST

START_TEST(exact_names_with_suffix_are_no_base_names)
{
    prepare();
    lacks("cuMemAlloc_v2", 13000, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    lacks("cuLaunchKernel_ptsz", 13000, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    lacks("cudnnCreate", 13000, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    lacks("", 13000, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
}
END_TEST

START_TEST(newer_than_asked)
{
    prepare();
    lacks("cuLaunchKernelEx", 11000, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    lacks("cuLibraryLoadData", 11080, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
}
END_TEST

START_TEST(the_sequence_of_the_runtime)
{
    /* Before cuInit: an empty name with a NULL status, then itself by both versions, then the functions by what it got.
     */
    union {
        void *pointer;
        PFN_cuGetProcAddress_v11030 v1;
        PFN_cuGetProcAddress_v12000 v2;
        PFN_cuInit_v2000 init;
    } f;
    void *pointer = NULL;
    prepare();
    OK(get2("", &pointer, 12000, 0, NULL));
    OK(get2("cuGetProcAddress", &f.pointer, 11030, 0, NULL));
    OK(f.v1("cuGetProcAddress", &f.pointer, 12000, 0));
    OK(f.v2("cuInit", &f.pointer, 2000, 0, NULL));
    ck_assert_ptr_eq(f.pointer, exported("cuInit"));
    OK(f.init(0));
}
END_TEST

START_TEST(bad_arguments)
{
    void *pointer;
    prepare();
    ANSWERS(CUDA_ERROR_INVALID_VALUE, get2(NULL, &pointer, 12000, 0, NULL));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, get2("cuInit", NULL, 12000, 0, NULL));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, get2("cuInit", &pointer, 12000, 77, NULL));
}
END_TEST

START_TEST(an_older_driver_lacks_newer_functions)
{
    int version;
    knob("SIM_DRIVER_VERSION", "12000");
    prepare();
    OK(cuDriverGetVersion(&version));
    ck_assert_int_eq(version, 12000);
    finds("cuCtxCreate", 12000, 0, "cuCtxCreate_v3");
    lacks("cuFuncGetParamInfo", 12000, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND); /* since 12.4 */
}
END_TEST

START_TEST(missing_symbols_are_not_found)
{
    knob("SIM_MISSING", "cuMemCreate,cuMemcpyHtoDAsync_v2_ptsz,cuCtxCreate_v4");
    prepare();
    lacks("cuMemCreate", 13000, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    finds("cuMemMap", 13000, 0, "cuMemMap");
    finds("cuMemcpyHtoDAsync", 13000, PER_THREAD, "cuMemcpyHtoDAsync_v2");
    finds("cuCtxCreate", 13000, 0, "cuCtxCreate_v3");
}
END_TEST

START_TEST(every_row_agrees_with_dlsym)
{
    static const struct {
        const char *base, *symbol;
        int version;
    } rows[] = {
#define SIM_PROC(base_, version_, symbol_, twin_) {base_, symbol_, version_},
#include "sim_getproc.def"
    };
    size_t found = 0;
    prepare();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *pointer = NULL;
        if (exported(rows[i].symbol) == NULL)
            continue;
        OK(get2(rows[i].base, &pointer, rows[i].version, 0, NULL));
        ck_assert_msg(pointer == exported(rows[i].symbol), "%s", rows[i].symbol);
        found++;
    }
    ck_assert_uint_gt(found, 300);
}
END_TEST

START_TEST(export_tables)
{
    const void *table = NULL;
    CUuuid id = {{'s', 'i', 'm', ' ', 'e', 'x', 'p', 'o', 'r', 't', ' ', 't', 'a', 'b', 'l', 'e'}};
    OK(cuGetExportTable(&table, &id));
    ck_assert_uint_eq(*(const uintptr_t *)table, 2 * sizeof(uintptr_t));
    id.bytes[0] = 'x';
    ANSWERS(CUDA_ERROR_NOT_FOUND, cuGetExportTable(&table, &id));
}
END_TEST

START_TEST(self_lookup_ends)
{
    knob("SIM_SELF_LOOKUP", "1");
    prepare();
    start(0);
}
END_TEST

SUITE(sim_getproc, version_picks_the_abi, flag_picks_the_twin, exact_names_with_suffix_are_no_base_names,
      newer_than_asked, the_sequence_of_the_runtime, bad_arguments, an_older_driver_lacks_newer_functions,
      missing_symbols_are_not_found, every_row_agrees_with_dlsym, export_tables, self_lookup_ends)
