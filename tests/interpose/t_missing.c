/* Proves (UCX#7865): with any one function missing in the driver, a program works. A REQUIRED one: nothing is hooked at
 * all; an OPTIONAL one: everything else is. The program runs itself once per row, on a copy of the driver in which that
 * name is overwritten. Arguments: path of the driver, folder for the copies. */
#include "interpose.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define REQUIRED true
#define OPTIONAL false
static const struct {
    const char *name;
    bool hooked, required;
} rows[] = {
#define OV_HOOK(name, need, params, args) {#name, true, need},
#define OV_CALL(name, need, params)       {#name, false, need},
#include "../../shim/driver_api.def"
#undef OV_HOOK
#undef OV_CALL
};
enum { ROWS = sizeof rows / sizeof rows[0] };

static char *library;
static size_t library_bytes;

static void read_library(const char *path)
{
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL && fseek(file, 0, SEEK_END) == 0);
    library_bytes = (size_t)ftell(file);
    library = malloc(library_bytes);
    rewind(file);
    CHECK(library != NULL && fread(library, 1, library_bytes, file) == library_bytes);
    fclose(file);
}

/* Every string "name" becomes "xame": in the dynamic string table, which is what counts, and elsewhere, which is not
 * run. */
static void write_without(const char *name, const char *path)
{
    const size_t length = strlen(name) + 1;
    size_t found = 0;
    for (char *at = library; (at = memmem(at, library_bytes - (size_t)(at - library), name, length)) != NULL; at++) {
        if (at[-1] == 0) {
            *at = 'x';
            found++;
        }
    }
    CHECK(found > 0);
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL && fwrite(library, 1, library_bytes, file) == library_bytes && fclose(file) == 0);
    for (char *at = library; (at = memmem(at, library_bytes - (size_t)(at - library), name + 1, length - 1)) != NULL;
         at++) {
        if (at[-1] == 'x' && at[-2] == 0) {
            at[-1] = 'c';
        }
    }
}

/* In the child: uses what there is, by every path, and says on which side it was. */
static int use_driver(const char *missing, bool required)
{
    void *driver = load_driver();
    size_t wrappers = 0, plain = 0;
    for (size_t i = 0; i < ROWS; i++) {
        void *found = dlsym(driver, rows[i].name);
        if (strcmp(rows[i].name, missing) == 0) {
            CHECK(found == NULL);
            CHECK(dlsym(RTLD_DEFAULT, missing) == NULL);
            CHECK(strstr(dlerror(), "undefined symbol: ") != NULL);
            CHECK(dlsym(RTLD_NEXT, missing) == NULL);
        } else if (rows[i].hooked) {
            CHECK(found != NULL);
            wrappers += is_wrapper(found);
            plain += is_driver(found);
        }
    }
    CHECK(required ? wrappers == 0 && plain > 100 : wrappers > 100 && plain == 0);
    CUresult (*alloc)(CUdeviceptr *, size_t) = (CUresult(*)(CUdeviceptr *, size_t))dlsym(driver, "cuMemAlloc_v2");
    CUdeviceptr address = 0;
    CHECK(alloc == NULL || (alloc(&address, 8) == CUDA_SUCCESS && address != 0));
    CHECK(recorded(line("attach missing=%s", required ? missing : "none")) == 1);
    CHECK(recorded("mem_alloc") == (required ? 0 : 1));
    return 0;
}

static void run_without(const char *program, const char *folder, size_t row)
{
    char path[512];
    snprintf(path, sizeof path, "%s/libcuda.so.1", folder);
    write_without(rows[row].name, path);
    const pid_t child = fork();
    if (child == 0) {
        char record[512];
        snprintf(record, sizeof record, "%s/record.txt", folder);
        unlink(record);
        setenv("RECORD_FILE", record, 1);
        setenv("LD_LIBRARY_PATH", folder, 1);
        execl(program, program, "--without", rows[row].name, rows[row].required ? "1" : "0", (char *)NULL);
        _exit(127);
    }
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    if (status != 0) {
        fprintf(stderr, "without %s: status %#x\n", rows[row].name, (unsigned)status);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--without") == 0) {
        return use_driver(argv[2], argv[3][0] == '1');
    }
    CHECK(argc == 3);
    read_library(argv[1]);
    mkdir(argv[2], 0700);
    for (size_t i = 0; i < ROWS; i++) {
        run_without("/proc/self/exe", argv[2], i);
    }
    printf("%d rows\n", (int)ROWS);
    return 0;
}
