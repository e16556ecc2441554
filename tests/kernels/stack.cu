/*
 * stack.cu: kernels of tests/apps/stack, a synthetic decoder in integer arithmetic.
 *
 * Each output word mixes the activation with words sampled from the weights, one of every STACK_BLOCK_WORDS, at places
 * that the activation decides. So the last activation depends on every part of every weight, on the order of the
 * launches, and on nothing else; it is exact on every machine. A launch declares the whole weight as read.
 *
 * The variants differ only in how the weight's address reaches the kernel.
 */
#include "portable.h"
#include "stack_kernels.h"

DEVICE_FUNCTION uint32_t rotate(uint32_t value, uint32_t bits)
{
    return (value << (bits & 31u)) | (value >> (-bits & 31u));
}

/* Outputs that one index computes: on the host several, so that all do not wait for memory when one does. */
enum { STACK_TOGETHER = TOGETHER(16) };

/* state[c] takes part `first` + c of the weight, and every `stride`th from there on. */
DEVICE_FUNCTION void sample(const uint32_t *weight, uint64_t bytes, uint32_t *state, uint32_t count, uint64_t first,
                            uint32_t stride)
{
    const uint64_t words = bytes / 4;
    for (uint64_t row = first; row * STACK_BLOCK_WORDS < words; row += stride) {
        for (uint32_t c = 0; c < count && (STACK_TOGETHER == 1 || (row + c) * STACK_BLOCK_WORDS < words); c++) {
            const uint64_t at = (row + c) * STACK_BLOCK_WORDS;
            const uint64_t left = words - at;
            const uint32_t choice = (state[c] * 0x9E3779B1u) >> 26;
            const uint64_t place = left >= STACK_BLOCK_WORDS ? choice : choice % left;
            state[c] = rotate(state[c], 7u) + weight[at + place] * 0x85EBCA6Bu;
        }
    }
}

#define GROUPS(width) (((uint64_t)(width) + STACK_TOGETHER - 1) / STACK_TOGETHER)

DEVICE_FUNCTION uint32_t group_size(uint64_t group, uint32_t width)
{
    const uint64_t left = width - group * STACK_TOGETHER;
    return STACK_TOGETHER == 1 || left >= STACK_TOGETHER ? STACK_TOGETHER : (uint32_t)left;
}

/* One group of y, from s->count weights whose addresses stand in `weight`. */
DEVICE_FUNCTION void layer(const uint32_t *const *weight, const struct stack_shape *s, const uint32_t *x, uint32_t *y,
                           uint64_t group)
{
    const uint32_t width = s->width, count = group_size(group, width);
    const uint64_t first = group * STACK_TOGETHER;
    uint32_t state[STACK_TOGETHER];
    for (uint32_t c = 0; c < count; c++) {
        const uint64_t i = first + c;
        state[c] = x[i] ^ rotate(x[i + 1 < width ? i + 1 : 0], 11u) ^ (s->salt + (uint32_t)i * 0xC2B2AE35u);
    }
    for (uint32_t k = 0; k < s->count && k < STACK_FUSED; k++) {
        for (uint32_t c = 0; c < count; c++) {
            state[c] += k;
        }
        sample(weight[k], s->bytes[k], state, count, first, width);
    }
    for (uint32_t c = 0; c < count; c++) {
        y[first + c] = state[c] * 0x27D4EB2Fu ^ (state[c] >> 15);
    }
}

/* What every variant touches besides its own parameters. */
#define READS_WEIGHT(address, k)                                                                                       \
    READS(address, s.bytes[k])                                                                                         \
    READS_ANY((uintptr_t)(address) + s.bytes[k], s.over_bytes)
#define LAYER_ACTIVATIONS                                                                                              \
    READS(x, 4 * (uint64_t)s.width)                                                                                    \
    WRITES(y, 4 * (uint64_t)s.width)                                                                                   \
    OPS(s.operations)

KERNEL4(stack_one, const uint32_t *, w, const uint32_t *, x, uint32_t *, y, struct stack_shape, s,
        READS_WEIGHT(w, 0) LAYER_ACTIVATIONS)
{
    const uint32_t *const weight[STACK_FUSED] = {w, 0, 0, 0};
    FOR_EACH(group, GROUPS(s.width)) {
        layer(weight, &s, x, y, group);
    }
    busy_for(s.busy_ns);
}

KERNEL7(stack_fused, const uint32_t *, w0, const uint32_t *, w1, const uint32_t *, w2, const uint32_t *, w3,
        const uint32_t *, x, uint32_t *, y, struct stack_shape, s,
        const uint32_t *const weight[STACK_FUSED] = {w0, w1, w2, w3};
        for (uint32_t k = 0; k < s.count; k++) { READS_WEIGHT(weight[k], k) }
        LAYER_ACTIVATIONS)
{
    const uint32_t *const weight[STACK_FUSED] = {w0, w1, w2, w3};
    FOR_EACH(group, GROUPS(s.width)) {
        layer(weight, &s, x, y, group);
    }
    busy_for(s.busy_ns);
}

KERNEL3(stack_struct, struct stack_bundle, b, const uint32_t *, x, uint32_t *, y,
        const struct stack_shape s = b.shape;
        for (uint32_t k = 0; k < s.count; k++) { READS_WEIGHT(b.weight[k], k) }
        LAYER_ACTIVATIONS)
{
    FOR_EACH(group, GROUPS(b.shape.width)) {
        layer(b.weight, &b.shape, x, y, group);
    }
    busy_for(b.shape.busy_ns);
}

/* The addresses stand in device memory: uploaded by the program, or written there by stack_point. */
KERNEL4(stack_table, const uint32_t *const *, table, const uint32_t *, x, uint32_t *, y, struct stack_shape, s,
        READS(table, 8 * (uint64_t)s.count)
        for (uint32_t k = 0; k < s.count; k++) { READS_WEIGHT(table[k], k) }
        LAYER_ACTIVATIONS)
{
    FOR_EACH(group, GROUPS(s.width)) {
        layer(table, &s, x, y, group);
    }
    busy_for(s.busy_ns);
}

KERNEL6(stack_point, const uint32_t *, w0, const uint32_t *, w1, const uint32_t *, w2, const uint32_t *, w3,
        const uint32_t **, table, uint32_t, count,
        WRITES(table, 8 * (uint64_t)count))
{
    const uint32_t *const weight[STACK_FUSED] = {w0, w1, w2, w3};
    FOR_EACH(i, count) {
        table[i] = weight[i];
    }
}

KERNEL4(stack_descriptor, struct stack_descriptor, d, const uint32_t *, x, uint32_t *, y, struct stack_shape, s,
        READS_WEIGHT(d.address, 0) LAYER_ACTIVATIONS)
{
    const uint32_t *const weight[STACK_FUSED] = {(const uint32_t *)(uintptr_t)d.address, 0, 0, 0};
    FOR_EACH(group, GROUPS(s.width)) {
        layer(weight, &s, x, y, group);
    }
    busy_for(s.busy_ns);
}

KERNEL4(stack_descriptor_stored, const struct stack_descriptor *, d, const uint32_t *, x, uint32_t *, y,
        struct stack_shape, s,
        READS(d, sizeof *d) READS_WEIGHT(d->address, 0) LAYER_ACTIVATIONS)
{
    const uint32_t *const weight[STACK_FUSED] = {(const uint32_t *)(uintptr_t)d->address, 0, 0, 0};
    FOR_EACH(group, GROUPS(s.width)) {
        layer(weight, &s, x, y, group);
    }
    busy_for(s.busy_ns);
}

/* y[i] += the rows of a large table that `ids` names: few of its rows are read. */
KERNEL7(stack_embed, const uint32_t *, table, uint64_t, row_words, const uint32_t *, ids, uint32_t, id_count,
        const uint32_t *, x, uint32_t *, y, uint32_t, width,
        READS(ids, 4 * (uint64_t)id_count)
        for (uint32_t k = 0; k < id_count; k++) { READS(table + ids[k] * row_words, 4 * row_words) }
        READS(x, 4 * (uint64_t)width) WRITES(y, 4 * (uint64_t)width))
{
    FOR_EACH(i, width) {
        uint32_t sum = x[i];
        for (uint32_t k = 0; k < id_count; k++) {
            sum = rotate(sum, 5u) + table[ids[k] * row_words + i % row_words];
        }
        y[i] = sum;
    }
}

/* Experts stacked in one allocation, reached through its base only; those chosen, s.bytes[0] each, are read whole. */
KERNEL6(stack_experts, const uint32_t *, base, const uint32_t *, chosen, uint32_t, chosen_count,
        const uint32_t *, x, uint32_t *, y, struct stack_shape, s,
        READS(chosen, 4 * (uint64_t)chosen_count)
        for (uint32_t k = 0; k < chosen_count; k++) { READS(base + chosen[k] * (s.bytes[0] / 4), s.bytes[0]) }
        LAYER_ACTIVATIONS)
{
    FOR_EACH(group, GROUPS(s.width)) {
        const uint32_t count = group_size(group, s.width);
        uint32_t state[STACK_TOGETHER];
        for (uint32_t c = 0; c < count; c++) {
            state[c] = x[group * STACK_TOGETHER + c] ^ s.salt;
        }
        for (uint32_t k = 0; k < chosen_count; k++) {
            sample(base + chosen[k] * (s.bytes[0] / 4), s.bytes[0], state, count, group * STACK_TOGETHER, s.width);
        }
        for (uint32_t c = 0; c < count; c++) {
            y[group * STACK_TOGETHER + c] = state[c];
        }
    }
    busy_for(s.busy_ns);
}

/* Changes a weight in place: a merge, a shuffle, a cast. */
KERNEL3(stack_update, uint32_t *, w, uint64_t, words, uint32_t, salt,
        READS(w, 4 * words) WRITES(w, 4 * words))
{
    FOR_EACH(i, words) {
        w[i] = w[i] * 5u + salt;
    }
}

/* Scratch that takes a freed weight's place. */
KERNEL4(stack_scratch, const uint32_t *, x, uint32_t, width, uint32_t *, scratch, uint64_t, words,
        READS(x, 4 * (uint64_t)width) WRITES(scratch, 4 * words))
{
    FOR_EACH(i, words) {
        scratch[i] = x[i % width] + (uint32_t)i;
    }
}

/* The cache of a decoder: each pass appends a row, each layer mixes all rows so far into the activation. */
KERNEL4(stack_append, const uint32_t *, x, uint32_t *, cache, uint32_t, width, uint32_t, row,
        READS(x, 4 * (uint64_t)width) WRITES(cache + (uint64_t)row * width, 4 * (uint64_t)width))
{
    FOR_EACH(i, width) {
        cache[(uint64_t)row * width + i] = x[i];
    }
}

KERNEL5(stack_attend, const uint32_t *, x, const uint32_t *, cache, uint32_t *, y, uint32_t, width, uint32_t, rows,
        READS(x, 4 * (uint64_t)width) READS(cache, 4 * (uint64_t)width * rows) WRITES(y, 4 * (uint64_t)width))
{
    FOR_EACH(i, width) {
        uint32_t sum = x[i];
        for (uint32_t r = 0; r < rows; r++) {
            sum = rotate(sum, 3u) ^ cache[(uint64_t)r * width + i];
        }
        y[i] = sum;
    }
}
