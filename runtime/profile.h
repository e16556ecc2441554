/*
 * profile.h - what is known of a program after it was watched: its weights, the order in which they are used, how long
 * it computes between, and how fast the link is. Written and read as JSON; what plans are made of, in the run time and
 * by `overshot plan`.
 *
 *   {"schema": "overshot profile", "version": 1,
 *    "program": {"name": "python3", "key": "8d0c..."},     who it is of; the run time refuses another
 *    "device": {"name": "NVIDIA H200", "bytes": 150121545728, "driver": 13000},
 *    "link": [[2097152, 51.0], [16777216, 53.8]],          bytes of a copy, GB/s; ascending
 *    "budget": 8589934592, "host_limit": 0,                bytes; host_limit 0: none is known
 *    "weights": [{"name": "layers.0.q", "bytes": 33554432, "hash": "91ab...", "may": ["resident", "streamed", "host"],
 *                 "sparse": false, "share": 0.02, "reads": 1, "allocation": 12, "allocation_bytes": 33554432,
 *                 "offset": 0, "span": 33554432, "filled": true}, ...],
 *    "unused": [[31, 67108864], ...],                      allocations, bytes
 *    "launches": [[0, 1], ...],                            weights that one launch takes together
 *    "cycles": [{"name": "denoiser", "repeats": 50,        one after the other, then again from the first
 *                "touches": [0, 1, 2, ...],                weights, by their number above
 *                "compute_us": [...], "stretch": [...]}, ...],
 *    "kernels": [{"name": "gemm", "code": "77aa...", "slots": "r-w", "watched": true}, ...]}
 *
 * In `weights` only bytes are needed; what is not there is anything, unknown, or 0. compute_us is the time of a touch
 * and of all that follows until the next, without copies; left out, nothing was timed. stretch is what copies that run
 * at the same time add to it: 0.1 for 10 %. Members that are not known are ignored, so that a version may add some;
 * another version is refused.
 *
 * What only the run time asks for, to know weights again (recall.h): `span`, the bytes from `offset` on that an address
 * at the weight's beginning reaches, of which `bytes` are whole pages; `filled`, by copies; `share` and `reads` of a
 * sparse one (density.h); allocations that were uploaded and never used; and what was proven of kernels (verdict.h):
 * `code` is the hash of their code, `slots` has a letter for each word of their parameters (r: reads, w: writes, -: not
 * known), `watched` they were looked at for emitted addresses, `emits`, `output` and `unseen` are what was found.
 *
 * Ownership: ov_profile_free frees what ov_profile_read made; for ov_profile_write the caller fills and owns
 * everything. Errors: reading says in one line what is wrong and where. Thread-safety: functions of their arguments.
 */
#ifndef OV_PROFILE_H
#define OV_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan.h"

#define OV_PROFILE_SCHEMA  "overshot profile"
#define OV_PROFILE_VERSION 1
#define OV_PROFILE_PAGE    ((size_t)2 << 20)
/* A file larger than this is none of ours. */
#define OV_PROFILE_BYTES_AT_MOST ((size_t)256 << 20)

struct ov_profile_weight {
    const char *name; /* may be NULL */
    size_t bytes;
    uint64_t hash[2]; /* of its bytes; 0, 0: not known */
    uint32_t allocation;
    size_t allocation_bytes;
    size_t offset, span; /* in its allocation */
    uint8_t may;         /* set of tiers */
    bool sparse, filled;
    double share, reads;
};

/* An allocation that the program filled and did not use. */
struct ov_profile_unused {
    uint32_t allocation;
    size_t bytes;
};

struct ov_profile_kernel {
    const char *name, *slots; /* slots is never NULL */
    uint64_t code[2];
    bool watched, emits, output, unseen;
};

struct ov_profile_rate {
    size_t bytes;
    double gb_per_s;
};

struct ov_profile_cycle {
    const char *name; /* may be NULL */
    uint32_t repeats;
    size_t length;
};

struct ov_profile {
    unsigned version;             /* of the file; also where it was refused for that. 0: not known */
    const char *program, *device; /* may be NULL */
    uint64_t key[2];              /* 0, 0: not known */
    size_t device_bytes;
    unsigned driver;
    size_t budget_bytes, host_limit_bytes;
    struct ov_profile_rate *rate;
    size_t rate_count;
    struct ov_profile_weight *weight;
    size_t weight_count;
    struct ov_profile_cycle *cycle;
    size_t cycle_count;
    /* Of all cycles, one behind the other. */
    uint32_t *touch;
    double *compute_s; /* NULL: not timed */
    double *stretch;   /* NULL: not measured */
    size_t touch_count;
    struct ov_plan_group *group;
    size_t group_count;
    uint32_t *group_weight;
    struct ov_profile_unused *unused;
    size_t unused_count;
    struct ov_profile_kernel *kernel;
    size_t kernel_count;
    void *owned; /* what the strings lie in */
};

#define OV_PROFILE_ERROR_ROOM 256
/* Reads length bytes of text. False: *profile is empty but for its version, and `error` says why. */
bool ov_profile_read(const char *text, size_t length, struct ov_profile *profile, char error[OV_PROFILE_ERROR_ROOM]);
bool ov_profile_load(const char *path, struct ov_profile *profile, char error[OV_PROFILE_ERROR_ROOM]);
void ov_profile_free(struct ov_profile *profile);
/* As text; free() it. NULL: memory ran out. */
char *ov_profile_write(const struct ov_profile *profile);

/* The planner's input from a profile. */
struct ov_profile_input {
    struct ov_plan_input input;
    struct ov_plan_unit *unit;
    struct ov_plan_part *part;
    struct ov_plan_rate *rate;
};
/* Budget, link and host limit as the profile has them. The profile has to outlive it. False: memory ran out. */
bool ov_profile_plan_input(const struct ov_profile *profile, struct ov_profile_input *out);
void ov_profile_free_input(struct ov_profile_input *input);

#endif
