#include "code.h"

#include <string.h>

#include "cubin.h"
#include "fatbin.h"
#include "hash.h"
#include "ptx.h"
#include "view.h"

/* Two chains that have nothing in common but the words. */
static void add(struct ov_code *code, uint64_t word)
{
    code->hash[0] = ov_hash_add(code->hash[0], word);
    code->hash[1] = ov_hash_add(code->hash[1], (word << 32 | word >> 32) + 0xD6E8FEB86659FD93ull);
}

static void add_bytes(struct ov_code *code, const void *data, size_t bytes)
{
    const uint8_t *from = data;
    for (; bytes >= 8; from += 8, bytes -= 8) {
        uint64_t word;
        memcpy(&word, from, 8);
        add(code, word);
    }
    uint64_t tail = 0;
    memcpy(&tail, from, bytes);
    add(code, tail);
    add(code, bytes);
}

/* All that counts of the image, as a closed view. */
static bool find_whole(struct ov_view image, struct ov_view *whole)
{
    uint32_t magic;
    if (!ov_view_magic(&image, &magic)) {
        return false;
    }
    switch (magic) {
    case OV_CUBIN_MAGIC:
        return ov_cubin_whole(image, whole);
    case OV_FATBIN_MAGIC:
    case OV_FATBIN_WRAPPER_MAGIC:
        return ov_fatbin_whole(image, whole);
    default:
        return ov_ptx_whole(image, whole);
    }
}

struct ov_code ov_code_of_image(const void *image, size_t max_bytes)
{
    struct ov_code code = {{1, 2}};
    struct ov_view whole;
    if (image == NULL || !find_whole(ov_view_make(image, max_bytes), &whole) || whole.bytes > OV_CODE_BYTES_AT_MOST) {
        return (struct ov_code){{0, 0}};
    }
    add_bytes(&code, whole.data, whole.bytes);
    return code;
}

struct ov_code ov_code_of_kernel(const struct ov_code *image, const char *name)
{
    struct ov_code code = *image;
    if (ov_code_known(image)) {
        add_bytes(&code, name, strlen(name));
    }
    return code;
}
