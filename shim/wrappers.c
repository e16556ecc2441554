/*
 * The first half of every wrapper, its export, and the rows that describe it: all from driver_api.def.
 *
 * A wrapper is a hidden function, so that its address is one and the same whoever asks; the public name is an alias.
 */
#include "hook.h"

#define TEXT_OF(name) #name

/* Called by ELF binding: the program is linked against functions that this driver does not have. */
__attribute__((noinline, cold)) static CUresult not_found(void)
{
    return CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;
}

__attribute__((noinline, cold)) static void resolve(void)
{
    ov_resolve(NULL);
}

#define OV_HOOK(name, need, params, args)                                \
    OV_HIDDEN CUresult ov_wrap_##name params;                            \
    CUresult ov_wrap_##name params                                       \
    {                                                                    \
        if (OV_UNLIKELY(!ov_resolved())) {                               \
            resolve();                                                   \
        }                                                                \
        if (OV_UNLIKELY(ov_driver_table.name == NULL)) {                 \
            return not_found();                                          \
        }                                                                \
        if (OV_UNLIKELY(ov_bypass())) {                                  \
            return ov_driver_table.name args;                            \
        }                                                                \
        return ov_body_##name args;                                      \
    }                                                                    \
    extern __typeof__(ov_wrap_##name) ov_export_##name __asm__(#name)    \
        __attribute__((alias("ov_wrap_" #name), visibility("default"))); \
    _Static_assert(sizeof(#name) == sizeof(TEXT_OF(name)),               \
                   #name " is renamed by cuda.h: driver_api.def must #undef it");
#define OV_CALL(name, need, params)                        \
    _Static_assert(sizeof(#name) == sizeof(TEXT_OF(name)), \
                   #name " is renamed by cuda.h: driver_api.def must #undef it");
#include "driver_api.def"
#undef OV_HOOK
#undef OV_CALL

#define REQUIRED true
#define OPTIONAL false
#define OV_HOOK(name, need, params, args) \
    {#name, #name " ", (void *)ov_wrap_##name, offsetof(struct ov_driver, name), need},
#define OV_CALL(name, need, params) {#name, #name " ", NULL, offsetof(struct ov_driver, name), need},
const struct ov_row ov_rows[] = {
#include "driver_api.def"
};
#undef OV_HOOK
#undef OV_CALL
const size_t ov_row_count = sizeof ov_rows / sizeof ov_rows[0];
