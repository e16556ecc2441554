/* Images: the ELF reader. Kernels are the function symbols marked as entry; their parameters lie in .nv.info.<kernel>.
 */
#include "sim_image.h"

#include <cuda.h>
#include <gelf.h>
#include <libelf.h>
#include <stdlib.h>
#include <string.h>

enum {
    ENTRY_MARK = 0x10, /* st_other of a kernel's symbol */
    FORMAT_SIZED = 4,  /* the 16-bit value is a byte count and the payload follows; other formats carry it inline */
    INFO_MAX_THREADS = 0x05,
    INFO_PARAM = 0x17,
    INFO_REGISTERS = 0x2f,
    INFO_CLUSTER = 0x3d,
    INFO_PARAM_LONG = 0x45 /* as INFO_PARAM where blocks pass 4 KiB; the size is a plain 32-bit number */
};

struct cubin {
    Elf *elf;
    size_t names; /* section index of the section names */
    Elf_Scn *symbols;
    GElf_Shdr symbols_header;
    struct sim_image *image;
};

/* Finds a section by the concatenation of two strings. */
static Elf_Scn *find_section(const struct cubin *cubin, const char *prefix, const char *suffix)
{
    size_t prefix_bytes = strlen(prefix);
    for (Elf_Scn *scn = elf_nextscn(cubin->elf, NULL); scn != NULL; scn = elf_nextscn(cubin->elf, scn)) {
        GElf_Shdr header;
        if (gelf_getshdr(scn, &header) == NULL)
            continue;
        const char *name = elf_strptr(cubin->elf, cubin->names, header.sh_name);
        if (name != NULL && strncmp(name, prefix, prefix_bytes) == 0 && strcmp(name + prefix_bytes, suffix) == 0)
            return scn;
    }
    return NULL;
}

struct record {
    unsigned format, attribute;
    const unsigned char *data; /* payload of a sized record */
    size_t bytes;
};

/* Steps over the records of an .nv.info section. 0 at the end or where the rest is no whole record. */
static int next_record(const Elf_Data *info, size_t *offset, struct record *record)
{
    const unsigned char *base = info->d_buf;
    if (base == NULL || info->d_size < 4 || *offset > info->d_size - 4)
        return 0;
    record->format = base[*offset];
    record->attribute = base[*offset + 1];
    record->bytes = record->format == FORMAT_SIZED ? (size_t)(base[*offset + 2] | base[*offset + 3] << 8) : 0;
    record->data = base + *offset + 4;
    if (record->bytes > info->d_size - 4 - *offset)
        return 0;
    *offset += 4 + record->bytes;
    return 1;
}

static uint32_t word(const struct record *record, size_t index)
{
    uint32_t value;
    memcpy(&value, record->data + index * sizeof value, sizeof value);
    return value;
}

static int take_record(struct sim_image_kernel *kernel, const struct record *record)
{
    if ((record->attribute == INFO_PARAM || record->attribute == INFO_PARAM_LONG) && record->bytes >= 12) {
        uint32_t size = record->attribute == INFO_PARAM ? word(record, 2) >> 18 : word(record, 2);
        return sim_image_add_param(kernel, word(record, 1) & 0xffff, word(record, 1) >> 16, size);
    }
    if (record->attribute == INFO_MAX_THREADS && record->bytes >= 12)
        kernel->max_threads = word(record, 0) * word(record, 1) * word(record, 2);
    if (record->attribute == INFO_CLUSTER && record->bytes >= 12)
        for (size_t i = 0; i < 3; i++)
            kernel->cluster[i] = word(record, i);
    return CUDA_SUCCESS;
}

static uint32_t register_count(const struct cubin *cubin, uint32_t symbol)
{
    Elf_Scn *scn = find_section(cubin, ".nv.info", "");
    const Elf_Data *info = scn != NULL ? elf_getdata(scn, NULL) : NULL;
    struct record record;
    for (size_t offset = 0; info != NULL && next_record(info, &offset, &record);)
        if (record.attribute == INFO_REGISTERS && record.bytes >= 8 && word(&record, 0) == symbol)
            return word(&record, 1);
    return 0;
}

static int read_kernel(const struct cubin *cubin, const char *name, uint32_t symbol)
{
    struct sim_image_kernel *kernel = sim_image_add_kernel(cubin->image, name, strlen(name));
    if (kernel == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    kernel->registers = register_count(cubin, symbol);
    Elf_Scn *shared = find_section(cubin, ".nv.shared.", name);
    GElf_Shdr header;
    if (shared != NULL && gelf_getshdr(shared, &header) != NULL)
        kernel->shared_bytes = (uint32_t)header.sh_size;
    Elf_Scn *scn = find_section(cubin, ".nv.info.", name);
    const Elf_Data *info = scn != NULL ? elf_getdata(scn, NULL) : NULL;
    struct record record;
    for (size_t offset = 0; info != NULL && next_record(info, &offset, &record);) {
        int error = take_record(kernel, &record);
        if (error != CUDA_SUCCESS)
            return error;
    }
    return CUDA_SUCCESS;
}

static int read_global(const struct cubin *cubin, const char *name, const GElf_Sym *symbol)
{
    Elf_Scn *scn = elf_getscn(cubin->elf, symbol->st_shndx);
    GElf_Shdr header;
    if (scn == NULL || gelf_getshdr(scn, &header) == NULL)
        return CUDA_SUCCESS;
    const char *section = elf_strptr(cubin->elf, cubin->names, header.sh_name);
    int constant = section != NULL && strcmp(section, ".nv.constant3") == 0;
    int plain = section != NULL && (strcmp(section, ".nv.global") == 0 || strcmp(section, ".nv.global.init") == 0);
    if (!constant && !plain)
        return CUDA_SUCCESS;
    struct sim_image_global *global = sim_image_add_global(cubin->image, name, strlen(name));
    if (global == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    global->bytes = (size_t)symbol->st_size;
    global->constant = constant;
    const Elf_Data *data = elf_getdata(scn, NULL);
    if (header.sh_type == SHT_NOBITS || data == NULL || data->d_buf == NULL)
        return CUDA_SUCCESS;
    if (symbol->st_value > data->d_size || symbol->st_size > data->d_size - symbol->st_value)
        return CUDA_ERROR_INVALID_IMAGE;
    global->initial = malloc(global->bytes != 0 ? global->bytes : 1);
    if (global->initial == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(global->initial, (const char *)data->d_buf + symbol->st_value, global->bytes);
    return CUDA_SUCCESS;
}

static int read_symbols(const struct cubin *cubin)
{
    Elf_Data *data = elf_getdata(cubin->symbols, NULL);
    if (data == NULL || cubin->symbols_header.sh_entsize == 0)
        return CUDA_ERROR_INVALID_IMAGE;
    int count = (int)(cubin->symbols_header.sh_size / cubin->symbols_header.sh_entsize);
    int error = CUDA_SUCCESS;
    for (int i = 0; i < count && error == CUDA_SUCCESS; i++) {
        GElf_Sym symbol;
        if (gelf_getsym(data, i, &symbol) == NULL)
            return CUDA_ERROR_INVALID_IMAGE;
        const char *name = elf_strptr(cubin->elf, cubin->symbols_header.sh_link, symbol.st_name);
        if (name == NULL || symbol.st_shndx == SHN_UNDEF)
            continue;
        if (GELF_ST_TYPE(symbol.st_info) == STT_FUNC && (symbol.st_other & ENTRY_MARK) != 0)
            error = read_kernel(cubin, name, (uint32_t)i);
        else if (GELF_ST_TYPE(symbol.st_info) == STT_OBJECT)
            error = read_global(cubin, name, &symbol);
    }
    return error;
}

/* Since ABI version 8 the architecture is the second byte of the flags, before that the first. */
static int binary_version(Elf *elf)
{
    GElf_Ehdr header;
    if (gelf_getehdr(elf, &header) == NULL)
        return 0;
    return (int)(header.e_ident[EI_ABIVERSION] >= 8 ? header.e_flags >> 8 & 0xff : header.e_flags & 0xff);
}

int sim_image_read_cubin(struct sim_image *image, const void *data, size_t bytes)
{
    elf_version(EV_CURRENT);
    char *copy = malloc(bytes);
    if (copy == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(copy, data, bytes);
    struct cubin cubin = {.elf = elf_memory(copy, bytes), .image = image};
    int error = CUDA_ERROR_INVALID_IMAGE;
    if (cubin.elf != NULL && elf_kind(cubin.elf) == ELF_K_ELF && elf_getshdrstrndx(cubin.elf, &cubin.names) == 0) {
        image->binary_version = image->ptx_version = binary_version(cubin.elf);
        cubin.symbols = find_section(&cubin, ".symtab", "");
        if (cubin.symbols != NULL && gelf_getshdr(cubin.symbols, &cubin.symbols_header) != NULL)
            error = read_symbols(&cubin);
    }
    if (cubin.elf != NULL)
        elf_end(cubin.elf);
    free(copy);
    return error;
}
