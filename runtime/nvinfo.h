/*
 * nvinfo.h - the records of one `.nv.info.<kernel>` section.
 *
 * A record is (format u8, attribute u8, value u16); format 4 is followed by `value` bytes of payload, the other formats
 * (1 none, 2 byte, 3 half word) carry all they say in the value. Those that matter here:
 *
 *   0x17  KPARAM_INFO     12 bytes: index u32, ordinal u16, offset u16, word u32 with size = word >> 18
 *   0x45  its successor   as above, size = the low 24 bits of the word, for kernels with more than 4 KiB of parameters
 *   0x0a  PARAM_CBANK     8 bytes: symbol u32, base u16 (where parameters begin in constant memory), total u16
 *   0x19  CBANK_PARAM_SIZE  the total, in the value
 *
 * (Learned from what nvcc 13.0 writes for sm_75, sm_90a and sm_100; checked against its PTX and by the tests'
 * fixtures.) A kernel without parameters has neither a total nor parameter records. Attributes not named here are
 * stepped over.
 */
#ifndef OV_NVINFO_H
#define OV_NVINFO_H

#include "image.h"
#include "view.h"

/* OV_IMAGE_OK: *param is an array of *param_count from malloc, the caller's to free (NULL for none).
 * OV_IMAGE_MALFORMED: the records leave room for doubt. OV_IMAGE_NO_MEMORY. */
int ov_nvinfo_read(struct ov_view records, struct ov_param **param, uint32_t *param_count);

#endif
