#include "safetensors.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu.h"

enum { LENGTH_BYTES = 8 };

struct safetensors safetensors_open(const char *path)
{
    struct safetensors file = {0};
    struct stat status;
    uint64_t header_bytes = 0;
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0 || fstat(descriptor, &status) != 0) {
        gpu_die("cannot open %s: %s", path, strerror(errno));
    }
    file.size = (size_t)status.st_size;
    void *bytes = file.size > LENGTH_BYTES ? mmap(NULL, file.size, PROT_READ, MAP_PRIVATE, descriptor, 0) : MAP_FAILED;
    close(descriptor);
    if (bytes == MAP_FAILED) {
        gpu_die("cannot map %s", path);
    }
    file.bytes = bytes;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--) {
        header_bytes = header_bytes << 8 | file.bytes[i];
    }
    if (header_bytes > file.size - LENGTH_BYTES) {
        gpu_die("%s is not a safetensors file: its header would have %llu bytes", path,
                (unsigned long long)header_bytes);
    }
    file.data_offset = LENGTH_BYTES + (size_t)header_bytes;
    file.header = cJSON_ParseWithLength((const char *)file.bytes + LENGTH_BYTES, (size_t)header_bytes);
    if (!cJSON_IsObject(file.header)) {
        gpu_die("%s is not a safetensors file: its header is not JSON", path);
    }
    return file;
}

void safetensors_close(struct safetensors *file)
{
    cJSON_Delete(file->header);
    munmap((void *)(uintptr_t)file->bytes, file->size);
    *file = (struct safetensors){0};
}

/* Element `index` of an array of whole numbers; -1 if there is none. */
static double element(const cJSON *array, int index)
{
    const cJSON *item = cJSON_GetArrayItem(array, index);
    return cJSON_IsNumber(item) ? item->valuedouble : -1;
}

const float *safetensors_float(const struct safetensors *file, const char *name, size_t rows, size_t columns)
{
    const cJSON *tensor = cJSON_GetObjectItemCaseSensitive(file->header, name);
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(tensor, "dtype");
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(tensor, "shape");
    const cJSON *place = cJSON_GetObjectItemCaseSensitive(tensor, "data_offsets");
    if (!tensor || !cJSON_IsString(type) || strcmp(type->valuestring, "F32") != 0) {
        gpu_die("the weights have no float32 tensor %s", name);
    }
    const int dimensions = rows ? 2 : 1;
    if (cJSON_GetArraySize(shape) != dimensions || (rows && element(shape, 0) != (double)rows) ||
        element(shape, dimensions - 1) != (double)columns) {
        gpu_die("tensor %s has another shape than %zu x %zu", name, rows, columns);
    }
    const size_t bytes = (rows ? rows : 1) * columns * sizeof(float);
    const double begin = element(place, 0), end = element(place, 1);
    if (begin < 0 || end - begin != (double)bytes || end > (double)(file->size - file->data_offset)) {
        gpu_die("tensor %s lies outside the file", name);
    }
    return (const float *)(const void *)(file->bytes + file->data_offset + (size_t)begin);
}

unsigned safetensors_number(const struct safetensors *file, const char *key)
{
    const cJSON *metadata = cJSON_GetObjectItemCaseSensitive(file->header, "__metadata__");
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(metadata, key);
    const long number = cJSON_IsString(value) ? strtol(value->valuestring, NULL, 10) : 0;
    if (number < 1 || number > 1000000) {
        gpu_die("the weights' metadata has no number %s", key);
    }
    return (unsigned)number;
}
