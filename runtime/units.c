/* Units that stop being any because of what the program does with its addresses: see convert.h. */
#include "convert.h"
#include "engine.h"

/* Pages of a unit and those at its edges, which it shares with others. */
static bool covers(const struct ov_arena *arena, uint64_t begin, uint64_t end, uint32_t first, uint32_t pages)
{
    uint64_t from = ov_page_address(arena, first), to = from + ((uint64_t)pages << OV_PAGE_SHIFT);
    return begin < to && end > from;
}

bool ov_units_at(const struct ov_engine *engine, uint32_t first, uint32_t pages)
{
    const struct ov_runs *runs = &engine->learn.runs;
    bool found = false;
    for (uint32_t i = 0; i < engine->ring.unit_count && !found; i++) {
        const struct ov_unit *unit = &engine->ring.unit[i];
        found = unit->pages > 0 && covers(&engine->arena, unit->begin, unit->end, first, pages);
    }
    for (uint32_t i = 0; i < runs->count && !found; i++) {
        found =
            runs->item[i].ordinal != 0 && covers(&engine->arena, runs->item[i].begin, runs->item[i].end, first, pages);
    }
    return found;
}

CUresult ov_units_leave(struct ov_engine *engine, uint32_t first, uint32_t pages)
{
    struct ov_runs *runs = &engine->learn.runs;
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < engine->ring.unit_count && result == CUDA_SUCCESS; i++) {
        struct ov_unit *unit = &engine->ring.unit[i];
        if (unit->pages > 0 && covers(&engine->arena, unit->begin, unit->end, first, pages)) {
            result = ov_unit_revoke(engine, i, 0);
            if (result == CUDA_SUCCESS) {
                unit->pages = 0; /* the entry stays until the next plan */
                engine->replan_soon = engine->replan_soon || atomic_load(&engine->planned);
            }
        }
    }
    for (uint32_t i = 0; i < runs->count; i++) {
        if (covers(&engine->arena, runs->item[i].begin, runs->item[i].end, first, pages)) {
            runs->item[i].ordinal = 0; /* no allocation has this one: it is dropped with the next plan */
        }
    }
    return result;
}
