/* Virtual memory management: one test a rule. */
#include "harness.h"

#include <string.h>
#include <unistd.h>

static CUmemGenericAllocationHandle handle_of(size_t bytes)
{
    CUmemGenericAllocationHandle handle;
    const CUmemAllocationProp prop = device_prop();
    OK(cuMemCreate(&handle, bytes, &prop, 0));
    return handle;
}

static CUdeviceptr reserve(size_t bytes)
{
    CUdeviceptr address;
    OK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    return address;
}

static size_t free_bytes(void)
{
    size_t free, total;
    OK(cuMemGetInfo(&free, &total));
    return free;
}

START_TEST(granularity_is_two_mebibytes)
{
    size_t granularity;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    const CUmemAllocationProp prop = device_prop();
    start(0);
    OK(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    ck_assert_uint_eq(granularity, PAGE);
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, PAGE + 4096, &prop, 0));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&address, 4096, 0, 0, 0));
}
END_TEST

START_TEST(handles_are_mapped_whole)
{
    start(0);
    CUdeviceptr address = reserve(4 * PAGE);
    CUmemGenericAllocationHandle handle = handle_of(2 * PAGE);
    ANSWERS(CUDA_ERROR_NOT_SUPPORTED, cuMemMap(address, PAGE, 0, handle, 0));
    ANSWERS(CUDA_ERROR_NOT_SUPPORTED, cuMemMap(address, PAGE, PAGE, handle, 0));
    ANSWERS(CUDA_ERROR_NOT_SUPPORTED, cuMemMap(address, 4 * PAGE, 0, handle, 0));
    OK(cuMemMap(address, 2 * PAGE, 0, handle, 0));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuMemMap(address + PAGE, 2 * PAGE, 0, handle, 0));     /* taken */
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuMemMap(address + 3 * PAGE, 2 * PAGE, 0, handle, 0)); /* past the end */
}
END_TEST

START_TEST(mappings_are_unmapped_whole)
{
    start(0);
    CUdeviceptr address = reserve(8 * PAGE);
    OK(cuMemMap(address, 2 * PAGE, 0, handle_of(2 * PAGE), 0));
    OK(cuMemMap(address + 2 * PAGE, PAGE, 0, handle_of(PAGE), 0));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(address, PAGE));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(address + PAGE, 2 * PAGE));
    OK(cuMemUnmap(address, 3 * PAGE)); /* several whole ones at once */
    OK(cuMemUnmap(address, 2 * PAGE)); /* nothing there any more: fine on a real driver */
    CUmemGenericAllocationHandle handle = handle_of(PAGE);
    OK(cuMemMap(address + PAGE, PAGE, 0, handle, 0));
    OK(cuMemMap(address + 3 * PAGE, PAGE, 0, handle, 0));
    OK(cuMemUnmap(address, 16 * PAGE)); /* holes, and past the end of the reservation */
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap((CUdeviceptr)64 * PAGE, PAGE)); /* never reserved */
    OK(cuMemAddressFree(address, 8 * PAGE));
}
END_TEST

START_TEST(aliases_are_the_same_bytes)
{
    start(0);
    struct mapped first = map_new(PAGE);
    CUdeviceptr second = reserve(PAGE);
    OK(map_at(second, PAGE, first.handle, CU_MEM_ACCESS_FLAGS_PROT_READ));
    OK(cuMemsetD32(first.address, 99, PAGE / 4));
    OK(cuCtxSynchronize());
    ck_assert_uint_eq(word_at(second + PAGE - 4), 99);
}
END_TEST

START_TEST(kernel_store_through_read_only_mapping_is_fatal)
{
    start(0);
    struct mapped first = map_new(PAGE);
    CUdeviceptr second = reserve(PAGE), out = device_words(4);
    OK(map_at(second, PAGE, first.handle, CU_MEM_ACCESS_FLAGS_PROT_READ));
    OK(cuMemsetD32(first.address, 5, PAGE / 4));
    OK(copy(NULL, second, out, 4)); /* reading is fine */
    OK(cuCtxSynchronize());
    OK(fill(NULL, second, 1, 4));
    ANSWERS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}
END_TEST

START_TEST(copies_are_checked_at_the_call)
{
    uint32_t value = 1;
    start(0);
    struct mapped first = map_new(PAGE);
    CUdeviceptr nothing = reserve(PAGE);
    void *host = pinned_words(PAGE / 4);
    OK(set_access(first.address, PAGE, CU_MEM_ACCESS_FLAGS_PROT_READ));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(first.address, &value, 4));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoDAsync(first.address, host, PAGE, NULL));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8Async(first.address, 0, 100, NULL));
    OK(cuMemcpyDtoH(&value, first.address, 4)); /* reading is fine */
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(&value, nothing, 4));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoDAsync(nothing, host, PAGE, NULL));
    OK(cuCtxSynchronize()); /* nothing is lost */
}
END_TEST

START_TEST(mapped_without_access_is_fatal)
{
    start(0);
    CUdeviceptr address = reserve(PAGE);
    OK(cuMemMap(address, PAGE, 0, handle_of(PAGE), 0));
    OK(fill(NULL, address, 1, 4));
    ANSWERS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}
END_TEST

START_TEST(an_access_may_span_mappings)
{
    start(0);
    CUdeviceptr address = reserve(2 * PAGE);
    OK(map_at(address, PAGE, handle_of(PAGE), CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(map_at(address + PAGE, PAGE, handle_of(PAGE), CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(fill(NULL, address + PAGE - 8, 3, 4));
    OK(cuCtxSynchronize());
    ck_assert_uint_eq(word_at(address + PAGE + 4), 3);
    OK(cuMemUnmap(address + PAGE, PAGE));
    OK(fill(NULL, address + PAGE - 8, 3, 4));
    ANSWERS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}
END_TEST

START_TEST(a_mapping_keeps_memory_alive)
{
    start(0);
    size_t before = free_bytes();
    struct mapped first = map_new(4 * PAGE);
    ck_assert_uint_eq(before - free_bytes(), 4 * PAGE);
    OK(cuMemRelease(first.handle));
    OK(fill(NULL, first.address, 3, 4));
    OK(cuCtxSynchronize());
    ck_assert_uint_eq(before - free_bytes(), 4 * PAGE);
    OK(cuMemUnmap(first.address, 4 * PAGE));
    ck_assert_uint_eq(free_bytes(), before);
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuMemRelease(first.handle));
}
END_TEST

START_TEST(retained_handle)
{
    CUmemGenericAllocationHandle again;
    CUmemAllocationProp prop;
    start(0);
    struct mapped first = map_new(PAGE);
    OK(cuMemRetainAllocationHandle(&again, (void *)(first.address + 100)));
    OK(cuMemGetAllocationPropertiesFromHandle(&prop, again));
    ck_assert_int_eq(prop.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
    OK(cuMemUnmap(first.address, PAGE));
    OK(cuMemRelease(first.handle));
    OK(map_at(first.address, PAGE, again, CU_MEM_ACCESS_FLAGS_PROT_READ)); /* still there */
    OK(cuMemUnmap(first.address, PAGE));
    OK(cuMemRelease(again));
}
END_TEST

START_TEST(contents_survive_a_move)
{
    start(0);
    struct mapped first = map_new(PAGE);
    OK(fill(NULL, first.address, 1234, PAGE / 4));
    OK(cuCtxSynchronize());
    OK(cuMemUnmap(first.address, PAGE));
    CUdeviceptr second = reserve(PAGE);
    OK(map_at(second, PAGE, first.handle, CU_MEM_ACCESS_FLAGS_PROT_READ));
    ck_assert_uint_eq(word_at(second + PAGE - 4), 1234);
}
END_TEST

START_TEST(host_located_handles)
{
    CUmemGenericAllocationHandle handle;
    int supported = 0;
    start(0);
    OK(cuDeviceGetAttribute(&supported, (CUdevice_attribute)141, 0));
    ck_assert_int_eq(supported, 1);
    size_t before = free_bytes();
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0}};
    OK(cuMemCreate(&handle, PAGE, &prop, 0));
    ck_assert_uint_eq(free_bytes(), before); /* no device memory */
    CUdeviceptr address = reserve(PAGE);
    OK(cuMemMap(address, PAGE, 0, handle, 0));
    const CUmemAccessDesc access[2] = {
        {{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
        {{.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
    };
    OK(cuMemSetAccess(address, PAGE, access, 2));
    ((uint32_t *)address)[7] = 70;
    OK(increment(NULL, address, 7, 16));
    OK(cuCtxSynchronize());
    ck_assert_uint_eq(((uint32_t *)address)[7], 77);
}
END_TEST

START_TEST(same_address_moves_between_device_and_host)
{
    CUmemGenericAllocationHandle handle;
    const CUmemAllocationProp host = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0}};
    start(0);
    struct mapped first = map_new(PAGE);
    CUdeviceptr out = device_words(4);
    OK(cuMemUnmap(first.address, PAGE));
    OK(cuMemCreate(&handle, PAGE, &host, 0));
    OK(map_at(first.address, PAGE, handle, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(cuMemsetD32(first.address, 31, 4));
    OK(copy(NULL, first.address, out, 4));
    ck_assert_uint_eq(word_at(out), 31);
}
END_TEST

START_TEST(access_flags_are_told)
{
    unsigned long long flags = 0;
    const CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    start(0);
    struct mapped first = map_new(2 * PAGE);
    OK(cuMemGetAccess(&flags, &location, first.address));
    ck_assert_uint_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    ANSWERS(CUDA_ERROR_INVALID_VALUE,
            set_access(first.address, PAGE, CU_MEM_ACCESS_FLAGS_PROT_READ)); /* half a mapping */
    OK(set_access(first.address, 2 * PAGE, CU_MEM_ACCESS_FLAGS_PROT_READ));
    OK(cuMemGetAccess(&flags, &location, first.address));
    ck_assert_uint_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READ);
}
END_TEST

START_TEST(address_space_has_a_limit_and_hints)
{
    CUdeviceptr first, second;
    knob("SIM_VA_LIMIT", "1T"); /* the real one is 2^46; sanitizers leave less room */
    start(0);
    ANSWERS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAddressReserve(&first, (size_t)1 << 47, 0, 0, 0));
    OK(cuMemAddressReserve(&first, (size_t)1 << 32, 0, 0, 0));
    OK(cuMemAddressFree(first, (size_t)1 << 32));
    OK(cuMemAddressReserve(&second, PAGE, 0, first, 0));
    ck_assert_uint_eq(second, first); /* a free hint is honoured */
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(second, 2 * PAGE));
    OK(cuMemAddressReserve(&first, PAGE, 64 * PAGE, 0, 0));
    ck_assert_uint_eq(first % (64 * PAGE), 0);
}
END_TEST

START_TEST(questions_see_one_mapping)
{
    CUdeviceptr base;
    size_t bytes;
    unsigned type;
    CUipcMemHandle ipc;
    start(0);
    CUdeviceptr address = reserve(2 * PAGE);
    OK(map_at(address, PAGE, handle_of(PAGE), CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(map_at(address + PAGE, PAGE, handle_of(PAGE), CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(cuMemGetAddressRange(&base, &bytes, address + PAGE + 5));
    ck_assert_uint_eq(base, address + PAGE);
    ck_assert_uint_eq(bytes, PAGE);
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    ck_assert_uint_eq(type, CU_MEMORYTYPE_DEVICE);
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&ipc, address));
}
END_TEST

START_TEST(handles_travel_by_descriptor)
{
    CUmemGenericAllocationHandle handle, imported;
    CUmemAllocationProp prop = device_prop();
    int fd = -1;
    start(0);
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    OK(cuMemCreate(&handle, PAGE, &prop, 0));
    OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    CUdeviceptr first = reserve(PAGE), second = reserve(PAGE);
    OK(map_at(first, PAGE, handle, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(map_at(second, PAGE, imported, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(fill(NULL, first, 8, 4));
    ck_assert_uint_eq(word_at(second), 8);
    ANSWERS(CUDA_ERROR_INVALID_VALUE,
            cuMemExportToShareableHandle(&fd, handle_of(PAGE), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    close(fd);
}
END_TEST

START_TEST(switched_off_by_attribute)
{
    int supported = 1;
    CUdeviceptr address;
    CUmemGenericAllocationHandle handle;
    const CUmemAllocationProp prop = device_prop();
    knob("SIM_ATTR_OFF", "102");
    start(0);
    OK(cuDeviceGetAttribute(&supported, (CUdevice_attribute)102, 0));
    ck_assert_int_eq(supported, 0);
    ANSWERS(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&handle, PAGE, &prop, 0));
    ANSWERS(CUDA_ERROR_NOT_SUPPORTED, cuMemAddressReserve(&address, PAGE, 0, 0, 0));
}
END_TEST

SUITE(sim_vmm, granularity_is_two_mebibytes, handles_are_mapped_whole, mappings_are_unmapped_whole,
      aliases_are_the_same_bytes, kernel_store_through_read_only_mapping_is_fatal, copies_are_checked_at_the_call,
      mapped_without_access_is_fatal, an_access_may_span_mappings, a_mapping_keeps_memory_alive, retained_handle,
      contents_survive_a_move, host_located_handles, same_address_moves_between_device_and_host, access_flags_are_told,
      address_space_has_a_limit_and_hints, questions_see_one_mapping, handles_travel_by_descriptor,
      switched_off_by_attribute)
