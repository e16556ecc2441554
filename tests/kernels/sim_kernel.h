/*
 * sim_kernel.h: what libsimkernels.so offers the simulated driver.
 *
 * Each kernel of the portable sources (portable.h) becomes one row: its name as in the image's symbol table, a function
 * that runs the whole grid on the host, and one that declares which device memory a launch with these parameters
 * touches. Device addresses are host addresses in the simulator, so both dereference them.
 *
 * Order of use: the simulator sets sim_access_check once, before any launch. For each launch it calls `access`, which
 * declares ranges one after the other; each is checked at once (mapped? permitted?), so that a table may be read as
 * soon as it was declared. When the check refuses, the access function has returned early and `run` must not be called.
 *
 * Threads: rows are constant after load. access and run keep no state; concurrent calls are fine if sim_access_check
 * is.
 */
#ifndef SIM_KERNEL_H
#define SIM_KERNEL_H

#include <stddef.h>
#include <stdint.h>

/* One range of device memory that a launch reads (writes == 0) or writes (writes == 1). */
struct sim_access {
    uint64_t address;
    uint64_t bytes;
    int writes;
};

/* Declared by one launch. Owned by the simulator: starts zeroed, `item` is released with free(). */
struct sim_accesses {
    struct sim_access *item;
    size_t count, room;
    double operations; /* arithmetic operations of the whole grid, for the clock */
};

struct sim_kernel {
    const char *name;
    void (*run)(void **params);                              /* params[i] points at parameter i */
    void (*access)(void **params, struct sim_accesses *out); /* may be called more than once for a launch */
};

/* Declares a range. 0: go on; otherwise the range is not there or not permitted (or memory ran out): return at once.
 * Ranges of no bytes are not recorded. */
int sim_access_add(struct sim_accesses *list, const void *address, uint64_t bytes, int writes);

/* All kernels, sorted by name. The array lives as long as the library. */
const struct sim_kernel *sim_kernels(size_t *count);

/* Set by the simulator. 0 = mapped and permitted. NULL: everything is permitted. */
extern int (*sim_access_check)(uint64_t address, uint64_t bytes, int writes);

/* What device code may ask of the driver while a kernel runs. Set by the simulator, like sim_access_check. */
struct sim_device_calls {
    void (*set_conditional)(uint64_t handle, unsigned value);
    void (*update_node)(uint64_t node, uint32_t offset, const void *value, uint32_t bytes);
};
extern struct sim_device_calls sim_device_calls;

/* A module global that kernels name in their code: `place` is where they look for its address. The simulator writes
 * there before each launch, since every module that is loaded has its own. */
struct sim_kernel_global {
    const char *name;
    void **place;
};
const struct sim_kernel_global *sim_kernel_globals(size_t *count);

/* For portable.h only: add a row while the library is loaded. */
void sim_kernel_global_register(const char *name, void **place);
void sim_kernel_register(const char *name, void (*run)(void **), void (*access)(void **, struct sim_accesses *));

#endif
