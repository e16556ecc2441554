/*
 * nvml.h - NVML tells of a managed device's memory what CUDA tells (runtime/report.h).
 *
 * The library is the program's: it is never loaded by us, and its functions are found anew in whatever object called
 * libnvidia-ml.so* is loaded. A program finds our wrapper by linking, or by dlsym() (lookup.h), whether or not CUDA is
 * in use yet: monitors look NVML up first. A wrapper asks the real function and passes on what it says, but for a
 * device that overshot manages in this process. Which device that is, is found by its UUID, and by its place on the PCI
 * bus where there is none. Thread-safe; allocates nothing.
 */
#ifndef OV_NVML_H
#define OV_NVML_H

#include "lookup.h"

/* As in nvml.h of CUDA 11 and newer. */
struct ov_nvml_memory {
    unsigned long long total, free, used;
};
struct ov_nvml_memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

/* Whether the look-up is for a name of nvml_api.def. */
OV_HIDDEN bool ov_nvml_name(const char *name);
/* The answer to such a look-up, as ov_dlsym_lookup() gives it. */
OV_HIDDEN void *ov_nvml_lookup(struct ov_lookup *lookup, const struct ov_dl *dl, int versioned);

#endif
