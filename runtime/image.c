#include "image.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cubin.h"
#include "fatbin.h"
#include "ptx.h"
#include "view.h"

/* One mention of a kernel in the image. The name follows the parameters in the same block. */
struct mention {
    struct ov_kernel_layout layout;
    size_t order;
    bool in_doubt;
    struct ov_param param[];
};

struct ov_image {
    struct mention **item; /* until settle(): in order of appearance; then sorted, one a name, none in doubt */
    size_t count, room;
};

static const char *const reasons[] = {
#define X(code, text) [code] = text,
    OV_IMAGE_ERRORS(X)
#undef X
};

const char *ov_image_reason(int error)
{
    const size_t count = sizeof reasons / sizeof reasons[0];
    return error >= 0 && (size_t)error < count ? reasons[error] : "unknown error code";
}

int ov_params_plausible(const struct ov_param *param, uint32_t param_count, uint32_t base, uint32_t total_bytes)
{
    uint32_t end = 0;

    for (uint32_t i = 0; i < param_count; i++) {
        const uint32_t offset = param[i].offset;
        if (offset < end || offset > OV_IMAGE_PARAM_BYTES_MAX) {
            return 0;
        }
        /* A gap is padding: smaller than the alignment, and that divides the address. */
        const uint32_t address = base + offset;
        if (offset != end && offset - end >= (address & (~address + 1))) {
            return 0;
        }
        if (param[i].size == 0 || param[i].size > OV_IMAGE_PARAM_BYTES_MAX - offset) {
            return 0;
        }
        end = offset + param[i].size;
    }
    return total_bytes == end;
}

static int append(struct ov_image *image, struct mention *mention)
{
    if (image->count == image->room) {
        const size_t room = image->room ? image->room * 2 : 64;
        struct mention **item = realloc(image->item, room * sizeof *item);
        if (!item) {
            return OV_IMAGE_NO_MEMORY;
        }
        image->item = item;
        image->room = room;
    }
    mention->order = image->count;
    image->item[image->count++] = mention;
    return OV_IMAGE_OK;
}

static int add(struct ov_image *image, const char *name, size_t name_bytes, const struct ov_param *param,
               uint32_t param_count, bool in_doubt)
{
    struct mention *mention = malloc(sizeof *mention + param_count * sizeof *param + name_bytes + 1);
    char *own_name;
    int error;

    if (!mention) {
        return OV_IMAGE_NO_MEMORY;
    }
    if (param_count) {
        memcpy(mention->param, param, param_count * sizeof *param);
    }
    own_name = (char *)(mention->param + param_count);
    memcpy(own_name, name, name_bytes);
    own_name[name_bytes] = '\0';
    mention->in_doubt = in_doubt;
    mention->layout.name = own_name;
    mention->layout.param = mention->param;
    mention->layout.param_count = param_count;
    mention->layout.param_bytes = param_count ? param[param_count - 1].offset + param[param_count - 1].size : 0;
    error = append(image, mention);
    if (error) {
        free(mention);
    }
    return error;
}

int ov_image_add(struct ov_image *image, const char *name, size_t name_bytes, const struct ov_param *param,
                 uint32_t param_count)
{
    return add(image, name, name_bytes, param, param_count, false);
}

int ov_image_reject(struct ov_image *image, const char *name, size_t name_bytes)
{
    return add(image, name, name_bytes, NULL, 0, true);
}

size_t ov_image_mark(const struct ov_image *image)
{
    return image->count;
}

void ov_image_forget(struct ov_image *image, size_t mark)
{
    while (image->count > mark) {
        free(image->item[--image->count]);
    }
}

static int by_name_then_order(const void *a, const void *b)
{
    const struct mention *left = *(struct mention *const *)a, *right = *(struct mention *const *)b;
    const int order = strcmp(left->layout.name, right->layout.name);

    return order ? order : (left->order > right->order) - (left->order < right->order);
}

static bool same_sizes(const struct mention *a, const struct mention *b)
{
    if (a->layout.param_count != b->layout.param_count) {
        return false;
    }
    for (uint32_t i = 0; i < a->layout.param_count; i++) {
        if (a->param[i].size != b->param[i].size) {
            return false;
        }
    }
    return true;
}

/* Keeps one mention of each kernel, and none of those whose mentions are in doubt or differ. */
static void settle(struct ov_image *image)
{
    size_t kept = 0;

    if (image->count) {
        qsort(image->item, image->count, sizeof image->item[0], by_name_then_order);
    }
    for (size_t i = 0; i < image->count;) {
        struct mention *first = image->item[i];
        bool in_doubt = first->in_doubt;
        for (i++; i < image->count && strcmp(first->layout.name, image->item[i]->layout.name) == 0; i++) {
            in_doubt |= image->item[i]->in_doubt || !same_sizes(first, image->item[i]);
            free(image->item[i]);
        }
        if (in_doubt) {
            free(first);
        } else {
            image->item[kept++] = first;
        }
    }
    image->count = kept;
}

static int read_any(struct ov_view view, struct ov_image *image)
{
    uint32_t magic;

    if (!ov_view_magic(&view, &magic)) {
        return !view.open && view.bytes < sizeof magic ? OV_IMAGE_TRUNCATED : OV_IMAGE_UNKNOWN;
    }
    switch (magic) {
    case OV_CUBIN_MAGIC:
        return ov_cubin_read(view, image);
    case OV_FATBIN_MAGIC:
    case OV_FATBIN_WRAPPER_MAGIC:
        return ov_fatbin_read(view, image);
    default:
        return ov_ptx_read(view, image);
    }
}

struct ov_image *ov_image_parse(const void *image, size_t max_bytes, int *error)
{
    struct ov_image *result = NULL;
    int code = OV_IMAGE_MISSING;

    if (image) {
        result = calloc(1, sizeof *result);
        code = result ? read_any(ov_view_make(image, max_bytes), result) : OV_IMAGE_NO_MEMORY;
    }
    if (code == OV_IMAGE_OK) {
        settle(result);
        code = result->count ? OV_IMAGE_OK : OV_IMAGE_NO_KERNELS;
    }
    if (code != OV_IMAGE_OK) {
        ov_image_free(result);
        result = NULL;
    }
    if (error) {
        *error = code;
    }
    return result;
}

void ov_image_free(struct ov_image *image)
{
    if (!image) {
        return;
    }
    ov_image_forget(image, 0);
    free(image->item);
    free(image);
}

const struct ov_kernel_layout *ov_image_find(const struct ov_image *image, const char *name)
{
    size_t low = 0, high = image ? image->count : 0;

    while (name && low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = strcmp(name, image->item[middle]->layout.name);
        if (order == 0) {
            return &image->item[middle]->layout;
        }
        if (order < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return NULL;
}

size_t ov_image_count(const struct ov_image *image)
{
    return image ? image->count : 0;
}

const struct ov_kernel_layout *ov_image_kernel(const struct ov_image *image, size_t index)
{
    return image && index < image->count ? &image->item[index]->layout : NULL;
}
