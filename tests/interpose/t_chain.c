/* Proves: with a second wrapper library before or behind us (HAMi-core#279, libpulp#133, MangoHud#1866), its RTLD_NEXT
 * finds neither itself nor nothing, every call arrives at the driver once, and the engine is told once. */
#include "interpose.h"

#include <pthread.h>

extern CUresult alloc(CUdeviceptr *address, size_t bytes) __asm__("cuMemAlloc_v2");

/* Linked call: us first, then the driver; the chain is passed over, as it is behind us. */
static void shim_first(void)
{
    CUdeviceptr address;
    CHECK(alloc(&address, 10) == CUDA_SUCCESS);
    EXPECT("attach missing=none inside=1", "mem_alloc bytes=10", "driver cuMemAlloc_v2");
}

/* The other library is asked directly: it finds us, because what it finds is the driver's function. */
static void shim_first_chain_called(void)
{
    CUresult (*chain)(CUdeviceptr *, size_t) = (CUresult(*)(CUdeviceptr *, size_t))dlsym(RTLD_DEFAULT, "chain_call");
    CUdeviceptr address;
    CHECK(chain != NULL && chain(&address, 11) == CUDA_SUCCESS);
    EXPECT("attach missing=none inside=1", "chain next=another", "mem_alloc bytes=11", "driver cuMemAlloc_v2");
}

static void shim_last(void)
{
    CUdeviceptr address;
    CHECK(alloc(&address, 12) == CUDA_SUCCESS);
    EXPECT("attach missing=none inside=1", "chain next=another", "mem_alloc bytes=12", "driver cuMemAlloc_v2");
}

static void *thousand(void *unused)
{
    (void)unused;
    for (int i = 0; i < 125; i++) {
        CUdeviceptr address;
        CHECK(alloc(&address, 13) == CUDA_SUCCESS);
    }
    return NULL;
}

static void thousand_times(void)
{
    pthread_t thread[8];
    for (int i = 0; i < 8; i++) {
        CHECK(pthread_create(&thread[i], NULL, thousand, NULL) == 0);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(thread[i], NULL);
    }
    CHECK(recorded("attach") == 1);
    CHECK(recorded("chain next=another") == 1000);
    CHECK(recorded("mem_alloc bytes=13") == 1000);
    CHECK(recorded("driver cuMemAlloc_v2") == 1000);
}

/* Another interposer of dlsym behind us: names that are none of ours reach it. */
static void other_dlsym(void)
{
    int (*answer)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "hi_there");
    CHECK(answer != NULL && answer() == 42);
    CHECK(is_wrapper(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2")));
    CHECK(dlsym(RTLD_DEFAULT, "cuNoSuchThing") == NULL);
    CUdeviceptr address;
    CHECK(alloc(&address, 14) == CUDA_SUCCESS);
    CHECK(recorded("mem_alloc bytes=14") == 1 && recorded("driver cuMemAlloc_v2") == 1);
}

TEST_CASES(CASE(shim_first), CASE(shim_first_chain_called), CASE(shim_last), CASE(thousand_times), CASE(other_dlsym))
