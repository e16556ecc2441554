/*
 * watch.h - launches of kernels that are not known well enough, compared before and after.
 *
 * Three questions are asked of a (kernel, slot) pair:
 * - Does it write? Asked when an unknown pair touches a streamed unit. For this launch the unit is mapped writable,
 *   in the ring, where it is held until it was looked at (or, if it cannot be in the ring now, as its host master).
 *   Unchanged afterwards: the pair is a reader and all is as before. Changed: a writer, what it wrote becomes the
 *   master, and the unit stays in host memory.
 * - Is it an output? Asked of the first launches of each kernel in discovery: the memory from the address on, up to
 *   the next address of the same launch or to where another upload began, is hashed before and after. Changed: a
 *   writer.
 * - Does it emit? Asked of the first launches of each kernel in discovery, and of every launch of the first kind:
 *   are there arena addresses in the memory it reached that were not there before (emission.h)? Then it computes
 *   pointers, and what it takes can be reached by others who do not name it: never streamed. The same holds for a
 *   kernel that leaves its result nowhere that is looked at: a module's global that the program never asked for,
 *   mostly.
 *
 * A watched launch waits for the device twice; there are few. All functions but ov_watch_end need an exclusive section.
 */
#ifndef OV_WATCH_H
#define OV_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "emission.h"
#include "scan.h"
#include "zerocopy.h"

/* Launches of a kernel in discovery that are looked at for emitted addresses. */
#define OV_WATCH_LAUNCHES 4
/* Ranges of zero-copy memory of one launch that are looked at for them. */
#define OV_WATCH_RANGES 8

struct ov_watch {
    struct ov_touches touches;
    uint32_t unit[OV_LAUNCH_UNITS]; /* on trial */
    unsigned units;
    bool outputs;                          /* else nothing below is filled */
    struct ov_emission before[OV_TOUCHES]; /* what each touch reaches */
    uint64_t addresses;                    /* digest of all other memory before the launch */
    struct {
        CUdeviceptr address;
        size_t bytes;
    } host[OV_WATCH_RANGES]; /* zero-copy memory that the launch passes */
    unsigned hosts;
    bool open; /* it passes memory that is no weight, so its result may be there though nothing changed */
};

struct ov_engine;
struct ov_kernel;

/* A slot that was looked at often enough, and did not write while another slot of its kernel did; or is known to read.
 */
bool ov_watch_reads_only(const struct ov_kernel *kernel, uint32_t slot);
/* `outputs`: all three questions are asked, else only whether the units change. NULL: no memory, or the device refused;
 * then the units, if any, are out of the ring for good. */
struct ov_watch *ov_watch_begin(struct ov_engine *engine, const struct ov_launch *launch,
                                const struct ov_touches *touches, const uint32_t *unit, unsigned units, bool outputs);
/* Whether the unit is on trial by this watch (which may be NULL). */
bool ov_watch_tries(const struct ov_watch *watch, uint32_t unit);
/* After the launch: waits for it, judges, restores. Takes its own exclusive section. Frees the watch. */
void ov_watch_end(struct ov_engine *engine, struct ov_kernel *kernel, struct ov_watch *watch);

#endif
