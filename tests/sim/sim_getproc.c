/* Finding functions: cuGetProcAddress in its two forms, cuGetExportTable, the driver's version. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "sim_program.h"
#include "sim_symbols.h"

struct proc {
    const char *base;
    int version;
    const char *symbol;
    const char *twin; /* suffix of the form for the per-thread default stream */
};

#define SIM_PROC(base_, version_, symbol_, twin_) {base_, version_, symbol_, twin_},
static const struct proc procs[] = {
#include "sim_getproc.def"
};

enum { PROC_COUNT = sizeof procs / sizeof *procs, TWIN_VERSION = 7000, ORDER_SLOTS = 2048 };

static int is_missing(const char *symbol)
{
    return sim_knob_missing(symbol) || sim_own_symbol(symbol) == NULL;
}

/* The first row of a base name, by a hash of it; rows of one base name are neighbours. */
static const struct proc *first_row(const char *base)
{
    static const struct proc *slot[ORDER_SLOTS];
    static int filled;
    for (size_t i = 0; !filled && i < PROC_COUNT; i++) {
        if (i != 0 && strcmp(procs[i].base, procs[i - 1].base) == 0)
            continue;
        uint32_t hash = 5381;
        for (const char *c = procs[i].base; *c != '\0'; c++)
            hash = hash * 33 + (unsigned char)*c;
        for (hash %= ORDER_SLOTS; slot[hash] != NULL; hash = (hash + 1) % ORDER_SLOTS)
            ;
        slot[hash] = &procs[i];
    }
    filled = 1;
    uint32_t hash = 5381;
    for (const char *c = base; *c != '\0'; c++)
        hash = hash * 33 + (unsigned char)*c;
    for (hash %= ORDER_SLOTS; slot[hash] != NULL; hash = (hash + 1) % ORDER_SLOTS)
        if (strcmp(slot[hash]->base, base) == 0)
            return slot[hash];
    return NULL;
}

static CUdriverProcAddressQueryResult find(const char *base, int version, cuuint64_t flags, void **out)
{
    const struct proc *row = first_row(base), *best = NULL;
    int newer = 0;
    for (; row != NULL && row < procs + PROC_COUNT && strcmp(row->base, base) == 0; row++) {
        if (row->version > sim_knobs.driver_version || is_missing(row->symbol))
            continue;
        if (row->version <= version)
            best = row;
        else
            newer = 1;
    }
    int twin = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0 && best != NULL && best->twin[0] != '\0';
    if (best == NULL || (twin && version < TWIN_VERSION))
        return newer || best != NULL ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                     : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    *out = sim_own_symbol(best->symbol);
    if (twin) {
        char name[128] = "";
        strncat(name, best->symbol, sizeof name - 8);
        strcat(name, best->twin);
        if (!is_missing(name))
            *out = sim_own_symbol(name);
    }
    return CU_GET_PROC_ADDRESS_SUCCESS;
}

static CUresult check(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
    if (symbol == NULL || pfn == NULL || flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM || version < 0)
        return CUDA_ERROR_INVALID_VALUE;
    return version > sim_knobs.driver_version ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* The older form says by its result what the newer one says by the status alone. */
SIM_API(SIM_ANY, cuGetProcAddress, (const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags), symbol, pfn,
        cudaVersion, flags)
{
    (void)call;
    void *found = NULL;
    SIM_TRY(check(symbol, pfn, cudaVersion, flags));
    CUdriverProcAddressQueryResult status = find(symbol, cudaVersion, flags, &found);
    *pfn = found;
    return status == CU_GET_PROC_ADDRESS_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

SIM_API(SIM_ANY, cuGetProcAddress_v2,
        (const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
         CUdriverProcAddressQueryResult *symbolStatus),
        symbol, pfn, cudaVersion, flags, symbolStatus)
{
    (void)call;
    void *found = NULL;
    SIM_TRY(check(symbol, pfn, cudaVersion, flags));
    CUdriverProcAddressQueryResult status = find(symbol, cudaVersion, flags, &found);
    *pfn = found;
    if (symbolStatus != NULL)
        *symbolStatus = status;
    return CUDA_SUCCESS;
}

SIM_API(SIM_ANY, cuDriverGetVersion, (int *driverVersion), driverVersion)
{
    (void)call;
    if (driverVersion == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *driverVersion = sim_knobs.driver_version;
    return CUDA_SUCCESS;
}

/* One table of the simulator's own, so that forwarding can be tested; the first word is its size as in the real ones.
 */
static const CUuuid table_id = {{'s', 'i', 'm', ' ', 'e', 'x', 'p', 'o', 'r', 't', ' ', 't', 'a', 'b', 'l', 'e'}};
static const uintptr_t export_table[2] = {sizeof export_table, 0x73696d};

SIM_API(SIM_ANY, cuGetExportTable, (const void **ppExportTable, const CUuuid *pExportTableId), ppExportTable,
        pExportTableId)
{
    (void)call;
    if (ppExportTable == NULL || pExportTableId == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (memcmp(pExportTableId, &table_id, sizeof table_id) != 0)
        return CUDA_ERROR_NOT_FOUND;
    *ppExportTable = export_table;
    return CUDA_SUCCESS;
}

/* Some drivers look up their own entry points while they initialise; a hook that answers with itself then runs in
 * circles. */
void sim_self_lookup(void)
{
    const char *wish = getenv("SIM_SELF_LOOKUP");
    if (wish == NULL || strcmp(wish, "1") != 0)
        return;
    static const char *const names[] = {"cuInit", "cuDriverGetVersion", "cuGetProcAddress_v2", "cuDeviceGet"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (dlsym(RTLD_DEFAULT, names[i]) == NULL)
            sim_say("self look-up: %s is not visible", names[i]);
    union {
        void *pointer;
        CUresult (*get)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
        CUresult (*version)(int *);
    } function = {.pointer = dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2")};
    void *found = NULL;
    int version = 0;
    if (function.pointer == NULL ||
        function.get("cuDriverGetVersion", &found, sim_knobs.driver_version, 0, NULL) != CUDA_SUCCESS) {
        sim_say("self look-up: cuGetProcAddress_v2 failed");
        return;
    }
    function.pointer = found;
    if (function.version(&version) != CUDA_SUCCESS)
        sim_say("self look-up: cuDriverGetVersion failed");
}
