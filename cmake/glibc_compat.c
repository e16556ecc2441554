/*
 * Functions that headers of a newer glibc refer to and an old libc.so.6 does not have, made from what it has. Linked
 * into libovershot.so only (OvOldGlibc.cmake), hidden, so that the rest of the tree can be written as ever.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

/* Until 2.33 the stat family was inline and called these, with the version of struct stat. */
#ifdef __x86_64__
enum { STAT_VERSION = 1 };
#else
enum { STAT_VERSION = 0 };
#endif
int __xstat(int version, const char *path, struct stat *out);
int __lxstat(int version, const char *path, struct stat *out);
int __fxstat(int version, int fd, struct stat *out);
int __fxstatat(int version, int dir, const char *path, struct stat *out, int flags);

HIDDEN int stat(const char *restrict path, struct stat *restrict out)
{
    return __xstat(STAT_VERSION, path, out);
}

HIDDEN int lstat(const char *restrict path, struct stat *restrict out)
{
    return __lxstat(STAT_VERSION, path, out);
}

HIDDEN int fstat(int fd, struct stat *out)
{
    return __fxstat(STAT_VERSION, fd, out);
}

HIDDEN int fstatat(int dir, const char *restrict path, struct stat *restrict out, int flags)
{
    return __fxstatat(STAT_VERSION, dir, path, out, flags);
}

/* struct stat and struct stat64 are the same on 64-bit machines. */
HIDDEN int fstat64(int fd, struct stat64 *out) __attribute__((alias("fstat")));
HIDDEN int stat64(const char *restrict path, struct stat64 *restrict out) __attribute__((alias("stat")));

/* 2.30 */
HIDDEN pid_t gettid(void)
{
    return (pid_t)syscall(SYS_gettid);
}

/* From 2.38 on, strtol() and its kin are these names in newer C dialects. The older functions know no "0b" prefix. */
long old_strtol(const char *text, char **end, int base) __asm__("strtol");
unsigned long old_strtoul(const char *text, char **end, int base) __asm__("strtoul");
HIDDEN long __isoc23_strtol(const char *text, char **end, int base);
HIDDEN unsigned long __isoc23_strtoul(const char *text, char **end, int base);
HIDDEN long long __isoc23_strtoll(const char *text, char **end, int base);
HIDDEN unsigned long long __isoc23_strtoull(const char *text, char **end, int base);

long __isoc23_strtol(const char *text, char **end, int base)
{
    return old_strtol(text, end, base);
}

unsigned long __isoc23_strtoul(const char *text, char **end, int base)
{
    return old_strtoul(text, end, base);
}

long long __isoc23_strtoll(const char *text, char **end, int base)
{
    return old_strtol(text, end, base);
}

unsigned long long __isoc23_strtoull(const char *text, char **end, int base)
{
    return old_strtoul(text, end, base);
}
