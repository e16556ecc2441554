/*
 * gpu.h: a thin layer over the CUDA driver API that the test programs share.
 *
 * Every driver call goes through the table `gpu`, one field for each row of gpu_api.def, and is checked on the spot:
 * GPU(cuMemFree, address) either succeeds or ends the process with a line on stderr. So programs have no error paths,
 * and the same program can take its functions from the linker, from dlsym, or from cuGetProcAddress.
 *
 * Exit codes: 2 out of memory, 3 any other driver error, 4 the program's own complaint. Threads: gpu_open() once,
 * before any other thread; the rest may be called from any thread that has made a context current.
 */
#ifndef APPS_GPU_H
#define APPS_GPU_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GPU_EXIT_MEMORY = 2, GPU_EXIT_DRIVER = 3, GPU_EXIT_SELF = 4 };

struct gpu_api {
#define GPU_CALL(name, version) __typeof__(&name) name;
#include "gpu_api.def"
#undef GPU_CALL
};
extern struct gpu_api gpu;

/* How a program gets at the driver's functions. */
enum gpu_entry {
    GPU_ENTRY_LINK,       /* bound by the dynamic linker */
    GPU_ENTRY_DLSYM,      /* dlopen("libcuda.so.1") + dlsym */
    GPU_ENTRY_GETPROC,    /* cuGetProcAddress, five arguments */
    GPU_ENTRY_GETPROC1,   /* cuGetProcAddress of CUDA 11.3, four arguments */
    GPU_ENTRY_PER_THREAD, /* cuGetProcAddress, per-thread default streams */
};
#define GPU_ENTRY_NAMES "link,dlsym,getproc,getproc1,perthread"

/* How a program loads its kernels. */
enum gpu_load {
    GPU_LOAD_MODULE,    /* cuModuleLoadData */
    GPU_LOAD_LIBRARY,   /* cuLibraryLoadData, kernels launched as CUkernel */
    GPU_LOAD_FILE,      /* cuModuleLoad */
    GPU_LOAD_FATBINARY, /* cuModuleLoadFatBinary */
};
#define GPU_LOAD_NAMES "module,library,file,fatbinary"

/* An image loaded into the current context. The bytes stay in memory as long as it is loaded. */
struct gpu_image {
    CUmodule module;
    CUlibrary culibrary;
    void *bytes;
};

/* Fills `gpu` and calls cuInit. `program` names the process in complaints. */
void gpu_open(const char *program, enum gpu_entry entry);

/* Ends the process (see exit codes above) unless `result` is CUDA_SUCCESS. */
void gpu_check(CUresult result, const char *function);
#define GPU(function, ...) gpu_check(gpu.function(__VA_ARGS__), #function)

/* Ends the process with GPU_EXIT_SELF. */
void gpu_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* cuMemAlloc that says what the memory was for when there is none. */
CUdeviceptr gpu_alloc(size_t bytes, const char *what);

/* `name`.fatbin is looked for in $APP_IMAGES, beside the executable, in the build's and in the source tree's folder. */
struct gpu_image gpu_image_load(const char *name, enum gpu_load how);
CUfunction gpu_image_kernel(const struct gpu_image *image, const char *name);
void gpu_image_unload(struct gpu_image *image);

#endif
