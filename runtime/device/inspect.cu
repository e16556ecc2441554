/*
 * inspect.cu - the device's part of inspect.h, in portable form: the simulator runs the same source.
 *
 * ov_inspect_partial splits each page among OV_LANES threads, which take words in turn, so that a warp reads
 * consecutive words; ov_inspect_total adds up. Sums of well-mixed (word, place) pairs do not depend on the order of
 * addition, so no atomics are needed. The multipliers are odd constants with well-spread bits.
 */
#include "portable.h"

#define OV_LANES 512u

struct ov_partial {
    uint64_t low, high, addresses;
};

DEVICE_FUNCTION uint64_t ov_mix(uint64_t word, uint64_t place)
{
    uint64_t x = (word ^ (place * 0x9E3779B97F4A7C15ull)) * 0xD6E8FEB86659FD93ull;
    x ^= x >> 32;
    x *= 0xCA5A826395121157ull;
    return x ^ (x >> 29);
}

#define OV_TOGETHER TOGETHER(OV_LANES)

/* Threads: pages * OV_LANES. `words` is the length of the whole range, the last page may be short. */
KERNEL7(ov_inspect_partial, const uint64_t *, memory, uint64_t, words, uint64_t, page_words, struct ov_partial *, partial,
        uint64_t, arena_base, uint64_t, arena_bytes, uint8_t *, found,
        READS(memory, 8 * words) WRITES(partial, sizeof(struct ov_partial) * OV_LANES * ((words + page_words - 1) / page_words))
        WRITES(found, 262144) OPS(8 * words))
{
    uint64_t pages = (words + page_words - 1) / page_words;
    FOR_EACH(i, pages * (OV_LANES / OV_TOGETHER)) {
        uint64_t page = i / (OV_LANES / OV_TOGETHER), lane = i % (OV_LANES / OV_TOGETHER);
        uint64_t end = words - page * page_words < page_words ? words - page * page_words : page_words;
        const uint64_t *word = memory + page * page_words;
        struct ov_partial sum[OV_TOGETHER] = {{0, 0, 0}};
        for (uint64_t row = lane; row < end; row += OV_LANES) {
            for (uint64_t l = 0, k = row; l < OV_TOGETHER && (OV_TOGETHER == 1 || k < end); l++, k++) {
                uint64_t value = word[k];
                uint64_t mixed = ov_mix(value, k + 1);
                PREFETCH(word + k + OV_LANES);
                sum[l].low += mixed;
                sum[l].high += (mixed ^ 0xA0761D6478BD642Full) * (value | 1);
                if (value - arena_base < arena_bytes) {
                    sum[l].addresses += ov_mix(value, page * page_words + k + 1) | 1;
                    found[((value - arena_base) >> 21) & 262143] = 1;
                }
            }
        }
        for (uint64_t l = 0; l < OV_TOGETHER; l++) {
            partial[i * OV_TOGETHER + l] = sum[l];
        }
    }
}

KERNEL3(ov_inspect_total, const struct ov_partial *, partial, uint64_t, pages, struct ov_partial *, total,
        READS(partial, sizeof(struct ov_partial) * OV_LANES * pages) WRITES(total, sizeof(struct ov_partial) * pages))
{
    FOR_EACH(page, pages) {
        struct ov_partial sum = {0, 0, 0};
        for (uint64_t lane = 0; lane < OV_LANES; lane++) {
            sum.low += partial[page * OV_LANES + lane].low;
            sum.high += partial[page * OV_LANES + lane].high;
            sum.addresses += partial[page * OV_LANES + lane].addresses;
        }
        total[page] = sum;
    }
}
