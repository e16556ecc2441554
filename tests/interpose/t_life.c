/* Proves: the engine starts once, whoever comes first; nested and self calls of the driver pass through; forks, execs,
 * threads and exits end well (nvshare#27, HAMi-core#326, XSched#5, torch_memory_saver#56, UCX#11275). */
#include "interpose.h"
#include "rows.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

static CUdeviceptr address;

extern CUresult init(unsigned flags) __asm__("cuInit");

/* The driver resolves its own cuInit while it is in it. */
static void self_lookup(void)
{
    CHECK(init(0) == CUDA_SUCCESS);
    CHECK(recorded("driver cuInit") == 1);
    CHECK(recorded("self cuInit=1 cuLaunchKernel=1") == 2);
    CHECK(recorded("driver cuMemAlloc_v2") == 1);
}

/* A driver function that calls public functions: the engine hears of the outer call only. */
static void nested(void)
{
    static const char payload[4];
    CHECK(elf_cuMemcpyHtoD_v2(0x700000000000, payload, 4) == CUDA_SUCCESS);
    CHECK(recorded("copy_begin") == 1 && recorded("copy_end") == 1 && recorded("quiet_point") == 0);
    CHECK(recorded("driver cuMemcpyHtoDAsync_v2") == 1 && recorded("driver cuStreamSynchronize") == 1);
}

/* The driver uses itself while it is being loaded; the program's first call comes later. */
static void driver_constructor(void)
{
    CHECK(recorded("constructor result=0") == 1);
    CHECK(elf_cuMemAlloc_v2(&address, 7) == CUDA_SUCCESS);
    CHECK(recorded("attach") == 1 && recorded("mem_alloc bytes=7") == 1);
}

static pthread_barrier_t together;

static void *first_call(void *which)
{
    const size_t number = (size_t)which;
    pthread_barrier_wait(&together);
    if (number % 2) {
        CHECK(is_wrapper(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2")));
    }
    CUdeviceptr mine;
    CHECK(elf_cuMemAlloc_v2(&mine, number) == CUDA_SUCCESS);
    return NULL;
}

/* Eight threads begin at once, and starting the engine takes a while: nobody slips through before it has started. */
static void concurrent_start(void)
{
    pthread_t thread[8];
    pthread_barrier_init(&together, NULL, 8);
    for (size_t i = 0; i < 8; i++) {
        CHECK(pthread_create(&thread[i], NULL, first_call, (void *)i) == 0);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(thread[i], NULL);
    }
    CHECK(recorded("attach") == 1 && recorded("mem_alloc") == 8 && recorded("driver cuMemAlloc_v2") == 8);
}

static void *load_plugin(void *unused)
{
    (void)unused;
    pthread_barrier_wait(&together);
    usleep(20000);
    CHECK(dlopen("libplugin.so", RTLD_NOW) != NULL);
    return NULL;
}

/* One thread is in the linker, in a constructor that uses CUDA; another is starting the engine, and needs the linker.
 */
static void plugin_while_starting(void)
{
    pthread_t thread[2];
    pthread_barrier_init(&together, NULL, 2);
    CHECK(pthread_create(&thread[0], NULL, load_plugin, NULL) == 0);
    CHECK(pthread_create(&thread[1], NULL, first_call, (void *)1) == 0);
    pthread_join(thread[0], NULL);
    pthread_join(thread[1], NULL);
    CHECK(recorded("attach") == 1 && recorded("mem_alloc bytes=1") == 1);
    CHECK(recorded("mem_alloc bytes=4711") == 1 && recorded("plugin") == 1);
}

static void *plugin_at_once(void *unused)
{
    (void)unused;
    pthread_barrier_wait(&together);
    CHECK(dlopen("libplugin.so", RTLD_NOW) != NULL);
    return NULL;
}

static void *late_call(void *unused)
{
    (void)unused;
    pthread_barrier_wait(&together);
    usleep(10000);
    CUdeviceptr mine;
    CHECK(elf_cuMemAlloc_v2(&mine, 1) == CUDA_SUCCESS);
    return NULL;
}

/* The same, the other way round: the starting thread waits for the linker first. */
static void starting_while_plugin(void)
{
    pthread_t thread[2];
    pthread_barrier_init(&together, NULL, 2);
    CHECK(pthread_create(&thread[0], NULL, plugin_at_once, NULL) == 0);
    CHECK(pthread_create(&thread[1], NULL, late_call, NULL) == 0);
    pthread_join(thread[0], NULL);
    pthread_join(thread[1], NULL);
    CHECK(recorded("attach") == 1 && recorded("mem_alloc bytes=1") == 1);
    CHECK(recorded("mem_alloc bytes=4711") == 1 && recorded("plugin") == 1);
}

static int wait_for(pid_t child)
{
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return status;
}

/* The parent uses CUDA already: its children pass through. */
static void fork_after_start(void)
{
    CHECK(elf_cuMemAlloc_v2(&address, 1) == CUDA_SUCCESS);
    record_forget();
    const pid_t child = fork();
    if (child == 0) {
        CUdeviceptr mine;
        _exit(elf_cuMemAlloc_v2(&mine, 2) != CUDA_SUCCESS);
    }
    CHECK(wait_for(child) == 0);
    EXPECT("forked", "driver cuMemAlloc_v2");
    CHECK(elf_cuMemAlloc_v2(&address, 3) == CUDA_SUCCESS);
    EXPECT("mem_alloc bytes=3", "driver cuMemAlloc_v2");
}

/* The parent has not used CUDA (a server that forks workers): the child has an engine of its own. */
static void fork_before_start(void)
{
    const pid_t child = fork();
    if (child == 0) {
        CUdeviceptr mine;
        _exit(elf_cuMemAlloc_v2(&mine, 2) != CUDA_SUCCESS);
    }
    CHECK(wait_for(child) == 0);
    EXPECT("attach missing=none inside=1", "mem_alloc bytes=2", "driver cuMemAlloc_v2");
}

static void *slow_start(void *unused)
{
    (void)unused;
    elf_cuMemAlloc_v2(&address, 1);
    return NULL;
}

/* A fork while another thread is starting the engine: the child must not wait for a thread it does not have. */
static void fork_while_starting(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, slow_start, NULL) == 0);
    while (recorded("attach") == 0) {
        usleep(1000);
    }
    const pid_t child = fork();
    if (child == 0) {
        CUdeviceptr mine;
        alarm(20);
        _exit(elf_cuMemAlloc_v2(&mine, 2) != CUDA_SUCCESS);
    }
    CHECK(wait_for(child) == 0);
    pthread_join(thread, NULL);
    CHECK(recorded("attach") == 1 && recorded("mem_alloc bytes=2") == 0 && recorded("mem_alloc bytes=1") == 1);
}

/* The library is loaded once per process, whatever the environment went through. */
static void exec_self(void)
{
    if (getenv("SECOND_TIME") == NULL) {
        CHECK(elf_cuMemAlloc_v2(&address, 1) == CUDA_SUCCESS);
        setenv("SECOND_TIME", "1", 1);
        execl("/proc/self/exe", "t_life", "exec_self", (char *)NULL);
        CHECK(getenv("SECOND_TIME") == NULL); /* exec failed */
    }
    CHECK(elf_cuMemAlloc_v2(&address, 2) == CUDA_SUCCESS);
    CHECK(recorded("attach") == 2 && recorded("mem_alloc bytes=1") == 1 && recorded("mem_alloc bytes=2") == 1);
    CHECK(recorded("driver cuMemAlloc_v2") == 2);
}

/* A child that uses no CUDA: nothing is started, one line at its end. */
static void child_without_cuda(void)
{
    CHECK(elf_cuMemAlloc_v2(&address, 1) == CUDA_SUCCESS);
    record_forget();
    CHECK(system("/bin/true") == 0);
    CHECK(recorded("attach") == 0 && recorded("driver") == 0);
}

static void exit_from(void *(*how)(void *))
{
    const pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        elf_cuMemAlloc_v2(&address, 1);
        pthread_create(&thread, NULL, how, NULL);
        pthread_join(thread, NULL);
        exit(3);
    }
    const int status = wait_for(child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    CHECK(recorded("exit inside=0") == 1);
}

static void *just_return(void *unused)
{
    return unused;
}
static void *exit_here(void *unused)
{
    (void)unused;
    exit(3);
}

static void exit_main(void)
{
    exit_from(just_return);
}
static void exit_thread(void)
{
    exit_from(exit_here);
}

static void on_signal(int number)
{
    (void)number;
    exit(3);
}
static void *raise_here(void *unused)
{
    (void)unused;
    signal(SIGTERM, on_signal);
    raise(SIGTERM);
    return NULL;
}
static void exit_signal(void)
{
    exit_from(raise_here);
}

/* Two copies of the library in one process: one engine. */
static void two_copies(void)
{
    CHECK(elf_cuMemAlloc_v2(&address, 1) == CUDA_SUCCESS);
    void *driver = load_driver();
    CUresult (*alloc)(CUdeviceptr *, size_t) = (CUresult(*)(CUdeviceptr *, size_t))dlsym(driver, "cuMemAlloc_v2");
    CHECK(alloc == elf_cuMemAlloc_v2 && alloc(&address, 2) == CUDA_SUCCESS);
    EXPECT("attach missing=none inside=1", "mem_alloc bytes=1", "driver cuMemAlloc_v2", "mem_alloc bytes=2",
           "driver cuMemAlloc_v2");
}

TEST_CASES(CASE(self_lookup), CASE(nested), CASE(driver_constructor), CASE(concurrent_start),
           CASE(plugin_while_starting), CASE(starting_while_plugin), CASE(fork_after_start), CASE(fork_before_start),
           CASE(fork_while_starting), CASE(exec_self), CASE(child_without_cuda), CASE(exit_main), CASE(exit_thread),
           CASE(exit_signal), CASE(two_copies))
