/*
 * stack_launch.c: one launch of a layer, with the weight's address passed in each of the styles that real kernels use.
 */
#include <string.h>

#include "stack_model.h"

enum { BLOCK_THREADS = 128, MAX_BLOCKS = 64 };

/* Everything a launch needs to know about itself. */
struct call {
    struct stack_model *model;
    const struct stack_launch *launch;
    const struct stack_device *device;
    uint64_t lane, pass;
    CUstream stream;
    CUdeviceptr x, y;
    CUdeviceptr weight[STACK_FUSED]; /* unused ones are 0, or stale */
    struct stack_shape shape;
};

static unsigned blocks_for(uint64_t threads)
{
    const uint64_t blocks = (threads + BLOCK_THREADS - 1) / BLOCK_THREADS;
    return (unsigned)(blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS);
}

void stack_launch_kernel(const struct stack_device *device, enum stack_kernel kernel, uint64_t threads, CUstream stream,
                         void **parameters)
{
    GPU(cuLaunchKernel, device->kernel[kernel], blocks_for(threads), 1, 1, BLOCK_THREADS, 1, 1, 0, stream, parameters,
        NULL);
}

static bool is_stale_time(const struct call *c)
{
    return c->model->options->stale && stack_hash(c->model, 3000 + c->pass, c->launch->index) % 3 != 0;
}

/* Some weight of the model that this launch does not read. */
static CUdeviceptr stale_address(const struct call *c, uint64_t slot)
{
    const struct stack_model *model = c->model;
    return model->weight[stack_hash(model, 4000 + c->launch->index, slot) % model->weight_count].address;
}

static void describe(struct call *c)
{
    const struct stack_options *o = c->model->options;
    struct stack_shape *shape = &c->shape;
    double bytes = 0;
    memset(shape, 0, sizeof *shape);
    shape->count = c->launch->count;
    shape->width = (uint32_t)o->width;
    shape->salt = c->launch->salt + (uint32_t)c->lane + (o->vary ? 64 * (uint32_t)c->pass : 0);
    shape->over_bytes = (uint32_t)o->over_read;
    for (uint32_t k = 0; k < STACK_FUSED; k++) {
        const bool used = k < c->launch->count;
        const struct stack_weight *weight = &c->model->weight[c->launch->weight[used ? k : 0]];
        c->weight[k] = used ? weight->address : is_stale_time(c) ? stale_address(c, k) : 0;
        shape->bytes[k] = used ? weight->bytes : 0;
        bytes += (double)shape->bytes[k];
    }
    shape->operations = o->ops * bytes;
    shape->busy_ns = shape->operations / 50e3;
}

static void launch_form(const struct call *c, enum stack_kernel kernel, void **parameters)
{
    const unsigned blocks = blocks_for(c->shape.width);
    const CUfunction function = c->device->kernel[kernel];
    if (c->launch->style == POINTERS_COOPERATIVE) {
        GPU(cuLaunchCooperativeKernel, function, blocks, 1, 1, BLOCK_THREADS, 1, 1, 0, c->stream, parameters);
    } else if (c->launch->style == POINTERS_EX) {
        CUlaunchConfig config = {.gridDimX = blocks,
                                 .gridDimY = 1,
                                 .gridDimZ = 1,
                                 .blockDimX = BLOCK_THREADS,
                                 .blockDimY = 1,
                                 .blockDimZ = 1,
                                 .hStream = c->stream};
        GPU(cuLaunchKernelEx, &config, function, parameters, NULL);
    } else {
        stack_launch_kernel(c->device, kernel, c->shape.width, c->stream, parameters);
    }
}

static void launch_direct(struct call *c)
{
    if (c->launch->count == 1 && !c->model->options->stale) {
        void *parameters[] = {&c->weight[0], &c->x, &c->y, &c->shape};
        launch_form(c, KERNEL_one, parameters);
        return;
    }
    void *parameters[] = {&c->weight[0], &c->weight[1], &c->weight[2], &c->weight[3], &c->x, &c->y, &c->shape};
    launch_form(c, KERNEL_fused, parameters);
}

/* All parameters in one buffer, laid out as the kernel has them: stack_fused. */
static void launch_extra(struct call *c)
{
    struct {
        CUdeviceptr weight[STACK_FUSED], x, y;
        struct stack_shape shape;
    } buffer;
    memset(&buffer, 0, sizeof buffer);
    memcpy(buffer.weight, c->weight, sizeof buffer.weight);
    buffer.x = c->x;
    buffer.y = c->y;
    buffer.shape = c->shape;
    size_t size = sizeof buffer;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
    GPU(cuLaunchKernel, c->device->kernel[KERNEL_fused], blocks_for(c->shape.width), 1, 1, BLOCK_THREADS, 1, 1, 0,
        c->stream, NULL, extra);
}

static void launch_struct(struct call *c)
{
    struct stack_bundle bundle;
    memset(&bundle, 0x5A, sizeof bundle);
    bundle.kind = 1;
    memcpy(bundle.weight, c->weight, sizeof bundle.weight);
    bundle.shape = c->shape;
    if (is_stale_time(c)) {
        bundle.filler[1] = stale_address(c, 11);
        bundle.filler[2] = stale_address(c, 12) + 512;
    }
    void *parameters[] = {&bundle, &c->x, &c->y};
    launch_form(c, KERNEL_struct, parameters);
}

static void launch_table(struct call *c, CUdeviceptr table)
{
    void *parameters[] = {&table, &c->x, &c->y, &c->shape};
    launch_form(c, KERNEL_table, parameters);
}

/* One kernel writes the addresses to scratch, the next one gets only the scratch. */
static void launch_computed(struct call *c)
{
    const uint64_t place = c->lane * c->model->launch_count + c->launch->index;
    CUdeviceptr table = c->device->scratch + place * STACK_FUSED * sizeof(uint64_t);
    void *parameters[] = {&c->weight[0], &c->weight[1], &c->weight[2], &c->weight[3], &table, &c->shape.count};
    stack_launch_kernel(c->device, KERNEL_point, c->shape.count, c->stream, parameters);
    launch_table(c, table);
}

/* The host stores the addresses, and no call tells. Most launches name the weights, so that a weight which was read by
 * its name all the time is suddenly reached by a table. */
static void launch_host_table(struct call *c)
{
    if (c->pass < 3 || stack_hash(c->model, 5000 + c->pass, c->launch->index) % 8 != 0) {
        launch_direct(c);
        return;
    }
    const struct stack_host_tables *tables = &c->model->host_tables;
    const uint64_t place = (c->pass * c->model->options->lanes + c->lane) * c->model->launch_count + c->launch->index;
    memcpy(tables->host + place * STACK_FUSED, c->weight, sizeof c->weight);
    launch_table(c, tables->address + place * STACK_FUSED * sizeof(uint64_t));
}

static void launch_descriptor(struct call *c)
{
    struct stack_descriptor descriptor;
    memset(&descriptor, 0xC3, sizeof descriptor);
    descriptor.address = c->weight[0];
    void *parameters[] = {&descriptor, &c->x, &c->y, &c->shape};
    launch_form(c, KERNEL_descriptor, parameters);
}

static void launch_stored(struct call *c)
{
    CUdeviceptr descriptor = c->device->descriptors + c->launch->index * STACK_DESCRIPTOR_BYTES;
    void *parameters[] = {&descriptor, &c->x, &c->y, &c->shape};
    launch_form(c, KERNEL_descriptor_stored, parameters);
}

void stack_launch_run(struct stack_model *model, const struct stack_launch *launch, uint64_t lane, uint64_t pass,
                      CUstream stream, CUdeviceptr x, CUdeviceptr y)
{
    struct call c = {.model = model, .launch = launch, .lane = lane, .pass = pass, .stream = stream, .x = x, .y = y};
    c.device = &model->device[launch->layer * model->options->devices / model->options->layers];
    describe(&c);
    switch (launch->style) {
    case POINTERS_DIRECT:
    case POINTERS_EX:
    case POINTERS_COOPERATIVE:
    case POINTERS_MIX:
        launch_direct(&c);
        break;
    case POINTERS_STRUCT:
        launch_struct(&c);
        break;
    case POINTERS_TABLE:
        launch_table(&c, c.device->tables + launch->index * STACK_FUSED * sizeof(uint64_t));
        break;
    case POINTERS_COMPUTED:
        launch_computed(&c);
        break;
    case POINTERS_DESCRIPTOR:
        launch_descriptor(&c);
        break;
    case POINTERS_STORED:
        launch_stored(&c);
        break;
    case POINTERS_EXTRA:
        launch_extra(&c);
        break;
    case POINTERS_PINNED:
    case POINTERS_MANAGED:
        launch_host_table(&c);
        break;
    }
}
