/*
 * Memory that is handed to another process. The other process is this program again: `t_ipc peer ROLE HANDLE...`; what
 * it should find is computed on both sides. `peer` roles answer by their exit status.
 */
#define _GNU_SOURCE
#include "ipc_peer.h"
#include "rig.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 8 };
static const size_t weight_bytes = 4 * MIB;

static struct {
    pid_t process;
    int to, from;
} child;

/* Starts a peer; without_shim: the driver alone. */
static void start(const char *role, const CUipcMemHandle *handle, size_t bytes, uint32_t digest, bool without_shim)
{
    char text[2 * sizeof *handle + 1], size[32], sum[16];
    int to[2], from[2];
    for (size_t i = 0; i < sizeof *handle; i++) {
        snprintf(text + 2 * i, 3, "%02x", (unsigned char)handle->reserved[i]);
    }
    snprintf(size, sizeof size, "%zu", bytes);
    snprintf(sum, sizeof sum, "%x", digest);
    HOLDS(pipe2(to, 0) == 0 && pipe2(from, 0) == 0);
    child.process = fork();
    if (child.process == 0) {
        dup2(to[0], STDIN_FILENO);
        dup2(from[1], STDOUT_FILENO);
        close(to[1]);
        close(from[0]);
        if (getenv("PEER_FAIL") != NULL) {
            setenv("SIM_FAIL", getenv("PEER_FAIL"), 1);
        }
        if (without_shim) {
            unsetenv("LD_PRELOAD");
        }
        execl("/proc/self/exe", "t_ipc", "peer", role, text, size, sum, (char *)NULL);
        _exit(99);
    }
    close(to[0]);
    close(from[1]);
    child.to = to[1];
    child.from = from[0];
}

static void finish(void)
{
    int status = 0;
    HOLDS(waitpid(child.process, &status, 0) == child.process);
    close(child.to);
    close(child.from);
    if (status != 0) {
        rig_fail(RIG_EXIT_SELF, "the other process failed: status %#x", (unsigned)status);
    }
}

static void run_peer(const char *role, const CUipcMemHandle *handle, size_t bytes, uint32_t digest)
{
    start(role, handle, bytes, digest, false);
    finish();
}

/* A peer reads weight `index` and changes a word in each page; this process sees that. */
static void exchange(struct rig *rig, unsigned index)
{
    struct rig_weight *weight = &rig->weight[index];
    CUipcMemHandle handle;
    OK(cuIpcGetMemHandle(&handle, weight->address));
    run_peer("reads", &handle, weight->bytes, rig_digest(weight->host, weight->bytes / 4));
    for (size_t at = 0; at < weight->bytes / 4; at += MIB / 2) {
        weight->host[at] = 0xC0FFEE;
    }
    rig_changed(weight);
    rig_pass(rig, NULL, 0);
}

static void resident(void)
{
    struct rig rig;
    rig_open_with(&rig, 2, weight_bytes);
    exchange(&rig, 1);
    exchange(&rig, 0);
    exchange(&rig, 1);
    rig_close(&rig);
}

/* While weights are in host memory, are looked for, are streamed; and a new plan comes after. */
static void at_every_stage(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    exchange(&rig, COUNT - 1);
    rig_until_streamed(&rig);
    exchange(&rig, 3);
    HOLDS(rig_logged("it stays on the GPU from now on"));
    for (int pass = 0; pass < 12; pass++) {
        rig_pass(&rig, NULL, 0);
    }
    HOLDS(rig_streamed_mib() > 0);
    exchange(&rig, COUNT - 1);
    exchange(&rig, 3);
    rig_close(&rig);
}

/* Sizes that are no multiple of anything. */
static void odd_sizes(void)
{
    static const size_t sizes[] = {MIB + 4, 2 * MIB, 2 * MIB + 4, 7 * MIB + 12, 34 * MIB};
    struct rig rig;
    rig_open(&rig, 0);
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        (void)rig_add(&rig, sizes[i]);
        exchange(&rig, i);
    }
    rig_close(&rig);
}

/* A handle names the allocation: inside it and again, it is the same. */
static void same_handle(void)
{
    struct rig rig;
    CUipcMemHandle handle[3], other;
    rig_open_with(&rig, 2, weight_bytes);
    OK(cuIpcGetMemHandle(&handle[0], rig.weight[0].address));
    OK(cuIpcGetMemHandle(&handle[1], rig.weight[0].address + 3 * MIB));
    OK(cuIpcGetMemHandle(&handle[2], rig.weight[0].address));
    OK(cuIpcGetMemHandle(&other, rig.weight[1].address));
    HOLDS(memcmp(&handle[0], &handle[1], sizeof other) == 0 && memcmp(&handle[0], &handle[2], sizeof other) == 0);
    HOLDS(memcmp(&handle[0], &other, sizeof other) != 0);
    HOLDS(cuIpcGetMemHandle(&other, rig.weight[1].address + weight_bytes) == CUDA_ERROR_INVALID_VALUE);
    rig_close(&rig);
}

/* The process that made a handle cannot open it: the driver's answer. */
static void own_process(void)
{
    struct rig rig;
    CUipcMemHandle handle;
    CUdeviceptr address = 0x1234;
    rig_open_with(&rig, 1, weight_bytes);
    OK(cuIpcGetMemHandle(&handle, rig.weight[0].address));
    HOLDS(cuIpcOpenMemHandle(&address, handle, 1) == CUDA_ERROR_INVALID_CONTEXT && address == 0x1234);
    rig_close(&rig);
}

static void with_role(const char *role)
{
    struct rig rig;
    CUipcMemHandle handle;
    rig_open_with(&rig, 2, weight_bytes);
    OK(cuIpcGetMemHandle(&handle, rig.weight[0].address));
    run_peer(role, &handle, weight_bytes, rig_digest(rig.weight[0].host, weight_bytes / 4));
    rig_pass(&rig, NULL, 0);
    rig_close(&rig);
}

static void opened_twice(void)
{
    with_role("twice");
}

static void damaged_handles(void)
{
    with_role("damages");
}

static void both_stream(void)
{
    with_role("streams");
}

static void opener_fails(void)
{
    with_role("again");
}

static void opener_resets(void)
{
    with_role("resets");
}

/* Freed memory cannot be opened, and a new allocation at its address is another one. */
static void freed(void)
{
    struct rig rig;
    CUipcMemHandle handle, again;
    rig_open_with(&rig, 2, weight_bytes);
    const CUdeviceptr address = rig.weight[0].address;
    OK(cuIpcGetMemHandle(&handle, address));
    rig_drop(&rig, 0);
    run_peer("refused", &handle, 0, 0);
    const unsigned other = rig_add(&rig, weight_bytes);
    HOLDS(rig.weight[other].address == address);
    run_peer("refused", &handle, 0, 0);
    OK(cuIpcGetMemHandle(&again, address));
    HOLDS(memcmp(&handle, &again, sizeof again) != 0);
    run_peer("refused", &handle, 0, 0);
    exchange(&rig, other);
    rig_close(&rig);
}

/* Who has opened it keeps it when the owner frees it. */
static void freed_while_open(void)
{
    struct rig rig;
    CUipcMemHandle handle;
    char byte;
    rig_open_with(&rig, 2, weight_bytes);
    OK(cuIpcGetMemHandle(&handle, rig.weight[0].address));
    start("keeps", &handle, weight_bytes, rig_digest(rig.weight[0].host, weight_bytes / 4), false);
    HOLDS(read(child.from, &byte, 1) == 1);
    rig_drop(&rig, 0);
    (void)rig_add(&rig, weight_bytes);
    HOLDS(write(child.to, "x", 1) == 1);
    finish();
    rig_pass(&rig, NULL, 0);
    rig_close(&rig);
}

/* vllm#42609: a process without overshot is refused by the driver itself, and the owner has said what to do. */
static void peer_without_shim(void)
{
    struct rig rig;
    CUipcMemHandle handle;
    rig_open_with(&rig, 1, weight_bytes);
    OK(cuIpcGetMemHandle(&handle, rig.weight[0].address));
    HOLDS(rig_logged("OVERSHOT_EXCLUDE=4194304 leaves such memory to the driver"));
    start("refused", &handle, 0, 0, true);
    finish();
    rig_close(&rig);
}

/* An owner that has ended is no reason to wait. */
static void owner_ended(void)
{
    struct rig rig;
    CUipcMemHandle handle;
    int channel[2];
    HOLDS(pipe(channel) == 0);
    const pid_t owner = fork(); /* before CUDA is in use */
    if (owner == 0) {
        rig_open_with(&rig, 1, weight_bytes);
        OK(cuIpcGetMemHandle(&handle, rig.weight[0].address));
        HOLDS(write(channel[1], &handle, sizeof handle) == (ssize_t)sizeof handle);
        raise(SIGKILL);
    }
    HOLDS(read(channel[0], &handle, sizeof handle) == (ssize_t)sizeof handle);
    HOLDS(waitpid(owner, NULL, 0) == owner);
    run_peer("refused", &handle, 0, 0);
}

/* A forked child of the owner keeps nobody waiting, and does not take the parent's socket with it. */
static void owner_forks(void)
{
    struct rig rig;
    rig_open_with(&rig, 1, weight_bytes);
    exchange(&rig, 0);
    const pid_t fork_child = fork();
    if (fork_child == 0) {
        exit(0);
    }
    HOLDS(waitpid(fork_child, NULL, 0) == fork_child);
    exchange(&rig, 0);
    rig_close(&rig);
}

/* What does not fit the budget cannot be shared: out of memory, and everything else goes on. */
static void no_room(void)
{
    struct rig rig;
    CUipcMemHandle handle;
    unsigned shared = 0;
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_until_streamed(&rig);
    CUresult result = CUDA_SUCCESS;
    while (shared < COUNT && (result = cuIpcGetMemHandle(&handle, rig.weight[shared].address)) == CUDA_SUCCESS) {
        shared++;
        rig_pass(&rig, NULL, 0);
    }
    HOLDS(result == CUDA_ERROR_OUT_OF_MEMORY && shared >= 3 && shared <= 5);
    for (int pass = 0; pass < 4; pass++) {
        rig_pass(&rig, NULL, 0);
    }
    exchange(&rig, 0);
    rig_close(&rig);
}

/* A driver call fails while memory is made one that can be shared (SIM_FAIL names which, counted from the start): right
 * bytes and an error, and the same again works. Run by failures.sh. */
static void life(void)
{
    struct rig rig;
    CUipcMemHandle handle;
    rig_open_with(&rig, COUNT, weight_bytes);
    for (int pass = 0; pass < 8; pass++) {
        rig_pass(&rig, NULL, 0);
    }
    for (unsigned i = 0; i < 3; i++) {
        OK(cuIpcGetMemHandle(&handle, rig.weight[3 * i].address));
        for (int pass = 0; pass < 3; pass++) {
            rig_pass(&rig, NULL, 0);
        }
    }
    rig_drop(&rig, 3);
    rig_pass(&rig, NULL, 0);
    rig_close(&rig);
}

/* sglang#27593: where memory cannot be exported, the program gets the driver's error, and a line says what to do. */
static void not_exportable(void)
{
    struct rig rig;
    CUipcMemHandle handle;
    int capable = 1;
    rig_open_with(&rig, COUNT, weight_bytes);
    HOLDS(cuIpcGetMemHandle(&handle, rig.weight[0].address) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(rig_logged("OVERSHOT_EXCLUDE=4194304 leaves such memory to the driver"));
    OK(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, rig.weight[0].address));
    HOLDS(capable == 0);
    rig_until_streamed(&rig);
    rig_close(&rig);
}

static unsigned sockets_in(const char *folder)
{
    unsigned count = 0;
    DIR *directory = opendir(folder);
    for (const struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        count += strncmp(entry->d_name, "ipc-", 4) == 0;
    }
    if (directory != NULL) {
        closedir(directory);
    }
    return count;
}

/* The folder is the user's alone, holds one socket for this process, and what killed processes left is swept. */
static void folder(void)
{
    struct rig rig;
    CUipcMemHandle handle;
    struct stat status;
    char runtime[] = "/tmp/overshot-test-XXXXXX", path[64];
    HOLDS(mkdtemp(runtime) != NULL && setenv("XDG_RUNTIME_DIR", runtime, 1) == 0);
    snprintf(path, sizeof path, "%s/overshot", runtime);
    owner_ended();
    HOLDS(sockets_in(path) == 1);
    rig_open_with(&rig, 1, weight_bytes);
    OK(cuIpcGetMemHandle(&handle, rig.weight[0].address));
    HOLDS(stat(path, &status) == 0 && (status.st_mode & 07777) == 0700);
    HOLDS(sockets_in(path) == 1);
    exchange(&rig, 0);
    rig_close(&rig);
}

/* A folder that others may enter is not used; the next one is. */
static void open_folder(void)
{
    struct rig rig;
    char runtime[] = "/tmp/overshot-test-XXXXXX", path[64];
    HOLDS(mkdtemp(runtime) != NULL && setenv("XDG_RUNTIME_DIR", runtime, 1) == 0);
    snprintf(path, sizeof path, "%s/overshot", runtime);
    HOLDS(mkdir(path, 0700) == 0 && chmod(path, 0755) == 0);
    rig_open_with(&rig, 1, weight_bytes);
    exchange(&rig, 0);
    HOLDS(sockets_in(path) == 0);
    rig_close(&rig);
}

/* A handle cannot be made while somebody captures, and the capture is not harmed. */
static void while_capturing(void)
{
    struct rig rig;
    CUipcMemHandle handle;
    CUgraph graph;
    rig_open_with(&rig, 2, weight_bytes);
    OK(cuIpcGetMemHandle(&handle, rig.weight[0].address));
    OK(cuStreamBeginCapture(rig.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    rig_read(&rig, 0, 0, rig.stream);
    OK(cuIpcGetMemHandle(&handle, rig.weight[0].address));
    HOLDS(cuIpcGetMemHandle(&handle, rig.weight[1].address) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    OK(cuStreamEndCapture(rig.stream, &graph));
    OK(cuGraphDestroy(graph));
    exchange(&rig, 1);
    rig_close(&rig);
}

/* The owner's context ends: what was offered ends with it. */
static void owner_resets(void)
{
    struct rig rig;
    CUipcMemHandle handle;
    rig_open_with(&rig, 1, weight_bytes);
    OK(cuIpcGetMemHandle(&handle, rig.weight[0].address));
    OK(cuDevicePrimaryCtxReset(rig.device));
    rig_forget(&rig);
    run_peer("refused", &handle, 0, 0);
    rig_open_with(&rig, 1, weight_bytes);
    exchange(&rig, 0);
    rig_close(&rig);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(resident),      CASE(at_every_stage), CASE(odd_sizes),        CASE(same_handle),
    CASE(own_process),   CASE(opened_twice),   CASE(damaged_handles),  CASE(both_stream),
    CASE(opener_resets), CASE(freed),          CASE(freed_while_open), CASE(peer_without_shim),
    CASE(owner_ended),   CASE(owner_forks),    CASE(no_room),          CASE(not_exportable),
    CASE(folder),        CASE(open_folder),    CASE(while_capturing),  CASE(owner_resets),
    CASE(opener_fails),  CASE(life),
};

int main(int argc, char **argv)
{
    if (argc > 3 && strcmp(argv[1], "peer") == 0) {
        ipc_peer(argv + 2);
        return 0;
    }
    return rig_main(argc, argv, cases, sizeof cases / sizeof cases[0]);
}
