/* Libraries: images without a context, and their kernels. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "sim_program.h"

static CUresult library_get(CUlibrary handle, struct sim_library **out)
{
    if (!sim_handle_is(handle, SIM_IS_LIBRARY))
        return CUDA_ERROR_INVALID_HANDLE;
    *out = (struct sim_library *)handle;
    return CUDA_SUCCESS;
}

static CUresult kern_get(CUkernel handle, struct sim_kern **out)
{
    if (!sim_handle_is(handle, SIM_IS_KERNEL))
        return CUDA_ERROR_INVALID_HANDLE;
    *out = (struct sim_kern *)handle;
    return CUDA_SUCCESS;
}

CUresult sim_library_module(struct sim_library *library, struct sim_context *context, struct sim_module **out)
{
    for (struct sim_module *module = library->modules; module != NULL; module = module->next_of_library) {
        if (module->context == context) {
            *out = module;
            return CUDA_SUCCESS;
        }
    }
    return sim_module_make(context, library->image, library, out);
}

static CUresult kern_func(struct sim_kern *kern, struct sim_context *context, struct sim_func **out)
{
    struct sim_module *module;
    SIM_TRY(sim_library_module(kern->library, context, &module));
    *out = &module->func[kern - kern->library->kern];
    return CUDA_SUCCESS;
}

CUresult sim_func_get(CUfunction handle, struct sim_context *context, struct sim_func **out)
{
    if (sim_handle_is(handle, SIM_IS_KERNEL))
        return context != NULL ? kern_func((struct sim_kern *)handle, context, out) : CUDA_ERROR_INVALID_CONTEXT;
    if (!sim_handle_is(handle, SIM_IS_FUNCTION))
        return CUDA_ERROR_INVALID_HANDLE;
    *out = (struct sim_func *)handle;
    return CUDA_SUCCESS;
}

/* A library may be loaded without a context: then for the first device. */
static CUresult load(struct sim_call *call, CUlibrary *out, const void *data)
{
    if (out == NULL || data == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    int error = CUDA_SUCCESS;
    struct sim_device *device = call->context != NULL ? call->context->device : &sim_devices[0];
    struct sim_image *image = sim_image_parse(data, sim_capability(device), &error);
    if (image == NULL)
        return (CUresult)error;
    struct sim_library *library = calloc(1, sizeof *library);
    struct sim_kern *kern = calloc(image->kernel_count + 1, sizeof *kern);
    if (library == NULL || kern == NULL) {
        free(library);
        free(kern);
        sim_image_free(image);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *library = (struct sim_library){.image = image, .kern = kern};
    for (size_t i = 0; i < image->kernel_count; i++) {
        kern[i] = (struct sim_kern){library, &image->kernel[i], sim_intern(image->kernel[i].name)};
        sim_handle_add(&kern[i], SIM_IS_KERNEL);
    }
    sim_handle_add(library, SIM_IS_LIBRARY);
    *out = (CUlibrary)library;
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuLibraryLoadData,
        (CUlibrary * library, const void *code, CUjit_option *jitOptions, void **jitOptionsValues,
         unsigned int numJitOptions, CUlibraryOption *libraryOptions, void **libraryOptionValues,
         unsigned int numLibraryOptions),
        library, code, jitOptions, jitOptionsValues, numJitOptions, libraryOptions, libraryOptionValues,
        numLibraryOptions)
{
    (void)jitOptions;
    (void)jitOptionsValues;
    (void)numJitOptions;
    (void)libraryOptions;
    (void)libraryOptionValues;
    (void)numLibraryOptions;
    return load(call, library, code);
}

SIM_API(SIM_INIT, cuLibraryLoadFromFile,
        (CUlibrary * library, const char *fileName, CUjit_option *jitOptions, void **jitOptionsValues,
         unsigned int numJitOptions, CUlibraryOption *libraryOptions, void **libraryOptionValues,
         unsigned int numLibraryOptions),
        library, fileName, jitOptions, jitOptionsValues, numJitOptions, libraryOptions, libraryOptionValues,
        numLibraryOptions)
{
    (void)jitOptions;
    (void)jitOptionsValues;
    (void)numJitOptions;
    (void)libraryOptions;
    (void)libraryOptionValues;
    (void)numLibraryOptions;
    void *data = NULL;
    SIM_TRY(sim_image_load_file(fileName, &data));
    CUresult result = load(call, library, data);
    free(data);
    return result;
}

SIM_API(SIM_INIT, cuLibraryUnload, (CUlibrary handle), handle)
{
    struct sim_library *library;
    SIM_TRY(library_get(handle, &library));
    SIM_TRY(sim_capture_unsafe(call));
    while (library->modules != NULL) {
        SIM_TRY(sim_context_synchronise(call, library->modules->context));
        sim_module_free(library->modules);
    }
    for (size_t i = 0; i < library->image->kernel_count; i++)
        sim_handle_drop(&library->kern[i]);
    sim_handle_drop(library);
    sim_image_free(library->image);
    free(library->kern);
    free(library);
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuLibraryGetKernel, (CUkernel * pKernel, CUlibrary handle, const char *name), pKernel, handle, name)
{
    (void)call;
    struct sim_library *library;
    if (pKernel == NULL || name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(library_get(handle, &library));
    for (size_t i = 0; i < library->image->kernel_count; i++) {
        if (strcmp(library->image->kernel[i].name, name) == 0) {
            *pKernel = (CUkernel)&library->kern[i];
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_NOT_FOUND;
}

SIM_API(SIM_INIT, cuLibraryGetKernelCount, (unsigned int *count, CUlibrary lib), count, lib)
{
    (void)call;
    struct sim_library *library;
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(library_get(lib, &library));
    *count = (unsigned)library->image->kernel_count;
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuLibraryEnumerateKernels, (CUkernel * kernels, unsigned int numKernels, CUlibrary lib), kernels,
        numKernels, lib)
{
    (void)call;
    struct sim_library *library;
    if (kernels == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(library_get(lib, &library));
    for (size_t i = 0; i < numKernels && i < library->image->kernel_count; i++)
        kernels[i] = (CUkernel)&library->kern[i];
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuLibraryGetModule, (CUmodule * pMod, CUlibrary handle), pMod, handle)
{
    struct sim_library *library;
    struct sim_module *module;
    if (pMod == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(library_get(handle, &library));
    SIM_TRY(sim_library_module(library, call->context, &module));
    *pMod = (CUmodule)module;
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuLibraryGetGlobal, (CUdeviceptr * dptr, size_t *bytes, CUlibrary handle, const char *name), dptr,
        bytes, handle, name)
{
    struct sim_library *library;
    struct sim_module *module;
    uint64_t address, size;
    if (name == NULL || (dptr == NULL && bytes == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(library_get(handle, &library));
    SIM_TRY(sim_library_module(library, call->context, &module));
    SIM_TRY(sim_module_global(module, name, &address, &size));
    if (dptr != NULL)
        *dptr = address;
    if (bytes != NULL)
        *bytes = size;
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuLibraryGetManaged, (CUdeviceptr * dptr, size_t *bytes, CUlibrary handle, const char *name), dptr,
        bytes, handle, name)
{
    (void)call;
    (void)dptr;
    (void)bytes;
    struct sim_library *library;
    if (name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(library_get(handle, &library));
    return CUDA_ERROR_NOT_FOUND;
}

SIM_API(SIM_CONTEXT, cuKernelGetFunction, (CUfunction * pFunc, CUkernel kernel), pFunc, kernel)
{
    struct sim_kern *kern;
    struct sim_func *func;
    if (pFunc == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(kern_get(kernel, &kern));
    SIM_TRY(kern_func(kern, call->context, &func));
    *pFunc = (CUfunction)func;
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuKernelGetLibrary, (CUlibrary * pLib, CUkernel kernel), pLib, kernel)
{
    (void)call;
    struct sim_kern *kern;
    if (pLib == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(kern_get(kernel, &kern));
    *pLib = (CUlibrary)kern->library;
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuKernelGetName, (const char **name, CUkernel kernel), name, kernel)
{
    (void)call;
    struct sim_kern *kern;
    if (name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(kern_get(kernel, &kern));
    *name = kern->site;
    return CUDA_SUCCESS;
}

/* The real driver reads a CUfunction here as if it were a CUkernel and crashes. So does this one, on purpose. */
SIM_API(SIM_CONTEXT, cuKernelGetParamInfo, (CUkernel kernel, size_t paramIndex, size_t *paramOffset, size_t *paramSize),
        kernel, paramIndex, paramOffset, paramSize)
{
    (void)call;
    struct sim_kern *kern;
    if (sim_handle_is(kernel, SIM_IS_FUNCTION)) {
        sim_say("cuKernelGetParamInfo was given a CUfunction");
        raise(SIGSEGV);
    }
    SIM_TRY(kern_get(kernel, &kern));
    if (paramOffset == NULL || paramIndex >= kern->kernel->param_count)
        return CUDA_ERROR_INVALID_VALUE;
    *paramOffset = kern->kernel->param[paramIndex].offset;
    if (paramSize != NULL)
        *paramSize = kern->kernel->param[paramIndex].size;
    return CUDA_SUCCESS;
}
