/*
 * driver.h - the CUDA driver as the engine sees it: a table of function pointers.
 *
 * The table has one member for every row of shim/driver_api.def, filled by the shim's resolver with the *real* driver's
 * functions. A member is NULL when the driver lacks the function: rows marked REQUIRED are never NULL once the table is
 * published; all others are tested before use (drivers from CUDA 12.0 on are supported).
 *
 * Ownership: the shim owns the one table (ov_driver_table); it is written once, before ov_runtime_attach(), and
 * constant afterwards. Calls through it reach the driver directly and never re-enter a wrapper of ours; code that calls
 * the driver on behalf of the program brackets the call with ov_inside_enter()/ov_inside_leave() (thread.h), so that
 * whatever the driver calls back by public symbol goes straight through.
 */
#ifndef OV_DRIVER_H
#define OV_DRIVER_H

#include <cuda.h>

struct ov_driver {
#define OV_HOOK(name, need, params, args) CUresult(*name) params;
#define OV_CALL(name, need, params)       CUresult(*name) params;
#include "../shim/driver_api.def"
#undef OV_HOOK
#undef OV_CALL
};

#endif
