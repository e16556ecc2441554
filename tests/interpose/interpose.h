/*
 * interpose.h - what the test programs of this folder share. A program holds one or more cases; its argument names the
 * one to run. Exit status 0 passed, 1 failed (with file and line), 77 skipped.
 */
#ifndef INTERPOSE_H
#define INTERPOSE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <cuda.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition)                                                            \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                \
        }                                                                           \
    } while (0)

struct test_case {
    const char *name;
    void (*run)(void);
};

#define CASE(name)  \
    {               \
#name, name \
    }

/* The last thing in a program: TEST_CASES(CASE(a), CASE(b)) */
#define TEST_CASES(...)                                                           \
    int main(int argc, char **argv)                                               \
    {                                                                             \
        static const struct test_case cases[] = {__VA_ARGS__};                    \
        for (size_t i = 0; argc > 1 && i < sizeof cases / sizeof cases[0]; i++) { \
            if (strcmp(argv[1], cases[i].name) == 0) {                            \
                cases[i].run();                                                   \
                return 0;                                                         \
            }                                                                     \
        }                                                                         \
        fprintf(stderr, "no such case\n");                                        \
        return 1;                                                                 \
    }

/* The record so far (record.h). The text is never freed: test programs are short. */
static inline char *record_text(void)
{
    static char text[1 << 20];
    FILE *file = fopen(getenv("RECORD_FILE"), "r");
    const size_t length = file != NULL ? fread(text, 1, sizeof text - 1, file) : 0;
    text[length] = 0;
    if (file != NULL) {
        fclose(file);
    }
    return text;
}

static inline void record_forget(void)
{
    CHECK(truncate(getenv("RECORD_FILE"), 0) == 0 || access(getenv("RECORD_FILE"), F_OK) != 0);
}

/* How many lines start with the text. */
static inline size_t recorded(const char *start)
{
    size_t count = 0;
    for (const char *line = record_text(); *line; line = strchr(line, '\n') + 1) {
        count += strncmp(line, start, strlen(start)) == 0;
    }
    return count;
}

/* The record must be exactly these lines, each formatted; it is forgotten then. Ends with NULL. */
static inline void expect_lines(const char *file, int at, const char *const *line)
{
    static char wanted[1 << 16];
    size_t length = 0;
    for (; *line != NULL; line++) {
        length += (size_t)snprintf(wanted + length, sizeof wanted - length, "%s\n", *line);
    }
    wanted[length] = 0;
    if (strcmp(wanted, record_text()) != 0) {
        fprintf(stderr, "%s:%d: expected\n%sbut the record is\n%s", file, at, wanted, record_text());
        exit(1);
    }
    record_forget();
}
#define EXPECT(...) expect_lines(__FILE__, __LINE__, (const char *const[]){__VA_ARGS__, NULL})

/* A formatted line for EXPECT. */
__attribute__((format(printf, 1, 2), unused)) static const char *line(const char *format, ...)
{
    static char room[64][512];
    static unsigned next;
    char *out = room[next++ % 64];
    va_list list;
    va_start(list, format);
    vsnprintf(out, sizeof room[0], format, list);
    va_end(list);
    return out;
}

/* The path of the object that holds an address. */
static inline const char *object_of(const void *address)
{
    Dl_info info;
    return dladdr(address, &info) ? info.dli_fname : "";
}

static inline bool is_wrapper(const void *address)
{
    return strstr(object_of(address), "libovershot") != NULL;
}

static inline bool is_driver(const void *address)
{
    return strstr(object_of(address), "libcuda.so") != NULL;
}

static inline void *load_driver(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(handle != NULL);
    return handle;
}

#endif
