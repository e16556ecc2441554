#include "view.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

/* Pages asked about in one call: 16 MiB of image, 4 KiB of stack. */
#define PAGES_A_CALL 4096u

struct ov_view ov_view_make(const void *data, size_t bytes)
{
    const bool open = bytes == SIZE_MAX;
    return (struct ov_view){data, open ? 0 : bytes, open};
}

/* Only ENOMEM means "not mapped". A sandbox may forbid the call; then the image is trusted, as the driver trusts it. */
static bool pages_mapped(uintptr_t start, uintptr_t end, size_t page_bytes)
{
    unsigned char resident[PAGES_A_CALL];

    while (start < end) {
        size_t bytes = end - start;
        if (bytes > PAGES_A_CALL * page_bytes) {
            bytes = PAGES_A_CALL * page_bytes;
        }
        if (mincore((void *)start, bytes, resident) != 0 && errno == ENOMEM) {
            return false;
        }
        start += bytes;
    }
    return true;
}

bool ov_view_grow(struct ov_view *view, uint64_t end_offset)
{
    const uintptr_t base = (uintptr_t)view->data;
    const uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = (base + view->bytes) & ~(page_bytes - 1);
    const int saved_errno = errno;
    uintptr_t end;

    if (base > UINTPTR_MAX - page_bytes || end_offset > UINTPTR_MAX - page_bytes - base) {
        return false;
    }
    end = (base + (uintptr_t)end_offset + page_bytes - 1) & ~(page_bytes - 1);
    const bool mapped = pages_mapped(first, end, page_bytes);
    errno = saved_errno;
    if (mapped) {
        view->bytes = end - base;
    }
    return mapped;
}
