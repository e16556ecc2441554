/*
 * The same small programs on any driver: prints one line a step, so that the lines of a real driver and of the
 * simulated one can be laid side by side (driver_compare.sh). It finds libcuda.so.1 as every program does, by dlopen.
 *
 *     driver_compare [--images FOLDER] [--fixtures FOLDER] [--lost] [--all] [--list] [PROGRAM...]
 *
 * FOLDER holds probe.fatbin (tests/kernels/images) and the images of tests/sim/fixtures. Each program runs in a process
 * of its own. Only answers are printed: error codes, counts, flags, contents; never addresses or times, which may
 * differ. The programs of --lost lose their context on purpose. Lines of programs that need a newer driver say
 * "absent".
 */
#define _GNU_SOURCE
#include "driver_compare.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct driver d;
#define TEXT_(name) #name
#define TEXT(name)  TEXT_(name)

void *library;
const char *images = "tests/kernels/images", *fixtures = "tests/sim/fixtures";
const char *program_name = "";

static void load_driver(void)
{
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "driver_compare: %s\n", dlerror());
        exit(77);
    }
#define LOAD(name)                                             \
    d.name##_ = (__typeof__(&name))dlsym(library, TEXT(name)); \
    if (d.name##_ == NULL)                                     \
        printf("driver: %s: absent\n", TEXT(name));
    FUNCTIONS(LOAD)
}

void say(const char *step, CUresult result)
{
    const char *name = NULL;
    if (d.cuGetErrorName_(result, &name) != CUDA_SUCCESS || name == NULL)
        name = "?";
    printf("%s: %s: %s (%d)\n", program_name, step, name, (int)result);
}

void tell(const char *step, long long value)
{
    printf("%s: %s: %lld\n", program_name, step, value);
}

/* A step that the rest depends on: silent when it works. */
void need(const char *step, CUresult result)
{
    if (result == CUDA_SUCCESS)
        return;
    say(step, result);
    fflush(stdout);
    _exit(1);
}

/* ---- what programs share ---- */

CUcontext context;
CUmodule module;
CUdeviceptr a, b;
CUstream s, t;
uint64_t words = WORDS;

char *path_of(const char *folder, const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

void *bytes_of(const char *name)
{
    FILE *file = fopen(path_of(fixtures, name), "rb");
    char *data = calloc(1, 1 << 20);
    if (file == NULL || data == NULL || fread(data, 1, (1 << 20) - 64, file) == 0) {
        printf("%s: cannot read %s\n", program_name, name);
        exit(1);
    }
    fclose(file);
    return data;
}

void start(void)
{
    CUdevice device;
    NEED(CALL(cuInit, 0));
    NEED(CALL(cuDeviceGet, &device, 0));
    NEED(CALL(cuDevicePrimaryCtxRetain, &context, device));
    NEED(CALL(cuCtxSetCurrent, context));
    NEED(CALL(cuModuleLoad, &module, path_of(images, "probe.fatbin")));
    NEED(CALL(cuMemAlloc, &a, 4 * WORDS));
    NEED(CALL(cuMemAlloc, &b, 4 * WORDS));
    NEED(CALL(cuMemsetD32, a, 1, WORDS));
    NEED(CALL(cuMemsetD32, b, 2, WORDS));
    NEED(CALL(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING));
    NEED(CALL(cuStreamCreate, &t, CU_STREAM_NON_BLOCKING));
    NEED(CALL(cuCtxSynchronize));
}

CUfunction function(const char *name)
{
    CUfunction result;
    NEED(CALL(cuModuleGetFunction, &result, module, name));
    return result;
}

CUresult increment(CUstream stream, CUdeviceptr target, uint32_t value)
{
    return d.cuLaunchKernel_(function("probe_increment"), 4, 1, 1, 64, 1, 1, 0, stream,
                             (void *[]){&target, &value, &words}, NULL);
}

void tell_word(const char *step, CUdeviceptr address)
{
    uint32_t word = 0;
    CUresult result = d.cuMemcpyDtoH_(&word, address, sizeof word);
    if (result != CUDA_SUCCESS)
        say(step, result);
    else
        tell(step, word);
}

CUevent event_of(unsigned flags)
{
    CUevent event;
    NEED(CALL(cuEventCreate, &event, flags));
    return event;
}

struct program {
    const char *name;
    void (*run)(void);
    enum { ALWAYS, WITH_LOST, WITH_ALL } when; /* it loses the context; it is not among the answers that are kept */
};

static const struct program programs[] = {
    {"uninitialised", run_uninitialised, ALWAYS},
    {"getproc", run_getproc, ALWAYS},
    {"module", run_module, ALWAYS},
    {"library", run_library, ALWAYS},
    {"launch", run_launch, ALWAYS},
    {"memory", run_memory, ALWAYS},
    {"vmm", run_vmm, ALWAYS},
    {"stream", run_stream, ALWAYS},
    {"modes", run_modes, ALWAYS},
    {"capture", run_capture, ALWAYS},
    {"graph", run_graph, ALWAYS},
    {"update", run_update, ALWAYS},
    {"rules_update", run_rules_update, WITH_ALL},
    {"rules_edges", run_rules_edges, WITH_ALL},
    {"rules_conditional", run_rules_conditional, WITH_ALL},
    {"rules_memory", run_rules_memory, WITH_ALL},
    {"rules_updatable", run_rules_updatable, WITH_ALL},
    {"readonly_store", run_readonly_store, WITH_LOST},
    {"readonly_copy", run_readonly_copy, WITH_LOST},
    {"unmapped", run_unmapped, WITH_LOST},
};

static void run(const struct program *program)
{
    program_name = program->name;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        load_driver();
        program->run();
        fflush(stdout);
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    if (WIFSIGNALED(status))
        printf("%s: ended by signal %d\n", program_name, WTERMSIG(status));
    else if (WEXITSTATUS(status) == 77)
        exit(77);
}

int main(int argc, char **argv)
{
    int lost = 0, all = 0, first = 1;
    setvbuf(stdout, NULL, _IOLBF, 0); /* a program may crash */
    for (; first < argc && argv[first][0] == '-'; first++) {
        if (strcmp(argv[first], "--lost") == 0)
            lost = 1;
        else if (strcmp(argv[first], "--all") == 0)
            all = 1;
        else if (strcmp(argv[first], "--images") == 0 && first + 1 < argc)
            images = argv[++first];
        else if (strcmp(argv[first], "--fixtures") == 0 && first + 1 < argc)
            fixtures = argv[++first];
        else if (strcmp(argv[first], "--list") != 0)
            return fprintf(stderr, "usage: %s [--images FOLDER] [--fixtures FOLDER] [--lost] [--list] [PROGRAM...]\n",
                           argv[0]),
                   2;
        else
            for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
                puts(programs[i].name);
        if (strcmp(argv[first], "--list") == 0)
            return 0;
    }
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        int wanted = first == argc && (lost || programs[i].when != WITH_LOST) && (all || programs[i].when != WITH_ALL);
        for (int k = first; k < argc; k++)
            wanted |= strcmp(argv[k], programs[i].name) == 0;
        if (wanted)
            run(&programs[i]);
    }
    return 0;
}
