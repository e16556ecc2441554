/*
 * image.h - kernel parameter layouts read from a code image.
 *
 * From CUDA 12.4 on the driver tells the offset and size of each parameter of a kernel. For older drivers they are read
 * from the image the program loads:
 *
 *   fatbin (fatbin.h)   a container of entries, with or without the wrapper cudart passes; entries may be compressed
 *   cubin  (cubin.h)    an ELF file; one `.nv.info.<kernel>` section of records a kernel (nvinfo.h)
 *   PTX    (ptx.h)      text; `.entry` directives
 *
 * Whoever streams weights by a wrong layout computes wrong results; whoever has no layout treats the kernel as opaque
 * and is only slower. So a kernel is reported only when its layout is free of doubt: records complete, in order, in
 * agreement with the total the image states, and the same in every architecture the image holds. All others are left
 * out.
 *
 * Ownership: an ov_image copies what it needs; the program's image may go away. Layouts, names and parameter arrays
 * live until ov_image_free(). Thread-safety: no globals; an ov_image does not change after ov_image_parse() and may be
 * read by any number of threads. Errors: a code of enum ov_image_error, worded by ov_image_reason(). Nothing is logged
 * here.
 */
#ifndef OV_IMAGE_H
#define OV_IMAGE_H

#include <stddef.h>
#include <stdint.h>

/* X(code, text) */
#define OV_IMAGE_ERRORS(X)                                                                    \
    X(OV_IMAGE_OK, "no error")                                                                \
    X(OV_IMAGE_MISSING, "no image")                                                           \
    X(OV_IMAGE_UNKNOWN, "neither a cubin, a fatbin nor PTX")                                  \
    X(OV_IMAGE_TRUNCATED, "the image ends before a part its headers name")                    \
    X(OV_IMAGE_MALFORMED, "a header of the image contradicts itself")                         \
    X(OV_IMAGE_FOREIGN, "an ELF file, but not 64-bit CUDA code")                              \
    X(OV_IMAGE_COMPRESSED, "compressed in an unknown way, or the compressed data is damaged") \
    X(OV_IMAGE_TOO_LARGE, "an entry claims to be larger than is believable")                  \
    X(OV_IMAGE_NO_KERNELS, "no kernel whose parameters are known for certain")                \
    X(OV_IMAGE_NO_MEMORY, "out of host memory")

enum ov_image_error {
#define X(code, text) code,
    OV_IMAGE_ERRORS(X)
#undef X
};

/* `size` is what a launch reads through kernelParams[i]. `offset` is the place in the kernel's own parameter block. It
 * names the slot, and equals the place in a host structure unless a parameter is aligned to more than 16 bytes: such a
 * one is aligned in constant memory, whose parameter area begins at 0x160 or 0x210 on many architectures. */
struct ov_param {
    uint32_t offset, size; /* bytes */
};

struct ov_kernel_layout {
    const char *name;
    uint32_t param_count;         /* 0 for a kernel without parameters */
    const struct ov_param *param; /* ascending offsets, no overlap */
    uint32_t param_bytes;         /* end of the last parameter (offset + size), not rounded up */
};

struct ov_image;

/* Reads the image at `image`. max_bytes bounds what may be read; SIZE_MAX when the caller knows no length, as no
 * loading function of the driver tells one (then see view.h). A fatbin wrapper's pointer is followed only if max_bytes
 * is SIZE_MAX or it stays inside. NULL, with the code in *error, when no kernel is found; *error (may be NULL) is
 * always written. */
struct ov_image *ov_image_parse(const void *image, size_t max_bytes, int *error);
void ov_image_free(struct ov_image *image);
const char *ov_image_reason(int error);

/* NULL when the image has no such kernel or its layout is in doubt. */
const struct ov_kernel_layout *ov_image_find(const struct ov_image *image, const char *name);
/* Kernels are in order of their names' bytes. */
size_t ov_image_count(const struct ov_image *image);
const struct ov_kernel_layout *ov_image_kernel(const struct ov_image *image, size_t index);

/* For the format readers, while an image is being read. The same kernel may be added many times; what is kept is
 * settled at the end. add copies; reject says that the kernel exists and its layout is in doubt. */
int ov_image_add(struct ov_image *image, const char *name, size_t name_bytes, const struct ov_param *param,
                 uint32_t param_count);
int ov_image_reject(struct ov_image *image, const char *name, size_t name_bytes);
/* What was added since ov_image_mark() came from a part that turned out to be damaged: forget it. */
size_t ov_image_mark(const struct ov_image *image);
void ov_image_forget(struct ov_image *image, size_t mark);

/* Largest parameter block of any architecture is 32,764 bytes; room for its successor. */
#define OV_IMAGE_PARAM_BYTES_MAX 65536u

/* The rule all formats share: each parameter at the end of its predecessor, the first at the start of the block,
 * rounded up to some power of two; none is empty. The block begins at address `base` of its memory: alignment counts
 * from there. `total_bytes` is the end of the last parameter. */
int ov_params_plausible(const struct ov_param *param, uint32_t param_count, uint32_t base, uint32_t total_bytes);

#endif
