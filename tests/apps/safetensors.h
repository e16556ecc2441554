/*
 * safetensors.h: reads a weights file in the safetensors format: 8 bytes of header length, a JSON header that names
 * each tensor's type, shape and place, then the data. The file is mapped read-only for as long as it is open; nothing
 * is copied.
 *
 * A wrong file ends the process with a line on stderr. One thread.
 */
#ifndef APPS_SAFETENSORS_H
#define APPS_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

struct safetensors {
    const unsigned char *bytes; /* the whole file */
    size_t size, data_offset;
    struct cJSON *header;
};

struct safetensors safetensors_open(const char *path);
void safetensors_close(struct safetensors *file);

/* The data of float32 tensor `name`, which must have `rows` x `columns` elements (rows 0: one dimension). */
const float *safetensors_float(const struct safetensors *file, const char *name, size_t rows, size_t columns);

/* A number from the file's metadata, e.g. "layers". */
unsigned safetensors_number(const struct safetensors *file, const char *key);

#endif
