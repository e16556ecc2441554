/*
 * copy.h - what a copy does to what is known of memory, for copies that are made inside graphs. Those that the program
 * makes come through runtime.h ("Copies and fills").
 */
#ifndef OV_COPY_H
#define OV_COPY_H

#include <stdbool.h>

#include "runtime.h"

/* Units that the copy reads or writes leave the ring, and what it fills counts as filled. Not its payload: who knows
 * the bytes searches them. Inside the gate. Not CUDA_SUCCESS: a unit could not be taken out, the copy must not be made.
 */
CUresult ov_copy_settle(const struct ov_copy *copy, bool capturing);
/* It is about to be enqueued in the stream: whoever moves what it reads or writes waits for that stream's context. */
void ov_copy_note(const struct ov_copy *copy, CUstream stream);

#endif
