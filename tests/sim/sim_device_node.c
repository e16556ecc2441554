/*
 * Kernel nodes that kernels may update (CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE). The program gets a handle
 * when a node opts in; what a kernel does with it concerns the node of the one executable graph that may exist. Only
 * parameters can be updated here. An update that no executable graph hears of, or of one that was not uploaded since
 * the host changed it, is complained about: on hardware it goes wrong without a word.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "sim_program.h"

struct sim_device_node {
    struct sim_device_node *next;
    unsigned references; /* nodes */
    struct sim_node *live;
    const struct sim_exec *exec;
};

static struct sim_device_node *device_nodes;

CUresult sim_device_node_opt_in(struct sim_node *node, CUlaunchAttributeValue *value)
{
    if (value->deviceUpdatableKernelNode.deviceUpdatable != 1)
        return CUDA_ERROR_INVALID_VALUE;
    if (node->device_node == NULL) {
        struct sim_device_node *made = calloc(1, sizeof *made);
        if (made == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        made->references = 1;
        made->next = device_nodes;
        device_nodes = made;
        node->device_node = made;
    }
    value->deviceUpdatableKernelNode.devNode = (CUgraphDeviceNode)node->device_node;
    return CUDA_SUCCESS;
}

void sim_device_node_share(struct sim_node *node, const struct sim_node *from)
{
    node->device_node = from->device_node;
    if (node->device_node != NULL)
        node->device_node->references++;
}

void sim_device_node_renew(struct sim_node *node)
{
    CUlaunchAttributeValue value = {.deviceUpdatableKernelNode = {.deviceUpdatable = 1}};
    if (node->device_node == NULL)
        return;
    sim_device_node_drop(node);
    if (sim_device_node_opt_in(node, &value) != CUDA_SUCCESS)
        sim_die("out of host memory");
}

void sim_device_node_live(struct sim_node *node, const struct sim_exec *exec)
{
    if (node->device_node == NULL)
        return;
    node->device_node->live = node;
    node->device_node->exec = exec;
}

void sim_device_node_drop(struct sim_node *node)
{
    struct sim_device_node *gone = node->device_node;
    if (gone == NULL)
        return;
    node->device_node = NULL;
    if (gone->live == node)
        gone->live = NULL;
    if (--gone->references != 0)
        return;
    for (struct sim_device_node **at = &device_nodes; *at != NULL; at = &(*at)->next) {
        if (*at == gone) {
            *at = gone->next;
            break;
        }
    }
    free(gone);
}

void sim_device_node_update(uint64_t handle, uint32_t offset, const void *value, uint32_t bytes)
{
    struct sim_device_node *named = device_nodes;
    while (named != NULL && (uint64_t)(uintptr_t)named != handle)
        named = named->next;
    if (named == NULL || named->live == NULL) {
        sim_say("a kernel updates a node of no executable graph: 0x%llx", (unsigned long long)handle);
        return;
    }
    if (!named->exec->uploaded)
        sim_say("a kernel updates a node of a graph that was not uploaded");
    const struct sim_launch *launch = &named->live->launch;
    if (bytes > launch->func->kernel->param_bytes || offset > launch->func->kernel->param_bytes - bytes)
        sim_say("a kernel updates parameters past their end");
    else
        memcpy(launch->bytes + offset, value, bytes);
}
