/*
 * ledger.h - bytes of device and host memory that are held because of the program, against the limits.
 *
 * One ledger per device. Every byte of device memory passes through here before it is asked of the driver, so that the
 * sum never exceeds the budget, not even for a moment: device memory behind arena pages, the ring, our scratch, the
 * program's small allocations (rounded to the driver's 2 MiB blocks), its pools, and its own physical handles.
 *
 * Whoever asks takes at once, before the driver is called, since another thread may ask meanwhile; and gives back when
 * the driver has the memory back, and not when the program has freed it.
 *
 * Fields are guarded by the engine's lock. Foreign memory, which we cannot refuse, is added all the same and may push
 * the sum above the budget; weights then give way.
 */
#ifndef OV_LEDGER_H
#define OV_LEDGER_H

#include <stdbool.h>
#include <stddef.h>

enum ov_purpose { OV_FOR_PAGES, OV_FOR_RING, OV_FOR_SCRATCH, OV_FOR_SMALL, OV_FOR_FOREIGN, OV_PURPOSES };

struct ov_ledger {
    size_t budget_bytes;
    size_t held_bytes[OV_PURPOSES]; /* device memory */
    size_t
        set_aside_bytes[OV_PURPOSES]; /* of the budget, until the purpose takes its first: scratch, small allocations */
    size_t small_bytes;               /* requested by small allocations */
    size_t kept_bytes[OV_PURPOSES]; /* freed, and held by pools of the driver's all the same (kept.h): small, foreign */
    size_t peak_bytes;              /* largest sum of held_bytes */
    size_t host_limit_bytes, host_bytes, host_peak_bytes;
    size_t host_aside_bytes; /* of the limit, kept for turning pinned masters into mapped ones (masters.h) */
    size_t program_bytes;    /* what the program has allocated, wherever it is */
};

size_t ov_ledger_held(const struct ov_ledger *ledger);
/* Bytes of the budget that nobody holds; 0 when it is exceeded. */
size_t ov_ledger_left(const struct ov_ledger *ledger);
/* Takes device bytes if they fit the budget. */
bool ov_ledger_take(struct ov_ledger *ledger, enum ov_purpose purpose, size_t bytes);
void ov_ledger_give(struct ov_ledger *ledger, enum ov_purpose purpose, size_t bytes);
/* Counts bytes that are held already, whether they fit or not. */
void ov_ledger_add(struct ov_ledger *ledger, enum ov_purpose purpose, size_t bytes);
/* Small allocations: whether `bytes` more fit, and whether they may cost another block; and counting them. What blocks
 * are held follows from small_bytes and what is kept of them. */
bool ov_ledger_small_fits(const struct ov_ledger *ledger, size_t bytes);
bool ov_ledger_small_grows(const struct ov_ledger *ledger, size_t bytes);
void ov_ledger_small(struct ov_ledger *ledger, size_t add_bytes, size_t remove_bytes);
/* So much was freed, small or foreign, and a pool may keep it: it stays counted; of each kind they keep at most that.
 */
void ov_ledger_keep(struct ov_ledger *ledger, enum ov_purpose purpose, size_t bytes);
void ov_ledger_kept(struct ov_ledger *ledger, size_t most_bytes);
/* Takes host bytes if they fit the limit, less what is set aside. */
bool ov_ledger_take_host(struct ov_ledger *ledger, size_t bytes);
void ov_ledger_give_host(struct ov_ledger *ledger, size_t bytes);
/* Host bytes that could be taken now. */
size_t ov_ledger_host_left(const struct ov_ledger *ledger);

#endif
