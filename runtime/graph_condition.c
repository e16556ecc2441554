#include "graph_condition.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <uthash.h>

#include "engine.h"
#include "runtime.h"

struct condition {
    CUgraphNode node;
    CUgraph *body;
    unsigned count;
    UT_hash_handle hh;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects what follows */
static struct condition *conditions;

static struct condition *enter(CUgraphNode node)
{
    struct condition *condition = NULL;
    HASH_FIND_PTR(conditions, &node, condition);
    if (condition == NULL && (condition = calloc(1, sizeof *condition)) != NULL) {
        condition->node = node;
        HASH_ADD_PTR(conditions, node, condition);
    }
    return condition;
}

void ov_graph_node_added(CUgraphNode node, const CUgraphNodeParams *params)
{
    if (params->type != CU_GRAPH_NODE_TYPE_CONDITIONAL || params->conditional.phGraph_out == NULL) {
        return;
    }
    unsigned count = params->conditional.size;
    CUgraph *body = calloc((size_t)count + 1, sizeof *body);
    pthread_mutex_lock(&lock);
    struct condition *condition = enter(node);
    if (condition != NULL) {
        free(condition->body);
        condition->body = body;
        condition->count = body != NULL ? count : 0;
    }
    for (unsigned i = 0; body != NULL && condition != NULL && i < count; i++) {
        body[i] = params->conditional.phGraph_out[i];
    }
    pthread_mutex_unlock(&lock);
    if (condition == NULL) {
        free(body);
    }
}

bool ov_graph_body(CUgraphNode node, unsigned index, CUgraph *body, bool *known)
{
    struct condition *condition = NULL;
    pthread_mutex_lock(&lock);
    HASH_FIND_PTR(conditions, &node, condition);
    *known = condition != NULL && condition->body != NULL;
    bool found = *known && index < condition->count;
    if (found) {
        *body = condition->body[index];
    }
    pthread_mutex_unlock(&lock);
    return found;
}
