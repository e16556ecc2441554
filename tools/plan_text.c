/* overshot plan: plans as text. */
#include "plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void print_size(FILE *out, size_t pages)
{
    if (pages >= 512) {
        fprintf(out, "%.2f GiB", plan_gib(pages));
    } else {
        fprintf(out, "%zu MiB", pages * (OV_PROFILE_PAGE >> 20));
    }
}

static void print_time(FILE *out, double seconds)
{
    if (seconds >= 10) {
        fprintf(out, "%.2f s", seconds);
    } else if (seconds >= 1e-2) {
        fprintf(out, "%.2f ms", seconds * 1e3);
    } else {
        fprintf(out, "%.1f us", seconds * 1e6);
    }
}

static double gap(const struct ov_plan *plan)
{
    return plan->bound_s > 0 ? plan->cycle_s / plan->bound_s : 1;
}

static void print_program(const struct plan_curve *curve, FILE *out)
{
    const struct ov_profile *profile = curve->profile;
    size_t pages = 0;
    for (size_t i = 0; i < curve->input.unit_count; i++) {
        pages += curve->input.unit[i].pages;
    }
    fprintf(out, "%s: %zu weights, ", profile->program != NULL ? profile->program : curve->path, profile->weight_count);
    print_size(out, pages);
    for (size_t i = 0; i < profile->cycle_count; i++) {
        const struct ov_profile_cycle *cycle = &profile->cycle[i];
        fprintf(out, "%s %s", i == 0 ? ";" : ",", cycle->name != NULL ? cycle->name : "cycle");
        if (cycle->repeats > 1) {
            fprintf(out, " %u times", cycle->repeats);
        }
        fprintf(out, " (%zu touches)", cycle->length);
    }
    const double large_s = ov_plan_copy_time(&curve->input, 64);
    fprintf(out, "; link %.1f GB/s\n", 64 * (double)OV_PROFILE_PAGE / large_s * 1e-9);
    if (profile->compute_s == NULL) {
        fputs("  the profile has no times: computation is taken to be short next to copies\n", out);
    }
}

static void print_tier(const struct ov_plan *plan, enum ov_tier tier, size_t units, size_t pages, FILE *out)
{
    size_t why[OV_PLAN_REASON_COUNT] = {0};
    const char *separator = ": ";
    fprintf(out, "  %-10s %zu weights, ", ov_tier_name(tier), units);
    print_size(out, pages);
    for (size_t i = 0; i < plan->unit_count; i++) {
        why[plan->place[i].reason] += plan->place[i].tier == tier;
    }
    for (size_t reason = 0; reason < OV_PLAN_REASON_COUNT; reason++) {
        if (why[reason] > 0) {
            fprintf(out, "%s%zu %s", separator, why[reason], ov_plan_reason_text((enum ov_plan_reason)reason));
            separator = "; ";
        }
    }
    fputc('\n', out);
}

static void print_warnings(const struct ov_plan *plan, FILE *out)
{
    if (plan->unplaced_pages > 0) {
        fputs("  ! ", out);
        print_size(out, plan->unplaced_pages);
        fputs(" may only be on the device and do not fit the budget\n", out);
    }
    if (plan->host_over_pages > 0) {
        fputs("  ! ", out);
        print_size(out, plan->host_over_pages);
        fputs(" more than the limit of host memory\n", out);
    }
}

void plan_text(const struct plan_curve *curve, FILE *out)
{
    const struct ov_plan *plan = &curve->point[curve->count - 1].plan;
    print_program(curve, out);
    fputs("  budget     ", out);
    print_size(out, curve->point[curve->count - 1].budget_pages);
    fputs(", used ", out);
    print_size(out, plan->resident_pages + plan->ring_pages);
    fputs("\n  cycle      ", out);
    print_time(out, plan->cycle_s);
    fputs("; at least ", out);
    print_time(out, plan->bound_s);
    fprintf(out, " (gap %.4f); all resident ", gap(plan));
    print_time(out, plan->resident_s);
    fputs("\n  link       ", out);
    print_time(out, plan->score.link_s);
    fputs(" busy, ", out);
    print_size(out, plan->cycle_pages);
    fputs(" copied; computation waits ", out);
    print_time(out, plan->score.stall_s);
    fputc('\n', out);
    print_tier(plan, OV_TIER_RESIDENT, plan->resident_units, plan->resident_pages, out);
    print_tier(plan, OV_TIER_STREAMED, plan->streamed_units, plan->streamed_pages, out);
    print_tier(plan, OV_TIER_HOST, plan->host_units, plan->host_pages, out);
    fputs("  ring       ", out);
    print_size(out, plan->ring_pages);
    fprintf(out, "\n  strategy   %s, best of %zu plans\n", ov_plan_strategy_name(plan->strategy), plan->tried);
    print_warnings(plan, out);
}

void plan_text_curve(const struct plan_curve *curve, FILE *out)
{
    print_program(curve, out);
    fprintf(out, "%10s %10s %11s %11s %7s %10s %10s %10s %9s  %s\n", "budget GiB", "used GiB", "cycle ms", "bound ms",
            "gap", "resident", "streamed", "host", "ring GiB", "strategy");
    for (size_t i = 0; i < curve->count; i++) {
        const struct ov_plan *plan = &curve->point[i].plan;
        fprintf(out, "%10.2f %10.2f %11.3f %11.3f %7.4f %10.2f %10.2f %10.2f %9.3f  %s%s\n",
                plan_gib(curve->point[i].budget_pages), plan_gib(plan->resident_pages + plan->ring_pages),
                plan->cycle_s * 1e3, plan->bound_s * 1e3, gap(plan), plan_gib(plan->resident_pages),
                plan_gib(plan->streamed_pages), plan_gib(plan->host_pages), plan_gib(plan->ring_pages),
                ov_plan_strategy_name(plan->strategy),
                plan->unplaced_pages > 0    ? ", does not fit"
                : plan->host_over_pages > 0 ? ", too much for the host"
                                            : "");
    }
}

/* ---- one weight ---- */

static void explain_place(const struct plan_curve *curve, const struct ov_plan *plan, uint32_t weight, FILE *out)
{
    const struct ov_plan_place *place = &plan->place[weight];
    size_t shared = 0;
    char room[32];
    fprintf(out, "  in the ring at %zu MiB of %zu; its pages are also those of",
            place->ring_page * (OV_PROFILE_PAGE >> 20), plan->ring_pages * (OV_PROFILE_PAGE >> 20));
    for (uint32_t i = 0; i < plan->unit_count; i++) {
        if (i != weight && ov_plan_overlap(plan, weight, i) && ++shared <= 6) {
            fprintf(out, "%s %s", shared > 1 ? "," : "", plan_weight_name(curve->profile, i, room, sizeof(room)));
        }
    }
    if (shared > 6) {
        fprintf(out, " and %zu more", shared - 6);
    }
    fputs(shared == 0 ? " no other\n" : "\n", out);
}

static void explain_copies(const struct plan_curve *curve, const struct ov_plan *plan, uint32_t weight,
                           const double *stall_s, FILE *out)
{
    char room[32];
    for (size_t i = 0; i < plan->copy_count; i++) {
        const struct ov_plan_copy *copy = &plan->copy[i];
        if (copy->unit != weight) {
            continue;
        }
        fprintf(out, "  copied for touch %u%s, ", copy->touch, copy->again ? " in each repetition but the first" : "");
        if (copy->after == OV_PLAN_NO_TOUCH) {
            fputs("at any time before", out);
        } else {
            fprintf(out, "after touch %u (%s)", copy->after,
                    plan_weight_name(curve->profile, curve->input.cycle[copy->after], room, sizeof(room)));
        }
        fputs("; the touch waits ", out);
        print_time(out, stall_s[copy->touch]);
        fputs(" for it\n", out);
    }
}

bool plan_text_explain(const struct plan_curve *curve, uint32_t weight, FILE *out)
{
    const struct ov_plan *plan = &curve->point[curve->count - 1].plan;
    const struct ov_plan_place *place = &plan->place[weight];
    double *stall_s = calloc(curve->input.cycle_length + 1, sizeof(*stall_s));
    struct ov_plan_score score;
    size_t touches = 0;
    char room[32];

    if (stall_s == NULL || !ov_plan_simulate(&curve->input, plan, &score, stall_s)) {
        free(stall_s);
        return false;
    }
    for (size_t i = 0; i < curve->input.cycle_length; i++) {
        touches += curve->input.cycle[i] == weight;
    }
    fprintf(out, "%s (%u): ", plan_weight_name(curve->profile, weight, room, sizeof(room)), weight);
    print_size(out, place->pages);
    fprintf(out, ", %zu touches in the cycle, a copy takes ", touches);
    print_time(out, ov_plan_copy_time(&curve->input, place->pages));
    fprintf(out, "\n  %s: %s\n", ov_tier_name((enum ov_tier)place->tier),
            ov_plan_reason_text((enum ov_plan_reason)place->reason));
    if (place->tier == OV_TIER_STREAMED) {
        explain_place(curve, plan, weight, out);
        explain_copies(curve, plan, weight, stall_s, out);
    }
    free(stall_s);
    return true;
}
