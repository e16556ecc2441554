/*
 * rows.h - the exported functions of driver_api.def for programs that are linked against the driver: elf_<name> is the
 * function that the dynamic linker bound <name> to, whatever cuda.h calls it.
 */
#ifndef ROWS_H
#define ROWS_H

#include <cuda.h>

#define OV_HOOK(name, need, params, args) extern CUresult elf_##name params __asm__(#name);
#define OV_CALL(name, need, params)       OV_HOOK(name, need, params, )
#include "../../shim/driver_api.def"
#undef OV_HOOK
#undef OV_CALL

#endif
