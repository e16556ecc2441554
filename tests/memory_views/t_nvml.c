/*
 * NVML tells what CUDA tells, whichever way the program finds it. With LINKED the program is bound to it by the linker.
 */
#define _GNU_SOURCE
#include "rig.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct memory {
    unsigned long long total, free, used;
};
struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

static struct {
    void *handle;
    int (*init)(void);
    int (*by_index)(unsigned index, void **device);
    int (*memory)(void *device, struct memory *memory);
    int (*memory_v2)(void *device, struct memory_v2 *memory);
} nvml;

#ifdef LINKED
int nvmlInit_v2(void);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory);
int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *memory);

static void find(void)
{
    nvml.init = nvmlInit_v2;
    nvml.by_index = nvmlDeviceGetHandleByIndex_v2;
    nvml.memory = nvmlDeviceGetMemoryInfo;
    nvml.memory_v2 = nvmlDeviceGetMemoryInfo_v2;
    HOLDS(nvml.init() == 0);
}
#else
static void set(void *function, const char *name)
{
    *(void **)function = dlsym(nvml.handle, name);
    HOLDS(*(void **)function != NULL);
}

static void find(void)
{
    nvml.handle = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    HOLDS(nvml.handle != NULL);
    set(&nvml.init, "nvmlInit_v2");
    set(&nvml.by_index, "nvmlDeviceGetHandleByIndex_v2");
    set(&nvml.memory, "nvmlDeviceGetMemoryInfo");
    set(&nvml.memory_v2, "nvmlDeviceGetMemoryInfo_v2");
    HOLDS(nvml.init() == 0);
}
#endif

static struct memory ask(unsigned index)
{
    struct memory one;
    struct memory_v2 two = {.version = sizeof two | 2u << 24};
    void *device;
    HOLDS(nvml.by_index(index, &device) == 0);
    HOLDS(nvml.memory(device, &one) == 0 && nvml.memory_v2(device, &two) == 0);
    HOLDS(one.free + one.used == one.total && two.free + two.used + two.reserved == two.total);
    HOLDS(one.free == two.free && one.total == two.total);
    return one;
}

static void agrees(unsigned index)
{
    size_t free_bytes, total_bytes, device_bytes;
    CUdevice device;
    OK(cuMemGetInfo(&free_bytes, &total_bytes));
    OK(cuCtxGetDevice(&device));
    OK(cuDeviceTotalMem(&device_bytes, device));
    const struct memory told = ask(index);
    HOLDS(told.total == total_bytes && total_bytes == device_bytes && told.free == free_bytes);
}

/* From before there is a context to after weights are streamed. */
static void same_as_cuda(void)
{
    struct rig rig;
    find();
    rig_open(&rig, 0);
    agrees(0);
    for (unsigned i = 0; i < 8; i++) {
        (void)rig_add(&rig, 4 * MIB);
        agrees(0);
    }
    for (int pass = 0; pass < 8; pass++) {
        rig_pass(&rig, NULL, 0);
        agrees(0);
    }
    HOLDS(rig_streamed_mib() > 0);
    rig_drop(&rig, 2);
    agrees(0);
    rig_close(&rig);
}

/* An NVML that is looked up before CUDA is in use, and CUDA after it. */
static void looked_up_first(void)
{
    struct rig rig;
    size_t total_bytes;
    CUdevice device;
    find();
    const struct memory before = ask(0);
    HOLDS(before.total > 0);
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDeviceTotalMem(&total_bytes, device));
    HOLDS(ask(0).total == total_bytes);
    rig_open(&rig, 0);
    agrees(0);
    rig_close(&rig);
}

/* NVML counts in another order than CUDA: devices are told apart by what they are, not by their index. */
static void two_devices(void)
{
    struct rig first;
    find();
    rig_open(&first, 0);
    const struct memory other = ask(0);
    const unsigned weight = rig_add(&first, 8 * MIB);
    agrees(1);
    HOLDS(ask(0).free == other.free);
    HOLDS(ask(1).free + 8 * MIB <= other.free);
    rig_drop(&first, weight);
    rig_close(&first);
}

/* A device that overshot leaves alone is told as NVML tells it. */
static void unmanaged(void)
{
    struct rig rig;
    find();
    rig_open(&rig, 0);
    HOLDS(ask(0).total == (64 + 512) * MIB && ask(0).used == (512 + 10) * MIB);
    rig_close(&rig);
}

static bool loaded(void)
{
    char line[512];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        found = found || strstr(line, "libnvidia-ml") != NULL;
    }
    fclose(maps);
    return found;
}

/* It is never loaded by us, and our exports are as good as undefined without it. */
static void never_loaded(void)
{
    struct rig rig;
    rig_open_with(&rig, 8, 4 * MIB);
    rig_pass(&rig, NULL, 0);
    (void)dlerror();
    HOLDS(dlsym(RTLD_DEFAULT, "nvmlDeviceGetMemoryInfo") == NULL && dlerror() != NULL);
    HOLDS(dlsym(RTLD_NEXT, "nvmlDeviceGetMemoryInfo") == NULL);
    HOLDS(!loaded());
    rig_close(&rig);
}

/* A child of a process that uses CUDA only looks, as monitors do: it sees the whole device. */
static void child_sees_device(void)
{
    struct rig rig;
    int status;
    find();
    rig_open(&rig, 0);
    const pid_t child = fork();
    if (child == 0) {
        _exit(ask(0).total == (64 + 512) * MIB ? 0 : 1);
    }
    HOLDS(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    rig_close(&rig);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(same_as_cuda), CASE(looked_up_first), CASE(two_devices),
    CASE(unmanaged),    CASE(never_loaded),    CASE(child_sees_device),
};
RIG_MAIN(cases)
