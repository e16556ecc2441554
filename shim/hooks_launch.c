/*
 * hooks_launch.c - kernel launches, in all their forms. The hot path: the engine is asked before and told after each;
 * while everything fits the budget it only keeps the gate.
 */
#include "hook.h"

/* What every form does. `...`: assignments for launches that are not described completely by their function, stream and
 * parameters. */
#define LAUNCH_BODY(name, params_, args, function_, stream_, parameters, extra_, ...) \
    CUresult ov_body_##name params_                                                   \
    {                                                                                 \
        CUresult result;                                                              \
        if (OV_LIKELY(ov_launch_is_idle())) {                                         \
            result = OV_REAL(name, args);                                             \
            ov_gate_leave();                                                          \
            return result;                                                            \
        }                                                                             \
        struct ov_launch launch;                                                      \
        ov_launch_describe(&launch, function_, stream_, parameters, extra_);          \
        __VA_ARGS__;                                                                  \
        result = ov_launch_begin(&launch);                                            \
        if (result == CUDA_SUCCESS) {                                                 \
            result = OV_REAL(name, args);                                             \
            ov_launch_end(&launch, result);                                           \
        }                                                                             \
        return result;                                                                \
    }

#define GRID_PARAMS                                                                                             \
    CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
        unsigned block_z, unsigned shared_bytes, CUstream stream, void **params
#define GRID_ARGS function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params

#define GRID_BODIES(suffix)                                                                                         \
    LAUNCH_BODY(cuLaunchKernel##suffix, (GRID_PARAMS, void **extra), (GRID_ARGS, extra), function,                  \
                OV_STREAM(suffix, stream), params, extra, )                                                         \
    LAUNCH_BODY(cuLaunchCooperativeKernel##suffix, (GRID_PARAMS), (GRID_ARGS), function, OV_STREAM(suffix, stream), \
                params, NULL, )

GRID_BODIES()
GRID_BODIES(_ptsz)

/* Whether the launch may begin before the work in front of it on its stream has ended. */
static bool is_programmatic(const CUlaunchConfig *config)
{
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const CUlaunchAttribute *attribute = &config->attrs[i];
        if (attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT ||
            (attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
             attribute->value.programmaticStreamSerializationAllowed)) {
            return true;
        }
    }
    return false;
}

/* The configuration goes on as it came, with attributes we know nothing of. A NULL one is the driver's to refuse. */
static CUstream config_stream(const CUlaunchConfig *config)
{
    return config != NULL ? config->hStream : NULL;
}

/* A launch that may start before its predecessor ends would read weights that an earlier wait on its stream has not
 * brought yet: kernels take weights for constant and read them before griddepcontrol.wait. So a launch whose weights
 * are in the ring starts in order. Its result is the same. */
enum { ATTRIBUTES_MAX = 64 };

struct in_order {
    CUlaunchConfig config;
    CUlaunchAttribute attribute[ATTRIBUTES_MAX];
};

static const CUlaunchConfig *put_in_order(struct in_order *copy, const CUlaunchConfig *config)
{
    if (config->numAttrs > ATTRIBUTES_MAX) {
        return NULL;
    }
    copy->config = *config;
    copy->config.attrs = copy->attribute;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        copy->attribute[i] = config->attrs[i];
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) {
            copy->attribute[i].value.programmaticStreamSerializationAllowed = 0;
        }
    }
    return &copy->config;
}

#define EX_BODIES(suffix)                                                                                            \
    CUresult ov_body_cuLaunchKernelEx##suffix(const CUlaunchConfig *config, CUfunction function, void **params,      \
                                              void **extra)                                                          \
    {                                                                                                                \
        if (OV_LIKELY(ov_launch_is_idle())) {                                                                        \
            const CUresult done = OV_REAL(cuLaunchKernelEx##suffix, (config, function, params, extra));              \
            ov_gate_leave();                                                                                         \
            return done;                                                                                             \
        }                                                                                                            \
        struct ov_launch launch;                                                                                     \
        ov_launch_describe(&launch, function, OV_STREAM(suffix, config_stream(config)), params, extra);              \
        launch.programmatic = config != NULL && is_programmatic(config);                                             \
        CUresult result = ov_launch_begin(&launch);                                                                  \
        if (result != CUDA_SUCCESS) {                                                                                \
            return result;                                                                                           \
        }                                                                                                            \
        struct in_order copy;                                                                                        \
        const CUlaunchConfig *used = launch.programmatic && launch.units > 0 ? put_in_order(&copy, config) : config; \
        result = used != NULL || config == NULL ? OV_REAL(cuLaunchKernelEx##suffix, (used, function, params, extra)) \
                                                : CUDA_ERROR_NOT_SUPPORTED;                                          \
        ov_launch_end(&launch, result);                                                                              \
        return result;                                                                                               \
    }

EX_BODIES()
EX_BODIES(_ptsz)

/* Parameters of these were set one by one before, or belong to several devices: they cannot be seen. */
LAUNCH_BODY(cuLaunch, (CUfunction function), (function), function, CU_STREAM_LEGACY, NULL, NULL, launch.opaque = true)
LAUNCH_BODY(cuLaunchGrid, (CUfunction function, int grid_width, int grid_height), (function, grid_width, grid_height),
            function, CU_STREAM_LEGACY, NULL, NULL, launch.opaque = true)
LAUNCH_BODY(cuLaunchGridAsync, (CUfunction function, int grid_width, int grid_height, CUstream stream),
            (function, grid_width, grid_height, stream), function, OV_STREAM(, stream), NULL, NULL,
            launch.opaque = true)
LAUNCH_BODY(cuLaunchCooperativeKernelMultiDevice, (CUDA_LAUNCH_PARAMS * launches, unsigned count, unsigned flags),
            (launches, count, flags), launches != NULL && count > 0 ? launches[0].function : NULL,
            launches != NULL && count > 0 ? OV_STREAM(, launches[0].hStream) : CU_STREAM_LEGACY, NULL, NULL,
            launch.opaque = true)
