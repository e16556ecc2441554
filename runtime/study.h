/*
 * study.h - one reading of the log of touches, while it goes on. Used by study*.c and recall_match.c.
 *
 * study.c reads the log, cuts allocations into runs where boundaries are trusted, and finds the order in which runs are
 * used. study_born.c says where kernels began to write what is not written any more. study_judge.c says of runs who
 * reads and who writes them, and what keeps them from being streamed: marks. What comes of it is ov_learn.runs
 * (learn.h). Lives on the stack of ov_learn_study, in an exclusive section; or of ov_recall_match, where the runs come
 * from a profile and are judged all the same.
 */
#ifndef OV_STUDY_H
#define OV_STUDY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "learn.h"

struct ov_alloc;
struct ov_engine;

/* A kernel was passed the address in a slot that may write, or surely does. */
struct ov_birth {
    uint64_t address, place; /* place in the log */
    bool surely;
};

struct ov_study {
    struct ov_engine *engine;
    struct ov_runs runs;
    struct ov_log_entry *entry; /* the log of this discovery, in order; stale entries left out */
    size_t count;
    uint64_t *place; /* of each entry in the log */
    uint32_t *run;   /* of each entry: 1 + index, 0: none */
    struct {
        uint64_t address;
        uint32_t times;
    } * exact; /* addresses touched while their memory was stable, ascending */
    size_t exact_count;
    struct ov_birth *birth; /* all in the program's own reservations, by address, then place */
    size_t births;
    double cycles;      /* that the log covers, 1: there is no cycle */
    unsigned undecided; /* boundaries that were passed, but not often enough yet */
    /* Why there are no more units, for who wonders: pages of stretches that were used but changed since they were last
     * looked at; runs that a kernel writes, and that one may write and no copy has filled. */
    size_t unstable_pages;
    uint32_t written, doubted;
};

/* Reads the log. False: memory ran out. Whether or not, ov_study_end frees. */
bool ov_study_begin(struct ov_study *study);
void ov_study_end(struct ov_study *study);
/* Launches that passed exactly this address while its memory was what it is. */
uint32_t ov_study_times_touched(const struct ov_study *study, uint64_t address);
/* Whether copies filled whole pages of an allocation. */
bool ov_study_is_filled(struct ov_engine *engine, uint32_t first, uint32_t pages);
/* study_born.c. False: memory ran out. */
bool ov_study_find_births(struct ov_study *study);
/* Index of the first birth at the address or behind it. */
size_t ov_study_births_from(const struct ov_study *study, uint64_t address);
/* Whether what a kernel wrote from this address on began there, and still does. */
bool ov_study_born_at(const struct ov_study *study, const struct ov_alloc *alloc, uint64_t address);
/* Drops runs that somebody may write, and finds for each entry which of the others it touches. False: memory ran out.
 */
bool ov_study_keep_innocent(struct ov_study *study);
/* Says of pairs whether they read, and marks runs that are reached in ways that are not seen, or not surely. False:
 * memory ran out. */
bool ov_study_judge_pairs(struct ov_study *study);
/* Marks runs whose addresses were found when memory was last searched. */
void ov_study_mark_hidden(const struct ov_engine *engine, struct ov_runs *runs);
/* From marks to tiers: what may be streamed. */
void ov_study_settle_marks(struct ov_study *study);
/* Says how much may not be, by reason. */
void ov_study_log_marks(const struct ov_study *study);

#endif
