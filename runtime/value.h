/*
 * value.h - values as people write them: sizes, numbers, switches, lists of devices.
 *
 * All functions take a whole string and return false, the output untouched, when any of it is not understood. The C
 * library's parsers are not used: strtod() follows the locale, and all of strto*() take what nobody meant ("-1", "0x",
 * " 5"). No state, no allocation.
 */
#ifndef OV_VALUE_H
#define OV_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A decimal number without a sign: "2", "0.75". */
bool ov_value_real(const char *text, double *out);
/* The same with a sign and a power of ten: "-1.5e-3". Not beyond what a double holds. */
bool ov_value_decimal(const char *text, double *out);
/* Bytes, with an optional unit of 1024^n: "4096", "1.5G", "64 kB", "512MiB". */
bool ov_value_bytes(const char *text, size_t *out);
/* 0 no off false, 1 yes on true. */
bool ov_value_flag(const char *text, bool *out);
/* "all", or ordinals below 64 and ranges with commas between: bit i for ordinal i. */
bool ov_value_devices(const char *text, uint64_t *out);
/* Steps through a list with commas: *list is where it stands. Returns false at its end. Spaces around an element do not
 * belong to it; an empty element has length 0. */
bool ov_value_element(const char **list, const char **element, size_t *length);

#endif
