/* Devices as other interfaces name them, and what these are told of their memory: see "Memory" in runtime.h. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "engine.h"
#include "runtime.h"

static int device_count(void)
{
    int count = 0;
    return ov_cu->cuDeviceGetCount(&count) == CUDA_SUCCESS ? count : 0; /* not before the program's cuInit */
}

int ov_device_of_uuid(const char *uuid)
{
    for (int device = 0; ov_cu->cuDeviceGetUuid_v2 != NULL && device < device_count(); device++) {
        CUuuid id;
        if (ov_cu->cuDeviceGetUuid_v2(&id, device) != CUDA_SUCCESS) {
            continue;
        }
        char text[2 * sizeof id.bytes + 9] = "GPU-";
        for (size_t i = 0, at = 4; i < sizeof id.bytes; i++) {
            bool dash = i == 4 || i == 6 || i == 8 || i == 10;
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%02x", dash ? "-" : "", (unsigned char)id.bytes[i]);
        }
        if (strcasecmp(text, uuid) == 0) {
            return device;
        }
    }
    return -1;
}

int ov_device_of_pci(unsigned domain, unsigned bus, unsigned slot)
{
    static const CUdevice_attribute place[] = {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
                                               CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID};
    const unsigned wanted[] = {domain, bus, slot};
    for (int device = 0; device < device_count(); device++) {
        bool same = true;
        for (int i = 0; i < 3; i++) {
            int value = -1;
            same = same && ov_cu->cuDeviceGetAttribute(&value, place[i], device) == CUDA_SUCCESS &&
                   (unsigned)value == wanted[i];
        }
        if (same) {
            return device;
        }
    }
    return -1;
}

bool ov_device_memory_told(CUdevice device, size_t *free_bytes, size_t *total_bytes)
{
    size_t total = 0;
    if (!ov_device_managed(device) || ov_cu->cuDeviceTotalMem_v2(&total, device) != CUDA_SUCCESS) {
        return false;
    }
    struct ov_engine *engine = ov_engine_at(device);
    struct ov_report_answer answer = {ov_report_total(&ov_opt, total), *free_bytes};
    if (engine != NULL) {
        pthread_mutex_lock(&engine->lock);
        answer = ov_memory_told(engine, SIZE_MAX, total);
        pthread_mutex_unlock(&engine->lock);
    }
    *total_bytes = answer.total_bytes;
    *free_bytes = answer.free_bytes < answer.total_bytes ? answer.free_bytes : answer.total_bytes;
    return true;
}
