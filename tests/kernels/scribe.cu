/*
 * scribe.cu: kernels of tests/apps/scribe, a small language model in float32, one token at a time.
 *
 * Sums are taken in LANES partial sums that are added in a fixed order, exp is a polynomial of our own, and nothing is
 * contracted: host and GPU compute the same bits, so a text is the same on every driver. Each matrix is [out][in].
 */
#include "portable.h"

enum { LANES = 16 };

enum scribe_after { SCRIBE_STORE, SCRIBE_ADD, SCRIBE_SQUARED_RELU };

DEVICE_FUNCTION float sum_lanes(float *lane)
{
    for (int half = LANES / 2; half > 0; half /= 2) {
        for (int l = 0; l < half; l++) {
            lane[l] += lane[l + half];
        }
    }
    return lane[0];
}

DEVICE_FUNCTION float dot(const float *a, const float *b, uint32_t count)
{
    float lane[LANES] = {0};
    uint32_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        for (uint32_t l = 0; l < LANES; l++) {
            lane[l] += a[i + l] * b[i + l];
        }
    }
    for (uint32_t l = 0; i + l < count; l++) {
        lane[l] += a[i + l] * b[i + l];
    }
    return sum_lanes(lane);
}

/* e^x for x <= 0 to about 2 units in the last place; 0 below -87. */
DEVICE_FUNCTION float exp_below_zero(float x)
{
    if (x < -87.0f) {
        return 0.0f;
    }
    const int32_t power = (int32_t)(x * 1.44269504f - 0.5f);
    const float n = (float)power;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691e-4f;
    p = p * r + 1.3981999e-3f;
    p = p * r + 8.3334519e-3f;
    p = p * r + 4.1665796e-2f;
    p = p * r + 1.6666665e-1f;
    p = p * r + 0.5f;
    p = p * r * r + r + 1.0f;
    const uint32_t bits = (uint32_t)(power + 127) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

/* Turns scores into probabilities; in place if the two are the same. */
DEVICE_FUNCTION void softmax(const float *score, float *probability, uint32_t count, float sharpness)
{
    float most = score[0], sum = 0.0f;
    for (uint32_t j = 1; j < count; j++) {
        most = score[j] > most ? score[j] : most;
    }
    for (uint32_t j = 0; j < count; j++) {
        probability[j] = exp_below_zero((score[j] - most) * sharpness);
        sum += probability[j];
    }
    for (uint32_t j = 0; j < count; j++) {
        probability[j] /= sum;
    }
}

/* x = the row of the table that tokens[position] names. */
KERNEL5(scribe_embed, const float *, table, const uint32_t *, tokens, uint32_t, position, float *, x, uint32_t, width,
        READS(tokens + position, 4)
        READS(table + (uint64_t)tokens[position] * width, 4 * (uint64_t)width)
        WRITES(x, 4 * (uint64_t)width))
{
    FOR_EACH(i, width) {
        x[i] = table[(uint64_t)tokens[position] * width + i];
    }
}

KERNEL5(scribe_norm, const float *, x, const float *, weight, const float *, bias, float *, y, uint32_t, width,
        READS(x, 4 * (uint64_t)width) READS(weight, 4 * (uint64_t)width) READS(bias, 4 * (uint64_t)width)
        WRITES(y, 4 * (uint64_t)width) OPS(8.0 * width))
{
    FOR_EACH(row, 1) {
        float lane[LANES] = {0};
        for (uint32_t i = 0; i < width; i++) {
            lane[i % LANES] += x[i];
        }
        const float mean = sum_lanes(lane) / (float)width;
        for (int l = 0; l < LANES; l++) {
            lane[l] = 0.0f;
        }
        for (uint32_t i = 0; i < width; i++) {
            lane[i % LANES] += (x[i] - mean) * (x[i] - mean);
        }
        const float scale = 1.0f / sqrtf(sum_lanes(lane) / (float)width + 1e-5f);
        for (uint32_t i = 0; i < width; i++) {
            y[row + i] = (x[i] - mean) * scale * weight[i] + bias[i];
        }
    }
}

/* y = weight x + bias, then what `after` says. bias may be NULL. */
KERNEL7(scribe_linear, const float *, weight, const float *, bias, const float *, x, float *, y,
        uint32_t, rows, uint32_t, columns, uint32_t, after,
        READS(weight, 4 * (uint64_t)rows * columns) READS(bias, bias ? 4 * (uint64_t)rows : 0)
        READS(x, 4 * (uint64_t)columns) READS(y, after == SCRIBE_ADD ? 4 * (uint64_t)rows : 0)
        WRITES(y, 4 * (uint64_t)rows) OPS(2.0 * rows * columns))
{
    FOR_EACH(row, rows) {
        float value = dot(weight + row * columns, x, columns);
        if (bias) {
            value += bias[row];
        }
        if (after == SCRIBE_ADD) {
            value += y[row];
        } else if (after == SCRIBE_SQUARED_RELU) {
            value = value > 0.0f ? value * value : 0.0f;
        }
        y[row] = value;
    }
}

/* The cache holds the last `window` positions, p in slot p % window, as [slot][key, value][width] in bfloat16. */
DEVICE_FUNCTION uint32_t slots_used(uint32_t position, uint32_t window)
{
    return position + 1 < window ? position + 1 : window;
}

DEVICE_FUNCTION uint16_t to_bfloat(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

DEVICE_FUNCTION float from_bfloat(uint16_t value)
{
    const uint32_t bits = (uint32_t)value << 16;
    float result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

/* Keys and values of one position into the cache; qkv is [query, key, value][width]. */
KERNEL5(scribe_remember, const float *, qkv, uint16_t *, cache, uint32_t, position, uint32_t, window, uint32_t, width,
        READS(qkv + width, 8 * (uint64_t)width)
        WRITES(cache + 2 * (uint64_t)(position % window) * width, 4 * (uint64_t)width))
{
    FOR_EACH(i, 2 * (uint64_t)width) {
        cache[2 * (uint64_t)(position % window) * width + i] = to_bfloat(qkv[width + i]);
    }
}

/* scores[head][slot] = query . key / sqrt(size) - distance * 2^-(head + 1); row length: slots in use */
KERNEL7(scribe_score, const float *, qkv, const uint16_t *, cache, float *, scores, uint32_t, position,
        uint32_t, window, uint32_t, heads, uint32_t, width,
        READS(qkv, 4 * (uint64_t)width) READS(cache, 4 * (uint64_t)width * slots_used(position, window))
        WRITES(scores, 4 * (uint64_t)heads * slots_used(position, window))
        OPS(2.0 * width * slots_used(position, window)))
{
    const uint32_t count = slots_used(position, window), size = width / heads;
    FOR_EACH(i, (uint64_t)heads * count) {
        const uint32_t head = (uint32_t)(i / count), slot = (uint32_t)(i % count);
        const float *query = qkv + head * size;
        const uint16_t *key = cache + 2 * (uint64_t)slot * width + head * size;
        float sum = 0.0f;
        for (uint32_t d = 0; d < size; d++) {
            sum += query[d] * from_bfloat(key[d]);
        }
        const uint32_t distance = (position % window + window - slot) % window;
        scores[i] = sum / sqrtf((float)size) - (float)distance / (float)(2u << head);
    }
}

KERNEL3(scribe_softmax, float *, scores, uint32_t, rows, uint32_t, columns,
        READS(scores, 4 * (uint64_t)rows * columns) WRITES(scores, 4 * (uint64_t)rows * columns)
        OPS(20.0 * rows * columns))
{
    FOR_EACH(row, rows) {
        softmax(scores + row * columns, scores + row * columns, columns, 1.0f);
    }
}

/* y[head][d] = sum over slots of scores[head][slot] * value[head][d] */
KERNEL7(scribe_mix, const float *, scores, const uint16_t *, cache, float *, y, uint32_t, position, uint32_t, window,
        uint32_t, heads, uint32_t, width,
        READS(scores, 4 * (uint64_t)heads * slots_used(position, window))
        READS(cache, 4 * (uint64_t)width * slots_used(position, window))
        WRITES(y, 4 * (uint64_t)width) OPS(2.0 * width * slots_used(position, window)))
{
    const uint32_t count = slots_used(position, window);
    FOR_EACH(i, width) {
        const float *row = scores + i / (width / heads) * count;
        float sum = 0.0f;
        for (uint32_t slot = 0; slot < count; slot++) {
            sum += row[slot] * from_bfloat(cache[(2 * (uint64_t)slot + 1) * width + i]);
        }
        y[i] = sum;
    }
}

/* tokens[position] = a token drawn from the scores at this temperature (0: the best one) by `random`, uniform in
 * 0 .. 2^32-1. `scores` is overwritten. */
KERNEL6(scribe_sample, float *, scores, uint32_t, count, float, temperature, uint32_t, random, uint32_t *, tokens,
        uint32_t, position,
        READS(scores, 4 * (uint64_t)count) WRITES(scores, 4 * (uint64_t)count) WRITES(tokens + position, 4)
        OPS(20.0 * count))
{
    FOR_EACH(row, 1) {
        uint32_t chosen = 0;
        if (temperature > 0.0f) {
            softmax(scores, scores, count, 1.0f / temperature);
            float left = (float)(random >> 8) / 16777216.0f;
            while (chosen + 1 < count && left >= scores[chosen]) {
                left -= scores[chosen++];
            }
        } else {
            for (uint32_t j = 1; j < count; j++) {
                chosen = scores[j] > scores[chosen] ? j : chosen;
            }
        }
        tokens[position + row] = chosen;
    }
}
