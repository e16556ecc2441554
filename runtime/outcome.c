#include "outcome.h"

#include <stdio.h>
#include <string.h>

#include "engine.h"
#include "interference.h"
#include "log.h"
#include "propose.h"

void ov_outcome_verify(struct ov_engine *engine)
{
    struct ov_ring *ring = &engine->ring;
    size_t checked = 0, wrong = 0;
    for (uint32_t i = 0; i < ring->unit_count; i++) {
        const struct ov_unit *unit = &ring->unit[i];
        if (unit->tier != OV_TIER_STREAMED) {
            continue;
        }
        CUdeviceptr there = ring->window + ((CUdeviceptr)unit->ring_page << OV_PAGE_SHIFT);
        CUresult result = ov_master_fetch(engine, there, unit->first, unit->pages, ring->side);
        bool arrived = ov_finish(engine, ring->side, result) == CUDA_SUCCESS;
        for (uint32_t p = 0; p < unit->pages; p++) {
            struct ov_page_digest digest;
            const struct ov_memo *memo = &engine->learn.memo[unit->first + p];
            bool same =
                arrived &&
                ov_inspect_pages(engine, there + ((CUdeviceptr)p << OV_PAGE_SHIFT), 1, &digest) == CUDA_SUCCESS &&
                memcmp(&digest.hash, &memo->hash, sizeof digest.hash) == 0;
            wrong += !same;
            checked++;
        }
    }
    ov_log(wrong == 0 ? OV_LOG_INFO : OV_LOG_ERROR, "device %d: %zu pages of host masters verified, %zu differ",
           engine->device, checked, wrong);
}

void ov_outcome_tell(const struct ov_engine *engine, char text[OV_OUTCOME_BYTES])
{
    char slower[48] = "";
    const double share = ov_interference(&engine->learn.runs);
    if (share > 0) {
        snprintf(slower, sizeof slower, ", %.1f %% more beside copies", share * 100);
    }
    snprintf(text, OV_OUTCOME_BYTES, "a pass computes %.3f ms (spread %.1f %%)%s, copies %.3f ms, predicted %.3f ms",
             engine->timed.compute_s * 1e3, engine->timed.spread * 100, slower, engine->last_plan.copies_s * 1e3,
             engine->last_plan.predicted_s * 1e3);
}

void ov_outcome_predict(struct ov_engine *engine)
{
    struct ov_plan_score score;
    if (!ov_propose_standing(engine, &score, NULL)) {
        return;
    }
    char pass[OV_OUTCOME_BYTES];
    engine->last_plan.copies_s = score.link_s;
    engine->last_plan.predicted_s = score.cycle_s;
    ov_outcome_tell(engine, pass);
    ov_log(OV_LOG_INFO, "device %d, plan %u: %s", engine->device, engine->plans, pass);
}

void ov_outcome_report(struct ov_engine *engine, const struct ov_plan *plan)
{
    size_t mib = OV_PAGE_BYTES >> 20;
    size_t why[OV_PLAN_REASON_COUNT] = {0}, most = 0;
    for (size_t i = 0; i < plan->unit_count; i++) {
        why[plan->place[i].reason] += plan->place[i].tier == OV_TIER_HOST ? plan->place[i].pages : 0;
    }
    size_t for_want = plan->host_pages - why[OV_PLAN_SPARSE]; /* of another place */
    if (for_want > 0 && plan->streamed_pages == 0) {
        why[OV_PLAN_SPARSE] = 0;
        for (size_t reason = 0; reason < OV_PLAN_REASON_COUNT; reason++) {
            most = why[reason] > why[most] ? reason : most;
        }
        ov_log(OV_LOG_WARN, "device %d: nothing is streamed, %zu MiB of weights are read in host memory: %s",
               engine->device, for_want * mib, ov_plan_reason_text((enum ov_plan_reason)most));
    }
    memset(&engine->last_plan, 0, sizeof engine->last_plan);
    for (uint32_t i = 0; i < engine->ring.unit_count; i++) { /* as it stands, which may be less than was planned */
        const struct ov_unit *unit = &engine->ring.unit[i];
        size_t *tier[] = {[OV_TIER_RESIDENT] = &engine->last_plan.resident,
                          [OV_TIER_STREAMED] = &engine->last_plan.streamed,
                          [OV_TIER_HOST] = &engine->last_plan.host};
        *tier[unit->tier] += unit->pages;
    }
    engine->last_plan.units = engine->ring.streamed_count;
    engine->last_plan.ring = engine->ring.pages;
    ov_log(OV_LOG_INFO,
           "device %d, plan %u: %zu MiB of weights resident, %zu streamed, %zu in host memory; ring %u MiB; "
           "%zu touches a cycle, link %.1f GB/s",
           engine->device, engine->plans, engine->last_plan.resident * mib, engine->last_plan.streamed * mib,
           engine->last_plan.host * mib, engine->ring.pages * (unsigned)mib, engine->learn.runs.cycle_length,
           engine->ring.link_bytes_per_s * 1e-9);
    ov_outcome_predict(engine);
    ov_density_sum_up(engine);
    if (engine->last_plan.in_part > 0) {
        ov_log(OV_LOG_INFO,
               "device %d: %zu MiB of weights are read in place in host memory: read in part, %.1f %% a cycle",
               engine->device, engine->last_plan.in_part * mib, 100 * engine->last_plan.share);
    }
}
