/* Proves (libfaketime#130: malloc calls dlsym calls malloc): our dlsym never allocates, neither on hits nor on misses.
 * The program counts its own allocations. */
#include "interpose.h"

static _Thread_local int allocations;
extern void *__libc_malloc(size_t bytes);
void *malloc(size_t bytes)
{
    allocations++;
    return __libc_malloc(bytes);
}

static void allocates_nothing(void)
{
    void *driver = load_driver();
    CHECK(is_wrapper(dlsym(driver, "cuMemFree_v2"))); /* the engine starts */
    allocations = 0;
    CHECK(is_wrapper(dlsym(driver, "cuMemAlloc_v2")));
    CHECK(is_wrapper(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2")));
    CHECK(is_wrapper(dlsym(RTLD_NEXT, "cuMemAlloc_v2")));
    CHECK(is_driver(dlsym(driver, "cuInit")));
    CHECK(dlsym(RTLD_DEFAULT, "strlen") != NULL);
    CHECK(allocations == 0);
}

TEST_CASES(CASE(allocates_nothing))
