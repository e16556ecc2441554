#include "stack_vmm.h"

#include <stdlib.h>
#include <string.h>

void stack_space_open(struct stack_space *space, uint64_t reserved_bytes, uint64_t piece_bytes)
{
    *space = (struct stack_space){.reserved_bytes = reserved_bytes, .piece_bytes = piece_bytes};
    GPU(cuMemAddressReserve, &space->base, reserved_bytes, 0, 0, 0);
}

static CUmemLocation here(void)
{
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    GPU(cuCtxGetDevice, &location.id);
    return location;
}

static void add_piece(struct stack_space *space, const char *what)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here()};
    CUmemGenericAllocationHandle handle;
    if (space->mapped_bytes + space->piece_bytes > space->reserved_bytes) {
        gpu_die("no addresses are left for %s", what);
    }
    GPU(cuMemCreate, &handle, space->piece_bytes, &prop, 0);
    GPU(cuMemMap, space->base + space->mapped_bytes, space->piece_bytes, 0, handle, 0);
    space->handle = realloc(space->handle, (space->pieces + 1) * sizeof *space->handle);
    if (!space->handle) {
        gpu_die("out of host memory");
    }
    space->handle[space->pieces++] = handle;
    space->mapped_bytes += space->piece_bytes;
}

uint64_t stack_space_grow(struct stack_space *space, uint64_t bytes, const char *what)
{
    const uint64_t before = space->mapped_bytes;
    while (space->mapped_bytes - before < bytes) {
        add_piece(space, what);
    }
    const CUmemAccessDesc access = {.location = here(), .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    GPU(cuMemSetAccess, space->base + before, space->mapped_bytes - before, &access, 1);
    return space->mapped_bytes - before;
}

uint64_t stack_space_shrink(struct stack_space *space, uint64_t bytes)
{
    const uint64_t pieces = bytes / space->piece_bytes, gone = pieces * space->piece_bytes;
    if (gone == 0) {
        return 0;
    }
    space->mapped_bytes -= gone;
    GPU(cuMemUnmap, space->base + space->mapped_bytes, gone);
    for (uint64_t i = 0; i < pieces; i++) {
        GPU(cuMemRelease, space->handle[--space->pieces]);
    }
    return gone;
}

void stack_space_close(struct stack_space *space)
{
    stack_space_shrink(space, space->mapped_bytes);
    GPU(cuMemAddressFree, space->base, space->reserved_bytes);
    free(space->handle);
    *space = (struct stack_space){0};
}
