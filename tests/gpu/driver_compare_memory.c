/* Programs about contexts, memory, virtual memory, streams; and those that lose the context. */
#define _GNU_SOURCE
#include "driver_compare.h"

#include <stdlib.h>

void run_uninitialised(void)
{
    CUdeviceptr address;
    CUdevice device;
    CUcontext current = (CUcontext)1;
    say("cuMemAlloc before cuInit", d.cuMemAlloc_(&address, 4096));
    say("cuDeviceGet before cuInit", d.cuDeviceGet_(&device, 0));
    say("cuInit with flags", d.cuInit_(1));
    say("cuInit", d.cuInit_(0));
    say("cuDeviceGet of device 1000", d.cuDeviceGet_(&device, 1000));
    say("cuCtxGetCurrent without one", d.cuCtxGetCurrent_(&current));
    tell("it is NULL", current == NULL);
    say("cuMemAlloc without context", d.cuMemAlloc_(&address, 4096));
    say("cuCtxSynchronize without context", d.cuCtxSynchronize_());
    say("cuCtxPopCurrent without context", d.cuCtxPopCurrent_(&current));
    say("cuStreamSynchronize without context", d.cuStreamSynchronize_(NULL));
}

void run_memory(void)
{
    CUdeviceptr address = 0, base = 0;
    size_t bytes = 0;
    unsigned type = 0;
    int here = 0;
    start();
    say("alloc of 0", d.cuMemAlloc_(&address, 0));
    say("alloc of 2^50", d.cuMemAlloc_(&address, (size_t)1 << 50));
    say("alloc", d.cuMemAlloc_(&address, 3 * PAGE));
    say("free inside", d.cuMemFree_(address + 512));
    say("range inside", d.cuMemGetAddressRange_(&base, &bytes, address + PAGE + 5));
    tell("starts right", base == address);
    tell("size", (long long)bytes);
    say("range of host memory", d.cuMemGetAddressRange_(&base, &bytes, (CUdeviceptr)(uintptr_t)&here));
    say("memory type", d.cuPointerGetAttribute_(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    tell("type", type);
    say("memory type of host memory",
        d.cuPointerGetAttribute_(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)&here));
    say("misaligned 32-bit set", d.cuMemsetD32_(address + 1, 0, 1));
    say("set of nothing", d.cuMemsetD32_(address, 0, 0));
    say("copy of nothing", d.cuMemcpyHtoD_(address, &here, 0));
    say("copy over the end", d.cuMemcpyHtoD_(address + 3 * PAGE - 2, &here, 4));
    say("free", d.cuMemFree_(address));
    say("free again", d.cuMemFree_(address));
    say("free of 0", d.cuMemFree_(0));
    void *pinned = NULL, *plain = aligned_alloc(4096, 1 << 20);
    say("pin", d.cuMemHostAlloc_(&pinned, 4096, 0));
    say("type of pinned",
        d.cuPointerGetAttribute_(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)pinned));
    tell("type", type);
    say("unpin", d.cuMemFreeHost_(pinned));
    say("unpin again", d.cuMemFreeHost_(pinned));
    say("register", d.cuMemHostRegister_(plain, 1 << 20, 0));
    say("register again", d.cuMemHostRegister_(plain, 1 << 20, 0));
    say("register a part", d.cuMemHostRegister_((char *)plain + 4096, 4096, 0));
    say("unregister", d.cuMemHostUnregister_(plain));
    say("unregister again", d.cuMemHostUnregister_(plain));
    say("register nothing", d.cuMemHostRegister_(plain, 0, 0));
    say("end", d.cuCtxSynchronize_());
}

static CUmemAllocationProp prop;

CUresult grant(CUdeviceptr address, size_t bytes, CUmemAccess_flags flags)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}, .flags = flags};
    return d.cuMemSetAccess_(address, bytes, &access, 1);
}

CUmemGenericAllocationHandle handle_of(size_t bytes)
{
    CUmemGenericAllocationHandle handle;
    prop =
        (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    NEED(CALL(cuMemCreate, &handle, bytes, &prop, 0));
    return handle;
}

CUdeviceptr reserve(size_t bytes)
{
    CUdeviceptr address;
    NEED(CALL(cuMemAddressReserve, &address, bytes, 0, 0, 0));
    return address;
}

static void run_vmm_questions(CUdeviceptr address)
{
    CUdeviceptr base = 0;
    size_t bytes = 0;
    unsigned type = 0;
    unsigned long long flags = 77;
    const CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    CUipcMemHandle ipc;
    CUmemGenericAllocationHandle retained;
    CUmemAllocationProp got;
    say("address range", d.cuMemGetAddressRange_(&base, &bytes, address + PAGE + 5));
    tell("offset of its base in pages", (long long)((base - address) / PAGE));
    tell("bytes", (long long)bytes);
    say("address range of a hole", d.cuMemGetAddressRange_(&base, &bytes, address + 6 * PAGE));
    say("memory type", d.cuPointerGetAttribute_(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    tell("type", type);
    say("memory type of a hole", d.cuPointerGetAttribute_(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 6 * PAGE));
    say("rights", d.cuMemGetAccess_(&flags, &location, address));
    tell("flags", (long long)flags);
    say("rights of a hole", d.cuMemGetAccess_(&flags, &location, address + 6 * PAGE));
    say("IPC handle", d.cuIpcGetMemHandle_(&ipc, address));
    say("retain by an inner address", d.cuMemRetainAllocationHandle_(&retained, (void *)(address + 77)));
    say("properties", d.cuMemGetAllocationPropertiesFromHandle_(&got, retained));
    tell("location", got.location.type);
    say("release", d.cuMemRelease_(retained));
    int fd = -1;
    say("export without having asked",
        d.cuMemExportToShareableHandle_(&fd, retained, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
}

void run_vmm(void)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr other = 0;
    size_t granularity = 0;
    int value = -1;
    start();
    CUmemGenericAllocationHandle two = handle_of(2 * PAGE), one = handle_of(PAGE);
    say("granularity", d.cuMemGetAllocationGranularity_(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    tell("bytes", (long long)granularity);
    say("attribute 102", d.cuDeviceGetAttribute_(&value, (CUdevice_attribute)102, 0));
    tell("value", value);
    say("create of a page and a bit", d.cuMemCreate_(&handle, PAGE + 4096, &prop, 0));
    say("create of 0", d.cuMemCreate_(&handle, 0, &prop, 0));
    say("create of 2^50", d.cuMemCreate_(&handle, (size_t)1 << 50, &prop, 0));
    say("reserve of 4096", d.cuMemAddressReserve_(&other, 4096, 0, 0, 0));
    say("reserve of 2^47", d.cuMemAddressReserve_(&other, (size_t)1 << 47, 0, 0, 0));
    say("reserve with odd alignment", d.cuMemAddressReserve_(&other, PAGE, 3, 0, 0));
    CUdeviceptr address = reserve(8 * PAGE);
    say("map of half a handle", d.cuMemMap_(address, PAGE, 0, two, 0));
    say("map at an offset", d.cuMemMap_(address, PAGE, PAGE, two, 0));
    say("map at a misaligned address", d.cuMemMap_(address + 4096, 2 * PAGE, 0, two, 0));
    say("map of more than the handle", d.cuMemMap_(address, 4 * PAGE, 0, two, 0));
    say("map", d.cuMemMap_(address, 2 * PAGE, 0, two, 0));
    say("map over it", d.cuMemMap_(address + PAGE, PAGE, 0, one, 0));
    say("map past the end", d.cuMemMap_(address + 7 * PAGE, 2 * PAGE, 0, two, 0));
    say("map beside", d.cuMemMap_(address + 2 * PAGE, PAGE, 0, one, 0));
    say("same handle again", d.cuMemMap_(address + 4 * PAGE, PAGE, 0, one, 0));
    say("rights for half a mapping", grant(address, PAGE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    say("rights for two mappings", grant(address, 3 * PAGE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    say("rights over a hole", grant(address, 4 * PAGE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    say("read-only rights for the alias", grant(address + 4 * PAGE, PAGE, CU_MEM_ACCESS_FLAGS_PROT_READ));
    say("write", d.cuMemsetD32_(address + 2 * PAGE, 1234, WORDS));
    tell_word("read through the alias", address + 4 * PAGE + 4);
    run_vmm_questions(address);
    say("unmap of half a mapping", d.cuMemUnmap_(address, PAGE));
    say("unmap from the middle", d.cuMemUnmap_(address + PAGE, 2 * PAGE));
    say("free of mapped space", d.cuMemAddressFree_(address, 8 * PAGE));
    say("release of a mapped handle", d.cuMemRelease_(one));
    tell_word("memory is still there", address + 4 * PAGE);
    say("unmap of two mappings", d.cuMemUnmap_(address, 3 * PAGE));
    say("unmap again", d.cuMemUnmap_(address, 2 * PAGE));
    say("unmap over a hole", d.cuMemUnmap_(address, 5 * PAGE));
    say("unmap past the reservation", d.cuMemUnmap_(address, 16 * PAGE));
    say("unmap of memory never reserved", d.cuMemUnmap_((CUdeviceptr)PAGE * 64, PAGE));
    say("free of half the space", d.cuMemAddressFree_(address, 4 * PAGE));
    say("free of the space", d.cuMemAddressFree_(address, 8 * PAGE));
    say("release", d.cuMemRelease_(two));
    CUdeviceptr first = reserve(PAGE);
    NEED(CALL(cuMemAddressFree, first, PAGE));
    say("reserve at a hint", d.cuMemAddressReserve_(&other, PAGE, 0, first, 0));
    tell("hint honoured", other == first);
    say("attribute 141", d.cuDeviceGetAttribute_(&value, (CUdevice_attribute)141, 0));
    tell("value", value);
    const CUmemAllocationProp host = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA}};
    say("host-located handle", d.cuMemCreate_(&handle, PAGE, &host, 0));
    say("map it", d.cuMemMap_(other, PAGE, 0, handle, 0));
    say("rights for the device", grant(other, PAGE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    say("write", d.cuMemsetD32_(other, 77, WORDS));
    tell_word("read", other + 8);
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    say("rights for the host", d.cuMemSetAccess_(other, PAGE, &access, 1));
    CUdeviceptr plain = reserve(PAGE);
    NEED(CALL(cuMemMap, plain, PAGE, 0, handle_of(PAGE), 0));
    say("rights for the host on device memory", d.cuMemSetAccess_(plain, PAGE, &access, 1));
    say("end", d.cuCtxSynchronize_());
}

void run_stream(void)
{
    unsigned flags = 77;
    float ms;
    start();
    CUevent untimed = event_of(CU_EVENT_DISABLE_TIMING), fresh = event_of(0), timed = event_of(0);
    say("query of an empty stream", d.cuStreamQuery_(s));
    say("query of a fresh event", d.cuEventQuery_(fresh));
    say("synchronise a fresh event", d.cuEventSynchronize_(fresh));
    say("wait for a fresh event", d.cuStreamWaitEvent_(s, fresh, 0));
    NEED(CALL(cuEventRecord, timed, s));
    NEED(CALL(cuEventRecord, untimed, s));
    NEED(CALL(cuStreamSynchronize, s));
    say("elapsed from a fresh event", d.cuEventElapsedTime_(&ms, fresh, timed));
    say("elapsed from an untimed event", d.cuEventElapsedTime_(&ms, untimed, timed));
    say("elapsed", d.cuEventElapsedTime_(&ms, timed, timed));
    say("flags of a stream", d.cuStreamGetFlags_(s, &flags));
    tell("flags", flags);
    say("unknown wait flag", d.cuStreamWaitEvent_(s, timed, 64));
    say("unknown event flag", d.cuEventCreate_(&fresh, 64));
    say("unknown stream flag", d.cuStreamCreate_(&s, 64));
}

void run_readonly_store(void)
{
    start();
    CUdeviceptr address = reserve(PAGE);
    NEED(CALL(cuMemMap, address, PAGE, 0, handle_of(PAGE), 0));
    need("rights", grant(address, PAGE, CU_MEM_ACCESS_FLAGS_PROT_READ));
    say("kernel store through a read-only mapping", increment(s, address, 1));
    say("synchronise", d.cuStreamSynchronize_(s));
    say("any call", d.cuCtxSynchronize_());
    say("another", d.cuMemAlloc_(&address, 4096));
    say("launch", increment(s, a, 1));
}

void run_readonly_copy(void)
{
    uint32_t word = 1;
    start();
    CUdeviceptr address = reserve(PAGE);
    NEED(CALL(cuMemMap, address, PAGE, 0, handle_of(PAGE), 0));
    need("rights", grant(address, PAGE, CU_MEM_ACCESS_FLAGS_PROT_READ));
    (void)d.cuMemcpyHtoD_(address, &word, 4);
    say("after a copy through a read-only mapping", d.cuCtxSynchronize_());
}

void run_unmapped(void)
{
    start();
    CUdeviceptr address = reserve(PAGE);
    say("kernel on unmapped space", increment(s, address, 1));
    say("synchronise", d.cuStreamSynchronize_(s));
    say("event query", d.cuEventQuery_(event_of(0)));
}
