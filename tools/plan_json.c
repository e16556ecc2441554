/* overshot plan: plans as JSON. */
#include "plan.h"

#include "runtime/json.h"

#include <math.h>
#include <stdlib.h>

static void put_number(struct ov_json_writer *writer, const char *key, double number)
{
    ov_json_key(writer, key);
    ov_json_number(writer, number);
}

static void put_string(struct ov_json_writer *writer, const char *key, const char *string)
{
    ov_json_key(writer, key);
    ov_json_string(writer, string);
}

static double bytes_of(size_t pages)
{
    return (double)pages * (double)OV_PROFILE_PAGE;
}

static void put_sums(struct ov_json_writer *writer, const struct plan_point *point)
{
    const struct ov_plan *plan = &point->plan;
    put_number(writer, "budget_bytes", bytes_of(point->budget_pages));
    put_number(writer, "used_bytes", bytes_of(plan->resident_pages + plan->ring_pages));
    put_number(writer, "cycle_ms", plan->cycle_s * 1e3);
    put_number(writer, "bound_ms", plan->bound_s * 1e3);
    put_number(writer, "gap", plan->bound_s > 0 ? plan->cycle_s / plan->bound_s : 1);
    put_number(writer, "all_resident_ms", plan->resident_s * 1e3);
    put_number(writer, "wait_ms", plan->score.stall_s * 1e3);
    put_number(writer, "link_busy_ms", plan->score.link_s * 1e3);
    put_number(writer, "copied_bytes", bytes_of(plan->cycle_pages));
    put_number(writer, "ring_bytes", bytes_of(plan->ring_pages));
    put_number(writer, "resident_bytes", bytes_of(plan->resident_pages));
    put_number(writer, "streamed_bytes", bytes_of(plan->streamed_pages));
    put_number(writer, "host_bytes", bytes_of(plan->host_pages));
    put_number(writer, "unplaced_bytes", bytes_of(plan->unplaced_pages));
    put_number(writer, "host_over_bytes", bytes_of(plan->host_over_pages));
    put_string(writer, "strategy", ov_plan_strategy_name(plan->strategy));
    put_number(writer, "plans_tried", (double)plan->tried);
}

static void put_places(struct ov_json_writer *writer, const struct plan_curve *curve, const struct ov_plan *plan)
{
    char room[32];
    ov_json_key(writer, "weights");
    ov_json_begin(writer, OV_JSON_ARRAY);
    for (uint32_t i = 0; i < plan->unit_count; i++) {
        const struct ov_plan_place *place = &plan->place[i];
        ov_json_begin(writer, OV_JSON_OBJECT);
        put_string(writer, "name", plan_weight_name(curve->profile, i, room, sizeof(room)));
        put_string(writer, "tier", ov_tier_name((enum ov_tier)place->tier));
        put_string(writer, "why", ov_plan_reason_text((enum ov_plan_reason)place->reason));
        if (place->tier == OV_TIER_STREAMED) {
            put_number(writer, "ring_offset", bytes_of(place->ring_page));
        }
        ov_json_end(writer);
    }
    ov_json_end(writer);
}

static void put_copies(struct ov_json_writer *writer, const struct ov_plan *plan)
{
    ov_json_key(writer, "copies");
    ov_json_begin(writer, OV_JSON_ARRAY);
    for (size_t i = 0; i < plan->copy_count; i++) {
        const struct ov_plan_copy *copy = &plan->copy[i];
        ov_json_begin(writer, OV_JSON_OBJECT);
        put_number(writer, "weight", copy->unit);
        put_number(writer, "for_touch", copy->touch);
        put_number(writer, "after_touch", copy->after == OV_PLAN_NO_TOUCH ? HUGE_VAL : copy->after);
        if (copy->again) {
            ov_json_key(writer, "in_repetitions");
            ov_json_bool(writer, true);
        }
        ov_json_end(writer);
    }
    ov_json_end(writer);
}

bool plan_json(const struct plan_curve *curve, FILE *out)
{
    struct ov_json_writer writer = {0};
    ov_json_begin(&writer, OV_JSON_OBJECT);
    put_string(&writer, "schema", "overshot plan");
    put_number(&writer, "version", 1);
    if (curve->count > 1) {
        ov_json_key(&writer, "points");
        ov_json_begin(&writer, OV_JSON_ARRAY);
        for (size_t i = 0; i < curve->count; i++) {
            ov_json_begin(&writer, OV_JSON_OBJECT);
            put_sums(&writer, &curve->point[i]);
            ov_json_end(&writer);
        }
        ov_json_end(&writer);
    } else {
        put_sums(&writer, &curve->point[0]);
        put_places(&writer, curve, &curve->point[0].plan);
        put_copies(&writer, &curve->point[0].plan);
    }
    ov_json_end(&writer);
    char *text = ov_json_text(&writer);
    if (text != NULL) {
        fputs(text, out);
    }
    free(text);
    return text != NULL;
}
