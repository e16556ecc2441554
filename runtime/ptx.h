/*
 * ptx.h - kernels of PTX text: the `.entry` directives and their parameter lists.
 *
 *   .visible .entry name(.param .u64 .ptr .global .align 16 a, .param .align 8 .b8 b[24], .param .u32 c)
 *
 * Offsets follow from the types as in a C struct: natural alignment, or what `.align` before the type says (after
 * `.ptr` it describes what the parameter points at). The text ends at a NUL or with the view. Function bodies are
 * stepped over word by word, so comments and quoted strings may hold anything.
 *
 * Entries with something unknown in their list (texture references, newer types) are in doubt (image.h).
 */
#ifndef OV_PTX_H
#define OV_PTX_H

#include "image.h"
#include "view.h"

/* Adds the kernels of the text to `into`. Returns a code of enum ov_image_error: OV_IMAGE_UNKNOWN when the first word
 * is not `.version`. Text without kernels is no error. */
int ov_ptx_read(struct ov_view text, struct ov_image *into);
/* The text to its end, as a closed view. False: it is no PTX. */
bool ov_ptx_whole(struct ov_view text, struct ov_view *whole);

#endif
