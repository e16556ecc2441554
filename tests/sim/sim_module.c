/* Modules: images that live in a context. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim_program.h"

enum { GLOBAL_ALIGNMENT = 256 };

int sim_capability(const struct sim_device *device)
{
    (void)device;
    return 90;
}

/* All variables of a module share one allocation. */
static CUresult make_globals(struct sim_module *module)
{
    const struct sim_image *image = module->image;
    uint64_t bytes = 0;
    module->global_address = calloc(image->global_count + 1, sizeof *module->global_address);
    if (module->global_address == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < image->global_count; i++) {
        module->global_address[i] = bytes;
        bytes += (image->global[i].bytes + GLOBAL_ALIGNMENT - 1) / GLOBAL_ALIGNMENT * GLOBAL_ALIGNMENT;
    }
    if (bytes == 0)
        return CUDA_SUCCESS;
    SIM_TRY(sim_memory_allocate(module->context, bytes, 0, &module->globals));
    memset((void *)module->globals->address, 0, bytes);
    for (size_t i = 0; i < image->global_count; i++) {
        module->global_address[i] += module->globals->address;
        if (image->global[i].initial != NULL)
            memcpy((void *)module->global_address[i], image->global[i].initial, image->global[i].bytes);
    }
    return CUDA_SUCCESS;
}

static CUresult make_functions(struct sim_module *module)
{
    const struct sim_image *image = module->image;
    module->func = calloc(image->kernel_count + 1, sizeof *module->func);
    if (module->func == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < image->kernel_count; i++) {
        struct sim_func *func = &module->func[i];
        *func = (struct sim_func){.module = module, .kernel = &image->kernel[i], .carveout = -1, .block = {1, 1, 1}};
        func->max_dynamic_shared = (int)(48 * 1024 - image->kernel[i].shared_bytes);
        func->cluster_must_be_set = image->kernel[i].cluster[0] != 0;
        func->host = sim_host_kernel(image->kernel[i].name);
        func->site = sim_intern(image->kernel[i].name);
        sim_handle_add(func, SIM_IS_FUNCTION);
    }
    return CUDA_SUCCESS;
}

CUresult sim_module_make(struct sim_context *context, struct sim_image *image, struct sim_library *library,
                         struct sim_module **out)
{
    struct sim_module *module = calloc(1, sizeof *module);
    if (module == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *module = (struct sim_module){.context = context, .image = image, .next = context->modules};
    module->library = library;
    context->modules = module;
    if (library != NULL) {
        module->next_of_library = library->modules;
        library->modules = module;
    }
    sim_handle_add(module, SIM_IS_MODULE);
    CUresult result = make_globals(module);
    if (result == CUDA_SUCCESS)
        result = make_functions(module);
    if (result != CUDA_SUCCESS) {
        module->image = library != NULL ? module->image : NULL; /* stays the caller's */
        sim_module_free(module);
        return result;
    }
    *out = module;
    return CUDA_SUCCESS;
}

void sim_module_free(struct sim_module *module)
{
    for (struct sim_module **at = &module->context->modules; *at != NULL; at = &(*at)->next) {
        if (*at == module) {
            *at = module->next;
            break;
        }
    }
    if (module->library != NULL) {
        for (struct sim_module **at = &module->library->modules; *at != NULL; at = &(*at)->next_of_library) {
            if (*at == module) {
                *at = module->next_of_library;
                break;
            }
        }
    }
    for (size_t i = 0; module->func != NULL && module->image != NULL && i < module->image->kernel_count; i++) {
        sim_handle_drop(&module->func[i]);
        free(module->func[i].param);
    }
    free(module->func);
    if (module->globals != NULL)
        sim_memory_free(module->globals, "cuModuleUnload");
    free(module->global_address);
    if (module->library == NULL)
        sim_image_free(module->image);
    sim_handle_drop(module);
    free(module);
}

void sim_modules_drop(struct sim_context *context)
{
    while (context->modules != NULL)
        sim_module_free(context->modules);
}

CUresult sim_image_load_file(const char *path, void **data)
{
    FILE *file = path != NULL ? fopen(path, "rb") : NULL;
    if (file == NULL)
        return CUDA_ERROR_FILE_NOT_FOUND;
    char *bytes = NULL;
    size_t count = 0, room = 0, got;
    do {
        room += 1 << 16;
        char *grown = realloc(bytes, room + 64); /* zeros behind, so that text ends and headers can be looked at */
        if (grown == NULL) {
            free(bytes);
            fclose(file);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        bytes = grown;
        got = fread(bytes + count, 1, room - count, file);
        count += got;
    } while (got != 0);
    memset(bytes + count, 0, 64);
    fclose(file);
    *data = bytes;
    return CUDA_SUCCESS;
}

static CUresult load(struct sim_call *call, CUmodule *out, const void *data)
{
    if (out == NULL || data == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    int error = CUDA_SUCCESS;
    struct sim_image *image = sim_image_parse(data, sim_capability(call->context->device), &error);
    if (image == NULL)
        return (CUresult)error;
    struct sim_module *module = NULL;
    CUresult result = sim_module_make(call->context, image, NULL, &module);
    if (result != CUDA_SUCCESS) {
        sim_image_free(image);
        return result;
    }
    *out = (CUmodule)module;
    return CUDA_SUCCESS;
}

static CUresult module_get(CUmodule handle, struct sim_module **out)
{
    if (!sim_handle_is(handle, SIM_IS_MODULE))
        return CUDA_ERROR_INVALID_HANDLE;
    *out = (struct sim_module *)handle;
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuModuleLoad, (CUmodule * module, const char *fname), module, fname)
{
    void *data = NULL;
    SIM_TRY(sim_image_load_file(fname, &data));
    CUresult result = load(call, module, data);
    free(data);
    return result;
}

SIM_API(SIM_CONTEXT, cuModuleLoadData, (CUmodule * module, const void *image), module, image)
{
    return load(call, module, image);
}

SIM_API(SIM_CONTEXT, cuModuleLoadDataEx,
        (CUmodule * module, const void *image, unsigned int numOptions, CUjit_option *options, void **optionValues),
        module, image, numOptions, options, optionValues)
{
    if (numOptions != 0 && (options == NULL || optionValues == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    return load(call, module, image);
}

SIM_API(SIM_CONTEXT, cuModuleLoadFatBinary, (CUmodule * module, const void *fatCubin), module, fatCubin)
{
    return load(call, module, fatCubin);
}

SIM_API(SIM_CONTEXT, cuModuleUnload, (CUmodule hmod), hmod)
{
    struct sim_module *module;
    SIM_TRY(module_get(hmod, &module));
    if (module->library != NULL)
        return CUDA_ERROR_NOT_PERMITTED;
    SIM_TRY(sim_capture_unsafe(call));
    SIM_TRY(sim_context_synchronise(call, module->context));
    sim_module_free(module);
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuModuleGetLoadingMode, (CUmoduleLoadingMode * mode), mode)
{
    (void)call;
    if (mode == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const char *wish = getenv("CUDA_MODULE_LOADING");
    *mode = wish != NULL && strcmp(wish, "EAGER") == 0 ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuModuleGetFunction, (CUfunction * hfunc, CUmodule hmod, const char *name), hfunc, hmod, name)
{
    (void)call;
    struct sim_module *module;
    if (hfunc == NULL || name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(module_get(hmod, &module));
    for (size_t i = 0; i < module->image->kernel_count; i++) {
        if (strcmp(module->image->kernel[i].name, name) == 0) {
            *hfunc = (CUfunction)&module->func[i];
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_NOT_FOUND;
}

SIM_API(SIM_CONTEXT, cuModuleGetFunctionCount, (unsigned int *count, CUmodule mod), count, mod)
{
    (void)call;
    struct sim_module *module;
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(module_get(mod, &module));
    *count = (unsigned)module->image->kernel_count;
    return CUDA_SUCCESS;
}

SIM_API(SIM_CONTEXT, cuModuleEnumerateFunctions, (CUfunction * functions, unsigned int numFunctions, CUmodule mod),
        functions, numFunctions, mod)
{
    (void)call;
    struct sim_module *module;
    if (functions == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(module_get(mod, &module));
    for (size_t i = 0; i < numFunctions && i < module->image->kernel_count; i++)
        functions[i] = (CUfunction)&module->func[i];
    return CUDA_SUCCESS;
}

CUresult sim_module_global(const struct sim_module *module, const char *name, uint64_t *address, uint64_t *bytes)
{
    for (size_t i = 0; i < module->image->global_count; i++) {
        if (strcmp(module->image->global[i].name, name) == 0) {
            *address = module->global_address[i];
            *bytes = module->image->global[i].bytes;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_NOT_FOUND;
}

SIM_API(SIM_CONTEXT, cuModuleGetGlobal_v2, (CUdeviceptr * dptr, size_t *bytes, CUmodule hmod, const char *name), dptr,
        bytes, hmod, name)
{
    (void)call;
    struct sim_module *module;
    uint64_t address, size;
    if (name == NULL || (dptr == NULL && bytes == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(module_get(hmod, &module));
    SIM_TRY(sim_module_global(module, name, &address, &size));
    if (dptr != NULL)
        *dptr = address;
    if (bytes != NULL)
        *bytes = size;
    return CUDA_SUCCESS;
}
