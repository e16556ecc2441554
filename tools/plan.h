/*
 * plan.h - `overshot plan`: what would happen to a program that was profiled. plan.c reads the command line and makes
 * the plans; plan_text.c, plan_json.c and plan_svg.c show them.
 *
 * Ownership: plan.c owns everything; the others only print, to `out`.
 */
#ifndef OVERSHOT_PLAN_H
#define OVERSHOT_PLAN_H

#include "runtime/profile.h"

#include <stdio.h>

/* Budgets, and the plan for each. One: no curve was asked for. */
struct plan_curve {
    const char *path;
    const struct ov_profile *profile;
    struct ov_plan_input input; /* budget_pages: of the last point */
    struct plan_point {
        size_t budget_pages;
        struct ov_plan plan;
    } * point;
    size_t count;
};

void plan_text(const struct plan_curve *curve, FILE *out);
void plan_text_curve(const struct plan_curve *curve, FILE *out);
/* The weight's tier in the plan of the last point, why, and what its copies wait for. False: memory ran out. */
bool plan_text_explain(const struct plan_curve *curve, uint32_t weight, FILE *out);
/* False: memory ran out. */
bool plan_json(const struct plan_curve *curve, FILE *out);
void plan_svg(const struct plan_curve *curve, FILE *out);

/* "layers.0.q", or "weight 17" where it has no name. */
const char *plan_weight_name(const struct ov_profile *profile, uint32_t weight, char *room, size_t room_bytes);

static inline double plan_gib(size_t pages)
{
    return (double)pages * (double)OV_PROFILE_PAGE / (double)(1 << 30);
}

#endif
