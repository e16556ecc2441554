/*
 * launches IMAGE WEIGHTS BYTES PASSES LAUNCHES : reads each of WEIGHTS weights of BYTES once a pass, then makes
 * LAUNCHES launches of a kernel with ten parameters that reads none of them. bench.sh counts what the latter cost: the
 * difference of two runs.
 */
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { SMALL_BUFFERS = 5, SMALL_WORDS = 16 };

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

static void run_passes(CUfunction copy, CUdeviceptr *weights, long count, CUdeviceptr out, size_t bytes, long passes)
{
    uint64_t words = bytes / 4;
    for (long pass = 0; pass < passes; pass++) {
        for (long i = 0; i < count; i++) {
            launch(copy, (void *[]){&weights[i], &out, &words});
        }
        check(cuCtxSynchronize(), "cuCtxSynchronize");
    }
}

static void run_launches(CUfunction ten, const CUdeviceptr *small, long count)
{
    CUdeviceptr a = small[0], b = small[1], c = small[2], d = small[3], out = small[4];
    uint64_t words = SMALL_WORDS;
    uint32_t e = 5;
    float f = 2;
    double g = 3;
    uint8_t h = 4;
    for (long i = 0; i < count; i++) {
        launch(ten, (void *[]){&a, &b, &c, &d, &out, &words, &e, &f, &g, &h});
    }
    check(cuCtxSynchronize(), "cuCtxSynchronize");
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fprintf(stderr, "usage: launches IMAGE WEIGHTS BYTES PASSES LAUNCHES\n");
        return 4;
    }
    long count = atol(argv[2]), passes = atol(argv[4]), launches = atol(argv[5]);
    size_t bytes = (size_t)atol(argv[3]);
    void *image = read_file(argv[1]);
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction copy, ten;
    check(cuInit(0), "cuInit");
    check(cuDeviceGet(&device, 0), "cuDeviceGet");
    check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    check(cuModuleLoadData(&module, image), "cuModuleLoadData");
    check(cuModuleGetFunction(&copy, module, "probe_copy"), "cuModuleGetFunction");
    check(cuModuleGetFunction(&ten, module, "probe_ten"), "cuModuleGetFunction");

    CUdeviceptr *weights = calloc((size_t)count + 1, sizeof(*weights));
    CUdeviceptr small[SMALL_BUFFERS];
    CUdeviceptr out = upload(bytes, 0);
    for (int i = 0; i < SMALL_BUFFERS; i++) {
        small[i] = upload(4 * SMALL_WORDS, i);
    }
    for (long i = 0; weights && i < count; i++) {
        weights[i] = upload(bytes, (int)i);
    }
    run_passes(copy, weights, count, out, bytes, passes);
    run_launches(ten, small, launches);

    for (long i = 0; weights && i < count; i++) {
        check(cuMemFree(weights[i]), "cuMemFree");
    }
    check(cuModuleUnload(module), "cuModuleUnload");
    free(weights);
    free(image);
    puts("ok");
    return 0;
}
