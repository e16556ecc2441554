/* Physical memory: one sparse memfd per device and one for host-located handles, given out in 2 MiB pages. */
#define _GNU_SOURCE
#include "sim.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HOST_VMM_BYTES ((uint64_t)1 << 40)
#define POISON         0xA5

struct page_pool {
    int fd, open;
    uint64_t pages, used, peak, next; /* in pages; next = where the search starts */
    unsigned char *taken;
};

static struct page_pool pools[SIM_POOL_HOST_VMM + 1];
static uint64_t pinned_bytes, pinned_peak_bytes;

static struct page_pool *pool_get(unsigned number)
{
    struct page_pool *pool = &pools[number];
    if (!pool->open) {
        uint64_t bytes = number == SIM_POOL_HOST_VMM ? HOST_VMM_BYTES : sim_knobs.device_bytes;
        pool->pages = bytes >> SIM_PAGE_SHIFT;
        pool->taken = calloc(pool->pages + 1, 1);
        pool->fd = memfd_create("sim", MFD_CLOEXEC);
        if (pool->taken == NULL || pool->fd < 0 || ftruncate(pool->fd, (off_t)bytes) != 0) {
            sim_die("cannot make a memory file of %llu bytes", (unsigned long long)bytes);
        }
        pool->open = 1;
    }
    return pool;
}

uint64_t sim_pool_used(unsigned pool)
{
    return pools[pool].used << SIM_PAGE_SHIFT;
}

uint64_t sim_pool_peak(unsigned pool)
{
    return pools[pool].peak << SIM_PAGE_SHIFT;
}

/* The next run of at most `want` free pages, searched in a circle so that fresh pages are preferred to just freed ones.
 */
static struct sim_extent run_take(struct page_pool *pool, uint64_t want)
{
    uint64_t first = pool->next, count = 0;
    for (uint64_t step = 0; step < pool->pages && pool->taken[first]; step++) {
        first = first + 1 < pool->pages ? first + 1 : 0;
    }
    while (count < want && first + count < pool->pages && !pool->taken[first + count]) {
        pool->taken[first + count++] = 1;
    }
    pool->next = first + count < pool->pages ? first + count : 0;
    return (struct sim_extent){first << SIM_PAGE_SHIFT, count << SIM_PAGE_SHIFT};
}

static void pages_count(struct page_pool *pool, uint64_t pages, unsigned number)
{
    pool->used += pages;
    if (pool->used > pool->peak) {
        pool->peak = pool->used;
    }
    uint64_t used_bytes = pool->used << SIM_PAGE_SHIFT;
    if (number < SIM_MAX_DEVICES && sim_knobs.limit_bytes != 0 && used_bytes > sim_knobs.limit_bytes) {
        sim_die("limit exceeded: device %u holds %llu bytes, the limit is %llu", number, (unsigned long long)used_bytes,
                (unsigned long long)sim_knobs.limit_bytes);
    }
}

CUresult sim_backing_make(unsigned number, uint64_t bytes, struct sim_backing **out)
{
    struct page_pool *pool = pool_get(number);
    uint64_t pages = (bytes + SIM_PAGE_BYTES - 1) >> SIM_PAGE_SHIFT;
    if (pages > pool->pages - pool->used) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (number == SIM_POOL_HOST_VMM && !sim_pin_add(pages << SIM_PAGE_SHIFT)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct sim_backing *backing = calloc(1, sizeof *backing);
    if (backing == NULL) {
        sim_die("out of host memory");
    }
    backing->pool = number;
    backing->references = 1;
    backing->file = -1;
    backing->bytes = pages << SIM_PAGE_SHIFT;
    pages_count(pool, pages, number);
    while (pages > 0) {
        struct sim_extent extent = run_take(pool, pages);
        struct sim_extent *grown = realloc(backing->extent, (backing->extent_count + 1) * sizeof extent);
        if (grown == NULL) {
            sim_die("out of host memory");
        }
        backing->extent = grown;
        backing->extent[backing->extent_count++] = extent;
        pages -= extent.bytes >> SIM_PAGE_SHIFT;
    }
    sim_backing_poison(backing, 0, backing->bytes);
    *out = backing;
    return CUDA_SUCCESS;
}

/* The file's name says what it is to a process that gets it. */
#define SHARED_NAME "sim-memory-of-device-"

CUresult sim_backing_make_shared(unsigned number, uint64_t bytes, struct sim_backing **out)
{
    char name[64];
    SIM_TRY(sim_backing_make(number, bytes, out));
    snprintf(name, sizeof name, SHARED_NAME "%u", number);
    (*out)->file = memfd_create(name, MFD_CLOEXEC);
    if ((*out)->file < 0 || ftruncate((*out)->file, (off_t)(*out)->bytes) != 0) {
        sim_die("cannot make a memory file of %llu bytes", (unsigned long long)bytes);
    }
    sim_backing_poison(*out, 0, (*out)->bytes);
    return CUDA_SUCCESS;
}

struct sim_backing *sim_backing_import(int file)
{
    static uint64_t next = (uint64_t)1 << 50; /* beyond every pool */
    char path[64], target[128] = "";
    unsigned number;
    struct stat status;
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (readlink(path, target, sizeof target - 1) < 0 || fstat(file, &status) != 0 ||
        sscanf(target, "/memfd:" SHARED_NAME "%u", &number) != 1 || number >= (unsigned)sim_knobs.devices) {
        return NULL;
    }
    struct sim_backing *backing = calloc(1, sizeof *backing);
    struct sim_extent *extent = calloc(1, sizeof *extent);
    if (backing == NULL || extent == NULL) {
        sim_die("out of host memory");
    }
    *extent = (struct sim_extent){next, (uint64_t)status.st_size};
    next += extent->bytes;
    *backing = (struct sim_backing){.pool = number,
                                    .references = 1,
                                    .bytes = extent->bytes,
                                    .extent_count = 1,
                                    .extent = extent,
                                    .file = fcntl(file, F_DUPFD_CLOEXEC, 0),
                                    .imported = 1};
    return backing;
}

static void drop_imported(struct sim_backing *backing, const char *site)
{
    sim_race_forget(site, backing->pool, backing->extent->offset, backing->bytes);
    close(backing->file);
    free(backing->extent);
    free(backing);
}

void sim_backing_put(struct sim_backing *backing, const char *site)
{
    if (--backing->references > 0) {
        return;
    }
    if (backing->imported) {
        drop_imported(backing, site);
        return;
    }
    struct page_pool *pool = pool_get(backing->pool);
    if (backing->file >= 0) {
        close(backing->file);
    }
    for (size_t i = 0; i < backing->extent_count; i++) {
        struct sim_extent extent = backing->extent[i];
        sim_race_forget(site, backing->pool, extent.offset, extent.bytes);
        if (fallocate(pool->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)extent.offset,
                      (off_t)extent.bytes) != 0) {
            sim_die("cannot give pages back");
        }
        memset(pool->taken + (extent.offset >> SIM_PAGE_SHIFT), 0, extent.bytes >> SIM_PAGE_SHIFT);
    }
    pool->used -= backing->bytes >> SIM_PAGE_SHIFT;
    if (backing->pool == SIM_POOL_HOST_VMM) {
        sim_pin_drop(backing->bytes);
    }
    free(backing->extent);
    free(backing);
}

int sim_backing_map(const struct sim_backing *backing, uint64_t address, int protection)
{
    const int flags = MAP_SHARED | MAP_FIXED;
    if (backing->file >= 0) {
        return mmap((void *)(uintptr_t)address, backing->bytes, protection, flags, backing->file, 0) != MAP_FAILED;
    }
    const struct page_pool *pool = pool_get(backing->pool);
    for (size_t i = 0; i < backing->extent_count; i++) {
        struct sim_extent extent = backing->extent[i];
        void *wanted = (void *)(uintptr_t)address;
        if (mmap(wanted, extent.bytes, protection, flags, pool->fd, (off_t)extent.offset) != wanted) {
            return 0;
        }
        address += extent.bytes;
    }
    return 1;
}

struct sim_extent sim_backing_extent(const struct sim_backing *backing, uint64_t offset)
{
    for (size_t i = 0; i < backing->extent_count; i++) {
        struct sim_extent extent = backing->extent[i];
        if (offset < extent.bytes) {
            return (struct sim_extent){extent.offset + offset, extent.bytes - offset};
        }
        offset -= extent.bytes;
    }
    sim_die("offset outside its memory");
}

void sim_backing_poison(const struct sim_backing *backing, uint64_t offset, uint64_t bytes)
{
    static unsigned char pattern[65536];
    if (pattern[0] == 0) {
        memset(pattern, POISON, sizeof pattern);
    }
    uint64_t left = bytes < sim_knobs.poison_bytes ? bytes : sim_knobs.poison_bytes;
    while (left > 0) {
        struct sim_extent extent = sim_backing_extent(backing, offset);
        uint64_t part = left < extent.bytes ? left : extent.bytes;
        part = part < sizeof pattern ? part : sizeof pattern;
        int file = backing->file >= 0 ? backing->file : pools[backing->pool].fd;
        uint64_t place = backing->file >= 0 ? offset : extent.offset;
        if (pwrite(file, pattern, part, (off_t)place) != (ssize_t)part) {
            sim_die("cannot write to device memory");
        }
        offset += part;
        left -= part;
    }
}

uint64_t sim_space_reserve(uint64_t bytes, uint64_t alignment, uint64_t hint, int low)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *got;
    if (hint != 0) {
        got = mmap((void *)(uintptr_t)hint, bytes, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0);
        if (got == (void *)(uintptr_t)hint && (hint & (alignment - 1)) == 0) {
            return hint;
        }
        if (got != MAP_FAILED) {
            munmap(got, bytes);
        }
    }
    uint64_t span = bytes + alignment;
    got = mmap(NULL, span, PROT_NONE, low ? flags | MAP_32BIT : flags, -1, 0);
    if (got == MAP_FAILED) {
        return 0;
    }
    uint64_t start = (uint64_t)(uintptr_t)got, first = (start + alignment - 1) & ~(alignment - 1);
    if (first > start) {
        munmap(got, first - start);
    }
    if (start + span > first + bytes) {
        munmap((void *)(uintptr_t)(first + bytes), start + span - first - bytes);
    }
    return first;
}

void sim_space_free(uint64_t address, uint64_t bytes)
{
    munmap((void *)(uintptr_t)address, bytes);
}

void sim_space_clear(uint64_t address, uint64_t bytes)
{
    void *wanted = (void *)(uintptr_t)address;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    if (mmap(wanted, bytes, PROT_NONE, flags, -1, 0) != wanted) {
        sim_die("cannot clear address space");
    }
}

int sim_pin_add(uint64_t bytes)
{
    if (bytes > sim_knobs.pin_limit_bytes || pinned_bytes > sim_knobs.pin_limit_bytes - bytes) {
        return 0;
    }
    pinned_bytes += bytes;
    if (pinned_bytes > pinned_peak_bytes) {
        pinned_peak_bytes = pinned_bytes;
    }
    return 1;
}

void sim_pin_drop(uint64_t bytes)
{
    pinned_bytes -= bytes;
}

uint64_t sim_pin_used(void)
{
    return pinned_bytes;
}

uint64_t sim_pin_peak(void)
{
    return pinned_peak_bytes;
}
