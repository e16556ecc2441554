/*
 * resolver.h - finds the real driver, fills the table of its functions, and starts the engine; rows and their wrappers.
 *
 * When. Nothing happens when we are loaded. The driver is looked for when the first wrapper is entered, or when
 * somebody looks up a name of ours and is answered with the driver's function. It is then found by, in this order:
 * libcuda.so.1 already being loaded; the object that answered, if it is called libcuda.so*; dlopen("libcuda.so.1").
 *
 * Once. Every thread that arrives before the table is published finds and fills one of its own, holding no lock of
 * ours, because dlopen() and dlsym() may wait for a thread that is in the linker and waits for us. The first to finish
 * publishes and calls ov_runtime_attach(), which must not use the linker; the others wait for that. A wrapper entered
 * by the attaching thread goes straight to the driver.
 *
 * All or nothing. If a REQUIRED row is missing in the driver, the engine is told its name and stays inert: every
 * wrapper passes through, and no look-up is substituted any more.
 *
 * Thread-safe. The only lock is the one-way state in resolver.c.
 */
#ifndef OV_RESOLVER_H
#define OV_RESOLVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "../runtime/runtime.h"

#define OV_HIDDEN              __attribute__((visibility("hidden")))
#define OV_UNLIKELY(condition) __builtin_expect(!!(condition), 0)
#define OV_LIKELY(condition)   __builtin_expect(!!(condition), 1)

/* Written once, before the engine is attached. */
extern OV_HIDDEN struct ov_driver ov_driver_table;

enum { OV_UNRESOLVED, OV_PUBLISHING, OV_RESOLVED };
extern OV_HIDDEN _Atomic int ov_resolver_state;

static inline bool ov_resolved(void)
{
    return atomic_load_explicit(&ov_resolver_state, memory_order_acquire) == OV_RESOLVED;
}

/* Makes the table complete. `answer` is an address that a look-up was answered with, or NULL when a wrapper was
 * entered; only in that case a driver that is not loaded yet is loaded. False: there is no driver. Keeps no dlerror().
 */
OV_HIDDEN bool ov_resolve(const void *answer);

/* Whether the address lies in the driver; false before it was found. */
OV_HIDDEN bool ov_in_driver(const void *address);

/* In the child of a fork: what another thread was in the middle of is given up. True if the engine was attached. */
OV_HIDDEN bool ov_resolver_forked(void);

/* One row of driver_api.def. */
struct ov_row {
    const char *name;
    const char *undefined_name; /* reads the same, and nobody defines it */
    void *wrapper;              /* NULL for OV_CALL rows */
    size_t member;              /* offset in struct ov_driver */
    bool required;
};
extern OV_HIDDEN const struct ov_row ov_rows[];
extern OV_HIDDEN const size_t ov_row_count;

/* The row that has a wrapper and this exact name, or NULL. */
OV_HIDDEN const struct ov_row *ov_row_named(const char *name);

/* The driver's function of a row; NULL before the driver was found, and if it lacks the function. */
static inline void *ov_row_real(const struct ov_row *row)
{
    return *(void **)((char *)&ov_driver_table + row->member);
}

/* The wrapper of a function of the driver's, NULL if it has none. Valid once resolved. */
OV_HIDDEN void *ov_wrapper_of(const void *real);

#endif
