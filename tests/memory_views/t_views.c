/*
 * What an allocation is, as far as the program may see: the same as memory of the driver's own, wherever it stands. An
 * allocation of 3 MiB is excluded (OVERSHOT_EXCLUDE=3M), so the driver itself says what is right.
 */
#include "rig.h"

#include <stdlib.h>
#include <string.h>

enum { COUNT = 8 };
static const size_t weight_bytes = 4 * MIB, plain_bytes = 3 * MIB;

static bool in_plain_memory(CUdeviceptr address)
{
    CUipcMemHandle handle;
    return cuIpcGetMemHandle(&handle, address) == CUDA_SUCCESS && memcmp(&handle, &address, sizeof address) == 0;
}

/* Attributes that say what kind of memory it is: they must be equal. Of the others only whether they are answered. */
static bool tells_kind(int attribute)
{
    return attribute == CU_POINTER_ATTRIBUTE_CONTEXT || attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ||
           attribute == CU_POINTER_ATTRIBUTE_IS_MANAGED || attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ||
           attribute == CU_POINTER_ATTRIBUTE_MAPPED || attribute == CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES ||
           attribute == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE ||
           attribute == CU_POINTER_ATTRIBUTE_ACCESS_FLAGS || attribute == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE;
}

static void same_attributes(CUdeviceptr managed, CUdeviceptr plain)
{
    for (int attribute = 1; attribute <= 20; attribute++) {
        unsigned long long ours = 0, theirs = 0;
        const CUpointer_attribute which = (CUpointer_attribute)attribute;
        if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS) {
            continue;
        }
        const CUresult a = cuPointerGetAttribute(&ours, which, managed);
        const CUresult b = cuPointerGetAttribute(&theirs, which, plain);
        if (a != b || (tells_kind(attribute) && ours != theirs)) {
            rig_fail(RIG_EXIT_SELF, "attribute %d: %d %llx and %d %llx", attribute, (int)a, ours, (int)b, theirs);
        }
        CUpointer_attribute list[] = {which};
        void *value[] = {&ours};
        unsigned long long single = ours;
        ours = ~0ull;
        OK(cuPointerGetAttributes(1, list, value, managed));
        HOLDS(a != CUDA_SUCCESS ? ours == 0 : memcmp(&ours, &single, 4) == 0);
    }
}

/* Resident, in host memory, in the ring. */
static void attributes_as_plain(void)
{
    struct rig rig;
    CUdeviceptr plain;
    rig_open(&rig, 0);
    OK(cuMemAlloc(&plain, plain_bytes));
    for (unsigned i = 0; i < COUNT; i++) {
        (void)rig_add(&rig, weight_bytes);
    }
    for (int round = 0; round < 2; round++) {
        for (unsigned i = 0; i < COUNT; i++) {
            same_attributes(rig.weight[i].address + MIB, plain + MIB);
        }
        rig_until_streamed(&rig);
    }
    OK(cuMemFree(plain));
    rig_close(&rig);
}

/* Extents and identities: whole allocations, whatever chunks stand behind them. */
static void extents(void)
{
    struct rig rig;
    CUdeviceptr base, ends[2] = {0};
    size_t size;
    unsigned long long id[2];
    rig_open_with(&rig, COUNT - 2, weight_bytes);
    const unsigned big = rig_add(&rig, 9 * MIB + 5);
    const CUdeviceptr start = rig.weight[big].address;
    for (int pass = 0; pass < 10; pass++) {
        for (size_t at = 0; at < 9 * MIB; at += MIB + 1) {
            OK(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, start + at));
            OK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, start + at));
            HOLDS(base == start && size == 9 * MIB + 5);
            OK(cuMemGetAddressRange(&ends[0], &size, start + at));
            OK(cuMemGetAddressRange(&ends[1], NULL, start + at));
            OK(cuMemGetAddressRange(NULL, &size, start + at));
            HOLDS(ends[0] == start && ends[1] == start && size == 9 * MIB + 5);
        }
        OK(cuPointerGetAttribute(&id[0], CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, start));
        OK(cuPointerGetAttribute(&id[1], CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, start + 8 * MIB));
        HOLDS(id[0] == id[1]);
        OK(cuPointerGetAttribute(&id[1], CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, rig.weight[0].address));
        HOLDS(id[0] != id[1]);
        rig_pass(&rig, NULL, 0);
    }
    HOLDS(rig_streamed_mib() > 0);
    HOLDS(cuMemGetAddressRange(&base, &size, start + 9 * MIB + 5) == CUDA_ERROR_NOT_FOUND);
    rig_close(&rig);
}

/* Excluded sizes are the driver's, counted, and within the budget: weights give way. */
static void excluded(void)
{
    struct rig rig;
    CUdeviceptr plain[3];
    size_t before, after, total;
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_until_streamed(&rig);
    for (unsigned i = 0; i < 3; i++) {
        OK(cuMemGetInfo(&before, &total));
        OK(cuMemAlloc(&plain[i], plain_bytes));
        OK(cuMemGetInfo(&after, &total));
        HOLDS(in_plain_memory(plain[i]) && (after + plain_bytes <= before || after == 0));
        OK(cuMemsetD8(plain[i], 1, plain_bytes));
        for (int pass = 0; pass < 3; pass++) {
            rig_pass(&rig, NULL, 0);
        }
    }
    for (unsigned i = 0; i < 3; i++) {
        OK(cuMemFree(plain[i]));
    }
    rig_pass(&rig, NULL, 0);
    rig_close(&rig);
}

/* More of them than the budget holds are out of memory. */
static void excluded_out_of_memory(void)
{
    struct rig rig;
    CUdeviceptr plain[16];
    unsigned count = 0;
    rig_open_with(&rig, COUNT, weight_bytes);
    for (CUresult result = CUDA_SUCCESS; count < 16;) {
        result = cuMemAlloc(&plain[count], plain_bytes);
        if (result != CUDA_SUCCESS) {
            HOLDS(result == CUDA_ERROR_OUT_OF_MEMORY);
            break;
        }
        count++;
    }
    HOLDS(count >= 3 && count <= 5);
    rig_pass(&rig, NULL, 0);
    while (count > 0) {
        OK(cuMemFree(plain[--count]));
    }
    rig_close(&rig);
}

/* Handles to the physical memory behind an address are refused, with a line that says what to do. */
static void physical_handles(void)
{
    struct rig rig;
    CUmemGenericAllocationHandle handle;
    int file = -1;
    rig_open_with(&rig, COUNT, weight_bytes);
    HOLDS(cuMemGetHandleForAddressRange(&file, rig.weight[0].address, 2 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                                        0) == CUDA_ERROR_NOT_SUPPORTED);
    HOLDS(file == -1 && rig_logged("OVERSHOT_EXCLUDE"));
    for (unsigned i = 0; i < COUNT; i++) {
        HOLDS(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)rig.weight[i].address) ==
              CUDA_ERROR_INVALID_VALUE);
    }
    rig_until_streamed(&rig);
    rig_close(&rig);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(attributes_as_plain), CASE(extents), CASE(excluded), CASE(excluded_out_of_memory), CASE(physical_handles),
};
RIG_MAIN(cases)
