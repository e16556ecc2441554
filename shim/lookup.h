/*
 * lookup.h - what our dlsym() and dlvsym() answer.
 *
 * The exported functions are written in assembly (dlsym_<machine>.S). They ask ov_dlsym_lookup(); if it gives a
 * wrapper, that is the answer; otherwise they put all arguments back and jump to `real`, so that the C library sees its
 * caller's own return address and RTLD_NEXT means what it would mean without us. That is why they are not in C.
 *
 * Only exact names of OV_HOOK rows, and of nvml_api.def (nvml.h), are looked at. The answer is a wrapper if and only if
 * the question would have been answered by the driver's function:
 *   - a handle: the C library is asked; its answer is replaced if it is the driver's function or our own export of it;
 *   - RTLD_DEFAULT: likewise;
 *   - RTLD_NEXT: replaced unless an object after the caller, other than the driver and us, defines the name;
 *   - when no driver is loaded at all, our exports are as good as undefined: the look-up fails, and dlerror() says so;
 *   - the driver looking up itself, and anything while we are inside the driver, goes through untouched.
 *
 * A look-up that is answered leaves no dlerror(), as with the C library's own. Allocates nothing. Thread-safe.
 */
#ifndef OV_LOOKUP_H
#define OV_LOOKUP_H

#include "resolver.h"

/* Lies on their stack; the assembly knows the layout. */
struct ov_lookup {
    void *real;          /* out: where to go on to when there is no wrapper */
    const void *caller;  /* return address */
    const char *version; /* dlvsym only */
    const char *name;    /* in and out */
    void *handle;
};

struct ov_dl;
/* What the C library says to a question whose answer may be replaced. */
OV_HIDDEN const void *ov_lookup_ask(const struct ov_lookup *lookup, const struct ov_dl *dl, int versioned);
/* For RTLD_NEXT: whether the first object after the caller that defines the name is us, or defines it at an address
 * that is_meant(). nobody: the result when there is none. */
OV_HIDDEN bool ov_lookup_next(const struct ov_lookup *lookup, bool (*is_meant)(const void *address), bool nobody);

OV_HIDDEN void *ov_dlsym_lookup(struct ov_lookup *lookup, int versioned);

#endif
