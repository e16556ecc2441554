/*
 * probe.cu: small kernels for tests that ask one question each of a driver or of the shim.
 */
#include "portable.h"
#include "probe_digest.h"

KERNEL3(probe_fill, uint32_t *, out, uint32_t, value, uint64_t, words, WRITES(out, 4 * words))
{
    FOR_EACH(i, words) {
        out[i] = value;
    }
}

/* out[i] = first + i */
KERNEL3(probe_count, uint32_t *, out, uint32_t, first, uint64_t, words, WRITES(out, 4 * words))
{
    FOR_EACH(i, words) {
        out[i] = first + (uint32_t)i;
    }
}

KERNEL3(probe_copy, const uint32_t *, in, uint32_t *, out, uint64_t, words, READS(in, 4 * words) WRITES(out, 4 * words))
{
    FOR_EACH(i, words) {
        out[i] = in[i];
    }
}

KERNEL4(probe_add, const uint32_t *, a, const uint32_t *, b, uint32_t *, out, uint64_t, words,
        READS(a, 4 * words) READS(b, 4 * words) WRITES(out, 4 * words))
{
    FOR_EACH(i, words) {
        out[i] = a[i] + b[i];
    }
}

KERNEL3(probe_increment, uint32_t *, inout, uint32_t, value, uint64_t, words,
        READS(inout, 4 * words) WRITES(inout, 4 * words))
{
    FOR_EACH(i, words) {
        inout[i] += value;
    }
}

/* out[0] = a sum over all words that depends on their order (one thread: exact, slow on a GPU; keep `words` modest). */
KERNEL3(probe_digest, const uint32_t *, in, uint32_t *, out, uint64_t, words, READS(in, 4 * words) WRITES(out, 4))
{
    FOR_EACH(i, 1) {
        out[i] = probe_digest_of(in, words);
    }
}

/* Copies after having been busy for `microseconds` (on the simulator 50,000,000 operations each: 1 us at 50 TFLOPS). */
KERNEL4(probe_slow_copy, const uint32_t *, in, uint32_t *, out, uint64_t, words, double, microseconds,
        READS(in, 4 * words) WRITES(out, 4 * words) OPS(microseconds * 5e7))
{
    busy_for(microseconds * 1e3);
    FOR_EACH(i, words) {
        out[i] = in[i];
    }
}

KERNEL1(probe_spin, double, microseconds, OPS(microseconds * 5e7))
{
    busy_for(microseconds * 1e3);
}

/* table[slot] = address: a pointer that only the device has seen. */
KERNEL3(probe_write_pointer, uint64_t *, table, const void *, address, uint64_t, slot, WRITES(table + slot, 8))
{
    FOR_EACH(i, 1) {
        table[slot + i] = (uint64_t)(uintptr_t)address;
    }
}

/* out[t * words + i] = table[t][i] */
KERNEL4(probe_read_table, const uint32_t *const *, table, uint64_t, entries, uint32_t *, out, uint64_t, words,
        READS(table, 8 * entries)
        for (uint64_t t = 0; t < entries; t++) { READS(table[t], 4 * words) }
        WRITES(out, 4 * words * entries))
{
    FOR_EACH(i, entries * words) {
        out[i] = table[i / words][i % words];
    }
}

struct probe_box {
    uint8_t kind;
    const uint32_t *in;
    uint16_t shift;
    uint32_t *out;
    uint64_t words;
};

KERNEL1(probe_struct, struct probe_box, box, READS(box.in, 4 * box.words) WRITES(box.out, 4 * box.words))
{
    FOR_EACH(i, box.words) {
        box.out[i] = box.in[i] + box.kind;
    }
}

/* Nothing but its launch. */
KERNEL2(probe_empty, uint32_t, unused, uint64_t, nothing, (void)unused; (void)nothing;)
{
    (void)unused;
    (void)nothing;
}

/* Ten parameters of every size. */
KERNEL10(probe_ten, const uint32_t *, a, const uint32_t *, b, const uint32_t *, c, const uint32_t *, d, uint32_t *, out,
         uint64_t, words, uint32_t, e, float, f, double, g, uint8_t, h,
         READS(a, 4 * words) READS(b, 4 * words) READS(c, 4 * words) READS(d, 4 * words) WRITES(out, 4 * words))
{
    FOR_EACH(i, words) {
        out[i] = (a[i] ^ b[i]) + (c[i] ^ d[i]) + e + (uint32_t)f + (uint32_t)g + h;
    }
}

/* Gather: reads only the words that `ids` names. */
KERNEL4(probe_gather, const uint32_t *, in, const uint32_t *, ids, uint32_t *, out, uint64_t, count,
        READS(ids, 4 * count)
        for (uint64_t k = 0; k < count; k++) { READS(in + ids[k], 4) }
        WRITES(out, 4 * count))
{
    FOR_EACH(i, count) {
        out[i] = in[ids[i]];
    }
}
