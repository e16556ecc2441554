#define _GNU_SOURCE
#include "gpu.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct gpu_api gpu;

static const char *program_name = "program";

/* What a row of gpu_api.def needs to be found at run time. */
struct row {
    const char *base;     /* as cuGetProcAddress knows it */
    const char *exported; /* as the library exports it */
    int version;
    size_t offset; /* of the field in struct gpu_api */
};

#define EXPANDED(name)          #name
#define EXPORTED(name)          EXPANDED(name)
#define GPU_CALL(name, version) {#name, EXPORTED(name), version, offsetof(struct gpu_api, name)},
static const struct row rows[] = {
#include "gpu_api.def"
};
#undef GPU_CALL

void gpu_die(const char *format, ...)
{
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    fflush(stdout);
    fprintf(stderr, "%s: %s\n", program_name, line);
    exit(GPU_EXIT_SELF);
}

void gpu_check(CUresult result, const char *function)
{
    if (result == CUDA_SUCCESS) {
        return;
    }
    const char *name = NULL;
    if (!gpu.cuGetErrorName || gpu.cuGetErrorName(result, &name) != CUDA_SUCCESS || !name) {
        name = "unknown error";
    }
    fflush(stdout);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        fprintf(stderr, "%s: out of memory: %s\n", program_name, function);
        exit(GPU_EXIT_MEMORY);
    }
    fprintf(stderr, "%s: %s: %s (%d)\n", program_name, function, name, (int)result);
    exit(GPU_EXIT_DRIVER);
}

static void set_field(const struct row *row, void *function)
{
    if (!function) {
        gpu_die("the driver has no %s", row->exported);
    }
    memcpy((char *)&gpu + row->offset, &function, sizeof function);
}

static void fill_linked(void)
{
#define GPU_CALL(name, version) gpu.name = name;
#include "gpu_api.def"
#undef GPU_CALL
}

static void *library_symbol(const char *name)
{
    static void *library;
    if (!library) {
        library = dlopen("libcuda.so.1", RTLD_NOW);
    }
    if (!library) {
        gpu_die("%s", dlerror());
    }
    return dlsym(library, name);
}

static void fill_by_dlsym(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        set_field(&rows[i], library_symbol(rows[i].exported));
    }
}

typedef CUresult getproc_four(const char *, void **, int, cuuint64_t);
typedef CUresult getproc_five(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

static void fill_by_getproc(bool four, cuuint64_t flags)
{
    void *entry = library_symbol(four ? "cuGetProcAddress" : "cuGetProcAddress_v2");
    getproc_four *ask_four = NULL;
    getproc_five *ask_five = NULL;
    if (!entry) {
        gpu_die("the driver has no cuGetProcAddress");
    }
    memcpy(four ? (void *)&ask_four : (void *)&ask_five, &entry, sizeof entry);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *function = NULL;
        CUdriverProcAddressQueryResult status;
        /* The per-thread forms are from CUDA 7. */
        const bool per_thread = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
        const int version = per_thread && rows[i].version < 7000 ? 7000 : rows[i].version;
        CUresult result = four ? ask_four(rows[i].base, &function, version, flags)
                               : ask_five(rows[i].base, &function, version, flags, &status);
        if (result != CUDA_SUCCESS) {
            gpu_die("cuGetProcAddress(%s, %d): error %d", rows[i].base, version, (int)result);
        }
        set_field(&rows[i], function);
    }
}

void gpu_open(const char *program, enum gpu_entry entry)
{
    program_name = program;
    switch (entry) {
    case GPU_ENTRY_LINK:
        fill_linked();
        break;
    case GPU_ENTRY_DLSYM:
        fill_by_dlsym();
        break;
    case GPU_ENTRY_GETPROC:
    case GPU_ENTRY_GETPROC1:
        fill_by_getproc(entry == GPU_ENTRY_GETPROC1, CU_GET_PROC_ADDRESS_DEFAULT);
        break;
    case GPU_ENTRY_PER_THREAD:
        fill_by_getproc(false, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
        break;
    }
    GPU(cuInit, 0);
}

CUdeviceptr gpu_alloc(size_t bytes, const char *what)
{
    CUdeviceptr address = 0;
    CUresult result = gpu.cuMemAlloc(&address, bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        char line[256];
        snprintf(line, sizeof line, "cuMemAlloc of %zu bytes for %s", bytes, what);
        gpu_check(result, line);
    }
    gpu_check(result, "cuMemAlloc");
    return address;
}

/* The first place that holds the file; a message naming the file otherwise. */
static void find_image(const char *name, char *path, size_t room)
{
    char self[2048];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (slash) {
        *slash = '\0';
    }
    const char *beside[] = {"", "/../kernels/images", "/../../../tests/kernels/images"};
    const char *chosen = getenv("APP_IMAGES");
    if (chosen) {
        snprintf(path, room, "%s/%s.fatbin", chosen, name);
        if (access(path, R_OK) == 0) {
            return;
        }
    }
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        snprintf(path, room, "%s%s/%s.fatbin", self, beside[i], name);
        if (access(path, R_OK) == 0) {
            return;
        }
    }
    snprintf(path, room, "%s/%s.fatbin", APP_IMAGES_DEFAULT, name);
    if (access(path, R_OK) != 0) {
        gpu_die("cannot find %s.fatbin; set APP_IMAGES to its folder", name);
    }
}

static void *read_whole(const char *path)
{
    FILE *file = fopen(path, "rb");
    long size = file && fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    void *bytes = size > 0 ? malloc((size_t)size) : NULL;
    if (!bytes || fseek(file, 0, SEEK_SET) != 0 || fread(bytes, 1, (size_t)size, file) != (size_t)size) {
        gpu_die("cannot read %s: %s", path, strerror(errno));
    }
    fclose(file);
    return bytes;
}

struct gpu_image gpu_image_load(const char *name, enum gpu_load how)
{
    struct gpu_image image = {0};
    char path[4096];
    find_image(name, path, sizeof path);
    if (how == GPU_LOAD_FILE) {
        GPU(cuModuleLoad, &image.module, path);
        return image;
    }
    image.bytes = read_whole(path);
    switch (how) {
    case GPU_LOAD_LIBRARY:
        GPU(cuLibraryLoadData, &image.culibrary, image.bytes, NULL, NULL, 0, NULL, NULL, 0);
        break;
    case GPU_LOAD_FATBINARY:
        GPU(cuModuleLoadFatBinary, &image.module, image.bytes);
        break;
    case GPU_LOAD_MODULE:
    case GPU_LOAD_FILE:
        GPU(cuModuleLoadData, &image.module, image.bytes);
        break;
    }
    return image;
}

CUfunction gpu_image_kernel(const struct gpu_image *image, const char *name)
{
    CUfunction function = NULL;
    CUkernel kernel = NULL;
    if (image->culibrary) {
        GPU(cuLibraryGetKernel, &kernel, image->culibrary, name);
        return (CUfunction)kernel;
    }
    GPU(cuModuleGetFunction, &function, image->module, name);
    return function;
}

void gpu_image_unload(struct gpu_image *image)
{
    if (image->culibrary) {
        GPU(cuLibraryUnload, image->culibrary);
    } else {
        GPU(cuModuleUnload, image->module);
    }
    free(image->bytes);
    *image = (struct gpu_image){0};
}
