/*
 * rig.h - what the engine's test programs have in common: a context, kernels, weights whose bytes are known, and passes
 * that read every byte of them on the device.
 *
 * A test program is one file t_<topic>.c with a table of cases; `t_topic CASE` runs one. It is an ordinary program on
 * the driver API; overshot is preloaded by run.sh. The host keeps a copy of what each weight has to hold, so the right
 * results are computed here and not remembered from another run: a test changes device memory and the copy alike.
 *
 * Whether weights are streamed is read from the log that run.sh asks for (OVERSHOT_LOG_FILE, level info).
 *
 * Exit status: 0 right; 1 the case's own complaint; 2 out of memory; 3 a driver error; 4 wrong bytes. One thread unless
 * a function says otherwise.
 */
#ifndef ENGINE_RIG_H
#define ENGINE_RIG_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu.h"

#define MIB ((size_t)1 << 20)

enum { RIG_EXIT_SELF = 1, RIG_EXIT_MEMORY = 2, RIG_EXIT_DRIVER = 3, RIG_EXIT_WRONG = 4 };

struct rig_case {
    const char *name;
    void (*run)(void);
};
/* For main(): runs the case that argv[1] names. */
int rig_main(int argc, char **argv, const struct rig_case *cases, size_t count);
#define RIG_MAIN(cases)                                                       \
    int main(int argc, char **argv)                                           \
    {                                                                         \
        return rig_main(argc, argv, cases, sizeof(cases) / sizeof(cases)[0]); \
    }

/* A weight, and what it has to hold. */
struct rig_weight {
    CUdeviceptr address;
    size_t bytes;
    uint32_t *host;  /* bytes / 4 words; the tail of an odd size is not looked at */
    uint32_t digest; /* of host, valid while fresh */
    bool fresh;
};

enum { RIG_WEIGHTS = 64 };

struct rig {
    CUdevice device;
    CUcontext context; /* the device's primary one */
    struct gpu_image image;
    CUstream stream;
    CUdeviceptr out; /* 4096 words, small memory */
    struct rig_weight weight[RIG_WEIGHTS];
    unsigned count;
};

/* Ends the process with `status` after a line on stderr. Any thread. */
void rig_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));
void rig_ok(CUresult result, const char *call, int line);
#define OK(call) rig_ok((call), #call, __LINE__)
/* The case's own condition. */
#define HOLDS(condition)                                                                \
    do {                                                                                \
        if (!(condition)) {                                                             \
            rig_fail(RIG_EXIT_SELF, "line %d: %s does not hold", __LINE__, #condition); \
        }                                                                               \
    } while (0)

/* Context of device `ordinal`, kernels of probe.cu, stream, `out`; no weights. */
void rig_open(struct rig *rig, int ordinal);
/* The same with `count` weights of `bytes` each. */
void rig_open_with(struct rig *rig, unsigned count, size_t bytes);
/* Frees what is left. */
void rig_close(struct rig *rig);
/* Frees the host's side only: the context is gone. */
void rig_forget(struct rig *rig);
CUfunction rig_kernel(const struct rig *rig, const char *name);

/* Allocates and uploads one more weight; returns its index. Contents differ with every call. */
unsigned rig_add(struct rig *rig, size_t bytes);
/* The same without an upload: set to zero on the device. */
unsigned rig_add_zeroed(struct rig *rig, size_t bytes);
/* Takes [address, address + bytes) of an allocation for a weight: uploads it. Not freed by rig_close. */
unsigned rig_place(struct rig *rig, CUdeviceptr address, size_t bytes);
/* The same without an upload: how the bytes get there is the caller's business. */
unsigned rig_adopt(struct rig *rig, CUdeviceptr address, size_t bytes);
/* Frees a weight; others keep their index. */
void rig_drop(struct rig *rig, unsigned index);
/* Fills the copy with other words (the device's memory is the caller's business). */
void rig_refill(struct rig_weight *weight);
/* To be called when a test has changed the host copy. */
void rig_changed(struct rig_weight *weight);
uint32_t rig_digest(const uint32_t *words, size_t count);

/* Launches `name` with one block of 32 threads. */
void rig_launch(const struct rig *rig, const char *name, CUstream stream, void **params);
/* out[slot] = digest of a weight, on the device. */
void rig_read(const struct rig *rig, unsigned index, unsigned slot, CUstream stream);
/* Reads all weights, in the order given (NULL: by index), waits, and compares. */
void rig_pass(struct rig *rig, const unsigned *order, unsigned count);
/* Compares out[slot] of all weights in the list with the copies. `got` are 4096 words. */
void rig_compare(struct rig *rig, const uint32_t *got, const unsigned *order, unsigned count);
/* Compares one weight's bytes, given as read back, with the copy. */
void rig_compare_bytes(const struct rig_weight *weight, const void *bytes, const char *how);

/* MiB of weights that the newest plan of any device streams. */
size_t rig_streamed_mib(void);
unsigned rig_plans(void);
/* Whether the log has a line that contains `text`. */
bool rig_logged(const char *text);
/* How many lines do. */
unsigned rig_times_logged(const char *text);
/* Passes until a plan streams something; the case fails when none does. */
void rig_until_streamed(struct rig *rig);

#endif
