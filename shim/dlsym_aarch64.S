/*
 * dlsym() and dlvsym() for aarch64: see lookup.h. struct ov_lookup lies above the saved frame pointer and return
 * address; a miss jumps with the link register as it came, so that the C library sees its caller.
 */
#if defined(__aarch64__)

    .text

.macro lookup_entry name, versioned
    .globl  \name
    .type   \name, %function
    .p2align 4
\name:
    .cfi_startproc
    hint    34                              /* bti c */
    stp     x29, x30, [sp, -64]!
    .cfi_def_cfa_offset 64
    .cfi_offset x29, -64
    .cfi_offset x30, -56
    mov     x29, sp
    stp     xzr, x30, [sp, 16]              /* real, caller */
    stp     x2, x1, [sp, 32]                /* version, name */
    str     x0, [sp, 48]                    /* handle */
    add     x0, sp, 16
    mov     w1, \versioned
    bl      ov_dlsym_lookup
    mov     x9, x0
    ldr     x16, [sp, 16]
    ldp     x2, x1, [sp, 32]
    ldr     x0, [sp, 48]
    ldp     x29, x30, [sp], 64
    .cfi_restore x29
    .cfi_restore x30
    .cfi_def_cfa_offset 0
    cbz     x9, 1f
    mov     x0, x9
    ret
1:  br      x16
    .cfi_endproc
    .size   \name, . - \name
.endm

    .hidden ov_dlsym_lookup
    lookup_entry dlsym, 0
    lookup_entry dlvsym, 1

#endif
    .section .note.GNU-stack, "", %progbits
