/*
 * cubin.h - kernels of a cubin: a 64-bit little-endian ELF file for the NVIDIA machine.
 *
 * A kernel is a function symbol with the entry bit (0x10 of st_other) and a section `.nv.info.<name>` of records
 * (nvinfo.h). Device functions of relocatable code have such sections without the bit; the compiler's helpers
 * (`$__internal_0_$...`) have symbols without either; Mercury images repeat everything as `.nv.merc.nv.info.<name>`,
 * which is another name. None of these is a kernel.
 *
 * Only the section headers, three string and symbol tables and the records are read, in place; code never is. The
 * structures come from <elf.h>: what is left to do is bounds, and those are the point. A damaged table fails the
 * whole file; damaged records put only their kernel in doubt.
 */
#ifndef OV_CUBIN_H
#define OV_CUBIN_H

#include "image.h"
#include "view.h"

#define OV_CUBIN_MAGIC 0x464c457fu /* "\177ELF" */

/* Adds the kernels of the cubin to `into`. Returns a code of enum ov_image_error; a file without kernels is no error.
 */
int ov_cubin_read(struct ov_view elf, struct ov_image *into);
/* From the header to the end of what it names, as a closed view. */
bool ov_cubin_whole(struct ov_view elf, struct ov_view *whole);

#endif
