/*
 * outcome.h - what a plan came to when it was brought about: told to the user, kept for the summary, checked.
 *
 * In the exclusive section in which it was (convert.c).
 */
#ifndef OV_OUTCOME_H
#define OV_OUTCOME_H

struct ov_engine;
struct ov_plan;

/* Counts what stands where into engine->last_plan, which may be less than was planned, and logs it. */
void ov_outcome_report(struct ov_engine *engine, const struct ov_plan *plan);
/* What a pass takes under the plan as it stands, where computation was timed; into engine->last_plan and to the log. */
void ov_outcome_predict(struct ov_engine *engine);
/* That as text, where there is something: predicted_s is not 0. With the engine's lock. */
#define OV_OUTCOME_BYTES 192u
void ov_outcome_tell(const struct ov_engine *engine, char text[OV_OUTCOME_BYTES]);
/* OVERSHOT_VERIFY: the masters, as they arrive in the ring, are what was on the device when it was hashed. An error is
 * logged if not. */
void ov_outcome_verify(struct ov_engine *engine);

#endif
