#include "standdown.h"

#include "elf_image.h"

static const struct {
    const char *file; /* the file's name begins with it */
    const char *name;
} pagers[] = {
    {"aimdo.so", "comfy-aimdo"},
    {"torch_memory_saver_hook_mode_", "torch_memory_saver"},
    {"cumem_allocator.", "the allocator of vLLM's sleep mode"},
};

static bool visit(const struct ov_elf *object, void *context)
{
    const char **found = context;
    for (size_t i = 0; i < sizeof pagers / sizeof pagers[0] && *found == NULL; i++) {
        if (ov_elf_is(object, pagers[i].file)) {
            *found = pagers[i].name;
        }
    }
    return *found != NULL;
}

static bool visit_first(const struct ov_elf *object, void *context)
{
    *(unsigned long long *)context = object->loads;
    return true;
}

void ov_standdown_look(bool starting)
{
    static _Atomic unsigned long long seen;
    static _Atomic bool done;
    unsigned long long loads = 0;
    const char *found = NULL;
    if (atomic_load_explicit(&done, memory_order_relaxed)) {
        return;
    }
    ov_elf_each(visit_first, &loads);
    if (loads == atomic_load_explicit(&seen, memory_order_relaxed)) {
        return; /* nothing was loaded since */
    }
    ov_elf_each(visit, &found);
    atomic_store_explicit(&seen, loads, memory_order_relaxed);
    if (found != NULL) {
        atomic_store_explicit(&done, true, memory_order_relaxed);
        ov_stand_down(found, starting);
    }
}
