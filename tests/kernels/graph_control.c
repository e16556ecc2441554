/*
 * graph_control.c: kernels that steer the graph they are part of. For the simulator only, see graph_control.ptx.
 */
#include "portable.h"

/* cudaGraphSetConditional(handle, value) */
KERNEL2(graph_set_condition, uint64_t, handle, uint32_t, value, )
{
    FOR_EACH(i, 1)
    {
        sim_device_calls.set_conditional(handle, value);
    }
}

/* Sets the condition to the word's value, then counts the word down unless it is zero. */
KERNEL2(graph_count_down, uint64_t, handle, uint32_t *, word, READS(word, 4) WRITES(word, 4))
{
    FOR_EACH(i, 1)
    {
        sim_device_calls.set_conditional(handle, *word);
        *word -= *word != 0;
    }
}

/* cudaGraphKernelNodeSetParam(node, offset, value) */
KERNEL3(graph_update_node, uint64_t, node, uint64_t, offset, uint64_t, value, )
{
    FOR_EACH(i, 1)
    {
        sim_device_calls.update_node(node, (uint32_t)offset, &value, sizeof value);
    }
}
