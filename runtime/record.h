/*
 * record.h - a profile of the program (profile.h) is written when a plan was made: OVERSHOT_PROFILE_DIR.
 *
 * The file is <program>-<pid>-device<n>.json, of the latest plan. It appears whole or not at all: another name first,
 * then renamed. It has no times, since passes are not timed. Nothing reads it back but `overshot plan`.
 *
 * Needs the engine's lock, in an exclusive section: file I/O has no place in the launch path.
 */
#ifndef OV_RECORD_H
#define OV_RECORD_H

struct ov_engine;

void ov_record(struct ov_engine *engine);

#endif
