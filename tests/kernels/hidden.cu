/*
 * hidden.cu: kernels that reach memory which their parameters do not name.
 */
#include "portable.h"

/* A table of the module's own: written and read by name. */
GLOBAL_TABLE(uint64_t, hidden_slots, 64);

/* out[i] = table[slot][i] */
KERNEL4(hidden_read_entry, const uint32_t *const *, table, uint64_t, slot, uint32_t *, out, uint64_t, words,
        READS(table + slot, 8) READS(table[slot], 4 * words) WRITES(out, 4 * words))
{
    FOR_EACH(i, words) {
        out[i] = table[slot][i];
    }
}

/* The kernel's only output is the module's own table. */
KERNEL2(hidden_store, const void *, address, uint64_t, slot, WRITES(hidden_slots + slot, 8))
{
    FOR_EACH(i, 1) {
        hidden_slots[slot + i] = (uint64_t)(uintptr_t)address;
    }
}

KERNEL3(hidden_load, uint64_t, slot, uint32_t *, out, uint64_t, words,
        READS(hidden_slots + slot, 8) READS((const uint32_t *)(uintptr_t)hidden_slots[slot], 4 * words)
        WRITES(out, 4 * words))
{
    FOR_EACH(i, words) {
        out[i] = ((const uint32_t *)(uintptr_t)hidden_slots[slot])[i];
    }
}

/* A descriptor as the driver encodes one: the address first, then what else there is. */
struct hidden_map {
    const uint32_t *address;
    uint64_t rest[15];
};

KERNEL3(hidden_read_map, struct hidden_map, map, uint32_t *, out, uint64_t, words,
        READS(map.address, 4 * words) WRITES(out, 4 * words))
{
    FOR_EACH(i, words) {
        out[i] = map.address[i];
    }
}

KERNEL3(hidden_read_stored_map, const struct hidden_map *, map, uint32_t *, out, uint64_t, words,
        READS(map, sizeof *map) READS(map->address, 4 * words) WRITES(out, 4 * words))
{
    FOR_EACH(i, words) {
        out[i] = map->address[i];
    }
}

/* The same of a driver that writes the complement (SIM_MAPS). */
KERNEL3(hidden_read_opaque_map, struct hidden_map, map, uint32_t *, out, uint64_t, words,
        READS(~(uintptr_t)map.address, 4 * words) WRITES(out, 4 * words))
{
    FOR_EACH(i, words) {
        out[i] = ((const uint32_t *)~(uintptr_t)map.address)[i];
    }
}
