/*
 * propose.h - where every page of the arena should stand: what the program writes first, then the units as the planner
 * places them, then what was uploaded and is not used.
 *
 * Reads the engine, changes nothing but the marks of its answer. Needs the engine's lock.
 */
#ifndef OV_PROPOSE_H
#define OV_PROPOSE_H

#include <stdbool.h>
#include <stdint.h>

#include "plan.h"

/* What a page is to become. */
enum ov_want { OV_WANT_NOTHING, OV_WANT_DEVICE, OV_WANT_HOST, OV_WANT_RING };

struct ov_alloc;
struct ov_engine;
struct ov_question;

/* Whether a page that belongs to no unit is taken for one that was uploaded and is not used. What the program writes,
 * or may write, is not: it comes first. */
bool ov_is_cold(const struct ov_engine *engine, const struct ov_alloc *alloc, uint32_t page);

/* With `reserve_pages` of the budget left free. want[] has an entry for each page below the arena's high_page and one
 * more. False: memory ran out, and *plan need not be freed. */
bool ov_propose(struct ov_engine *engine, uint32_t reserve_pages, uint8_t *want, struct ov_plan *plan);

/* What the planner is asked for that, to be freed by the caller. False: memory ran out. */
bool ov_propose_question(struct ov_engine *engine, uint32_t reserve_pages, struct ov_question *question);

/* What a cycle takes under a plan for the units that there are, and under the plan as it stands, with the times that
 * were measured. stall_s: as for ov_plan_simulate. False: there are none, or the units are others by now. */
bool ov_propose_score(const struct ov_engine *engine, const struct ov_plan *plan, struct ov_plan_score *score,
                      double *stall_s);
bool ov_propose_standing(const struct ov_engine *engine, struct ov_plan_score *score, double *stall_s);
/* The same for ov_plan_beside, under the plan as it stands; where stretches are known. */
bool ov_propose_beside(const struct ov_engine *engine, double *beside_s);

#endif
