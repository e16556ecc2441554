/*
 * Every form of copy that reads a streamed weight gives the bytes that it holds: `t_copies FORM`. And copies that
 * another context makes are waited for: `t_copies other_context`.
 */
#include "rig.h"

#include <stdlib.h>
#include <string.h>

enum { COUNT = 8 };
static const size_t weight_bytes = 4 * MIB;

/* Where a form puts the bytes: pinned host memory, or device memory that is then read. */
struct place {
    struct rig *rig;
    void *host;
    CUdeviceptr device;
};
typedef void form(const struct place *to, CUdeviceptr from, size_t bytes);

static void fetch(const struct place *to, size_t bytes)
{
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH(to->host, to->device, bytes));
}

static void read_dtoh(const struct place *to, CUdeviceptr from, size_t bytes)
{
    OK(cuMemcpyDtoH(to->host, from, bytes));
}

static void read_dtoh_async(const struct place *to, CUdeviceptr from, size_t bytes)
{
    OK(cuMemcpyDtoHAsync(to->host, from, bytes, to->rig->stream));
}

static void read_unified(const struct place *to, CUdeviceptr from, size_t bytes)
{
    OK(cuMemcpy((CUdeviceptr)(uintptr_t)to->host, from, bytes));
}

static void read_unified_async(const struct place *to, CUdeviceptr from, size_t bytes)
{
    OK(cuMemcpyAsync((CUdeviceptr)(uintptr_t)to->host, from, bytes, to->rig->stream));
}

static void read_dtod(const struct place *to, CUdeviceptr from, size_t bytes)
{
    OK(cuMemcpyDtoD(to->device, from, bytes));
    fetch(to, bytes);
}

static void read_dtod_async(const struct place *to, CUdeviceptr from, size_t bytes)
{
    OK(cuMemcpyDtoDAsync(to->device, from, bytes, to->rig->stream));
    fetch(to, bytes);
}

/* Rows of 4096 bytes. */
static CUDA_MEMCPY2D rows_of(const struct place *to, CUdeviceptr from, size_t bytes)
{
    return (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = from,
                           .srcPitch = 4096,
                           .dstMemoryType = CU_MEMORYTYPE_HOST,
                           .dstHost = to->host,
                           .dstPitch = 4096,
                           .WidthInBytes = 4096,
                           .Height = bytes / 4096};
}

static void read_2d(const struct place *to, CUdeviceptr from, size_t bytes)
{
    const CUDA_MEMCPY2D copy = rows_of(to, from, bytes);
    OK(cuMemcpy2D(&copy));
}

static void read_2d_unaligned(const struct place *to, CUdeviceptr from, size_t bytes)
{
    const CUDA_MEMCPY2D copy = rows_of(to, from, bytes);
    OK(cuMemcpy2DUnaligned(&copy));
}

static void read_2d_async(const struct place *to, CUdeviceptr from, size_t bytes)
{
    const CUDA_MEMCPY2D copy = rows_of(to, from, bytes);
    OK(cuMemcpy2DAsync(&copy, to->rig->stream));
}

/* Slices of 16 rows of 4096 bytes. */
static CUDA_MEMCPY3D slices_of(const struct place *to, CUdeviceptr from, size_t bytes)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = from,
                           .srcPitch = 4096,
                           .srcHeight = 16,
                           .dstMemoryType = CU_MEMORYTYPE_HOST,
                           .dstHost = to->host,
                           .dstPitch = 4096,
                           .dstHeight = 16,
                           .WidthInBytes = 4096,
                           .Height = 16,
                           .Depth = bytes / 65536};
}

static void read_3d(const struct place *to, CUdeviceptr from, size_t bytes)
{
    const CUDA_MEMCPY3D copy = slices_of(to, from, bytes);
    OK(cuMemcpy3D(&copy));
}

static void read_3d_async(const struct place *to, CUdeviceptr from, size_t bytes)
{
    const CUDA_MEMCPY3D copy = slices_of(to, from, bytes);
    OK(cuMemcpy3DAsync(&copy, to->rig->stream));
}

static void read_3d_peer(const struct place *to, CUdeviceptr from, size_t bytes)
{
    const CUDA_MEMCPY3D_PEER copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                     .srcDevice = from,
                                     .srcContext = to->rig->context,
                                     .srcPitch = 4096,
                                     .srcHeight = 16,
                                     .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                     .dstDevice = to->device,
                                     .dstContext = to->rig->context,
                                     .dstPitch = 4096,
                                     .dstHeight = 16,
                                     .WidthInBytes = 4096,
                                     .Height = 16,
                                     .Depth = bytes / 65536};
    OK(cuMemcpy3DPeer(&copy));
    fetch(to, bytes);
}

static void read_peer(const struct place *to, CUdeviceptr from, size_t bytes)
{
    OK(cuMemcpyPeer(to->device, to->rig->context, from, to->rig->context, bytes));
    fetch(to, bytes);
}

static void read_peer_async(const struct place *to, CUdeviceptr from, size_t bytes)
{
    OK(cuMemcpyPeerAsync(to->device, to->rig->context, from, to->rig->context, bytes, to->rig->stream));
    fetch(to, bytes);
}

#if CUDA_VERSION >= 12080
static void read_batch(const struct place *to, CUdeviceptr from, size_t bytes)
{
    CUdeviceptr dst[2] = {(CUdeviceptr)(uintptr_t)to->host, (CUdeviceptr)(uintptr_t)to->host + bytes / 2};
    CUdeviceptr src[2] = {from, from + bytes / 2};
    size_t size[2] = {bytes / 2, bytes / 2}, first = 0;
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
#if CUDA_VERSION >= 13000
    OK(cuMemcpyBatchAsync(dst, src, size, 2, &attributes, &first, 1, to->rig->stream));
#else
    size_t failed = 0;
    OK(cuMemcpyBatchAsync(dst, src, size, 2, &attributes, &first, 1, &failed, to->rig->stream));
#endif
}
#endif

static const struct {
    const char *name;
    form *read;
} forms[] = {
    {"dtoh", read_dtoh},
    {"dtoh_async", read_dtoh_async},
    {"unified", read_unified},
    {"unified_async", read_unified_async},
    {"dtod", read_dtod},
    {"dtod_async", read_dtod_async},
    {"2d", read_2d},
    {"2d_unaligned", read_2d_unaligned},
    {"2d_async", read_2d_async},
    {"3d", read_3d},
    {"3d_async", read_3d_async},
    {"3d_peer", read_3d_peer},
    {"peer", read_peer},
    {"peer_async", read_peer_async},
#if CUDA_VERSION >= 12080
    {"batch", read_batch},
#endif
};

/* Reads pieces and the whole of weights that are streamed, right after kernels read them, and goes on. */
static void check_form(form *read)
{
    struct rig rig;
    struct place to = {.rig = &rig};
    rig_open(&rig, 0);
    OK(cuMemAlloc(&to.device, weight_bytes));
    for (unsigned i = 0; i < COUNT; i++) {
        (void)rig_add(&rig, weight_bytes);
    }
    OK(cuMemAllocHost(&to.host, weight_bytes));
    rig_until_streamed(&rig);
    for (unsigned round = 0; round < COUNT; round++) {
        const struct rig_weight *weight = &rig.weight[(round * 5) % COUNT];
        const size_t offset = round % 2 ? weight_bytes / 4 : 0;
        const size_t bytes = round % 2 ? weight_bytes / 2 : weight_bytes;
        memset(to.host, 0, weight_bytes);
        rig_read(&rig, (round * 5) % COUNT, 0, rig.stream);
        OK(cuStreamSynchronize(rig.stream));
        read(&to, weight->address + offset, bytes);
        OK(cuStreamSynchronize(rig.stream));
        if (memcmp(to.host, (const char *)weight->host + offset, bytes) != 0) {
            rig_fail(RIG_EXIT_WRONG, "round %u: read back other bytes than the weight holds", round);
        }
        rig_pass(&rig, NULL, 0);
    }
    OK(cuMemFreeHost(to.host));
    OK(cuMemFree(to.device));
    rig_close(&rig);
}

/* The stream of another device's context copies weights while there is no plan yet: whoever makes one waits for it,
 * though nobody else does. */
static void check_other_context(void)
{
    struct rig rig, other;
    CUdeviceptr copy;
    void *back = malloc(weight_bytes);
    rig_open(&other, 1);
    OK(cuMemAlloc(&copy, weight_bytes));
    rig_open(&rig, 0);
    for (unsigned i = 0; i < COUNT; i++) {
        (void)rig_add(&rig, weight_bytes);
    }
    unsigned last = 0;
    for (unsigned pass = 0; pass < 64 && rig_streamed_mib() == 0; pass++) {
        last = pass % COUNT;
        OK(cuCtxSetCurrent(other.context));
        OK(cuMemcpyPeerAsync(copy, other.context, rig.weight[last].address, rig.context, weight_bytes, other.stream));
        OK(cuCtxSetCurrent(rig.context));
        rig_pass(&rig, NULL, 0);
    }
    HOLDS(rig_streamed_mib() > 0);
    rig_pass(&rig, NULL, 0);
    OK(cuCtxSetCurrent(other.context));
    OK(cuStreamSynchronize(other.stream));
    OK(cuMemcpyDtoH(back, copy, weight_bytes));
    rig_compare_bytes(&rig.weight[last], back, "copied by another context");
    OK(cuMemFree(copy));
    free(back);
    rig_close(&other);
    OK(cuCtxSetCurrent(rig.context));
    rig_close(&rig);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "other_context") == 0) {
        check_other_context();
        return 0;
    }
    for (size_t i = 0; argc == 2 && i < sizeof forms / sizeof forms[0]; i++) {
        if (strcmp(argv[1], forms[i].name) == 0) {
            check_form(forms[i].read);
            return 0;
        }
    }
    return argc == 2 && strcmp(argv[1], "batch") == 0 ? 77 : RIG_EXIT_SELF;
}
