/* Life of the runtime, and what does not belong to launches, copies or memory: see runtime.h. */
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "gate.h"
#include "graph.h"
#include "log.h"
#include "options.h"
#include "steer.h"
#include "summary.h"
#include "zerocopy.h"

extern char **environ;

static void log_unknown(void *context, const char *text)
{
    (void)context;
    ov_log(OV_LOG_WARN, "%s", text);
}

static void log_option(void *context, const char *text)
{
    (void)context;
    ov_log(OV_LOG_DEBUG, "%s", text);
}

static const char *from_environment(const char *variable)
{
    return getenv(variable);
}

void ov_runtime_attach(const struct ov_driver *driver, const char *missing)
{
    static char error[2048];
    ov_cu = driver;
    if (!ov_options_load(&ov_opt, from_environment, error, sizeof error)) {
        ov_log(OV_LOG_ERROR, "%s", error);
        ov_log(OV_LOG_ERROR, "overshot does nothing in this process until that is corrected");
        return;
    }
    (void)ov_log_open((enum ov_log_level)ov_opt.log, ov_opt.log_file);
    (void)ov_options_unknown(environ, log_unknown, NULL);
    ov_options_print(&ov_opt, log_option, NULL);
    if (ov_opt.mode == OV_OPT_MODE_OFF) {
        return;
    }
    if (missing != NULL) {
        ov_log(OV_LOG_WARN,
               "the CUDA driver has no %s: overshot does nothing in this process (CUDA 12.0 or newer is needed)",
               missing);
        return;
    }
    ov_gate_set_up();
    atomic_store(&ov_state, OV_IDLE);
}

void ov_runtime_forked(void)
{
    atomic_store(&ov_state, OV_INERT);
    ov_ipc_forked();
    ov_steer_forked();
}

/* ---- beside others ---- */

void ov_stand_down(const char *library, bool starting)
{
    if (atomic_load(&ov_state) == OV_INERT) {
        return;
    }
    if (ov_opt.standdown == OV_OPT_STANDDOWN_OFF) {
        ov_log(OV_LOG_INFO, "%s pages GPU memory, too: overshot works beside it, as OVERSHOT_STANDDOWN=off says",
               library);
        return;
    }
    atomic_store(&ov_stood_down, true);
    ov_log(OV_LOG_WARN,
           "%s pages GPU memory itself: overshot leaves all memory to it (OVERSHOT_STANDDOWN=off: it does not)",
           library);
    if (starting) {
        atomic_store(&ov_state, OV_INERT);
    } else {
        ov_bar_streaming(library); /* what was allocated before stays served */
    }
}

/* ---- streams and contexts ---- */

void ov_stream_closing(CUstream stream)
{
    ov_capture_stream_closing(stream);
    for (int slice = 0; slice < OV_DEVICES; slice++) {
        struct ov_engine *engine = ov_engine_at(slice);
        if (engine != NULL && (engine->armed || atomic_load(&engine->pools.idle_count) > 0)) {
            pthread_mutex_lock(&engine->lock);
            ov_ring_forget_stream(engine, stream);
            ov_pools_forget_stream(engine, stream);
            pthread_mutex_unlock(&engine->lock);
        }
    }
}

/* No engine waits for the context any more. */
static void forget_foreign(CUcontext context)
{
    for (int slice = 0; slice < OV_DEVICES; slice++) {
        struct ov_engine *engine = ov_engine_at(slice);
        if (engine == NULL) {
            continue;
        }
        pthread_mutex_lock(&engine->lock);
        for (int i = 0; i < OV_FOREIGN_CONTEXTS; i++) {
            if (engine->foreign[i] == context) {
                engine->foreign[i] = NULL;
            }
        }
        pthread_mutex_unlock(&engine->lock);
    }
}

void ov_context_closing(CUcontext context, CUdevice device)
{
    ov_capture_context_closing(context, device);
    ov_zerocopy_context_closing(context, device);
    ov_ipc_context_closing(context, device);
    ov_graphs_context_closing(context);
    forget_foreign(context);
    for (int slice = 0; slice < OV_DEVICES; slice++) {
        struct ov_engine *engine = ov_engine_at(slice);
        if (engine == NULL) {
            continue;
        }
        if (context != NULL ? engine->context == context : engine->device == device) {
            const CUcontext gone = engine->context; /* which `context` need not name */
            ov_gate_close();
            ov_engine_close(engine);
            ov_gate_open();
            forget_foreign(gone);
        }
    }
}

void ov_peer_enabled(CUcontext peer)
{
    /* The current context may now read the peer's memory: its device gets access to the peer's pages. */
    CUdevice reader;
    struct ov_engine *owner = NULL;
    if (ov_cu->cuCtxGetDevice(&reader) != CUDA_SUCCESS || ov_cu->cuCtxPushCurrent_v2(peer) != CUDA_SUCCESS) {
        return;
    }
    owner = ov_engine_here();
    CUcontext popped;
    if (owner != NULL) {
        pthread_mutex_lock(&owner->lock);
        CUresult result = ov_arena_admit(&owner->arena, reader);
        pthread_mutex_unlock(&owner->lock);
        if (result != CUDA_SUCCESS) {
            ov_log(OV_LOG_WARN, "device %d could not be given access to the memory of device %d (error %d)", reader,
                   owner->device, (int)result);
        }
    }
    (void)ov_cu->cuCtxPopCurrent_v2(&popped);
}

/* ---- the end ---- */

void ov_runtime_exit(void)
{
    if (atomic_load(&ov_state) == OV_INERT) {
        return;
    }
    ov_ipc_exit();
    ov_steer_exit();
    for (int slice = 0; slice < OV_DEVICES; slice++) {
        struct ov_engine *engine = ov_engine_at(slice);
        if (engine != NULL) {
            ov_summary_print(engine);
            ov_share_leave(&engine->masters.share); /* files only */
        }
    }
}
