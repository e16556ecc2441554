/* The text of inspect.ptx, zero-terminated, as cuModuleLoadData wants it. */
    .section .rodata
    .hidden ov_inspect_ptx
    .globl ov_inspect_ptx
ov_inspect_ptx:
    .incbin "inspect.ptx"
    .byte 0
    .section .note.GNU-stack, "", %progbits
