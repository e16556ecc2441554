/* Proves: dlsym answers wrappers for the driver's functions and for nothing else, whoever asks, however often, and
 * leaves no error behind. The program is not linked against the driver. */
#include "interpose.h"

#include <pthread.h>

/* HAMi-core#215: names of other libraries begin with cu, too. The functions return who they are. */
static void foreign_names(void)
{
    load_driver();
    void *strangers = dlopen("libstrangers.so", RTLD_NOW);
    CHECK(strangers != NULL);
    static const char *const names[] = {"cudnnCreate", "cublasCreate_v2", "curl_easy_init", "cuda_like", "cu"};
    for (int i = 0; i < 5; i++) {
        int (*function)(void) = (int (*)(void))dlsym(strangers, names[i]);
        CHECK(function != NULL && function() == i + 1);
        CHECK(!is_wrapper((void *)function));
    }
}

/* A name of ours that another library defines for itself stays that library's. */
static void same_name_elsewhere(void)
{
    load_driver();
    void *strangers = dlopen("libstrangers.so", RTLD_NOW | RTLD_LOCAL);
    int (*function)(void) = (int (*)(void))dlsym(strangers, "cuMemAlloc_v2");
    CHECK(function != NULL && function() == 99);
}

/* MangoHud#1701 */
static void no_error_after_hit(void)
{
    void *driver = load_driver();
    dlerror();
    CHECK(is_wrapper(dlsym(driver, "cuMemAlloc_v2")));
    CHECK(dlerror() == NULL);
    CHECK(is_wrapper(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2")));
    CHECK(dlerror() == NULL);
    CHECK(is_wrapper(dlsym(RTLD_NEXT, "cuMemAlloc_v2")));
    CHECK(dlerror() == NULL);
}

static void error_after_miss(void)
{
    void *driver = load_driver();
    dlerror();
    CHECK(dlsym(driver, "cuNoSuchThing") == NULL);
    const char *error = dlerror();
    CHECK(error != NULL && strstr(error, "cuNoSuchThing") != NULL);
    CHECK(dlsym(driver, "no_such_thing") == NULL);
    error = dlerror();
    CHECK(error != NULL && strstr(error, "no_such_thing") != NULL);
    /* Only names of rows are ours: v1 names, names with a newer suffix, prefixes of names. */
    CHECK(is_driver(dlsym(driver, "cuMemAlloc")));
    CHECK(dlsym(driver, "cuMemAlloc_v3") == NULL && dlsym(driver, "cuMemAll") == NULL);
    CHECK(dlsym(driver, "") == NULL);
}

/* We export the driver's names; without a driver they must seem undefined all the same. */
static void nothing_without_driver(void)
{
    void *program = dlopen(NULL, RTLD_NOW);
    void *const handles[] = {RTLD_DEFAULT, RTLD_NEXT, program};
    for (int i = 0; i < 3; i++) {
        dlerror();
        CHECK(dlsym(handles[i], "cuMemAlloc_v2") == NULL);
        const char *error = dlerror();
        CHECK(error != NULL && strstr(error, "undefined symbol: cuMemAlloc_v2") != NULL);
    }
    CHECK(recorded("attach") == 0);
    load_driver();
    for (int i = 0; i < 3; i++) {
        CHECK(is_wrapper(dlsym(handles[i], "cuMemAlloc_v2")));
    }
}

/* Programs call a driver that is already loaded, by whatever path. */
static void driver_by_path(void)
{
    void *driver = dlopen(getenv("OTHER_DRIVER"), RTLD_NOW);
    CHECK(driver != NULL);
    CHECK(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) == NULL);
    CHECK(is_wrapper(dlsym(driver, "cuMemAlloc_v2")));
    CHECK(recorded("attach missing=none") == 1);
}

static void versioned(void)
{
    void *driver = load_driver();
    CHECK(is_wrapper(dlsym(driver, "cuMemAlloc_v2")));
    /* Neither we nor the driver give versions to symbols; one that does not exist is not found. */
    dlerror();
    CHECK(dlvsym(driver, "cuMemAlloc_v2", "NO_SUCH_VERSION") == NULL || dlerror() == NULL);
    CHECK(dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_2.14") != NULL || dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_2.17") != NULL);
    CHECK(dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_9.99") == NULL);
    CHECK(strstr(dlerror(), "GLIBC_9.99") != NULL);
}

/* RTLD_NEXT is answered from the caller's place in the search order, which only a jump into the C library gives. */
static void next_from_here(void)
{
    void *function = dlsym(RTLD_NEXT, "getppid");
    CHECK(function != NULL && strstr(object_of(function), "libc.so") != NULL);
    /* Defined by the program itself and by nobody behind it. */
    CHECK(dlsym(RTLD_NEXT, "defined_here_only") == NULL);
    CHECK(dlsym(RTLD_DEFAULT, "defined_here_only") != NULL);
}
int defined_here_only(void);
int defined_here_only(void)
{
    return 1;
}

/* HAMi-core#279, libpulp#133: many look-ups, many threads. */
static void *many_lookups(void *driver)
{
    for (int i = 0; i < 1000; i++) {
        CHECK(is_driver(dlsym(driver, "cuInit")));
        CHECK(is_wrapper(dlsym(driver, "cuLaunchKernel")));
        CHECK(is_wrapper(dlsym(RTLD_DEFAULT, "cuMemFree_v2")));
        CHECK(dlsym(driver, "cuNoSuchThing") == NULL);
        CHECK(dlsym(RTLD_DEFAULT, "strlen") != NULL);
    }
    return NULL;
}

static void threads(void)
{
    pthread_t thread[8];
    void *driver = load_driver();
    for (int i = 0; i < 8; i++) {
        CHECK(pthread_create(&thread[i], NULL, many_lookups, driver) == 0);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(thread[i], NULL);
    }
    CHECK(recorded("attach") == 1);
}

/* The engine is inert: look-ups give the driver's own functions. */
static void inert(void)
{
    void *driver = load_driver();
    CHECK(is_driver(dlsym(driver, "cuMemAlloc_v2")));
    CHECK(recorded("attach missing=none") == 1);
}

/* The program looks the function up through a handle on itself, having loaded the driver for everybody. */
static void program_handle(void)
{
    void *program = dlopen(NULL, RTLD_NOW);
    CHECK(dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) != NULL);
    CHECK(is_wrapper(dlsym(program, "cuMemAlloc_v2")));
    CHECK(is_driver(dlsym(program, "cuInit")));
}

/* The driver, while the linker loads it for the program, looks itself up and calls itself. */
static void driver_constructor(void)
{
    void *driver = load_driver();
    CHECK(recorded("constructor result=0") == 1);
    CHECK(is_wrapper(dlsym(driver, "cuMemAlloc_v2")));
    CHECK(recorded("attach missing=none") == 1);
}

TEST_CASES(CASE(foreign_names), CASE(same_name_elsewhere), CASE(no_error_after_hit), CASE(error_after_miss),
           CASE(nothing_without_driver), CASE(driver_by_path), CASE(versioned), CASE(next_from_here), CASE(threads),
           CASE(inert), CASE(program_handle), CASE(driver_constructor))
