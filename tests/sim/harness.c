/* See harness.h. */
#define _GNU_SOURCE
#include "harness.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

const char *error_name(CUresult result)
{
    const char *name = NULL;
    return cuGetErrorName(result, &name) == CUDA_SUCCESS && name != NULL ? name : "an unknown code";
}

void knob(const char *name, const char *value)
{
    ck_assert_int_eq(setenv(name, value, 1), 0);
}

CUcontext start(int device)
{
    CUdevice handle;
    CUcontext context;
    OK(cuInit(0));
    OK(cuDeviceGet(&handle, device));
    OK(cuDevicePrimaryCtxRetain(&context, handle));
    OK(cuCtxSetCurrent(context));
    return context;
}

void *harness_kept[64];

/* What is read stays reachable to the end, so that tests may pass it on without keeping it. */
void *read_file(const char *path, size_t *bytes)
{
    static size_t kept_count;
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "cannot open %s", path);
    char *data = calloc(1, 1 << 20); /* zeros follow, and room behind the end */
    ck_assert_ptr_nonnull(data);
    size_t got = fread(data, 1, (1 << 20) - 64, file);
    fclose(file);
    ck_assert_uint_lt(kept_count, sizeof harness_kept / sizeof *harness_kept);
    harness_kept[kept_count++] = data;
    if (bytes != NULL)
        *bytes = got;
    return data;
}

void *read_fixture(const char *name, size_t *bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", SIM_FIXTURES, name);
    return read_file(path, bytes);
}

CUmodule probe_module(void)
{
    static CUmodule module;
    if (module == NULL)
        OK(cuModuleLoad(&module, SIM_KERNEL_IMAGES "/probe.fatbin"));
    return module;
}

CUfunction probe(const char *name)
{
    CUfunction function;
    OK(cuModuleGetFunction(&function, probe_module(), name));
    return function;
}

CUdeviceptr device_words(size_t words)
{
    CUdeviceptr address;
    OK(cuMemAlloc(&address, words * 4));
    return address;
}

uint32_t *pinned_words(size_t words)
{
    void *pointer;
    OK(cuMemHostAlloc(&pointer, words * 4, 0));
    return pointer;
}

CUstream new_stream(void)
{
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

CUevent new_event(void)
{
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    return event;
}

CUresult launch_params(CUfunction function, CUstream stream, void **params)
{
    return cuLaunchKernel(function, 4, 1, 1, 128, 1, 1, 0, stream, params, NULL);
}

CUresult fill(CUstream stream, CUdeviceptr out, uint32_t value, uint64_t words)
{
    return LAUNCH(stream, "probe_fill", &out, &value, &words);
}

CUresult copy(CUstream stream, CUdeviceptr in, CUdeviceptr out, uint64_t words)
{
    return LAUNCH(stream, "probe_copy", &in, &out, &words);
}

CUresult slow_copy(CUstream stream, CUdeviceptr in, CUdeviceptr out, uint64_t words, double microseconds)
{
    return LAUNCH(stream, "probe_slow_copy", &in, &out, &words, &microseconds);
}

CUresult increment(CUstream stream, CUdeviceptr words, uint32_t value, uint64_t count)
{
    return LAUNCH(stream, "probe_increment", &words, &value, &count);
}

uint32_t word_at(CUdeviceptr address)
{
    uint32_t word = 0;
    OK(cuMemcpyDtoH(&word, address, sizeof word));
    return word;
}

CUmemAllocationProp device_prop(void)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
}

CUresult set_access(CUdeviceptr address, size_t bytes, CUmemAccess_flags flags)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}, .flags = flags};
    return cuMemSetAccess(address, bytes, &access, 1);
}

CUresult map_at(CUdeviceptr address, size_t bytes, CUmemGenericAllocationHandle handle, CUmemAccess_flags flags)
{
    CUresult result = cuMemMap(address, bytes, 0, handle, 0);
    return result == CUDA_SUCCESS ? set_access(address, bytes, flags) : result;
}

struct mapped map_new(size_t bytes)
{
    struct mapped out = {.bytes = bytes};
    const CUmemAllocationProp prop = device_prop();
    OK(cuMemCreate(&out.handle, bytes, &prop, 0));
    OK(cuMemAddressReserve(&out.address, bytes, 0, 0, 0));
    OK(map_at(out.address, bytes, out.handle, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    return out;
}

struct outcome outcome(void (*program)(void))
{
    struct outcome out = {0};
    int pipes[2];
    ck_assert_int_eq(pipe(pipes), 0);
    fflush(NULL);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        dup2(pipes[1], STDERR_FILENO);
        close(pipes[0]);
        close(pipes[1]);
        program();
        exit(0);
    }
    close(pipes[1]);
    size_t used = 0;
    for (ssize_t got;
         used < sizeof out.text - 1 && (got = read(pipes[0], out.text + used, sizeof out.text - 1 - used)) > 0;)
        used += (size_t)got;
    close(pipes[0]);
    int status = 0;
    waitpid(pid, &status, 0);
    out.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    out.status = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    return out;
}
