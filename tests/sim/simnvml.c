/*
 * A libnvidia-ml.so.1 for the devices of the simulated driver: enough to ask how much memory they have. It knows them
 * in reverse order, so that an index is no ordinal of CUDA's. See README.md for its variables.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, VERSION_MISMATCH = 25, MAX_DEVICES = 8 };
#define RESERVED ((unsigned long long)512 << 20)

struct memory {
    unsigned long long total, free, used;
};
struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
struct pci_info {
    char legacy_id[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
};

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned room);
int nvmlDeviceGetPciInfo_v3(void *device, struct pci_info *info);
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory);
int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *memory);

static char devices[MAX_DEVICES]; /* a handle points to the entry of its CUDA ordinal */

static unsigned long long bytes_of(const char *variable, unsigned long long standard)
{
    const char *text = getenv(variable);
    char *unit = NULL;
    unsigned long long bytes = text != NULL ? strtoull(text, &unit, 10) : standard;
    const char *units = unit != NULL && *unit != 0 ? strchr("KMGT", *unit) : NULL;
    return units != NULL ? bytes << (10 * (units - "KMGT" + 1)) : bytes;
}

static unsigned count(void)
{
    const char *text = getenv("SIM_DEVICES");
    return text != NULL ? (unsigned)atoi(text) : 1;
}

static unsigned ordinal(const void *device)
{
    return (unsigned)((const char *)device - devices);
}

int nvmlInit_v2(void)
{
    return SUCCESS;
}

int nvmlShutdown(void)
{
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *out)
{
    *out = count();
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    if (index >= count()) {
        return INVALID_ARGUMENT;
    }
    *device = &devices[count() - 1 - index];
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned room)
{
    unsigned char id[16];
    if (getenv("SIM_NVML_NO_UUID") != NULL) {
        return NOT_SUPPORTED;
    }
    for (unsigned i = 0; i < 16; i++) {
        id[i] = (unsigned char)(i + 16 * (ordinal(device) + 1));
    }
    snprintf(uuid, room, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", id[0], id[1],
             id[2], id[3], id[4], id[5], id[6], id[7], id[8], id[9], id[10], id[11], id[12], id[13], id[14], id[15]);
    return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(void *device, struct pci_info *info)
{
    memset(info, 0, sizeof *info);
    info->bus = ordinal(device) + 1;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *memory)
{
    (void)device;
    if (memory->version != (sizeof *memory | 2u << 24)) {
        return VERSION_MISMATCH;
    }
    memory->total = bytes_of("SIM_MEM", 8ull << 30) + RESERVED;
    memory->reserved = RESERVED;
    memory->used = bytes_of("SIM_NVML_USED", 0);
    memory->free = memory->total - memory->reserved - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory)
{
    struct memory_v2 all = {.version = sizeof all | 2u << 24};
    int result = nvmlDeviceGetMemoryInfo_v2(device, &all);
    *memory = (struct memory){all.total, all.free, all.used + all.reserved};
    return result;
}
