/*
 * hooks_getproc.c - cuGetProcAddress: the driver decides which version and which twin of a function a program gets;
 * what it chose is replaced by its wrapper. So base names, versions and flags need no knowledge of ours, and whatever
 * the driver gives that is no row of ours stays as it is. cuGetProcAddress itself is a row: a program that looks it up
 * through itself stays with us.
 */
#include "hook.h"

static void replace(void **function)
{
    void *wrapper = function != NULL && *function != NULL ? ov_wrapper_of(*function) : NULL;
    if (wrapper != NULL) {
        *function = wrapper;
    }
}

CUresult ov_body_cuGetProcAddress(const char *symbol, void **out, int cuda_version, cuuint64_t flags)
{
    const CUresult result = OV_REAL(cuGetProcAddress, (symbol, out, cuda_version, flags));
    if (result == CUDA_SUCCESS) {
        replace(out);
    }
    return result;
}

CUresult ov_body_cuGetProcAddress_v2(const char *symbol, void **out, int cuda_version, cuuint64_t flags,
                                     CUdriverProcAddressQueryResult *status)
{
    const CUresult result = OV_REAL(cuGetProcAddress_v2, (symbol, out, cuda_version, flags, status));
    if (result == CUDA_SUCCESS) {
        replace(out);
    }
    return result;
}
