/* Proves: ELF binding, dlsym, and both forms of cuGetProcAddress give the same wrapper; old ABIs stay the driver's; the
 * driver's choice of version and twin is kept. */
#include "interpose.h"
#include "rows.h"

static const struct {
    const char *name;
    void *bound;
} hooks[] = {
#define OV_HOOK(name, need, params, args) {#name, (void *)elf_##name},
#define OV_CALL(name, need, params)
#include "../../shim/driver_api.def"
#undef OV_HOOK
#undef OV_CALL
};
static const size_t hook_count = sizeof hooks / sizeof hooks[0];

static const char *const calls[] = {
#define OV_HOOK(name, need, params, args)
#define OV_CALL(name, need, params) #name,
#include "../../shim/driver_api.def"
#undef OV_HOOK
#undef OV_CALL
};

static void *wrapper_named(const char *name)
{
    for (size_t i = 0; i < hook_count; i++) {
        if (strcmp(hooks[i].name, name) == 0) {
            return hooks[i].bound;
        }
    }
    return NULL;
}

static void every_row(void)
{
    void *driver = load_driver(), *program = dlopen(NULL, RTLD_NOW);
    CHECK(hook_count > 150);
    for (size_t i = 0; i < hook_count; i++) {
        CHECK(is_wrapper(hooks[i].bound));
        CHECK(dlsym(driver, hooks[i].name) == hooks[i].bound);
        CHECK(dlsym(program, hooks[i].name) == hooks[i].bound);
        CHECK(dlsym(RTLD_DEFAULT, hooks[i].name) == hooks[i].bound);
        CHECK(dlsym(RTLD_NEXT, hooks[i].name) == hooks[i].bound);
    }
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        CHECK(is_driver(dlsym(driver, calls[i])));
    }
}

/* Base name, version, flags -> the function that it must be. */
static const struct {
    const char *base;
    int version;
    cuuint64_t flags;
    const char *symbol;
} chosen[] = {
    {"cuMemAlloc", 3020, 0, "cuMemAlloc_v2"},
    {"cuMemAlloc", 12000, 2, "cuMemAlloc_v2"},
    {"cuMemcpy", 12000, 1, "cuMemcpy"},
    {"cuMemcpy", 12000, 2, "cuMemcpy_ptds"},
    {"cuMemcpyAsync", 12000, 2, "cuMemcpyAsync_ptsz"},
    {"cuMemcpyHtoD", 12000, 0, "cuMemcpyHtoD_v2"},
    {"cuMemcpyHtoD", 12000, 2, "cuMemcpyHtoD_v2_ptds"},
    {"cuLaunchKernel", 12000, 0, "cuLaunchKernel"},
    {"cuLaunchKernel", 12000, 2, "cuLaunchKernel_ptsz"},
    {"cuLaunchKernelEx", 12000, 2, "cuLaunchKernelEx_ptsz"},
    {"cuStreamBeginCapture", 10000, 0, "cuStreamBeginCapture"},
    {"cuStreamBeginCapture", 12000, 0, "cuStreamBeginCapture_v2"},
    {"cuGraphExecUpdate", 11000, 0, "cuGraphExecUpdate"},
    {"cuGraphExecUpdate", 12000, 0, "cuGraphExecUpdate_v2"},
    {"cuMemcpyBatchAsync", 12080, 2, "cuMemcpyBatchAsync_ptsz"},
    {"cuMemcpyBatchAsync", 13000, 0, "cuMemcpyBatchAsync_v2"},
    {"cuCtxSynchronize", 12000, 0, "cuCtxSynchronize"},
    {"cuCtxSynchronize", 13000, 0, "cuCtxSynchronize_v2"},
    {"cuDevicePrimaryCtxRelease", 12000, 0, "cuDevicePrimaryCtxRelease_v2"},
    {"cuGetProcAddress", 11030, 0, "cuGetProcAddress"},
    {"cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"},
};

static void proc_address_v2(void)
{
    for (size_t i = 0; i < sizeof chosen / sizeof chosen[0]; i++) {
        void *found = NULL;
        CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
        CHECK(elf_cuGetProcAddress_v2(chosen[i].base, &found, chosen[i].version, chosen[i].flags, &status) == 0);
        CHECK(status == CU_GET_PROC_ADDRESS_SUCCESS);
        CHECK(found == wrapper_named(chosen[i].symbol));
    }
}

static void proc_address_v1(void)
{
    for (size_t i = 0; i < sizeof chosen / sizeof chosen[0]; i++) {
        void *found = NULL;
        CHECK(elf_cuGetProcAddress(chosen[i].base, &found, chosen[i].version, chosen[i].flags) == 0);
        CHECK(found == wrapper_named(chosen[i].symbol));
    }
}

/* FACTS: the runtime library looks for an empty name without a status first, then for the function itself, twice. */
static void runtime_library_sequence(void)
{
    CUresult (*v2)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *) =
        (CUresult(*)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *))dlsym(
            load_driver(), "cuGetProcAddress_v2");
    CUresult (*v1)(const char *, void **, int, cuuint64_t);
    void *found = (void *)0x1234;
    CHECK(v2("", &found, 2000, 0, NULL) == CUDA_ERROR_NOT_FOUND && found == (void *)0x1234);
    CHECK(v2("cuGetProcAddress", (void **)&v1, 11030, 0, NULL) == 0);
    CHECK((void *)v1 == wrapper_named("cuGetProcAddress"));
    CHECK(v2("cuGetProcAddress", (void **)&v2, 12000, 0, NULL) == 0);
    CHECK((void *)v2 == wrapper_named("cuGetProcAddress_v2"));
    /* What they gave is asked again (nvshare#11). */
    CHECK(v1("cuMemAlloc", &found, 11030, 0) == 0 && found == wrapper_named("cuMemAlloc_v2"));
    CHECK(v2("cuMemAlloc", &found, 12000, 2, NULL) == 0 && found == wrapper_named("cuMemAlloc_v2"));
    CHECK(v2("cuInit", &found, 12000, 0, NULL) == 0 && is_driver(found));
    CHECK(is_driver(dlsym(load_driver(), "cuGetExportTable")));
}

/* snapshot#326, HAMi-core#233: base names are another ABI. */
static void old_names(void)
{
    static const char *const names[] = {"cuMemAlloc",   "cuMemFree",        "cuMemGetInfo",
                                        "cuMemcpyHtoD", "cuMemcpyDtoH",     "cuMemGetAddressRange",
                                        "cuMemsetD8",   "cuModuleGetGlobal"};
    void *driver = load_driver(), *found = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        CHECK(is_driver(dlsym(driver, names[i])));
        CHECK(dlsym(RTLD_DEFAULT, names[i]) == dlsym(driver, names[i]));
    }
    CHECK(elf_cuGetProcAddress_v2("cuMemAlloc", &found, 2000, 0, NULL) == 0);
    CHECK(found == dlsym(driver, "cuMemAlloc"));
    CHECK(elf_cuGetProcAddress_v2("cuMemcpyHtoD", &found, 3000, 0, NULL) == 0);
    CHECK(found == dlsym(driver, "cuMemcpyHtoD"));
}

/* A failed look-up leaves everything as it was. */
static void failed_proc_address(void)
{
    void *found = (void *)0x1234;
    CUdriverProcAddressQueryResult status = 77;
    CHECK(elf_cuGetProcAddress_v2("cuNoSuchThing", &found, 12000, 0, NULL) == CUDA_ERROR_NOT_FOUND);
    CHECK(elf_cuGetProcAddress("cuNoSuchThing", &found, 12000, 0) == CUDA_ERROR_NOT_FOUND);
    CHECK(found == (void *)0x1234);
    setenv("FAKE_FAIL", "*:999", 1);
    CHECK(elf_cuGetProcAddress_v2("cuMemAlloc", &found, 12000, 0, &status) == CUDA_ERROR_UNKNOWN);
    CHECK(elf_cuGetProcAddress("cuMemAlloc", &found, 12000, 0) == CUDA_ERROR_UNKNOWN);
    CHECK(found == (void *)0x1234 && status == (CUdriverProcAddressQueryResult)77);
}

/* With an inert engine the driver's own functions are given, and linked calls reach them. */
static void inert(void)
{
    void *found = NULL;
    CUdeviceptr address;
    CHECK(elf_cuMemAlloc_v2(&address, 5) == CUDA_SUCCESS);
    CHECK(elf_cuGetProcAddress_v2("cuMemAlloc", &found, 12000, 0, NULL) == 0 && is_driver(found));
    CHECK(dlsym(load_driver(), "cuMemAlloc_v2") == found);
    EXPECT("attach missing=none inside=1", "driver cuMemAlloc_v2", "driver cuGetProcAddress_v2");
}

TEST_CASES(CASE(every_row), CASE(proc_address_v1), CASE(proc_address_v2), CASE(runtime_library_sequence),
           CASE(old_names), CASE(failed_proc_address), CASE(inert))
