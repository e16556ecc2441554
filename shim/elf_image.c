#define _GNU_SOURCE
#include "elf_image.h"

struct visit {
    bool (*visit)(const struct ov_elf *object, void *context);
    void *context;
};

static int visit_one(struct dl_phdr_info *info, size_t bytes, void *data)
{
    const struct visit *visit = data;
    struct ov_elf object = {
        .base = info->dlpi_addr,
        .path = info->dlpi_name ? info->dlpi_name : "",
        .segment = info->dlpi_phdr,
        .segments = info->dlpi_phnum,
        .loads = bytes >= offsetof(struct dl_phdr_info, dlpi_subs) ? info->dlpi_adds : 0,
    };
    for (size_t i = 0; i < object.segments; i++) {
        if (object.segment[i].p_type == PT_DYNAMIC) {
            object.dynamic = (const ElfW(Dyn) *)(object.base + object.segment[i].p_vaddr);
        }
    }
    return visit->visit(&object, visit->context);
}

bool ov_elf_each(bool (*visit)(const struct ov_elf *object, void *context), void *context)
{
    struct visit data = {visit, context};
    return dl_iterate_phdr(visit_one, &data) != 0;
}

bool ov_elf_each_early(bool (*visit)(const struct ov_elf *object, void *context), void *context)
{
    for (const struct link_map *map = _r_debug.r_map; map != NULL; map = map->l_next) {
        const struct ov_elf object = {
            .base = map->l_addr,
            .path = map->l_name ? map->l_name : "",
            .dynamic = map->l_ld,
        };
        if (visit(&object, context)) {
            return true;
        }
    }
    return false;
}

bool ov_elf_holds(const struct ov_elf *object, const void *address)
{
    for (size_t i = 0; i < object->segments; i++) {
        const ElfW(Phdr) *segment = &object->segment[i];
        if (segment->p_type == PT_LOAD && (uintptr_t)address - (object->base + segment->p_vaddr) < segment->p_memsz) {
            return true;
        }
    }
    return false;
}

struct holding {
    const void *address;
    struct ov_elf *out;
};

static bool visit_holding(const struct ov_elf *object, void *context)
{
    const struct holding *holding = context;
    if (!ov_elf_holds(object, holding->address)) {
        return false;
    }
    *holding->out = *object;
    return true;
}

bool ov_elf_holding(const void *address, struct ov_elf *out)
{
    struct holding holding = {address, out};
    return ov_elf_each(visit_holding, &holding);
}

bool ov_elf_is(const struct ov_elf *object, const char *prefix)
{
    const char *name = object->path;
    for (const char *c = object->path; *c; c++) {
        if (*c == '/') {
            name = c + 1;
        }
    }
    while (*prefix && *name == *prefix) {
        name++;
        prefix++;
    }
    return *prefix == 0;
}

static bool is_same(const char *a, const char *b)
{
    while (*a && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

/* The parts of an object's dynamic section that a symbol look-up needs. */
struct symbols {
    const ElfW(Sym) * symbol;
    const char *string;
    const ElfW(Half) * version; /* one per symbol, NULL if unversioned */
    const uint32_t *gnu_hash, *sysv_hash;
};

static bool find_symbols(const struct ov_elf *object, struct symbols *out)
{
    const ElfW(Dyn) *entry = object->dynamic;
    for (; entry != NULL && entry->d_tag != DT_NULL; entry++) {
        /* The linker relocates these in place, except in objects it did not map itself (the vDSO). */
        const uintptr_t value = entry->d_un.d_ptr;
        const void *at = (const void *)(value < object->base ? value + object->base : value);
        switch (entry->d_tag) {
        case DT_SYMTAB:
            out->symbol = at;
            break;
        case DT_STRTAB:
            out->string = at;
            break;
        case DT_VERSYM:
            out->version = at;
            break;
        case DT_GNU_HASH:
            out->gnu_hash = at;
            break;
        case DT_HASH:
            out->sysv_hash = at;
            break;
        default:
            break;
        }
    }
    return out->symbol != NULL && out->string != NULL;
}

/* Bit 15 of a symbol's version: not the default one (name@VERSION, where the default is name@@VERSION). */
enum { VERSION_HIDDEN = 0x8000 };

struct match {
    const ElfW(Sym) * best;
    bool is_default;
};

/* Takes the symbol if it is a definition of that name; true when none can be better. */
static bool consider(const struct symbols *in, size_t index, const char *name, struct match *match)
{
    const ElfW(Sym) *symbol = &in->symbol[index];
    const unsigned type = ELF64_ST_TYPE(symbol->st_info);
    const bool is_code_or_data = type == STT_FUNC || type == STT_OBJECT || type == STT_NOTYPE;
    if (symbol->st_shndx == SHN_UNDEF || !is_code_or_data || !is_same(in->string + symbol->st_name, name)) {
        return false;
    }
    match->is_default = in->version == NULL || !(in->version[index] & VERSION_HIDDEN);
    if (match->best == NULL || match->is_default) {
        match->best = symbol;
    }
    return match->is_default;
}

static void search_gnu(const struct symbols *in, const char *name, struct match *match)
{
    const uint32_t *table = in->gnu_hash;
    const uint32_t buckets = table[0], first = table[1], filter_words = table[2], shift = table[3];
    const ElfW(Addr) *filter = (const ElfW(Addr) *)(table + 4);
    const uint32_t *bucket = (const uint32_t *)(filter + filter_words);
    const uint32_t *chain = bucket + buckets;
    const unsigned bits = 8 * sizeof *filter;

    uint32_t hash = 5381;
    for (const unsigned char *c = (const unsigned char *)name; *c; c++) {
        hash = hash * 33 + *c;
    }
    const ElfW(Addr) word = filter[hash / bits % filter_words];
    if (!(word >> (hash % bits) & word >> ((hash >> shift) % bits) & 1) || bucket[hash % buckets] < first) {
        return;
    }
    for (uint32_t i = bucket[hash % buckets];; i++) {
        const uint32_t entry = chain[i - first]; /* the hash, lowest bit replaced: end of chain */
        if ((entry | 1) == (hash | 1) && consider(in, i, name, match)) {
            return;
        }
        if (entry & 1) {
            return;
        }
    }
}

/* Old objects without a GNU hash table; the number of symbols is all we need of theirs. */
static void search_all(const struct symbols *in, const char *name, struct match *match)
{
    const uint32_t count = in->sysv_hash[1];
    for (uint32_t i = 0; i < count && !consider(in, i, name, match); i++) {
    }
}

void *ov_elf_symbol(const struct ov_elf *object, const char *name)
{
    struct symbols symbols = {0};
    struct match match = {0};
    if (!find_symbols(object, &symbols)) {
        return NULL;
    }
    if (symbols.gnu_hash != NULL) {
        search_gnu(&symbols, name, &match);
    } else if (symbols.sysv_hash != NULL) {
        search_all(&symbols, name, &match);
    }
    return match.best != NULL ? (void *)(object->base + match.best->st_value) : NULL;
}
