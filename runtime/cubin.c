#include "cubin.h"

#include <elf.h>
#include <stdlib.h>

#include "nvinfo.h"

/* <elf.h> of the oldest glibc supported knows the machine, but not NVIDIA's symbol bits. */
#define CUDA_MACHINE   190
#define CUDA_ENTRY_BIT 0x10
#define RECORDS_PREFIX ".nv.info."
#define RECORDS_TYPE   (SHT_LOPROC + 0)
#define SYMBOL_BYTES   sizeof(Elf64_Sym)
#define SECTION_BYTES  sizeof(Elf64_Shdr)

struct cubin {
    struct ov_view file;
    Elf64_Ehdr header;
    uint64_t section_count;
    struct ov_view section_names;
    const char **entry; /* names of the entry symbols, sorted; they point into the file */
    size_t entry_count;
};

static bool read_section(struct cubin *cubin, uint64_t index, Elf64_Shdr *section)
{
    return index < cubin->section_count &&
           ov_view_read(&cubin->file, cubin->header.e_shoff + index * SECTION_BYTES, section, SECTION_BYTES);
}

/* The bytes of a section as a view of their own. */
static bool read_contents(struct cubin *cubin, const Elf64_Shdr *section, struct ov_view *contents)
{
    if (section->sh_type == SHT_NOBITS || !ov_view_need(&cubin->file, section->sh_offset, section->sh_size)) {
        return false;
    }
    *contents = ov_view_part(&cubin->file, section->sh_offset, section->sh_size);
    return true;
}

/* NULL when the string does not end inside the table. */
static const char *string_at(const struct ov_view *table, uint64_t offset)
{
    if (offset >= table->bytes || !memchr(table->data + offset, '\0', table->bytes - (size_t)offset)) {
        return NULL;
    }
    return (const char *)table->data + offset;
}

static int read_header(struct cubin *cubin)
{
    const Elf64_Ehdr *header = &cubin->header;

    if (!ov_view_read(&cubin->file, 0, &cubin->header, sizeof cubin->header)) {
        return OV_IMAGE_TRUNCATED;
    }
    if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64 ||
        header->e_ident[EI_DATA] != ELFDATA2LSB || header->e_machine != CUDA_MACHINE) {
        return OV_IMAGE_FOREIGN;
    }
    if (header->e_shoff < sizeof *header || header->e_shentsize != SECTION_BYTES) {
        return OV_IMAGE_MALFORMED;
    }
    return OV_IMAGE_OK;
}

/* Counts that do not fit the header's 16 bits stand in section 0. */
static int find_sections(struct cubin *cubin)
{
    Elf64_Shdr first, names;
    uint64_t names_index = cubin->header.e_shstrndx;

    cubin->section_count = 1;
    if (!read_section(cubin, 0, &first)) {
        return OV_IMAGE_TRUNCATED;
    }
    cubin->section_count = cubin->header.e_shnum ? cubin->header.e_shnum : first.sh_size;
    if (names_index == SHN_XINDEX) {
        names_index = first.sh_link;
    }
    if (cubin->section_count > UINT32_MAX || names_index >= cubin->section_count) {
        return OV_IMAGE_MALFORMED;
    }
    if (!ov_view_need(&cubin->file, cubin->header.e_shoff, cubin->section_count * SECTION_BYTES) ||
        !read_section(cubin, names_index, &names)) {
        return OV_IMAGE_TRUNCATED;
    }
    if (names.sh_type != SHT_STRTAB) {
        return OV_IMAGE_MALFORMED;
    }
    return read_contents(cubin, &names, &cubin->section_names) ? OV_IMAGE_OK : OV_IMAGE_TRUNCATED;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int collect_entries(struct cubin *cubin, struct ov_view *symbols, const struct ov_view *names)
{
    const size_t count = symbols->bytes / SYMBOL_BYTES;
    const char **entry = realloc(cubin->entry, (cubin->entry_count + count + 1) * sizeof *entry);

    if (!entry) {
        return OV_IMAGE_NO_MEMORY;
    }
    cubin->entry = entry;
    for (size_t i = 0; i < count; i++) {
        Elf64_Sym symbol;
        const char *name;
        memcpy(&symbol, symbols->data + i * SYMBOL_BYTES, sizeof symbol);
        if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || !(symbol.st_other & CUDA_ENTRY_BIT)) {
            continue;
        }
        name = string_at(names, symbol.st_name);
        if (!name) {
            return OV_IMAGE_MALFORMED;
        }
        cubin->entry[cubin->entry_count++] = name;
    }
    return OV_IMAGE_OK;
}

static int find_entries(struct cubin *cubin)
{
    for (uint64_t i = 0; i < cubin->section_count; i++) {
        Elf64_Shdr table, strings;
        struct ov_view symbols, names;
        int error;
        if (!read_section(cubin, i, &table)) {
            return OV_IMAGE_TRUNCATED;
        }
        if (table.sh_type != SHT_SYMTAB) {
            continue;
        }
        if (table.sh_entsize != SYMBOL_BYTES || !read_section(cubin, table.sh_link, &strings)) {
            return OV_IMAGE_MALFORMED;
        }
        if (!read_contents(cubin, &table, &symbols) || !read_contents(cubin, &strings, &names)) {
            return OV_IMAGE_TRUNCATED;
        }
        error = collect_entries(cubin, &symbols, &names);
        if (error) {
            return error;
        }
    }
    if (cubin->entry_count) {
        qsort(cubin->entry, cubin->entry_count, sizeof *cubin->entry, by_text);
    }
    return OV_IMAGE_OK;
}

static bool is_entry(const struct cubin *cubin, const char *name)
{
    return cubin->entry_count &&
           bsearch(&name, cubin->entry, cubin->entry_count, sizeof *cubin->entry, by_text) != NULL;
}

static int read_kernel(struct cubin *cubin, const Elf64_Shdr *section, const char *name, struct ov_image *into)
{
    struct ov_view records;
    struct ov_param *param = NULL;
    uint32_t param_count = 0;
    int error;

    if (!read_contents(cubin, section, &records)) {
        return OV_IMAGE_TRUNCATED;
    }
    error = ov_nvinfo_read(records, &param, &param_count);
    if (error == OV_IMAGE_MALFORMED) {
        return ov_image_reject(into, name, strlen(name));
    }
    if (error) {
        return error;
    }
    error = ov_image_add(into, name, strlen(name), param, param_count);
    free(param);
    return error;
}

static int read_kernels(struct cubin *cubin, struct ov_image *into)
{
    const size_t prefix_bytes = sizeof RECORDS_PREFIX - 1;

    for (uint64_t i = 0; i < cubin->section_count; i++) {
        Elf64_Shdr section;
        const char *name;
        int error;
        if (!read_section(cubin, i, &section)) {
            return OV_IMAGE_TRUNCATED;
        }
        if (section.sh_type != RECORDS_TYPE) {
            continue;
        }
        name = string_at(&cubin->section_names, section.sh_name);
        if (!name) {
            return OV_IMAGE_MALFORMED;
        }
        if (strncmp(name, RECORDS_PREFIX, prefix_bytes) != 0 || !is_entry(cubin, name + prefix_bytes)) {
            continue;
        }
        error = read_kernel(cubin, &section, name + prefix_bytes, into);
        if (error) {
            return error;
        }
    }
    return OV_IMAGE_OK;
}

int ov_cubin_read(struct ov_view elf, struct ov_image *into)
{
    struct cubin cubin = {.file = elf};
    int error = read_header(&cubin);

    if (!error) {
        error = find_sections(&cubin);
    }
    if (!error) {
        error = find_entries(&cubin);
    }
    if (!error) {
        error = read_kernels(&cubin, into);
    }
    free(cubin.entry);
    return error;
}

bool ov_cubin_whole(struct ov_view elf, struct ov_view *whole)
{
    struct cubin cubin = {.file = elf};
    if (read_header(&cubin) != OV_IMAGE_OK || find_sections(&cubin) != OV_IMAGE_OK) {
        return false;
    }
    const Elf64_Ehdr *header = &cubin.header;
    const uint64_t program_bytes = (uint64_t)header->e_phnum * header->e_phentsize;
    uint64_t end = header->e_shoff + cubin.section_count * SECTION_BYTES;
    if (program_bytes > UINT64_MAX - header->e_phoff) {
        return false;
    }
    end = header->e_phoff + program_bytes > end ? header->e_phoff + program_bytes : end;
    for (uint64_t i = 0; i < cubin.section_count; i++) {
        Elf64_Shdr section;
        if (!read_section(&cubin, i, &section) || section.sh_size > UINT64_MAX - section.sh_offset) {
            return false;
        }
        if (section.sh_type != SHT_NOBITS && section.sh_offset + section.sh_size > end) {
            end = section.sh_offset + section.sh_size;
        }
    }
    if (!ov_view_need(&cubin.file, 0, end)) {
        return false;
    }
    *whole = ov_view_part(&cubin.file, 0, end);
    return true;
}
