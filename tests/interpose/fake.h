/*
 * fake.h - a driver without a device, for questions of linkage: who is called, in which order, with which arguments. It
 * remembers nothing, so every handle and address that a test makes up is as good as any. fake_rows.c has all rows,
 * fake_driver.c those that must give something back, the old names, and the odd behaviours, chosen by environment:
 *   FAKE_FAIL=name:code         that function (or *) fails with that code and does nothing
 *   FAKE_SELF=1                 cuInit looks itself and others up by dlsym() before it does anything
 *   FAKE_NEST=1                 cuMemcpyHtoD calls other public functions
 *   FAKE_CONSTRUCTOR=1          the library looks itself up and calls a function of its own when it is loaded
 */
#ifndef FAKE_H
#define FAKE_H

#include <cuda.h>

CUresult fake_call(const char *name);

#endif
