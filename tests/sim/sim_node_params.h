/*
 * Node parameters: from the public structs to those of a node and back.
 *
 * Each sim_params_ function checks the public struct and fills `out`, a node that belongs to no graph: type, context
 * and parameters are set, everything else is zero. What it owns (launch parameters, a copy of a child graph) then goes
 * to a real node, or is given back with sim_node_drop_params(). On failure nothing is owned.
 */
#ifndef SIM_NODE_PARAMS_H
#define SIM_NODE_PARAMS_H

#include "sim_program.h"

CUresult sim_params_kernel(struct sim_call *call, const CUDA_KERNEL_NODE_PARAMS *params, struct sim_node *out);
CUresult sim_params_kernel_v1(struct sim_call *call, const CUDA_KERNEL_NODE_PARAMS_v1 *params, struct sim_node *out);
CUresult sim_params_copy(struct sim_call *call, const CUDA_MEMCPY3D *copy, CUcontext context, struct sim_node *out);
CUresult sim_params_set(struct sim_call *call, const CUDA_MEMSET_NODE_PARAMS *set, CUcontext context,
                        struct sim_node *out);
CUresult sim_params_host(const CUDA_HOST_NODE_PARAMS *host, struct sim_node *out);
CUresult sim_params_child(CUgraph child, struct sim_node *out);
CUresult sim_params_event(CUgraphNodeType type, CUevent event, struct sim_node *out);
/* Some kinds have outputs among their parameters. */
CUresult sim_params_any(struct sim_call *call, CUgraphNodeParams *params, struct sim_node *out);

/* Puts new parameters into a node of the same type; takes over what `params` owns. */
CUresult sim_params_put(struct sim_node *node, struct sim_node *params);

#endif
