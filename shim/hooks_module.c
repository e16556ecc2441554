/*
 * hooks_module.c - modules and libraries: where kernels come from, what they are called, where module globals lie.
 */
#include "globals.h"
#include "hook.h"

#define MODULE_BODY(name, params, args, image_)      \
    CUresult ov_body_##name params                   \
    {                                                \
        const CUresult result = OV_REAL(name, args); \
        if (result == CUDA_SUCCESS) {                \
            ov_module_loaded(*module, image_);       \
        }                                            \
        return result;                               \
    }
#define LIBRARY_BODY(name, params, args, image_)     \
    CUresult ov_body_##name params                   \
    {                                                \
        const CUresult result = OV_REAL(name, args); \
        if (result == CUDA_SUCCESS) {                \
            ov_library_loaded(*library, image_);     \
        }                                            \
        return result;                               \
    }

MODULE_BODY(cuModuleLoad, (CUmodule * module, const char *path), (module, path), NULL)
MODULE_BODY(cuModuleLoadData, (CUmodule * module, const void *image), (module, image), image)
MODULE_BODY(cuModuleLoadDataEx,
            (CUmodule * module, const void *image, unsigned option_count, CUjit_option *option, void **option_value),
            (module, image, option_count, option, option_value), image)
MODULE_BODY(cuModuleLoadFatBinary, (CUmodule * module, const void *image), (module, image), image)

#define OPTION_PARAMS                                                                                \
    CUjit_option *jit_option, void **jit_value, unsigned jit_count, CUlibraryOption *library_option, \
        void **library_value, unsigned library_count
#define OPTION_ARGS jit_option, jit_value, jit_count, library_option, library_value, library_count

LIBRARY_BODY(cuLibraryLoadData, (CUlibrary * library, const void *image, OPTION_PARAMS), (library, image, OPTION_ARGS),
             image)
LIBRARY_BODY(cuLibraryLoadFromFile, (CUlibrary * library, const char *path, OPTION_PARAMS),
             (library, path, OPTION_ARGS), NULL)

CUresult ov_body_cuModuleUnload(CUmodule module)
{
    ov_globals_going(module);
    ov_module_unloading(module);
    return OV_REAL(cuModuleUnload, (module));
}

CUresult ov_body_cuLibraryUnload(CUlibrary library)
{
    ov_globals_going(library);
    ov_library_unloading(library);
    return OV_REAL(cuLibraryUnload, (library));
}

CUresult ov_body_cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    const CUresult result = OV_REAL(cuModuleGetFunction, (function, module, name));
    if (result == CUDA_SUCCESS) {
        ov_function_found(*function, module, name);
    }
    return result;
}

CUresult ov_body_cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    const CUresult result = OV_REAL(cuLibraryGetKernel, (kernel, library, name));
    if (result == CUDA_SUCCESS) {
        ov_kernel_found(*kernel, library, name);
    }
    return result;
}

/* Enumerations give no names, and leave the rest of an array that is too long as it was: so we need the functions that
 * give names and counts. A driver that can enumerate (12.4) has them. */
#define ENUMERATE_BODY(name, handle_type, owner_type, count_call, name_call, found)                              \
    CUresult ov_body_##name(handle_type *handle, unsigned room, owner_type owner)                                \
    {                                                                                                            \
        const CUresult result = OV_REAL(name, (handle, room, owner));                                            \
        unsigned count = 0;                                                                                      \
        if (result != CUDA_SUCCESS || ov_driver_table.count_call == NULL || ov_driver_table.name_call == NULL || \
            OV_REAL(count_call, (&count, owner)) != CUDA_SUCCESS) {                                              \
            return result;                                                                                       \
        }                                                                                                        \
        for (unsigned i = 0; i < count && i < room; i++) {                                                       \
            const char *symbol = NULL;                                                                           \
            if (OV_REAL(name_call, (&symbol, handle[i])) == CUDA_SUCCESS) {                                      \
                found(handle[i], owner, symbol);                                                                 \
            }                                                                                                    \
        }                                                                                                        \
        return result;                                                                                           \
    }

ENUMERATE_BODY(cuModuleEnumerateFunctions, CUfunction, CUmodule, cuModuleGetFunctionCount, cuFuncGetName,
               ov_function_found)
ENUMERATE_BODY(cuLibraryEnumerateKernels, CUkernel, CUlibrary, cuLibraryGetKernelCount, cuKernelGetName,
               ov_kernel_found)

/* Either out-parameter may be NULL; we want both. With both NULL it is the driver's to refuse. */
#define GLOBAL_BODY(name, owner_type)                                                                  \
    CUresult ov_body_##name(CUdeviceptr *address, size_t *bytes, owner_type owner, const char *symbol) \
    {                                                                                                  \
        CUdeviceptr own_address = 0;                                                                   \
        size_t own_bytes = 0;                                                                          \
        if (address == NULL && bytes == NULL) {                                                        \
            return OV_REAL(name, (address, bytes, owner, symbol));                                     \
        }                                                                                              \
        CUdeviceptr *const at = address != NULL ? address : &own_address;                              \
        size_t *const size = bytes != NULL ? bytes : &own_bytes;                                       \
        const CUresult result = OV_REAL(name, (at, size, owner, symbol));                              \
        if (result == CUDA_SUCCESS) {                                                                  \
            ov_global_found(owner, *at, *size);                                                        \
        }                                                                                              \
        return result;                                                                                 \
    }

GLOBAL_BODY(cuModuleGetGlobal_v2, CUmodule)
GLOBAL_BODY(cuLibraryGetGlobal, CUlibrary)
GLOBAL_BODY(cuLibraryGetManaged, CUlibrary)
