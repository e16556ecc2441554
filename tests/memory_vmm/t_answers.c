/*
 * What the driver answers to a program that maps its memory itself. Each case also runs on the driver alone, which
 * answers what a real one did (tests/gpu/driver_compare.real.txt): the answers are the same with and without overshot.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool.h"

static struct rig rig;

static void open_rig(void)
{
    rig_open(&rig, 0);
    OK(cuMemAlloc(&(CUdeviceptr){0}, 4 * MIB)); /* the first large allocation is long past */
}

static void create(void)
{
    CUmemGenericAllocationHandle handle = 0x1234;
    CUmemAllocationProp prop = pool_prop;
    open_rig();
    HOLDS(cuMemCreate(&handle, PAGE + 4096, &prop, 0) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuMemCreate(&handle, 0, &prop, 0) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuMemCreate(NULL, PAGE, &prop, 0) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuMemCreate(&handle, PAGE, NULL, 0) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuMemCreate(&handle, PAGE, &prop, 1) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuMemCreate(&handle, (size_t)1 << 50, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
    prop.location.id = 77;
    HOLDS(cuMemCreate(&handle, PAGE, &prop, 0) == CUDA_ERROR_INVALID_DEVICE);
    HOLDS(handle == 0x1234);
    HOLDS(cuMemRelease(0) == CUDA_ERROR_INVALID_VALUE);
}

static void properties(void)
{
    CUmemAllocationProp prop = pool_prop, got;
    CUmemGenericAllocationHandle handle;
    open_rig();
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    OK(cuMemCreate(&handle, PAGE, &prop, 0));
    memset(&got, 0xee, sizeof got);
    OK(cuMemGetAllocationPropertiesFromHandle(&got, handle));
    HOLDS(got.type == prop.type && got.location.type == prop.location.type && got.location.id == 0);
    HOLDS(got.requestedHandleTypes == prop.requestedHandleTypes);
    HOLDS(cuMemGetAllocationPropertiesFromHandle(NULL, handle) == CUDA_ERROR_INVALID_VALUE);
    OK(cuMemRelease(handle));
    HOLDS(cuMemGetAllocationPropertiesFromHandle(&got, handle) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuMemRelease(handle) == CUDA_ERROR_INVALID_VALUE);
}

static void reservations(void)
{
    CUdeviceptr address = 0x1234, other;
    open_rig();
    HOLDS(cuMemAddressReserve(&address, 4096, 0, 0, 0) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuMemAddressReserve(&address, 0, 0, 0, 0) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuMemAddressReserve(NULL, PAGE, 0, 0, 0) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuMemAddressReserve(&address, PAGE, 3, 0, 0) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuMemAddressReserve(&address, (size_t)1 << 47, 0, 0, 0) == CUDA_ERROR_OUT_OF_MEMORY);
    HOLDS(address == 0x1234);
    for (size_t alignment = PAGE; alignment <= (size_t)1 << 34; alignment *= 4) {
        OK(cuMemAddressReserve(&address, 3 * PAGE, alignment, 0, 0));
        HOLDS(address % alignment == 0);
        OK(cuMemAddressFree(address, 3 * PAGE));
    }
    /* Larger than any device, as expandable segments are, and larger than what is likely to be left. */
    OK(cuMemAddressReserve(&address, (size_t)1 << 38, 0, 0, 0));
    OK(cuMemAddressReserve(&other, (size_t)1 << 44, 0, 0, 0));
    HOLDS(other + ((size_t)1 << 44) <= address || address + ((size_t)1 << 38) <= other);
    HOLDS(cuMemAddressFree(address, PAGE) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuMemAddressFree(address + PAGE, ((size_t)1 << 38) - PAGE) == CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAddressFree(address, (size_t)1 << 38));
    HOLDS(cuMemAddressFree(address, (size_t)1 << 38) == CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAddressFree(other, (size_t)1 << 44));
}

/* A hint is honoured when the place is free, and no error when it is not. */
static void hints(void)
{
    CUdeviceptr first, other;
    open_rig();
    first = pool_reserve(8 * PAGE);
    OK(cuMemAddressFree(first, 8 * PAGE));
    OK(cuMemAddressReserve(&other, 2 * PAGE, 0, first + 2 * PAGE, 0));
    HOLDS(other == first + 2 * PAGE);
    OK(cuMemAddressReserve(&first, 2 * PAGE, 0, other + 2 * PAGE, 0)); /* growing by a neighbour */
    HOLDS(first == other + 2 * PAGE);
    OK(cuMemAddressReserve(&first, PAGE, 0, other, 0));
    HOLDS(first != other && first != 0);
    pool_show(first, PAGE, pool_handle(PAGE));
    pool_show(other, PAGE, pool_handle(PAGE));
    pool_fill(first, PAGE, 1);
    pool_fill(other, PAGE, 2);
    pool_expect(first, PAGE, 1);
}

/* Far away from everything there is. */
static void hint_elsewhere(void)
{
    CUdeviceptr probe, address;
    open_rig();
    probe = pool_reserve((size_t)1 << 45);
    OK(cuMemAddressFree(probe, (size_t)1 << 45));
    const CUdeviceptr hint = probe + ((size_t)1 << 44);
    OK(cuMemAddressReserve(&address, 4 * PAGE, 0, hint, 0));
    HOLDS(address == hint);
    pool_show(address + PAGE, PAGE, pool_handle(PAGE));
    pool_fill(address + PAGE, PAGE, 3);
    pool_expect(address + PAGE, PAGE, 3);
    OK(cuMemUnmap(address, 4 * PAGE));
    OK(cuMemAddressFree(address, 4 * PAGE));
}

static void mapping_errors(void)
{
    open_rig();
    const CUmemGenericAllocationHandle two = pool_handle(2 * PAGE), one = pool_handle(PAGE);
    const CUdeviceptr address = pool_reserve(8 * PAGE);
    HOLDS(cuMemMap(address, PAGE, 0, two, 0) == CUDA_ERROR_NOT_SUPPORTED);
    HOLDS(cuMemMap(address, PAGE, PAGE, two, 0) == CUDA_ERROR_NOT_SUPPORTED);
    HOLDS(cuMemMap(address, 4 * PAGE, 0, two, 0) == CUDA_ERROR_NOT_SUPPORTED);
    HOLDS(cuMemMap(address + 4096, 2 * PAGE, 0, two, 0) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuMemMap(address, 2 * PAGE, 0, two, 1) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuMemMap(address, 0, 0, two, 0) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuMemMap(address, PAGE, 0, 0, 0) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuMemMap((CUdeviceptr)64 * PAGE, PAGE, 0, one, 0) == CUDA_ERROR_INVALID_VALUE);
    OK(cuMemMap(address, 2 * PAGE, 0, two, 0));
    HOLDS(cuMemMap(address + PAGE, PAGE, 0, one, 0) == CUDA_ERROR_INVALID_VALUE);
    OK(cuMemMap(address + 2 * PAGE, PAGE, 0, one, 0));
    HOLDS(cuMemMap(address + 2 * PAGE, PAGE, 0, one, 0) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuMemAddressFree(address, 8 * PAGE) == CUDA_ERROR_INVALID_VALUE);
    OK(cuMemUnmap(address, 3 * PAGE));
    OK(cuMemAddressFree(address, 8 * PAGE));
    HOLDS(cuMemMap(address, PAGE, 0, one, 0) == CUDA_ERROR_INVALID_VALUE);
}

static void rights(void)
{
    unsigned long long flags = 77;
    const CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    const CUmemAccessDesc host = {.location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    open_rig();
    const CUdeviceptr address = pool_reserve(8 * PAGE);
    OK(cuMemMap(address, 2 * PAGE, 0, pool_handle(2 * PAGE), 0));
    OK(cuMemMap(address + 2 * PAGE, PAGE, 0, pool_handle(PAGE), 0));
    OK(cuMemGetAccess(&flags, &device, address + 3000));
    HOLDS(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    HOLDS(pool_grant(address, PAGE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(pool_grant(address, 4 * PAGE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(pool_grant(address, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(pool_grant(address + 5 * PAGE, PAGE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(pool_grant(address, 3 * PAGE, (CUmemAccess_flags)2) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuMemSetAccess(address, 3 * PAGE, NULL, 1) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuMemSetAccess(address, 3 * PAGE, &host, 1) == CUDA_ERROR_NOT_SUPPORTED);
    OK(pool_grant(address, 3 * PAGE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(cuMemGetAccess(&flags, &device, address + 2 * PAGE + 5));
    HOLDS(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(pool_grant(address + 2 * PAGE, PAGE, CU_MEM_ACCESS_FLAGS_PROT_READ));
    OK(cuMemGetAccess(&flags, &device, address + 2 * PAGE));
    HOLDS(flags == CU_MEM_ACCESS_FLAGS_PROT_READ);
    HOLDS(cuMemGetAccess(&flags, &device, address + 6 * PAGE) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuMemGetAccess(NULL, &device, address) == CUDA_ERROR_INVALID_VALUE);
    pool_fill(address, 2 * PAGE, 5);
    pool_expect(address, 2 * PAGE, 5);
}

static void questions(void)
{
    CUdeviceptr base = 0, start;
    size_t bytes = 0;
    unsigned type = 0;
    int ordinal = 7;
    CUcontext context = (CUcontext)&type;
    CUipcMemHandle ipc;
    open_rig();
    const CUdeviceptr address = pool_reserve(8 * PAGE);
    pool_show(address + PAGE, 2 * PAGE, pool_handle(2 * PAGE));
    pool_show(address + 3 * PAGE, PAGE, pool_handle(PAGE));
    OK(cuMemGetAddressRange(&base, &bytes, address + 2 * PAGE + 5));
    HOLDS(base == address + PAGE && bytes == 2 * PAGE); /* one mapping */
    OK(cuMemGetAddressRange(&base, &bytes, address + 3 * PAGE));
    HOLDS(base == address + 3 * PAGE && bytes == PAGE);
    HOLDS(cuMemGetAddressRange(&base, &bytes, address) == CUDA_ERROR_NOT_FOUND);
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + PAGE));
    HOLDS(type == CU_MEMORYTYPE_DEVICE);
    OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address + PAGE));
    HOLDS(ordinal == 0);
    OK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, address + PAGE));
    HOLDS(context == NULL);
    OK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address + 3 * PAGE));
    OK(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address + 3 * PAGE));
    HOLDS(start == address && bytes == 8 * PAGE); /* what was reserved */
    OK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, address + 2 * PAGE));
    OK(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, address + 2 * PAGE));
    HOLDS(start == address + PAGE && bytes == 2 * PAGE);
    HOLDS(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuIpcGetMemHandle(&ipc, address + PAGE) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuMemFree(address + PAGE) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuMemFree(address) == CUDA_ERROR_INVALID_VALUE);
    void *values[] = {&type, &start};
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR};
    OK(cuPointerGetAttributes(2, attributes, values, address + 3 * PAGE + 99));
    HOLDS(type == CU_MEMORYTYPE_DEVICE && start == address + 3 * PAGE);
}

static void unmapping(void)
{
    open_rig();
    const CUdeviceptr address = pool_reserve(8 * PAGE);
    const CUmemGenericAllocationHandle two = pool_handle(2 * PAGE), one = pool_handle(PAGE);
    pool_show(address, 2 * PAGE, two);
    pool_show(address + 2 * PAGE, PAGE, one);
    pool_fill(address, 3 * PAGE, 9);
    HOLDS(cuMemUnmap(address, PAGE) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuMemUnmap(address + PAGE, 2 * PAGE) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuMemUnmap(address, 0) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuMemUnmap(address + 4096, PAGE) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuMemUnmap((CUdeviceptr)64 * PAGE, PAGE) == CUDA_ERROR_INVALID_VALUE);
    pool_expect(address, 3 * PAGE, 9);
    OK(cuMemUnmap(address, 3 * PAGE)); /* two mappings */
    OK(cuMemUnmap(address, 2 * PAGE)); /* again */
    pool_show(address + 4 * PAGE, PAGE, one);
    OK(cuMemUnmap(address, 5 * PAGE));  /* over a hole */
    OK(cuMemUnmap(address, 16 * PAGE)); /* past the end */
    OK(cuMemAddressFree(address, 8 * PAGE));
    OK(cuMemRelease(one));
    OK(cuMemRelease(two));
    HOLDS(cuMemUnmap(address, PAGE) == CUDA_ERROR_INVALID_VALUE);
}

/* Memory lives until it is neither mapped nor referred to, whichever ends first. */
static void release_before_unmap(void)
{
    CUmemGenericAllocationHandle again;
    open_rig();
    const CUdeviceptr address = pool_reserve(4 * PAGE);
    const CUmemGenericAllocationHandle handle = pool_handle(PAGE);
    pool_show(address, PAGE, handle);
    OK(cuMemRelease(handle));
    pool_fill(address, PAGE, 11);
    pool_expect(address, PAGE, 11);
    OK(cuMemRetainAllocationHandle(&again, (void *)(address + 77)));
    OK(cuMemUnmap(address, PAGE));
    pool_show(address + 2 * PAGE, PAGE, again);
    pool_expect(address + 2 * PAGE, PAGE, 11);
    OK(cuMemRelease(again));
    pool_expect(address + 2 * PAGE, PAGE, 11);
    OK(cuMemUnmap(address, 4 * PAGE));
    OK(cuMemAddressFree(address, 4 * PAGE));
}

static void retained(void)
{
    CUmemGenericAllocationHandle again = 0, plain = 0;
    CUdeviceptr ordinary;
    open_rig();
    const CUdeviceptr address = pool_reserve(4 * PAGE);
    const CUmemGenericAllocationHandle handle = pool_handle(PAGE);
    HOLDS(cuMemRetainAllocationHandle(&again, (void *)address) == CUDA_ERROR_INVALID_VALUE);
    pool_show(address, PAGE, handle);
    OK(cuMemRetainAllocationHandle(&again, (void *)address));
    HOLDS(again == handle);
    HOLDS(cuMemRetainAllocationHandle(NULL, (void *)address) == CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAlloc(&ordinary, 4 * MIB));
    HOLDS(cuMemRetainAllocationHandle(&plain, (void *)ordinary) == CUDA_ERROR_INVALID_VALUE && plain == 0);
    OK(cuMemUnmap(address, PAGE));
    OK(cuMemRelease(handle));
    OK(cuMemRelease(again));
    HOLDS(cuMemRelease(again) == CUDA_ERROR_INVALID_VALUE);
}

/* Contents go with the handle. */
static void moved(void)
{
    open_rig();
    const CUdeviceptr address = pool_reserve(16 * PAGE);
    const CUmemGenericAllocationHandle handle = pool_handle(3 * PAGE);
    pool_show(address, 3 * PAGE, handle);
    for (uint32_t i = 0; i < 3; i++) {
        pool_fill(address + i * PAGE, PAGE, 20 + i);
    }
    for (unsigned at = 1; at < 12; at += 5) {
        OK(cuMemUnmap(address, 16 * PAGE));
        pool_show(address + at * PAGE, 3 * PAGE, handle);
        for (uint32_t i = 0; i < 3; i++) {
            pool_expect(address + (at + i) * PAGE, PAGE, 20 + i);
        }
    }
}

/* One handle at two addresses: what is written at one is read at the other, and at both after one is gone. */
static void mapped_twice(void)
{
    CUdeviceptr base;
    size_t bytes;
    open_rig();
    const CUdeviceptr address = pool_reserve(16 * PAGE);
    const CUmemGenericAllocationHandle handle = pool_handle(2 * PAGE);
    pool_show(address, 2 * PAGE, handle);
    pool_fill(address, 2 * PAGE, 31);
    pool_show(address + 4 * PAGE, 2 * PAGE, handle);
    pool_expect(address + 4 * PAGE, 2 * PAGE, 31);
    pool_fill(address + 5 * PAGE, PAGE, 32);
    pool_expect(address + PAGE, PAGE, 32);
    pool_fill(address, PAGE, 33);
    pool_expect(address + 4 * PAGE, PAGE, 33);
    OK(cuMemGetAddressRange(&base, &bytes, address + 5 * PAGE));
    HOLDS(base == address + 4 * PAGE && bytes == 2 * PAGE);
    OK(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address + 5 * PAGE));
    HOLDS(base == address);
    OK(cuMemRelease(handle));
    OK(cuMemUnmap(address, 2 * PAGE));
    pool_expect(address + 4 * PAGE, PAGE, 33);
    OK(cuMemUnmap(address, 16 * PAGE));
    OK(cuMemAddressFree(address, 16 * PAGE));
}

/* Before anything was written, in two reservations, one of them the driver's own. */
static void mapped_twice_empty(void)
{
    CUdeviceptr far;
    open_rig();
    const CUdeviceptr address = pool_reserve(2 * PAGE);
    const CUdeviceptr probe = pool_reserve((size_t)1 << 45);
    OK(cuMemAddressFree(probe, (size_t)1 << 45));
    OK(cuMemAddressReserve(&far, 2 * PAGE, 0, probe + ((size_t)1 << 44), 0));
    const CUmemGenericAllocationHandle handle = pool_handle(2 * PAGE);
    pool_show(far, 2 * PAGE, handle);
    pool_show(address, 2 * PAGE, handle);
    pool_fill(far, 2 * PAGE, 41);
    pool_expect(address, 2 * PAGE, 41);
    OK(cuMemUnmap(far, 2 * PAGE));
    pool_expect(address, 2 * PAGE, 41);
    OK(cuMemUnmap(address, 2 * PAGE));
    pool_show(far, 2 * PAGE, handle);
    pool_expect(far, 2 * PAGE, 41);
}

/* A descriptor that was asked for shares the memory, with what is in it. */
static void exported(void)
{
    CUmemAllocationProp prop = pool_prop;
    CUmemGenericAllocationHandle handle, import;
    int fd = -1;
    open_rig();
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    const CUdeviceptr address = pool_reserve(8 * PAGE);
    OK(cuMemCreate(&handle, 2 * PAGE, &prop, 0));
    pool_show(address, 2 * PAGE, handle);
    pool_fill(address, 2 * PAGE, 51);
    OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    HOLDS(fd >= 0);
    OK(cuMemImportFromShareableHandle(&import, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    pool_show(address + 4 * PAGE, 2 * PAGE, import);
    pool_expect(address + 4 * PAGE, 2 * PAGE, 51);
    pool_fill(address + 4 * PAGE, 2 * PAGE, 52);
    pool_expect(address, 2 * PAGE, 52);
    close(fd);
}

static void export_errors(void)
{
    int fd = -1;
    open_rig();
    const CUmemGenericAllocationHandle handle = pool_handle(PAGE);
    HOLDS(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
          CUDA_ERROR_INVALID_VALUE);
    HOLDS(fd == -1);
    OK(cuMemRelease(handle));
    HOLDS(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
          CUDA_ERROR_INVALID_VALUE);
}

/* Memory of the host, mapped by the program beside memory of the device. */
static void host_located(void)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA}};
    const CUmemAccessDesc both[2] = {
        {.location = pool_prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
        {.location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    CUmemGenericAllocationHandle host, retained_handle;
    CUmemAllocationProp got;
    unsigned type;
    open_rig();
    const CUdeviceptr address = pool_reserve(4 * PAGE);
    OK(cuMemCreate(&host, PAGE, &prop, 0));
    pool_show(address, PAGE, pool_handle(PAGE));
    OK(cuMemMap(address + PAGE, PAGE, 0, host, 0));
    OK(cuMemSetAccess(address + PAGE, PAGE, both, 2));
    pool_show(address + 2 * PAGE, PAGE, pool_handle(PAGE));
    memset((void *)(address + PAGE), 0x61, PAGE);
    pool_expect(address + PAGE, PAGE, 0x61616161);
    pool_fill(address, 3 * PAGE, 62);
    HOLDS(*(const uint32_t *)(address + 2 * PAGE - 4) == 62);
    pool_expect(address, 3 * PAGE, 62);
    OK(pool_grant(address, 3 * PAGE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)); /* over all three */
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + PAGE));
    HOLDS(type == CU_MEMORYTYPE_HOST);
    OK(cuMemRetainAllocationHandle(&retained_handle, (void *)(address + PAGE)));
    OK(cuMemGetAllocationPropertiesFromHandle(&got, retained_handle));
    HOLDS(got.location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA);
    OK(cuMemRelease(host));
    OK(cuMemRelease(retained_handle));
    pool_expect(address + PAGE, PAGE, 62);
    OK(cuMemUnmap(address, 4 * PAGE));
    OK(cuMemAddressFree(address, 4 * PAGE));
}

/* Managed memory is the driver's, and of its kind. */
static void managed(void)
{
    CUdeviceptr address;
    int is_managed = 0;
    open_rig();
    OK(cuMemAllocManaged(&address, 8 * MIB, CU_MEM_ATTACH_GLOBAL));
    OK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address));
    HOLDS(is_managed);
    memset((void *)address, 0x71, 8 * MIB);
    pool_expect(address, 8 * MIB, 0x71717171);
    pool_fill(address + 4 * MIB, 4 * MIB, 72);
    HOLDS(*(const uint32_t *)(address + 4 * MIB) == 72);
    OK(cuMemFree(address));
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(create),         CASE(properties),
    CASE(reservations),   CASE(hints),
    CASE(hint_elsewhere), CASE(mapping_errors),
    CASE(rights),         CASE(questions),
    CASE(unmapping),      CASE(release_before_unmap),
    CASE(retained),       CASE(moved),
    CASE(mapped_twice),   CASE(mapped_twice_empty),
    CASE(exported),       CASE(export_errors),
    CASE(host_located),   CASE(managed),
};
RIG_MAIN(cases)
