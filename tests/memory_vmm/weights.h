/* weights.h - programs that have one device and their weights in one pool (pool.h). One thread. */
#ifndef WEIGHTS_H
#define WEIGHTS_H

#include "pool.h"

extern struct rig rig;
extern struct pool pool;

/* A pool of `pieces`, all mapped, with weights from its start on; passes until they are streamed. */
void weights_open(unsigned pieces, size_t piece_bytes, unsigned weights, size_t weight_bytes);
/* Weights of `bytes` each, one behind the other from the start of the pool on. */
void weights_place(unsigned count, size_t bytes);
void weights_pass(int count);
/* Some more passes, and everything is given back. */
void weights_finish(void);
/* A kernel writes `words` times `value`. */
void weights_fill(CUdeviceptr out, uint32_t value, uint64_t words);

#endif
