/* User objects: counted, may be owned by graphs, and end by a call of the program's own function. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "sim_program.h"

struct sim_user_object {
    void *data;
    CUhostFn destroy;
    unsigned references;
};

struct sim_user_use {
    struct sim_user_use *next;
    struct sim_user_object *object;
    unsigned count;
};

static CUresult object_get(CUuserObject handle, struct sim_user_object **out)
{
    if (!sim_handle_is(handle, SIM_IS_USER_OBJECT))
        return CUDA_ERROR_INVALID_VALUE;
    *out = (struct sim_user_object *)handle;
    return CUDA_SUCCESS;
}

static CUresult release(struct sim_user_object *object, unsigned count)
{
    if (count == 0 || count > object->references)
        return CUDA_ERROR_INVALID_VALUE;
    object->references -= count;
    if (object->references == 0) {
        sim_handle_drop(object);
        sim_run_unlocked(object->destroy, object->data);
        free(object);
    }
    return CUDA_SUCCESS;
}

static CUresult use(struct sim_graph *graph, struct sim_user_object *object, unsigned count)
{
    struct sim_user_use *entry = malloc(sizeof *entry);
    if (entry == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *entry = (struct sim_user_use){graph->uses, object, count};
    graph->uses = entry;
    return CUDA_SUCCESS;
}

void sim_graph_users_copy(const struct sim_graph *from, struct sim_graph *to)
{
    for (const struct sim_user_use *entry = from->uses; entry != NULL; entry = entry->next)
        if (use(to, entry->object, 1) == CUDA_SUCCESS)
            entry->object->references++;
}

void sim_graph_users_drop(struct sim_graph *graph)
{
    while (graph->uses != NULL) {
        struct sim_user_use *entry = graph->uses;
        graph->uses = entry->next;
        release(entry->object, entry->count);
        free(entry);
    }
}

SIM_API(SIM_INIT, cuUserObjectCreate,
        (CUuserObject * object_out, void *ptr, CUhostFn destroy, unsigned int initialRefcount, unsigned int flags),
        object_out, ptr, destroy, initialRefcount, flags)
{
    (void)call;
    if (object_out == NULL || destroy == NULL || initialRefcount == 0 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_user_object *object = malloc(sizeof *object);
    if (object == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *object = (struct sim_user_object){ptr, destroy, initialRefcount};
    sim_handle_add(object, SIM_IS_USER_OBJECT);
    *object_out = (CUuserObject)object;
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuUserObjectRetain, (CUuserObject handle, unsigned int count), handle, count)
{
    (void)call;
    struct sim_user_object *object;
    SIM_TRY(object_get(handle, &object));
    object->references += count;
    return count != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(SIM_INIT, cuUserObjectRelease, (CUuserObject handle, unsigned int count), handle, count)
{
    (void)call;
    struct sim_user_object *object;
    SIM_TRY(object_get(handle, &object));
    return release(object, count);
}

SIM_API(SIM_INIT, cuGraphRetainUserObject, (CUgraph graph, CUuserObject handle, unsigned int count, unsigned int flags),
        graph, handle, count, flags)
{
    (void)call;
    struct sim_graph *user;
    struct sim_user_object *object;
    if (count == 0 || flags > CU_GRAPH_USER_OBJECT_MOVE)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_graph_get(graph, &user));
    SIM_TRY(object_get(handle, &object));
    SIM_TRY(use(user, object, count));
    if (flags != CU_GRAPH_USER_OBJECT_MOVE)
        object->references += count;
    return CUDA_SUCCESS;
}

SIM_API(SIM_INIT, cuGraphReleaseUserObject, (CUgraph graph, CUuserObject handle, unsigned int count), graph, handle,
        count)
{
    (void)call;
    struct sim_graph *user;
    struct sim_user_object *object;
    SIM_TRY(sim_graph_get(graph, &user));
    SIM_TRY(object_get(handle, &object));
    for (struct sim_user_use **at = &user->uses; *at != NULL; at = &(*at)->next) {
        struct sim_user_use *entry = *at;
        if (entry->object != object || count == 0 || count > entry->count)
            continue;
        entry->count -= count;
        if (entry->count == 0) {
            *at = entry->next;
            free(entry);
        }
        return release(object, count);
    }
    return CUDA_ERROR_INVALID_VALUE;
}
