/*
 * plan_rig.h - traces written by hand for tests of the planner: one at a time, in the globals of whoever includes it.
 */
#ifndef OV_TEST_PLAN_RIG_H
#define OV_TEST_PLAN_RIG_H

#include <check.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/plan.h"

#define R   OV_TIER_BIT(OV_TIER_RESIDENT)
#define S   OV_TIER_BIT(OV_TIER_STREAMED)
#define H   OV_TIER_BIT(OV_TIER_HOST)
#define ANY (R | S | H)

#define RIG_UNITS   1024
#define RIG_TOUCHES 4096

struct rig {
    struct ov_plan_unit unit[RIG_UNITS];
    uint32_t cycle[RIG_TOUCHES];
    double compute_s[RIG_TOUCHES], stretch[RIG_TOUCHES];
    struct ov_plan_part part[16];
    struct ov_plan_group group[64];
    uint32_t member[256];
    struct ov_plan_input input;
    uint64_t seed;
};

/* An empty trace; the link copies 1000 pages a second. */
static inline void rig_begin(struct rig *rig, size_t budget_pages)
{
    *rig = (struct rig){.seed = 0x2545f4914f6cdd1du};
    rig->input = (struct ov_plan_input){.unit = rig->unit,
                                        .cycle = rig->cycle,
                                        .compute_s = rig->compute_s,
                                        .budget_pages = budget_pages,
                                        .tiers = OV_TIERS_ALL,
                                        .link_pages_per_s = 1000};
}

static inline uint32_t rig_below(struct rig *rig, uint32_t n)
{
    rig->seed ^= rig->seed << 13;
    rig->seed ^= rig->seed >> 7;
    rig->seed ^= rig->seed << 17;
    return (uint32_t)((rig->seed >> 20) % n);
}

static inline uint32_t rig_unit(struct rig *rig, uint32_t pages, unsigned may)
{
    rig->unit[rig->input.unit_count] = (struct ov_plan_unit){.pages = pages, .may = (uint8_t)may};
    return (uint32_t)rig->input.unit_count++;
}

static inline void rig_touch(struct rig *rig, uint32_t unit, double ms)
{
    rig->compute_s[rig->input.cycle_length] = ms / 1000;
    rig->cycle[rig->input.cycle_length++] = unit;
}

static inline uint32_t rig_add(struct rig *rig, uint32_t pages, double ms)
{
    const uint32_t unit = rig_unit(rig, pages, ANY);
    rig_touch(rig, unit, ms);
    return unit;
}

/* What was touched since the last part, or the beginning, is one. */
static inline void rig_part(struct rig *rig, uint32_t repeats)
{
    size_t before = 0;
    for (size_t i = 0; i < rig->input.part_count; i++) {
        before += rig->part[i].length;
    }
    rig->part[rig->input.part_count++] = (struct ov_plan_part){rig->input.cycle_length - before, repeats};
    rig->input.part = rig->part;
}

static inline void rig_group(struct rig *rig, uint32_t a, uint32_t b)
{
    struct ov_plan_group *group = &rig->group[rig->input.group_count];
    *group = (struct ov_plan_group){2 * (uint32_t)rig->input.group_count, 2};
    rig->member[group->start] = a;
    rig->member[group->start + 1] = b;
    rig->input.group_count++;
    rig->input.group = rig->group;
    rig->input.group_unit = rig->member;
}

/* The plan; ov_plan_free() it. */
static inline struct ov_plan rig_plan(const struct rig *rig)
{
    struct ov_plan plan;
    ck_assert(ov_plan_make(&rig->input, &plan));
    ck_assert_uint_le(plan.resident_pages + plan.ring_pages, rig->input.budget_pages);
    ck_assert(plan.bound_s <= plan.cycle_s);
    return plan;
}

static inline double rig_cycle(const struct rig *rig, const struct ov_plan *plan)
{
    struct ov_plan_score score;
    ck_assert(ov_plan_simulate(&rig->input, plan, &score, NULL));
    return score.cycle_s;
}

#endif
