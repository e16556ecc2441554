/*
 * An engine that does nothing but write down what the shim told it, so that the hooks can be tested by themselves.
 * RECORD_STATE: inert, idle or armed (default). RECORD_LAUNCH: an error code that ov_launch_begin() answers.
 * RECORD_SLOW: milliseconds that ov_runtime_attach() takes.
 */
#include "../../runtime/runtime.h"

#include <string.h>
#include <time.h>

#include "record.h"

_Thread_local struct ov_self ov_self;
_Atomic int ov_state = OV_INERT;
struct ov_gate ov_gate;
static const struct ov_driver *driver;

/* Nobody has a place, so every passage comes here. */
void ov_gate_pass_slowly(void)
{
    record("gate entered");
}

void ov_gate_leave_without_slot(void)
{
    record("gate left");
}

#define REAL(name, args)                                \
    __extension__({                                     \
        ov_inside_enter();                              \
        const CUresult real_result = driver->name args; \
        ov_inside_leave();                              \
        real_result;                                    \
    })

static int chosen_state(void)
{
    const char *name = getenv("RECORD_STATE");
    if (name != NULL && strcmp(name, "inert") == 0) {
        return OV_INERT;
    }
    return name != NULL && strcmp(name, "idle") == 0 ? OV_IDLE : OV_ARMED;
}

void ov_runtime_attach(const struct ov_driver *table, const char *missing)
{
    const char *slow = getenv("RECORD_SLOW");
    record("attach missing=%s inside=%d", missing ? missing : "none", ov_self.inside);
    if (slow != NULL) {
        const long ms = atol(slow);
        nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
    }
    driver = table;
    atomic_store(&ov_state, missing ? OV_INERT : chosen_state());
}

void ov_runtime_forked(void)
{
    atomic_store(&ov_state, OV_INERT);
    record("forked");
}

void ov_runtime_exit(void)
{
    record("exit inside=%d", ov_self.inside);
}

void ov_stand_down(const char *library, bool starting)
{
    record("stand_down %s %d", library, starting);
}

CUresult ov_mem_alloc(CUdeviceptr *out, size_t bytes)
{
    record("mem_alloc bytes=%zu", bytes);
    return REAL(cuMemAlloc_v2, (out, bytes));
}

CUresult ov_mem_alloc_pitch(CUdeviceptr *out, size_t *pitch, size_t width_bytes, size_t height, unsigned element_bytes)
{
    record("mem_alloc_pitch width=%zu height=%zu element=%u", width_bytes, height, element_bytes);
    return REAL(cuMemAllocPitch_v2, (out, pitch, width_bytes, height, element_bytes));
}

CUresult ov_mem_free(CUdeviceptr address)
{
    record("mem_free %#llx", address);
    return REAL(cuMemFree_v2, (address));
}

/* Pool 0x0f is "ours". */
bool ov_mem_alloc_async(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream, CUresult *result)
{
    (void)out;
    record("mem_alloc_async bytes=%zu pool=%p stream=%p", bytes, (void *)pool, (void *)stream);
    *result = CUDA_ERROR_ALREADY_MAPPED;
    return pool == (CUmemoryPool)0x0f;
}

void ov_pool_made(CUmemoryPool pool, const CUmemPoolProps *props)
{
    record("pool_made %p types=%d", (void *)pool, (int)props->handleTypes);
}

void ov_pool_gone(CUmemoryPool pool)
{
    record("pool_gone %p", (void *)pool);
}

CUresult ov_pool_trim(CUmemoryPool pool, size_t keep_bytes)
{
    record("pool_trim %p keep=%zu", (void *)pool, keep_bytes);
    return REAL(cuMemPoolTrimTo, (pool, keep_bytes));
}

CUresult ov_pool_get_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    record("pool_get_attribute %p %d", (void *)pool, (int)attribute);
    return REAL(cuMemPoolGetAttribute, (pool, attribute, value));
}

CUresult ov_pool_set_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    record("pool_set_attribute %p %d", (void *)pool, (int)attribute);
    return REAL(cuMemPoolSetAttribute, (pool, attribute, value));
}

CUresult ov_pool_set_access(CUmemoryPool pool, const CUmemAccessDesc *desc, size_t count)
{
    record("pool_set_access %p count=%zu", (void *)pool, count);
    return REAL(cuMemPoolSetAccess, (pool, desc, count));
}

/* 0x0f... is "ours". */
bool ov_mem_free_async(CUdeviceptr address, CUstream stream, CUresult *result)
{
    record("mem_free_async %#llx stream=%p", address, (void *)stream);
    *result = CUDA_ERROR_ALREADY_MAPPED;
    return address >> 56 == 0x0f;
}

CUresult ov_mem_get_info(size_t *free_bytes, size_t *total_bytes)
{
    record("mem_get_info");
    return REAL(cuMemGetInfo_v2, (free_bytes, total_bytes));
}

CUresult ov_device_total_mem(size_t *bytes, CUdevice device)
{
    record("device_total_mem %d", device);
    return REAL(cuDeviceTotalMem_v2, (bytes, device));
}

int ov_device_of_uuid(const char *uuid)
{
    record("device_of_uuid %s", uuid);
    return 0;
}

int ov_device_of_pci(unsigned domain, unsigned bus, unsigned device)
{
    record("device_of_pci %u:%u:%u", domain, bus, device);
    return 0;
}

bool ov_device_memory_told(CUdevice device, size_t *free_bytes, size_t *total_bytes)
{
    record("device_memory_told %d", device);
    (void)free_bytes, (void)total_bytes;
    return false;
}

CUresult ov_mem_get_address_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    record("mem_get_address_range %#llx", address);
    return REAL(cuMemGetAddressRange_v2, (base, bytes, address));
}

CUresult ov_pointer_get_attribute(void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    record("pointer_get_attribute %d %#llx", attribute, address);
    return REAL(cuPointerGetAttribute, (value, attribute, address));
}

CUresult ov_pointer_get_attributes(unsigned count, CUpointer_attribute *attribute, void **values, CUdeviceptr address)
{
    record("pointer_get_attributes %u %#llx", count, address);
    return REAL(cuPointerGetAttributes, (count, attribute, values, address));
}

CUresult ov_ipc_get_mem_handle(CUipcMemHandle *out, CUdeviceptr address)
{
    record("ipc_get %#llx", address);
    return REAL(cuIpcGetMemHandle, (out, address));
}

/* A handle that begins with 0x0f is "ours". */
bool ov_ipc_open_mem_handle(CUdeviceptr *out, const CUipcMemHandle *handle, unsigned flags, CUresult *result)
{
    record("ipc_open %d flags=%u", handle->reserved[0], flags);
    (void)out;
    *result = CUDA_ERROR_ALREADY_MAPPED;
    return handle->reserved[0] == 0x0f;
}

bool ov_ipc_close_mem_handle(CUdeviceptr address, CUresult *result)
{
    record("ipc_close %#llx", address);
    *result = CUDA_ERROR_ALREADY_MAPPED;
    return address >> 56 == 0x0f;
}

void ov_foreign_coming(size_t bytes_on_device)
{
    record("foreign_coming device=%zu", bytes_on_device);
}

void ov_foreign_missed(size_t bytes_on_device)
{
    record("foreign_missed device=%zu", bytes_on_device);
}

void ov_foreign_added(CUdeviceptr address, size_t bytes, size_t bytes_on_device)
{
    record("foreign_added %#llx bytes=%zu device=%zu", address, bytes, bytes_on_device);
}

void ov_global_added(CUdeviceptr address, size_t bytes)
{
    record("global_added %#llx bytes=%zu", address, bytes);
}

void ov_zerocopy_added(void *host, size_t bytes, bool managed)
{
    record("zerocopy_added %p bytes=%zu managed=%d", host, bytes, managed);
}

void ov_zerocopy_removed(const void *host)
{
    record("zerocopy_removed %p", host);
}

CUresult ov_address_encoded(const void *object, size_t bytes, CUdeviceptr address)
{
    record("address_encoded %p bytes=%zu %#llx", object, bytes, address);
    return CUDA_SUCCESS;
}

void ov_pool_added(CUdeviceptr address, size_t bytes, size_t bytes_on_device)
{
    record("pool_added %#llx bytes=%zu device=%zu", address, bytes, bytes_on_device);
}

void ov_foreign_removed(CUdeviceptr address)
{
    record("foreign_removed %#llx", address);
}

CUresult ov_mem_create(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *prop,
                       unsigned long long flags)
{
    record("mem_create bytes=%zu location=%d flags=%llu", bytes, (int)prop->location.type, flags);
    return REAL(cuMemCreate, (out, bytes, prop, flags));
}

CUresult ov_mem_release(CUmemGenericAllocationHandle handle)
{
    record("mem_release %#llx", handle);
    return REAL(cuMemRelease, (handle));
}

CUresult ov_mem_retain(CUmemGenericAllocationHandle *out, void *address)
{
    record("mem_retain %p", address);
    return REAL(cuMemRetainAllocationHandle, (out, address));
}

CUresult ov_mem_handle_properties(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
    record("mem_handle_properties %#llx", handle);
    return REAL(cuMemGetAllocationPropertiesFromHandle, (prop, handle));
}

CUresult ov_mem_export(void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                       unsigned long long flags)
{
    record("mem_export %#llx type=%d flags=%llu", handle, (int)type, flags);
    return REAL(cuMemExportToShareableHandle, (out, handle, type, flags));
}

CUresult ov_mem_address_reserve(CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr hint,
                                unsigned long long flags)
{
    record("mem_address_reserve bytes=%zu alignment=%zu hint=%#llx flags=%llu", bytes, alignment, hint, flags);
    return REAL(cuMemAddressReserve, (out, bytes, alignment, hint, flags));
}

CUresult ov_mem_address_free(CUdeviceptr address, size_t bytes)
{
    record("mem_address_free %#llx bytes=%zu", address, bytes);
    return REAL(cuMemAddressFree, (address, bytes));
}

CUresult ov_mem_map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long flags)
{
    record("mem_map %#llx bytes=%zu offset=%zu handle=%#llx flags=%llu", address, bytes, offset, handle, flags);
    return REAL(cuMemMap, (address, bytes, offset, handle, flags));
}

CUresult ov_mem_unmap(CUdeviceptr address, size_t bytes)
{
    record("mem_unmap %#llx bytes=%zu", address, bytes);
    return REAL(cuMemUnmap, (address, bytes));
}

CUresult ov_mem_set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *desc, size_t count)
{
    record("mem_set_access %#llx bytes=%zu count=%zu", address, bytes, count);
    return REAL(cuMemSetAccess, (address, bytes, desc, count));
}

CUresult ov_mem_get_access(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address)
{
    record("mem_get_access %#llx", address);
    return REAL(cuMemGetAccess, (flags, location, address));
}

/* 0x77 becomes 0x78; 0x79 cannot. */
CUresult ov_mem_real_handle(CUmemGenericAllocationHandle *handle)
{
    record("mem_real_handle %#llx", *handle);
    *handle = *handle == 0x77 ? 0x78 : *handle;
    return *handle == 0x79 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

/* 0x0f... cannot. */
CUresult ov_mem_reached(CUdeviceptr address, size_t bytes)
{
    record("mem_reached %#llx bytes=%zu", address, bytes);
    return address >> 56 == 0x0f ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult ov_mem_given_away(CUdeviceptr address, size_t bytes)
{
    record("mem_given_away %#llx bytes=%zu", address, bytes);
    return address >> 56 == 0x0f ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

static void record_copy(const char *what, const struct ov_copy *copy)
{
    record("%s dst=%#llx:%zux%zu/%zu src=%#llx:%zux%zu/%zu host=%p stream=%p", what, copy->dst.address, copy->dst.bytes,
           copy->dst.rows, copy->dst.pitch_bytes, copy->src.address, copy->src.bytes, copy->src.rows,
           copy->src.pitch_bytes, copy->host_source, (void *)copy->stream);
}

void ov_copy_begin(struct ov_copy *copy)
{
    record_copy("copy_begin", copy);
}

void ov_copy_end(struct ov_copy *copy, CUresult result)
{
    record("copy_end dst=%#llx result=%d", copy->dst.address, result);
}

CUresult ov_launch_begin(struct ov_launch *launch)
{
    const char *error = getenv("RECORD_LAUNCH");
    launch->kernel = (struct ov_kernel *)launch;
    launch->units = 0;
    record("launch_begin function=%p stream=%p params=%p extra=%p opaque=%d programmatic=%d inside=%d",
           (void *)launch->function, (void *)launch->stream, (void *)launch->params, (void *)launch->extra,
           launch->opaque, launch->programmatic, ov_self.inside);
    return error != NULL ? (CUresult)atoi(error) : CUDA_SUCCESS;
}

void ov_launch_end(struct ov_launch *launch, CUresult result)
{
    record("launch_end result=%d same=%d inside=%d", result, launch->kernel == (struct ov_kernel *)launch,
           ov_self.inside);
}

void ov_module_loaded(CUmodule module, const void *image)
{
    record("module_loaded %p image=%p", (void *)module, image);
}

void ov_library_loaded(CUlibrary library, const void *image)
{
    record("library_loaded %p image=%p", (void *)library, image);
}

void ov_function_found(CUfunction function, CUmodule module, const char *name)
{
    record("function_found %p module=%p name=%s", (void *)function, (void *)module, name);
}

void ov_kernel_found(CUkernel kernel, CUlibrary library, const char *name)
{
    record("kernel_found %p library=%p name=%s", (void *)kernel, (void *)library, name);
}

void ov_module_unloading(CUmodule module)
{
    record("module_unloading %p", (void *)module);
}

void ov_library_unloading(CUlibrary library)
{
    record("library_unloading %p", (void *)library);
}

void ov_stream_closing(CUstream stream)
{
    record("stream_closing %p", (void *)stream);
}

void ov_context_closing(CUcontext context, CUdevice device)
{
    record("context_closing %p device=%d", (void *)context, device);
}

void ov_peer_enabled(CUcontext peer)
{
    record("peer_enabled %p", (void *)peer);
}

void ov_quiet_point(void)
{
    record("quiet_point");
}

void ov_capture_beginning(CUstream stream)
{
    record("capture_beginning %p", (void *)stream);
}

void ov_capture_began(CUstream stream, CUresult result)
{
    record("capture_began %p result=%d", (void *)stream, result);
}

void ov_capture_ended(CUstream stream)
{
    record("capture_ended %p", (void *)stream);
}

void ov_graph_instantiated(CUgraphExec exec, CUgraph graph, unsigned long long flags)
{
    record("graph_instantiated %p graph=%p flags=%llu", (void *)exec, (void *)graph, flags);
}

void ov_graph_updated(CUgraphExec exec, CUgraph graph)
{
    record("graph_updated %p graph=%p", (void *)exec, (void *)graph);
}

CUresult ov_graph_launch_begin(struct ov_graph_launch *launch)
{
    record("graph_launch_begin %p stream=%p", (void *)launch->exec, (void *)launch->stream);
    launch->used = launch->exec;
    launch->served = false;
    return CUDA_SUCCESS;
}

bool ov_graph_launch_end(struct ov_graph_launch *launch, CUresult result)
{
    record("graph_launch_end %p result=%d", (void *)launch->exec, result);
    return false;
}

void ov_graph_node_set(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams *params)
{
    char what[256] = "";
    const CUDA_KERNEL_NODE_PARAMS_v3 *kernel = &params->kernel;
    const CUDA_MEMSET_NODE_PARAMS_v2 *fill = &params->memset;
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        snprintf(what, sizeof what, " func=%p kern=%p grid=%u shared=%u params=%p extra=%p", (void *)kernel->func,
                 (void *)kernel->kern, kernel->gridDimX, kernel->sharedMemBytes, (void *)kernel->kernelParams,
                 (void *)kernel->extra);
        break;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        snprintf(what, sizeof what, " dst=0x%llx src=0x%llx width=%zu", params->memcpy.copyParams.dstDevice,
                 params->memcpy.copyParams.srcDevice, params->memcpy.copyParams.WidthInBytes);
        break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        snprintf(what, sizeof what, " dst=0x%llx width=%zux%u height=%zu pitch=%zu", fill->dst, fill->width,
                 fill->elementSize, fill->height, fill->pitch);
        break;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        snprintf(what, sizeof what, " graph=%p", (void *)params->graph.graph);
        break;
    default:
        break;
    }
    record("graph_node_set %p node=%p type=%d%s", (void *)exec, (void *)node, (int)params->type, what);
}

void ov_graph_node_added(CUgraphNode node, const CUgraphNodeParams *params)
{
    record("graph_node_added %p type=%d", (void *)node, (int)params->type);
}

void ov_graph_node_enabled(CUgraphExec exec, CUgraphNode node, bool enabled)
{
    record("graph_node_enabled %p node=%p %d", (void *)exec, (void *)node, enabled);
}

void ov_graph_destroying(CUgraphExec exec)
{
    record("graph_destroying %p", (void *)exec);
}
