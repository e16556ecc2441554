/*
 * hook.h - what the bodies of the wrappers share.
 *
 * A wrapper has two halves. wrappers.c makes the first from the row in driver_api.def: it goes straight to the driver
 * when there is nothing to do (ov_bypass()). The second, ov_body_<name> in hooks_*.c, says what the engine is told. A
 * body runs only while the engine is active, on a thread that is not inside the driver, and only if the driver has the
 * function; it calls the driver through OV_REAL, so that calls the driver makes to public symbols pass straight
 * through.
 *
 * Bodies of twins are made by one macro with the suffix as an argument, empty for the plain name: pasted names are not
 * touched by the macros of cuda.h.
 */
#ifndef OV_HOOK_H
#define OV_HOOK_H

#include "resolver.h"

#define OV_HOOK(name, need, params, args) OV_HIDDEN CUresult ov_body_##name params;
#define OV_CALL(name, need, params)
#include "driver_api.def"
#undef OV_HOOK
#undef OV_CALL

/* The driver's own function, while this thread counts as inside the driver. */
#define OV_REAL(name, args)                                   \
    __extension__({                                           \
        ov_inside_enter();                                    \
        const CUresult ov_result = ov_driver_table.name args; \
        ov_inside_leave();                                    \
        ov_result;                                            \
    })

/* What the NULL stream means to a plain entry point and to its twin. */
#define OV_NULL_STREAM            CU_STREAM_LEGACY
#define OV_NULL_STREAM_ptsz       CU_STREAM_PER_THREAD
#define OV_NULL_STREAM_ptds       CU_STREAM_PER_THREAD
#define OV_STREAM(suffix, stream) ((stream) != NULL ? (stream) : OV_NULL_STREAM##suffix)

#endif
