#include "graph_source.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <uthash.h>

#include "engine.h"
#include "graph_model.h"
#include "runtime.h"
#include "scan.h"
#include "search.h"
#include "zerocopy.h"

#define CHILD_DEPTH 16
/* Entries that are copied out of the table at once. */
#define BATCH 16

struct source {
    CUgraphNode node;
    const char *host; /* of a copy; NULL: a kernel takes `address` */
    uint64_t address;
    size_t bytes, rows, pitch_bytes;
};

struct exec {
    CUgraphExec handle;
    struct source *source;
    size_t count, room;
    UT_hash_handle hh;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects what follows */
static struct exec *execs;                               /* those with sources */

/* ---- the table ---- */

/* Takes an entry out of its exec, under the lock. */
static void drop_node(struct exec *exec, CUgraphNode node)
{
    size_t kept = 0;
    for (size_t i = 0; i < exec->count; i++) {
        if (exec->source[i].node != node) {
            exec->source[kept++] = exec->source[i];
        }
    }
    exec->count = kept;
}

static struct exec *find(CUgraphExec handle)
{
    struct exec *exec = NULL;
    HASH_FIND_PTR(execs, &handle, exec);
    return exec;
}

static void free_exec(struct exec *exec)
{
    if (exec != NULL) {
        HASH_DEL(execs, exec);
        free(exec->source);
        free(exec);
    }
}

/* Under the lock. False: no memory. */
static bool add(CUgraphExec handle, const struct source *source)
{
    struct exec *exec = find(handle);
    if (exec == NULL) {
        exec = calloc(1, sizeof *exec);
        if (exec == NULL) {
            return false;
        }
        exec->handle = handle;
        HASH_ADD_PTR(execs, handle, exec);
    }
    if (exec->count == exec->room) {
        size_t room = exec->room ? exec->room * 2 : 8;
        struct source *grown = realloc(exec->source, room * sizeof *grown);
        if (grown == NULL) {
            return false;
        }
        exec->source = grown;
        exec->room = room;
    }
    exec->source[exec->count++] = *source;
    return true;
}

static void forget_node(CUgraphExec handle, CUgraphNode node)
{
    pthread_mutex_lock(&lock);
    struct exec *exec = find(handle);
    if (exec != NULL) {
        drop_node(exec, node);
    }
    pthread_mutex_unlock(&lock);
}

struct adding {
    CUgraphExec exec;
    CUgraphNode node;
    bool known; /* nodes may have entries already, which are replaced */
    bool failed;
};

static void add_source(struct adding *adding, struct source source)
{
    source.node = adding->node;
    pthread_mutex_lock(&lock);
    adding->failed = !add(adding->exec, &source) || adding->failed;
    pthread_mutex_unlock(&lock);
}

/* ---- what nodes read ---- */

static void add_word(void *context, uint64_t word, uint32_t slot)
{
    struct ov_zerocopy range;
    (void)slot;
    if (ov_zerocopy_find(word, &range)) {
        add_source(context, (struct source){.address = word});
    }
}

static void add_kernel(struct adding *adding, const CUDA_KERNEL_NODE_PARAMS *params)
{
    struct ov_launch launch;
    memset(&launch, 0, sizeof launch);
    launch.function = params->func != NULL ? params->func : (CUfunction)(void *)params->kern;
    launch.params = params->kernelParams;
    launch.extra = params->extra;
    ov_scan_words(ov_kernel_of(launch.function), &launch, add_word, adding);
}

static void add_copy(struct adding *adding, const struct ov_copy *copy)
{
    struct ov_zerocopy range;
    const char *host = copy->host_source;
    if (host == NULL && copy->src.address != 0 && ov_zerocopy_find(copy->src.address, &range) && range.host != NULL) {
        host = range.host + (copy->src.address - range.address);
    }
    size_t skip = (8 - copy->dst.address % 8) % 8; /* addresses are aligned where they end up */
    if (host != NULL && copy->src.bytes > skip) {
        add_source(adding, (struct source){.host = host + skip,
                                           .bytes = copy->src.bytes - skip,
                                           .rows = copy->src.rows > 0 ? copy->src.rows : 1,
                                           .pitch_bytes = copy->src.pitch_bytes});
    }
}

static void add_copy_node(struct adding *adding)
{
    CUDA_MEMCPY3D params;
    if (ov_cu->cuGraphMemcpyNodeGetParams(adding->node, &params) == CUDA_SUCCESS) { /* else it is barred elsewhere */
        const struct ov_copy copy = ov_graph_copy_of(&params);
        add_copy(adding, &copy);
    }
}

static void walk(struct adding *adding, CUgraph graph, int depth);

static void add_node(struct adding *adding, int depth)
{
    CUgraphNodeType type;
    CUDA_KERNEL_NODE_PARAMS params;
    CUgraph child;
    if (ov_cu->cuGraphNodeGetType(adding->node, &type) != CUDA_SUCCESS) {
        return;
    }
    memset(&params, 0, sizeof params);
    if (type == CU_GRAPH_NODE_TYPE_KERNEL && ov_cu->cuGraphKernelNodeGetParams_v2 != NULL &&
        ov_cu->cuGraphKernelNodeGetParams_v2(adding->node, &params) == CUDA_SUCCESS) {
        add_kernel(adding, &params);
    } else if (type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        add_copy_node(adding);
    } else if (type == CU_GRAPH_NODE_TYPE_GRAPH && depth < CHILD_DEPTH &&
               ov_cu->cuGraphChildGraphNodeGetGraph(adding->node, &child) == CUDA_SUCCESS) {
        walk(adding, child, depth + 1);
    }
}

/* What cannot be looked into is dealt with elsewhere (graph_launch.c). */
static void walk(struct adding *adding, CUgraph graph, int depth)
{
    size_t count = 0;
    if (ov_cu->cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS || count == 0) {
        return;
    }
    CUgraphNode *node = calloc(count, sizeof(CUgraphNode));
    if (node == NULL || ov_cu->cuGraphGetNodes(graph, node, &count) != CUDA_SUCCESS) {
        adding->failed = true;
        count = 0;
    }
    for (size_t i = 0; i < count; i++) {
        adding->node = node[i];
        if (adding->known) {
            forget_node(adding->exec, node[i]);
        }
        add_node(adding, depth);
    }
    free(node);
}

static void end_adding(const struct adding *adding)
{
    if (adding->failed) {
        ov_bar_streaming("no memory to remember what a graph reads from host memory");
    }
}

/* ---- changes ---- */

void ov_graph_source_taken_in(CUgraphExec exec, CUgraph graph, bool whole)
{
    struct adding adding = {.exec = exec, .known = !whole};
    if (whole) {
        ov_graph_source_forget(exec);
    }
    walk(&adding, graph, 0);
    end_adding(&adding);
}

void ov_graph_source_copy(CUgraphExec exec, CUgraphNode node, const struct ov_copy *copy)
{
    struct adding adding = {.exec = exec, .node = node};
    forget_node(exec, node);
    add_copy(&adding, copy);
    end_adding(&adding);
}

void ov_graph_source_kernel(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
    struct adding adding = {.exec = exec, .node = node};
    forget_node(exec, node);
    add_kernel(&adding, params);
    end_adding(&adding);
}

void ov_graph_source_forget(CUgraphExec exec)
{
    pthread_mutex_lock(&lock);
    free_exec(find(exec));
    pthread_mutex_unlock(&lock);
}

/* ---- launches ---- */

static CUresult search_source(const struct source *source)
{
    struct ov_zerocopy range;
    CUresult result = CUDA_SUCCESS;
    if (source->host == NULL) {
        return ov_zerocopy_exposed(source->address);
    }
    size_t extent = (source->rows - 1) * source->pitch_bytes + source->bytes;
    uint64_t address = (uint64_t)(uintptr_t)source->host;
    bool stands = ov_zerocopy_find(address, &range) && range.host != NULL &&
                  extent <= range.bytes - (size_t)(address - range.address);
    for (size_t row = 0; row < source->rows; row++) {
        const char *from = source->host + row * source->pitch_bytes;
        CUresult found = stands ? ov_search(from, source->bytes, NULL) : ov_search_checked(from, source->bytes);
        result = result != CUDA_SUCCESS ? result : found;
    }
    return result;
}

CUresult ov_graph_source_search(CUgraphExec handle)
{
    struct source source[BATCH];
    CUresult result = CUDA_SUCCESS;
    for (size_t done = 0, count = BATCH; count == BATCH; done += count) {
        pthread_mutex_lock(&lock);
        const struct exec *exec = find(handle);
        size_t left = exec != NULL && exec->count > done ? exec->count - done : 0;
        count = left < BATCH ? left : BATCH;
        if (count > 0) {
            memcpy(source, exec->source + done, count * sizeof *source);
        }
        pthread_mutex_unlock(&lock);
        for (size_t i = 0; i < count; i++) {
            CUresult found = search_source(&source[i]);
            result = result != CUDA_SUCCESS ? result : found;
        }
    }
    return result;
}
