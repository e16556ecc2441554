/*
 * Images: what a program hands to cuModuleLoadData and cuLibraryLoadData.
 *
 * An image is a cubin (ELF for machine 190), a fatbin (header 0xBA55ED50, bare or behind the wrapper 0x466243B1,
 * entries plain, LZ4 or ZSTD), or PTX text. The simulator does not execute any of it: it only learns which kernels and
 * variables the image holds, with the real parameter layouts, so that a program (or a shim) which reads the same image
 * comes to the same answers.
 *
 * The interface gives no size, so sizes come from the headers; everything read behind the headers is checked against
 * them. Of a fatbin the entry is taken that a driver would take: the cubin of the device's major version with the
 * greatest minor that is not above the device's, otherwise the PTX of the greatest version not above it.
 *
 * A sim_image owns everything it points at and keeps no reference to the caller's bytes. It is not changed after it was
 * made, so it may be read from any thread. Errors are the CUresult the driver gives: INVALID_IMAGE, NO_BINARY_FOR_GPU,
 * INVALID_PTX.
 */
#ifndef SIM_IMAGE_H
#define SIM_IMAGE_H

#include <stddef.h>
#include <stdint.h>

struct sim_param {
    uint32_t offset;
    uint32_t size;
};

struct sim_image_kernel {
    char *name;
    struct sim_param *param;
    uint32_t param_count;
    uint32_t param_bytes;  /* end of the last parameter */
    uint32_t registers;    /* 0 in PTX */
    uint32_t shared_bytes; /* static shared memory */
    uint32_t max_threads;  /* from __launch_bounds__, else 1024 */
    uint32_t cluster[3];   /* from __cluster_dims__, else 0 */
};

struct sim_image_global {
    char *name;
    size_t bytes;
    void *initial; /* NULL: starts as zero */
    int constant;
};

struct sim_image {
    struct sim_image_kernel *kernel;
    size_t kernel_count;
    struct sim_image_global *global;
    size_t global_count;
    int binary_version; /* 90 for sm_90; for PTX that of the device */
    int ptx_version;    /* 90 for compute_90 */
};

/* capability: 90 for a device of compute capability 9.0. On failure returns NULL and *error is a CUresult. */
struct sim_image *sim_image_parse(const void *data, int capability, int *error);
void sim_image_free(struct sim_image *image);

/* The readers of the two leaf formats, in files of their own. */
int sim_image_read_ptx(struct sim_image *image, const char *text, size_t bytes);
int sim_image_read_cubin(struct sim_image *image, const void *data, size_t bytes);
struct sim_image_kernel *sim_image_add_kernel(struct sim_image *image, const char *name, size_t name_bytes);
struct sim_image_global *sim_image_add_global(struct sim_image *image, const char *name, size_t name_bytes);
int sim_image_add_param(struct sim_image_kernel *kernel, uint32_t ordinal, uint32_t offset, uint32_t size);

#endif
