/*
 * tables.h - what the tests of hidden addresses share: eight weights of 4 MiB, tables of their addresses, and a kernel
 * that gets nothing but a table.
 */
#ifndef TABLES_H
#define TABLES_H

#include "rig.h"

enum { COUNT = 8, WORDS = 1024 };

void tables_open(struct rig *rig);
/* addresses[i] becomes the address of weight index[i]. */
void tables_fill(const struct rig *rig, const unsigned *index, unsigned entries, uint64_t *addresses);
/* A kernel reads the first WORDS words of the weights that the table names; they are compared with weights index[]. */
void tables_read(struct rig *rig, CUdeviceptr table, const unsigned *index, unsigned entries);
/* The comparison alone, for launches that were made otherwise (tables_out() has entries * WORDS words). */
void tables_compare(struct rig *rig, const unsigned *index, unsigned entries);
CUdeviceptr tables_out(void);
/* Passes with reads of the table between them, so that the units have other neighbours in the ring each time. */
void tables_read_often(struct rig *rig, CUdeviceptr table, const unsigned *index, unsigned entries);
/* Launches a kernel of hidden.cu, whose module belongs to the context that is current at the first call. */
void tables_launch(const struct rig *rig, const char *name, void **params);
CUmodule tables_module(void);
/* A pair of weights that is another one each round. */
void tables_pair(unsigned round, unsigned *index);

#endif
