/*
 * elf_image.h - the objects that the dynamic linker has loaded, and the symbols they define.
 *
 * dlsym() is what we replace, so it cannot be asked for itself; and RTLD_NEXT has to be answered from the caller's
 * place. Both need a plain look at loaded objects: their order, their segments, their dynamic symbol tables.
 *
 * An object is a borrowed view: it stays valid as long as the object stays loaded. Nothing here allocates, sets
 * dlerror() or takes a lock of ours. Thread-safe, but for ov_elf_each_early().
 *
 * The first look happens very early: a sanitizer's runtime asks dlsym() for everything it intercepts, before any
 * function of the C library that it intercepts can be called. So this file calls none but dl_iterate_phdr(), and that
 * not in ov_elf_each_early(); and it is never built with a sanitizer itself.
 */
#ifndef OV_ELF_IMAGE_H
#define OV_ELF_IMAGE_H

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ov_elf {
    uintptr_t base;             /* load bias */
    const char *path;           /* as the linker knows it; "" for the program itself */
    const ElfW(Dyn) * dynamic;  /* NULL if it has none */
    const ElfW(Phdr) * segment; /* none in ov_elf_each_early() */
    size_t segments;
    unsigned long long loads; /* how many objects the process has ever loaded; 0 in ov_elf_each_early() */
};

/* Calls visit for each object in load order (which is search order for those loaded at start), until it returns true.
 * Returns what the last visit returned. */
bool ov_elf_each(bool (*visit)(const struct ov_elf *object, void *context), void *context);

/* The same without the linker's lock: only when no other thread can load or unload anything, in particular while the
 * process starts. */
bool ov_elf_each_early(bool (*visit)(const struct ov_elf *object, void *context), void *context);

/* The object whose segments hold the address; false if there is none. */
bool ov_elf_holding(const void *address, struct ov_elf *out);
bool ov_elf_holds(const struct ov_elf *object, const void *address);

/* The address of a symbol that the object defines (default version first), NULL if it does not. Indirect functions
 * are not resolved: NULL. */
void *ov_elf_symbol(const struct ov_elf *object, const char *name);

/* Whether the file name of the object starts with the prefix. */
bool ov_elf_is(const struct ov_elf *object, const char *prefix);

#endif
