/*
 * The library's own symbol table, read without dlsym: a shim may stand in front of dlsym, and a driver does not ask it
 * for its own functions either. The dynamic section of the object that holds this code is read once; names hash into a
 * table.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sim_symbols.h"

enum { SLOTS = 8192 }; /* power of two, several times the exported names */

struct table {
    uintptr_t base;
    const ElfW(Sym) * symbol;
    const char *names;
    const uint32_t *gnu_hash;
    const ElfW(Sym) * slot[SLOTS];
};

static struct table table;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static uint32_t hash(const char *name)
{
    uint32_t value = 2166136261u;
    for (; *name != '\0'; name++)
        value = (value ^ (unsigned char)*name) * 16777619u;
    return value;
}

static int holds(const struct dl_phdr_info *info, uintptr_t address)
{
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        if (info->dlpi_phdr[i].p_type == PT_LOAD && address >= start && address - start < info->dlpi_phdr[i].p_memsz)
            return 1;
    }
    return 0;
}

/* The loader of some systems relocates these pointers in place, that of others does not. */
static const void *pointer(uintptr_t base, ElfW(Addr) value)
{
    return (const void *)(value < base ? base + value : value);
}

static int find_self(struct dl_phdr_info *info, size_t bytes, void *unused)
{
    (void)bytes;
    (void)unused;
    if (!holds(info, (uintptr_t)&find_self))
        return 0;
    table.base = info->dlpi_addr;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_DYNAMIC)
            continue;
        const ElfW(Dyn) *entry = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
        for (; entry->d_tag != DT_NULL; entry++) {
            if (entry->d_tag == DT_SYMTAB)
                table.symbol = pointer(table.base, entry->d_un.d_ptr);
            else if (entry->d_tag == DT_STRTAB)
                table.names = pointer(table.base, entry->d_un.d_ptr);
            else if (entry->d_tag == DT_GNU_HASH)
                table.gnu_hash = pointer(table.base, entry->d_un.d_ptr);
        }
    }
    return 1;
}

/* Visits the chains of the GNU hash section: exactly the defined, exported symbols. */
static void fill(void)
{
    dl_iterate_phdr(find_self, NULL);
    if (table.gnu_hash == NULL || table.symbol == NULL || table.names == NULL)
        return;
    uint32_t buckets = table.gnu_hash[0], first = table.gnu_hash[1], bloom_words = table.gnu_hash[2];
    const uint32_t *bucket = table.gnu_hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chain = bucket + buckets;
    for (uint32_t b = 0; b < buckets; b++) {
        for (uint32_t i = bucket[b]; i >= first && i != 0; i++) {
            uint32_t slot = hash(table.names + table.symbol[i].st_name) % SLOTS;
            while (table.slot[slot] != NULL)
                slot = (slot + 1) % SLOTS;
            table.slot[slot] = &table.symbol[i];
            if (chain[i - first] & 1)
                break;
        }
    }
}

void *sim_own_symbol(const char *name)
{
    pthread_once(&once, fill);
    for (uint32_t slot = hash(name) % SLOTS; table.slot[slot] != NULL; slot = (slot + 1) % SLOTS)
        if (strcmp(table.names + table.slot[slot]->st_name, name) == 0)
            return (void *)(table.base + table.slot[slot]->st_value);
    return NULL;
}
