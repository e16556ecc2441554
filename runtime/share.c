#ifndef _GNU_SOURCE /* the tool has it for all of its files */
#define _GNU_SOURCE
#endif
#include "share.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "hash.h"

#define LAYOUT       1u
#define MAGIC        0x6f76657273686f74ull /* "overshot" */
#define HEADER_BYTES ((size_t)4096)
#define NAME_MOST    64u
#define STEP_MS      2u

enum { FILLING = 1, READY, FAILED };

/* Of a piece, behind its bytes; the first two also of `lock`. */
struct header {
    uint64_t magic;
    uint32_t layout, state;
    uint64_t bytes;
    int64_t process;
    char key[OV_SHARE_KEY];
    char reason[128];
};

/* ---- folders ---- */

static bool is_mine(int descriptor, mode_t kind)
{
    struct stat status;
    return fstat(descriptor, &status) == 0 && (status.st_mode & S_IFMT) == kind && status.st_uid == geteuid() &&
           (status.st_mode & 077) == 0;
}

/* Made if need be; -1: it cannot be, or is not the user's alone. */
static int open_folder(int at, const char *name, bool make)
{
    if (make && mkdirat(at, name, 0700) != 0 && errno != EEXIST) {
        return -1;
    }
    int folder = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder >= 0 && !is_mine(folder, S_IFDIR)) {
        close(folder);
        folder = -1;
    }
    return folder;
}

static int open_base(const char *base, bool make)
{
    char own[64];
    snprintf(own, sizeof own, "/dev/shm/overshot-%u", (unsigned)geteuid());
    return open_folder(AT_FDCWD, base != NULL ? base : own, make);
}

static bool is_name(const char *name)
{
    size_t length = strlen(name);
    return length > 0 && length <= NAME_MOST && name[0] != '.' &&
           strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == length;
}

static bool remove_file(int folder, const char *name, size_t *bytes)
{
    struct stat status;
    if (name[0] == '.' || strcmp(name, "lock") == 0) {
        return false;
    }
    size_t size = fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0 ? (size_t)status.st_size : 0;
    bool removed = unlinkat(folder, name, 0) == 0;
    *bytes += removed ? size : 0;
    return removed;
}

/* Removes all files but the lock. Returns their bytes. A listing may leave out files that stand behind one that is
 * removed meanwhile, so it is taken until nothing is left to remove. */
static size_t sweep(int folder)
{
    size_t bytes = 0;
    int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = again >= 0 ? fdopendir(again) : NULL;
    if (list == NULL) {
        if (again >= 0) {
            close(again);
        }
        return 0;
    }
    for (bool removed = true; removed;) {
        const struct dirent *entry;
        removed = false;
        rewinddir(list);
        while ((entry = readdir(list)) != NULL) {
            removed = remove_file(folder, entry->d_name, &bytes) || removed;
        }
    }
    closedir(list);
    return bytes;
}

/* Whether the name still means the opened file: it may have been removed or renamed since. */
static bool still_there(int folder, const char *name, int file)
{
    struct stat named, opened;
    return fstat(file, &opened) == 0 && fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           named.st_ino == opened.st_ino && named.st_dev == opened.st_dev;
}

static void pause_ms(unsigned ms)
{
    struct timespec time = {0, (long)ms * 1000000};
    (void)nanosleep(&time, NULL);
}

/* ---- entering and leaving ---- */

/* With the lock held alone: clears the space and marks it as ours. */
static bool found_space(const struct ov_share *share)
{
    struct header header = {.magic = MAGIC, .layout = LAYOUT};
    (void)sweep(share->folder);
    return pwrite(share->lock, &header, sizeof header, 0) == (ssize_t)sizeof header;
}

/* One attempt. 1: in; 0: somebody is clearing the space, try again; -1: no. */
static int try_enter(struct ov_share *share, int base, const char *name, const char **why)
{
    struct header header;
    *why = "its folder in /dev/shm cannot be made, or is open to others";
    share->folder = open_folder(base, name, true);
    if (share->folder < 0) {
        return -1;
    }
    share->lock = openat(share->folder, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (share->lock < 0 || !is_mine(share->lock, S_IFREG)) {
        return -1;
    }
    if (flock(share->lock, LOCK_EX | LOCK_NB) == 0 && !found_space(share)) {
        *why = "no room in /dev/shm";
        return -1;
    }
    if (flock(share->lock, LOCK_SH | LOCK_NB) != 0 || !still_there(share->folder, "lock", share->lock) ||
        pread(share->lock, &header, sizeof header, 0) != (ssize_t)sizeof header) {
        return 0;
    }
    *why = "it was made by another version of overshot";
    return header.magic == MAGIC && header.layout == LAYOUT ? 1 : -1;
}

bool ov_share_enter(struct ov_share *share, const char *name, const char **why)
{
    *share = (struct ov_share){.folder = -1, .lock = -1};
    *why = "a name has at most 64 letters, digits, dots, dashes and underscores";
    if (!is_name(name)) {
        return false;
    }
    *why = "/dev/shm cannot be used, or the user's folder in it is open to others";
    int base = open_base(NULL, true), entered = base >= 0 ? 0 : -1;
    for (int i = 0; i < 500 && entered == 0; i++) {
        entered = try_enter(share, base, name, why);
        if (entered != 1) {
            if (share->lock >= 0) {
                close(share->lock);
            }
            if (share->folder >= 0) {
                close(share->folder);
            }
            share->lock = share->folder = -1;
            pause_ms(entered == 0 ? STEP_MS : 0);
        }
    }
    if (base >= 0) {
        close(base);
    }
    share->on = entered == 1;
    if (share->on) {
        snprintf(share->name, sizeof share->name, "%s", name);
    }
    return share->on;
}

/* The lock is held alone. */
static void remove_space(int base, const char *name, int folder)
{
    (void)unlinkat(folder, "lock", 0);
    if (base >= 0) {
        (void)unlinkat(base, name, AT_REMOVEDIR);
    }
}

void ov_share_leave(struct ov_share *share)
{
    if (!share->on) {
        return;
    }
    share->on = false;
    /* Given up first: of two that leave at the same moment, each would be in the way of the other. */
    (void)flock(share->lock, LOCK_UN);
    if (flock(share->lock, LOCK_EX | LOCK_NB) == 0) {
        int base = open_base(NULL, false);
        (void)sweep(share->folder);
        remove_space(base, share->name, share->folder);
        if (base >= 0) {
            close(base);
        }
    }
    close(share->lock);
    close(share->folder);
}

/* ---- pieces ---- */

static uint64_t mix(uint64_t a)
{
    a = (a ^ a >> 32) * 0xD6E8FEB86659FD93ull;
    a = (a ^ a >> 32) * 0xD6E8FEB86659FD93ull;
    return a ^ a >> 32;
}

void ov_share_key(const struct ov_hash *page, size_t pages, char key[OV_SHARE_KEY])
{
    uint64_t low = 0x9E3779B97F4A7C15ull, high = pages;
    for (size_t i = 0; i < pages; i++) {
        low = mix(low ^ page[i].low) + page[i].high;
        high = mix(high ^ page[i].high) + (page[i].low << 17 | page[i].low >> 47);
    }
    snprintf(key, OV_SHARE_KEY, "%016llx%016llx", (unsigned long long)mix(low), (unsigned long long)mix(high ^ low));
}

static struct header *header_of(const struct ov_share_piece *piece)
{
    return (struct header *)(void *)(piece->memory + piece->bytes);
}

static bool map_piece(struct ov_share_piece *piece, int file)
{
    void *memory = mmap(NULL, piece->bytes + HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    piece->memory = memory == MAP_FAILED ? NULL : memory;
    if (piece->memory != NULL) {
        (void)madvise(memory, piece->bytes, MADV_HUGEPAGE);
        (void)madvise(memory, piece->bytes + HEADER_BYTES, MADV_DONTFORK);
        (void)madvise(memory, piece->bytes + HEADER_BYTES, MADV_DONTDUMP);
    }
    return piece->memory != NULL;
}

void ov_share_unmap(char *memory, size_t bytes)
{
    (void)munmap(memory, bytes + HEADER_BYTES);
}

/* A finished piece. */
static bool follow(const struct ov_share *share, struct ov_share_piece *piece, const char **why)
{
    struct stat status;
    int file = openat(share->folder, piece->key, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (file < 0) {
        return false;
    }
    bool good = is_mine(file, S_IFREG) && fstat(file, &status) == 0 &&
                (size_t)status.st_size == piece->bytes + HEADER_BYTES && map_piece(piece, file);
    close(file);
    if (good) {
        const struct header *header = header_of(piece);
        good = header->magic == MAGIC && header->layout == LAYOUT && header->state == READY &&
               header->bytes == piece->bytes && strncmp(header->key, piece->key, OV_SHARE_KEY) == 0;
        if (!good) {
            ov_share_unmap(piece->memory, piece->bytes);
            piece->memory = NULL;
        }
    }
    *why = good ? "" : "a piece of it is not as it should be";
    return true;
}

/* What the last one to fill it left: its reason, or that it died. */
static void read_before(struct ov_share_piece *piece)
{
    struct header header;
    piece->before[0] = 0;
    if (pread(piece->file, &header, sizeof header, (off_t)piece->bytes) != (ssize_t)sizeof header ||
        header.magic != MAGIC) {
        return;
    }
    header.reason[sizeof header.reason - 1] = 0;
    snprintf(piece->before, sizeof piece->before, "process %lld %s%s", (long long)header.process,
             header.state == FAILED ? "could not fill it: " : "ended while it filled it",
             header.state == FAILED ? header.reason : "");
}

/* Under the lock of the piece's unfinished file. */
static bool begin_filling(struct ov_share_piece *piece, const char **why)
{
    read_before(piece);
    /* All of it now: a page that the file system has no room for later would end the process. */
    if (ftruncate(piece->file, 0) != 0 || fallocate(piece->file, 0, 0, (off_t)(piece->bytes + HEADER_BYTES)) != 0 ||
        !map_piece(piece, piece->file)) {
        *why = "no room in /dev/shm";
        return false;
    }
    struct header *header = header_of(piece);
    *header =
        (struct header){.magic = MAGIC, .layout = LAYOUT, .state = FILLING, .bytes = piece->bytes, .process = getpid()};
    memcpy(header->key, piece->key, OV_SHARE_KEY);
    return true;
}

/* One attempt at being the creator. 1: it is; 0: somebody else is, or the piece is finished by now; -1: no. */
static int try_create(const struct ov_share *share, struct ov_share_piece *piece, const char **why)
{
    char name[OV_SHARE_KEY + 4];
    snprintf(name, sizeof name, "%s.new", piece->key);
    piece->file = openat(share->folder, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (piece->file < 0 || !is_mine(piece->file, S_IFREG)) {
        *why = "a file in its folder cannot be made, or is open to others";
        return -1;
    }
    if (flock(piece->file, LOCK_EX | LOCK_NB) != 0 || !still_there(share->folder, name, piece->file)) {
        return 0;
    }
    if (faccessat(share->folder, piece->key, F_OK, 0) == 0) {
        (void)unlinkat(share->folder, name, 0);
        return 0;
    }
    if (!begin_filling(piece, why)) {
        (void)unlinkat(share->folder, name, 0);
        return -1;
    }
    return 1;
}

enum ov_share_role ov_share_take(struct ov_share *share, const char *key, size_t bytes, unsigned wait_ms,
                                 struct ov_share_piece *piece, const char **why)
{
    memset(piece, 0, sizeof *piece);
    memcpy(piece->key, key, OV_SHARE_KEY);
    piece->bytes = bytes;
    for (unsigned waited = 0; waited <= wait_ms; waited += STEP_MS) {
        piece->file = -1;
        if (follow(share, piece, why)) {
            return piece->memory != NULL ? OV_SHARE_FOLLOWER : OV_SHARE_NOBODY;
        }
        int created = try_create(share, piece, why);
        if (created == 1) {
            return OV_SHARE_CREATOR;
        }
        if (piece->file >= 0) {
            close(piece->file);
        }
        if (created < 0) {
            return OV_SHARE_NOBODY;
        }
        pause_ms(STEP_MS);
    }
    *why = "another process has begun to fill a piece and does not come to an end";
    return OV_SHARE_NOBODY;
}

bool ov_share_publish(struct ov_share *share, struct ov_share_piece *piece)
{
    char name[OV_SHARE_KEY + 4];
    snprintf(name, sizeof name, "%s.new", piece->key);
    header_of(piece)->state = READY;
    if (renameat(share->folder, name, share->folder, piece->key) != 0) {
        return false;
    }
    close(piece->file);
    piece->file = -1;
    return true;
}

void ov_share_fail(struct ov_share_piece *piece, const char *reason)
{
    struct header *header = header_of(piece);
    snprintf(header->reason, sizeof header->reason, "%s", reason);
    header->state = FAILED;
    close(piece->file); /* the next to come takes it over */
    piece->file = -1;
}

/* ---- cleaning up ---- */

static bool clean_space(int base, const char *name, size_t *bytes)
{
    *bytes = 0;
    int folder = open_folder(base, name, false);
    int lock = folder >= 0 ? openat(folder, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600) : -1;
    bool alone = lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0 && still_there(folder, "lock", lock);
    if (alone) {
        *bytes = sweep(folder);
        remove_space(base, name, folder);
    }
    if (lock >= 0) {
        close(lock);
    }
    if (folder >= 0) {
        close(folder);
    }
    return alone;
}

int ov_share_cleanup(const char *base, const char *name, void (*each)(const char *name, bool removed, size_t bytes))
{
    int left = 0, folder = open_base(base, false);
    if (folder < 0) {
        return errno == ENOENT ? 0 : -1;
    }
    int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = again >= 0 ? fdopendir(again) : NULL;
    const struct dirent *entry;
    while (list != NULL && (entry = readdir(list)) != NULL) {
        if (!is_name(entry->d_name) || (name != NULL && strcmp(name, entry->d_name) != 0)) {
            continue;
        }
        size_t bytes;
        bool removed = clean_space(folder, entry->d_name, &bytes);
        left += !removed;
        each(entry->d_name, removed, bytes);
    }
    if (list != NULL) {
        closedir(list);
    }
    close(folder);
    return left;
}
