/*
 * Every entry point of driver_api.def, as a function that notes its name and answers success, or what FAKE_FAIL says
 * ("name:code", "*:code"). Weak, so that fake_driver.c can do better for some.
 */
#include <cuda.h>

#include "fake.h"

#define OV_HOOK(name, need, params, args)                             \
    CUresult fake_##name params __asm__(#name) __attribute__((weak)); \
    CUresult fake_##name params                                       \
    {                                                                 \
        return fake_call(#name);                                      \
    }
#define OV_CALL(name, need, params) OV_HOOK(name, need, params, )
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "../../shim/driver_api.def"
