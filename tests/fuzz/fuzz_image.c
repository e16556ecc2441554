/*
 * Fuzz target of the image reader: any bytes as a code image, and as the records of one kernel. Beside what the
 * sanitizers see, what is reported must be a layout: ascending, disjoint, bounded, and found again by name.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "image.h"
#include "nvinfo.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void must(int condition)
{
    if (!condition) {
        abort();
    }
}

static uint32_t check_params(const struct ov_param *param, uint32_t count)
{
    uint32_t end = 0;

    for (uint32_t i = 0; i < count; i++) {
        must(param[i].offset >= end && param[i].size > 0);
        end = param[i].offset + param[i].size;
        must(end <= OV_IMAGE_PARAM_BYTES_MAX);
    }
    return end;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ov_param *param = NULL;
    uint32_t count = 0;
    int error = -1;
    struct ov_image *image = ov_image_parse(data, bytes, &error);

    must((image != NULL) == (error == OV_IMAGE_OK));
    for (size_t i = 0; i < ov_image_count(image); i++) {
        const struct ov_kernel_layout *kernel = ov_image_kernel(image, i);
        must(check_params(kernel->param, kernel->param_count) == kernel->param_bytes);
        must(ov_image_find(image, kernel->name) == kernel);
    }
    ov_image_free(image);
    if (ov_nvinfo_read(ov_view_make(data, bytes), &param, &count) == OV_IMAGE_OK) {
        check_params(param, count);
        free(param);
    }
    return 0;
}
