/*
 * globals.h - which module globals the engine was told of, by the module or library they belong to.
 *
 * A global may hold addresses of weights, so the engine searches it, until its module is unloaded: then its memory is
 * gone, and the driver does not say which addresses that concerns. So we remember them.
 *
 * One list under one lock, which is held for the list only, never during a call of the engine's or the driver's. A
 * global that is asked for again is told again (the engine knows it already), and remembered once. Without host memory
 * to remember a global it is not told: it would be searched after it is gone. Thread-safe.
 */
#ifndef OV_GLOBALS_H
#define OV_GLOBALS_H

#include "resolver.h"

/* After the driver gave an address and a size. owner: a CUmodule or CUlibrary. */
OV_HIDDEN void ov_global_found(const void *owner, CUdeviceptr address, size_t bytes);

/* Before the owner is unloaded. */
OV_HIDDEN void ov_globals_going(const void *owner);

#endif
