/*
 * search.h - addresses of streamed units in host memory.
 *
 * What the program uploads, or stores where kernels read it in place, may be an address. A unit that is named there can
 * be reached by a launch that does not name it, so it leaves the ring and is never streamed again (OV_MARK_HIDDEN).
 * Addresses of what is not streamed need no attention: the next study finds them where they are (study.c).
 *
 * Call inside the gate, so that no plan comes between the search and the driver's call that makes the bytes visible to
 * the device (ov_address_encoded, runtime.h, needs no gate); without the engine's lock. May enter an exclusive section,
 * so look at everything anew afterwards. Not CUDA_SUCCESS: a unit could not be taken out, and the program's call has to
 * be refused with that code.
 */
#ifndef OV_SEARCH_H
#define OV_SEARCH_H

#include <stdbool.h>
#include <stddef.h>

#include "driver.h"

/* Whether there is anything to find: a unit is streamed, or on trial. */
bool ov_search_needed(void);
/* Every 8-byte word from `from` on; *named (may be NULL) becomes true when one is an address of the arena. */
CUresult ov_search(const void *from, size_t bytes, bool *named);
/* The same for memory that may be gone: what cannot be read is left out. */
CUresult ov_search_checked(const void *from, size_t bytes);

#endif
