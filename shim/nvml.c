#define _GNU_SOURCE
#include "nvml.h"

#include <dlfcn.h>
#include <string.h>

#include "dl.h"
#include "elf_image.h"

enum { NVML_SUCCESS = 0, NVML_ERROR_FUNCTION_NOT_FOUND = 13, UUID_BYTES = 96 };

/* As in nvml.h: what follows is not looked at. */
struct pci_info {
    char legacy_id[16];
    unsigned domain, bus, device;
    unsigned rest[64];
};

static bool is_nvml(const struct ov_elf *object)
{
    return ov_elf_is(object, "libnvidia-ml.so");
}

struct search {
    const char *name;
    void *found;
};

static bool visit(const struct ov_elf *object, void *context)
{
    struct search *search = context;
    search->found = is_nvml(object) ? ov_elf_symbol(object, search->name) : NULL;
    return search->found != NULL;
}

/* The program's own library's function, NULL if it is not loaded or lacks it. */
static void *real(const char *name)
{
    struct search search = {name, NULL};
    ov_elf_each(visit, &search);
    return search.found;
}

static int device_of(void *device)
{
    char uuid[UUID_BYTES];
    struct pci_info pci;
    int (*const get_uuid)(void *, char *, unsigned) = (int (*)(void *, char *, unsigned))real("nvmlDeviceGetUUID");
    if (get_uuid != NULL && get_uuid(device, uuid, sizeof uuid) == NVML_SUCCESS) {
        return ov_device_of_uuid(uuid);
    }
    int (*const get_pci)(void *, struct pci_info *) =
        (int (*)(void *, struct pci_info *))real("nvmlDeviceGetPciInfo_v3");
    if (get_pci != NULL && get_pci(device, &pci) == NVML_SUCCESS) {
        return ov_device_of_pci(pci.domain, pci.bus, pci.device);
    }
    return -1;
}

/* What NVML said becomes what is told. */
static bool told(void *device, unsigned long long *total, unsigned long long *free)
{
    size_t total_bytes = *total, free_bytes = *free;
    if (!ov_device_memory_told(device_of(device), &free_bytes, &total_bytes)) {
        return false;
    }
    *total = total_bytes;
    *free = free_bytes;
    return true;
}

static void fill_ov_nvml_memory(void *device, struct ov_nvml_memory *memory)
{
    if (told(device, &memory->total, &memory->free)) {
        memory->used = memory->total - memory->free;
    }
}

static void fill_ov_nvml_memory_v2(void *device, struct ov_nvml_memory_v2 *memory)
{
    if (told(device, &memory->total, &memory->free)) {
        const unsigned long long taken = memory->total - memory->free;
        memory->reserved = memory->reserved < taken ? memory->reserved : taken;
        memory->used = taken - memory->reserved;
    }
}

#define OV_NVML_HOOK(name, type)                                                                    \
    OV_HIDDEN int ov_wrap_##name(void *device, struct type *memory);                                \
    int ov_wrap_##name(void *device, struct type *memory)                                           \
    {                                                                                               \
        int (*const function)(void *, struct type *) = (int (*)(void *, struct type *))real(#name); \
        if (function == NULL) {                                                                     \
            return NVML_ERROR_FUNCTION_NOT_FOUND;                                                   \
        }                                                                                           \
        const int result = function(device, memory);                                                \
        if (result == NVML_SUCCESS && memory != NULL && !ov_bypass()) {                             \
            ov_inside_enter();                                                                      \
            fill_##type(device, memory);                                                            \
            ov_inside_leave();                                                                      \
        }                                                                                           \
        return result;                                                                              \
    }                                                                                               \
    extern __typeof__(ov_wrap_##name) ov_export_##name __asm__(#name)                               \
        __attribute__((alias("ov_wrap_" #name), visibility("default")));
#include "nvml_api.def"
#undef OV_NVML_HOOK

static const struct {
    const char *name, *undefined_name;
    void *wrapper;
} rows[] = {
#define OV_NVML_HOOK(name, type) {#name, #name " ", (void *)ov_wrap_##name},
#include "nvml_api.def"
#undef OV_NVML_HOOK
};

enum { ROWS = sizeof rows / sizeof rows[0] };

static bool in_nvml(const void *address)
{
    struct ov_elf object;
    return ov_elf_holding(address, &object) && is_nvml(&object);
}

static int row_named(const char *name)
{
    for (int i = 0; i < ROWS; i++) {
        if (strcmp(rows[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

bool ov_nvml_name(const char *name)
{
    return name != NULL && name[0] == 'n' && name[1] == 'v' && row_named(name) >= 0;
}

void *ov_nvml_lookup(struct ov_lookup *lookup, const struct ov_dl *dl, int versioned)
{
    const int row = row_named(lookup->name);
    const void *answer = rows[row].wrapper;
    if (lookup->handle != RTLD_NEXT) {
        answer = ov_lookup_ask(lookup, dl, versioned);
    } else if (!ov_lookup_next(lookup, in_nvml, false)) {
        return NULL;
    }
    if (answer == rows[row].wrapper && real(lookup->name) == NULL) {
        lookup->name = rows[row].undefined_name; /* nobody but us has it: as good as undefined */
        return NULL;
    }
    return answer != NULL && (answer == rows[row].wrapper || in_nvml(answer)) ? rows[row].wrapper : NULL;
}
