/*
 * view.h - a bounded view of memory that somebody else laid out.
 *
 * A code image reaches the driver as a bare pointer. Its length follows from headers inside it, and those may be wrong,
 * so nothing in an image is read before ov_view_need() has said yes to exactly that range.
 *
 *   closed view   the length is known: the answer is one comparison.
 *   open view     only the start is known: `bytes` grows page by page as readers ask, after the kernel confirmed that
 *                 the pages are mapped. A header that points outside is an error, not a fault. (Pages that are mapped
 *                 without read permission are not told apart.)
 *
 * A view owns nothing and must not outlive the memory. Not thread-safe: one thread, one view; copies are independent.
 */
#ifndef OV_VIEW_H
#define OV_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct ov_view {
    const uint8_t *data;
    size_t bytes; /* known to be readable so far */
    bool open;    /* may grow */
};

/* SIZE_MAX bytes: the length is not known. */
struct ov_view ov_view_make(const void *data, size_t bytes);

/* For ov_view_need(): asks the kernel about the pages up to end_offset of an open view. */
bool ov_view_grow(struct ov_view *view, uint64_t end_offset);

/* True when [offset, offset + bytes) may be read. Both come from the image: any value is allowed. */
static inline bool ov_view_need(struct ov_view *view, uint64_t offset, uint64_t bytes)
{
    if (bytes > UINT64_MAX - offset) {
        return false;
    }
    return offset + bytes <= view->bytes || (view->open && ov_view_grow(view, offset + bytes));
}

/* A closed view of a part. The caller has asked for the range before. */
static inline struct ov_view ov_view_part(const struct ov_view *view, uint64_t offset, uint64_t bytes)
{
    return (struct ov_view){view->data + offset, (size_t)bytes, false};
}

/* Copies `bytes` at `offset` to `to`, whatever the alignment; false when they are outside. */
static inline bool ov_view_read(struct ov_view *view, uint64_t offset, void *to, size_t bytes)
{
    if (!ov_view_need(view, offset, bytes)) {
        return false;
    }
    memcpy(to, view->data + offset, bytes);
    return true;
}

/* The number that an image begins with. No format has a zero in it, so a text that ends before is not read beyond its
 * end: false. */
static inline bool ov_view_magic(struct ov_view *view, uint32_t *magic)
{
    uint8_t byte[4];
    for (unsigned i = 0; i < sizeof byte; i++) {
        if (!ov_view_read(view, i, &byte[i], 1) || byte[i] == 0) {
            return false;
        }
    }
    memcpy(magic, byte, sizeof byte);
    return true;
}

#endif
