#include "scan.h"

#include <string.h>

#include "zerocopy.h"

/* One test tells most words from addresses: between the least and the greatest that matter at all. */
struct bounds {
    uint64_t low, bytes;
};

static inline struct bounds bounds_of_all(void)
{
    uint64_t low = atomic_load_explicit(&ov_zerocopy_low, memory_order_relaxed);
    uint64_t high = atomic_load_explicit(&ov_zerocopy_high, memory_order_relaxed);
    low = low < ov_arena_base ? low : ov_arena_base;
    high = high > ov_arena_base + ov_arena_bytes ? high : ov_arena_base + ov_arena_bytes;
    return (struct bounds){low, high - low};
}

static inline void test(struct ov_touches *touches, struct bounds bounds, uint64_t word, uint32_t slot)
{
    if (__builtin_expect(word - bounds.low >= bounds.bytes, 1)) {
        return;
    }
    if (!ov_arena_has(word)) {
        touches->exposed = touches->exposed || ov_zerocopy_maybe(word);
    } else if (touches->count < OV_TOUCHES) {
        touches->item[touches->count++] = (struct ov_touch){word, slot};
    } else {
        touches->incomplete = true;
    }
}

static void scan_buffer(const void *buffer, size_t bytes, struct ov_touches *touches)
{
    const struct bounds bounds = bounds_of_all();
    const char *at = buffer;
    for (size_t offset = 0; offset + 8 <= bytes; offset += 8) {
        uint64_t word;
        memcpy(&word, at + offset, sizeof word);
        test(touches, bounds, word, (uint32_t)(offset / 8));
    }
}

/* The list is pairs of a key and a value, ended by CU_LAUNCH_PARAM_END. False: a key from the future, what follows
 * cannot be told apart. */
static bool find_buffer(void *const *extra, const void **buffer, size_t *bytes)
{
    *buffer = NULL;
    *bytes = 0;
    for (size_t i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
            *buffer = extra[i + 1];
        } else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
            *bytes = extra[i + 1] != NULL ? *(const size_t *)extra[i + 1] : 0;
        } else {
            return false;
        }
    }
    return true;
}

void ov_scan(const struct ov_kernel *kernel, const struct ov_launch *launch, struct ov_touches *touches)
{
    touches->count = 0;
    touches->incomplete = launch->opaque;
    touches->exposed = false;
    if (launch->extra != NULL) {
        const void *buffer;
        size_t bytes;
        if (!find_buffer(launch->extra, &buffer, &bytes)) {
            touches->incomplete = true;
        } else if (buffer != NULL) {
            scan_buffer(buffer, bytes, touches);
        }
    } else if (launch->params != NULL) {
        if (kernel == NULL || kernel->opaque) {
            touches->incomplete = true;
            return;
        }
        const struct bounds bounds = bounds_of_all();
        const struct ov_word *word = kernel->word, *end = word + kernel->word_count;
        for (; word < end; word++) {
            uint64_t value;
            memcpy(&value, (const char *)launch->params[word->param] + word->offset, sizeof value);
            test(touches, bounds, value, word->slot);
        }
    }
}

void ov_scan_words(const struct ov_kernel *kernel, const struct ov_launch *launch,
                   void (*each)(void *context, uint64_t word, uint32_t slot), void *context)
{
    const void *buffer;
    size_t bytes;
    uint64_t value;
    if (launch->extra != NULL) {
        for (size_t offset = 0; find_buffer(launch->extra, &buffer, &bytes) && buffer != NULL && offset + 8 <= bytes;
             offset += 8) {
            memcpy(&value, (const char *)buffer + offset, sizeof value);
            each(context, value, (uint32_t)(offset / 8));
        }
    } else if (launch->params != NULL && kernel != NULL) {
        for (uint32_t i = 0; i < kernel->word_count; i++) {
            memcpy(&value, (const char *)launch->params[kernel->word[i].param] + kernel->word[i].offset, sizeof value);
            each(context, value, kernel->word[i].slot);
        }
    }
}
