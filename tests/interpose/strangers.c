/* A library whose names look like the driver's. Each function says which one it is. */
#define STRANGER(name, answer) \
    int name(void);            \
    int name(void)             \
    {                          \
        return answer;         \
    }
STRANGER(cudnnCreate, 1)
STRANGER(cublasCreate_v2, 2)
STRANGER(curl_easy_init, 3)
STRANGER(cuda_like, 4)
STRANGER(cu, 5)
STRANGER(cuMemAlloc_v2, 99)
