/*
 * recall.h - profiles read back: a program whose weights are known from an earlier start is not watched first.
 *
 * When an engine arms, the profiles in OVERSHOT_PROFILE_DIR that this program left are read, the newest 16: the
 * *candidates*. At quiet points while the program loads they are compared with its memory, once there are allocations
 * of all sizes, as full as they were. When all weights of one are there, bytes and all, the runs (learn.h), their
 * cycle, its times, and what was proven of kernels (verdict.h) are taken from it, and a plan is made at once.
 * (recall.c: files, and what follows; recall_match.c: memory.)
 *
 * What is taken, and why it is no less safe than a study's picture (learn.h):
 * - Contents are those of the weight, by a 128-bit hash of each page, hashed at this very quiet point. Memory that
 *   no copy filled and that is the same in every page is nobody's (zeros that will be written, mostly).
 * - Innocence is judged as in a study, with the log so far: who is known to write takes the run out; who is not
 *   known is tried when it first touches a streamed unit, as ever (watch.h).
 * - Boundaries. A run that does not begin where its allocation begins may be reached through an address in front of
 *   it, in this run of the program if not in the last. So it is waited for until a launch has passed exactly its
 *   beginning. A program with one allocation for each weight need not wait.
 * - Marks. What the profile does not let stream is not streamed. Hidden addresses are searched for in all memory,
 *   as before every plan that is not made of a fresh study (ov_learn_look_again).
 * - Emission. Discovery goes on behind the plan, so kernels that are not known are looked at as they would be
 *   without one. The first that is found to compute addresses, and was not known to, ends the trust: all units
 *   leave the ring, and the program is watched (ov_recall_doubt).
 *
 * That discovery ends when a study finds the same runs and the same cycle: then the plan and the times stay as they
 * are. If it finds others, they replace the profile's, as in any discovery. Where runs have times, ov_runs.compute_s is
 * set: nobody has to measure them.
 *
 * A candidate is refused, with a line that names the field and both values, if it is of another program, device, driver
 * or version of the file; a damaged one with a warning that says where. When the first study has formed runs and no
 * candidate was taken, a line says of the nearest what differs. Candidates are kept until then.
 *
 * Guarded by the engine's lock. Files are read when the engine arms.
 */
#ifndef OV_RECALL_H
#define OV_RECALL_H

#include <stdbool.h>
#include <stdint.h>

#include "profile.h"
#include "ring.h"

#define OV_CANDIDATES 16u

struct ov_engine;
struct ov_kernel;
struct ov_runs;

struct ov_candidate {
    char *name; /* of the file, without its folder */
    struct ov_profile profile;
    uint64_t bytes, filled_bytes; /* of its weights, and of those that copies filled */
};

struct ov_recall {
    struct ov_candidate *candidate; /* newest first */
    unsigned count;
    unsigned attempts;                  /* memory was compared */
    uint32_t seen_ordinal;              /* what there was at the last attempt: allocations, ... */
    uint64_t seen_bytes;                /* ... bytes uploaded, ... */
    uint32_t seen_launches;             /* ... launches */
    uint32_t waited_since;              /* 1 + launches when one was found that a larger one may yet replace */
    bool later;                         /* the last attempt found one that only wants for launches */
    struct ov_plan_rate rate[OV_RATES]; /* the link's speed in the profile that was taken, until it was measured */
    unsigned rate_count;
};

/* Reads the candidates. */
void ov_recall_open(struct ov_engine *engine);
void ov_recall_close(struct ov_engine *engine);
/* Whether memory may have become that of a candidate, so that it is worth hashing. affordable: it would be, even to
 * find that it has not. A few comparisons while it cannot be. */
bool ov_recall_due(struct ov_engine *engine, bool affordable);
/* Compares. True: there are runs to plan with. In an exclusive section with an idle device. */
bool ov_recall_adopt(struct ov_engine *engine);
/* A study has formed runs: from now on what it says counts. True: a profile's are in use and are the same; the cycle
 * may begin elsewhere (ov_learn.confirmed). If none was found, says why not. */
bool ov_recall_ends(struct ov_engine *engine, const struct ov_runs *runs);
/* The kernel computes addresses, and was not known to. In an exclusive section. */
void ov_recall_doubt(struct ov_engine *engine, const struct ov_kernel *kernel);
/* After the link was measured: a profile's times are of no use on one that is much slower or faster; else its speeds
 * stay, so that plans, and the file, are what they were. */
void ov_recall_check_link(struct ov_engine *engine);

/* recall_match.c. Forms *runs of the candidate: OV_RECALL_ALL. Else *runs is untouched. */
enum ov_recall_match {
    OV_RECALL_NONE,  /* not all its weights are there as they were */
    OV_RECALL_LATER, /* they are, but not all of their beginnings were named by a launch */
    OV_RECALL_ALL,
};
enum ov_recall_match ov_recall_match(struct ov_engine *engine, const struct ov_profile *profile, struct ov_runs *runs);
/* Whether there are allocations for all its weights, as full as they were. */
bool ov_recall_fits(struct ov_engine *engine, const struct ov_candidate *candidate);
/* Whether all that there is agrees with it, and some is to come. */
bool ov_recall_may_come(struct ov_engine *engine, const struct ov_profile *profile);
/* How many weights are there, as they were. *first: the first that is not; how: in words, cut at room. */
size_t ov_recall_compare(struct ov_engine *engine, const struct ov_profile *profile, size_t *first, char *how,
                         size_t room);

#endif
