/* Proves: for every form of copy and fill the engine is told which bytes are read and written, on which stream, and
 * where the payload lies; a copy into host memory that the program waited for is a quiet point. */
#include "interpose.h"
#include "rows.h"

#define DEVICE_A 0x700000001000ull
#define DEVICE_B 0x700000800000ull
#define PINNED   0x080000000000ull /* what the fake driver calls host memory */
#define STREAM   ((CUstream)0x57)
static char host[4096];
#define HOST ((CUdeviceptr)(uintptr_t)host)

static void attach(void)
{
    CHECK(elf_cuStreamQuery(NULL) == CUDA_SUCCESS);
    record_forget();
}

/* Drops the questions about kinds of memory, checks the rest. */
static void expect_copy(const char *name, const char *dst, const char *src, const void *payload, CUstream stream,
                        bool quiet)
{
    char wanted[2048], *out = wanted, *text = record_text();
    for (char *ask; (ask = strstr(text, "driver cuPointerGetAttribute\n")) != NULL;) {
        memmove(ask, strchr(ask, '\n') + 1, strlen(strchr(ask, '\n') + 1) + 1);
    }
    char first[64];
    snprintf(first, sizeof first, "%.*s", (int)strcspn(dst, ":"), dst);
    out += sprintf(out, "copy_begin dst=%s src=%s host=%p stream=%p\ndriver %s\ncopy_end dst=%s result=0\n%s", dst, src,
                   payload, (void *)stream, name, first, quiet ? "quiet_point\n" : "");
    if (strcmp(text, wanted) != 0) {
        fprintf(stderr, "expected\n%sbut the record is\n%s", wanted, text);
        exit(1);
    }
    record_forget();
}

static const char *linear(CUdeviceptr address, size_t bytes)
{
    return line("%#llx:%zux1/%zu", address, bytes, bytes);
}
static const char *rows(CUdeviceptr address, size_t bytes, size_t count, size_t pitch)
{
    return line("%#llx:%zux%zu/%zu", address, bytes, count, pitch);
}
static const char none[] = "0:0x0/0";

#define LEGACY     CU_STREAM_LEGACY
#define PER_THREAD CU_STREAM_PER_THREAD
#define DO(name, args, ...)                     \
    do {                                        \
        CHECK(elf_##name args == CUDA_SUCCESS); \
        expect_copy(#name, __VA_ARGS__);        \
    } while (0)

static void generic(void)
{
    attach();
    const char *a = linear(DEVICE_A, 64), *b = linear(DEVICE_B, 64), *h = linear(HOST, 64), *p = linear(PINNED, 64);
    DO(cuMemcpy, (DEVICE_A, DEVICE_B, 64), a, b, NULL, LEGACY, false);
    DO(cuMemcpy, (DEVICE_A, HOST, 64), a, h, host, LEGACY, false);
    DO(cuMemcpy, (DEVICE_A, PINNED, 64), a, p, (void *)(uintptr_t)PINNED, LEGACY, false);
    DO(cuMemcpy, (HOST, DEVICE_A, 64), h, a, NULL, LEGACY, true);
    DO(cuMemcpy, (PINNED, DEVICE_A, 64), p, a, NULL, LEGACY, true);
    DO(cuMemcpy, (HOST, PINNED, 64), h, p, (void *)(uintptr_t)PINNED, LEGACY, false);
    DO(cuMemcpy_ptds, (DEVICE_A, HOST, 64), a, h, host, PER_THREAD, false);
    DO(cuMemcpyAsync, (DEVICE_A, HOST, 64, STREAM), a, h, host, STREAM, false);
    DO(cuMemcpyAsync, (HOST, DEVICE_A, 64, NULL), h, a, NULL, LEGACY, false);
    DO(cuMemcpyAsync_ptsz, (HOST, DEVICE_A, 64, NULL), h, a, NULL, PER_THREAD, false);
}

static void host_and_device(void)
{
    attach();
    const char *a = linear(DEVICE_A, 96), *b = linear(DEVICE_B, 96), *h = linear(HOST, 96);
    DO(cuMemcpyHtoD_v2, (DEVICE_A, host, 96), a, h, host, LEGACY, false);
    DO(cuMemcpyHtoD_v2_ptds, (DEVICE_A, host, 96), a, h, host, PER_THREAD, false);
    DO(cuMemcpyHtoDAsync_v2, (DEVICE_A, host, 96, STREAM), a, h, host, STREAM, false);
    DO(cuMemcpyHtoDAsync_v2_ptsz, (DEVICE_A, host, 96, NULL), a, h, host, PER_THREAD, false);
    DO(cuMemcpyDtoH_v2, (host, DEVICE_A, 96), h, a, NULL, LEGACY, true);
    DO(cuMemcpyDtoH_v2_ptds, (host, DEVICE_A, 96), h, a, NULL, PER_THREAD, true);
    DO(cuMemcpyDtoHAsync_v2, (host, DEVICE_A, 96, NULL), h, a, NULL, LEGACY, false);
    DO(cuMemcpyDtoHAsync_v2_ptsz, (host, DEVICE_A, 96, STREAM), h, a, NULL, STREAM, false);
    DO(cuMemcpyDtoD_v2, (DEVICE_A, DEVICE_B, 96), a, b, NULL, LEGACY, false);
    DO(cuMemcpyDtoD_v2_ptds, (DEVICE_A, DEVICE_B, 96), a, b, NULL, PER_THREAD, false);
    DO(cuMemcpyDtoDAsync_v2, (DEVICE_A, DEVICE_B, 96, STREAM), a, b, NULL, STREAM, false);
    DO(cuMemcpyDtoDAsync_v2_ptsz, (DEVICE_A, DEVICE_B, 96, NULL), a, b, NULL, PER_THREAD, false);
}

static void arrays(void)
{
    CUarray array = (CUarray)0xaa;
    attach();
    DO(cuMemcpyAtoD_v2, (DEVICE_A, array, 8, 32), linear(DEVICE_A, 32), none, NULL, LEGACY, false);
    DO(cuMemcpyAtoD_v2_ptds, (DEVICE_A, array, 8, 32), linear(DEVICE_A, 32), none, NULL, PER_THREAD, false);
    DO(cuMemcpyDtoA_v2, (array, 8, DEVICE_A, 32), none, linear(DEVICE_A, 32), NULL, LEGACY, false);
    DO(cuMemcpyDtoA_v2_ptds, (array, 8, DEVICE_A, 32), none, linear(DEVICE_A, 32), NULL, PER_THREAD, false);
}

static void peers(void)
{
    CUcontext one = (CUcontext)1, two = (CUcontext)2;
    const char *a = linear(DEVICE_A, 32), *b = linear(DEVICE_B, 32);
    attach();
    DO(cuMemcpyPeer, (DEVICE_A, one, DEVICE_B, two, 32), a, b, NULL, LEGACY, false);
    DO(cuMemcpyPeer_ptds, (DEVICE_A, one, DEVICE_B, two, 32), a, b, NULL, PER_THREAD, false);
    DO(cuMemcpyPeerAsync, (DEVICE_A, one, DEVICE_B, two, 32, STREAM), a, b, NULL, STREAM, false);
    DO(cuMemcpyPeerAsync_ptsz, (DEVICE_A, one, DEVICE_B, two, 32, NULL), a, b, NULL, PER_THREAD, false);
}

static void two_dimensional(void)
{
    CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                       .srcHost = host,
                       .srcPitch = 100,
                       .srcXInBytes = 3,
                       .srcY = 2,
                       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                       .dstDevice = DEVICE_A,
                       .dstPitch = 512,
                       .dstXInBytes = 16,
                       .dstY = 4,
                       .WidthInBytes = 80,
                       .Height = 7};
    const char *d = rows(DEVICE_A + 4 * 512 + 16, 80, 7, 512), *h = rows(HOST + 2 * 100 + 3, 80, 7, 100);
    const void *payload = host + 203;
    attach();
    DO(cuMemcpy2D_v2, (&c), d, h, payload, LEGACY, false);
    DO(cuMemcpy2D_v2_ptds, (&c), d, h, payload, PER_THREAD, false);
    DO(cuMemcpy2DUnaligned_v2, (&c), d, h, payload, LEGACY, false);
    DO(cuMemcpy2DUnaligned_v2_ptds, (&c), d, h, payload, PER_THREAD, false);
    DO(cuMemcpy2DAsync_v2, (&c, STREAM), d, h, payload, STREAM, false);
    DO(cuMemcpy2DAsync_v2_ptsz, (&c, NULL), d, h, payload, PER_THREAD, false);
    /* Back: from device to host, one side known only by address; the other an array. */
    CUDA_MEMCPY2D back = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .srcDevice = DEVICE_A,
                          .srcPitch = 512,
                          .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .dstDevice = HOST,
                          .WidthInBytes = 80,
                          .Height = 1};
    DO(cuMemcpy2D_v2, (&back), rows(HOST, 80, 1, 80), rows(DEVICE_A, 80, 1, 512), NULL, LEGACY, true);
    DO(cuMemcpy2DAsync_v2, (&back, NULL), rows(HOST, 80, 1, 80), rows(DEVICE_A, 80, 1, 512), NULL, LEGACY, false);
    back.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    DO(cuMemcpy2D_v2, (&back), none, rows(DEVICE_A, 80, 1, 512), NULL, LEGACY, false);
    CHECK(elf_cuMemcpy2D_v2(NULL) == CUDA_SUCCESS); /* the fake takes it; what matters is that we do not look into it */
    EXPECT("driver cuMemcpy2D_v2");
}

static void three_dimensional(void)
{
    CUDA_MEMCPY3D c = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                       .srcDevice = DEVICE_B,
                       .srcPitch = 256,
                       .srcHeight = 10,
                       .srcXInBytes = 8,
                       .srcY = 1,
                       .srcZ = 2,
                       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                       .dstDevice = DEVICE_A,
                       .dstPitch = 64,
                       .dstHeight = 5,
                       .WidthInBytes = 64,
                       .Height = 5,
                       .Depth = 3};
    /* The source's slices are further apart than 5 rows: all rows from the first to the last are named. */
    const char *d = rows(DEVICE_A, 64, 15, 64), *s = rows(DEVICE_B + (2 * 10 + 1) * 256 + 8, 64, 25, 256);
    attach();
    DO(cuMemcpy3D_v2, (&c), d, s, NULL, LEGACY, false);
    DO(cuMemcpy3D_v2_ptds, (&c), d, s, NULL, PER_THREAD, false);
    DO(cuMemcpy3DAsync_v2, (&c, STREAM), d, s, NULL, STREAM, false);
    DO(cuMemcpy3DAsync_v2_ptsz, (&c, NULL), d, s, NULL, PER_THREAD, false);
    CUDA_MEMCPY3D_PEER p = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                            .srcDevice = DEVICE_B,
                            .srcPitch = 64,
                            .dstMemoryType = CU_MEMORYTYPE_HOST,
                            .dstHost = host,
                            .dstPitch = 64,
                            .WidthInBytes = 64,
                            .Height = 2,
                            .Depth = 1};
    d = rows(HOST, 64, 2, 64), s = rows(DEVICE_B, 64, 2, 64);
    DO(cuMemcpy3DPeer, (&p), d, s, NULL, LEGACY, true);
    DO(cuMemcpy3DPeer_ptds, (&p), d, s, NULL, PER_THREAD, true);
    DO(cuMemcpy3DPeerAsync, (&p, STREAM), d, s, NULL, STREAM, false);
    DO(cuMemcpy3DPeerAsync_ptsz, (&p, NULL), d, s, NULL, PER_THREAD, false);
}

static void fills(void)
{
    attach();
    DO(cuMemsetD8_v2, (DEVICE_A, 1, 100), linear(DEVICE_A, 100), none, NULL, LEGACY, false);
    DO(cuMemsetD8_v2_ptds, (DEVICE_A, 1, 100), linear(DEVICE_A, 100), none, NULL, PER_THREAD, false);
    DO(cuMemsetD16_v2, (DEVICE_A, 1, 100), linear(DEVICE_A, 200), none, NULL, LEGACY, false);
    DO(cuMemsetD32_v2, (DEVICE_A, 1, 100), linear(DEVICE_A, 400), none, NULL, LEGACY, false);
    DO(cuMemsetD32_v2_ptds, (DEVICE_A, 1, 100), linear(DEVICE_A, 400), none, NULL, PER_THREAD, false);
    DO(cuMemsetD8Async, (DEVICE_A, 1, 100, STREAM), linear(DEVICE_A, 100), none, NULL, STREAM, false);
    DO(cuMemsetD16Async_ptsz, (DEVICE_A, 1, 100, NULL), linear(DEVICE_A, 200), none, NULL, PER_THREAD, false);
    DO(cuMemsetD32Async, (DEVICE_A, 1, 100, NULL), linear(DEVICE_A, 400), none, NULL, LEGACY, false);
    DO(cuMemsetD2D8_v2, (DEVICE_A, 512, 1, 100, 3), rows(DEVICE_A, 100, 3, 512), none, NULL, LEGACY, false);
    DO(cuMemsetD2D16_v2_ptds, (DEVICE_A, 512, 1, 100, 3), rows(DEVICE_A, 200, 3, 512), none, NULL, PER_THREAD, false);
    DO(cuMemsetD2D32Async, (DEVICE_A, 512, 1, 100, 3, STREAM), rows(DEVICE_A, 400, 3, 512), none, NULL, STREAM, false);
    DO(cuMemsetD2D32Async_ptsz, (DEVICE_A, 512, 1, 100, 3, NULL), rows(DEVICE_A, 400, 3, 512), none, NULL, PER_THREAD,
       false);
}

/* A batch: each copy begins before the call and ends after it, last first. */
static void batch(void)
{
    CUdeviceptr dst[2] = {DEVICE_A, HOST}, src[2] = {HOST, DEVICE_B};
    size_t bytes[2] = {8, 16}, failed = 9;
    attach();
    for (int form = 0; form < 4; form++) {
        static const char *const name[] = {"cuMemcpyBatchAsync", "cuMemcpyBatchAsync_ptsz", "cuMemcpyBatchAsync_v2",
                                           "cuMemcpyBatchAsync_v2_ptsz"};
        const CUstream told = form % 2 ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
        CHECK((form == 0   ? elf_cuMemcpyBatchAsync(dst, src, bytes, 2, NULL, NULL, 0, &failed, NULL)
               : form == 1 ? elf_cuMemcpyBatchAsync_ptsz(dst, src, bytes, 2, NULL, NULL, 0, &failed, NULL)
               : form == 2 ? elf_cuMemcpyBatchAsync_v2(dst, src, bytes, 2, NULL, NULL, 0, NULL)
                           : elf_cuMemcpyBatchAsync_v2_ptsz(dst, src, bytes, 2, NULL, NULL, 0, NULL)) == 0);
        EXPECT("driver cuPointerGetAttribute", "driver cuPointerGetAttribute",
               line("copy_begin dst=%s src=%s host=%p stream=%p", linear(DEVICE_A, 8), linear(HOST, 8), (void *)host,
                    (void *)told),
               line("copy_begin dst=%s src=%s host=%p stream=%p", linear(HOST, 16), linear(DEVICE_B, 16), NULL,
                    (void *)told),
               line("driver %s", name[form]), line("copy_end dst=%#llx result=0", HOST),
               line("copy_end dst=%#llx result=0", DEVICE_A));
    }
    CHECK(failed == 9);
    CHECK(elf_cuMemcpyBatchAsync_v2(NULL, NULL, NULL, 2, NULL, NULL, 0, NULL) == CUDA_SUCCESS);
    EXPECT("driver cuMemcpyBatchAsync_v2");
}

/* More copies than the wrapper has room for without allocating. */
static void large_batch(void)
{
    enum { COUNT = 1000 };
    static CUdeviceptr dst[COUNT], src[COUNT];
    static size_t bytes[COUNT];
    attach();
    for (size_t i = 0; i < COUNT; i++) {
        dst[i] = DEVICE_A + 64 * i;
        src[i] = DEVICE_B + 64 * i;
        bytes[i] = i + 1;
    }
    CHECK(elf_cuMemcpyBatchAsync_v2(dst, src, bytes, COUNT, NULL, NULL, 0, STREAM) == CUDA_SUCCESS);
    CHECK(recorded("copy_begin") == COUNT && recorded("copy_end") == COUNT);
    CHECK(recorded("driver cuMemcpyBatchAsync_v2") == 1);
}

/* As laid out by the driver's interface since 12.8: types, then pointers, row and layer lengths. */
struct operation {
    struct {
        int type;
        union {
            struct {
                CUdeviceptr address;
                size_t row_length, layer_height;
                int location[2];
            } pointer;
            struct {
                CUarray array;
                size_t x, y, z;
            } array;
        } of;
    } src, dst;
    size_t width, height, depth;
    int order;
    unsigned flags;
};

static void batch_3d(void)
{
    struct operation op[2] = {{.src = {1, {.pointer = {DEVICE_B, 128, 0, {0, 0}}}},
                               .dst = {1, {.pointer = {DEVICE_A, 0, 0, {0, 0}}}},
                               .width = 100,
                               .height = 4,
                               .depth = 2},
                              {.src = {2, {.array = {(CUarray)0xaa, 0, 0, 0}}},
                               .dst = {1, {.pointer = {DEVICE_A, 8, 0, {0, 0}}}},
                               .width = 8,
                               .height = 1,
                               .depth = 1}};
    attach();
    CHECK(elf_cuMemcpy3DBatchAsync_v2(2, op, 0, STREAM) == CUDA_SUCCESS);
    EXPECT("driver cuPointerGetAttribute",
           line("copy_begin dst=%s src=%s host=(nil) stream=%p", rows(DEVICE_A, 100, 8, 100),
                rows(DEVICE_B, 100, 8, 128), (void *)STREAM),
           line("copy_begin dst=%s src=%s host=(nil) stream=%p", rows(DEVICE_A, 128, 1, 128), none, (void *)STREAM),
           "driver cuMemcpy3DBatchAsync_v2", line("copy_end dst=%#llx result=0", DEVICE_A),
           line("copy_end dst=%#llx result=0", DEVICE_A));
    size_t failed = 9;
    CHECK(elf_cuMemcpy3DBatchAsync(1, op, &failed, 0, NULL) == CUDA_SUCCESS);
    CHECK(elf_cuMemcpy3DBatchAsync_ptsz(1, op, &failed, 0, NULL) == CUDA_SUCCESS);
    CHECK(elf_cuMemcpy3DBatchAsync_v2_ptsz(1, op, 0, NULL) == CUDA_SUCCESS);
    CHECK(recorded("copy_begin") == 3 && recorded("copy_end") == 3 && failed == 9);
}

/* Values that the device writes in stream order. Of a batch, those of 64 bits are told, and all of them before it. */
static void values(void)
{
    const char *const begin = line("copy_begin dst=%s src=%s host=", rows(DEVICE_A, 8, 1, 8), none);
    CUstreamBatchMemOpParams op[3] = {
        {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64, .address = DEVICE_A}},
        {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = 1}},
        {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64, .address = DEVICE_B}}};
    attach();
    CHECK(elf_cuStreamWriteValue64(STREAM, DEVICE_A, 7, 0) == 0 && strstr(record_text(), begin) != NULL);
    CHECK(elf_cuStreamWriteValue64_v2(STREAM, DEVICE_A, 7, 0) == 0);
    CHECK(elf_cuStreamWriteValue64_ptsz(NULL, DEVICE_A, 7, 0) == 0);
    CHECK(elf_cuStreamWriteValue64_v2_ptsz(NULL, DEVICE_A, 7, 0) == 0);
    CHECK(recorded("copy_begin") == 4 && recorded("copy_end") == 4 && recorded("driver cuStreamWriteValue64") == 4);
    record_forget();
    CHECK(elf_cuStreamBatchMemOp_v2(STREAM, 3, op, 0) == 0);
    CHECK(recorded("copy_begin") == 2 && recorded("copy_end") == 2);
    CHECK(strstr(strstr(record_text(), "driver cuStreamBatchMemOp_v2"), line("copy_end dst=%#llx", DEVICE_A)) != NULL);
    CHECK(elf_cuStreamBatchMemOp(STREAM, 3, NULL, 0) == 0 && elf_cuStreamBatchMemOp_ptsz(STREAM, 0, op, 0) == 0);
    CHECK(elf_cuStreamBatchMemOp_v2_ptsz(STREAM, 1, op + 1, 0) == 0);
    CHECK(recorded("copy_begin") == 2 && recorded("copy_end") == 2);
}

/* A copy that fails has no effect on what the program sees, and the engine knows. */
static void failed_copy(void)
{
    attach();
    setenv("FAKE_FAIL", "cuMemcpyDtoH_v2:700", 1);
    CHECK(elf_cuMemcpyDtoH_v2(host, DEVICE_A, 8) == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(recorded("copy_end") == 1 && strstr(record_text(), "result=700") != NULL && recorded("quiet_point") == 0);
}

TEST_CASES(CASE(generic), CASE(host_and_device), CASE(arrays), CASE(peers), CASE(two_dimensional),
           CASE(three_dimensional), CASE(fills), CASE(batch), CASE(large_batch), CASE(batch_3d), CASE(values),
           CASE(failed_copy))
