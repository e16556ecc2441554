#include "zerocopy.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "log.h"
#include "runtime.h"
#include "search.h"

_Atomic uint64_t ov_zerocopy_low = UINT64_MAX, ov_zerocopy_high;
_Atomic uint32_t ov_zerocopy_granule[OV_ZEROCOPY_GRANULES];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects what follows, and guards changes of the above */
static struct ov_zerocopy *range;                        /* by address */
static size_t count, room;
static size_t moved; /* ranges that kernels know by another address than the CPU */

/* ---- the table ---- */

/* Index of the first range that ends behind the address. */
static size_t place_of(uint64_t address)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (range[middle].address + range[middle].bytes <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void count_granules(const struct ov_zerocopy *of, uint32_t change)
{
    uint64_t last = (of->address + of->bytes - 1) >> OV_ZEROCOPY_SHIFT;
    for (uint64_t granule = of->address >> OV_ZEROCOPY_SHIFT; granule <= last; granule++) {
        atomic_fetch_add_explicit(&ov_zerocopy_granule[granule % OV_ZEROCOPY_GRANULES], change, memory_order_relaxed);
    }
}

static void set_bounds(void)
{
    atomic_store(&ov_zerocopy_low, count > 0 ? range[0].address : UINT64_MAX);
    atomic_store(&ov_zerocopy_high, count > 0 ? range[count - 1].address + range[count - 1].bytes : 0);
}

static void drop(size_t at)
{
    count_granules(&range[at], UINT32_MAX); /* one less */
    moved -= range[at].address != (uint64_t)(uintptr_t)range[at].host;
    memmove(&range[at], &range[at + 1], (--count - at) * sizeof *range);
    set_bounds();
}

/* False: no memory. */
static bool insert(const struct ov_zerocopy *added)
{
    if (count == room) {
        size_t grown_room = room ? room * 2 : 64;
        struct ov_zerocopy *grown = realloc(range, grown_room * sizeof *grown);
        if (grown == NULL) {
            return false;
        }
        range = grown;
        room = grown_room;
    }
    size_t at = place_of(added->address);
    while (at < count && range[at].address < added->address + added->bytes) { /* its end was not told */
        drop(at);
    }
    memmove(&range[at + 1], &range[at], (count++ - at) * sizeof *range);
    range[at] = *added;
    moved += added->address != (uint64_t)(uintptr_t)added->host;
    set_bounds();
    count_granules(added, 1);
    return true;
}

/* The CPU may look at managed memory while kernels run. */
static bool concurrent(CUdevice device)
{
    int value = 0;
    return ov_cu->cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device) == CUDA_SUCCESS &&
           value != 0;
}

void ov_zerocopy_added(void *host, size_t bytes, bool managed)
{
    struct ov_zerocopy added = {.host = host, .bytes = bytes, .managed = managed};
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)host;
    if (bytes == 0) {
        return;
    }
    if (ov_cu->cuCtxGetCurrent(&added.context) != CUDA_SUCCESS ||
        ov_cu->cuCtxGetDevice(&added.device) != CUDA_SUCCESS) {
        added.device = CU_DEVICE_INVALID; /* a library's, which needs no context */
    }
    if (!managed && ov_cu->cuMemHostGetDevicePointer_v2 != NULL &&
        ov_cu->cuMemHostGetDevicePointer_v2(&address, host, 0) != CUDA_SUCCESS) {
        return; /* no kernel can reach it */
    }
    if (managed && !concurrent(added.device)) {
        added.host = NULL;
    }
    added.address = address;
    pthread_mutex_lock(&lock);
    bool known = insert(&added);
    pthread_mutex_unlock(&lock);
    if (!known) {
        ov_bar_streaming("no memory to remember pinned memory by");
    }
}

void ov_zerocopy_removed(const void *host)
{
    uint64_t address = (uint64_t)(uintptr_t)host;
    pthread_mutex_lock(&lock);
    size_t at = place_of(address);
    if (at == count || range[at].address != address) {
        for (at = moved > 0 ? 0 : count; at < count && range[at].host != host; at++) {
        }
    }
    if (at < count) {
        drop(at);
    }
    pthread_mutex_unlock(&lock);
}

void ov_zerocopy_context_closing(CUcontext context, CUdevice device)
{
    pthread_mutex_lock(&lock);
    for (size_t at = count; at > 0; at--) {
        if (context != NULL ? range[at - 1].context == context : range[at - 1].device == device) {
            drop(at - 1);
        }
    }
    pthread_mutex_unlock(&lock);
}

bool ov_zerocopy_find(uint64_t address, struct ov_zerocopy *found)
{
    if (address < atomic_load(&ov_zerocopy_low) || address >= atomic_load(&ov_zerocopy_high) ||
        !ov_zerocopy_maybe(address)) {
        return false;
    }
    pthread_mutex_lock(&lock);
    size_t at = place_of(address);
    bool inside = at < count && range[at].address <= address;
    if (inside) {
        *found = range[at];
    }
    pthread_mutex_unlock(&lock);
    return inside;
}

void ov_zerocopy_each(bool (*look)(void *context, CUdeviceptr address, size_t bytes), void *context)
{
    pthread_mutex_lock(&lock);
    for (size_t at = 0; at < count; at++) {
        if (!range[at].managed && look(context, range[at].address, range[at].bytes)) {
            range[at].table = true;
        }
    }
    pthread_mutex_unlock(&lock);
}

/* ---- exposed launches ---- */

void ov_zerocopy_window(const struct ov_zerocopy *of, uint64_t address, const char **host, size_t *bytes)
{
    bool whole = of->bytes <= OV_ZEROCOPY_WINDOW || (address & ~(uint64_t)7) < of->address;
    size_t offset = whole ? (size_t)(-of->address & 7) : (size_t)((address & ~(uint64_t)7) - of->address);
    size_t left = of->bytes > offset ? of->bytes - offset : 0;
    *host = of->host + offset;
    *bytes = left < OV_ZEROCOPY_WINDOW ? left : OV_ZEROCOPY_WINDOW;
}

/* Counts the look; whether the whole of a large range is due: the first four times, then whenever their number has
 * doubled. */
static bool whole_due(const struct ov_zerocopy *of)
{
    uint32_t looks = 0;
    pthread_mutex_lock(&lock);
    size_t at = place_of(of->address);
    if (at < count && range[at].address == of->address) {
        looks = range[at].looks < UINT32_MAX ? ++range[at].looks : 0;
    }
    pthread_mutex_unlock(&lock);
    return looks != 0 && (looks <= 4 || (looks & (looks - 1)) == 0);
}

static void note_table(const struct ov_zerocopy *of)
{
    pthread_mutex_lock(&lock);
    size_t at = place_of(of->address);
    if (at < count && range[at].address == of->address) {
        range[at].table = true;
    }
    pthread_mutex_unlock(&lock);
}

CUresult ov_zerocopy_exposed(uint64_t address)
{
    struct ov_zerocopy of;
    if (!ov_zerocopy_find(address, &of)) {
        return CUDA_SUCCESS;
    }
    if (of.host == NULL) {
        return ov_bar_streaming("a kernel takes managed memory, which the CPU may not look at meanwhile");
    }
    const char *host;
    size_t bytes;
    ov_zerocopy_window(&of, address, &host, &bytes);
    bool table = of.table;
    if (of.bytes > OV_ZEROCOPY_WINDOW && of.bytes <= OV_ZEROCOPY_TABLE && (of.table || whole_due(&of))) {
        host = of.host + (-of.address & 7);
        bytes = of.bytes - (-of.address & 7);
    }
    if (table && of.bytes > OV_ZEROCOPY_TABLE) {
        return ov_bar_streaming(
            "a kernel takes host memory that holds addresses and is too large to be searched each time");
    }
    CUresult result = ov_search(host, bytes, &table);
    if (table && !of.table && of.bytes > OV_ZEROCOPY_WINDOW) {
        note_table(&of);
    }
    return result;
}
