/*
 * standdown.h - libraries that page GPU memory themselves, behind the same addresses.
 *
 * Two that do the same work against each other: such a library measures what is free and fills it, and what it maps is
 * not overshot's to move. So overshot leaves all memory to it (ov_stand_down, runtime.h). They are known by their file
 * names, because what they do looks like what others do, too: unmapping memory and mapping other memory at the same
 * address is also how PyTorch's expandable segments grow again.
 *
 * They are loaded before or after CUDA is, but before they are used; so it is looked for them where memory is first
 * asked about, allocated or made, and again whenever the process has loaded something since. A look that finds nothing
 * new costs one call of dl_iterate_phdr(). Thread-safe; allocates nothing.
 */
#ifndef OV_STANDDOWN_H
#define OV_STANDDOWN_H

#include "resolver.h"

/* starting: the engine was attached just now, and no other thread has used it yet. */
OV_HIDDEN void ov_standdown_look(bool starting);

#endif
