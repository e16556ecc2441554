/*
 * launches IMAGE WEIGHTS BYTES PASSES LAUNCHES [NODES] : reads each of WEIGHTS weights of BYTES once a pass, then makes
 * LAUNCHES launches of a kernel with ten parameters that reads none of them. Five of the ten are addresses of
 * activations: buffers that every pass changes. With NODES, LAUNCHES graphs instead, each made, launched once and
 * destroyed: NODES kernels in a chain that read a few words of a weight, the weights one after the other.
 * bench.sh counts what the launches cost: the difference of two runs.
 */
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* The least that is not the driver's to place. */
enum { BUFFERS = 5, BUFFER_BYTES = 1 << 20, WORDS = 16 };

static void check(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "launches: %s: error %d\n", what, (int)result);
        exit(3);
    }
}

static void *read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    long length = -1;
    if (file && fseek(file, 0, SEEK_END) == 0) {
        length = ftell(file);
    }
    void *bytes = length > 0 ? malloc((size_t)length) : NULL;
    if (!bytes || fseek(file, 0, SEEK_SET) != 0 || fread(bytes, 1, (size_t)length, file) != (size_t)length) {
        fprintf(stderr, "launches: %s cannot be read\n", path);
        exit(4);
    }
    fclose(file);
    return bytes;
}

static CUdeviceptr upload(size_t bytes, int fill)
{
    CUdeviceptr address = 0;
    unsigned char *data = malloc(bytes);
    if (!data) {
        exit(4);
    }
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (unsigned char)((size_t)fill + i * 7);
    }
    check(cuMemAlloc(&address, bytes), "cuMemAlloc");
    check(cuMemcpyHtoD(address, data, bytes), "cuMemcpyHtoD");
    free(data);
    return address;
}

static void launch(CUfunction function, void **params)
{
    check(cuLaunchKernel(function, 4, 1, 1, 64, 1, 1, 0, NULL, params, NULL), "cuLaunchKernel");
}

static void run_launches(CUfunction ten, const CUdeviceptr *buffer, long count)
{
    CUdeviceptr a = buffer[0], b = buffer[1], c = buffer[2], d = buffer[3], out = buffer[4];
    uint64_t words = WORDS;
    uint32_t e = 5;
    float f = 2;
    double g = 3;
    uint8_t h = 4;
    for (long i = 0; i < count; i++) {
        launch(ten, (void *[]){&a, &b, &c, &d, &out, &words, &e, &f, &g, &h});
    }
    check(cuCtxSynchronize(), "cuCtxSynchronize");
}

struct weights {
    CUdeviceptr *address, out;
    long count;
    size_t bytes;
};

struct functions {
    CUfunction copy, increment, ten;
};

static void run_passes(const struct functions *function, const struct weights *weights, const CUdeviceptr *buffer,
                       long passes)
{
    uint64_t words = weights->bytes / 4, buffer_words = WORDS;
    uint32_t by = 1;
    CUdeviceptr out = weights->out;
    for (long pass = 0; pass < passes; pass++) {
        for (long i = 0; i < weights->count; i++) {
            launch(function->copy, (void *[]){&weights->address[i], &out, &words});
        }
        for (int i = 0; i < BUFFERS; i++) {
            CUdeviceptr address = buffer[i];
            launch(function->increment, (void *[]){&address, &by, &buffer_words});
        }
        run_launches(function->ten, buffer, 1);
    }
}

static CUgraph build_graph(CUfunction copy, const struct weights *weights, CUdeviceptr out, long nodes)
{
    CUgraph graph;
    CUgraphNode last = NULL;
    uint64_t words = WORDS;
    check(cuGraphCreate(&graph, 0), "cuGraphCreate");
    for (long i = 0; i < nodes; i++) {
        const CUDA_KERNEL_NODE_PARAMS params = {
            .func = copy,
            .gridDimX = 1,
            .gridDimY = 1,
            .gridDimZ = 1,
            .blockDimX = 64,
            .blockDimY = 1,
            .blockDimZ = 1,
            .kernelParams = (void *[]){&weights->address[i * weights->count / nodes], &out, &words},
        };
        check(cuGraphAddKernelNode(&last, graph, &last, i > 0, &params), "cuGraphAddKernelNode");
    }
    return graph;
}

static void run_graphs(CUfunction copy, const struct weights *weights, CUdeviceptr out, long count, long nodes)
{
    CUgraph graph = build_graph(copy, weights, out, nodes);
    for (long i = 0; i < count; i++) {
        CUgraphExec exec;
        check(cuGraphInstantiate(&exec, graph, 0), "cuGraphInstantiate");
        check(cuGraphLaunch(exec, NULL), "cuGraphLaunch");
        check(cuCtxSynchronize(), "cuCtxSynchronize");
        check(cuGraphExecDestroy(exec), "cuGraphExecDestroy");
    }
    check(cuGraphDestroy(graph), "cuGraphDestroy");
}

int main(int argc, char **argv)
{
    if (argc != 6 && argc != 7) {
        fprintf(stderr, "usage: launches IMAGE WEIGHTS BYTES PASSES LAUNCHES [NODES]\n");
        return 4;
    }
    long count = atol(argv[2]), passes = atol(argv[4]), launches = atol(argv[5]);
    size_t bytes = (size_t)atol(argv[3]);
    void *image = read_file(argv[1]);
    CUdevice device;
    CUcontext context;
    CUmodule module;
    struct functions function;
    check(cuInit(0), "cuInit");
    check(cuDeviceGet(&device, 0), "cuDeviceGet");
    check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    check(cuModuleLoadData(&module, image), "cuModuleLoadData");
    check(cuModuleGetFunction(&function.copy, module, "probe_copy"), "cuModuleGetFunction");
    check(cuModuleGetFunction(&function.increment, module, "probe_increment"), "cuModuleGetFunction");
    check(cuModuleGetFunction(&function.ten, module, "probe_ten"), "cuModuleGetFunction");

    struct weights weights = {.count = count, .bytes = bytes, .out = upload(bytes, 0)};
    CUdeviceptr buffer[BUFFERS];
    weights.address = calloc((size_t)count + 1, sizeof(*weights.address));
    if (!weights.address) {
        return 4;
    }
    for (int i = 0; i < BUFFERS; i++) {
        buffer[i] = upload(BUFFER_BYTES, i);
    }
    for (long i = 0; i < count; i++) {
        weights.address[i] = upload(bytes, (int)i);
    }
    run_passes(&function, &weights, buffer, passes);
    if (argc == 7) {
        run_graphs(function.copy, &weights, buffer[0], launches, atol(argv[6]));
    } else {
        run_launches(function.ten, buffer, launches);
    }

    for (long i = 0; i < count; i++) {
        check(cuMemFree(weights.address[i]), "cuMemFree");
    }
    check(cuModuleUnload(module), "cuModuleUnload");
    free(weights.address);
    free(image);
    puts("ok");
    return 0;
}
