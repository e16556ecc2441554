#include "ipc_peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rig.h"

/* What a peer streams of its own. */
enum { COUNT = 8 };
static const size_t weight_bytes = 4 * MIB;

static CUipcMemHandle from_text(const char *text)
{
    CUipcMemHandle handle;
    for (size_t i = 0; i < sizeof handle; i++) {
        unsigned byte = 0;
        HOLDS(sscanf(text + 2 * i, "%2x", &byte) == 1);
        handle.reserved[i] = (char)byte;
    }
    return handle;
}

static CUdeviceptr open_handle(const char *text)
{
    CUdeviceptr address;
    OK(cuIpcOpenMemHandle(&address, from_text(text), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    return address;
}

static uint32_t digest_of(struct rig *rig, CUdeviceptr address, size_t bytes)
{
    uint32_t *words = malloc(bytes), sum = 0;
    CUdeviceptr out = rig->out;
    uint64_t count = bytes / 4;
    void *params[] = {&address, &out, &count};
    HOLDS(words != NULL);
    OK(cuMemcpyDtoH(words, address, bytes));
    rig_launch(rig, "probe_digest", rig->stream, params);
    OK(cuStreamSynchronize(rig->stream));
    OK(cuMemcpyDtoH(&sum, out, 4));
    HOLDS(sum == rig_digest(words, count)); /* kernels and copies see the same */
    free(words);
    return sum;
}

/* Opens, reads, writes one word per page, closes. HANDLE BYTES DIGEST */
static void peer_reads(struct rig *rig, char **arguments)
{
    const size_t bytes = strtoull(arguments[1], NULL, 10);
    const CUdeviceptr address = open_handle(arguments[0]);
    CUdeviceptr base;
    size_t size;
    unsigned kind;
    HOLDS(digest_of(rig, address, bytes) == (uint32_t)strtoul(arguments[2], NULL, 16));
    OK(cuMemGetAddressRange(&base, &size, address + bytes / 2));
    HOLDS(base == address && size == bytes);
    OK(cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    HOLDS(kind == CU_MEMORYTYPE_DEVICE);
    for (size_t at = 0; at < bytes; at += 2 * MIB) {
        OK(cuMemsetD32(address + at, 0xC0FFEE, 1));
    }
    OK(cuCtxSynchronize());
    OK(cuIpcCloseMemHandle(address));
    HOLDS(cuIpcCloseMemHandle(address) == CUDA_ERROR_INVALID_VALUE);
}

/* The same handle twice is one mapping with a count. HANDLE */
static void peer_opens_twice(struct rig *rig, char **arguments)
{
    size_t free_bytes[3], total;
    uint32_t word;
    (void)rig;
    OK(cuMemGetInfo(&free_bytes[0], &total));
    const CUdeviceptr address = open_handle(arguments[0]);
    OK(cuMemGetInfo(&free_bytes[1], &total));
    HOLDS(open_handle(arguments[0]) == address);
    OK(cuIpcCloseMemHandle(address));
    OK(cuMemcpyDtoH(&word, address, 4));
    OK(cuIpcCloseMemHandle(address));
    HOLDS(cuMemcpyDtoH(&word, address, 4) != CUDA_SUCCESS);
    HOLDS(cuIpcCloseMemHandle(address) == CUDA_ERROR_INVALID_VALUE);
    OK(cuMemGetInfo(&free_bytes[2], &total));
    HOLDS(free_bytes[0] == free_bytes[1] && free_bytes[1] == free_bytes[2]); /* it is the owner's */
}

/* HANDLE: refused with an ordinary error, at once. */
static void peer_is_refused(struct rig *rig, char **arguments)
{
    CUdeviceptr address = 0x1234;
    (void)rig;
    const CUresult result = cuIpcOpenMemHandle(&address, from_text(arguments[0]), 1);
    HOLDS(result != CUDA_SUCCESS && address == 0x1234);
}

/* Wrong flags and damaged handles. HANDLE */
static void peer_damages(struct rig *rig, char **arguments)
{
    CUdeviceptr address = 0x1234;
    CUipcMemHandle handle = from_text(arguments[0]);
    (void)rig;
    HOLDS(cuIpcOpenMemHandle(&address, handle, 2) == CUDA_ERROR_INVALID_VALUE);
    for (size_t byte = 0; byte < sizeof handle; byte += 3) {
        handle = from_text(arguments[0]);
        handle.reserved[byte] = (char)(handle.reserved[byte] ^ 0x40);
        const CUresult result = cuIpcOpenMemHandle(&address, handle, 1);
        HOLDS(result != CUDA_SUCCESS || byte >= 32); /* sizes: what is mapped decides, see below */
        if (result == CUDA_SUCCESS) {
            OK(cuIpcCloseMemHandle(address));
        }
    }
}

/* Opens, says so, waits for the owner to have freed it, reads. HANDLE BYTES DIGEST */
static void peer_keeps(struct rig *rig, char **arguments)
{
    const CUdeviceptr address = open_handle(arguments[0]);
    char byte = 'x';
    HOLDS(write(STDOUT_FILENO, &byte, 1) == 1 && read(STDIN_FILENO, &byte, 1) == 1);
    HOLDS(digest_of(rig, address, strtoull(arguments[1], NULL, 10)) == (uint32_t)strtoul(arguments[2], NULL, 16));
    OK(cuIpcCloseMemHandle(address));
}

/* The first time a driver call fails (SIM_FAIL): an error, nothing is left behind, and the second time it works.
 * HANDLE BYTES DIGEST */
static void peer_tries_again(struct rig *rig, char **arguments)
{
    CUdeviceptr address = 0x1234;
    HOLDS(cuIpcOpenMemHandle(&address, from_text(arguments[0]), 1) != CUDA_SUCCESS && address == 0x1234);
    address = open_handle(arguments[0]);
    HOLDS(digest_of(rig, address, strtoull(arguments[1], NULL, 10)) == (uint32_t)strtoul(arguments[2], NULL, 16));
    OK(cuIpcCloseMemHandle(address));
}

/* Loads more than its budget and streams, beside memory of another process. HANDLE BYTES DIGEST */
static void peer_streams(struct rig *rig, char **arguments)
{
    const CUdeviceptr address = open_handle(arguments[0]);
    for (unsigned i = 0; i < COUNT; i++) {
        (void)rig_add(rig, weight_bytes);
    }
    for (int pass = 0; pass < 10; pass++) {
        HOLDS(digest_of(rig, address, strtoull(arguments[1], NULL, 10)) == (uint32_t)strtoul(arguments[2], NULL, 16));
        rig_pass(rig, NULL, 0);
    }
    OK(cuIpcCloseMemHandle(address));
}

/* Its context ends while the handle is open. HANDLE */
static void peer_resets(struct rig *rig, char **arguments)
{
    (void)open_handle(arguments[0]);
    OK(cuMemFree(rig->out));
    OK(cuDevicePrimaryCtxReset(rig->device));
    rig_forget(rig);
    rig_open(rig, 0);
    const CUdeviceptr address = open_handle(arguments[0]);
    uint32_t word;
    OK(cuMemcpyDtoH(&word, address, 4));
}

static const struct {
    const char *name;
    void (*run)(struct rig *rig, char **arguments);
} roles[] = {
    {"reads", peer_reads}, {"twice", peer_opens_twice}, {"refused", peer_is_refused}, {"damages", peer_damages},
    {"keeps", peer_keeps}, {"again", peer_tries_again}, {"streams", peer_streams},    {"resets", peer_resets},
};

void ipc_peer(char **arguments)
{
    struct rig rig;
    rig_open(&rig, 0);
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        if (strcmp(roles[i].name, arguments[0]) == 0) {
            roles[i].run(&rig, arguments + 1);
            rig_close(&rig);
            return;
        }
    }
    rig_fail(RIG_EXIT_SELF, "no role %s", arguments[0]);
}
