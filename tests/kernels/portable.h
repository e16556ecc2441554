/*
 * portable.h: one kernel source for the GPU (nvcc) and for the host (any C11 compiler).
 *
 *     KERNEL3(scale, float *, y, float, factor, uint64_t, count,
 *             READS(y, 4 * count) WRITES(y, 4 * count) OPS(count))
 *     {
 *         FOR_EACH(i, count) {
 *             y[i] *= factor;
 *         }
 *     }
 *
 * Parameters are pairs (type, name); after them comes what a launch touches: statements that run on the host with the
 * launch's parameters in scope, so they may loop and read tables that they declared before. nvcc drops them.
 * On the GPU this is `extern "C" __global__ void scale(...)`; on the host it is a row of sim_kernels() (sim_kernel.h),
 * which registers itself when the library is loaded: a new source needs no list but the CMake one.
 *
 * GLOBAL_TABLE(uint64_t, slots, 64); at file scope is a `__device__` array that kernels use by its name; its module
 * has it. A launch's accesses to it are declared like all others.
 *
 * Rules that make both sides agree bit for bit: every index of FOR_EACH writes its own outputs and no index reads
 * another's; no shared memory, no atomics, no libm; float without contraction (-fmad=false, -ffp-contract=off), in a
 * fixed order.
 */
#ifndef PORTABLE_H
#define PORTABLE_H

#include <stdint.h>

#ifdef __CUDACC__

#define DEVICE_FUNCTION                               static __device__ __forceinline__
#define SIM_KERNEL(name, signature, names, load, ...) extern "C" __global__ void name signature
#define GLOBAL_TABLE(type, name, count)               __device__ type name[count]
/* Grid-stride loop over 0 .. count-1; `i` is a uint64_t. */
#define FOR_EACH(i, count)                                                                    \
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (uint64_t)(count); \
         i += (uint64_t)gridDim.x * blockDim.x)

#define TOGETHER(count)   1u
#define PREFETCH(address) ((void)0)

/* Keeps a thread busy for `nanoseconds` from here. The host does nothing: its clock is virtual, and takes OPS. */
static __device__ __forceinline__ void busy_for(double nanoseconds)
{
    uint64_t begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while ((double)(now - begin) < nanoseconds);
}

#else

#include <math.h> /* sqrtf only: correctly rounded everywhere */
#include <string.h>

#include "sim_kernel.h"

#define DEVICE_FUNCTION    static inline
#define FOR_EACH(i, count) for (uint64_t i = 0, i##_end = (uint64_t)(count); i < i##_end; i++)
/* How many threads' work one index of FOR_EACH does side by side: `count` on the host, one on the GPU. A GPU hides the
 * time that memory takes by other threads, and reads memory in order when neighbours read one word each. */
#define TOGETHER(count)    (count)
/* Starts to fetch what a loop will read. Not every processor does that by itself. */
#define PREFETCH(address)  __builtin_prefetch(address)

DEVICE_FUNCTION void busy_for(double nanoseconds)
{
    (void)nanoseconds;
}

/* What a launch touches. READS and WRITES leave the access function when the range is refused. */
#define READS(address, bytes)                                                     \
    if (sim_access_add(sim_out, (const void *)(address), (uint64_t)(bytes), 0)) { \
        return;                                                                   \
    }
#define WRITES(address, bytes)                                                    \
    if (sim_access_add(sim_out, (const void *)(address), (uint64_t)(bytes), 1)) { \
        return;                                                                   \
    }
/* Read, but the values do not matter (a load past the end of a tensor): must be mapped, need not be ordered. */
#define READS_ANY(address, bytes)                                                                                \
    if ((bytes) && sim_access_check && sim_access_check((uint64_t)(uintptr_t)(address), (uint64_t)(bytes), 0)) { \
        return;                                                                                                  \
    }
#define GLOBAL_TABLE(type, name, count)                          \
    static type *name;                                           \
    __attribute__((constructor)) static void name##_global(void) \
    {                                                            \
        sim_kernel_global_register(#name, (void **)&name);       \
    }                                                            \
    _Static_assert((count) > 0, "a table has room")
#define OPS(count) sim_out->operations += (double)(count);

#define SIM_KERNEL(name, signature, names, load, ...)                          \
    static void name##_body signature;                                         \
    static void name##_run(void **sim_params)                                  \
    {                                                                          \
        load name##_body names;                                                \
    }                                                                          \
    static void name##_access(void **sim_params, struct sim_accesses *sim_out) \
    {                                                                          \
        load __VA_ARGS__(void) sim_out;                                        \
    }                                                                          \
    __attribute__((constructor)) static void name##_register(void)             \
    {                                                                          \
        sim_kernel_register(#name, name##_run, name##_access);                 \
    }                                                                          \
    static void name##_body signature

#endif

/* Parameter `index` out of the launch's array, which need not be aligned. */
#define SIM_LOAD(index, T, a)                \
    T a;                                     \
    memcpy(&a, sim_params[index], sizeof a); \
    (void)a;

#define KERNEL1(name, T0, a0, ...) SIM_KERNEL(name, (T0 a0), (a0), SIM_LOAD(0, T0, a0), __VA_ARGS__)
#define KERNEL2(name, T0, a0, T1, a1, ...) \
    SIM_KERNEL(name, (T0 a0, T1 a1), (a0, a1), SIM_LOAD(0, T0, a0) SIM_LOAD(1, T1, a1), __VA_ARGS__)
#define KERNEL3(name, T0, a0, T1, a1, T2, a2, ...)                                                                     \
    SIM_KERNEL(name, (T0 a0, T1 a1, T2 a2), (a0, a1, a2), SIM_LOAD(0, T0, a0) SIM_LOAD(1, T1, a1) SIM_LOAD(2, T2, a2), \
               __VA_ARGS__)
#define KERNEL4(name, T0, a0, T1, a1, T2, a2, T3, a3, ...)           \
    SIM_KERNEL(name, (T0 a0, T1 a1, T2 a2, T3 a3), (a0, a1, a2, a3), \
               SIM_LOAD(0, T0, a0) SIM_LOAD(1, T1, a1) SIM_LOAD(2, T2, a2) SIM_LOAD(3, T3, a3), __VA_ARGS__)
#define KERNEL5(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, ...)                                                  \
    SIM_KERNEL(name, (T0 a0, T1 a1, T2 a2, T3 a3, T4 a4), (a0, a1, a2, a3, a4),                                     \
               SIM_LOAD(0, T0, a0) SIM_LOAD(1, T1, a1) SIM_LOAD(2, T2, a2) SIM_LOAD(3, T3, a3) SIM_LOAD(4, T4, a4), \
               __VA_ARGS__)
#define KERNEL6(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, ...)                                         \
    SIM_KERNEL(name, (T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5), (a0, a1, a2, a3, a4, a5),                         \
               SIM_LOAD(0, T0, a0) SIM_LOAD(1, T1, a1) SIM_LOAD(2, T2, a2) SIM_LOAD(3, T3, a3) SIM_LOAD(4, T4, a4) \
                   SIM_LOAD(5, T5, a5),                                                                            \
               __VA_ARGS__)
#define KERNEL7(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, ...)                                 \
    SIM_KERNEL(name, (T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6), (a0, a1, a2, a3, a4, a5, a6),              \
               SIM_LOAD(0, T0, a0) SIM_LOAD(1, T1, a1) SIM_LOAD(2, T2, a2) SIM_LOAD(3, T3, a3) SIM_LOAD(4, T4, a4) \
                   SIM_LOAD(5, T5, a5) SIM_LOAD(6, T6, a6),                                                        \
               __VA_ARGS__)
#define KERNEL8(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, ...)                         \
    SIM_KERNEL(name, (T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7), (a0, a1, a2, a3, a4, a5, a6, a7),   \
               SIM_LOAD(0, T0, a0) SIM_LOAD(1, T1, a1) SIM_LOAD(2, T2, a2) SIM_LOAD(3, T3, a3) SIM_LOAD(4, T4, a4) \
                   SIM_LOAD(5, T5, a5) SIM_LOAD(6, T6, a6) SIM_LOAD(7, T7, a7),                                    \
               __VA_ARGS__)
#define KERNEL9(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, ...)                 \
    SIM_KERNEL(name, (T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8),                              \
               (a0, a1, a2, a3, a4, a5, a6, a7, a8),                                                               \
               SIM_LOAD(0, T0, a0) SIM_LOAD(1, T1, a1) SIM_LOAD(2, T2, a2) SIM_LOAD(3, T3, a3) SIM_LOAD(4, T4, a4) \
                   SIM_LOAD(5, T5, a5) SIM_LOAD(6, T6, a6) SIM_LOAD(7, T7, a7) SIM_LOAD(8, T8, a8),                \
               __VA_ARGS__)
#define KERNEL10(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9, ...)        \
    SIM_KERNEL(name, (T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9),                       \
               (a0, a1, a2, a3, a4, a5, a6, a7, a8, a9),                                                           \
               SIM_LOAD(0, T0, a0) SIM_LOAD(1, T1, a1) SIM_LOAD(2, T2, a2) SIM_LOAD(3, T3, a3) SIM_LOAD(4, T4, a4) \
                   SIM_LOAD(5, T5, a5) SIM_LOAD(6, T6, a6) SIM_LOAD(7, T7, a7) SIM_LOAD(8, T8, a8)                 \
                       SIM_LOAD(9, T9, a9),                                                                        \
               __VA_ARGS__)

#endif
