/* Plain memory: accounting, alignment, host memory, pitched, managed, stream-ordered, copies of every form. */
#include "harness.h"

#include <string.h>
#include <sys/mman.h>

static size_t free_bytes(void)
{
    size_t free, total;
    OK(cuMemGetInfo(&free, &total));
    return free;
}

START_TEST(accounting_is_by_pages)
{
    CUdeviceptr small[3], large;
    knob("SIM_MEM", "64M");
    start(0);
    size_t before = free_bytes();
    ck_assert_uint_eq(before, (size_t)64 << 20);
    for (int i = 0; i < 3; i++)
        OK(cuMemAlloc(&small[i], 1000));
    ck_assert_uint_eq(before - free_bytes(), PAGE); /* small ones share a block */
    ck_assert_uint_eq(small[1] % 512, 0);
    OK(cuMemAlloc(&large, PAGE + 1));
    ck_assert_uint_eq(before - free_bytes(), 3 * PAGE);
    OK(cuMemFree(large));
    for (int i = 0; i < 3; i++)
        OK(cuMemFree(small[i]));
    ck_assert_uint_eq(free_bytes(), before);
}
END_TEST

START_TEST(out_of_memory_is_an_ordinary_error)
{
    CUdeviceptr all, more = 1;
    knob("SIM_MEM", "64M");
    start(0);
    OK(cuMemAlloc(&all, (size_t)62 << 20));
    ANSWERS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&more, (size_t)4 << 20));
    ck_assert_uint_eq(more, 1); /* written on success only */
    OK(cuMemFree(all));
    OK(cuMemAlloc(&more, (size_t)64 << 20));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(&more, 0));
}
END_TEST

START_TEST(free_wants_the_start)
{
    CUdeviceptr address;
    start(0);
    OK(cuMemAlloc(&address, 4096));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuMemFree(address + 512));
    OK(cuMemFree(address));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuMemFree(address));
    OK(cuMemFree(0));
}
END_TEST

START_TEST(fresh_memory_is_not_zero)
{
    start(0);
    ck_assert_uint_ne(word_at(device_words(16)), 0);
}
END_TEST

START_TEST(address_range_and_pointer_attributes)
{
    CUdeviceptr address, base;
    size_t bytes;
    unsigned type = 0;
    int ordinal = -1;
    start(0);
    OK(cuMemAlloc(&address, 3 * PAGE));
    OK(cuMemGetAddressRange(&base, &bytes, address + PAGE + 17));
    ck_assert_uint_eq(base, address);
    ck_assert_uint_eq(bytes, 3 * PAGE);
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 100));
    ck_assert_uint_eq(type, CU_MEMORYTYPE_DEVICE);
    OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
    ck_assert_int_eq(ordinal, 0);
    int here;
    ANSWERS(CUDA_ERROR_INVALID_VALUE,
            cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)&here));
    void *pinned;
    OK(cuMemHostAlloc(&pinned, 4096, 0));
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)pinned));
    ck_assert_uint_eq(type, CU_MEMORYTYPE_HOST);
}
END_TEST

START_TEST(the_32_bit_abi)
{
    /* What plain dlsym("cuMemAlloc") gives. */
    extern CUresult old_alloc(unsigned *address, unsigned bytes) __asm__("cuMemAlloc");
    extern CUresult old_free(unsigned address) __asm__("cuMemFree");
    struct {
        unsigned address, guard;
    } out = {0, 0xabcdef01};
    start(0);
    OK(old_alloc(&out.address, 4096));
    ck_assert_uint_ne(out.address, 0);
    ck_assert_uint_eq(out.guard, 0xabcdef01); /* 32 bits were written, not 64 */
    OK(old_free(out.address));
}
END_TEST

START_TEST(pinning_has_a_limit)
{
    void *first, *second;
    knob("SIM_PIN_LIMIT", "8M");
    start(0);
    OK(cuMemHostAlloc(&first, (size_t)6 << 20, 0));
    ANSWERS(CUDA_ERROR_OUT_OF_MEMORY, cuMemHostAlloc(&second, (size_t)4 << 20, 0));
    OK(cuMemFreeHost(first));
    OK(cuMemHostAlloc(&second, (size_t)8 << 20, 0));
    OK(cuMemFreeHost(second));
}
END_TEST

START_TEST(registered_memory)
{
    CUdeviceptr device;
    uint32_t value = 6;
    uint64_t words = 1024;
    start(0);
    uint32_t *memory = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    OK(cuMemHostRegister(memory, 1 << 20, CU_MEMHOSTREGISTER_DEVICEMAP));
    ANSWERS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister(memory, 1 << 20, 0));
    OK(cuMemHostGetDevicePointer(&device, memory, 0));
    OK(LAUNCH(NULL, "probe_fill", &device, &value, &words));
    OK(cuCtxSynchronize());
    ck_assert_uint_eq(memory[1023], 6);
    OK(cuMemHostUnregister(memory));
    ANSWERS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(memory));
    munmap(memory, 1 << 20);
}
END_TEST

START_TEST(pitched_memory_and_2d_copies)
{
    CUdeviceptr address;
    size_t pitch;
    uint8_t in[5][300], out[5][300];
    start(0);
    OK(cuMemAllocPitch(&address, &pitch, 300, 5, 4));
    ck_assert_uint_ge(pitch, 300);
    ck_assert_uint_eq(pitch % 256, 0);
    for (int y = 0; y < 5; y++)
        memset(in[y], y + 1, sizeof in[y]);
    const CUDA_MEMCPY2D up = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                              .srcHost = in,
                              .srcPitch = 300,
                              .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                              .dstDevice = address,
                              .dstPitch = pitch,
                              .WidthInBytes = 300,
                              .Height = 5};
    const CUDA_MEMCPY2D down = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = address,
                                .srcPitch = pitch,
                                .dstMemoryType = CU_MEMORYTYPE_HOST,
                                .dstHost = out,
                                .dstPitch = 300,
                                .WidthInBytes = 300,
                                .Height = 5};
    OK(cuMemcpy2D(&up));
    OK(cuMemcpy2DUnaligned(&down));
    ck_assert_mem_eq(in, out, sizeof in);
    OK(cuMemsetD2D8(address, pitch, 9, 300, 2));
    OK(cuMemcpy2D(&down));
    ck_assert_uint_eq(out[1][299], 9);
    ck_assert_uint_eq(out[2][0], 3);
}
END_TEST

START_TEST(memsets_of_every_width)
{
    start(0);
    CUdeviceptr address = device_words(64);
    OK(cuMemsetD32(address, 0x11223344, 64));
    OK(cuMemsetD8(address + 4, 0x55, 4));
    OK(cuMemsetD16(address + 8, 0x6677, 2));
    ck_assert_uint_eq(word_at(address), 0x11223344);
    ck_assert_uint_eq(word_at(address + 4), 0x55555555);
    ck_assert_uint_eq(word_at(address + 8), 0x66776677);
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(address + 1, 0, 1)); /* not aligned */
}
END_TEST

START_TEST(copies_in_every_direction)
{
    uint32_t *host = pinned_words((start(0), 256)), value[256];
    CUdeviceptr a = device_words(256), b = device_words(256);
    CUstream s = new_stream();
    for (int i = 0; i < 256; i++)
        host[i] = (uint32_t)i * 3;
    OK(cuMemcpyHtoDAsync(a, host, 1024, s));
    OK(cuMemcpyDtoDAsync(b, a, 1024, s));
    OK(cuMemcpyAsync(a, b + 512, 512, s));
    OK(cuMemcpyDtoHAsync(host, a, 1024, s));
    OK(cuStreamSynchronize(s));
    ck_assert_uint_eq(host[0], 128 * 3);
    ck_assert_uint_eq(host[255], 255 * 3);
    OK(cuMemcpy((CUdeviceptr)(uintptr_t)value, b, 1024)); /* unified: direction from the addresses */
    ck_assert_uint_eq(value[7], 21);
}
END_TEST

START_TEST(copy_over_the_end_is_refused)
{
    static uint32_t host[1024];
    start(0);
    CUdeviceptr page;
    OK(cuMemAlloc(&page, PAGE));
    CUresult result = cuMemcpyHtoD(page + PAGE - 8, host, 16);
    ck_assert_msg(result != CUDA_SUCCESS, "a copy over the end of an allocation went through");
}
END_TEST

START_TEST(peer_copies)
{
    CUcontext first, second;
    CUdeviceptr a, b;
    knob("SIM_DEVICES", "2");
    first = start(0);
    a = device_words(256);
    OK(cuMemsetD32(a, 17, 256));
    OK(cuCtxSynchronize());
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    OK(cuCtxSetCurrent(second));
    b = device_words(256);
    OK(cuMemcpyPeer(b, second, a, first, 1024));
    ck_assert_uint_eq(word_at(b + 1020), 17);
    int can = 0;
    OK(cuDeviceCanAccessPeer(&can, 1, 0));
    ck_assert_int_eq(can, 1);
    OK(cuCtxEnablePeerAccess(first, 0));
    ANSWERS(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(first, 0));
}
END_TEST

START_TEST(stream_ordered_allocation)
{
    CUdeviceptr address;
    start(0);
    CUstream s = new_stream();
    OK(cuMemAllocAsync(&address, 4096, s));
    OK(fill(s, address, 8, 1024));
    OK(cuStreamSynchronize(s));
    ck_assert_uint_eq(word_at(address + 4092), 8);
    OK(cuMemFreeAsync(address, s));
    OK(cuStreamSynchronize(s));
}
END_TEST

START_TEST(managed_memory)
{
    CUdeviceptr address;
    unsigned managed = 0;
    start(0);
    OK(cuMemAllocManaged(&address, 4096, CU_MEM_ATTACH_GLOBAL));
    OK(fill(NULL, address, 5, 1024));
    OK(cuCtxSynchronize());
    ck_assert_uint_eq(((uint32_t *)address)[1023], 5);
    OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address));
    ck_assert_uint_eq(managed, 1);
    OK(cuMemFree(address));
}
END_TEST

START_TEST(devices_have_their_own_memory)
{
    CUcontext second;
    CUdeviceptr address;
    int count;
    knob("SIM_DEVICES", "3");
    knob("SIM_MEM", "64M");
    start(0);
    OK(cuDeviceGetCount(&count));
    ck_assert_int_eq(count, 3);
    OK(cuMemAlloc(&address, (size_t)48 << 20));
    OK(cuDevicePrimaryCtxRetain(&second, 2));
    OK(cuCtxSetCurrent(second));
    ck_assert_uint_eq(free_bytes(), (size_t)64 << 20);
    OK(cuMemAlloc(&address, (size_t)48 << 20));
}
END_TEST

START_TEST(no_context_no_memory)
{
    CUdeviceptr address;
    ANSWERS(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc(&address, 4096));
    OK(cuInit(0));
    ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc(&address, 4096));
}
END_TEST

SUITE(sim_memory, accounting_is_by_pages, out_of_memory_is_an_ordinary_error, free_wants_the_start,
      fresh_memory_is_not_zero, address_range_and_pointer_attributes, the_32_bit_abi, pinning_has_a_limit,
      registered_memory, pitched_memory_and_2d_copies, memsets_of_every_width, copies_in_every_direction,
      copy_over_the_end_is_refused, peer_copies, stream_ordered_allocation, managed_memory,
      devices_have_their_own_memory, no_context_no_memory)
