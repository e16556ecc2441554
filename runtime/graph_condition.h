/*
 * graph_condition.h - the bodies of conditional nodes.
 *
 * The driver tells which graphs a conditional node holds only when the node is added, so they are remembered then, by
 * the node. An entry stays when its node goes; the next conditional node with that handle replaces it.
 *
 * One table for the process; its lock is a leaf.
 */
#ifndef OV_GRAPH_CONDITION_H
#define OV_GRAPH_CONDITION_H

#include <stdbool.h>

#include "driver.h"

/* Body number `index` of the node. False: there is none, or the node is not known. *known says which. */
bool ov_graph_body(CUgraphNode node, unsigned index, CUgraph *body, bool *known);

#endif
