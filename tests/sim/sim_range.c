/* The address map: which range an address belongs to, who may access it, and which physical bytes it means. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

static struct sim_range **ranges; /* sorted by address, disjoint */
static size_t range_count, range_room;
static struct sim_piece *pieces; /* the buffer of sim_memory_pieces() */
static size_t piece_count, piece_room;

/* Index of the first range that starts after `address`. */
static size_t range_after(uint64_t address)
{
    size_t low = 0, high = range_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges[middle]->address <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* A read a little past an allocation's end is no fault on hardware: the last page is mapped as a whole. */
static uint64_t range_span(const struct sim_range *range)
{
    return range->reserved_bytes > range->bytes ? range->reserved_bytes : range->bytes;
}

struct sim_range *sim_range_find(uint64_t address)
{
    size_t after = range_after(address);
    if (after == 0) {
        return NULL;
    }
    struct sim_range *range = ranges[after - 1];
    return address - range->address < range_span(range) ? range : NULL;
}

struct sim_range *sim_range_add(const struct sim_range *value)
{
    static uint64_t last_id;
    struct sim_range *range = malloc(sizeof *range);
    if (range_count == range_room) {
        range_room = range_room * 2 + 64;
        ranges = realloc(ranges, range_room * sizeof *ranges);
    }
    if (range == NULL || ranges == NULL) {
        sim_die("out of host memory");
    }
    *range = *value;
    range->id = ++last_id;
    size_t at = range_after(range->address);
    memmove(ranges + at + 1, ranges + at, (range_count - at) * sizeof *ranges);
    ranges[at] = range;
    range_count++;
    return range;
}

void sim_range_drop(struct sim_range *range)
{
    size_t at = range_after(range->address) - 1;
    memmove(ranges + at, ranges + at + 1, (range_count - at - 1) * sizeof *ranges);
    range_count--;
    free(range);
}

struct sim_range *sim_range_next(uint64_t address)
{
    size_t after = range_after(address);
    return after < range_count ? ranges[after] : NULL;
}

struct sim_mapping *sim_vmm_find(const struct sim_range *range, uint64_t address)
{
    return range->map[(address - range->address) >> SIM_PAGE_SHIFT];
}

/* A copy between contexts is done by both devices, each on its own side (sim_memcpy.c, copy_peer). */
static int copies_for_peers(const struct sim_device *device)
{
    for (const struct sim_context *c = device->contexts; c != NULL; c = c->next_of_device) {
        if (c->peers == ~(uint64_t)0) {
            return 1;
        }
    }
    return 0;
}

static unsigned char access_of(const struct sim_mapping *mapping, const struct sim_device *device)
{
    unsigned char access = mapping->access[device->ordinal];
    for (size_t d = 0; d < sizeof mapping->access && copies_for_peers(device); d++) {
        access = mapping->access[d] > access ? mapping->access[d] : access;
    }
    return access;
}

static enum sim_access_state mapped_check(const struct sim_range *range, uint64_t address, uint64_t bytes, int writes,
                                          const struct sim_device *device)
{
    uint64_t end = address + bytes;
    if (end > range->address + range->bytes) {
        return SIM_ACCESS_UNMAPPED;
    }
    while (address < end) {
        const struct sim_mapping *mapping = sim_vmm_find(range, address);
        if (mapping == NULL) {
            return SIM_ACCESS_UNMAPPED;
        }
        unsigned char access = access_of(mapping, device);
        if (access == CU_MEM_ACCESS_FLAGS_PROT_NONE || (writes && access != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)) {
            return SIM_ACCESS_DENIED;
        }
        address = mapping->address + mapping->bytes;
    }
    return SIM_ACCESS_OK;
}

static int device_reaches(const struct sim_device *device, const struct sim_device *owner)
{
    if (device == owner) {
        return 1;
    }
    for (const struct sim_context *c = device->contexts; c != NULL; c = c->next_of_device) {
        if (c->peers & (uint64_t)1 << owner->ordinal) {
            return 1;
        }
    }
    return 0;
}

enum sim_access_state sim_memory_check(uint64_t address, uint64_t bytes, int writes, const struct sim_device *device)
{
    struct sim_range *range = sim_range_find(address);
    if (bytes == 0) {
        return SIM_ACCESS_OK;
    }
    if (range == NULL) {
        return SIM_ACCESS_UNKNOWN;
    }
    if (range->freed) {
        return SIM_ACCESS_UNMAPPED;
    }
    if (range->kind == SIM_RANGE_RESERVED) {
        return mapped_check(range, address, bytes, writes, device);
    }
    /* Small allocations share a 2 MiB page with their neighbours. */
    uint64_t end =
        range->block != NULL ? (range->address | (SIM_PAGE_BYTES - 1)) + 1 : range->address + range_span(range);
    if (bytes > end - address) {
        return SIM_ACCESS_UNMAPPED;
    }
    if (range->kind == SIM_RANGE_DEVICE && !device_reaches(device, range->device)) {
        return range->pool != NULL && sim_mempool_reaches(range->pool, device) ? SIM_ACCESS_OK : SIM_ACCESS_DENIED;
    }
    return SIM_ACCESS_OK;
}

static void piece_add(unsigned pool, uint64_t offset, uint64_t bytes, struct sim_mapping *mapping)
{
    if (piece_count == piece_room) {
        piece_room = piece_room * 2 + 64;
        pieces = realloc(pieces, piece_room * sizeof *pieces);
        if (pieces == NULL) {
            sim_die("out of host memory");
        }
    }
    pieces[piece_count++] = (struct sim_piece){pool, offset, bytes, mapping};
}

static void backing_pieces(const struct sim_backing *backing, uint64_t offset, uint64_t bytes,
                           struct sim_mapping *mapping)
{
    while (bytes > 0) {
        struct sim_extent extent = sim_backing_extent(backing, offset);
        uint64_t part = bytes < extent.bytes ? bytes : extent.bytes;
        piece_add(backing->pool, extent.offset, part, mapping);
        offset += part;
        bytes -= part;
    }
}

size_t sim_memory_pieces(uint64_t address, uint64_t bytes, const struct sim_piece **out)
{
    const struct sim_range *range = sim_range_find(address);
    piece_count = 0;
    if (range == NULL || bytes == 0) {
        *out = pieces;
        return 0;
    }
    if (range->kind == SIM_RANGE_RESERVED) {
        while (bytes > 0) {
            struct sim_mapping *mapping = sim_vmm_find(range, address);
            uint64_t offset = address - mapping->address;
            uint64_t part = bytes < mapping->bytes - offset ? bytes : mapping->bytes - offset;
            backing_pieces(sim_vmm_backing(mapping), offset, part, mapping);
            address += part;
            bytes -= part;
        }
    } else if (range->backing != NULL) {
        backing_pieces(range->backing, range->backing_offset + (address - range->address), bytes, NULL);
    } else {
        piece_add(SIM_POOL_HOST, address, bytes, NULL);
    }
    *out = pieces;
    return piece_count;
}
