/*
 * convert.h - bringing a plan about, and taking single units out of it.
 *
 * All functions need an exclusive section of the engine: nothing on the device uses what changes. The budget is kept at
 * every moment: memory is given back before other memory is taken, with the host as the place between. What cannot be
 * brought about (host memory is short) leaves pages where they are, which is always right and only slower.
 */
#ifndef OV_CONVERT_H
#define OV_CONVERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "learn.h"

struct ov_engine;

/* Plans from engine->learn.runs with `reserve_pages` of the budget left free, and up to `spare_pages` more as long as
 * that sends no weight to host memory that could do without; and converts. False: nothing changed. */
bool ov_plan_and_convert(struct ov_engine *engine, uint32_t reserve_pages, uint32_t spare_pages);
/* The plan that it makes, without bringing it about; spare_pages becomes what of it was kept, want[] is as for
 * ov_propose. */
bool ov_plan_draft(struct ov_engine *engine, uint32_t reserve_pages, uint32_t *spare_pages, uint8_t *want,
                   struct ov_plan *plan);
/* Copies whole pages on the side stream and waits for it. */
CUresult ov_copy_pages(struct ov_engine *engine, CUdeviceptr to, CUdeviceptr from, uint32_t pages);
/* Whether any unit covers one of the pages, whatever its tier (engine's lock); and taking those units out of the ring
 * and of what the next plan is made of. */
bool ov_units_at(const struct ov_engine *engine, uint32_t first, uint32_t pages);
CUresult ov_units_leave(struct ov_engine *engine, uint32_t first, uint32_t pages);
/* Pages of the arena that no unit covers and that stand on the device. */
uint32_t ov_pages_written(const struct ov_engine *engine);
/* Moves device memory to the host, last allocated first, until `pages` more fit the budget or nothing is left. */
void ov_demote_some(struct ov_engine *engine, uint32_t pages);
/* A unit leaves the ring: its pages become its host master, writable. mark 0: on trial, ov_unit_restore may follow. */
CUresult ov_unit_revoke(struct ov_engine *engine, uint32_t unit, unsigned mark);
CUresult ov_unit_restore(struct ov_engine *engine, uint32_t unit);
/* All units leave the ring. Not CUDA_SUCCESS: some could not. */
CUresult ov_revoke_all(struct ov_engine *engine, unsigned mark);

#endif
