/*
 * record.h - a profile of the program (profile.h) is kept for `overshot plan` and the next start (recall.h):
 * OVERSHOT_PROFILE_DIR, unless OVERSHOT_PROFILE says otherwise.
 *
 * The file is <program>-<half of the weights' key>-device<n>.json, so that a program that runs several models has one
 * for each, and the next start writes over its own. The key is a sum over the weights, their bytes and where they lie
 * in their allocations, whatever the order of these. It is written when a plan was made, and at quiet points later on,
 * ever more seldom, since more becomes known of kernels; each time only if its text would change. It appears whole or
 * not at all: another name first, then renamed. Programs that change their weights all the time leave eight files, not
 * one for each change. Who uses a file and does not change it renews its date, by which the
 * newest are told.
 *
 * Needs the engine's lock, and a moment at which nobody minds a file being written: file I/O has no place in the launch
 * path.
 */
#ifndef OV_RECORD_H
#define OV_RECORD_H

#include <stdint.h>

#define OV_DEVICE_NAME_ROOM 256

struct ov_engine;
struct ov_profile;
struct ov_run;

/* A plan was made, or confirmed. */
void ov_record(struct ov_engine *engine);
/* A quiet point. */
void ov_record_quiet(struct ov_engine *engine);

/* *here: the program, and the engine's device and driver; all else is 0. */
void ov_record_here(const struct ov_engine *engine, struct ov_profile *here, char device[OV_DEVICE_NAME_ROOM]);
/* Of the whole pages of a run, as they were when they were last hashed. */
void ov_record_hash(const struct ov_engine *engine, const struct ov_run *run, uint64_t hash[2]);

#endif
