/* base/id.h: identifiers from the kernel's random source. Thread-safe. */
#pragma once

#include "base/err.h"

#define ID_HEX_128 33 /* 32 hex digits and NUL */

/* Fills out with `bytes` random bytes as lower-case hex and a NUL (2 * bytes + 1). Aborts the process if the
 * kernel gives none: nothing safe can be done without. */
void id_hex(char *out, size_t bytes);
/* Prefix and 32 hex digits, all of them random; out has room for prefix + ID_HEX_128. */
void id_new(const char *prefix, char *out, size_t size);
/* The same, but 12 of the digits are the time in milliseconds, as in a UUID of version 7 (RFC 9562): new rows
 * stand side by side in an index, so that a commit writes few of its pages. 80 bits are random. */
void id_new_in_time(const char *prefix, char *out, size_t size);
