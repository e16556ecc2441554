/*
 * code.h - what a kernel's code is known by from one start of a program to the next.
 *
 * A hash of every byte of the image that it was loaded from, and its whole name. Equal hashes, so: the same code for
 * the same architectures; a driver and a kind of device that are the same (recall.h sees to that) make the same of it.
 * Not a hash that withstands somebody who looks for collisions: who can choose the program's code needs none.
 *
 * No loading function of the driver is told the length of an image, so it is taken from the image's headers (view.h).
 * What was loaded from a file by the driver itself, what is damaged, and what is too large to be read on the side has
 * no hash: 0, 0.
 */
#ifndef OV_CODE_H
#define OV_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ov_code {
    uint64_t hash[2];
};

/* Reading is a third of what the driver does with an image, but for one that holds much and is used little. */
#define OV_CODE_BYTES_AT_MOST ((size_t)64 << 20)

static inline bool ov_code_known(const struct ov_code *code)
{
    return (code->hash[0] | code->hash[1]) != 0;
}
static inline bool ov_code_same(const struct ov_code *a, const struct ov_code *b)
{
    return a->hash[0] == b->hash[0] && a->hash[1] == b->hash[1];
}

/* Of an image; max_bytes as in ov_image_parse. */
struct ov_code ov_code_of_image(const void *image, size_t max_bytes);
/* Of a kernel in an image: not known if that one's is not. */
struct ov_code ov_code_of_kernel(const struct ov_code *image, const char *name);

#endif
