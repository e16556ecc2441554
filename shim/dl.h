/*
 * dl.h - the C library's own dlopen(), dlsym(), dlvsym() and dlerror().
 *
 * We export dlsym(), so a reference of ours to that name would come back to us; and before glibc 2.34 the family lives
 * in libdl.so.2, which a library that is preloaded into every process must not need. So they are taken from the
 * symbol table of whichever of libc.so.6 and libdl.so.2 defines them; libdl.so.2 is loaded then if nobody did before.
 *
 * The first look is made while the process starts, by our constructor if nobody looked anything up before, and is
 * alone; libdl.so.2 is loaded only when it is needed. Thread-safe; allocates nothing itself. The members are never
 * NULL; the result is NULL when there is no such C library (not glibc), and then nothing is hooked.
 */
#ifndef OV_DL_H
#define OV_DL_H

typedef void *(*ov_dlsym_fn)(void *handle, const char *name);
typedef void *(*ov_dlvsym_fn)(void *handle, const char *name, const char *version);

struct ov_dl {
    ov_dlsym_fn dlsym;
    ov_dlvsym_fn dlvsym;
    void *(*dlopen)(const char *path, int mode);
    char *(*dlerror)(void);
    /* What a look-up that is none of our business goes on to: another library's dlsym that comes after ours in search
     * order, else the C library's. */
    ov_dlsym_fn next_dlsym;
    ov_dlvsym_fn next_dlvsym;
};

const struct ov_dl *ov_dl(void);

/* For the constructor: finds what is loaded already. */
void ov_dl_prepare(void);

#endif
