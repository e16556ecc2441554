/* Weights in memory that the program maps itself: they are streamed, wherever they lie. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "weights.h"

/* ---- where tensors lie */

static void a_piece_each(void)
{
    weights_open(10, 4 * MIB, 10, 4 * MIB);
    weights_pass(6);
    weights_finish();
}

/* The reservation is the first that the program does. */
static void first_of_all(void)
{
    pool_begin();
    pool_open(&pool, 10, 4 * MIB);
    pool_map(&pool, 0, 10);
    rig_open(&rig, 0);
    weights_place(10, 4 * MIB);
    rig_until_streamed(&rig);
    weights_finish();
}

/* Tensors end where they end: most lie in two pieces, and pieces hold parts of two tensors. */
static void across_pieces(void)
{
    weights_open(20, 2 * MIB, 8, 5 * MIB);
    weights_pass(6);
    weights_finish();
}

/* Tensors of several pieces each; only the first piece is ever named. */
static void several_pieces_each(void)
{
    weights_open(24, 2 * MIB, 6, 8 * MIB);
    weights_pass(6);
    weights_finish();
}

/* A piece in between is the host's: a tensor that reaches into it is not streamed, the others are. */
static void beside_host_memory(void)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA}};
    rig_open(&rig, 0);
    pool_open(&pool, 24, 2 * MIB);
    pool_map(&pool, 0, 6);
    OK(cuMemCreate(&pool.handle[6], 2 * MIB, &prop, 0));
    pool_show(pool_at(&pool, 6), 2 * MIB, pool.handle[6]);
    pool_map(&pool, 7, 17);
    weights_place(6, 8 * MIB);
    rig_until_streamed(&rig);
    weights_pass(6);
    weights_finish();
}

/* One handle of 75 % of all memory, everything in it, as JAX does it: scratch memory, then weights, and a piece that is
 * not used at the end. */
struct one_handle {
    CUdeviceptr base, spare;
    size_t bytes;
    CUmemGenericAllocationHandle handle;
};

static struct one_handle open_one_handle(void)
{
    struct one_handle one;
    size_t free_bytes, total_bytes;
    rig_open(&rig, 0);
    OK(cuMemGetInfo(&free_bytes, &total_bytes));
    one.bytes = total_bytes * 3 / 4 / PAGE * PAGE;
    one.base = pool_reserve(one.bytes);
    one.spare = one.base + one.bytes - 8 * MIB;
    one.handle = pool_handle(one.bytes);
    pool_show(one.base, one.bytes, one.handle);
    pool.base = one.base + 3 * MIB + 512;
    weights_place(11, 10 * MIB);
    return one;
}

static void close_one_handle(const struct one_handle *one)
{
    pool_forget(&rig);
    OK(cuMemUnmap(one->base, one->bytes));
    OK(cuMemRelease(one->handle));
    OK(cuMemAddressFree(one->base, one->bytes));
    rig_close(&rig);
}

static void pass_behind_scratch(CUdeviceptr scratch, int pass)
{
    weights_fill(scratch, (uint32_t)pass, 2 * MIB / 4);
    rig_pass(&rig, NULL, 0);
    pool_expect(scratch, 2 * MIB, (uint32_t)pass);
}

static void one_handle(void)
{
    const struct one_handle one = open_one_handle();
    for (int pass = 0; pass < 12; pass++) {
        pass_behind_scratch(one.base, pass);
    }
    HOLDS(rig_streamed_mib() > 0);
    /* The whole of it can be used. */
    pool_fill(one.spare, 8 * MIB, 0x77);
    pool_expect(one.spare, 8 * MIB, 0x77);
    weights_pass(3);
    close_one_handle(&one);
}

/* One of the kernels that a compiler made and tries: several times, on memory of its own. */
static void try_kernel(CUdeviceptr scratch, unsigned round)
{
    struct gpu_image image = gpu_image_load("probe", GPU_LOAD_MODULE);
    CUfunction fill;
    OK(cuModuleGetFunction(&fill, image.module, "probe_fill"));
    for (unsigned i = 0; i < 8; i++) {
        CUdeviceptr out = scratch + i % 2 * MIB;
        uint32_t value = round * 8 + i;
        uint64_t words = 1000;
        void *params[] = {&out, &value, &words};
        OK(cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, rig.stream, params, NULL));
        OK(cuStreamSynchronize(rig.stream));
    }
    gpu_image_unload(&image);
}

/* What was looked at in vain meanwhile does not put off what is found afterwards, where other addresses are used. */
static void compiles_first(void)
{
    const struct one_handle one = open_one_handle();
    for (unsigned round = 0; round < 40; round++) {
        try_kernel(one.spare, round);
    }
    for (int pass = 0; pass < 30 && rig_streamed_mib() == 0; pass++) {
        pass_behind_scratch(one.base, pass);
    }
    HOLDS(rig_streamed_mib() > 0);
    close_one_handle(&one);
}

/* Passes that begin with a few launches on the same addresses, and wait for them: those tell nothing about a pass. */
static void comes_back_at_once(void)
{
    const struct one_handle one = open_one_handle();
    uint32_t got[4096];
    for (uint32_t pass = 0; pass < 3; pass++) {
        for (unsigned i = 0; i < 4; i++) {
            weights_fill(one.spare + i % 2 * MIB, 4 * pass + i, 1000);
        }
        OK(cuStreamSynchronize(rig.stream));
        for (unsigned i = 0; i < rig.count; i++) {
            weights_fill(one.spare + 4 * MIB, rig.count * pass + i, 1000);
            rig_read(&rig, i, i, rig.stream);
        }
        OK(cuStreamSynchronize(rig.stream));
        OK(cuMemcpyDtoH(got, rig.out, sizeof got));
        rig_compare(&rig, got, NULL, rig.count);
    }
    HOLDS(rig_streamed_mib() > 0);
    close_one_handle(&one);
}

/* The same without new kernels: an address that is not used any more is given up, and its count is not the measure. */
static void other_work_first(void)
{
    const struct one_handle one = open_one_handle();
    for (unsigned i = 0; i < 320; i++) {
        weights_fill(one.spare + i % 2 * MIB, i, 1000);
        OK(cuStreamSynchronize(rig.stream));
    }
    /* Of 12 launches: 512 without the address, and a few more. */
    for (int pass = 0; pass < 60 && rig_streamed_mib() == 0; pass++) {
        pass_behind_scratch(one.base, pass);
    }
    HOLDS(rig_streamed_mib() > 0);
    close_one_handle(&one);
}

/* As PyTorch's expandable segments: 9/8 of all memory reserved; pieces come with the load, temporary ones go again,
 * activations and a growing cache behind the weights, an emptied cache, growth again. */
static void expandable_segment(void)
{
    size_t free_bytes, total_bytes;
    rig_open(&rig, 0);
    OK(cuMemGetInfo(&free_bytes, &total_bytes));
    memset(&pool, 0, sizeof pool);
    pool.piece_bytes = 4 * MIB;
    pool.bytes = total_bytes / 8 * 9 / (4 * MIB) * (4 * MIB);
    pool.base = pool_reserve(pool.bytes);
    for (unsigned i = 0; i < 9; i++) { /* a weight, and a staging buffer two pieces further on */
        pool_map(&pool, i, 1);
        pool_map(&pool, i + 2, 1);
        (void)rig_place(&rig, pool_at(&pool, i), 4 * MIB);
        pool_fill(pool_at(&pool, i + 2), 4 * MIB, i);
        pool_unmap(&pool, i + 2, 1);
    }
    pool_map(&pool, 9, 1); /* activations */
    for (int pass = 0; pass < 12; pass++) {
        weights_fill(pool_at(&pool, 9), (uint32_t)pass, MIB);
        rig_pass(&rig, NULL, 0);
    }
    HOLDS(rig_streamed_mib() > 0);
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 10; i < 13; i++) { /* the cache grows */
            pool_map(&pool, i, 1);
            for (unsigned k = 9; k <= i; k++) {
                weights_fill(pool_at(&pool, k), round * 100 + k, MIB);
            }
            rig_pass(&rig, NULL, 0);
            for (unsigned k = 9; k <= i; k++) {
                pool_expect(pool_at(&pool, k), 4 * MIB, round * 100 + k);
            }
        }
        OK(cuCtxSynchronize());
        pool_unmap(&pool, 10, 3); /* emptied, by one call */
        rig_pass(&rig, NULL, 0);
    }
    weights_pass(3);
    pool_forget(&rig);
    OK(cuMemUnmap(pool.base, 10 * 4 * MIB));
    for (unsigned i = 0; i < 10; i++) {
        OK(cuMemRelease(pool.handle[i]));
    }
    OK(cuMemAddressFree(pool.base, pool.bytes));
    rig_close(&rig);
}

/* The last weight before a hole is a weight like any other. */
static void before_a_hole(void)
{
    rig_open(&rig, 0);
    pool_open(&pool, 20, 4 * MIB);
    pool_map(&pool, 2, 5);
    pool_map(&pool, 10, 5);
    for (unsigned i = 2; i < 7; i++) {
        (void)rig_place(&rig, pool_at(&pool, i), 4 * MIB);
        (void)rig_place(&rig, pool_at(&pool, i + 8), 4 * MIB);
    }
    rig_until_streamed(&rig);
    weights_pass(4);
    HOLDS(rig_logged("; 10 touches a cycle"));
    weights_finish();
}

/* ---- memory that becomes shared */

static void mapped_twice_when_streamed(void)
{
    weights_open(10, 4 * MIB, 10, 4 * MIB);
    const CUdeviceptr other = pool_reserve(4 * MIB);
    pool_show(other, 4 * MIB, pool.handle[4]);
    (void)rig_place(&rig, other, 4 * MIB); /* the same bytes by another name */
    memcpy(rig.weight[4].host, rig.weight[10].host, 4 * MIB);
    rig_changed(&rig.weight[4]);
    weights_pass(8);
    OK(cuMemUnmap(other, 4 * MIB));
    rig.weight[10].address = 0;
    weights_pass(3);
    weights_finish();
}

static void exported_when_streamed(void)
{
    CUmemAllocationProp prop = pool_prop;
    CUmemGenericAllocationHandle import;
    int fd;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR; /* as PyTorch asks, for all it maps */
    rig_open(&rig, 0);
    pool_open(&pool, 10, 4 * MIB);
    for (unsigned i = 0; i < 10; i++) {
        OK(cuMemCreate(&pool.handle[i], 4 * MIB, &prop, 0));
        pool_show(pool_at(&pool, i), 4 * MIB, pool.handle[i]);
    }
    weights_place(10, 4 * MIB);
    rig_until_streamed(&rig);
    OK(cuMemExportToShareableHandle(&fd, pool.handle[3], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuMemImportFromShareableHandle(&import, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    const CUdeviceptr other = pool_reserve(4 * MIB);
    pool_show(other, 4 * MIB, import);
    rig_refill(&rig.weight[3]);
    OK(cuMemcpyHtoD(other, rig.weight[3].host, 4 * MIB));
    weights_pass(6);
    close(fd);
    OK(cuMemUnmap(other, 4 * MIB));
    OK(cuMemRelease(import));
    weights_finish();
}

/* A texture is made on a streamed weight: kernels read it from then on, and no launch names it. (A gather from another
 * base stands for the texture.) */
static void texture(void)
{
    enum { COUNT = 64, TEXTURED = 5 };
    uint32_t ids[COUNT], got[COUNT];
    CUdeviceptr ids_on_device;
    CUtexObject object;
    CUtexref reference = NULL;
    size_t offset;
    rig_open(&rig, 0);
    OK(cuMemAlloc(&ids_on_device, sizeof ids));
    pool_open(&pool, 11, 4 * MIB);
    pool_map(&pool, 0, 11);
    for (unsigned i = 0; i < 10; i++) {
        (void)rig_place(&rig, pool_at(&pool, i + 1), 4 * MIB);
    }
    rig_until_streamed(&rig);
    for (unsigned textured = TEXTURED; textured < TEXTURED + 3; textured++) {
        CUDA_RESOURCE_DESC linear = {.resType = CU_RESOURCE_TYPE_LINEAR,
                                     .res.linear = {.devPtr = rig.weight[textured].address,
                                                    .format = CU_AD_FORMAT_UNSIGNED_INT32,
                                                    .numChannels = 1,
                                                    .sizeInBytes = 4 * MIB}};
        CUDA_RESOURCE_DESC pitched = {.resType = CU_RESOURCE_TYPE_PITCH2D,
                                      .res.pitch2D = {.devPtr = rig.weight[textured].address,
                                                      .format = CU_AD_FORMAT_UNSIGNED_INT32,
                                                      .numChannels = 1,
                                                      .width = 1024,
                                                      .height = 1024,
                                                      .pitchInBytes = 4096}};
        const CUDA_TEXTURE_DESC how = {.flags = CU_TRSF_READ_AS_INTEGER};
        if (textured == TEXTURED + 2) { /* the simulated driver has no textures; what matters is that it was asked */
            (void)cuTexRefSetAddress(&offset, reference, rig.weight[textured].address, 4 * MIB);
        } else {
            (void)cuTexObjectCreate(&object, textured == TEXTURED ? &linear : &pitched, &how, NULL);
        }
        CUdeviceptr base = pool.base, out = rig.out + 8192;
        for (unsigned i = 0; i < COUNT; i++) {
            ids[i] = (uint32_t)((rig.weight[textured].address - base) / 4) + i * 16001u;
        }
        OK(cuMemcpyHtoD(ids_on_device, ids, sizeof ids));
        for (int pass = 0; pass < 6; pass++) {
            uint64_t words = COUNT;
            void *params[] = {&base, &ids_on_device, &out, &words};
            rig_launch(&rig, "probe_gather", rig.stream, params);
            OK(cuStreamSynchronize(rig.stream));
            OK(cuMemcpyDtoH(got, out, sizeof got));
            for (unsigned i = 0; i < COUNT; i++) {
                if (got[i] != rig.weight[textured].host[i * 16001u]) {
                    rig_fail(RIG_EXIT_WRONG, "a texture shows other bytes than its memory holds");
                }
            }
            rig_pass(&rig, NULL, 0);
        }
    }
    OK(cuMemFree(ids_on_device));
    weights_finish();
}

/* ---- budget */

/* What a handle costs is told once, when it is made, and no more when it has gone. */
static void info(void)
{
    size_t before, made, shown, gone, total;
    rig_open(&rig, 0);
    const CUdeviceptr address = pool_reserve(64 * MIB);
    OK(cuMemGetInfo(&before, &total));
    const CUmemGenericAllocationHandle handle = pool_handle(12 * MIB);
    OK(cuMemGetInfo(&made, &total));
    HOLDS(before - made == 12 * MIB);
    pool_show(address, 12 * MIB, handle);
    OK(cuMemGetInfo(&shown, &total));
    HOLDS(shown == made);
    OK(cuMemRelease(handle));
    OK(cuMemGetInfo(&shown, &total));
    HOLDS(shown == made);
    OK(cuMemUnmap(address, 12 * MIB));
    OK(cuMemGetInfo(&gone, &total));
    HOLDS(gone == before);
    OK(cuMemAddressFree(address, 64 * MIB));
    rig_close(&rig);
}

/* More than device and host may hold: an ordinary out of memory, when it is made and not later. */
static void out_of_memory(void)
{
    CUmemGenericAllocationHandle more = 0x1234;
    unsigned made = 0;
    rig_open(&rig, 0);
    pool_open(&pool, 40, 4 * MIB);
    while (made < 40 && cuMemCreate(&pool.handle[made], 4 * MIB, &pool_prop, 0) == CUDA_SUCCESS) {
        pool_show(pool_at(&pool, made), 4 * MIB, pool.handle[made]);
        pool_fill(pool_at(&pool, made), 4 * MIB, made);
        made++;
    }
    HOLDS(made >= 10 && made < 40); /* 22 MiB and 32 MiB */
    HOLDS(cuMemCreate(&more, 4 * MIB, &pool_prop, 0) == CUDA_ERROR_OUT_OF_MEMORY && more == 0x1234);
    for (unsigned i = 0; i < made; i++) {
        pool_expect(pool_at(&pool, i), 4 * MIB, i);
    }
    pool.handle[made] = 0;
    pool_unmap(&pool, 0, 2);
    pool_map(&pool, 0, 2);
    pool_close(&pool);
    rig_close(&rig);
}

/* The budget is larger than all of it: nothing is moved. */
static void everything_fits(void)
{
    rig_open(&rig, 0);
    pool_open(&pool, 10, 4 * MIB);
    pool_map(&pool, 0, 10);
    weights_place(10, 4 * MIB);
    weights_pass(8);
    HOLDS(rig_plans() == 0);
    weights_finish();
}

/* ---- threads, captures, contexts, devices */

/* Memory is unmapped and mapped while another stream is being captured. */
static void while_capturing(void)
{
    CUstream captured;
    CUgraph graph;
    weights_open(12, 4 * MIB, 10, 4 * MIB);
    OK(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
    OK(cuCtxSynchronize());
    OK(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    pool_unmap(&pool, 2, 1);
    rig.weight[2].address = 0;
    pool_map(&pool, 2, 1);
    OK(cuMemsetD32Async(pool_at(&pool, 11), 5, MIB, captured));
    OK(cuStreamEndCapture(captured, &graph));
    OK(cuGraphDestroy(graph));
    pool_fill(pool_at(&pool, 2), 4 * MIB, 6);
    weights_pass(4);
    pool_expect(pool_at(&pool, 2), 4 * MIB, 6);
    OK(cuStreamDestroy(captured));
    weights_finish();
}

/* A graph writes activations in the pool: the weights around them are streamed all the same, in the next plan, too. */
static void graph_beside_weights(void)
{
    CUgraph graph;
    CUgraphExec exec;
    rig_open(&rig, 0);
    pool_open(&pool, 13, 4 * MIB);
    pool_map(&pool, 0, 13);
    for (unsigned i = 0; i < 12; i++) { /* activations in piece 6 */
        (void)rig_place(&rig, pool_at(&pool, i < 6 ? i : i + 1), 4 * MIB);
    }
    for (int pass = 0; pass < 10; pass++) {
        weights_fill(pool_at(&pool, 6), (uint32_t)pass, MIB);
        weights_pass(1);
    }
    HOLDS(rig_streamed_mib() > 0);
    OK(cuStreamBeginCapture(rig.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    weights_fill(pool_at(&pool, 6), 99, MIB);
    OK(cuStreamEndCapture(rig.stream, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuCtxSynchronize());
    pool_unmap(&pool, 2, 1);
    rig.weight[2].address = 0;
    for (int pass = 0; pass < 12; pass++) {
        OK(cuGraphLaunch(exec, rig.stream));
        weights_pass(1);
        pool_expect(pool_at(&pool, 6), 4 * MIB, 99);
    }
    HOLDS(rig_plans() > 1 && rig_streamed_mib() > 0);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    weights_finish();
}

/* The context is reset with everything mapped: the end is in order, and so is what comes after. */
static void context_gone(void)
{
    weights_open(10, 4 * MIB, 10, 4 * MIB);
    const struct pool old = pool;
    OK(cuDevicePrimaryCtxReset(rig.device));
    pool_forget(&rig);
    rig_forget(&rig);
    (void)cuMemUnmap(old.base, old.bytes);
    for (unsigned i = 0; i < 10; i++) {
        (void)cuMemRelease(old.handle[i]);
    }
    (void)cuMemAddressFree(old.base, old.bytes);
    rig_open(&rig, 0);
    pool_open(&pool, 10, 4 * MIB);
    pool_map(&pool, 0, 10);
    weights_place(10, 4 * MIB);
    weights_pass(10);
    weights_finish();
}

/* Two devices: peers read by the rights that the program gave; a handle of one mapped in a reservation that was made
 * when the other was current. */
static void two_devices(void)
{
    struct rig second;
    CUmemAllocationProp prop = pool_prop;
    CUmemGenericAllocationHandle handle;
    uint32_t got;
    rig_open(&rig, 0);
    rig_open(&second, 1);
    OK(cuCtxSetCurrent(rig.context));
    pool_open(&pool, 12, 4 * MIB);
    pool_map(&pool, 0, 10);
    weights_place(10, 4 * MIB);
    rig_until_streamed(&rig);
    const CUmemAccessDesc peer = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(cuMemSetAccess(pool.base, 10 * 4 * MIB, &peer, 1));
    prop.location.id = 1;
    OK(cuMemCreate(&handle, 4 * MIB, &prop, 0));
    pool_show(pool_at(&pool, 11), 4 * MIB, handle);
    OK(cuMemSetAccess(pool_at(&pool, 11), 4 * MIB, &peer, 1));
    pool_fill(pool_at(&pool, 11), 4 * MIB, 81);
    for (int pass = 0; pass < 4; pass++) {
        OK(cuCtxSetCurrent(second.context));
        for (unsigned i = 0; i < 10; i += 3) {
            CUdeviceptr in = rig.weight[i].address, out = second.out;
            uint64_t words = MIB;
            void *params[] = {&in, &out, &words};
            rig_launch(&second, "probe_digest", second.stream, params);
            OK(cuStreamSynchronize(second.stream));
            OK(cuMemcpyDtoH(&got, out, 4));
            HOLDS(got == rig_digest(rig.weight[i].host, MIB));
        }
        OK(cuCtxSetCurrent(rig.context));
        rig_pass(&rig, NULL, 0);
    }
    pool_expect(pool_at(&pool, 11), 4 * MIB, 81);
    OK(cuMemUnmap(pool_at(&pool, 11), 4 * MIB));
    OK(cuMemRelease(handle));
    weights_finish();
    rig_close(&second);
}

/* Ends with everything mapped and kernels under way. */
static void exit_alive(void)
{
    weights_open(10, 4 * MIB, 10, 4 * MIB);
    for (unsigned i = 0; i < 10; i++) {
        rig_read(&rig, i, i, rig.stream);
    }
    exit(0);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(a_piece_each),
    CASE(first_of_all),
    CASE(across_pieces),
    CASE(several_pieces_each),
    CASE(beside_host_memory),
    CASE(one_handle),
    CASE(compiles_first),
    CASE(comes_back_at_once),
    CASE(other_work_first),
    CASE(expandable_segment),
    CASE(before_a_hole),
    CASE(mapped_twice_when_streamed),
    CASE(exported_when_streamed),
    CASE(texture),
    CASE(info),
    CASE(out_of_memory),
    CASE(everything_fits),
    CASE(while_capturing),
    CASE(graph_beside_weights),
    CASE(context_gone),
    CASE(two_devices),
    CASE(exit_alive),
};
RIG_MAIN(cases)
