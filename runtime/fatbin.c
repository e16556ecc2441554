#include "fatbin.h"

#include <limits.h>
#include <lz4.h>
#include <stdlib.h>
#include <zstd.h>

#include "cubin.h"
#include "ptx.h"

enum kind { KIND_PTX = 1, KIND_CUBIN = 2 };
enum flag { FLAG_LZ4 = 0x2000, FLAG_ZSTD = 0x8000 };

/* Largest entry after decompression. The pages are touched only as far as the data really goes. */
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
#define PLAIN_BYTES_MAX ((uint64_t)16 << 20)
#else
#define PLAIN_BYTES_MAX ((uint64_t)1 << 30)
#endif

struct wrapper {
    uint32_t magic, version;
    const void *container;
    const void *more;
};

struct header {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t entries_bytes;
};

struct entry_header {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t payload_bytes;
    uint32_t compressed_bytes, options_offset;
    uint16_t minor, major;
    uint32_t architecture;
    uint32_t name_offset, name_bytes;
    uint64_t flags, unused, plain_bytes;
};

struct entry {
    struct entry_header header;
    struct ov_view payload;
};

typedef int entry_reader(struct ov_view plain, struct ov_image *into);

static bool wrapped_in(const struct ov_view *image, const void *container, size_t *bytes)
{
    const uintptr_t start = (uintptr_t)image->data, inner = (uintptr_t)container;

    if (image->open) {
        *bytes = SIZE_MAX;
        return container != NULL;
    }
    *bytes = inner >= start && inner - start < image->bytes ? image->bytes - (inner - start) : 0;
    return *bytes != 0;
}

/* Puts a closed view of all entries in *entries. */
static int open_container(struct ov_view image, struct ov_view *entries)
{
    struct header header;
    uint32_t magic;

    if (!ov_view_read(&image, 0, &magic, sizeof magic)) {
        return OV_IMAGE_TRUNCATED;
    }
    if (magic == OV_FATBIN_WRAPPER_MAGIC) {
        struct wrapper wrapper;
        size_t bytes;
        if (!ov_view_read(&image, 0, &wrapper, sizeof wrapper)) {
            return OV_IMAGE_TRUNCATED;
        }
        if (!wrapped_in(&image, wrapper.container, &bytes)) {
            return OV_IMAGE_MALFORMED;
        }
        image = ov_view_make(wrapper.container, bytes);
    }
    if (!ov_view_read(&image, 0, &header, sizeof header)) {
        return OV_IMAGE_TRUNCATED;
    }
    if (header.magic != OV_FATBIN_MAGIC || header.header_bytes < sizeof header) {
        return OV_IMAGE_MALFORMED;
    }
    if (header.entries_bytes > SIZE_MAX - header.header_bytes ||
        !ov_view_need(&image, header.header_bytes, header.entries_bytes)) {
        return OV_IMAGE_TRUNCATED;
    }
    *entries = ov_view_part(&image, header.header_bytes, header.entries_bytes);
    return OV_IMAGE_OK;
}

/* Some writers round the container up: zeros too few for an entry. */
static bool only_padding(const struct ov_view *entries, uint64_t at)
{
    while (at < entries->bytes && entries->data[at] == 0) {
        at++;
    }
    return at == entries->bytes;
}

/* Steps through the entries: *at is where the next begins. */
static int next_entry(struct ov_view *entries, uint64_t *at, struct entry *entry)
{
    uint64_t payload_at;

    if (!ov_view_read(entries, *at, &entry->header, sizeof entry->header)) {
        return OV_IMAGE_TRUNCATED;
    }
    if (entry->header.header_bytes < sizeof entry->header) {
        return OV_IMAGE_MALFORMED;
    }
    payload_at = *at + entry->header.header_bytes;
    if (!ov_view_need(entries, payload_at, entry->header.payload_bytes)) {
        return OV_IMAGE_TRUNCATED;
    }
    entry->payload = ov_view_part(entries, payload_at, entry->header.payload_bytes);
    *at = payload_at + entry->header.payload_bytes;
    return OV_IMAGE_OK;
}

/* Can the packed bytes become that many at all? Asked before memory is taken. One byte of an LZ4 block stands for at
 * most 255; a Zstandard frame usually says how much it holds. */
static bool size_believable(uint64_t flags, const struct ov_view *packed, uint64_t plain_bytes)
{
    unsigned long long stated;

    if (flags & FLAG_LZ4) {
        return packed->bytes <= INT_MAX && plain_bytes <= INT_MAX && plain_bytes / 255 <= packed->bytes;
    }
    stated = ZSTD_getFrameContentSize(packed->data, packed->bytes);
    return stated == plain_bytes || stated == ZSTD_CONTENTSIZE_UNKNOWN;
}

static bool unpack(uint64_t flags, const struct ov_view *packed, uint8_t *plain, size_t plain_bytes)
{
    if (flags & FLAG_LZ4) {
        return LZ4_decompress_safe((const char *)packed->data, (char *)plain, (int)packed->bytes, (int)plain_bytes) ==
               (int)plain_bytes;
    }
    return ZSTD_decompress(plain, plain_bytes, packed->data, packed->bytes) == plain_bytes;
}

/* *owned is the caller's to free; *plain points into it. */
static int expand(const struct entry *entry, struct ov_view *plain, uint8_t **owned)
{
    const struct entry_header *header = &entry->header;
    const struct ov_view packed = {entry->payload.data, header->compressed_bytes, false};
    const size_t plain_bytes = (size_t)header->plain_bytes;
    bool good;

    if (packed.bytes > entry->payload.bytes || packed.bytes == 0 || plain_bytes == 0) {
        return OV_IMAGE_MALFORMED;
    }
    if (header->plain_bytes > PLAIN_BYTES_MAX) {
        return OV_IMAGE_TOO_LARGE;
    }
    if (!size_believable(header->flags, &packed, header->plain_bytes)) {
        return OV_IMAGE_COMPRESSED;
    }
    *owned = malloc(plain_bytes);
    if (!*owned) {
        return OV_IMAGE_NO_MEMORY;
    }
    good = unpack(header->flags, &packed, *owned, plain_bytes);
    *plain = (struct ov_view){*owned, plain_bytes, false};
    return good ? OV_IMAGE_OK : OV_IMAGE_COMPRESSED;
}

static int read_entry(const struct entry *entry, entry_reader *reader, struct ov_image *into)
{
    const size_t mark = ov_image_mark(into);
    const uint64_t packing = entry->header.flags & (FLAG_LZ4 | FLAG_ZSTD);
    struct ov_view plain = entry->payload;
    uint8_t *owned = NULL;
    int error = OV_IMAGE_OK;

    if (packing == (FLAG_LZ4 | FLAG_ZSTD) || (!packing && entry->header.compressed_bytes)) {
        return OV_IMAGE_COMPRESSED;
    }
    if (packing) {
        error = expand(entry, &plain, &owned);
    }
    if (!error) {
        error = reader(plain, into);
    }
    if (error) {
        ov_image_forget(into, mark);
    }
    free(owned);
    return error;
}

/* Reads all entries of one kind that are newer than *newest, and raises *newest to the newest read. The first error
 * that concerns one entry only goes to *passed_over. */
static int read_kind(struct ov_view entries, enum kind kind, entry_reader *reader, int64_t *newest,
                     struct ov_image *into, int *passed_over)
{
    const int64_t floor = *newest;

    for (uint64_t at = 0; !only_padding(&entries, at);) {
        struct entry entry;
        int error = next_entry(&entries, &at, &entry);
        if (error) {
            return error;
        }
        if (entry.header.kind != kind || (int64_t)entry.header.architecture <= floor) {
            continue;
        }
        error = read_entry(&entry, reader, into);
        if (error == OV_IMAGE_NO_MEMORY) {
            return error;
        }
        if (error) {
            *passed_over = *passed_over ? *passed_over : error;
        } else if ((int64_t)entry.header.architecture > *newest) {
            *newest = entry.header.architecture;
        }
    }
    return OV_IMAGE_OK;
}

int ov_fatbin_read(struct ov_view image, struct ov_image *into)
{
    struct ov_view entries;
    int64_t newest = -1;
    int passed_over = OV_IMAGE_OK;
    int error = open_container(image, &entries);

    if (!error) {
        error = read_kind(entries, KIND_CUBIN, ov_cubin_read, &newest, into, &passed_over);
    }
    if (!error) {
        error = read_kind(entries, KIND_PTX, ov_ptx_read, &newest, into, &passed_over);
    }
    if (!error && newest < 0) {
        error = passed_over; /* nothing could be read: say why */
    }
    return error;
}

bool ov_fatbin_whole(struct ov_view image, struct ov_view *whole)
{
    return open_container(image, whole) == OV_IMAGE_OK;
}
