#define _GNU_SOURCE
#include "pin.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine.h"
#include "log.h"
#include "share.h"

#define HUGE_BYTES ((size_t)2 << 20)
/* MPOL_PREFERRED of the kernel's mempolicy.h: another node is better than none. */
#define PREFER_NODE 1

/* ---- address space ---- */

static size_t read_text(const char *path, char *text, size_t room)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file >= 0 ? read(file, text, room - 1) : 0;
    if (file >= 0) {
        close(file);
    }
    text[got > 0 ? got : 0] = 0;
    return got > 0 ? (size_t)got : 0;
}

static bool huge_pages_off(void)
{
    char text[128];
    return read_text("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text) == 0 ||
           strstr(text, "[never]") != NULL;
}

/* Huge pages that the administrator has reserved and nobody uses. */
static size_t reserved_huge_bytes(void)
{
    char text[32];
    (void)read_text("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", text, sizeof text);
    return strtoull(text, NULL, 10) * HUGE_BYTES;
}

static char *map_anonymous(size_t bytes, int more_flags)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | more_flags, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* At an address that is a multiple of a huge page. */
static char *map_aligned(size_t bytes)
{
    char *all = map_anonymous(bytes + HUGE_BYTES, MAP_NORESERVE);
    if (all == NULL) {
        return NULL;
    }
    size_t before = (HUGE_BYTES - (uintptr_t)all % HUGE_BYTES) % HUGE_BYTES;
    if (before > 0) {
        (void)munmap(all, before);
    }
    (void)munmap(all + before + bytes, HUGE_BYTES - before);
    return all + before;
}

static void prepare(const struct ov_pins *pins, char *memory, size_t bytes)
{
    unsigned long nodes = pins->node >= 0 && pins->node < 63 ? 1ul << pins->node : 0;
    if (nodes != 0) {
        (void)syscall(SYS_mbind, memory, bytes, PREFER_NODE, &nodes, sizeof nodes * 8, 0);
    }
    (void)madvise(memory, bytes, MADV_DONTFORK);
    (void)madvise(memory, bytes, MADV_DONTDUMP);
}

static char *reserve_huge(const struct ov_pins *pins, size_t bytes, const char **cause)
{
    char *memory = NULL;
    if (bytes % HUGE_BYTES == 0 && reserved_huge_bytes() >= bytes) {
        memory = map_anonymous(bytes, MAP_HUGETLB);
    }
    if (memory == NULL) {
        if (huge_pages_off()) {
            *cause = "transparent huge pages are switched off, and none are reserved";
            return NULL;
        }
        memory = map_aligned(bytes);
        if (memory != NULL && madvise(memory, bytes, MADV_HUGEPAGE) != 0) {
            (void)munmap(memory, bytes);
            *cause = "the system refuses huge pages";
            return NULL;
        }
    }
    if (memory == NULL) {
        *cause = "no address space";
        return NULL;
    }
    prepare(pins, memory, bytes);
    return memory;
}

static char *reserve_plain(const struct ov_pins *pins, size_t bytes, const char **cause)
{
    char *memory = map_anonymous(bytes, MAP_NORESERVE);
    if (memory == NULL) {
        *cause = "no address space";
        return NULL;
    }
    prepare(pins, memory, bytes);
    return memory;
}

/* ---- the driver ---- */

static CUresult commit_register(struct ov_pin *pin)
{
    return ov_cu->cuMemHostRegister_v2(pin->host, pin->bytes,
                                       CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
}

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1; older ones answer EINVAL */
#endif

/* Memory that was populated while huge pages were scarce has small ones here and there, and copies from it are slower
 * for as long as it lives. */
static CUresult commit_huge(struct ov_pin *pin)
{
    if (madvise(pin->host, pin->bytes, MADV_COLLAPSE) != 0 && errno != EINVAL) {
        ov_log_once(OV_LOG_INFO, "some host memory could not be had in huge pages: copies from it may be slower");
    }
    return commit_register(pin);
}

static CUresult commit_alloc(struct ov_pin *pin)
{
    void *memory = NULL;
    CUresult result = ov_cu->cuMemHostAlloc(&memory, pin->bytes, CU_MEMHOSTALLOC_PORTABLE);
    pin->host = memory;
    return result;
}

static CUresult commit_nothing(struct ov_pin *pin)
{
    (void)pin;
    return CUDA_SUCCESS;
}

static CUresult release_register(struct ov_pin *pin)
{
    return ov_cu->cuMemHostUnregister(pin->host);
}

static CUresult release_alloc(struct ov_pin *pin)
{
    return ov_cu->cuMemFreeHost(pin->host);
}

static const struct way {
    const char *name;
    char *(*reserve)(const struct ov_pins *pins, size_t bytes, const char **cause); /* NULL: the driver maps it */
    CUresult (*commit)(struct ov_pin *pin);
    CUresult (*release)(struct ov_pin *pin);
    const char *costs; /* said when it is fallen back to */
} ways[OV_PIN_KINDS] = {
    [OV_PIN_HUGEPAGE] = {"hugepage", reserve_huge, commit_huge, release_register, ""},
    [OV_PIN_REGISTER] = {"register", reserve_plain, commit_register, release_register, ", which takes longer to pin"},
    [OV_PIN_ALLOC] = {"alloc", NULL, commit_alloc, release_alloc, ", which pins about 2 GB/s"},
    [OV_PIN_VMM] = {"vmm", NULL, NULL, NULL, ", which pins about 2 GB/s"},
    [OV_PIN_SHARED] = {"shared", NULL, commit_register, release_register, ""},
    [OV_PIN_NONE] = {"none", reserve_plain, commit_nothing, commit_nothing,
                     ": weights are copied from unpinned memory, at a fraction of the link's speed"},
};

/* ---- the ladder ---- */

void ov_pins_open(struct ov_pins *pins, unsigned choice, int node)
{
    static const enum ov_pin_kind start[] = {
        [OV_OPT_PIN_AUTO] = OV_PIN_HUGEPAGE,     [OV_OPT_PIN_HUGEPAGE] = OV_PIN_HUGEPAGE,
        [OV_OPT_PIN_REGISTER] = OV_PIN_REGISTER, [OV_OPT_PIN_ALLOC] = OV_PIN_ALLOC,
        [OV_OPT_PIN_VMM] = OV_PIN_VMM,           [OV_OPT_PIN_NONE] = OV_PIN_NONE,
    };
    memset(pins, 0, sizeof *pins);
    pins->kind = start[choice];
    pins->node = node;
    if (pins->kind == OV_PIN_NONE) {
        ov_log_once(OV_LOG_WARN, "OVERSHOT_PIN=none%s", ways[OV_PIN_NONE].costs);
    }
}

const char *ov_pin_name(enum ov_pin_kind kind)
{
    return kind < OV_PIN_KINDS ? ways[kind].name : "nothing";
}

/* Drivers do not count what they pin against it; where one does, this is the hint that helps. */
static void name_lock_limit(char *text, size_t room)
{
    struct rlimit limit;
    text[0] = 0;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        snprintf(text, room, "; RLIMIT_MEMLOCK is %llu KiB", (unsigned long long)limit.rlim_cur >> 10);
    }
}

bool ov_pins_descend(struct ov_pins *pins, const char *cause)
{
    char lock_limit[64];
    if (pins->kind >= OV_PIN_NONE) {
        return false;
    }
    const struct way *from = &ways[pins->kind], *to = &ways[pins->kind + 1];
    pins->kind++;
    name_lock_limit(lock_limit, sizeof lock_limit);
    ov_log(OV_LOG_WARN, "host memory cannot be had by %s (%s%s): by %s from now on%s", from->name, cause, lock_limit,
           to->name, to->costs);
    return true;
}

/* ---- one pin ---- */

struct ov_pin *ov_pin_reserve(const struct ov_pins *pins, enum ov_pin_kind kind, size_t bytes, const char **cause)
{
    struct ov_pin *pin = calloc(1, sizeof *pin);
    *cause = "no memory";
    if (pin == NULL) {
        return NULL;
    }
    pin->bytes = bytes;
    pin->kind = (uint8_t)kind;
    if (ways[kind].reserve != NULL && (pin->host = ways[kind].reserve(pins, bytes, cause)) == NULL) {
        free(pin);
        return NULL;
    }
    return pin;
}

struct ov_pin *ov_pin_adopt(char *memory, size_t bytes)
{
    struct ov_pin *pin = calloc(1, sizeof *pin);
    if (pin != NULL) {
        pin->host = memory;
        pin->bytes = bytes;
        pin->kind = OV_PIN_SHARED;
    }
    return pin;
}

bool ov_pin_wants_populating(enum ov_pin_kind kind)
{
    return ways[kind].reserve != NULL;
}

CUresult ov_pin_commit(struct ov_pins *pins, struct ov_pin *pin)
{
    CUresult result = ways[pin->kind].commit(pin);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    pin->committed = true;
    pin->next = pins->first;
    pins->first = pin;
    pins->count++;
    pins->bytes += pin->bytes;
    return CUDA_SUCCESS;
}

void ov_pin_abandon(struct ov_pin *pin)
{
    if (pin != NULL) {
        if (ways[pin->kind].reserve != NULL) {
            (void)munmap(pin->host, pin->bytes);
        } else if (pin->kind == OV_PIN_SHARED) {
            ov_share_unmap(pin->host, pin->bytes);
        }
        free(pin);
    }
}

bool ov_pin_release(struct ov_pins *pins, struct ov_pin *pin, bool now)
{
    pins->dropped += !pin->dropped;
    pin->dropped = true;
    if (!now) {
        return false;
    }
    if (ov_opt.wipe && pin->kind != OV_PIN_SHARED) { /* others may read that */
        memset(pin->host, 0, pin->bytes);
    }
    CUresult result = ways[pin->kind].release(pin);
    if (result != CUDA_SUCCESS) {
        ov_log_once(OV_LOG_WARN, "%zu MiB of pinned host memory could not be released (error %d): tried again later",
                    pin->bytes >> 20, (int)result);
        return false;
    }
    for (struct ov_pin **at = &pins->first; *at != NULL; at = &(*at)->next) {
        if (*at == pin) {
            *at = pin->next;
            break;
        }
    }
    pins->count--;
    pins->dropped--;
    pins->bytes -= pin->bytes;
    ov_pin_abandon(pin);
    return true;
}

size_t ov_pins_reap(struct ov_pins *pins)
{
    size_t bytes = 0;
    for (struct ov_pin *pin = pins->first, *next; pin != NULL; pin = next) {
        next = pin->next;
        size_t mine = pin->bytes;
        bytes += pin->dropped && ov_pin_release(pins, pin, true) ? mine : 0;
    }
    return bytes;
}
