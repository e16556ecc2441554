/*
 * learn.h - discovery: which memory is weight, where one weight ends, in what order weights are used, who only reads.
 *
 * While an engine learns, every address that a launch passes is logged. At a quiet point, when most of what is touched
 * was touched twice or more, the memory is hashed and the log is read:
 *
 * - Stable: a page whose hash is what it was; `since` says from which place in the log on.
 * - Run: bytes between two trusted boundaries of an allocation. A boundary inside an allocation is trusted if
 *   copies from the host ended (at most 4 KiB before) and began there, and launches passed exactly that address,
 *   again and again, while all of it was stable. In the program's own reservations, and only with
 *   OVERSHOT_BOUNDARIES=writes, it may also be an address that was passed to a kernel that writes (study_born.c),
 *   with the same use. So what is only ever reached through a base pointer stays one run.
 * - A run becomes a *unit* if it covers whole pages, all stable, and was touched directly. That bytes did not
 *   change does not prove that nobody writes: passes over the same input write the same activations. So a run must
 *   also be *innocent*: no slot that was seen to write (watch.h) touched it, and it was filled by copies (weights
 *   are, activations are not), or all slots that touched it are known to read.
 * - Reader: a (kernel, slot) pair all of whose logged touches lie in units, after they had become stable.
 * - Marks: why a run may not be streamed although it is a weight: enum ov_mark.
 *
 * Result: units, the sequence of their use (its period when it has one), and which units a launch uses together. It is
 * kept until the next discovery and is what plans are made of.
 *
 * Guarded by the engine's lock; ov_learn_study needs an exclusive section.
 */
#ifndef OV_LEARN_H
#define OV_LEARN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "inspect.h"
#include "kernel.h"
#include "plan.h"
#include "scan.h"

/* Bits; sticky for the life of an allocation unless stated. */
enum ov_mark {
    OV_MARK_HIDDEN = 1,    /* its address was found in memory: it can be reached without being a parameter */
    OV_MARK_AMBIGUOUS = 2, /* reached through a slot that holds an address in some launches only */
    OV_MARK_GRAPH = 4,     /* touched inside a graph */
    OV_MARK_COPIED = 8,    /* copied from or into again and again */
    OV_MARK_WRITTEN = 16,  /* written by a launch after it had been streamed; cleared when found stable again, once */
    OV_MARK_FOREIGN = 32,  /* touched from another context or device */
    OV_MARK_CROWDED = 64,  /* its launches touch more units than can be held at once */
};
/* Who touches it is not all in the log. */
#define OV_MARKS_UNSEEN (OV_MARK_HIDDEN | OV_MARK_GRAPH | OV_MARK_FOREIGN)

struct ov_memo {
    struct ov_hash hash;
    uint64_t since;    /* place in the log from which the hash was this; 0 if not hashed */
    uint64_t filled;   /* place in the log at the last copy or fill */
    uint64_t moved;    /* the same when it came to the device or went to the host last (density.h) */
    uint32_t uploaded; /* bytes of the page that copies have filled, and no kernel is known to have changed since */
    uint32_t born;     /* 1 + where a kernel began to write what is there since (study_born.c), 0: not known */
    bool hashed;
    bool copied;  /* a copy or fill has changed it since it was hashed */
    bool written; /* a kernel has, since */
    bool used;    /* a launch named it when it was taken for unused */
    bool sparse;  /* of a unit's first page: read in part, as far as is known (density.h); */
    bool refuted; /* ... but that was wrong once */
    uint8_t marks;
    uint8_t strikes; /* times it was taken out of the ring */
};

struct ov_log_entry {
    uint64_t address;
    struct ov_kernel *kernel;
    uint16_t slot;
    bool on_host;     /* the page of the address, then */
    uint32_t ordinal; /* of the allocation: addresses are used again */
    uint32_t launch;
    uint32_t took_ns; /* the launch, between two events; 0: not known */
};

/* A unit, as discovered. */
struct ov_run {
    uint64_t begin, end;   /* addresses; end is exclusive */
    uint32_t first, pages; /* the whole pages inside */
    uint32_t ordinal;      /* of its allocation */
    uint8_t may;           /* set of tiers */
    uint8_t marks;
    bool sparse; /* read in part (density.h), ... */
    float share; /* ... so much of it in a cycle, at most; 1: all, or not known */
    float reads; /* launches of a cycle that touch it */
};

struct ov_runs {
    struct ov_run *item; /* by address */
    uint32_t count, room;
    uint32_t *cycle; /* indices of runs in order of use */
    size_t cycle_length;
    /* Of each entry of cycle, from its touch to the next one: computation without copies; what copies that run at the
     * same time add, as a share. NULL: not measured. */
    double *compute_s, *stretch;
    bool periodic;
    struct ov_plan_group *group;
    size_t group_count;
    uint32_t *group_unit;
};

struct ov_learn {
    struct ov_log_entry *log; /* ring of OV_LOG_ENTRIES */
    uint64_t head;            /* places count from 1 and never wrap */
    uint64_t start;           /* first place of this discovery */
    uint32_t launches;
    uint64_t last_address;  /* of the last logged touch, for visits */
    uint32_t visits_wanted; /* before the next attempt */
    unsigned attempts;      /* in this discovery, since the picture last was half of what it is */
    uint32_t units_seen;    /* by the last attempt */
    uint32_t new_kernels;   /* launched for the first time since then */
    uint32_t beginnings;    /* attempts in vain that do not count, since there were any */
    uint32_t tried;         /* launches until the last attempt that was in vain, ... */
    uint32_t between;       /* ... and those since the one before it */
    bool settled;           /* there is a plan, but for lack of a period: only one with a period replaces it */
    bool fresh;             /* the runs were formed at this very quiet point */
    bool recalled;          /* the runs are those of a profile (recall.h), and no study has found the same yet, ... */
    bool confirmed;         /* ... or the last one has: they stay */
    uint64_t copied_bytes;  /* uploaded so far */
    uint64_t studied;       /* place in the log of the study that formed the runs */
    struct ov_memo *memo;   /* per page of the arena, mapped lazily */
    struct ov_runs runs;
};

/* Studies without a period before a plan is made all the same; twice as many, and it is no longer looked for. */
#define OV_PATIENCE 3u

#define OV_LOG_ENTRIES ((uint64_t)1 << 20)

struct ov_engine;

bool ov_learn_open(struct ov_engine *engine);
void ov_learn_close(struct ov_engine *engine);
/* Begins to log. What is known of pages stays. */
void ov_learn_start(struct ov_engine *engine);
void ov_learn_log(struct ov_engine *engine, const struct ov_launch *launch, const struct ov_touches *touches);
/* Whether a study is worth its cost now. */
bool ov_learn_due(const struct ov_engine *engine);
/* Hashes what may have changed. */
CUresult ov_learn_hash(struct ov_engine *engine);
/* A study was in vain: how long to wait for the next one. Twice as long; but a program that still launches kernels
 * which it never launched before (it compiles, and tries which of several is fastest) has only begun. */
void ov_learn_wait(struct ov_engine *engine);
/* Hashes, then forms engine->learn.runs anew. False: no clear picture yet, or confirmed: the old runs stay. */
bool ov_learn_study(struct ov_engine *engine);
/* Hashes and searches all memory again, for a plan that is made of an earlier study: what is named in memory by now may
 * not be streamed any more. */
CUresult ov_learn_look_again(struct ov_engine *engine);
/* A copy (from_copy) or a fill changed [address, address + bytes). Returns how much a copy filled for the first time.
 */
size_t ov_learn_filled(struct ov_engine *engine, uint64_t address, size_t bytes, bool from_copy);
/* Marks all pages of the run around an address; outside of runs all pages of the allocation, in a reservation those up
 * to the next runs. */
void ov_learn_mark(struct ov_engine *engine, uint64_t address, enum ov_mark mark);
/* Forgets what is known of pages: they were freed. */
void ov_learn_forget(struct ov_engine *engine, uint32_t first, uint32_t pages);
void ov_runs_free(struct ov_runs *runs);
/* Drops runs whose allocations are gone, or shared with other processes. */
void ov_runs_prune(struct ov_engine *engine);

#endif
