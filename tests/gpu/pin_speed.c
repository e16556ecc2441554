/*
 * pin_speed [GIB [DEVICE [WAYS]]]: how fast host memory is had, each way and with how many threads (default 8 GiB).
 * WAYS names what is measured beside the yardstick: letters out of "hrvo", for hugepage, register, VMM handles, and one
 * large registration (default: all).
 *
 * Runs the engine's own code (runtime/pin.c, populate.c) without the engine: pieces of 64 MiB are reserved, touched,
 * made known to the driver one after the other, as when units are moved to the host; in the column "and copied" the
 * device fills each piece meanwhile. Every way is measured on the same amount and given back before the next. The
 * yardstick is cuMemHostAlloc of the same pieces.
 *
 * Exit status: 0; 1 when something failed; 77 without a GPU.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "engine.h"
#include "masters.h"
#include "pin.h"
#include "populate.h"

#define PIECE_BYTES ((size_t)OV_PIN_PAGES << OV_PAGE_SHIFT)
#define MOST_PIECES 4096u

static struct ov_driver driver;
static CUdeviceptr device_memory;
static CUstream stream;
static size_t pieces;
static double yardstick;
static int node = -1;

static void *symbol(void *library, const char *name)
{
    return dlsym(library, name);
}

static bool open_driver(int ordinal)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    CUresult (*init)(unsigned) = NULL;
    CUresult (*retain)(CUcontext *, CUdevice) = NULL;
    CUcontext context;
    if (library == NULL) {
        return false;
    }
#define OV_HOOK(name, need, params, args) *(void **)&driver.name = symbol(library, #name);
#define OV_CALL(name, need, params)       *(void **)&driver.name = symbol(library, #name);
#include "../../shim/driver_api.def"
#undef OV_HOOK
#undef OV_CALL
    *(void **)&init = symbol(library, "cuInit");
    *(void **)&retain = symbol(library, "cuDevicePrimaryCtxRetain");
    ov_cu = &driver;
    return init != NULL && retain != NULL && init(0) == CUDA_SUCCESS && retain(&context, ordinal) == CUDA_SUCCESS &&
           driver.cuCtxSetCurrent(context) == CUDA_SUCCESS &&
           driver.cuMemAlloc_v2(&device_memory, PIECE_BYTES) == CUDA_SUCCESS &&
           driver.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0) == CUDA_SUCCESS;
}

static double now_s(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static double rate(double seconds)
{
    return (double)(pieces * PIECE_BYTES) / seconds * 1e-9;
}

struct result {
    double pin_s, driver_s, release_s; /* driver_s: of pin_s, inside the driver's call */
    bool good;
};

/* All pieces in one way. */
static struct result pin_all(enum ov_pin_kind kind, unsigned threads, bool copy)
{
    static struct ov_pin *pin[MOST_PIECES];
    static struct ov_populate_range range[MOST_PIECES];
    struct result result = {0, 0, 0, true};
    struct ov_populate *team = NULL;
    struct ov_pins pins;
    const char *cause = "";
    size_t done = 0;
    ov_pins_open(&pins, OV_OPT_PIN_AUTO, node);
    double begin = now_s();
    for (size_t i = 0; i < pieces && result.good; i++) {
        pin[i] = ov_pin_reserve(&pins, kind, PIECE_BYTES, &cause);
        result.good = pin[i] != NULL;
        range[i] = (struct ov_populate_range){pin[i] != NULL ? pin[i]->host : NULL, PIECE_BYTES};
    }
    if (result.good && ov_pin_wants_populating(kind)) {
        team = ov_populate_start(range, pieces, threads, node);
    }
    for (; done < pieces && result.good; done += result.good) {
        result.good = team == NULL || ov_populate_wait(team, done);
        double called = now_s();
        result.good = result.good && ov_pin_commit(&pins, pin[done]) == CUDA_SUCCESS;
        result.driver_s += now_s() - called;
        if (copy && result.good) {
            result.good =
                driver.cuMemcpyDtoHAsync_v2(pin[done]->host, device_memory, PIECE_BYTES, stream) == CUDA_SUCCESS;
        }
    }
    result.good = driver.cuStreamSynchronize(stream) == CUDA_SUCCESS && result.good;
    result.pin_s = now_s() - begin;
    ov_populate_end(team);
    begin = now_s();
    for (size_t i = 0; i < done; i++) {
        result.good = ov_pin_release(&pins, pin[i], true) && result.good;
    }
    result.release_s = now_s() - begin;
    if (!result.good) {
        printf("  failed after %zu of %zu pieces: %s\n", done, pieces, cause);
    }
    return result;
}

static bool measure(const char *name, enum ov_pin_kind kind, unsigned threads)
{
    struct result alone = pin_all(kind, threads, false);
    bool worth_copying = kind != OV_PIN_ALLOC; /* slow as it is, with or without */
    struct result copied = alone.good && worth_copying ? pin_all(kind, threads, true) : alone;
    if (!copied.good) {
        printf("%-34s failed\n", name);
        return false;
    }
    if (kind == OV_PIN_ALLOC) {
        yardstick = rate(alone.pin_s);
    }
    printf("%-34s %7.2f GB/s, %5.1f x cuMemHostAlloc; in the driver %7.2f; and copied %7.2f; release %7.2f\n", name,
           rate(alone.pin_s), rate(alone.pin_s) / yardstick, rate(alone.driver_s > 0 ? alone.driver_s : 1e-9),
           rate(copied.pin_s), rate(alone.release_s > 0 ? alone.release_s : 1e-9));
    fflush(stdout);
    return true;
}

/* ---- handles of host memory ---- */

struct maker {
    CUmemGenericAllocationHandle *handle;
    size_t from, to, bytes;
    _Atomic int *result;
};

static void *make(void *context)
{
    struct maker *maker = context;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = node > 0 ? node : 0}};
    for (size_t i = maker->from; i < maker->to; i++) {
        CUresult result = driver.cuMemCreate(&maker->handle[i], maker->bytes, &prop, 0);
        if (result != CUDA_SUCCESS) {
            atomic_store(maker->result, (int)result);
            maker->handle[i] = 0;
        }
    }
    return NULL;
}

static bool measure_handles(size_t handle_bytes, unsigned threads, int device)
{
    size_t total = pieces * PIECE_BYTES, count = total / handle_bytes;
    CUmemGenericAllocationHandle *handle = calloc(count, sizeof *handle);
    struct maker maker[64];
    pthread_t thread[64];
    _Atomic int result = 0;
    CUdeviceptr address = 0;
    double begin = now_s();
    for (unsigned i = 0; i < threads; i++) {
        maker[i] = (struct maker){handle, count * i / threads, count * (i + 1) / threads, handle_bytes, &result};
        if (pthread_create(&thread[i], NULL, make, &maker[i]) != 0) {
            exit(1);
        }
    }
    for (unsigned i = 0; i < threads; i++) {
        (void)pthread_join(thread[i], NULL);
    }
    double created_s = now_s() - begin;
    bool good = result == 0 && driver.cuMemAddressReserve(&address, total, 0, 0, 0) == CUDA_SUCCESS;
    for (size_t i = 0; i < count && good; i++) {
        good = driver.cuMemMap(address + i * handle_bytes, handle_bytes, 0, handle[i], 0) == CUDA_SUCCESS;
    }
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    good = good && driver.cuMemSetAccess(address, total, &access, 1) == CUDA_SUCCESS;
    double mapped_s = now_s() - begin;
    if (address != 0) {
        (void)driver.cuMemUnmap(address, total);
        (void)driver.cuMemAddressFree(address, total);
    }
    for (size_t i = 0; i < count; i++) {
        if (handle[i] != 0) {
            (void)driver.cuMemRelease(handle[i]);
        }
    }
    free(handle);
    char name[64];
    snprintf(name, sizeof name, "handles of %zu MiB, %u thread%s", handle_bytes >> 20, threads, threads > 1 ? "s" : "");
    if (good) {
        printf("%-34s %7.2f GB/s, %5.1f x cuMemHostAlloc; made only %7.2f\n", name, rate(mapped_s),
               rate(mapped_s) / yardstick, rate(created_s));
    } else {
        printf("%-34s failed (error %d)\n", name, result);
    }
    fflush(stdout);
    return good;
}

/* One registration of everything, for where large ones fail. */
static void measure_one_large(void)
{
    size_t bytes = pieces * PIECE_BYTES;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return;
    }
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    struct ov_populate_range range = {memory, bytes};
    struct ov_populate *team = ov_populate_start(&range, 1, 0, node);
    bool there = ov_populate_wait(team, 0);
    ov_populate_end(team);
    double begin = now_s();
    CUresult result =
        there ? driver.cuMemHostRegister_v2(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE) : CUDA_ERROR_OUT_OF_MEMORY;
    double seconds = now_s() - begin;
    if (result == CUDA_SUCCESS) {
        printf("%-34s %7.2f GB/s in the driver\n", "one registration of all", rate(seconds));
        (void)driver.cuMemHostUnregister(memory);
    } else {
        printf("%-34s error %d\n", "one registration of all", (int)result);
    }
    (void)munmap(memory, bytes);
}

int main(int argc, char **argv)
{
    static const unsigned threads[] = {1, 4, 8, 16};
    int device = argc > 2 ? atoi(argv[2]) : 0;
    double gib = argc > 1 ? atof(argv[1]) : 8;
    const char *ways = argc > 3 ? argv[3] : "hrvo";
    bool good = true;
    char name[64];
    if (!open_driver(device)) {
        fprintf(stderr, "pin_speed: no GPU here\n");
        return 77;
    }
    (void)driver.cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device);
    pieces = (size_t)(gib * (double)((size_t)1 << 30) / (double)PIECE_BYTES);
    pieces = pieces < 1 ? 1 : pieces < MOST_PIECES ? pieces : MOST_PIECES;
    printf("%zu MiB in pieces of %zu MiB, NUMA node %d, %u threads of use\n", pieces * PIECE_BYTES >> 20,
           PIECE_BYTES >> 20, node, ov_populate_threads());
    good = measure("alloc (cuMemHostAlloc)", OV_PIN_ALLOC, 0) && good;
    for (size_t i = 0; i < sizeof threads / sizeof threads[0] && strchr(ways, 'h') != NULL; i++) {
        snprintf(name, sizeof name, "hugepage, %u thread%s", threads[i], threads[i] > 1 ? "s" : "");
        good = measure(name, OV_PIN_HUGEPAGE, threads[i]) && good;
    }
    for (size_t i = 0; i < sizeof threads / sizeof threads[0] && strchr(ways, 'r') != NULL; i++) {
        snprintf(name, sizeof name, "register, %u thread%s", threads[i], threads[i] > 1 ? "s" : "");
        good = measure(name, OV_PIN_REGISTER, threads[i]) && good;
    }
    for (size_t i = 0; i < sizeof threads / sizeof threads[0] && strchr(ways, 'v') != NULL; i++) {
        good = measure_handles(OV_PAGE_BYTES, threads[i], device) && good;
        good = measure_handles((size_t)32 << 20, threads[i], device) && good;
    }
    if (strchr(ways, 'o') != NULL) {
        measure_one_large();
    }
    return good ? 0 : 1;
}
