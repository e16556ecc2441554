/*
 * dlsym() and dlvsym() for x86-64: see lookup.h. The frame is struct ov_lookup; a miss jumps, so that the C library
 * finds its caller's return address on the stack.
 */
#if defined(__x86_64__)

    .text

.macro lookup_entry name, versioned
    .globl  \name
    .type   \name, @function
    .p2align 4
\name:
    .cfi_startproc
    .byte   0xf3, 0x0f, 0x1e, 0xfa          /* endbr64 */
    pushq   %rdi                            /* handle */
    .cfi_adjust_cfa_offset 8
    pushq   %rsi                            /* name */
    .cfi_adjust_cfa_offset 8
    pushq   %rdx                            /* version, or whatever the caller left there */
    .cfi_adjust_cfa_offset 8
    pushq   24(%rsp)                        /* caller */
    .cfi_adjust_cfa_offset 8
    pushq   $0                              /* real; the stack is now aligned to 16 */
    .cfi_adjust_cfa_offset 8
    movq    %rsp, %rdi
    movl    $\versioned, %esi
    call    ov_dlsym_lookup
    popq    %r11
    .cfi_adjust_cfa_offset -8
    addq    $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq    %rdx
    .cfi_adjust_cfa_offset -8
    popq    %rsi
    .cfi_adjust_cfa_offset -8
    popq    %rdi
    .cfi_adjust_cfa_offset -8
    testq   %rax, %rax
    jz      1f
    ret
1:  jmpq    *%r11
    .cfi_endproc
    .size   \name, . - \name
.endm

    .hidden ov_dlsym_lookup
    lookup_entry dlsym, 0
    lookup_entry dlvsym, 1

#endif
    .section .note.GNU-stack, "", %progbits
