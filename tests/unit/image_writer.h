/*
 * image_writer.h - writes small code images for the tests of the image reader: cubins with any records, fatbins with
 * any entries. It shares no code with the reader. Blobs are owned by the caller (blob_free).
 */
#ifndef OV_TEST_IMAGE_WRITER_H
#define OV_TEST_IMAGE_WRITER_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct blob {
    uint8_t *data;
    size_t bytes;
};

static inline void blob_put(struct blob *blob, const void *data, size_t bytes)
{
    blob->data = realloc(blob->data, blob->bytes + bytes + 1);
    if (!blob->data) {
        abort();
    }
    if (bytes) {
        memcpy(blob->data + blob->bytes, data, bytes);
    }
    blob->bytes += bytes;
}

static inline void blob_free(struct blob *blob)
{
    free(blob->data);
    *blob = (struct blob){NULL, 0};
}

/* All of a file; ends the test program when it cannot be read. */
static inline struct blob blob_load(const char *path)
{
    struct blob blob = {NULL, 0};
    FILE *file = fopen(path, "rb");
    uint8_t part[4096];
    size_t bytes;

    if (!file) {
        perror(path);
        abort();
    }
    while ((bytes = fread(part, 1, sizeof part, file)) > 0) {
        blob_put(&blob, part, bytes);
    }
    fclose(file);
    return blob;
}

/* One record of .nv.info: payload only with format 4. */
static inline void put_record(struct blob *records, uint8_t format, uint8_t attribute, uint16_t value,
                              const void *payload)
{
    blob_put(records, &format, 1);
    blob_put(records, &attribute, 1);
    blob_put(records, &value, 2);
    if (format == 4) {
        blob_put(records, payload, value);
    }
}

static inline void put_any_kparam(struct blob *records, uint8_t attribute, uint16_t ordinal, uint16_t offset,
                                  uint32_t word)
{
    const uint32_t payload[3] = {0, (uint32_t)offset << 16 | ordinal, word};
    put_record(records, 4, attribute, sizeof payload, payload);
}

static inline void put_kparam(struct blob *records, uint16_t ordinal, uint16_t offset, uint32_t bytes)
{
    put_any_kparam(records, 0x17, ordinal, offset, bytes << 18 | 0x1f000);
}

static inline void put_kparam_wide(struct blob *records, uint16_t ordinal, uint16_t offset, uint32_t bytes)
{
    put_any_kparam(records, 0x45, ordinal, offset, bytes | 0x05000000);
}

static inline void put_cbank(struct blob *records, uint16_t base, uint16_t total)
{
    const uint32_t payload[2] = {7, (uint32_t)total << 16 | base};
    put_record(records, 4, 0x0a, sizeof payload, payload);
}

struct cubin_function {
    const char *name;
    int is_entry;        /* has the entry bit */
    struct blob records; /* without data: no section of records */
    const char *section; /* name of the section, NULL: .nv.info.<name> */
};

static inline uint32_t put_string(struct blob *strings, const char *prefix, const char *text)
{
    const uint32_t at = (uint32_t)strings->bytes;
    blob_put(strings, prefix, strlen(prefix));
    blob_put(strings, text, strlen(text) + 1);
    return at;
}

/* Appends contents to the file and its header to the section table. */
static inline void put_section(struct blob *file, struct blob *table, Elf64_Shdr section, const struct blob *contents)
{
    section.sh_offset = file->bytes;
    section.sh_size = contents->bytes;
    blob_put(file, contents->data, contents->bytes);
    blob_put(table, &section, sizeof section);
}

static inline void put_symbol(struct blob *symbols, struct blob *strings, const struct cubin_function *function)
{
    const Elf64_Sym symbol = {.st_name = put_string(strings, "", function->name),
                              .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
                              .st_other = function->is_entry ? 0x10 : 0};
    blob_put(symbols, &symbol, sizeof symbol);
}

/* Sections: 0 none, one of records a function, then names, symbols, strings. With `many` the section count and the
 * index of the name table stand in section 0, as for 65,280 sections and more. */
static inline struct blob cubin_write(const struct cubin_function *function, size_t count, bool many)
{
    Elf64_Ehdr header = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT, 0x41, 8},
                         .e_machine = 190,
                         .e_ehsize = sizeof header,
                         .e_shentsize = sizeof(Elf64_Shdr)};
    struct blob file = {NULL, 0}, table = {NULL, 0}, symbols = {NULL, 0}, strings = {NULL, 0}, names = {NULL, 0};
    Elf64_Shdr *first;
    uint32_t sections;

    blob_put(&file, &header, sizeof header);
    blob_put(&table, &(Elf64_Shdr){.sh_type = SHT_NULL}, sizeof(Elf64_Shdr));
    for (size_t i = 0; i < count; i++) {
        const Elf64_Shdr section = {.sh_type = SHT_LOPROC,
                                    .sh_name = function[i].section ? put_string(&names, "", function[i].section)
                                                                   : put_string(&names, ".nv.info.", function[i].name)};
        if (function[i].records.data) {
            put_section(&file, &table, section, &function[i].records);
        }
        put_symbol(&symbols, &strings, &function[i]);
    }
    sections = (uint32_t)(table.bytes / sizeof(Elf64_Shdr)) + 3;
    put_section(&file, &table, (Elf64_Shdr){.sh_type = SHT_STRTAB}, &names);
    put_section(&file, &table,
                (Elf64_Shdr){.sh_type = SHT_SYMTAB, .sh_entsize = sizeof(Elf64_Sym), .sh_link = sections - 1},
                &symbols);
    put_section(&file, &table, (Elf64_Shdr){.sh_type = SHT_STRTAB}, &strings);
    header.e_shoff = file.bytes;
    header.e_shnum = many ? 0 : (uint16_t)sections;
    header.e_shstrndx = many ? SHN_XINDEX : (uint16_t)(sections - 3);
    first = (Elf64_Shdr *)(void *)table.data;
    first->sh_size = many ? sections : 0;
    first->sh_link = many ? sections - 3 : 0;
    memcpy(file.data, &header, sizeof header);
    blob_put(&file, table.data, table.bytes);
    blob_free(&table);
    blob_free(&symbols);
    blob_free(&strings);
    blob_free(&names);
    return file;
}

/* A function with one parameter of 8 bytes and `second` more. */
static inline struct cubin_function function_of(const char *name, uint32_t second_bytes)
{
    struct cubin_function function = {name, 1, {NULL, 0}, NULL};

    put_kparam(&function.records, 1, 8, second_bytes);
    put_kparam(&function.records, 0, 0, 8);
    put_cbank(&function.records, 0x160, (uint16_t)(8 + second_bytes));
    return function;
}

static inline struct blob cubin_of(struct cubin_function *function, size_t count, bool many)
{
    struct blob blob = cubin_write(function, count, many);

    for (size_t i = 0; i < count; i++) {
        blob_free(&function[i].records);
    }
    return blob;
}

struct fatbin_entry {
    uint16_t kind;
    uint32_t architecture;
    uint64_t flags;
    struct blob payload;
    uint32_t compressed_bytes;
    uint64_t plain_bytes;
};

static inline struct blob fatbin_write(const struct fatbin_entry *entry, size_t count)
{
    struct blob file = {NULL, 0};
    const uint32_t magic = 0xba55ed50;
    const uint16_t version_and_bytes[2] = {1, 16};
    uint64_t entries_bytes = 0;

    blob_put(&file, &magic, 4);
    blob_put(&file, version_and_bytes, 4);
    blob_put(&file, &entries_bytes, 8);
    for (size_t i = 0; i < count; i++) {
        const uint16_t kind_and_version[2] = {entry[i].kind, 0x101};
        const uint32_t header_bytes = 64, zero[2] = {0, 0}, version[2] = {0, 0x00010008};
        const uint64_t payload_bytes = entry[i].payload.bytes;
        blob_put(&file, kind_and_version, 4);
        blob_put(&file, &header_bytes, 4);
        blob_put(&file, &payload_bytes, 8);
        blob_put(&file, &entry[i].compressed_bytes, 4);
        blob_put(&file, version, 8);
        blob_put(&file, &entry[i].architecture, 4);
        blob_put(&file, zero, 8);
        blob_put(&file, &entry[i].flags, 8);
        blob_put(&file, zero, 8);
        blob_put(&file, &entry[i].plain_bytes, 8);
        blob_put(&file, entry[i].payload.data, entry[i].payload.bytes);
    }
    entries_bytes = file.bytes - 16;
    memcpy(file.data + 8, &entries_bytes, 8);
    return file;
}

#endif
