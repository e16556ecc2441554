/*
 * A second wrapper library, as others write them: it defines functions of the driver, and finds the next one by
 * RTLD_NEXT (or, with -DOWN_DLSYM, is another interposer of dlsym).
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>

#include "record.h"

#ifdef OWN_DLSYM

/* Only a name of its own; everything else goes on. Compiled so that the call to the next is a jump, as gcc -O2 does. */
typedef void *(*dlsym_fn)(void *handle, const char *name);

int chain_answer(void);
int chain_answer(void)
{
    return 42;
}

void *dlsym(void *handle, const char *name)
{
    static dlsym_fn next;
    if (next == NULL) {
#ifdef __x86_64__
        next = (dlsym_fn)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
#else
        next = (dlsym_fn)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17");
#endif
    }
    if (name[0] == 'h' && name[1] == 'i') {
        return (void *)chain_answer;
    }
    return next(handle, name);
}

#else

/* The function itself is out of reach of other libraries' symbols; its public name is not. */
static CUresult chain_alloc(CUdeviceptr *address, size_t bytes)
{
    CUresult (*next)(CUdeviceptr *, size_t) = (CUresult(*)(CUdeviceptr *, size_t))dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    record("chain next=%s", next == NULL ? "none" : next == chain_alloc ? "itself" : "another");
    return next != NULL && next != chain_alloc ? next(address, bytes) : CUDA_ERROR_NOT_FOUND;
}
extern __typeof__(chain_alloc) chain_public __asm__("cuMemAlloc_v2") __attribute__((alias("chain_alloc")));

/* The same, for a program that knows this library. */
CUresult chain_call(CUdeviceptr *address, size_t bytes);
CUresult chain_call(CUdeviceptr *address, size_t bytes)
{
    return chain_alloc(address, bytes);
}

#endif
