/*
 * giveway.h - before the first plan: memory that only copies have filled gives way to what is computed.
 *
 * Weights are loaded first. So when a program that is larger than its budget begins to compute, the device is
 * full of weights, and whatever it asks for from then on would be host memory until there is a plan. That is the
 * wrong way round: a weight in the host is read over the link a few times a pass, an activation is written and
 * read there by one kernel after the other. So pages that copies have filled and no kernel is known to have
 * written go to the host, where the first plan finds them like any other weight that did not fit:
 *
 * - for an allocation that does not fit, at least a sixteenth of the budget at a time, those first that were
 *   loaded first: they are what a first pass has just used;
 * - at a quiet point, for memory in the host that kernels were seen to write (a cache that was made after the
 *   weights and before the first launch): the two *change places*.
 *
 * Neither while the program loads, or each weight would push out an earlier one. What decides is how often
 * launches name what was uploaded: the program computes when that has happened more than twice as often as ever
 * between two uploads from the host to where none had been (of a MiB and more; less is a pass's input). A loader
 * that runs some kernels on each of its tensors tells by the first ones how many that are, and one that runs
 * none is over with the first launch; only when few uploads were seen, it takes four. A loader that converts all
 * tensors when all of them are there looks like a pass: what it makes of them is written by kernels, gets the
 * device, and stays there.
 *
 * What cannot move (no host memory, too little that could leave) stays as it is, and is not tried again until
 * the program has grown. What moves gets mapped masters (masters.h), since it is read in place at once; it keeps
 * them when the first plan streams it. Neither its bytes change nor what is known of them; only times that
 * launches took where things stood before are forgotten (density.h).
 *
 * Guarded by the engine's lock.
 */
#ifndef OV_GIVEWAY_H
#define OV_GIVEWAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ov_engine;

struct ov_giveway {
    uint32_t named, most;  /* launches that named what was loaded, since the last upload; the most between two */
    uint32_t uploads;      /* while launches were looked at */
    size_t fresh_bytes;    /* uploaded since, to where nothing had been */
    uint64_t loaded;       /* place in the log at the last upload: what copies fill later is no weight */
    size_t refused_bytes;  /* what the program held when too little could give way; 0: enough could */
    uint32_t points, wait; /* quiet points since places were last to be changed; how many there have to be */
};

/* The program copied so much into memory that no copy had filled before. */
void ov_giveway_uploaded(struct ov_engine *engine, size_t bytes);
/* Whether copies have filled the page, which is an allocation's, and nobody has written there since. */
bool ov_giveway_is_loaded(struct ov_engine *engine, uint32_t page);
/* A launch named a page of which that is so. */
void ov_giveway_named(struct ov_engine *engine);

/* Whether it is worth an exclusive section to make room for `bytes`. Takes the lock. */
bool ov_giveway_may(struct ov_engine *engine, size_t bytes);
/* Makes room for as many pages as that, or none. In an exclusive section without captures. */
void ov_giveway(struct ov_engine *engine, uint32_t pages);
/* At a quiet point: whether it is time to look for what should change places, less and less often; */
bool ov_giveway_due(struct ov_engine *engine);
/* and then, in an exclusive section without captures. */
void ov_giveway_change(struct ov_engine *engine);

#endif
