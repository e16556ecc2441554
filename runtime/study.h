/*
 * study.h - one reading of the log of touches, while it goes on. Used by study.c, study_judge.c and recall_match.c.
 *
 * study.c reads the log, cuts allocations into runs where boundaries are trusted, and finds the order in which runs are
 * used. study_judge.c says of runs who reads and who writes them, and what keeps them from being streamed: marks. What
 * comes of it is ov_learn.runs (learn.h). Lives on the stack of ov_learn_study, in an exclusive section; or of
 * ov_recall_match, where the runs come from a profile and are judged all the same.
 */
#ifndef OV_STUDY_H
#define OV_STUDY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "learn.h"

struct ov_engine;

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
    double cycles;      /* that the log covers, 1: there is no cycle */
    unsigned undecided; /* boundaries that were passed, but not often enough yet */
};

/* Reads the log. False: memory ran out. Whether or not, ov_study_end frees. */
bool ov_study_begin(struct ov_study *study);
void ov_study_end(struct ov_study *study);
/* Launches that passed exactly this address while its memory was what it is. */
uint32_t ov_study_times_touched(const struct ov_study *study, uint64_t address);
/* Whether copies filled whole pages of an allocation. */
bool ov_study_is_filled(struct ov_engine *engine, uint32_t first, uint32_t pages);
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
