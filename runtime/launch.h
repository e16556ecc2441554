/*
 * launch.h - what the launch path knows of a launch before it is made; for graphs, whose launches are judged without
 * being made. The launch path itself is in runtime.h ("Launches").
 */
#ifndef OV_LAUNCH_H
#define OV_LAUNCH_H

#include <stdbool.h>

#include "runtime.h"
#include "scan.h"

/* Whether the launch could be made at once: no trial, no unit that has to leave the ring. launch->units and unit[] are
 * the streamed ones that it uses; timed: its time is asked for (density.h). `foreign`: it runs in another context than
 * the engine's. Under the engine's lock; launch->kernel is set, launch->watch is NULL. */
bool ov_launch_fits(struct ov_engine *engine, struct ov_launch *launch, const struct ov_touches *touches, bool foreign,
                    bool *timed);
/* Takes all that the launch uses, may write or may reach out of the ring. In an exclusive section; launch as above. */
CUresult ov_launch_clear(struct ov_engine *engine, struct ov_launch *launch, const struct ov_touches *touches,
                         bool foreign);
/* Whether discovery wants to compare the launch before and after. Under the engine's lock. */
bool ov_launch_wants_watch(const struct ov_engine *engine, const struct ov_launch *launch);
/* In the current context of this thread: not the engine's. Remembers it then. */
bool ov_launch_is_foreign(struct ov_engine *engine);
/* Parameters that cannot be seen may hold any address: nothing is streamed any more. */
CUresult ov_launch_is_opaque(const struct ov_kernel *kernel);
/* Launches without a quiet point are counted; after too many one is made, and after some where a launch finds its
 * stream idle, for which ov_launch_on comes before it. Outside of the gate. */
void ov_launch_counted(struct ov_engine *engine, unsigned launches);
void ov_launch_on(CUstream stream);

#endif
