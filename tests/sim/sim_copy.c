/*
 * The engine behind every copy and memset. All forms become a CUDA_MEMCPY3D (or a memset of rows); a row is one
 * contiguous access, and rows that touch each other become one.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

enum place { ON_DEVICE, ON_PINNED, ON_PAGEABLE };

/* One side of a copy, with its addresses worked out. */
struct side {
    uint64_t start; /* of the first row */
    uint64_t row_step, slice_step;
    enum place place;
};

struct copy_run {
    struct side to, from;
    uint64_t width, height, depth;
};

static enum place place_of(uint64_t address)
{
    const struct sim_range *range = sim_range_find(address);
    if (range == NULL) {
        return ON_PAGEABLE;
    }
    if (range->kind == SIM_RANGE_RESERVED) {
        const struct sim_mapping *mapping = sim_vmm_find(range, address);
        return mapping != NULL && sim_vmm_backing(mapping)->pool == SIM_POOL_HOST_VMM ? ON_PINNED : ON_DEVICE;
    }
    return range->kind == SIM_RANGE_DEVICE ? ON_DEVICE : ON_PINNED;
}

static CUresult side_make(struct side *side, CUmemorytype type, uint64_t device, const void *host, uint64_t x,
                          uint64_t y, uint64_t z, uint64_t pitch, uint64_t height)
{
    uint64_t base = type == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)host : device;
    if (type == CU_MEMORYTYPE_ARRAY) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    side->start = base + (z * height + y) * pitch + x;
    side->row_step = pitch;
    side->slice_step = pitch * height;
    side->place = place_of(side->start);
    if (base == 0 || (type == CU_MEMORYTYPE_DEVICE && side->place == ON_PAGEABLE)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static CUresult run_make(struct copy_run *run, const CUDA_MEMCPY3D *copy)
{
    uint64_t width = copy->WidthInBytes, height = copy->Height, depth = copy->Depth;
    uint64_t to_pitch = copy->dstPitch != 0 ? copy->dstPitch : width + copy->dstXInBytes;
    uint64_t from_pitch = copy->srcPitch != 0 ? copy->srcPitch : width + copy->srcXInBytes;
    if ((height > 1 || depth > 1) && (to_pitch < width + copy->dstXInBytes || from_pitch < width + copy->srcXInBytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    run->width = width;
    run->height = height;
    run->depth = depth;
    SIM_TRY(side_make(&run->to, copy->dstMemoryType, copy->dstDevice, copy->dstHost, copy->dstXInBytes, copy->dstY,
                      copy->dstZ, to_pitch, copy->dstHeight != 0 ? copy->dstHeight : height));
    SIM_TRY(side_make(&run->from, copy->srcMemoryType, copy->srcDevice, copy->srcHost, copy->srcXInBytes, copy->srcY,
                      copy->srcZ, from_pitch, copy->srcHeight != 0 ? copy->srcHeight : height));
    if (run->depth <= 1 && run->height > 1 && run->to.row_step == width && run->from.row_step == width) {
        run->width *= run->height;
        run->height = 1;
    }
    return CUDA_SUCCESS;
}

/* What a copy engine does is no access of the thread that submits it: order is the happens-before checker's business,
 * and ThreadSanitizer would keep a shadow of all device memory. */
#ifdef __SANITIZE_THREAD__
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);

static void engine_begin(void)
{
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

static void engine_end(void)
{
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}
#else
static void engine_begin(void)
{
}

static void engine_end(void)
{
}
#endif

static void move_row(uint64_t to, uint64_t from, uint64_t bytes)
{
    if (to < from + bytes && from < to + bytes) {
        memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    } else { /* many times as fast under AddressSanitizer */
        memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    }
}

static void copy_execute(void *argument)
{
    const struct copy_run *run = argument;
    engine_begin();
    for (uint64_t z = 0; z < run->depth; z++) {
        for (uint64_t y = 0; y < run->height; y++) {
            uint64_t to = run->to.start + z * run->to.slice_step + y * run->to.row_step;
            uint64_t from = run->from.start + z * run->from.slice_step + y * run->from.row_step;
            move_row(to, from, run->width);
        }
    }
    engine_end();
}

static enum sim_engine engine_of(const struct copy_run *run)
{
    if (run->to.place == ON_DEVICE) {
        return run->from.place == ON_DEVICE ? SIM_ENGINE_D2D : SIM_ENGINE_H2D;
    }
    return run->from.place == ON_DEVICE ? SIM_ENGINE_D2H : SIM_ENGINE_NONE;
}

static struct sim_access *row_accesses(const struct copy_run *run)
{
    struct sim_access *access = calloc(run->height * run->depth * 2, sizeof *access), *at = access;
    if (access == NULL) {
        sim_die("out of host memory");
    }
    for (uint64_t z = 0; z < run->depth; z++) {
        for (uint64_t y = 0; y < run->height; y++) {
            *at++ =
                (struct sim_access){run->from.start + z * run->from.slice_step + y * run->from.row_step, run->width, 0};
            *at++ = (struct sim_access){run->to.start + z * run->to.slice_step + y * run->to.row_step, run->width, 1};
        }
    }
    return access;
}

/*
 * Copies and sets are checked at the call, and the context survives (driver 580, also for mappings without the right):
 * past the end of an allocation, reserved space with nothing behind it, a read-only mapping that is to be written.
 */
static CUresult access_refused(const struct sim_lane *lane, const struct sim_access *access, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct sim_range *range = sim_range_find(access[i].address);
        if (range == NULL) {
            continue;
        }
        enum sim_access_state state =
            sim_memory_check(access[i].address, access[i].bytes, access[i].writes, lane->context->device);
        if (state == SIM_ACCESS_UNMAPPED || (state == SIM_ACCESS_DENIED && range->kind == SIM_RANGE_RESERVED)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

CUresult sim_copy_check(struct sim_call *call, const struct sim_lane *lane, const CUDA_MEMCPY3D *copy)
{
    struct copy_run run;
    (void)call, (void)lane;
    return copy->WidthInBytes == 0 || copy->Height == 0 || copy->Depth == 0 ? CUDA_SUCCESS : run_make(&run, copy);
}

CUresult sim_copy_run(struct sim_call *call, struct sim_lane *lane, const char *site, const CUDA_MEMCPY3D *copy)
{
    struct copy_run run;
    if (copy->WidthInBytes == 0 || copy->Height == 0 || copy->Depth == 0) {
        return CUDA_SUCCESS;
    }
    SIM_TRY(run_make(&run, copy));
    struct sim_access one[2] = {{run.from.start, run.width, 0}, {run.to.start, run.width, 1}};
    int rows = run.height * run.depth > 1;
    struct sim_access *access = rows ? row_accesses(&run) : one;
    size_t count = rows ? (size_t)(run.height * run.depth * 2) : 2;
    uint64_t bytes = run.width * run.height * run.depth;
    int pageable = run.to.place == ON_PAGEABLE || run.from.place == ON_PAGEABLE;
    const struct sim_op op = {.site = site,
                              .engine = engine_of(&run),
                              .access = access,
                              .access_count = count,
                              .bytes = bytes,
                              .pageable = pageable,
                              .fixed_ns = (int64_t)(bytes / 10),
                              .run = copy_execute,
                              .argument = &run};
    CUresult result = access_refused(lane, access, count);
    if (result == CUDA_SUCCESS) {
        result = sim_submit(call, lane, &op);
    }
    if (rows) {
        free(access);
    }
    /* A copy with pageable memory is staged: the call returns when the host's side is done. */
    if (result == CUDA_SUCCESS && pageable) {
        sim_wait_until(call, lane->tail_ns);
        if (run.to.place == ON_PAGEABLE) {
            sim_host_join(&lane->clock);
        }
    }
    return result;
}

/* ---- memset */

static void set_row(unsigned char *to, const CUDA_MEMSET_NODE_PARAMS *set)
{
    if (set->elementSize == 1) {
        memset(to, (int)(set->value & 0xff), set->width);
        return;
    }
    for (size_t i = 0; i < set->width; i++) {
        memcpy(to + i * set->elementSize, &set->value, set->elementSize);
    }
}

static void set_execute(void *argument)
{
    const CUDA_MEMSET_NODE_PARAMS *set = argument;
    engine_begin();
    for (size_t y = 0; y < set->height; y++) {
        set_row((unsigned char *)(uintptr_t)(set->dst + y * set->pitch), set);
    }
    engine_end();
}

CUresult sim_memset_check(struct sim_call *call, const struct sim_lane *lane, const CUDA_MEMSET_NODE_PARAMS *set)
{
    (void)call, (void)lane;
    if ((set->elementSize != 1 && set->elementSize != 2 && set->elementSize != 4) ||
        (set->dst & (set->elementSize - 1)) != 0 || (set->height > 1 && set->pitch < set->width * set->elementSize)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (set->width == 0 || set->height == 0) {
        return CUDA_SUCCESS;
    }
    return sim_range_find(set->dst) != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_memset_run(struct sim_call *call, struct sim_lane *lane, const char *site,
                        const CUDA_MEMSET_NODE_PARAMS *set)
{
    uint64_t row_bytes = (uint64_t)set->width * set->elementSize;
    CUDA_MEMSET_NODE_PARAMS argument = *set;
    SIM_TRY(sim_memset_check(call, lane, set));
    if (set->width == 0 || set->height == 0) {
        return CUDA_SUCCESS;
    }
    struct sim_access *access = calloc(set->height, sizeof *access);
    if (access == NULL) {
        sim_die("out of host memory");
    }
    for (size_t y = 0; y < set->height; y++) {
        access[y] = (struct sim_access){set->dst + y * set->pitch, row_bytes, 1};
    }
    int on_link = place_of(set->dst) != ON_DEVICE;
    const struct sim_op op = {.site = site,
                              .engine = on_link ? SIM_ENGINE_D2H : SIM_ENGINE_D2D,
                              .access = access,
                              .access_count = set->height,
                              .bytes = row_bytes * set->height,
                              .run = set_execute,
                              .argument = &argument};
    CUresult result = access_refused(lane, access, set->height);
    if (result == CUDA_SUCCESS) {
        result = sim_submit(call, lane, &op);
    }
    free(access);
    return result;
}
