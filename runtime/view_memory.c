/* What the program may see of its memory: see "Memory" in runtime.h. */

#include "engine.h"
#include "runtime.h"

/* Most of what was uploaded has been used by a launch, and not everything is on the device: what the program loads, it
 * has loaded. */
static bool arrived(const struct ov_engine *engine)
{
    size_t uploaded = 0, unused = 0;
    if (engine->ledger.host_bytes == 0) {
        return false;
    }
    for (uint32_t i = 0; i < engine->allocs.count; i++) {
        const struct ov_alloc *alloc = &engine->allocs.item[i];
        size_t bytes = 0;
        for (uint32_t p = alloc->first; alloc->ordinal != 0 && p < alloc->first + alloc->pages; p++) {
            bytes += engine->arena.page[p].backing != OV_NONE ? engine->learn.memo[p].uploaded : 0;
        }
        uploaded += bytes;
        unused += alloc->visits == 0 ? bytes : 0;
    }
    return uploaded > 0 && unused <= uploaded / 16;
}

static bool mostly_uploaded(const struct ov_engine *engine, uint32_t page)
{
    return engine->learn.memo[page].uploaded >= OV_PAGE_BYTES / 2;
}

/* Pages that are written, or may be: those that belong to no weight. Before there is a plan, weights that kernels have
 * made look like them, so they are taken for a quarter of the budget at most. */
static size_t written_pages(const struct ov_engine *engine)
{
    size_t pages = 0, most = (engine->ledger.budget_bytes / 4) >> OV_PAGE_SHIFT;
    for (uint32_t p = 0; p < engine->arena.high_page; p++) {
        const struct ov_page *page = &engine->arena.page[p];
        bool movable = page->backing == OV_DEVICE || page->backing == OV_HOST || page->backing == OV_RING;
        pages += page->alloc != 0 && movable && !mostly_uploaded(engine, p);
    }
    for (uint32_t i = 0; i < engine->ring.unit_count; i++) {
        const struct ov_unit *unit = &engine->ring.unit[i];
        for (uint32_t p = unit->first; p < unit->first + unit->pages; p++) {
            pages -= !mostly_uploaded(engine, p);
        }
    }
    return engine->plans > 0 || pages < most ? pages : most;
}

/* What the budget cannot give to further memory that is written. Weights give way. */
static size_t written_bytes(const struct ov_engine *engine)
{
    const struct ov_ledger *ledger = &engine->ledger;
    size_t ring = engine->plans > 0 ? (size_t)engine->ring.pages << OV_PAGE_SHIFT : ledger->budget_bytes / 8;
    return ring + (written_pages(engine) << OV_PAGE_SHIFT) + ledger->held_bytes[OV_FOR_SMALL] +
           ledger->held_bytes[OV_FOR_FOREIGN] + ledger->held_bytes[OV_FOR_SCRATCH] +
           ledger->set_aside_bytes[OV_FOR_SMALL] + ledger->set_aside_bytes[OV_FOR_SCRATCH];
}

struct ov_report_answer ov_memory_told(struct ov_engine *engine, size_t device_free_bytes, size_t device_total_bytes)
{
    struct ov_report_facts facts = {
        .total_bytes = device_total_bytes,
        .device_free_bytes = device_free_bytes,
        .host_backed = ov_host_backed(engine),
        .stage = !arrived(engine)     ? OV_REPORT_LOADING
                 : engine->plans == 0 ? OV_REPORT_IN_USE
                                      : OV_REPORT_PLANNED,
    };
    facts.written_bytes = facts.stage != OV_REPORT_LOADING ? written_bytes(engine) : 0;
    return ov_report_ask(&engine->report, &ov_opt, &engine->ledger, &facts);
}

CUresult ov_mem_get_info(size_t *free_bytes, size_t *total_bytes)
{
    struct ov_report_answer answer = {0, 0};
    CUresult result = ov_cu->cuMemGetInfo_v2(&answer.free_bytes, &answer.total_bytes);
    struct ov_engine *engine = result == CUDA_SUCCESS ? ov_engine_for_memory() : NULL;
    if (engine != NULL) {
        pthread_mutex_lock(&engine->lock);
        answer = ov_memory_told(engine, answer.free_bytes, answer.total_bytes);
        pthread_mutex_unlock(&engine->lock);
    }
    if (result == CUDA_SUCCESS) {
        if (free_bytes != NULL) {
            *free_bytes = answer.free_bytes;
        }
        if (total_bytes != NULL) {
            *total_bytes = answer.total_bytes;
        }
    }
    return result;
}

CUresult ov_device_total_mem(size_t *bytes, CUdevice device)
{
    size_t total = 0;
    CUresult result = ov_cu->cuDeviceTotalMem_v2(&total, device);
    if (result == CUDA_SUCCESS && bytes != NULL) {
        *bytes = ov_device_managed(device) ? ov_report_total(&ov_opt, total) : total;
    }
    return bytes != NULL ? result : CUDA_ERROR_INVALID_VALUE;
}
