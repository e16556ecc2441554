/*
 * fatbin.h - the container nvcc puts the code of several architectures into.
 *
 *   wrapper  magic 0x466243b1, version u32, pointer to the container, pointer to something else (not followed)
 *   header   magic 0xba55ed50 u32, version u16, header bytes u16, bytes of all entries u64
 *   entry    kind u16, version u16, header bytes u32, payload bytes u64, compressed bytes u32, options offset u32,
 *            minor u16, major u16, architecture u32, name offset u32, name bytes u32, flags u64, 0 u64, plain bytes u64
 *
 * Kind 1 is PTX, 2 a cubin; all others (LTO code, for one) hold no layouts. Flags: 0x2000 one raw LZ4 block, 0x8000 a
 * Zstandard frame. A payload that is stored plain has compressed bytes and plain bytes 0.
 *
 * All cubins are read: which of them the driver takes depends on the device, but a kernel's signature may not depend on
 * the architecture, so they must agree (image.h). PTX costs more to read and is needed only where the driver would
 * compile it: for an architecture newer than all cubins, or without any.
 *
 * Damage in the container fails the image. A damaged entry is passed over if others can be read.
 */
#ifndef OV_FATBIN_H
#define OV_FATBIN_H

#include "image.h"
#include "view.h"

#define OV_FATBIN_MAGIC         0xba55ed50u
#define OV_FATBIN_WRAPPER_MAGIC 0x466243b1u

/* `image` starts with either magic. Returns a code of enum ov_image_error. */
int ov_fatbin_read(struct ov_view image, struct ov_image *into);
/* All entries, as a closed view. */
bool ov_fatbin_whole(struct ov_view image, struct ov_view *whole);

#endif
