/* Images: containers and the choice among their entries. See sim_image.h. */
#include "sim_image.h"

#include <cuda.h>
#include <elf.h>
#include <lz4.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum {
    WRAPPER_MAGIC = 0x466243B1,
    FATBIN_MAGIC = (int)0xBA55ED50,
    ENTRY_PTX = 1,
    ENTRY_ELF = 2,
    FLAG_LZ4 = 0x2000,
    FLAG_ZSTD = 0x8000,
    ENTRY_MIN_HEADER = 64,
    PARAM_MAX = 4096
};

struct wrapper {
    uint32_t magic, version;
    const void *data;
    void *filename_or_fatbins;
};

struct fatbin_header {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t payload_bytes;
};

struct fatbin_entry {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t payload_bytes; /* with padding */
    uint32_t compressed_bytes;
    uint32_t options_offset;
    uint16_t minor, major;
    uint32_t capability;
    uint64_t name;
    uint64_t flags;
    uint64_t zero;
    uint64_t plain_bytes;
};

struct sim_image_kernel *sim_image_add_kernel(struct sim_image *image, const char *name, size_t name_bytes)
{
    struct sim_image_kernel *grown = realloc(image->kernel, (image->kernel_count + 1) * sizeof *grown);
    if (grown == NULL)
        return NULL;
    image->kernel = grown;
    struct sim_image_kernel *kernel = &grown[image->kernel_count];
    *kernel = (struct sim_image_kernel){.name = strndup(name, name_bytes), .max_threads = 1024};
    if (kernel->name == NULL)
        return NULL;
    image->kernel_count++;
    return kernel;
}

struct sim_image_global *sim_image_add_global(struct sim_image *image, const char *name, size_t name_bytes)
{
    struct sim_image_global *grown = realloc(image->global, (image->global_count + 1) * sizeof *grown);
    if (grown == NULL)
        return NULL;
    image->global = grown;
    struct sim_image_global *global = &grown[image->global_count];
    *global = (struct sim_image_global){.name = strndup(name, name_bytes)};
    if (global->name == NULL)
        return NULL;
    image->global_count++;
    return global;
}

/* Parameters may come in any order; the array grows to the highest ordinal. */
int sim_image_add_param(struct sim_image_kernel *kernel, uint32_t ordinal, uint32_t offset, uint32_t size)
{
    if (ordinal >= PARAM_MAX)
        return CUDA_ERROR_INVALID_IMAGE;
    if (ordinal >= kernel->param_count) {
        struct sim_param *grown = realloc(kernel->param, (ordinal + 1) * sizeof *grown);
        if (grown == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        memset(grown + kernel->param_count, 0, (ordinal + 1 - kernel->param_count) * sizeof *grown);
        kernel->param = grown;
        kernel->param_count = ordinal + 1;
    }
    kernel->param[ordinal] = (struct sim_param){offset, size};
    if (offset + size > kernel->param_bytes)
        kernel->param_bytes = offset + size;
    return CUDA_SUCCESS;
}

void sim_image_free(struct sim_image *image)
{
    if (image == NULL)
        return;
    for (size_t i = 0; i < image->kernel_count; i++) {
        free(image->kernel[i].name);
        free(image->kernel[i].param);
    }
    for (size_t i = 0; i < image->global_count; i++) {
        free(image->global[i].name);
        free(image->global[i].initial);
    }
    free(image->kernel);
    free(image->global);
    free(image);
}

/* An ELF image ends where its last section or header table ends. 0: not an ELF of this machine. */
static size_t elf_image_bytes(const void *data)
{
    Elf64_Ehdr header;
    memcpy(&header, data, sizeof header);
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_machine != 190 ||
        header.e_shentsize != sizeof(Elf64_Shdr))
        return 0;
    uint64_t end = header.e_shoff + (uint64_t)header.e_shnum * sizeof(Elf64_Shdr);
    uint64_t segments_end = header.e_phoff + (uint64_t)header.e_phnum * header.e_phentsize;
    if (segments_end > end)
        end = segments_end;
    for (unsigned i = 0; i < header.e_shnum; i++) {
        Elf64_Shdr section;
        memcpy(&section, (const char *)data + header.e_shoff + i * sizeof section, sizeof section);
        if (section.sh_type != SHT_NOBITS && section.sh_offset + section.sh_size > end)
            end = section.sh_offset + section.sh_size;
    }
    return (size_t)end;
}

/* The payload of an entry in plain form, to be freed; the PTX text gets a terminating zero. */
static void *entry_payload(const struct fatbin_entry *entry, const char *payload, size_t *bytes)
{
    size_t stored = entry->compressed_bytes != 0 ? entry->compressed_bytes : (size_t)entry->payload_bytes;
    int packed = (entry->flags & (FLAG_LZ4 | FLAG_ZSTD)) != 0;
    size_t plain = packed ? (size_t)entry->plain_bytes : stored;
    if (stored > entry->payload_bytes || plain > (size_t)INT32_MAX || stored > (size_t)INT32_MAX)
        return NULL;
    char *out = calloc(1, plain + 1);
    if (out == NULL)
        return NULL;
    size_t got = plain;
    if (entry->flags & FLAG_LZ4) {
        int result = LZ4_decompress_safe(payload, out, (int)stored, (int)plain);
        got = result < 0 ? SIZE_MAX : (size_t)result;
    } else if (entry->flags & FLAG_ZSTD) {
        got = ZSTD_decompress(out, plain, payload, stored);
    } else {
        memcpy(out, payload, plain);
    }
    if (got > plain) {
        free(out);
        return NULL;
    }
    *bytes = got;
    return out;
}

/* How well an entry suits the device; 0 not at all. Any suiting cubin beats any PTX. */
static int entry_rank(const struct fatbin_entry *entry, int capability)
{
    int version = (int)entry->capability;
    if (version > capability)
        return 0;
    if (entry->kind == ENTRY_ELF)
        return version / 10 == capability / 10 ? 1000 + version : 0;
    return entry->kind == ENTRY_PTX ? version : 0;
}

static int read_fatbin(struct sim_image *image, const void *data, int capability)
{
    struct fatbin_header header;
    memcpy(&header, data, sizeof header);
    if (header.header_bytes < sizeof header || header.payload_bytes > (uint64_t)INT32_MAX)
        return CUDA_ERROR_INVALID_IMAGE;
    const char *base = (const char *)data + header.header_bytes;
    const char *best_payload = NULL;
    struct fatbin_entry best = {0};
    int best_rank = 0;
    size_t left = (size_t)header.payload_bytes;
    for (size_t offset = 0; left - offset >= ENTRY_MIN_HEADER;) {
        struct fatbin_entry entry;
        memcpy(&entry, base + offset, sizeof entry);
        if (entry.header_bytes < ENTRY_MIN_HEADER || entry.header_bytes > left - offset ||
            entry.payload_bytes > left - offset - entry.header_bytes)
            return CUDA_ERROR_INVALID_IMAGE;
        int rank = entry_rank(&entry, capability);
        if (rank > best_rank) {
            best_rank = rank;
            best = entry;
            best_payload = base + offset + entry.header_bytes;
        }
        offset += entry.header_bytes + (size_t)entry.payload_bytes;
    }
    if (best_rank == 0)
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    size_t bytes = 0;
    void *plain = entry_payload(&best, best_payload, &bytes);
    if (plain == NULL)
        return CUDA_ERROR_INVALID_IMAGE;
    int error =
        best.kind == ENTRY_ELF ? sim_image_read_cubin(image, plain, bytes) : sim_image_read_ptx(image, plain, bytes);
    free(plain);
    return error;
}

/* A cubin by itself suits the device by the same rule as an entry of a fatbin. */
static int read_elf(struct sim_image *image, const void *data, int capability)
{
    size_t bytes = elf_image_bytes(data);
    if (bytes == 0)
        return CUDA_ERROR_INVALID_IMAGE;
    int error = sim_image_read_cubin(image, data, bytes);
    if (error == CUDA_SUCCESS && (image->binary_version / 10 != capability / 10 || image->binary_version > capability))
        error = CUDA_ERROR_NO_BINARY_FOR_GPU;
    return error;
}

static int read_ptx(struct sim_image *image, const char *text, int capability)
{
    int error = sim_image_read_ptx(image, text, strlen(text));
    if (error == CUDA_SUCCESS && image->ptx_version > capability)
        error = CUDA_ERROR_NO_BINARY_FOR_GPU;
    return error;
}

static int looks_like_text(const unsigned char *data)
{
    for (int i = 0; i < 8; i++) {
        if (data[i] == 0)
            return 0;
        if ((data[i] < 0x20 && data[i] != '\n' && data[i] != '\t' && data[i] != '\r') || data[i] > 0x7e)
            return 0;
    }
    return 1;
}

struct sim_image *sim_image_parse(const void *data, int capability, int *error)
{
    struct sim_image *image = calloc(1, sizeof *image);
    if (image == NULL) {
        *error = CUDA_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    uint32_t magic;
    memcpy(&magic, data, sizeof magic);
    if (magic == WRAPPER_MAGIC) {
        struct wrapper wrapper;
        memcpy(&wrapper, data, sizeof wrapper);
        data = wrapper.data;
        memcpy(&magic, data, sizeof magic);
    }
    if (magic == (uint32_t)FATBIN_MAGIC)
        *error = read_fatbin(image, data, capability);
    else if (memcmp(data, ELFMAG, SELFMAG) == 0)
        *error = read_elf(image, data, capability);
    else if (looks_like_text(data))
        *error = read_ptx(image, data, capability);
    else
        *error = CUDA_ERROR_INVALID_IMAGE;
    if (image->binary_version == 0)
        image->binary_version = capability;
    if (*error != CUDA_SUCCESS) {
        sim_image_free(image);
        return NULL;
    }
    return image;
}
