/* Virtual memory management: reservations, handles, mappings, access rights. */
#define _GNU_SOURCE
#include "sim.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A handle lives while it has user references or mappings. */
struct sim_handle {
    CUmemAllocationProp prop;
    struct sim_backing *backing;
    unsigned references;
    struct sim_mapping *mappings;
    struct sim_handle *next;
};

static struct sim_handle *handles;

static int host_location(CUmemLocationType type)
{
    return type == CU_MEM_LOCATION_TYPE_HOST || type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
           type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

static int supported(void)
{
    return !sim_knob_attribute_off(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
}

static CUresult prop_check(const CUmemAllocationProp *prop)
{
    if (prop == NULL || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        ((unsigned)prop->requestedHandleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        return sim_device_get(prop->location.id) != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    }
    if (!host_location(prop->location.type) ||
        (prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA && prop->location.id != 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return sim_knob_attribute_off(SIM_ATTRIBUTE_HOST_NUMA_VMM) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

static int aligned(uint64_t value)
{
    return (value & (SIM_PAGE_BYTES - 1)) == 0;
}

static struct sim_handle *handle_get(CUmemGenericAllocationHandle number)
{
    struct sim_handle *handle = (struct sim_handle *)(uintptr_t)number;
    return sim_handle_is(handle, 'H') && handle->references > 0 ? handle : NULL;
}

static void handle_settle(struct sim_handle *handle, const char *site)
{
    if (handle->references > 0 || handle->mappings != NULL) {
        return;
    }
    for (struct sim_handle **at = &handles; *at != NULL; at = &(*at)->next) {
        if (*at == handle) {
            *at = handle->next;
            break;
        }
    }
    sim_handle_drop(handle);
    sim_backing_put(handle->backing, site);
    free(handle);
}

struct sim_backing *sim_vmm_backing(const struct sim_mapping *mapping)
{
    return mapping->handle->backing;
}

const CUmemAllocationProp *sim_vmm_prop(const struct sim_mapping *mapping)
{
    return &mapping->handle->prop;
}

/* ---- reservations */

SIM_API(SIM_SOUND, cuMemAddressReserve,
        (CUdeviceptr * ptr, size_t size, size_t alignment, CUdeviceptr addr, unsigned long long flags), ptr, size,
        alignment, addr, flags)
{
    (void)call;
    uint64_t unit = alignment > SIM_PAGE_BYTES ? alignment : SIM_PAGE_BYTES;
    if (!supported()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (ptr == NULL || size == 0 || !aligned(size) || flags != 0 || (alignment & (alignment - 1)) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (size > sim_knobs.va_limit_bytes) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    size_t table_bytes = (size >> SIM_PAGE_SHIFT) * sizeof(struct sim_mapping *);
    void *map = mmap(NULL, table_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    uint64_t address = map == MAP_FAILED ? 0 : sim_space_reserve(size, unit, addr, 0);
    if (address == 0) {
        if (map != MAP_FAILED) {
            munmap(map, table_bytes);
        }
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_range_add(&(struct sim_range){.kind = SIM_RANGE_RESERVED, .address = address, .bytes = size, .map = map});
    *ptr = address;
    return CUDA_SUCCESS;
}

SIM_API(SIM_SOUND, cuMemAddressFree, (CUdeviceptr ptr, size_t size), ptr, size)
{
    (void)call;
    struct sim_range *range = sim_range_find(ptr);
    if (range == NULL || range->kind != SIM_RANGE_RESERVED || range->address != ptr || range->bytes != size ||
        range->mapped_count > 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    munmap(range->map, (range->bytes >> SIM_PAGE_SHIFT) * sizeof(struct sim_mapping *));
    sim_space_free(range->address, range->bytes);
    sim_range_drop(range);
    return CUDA_SUCCESS;
}

/* ---- handles */

SIM_API(SIM_SOUND, cuMemGetAllocationGranularity,
        (size_t * granularity, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option), granularity,
        prop, option)
{
    (void)call;
    if (!supported()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (granularity == NULL ||
        (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    SIM_TRY(prop_check(prop));
    *granularity = SIM_PAGE_BYTES;
    return CUDA_SUCCESS;
}

static int exportable(const CUmemAllocationProp *prop)
{
    return ((unsigned)prop->requestedHandleTypes & (unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
}

static CUmemGenericAllocationHandle handle_make(const CUmemAllocationProp *prop, struct sim_backing *backing)
{
    struct sim_handle *handle = calloc(1, sizeof *handle);
    if (handle == NULL) {
        sim_die("out of host memory");
    }
    handle->prop = *prop;
    handle->backing = backing;
    handle->references = 1;
    handle->next = handles;
    handles = handle;
    sim_handle_add(handle, 'H');
    return (CUmemGenericAllocationHandle)(uintptr_t)handle;
}

SIM_API(SIM_SOUND, cuMemCreate,
        (CUmemGenericAllocationHandle * out, size_t size, const CUmemAllocationProp *prop, unsigned long long flags),
        out, size, prop, flags)
{
    if (!supported()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (out == NULL || size == 0 || !aligned(size) || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    SIM_TRY(prop_check(prop));
    int on_host = host_location(prop->location.type);
    struct sim_backing *backing;
    if (exportable(prop) && !on_host) {
        SIM_TRY(sim_backing_make_shared((unsigned)prop->location.id, size, &backing));
    } else {
        SIM_TRY(sim_backing_make(on_host ? SIM_POOL_HOST_VMM : (unsigned)prop->location.id, size, &backing));
    }
    if (on_host) {
        sim_charge(call, (double)size * 0.363); /* 1 GiB takes 390 ms */
    }
    *out = handle_make(prop, backing);
    return CUDA_SUCCESS;
}

SIM_API(SIM_SOUND, cuMemRelease, (CUmemGenericAllocationHandle number), number)
{
    struct sim_handle *handle = handle_get(number);
    if (handle == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    handle->references--;
    handle_settle(handle, call->function->name);
    return CUDA_SUCCESS;
}

static struct sim_mapping *mapping_at(uint64_t address)
{
    const struct sim_range *range = sim_range_find(address);
    return range != NULL && range->kind == SIM_RANGE_RESERVED ? sim_vmm_find(range, address) : NULL;
}

SIM_API(SIM_SOUND, cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle * out, void *addr), out, addr)
{
    (void)call;
    const struct sim_mapping *mapping = mapping_at((uint64_t)(uintptr_t)addr);
    if (out == NULL || mapping == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    mapping->handle->references++;
    *out = (CUmemGenericAllocationHandle)(uintptr_t)mapping->handle;
    return CUDA_SUCCESS;
}

SIM_API(SIM_SOUND, cuMemGetAllocationPropertiesFromHandle,
        (CUmemAllocationProp * prop, CUmemGenericAllocationHandle number), prop, number)
{
    (void)call;
    const struct sim_handle *handle = handle_get(number);
    if (prop == NULL || handle == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *prop = handle->prop;
    return CUDA_SUCCESS;
}

/* A descriptor is the memory's file: another process maps it, and this one knows its own handle again by it. */
SIM_API(SIM_SOUND, cuMemExportToShareableHandle,
        (void *out, CUmemGenericAllocationHandle number, CUmemAllocationHandleType type, unsigned long long flags), out,
        number, type, flags)
{
    (void)call;
    struct sim_handle *handle = handle_get(number);
    if (out == NULL || handle == NULL || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        !exportable(&handle->prop) || handle->backing->file < 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    int fd = fcntl(handle->backing->file, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *(int *)out = fd;
    return CUDA_SUCCESS;
}

SIM_API(SIM_SOUND, cuMemImportFromShareableHandle,
        (CUmemGenericAllocationHandle * out, void *os_handle, CUmemAllocationHandleType type), out, os_handle, type)
{
    (void)call;
    struct stat status, own;
    if (out == NULL || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (fstat((int)(intptr_t)os_handle, &status) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (struct sim_handle *handle = handles; handle != NULL; handle = handle->next) {
        if (handle->backing->file >= 0 && fstat(handle->backing->file, &own) == 0 && own.st_ino == status.st_ino) {
            handle->references++;
            *out = (CUmemGenericAllocationHandle)(uintptr_t)handle;
            return CUDA_SUCCESS;
        }
    }
    struct sim_backing *backing = sim_backing_import((int)(intptr_t)os_handle);
    if (backing == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)backing->pool}};
    *out = handle_make(&prop, backing);
    return CUDA_SUCCESS;
}

/* ---- mappings */

static void mapping_link(struct sim_mapping *mapping, struct sim_handle *handle)
{
    mapping->handle = handle;
    mapping->next = handle->mappings;
    mapping->link = &handle->mappings;
    if (mapping->next != NULL) {
        mapping->next->link = &mapping->next;
    }
    handle->mappings = mapping;
}

static void mapping_unlink(struct sim_mapping *mapping)
{
    *mapping->link = mapping->next;
    if (mapping->next != NULL) {
        mapping->next->link = mapping->link;
    }
}

SIM_API(SIM_SOUND, cuMemMap,
        (CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle number, unsigned long long flags),
        ptr, size, offset, number, flags)
{
    (void)call;
    struct sim_handle *handle = handle_get(number);
    struct sim_range *range = sim_range_find(ptr);
    if (handle == NULL || flags != 0 || size == 0 || !aligned(ptr) || !aligned(size) || !aligned(offset)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (offset != 0 || size != handle->backing->bytes) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (range == NULL || range->kind != SIM_RANGE_RESERVED || size > range->address + range->bytes - ptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sim_mapping **slot = range->map + ((ptr - range->address) >> SIM_PAGE_SHIFT);
    for (size_t i = 0; i < size >> SIM_PAGE_SHIFT; i++) {
        if (slot[i] != NULL) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    struct sim_mapping *mapping = calloc(1, sizeof *mapping);
    if (mapping == NULL) {
        sim_die("out of host memory");
    }
    mapping->address = ptr;
    mapping->bytes = size;
    mapping_link(mapping, handle);
    range->mapped_count++;
    for (size_t i = 0; i < size >> SIM_PAGE_SHIFT; i++) {
        slot[i] = mapping;
    }
    return CUDA_SUCCESS;
}

/* Is [ptr, ptr + size) exactly a row of whole mappings? Gives the reservation and how many there are. */
static CUresult whole_mappings(uint64_t ptr, uint64_t size, struct sim_range **out, size_t *count)
{
    struct sim_range *range = sim_range_find(ptr);
    if (range == NULL || range->kind != SIM_RANGE_RESERVED || size == 0 || !aligned(ptr) || !aligned(size) ||
        size > range->address + range->bytes - ptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *count = 0;
    for (uint64_t at = ptr; at < ptr + size; (*count)++) {
        const struct sim_mapping *mapping = sim_vmm_find(range, at);
        if (mapping == NULL || mapping->address != at || mapping->bytes > ptr + size - at) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        at += mapping->bytes;
    }
    *out = range;
    return CUDA_SUCCESS;
}

/* What lies in a range that is to be unmapped: holes do not matter, a mapping that is cut does. */
static CUresult cut_mappings(const struct sim_range *range, uint64_t ptr, uint64_t end, size_t *count)
{
    *count = 0;
    for (uint64_t at = ptr; at < end;) {
        const struct sim_mapping *mapping = sim_vmm_find(range, at);
        if (mapping != NULL && (mapping->address != at || mapping->bytes > end - at)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *count += mapping != NULL;
        at += mapping != NULL ? mapping->bytes : SIM_PAGE_BYTES;
    }
    return CUDA_SUCCESS;
}

/* As on driver 580: unmapping what is not mapped works, also past the end of the reservation. */
SIM_API(SIM_SOUND, cuMemUnmap, (CUdeviceptr ptr, size_t size), ptr, size)
{
    struct sim_range *range = sim_range_find(ptr);
    size_t count;
    if (range == NULL || range->kind != SIM_RANGE_RESERVED || size == 0 || !aligned(ptr) || !aligned(size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t left = range->address + range->bytes - ptr, end = ptr + (size < left ? size : left);
    SIM_TRY(cut_mappings(range, ptr, end, &count));
    sim_charge(call, (count > 1 ? (double)(count - 1) : 0) * (double)call->function->cost_ns);
    for (uint64_t at = ptr; at < end;) {
        struct sim_mapping *mapping = sim_vmm_find(range, at);
        if (mapping == NULL) {
            at += SIM_PAGE_BYTES;
            continue;
        }
        at += mapping->bytes;
        sim_race_mapping(call->function->name, mapping);
        sim_space_clear(mapping->address, mapping->bytes);
        memset(range->map + ((mapping->address - range->address) >> SIM_PAGE_SHIFT), 0,
               (mapping->bytes >> SIM_PAGE_SHIFT) * sizeof(struct sim_mapping *));
        range->mapped_count--;
        mapping_unlink(mapping);
        handle_settle(mapping->handle, call->function->name);
        free(mapping->last);
        free(mapping);
    }
    return CUDA_SUCCESS;
}

/* Index into mapping->access, or -1. */
static int access_index(const CUmemLocation *location)
{
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE && sim_device_get(location->id) != NULL) {
        return location->id;
    }
    return host_location(location->type) ? SIM_MAX_DEVICES : -1;
}

static CUresult access_check(const struct sim_range *range, uint64_t ptr, uint64_t size, const CUmemAccessDesc *desc,
                             size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int index = access_index(&desc[i].location);
        if (index < 0 ||
            (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
             desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        for (uint64_t at = ptr; index == SIM_MAX_DEVICES && at < ptr + size;) {
            const struct sim_mapping *mapping = sim_vmm_find(range, at);
            if (mapping->handle->backing->pool != SIM_POOL_HOST_VMM) {
                return CUDA_ERROR_NOT_SUPPORTED;
            }
            at += mapping->bytes;
        }
    }
    return CUDA_SUCCESS;
}

/* The host page tables carry the union of all rights: what the simulated device may do is checked before it is run. */
static int protection(const struct sim_mapping *mapping)
{
    int result = PROT_NONE;
    for (int i = 0; i <= SIM_MAX_DEVICES; i++) {
        result |= mapping->access[i] == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE
                  : mapping->access[i] == CU_MEM_ACCESS_FLAGS_PROT_READ    ? PROT_READ
                                                                           : PROT_NONE;
    }
    return result;
}

static void access_set(struct sim_mapping *mapping, const CUmemAccessDesc *desc, size_t count, const char *site)
{
    int taken_away = 0;
    for (size_t i = 0; i < count; i++) {
        unsigned char *access = &mapping->access[access_index(&desc[i].location)];
        taken_away |= (unsigned)desc[i].flags < *access;
        *access = (unsigned char)desc[i].flags;
    }
    if (taken_away) {
        sim_race_mapping(site, mapping);
    }
    if (!sim_backing_map(mapping->handle->backing, mapping->address, protection(mapping))) {
        sim_die("cannot map device memory: too many mappings (vm.max_map_count)?");
    }
}

SIM_API(SIM_SOUND, cuMemSetAccess, (CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count), ptr, size,
        desc, count)
{
    struct sim_range *range;
    size_t mappings;
    if (desc == NULL || count == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    SIM_TRY(whole_mappings(ptr, size, &range, &mappings));
    SIM_TRY(access_check(range, ptr, size, desc, count));
    sim_charge(call, (double)(mappings - 1) * (double)call->function->cost_ns);
    for (uint64_t at = ptr; at < ptr + size;) {
        struct sim_mapping *mapping = sim_vmm_find(range, at);
        access_set(mapping, desc, count, call->function->name);
        at += mapping->bytes;
    }
    return CUDA_SUCCESS;
}

SIM_API(SIM_SOUND, cuMemGetAccess, (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr), flags,
        location, ptr)
{
    (void)call;
    const struct sim_mapping *mapping = mapping_at(ptr);
    int index = location != NULL ? access_index(location) : -1;
    if (flags == NULL || index < 0 || mapping == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = mapping->access[index];
    return CUDA_SUCCESS;
}
