/*
 * Programs on the simulator: what sim_module.c, sim_library.c, sim_function.c, sim_kernels.c, sim_launch*.c,
 * sim_capture*.c, sim_graph*.c, sim_conditional.c and sim_getproc.c share. The core (sim.h) reaches them only through
 * the hooks at the end of sim.h.
 *
 * Code. An image (sim_image.h) becomes a module in a context: its functions are CUfunction handles, its variables
 * device memory. A library is an image without a context; its kernels (CUkernel) stand for one function in each
 * context, and the module behind them is made when a context first needs it. A function knows the host kernel of the
 * same name (sim_kernels.c), or none.
 *
 * Launch. Every launch form is turned into a `struct sim_launch`: the function, the configuration, the attributes, and
 * a copy of the parameter bytes. It is run on a lane at once, or becomes a node of a graph under capture, and can be
 * run any number of times.
 *
 * Graph. A node has an ordered list of dependencies with edge data. An executable graph owns a private copy of the
 * graph; each of its nodes has a lane of its own, so that the checker sees only the order which the edges give. Nodes
 * carry a serial number that their copies keep as `origin`: by it an executable graph finds the node that a handle of
 * the original graph means. A graph that holds certain nodes (enum sim_holds) may not be cloned, or have more than one
 * executable graph at a time.
 *
 * Everything here is called with the global lock of sim.h held. Objects are owned by the handle that was given out.
 */
#ifndef SIM_PROGRAM_H
#define SIM_PROGRAM_H

#include "sim.h"
#include "sim_image.h"

/* ---- code
 * ------------------------------------------------------------------------------------------------------------ */

/* Handle kinds of sim_handle_add(). */
enum {
    SIM_IS_MODULE = 'M',
    SIM_IS_FUNCTION = 'F',
    SIM_IS_LIBRARY = 'L',
    SIM_IS_KERNEL = 'K',
    SIM_IS_GRAPH = 'G',
    SIM_IS_NODE = 'N',
    SIM_IS_EXEC = 'X',
    SIM_IS_USER_OBJECT = 'U'
};

/* A CUfunction. */
struct sim_func {
    struct sim_module *module;
    const struct sim_image_kernel *kernel;
    const struct sim_kernel *host; /* NULL: nobody implements it */
    const char *site;              /* permanent copy of the name */
    int max_dynamic_shared, carveout, cluster_must_be_set, nonportable_cluster, loaded;
    /* the launch state of cuParamSet*, cuFuncSetBlockShape, cuFuncSetSharedSize */
    unsigned block[3];
    unsigned shared_bytes;
    unsigned param_bytes;
    unsigned char *param;
};

/* A CUmodule. */
struct sim_module {
    struct sim_module *next; /* of the context */
    struct sim_context *context;
    struct sim_library *library; /* the library whose instance it is, or NULL */
    struct sim_module *next_of_library;
    struct sim_image *image;   /* owned unless there is a library */
    struct sim_func *func;     /* one for each kernel of the image */
    uint64_t *global_address;  /* one for each variable of the image */
    struct sim_range *globals; /* the memory of all variables, or NULL */
};

/* A CUkernel. */
struct sim_kern {
    struct sim_library *library;
    const struct sim_image_kernel *kernel;
    const char *site;
};

/* A CUlibrary. */
struct sim_library {
    struct sim_image *image;
    struct sim_kern *kern;      /* one for each kernel of the image */
    struct sim_module *modules; /* through next_of_library */
};

int sim_capability(const struct sim_device *device); /* 90 for 9.0 */
CUresult sim_module_make(struct sim_context *context, struct sim_image *image, struct sim_library *library,
                         struct sim_module **out);
void sim_module_free(struct sim_module *module);
CUresult sim_image_load_file(const char *path, void **data);
CUresult sim_module_global(const struct sim_module *module, const char *name, uint64_t *address, uint64_t *bytes);
CUresult sim_library_module(struct sim_library *library, struct sim_context *context, struct sim_module **out);
/* A CUfunction, or a CUkernel passed as one, seen from a context. */
CUresult sim_func_get(CUfunction handle, struct sim_context *context, struct sim_func **out);
/* Blocks of a kernel that fit on one multiprocessor. */
int sim_blocks_per_sm(const struct sim_func *func, int block_threads, size_t dynamic_shared_bytes);
int sim_sm_count(void);

/* The host kernel of this name; NULL: none. Loads the kernel library on the first call. */
const struct sim_kernel *sim_host_kernel(const char *name);
/* Tells kernels where the globals of a module are that they use by name. */
void sim_host_globals(const struct sim_module *module);
/*
 * Ask the kernel what it will access. The list is valid until the next call. When an access is not permitted to the
 * device the list ends with it and the answer is 0: the operation faults there.
 */
int sim_host_accesses(const struct sim_kernel *kernel, void **params, const struct sim_device *device,
                      const struct sim_accesses **out);

/* ---- launch
 * ---------------------------------------------------------------------------------------------------------- */

enum { SIM_MAX_ATTRIBUTES = 16 };

struct sim_launch {
    struct sim_func *func;
    unsigned grid[3], block[3], shared_bytes;
    CUlaunchAttribute attribute[SIM_MAX_ATTRIBUTES];
    unsigned attribute_count;
    const char *form; /* exported name through which it came; permanent */
    int from_extra;   /* parameters came as one buffer; told back in the same form by graph nodes: */
    void *extra[5];
    size_t extra_bytes;
    unsigned char *bytes; /* the parameter block, owned */
    void **param;         /* one pointer into bytes for each parameter, owned */
    CUkernel kernel;      /* handle, when the launch named a kernel of a library */
};

struct sim_node;

struct sim_launch_request {
    CUfunction function;
    unsigned grid[3], block[3], shared_bytes;
    const CUlaunchAttribute *attribute;
    unsigned attribute_count;
    void **params, **extra;
    const char *form;
};

/* Check and copy. On failure nothing is owned. */
CUresult sim_launch_make(struct sim_context *context, const struct sim_launch_request *request, struct sim_launch *out);
CUresult sim_launch_copy(struct sim_launch *to, const struct sim_launch *from);
void sim_launch_drop(struct sim_launch *launch);
const CUlaunchAttribute *sim_launch_attribute(const struct sim_launch *launch, CUlaunchAttributeID id);
CUresult sim_launch_check_attribute(const struct sim_launch *launch, const CUlaunchAttribute *attribute);
/* Run on a lane: of a stream that has begun (sim_stream_begin; `node` is NULL), or of a node of an executable graph. */
CUresult sim_launch_run(struct sim_call *call, struct sim_lane *lane, const struct sim_launch *launch,
                        const struct sim_node *node);
/* Around each kernel (sim_programmatic.c): remember where it starts, and check the reads of one that need not wait. */
void sim_programmatic_note(const struct sim_lane *lane);
/* An edge from the port of launch order: `lane` follows what was before the start of the other's latest kernel. */
void sim_programmatic_follow_start(struct sim_lane *lane, const struct sim_lane *leader);
void sim_programmatic_check(const struct sim_lane *lane, const struct sim_launch *launch, const struct sim_node *node,
                            const struct sim_accesses *list);

/* ---- graphs
 * ---------------------------------------------------------------------------------------------------------- */

struct sim_edge {
    struct sim_node *from;
    CUgraphEdgeData data;
};

/* A CUgraphNode. */
struct sim_node {
    struct sim_graph *graph;
    CUgraphNodeType type;
    uint64_t serial, origin;
    struct sim_edge *edge; /* dependencies, in the order in which they were given */
    size_t edge_count, edge_room;
    struct sim_context *context; /* of copies and memsets; kernels know theirs */
    unsigned home[2];            /* of copies (to, from) and memsets: what their operands lay in when they were set */
    union {
        struct sim_launch launch;
        CUDA_MEMCPY3D copy;
        CUDA_MEMSET_NODE_PARAMS set;
        CUDA_HOST_NODE_PARAMS host;
        struct sim_graph *child;         /* owned */
        struct sim_event *event;         /* waits and records */
        struct sim_branch *branch;       /* conditional nodes, owned; see sim_conditional.c */
        struct sim_graph_memory *memory; /* allocations and frees, counted; see sim_graph_memory.c */
    };
    struct sim_device_node *device_node; /* device-updatable kernels, else NULL; see sim_device_node.c */
    /* of executable graphs only */
    int enabled, lane_ready;
    struct sim_lane lane;
    size_t mark;           /* scratch of graph walks */
    struct sim_node *peer; /* scratch of an update */
};

/* A CUgraph: nodes in the order of creation. */
struct sim_graph {
    struct sim_node **node;
    size_t count, room;
    uint64_t serial;
    uint64_t cloned_from;    /* serial of the graph this was cloned from, or 0 */
    int borrowed;            /* belongs to a child node or a capture: not to be destroyed by its handle */
    unsigned execs;          /* executable graphs of it that live */
    struct sim_graph *outer; /* of a body of a conditional node: the graph that holds the node; else NULL */
    struct sim_user_use *uses;
};

/* Host time a node. Measured on one H200: 64 kernels cloned and 64 copies added 0.19 ms, the 128 instantiated 0.53 ms,
 * updated 0.25 ms. */
enum { SIM_NODE_CLONE_NS = 1000, SIM_NODE_ADD_NS = 1950, SIM_NODE_INSTANTIATE_NS = 4100, SIM_NODE_UPDATE_NS = 1950 };

/* What limits the use of a graph that holds it, at any depth. */
enum sim_holds { SIM_HOLDS_MEMORY = 1, SIM_HOLDS_CONDITION = 2, SIM_HOLDS_UPDATABLE = 4 };

/* A CUgraphExec. */
struct sim_exec {
    struct sim_graph *graph; /* private copy */
    struct sim_context *context;
    struct sim_graph *source; /* what it was made of, when that still lives and has this serial: */
    uint64_t source_serial;
    uint64_t flags;
    int64_t launches;
    int uploaded;  /* uploaded, and not changed by the host since */
    int on_device; /* the same, or launched since */
};

CUresult sim_graph_make(struct sim_graph **out);
void sim_graph_free(struct sim_graph *graph);
/* Copies nodes, parameters, edges, child graphs. */
CUresult sim_graph_copy(const struct sim_graph *from, struct sim_graph **out);
/* The same for a graph of its own: handles to update its nodes by are its own, too. */
CUresult sim_graph_clone(const struct sim_graph *from, struct sim_graph **out);
CUresult sim_graph_get(CUgraph handle, struct sim_graph **out);
CUresult sim_node_get(CUgraphNode handle, struct sim_node **out);
CUresult sim_exec_get(CUgraphExec handle, struct sim_exec **out);
/* A node with its dependencies (edge data may be NULL). Parameters are the caller's to fill. */
CUresult sim_node_make(struct sim_graph *graph, CUgraphNodeType type, struct sim_node *const *from,
                       const CUgraphEdgeData *data, size_t count, struct sim_node **out);
void sim_node_free(struct sim_node *node);
CUresult sim_node_copy_params(struct sim_node *to, const struct sim_node *from);
/* The other node's parameters are its own from now on. Both have the same type. */
void sim_node_move_params(struct sim_node *to, const struct sim_node *from);
unsigned sim_graph_holds(const struct sim_graph *graph);
void sim_node_drop_params(struct sim_node *node);
CUresult sim_edge_add(struct sim_node *to, struct sim_node *from, const CUgraphEdgeData *data);
int sim_edge_find(const struct sim_node *to, const struct sim_node *from);
/* Does `node` come after `from`, or is it the same? */
int sim_node_reaches(struct sim_graph *graph, const struct sim_node *from, struct sim_node *node);
/* The graph's nodes so that each follows its dependencies; to be freed. NULL when there is a cycle or no memory. */
struct sim_node **sim_graph_order(struct sim_graph *graph);
CUresult sim_graph_run(struct sim_call *call, struct sim_graph *graph, struct sim_lane *entry);
/* Calls `each` for every node, also of child graphs and of bodies of conditional nodes. */
void sim_graph_visit(struct sim_graph *graph, void (*each)(struct sim_node *node, void *context), void *context);
/* The node of a copy that came from this node; NULL when there is none. */
struct sim_node *sim_graph_origin(const struct sim_graph *copy, uint64_t origin);
void sim_graph_users_copy(const struct sim_graph *from, struct sim_graph *to);
void sim_graph_users_drop(struct sim_graph *graph);

/* Takes over the parameters of a graph of the same shape (sim_graph_update.c). */
struct sim_difference {
    CUgraphExecUpdateResult result;
    struct sim_node *node, *from;
};
CUresult sim_graph_update(const struct sim_exec *exec, struct sim_graph *old, struct sim_graph *graph,
                          struct sim_difference *why);
/* May these parameters take the place of those that the node of an executable graph has? */
void sim_operand_homes(struct sim_node *node); /* to be called when operands were set */
int sim_operands_kept(const struct sim_node *node, const struct sim_node *params);
int sim_shape_kept(const CUDA_MEMSET_NODE_PARAMS *old, const CUDA_MEMSET_NODE_PARAMS *set);

/* Conditional nodes (sim_conditional.c). */
struct sim_branch {
    struct sim_condition *condition;
    CUgraphConditionalNodeType kind;
    unsigned size;
    struct sim_graph **body;
};
CUresult sim_params_branch(CUDA_CONDITIONAL_NODE_PARAMS *params, struct sim_node *out);
CUresult sim_branch_copy(const struct sim_branch *from, struct sim_branch **out);
void sim_branch_free(struct sim_branch *branch);
/* The node is about to become part of the graph: is its handle one of this graph, and free? */
CUresult sim_branch_place(struct sim_branch *branch, struct sim_graph *graph);
CUresult sim_branch_check(const struct sim_branch *branch); /* at instantiation: what bodies may hold */
CUresult sim_branch_run(struct sim_call *call, struct sim_node *node);
/* A launch begins: conditions of the graph's nodes get their default values. */
void sim_conditions_reset(struct sim_graph *graph);
void sim_conditional_set(uint64_t handle, unsigned value); /* by a kernel */

/* Memory nodes (sim_graph_memory.c). */
CUresult sim_params_allocation(struct sim_call *call, CUDA_MEM_ALLOC_NODE_PARAMS *params, struct sim_node *out);
CUresult sim_params_free(uint64_t address, struct sim_node *out);
CUresult sim_graph_memory_place(struct sim_node *params, struct sim_graph *graph);
void sim_graph_memory_hold(struct sim_graph_memory *memory);
void sim_graph_memory_drop(struct sim_graph_memory *memory);
uint64_t sim_graph_memory_address(const struct sim_graph_memory *memory);
CUresult sim_graph_memory_run(struct sim_call *call, struct sim_node *node);
/* A launch begins: what the last one left allocated is freed (with the flag), or refuses it. */
CUresult sim_graph_memory_begin(struct sim_exec *exec);

/* Device-updatable kernel nodes (sim_device_node.c). */
CUresult sim_device_node_opt_in(struct sim_node *node, CUlaunchAttributeValue *value);
void sim_device_node_share(struct sim_node *node, const struct sim_node *from);
void sim_device_node_renew(struct sim_node *node);                             /* of a clone: a handle of its own */
void sim_device_node_live(struct sim_node *node, const struct sim_exec *exec); /* a node of the executable graph */
void sim_device_node_drop(struct sim_node *node);
void sim_device_node_update(uint64_t handle, uint32_t offset, const void *value, uint32_t bytes); /* by a kernel */

/* ---- capture
 * --------------------------------------------------------------------------------------------------------- */

/* The stream captures: the launch becomes a node. Takes over what `launch` owns, also on failure. `device_node` is
 * written for a launch that asks for an updatable node. */
CUresult sim_capture_launch(struct sim_call *call, struct sim_stream *stream, struct sim_launch *launch,
                            CUgraphDeviceNode *device_node);
CUresult sim_capture_graph(struct sim_call *call, struct sim_stream *stream, const struct sim_graph *graph);
/* For operations whose parameters are filled in afterwards: a node behind the stream's frontier. */
CUresult sim_capture_node(struct sim_stream *stream, CUgraphNodeType type, struct sim_node **out);
struct sim_graph *sim_capture_graph_of(const struct sim_stream *stream);

#endif
