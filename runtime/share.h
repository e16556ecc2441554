/*
 * share.h - one host copy of the same weights for all processes of a user that name the same OVERSHOT_SHARE.
 *
 * A *space* is a folder /dev/shm/overshot-<uid>/<name>, mode 0700. In it,
 *   lock          held shared (flock) by every process that takes part, for its life; names the layout's version
 *   <key>         a finished piece: its bytes, then a page of header
 *   <key>.new     a piece that is being filled by whoever holds its lock
 * A piece is at most one pin's bytes (masters.h); its key is made of the hashes of its pages, so processes find each
 * other's copies by content, without knowing of each other.
 *
 * Election is by lock: who gets the lock of <key>.new fills it; the others wait. The system gives a lock back at the
 * moment its holder dies, however it dies, so a lock that is held is the holder's heartbeat, and a piece that is left
 * half filled is taken over by the next. A piece is published by renaming it: what has its final name is complete. A
 * creator that cannot fill its piece says why in the header before it lets go.
 *
 * Who enters a space that nobody else is in removes what is left there from before; who leaves it last removes all.
 * Killed processes may leave a space that nobody is in: the next start with that name clears it, or `overshot ctl
 * cleanup`. Everything that is opened must belong to the user and be closed to others; else the space is refused.
 *
 * No CUDA in here. Errors are told by a text; not sharing is never wrong, only larger. Guarded by the engine's lock.
 */
#ifndef OV_SHARE_H
#define OV_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ov_hash;

struct ov_share {
    int folder, lock; /* descriptors; valid while `on` */
    bool on;
    char name[65];
};

#define OV_SHARE_KEY 33

struct ov_share_piece {
    char key[OV_SHARE_KEY];
    char *memory; /* bytes of content, then the header */
    size_t bytes;
    int file;         /* of a creator, with its lock; else -1 */
    char before[192]; /* a creator's: what became of one before it, empty if there was none */
};

enum ov_share_role { OV_SHARE_NOBODY, OV_SHARE_CREATOR, OV_SHARE_FOLLOWER };

/* Enters the space. False: *why says why not. */
bool ov_share_enter(struct ov_share *share, const char *name, const char **why);
/* Leaves it; the last one removes it. Memory of pieces stays mapped. Safe at exit. */
void ov_share_leave(struct ov_share *share);

void ov_share_key(const struct ov_hash *page, size_t pages, char key[OV_SHARE_KEY]);
/* Finds the piece, or is to fill it; waits up to wait_ms for a creator at work. NOBODY: *why. */
enum ov_share_role ov_share_take(struct ov_share *share, const char *key, size_t bytes, unsigned wait_ms,
                                 struct ov_share_piece *piece, const char **why);
/* A creator's piece is complete. False: it could not be published; ov_share_fail has to follow. */
bool ov_share_publish(struct ov_share *share, struct ov_share_piece *piece);
/* A creator gives up. The memory stays mapped, but is not to be used. */
void ov_share_fail(struct ov_share_piece *piece, const char *reason);
/* Unmaps. */
void ov_share_unmap(char *memory, size_t bytes);

/* Removes spaces that nobody is in, in `base` (NULL: the user's own), one by name or all (NULL). Returns how many are
 * in use and were left, or -1 when `base` is not the user's. each() is told what happened to each space. */
int ov_share_cleanup(const char *base, const char *name, void (*each)(const char *name, bool removed, size_t bytes));

#endif
